// What stands beside the talk: the files that the agent works on, a file to be looked at, and the states that the files
// had. Where there is little room, the list or what was chosen from it.

import { $, el, fill, iconButton } from '../shared/dom.js';
import { FileView } from './file-view.js';
import { FolderTree } from './folder-tree.js';
import { TimeLine } from './time-line.js';

const LOOK_MS = 700; // after something that may have changed files
const CHANGING = ['tool_execution_end', 'agent_settled', 'shell_end', 'background_end', 'entries'];
/** @type {Record<string, string>} */
const TABS = { files: 'Files', checkpoints: 'Checkpoints' };

export class FilesPane {
  /** @type {string | null} */
  id = null;
  cwd = '';
  /** @type {HTMLElement} */
  back;
  /** @type {Element | null} */
  opener = null;
  /** @type {ReturnType<typeof setTimeout>} */
  timer;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.node = $('folder');
    this.tab = 'files';
    this.tree = new FolderTree(session, path => this.showFile(path, 0));
    this.view = new FileView(session);
    this.line = new TimeLine(session, () => this.detail(true));
    this.build();
    session.on('reset', () => {
      if (this.id === session.id && this.cwd === session.cwd) return;
      this.clear();
    });
    for (const event of CHANGING) session.on(event, () => this.plan());
    addEventListener('focus', () => this.plan());
  }

  build() {
    const tab = (/** @type {string} */ name) =>
      el(
        'button',
        {
          type: 'button',
          role: 'tab',
          id: `tab-${name}`,
          'aria-controls': `panel-${name}`,
          on: { click: () => this.show(name) },
        },
        TABS[name],
      );
    const tabs = el('div', { role: 'tablist', 'aria-label': 'Files' }, tab('files'), tab('checkpoints'));
    tabs.addEventListener('keydown', event => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      event.preventDefault();
      this.select(this.tab === 'files' ? 'checkpoints' : 'files');
      this.refresh();
      $(`tab-${this.tab}`).focus();
    });
    this.back = iconButton('Back to the list', 'arrow', () => {
      this.detail(false);
      (this.tab === 'files' ? this.tree : this.line).focus();
    });
    this.back.classList.add('back');
    const none = el('p', { class: 'empty' }, 'Choose a file to look at it.');
    const panel = (/** @type {string} */ name, /** @type {Element[]} */ ...parts) =>
      el(
        'section',
        { role: 'tabpanel', id: `panel-${name}`, class: 'files-columns', 'aria-labelledby': `tab-${name}` },
        ...parts,
      );
    fill(
      this.node,
      el(
        'header',
        null,
        this.back,
        tabs,
        el('span', { class: 'room' }),
        iconButton('Close the files', 'close', () => this.toggle(false)),
      ),
      panel(
        'files',
        el('div', { class: 'files-list' }, this.tree.node),
        el('div', { class: 'files-detail' }, this.view.node, none),
      ),
      panel(
        'checkpoints',
        el('div', { class: 'files-list' }, this.line.node),
        el('div', { class: 'files-detail' }, this.line.comparison),
      ),
    );
    this.select('files');
  }

  clear() {
    this.id = this.session.id;
    this.cwd = this.session.cwd;
    this.tree.clear();
    this.view.clear();
    this.line.clear();
    this.detail(false);
    this.plan();
  }

  get isOpen() {
    return !this.node.hidden;
  }

  toggle(open = !this.isOpen) {
    if (open) this.show();
    else this.close();
  }

  close() {
    this.mark(false);
    const { opener } = this;
    const isThere = opener instanceof HTMLElement && opener !== document.body && opener.checkVisibility();
    (isThere ? opener : $('open-files')).focus();
  }

  /** @param {boolean} open */
  mark(open) {
    if (open && !this.isOpen) this.opener = document.activeElement;
    this.node.hidden = !open;
    document.body.classList.toggle('with-files', open);
    $('open-files').setAttribute('aria-expanded', String(open));
    if (open && (this.id !== this.session.id || this.cwd !== this.session.cwd)) this.clear();
  }

  /** Show the tree, or the time line. */
  async show(name = this.tab) {
    this.mark(true);
    this.select(name);
    await this.refresh();
    (name === 'files' ? this.tree : this.line).focus();
  }

  /** @param {string} name */
  select(name) {
    this.tab = name;
    for (const one of Object.keys(TABS)) {
      const tab = /** @type {HTMLElement} */ (this.node.querySelector(`#tab-${one}`));
      tab.ariaSelected = String(one === name);
      tab.tabIndex = one === name ? 0 : -1;
      /** @type {HTMLElement} */ (this.node.querySelector(`#panel-${one}`)).hidden = one !== name;
    }
    this.detail(false);
  }

  /**
   * Where there is room for one of them only: show what was chosen, or the list.
   * @param {boolean} shown
   */
  detail(shown) {
    this.node.classList.toggle('chosen', shown);
  }

  /**
   * Show a file, with a line of it in view.
   * @param {string} path
   * @param {number} line
   */
  async showFile(path, line) {
    const fromTree = this.tree.node.contains(document.activeElement);
    this.mark(true);
    this.select('files');
    this.detail(true);
    const [shown] = await Promise.all([this.view.show(path, line), this.tree.root || this.tree.refresh()]);
    if (!fromTree || !this.tree.node.checkVisibility()) this.view.body.focus({ preventScroll: true });
    if (shown) await this.tree.choose(shown);
  }

  plan() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.isOpen && !document.hidden && this.refresh(), LOOK_MS);
  }

  /** Look again at what is shown. */
  refresh() {
    return this.session.attempt(async () => {
      if (!this.session.id) return;
      if (this.tab === 'checkpoints') return this.line.refresh();
      await this.tree.refresh();
      await this.view.refresh();
    });
  }
}
