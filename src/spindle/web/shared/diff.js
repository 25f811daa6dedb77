// Changes to a file as coloured lines with two gutters: the number of a line before and after. A row is
// {sign, before, after, text}; a row without numbers whose text is … stands for lines that are left out.

import { button, el } from './dom.js';
import { list, obj, str } from './format.js';
import { highlight } from './highlight.js';
import { reconcile } from './reconcile.js';

const MAX_ROWS = 400;
const MORE_ROWS = 1000; // that a reader adds at a time
const MAX_COMPARED = 1_000_000; // pairs of lines, or of words

/**
 * The diff that comes with the result of an edit: every line begins with its sign and its number.
 * @param {string} text
 */
export function rowsOfDiff(text) {
  let shift = 0; // how much further down a line stands than before
  return text.split('\n').map(line => {
    const [, sign, digits, rest] = /** @type {RegExpExecArray} */ (/^([-+ ]?)( *\d*) ?([^]*)$/.exec(line));
    const number = Number(digits) || 0;
    if (!number) return { sign: '', before: '', after: '', text: rest === '...' ? '…' : rest };
    if (sign === '+') return { sign, before: '', after: number, text: rest, shift: shift++ };
    if (sign === '-') return { sign, before: number, after: '', text: rest, shift: shift-- };
    return { sign: '', before: number, after: number + shift, text: rest };
  });
}

/**
 * A difference in the form of git: {head, text, rows} of each hunk.
 * @param {string} text
 */
export function hunksOfPatch(text) {
  /** @type {Hunk[]} */
  const hunks = [];
  let [before, after, inside] = [0, 0, false];
  for (const line of lines(text)) {
    const found = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    const hunk = hunks[hunks.length - 1];
    if (found) {
      hunks.push({ head: line, text: `${line}\n`, rows: [] });
      [before, after, inside] = [Number(found[1]), Number(found[2]), true];
      continue;
    }
    if (line.startsWith('diff --git ')) inside = false;
    if (!inside || !/^[-+ \\]/.test(line)) continue; // what stands before the first hunk
    hunk.text += `${line}\n`;
    if (line[0] === '+') hunk.rows.push({ sign: '+', before: '', after: after++, text: line.slice(1) });
    else if (line[0] === '-') hunk.rows.push({ sign: '-', before: before++, after: '', text: line.slice(1) });
    else if (line[0] === ' ') hunk.rows.push({ sign: '', before: before++, after: after++, text: line.slice(1) });
  }
  return hunks;
}

/**
 * The same of rows with gaps.
 * @param {DiffRow[]} rows
 */
export function hunksOfRows(rows) {
  /** @type {DiffRow[][]} */
  const hunks = [[]];
  for (const row of rows) {
    if (row.before === '' && row.after === '' && row.text === '…') hunks.push([]);
    else hunks[hunks.length - 1].push(row);
  }
  return hunks.filter(hunk => hunk.length).map(hunk => ({ head: '', text: '', rows: hunk }));
}

/**
 * The arguments of an edit, before it is made: what goes and what comes, without the lines that stay.
 * @param {Record<string, unknown>} args
 */
export function rowsOfEdit(args) {
  return (Array.isArray(args.edits) ? list(args.edits) : [args]).map(obj).flatMap((edit, index) => {
    const rows = compare(
      lines(str(edit.oldText) || str(edit.old_string)),
      lines(str(edit.newText) || str(edit.new_string)),
    );
    return index && rows.length ? [{ sign: '', before: '', after: '', text: '…' }, ...rows] : rows;
  });
}

/**
 * A file that is written whole.
 * @param {string} text
 */
export const rowsOfText = text => lines(text).map((line, i) => ({ sign: '+', before: '', after: i + 1, text: line }));

/**
 * The lines of a text; the end of the last one begins no other.
 * @param {string} text
 */
function lines(text) {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}

/**
 * @param {any} before
 * @param {any} after
 */
function compare(before, after) {
  /**
   * @param {string} sign
   * @param {string} line
   */
  const row = (sign, line) => ({ sign, before: '', after: '', text: line });
  return common(before, after).map(([sign, line]) => row(sign, line));
}

/**
 * The shortest way from one list to the other: pairs of a sign and an item. What is too long goes and comes whole.
 * @param {any} a
 * @param {any} b
 */
export function common(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [left, right] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const middle =
    left.length * right.length > MAX_COMPARED
      ? [...left.map((/** @type {any} */ item) => ['-', item]), ...right.map((/** @type {any} */ item) => ['+', item])]
      : longest(left, right);
  return [
    ...a.slice(0, head).map((/** @type {any} */ item) => ['', item]),
    ...middle,
    ...a.slice(a.length - tail).map((/** @type {any} */ item) => ['', item]),
  ];
}

/**
 * @param {string} a
 * @param {string} b
 */
function longest(a, b) {
  const width = b.length + 1;
  const best = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      best[i * width + j] =
        a[i] === b[j]
          ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push(['', a[i++]]);
      j++;
    } else if (i < a.length && (j === b.length || best[(i + 1) * width + j] >= best[i * width + j + 1]))
      found.push(['-', a[i++]]);
    else found.push(['+', b[j++]]);
  }
  return found;
}

/**
 * How many lines came and went.
 * @param {DiffRow[]} rows
 */
export function counts(rows) {
  let [added, removed] = [0, 0];
  for (const { sign } of rows) {
    if (sign === '+') added++;
    else if (sign === '-') removed++;
  }
  return { added, removed };
}

/**
 * What a diff stands in, with room for the highest number of a line.
 * @param {string} kind
 * @param {DiffRow[]} rows
 */
function box(kind, rows) {
  const highest = rows.reduce((most, { before, after }) => Math.max(most, before, after), 0);
  const names = highest ? kind : `${kind} bare`;
  const node = el('div', { class: names, tabindex: '0', role: 'group', 'aria-label': 'changes' });
  node.style.setProperty('--digits', `${String(highest).length}`);
  return node;
}

/**
 * A diff, of a very long one the beginning until the reader wants all of it.
 * @param {DiffRow[]} rows
 */
export function diffView(rows, language = '') {
  const node = box('diff', rows);
  const made = withWords(rows.slice(0, MAX_ROWS), language);
  node.append(...made);
  if (rows.length > MAX_ROWS) showMore(node, rows.slice(MAX_ROWS), part => withWords(part, language));
  return node;
}

/**
 * Let the reader add what is left, a part at a time.
 * @param {HTMLElement} node
 * @param {DiffRow[]} rows
 * @param {Act} make
 */
function showMore(node, rows, make) {
  const next = Math.min(rows.length, MORE_ROWS);
  const more = button(
    'plain',
    () => {
      more.replaceWith(...make(rows.slice(0, next)));
      if (rows.length > next) showMore(node, rows.slice(next), make);
    },
    next < rows.length ? `Show ${next} of ${rows.length} more lines` : `Show ${rows.length} more lines`,
  );
  node.append(more);
}

/**
 * Say how many lines have come, and how many have gone if that is known.
 * @param {HTMLElement} node
 * @param {number} added
 * @param {number} [removed]
 */
export function showSize(node, added, removed) {
  /**
   * @param {string} kind
   * @param {string} words
   */
  const part = (kind, words) => ({ key: kind, state: words, build: () => el('span', { class: kind }, words) });
  const parts = [part('plus', `+${added}`)];
  if (removed !== undefined) parts.push(part('minus', ` −${removed}`));
  reconcile(node, parts);
}

/**
 * A diff in two columns: on the left what was, on the right what is.
 * @param {DiffRow[]} rows
 */
export function sideBySide(rows, language = '') {
  const node = box('diff split', rows);
  /** @param {any} part */
  const make = part => pairs(part).map(([left, right]) => el('div', null, half(left, 'del'), half(right, 'add')));
  /**
   * @param {DiffRow} row
   * @param {string} kind
   */
  const half = (row, kind) => {
    if (!row) return el('div', { class: 'half none' });
    const text = language && row.text.length < 2000 ? highlight(row.text, language) : row.text;
    const content = el('span', null, text);
    if (row.words) mark(content, row.words);
    const number = String(kind === 'del' ? row.before : row.after);
    return el('div', { class: `half ${row.sign ? kind : ''}` }, el('i', null, number), content);
  };
  node.append(...make(rows.slice(0, MAX_ROWS)));
  if (rows.length > MAX_ROWS) showMore(node, rows.slice(MAX_ROWS), make);
  return node;
}

/**
 * Lines beside each other: those that stay with themselves, those that go with those that come in their place.
 * @param {DiffRow[]} rows
 */
function pairs(rows) {
  /** @type {any[][]} */
  const found = [];
  const marks = wordMarks(rows);
  /** @type {any[][]} */
  let [gone, come] = [[], []];
  const flush = () => {
    for (let i = 0; i < Math.max(gone.length, come.length); i++) found.push([gone[i], come[i]]);
    [gone, come] = [[], []];
  };
  for (const row of rows) {
    const marked = { ...row, words: marks.get(row) };
    if (row.sign === '-') gone.push(marked);
    else if (row.sign === '+') come.push(marked);
    else {
      flush();
      found.push([row, row]);
    }
  }
  flush();
  return found;
}

/**
 * Make the rows; where lines were replaced by others like them, the words that differ are marked.
 * @param {DiffRow[]} rows
 * @param {string} [language]
 */
function withWords(rows, language) {
  const marks = wordMarks(rows);
  return rows.map(row => diffRow(row, marks.get(row), language));
}

/** @param {DiffRow[]} rows */
function wordMarks(rows) {
  const marks = new Map();
  for (let i = 0; i < rows.length;) {
    if (rows[i].sign !== '-') {
      i++;
      continue;
    }
    let middle = i;
    while (rows[middle]?.sign === '-') middle++;
    let end = middle;
    while (rows[end]?.sign === '+') end++;
    for (let k = 0; k < Math.min(middle - i, end - middle); k++) markWords(rows[i + k], rows[middle + k], marks);
    i = end;
  }
  return marks;
}

/**
 * @param {any} gone
 * @param {any} come
 * @param {Map<any, any>} marks
 */
function markWords(gone, come, marks) {
  if (gone.text.length + come.text.length > 2000) return;
  /** @param {string} text */
  const words = text => text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const pieces = common(words(gone.text), words(come.text));
  const same = pieces.reduce((sum, [sign, word]) => (sign || !word.trim() ? sum : sum + word.length), 0);
  // Lines that have little in common were not changed but replaced.
  if (same * 3 < Math.max(gone.text.trim().length, come.text.trim().length)) return;
  marks.set(
    gone,
    pieces.filter(([sign]) => sign !== '+'),
  );
  marks.set(
    come,
    pieces.filter(([sign]) => sign !== '-'),
  );
}

/**
 * @param {any} fields
 * @param {string} words
 * @param {string} [language]
 */
function diffRow({ sign, before, after, text }, words, language) {
  const kind =
    /** @type {Record<string, any>} */ ({ '+': 'add', '-': 'del' })[sign] ??
    (text === '…' && before === '' ? 'gap' : null);
  const content = el('span', null, language && text.length < 2000 ? highlight(text, language) : text);
  if (words) mark(content, words);
  return el(
    'div',
    { class: kind },
    el('i', null, String(before)),
    el('i', null, String(after)),
    el('b', null, sign),
    content,
  );
}

/**
 * Put marks around the words that differ; the colours inside stay.
 * @param {HTMLElement} node
 * @param {string} words
 */
function mark(node, words) {
  const ranges = [];
  let at = 0;
  for (const [sign, word] of words) {
    if (sign && word.trim()) {
      /** @type {any} */
      const last = ranges.at(-1);
      if (last?.[1] === at) last[1] = at + word.length;
      else ranges.push([at, at + word.length]);
    }
    at += word.length;
  }
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  /** @type {Text[]} */
  const texts = [];
  while (walker.nextNode()) texts.push(/** @type {Text} */ (walker.currentNode));
  let start = 0;
  for (const piece of texts) {
    const end = start + piece.data.length;
    for (const [from, to] of ranges.toReversed()) {
      const [a, b] = [Math.max(from, start), Math.min(to, end)];
      if (a >= b) continue;
      const inner = piece.splitText(a - start);
      inner.splitText(b - a);
      const around = el('mark');
      inner.replaceWith(around);
      around.append(inner);
    }
    start = end;
  }
}
