// A view of Markdown that grows with its text. Blocks that cannot change any more are built once and never touched
// again, so a long answer costs as much per frame as a short one.

import { el } from '../shared/dom.js';
import { expandTabs, findDefinitions, isBlank, markdown, renderTop } from '../shared/markdown.js';

const LIVE_HIGHLIGHT = 4000; // characters of code that may be coloured again in every frame

export class GrowingMarkdown {
  constructor(node) {
    this.node = node;
    this.clear();
  }

  clear() {
    this.text = '';
    this.done = 0; // how much of the text is in finished blocks
    this.tail = []; // the elements of the rest
    this.links = new Map();
    this.node.replaceChildren();
  }

  /** Show a text. With `live` more may come: what was shown before is then expected to be its beginning. */
  set(source, live = false) {
    const text = source.replace(/\r\n?/g, '\n');
    if (this.done > text.length || (!live && !text.startsWith(this.text))) this.clear();
    this.text = text;
    const raw = text.slice(this.done).split('\n');
    const lines = raw.map(expandTabs);
    for (const [key, target] of findDefinitions(lines)) if (!this.links.has(key)) this.links.set(key, target);
    // What stands before the definition of a link may refer to it.
    if (!live && this.links.size) this.node.replaceChildren(markdown(text));
    else this.grow(raw, lines, live);
  }

  grow(raw, lines, live) {
    const rest = document.createDocumentFragment();
    const plain = live && this.text.length - this.done > LIVE_HIGHLIGHT;
    let [last, finished] = [0, 0]; // the line where the last block begins, the elements before it
    for (let i = 0; i < lines.length;) {
      // The last line has no end yet: it may turn out to go on with the block before it, and the line above it not to
      // be the head of a table.
      if (i < lines.length - 2 && !isBlank(lines[i])) [last, finished] = [i, rest.childNodes.length];
      i = renderTop(raw, lines, i, rest, this.links, plain);
    }
    for (const node of this.tail) node.remove();
    this.tail = [...rest.childNodes].slice(finished);
    this.node.append(rest);
    this.done += raw.slice(0, last).reduce((sum, line) => sum + line.length + 1, 0);
  }
}

/** Render a text that is complete. */
export function rendered(text) {
  return el('div', { class: 'md' }, markdown(text));
}
