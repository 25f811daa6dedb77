// Everything together: what is open, which branch is shown, addresses, keys and buttons.

import { $, el, remembered, toggleTheme } from '../shared/dom.js';
import { formulas } from '../shared/inline.js';
import { levelHeadings, markdown } from '../shared/markdown.js';
import { mathElement } from '../shared/math.js';
import { localTime } from './articles.js';
import { Feed } from './feed.js';
import { Search } from './search.js';
import { Store } from './store.js';
import { TreeView } from './tree-view.js';
import { view } from './view.js';

/** @type {any} */
const app = {
  hits: [],

  async start() {
    formulas.draw = mathElement;
    const store = (this.store = new Store($('data').textContent));
    const status = $('status');
    await store.load(part => {
      status.textContent = `Reading… ${Math.round(part * 100)}%`;
    });
    this.search = new Search(store);
    this.feed = new Feed(store, $('messages'), {
      select: (/** @type {number} */ i) => this.select(i),
      linkTo: (/** @type {number} */ i) => this.linkTo(i),
      painted: () => this.search.mark($('messages')),
    });
    this.tree = new TreeView(store, $('tree'), status, (/** @type {number} */ i) => this.select(i, { fromTree: true }));
    view.redraw = () => this.feed.redraw();
    this.defaultLeaf = store.byId.get(store.meta.leafId) ?? store.count - 1;
    for (const plain of document.querySelectorAll('.told')) {
      const told = el('div', { class: 'md' }, markdown(plain.textContent ?? ''));
      levelHeadings(told, 1);
      plain.replaceWith(told);
    }
    // The plain page says times in UTC, because it does not know better.
    for (const time of document.querySelectorAll(/** @type {'time'} */ ('.card time')))
      time.textContent = localTime(time.dateTime) || time.textContent;
    for (const part of document.querySelectorAll(/** @type {'details'} */ ('.card details')))
      part.addEventListener('toggle', () => view.printing || (part.dataset.open = String(part.open)));
    document.documentElement.classList.add('ready');
    this.wire();
    this.follow();
    addEventListener('hashchange', () => this.follow());
  },

  /** Show what the address names, else the session's own leaf. */
  follow() {
    const { byId } = this.store;
    const fromHash = new URLSearchParams(location.hash.slice(1));
    const fromQuery = new URLSearchParams(metaOf('pi-url-params') ?? location.search);
    const leaf = byId.get(fromHash.get('leaf') ?? fromQuery.get('leafId'));
    const target = byId.get(fromHash.get('target') ?? fromQuery.get('targetId'));
    if (leaf !== undefined) this.showLeaf(leaf);
    else this.showLeaf(target === undefined ? this.defaultLeaf : this.leafFor(target));
    if (target !== undefined) this.reveal(target);
    else this.tree.select(this.leaf);
  },

  /**
   * The leaf to show for an entry: the present one if the entry is on its path, else the newest below it.
   * @param {number} i
   */
  leafFor(i) {
    return this.feed.onPath?.[i] ? this.leaf : this.store.newest[i];
  },

  /** @param {number} leaf */
  showLeaf(leaf) {
    if (leaf === this.leaf) return;
    this.leaf = leaf;
    if (leaf < 0) return;
    this.feed.showPath(leaf);
    this.tree.layout(leaf, this.feed.onPath);
    this.countHits();
  },

  /** @param {number} i */
  select(i, { fromTree = false } = {}) {
    this.showLeaf(this.leafFor(i));
    this.reveal(i, fromTree);
    const place = this.address(i);
    // Pages opened from disk may not touch their history; the link buttons still work.
    try {
      history.replaceState(null, '', place);
    } catch {
      /* stay */
    }
  },

  /** @param {number} i */
  reveal(i, fromTree = false) {
    this.tree.select(i);
    this.closeSidebar();
    this.feed.revealEntry(i);
    if (fromTree && !narrow.matches) $('tree').focus({ preventScroll: true });
  },

  /** @param {number} i */
  address(i) {
    return '#' + new URLSearchParams({ leaf: this.store.ids[this.leaf], target: this.store.ids[i] });
  },

  /** @param {number} i */
  linkTo(i) {
    const base = metaOf('pi-share-base-url');
    if (!base) return location.href.split('#')[0] + this.address(i);
    // A site that shows this page in a frame passes on the query only.
    const { ids } = this.store;
    return `${base}${base.includes('?') ? '&' : '?'}${new URLSearchParams({ leafId: ids[this.leaf], targetId: ids[i] })}`;
  },

  /** @param {string} query */
  find(query) {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.search.start(query, (/** @type {any} */ matches) => {
        view.words = this.search.words;
        this.tree.matches = matches;
        this.tree.cursor = 0;
        this.tree.layout(this.leaf, this.feed.onPath);
        this.countHits();
        this.feed.redraw();
        if (this.hits.length) this.nextHit(1); // the reader sees the first one while typing
      });
    }, 120);
  },

  /** Find the articles of this branch that the search is about. */
  countHits() {
    const { matches } = this.tree;
    /** @param {number} i */
    const isHit = i => matches[i] || this.feed.results.get(i)?.some((/** @type {any} */ result) => matches[result]);
    this.hits = matches ? this.feed.items.filter(isHit) : [];
    this.hit = -1;
    $('hits').textContent = matches ? `${this.hits.length.toLocaleString('en')} on this branch` : '';
  },

  /** @param {number} by */
  nextHit(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.tree.select(this.hits[this.hit]);
    this.feed.revealEntry(this.hits[this.hit]);
    $('search').focus({ preventScroll: true });
    $('hits').textContent = `${this.hit + 1} of ${this.hits.length} on this branch`;
  },

  /** Escape: close what is open, then clear the search, then go back to the session's own leaf. */
  escape() {
    const search = $('search');
    if (document.documentElement.classList.contains('sidebar-open')) this.closeSidebar();
    else if (search.value) {
      search.value = '';
      this.find('');
    } else if (this.leaf !== this.defaultLeaf) this.select(this.defaultLeaf);
    else if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  },

  openSidebar() {
    document.documentElement.classList.add('sidebar-open');
    $('menu').setAttribute('aria-expanded', 'true');
    $('search').focus();
  },

  closeSidebar() {
    if (!document.documentElement.classList.contains('sidebar-open')) return;
    document.documentElement.classList.remove('sidebar-open');
    $('menu').setAttribute('aria-expanded', 'false');
    $('menu').focus();
  },

  toggleThinking() {
    view.thinking = !view.thinking;
    this.switched($('thinking-button'), view.thinking, (/** @type {string} */ key) => key.endsWith(':thinking'));
  },

  toggleTools() {
    view.tools = !view.tools;
    this.switched(
      $('tools-button'),
      view.tools,
      (/** @type {string} */ key) => key.endsWith(':in') || key.endsWith(':out'),
    );
  },

  /**
   * A switch for all overrules what was opened one by one.
   * @param {HTMLElement} button
   * @param {boolean} on
   * @param {Act} isMeant
   */
  switched(button, on, isMeant) {
    for (const key of view.chosen.keys()) if (isMeant(key)) view.chosen.delete(key);
    button.setAttribute('aria-pressed', String(on));
    this.feed.redraw();
  },

  download() {
    const url = URL.createObjectURL(new Blob([this.store.jsonl()], { type: 'application/x-ndjson' }));
    const link = el('a', { href: url, download: this.store.meta.fileName });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  },

  /** @param {HTMLElement} button */
  setFilter(button) {
    for (const other of $('filters').children) other.setAttribute('aria-pressed', String(other === button));
    this.tree.filter = button.dataset.filter;
    this.tree.layout(this.leaf, this.feed.onPath);
    this.tree.select(this.tree.selected);
  },

  wire() {
    /**
     * @param {string} id
     * @param {Act} act
     */
    const onClick = (id, act) => $(id).addEventListener('click', act);
    onClick('menu', () =>
      document.documentElement.classList.contains('sidebar-open') ? this.closeSidebar() : this.openSidebar(),
    );
    onClick('backdrop', () => this.closeSidebar());
    onClick('thinking-button', () => this.toggleThinking());
    onClick('tools-button', () => this.toggleTools());
    onClick('download-button', () => this.download());
    onClick('theme-button', toggleTheme);
    onClick('help-button', () => $('help').showModal());
    onClick('help-close', () => $('help').close());
    $('filters').addEventListener('click', (/** @type {any} */ event) => {
      const button = event.target.closest('button');
      if (button) this.setFilter(button);
    });
    $('search').addEventListener('input', (/** @type {any} */ event) => this.find(event.target.value));
    $('search').addEventListener('keydown', (/** @type {any} */ event) => this.searchKey(event));
    document.addEventListener('keydown', event => this.key(event));
    wireGrip();
  },

  /** @param {KeyboardEvent} event */
  searchKey(event) {
    if (event.key === 'Enter') this.nextHit(event.shiftKey ? -1 : 1);
    else if (event.key === 'ArrowDown') $('tree').focus();
    else if (event.key === 'Escape') this.escape();
    else return;
    event.preventDefault();
    event.stopPropagation();
  },

  /** @param {any} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector('dialog[open]') || event.target.closest?.('input, textarea, [contenteditable]')) return;
    /** @type {Record<string, any>} */
    const keys = {
      t: () => this.toggleThinking(),
      o: () => this.toggleTools(),
      d: toggleTheme,
      j: () => this.feed.step(1),
      k: () => this.feed.step(-1),
      '?': () => $('help').showModal(),
      escape: () => this.escape(),
      '/': () => (narrow.matches ? this.openSidebar() : $('search').focus()),
    };
    const key = event.key.toLowerCase();
    if (!Object.hasOwn(keys, key)) return;
    event.preventDefault();
    keys[key]();
  },
};

/**
 * What a site that shows this page has written into its head.
 * @param {string} name
 */
const metaOf = name => document.head.querySelector(`meta[name="${name}"]`)?.getAttribute('content');
const narrow = matchMedia('(max-width: 900px)');
const GRIP = { least: 240, most: 720, standard: 360 };

/** The edge between sidebar and conversation can be dragged, or moved with the arrow keys. */
function wireGrip() {
  const grip = $('grip');
  /** @param {number} width */
  const set = width => {
    const whole = Math.round(Math.max(GRIP.least, Math.min(GRIP.most, width)));
    document.documentElement.style.setProperty('--sidebar', `${whole}px`);
    grip.setAttribute('aria-valuenow', String(whole));
    remembered.set('sidebar', String(whole));
  };
  const now = () => $('sidebar').getBoundingClientRect().width;
  const kept = Number(remembered.get('sidebar'));
  if (kept) set(kept);
  grip.addEventListener('pointerdown', (/** @type {any} */ event) => {
    grip.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  grip.addEventListener('pointermove', (/** @type {any} */ event) => {
    if (grip.hasPointerCapture(event.pointerId)) set(event.clientX);
  });
  grip.addEventListener('dblclick', () => set(GRIP.standard));
  grip.addEventListener('keydown', (/** @type {any} */ event) => {
    const by = /** @type {Record<string, any>} */ ({ ArrowLeft: -20, ArrowRight: 20 })[event.key];
    if (by === undefined) return;
    set(now() + by);
    event.preventDefault();
  });
}

app.start().catch((/** @type {Error} */ error) => {
  // Browsers hold no text of more than half a gigabyte.
  $('status').textContent = 'Too large for this browser: only the plain transcript is shown';
  throw error;
});
