// A text that is still being written, made fit to be shown: nothing in it may look like something else for a moment.
// Marks that have no meaning yet are held back, and what was opened is closed at the end, so bold is bold from its
// first word on and a link is not shown as brackets.

import { DELIMITER_ROW, isBlank } from '../shared/markdown.js';

const ONLY_MARKS = /^[\s\d>*+\-=#_~`|:.()[\]]*$/;
const BLOCK_MARK = /^\s*(?:[-*+>]|\d{1,9}[.)]|#{1,6})\s+/;
const FENCE_INSIDE = /^((?:[ >]|[-*+] |\d{1,9}[.)] )*)(`{3,}|~{3,})(.*)$/; // also in lists and quotes
const LONGEST_LINK = 400; // characters that are held back at most

/**
 * Return the lines of a text to show now; the last of them has no end yet.
 * @param {string[]} lines
 */
export function settled(lines) {
  let end = lines.length;
  if (end > 0 && !isBlank(lines[end - 1]) && ONLY_MARKS.test(lines[end - 1])) end--;
  end = beforeTable(lines, end);
  const shown = lines.slice(0, end);
  const start = afterCode(shown);
  if (start < shown.length) closeLast(shown, start);
  return shown;
}

/**
 * The line after the last block of code; Infinity while one is being written: nothing in it is opened or closed.
 * @param {string[]} lines
 */
function afterCode(lines) {
  let [mark, depth, after] = ['', 0, 0];
  lines.forEach((line, i) => {
    if (mark && depth > 1 && !isBlank(line) && line.search(/\S/) < depth - 1) mark = ''; // the list around it has ended
    const [, lead, ticks, info] = FENCE_INSIDE.exec(line) ?? [];
    if (ticks && !mark && !(ticks[0] === '`' && info.includes('`'))) [mark, depth] = [ticks, lead.length];
    else if (ticks && mark && ticks.startsWith(mark) && isBlank(info)) [mark, after] = ['', i + 1];
  });
  return mark ? Infinity : after;
}

/**
 * A line with bars may be the head of a table: it is one when the line below it is complete.
 * @param {string[]} lines
 * @param {number} end
 */
function beforeTable(lines, end) {
  let first = end === lines.length && lines[end - 1] === '' ? end - 1 : end;
  if (first === 0 || isBlank(lines[first - 1])) return end;
  while (first > 0 && lines[first - 1].includes('|') && !isBlank(lines[first - 1])) first--;
  if (
    first === end ||
    !lines[first]?.includes('|') ||
    (first > 0 && !isBlank(lines[first - 1]) && !lines[first].trimStart().startsWith('|'))
  )
    return end;
  const leads = lines[first].trimStart().startsWith('|') || / \| /.test(lines[first]);
  const decided = first + 1 < lines.length - 1;
  return leads && !decided && (first + 1 >= lines.length || couldBeRow(lines[first + 1])) ? first : end;
}

/** @param {string} line */
const couldBeRow = line => isBlank(line) || /^[\s|:-]*$/.test(line) || DELIMITER_ROW.test(line.trim());

/**
 * Close in the last line what the last paragraph has opened. It begins at line `start` or later.
 * @param {string[]} lines
 * @param {number} start
 */
function closeLast(lines, start) {
  const last = lines.length - 1;
  let first = last;
  while (first > start && !isBlank(lines[first - 1]) && !BLOCK_MARK.test(lines[first]) && !lines[first].includes('|'))
    first--;
  const lead = BLOCK_MARK.exec(lines[first])?.[0] ?? '';
  const head = first === last && lines[last].includes('|') ? lines[last].lastIndexOf('|') + 1 : lead.length;
  const text = [lines[first].slice(head), ...lines.slice(first + 1)].join('\n');
  const made = closed(text).split('\n');
  lines[first] = lines[first].slice(0, head) + made[0];
  for (let i = 1; first + i <= last; i++) lines[first + i] = made[i] ?? '';
}

/**
 * Return a paragraph as if it ended here.
 * @param {string} text
 */
function closed(text) {
  /** @type {any[]} */
  const open = []; // emphasis: the runs that began it
  let end = text.length;
  for (let at = 0; at < end;) {
    const c = text[at];
    if (c === '\\') {
      if (at === end - 1) end = at;
      at += 2;
    } else if (c === '`') {
      const ticks = /^`+/.exec(text.slice(at, at + 40))?.[0] ?? c;
      const from = at + ticks.length;
      const close = closingTicks(text, from, ticks);
      if (close < 0) {
        if (text.slice(from, end).trim() === '') end = at;
        else return withClosers(text.slice(0, end).replace(/`+$/, '') + ticks, open);
        break;
      }
      at = close;
    } else if (c === '[') {
      const close = linkEnd(text, at);
      if (close < 0 && end - at < LONGEST_LINK) end = text[at - 1] === '!' ? at - 1 : at;
      at = close < 0 ? at + 1 : close;
    } else if (
      (c === '<' && /^<\/?[a-z]{0,8}$/i.test(text.slice(at, at + 12))) ||
      (c === '&' && /^&[#\w]{0,8}$/.test(text.slice(at, at + 12)))
    ) {
      end = at;
    } else if (c === '$' && text[at + 1] === '$' && text.indexOf('$$', at + 2) < 0) {
      end = at;
    } else if (c === '*' || c === '_' || c === '~')
      at = emphasis(text, at, end, open, (/** @type {any} */ cut) => {
        end = cut;
      });
    else at++;
  }
  return withClosers(text.slice(0, end), open);
}

/**
 * @param {string} text
 * @param {number} from
 * @param {string} ticks
 */
function closingTicks(text, from, ticks) {
  const runs = /`+/g;
  runs.lastIndex = from;
  for (let run; (run = runs.exec(text));) if (run[0] === ticks) return runs.lastIndex;
  return -1;
}

/**
 * Where a link or a pair of brackets ends; -1 if that is not written yet.
 * @param {string} text
 * @param {number} at
 */
function linkEnd(text, at) {
  let depth = 0;
  for (let i = at; i < text.length && i < at + 2000; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === '[') depth++;
    else if (text[i] === ']' && --depth === 0) {
      const next = text[i + 1];
      if (next === undefined) return -1;
      if (next !== '(') return i + 1;
      const close = text.indexOf(')', i + 2);
      return close < 0 ? -1 : close + 1;
    }
  }
  return -1;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {number} end
 * @param {any[]} open
 * @param {any} cut
 */
function emphasis(text, at, end, open, cut) {
  const c = text[at];
  let to = at;
  while (text[to] === c) to++;
  const width = to - at;
  const before = text[at - 1] ?? ' ';
  const after = to < end ? text[to] : '';
  const top = open.findLast(one => one.c === c);
  if (after === '')
    cut(at); // it may open or close, and may get wider
  else if (top && !/\s/.test(before) && width >= 1) {
    top.width -= width;
    if (top.width <= 0) open.splice(open.indexOf(top));
  } else if (!/\s/.test(after) && (c !== '_' || !/\w/.test(before)) && (c !== '~' || width === 2) && width <= 3)
    open.push({ c, width });
  return to;
}

/**
 * @param {string} text
 * @param {any[]} open
 */
function withClosers(text, open) {
  if (!open.length) return text;
  const body = text.trimEnd();
  return (
    body +
    open
      .toReversed()
      .map(({ c, width }) => c.repeat(width))
      .join('') +
    text.slice(body.length)
  );
}
