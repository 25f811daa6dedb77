// The sidebar: stored conversations to search and open, and the tab with the tree. On a phone it is a drawer.

import { $, el, icon, iconButton, remembered } from '../shared/dom.js';
import { count, oneLine } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { confirm } from './confirm.js';
import { editInPlace } from './edit-in-place.js';
import { daysAgo, fullTime, shortTime } from './figures.js';
import { openMenu } from './menu.js';
import { StoredList } from './stored-list.js';
import { titleOf } from './titles.js';

/** @import { Child } from '../shared/reconcile.js' */

const LIVE_MS = 4000; // between two looks at what runs
/** @type {[number, string][]} */
const PERIODS = [
  [0, 'Today'],
  [1, 'Yesterday'],
  [7, 'Last seven days'],
  [31, 'Last month'],
  [Infinity, 'Older'],
];
/** @param {string} cwd */
const nameOf = cwd => cwd.split(/[\\/]/).findLast(Boolean) ?? cwd;
const narrow = matchMedia('(max-width: 860px)');

export class Sidebar {
  /**
   * @param {Session} session
   * @param {any} tree
   */
  constructor(session, tree) {
    this.session = session;
    this.tree = tree;
    const call = (/** @type {CommandName} */ command, /** @type {any} */ fields) => session.call(command, fields);
    this.here = new StoredList(call, false);
    this.everywhere = new StoredList(call, true);
    this.listed = ''; // the directory of the conversations that are shown
    this.folded = new Map(); // directory → whether the reader has folded it away
    /** @type {Map<string, any> | null} */
    this.live = new Map(); // by id; null if the server cannot tell
    this.inside = new Map(); // id → where the words were found: {snippet, entryId, session}
    /** @type {string | undefined} */
    this.foundCursor = undefined; // of the next page of these
    this.seenRunning = new Set(); // conversations that ran when they were last looked at, or have ended since
    $('open-sidebar').addEventListener('click', () => this.toggle());
    $('close-sidebar').addEventListener('click', () => this.toggle(false));
    $('scrim').addEventListener('click', () => this.toggle(false));
    $('session-search').addEventListener('input', () => this.search());
    $('sessions').addEventListener('keydown', (/** @type {any} */ event) => stepThrough(event, '.session, summary'));
    $('session-search').addEventListener('keydown', (/** @type {any} */ event) => {
      if (event.key !== 'ArrowDown') return;
      event.preventDefault();
      $('sessions').querySelector('.session')?.focus();
    });
    // The list stays as it is under a pressed finger or button: a click on what is gone would be lost.
    $('sessions').addEventListener('pointerdown', () => (this.pressed = true));
    for (const end of ['pointerup', 'pointercancel'])
      addEventListener(end, () => this.pressed && setTimeout(() => this.letGo()));
    session.on('state', () => this.sessions.length && this.showSessions());
    for (const name of ['sessions', 'tree']) $('tab-' + name).addEventListener('click', () => this.select(name));
    /** @type {HTMLElement} */ (document.querySelector('[role=tablist]')).addEventListener('keydown', event => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      this.select(this.tree.open ? 'sessions' : 'tree');
      $(this.tree.open ? 'tab-tree' : 'tab-sessions').focus();
    });
    // Nothing is looked at while the tab is hidden; then it goes on.
    document.addEventListener('visibilitychange', () => document.hidden || this.lookAgain());
    const changes = ['agent_settled', 'reset', 'session_info_changed', 'shell_end'];
    for (const event of changes) session.on(event, () => this.refresh());
    session.on('message_end', ({ message }) => message.role === 'user' && this.refresh());
    session.on('stats', () => session.cwd !== this.lookedFrom && this.lookElsewhere());
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

  /**
   * Bring a tab into view.
   * @param {string} name
   */
  async reveal(name) {
    this.toggle(true);
    const shown = this.select(name);
    if (name === 'sessions') {
      $('session-search').select();
      this.lookElsewhere();
    } else {
      await shown;
      this.tree.focus();
    }
  }

  /** @param {string} name */
  select(name) {
    this.tree.open = name === 'tree';
    for (const one of ['sessions', 'tree']) {
      $('tab-' + one).setAttribute('aria-selected', String(one === name));
      $('tab-' + one).tabIndex = one === name ? 0 : -1;
      $('panel-' + one).hidden = one !== name;
    }
    return name === 'tree' ? this.tree.show() : this.refresh();
  }

  /** Conversations of this directory, the latest first. */
  get sessions() {
    return this.withFound(this.here.sessions, one => one.cwd === this.session.cwd);
  }

  /** Conversations of other directories. */
  get elsewhere() {
    const isElsewhere = (/** @type {SessionItem} */ one) => one.cwd !== this.session.cwd;
    return this.withFound(this.everywhere.sessions.filter(isElsewhere), isElsewhere);
  }

  /**
   * Add those that were found by their words, and are on no page that was asked for.
   * @param {SessionItem[]} known
   * @param {(one: SessionItem) => boolean} isWanted
   */
  withFound(known, isWanted) {
    const ids = new Set(known.map(one => one.id));
    const found = [...this.inside.values()].map(hit => hit.session);
    return [...known, ...found.filter(one => !ids.has(one.id) && isWanted(one))];
  }

  /** Learn what is stored for other directories, once the page stands. */
  lookElsewhere() {
    const { cwd } = this.session;
    this.lookedFrom = cwd;
    return this.session.attempt(async () => {
      await this.everywhere.look();
      if (cwd === this.session.cwd) this.showSessions();
    });
  }

  refresh() {
    return this.session.attempt(async () => {
      const { cwd } = this.session;
      if (!this.session.id) return;
      if (cwd !== this.listed) this.here.forget();
      this.listed = cwd;
      await Promise.all([this.here.look(), this.refreshLive()]);
      this.showSessions();
    });
  }

  /** Show older conversations, too. */
  showMore() {
    return this.session.attempt(async () => {
      if (this.foundCursor) return this.lookInside(this.foundCursor);
      await Promise.all([this.here.more(), this.everywhere.more()]);
      this.showSessions();
    });
  }

  /** What runs now, here and in other directories; servers that keep one conversation do not know the command. */
  async refreshLive() {
    if (this.live === null) return;
    try {
      const { sessions } = await this.session.call('list_live_sessions');
      this.live = new Map(sessions.map(one => [one.currentId, one]));
      this.session.emit('live', sessions);
    } catch (error) {
      if (/unknown command/i.test(error.message)) this.live = null;
    }
    clearTimeout(this.timer);
    if (this.live !== null) this.timer = setTimeout(() => document.hidden || this.lookAgain(), LIVE_MS);
  }

  async lookAgain() {
    await this.refreshLive();
    if (!$('sessions').querySelector('.rename')) this.showSessions();
  }

  /** Look into what was said, too, once the typing pauses. */
  search() {
    this.inside = new Map();
    this.foundCursor = undefined;
    this.showSessions();
    clearTimeout(this.searching);
    if (this.query.length >= 3) this.searching = setTimeout(() => this.session.attempt(() => this.lookInside()), 250);
  }

  get query() {
    return $('session-search').value.trim();
  }

  /**
   * Learn which conversations have the words that are asked for: the first page, or the one at `cursor`.
   * @param {string} [cursor]
   */
  async lookInside(cursor) {
    const { query } = this;
    const found = await this.session.call('search_sessions', { query, everywhere: true, cursor });
    if (this.query !== query) return;
    for (const hit of found.sessions) this.inside.set(hit.id, hit);
    this.foundCursor = found.nextCursor ?? undefined;
    this.showSessions();
  }

  letGo() {
    this.pressed = false;
    this.showSessions();
  }

  showSessions() {
    if (this.pressed || $('sessions').querySelector('.rename')) return; // a name is being written
    const words = $('session-search').value.toLowerCase().split(/\s+/);
    /** @param {any} fields */
    const fits = ({ id: one, name, firstMessage }) =>
      this.inside.has(one) ||
      words.every((/** @type {string} */ word) => `${name ?? ''} ${firstMessage}`.toLowerCase().includes(word));
    const pinned = new Set(JSON.parse(remembered.get('pinned') ?? '[]'));
    const others = this.others().filter(fits);
    const groups = new Map([['Pinned', others.filter(one => pinned.has(one.id))]]);
    for (const session of this.sessions.filter(fits)) {
      const period = pinned.has(session.id)
        ? 'Pinned'
        : (PERIODS.find(([days]) => daysAgo(session.modified) <= days)?.[1] ?? '');
      groups.set(period, [...(groups.get(period) ?? []), session]);
    }
    /** @type {Child[]} */
    const lines = [];
    for (const [period, sessions] of groups) {
      if (!sessions.length) continue;
      lines.push({ key: period, build: () => el('h2', null, period) });
      for (const one of sessions) lines.push(this.line(one, pinned.has(one.id)));
    }
    const places = Map.groupBy(
      others.filter(one => !pinned.has(one.id)),
      one => one.cwd,
    );
    if (places.size) lines.push({ key: 'others', build: () => el('h2', null, 'Other directories') });
    const searching = words.join('') !== '';
    for (const [place, sessions] of places) {
      const state = JSON.stringify([searching, sessions.map(one => this.line(one, false).state)]);
      lines.push({ key: `in ${place}`, state, build: () => this.place(place, sessions, searching) });
    }
    if (searching ? this.foundCursor : (this.here.cursor ?? this.everywhere.cursor)) {
      const on = { click: () => this.showMore() };
      lines.push({ key: 'more', build: () => el('button', { type: 'button', class: 'more', on }, 'Show more') });
    }
    const none = searching ? 'Nothing found' : 'Conversations will be listed here';
    if (!lines.length) lines.push({ key: none, build: () => el('p', { class: 'empty' }, none) });
    reconcile($('sessions'), lines);
  }

  /**
   * @param {SessionItem} session
   * @param {boolean} isPinned
   */
  line(session, isPinned) {
    const { id } = session;
    const isHere = id === this.session.id;
    const state = JSON.stringify([
      session,
      isPinned,
      isHere,
      this.inside.get(id),
      this.standing(session),
      this.session.cwd,
    ]);
    return { key: id, state, build: () => this.item(session, isPinned) };
  }

  /**
   * How a conversation stands: it runs, it asks, its run was left in the middle, or it has ended while the reader was
   * elsewhere.
   * @param {SessionItem} session
   */
  standing({ id, interrupted }) {
    const live = this.live?.get(id);
    const here = id === this.session.id;
    const asks = here ? this.session.asking : live?.questions > 0 || live?.questions?.length > 0;
    const runs = here ? this.session.running : live && live.phase && live.phase !== 'idle';
    if (runs) this.seenRunning.add(id);
    else if (here) this.seenRunning.delete(id);
    const left = interrupted && !live && !here;
    return asks ? 'asks' : runs ? 'runs' : left ? 'left' : this.seenRunning.has(id) ? 'done' : '';
  }

  /**
   * The same, as a mark.
   * @param {SessionItem} session
   */
  markOf(session) {
    const kind = this.standing(session);
    const words =
      kind && { asks: 'waits for an answer', runs: 'running', left: 'can be gone on with', done: 'done' }[kind];
    return kind ? el('i', { class: `live ${kind}`, role: 'img', 'aria-label': words, title: words }) : null;
  }

  /** The conversations of other directories: those that are stored, and those that live and are not stored yet. */
  others() {
    const known = new Set([...this.sessions, ...this.elsewhere].map(one => one.id));
    const begun = [...(this.live ?? [])].filter(([id, { cwd }]) => !known.has(id) && cwd !== this.session.cwd);
    return [
      ...begun.map(([id, { name, cwd }]) => ({ id, name, cwd, firstMessage: 'Conversation' })),
      ...this.elsewhere,
    ];
  }

  /**
   * The conversations of a directory, folded away unless one of them lives.
   * @param {string} cwd
   * @param {any} sessions
   * @param {boolean} searching
   */
  place(cwd, sessions, searching) {
    const marks = sessions.map((/** @type {SessionItem} */ one) => this.markOf(one));
    const isOpen = searching || !(this.folded.get(cwd) ?? marks.every((/** @type {string} */ mark) => !mark));
    const node = el(
      'details',
      { class: 'place', open: isOpen },
      el(
        'summary',
        { title: cwd },
        icon('folder'),
        el('span', null, nameOf(cwd)),
        el('small', null, sessions.length),
        icon('chevron'),
      ),
      ...sessions.map((/** @type {Session} */ session) => this.item(session, false)),
    );
    node.addEventListener('toggle', () => searching || this.folded.set(cwd, !node.open));
    return node;
  }

  /**
   * @param {any} session
   * @param {boolean} isPinned
   */
  item(session, isPinned) {
    const { id, modified, messageCount, cwd } = session;
    const title = oneLine(titleOf(session), 100);
    const props = {
      class: 'session',
      href: '#' + id,
      'aria-current': id === this.session.id ? 'page' : null,
      title: [title, modified && fullTime(modified), cwd].filter(Boolean).join('\n'),
    };
    const found = this.inside.get(id);
    const facts = modified ? `${shortTime(modified)} · ${count(messageCount, 'message')}` : 'just begun';
    const where = isPinned && cwd !== this.session.cwd ? `${nameOf(cwd)} · ` : '';
    const when = el('small', null, found ? `… ${found.snippet} …` : where + facts);
    const click = () => {
      this.closeDrawer();
      if (!found?.entryId) return;
      this.session.emit('hit', { id, entryId: found.entryId, text: this.query });
    };
    const link = el('a', { ...props, on: { click } }, el('span', null, title), when);
    const more = iconButton(`More about ${title}`, 'more', () => this.menu(more, session, link, isPinned));
    more.setAttribute('aria-haspopup', 'listbox');
    more.tabIndex = -1; // the arrow keys lead to it
    return el('div', { class: 'session-row' }, link, this.markOf(session), more);
  }

  /**
   * @param {HTMLElement} anchor
   * @param {SessionItem} session
   * @param {HTMLElement} link
   * @param {boolean} isPinned
   */
  menu(anchor, session, link, isPinned) {
    openMenu(anchor, 'Conversation', [
      { label: 'Rename', pick: () => this.rename(session, link) },
      { label: isPinned ? 'Unpin' : 'Pin', pick: () => this.pin(session.id, !isPinned) },
      { label: 'Delete', danger: true, pick: () => this.remove(session) },
    ]);
  }

  /**
   * @param {string} id
   * @param {boolean} pinned
   */
  pin(id, pinned) {
    const all = JSON.parse(remembered.get('pinned') ?? '[]').filter((/** @type {any} */ other) => other !== id);
    remembered.set('pinned', JSON.stringify(pinned ? [...all, id] : all));
    this.showSessions();
  }

  /**
   * @param {any} fields
   * @param {HTMLElement} link
   */
  rename({ id, name, firstMessage }, link) {
    const field = el('input', {
      type: 'text',
      class: 'rename',
      'aria-label': 'Name of the conversation',
      maxlength: '200',
    });
    field.value = titleOf({ name, firstMessage });
    editInPlace(link, field, written => {
      if (!written || written === name) return this.refresh();
      return this.session.attempt(async () => {
        await this.session.aside(id, 'set_session_name', { name: written });
        await this.refresh();
        await this.lookElsewhere();
      });
    });
  }

  /** @param {SessionItem} session */
  async remove(session) {
    const { id } = session;
    const words = `“${oneLine(titleOf(session), 80)}” and its file will be gone for good.`;
    if (!(await confirm('Delete this conversation?', words, 'Delete', 'danger'))) return;
    await this.session.attempt(async () => {
      await this.session.aside(id, 'delete_session');
      this.session.emit('deleted', id);
      this.here.forget();
      this.everywhere.forget();
      await this.refresh();
      await this.lookElsewhere();
    });
  }
}

/**
 * Let the arrow keys go from line to line, and to the button of a line and back.
 * @param {any} event
 * @param {string} selector
 */
function stepThrough(event, selector) {
  const lines = [...event.currentTarget.querySelectorAll(selector)].filter(line => line.checkVisibility());
  const row = event.target.closest('.session-row');
  const line = row?.querySelector('.session') ?? event.target.closest(selector);
  if (event.key === 'ArrowRight') row?.querySelector('button').focus();
  if (event.key === 'ArrowLeft') line?.focus();
  const at = lines.indexOf(line);
  if (event.key === 'ArrowUp' && at === 0) $('session-search').focus();
  const to = /** @type {Record<string, any>} */ ({
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    Home: 0,
    End: lines.length - 1,
  })[event.key];
  if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  lines[Math.max(0, Math.min(lines.length - 1, to))]?.focus();
}
