// The folder that the agent works in, as a tree: each folder is listed when it is opened. What the agent may not read is
// marked and cannot be opened.

import { el, icon, targetOf } from '../shared/dom.js';
import { count, shownName } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';

/** @import { Child } from '../shared/reconcile.js' */

const TYPED_MS = 700; // between two letters of a name that is typed

/** @param {number} bytes */
export function sizeOf(bytes) {
  if (bytes < 1000) return count(bytes, 'byte');
  const [size, unit] = bytes < 1e6 ? [bytes / 1e3, 'KB'] : bytes < 1e9 ? [bytes / 1e6, 'MB'] : [bytes / 1e9, 'GB'];
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

export class FolderTree {
  /** @type {string} */
  root;
  /** @type {Map<string, any>} */
  folders;
  /** @type {string} */
  chosen;

  /**
   * `open(path)` shows a file.
   * @param {Session} session
   * @param {(path: string) => void} open
   */
  constructor(session, open) {
    this.session = session;
    this.open = open;
    this.node = el('ul', { role: 'tree', class: 'folder-tree' });
    this.node.addEventListener('keydown', event => this.key(event));
    this.node.addEventListener('focusin', event => this.hold(targetOf(event).closest('[role=treeitem]')));
    this.typed = { text: '', when: 0 };
    this.clear();
  }

  clear() {
    this.root = ''; // the path of the folder
    this.folders = new Map(); // path of an open folder → what is in it: {entries, total} or {error}
    this.chosen = ''; // the file that is shown
    this.show();
  }

  /** List all open folders again. */
  async refresh() {
    const { session } = this;
    if (!this.root) {
      this.root = session.cwd;
      this.node.ariaLabel = `Files of ${session.cwd}`;
      this.folders.set(this.root, null);
    }
    await Promise.all([...this.folders.keys()].map(path => this.list(path)));
  }

  /**
   * Open a folder.
   * @param {string} path
   */
  async list(path) {
    const { folders } = this;
    if (!folders.has(path)) folders.set(path, null);
    this.show();
    /** @type {any} */
    let content;
    try {
      content = await this.session.call('list_files', { path });
    } catch (error) {
      content = { error: error.message };
    }
    if (folders !== this.folders || !folders.has(path)) return; // it was closed meanwhile
    folders.set(path, content);
    this.show();
  }

  /** @param {string} path */
  fold(path) {
    for (const one of this.folders.keys()) if (one === path || one.startsWith(`${path}/`)) this.folders.delete(one);
    this.show();
  }

  /**
   * Mark the file that is shown, and open the folders that lead to it.
   * @param {string} path
   */
  async choose(path) {
    this.chosen = path;
    if (path.startsWith(`${this.root}/`)) {
      const names = path
        .slice(this.root.length + 1)
        .split('/')
        .slice(0, -1);
      for (let i = 1, at = this.root; i <= names.length; i++) {
        at += `/${names[i - 1]}`;
        if (!this.folders.has(at)) await this.list(at);
      }
    }
    this.show();
    this.node.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }

  show() {
    this.node.ariaBusy = String(this.root !== '' && !this.folders.get(this.root));
    reconcile(this.node, this.root ? this.inside(this.root, 1) : []);
    const items = this.items();
    // Tab stops at one line; the arrow keys lead to the others.
    if (!items.some(item => item.tabIndex === 0) && items[0]) items[0].tabIndex = 0;
  }

  /**
   * The lines of a folder and of those in it that are open.
   * @param {string} folder
   * @param {number} level
   * @returns {Child[]}
   */
  inside(folder, level) {
    const content = this.folders.get(folder);
    const note = (/** @type {string} */ words) => [
      { key: `${folder}/`, state: words, build: () => lineOf(level, true, el('span', null, words)) },
    ];
    if (!content) return note('Looking…');
    if (content.error) return note(content.error);
    const lines = content.entries.flatMap((/** @type {FolderEntry} */ entry, /** @type {number} */ i) => {
      const path = `${folder.replace(/\/$/, '')}/${entry.name}`;
      const one = this.child(path, entry, level, `${i + 1} ${content.total}`);
      return this.folders.has(path) ? [one, ...this.inside(path, level + 1)] : [one];
    });
    const left = content.total - content.entries.length;
    return left || !lines.length
      ? [...lines, ...note(left ? `${count(left, 'more name')}, not listed` : 'Nothing in it')]
      : lines;
  }

  /**
   * @param {string} path
   * @param {FolderEntry} entry
   * @param {number} level
   * @param {string} place
   * @returns {Child}
   */
  child(path, entry, level, place) {
    const state = JSON.stringify(entry) + level;
    /** @param {any} item */
    const update = item => {
      [item.ariaPosInSet, item.ariaSetSize] = place.split(' ');
      if (path === this.chosen) item.ariaSelected = 'true';
      else item.removeAttribute('aria-selected');
      if (item.isFolder) item.ariaExpanded = String(this.folders.has(path));
    };
    return { key: path, state, build: () => this.item(path, entry, level), update };
  }

  /**
   * @param {string} path
   * @param {FolderEntry} entry
   * @param {number} level
   */
  item(path, { name, kind, size, link, isClosed }, level) {
    const shown = shownName(name);
    const to = link ? shownName(link) : '';
    const why = isClosed ? 'the agent may not read it' : kind === 'other' ? 'neither a file nor a folder' : '';
    const told = [to && `link to ${to}`, why].filter(Boolean).join(', ');
    /** @type {any} */
    const item = lineOf(
      level,
      why !== '',
      icon('chevron'),
      icon(isClosed ? 'shield' : kind === 'folder' ? 'folder' : link ? 'link' : 'file'),
      el('bdi', null, shown),
      told ? el('span', { class: 'offscreen' }, `, ${told}`) : null,
      ' ',
      el('small', null, size === undefined || size === null ? '' : sizeOf(size)),
    );
    item.title = [shown, told].filter(Boolean).join('\n');
    item.path = path;
    item.dataset.kind = kind;
    item.isFolder = kind === 'folder' && !why;
    item.addEventListener('click', () => {
      item.focus();
      this.act(item);
    });
    return item;
  }

  /**
   * Open a file, or a folder that is closed; close one that is open.
   * @param {any} item
   */
  act(item) {
    if (item.ariaDisabled === 'true') return;
    if (!item.isFolder) this.open(item.path);
    else if (this.folders.has(item.path)) this.fold(item.path);
    else this.list(item.path);
  }

  /** @returns {any[]} the lines that can be gone to */
  items() {
    return [...this.node.querySelectorAll('[role=treeitem]')];
  }

  /** @param {any} item */
  hold(item) {
    if (!item) return;
    for (const one of this.items()) if (one.tabIndex === 0) one.tabIndex = -1;
    item.tabIndex = 0;
  }

  focus() {
    (this.items().find(({ tabIndex }) => tabIndex === 0) ?? this.node).focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const items = this.items();
    const item = /** @type {any} */ (targetOf(event).closest('[role=treeitem]'));
    const at = items.indexOf(item);
    const isOpen = item?.ariaExpanded === 'true';
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) items[to]?.focus();
    else if (event.key === 'ArrowRight' && item?.isFolder) isOpen ? items[at + 1]?.focus() : this.act(item);
    else if (event.key === 'ArrowLeft' && item)
      isOpen ? this.act(item) : items.findLast((one, i) => i < at && one.ariaLevel < item.ariaLevel)?.focus();
    else if ((event.key === 'Enter' || event.key === ' ') && item) this.act(item);
    else if (event.key.length === 1 && event.key !== ' ') this.type(event.key, items, at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * Go to the next name that begins with what is typed.
   * @param {string} letter
   * @param {any[]} items
   * @param {number} at
   */
  type(letter, items, at) {
    const now = performance.now();
    this.typed = { text: (now - this.typed.when < TYPED_MS ? this.typed.text : '') + letter.toLowerCase(), when: now };
    const from = at + (this.typed.text.length === 1 ? 1 : 0);
    const rest = [...items.slice(from), ...items.slice(0, from)];
    rest.find(({ path }) => path?.split('/').at(-1).toLowerCase().startsWith(this.typed.text))?.focus();
  }
}

/**
 * A line of the tree.
 * @param {number} level
 * @param {boolean} isDead whether it cannot be opened
 * @param {...(Node | string | null)} content
 */
function lineOf(level, isDead, ...content) {
  const props = { role: 'treeitem', class: 'entry', tabindex: '-1', 'aria-level': String(level) };
  const line = el('li', { ...props, 'aria-disabled': isDead ? 'true' : null }, ...content);
  line.style.setProperty('--depth', String(level - 1));
  return line;
}
