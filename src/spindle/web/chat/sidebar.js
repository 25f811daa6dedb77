// The sidebar: stored conversations to search and open, and the tab with the tree. On a phone it is a drawer.

import { $, el } from '../shared/dom.js';
import { count, oneLine } from '../shared/format.js';
import { daysAgo, fullTime, shortTime } from './figures.js';

const PERIODS = [
  [0, 'Today'],
  [1, 'Yesterday'],
  [7, 'Last seven days'],
  [31, 'Last month'],
  [Infinity, 'Older'],
];
const narrow = matchMedia('(max-width: 860px)');

export class Sidebar {
  constructor(session, tree) {
    this.session = session;
    this.tree = tree;
    this.sessions = [];
    $('open-sidebar').addEventListener('click', () => this.toggle());
    $('close-sidebar').addEventListener('click', () => this.toggle(false));
    $('scrim').addEventListener('click', () => this.toggle(false));
    $('session-search').addEventListener('input', () => this.showSessions());
    for (const name of ['sessions', 'tree']) $('tab-' + name).addEventListener('click', () => this.select(name));
    document.querySelector('[role=tablist]').addEventListener('keydown', event => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      this.select(this.tree.open ? 'sessions' : 'tree');
      $(this.tree.open ? 'tab-tree' : 'tab-sessions').focus();
    });
    const changes = ['agent_settled', 'reset', 'session_info_changed', 'shell_end'];
    for (const event of changes) session.on(event, () => this.refresh());
    session.on('message_end', ({ message }) => message.role === 'user' && this.refresh());
  }

  /** Show or hide the drawer, or on a wide page the column. */
  toggle(
    open = narrow.matches
      ? !document.body.classList.contains('drawer')
      : document.body.classList.contains('no-sidebar'),
  ) {
    if (narrow.matches) document.body.classList.toggle('drawer', open);
    else document.body.classList.toggle('no-sidebar', !open);
    $('open-sidebar').setAttribute('aria-expanded', String(open));
    if (narrow.matches) (open ? $('close-sidebar') : $('open-sidebar')).focus();
  }

  get isDrawerOpen() {
    return narrow.matches && document.body.classList.contains('drawer');
  }

  closeDrawer() {
    if (this.isDrawerOpen) this.toggle(false);
  }

  /** Bring a tab into view. */
  async reveal(name) {
    this.toggle(true);
    const shown = this.select(name);
    if (name === 'sessions') $('session-search').select();
    else {
      await shown;
      ($('tree').querySelector('.current .line') ?? $('tab-tree')).focus();
    }
  }

  select(name) {
    this.tree.open = name === 'tree';
    for (const one of ['sessions', 'tree']) {
      $('tab-' + one).setAttribute('aria-selected', String(one === name));
      $('tab-' + one).tabIndex = one === name ? 0 : -1;
      $('panel-' + one).hidden = one !== name;
    }
    return name === 'tree' ? this.tree.show() : this.refresh();
  }

  refresh() {
    return this.session.attempt(async () => {
      if (!this.session.id) return;
      ({ sessions: this.sessions } = await this.session.call('list_sessions'));
      this.showSessions();
    });
  }

  showSessions() {
    const words = $('session-search').value.toLowerCase().split(/\s+/);
    const fits = ({ name = '', firstMessage }) =>
      words.every(word => `${name} ${firstMessage}`.toLowerCase().includes(word));
    const found = this.sessions.filter(fits);
    const groups = new Map();
    for (const session of found) {
      const period = PERIODS.find(([days]) => daysAgo(session.modified) <= days)[1];
      groups.set(period, [...(groups.get(period) ?? []), session]);
    }
    const nodes = [...groups].flatMap(([period, sessions]) => [
      el('h2', null, period),
      ...sessions.map(session => this.item(session)),
    ]);
    const none = words.join('') ? 'Nothing found' : 'Conversations will be listed here';
    $('sessions').replaceChildren(...(nodes.length ? nodes : [el('p', { class: 'empty' }, none)]));
  }

  item({ id, name, firstMessage, modified, messageCount }) {
    const title = oneLine(name || firstMessage, 100);
    const props = {
      class: 'session',
      href: '#' + id,
      'aria-current': id === this.session.id ? 'page' : null,
      title: `${title}\n${fullTime(modified)}`,
    };
    const when = el('small', null, `${shortTime(modified)} · ${count(messageCount, 'message')}`);
    return el('a', { ...props, on: { click: () => this.closeDrawer() } }, el('span', null, title), when);
  }
}
