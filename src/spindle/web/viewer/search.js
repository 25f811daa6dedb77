// Search over everything that was said, tool output included. Entries whose bytes hold the words are found first
// and only those are parsed; long sessions are searched in slices, and a new word ends the old search.

import { searchText } from './articles.js';
import { breathe } from '../shared/dom.js';

export class Search {
  /** @type {any[]} */
  words;

  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.words = [];
    this.run = 0;
  }

  /**
   * Look for entries that hold all words of `query` and report a flag per entry, or null if there are no words.
   * @param {string} query
   * @param {Act} report
   */
  async start(query, report) {
    const run = ++this.run;
    this.words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!this.words.length) {
      report(null);
      return;
    }
    const { store } = this;
    // As the words are written in the page's data.
    const written = this.words.map(word => JSON.stringify(word).slice(1, -1).replaceAll('<', '\\u003c'));
    const matches = new Uint8Array(store.count);
    let pause = performance.now() + 40;
    for (let i = 0; i < store.count; i++) {
      if (this.mayHold(i, written) && this.holds(i)) matches[i] = 1;
      if ((i & 31) === 31 && performance.now() > pause) {
        await breathe();
        if (run !== this.run) return;
        pause = performance.now() + 40;
      }
    }
    report(matches);
  }

  /**
   * @param {number} i
   * @param {string[]} written
   */
  mayHold(i, written) {
    if (this.store.label(i) !== undefined) return true;
    const line = this.store.line(i).toLowerCase();
    return written.every((/** @type {string} */ word) => line.includes(word));
  }

  /** @param {number} i */
  holds(i) {
    const text = searchText(this.store, i).toLowerCase();
    return this.words.every(word => text.includes(word));
  }

  /**
   * Mark the words in the articles that are in the document, without touching their elements.
   * @param {HTMLElement} root
   */
  mark(root) {
    if (!globalThis.CSS?.highlights) return;
    CSS.highlights.delete('found');
    if (!this.words.length) return;
    const ranges = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && ranges.length < 3000) {
      const { data } = /** @type {Text} */ (walker.currentNode);
      const text = data.toLowerCase();
      // Lower case may be longer than the text in rare scripts; then the marks would be off.
      if (text.length !== data.length) continue;
      for (const word of this.words) {
        for (let at = text.indexOf(word); at >= 0 && ranges.length < 3000; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, at + word.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set('found', new Highlight(...ranges));
  }
}
