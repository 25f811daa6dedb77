// What is always in view: the session's name, the connection, tokens and cost, the plan, short messages at the edge.

import { $, el, icon, iconButton } from '../shared/dom.js';
import { count, oneLine, textOf } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { editInPlace } from './edit-in-place.js';
import { cost, tokens } from './figures.js';
import { firstSentence } from './titles.js';

const TOAST_MS = 7000;

/**
 * Show a message above the field, with buttons if there is something to do. What went wrong stays until it is dismissed,
 * what is `offline` until there is a connection again; the rest goes away by itself.
 * @param {string} text
 * @param {...any} buttons
 */
export function toast(text, kind = 'error', ...buttons) {
  for (const other of $('toasts').children) if (other.querySelector('span').textContent === text) other.remove();
  const close = iconButton('Dismiss', 'close', () => node.remove());
  const node = el(
    'div',
    { class: `toast ${kind}` },
    icon(kind === 'info' ? 'check' : 'warning'),
    el('span', null, text),
    ...buttons,
    close,
  );
  $('toasts').append(node);
  if (kind === 'info' && !buttons.length) setTimeout(() => node.remove(), TOAST_MS);
  return node;
}

export class StatusView {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.title = $('title'); // which is not on the page while its text is edited
    session.on('stats', stats => this.showStats(stats));
    session.on('message_update', ({ usage }) => this.showLive(usage));
    session.on('todos', phases => this.showTodos(phases));
    session.on('connection', connection => this.showConnection(connection));
    session.on('attached', () => this.showPlace());
    session.on('state', () => this.showTitle());
    session.on('message_end', () => this.showTitle());
    session.on('reset', () => this.showTitle());
    this.title.addEventListener('click', () => this.rename());
    $('reconnect').addEventListener('click', () => session.wire.reconnect());
  }

  // -- the place and the name ---------------------------------------------------------------------

  showPlace() {
    const { cwd } = this.session;
    $('place').textContent = $('welcome-place').textContent = cwd.split(/[\\/]/).findLast(Boolean) ?? cwd;
    $('place').title = $('welcome-place').title = cwd;
  }

  showTitle() {
    const { loading, entries } = this.session;
    // While the beginning of a long conversation is on its way, its first message is not known.
    const first = entries.isWhole ? this.session.messages.find(({ role }) => role === 'user') : null;
    const unnamed = loading === false && entries.isWhole ? 'New conversation' : '';
    const name = this.session.state.sessionName || (first ? firstSentence(textOf(first.content)) : unnamed);
    this.title.textContent = name;
    const mark = this.session.asking ? '❓ ' : this.session.running ? '● ' : (this.session.mark ?? '');
    document.title = mark + (this.session.title ?? [oneLine(name, 60), 'Spindle'].filter(Boolean).join(' – '));
    const isEmpty = this.session.messages.length === 0 && !this.session.running;
    document.body.classList.toggle('blank', loading === false && isEmpty);
    const { model } = this.session.state;
    $('no-model').hidden = !this.session.id || loading !== false || Boolean(model);
  }

  /** Edit the name in place. */
  rename() {
    const label = 'Name of this conversation';
    const field = el('input', { type: 'text', class: 'rename', 'aria-label': label, maxlength: '200' });
    field.value = this.session.state.sessionName ?? this.title.textContent;
    editInPlace(this.title, field, name => {
      if (!name || name === this.session.state.sessionName) return null;
      return this.session.attempt(() => this.session.call('set_session_name', { name }));
    });
  }

  // -- figures ------------------------------------------------------------------------------------

  /** @param {any} fields */
  showStats({ tokens: used, cost: dollars, costSource, contextUsage }) {
    const percent = contextUsage?.percent;
    $('context').hidden = !contextUsage;
    $('context').querySelector('.percent').textContent =
      percent === null || percent === undefined ? '–' : `${Math.round(percent)} %`;
    const bar = $('context').querySelector('.gauge span');
    bar.style.width = `${Math.min(100, percent ?? 0)}%`;
    bar.classList.toggle('nearly', percent > 80);
    $('context').title = contextUsage
      ? `${tokens(contextUsage.tokens ?? 0)} of ${tokens(contextUsage.contextWindow)} tokens of context`
      : '';
    $('tokens').textContent = used.total
      ? `${tokens(used.input + used.cacheRead + used.cacheWrite)} in · ${tokens(used.output)} out`
      : '';
    const kinds = {
      read: used.input,
      'from the cache': used.cacheRead,
      'into the cache': used.cacheWrite,
      written: used.output,
    };
    $('tokens').title = Object.entries(kinds)
      .map(([kind, n]) => `${count(n, 'token')} ${kind}`)
      .join(', ');
    const unknown = costSource === 'unknown';
    $('cost').textContent = unknown ? (dollars ? `>${cost(dollars)}` : 'cost unknown') : dollars ? cost(dollars) : '';
    $('cost').title = unknown
      ? 'The price of a model, or what it used, is not known'
      : costSource === 'billed'
        ? 'As billed by the provider'
        : 'Computed from the price list';
  }

  /**
   * While an answer is written: what it has used so far comes on top of the session's figures.
   * @param {any} usage
   */
  showLive(usage) {
    const { stats } = this.session;
    if (!usage || !stats || this.shown === usage.output) return;
    this.shown = usage.output;
    const { input, output, cacheRead, cacheWrite } = stats.tokens;
    const used = {
      input: input + usage.input,
      output: output + usage.output,
      cacheRead: cacheRead + usage.cacheRead,
      cacheWrite: cacheWrite + usage.cacheWrite,
    };
    const total = used.input + used.output + used.cacheRead + used.cacheWrite;
    this.showStats({ ...stats, tokens: { ...used, total }, cost: stats.cost + (usage.cost?.total ?? 0) });
  }

  /** @param {any[]} phases */
  showTodos(phases) {
    const tasks = phases.flatMap(phase => phase.tasks);
    const done = tasks.filter(({ status }) => status === 'completed' || status === 'abandoned').length;
    const current =
      tasks.find(({ status }) => status === 'in_progress') ?? tasks.find(({ status }) => status === 'pending');
    $('todos').hidden = tasks.length === 0;
    $('todos').querySelector('b').textContent = `${done}/${tasks.length}`;
    $('todos').querySelector('span').textContent = current?.content ?? 'All done';
    /**
     * @param {any} fields
     * @param {number} i
     */
    const line = ({ content, status }, i) => ({
      key: `${i} ${content}`,
      build: () => el('li', null, content),
      update: (/** @type {any} */ item) => {
        item.className = status;
      },
    });
    reconcile(
      $('phases'),
      phases.map(({ name, tasks: own }, i) => ({
        key: `${i} ${name}`,
        build: () => el('section', null, el('h3', { 'aria-level': 2 }, name), el('ul')),
        update: section => reconcile(section.lastChild, own.map(line)),
      })),
    );
  }

  // -- the connection -----------------------------------------------------------------------------

  /** @param {any} fields */
  showConnection({ state, until, reason }) {
    clearInterval(this.countdown);
    /** @type {Record<string, any>} */
    const words = {
      open: 'Connected',
      connecting: 'Connecting…',
      waiting: 'Offline',
      closed: 'Closed',
      'lost-session': 'Not found',
      held: 'Held elsewhere',
    };
    $('connection').textContent = words[state];
    document.body.dataset.connection = state;
    if (state === 'open') {
      $('banner').hidden = true;
      for (const node of $('toasts').querySelectorAll('.offline')) node.remove();
    }
    if (state === 'closed') this.showBanner(`Goodbye: ${reason || 'the session has ended'}.`, 'Connect again');
    if (state === 'waiting') this.countDown(until, reason);
  }

  /**
   * @param {number} until
   * @param {string} reason
   */
  countDown(until, reason) {
    const tick = () => {
      const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
      const what = reason ? `Connection closed: ${reason}.` : 'Connection lost.';
      this.showBanner(`${what} Trying again in ${left} s`, 'Try now');
    };
    tick();
    this.countdown = setInterval(tick, 1000);
  }

  /**
   * @param {string} words
   * @param {any} action
   */
  showBanner(words, action) {
    $('banner').hidden = false;
    $('banner-words').textContent = words;
    $('reconnect').textContent = action;
  }
}
