// A view of Markdown that grows with its text. Blocks that cannot change any more are built once and never touched
// again, and of a block of code only the last line. Blocks stand in parts, and the browser leaves out the parts that are
// full and out of sight; so a long answer costs as much per frame as a short one.

import { el, fill } from '../shared/dom.js';
import {
  CodeBlock,
  expandTabs,
  Fence,
  findDefinitions,
  isBlank,
  isFence,
  markdown,
  renderTop,
} from '../shared/markdown.js';
import { pieceEnd } from '../shared/inline.js';
import { settled } from './unfinished.js';

const PART = 24; // blocks in one

export class GrowingMarkdown {
  /** @type {string} */
  text;
  /** @type {number} */
  done;
  /** @type {ChildNode[]} */
  tail;
  /** @type {any} */
  open;
  /** @type {Map<string, any>} */
  links;
  /** @type {HTMLElement} */
  part;

  /** @param {HTMLElement} node */
  constructor(node) {
    this.node = node;
    this.clear();
  }

  clear() {
    this.text = '';
    this.done = 0; // how much of the text is in finished blocks
    this.tail = []; // the elements of the rest
    this.open = null; // the block of code at the end: {fence, block}
    this.links = new Map();
    this.part = el('div', { class: 'part' });
    fill(this.node, this.part);
  }

  /** @param {any} block */
  append(block) {
    // The room above a heading runs together with that below the block before it, which it does not between two parts.
    if (this.part.childElementCount >= PART && !/^H/.test(block.tagName)) {
      this.part.classList.add('full');
      this.part = el('div', { class: 'part' });
      this.node.append(this.part);
    }
    this.part.append(block);
  }

  /**
   * Show a text. With `live` more may come: what was shown before is then expected to be its beginning.
   * @param {string} source
   */
  set(source, live = false) {
    const text = source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source;
    if (this.done > text.length || (!live && !text.startsWith(this.text))) this.clear();
    this.text = text;
    if (this.open && !this.readCode(live)) return;
    const raw = text.slice(this.done).split('\n');
    const lines = raw.map(expandTabs);
    for (const [key, target] of findDefinitions(lines)) if (!this.links.has(key)) this.links.set(key, target);
    // What stands before the definition of a link may refer to it.
    if (!live && this.links.size) fill(this.node, markdown(text));
    else this.grow(raw, lines, live);
  }

  /**
   * @param {string[]} raw
   * @param {string[]} lines
   * @param {boolean} live
   */
  grow(raw, lines, live) {
    const rest = document.createDocumentFragment();
    const shown = live ? settled(lines) : lines;
    let steady = 0; // the lines before this one are shown as they are; only they say where blocks begin
    while (steady < shown.length && shown[steady] === lines[steady]) steady++;
    let [last, finished] = [0, 0]; // the line where the last block begins, the elements before it
    let code = -1; // the line where a block of code begins that has no end
    for (let i = 0; i < shown.length;) {
      // The last line has no end yet: it may turn out to go on with the block before it, and the line above it not to
      // be the head of a table.
      if (i < steady && i < lines.length - 2 && !isBlank(lines[i])) [last, finished] = [i, rest.childNodes.length];
      // But not if it is very long: only its end will change.
      if (live && i <= steady && /^\p{L}/u.test(raw[i]) && pieceEnd(raw[i]))
        [last, finished] = [i, rest.childNodes.length];
      if (live && i < steady && isFence(raw[i]) && i < lines.length - 1 && !hasEnd(raw, i)) {
        [last, finished, code] = [i, rest.childNodes.length, i];
        break;
      }
      i = renderTop(raw.slice(0, shown.length), shown, i, rest, this.links);
    }
    let cut = 0; // how much of the last block is in pieces that are finished
    for (let end; live && /^\p{L}/u.test(raw[last]) && (end = pieceEnd(shown[last]?.slice(cut) ?? '')); finished++) {
      if (!raw[last].startsWith(shown[last].slice(cut, cut + 2 * end), cut)) break;
      cut += end;
    }
    for (const node of this.tail) node.remove();
    this.tail = [...rest.childNodes].slice(finished);
    for (const block of [...rest.childNodes]) this.append(block);
    this.done += cut + raw.slice(0, last).reduce((sum, line) => sum + line.length + 1, 0);
    if (code >= 0) this.beginCode(raw[code]);
  }

  // -- a block of code that is being written --------------------------------------------------------

  /** @param {string} line */
  beginCode(line) {
    const fence = new Fence(line);
    const block = new CodeBlock(fence.language);
    this.append(block.node);
    this.tail = [block.node];
    this.open = { fence, block, at: this.done + line.length + 1 };
    this.readCode(true);
  }

  /**
   * Show what was added to the code. Returns whether it has ended, and `done` stands behind it.
   * @param {boolean} live
   */
  readCode(live) {
    const { fence, block } = this.open;
    const { text } = this;
    for (let end; (end = text.indexOf('\n', this.open.at)) >= 0; this.open.at = end + 1) {
      const line = text.slice(this.open.at, end);
      if (!fence.isEnd(line)) fence.push(line);
      else return this.endCode(end + 1);
    }
    const last = text.slice(this.open.at);
    if (!live && fence.isEnd(last)) return this.endCode(text.length);
    const mayClose = live && /^ {0,3}(?:`*|~*)[ \t]*$/.test(last);
    block.set(mayClose ? fence.code : fence.with(last), live);
    // What refers to a definition must be built again, and so is this.
    if (!live && this.links.size) fill(this.node, markdown(text));
    return false;
  }

  /** @param {number} at */
  endCode(at) {
    const { fence, block } = this.open;
    block.set(fence.code);
    this.open = null;
    this.tail = [];
    this.done = at;
    return true;
  }
}

/**
 * @param {string[]} raw
 * @param {number} i
 */
function hasEnd(raw, i) {
  const fence = new Fence(raw[i]);
  return raw.some((line, k) => k > i && k < raw.length - 1 && fence.isEnd(line));
}

/**
 * Render a text that is complete.
 * @param {string} text
 */
export function rendered(text) {
  return el('div', { class: 'md' }, markdown(text));
}
