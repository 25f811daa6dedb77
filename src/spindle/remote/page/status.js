// What is always in view: the session's name, the connection, tokens and cost, the plan, short messages at the edge.

import { $, button, el, icon, iconButton } from './dom.js';
import { cost, count, oneLine, textOf, tokens } from './format.js';

const TOAST_MS = 7000;

/** Show a short message that goes away by itself. */
export function toast(text, kind = 'error') {
  const close = iconButton('Dismiss', 'close', () => node.remove());
  const node = el(
    'div',
    { class: `toast ${kind}` },
    icon(kind === 'info' ? 'check' : 'warning'),
    el('span', null, text),
    close,
  );
  $('toasts').append(node);
  setTimeout(() => node.remove(), TOAST_MS);
}

export class StatusView {
  constructor(session) {
    this.session = session;
    session.on('stats', stats => this.showStats(stats));
    session.on('todos', phases => this.showTodos(phases));
    session.on('connection', connection => this.showConnection(connection));
    session.on('state', () => this.showTitle());
    session.on('message_end', () => this.showTitle());
    session.on('reset', () => this.showTitle());
    $('title').addEventListener('click', () => this.rename());
  }

  // -- the name -----------------------------------------------------------------------------------

  showTitle() {
    const first = this.session.messages.find(({ role }) => role === 'user');
    const name =
      this.session.state.sessionName || (first ? oneLine(textOf(first.content), 80) : '') || 'New conversation';
    $('title').textContent = name;
    document.title = `${this.session.running ? '● ' : ''}${this.session.title ?? `${oneLine(name, 60)} – Spindle`}`;
    document.body.classList.toggle('blank', this.session.messages.length === 0 && !this.session.running);
  }

  /** Edit the name in place. */
  rename() {
    const title = $('title');
    const field = el('input', {
      type: 'text',
      class: 'rename',
      'aria-label': 'Name of this conversation',
      maxlength: '200',
    });
    field.value = this.session.state.sessionName ?? title.textContent;
    let done = false; // leaving the page is a blur too
    const finish = async save => {
      if (done) return;
      done = true;
      const name = field.value.trim();
      field.replaceWith(title);
      if (save && name && name !== this.session.state.sessionName) {
        await this.session.attempt(() => this.session.call('set_session_name', { name }));
      }
    };
    field.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === 'Escape') {
        event.stopPropagation();
        finish(event.key === 'Enter');
        $('prompt').focus();
      }
    });
    field.addEventListener('blur', () => finish(true));
    title.replaceWith(field);
    field.select();
  }

  // -- figures ------------------------------------------------------------------------------------

  showStats({ tokens: used, cost: dollars, contextUsage }) {
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
    const kinds = { read: used.input, 'from the cache': used.cacheRead, written: used.output };
    $('tokens').title = Object.entries(kinds)
      .map(([kind, n]) => `${count(n, 'token')} ${kind}`)
      .join(', ');
    $('cost').textContent = dollars ? cost(dollars) : '';
  }

  showTodos(phases) {
    const tasks = phases.flatMap(phase => phase.tasks);
    const done = tasks.filter(({ status }) => status === 'completed' || status === 'abandoned').length;
    const current =
      tasks.find(({ status }) => status === 'in_progress') ?? tasks.find(({ status }) => status === 'pending');
    const node = $('todos');
    node.hidden = tasks.length === 0;
    const { open } = node;
    const task = ({ content, status }) => el('li', { class: status }, content);
    node.replaceChildren(
      el(
        'summary',
        null,
        icon('list'),
        el('b', null, `${done}/${tasks.length}`),
        el('span', null, current?.content ?? 'All done'),
        icon('chevron'),
      ),
      ...phases.map(({ name, tasks: own }) =>
        el('section', null, el('h3', null, name), el('ul', null, ...own.map(task))),
      ),
    );
    node.open = open;
  }

  // -- the connection -----------------------------------------------------------------------------

  showConnection({ state, until, reason }) {
    clearInterval(this.countdown);
    const words = { open: 'Connected', connecting: 'Connecting…', waiting: 'Offline', 'lost-session': 'Not found' };
    $('connection').textContent = words[state];
    document.body.dataset.connection = state;
    if (state === 'open') $('banner').hidden = true;
    if (state !== 'waiting') return;
    const text = el('span');
    const now = button('link', () => this.session.wire.hurry(), 'Try now');
    const tick = () => {
      const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
      text.textContent = `${reason ? `Connection closed: ${reason}.` : 'Connection lost.'} Trying again in ${left} s`;
    };
    tick();
    this.countdown = setInterval(tick, 1000);
    $('banner').replaceChildren(icon('warning'), text, now);
    $('banner').hidden = false;
  }
}
