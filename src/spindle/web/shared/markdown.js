// Markdown as elements: the part of GitHub's flavour that models and people write in conversations. Raw HTML is text.
// Blocks are read line by line, nesting is bounded, and inline text is scanned once with a stack of open
// delimiters, so no text takes more than linear time. Images of the web become links: the page loads nothing.
// On the chat page a text may still be growing: see GrowingMarkdown.

import { copyButton, el, iconButton } from './dom.js';
import { CodePainter } from './highlight.js';
import { linkKey, PIECE, pieceEnd, renderInline } from './inline.js';

const MAX_NESTING = 12; // of quotes and lists
const MAX_COLUMNS = 60;
const MARKDOWN_LIMIT = 400_000;

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/s;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/s;
const QUOTE = /^ {0,3}>[ \t]?/;
const DEFINITION =
  /^ {0,3}\[(?!\^)([^\]\\]{1,200})\]:[ \t]*<?([^\s<>]{1,2000})>?(?:[ \t]+["'(][^\n]{0,300}["')])?[ \t]*$/;
const DETAILS = /^ {0,3}<details>\s*(?:<summary>(.*?)<\/summary>)?\s*$/i;
const FOOTNOTE = /^ {0,3}\[\^([\w-]{1,30})\]:[ \t]+(.*)$/;
export const DELIMITER_ROW = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/;

/**
 * Return `text` rendered as a fragment.
 * @param {string} text
 */
export function markdown(text) {
  const fragment = document.createDocumentFragment();
  if (text.length > MARKDOWN_LIMIT) {
    while (text) {
      const end = pieceEnd(text) || text.length;
      fragment.append(el('div', { class: 'verbatim span' }, text.slice(0, end)));
      text = text.slice(end);
    }
    return fragment;
  }
  const raw = text.replace(/\r\n?/g, '\n').split('\n');
  const lines = raw.map(expandTabs);
  const links = findDefinitions(lines);
  for (let i = 0; i < lines.length;) i = renderTop(raw, lines, i, fragment, links);
  return fragment;
}

/**
 * Add the block that begins at line `i` of a whole text: tabs are columns, but those in code are the code's own.
 * @param {string[]} raw
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 */
export function renderTop(raw, lines, i, parent, links) {
  if (isBlank(lines[i])) return i + 1;
  return isFence(raw[i]) ? renderFence(raw, i, parent) : renderBlock(lines, i, parent, 0, links);
}

/**
 * Tabs at the beginning of a line count as columns.
 * @param {string} line
 */
export function expandTabs(line) {
  const indent = /** @type {RegExpExecArray} */ (/^[ \t]*/.exec(line))[0];
  if (!indent.includes('\t')) return line;
  let width = 0;
  for (const c of indent) width = c === '\t' ? width + 4 - (width % 4) : width + 1;
  return ' '.repeat(width) + line.slice(indent.length);
}

/** @param {string} line */
const indentOf = line => /** @type {RegExpExecArray} */ (/^ */.exec(line))[0].length;
/** @param {string} line */
export const isBlank = line => line.trim() === '';

/**
 * A line of nothing but three or more of the same mark.
 * @param {string} line
 */
function isRule(line) {
  const text = line.trim();
  const mark = text[0];
  if ((mark !== '*' && mark !== '-' && mark !== '_') || indentOf(line) > 3) return false;
  let marks = 0;
  for (const c of text) {
    if (c === mark) marks++;
    else if (c !== ' ' && c !== '\t') return false;
  }
  return marks >= 3;
}

/** @param {string[]} lines */
export function findDefinitions(lines) {
  const found = new Map();
  let fence = '';
  for (const line of lines) {
    const mark = FENCE.exec(line);
    if (fence) {
      if (mark && mark[2].startsWith(fence) && !mark[3]) fence = '';
    } else if (mark) fence = mark[2];
    else {
      const definition = DEFINITION.exec(line);
      if (definition && !found.has(linkKey(definition[1]))) found.set(linkKey(definition[1]), definition[2]);
    }
  }
  return found;
}

/**
 * @param {string[]} lines
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderBlocks(lines, parent, depth, links) {
  let i = 0;
  while (i < lines.length) i = isBlank(lines[i]) ? i + 1 : renderBlock(lines, i, parent, depth, links);
}

/**
 * Add the block that begins at line `i` to `parent`. Returns where the next one may begin.
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderBlock(lines, i, parent, depth, links) {
  const line = lines[i];
  if (indentOf(line) >= 4) return renderIndented(lines, i, parent);
  if (isFence(line)) return renderFence(lines, i, parent);
  if (HEADING.test(line)) return renderHeading(lines, i, parent, links);
  if (isRule(line)) {
    parent.append(el('hr'));
    return i + 1;
  }
  if (depth < MAX_NESTING && QUOTE.test(line)) return renderQuote(lines, i, parent, depth, links);
  if (depth < MAX_NESTING && ITEM.test(line)) return renderList(lines, i, parent, depth, links);
  if (isTable(lines, i)) return renderTable(lines, i, parent, links);
  if (depth < MAX_NESTING && DETAILS.test(line)) return renderDetails(lines, i, parent, depth, links);
  if (FOOTNOTE.test(line)) return renderFootnote(lines, i, parent, links);
  return DEFINITION.test(line) ? i + 1 : renderParagraph(lines, i, parent, depth, links);
}

/** @param {string} line */
export function isFence(line) {
  const mark = FENCE.exec(line);
  return mark !== null && !(mark[2][0] === '`' && mark[3].includes('`'));
}

/** A block of code that is read line by line. */
export class Fence {
  /** @param {string} line */
  constructor(line) {
    const [, indent, marks, info] = /** @type {RegExpExecArray} */ (FENCE.exec(line));
    this.indent = indent.length;
    this.marks = marks;
    this.language = info.trim().split(/[\s{,]/, 1)[0];
    this.code = '';
    this.begun = false;
  }

  /** @param {string} line */
  isEnd(line) {
    const close = FENCE.exec(line);
    return close !== null && close[2].startsWith(this.marks) && !close[3].trim();
  }

  /**
   * The code with another line.
   * @param {string} line
   */
  with(line) {
    const text = line.slice(Math.min(this.indent, indentOf(line)));
    return this.begun ? `${this.code}\n${text}` : text;
  }

  /** @param {string} line */
  push(line) {
    this.code = this.with(line);
    this.begun = true;
  }
}

/**
 * Add a block of code. Returns where the next block may begin.
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 */
function renderFence(lines, i, parent) {
  const fence = new Fence(lines[i]);
  for (i++; i < lines.length; i++) {
    if (fence.isEnd(lines[i])) {
      i++;
      break;
    }
    fence.push(lines[i]);
  }
  const block = new CodeBlock(fence.language);
  block.set(fence.code);
  parent.append(block.node);
  return i;
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 */
function renderIndented(lines, i, parent) {
  const body = [];
  while (i < lines.length && (isBlank(lines[i]) || indentOf(lines[i]) >= 4)) body.push(lines[i++].slice(4));
  while (body.length && isBlank(body[body.length - 1])) body.pop();
  const block = new CodeBlock('');
  block.set(body.join('\n'));
  parent.append(block.node);
  return i;
}

/** Code with its language and buttons around it. */
export class CodeBlock {
  /** @param {string} language */
  constructor(language) {
    this.code = '';
    const inner = el('code');
    this.painter = new CodePainter(inner, language);
    const copy = copyButton('Copy code', () => this.code);
    const wrap = iconButton('Wrap long lines', 'wrap', () => {
      wrap.ariaPressed = String(this.node.classList.toggle('wrapped'));
    });
    wrap.ariaPressed = 'false';
    wrap.classList.add('wrap');
    const name = language ? el('span', { class: 'lang' }, language.slice(0, 30)) : null;
    const note = /^mermaid$/i.test(language) ? el('span', { class: 'aside' }, 'a diagram, as its source') : null;
    const corner = el('div', { class: 'corner' }, copy, wrap, el('span', { class: 'room' }), note, name);
    this.node = el('div', { class: language ? 'code' : 'code bare' }, el('pre', { tabindex: '0' }, inner), corner);
  }

  /** @param {string} code */
  set(code, live = false) {
    this.code = code;
    this.painter.set(code, live);
  }
}

/**
 * What opens and closes: `<details><summary>…</summary>` up to `</details>`, with Markdown inside.
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderDetails(lines, i, parent, depth, links) {
  let title = /** @type {RegExpExecArray} */ (DETAILS.exec(lines[i]))[1];
  const body = [];
  let nested = 0;
  for (i++; i < lines.length; i++) {
    const line = lines[i].trim();
    const summary = title === undefined && body.every(isBlank) ? /^<summary>(.*?)<\/summary>$/i.exec(line) : null;
    if (/^<\/details>$/i.test(line) && nested-- === 0) {
      i++;
      break;
    }
    if (DETAILS.test(lines[i])) nested++;
    if (summary) title = summary[1];
    else body.push(lines[i]);
  }
  const head = el('summary');
  renderInline(title ?? 'Details', head, links);
  const node = el('details', { class: 'folded-text' }, head);
  renderBlocks(body, node, depth + 1, links);
  parent.append(node);
  return i;
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 */
function renderFootnote(lines, i, parent, links) {
  const [, name, text] = /** @type {RegExpExecArray} */ (FOOTNOTE.exec(lines[i]));
  const node = el('p', { class: 'footnote' }, el('sup', null, name), ' ');
  renderInline(text, node, links);
  parent.append(node);
  return i + 1;
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 */
function renderHeading(lines, i, parent, links) {
  const [, marks, text] = /** @type {RegExpExecArray} */ (HEADING.exec(lines[i]));
  parent.append(heading(marks.length, withoutClosingMarks((text ?? '').trim()), links));
  return i + 1;
}

/** @param {string} text */
function withoutClosingMarks(text) {
  let end = text.length;
  while (text[end - 1] === '#') end--;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end) : text;
}

/**
 * Let the headings of a message stand below a level of the page, none of them skipped, whatever the model wrote.
 * @param {any} message
 * @param {number} above
 */
export function levelHeadings(message, above) {
  let last = above;
  for (const node of message.querySelectorAll('[class^=md-h]')) {
    const own = Number(node.tagName[1]);
    last = Math.min(own, last + 1);
    if (last < own) node.setAttribute('aria-level', last);
  }
}

/**
 * A heading of a message stands below the headings of the page (h1 the session, h2 each message).
 * @param {number} level
 * @param {string} text
 * @param {Map<string, string>} links
 */
function heading(level, text, links) {
  const tag = /** @type {'h3'} */ ('h' + Math.min(level + 2, 6));
  const node = el(tag, { class: 'md-h' + level });
  renderInline(text.trim(), node, links);
  return node;
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderQuote(lines, i, parent, depth, links) {
  const body = [];
  let open = false;
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (QUOTE.test(line)) {
      body.push(expandTabs(line.replace(QUOTE, '')));
      open = endsInText(body[body.length - 1]);
    } else if (open && continues(line)) body.push(line);
    else break;
  }
  const quote = el('blockquote');
  renderBlocks(body, quote, depth + 1, links);
  parent.append(quote);
  return i;
}

/**
 * Whether a line is plain text that may go on a paragraph begun on the line before.
 * @param {string} line
 */
function continues(line) {
  return (
    !isBlank(line) && !isFence(line) && !HEADING.test(line) && !isRule(line) && !QUOTE.test(line) && !ITEM.test(line)
  );
}

/**
 * Whether a paragraph is open at the end of a line, inside whatever quotes and items begin on it.
 * @param {string} line
 */
function endsInText(line) {
  for (let depth = 0; depth < MAX_NESTING; depth++) {
    const item = ITEM.exec(line);
    if (item) line = item[4] ?? '';
    else if (QUOTE.test(line)) line = line.replace(QUOTE, '');
    else break;
  }
  return indentOf(line) < 4 && continues(line);
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderList(lines, i, parent, depth, links) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[i]));
  const marker = first[2].slice(-1);
  const ordered = marker === '.' || marker === ')';
  const start = ordered ? parseInt(first[2], 10) : 1;
  const root = el(ordered ? 'ol' : 'ul', start === 1 ? null : { start });
  const items = [];
  let loose = false;
  while (i < lines.length) {
    const match = ITEM.exec(lines[i]);
    if (!match || match[2].slice(-1) !== marker || isRule(lines[i])) break;
    const item = readItem(lines, i, match);
    items.push(item.body);
    loose ||= item.loose;
    i = item.next;
    let after = i;
    while (after < lines.length && isBlank(lines[after])) after++;
    const again = after < lines.length ? ITEM.exec(lines[after]) : null;
    if (!again || again[2].slice(-1) !== marker) break;
    loose ||= after > i;
    i = after;
  }
  for (const body of items) root.append(listItem(body, loose, depth, links));
  parent.append(root);
  return i;
}

/**
 * Collect the lines of one list item, their indentation taken off.
 * @param {string[]} lines
 * @param {number} i
 * @param {RegExpExecArray} match
 */
function readItem(lines, i, match) {
  const space = match[3] ?? ' ';
  const text = match[4] ?? '';
  const isCode = space.length > 4 && text !== '';
  const width = match[1].length + match[2].length + (isCode || text === '' ? 1 : space.length);
  const body = [isCode ? ' '.repeat(space.length - 1) + text : text];
  let open = endsInText(body[0]);
  let fence = isFence(body[0]) ? (FENCE.exec(body[0])?.[2] ?? '') : '';
  let hasList = false; // a list inside this item, whose blank lines are its own affair
  let blanks = 0;
  let loose = false;
  for (i++; i < lines.length; i++) {
    const line = lines[i];
    if (isBlank(line)) {
      blanks++;
      open = false;
    } else if (indentOf(line) >= width) {
      const inner = line.slice(width);
      loose ||= blanks > 0 && !fence && !(hasList && indentOf(inner) >= 2);
      for (; blanks; blanks--) body.push('');
      body.push(inner);
      const mark = FENCE.exec(inner);
      if (fence && mark?.[2].startsWith(fence)) fence = '';
      else if (!fence && isFence(inner)) fence = mark?.[2] ?? '';
      hasList ||= ITEM.test(inner);
      open = endsInText(inner);
    } else if (open && continues(line)) body.push(line.trimStart());
    else break;
  }
  return { body, loose, next: i - blanks };
}

/**
 * @param {string[]} body
 * @param {boolean} loose
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function listItem(body, loose, depth, links) {
  const item = el('li');
  const task = /^\[([ xX])\][ \t]+/.exec(body[0]);
  if (task) {
    body[0] = body[0].slice(task[0].length);
    item.className = 'task';
    const [sign, meaning] = task[1] === ' ' ? ['☐', 'to do'] : ['☑', 'done'];
    item.append(el('span', { class: 'box', role: 'img', 'aria-label': meaning }, sign));
  }
  const start = item.childNodes.length;
  renderBlocks(body, item, depth + 1, links);
  if (!loose) {
    for (const child of Array.from(item.childNodes).slice(start))
      if (child instanceof HTMLParagraphElement) child.replaceWith(...child.childNodes);
  }
  return item;
}

/**
 * @param {string[]} lines
 * @param {number} i
 */
function isTable(lines, i) {
  if (i + 1 >= lines.length || !lines[i].includes('|') || !lines[i + 1].includes('-')) return false;
  if (lines[i + 1].length > 2000 || !DELIMITER_ROW.test(lines[i + 1].trim())) return false;
  const columns = cells(lines[i + 1]).length;
  return columns <= MAX_COLUMNS && cells(lines[i]).length === columns;
}

/**
 * Split a row at its bars, but not at escaped ones.
 * @param {string} line
 */
function cells(line) {
  const row = line
    .trim()
    .replace(/^\|/, '')
    .replace(/([^\\]|^)\|$/, '$1');
  const found = [];
  let from = 0;
  for (let at = 0; at < row.length; at++) {
    if (row[at] === '\\') at++;
    else if (row[at] === '|') {
      found.push(row.slice(from, at));
      from = at + 1;
    }
  }
  found.push(row.slice(from));
  return found.map(cell => cell.trim().replaceAll('\\|', '|'));
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 */
function renderTable(lines, i, parent, links) {
  const sides = cells(lines[i + 1]).map(cell =>
    cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : '',
  );
  /**
   * @param {string} line
   * @param {'td' | 'th'} tag
   */
  const row = (line, tag) => {
    const tr = el('tr');
    const texts = cells(line);
    for (let c = 0; c < sides.length; c++) {
      const cell = el(tag, { class: sides[c] || null });
      renderInline(texts[c] ?? '', cell, links);
      tr.append(cell);
    }
    return tr;
  };
  const head = el('thead', null, row(lines[i], 'th'));
  const body = el('tbody');
  for (i += 2; i < lines.length && !isBlank(lines[i]) && (lines[i].includes('|') || continues(lines[i])); i++) {
    body.append(row(lines[i], 'td'));
  }
  parent.append(el('div', { class: 'table', tabindex: '0' }, el('table', null, head, body)));
  return i;
}

/**
 * @param {string} text
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 * @param {boolean} more goes on in another one
 */
function addParagraph(text, parent, links, more) {
  const paragraph = el('p', more ? { class: 'span' } : null);
  renderInline(text, paragraph, links);
  parent.append(paragraph);
}

/**
 * @param {string[]} lines
 * @param {number} i
 * @param {ParentNode & Node} parent
 * @param {number} depth
 * @param {Map<string, string>} links
 */
function renderParagraph(lines, i, parent, depth, links) {
  let text = '';
  let more = false;
  /** @param {string} line */
  const take = line => {
    text += line;
    for (let end; (end = pieceEnd(text)); text = text.slice(end)) addParagraph(text.slice(0, end), parent, links, true);
  };
  for (take(lines[i++].trim()); i < lines.length; i++) {
    const line = lines[i];
    const under = /^ {0,3}(=+|-+)[ \t]*$/.exec(line);
    if (under) {
      parent.append(heading(under[1][0] === '=' ? 1 : 2, text, links));
      return i + 1;
    }
    const item = ITEM.exec(line);
    const interrupts = item !== null && item[4] !== undefined && (item[2].length === 1 || /^1[.)]$/.test(item[2]));
    const nested = depth < MAX_NESTING && (interrupts || QUOTE.test(line));
    if (
      isBlank(line) ||
      isFence(line) ||
      HEADING.test(line) ||
      isRule(line) ||
      nested ||
      isTable(lines, i) ||
      DETAILS.test(line) ||
      FOOTNOTE.test(line)
    )
      break;
    more = text.length > PIECE && /^\p{L}/u.test(line);
    if (more) break;
    take('\n' + line.trim());
  }
  addParagraph(text, parent, links, more);
  return i;
}
