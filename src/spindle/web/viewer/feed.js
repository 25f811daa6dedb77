// The main column: the entries of one path as a virtual list. Short sessions are put in the document whole, which lets
// the browser's own search find everything.

import { $, button, el } from '../shared/dom.js';
import { Row, VirtualList } from '../shared/list.js';
import { renderEntry } from './articles.js';
import { KIND, SHOWN } from './store.js';
import { view } from './view.js';

const WHOLE = 150; // up to so many articles nothing is left out
const PRINT_LIMIT = 20_000; // what a browser can still lay out
const STEP_GAP = 8; // pixels between the bar and a message that was stepped to

export class Feed extends VirtualList {
  /** @type {number[]} the entries that have a row */
  items = [];
  /** @type {Map<number, number[]>} an answer → its tool results */
  results = new Map();
  /** @type {Map<number, number>} an entry → the item that shows it, or the one before its place */
  itemOf = new Map();
  /** @type {Map<number, number>} an item → the entry where another branch could be taken */
  forks = new Map();

  /**
   * `actions`: `select(entry)`, `linkTo(entry)`, and `painted()` after every drawing.
   * @param {Store} store
   * @param {HTMLElement} root
   * @param {any} actions
   */
  constructor(store, root, actions) {
    super(/** @type {HTMLElement} */ (document.scrollingElement), root, WHOLE);
    this.actions = actions;
    this.store = store;
    addEventListener('scroll', () => this.schedule(), { passive: true });
    addEventListener('resize', () => this.schedule());
    addEventListener('beforeprint', () => this.setPrinting(true));
    addEventListener('afterprint', () => this.setPrinting(false));
  }

  get lead() {
    return $('bar').offsetHeight;
  }

  painted() {
    this.actions.painted();
  }

  /**
   * Show the path that ends in `leaf`.
   * @param {number} leaf
   */
  showPath(leaf) {
    const { store } = this;
    const path = store.path(leaf);
    const onPath = (this.onPath = new Uint8Array(store.count));
    for (const i of path) onPath[i] = 1;
    this.items = [];
    this.results = new Map();
    this.itemOf = new Map();
    this.forks = new Map();
    let fork = -1;
    for (const i of path) {
      if (store.siblings(i).length > 1) fork = i;
      const kind = store.kind[i];
      const call = kind === KIND.TOOL ? store.call[i] : -1;
      const caller = call >= 0 && onPath[call] ? this.itemOf.get(call) : undefined;
      if (caller !== undefined) {
        this.results.set(call, [...(this.results.get(call) ?? []), i]);
        this.itemOf.set(i, caller);
        continue;
      }
      if (SHOWN.has(kind) || kind === KIND.MODEL) {
        if (fork >= 0) this.forks.set(this.items.length, fork);
        fork = -1;
        this.items.push(i);
      }
      this.itemOf.set(i, Math.max(0, this.items.length - 1));
    }
    /** @param {number} i */
    const guess = i => 70 + Math.min(420, Math.ceil(store.size[i] / 80) * 24);
    this.clear();
    this.show(
      this.items.map((i, item) => new Row('item', () => this.render(item), guess(i))),
      null,
    );
  }

  /** @param {any} item */
  render(item) {
    const i = this.items[item];
    const before = item > 0 ? this.store.kind[this.items[item - 1]] : -1;
    const continued =
      this.store.kind[i] === KIND.ASSISTANT && before === KIND.ASSISTANT && this.store.label(i) === undefined;
    let node;
    try {
      node = renderEntry(this.store, i, this.results.get(i) ?? [], continued, this.actions.linkTo);
    } catch (error) {
      // One entry that cannot be drawn must not take the others with it.
      node = el(
        'article',
        { class: 'item custom' },
        el('p', { class: 'fault' }, `This entry cannot be shown (${error.message}).`),
      );
    }
    const fork = this.forks.get(item);
    if (fork !== undefined) node.prepend(this.forkSwitch(fork));
    node.dataset.item = String(item);
    node.tabIndex = -1;
    node.setAttribute('aria-posinset', String(item + 1));
    node.setAttribute('aria-setsize', String(this.items.length));
    return node;
  }

  /**
   * Bring an entry to the upper part of the window and mark it for a moment.
   * @param {number} i
   */
  revealEntry(i) {
    const row = this.rows[this.itemOf.get(i) ?? -1];
    if (!row || !this.reveal(row, -24)) return;
    const { node } = row;
    const inner = node.querySelector(`[data-entry="${i}"]`);
    if (inner) inner.scrollIntoView({ block: 'center' });
    node.focus({ preventScroll: true });
    node.classList.remove('flash');
    void node.offsetWidth; // begin the animation again
    node.classList.add('flash');
  }

  /**
   * Go to the next message, or to the beginning of this one and then to the one before.
   * @param {number} by
   */
  step(by) {
    if (!this.rows.length) return;
    const anchor = this.anchor(STEP_GAP * 2);
    let place = anchor ? anchor.row.place : -1;
    if (by > 0 || (anchor && anchor.offset <= STEP_GAP * 3)) place += by;
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, place))];
    this.reveal(row, -STEP_GAP);
    row.node.focus({ preventScroll: true });
  }

  /**
   * Paper has no window: put everything in the document. Nothing is measured, so it is laid out once, as paper.
   * @param {boolean} on
   */
  setPrinting(on) {
    view.printing = on;
    for (const part of document.querySelectorAll(/** @type {'details'} */ ('main > .card details')))
      part.open = on ? true : part.dataset.open === 'true';
    this.printing = on;
    if (!on) {
      this.redraw(this.left);
      return;
    }
    this.left = this.anchor();
    this.clear();
    const count = this.items.length;
    const from = Math.max(0, Math.min(this.left?.row.place ?? 0, count - PRINT_LIMIT));
    const to = Math.min(count, from + PRINT_LIMIT);
    /**
     * @param {number} number
     * @param {string} where
     */
    const missing = (number, where) =>
      number
        ? [el('p', { class: 'missing' }, `${number.toLocaleString('en')} messages ${where} are not on this paper.`)]
        : [];
    const shown = this.items.slice(from, to).map((_, place) => this.render(from + place));
    this.root.append(...missing(from, 'before this'), ...shown, ...missing(count - to, 'after this'));
    this.root.style.padding = '0';
  }

  /**
   * Where the conversation forks: which branch this is, and the way to the others.
   * @param {number} i
   */
  forkSwitch(i) {
    const branches = this.store.siblings(i);
    const place = branches.indexOf(i);
    /**
     * @param {number} by
     * @param {string} label
     * @param {string} sign
     */
    const step = (by, label, sign) => {
      const node = button(
        'quiet',
        () => this.actions.select(branches[(place + by + branches.length) % branches.length]),
        sign,
      );
      node.ariaLabel = label;
      return node;
    };
    return el(
      'div',
      { class: 'fork', role: 'group', 'aria-label': 'Branches' },
      step(-1, 'Previous branch', '‹'),
      el('span', null, `Branch ${place + 1} of ${branches.length}`),
      step(1, 'Next branch', '›'),
    );
  }
}
