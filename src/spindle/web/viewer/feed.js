// The main column: the entries of one path, of which only those near the window are in the document. Heights are
// guessed first and measured once seen; a Fenwick tree adds them up, so finding a place costs a logarithm. Short
// sessions are put in the document whole, which lets the browser's own search find everything.

import { $, button, el } from '../shared/dom.js';
import { renderEntry } from './articles.js';
import { KIND, SHOWN } from './store.js';
import { view } from './view.js';

const WHOLE = 150; // up to so many articles nothing is left out
const MARGIN = 900; // pixels above and below the window that are kept ready
const MAX_HEIGHT = 12e6; // browsers cannot lay out much more
const PRINT_LIMIT = 20_000; // what a browser can still lay out
const STEP_GAP = 8; // pixels between the bar and a message that was stepped to

class Heights {
  constructor(values) {
    this.values = values;
    this.sums = new Float64Array(values.length + 1);
    for (let i = 1; i <= values.length; i++) {
      this.sums[i] += values[i - 1];
      const up = i + (i & -i);
      if (up <= values.length) this.sums[up] += this.sums[i];
    }
  }

  set(i, value) {
    const change = value - this.values[i];
    this.values[i] = value;
    for (let k = i + 1; k < this.sums.length; k += k & -k) this.sums[k] += change;
  }

  /** How high the first `n` are together. */
  before(n) {
    let sum = 0;
    for (let k = n; k > 0; k -= k & -k) sum += this.sums[k];
    return sum;
  }

  /** Which one stands at `height`. */
  at(height) {
    let place = 0;
    let step = 1 << Math.floor(Math.log2(Math.max(1, this.values.length)));
    for (; step; step >>= 1) {
      if (place + step < this.sums.length && this.sums[place + step] <= height) {
        place += step;
        height -= this.sums[place];
      }
    }
    return Math.min(place, this.values.length - 1);
  }
}

export class Feed {
  /** `actions`: `select(entry)`, `linkTo(entry)`, and `painted()` after every drawing. */
  constructor(store, root, actions) {
    this.actions = actions;
    this.store = store;
    this.root = root;
    this.items = [];
    this.mounted = new Map();
    this.printing = false;
    this.sizes = new ResizeObserver(changes => this.resized(changes));
    addEventListener('scroll', () => this.schedule(), { passive: true });
    addEventListener('resize', () => this.schedule());
    addEventListener('beforeprint', () => this.setPrinting(true));
    addEventListener('afterprint', () => this.setPrinting(false));
  }

  /** Show the path that ends in `leaf`. */
  show(leaf) {
    const { store } = this;
    const path = store.path(leaf);
    const onPath = (this.onPath = new Uint8Array(store.count));
    for (const i of path) onPath[i] = 1;
    this.items = [];
    this.results = new Map(); // answer → its tool results
    this.itemOf = new Map(); // entry → the item that shows it, or the one before its place
    this.forks = new Map(); // item → the entry where another branch could be taken
    let fork = -1;
    for (const i of path) {
      if (store.siblings(i).length > 1) fork = i;
      const kind = store.kind[i];
      const call = kind === KIND.TOOL ? store.call[i] : -1;
      if (call >= 0 && onPath[call] && this.itemOf.has(call)) {
        if (!this.results.has(call)) this.results.set(call, []);
        this.results.get(call).push(i);
        this.itemOf.set(i, this.itemOf.get(call));
        continue;
      }
      if (SHOWN.has(kind) || kind === KIND.MODEL) {
        if (fork >= 0) this.forks.set(this.items.length, fork);
        fork = -1;
        this.items.push(i);
      }
      this.itemOf.set(i, Math.max(0, this.items.length - 1));
    }
    this.reset();
  }

  /** Forget what was measured and start at the top. */
  reset() {
    const guesses = Float64Array.from(this.items, i => 70 + Math.min(420, Math.ceil(this.store.size[i] / 80) * 24));
    const total = guesses.reduce((sum, guess) => sum + guess, 0);
    if (total > MAX_HEIGHT) for (let k = 0; k < guesses.length; k++) guesses[k] *= MAX_HEIGHT / total;
    this.heights = new Heights(guesses);
    this.clear();
    this.update();
  }

  clear() {
    for (const node of this.mounted.values()) this.sizes.unobserve(node);
    this.mounted.clear();
    this.root.replaceChildren();
  }

  /** Draw again what is in the document, without moving. */
  redraw(anchor = this.anchor()) {
    this.clear();
    this.update(anchor);
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.update();
    });
  }

  get top() {
    return this.root.getBoundingClientRect().top + scrollY;
  }

  /** What stands at the upper edge of the window (or `below` it): an item, and how far above the edge it begins. */
  anchor(below = 0) {
    const height = scrollY + barHeight() - this.top + below;
    if (height <= 0 || !this.items.length) return null;
    const item = this.heights.at(height);
    return { item, offset: height - this.heights.before(item) };
  }

  /** Put into the document what is near the window, measure it, and keep the anchor where it was. */
  update(anchor = this.anchor()) {
    if (this.printing) return;
    const n = this.items.length;
    for (let round = 0; round < 4; round++) {
      const edge = anchor ? this.heights.before(anchor.item) + anchor.offset : scrollY - this.top;
      const first = n <= WHOLE ? 0 : this.heights.at(Math.max(0, edge - MARGIN));
      const last = n <= WHOLE ? n - 1 : this.heights.at(edge + innerHeight + MARGIN);
      if (!this.mount(first, last)) break;
    }
    if (anchor) {
      const wanted = this.top + this.heights.before(anchor.item) + anchor.offset - barHeight();
      if (Math.abs(wanted - scrollY) > 1) scrollTo({ top: wanted, behavior: 'instant' });
    }
    this.actions.painted();
  }

  /** Make the items `first` to `last` the ones in the document. Tell whether heights changed by that. */
  mount(first, last) {
    for (const [item, node] of this.mounted) {
      if (item >= first && item <= last) continue;
      this.sizes.unobserve(node);
      node.remove();
      this.mounted.delete(item);
    }
    const fresh = [];
    let next = this.root.firstElementChild;
    for (let item = first; item <= last; item++) {
      const present = this.mounted.get(item);
      if (present) {
        next = present.nextElementSibling;
        continue;
      }
      const node = this.render(item);
      this.root.insertBefore(node, next);
      this.mounted.set(item, node);
      fresh.push([item, node]);
    }
    const n = this.items.length;
    let changed = false;
    for (const [item, node] of fresh) {
      const height = node.getBoundingClientRect().height;
      if (Math.abs(height - this.heights.values[item]) > 0.5) {
        this.heights.set(item, height);
        changed = true;
      }
      this.sizes.observe(node);
    }
    this.root.style.paddingTop = `${this.heights.before(first)}px`;
    this.root.style.paddingBottom = `${this.heights.before(n) - this.heights.before(last + 1)}px`;
    return changed;
  }

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
    if (this.forks.has(item)) node.prepend(this.forkSwitch(this.forks.get(item)));
    node.dataset.item = item;
    node.tabIndex = -1;
    node.setAttribute('aria-posinset', item + 1);
    node.setAttribute('aria-setsize', this.items.length);
    return node;
  }

  resized(changes) {
    const anchor = this.anchor();
    let moved = false;
    for (const { target } of changes) {
      const item = Number(target.dataset.item);
      if (this.mounted.get(item) !== target) continue;
      const height = target.getBoundingClientRect().height;
      if (Math.abs(height - this.heights.values[item]) <= 0.5) continue;
      this.heights.set(item, height);
      moved ||= anchor !== null && item < anchor.item;
    }
    if (moved) this.update(anchor);
    else this.schedule();
  }

  /** Bring an entry to the upper part of the window and mark it for a moment. */
  reveal(i) {
    const item = this.itemOf.get(i);
    if (item === undefined) return;
    this.update({ item, offset: -24 });
    const node = this.mounted.get(item);
    if (!node) return;
    const inner = node.querySelector(`[data-entry="${i}"]`);
    if (inner) inner.scrollIntoView({ block: 'center' });
    node.focus({ preventScroll: true });
    node.classList.remove('flash');
    void node.offsetWidth; // begin the animation again
    node.classList.add('flash');
  }

  /** Go to the next message, or to the beginning of this one and then to the one before. */
  step(by) {
    if (!this.items.length) return;
    const anchor = this.anchor(STEP_GAP * 2);
    let item = anchor ? anchor.item : -1;
    if (by > 0 || anchor?.offset <= STEP_GAP * 3) item += by;
    item = Math.max(0, Math.min(this.items.length - 1, item));
    this.update({ item, offset: -STEP_GAP });
    this.mounted.get(item)?.focus({ preventScroll: true });
  }

  /** Paper has no window: put everything in the document. Nothing is measured, so it is laid out once, as paper. */
  setPrinting(on) {
    view.printing = on;
    for (const part of document.querySelectorAll('main > .card details'))
      part.open = on ? true : part.dataset.open === 'true';
    this.printing = on;
    if (!on) {
      this.redraw(this.left);
      return;
    }
    this.left = this.anchor();
    this.clear();
    const count = this.items.length;
    const from = Math.max(0, Math.min(this.left?.item ?? 0, count - PRINT_LIMIT));
    const to = Math.min(count, from + PRINT_LIMIT);
    const missing = (number, where) =>
      number
        ? [el('p', { class: 'missing' }, `${number.toLocaleString('en')} messages ${where} are not on this paper.`)]
        : [];
    const shown = this.items.slice(from, to).map((_, place) => this.render(from + place));
    this.root.append(...missing(from, 'before this'), ...shown, ...missing(count - to, 'after this'));
    this.root.style.padding = '0';
  }

  /** Where the conversation forks: which branch this is, and the way to the others. */
  forkSwitch(i) {
    const branches = this.store.siblings(i);
    const place = branches.indexOf(i);
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

const barHeight = () => $('bar').offsetHeight;
