// All that the server says of the session, in one place: what may run and in which sandbox, rules, servers, tools, figures,
// and what it has told. Modes and levels are chosen here.

import { $, button, el, icon, iconButton, unsent } from '../shared/dom.js';
import { count, oneLine } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { callTitle } from '../shared/tool-card.js';
import { cost, fullTime, shortTime, tokens } from './figures.js';
import { PERMISSION_MODES, SANDBOX_LEVELS } from './permission-words.js';

const MOST_TOLD = 100;
const NEWEST_TOLD = 3;
const SERVER_STATES = {
  idle: 'not needed yet',
  starting: 'starting',
  ready: 'ready',
  stopped: 'stopped; it is started again when needed',
  failed: 'failed',
  login: 'needs a login: spindle mcp login',
  disabled: 'disabled',
  invalid: 'not valid',
};
const BAD_STATES = new Set(['failed', 'login', 'invalid']);

export class SessionPanel {
  /** `actions`: `compact()`, `ask(on)` for questions before every tool, `showCall(id)`, `toast(text, kind)`. */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.node = $('panel');
    this.rules = [];
    this.told = []; // {kind, text, when, call}
    this.unseen = 0;
    $('open-panel').addEventListener('click', () => this.toggle());
    session.on('state', () => this.show());
    session.on('stats', () => this.show());
    session.on('state_changed', () => this.learnRules());
    session.on('attached', () => this.recall());
    session.on('agent_settled', () => this.learnRules());
    session.on('notice', ({ message, level = 'warning' }) => {
      this.tell({ kind: level, text: message });
      if (!this.isOpen) actions.toast(message, level === 'info' ? level : 'notice');
    });
    session.on('permission_denied', event => {
      const { toolCallId, toolName, arguments: args, reason } = event;
      this.tell({ kind: 'refused', text: reason, call: toolCallId, about: `${toolName} ${callTitle(toolName, args)}` });
    });
  }

  get isOpen() {
    return !this.node.hidden;
  }

  toggle(open = !this.isOpen) {
    if (open === this.isOpen) return;
    this.node.hidden = !open;
    document.body.classList.toggle('with-panel', open);
    $('open-panel').setAttribute('aria-expanded', String(open));
    if (open) {
      this.unseen = 0;
      this.show();
      this.learnRules();
      this.node.querySelector('button').focus();
    } else $('open-panel').focus();
  }

  /** What was told in this tab is there again after a reload. */
  recall() {
    this.told = JSON.parse(unsent.get(`told-${this.session.id}`) ?? '[]');
    this.unseen = 0;
    this.show();
  }

  tell(what) {
    this.told = [...this.told, { ...what, when: Date.now() }].slice(-MOST_TOLD);
    unsent.set(`told-${this.session.id}`, JSON.stringify(this.told));
    if (!this.isOpen) this.unseen++;
    this.show();
  }

  async learnRules() {
    if (!this.isOpen) return;
    await this.session.attempt(async () => {
      ({ rules: this.rules } = await this.session.call('get_permissions'));
    });
    this.show();
  }

  // -- what is shown --------------------------------------------------------------------------------

  show() {
    this.showButton();
    if (!this.isOpen || !this.session.id) return;
    const focused = document.activeElement;
    const radio = this.node.contains(focused) && focused.matches('input') ? focused : null;
    if (!this.body) this.build();
    reconcile(this.body, this.parts(), {
      key: ({ title }) => title,
      state: ({ state }) => JSON.stringify(state),
      build: ({ title, build }) => el('section', null, el('h3', null, title), ...build()),
    });
    // A choice that has been made is drawn again; the keyboard stays with it.
    if (radio && !radio.isConnected)
      this.node.querySelector(`input[name="${radio.name}"][value="${radio.value}"]`)?.focus();
  }

  showButton() {
    const broken = (this.session.state.mcpServers ?? []).filter(({ state }) => BAD_STATES.has(state)).length;
    const words = [broken ? count(broken, 'server') + ' failed' : '', this.unseen ? `${this.unseen} new` : ''];
    const about = ['Session', ...words.filter(Boolean)].join(', ');
    $('open-panel').ariaLabel = about;
    $('open-panel').title = `${about} (Alt+I)`;
    $('open-panel').classList.toggle('marked', broken + this.unseen > 0);
  }

  build() {
    this.body = el('div', { class: 'panel-body', tabindex: '-1' });
    const close = iconButton('Close the panel', 'close', () => this.toggle(false));
    this.node.replaceChildren(
      el('header', null, el('h2', { id: 'panel-title' }, 'Session'), el('span', { class: 'room' }), close),
      this.body,
    );
  }

  /** The sections: what each of them depends on, and how it is built. */
  parts() {
    const { state, stats } = this.session;
    const { permissionMode, approval, sandbox, mcpServers = [], dumpTools = [], untrustedResources = [] } = state;
    /** @type {{ title: string, state: any, build: () => (Node | string)[] }[]} */
    const parts = [
      {
        title: 'What may run',
        state: [permissionMode, approval],
        build: () => this.modes(permissionMode, approval.tools),
      },
      { title: 'Rules', state: this.rules, build: () => [ruleList(this.rules)] },
      { title: 'Sandbox', state: sandbox, build: () => this.sandbox(sandbox) },
    ];
    if (stats) parts.unshift({ title: 'Context and cost', state: stats, build: () => this.figures(stats) });
    if (this.told.length) parts.unshift({ title: 'Told', state: this.told, build: () => this.toldList() });
    if (mcpServers.length)
      parts.push({ title: 'MCP servers', state: mcpServers, build: () => [serverList(mcpServers)] });
    if (dumpTools.length)
      parts.push({ title: 'Tools', state: dumpTools.map(({ name }) => name), build: () => [toolList(dumpTools)] });
    const problems = [
      ...(state.saveError ? [`Not saved: ${state.saveError}`] : []),
      ...(state.sessionSaved === false ? ['This session is kept in memory only'] : []),
      ...untrustedResources.map(path => `Not loaded, because the project is not trusted: ${path}`),
    ];
    if (problems.length)
      parts.push({ title: 'To know', state: problems, build: () => [plainList(problems, 'warning')] });
    return parts;
  }

  /** One of several, each with its words: [value, title, help]. */
  choices(name, all, chosen, choose) {
    const option = ([value, title, help]) =>
      el(
        'label',
        { class: 'choice' },
        el('input', { type: 'radio', name, value, checked: value === chosen, on: { change: () => choose(value) } }),
        el('span', null, el('b', null, title), el('small', null, help)),
      );
    return el('div', { role: 'radiogroup', 'aria-label': name }, ...all.map(option));
  }

  modes(mode, asks) {
    const first = el('input', { type: 'checkbox', name: 'first', checked: asks });
    first.addEventListener('change', () => this.actions.ask(first.checked));
    return [
      this.choices('Permission mode', PERMISSION_MODES, mode, value => this.change({ mode: value })),
      el(
        'label',
        { class: 'choice' },
        first,
        el(
          'span',
          null,
          el('b', null, 'Ask first'),
          el('small', null, 'Ask before every tool call, whatever the mode (Alt+A)'),
        ),
      ),
    ];
  }

  sandbox({ level, network, holds = [], doesNotHold = [] }) {
    const ports = Array.isArray(network) ? `ports ${network.join(', ')}` : (network ?? 'on');
    return [
      this.choices('Sandbox', SANDBOX_LEVELS, level, value => this.change({ sandbox: value })),
      ...(level === 'off' ? [] : [plainList([`Network: ${ports}`])]),
      ...(holds.length ? [el('h4', null, 'Holds here'), plainList(holds, 'check')] : []),
      ...(doesNotHold.length ? [el('h4', null, 'Does not hold here'), plainList(doesNotHold, 'warning')] : []),
    ];
  }

  /** What cannot be had is refused with its reason, and the old choice is marked again. */
  async change(fields) {
    await this.session.attempt(() => this.session.call('set_permissions', fields));
    await this.session.attempt(() => this.session.refresh());
    this.body.querySelectorAll(/** @type {'input'} */ ('input[type=radio]')).forEach(one => {
      one.checked = one.hasAttribute('checked');
    });
  }

  figures({ tokens: used, cost: dollars, costSource, contextUsage, subagents }) {
    const facts = [];
    if (contextUsage)
      facts.push([
        'Context',
        contextUsage.tokens === null || contextUsage.tokens === undefined
          ? `unknown, of ${tokens(contextUsage.contextWindow)}`
          : `${tokens(contextUsage.tokens)} of ${tokens(contextUsage.contextWindow)} (${Math.round(contextUsage.percent)} %)`,
      ]);
    facts.push(['Read', count(used.input, 'token')], ['Written', count(used.output, 'token')]);
    if (used.cacheRead || used.cacheWrite)
      facts.push(['Cache', `${tokens(used.cacheRead)} read, ${tokens(used.cacheWrite)} written`]);
    const known = costSource === 'unknown' ? (dollars ? `more than ${cost(dollars)}` : 'unknown') : cost(dollars);
    facts.push(['Cost', costSource === 'billed' ? `${known}, as billed` : known]);
    if (subagents)
      facts.push([
        'Subagents',
        `${count(subagents.runs, 'run')}, ${count(subagents.tokens.total, 'token')}, ${cost(subagents.cost)}`,
      ]);
    return [
      el(
        'dl',
        { class: 'facts-list' },
        ...facts.flatMap(([name, text]) => [el('dt', null, name), el('dd', null, text)]),
      ),
      button('plain', this.actions.compact, icon('compact'), 'Summarise older messages'),
    ];
  }

  toldList() {
    const item = ({ kind, text, when, call, about }) =>
      el(
        'li',
        { class: kind },
        icon(kind === 'refused' ? 'shield' : kind === 'info' ? 'check' : 'warning'),
        el(
          'span',
          null,
          about ? el('b', null, kind === 'refused' ? `Refused: ${oneLine(about, 80)}` : about) : null,
          el('span', null, text),
          el('small', { title: fullTime(when) }, shortTime(when)),
        ),
        call ? iconButton('Show the call', 'search', () => this.actions.showCall(call)) : null,
      );
    const items = this.told.toReversed().map(item);
    const [newest, older] = [items.slice(0, NEWEST_TOLD), items.slice(NEWEST_TOLD)];
    return [
      el('ul', { class: 'plain-list' }, ...newest),
      older.length ? folded(`${older.length} earlier`, el('ul', { class: 'plain-list' }, ...older)) : '',
    ];
  }
}

const folded = (title, content) =>
  el('details', { class: 'folded' }, el('summary', null, el('span', null, title), icon('chevron')), content);

const plainList = (texts, symbol = '') =>
  el(
    'ul',
    { class: 'plain-list' },
    ...texts.map(text => el('li', null, symbol ? icon(symbol) : null, el('span', null, text))),
  );

function ruleList(rules) {
  if (!rules.length) return el('p', { class: 'soft' }, 'None: the mode decides.');
  const line = ({ behavior, rule, source }) =>
    el(
      'li',
      null,
      el('span', { class: `tag ${behavior}` }, behavior),
      el('span', null, el('code', null, rule), el('small', null, source)),
    );
  return el('ul', { class: 'plain-list' }, ...rules.map(line));
}

function serverList(servers) {
  const line = ({ name, state, transport, tools, error, source }) =>
    el(
      'li',
      { class: BAD_STATES.has(state) ? 'bad' : null, title: source },
      icon(BAD_STATES.has(state) ? 'warning' : state === 'ready' ? 'check' : 'clock'),
      el(
        'span',
        null,
        el('b', null, name),
        el(
          'span',
          null,
          [SERVER_STATES[state] ?? state, transport, Number.isInteger(tools) ? count(tools, 'tool') : '']
            .filter(Boolean)
            .join(' · '),
        ),
        error ? el('small', null, error) : null,
      ),
    );
  return el('ul', { class: 'plain-list' }, ...servers.map(line));
}

function toolList(tools) {
  const line = ({ name, description }) =>
    el('li', null, el('span', null, el('code', null, name), el('small', null, oneLine(description ?? '', 140))));
  return folded(count(tools.length, 'tool'), el('ul', { class: 'plain-list' }, ...tools.map(line)));
}
