// Markdown as elements: the part of GitHub's flavour that models and people write in conversations. Raw HTML is text.
// `Markdown` is a view that grows with its text: blocks that are finished are built once and never touched again, so
// a long answer costs as much per frame as a short one.

import { copyButton, el } from './dom.js';
import { highlight } from './highlight.js';
import { inline } from './inline.js';

const MAX_NESTING = 10; // of quotes and lists in each other
const MAX_COLUMNS = 60;
const LIVE_HIGHLIGHT = 4000; // characters of code that may be coloured anew in every frame

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const DELIMITERS = /^ {0,3}\|?[ ]*:?-+:?[ ]*(?:\|[ ]*:?-+:?[ ]*)*\|?[ ]*$/;

const isBlank = line => line.trim() === '';
const indentOf = line => line.length - line.trimStart().length;

export class Markdown {
  constructor(node) {
    this.node = node;
    this.clear();
  }

  clear() {
    this.text = '';
    this.done = 0; // how much of the text is in finished blocks
    this.tail = null; // the block that may still grow: {kind, node, …}
    this.node.replaceChildren();
  }

  /** Show `text`. With `live` more may come: what was shown before is then expected to be its beginning. */
  set(text, live = false) {
    if (this.done > text.length || (!live && !text.startsWith(this.text))) this.clear();
    this.text = text;
    const raw = text.slice(this.done).split('\n');
    const blocks = readBlocks(withoutLeadingTabs(raw), 0);
    const last = blocks.pop();
    for (const block of blocks) {
      this.replaceTail(build(block, 0));
      this.tail = null;
    }
    if (last) this.grow(last, live);
    if (blocks.length) this.done += lengthOf(raw, blocks.at(-1).end);
  }

  grow(block, live) {
    const long = live && block.kind === 'code' && block.code.length > LIVE_HIGHLIGHT;
    if (long && this.tail?.plain) this.tail.plain.data = block.code;
    else {
      const node = build(block, 0, long);
      this.replaceTail(node);
      this.tail = { node, plain: long ? node.querySelector('code').firstChild : null };
    }
  }

  replaceTail(node) {
    if (this.tail) this.tail.node.replaceWith(node);
    else this.node.append(node);
  }
}

/** Tabs that indent text count as four columns; those in code are the code's own. */
function withoutLeadingTabs(lines) {
  let fence = '';
  return lines.map(line => {
    const mark = /^\s*(`{3,}|~{3,})/.exec(line)?.[1] ?? '';
    if (fence) {
      if (mark.startsWith(fence)) fence = '';
      return line;
    }
    fence = mark;
    return line.replace(/\r$/, '').replace(/^[ \t]+/, space => space.replaceAll('\t', '    '));
  });
}

const lengthOf = (lines, end) => lines.slice(0, end).reduce((sum, line) => sum + line.length + 1, 0);

/** Render a text that is complete. */
export function markdown(text, props = { class: 'md' }) {
  const node = el('div', props);
  new Markdown(node).set(text);
  return node;
}

// -- reading: lines become blocks; a block ends only where the next one begins --------------------

function readBlocks(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const block = readBlock(lines, i, depth);
    blocks.push(block);
    i = block.end;
  }
  return blocks;
}

function readBlock(lines, i, depth) {
  const line = lines[i];
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, i, fence);
  if (indentOf(line) >= 4) return readIndented(lines, i);
  const heading = HEADING.exec(line);
  if (heading)
    return { kind: 'heading', level: heading[1].length, text: (heading[2] ?? '').replace(/ #+ *$/, ''), end: i + 1 };
  if (RULE.test(line)) return { kind: 'rule', end: i + 1 };
  if (depth < MAX_NESTING && QUOTE.test(line)) return readQuote(lines, i);
  if (depth < MAX_NESTING && ITEM.test(line)) return readList(lines, i);
  if (isTable(lines, i)) return readTable(lines, i);
  return readParagraph(lines, i, depth);
}

function readFence(lines, i, [, indent, marks, info]) {
  const code = [];
  for (i++; i < lines.length; i++) {
    const close = FENCE.exec(lines[i]);
    if (close && close[2].startsWith(marks) && isBlank(close[3])) {
      i++;
      break;
    }
    code.push(lines[i].slice(Math.min(indent.length, indentOf(lines[i]))));
  }
  return { kind: 'code', code: code.join('\n'), language: info.trim().split(/[\s{,]/, 1)[0], end: i };
}

function readIndented(lines, i) {
  const code = [];
  for (; i < lines.length && (isBlank(lines[i]) || indentOf(lines[i]) >= 4); i++) code.push(lines[i].slice(4));
  return { kind: 'code', code: code.join('\n').trimEnd(), language: '', end: i };
}

function readQuote(lines, i) {
  const inner = [];
  for (; i < lines.length && (QUOTE.test(lines[i]) || (inner.length && isText(lines[i]))); i++) {
    inner.push(lines[i].replace(QUOTE, ''));
  }
  return { kind: 'quote', lines: inner, end: i };
}

const isText = line => !isBlank(line) && ![FENCE, HEADING, RULE, QUOTE, ITEM].some(form => form.test(line));

function readList(lines, i) {
  const marker = ITEM.exec(lines[i])[2];
  const kind = marker.slice(-1);
  const items = [];
  let loose = false;
  let blanks = 0;
  let width = 0;
  let fence = '';
  for (; i < lines.length; i++) {
    const line = lines[i];
    const inside = items.length > 0 && indentOf(line) >= width;
    const item = inside || fence ? null : ITEM.exec(line);
    if (isBlank(line)) blanks++;
    else if (item && item[2].slice(-1) === kind && !RULE.test(line)) {
      loose ||= blanks > 0 && items.length > 0;
      blanks = 0;
      width = Math.min(line.length - item[3].length, indentOf(line) + item[2].length + 4);
      items.push([item[3]]);
    } else if (inside || fence || (blanks === 0 && isText(line))) {
      for (; blanks > 0; blanks--) items.at(-1).push('');
      const text = line.slice(Math.min(width, indentOf(line)));
      const mark = FENCE.exec(text);
      if (fence && mark?.[2].startsWith(fence)) fence = '';
      else if (!fence && mark) fence = mark[2];
      items.at(-1).push(text);
    } else break;
  }
  return { kind: 'list', start: parseInt(marker, 10), items, loose, end: i };
}

function isTable(lines, i) {
  if (i + 1 >= lines.length || !lines[i].includes('|') || !DELIMITERS.test(lines[i + 1].slice(0, 2000))) return false;
  const columns = cells(lines[i + 1]).length;
  return columns <= MAX_COLUMNS && cells(lines[i]).length === columns;
}

function readTable(lines, i) {
  const sides = cells(lines[i + 1]).map(cell =>
    cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : null,
  );
  const rows = [cells(lines[i])];
  for (i += 2; i < lines.length && lines[i].includes('|'); i++) rows.push(cells(lines[i]));
  return { kind: 'table', sides, rows, end: i };
}

/** Split a row at its bars, but not at escaped ones. */
function cells(line) {
  const row = line
    .trim()
    .replace(/^\|/, '')
    .replace(/([^\\]|^)\|$/, '$1');
  return row.split(/(?<!\\)\|/).map(cell => cell.trim().replaceAll('\\|', '|'));
}

function readParagraph(lines, i, depth) {
  const text = [lines[i].trim()];
  for (i++; i < lines.length; i++) {
    const line = lines[i];
    const under = /^ {0,3}(=+|-+) *$/.exec(line);
    if (under) return { kind: 'heading', level: under[1][0] === '=' ? 1 : 2, text: text.join('\n'), end: i + 1 };
    const item = ITEM.exec(line);
    const begins = QUOTE.test(line) || (item && item[3] !== '' && /^(?:\D|1\D)$/.test(item[2]));
    if (isBlank(line) || FENCE.test(line) || HEADING.test(line) || RULE.test(line)) break;
    if ((depth < MAX_NESTING && begins) || isTable(lines, i)) break;
    text.push(line.trim());
  }
  return { kind: 'paragraph', text: text.join('\n'), end: i };
}

// -- building -------------------------------------------------------------------------------------

function build(block, depth, plain = false) {
  switch (block.kind) {
    case 'code':
      return codeBlock(block.code, block.language, plain);
    case 'heading':
      return el('h' + Math.min(block.level + 2, 6), { class: 'h' + block.level }, ...inline(block.text));
    case 'rule':
      return el('hr');
    case 'quote':
      return el('blockquote', null, ...readBlocks(block.lines, depth + 1).map(inner => build(inner, depth + 1)));
    case 'list':
      return buildList(block, depth);
    case 'table':
      return buildTable(block);
    default:
      return el('p', null, ...inline(block.text));
  }
}

export function codeBlock(code, language, plain = false) {
  const content = plain || !code ? [document.createTextNode(code)] : highlight(code, language);
  const pre = el('pre', { tabindex: '0' }, el('code', null, ...content));
  const bar = el(
    'div',
    { class: 'code-bar' },
    el('span', null, language.slice(0, 30)),
    copyButton('Copy code', () => pre.textContent),
  );
  return el('div', { class: 'code' }, bar, pre);
}

function buildList({ start, items, loose }, depth) {
  const ordered = !Number.isNaN(start);
  return el(
    ordered ? 'ol' : 'ul',
    ordered && start !== 1 ? { start } : null,
    ...items.map(lines => buildItem(lines, loose, depth)),
  );
}

function buildItem(lines, loose, depth) {
  const task = /^\[([ xX])\] +/.exec(lines[0]);
  const text = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const blocks = readBlocks(text, depth + 1);
  const tight = !loose && blocks.filter(({ kind }) => kind === 'paragraph').length < 2;
  const nodes = blocks.flatMap(block =>
    block.kind === 'paragraph' && tight ? inline(block.text) : [build(block, depth + 1)],
  );
  if (!task) return el('li', null, ...nodes);
  const done = task[1] !== ' ';
  const box = el('span', { class: 'box', role: 'img', 'aria-label': done ? 'done' : 'to do' }, done ? '☑' : '☐');
  return el('li', { class: 'task' }, box, ...nodes);
}

function buildTable({ sides, rows: [head, ...body] }) {
  const row = (texts, tag) =>
    el('tr', null, ...sides.map((side, i) => el(tag, { class: side }, ...inline(texts[i] ?? ''))));
  const table = el(
    'table',
    null,
    el('thead', null, row(head, 'th')),
    el('tbody', null, ...body.map(texts => row(texts, 'td'))),
  );
  return el('div', { class: 'table', tabindex: '0' }, table);
}
