// The conversation tree in the sidebar: every branch of this session, to jump to or to fork from.

import { $, el, icon, iconButton } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { TreeMap } from '../shared/tree-map.js';
import { treeRows } from '../shared/tree.js';
import { editInPlace } from './edit-in-place.js';
import { gist } from './entries.js';

const SHOWN = new Set(['user', 'assistant', 'compaction', 'branch_summary', 'custom_message', 'bashExecution']);
/** @type {Record<string, any>} */
const SYMBOLS = { compaction: 'compact', branch_summary: 'branch', bashExecution: 'terminal' };
const MAX_INDENT = 7;
const ROW = 28; // pixels; the style sheet agrees
const SPARE = 10; // rows above and below those in sight
const NOTHING = { key: '', build: () => el('p', { class: 'empty' }, 'Nothing here yet') };

export class TreePanel {
  /**
   * `actions`: `isOpen()`, `jump(entryId, summarize)`, `fork(entryId)`, `show(entryId)`.
   * @param {Session} session
   * @param {any} actions
   */
  constructor(session, actions) {
    this.entries = session.entries;
    this.actions = actions;
    this.session = session;
    this.current = -1; // the line where the conversation is
    this.atStart = false; // the user went to the first line, and stays there while earlier ones arrive
    /** @type {Set<string>} */
    this.onPath = new Set();
    /** @type {any[]} */
    this.all = [];
    this.list = $('tree');
    this.sheet = el('div', { class: 'sheet' });
    this.map = new TreeMap({
      say: row => this.words(this.all[row]),
      go: row => this.actions.jump(this.all[row].entry.id, false),
    });
    this.list.before(this.map.node);
    this.list.append(this.sheet);
    this.list.addEventListener('scroll', () => this.paint(), { passive: true });
    this.list.addEventListener('keydown', (/** @type {any} */ event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(this.list);
    for (const event of ['entries', 'reset', 'stats']) session.on(event, () => actions.isOpen() && this.show());
  }

  async show() {
    await this.session.attempt(async () => {
      await this.entries.refresh();
      if (this.list.querySelector('.rename')) return; // a label is being written; after that
      this.onPath = new Set(this.entries.path().map(({ id }) => id));
      const before = this.all[this.current]?.entry.id;
      const held = document.activeElement?.closest('#tree .node');
      const focused = held?.line.entry.id;
      const stays = this.atStart && held?.at === 0;
      this.all = this.lines();
      this.current = this.all.findLastIndex(({ way }) => way);
      this.map.show(this.all, Math.max(0, this.current));
      this.sheet.style.height = `${this.all.length * ROW}px`;
      if (before !== this.all[this.current]?.entry.id) this.reveal(this.current);
      this.paint();
      if (stays) this.focus(0);
      else if (focused && !this.sheet.contains(document.activeElement))
        this.focus(this.all.findIndex(({ entry }) => entry.id === focused));
    });
  }

  /** Put the rows in sight into the document, and the one that has the focus. */
  paint() {
    const { scrollTop, clientHeight } = this.list;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const last = Math.min(this.all.length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE);
    const rows = this.all.slice(first, last).map((_, i) => this.child(first + i));
    const focused = document.activeElement?.closest('#tree .node')?.at;
    if (focused < first) rows.unshift(this.child(focused));
    else if (focused >= last && focused < this.all.length) rows.push(this.child(focused));
    reconcile(this.sheet, rows.length ? rows : [NOTHING]);
  }

  /** @param {number} at */
  child(at) {
    /** @param {HTMLElement} node */
    const place = node => {
      Object.assign(node, { at, line: this.all[at] });
      node.style.top = `${at * ROW}px`;
    };
    return { key: this.all[at].entry.id, state: this.stateOf(at), build: () => this.row(at), update: place };
  }

  /** @param {number} at */
  reveal(at) {
    const { scrollTop, clientHeight } = this.list;
    if (at * ROW < scrollTop || (at + 1) * ROW > scrollTop + clientHeight)
      this.list.scrollTop = (at + 0.5) * ROW - clientHeight / 2;
    this.paint();
  }

  focus(at = Math.max(0, this.current)) {
    this.reveal(at);
    const node = [...this.sheet.children].find(one => one.at === at);
    (node?.querySelector('.line') ?? $('tab-tree')).focus({ preventScroll: true });
  }

  /**
   * Let the arrow keys go from line to line.
   * @param {any} event
   */
  key(event) {
    const node = event.target.closest('.node');
    const buttons = [...(node?.querySelectorAll('button') ?? [])];
    const by = /** @type {Record<string, any>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
    if (by && !event.altKey) buttons[buttons.indexOf(event.target) + by]?.focus();
    const at = event.target.closest('.line') && node.at;
    const to = /** @type {Record<string, any>} */ ({
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: this.all.length - 1,
    })[event.key];
    if (!(to >= 0) || to >= this.all.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.atStart = to === 0;
    this.focus(to);
  }

  /** List the entries worth a line. Answers that only call tools are gathered into one. */
  lines() {
    /** @param {Entry} entry */
    const isShown = entry => {
      if (!SHOWN.has(entry.role)) return false;
      const { text, images, calls, error } = gist(entry);
      const failed = error && entry.children.length === 0; // what was tried again is not worth a line
      return text || images || calls.length || failed;
    };
    /** @type {any[]} */
    const lines = [];
    /** @type {any[]} */
    const lineOf = []; // of each row
    treeRows(this.entries.roots, (/** @type {Entry} */ entry) => entry.children, isShown).forEach(
      ({ node: entry, above, depth, branch }, i) => {
        const { text, calls } = gist(entry);
        const steps = entry.role === 'assistant' && !text && calls.length ? calls : null;
        const last = lines.at(-1);
        const way = this.onPath.has(entry.id);
        if (steps && branch !== i && above === i - 1 && last?.steps) {
          last.entry = entry;
          last.way = way;
          last.steps.push(...steps);
        } else {
          const user = entry.role === 'user';
          const starts = branch === i;
          lines.push({ entry, depth, starts, way, user, above: lineOf[above] ?? -1, steps: steps && [...steps] });
        }
        lineOf.push(lines.length - 1);
      },
    );
    return lines;
  }

  /**
   * What a row is built of.
   * @param {number} at
   */
  stateOf(at) {
    const { entry, depth, starts, way, steps } = this.all[at];
    return [depth, starts, way, steps?.length, at === this.current, this.entries.labels.get(entry.id)].join();
  }

  /**
   * What a line says.
   * @param {any} fields
   */
  words({ entry, steps }) {
    const { text, error } = gist(entry);
    if (steps) return `${count(steps.length, 'step')}: ${[...new Set(steps)].join(', ')}`;
    return text || error || '[image]';
  }

  /** @param {number} at */
  row(at) {
    const { entry, depth, starts, steps } = this.all[at];
    const { id, role } = entry;
    const current = at === this.current;
    const shown = this.words(this.all[at]);
    const label = this.entries.labels.get(id);
    const go = () => this.actions.jump(id, false);
    const line = el(
      'button',
      { type: 'button', class: 'line', 'aria-current': current ? 'step' : null, title: shown, on: { click: go } },
      SYMBOLS[role] ? icon(SYMBOLS[role]) : null,
      label ? el('span', { class: 'tag' }, label) : null,
      el('span', null, shown),
    );
    const classes = ['node', starts && 'start', this.onPath.has(id) && 'path', current && 'current']
      .filter(Boolean)
      .join(' ');
    const node = el(
      'div',
      { class: classes, 'data-role': steps ? 'steps' : role },
      line,
      el('div', { class: 'node-actions' }, ...this.rowActions(entry, () => node)),
    );
    node.style.setProperty('--depth', String(Math.min(depth, MAX_INDENT)));
    return node;
  }

  /**
   * Let the user write a label in the place of a line; none takes it away.
   * @param {string} id
   * @param {any} node
   */
  label(id, node) {
    const field = el('input', { type: 'text', class: 'rename', 'aria-label': 'Label', maxlength: '80' });
    field.value = this.entries.labels.get(id) ?? '';
    editInPlace(node.querySelector('.line'), field, text => {
      if (text === null || text === (this.entries.labels.get(id) ?? '')) return this.show();
      return this.session.attempt(() => this.session.call('set_label', { entryId: id, label: text || undefined }));
    });
  }

  /**
   * @param {any} fields
   * @param {any} node
   */
  rowActions({ id, role }, node) {
    const buttons = [iconButton('Label', 'tag', () => this.label(id, node()))];
    if (this.onPath.has(id))
      buttons.push(iconButton('Show it in the conversation', 'search', () => this.actions.show(id)));
    else buttons.push(iconButton('Go there and take notes on what is left', 'list', () => this.actions.jump(id, true)));
    if (role === 'user')
      buttons.push(iconButton('Fork: new conversation from here', 'branch', () => this.actions.fork(id)));
    for (const one of buttons) one.tabIndex = -1; // the arrow keys lead to them
    return buttons;
  }
}
