// A long column of rows, of which only those near the window are in the document. A row has a guessed height until it is
// seen; then it is measured. Rows that leave the window are let go, and built again when they come back.

import { Heights } from './heights.js';
import { arrange } from './reconcile.js';

const MARGIN = 1000; // pixels above and below the window that are kept ready
const MAX_HEIGHT = 12e6; // browsers cannot lay out much more

export class Row {
  /** @type {any} */
  node;

  /**
   * `build()` returns what is to be seen of it.
   * @param {string} kind
   * @param {Act} build
   */
  constructor(kind, build, height = 90) {
    this.kind = kind;
    this.build = build;
    this.height = height; // as it was measured; before that a guess
    this.node = null; // its element, while there is one
    this.place = -1; // in the list
    this.keep = false; // it does not lose its element when it leaves the document
  }
}

export class VirtualList {
  /** @type {any[]} */
  rows;
  /** @type {number | undefined} */
  frame;

  /**
   * `scroller` scrolls and `root` has the rows. Up to `whole` rows none is left out.
   * @param {HTMLElement} scroller
   * @param {HTMLElement} root
   * @param {any} whole
   */
  constructor(scroller, root, whole) {
    this.scroller = scroller;
    this.root = root;
    this.whole = whole;
    this.rows = [];
    this.heights = new Heights();
    this.first = 0; // of the rows in the document
    this.last = -1;
    this.sticks = false; // the end stays in view
    this.printing = false;
    this.sizes = new ResizeObserver(changes => this.resized(changes));
  }

  /**
   * Make the element of a row.
   * @param {Row} row
   */
  make(row) {
    return row.build();
  }

  /** How much of the window is covered at its upper edge. */
  get lead() {
    return 0;
  }

  /** Called when the rows in the document are the right ones. */
  painted() {}

  // -- rows -----------------------------------------------------------------------------------------

  /**
   * Show these rows. Those that were here before keep their elements.
   * @param {any[]} rows
   */
  show(rows, anchor = this.sticks ? null : this.anchor()) {
    this.rows = rows;
    rows.forEach((row, place) => {
      row.place = place;
    });
    const guessed = rows.reduce((sum, { height }) => sum + height, 0);
    if (guessed > MAX_HEIGHT) for (const row of rows) if (!row.node) row.height *= MAX_HEIGHT / guessed;
    this.heights = new Heights(rows.map(({ height }) => height));
    this.update(anchor && this.has(anchor.row) ? anchor : null);
  }

  /** @param {Row} row */
  has(row) {
    return this.rows[row.place] === row;
  }

  /**
   * Add a row at the end.
   * @param {Row} row
   */
  append(row) {
    row.place = this.rows.length;
    this.rows.push(row);
    this.heights.push(row.height);
    if (this.last === this.rows.length - 2) this.update();
    else this.pad();
  }

  /** Build all rows again that are in the document, without moving. */
  redraw(anchor = this.anchor()) {
    this.clear();
    this.update(anchor);
  }

  clear() {
    for (const node of [...this.root.children]) if (node.row) this.unmount(node.row);
    this.root.textContent = '';
  }

  /** @param {Row} row */
  unmount(row) {
    this.sizes.unobserve(row.node);
    row.node.remove();
    if (!row.keep) row.node = null;
  }

  /**
   * Let the rows from `first` to `last` be those in the document. Returns whether that has changed heights.
   * @param {number} first
   * @param {any} last
   */
  mount(first, last) {
    const wanted = this.rows.slice(first, last + 1);
    /** @param {Row} row */
    const isWanted = row => this.has(row) && row.place >= first && row.place <= last;
    for (const node of [...this.root.children]) if (node.row && !isWanted(node.row)) this.unmount(node.row);
    const fresh = wanted.filter(row => row.node?.parentNode !== this.root);
    for (const row of fresh) {
      row.node ??= this.make(row);
      row.node.row = row;
    }
    if (fresh.length || this.root.childElementCount !== wanted.length)
      arrange(
        this.root,
        wanted.map(row => row.node),
      );
    this.first = first;
    this.last = last;
    let changed = false;
    for (const row of fresh) {
      changed = this.measure(row) || changed;
      this.sizes.observe(row.node);
    }
    this.pad();
    return changed;
  }

  /** @param {Row} row */
  measure(row) {
    const { height } = row.node.getBoundingClientRect();
    if (Math.abs(height - row.height) <= 0.5) return false;
    row.height = height;
    this.heights.set(row.place, height);
    return true;
  }

  pad() {
    this.root.style.paddingTop = `${this.heights.before(this.first)}px`;
    this.root.style.paddingBottom = `${this.heights.total - this.heights.before(this.last + 1)}px`;
  }

  // -- the window -----------------------------------------------------------------------------------

  /** Where the rows begin in the scroller. */
  get top() {
    const { scroller } = this;
    const scrolled = scroller === document.scrollingElement ? 0 : scroller.scrollTop;
    return this.root.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scrolled;
  }

  /** @param {Row} row */
  topOf(row) {
    return this.heights.before(row.place);
  }

  /** The row at the upper edge of the window (or `below` it), and how far above the edge it begins. */
  anchor(below = 0) {
    const height = this.scroller.scrollTop + this.lead - this.top + below;
    if (height <= 0 || !this.rows.length) return null;
    const row = this.rows[this.heights.at(height)];
    return { row, offset: height - this.topOf(row) };
  }

  /** Put into the document what is near the window. `anchor` stays where it is. */
  update(anchor = this.sticks ? null : this.anchor()) {
    if (this.printing) {
      // Rows that have come since belong on paper, too.
      if (this.root.childElementCount < this.rows.length) this.mount(0, this.rows.length - 1);
      return;
    }
    for (let round = 0; round < 4; round++) if (!this.mount(...this.near(anchor))) break;
    if (anchor && !this.sticks) this.scrollTo(anchor);
    this.painted();
  }

  /**
   * The first and the last row near the window.
   * @returns {[number, number]}
   * @param {any} [anchor]
   */
  near(anchor) {
    const end = this.rows.length - 1;
    if (end < this.whole) return [0, end];
    const { scrollTop, clientHeight } = this.scroller;
    const edge = this.sticks
      ? this.heights.total - clientHeight
      : anchor
        ? this.topOf(anchor.row) + anchor.offset
        : scrollTop - this.top;
    const last = this.sticks ? end : this.heights.at(edge + clientHeight + MARGIN);
    return [this.heights.at(Math.max(0, edge - MARGIN)), last];
  }

  /** Look in the next frame what is near the window. */
  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.update();
    });
  }

  /** @param {any[]} changes */
  resized(changes) {
    const anchor = this.sticks ? null : this.anchor();
    let above = false;
    for (const { target } of changes) {
      const { row } = target;
      if (!target.isConnected || !this.has(row) || !this.measure(row)) continue;
      above ||= anchor !== null && row.place < anchor.row.place;
    }
    if (anchor && above) this.scrollTo(anchor);
    if (!this.sticks && this.rows.length > this.whole) this.schedule();
    this.painted();
  }

  /** @param {any} fields */
  scrollTo({ row, offset }) {
    const top = this.top + this.topOf(row) + offset - this.lead;
    if (Math.abs(this.scroller.scrollTop - top) > 0.5) this.scroller.scrollTo({ top, behavior: 'instant' });
  }

  /**
   * Bring a row to the upper part of the window. Returns whether it is among those that are shown.
   * @param {Row} row
   */
  reveal(row, offset = -40) {
    if (!this.has(row)) return false;
    this.sticks = false;
    this.update({ row, offset });
    return true;
  }
}
