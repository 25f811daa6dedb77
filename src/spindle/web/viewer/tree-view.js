// The sidebar: every entry of the session as a tree of lines. Chains stay flat, only branches indent; the active
// branch comes first. Only the lines in sight are in the document.

import { el, targetOf } from '../shared/dom.js';
import { reconcile } from '../shared/reconcile.js';
import { TreeMap } from '../shared/tree-map.js';
import { treeRows } from '../shared/tree.js';
import { CLASSES, rowText } from './articles.js';
import { FAULT, KIND, TOOL_ONLY } from './store.js';

const ROW = 26; // pixels; the style sheet agrees
const MAX_INDENT = 9; // deeper branches do not move further to the right
// Which kinds are listed; "labeled" and "all" do not go by kind.
/** @type {Record<string, any>} */
const FILTERS = {
  default: (/** @type {number} */ kind) =>
    ![KIND.LABEL, KIND.STATE, KIND.MODEL, KIND.LEVEL, KIND.INFO, KIND.HIDDEN].includes(kind),
  'no-tools': (/** @type {number} */ kind) => FILTERS.default(kind) && kind !== KIND.TOOL,
  user: (/** @type {number} */ kind) => kind === KIND.USER,
};

export class TreeView {
  /** @type {any} */
  matches;
  /** @type {any[]} */
  rows;
  /** @type {number | undefined} */
  selected;
  /** @type {number} */
  leaf;
  /** @type {any} */
  onPath;

  /**
   * `select(entry)` is called for the entry that the reader chooses.
   * @param {any} store
   * @param {HTMLElement} root
   * @param {HTMLElement} status
   * @param {Act} select
   */
  constructor(store, root, status, select) {
    this.onSelect = select;
    this.store = store;
    this.root = root;
    this.status = status;
    this.sheet = el('div', { class: 'rows', role: 'presentation' });
    root.append(this.sheet);
    this.map = new TreeMap({ say: row => this.say(this.rows[row].node), go: row => this.choose(row) });
    this.map.node.hidden = true;
    root.before(this.map.node);
    this.filter = 'default';
    this.matches = null; // a flag per entry while a search is on
    this.rows = [];
    this.cursor = 0;
    this.layouts = 0; // how often the rows have become others
    root.addEventListener('scroll', () => this.paint(), { passive: true });
    root.addEventListener('keydown', event => this.key(event));
    root.addEventListener('click', event => {
      const row = targetOf(event).closest(/** @type {'div'} */ ('[data-row]'));
      if (row) this.choose(Number(row.dataset.row));
    });
    new ResizeObserver(() => this.paint()).observe(root);
  }

  /** @param {number} i */
  isVisible(i) {
    const { store } = this;
    if (this.matches && !this.matches[i]) return false;
    if (this.filter === 'labeled') return store.label(i) !== undefined || (i === this.leaf && !this.matches);
    if (this.filter === 'all') return true;
    if (i === this.leaf && !this.matches) return true;
    if (!FILTERS[this.filter](store.kind[i])) return false;
    const silent = store.kind[i] === KIND.ASSISTANT && store.flags[i] & TOOL_ONLY && !(store.flags[i] & FAULT);
    return !silent || this.matches !== null;
  }

  /**
   * Order the visible entries, the branch of `leaf` first.
   * @param {number} leaf
   * @param {any} onPath
   */
  layout(leaf, onPath) {
    const { store } = this;
    this.leaf = leaf;
    this.onPath = onPath;
    /** @param {number} i */
    const childrenOf = i => {
      const children = store.children(i);
      if (children.length < 2) return children;
      const active = children.findIndex((/** @type {any} */ child) => onPath[child]);
      return active < 1 ? children : [children[active], ...children.slice(0, active), ...children.slice(active + 1)];
    };
    this.rows = treeRows(childrenOf(store.count), childrenOf, (/** @type {number} */ i) => this.isVisible(i));
    this.sheet.style.height = `${this.rows.length * ROW}px`;
    this.cursor = Math.max(0, Math.min(this.cursor, this.rows.length - 1));
    this.status.textContent = `${this.rows.length.toLocaleString('en')} / ${store.count.toLocaleString('en')} entries`;
    this.layouts++;
    this.paint();
    clearTimeout(this.drawing);
    this.drawing = setTimeout(() => this.drawMap()); // the messages come first
  }

  /** Where the session divides, show how: what was found is no tree. */
  drawMap() {
    const divides = !this.matches && this.rows.some(({ siblings }) => siblings > 1);
    const { kind } = this.store;
    const rows = this.rows.map(({ node, above }) => ({
      above,
      way: this.onPath[node],
      user: kind[node] === KIND.USER,
    }));
    this.map.show(
      divides ? rows : [],
      rows.findLastIndex(({ way }) => way),
    );
  }

  /** @param {number} i */
  say(i) {
    const [who, text] = rowText(this.store, i);
    return `${who ? who + ': ' : ''}${text}`;
  }

  /** Draw the lines in sight. */
  paint() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - 8);
    const last = Math.min(this.rows.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + 8);
    reconcile(
      this.sheet,
      this.rows.slice(first, last).map(({ node }, k) => {
        const [row, isSelected] = [first + k, node === this.selected];
        return { key: row, state: [this.layouts, row === this.cursor, isSelected].join(), build: () => this.row(row) };
      }),
    );
    if (this.cursor >= first && this.cursor < last)
      this.root.setAttribute('aria-activedescendant', `row-${this.cursor}`);
    else this.root.removeAttribute('aria-activedescendant');
  }

  /** @param {any} row */
  row(row) {
    const { store } = this;
    const { node: i, depth, place, siblings } = this.rows[row];
    const [who, text] = rowText(store, i);
    const label = store.label(i);
    const kind = store.kind[i];
    const classes = ['row', CLASSES[kind] ?? 'other'];
    if (this.onPath[i]) classes.push('on-path');
    if (store.flags[i] & FAULT) classes.push('fault');
    if (row === this.cursor) classes.push('cursor');
    const node = el('div', {
      class: classes.join(' '),
      role: 'treeitem',
      id: `row-${row}`,
      'data-row': row,
      'aria-level': depth + 1,
      'aria-setsize': siblings,
      'aria-posinset': place,
      'aria-selected': String(i === this.selected),
      'aria-current': i === this.leaf ? 'true' : null,
      title: this.say(i),
    });
    for (const line of this.gutters(row)) node.append(el('span', { class: 'gutter ' + line, 'aria-hidden': 'true' }));
    node.append(el('span', { class: 'dot', 'aria-hidden': 'true' }));
    if (label !== undefined) node.append(el('span', { class: 'label' }, label));
    node.append(el('span', { class: 'row-text' }, who ? el('b', null, who + ': ') : null, text));
    node.style.top = `${row * ROW}px`;
    return node;
  }

  /**
   * The lines to the left of a row, outermost first.
   * @param {any} row
   */
  gutters(row) {
    const lines = [];
    for (let at = this.rows[row].branch; at >= 0 && lines.length < MAX_INDENT;) {
      const { place, siblings, above } = this.rows[at];
      const isLast = place === siblings;
      lines.push(at === row ? (isLast ? 'end' : 'tee') : isLast ? 'none' : 'bar');
      at = this.rows[above]?.branch ?? -1;
    }
    return lines.reverse();
  }

  /** @param {number} i */
  rowOf(i) {
    return this.rows.findIndex(row => row.node === i);
  }

  /**
   * Mark the entry that was chosen and bring it into sight.
   * @param {number} i
   */
  select(i) {
    this.selected = i;
    const row = this.rowOf(i);
    if (row >= 0) this.moveTo(row);
    else this.paint();
  }

  /** @param {any} row */
  moveTo(row) {
    if (!this.rows.length) return;
    this.cursor = Math.max(0, Math.min(row, this.rows.length - 1));
    const top = this.cursor * ROW;
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop || top + ROW > scrollTop + clientHeight) this.root.scrollTop = top - clientHeight / 2;
    this.paint();
  }

  /** @param {any} row */
  choose(row) {
    this.cursor = row;
    if (row < this.rows.length) this.onSelect(this.rows[row].node);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / ROW) - 1);
    /** @type {Record<string, any>} */
    const moves = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -this.rows.length,
      End: this.rows.length,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(moves, event.key)) this.moveTo(this.cursor + moves[event.key]);
    else if (event.key === 'ArrowLeft') this.moveTo(this.branchStart());
    else if (event.key === 'ArrowRight') this.moveTo(this.nextBranch());
    else if (event.key === 'Enter' || event.key === ' ') this.choose(this.cursor);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Left: the beginning of this branch, and from there the entry it hangs on. */
  branchStart() {
    const start = this.rows[this.cursor]?.branch ?? -1;
    if (start < 0) return 0;
    return start < this.cursor ? start : Math.max(0, this.rows[start].above);
  }

  /** Right: the next row where a branch begins. */
  nextBranch() {
    for (let row = this.cursor + 1; row < this.rows.length; row++) if (this.rows[row].branch === row) return row;
    return this.cursor;
  }
}
