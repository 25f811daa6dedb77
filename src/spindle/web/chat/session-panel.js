// All that the server says of the session, in one place: what may run and in which sandbox, rules, servers, tools, figures,
// and what it has told. Modes and levels are chosen here.

import { $, button, el, icon, iconButton, unsent } from '../shared/dom.js';
import { count, oneLine } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { callTitle } from '../shared/tool-card.js';
import { cost, fullTime, shortTime, tokens } from './figures.js';
import { PERMISSION_MODES, SANDBOX_LEVELS } from './permission-words.js';
import { SERVER_STATES } from './server-states.js';

/** @import { Child } from '../shared/reconcile.js' */

const STRICTER = ['off', 'workspace-write', 'read-only']; // each allows less than the one before it
const MOST_TOLD = 100;
const NEWEST_TOLD = 3;
const BAD_STATES = new Set(['failed', 'login', 'invalid']);

export class SessionPanel {
  /** @type {HTMLElement} */
  body;
  /** @type {{ kind: string, text: string, when: number, call?: string }[]} */
  told;
  /** @type {RuleInfo[]} */
  rules;

  /**
   * `actions`: `compact()`, `ask(on)` for questions before every tool, `showCall(id)`, `toast(text, kind)`, `setUp(section)`.
   * @param {Session} session
   * @param {any} actions
   */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.node = $('panel');
    this.rules = [];
    /** @type {Partial<Commands['get_account']['data']>} */
    this.account = { owner: true };
    this.told = []; // {kind, text, when, call}
    this.unseen = 0;
    this.build();
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

  /** @param {any} what */
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
      this.account = await this.session.call('get_account');
    });
    this.show();
  }

  // -- what is shown --------------------------------------------------------------------------------

  show() {
    this.showButton();
    if (!this.isOpen || !this.session.id) return;
    reconcile(
      this.body,
      this.parts()
        .filter(([, ...children]) => children.length)
        .map(([title, ...children]) => ({
          key: title,
          build: () => el('section', null),
          update: section => reconcile(section, [{ key: 'title', build: () => el('h3', null, title) }, ...children]),
        })),
    );
  }

  showButton() {
    const broken = (this.session.state.mcpServers ?? []).filter((/** @type {McpServerState} */ { state }) =>
      BAD_STATES.has(state),
    ).length;
    const words = [broken ? count(broken, 'server') + ' failed' : '', this.unseen ? `${this.unseen} new` : ''];
    const about = ['Session', ...words.filter(Boolean)].join(', ');
    $('open-panel').ariaLabel = about;
    $('open-panel').title = `${about} (Alt+I)`;
    $('open-panel').classList.toggle('marked', broken + this.unseen > 0);
  }

  build() {
    this.body = el('div', { class: 'panel-body', tabindex: '-1' });
    const close = iconButton('Close the panel', 'close', () => this.toggle(false));
    this.node.append(
      el('header', null, el('h2', { id: 'panel-title' }, 'Session'), el('span', { class: 'room' }), close),
      this.body,
    );
  }

  /**
   * The sections: a title, and what stands below it.
   * @returns {[string, ...Child[]][]}
   */
  parts() {
    const { state, stats } = this.session;
    const { permissionMode, approval, sandbox, mcpServers = [], dumpTools = [], untrustedResources = [] } = state;
    const problems = [
      ...(state.saveError ? [`Not saved: ${state.saveError}`] : []),
      ...(state.sessionSaved === false ? ['This session is kept in memory only'] : []),
      ...untrustedResources.map(
        (/** @type {string} */ path) => `Not loaded, because the project is not trusted: ${path}`,
      ),
    ];
    const told = this.told.toReversed();
    const older = told.splice(NEWEST_TOLD);
    /** @type {[string, ...(Child | null)[]][]} */
    const parts = [
      [
        'Told',
        listOf('newest', told, one => this.toldLine(one)),
        listOf('older', older, one => this.toldLine(one), `${older.length} earlier`),
      ],
      ['You', ...this.you()],
      ['Context and cost', ...(stats ? this.figures(stats) : [])],
      [
        'What may run',
        choices(
          'Permission mode',
          PERMISSION_MODES,
          permissionMode,
          (/** @type {string} */ mode) => this.change({ mode }),
          value => Boolean(this.account.mode) && value !== permissionMode,
        ),
        listOf('fixed', this.account.mode ? ['Fixed by the operator of this server'] : [], text =>
          plainLine(text, 'shield'),
        ),
        this.askFirst(approval.tools),
      ],
      ['Rules', listOf('rules', this.rules, ruleLine) ?? NO_RULES, this.setUp('rules', 'Change rules…')],
      ['Sandbox', ...this.sandbox(sandbox)],
      ['MCP servers', listOf('servers', mcpServers, serverLine), this.setUp('servers', 'Add, restart, log in…')],
      ['Tools', listOf('tools', dumpTools, toolLine, count(dumpTools.length, 'tool'))],
      ['To know', listOf('problems', problems, text => plainLine(text, 'warning'))],
    ];
    return parts.map(([title, ...children]) => [title, ...children.filter(child => child !== null)]);
  }

  /** Who the user is on the server, and what is left of the day. */
  you() {
    const { name, runs = 0, runsPerDay, cost: spent = 0, costPerDay, models = [] } = this.account;
    if (!name) return [];
    const facts = [
      name,
      runsPerDay ? `${runs} of ${count(runsPerDay, 'run')} today` : `${count(runs, 'run')} today`,
      costPerDay ? `${cost(spent)} of ${cost(costPerDay)} today` : '',
      models.length ? `Models: ${models.join(', ')}` : '',
    ];
    return [listOf('you', facts.filter(Boolean), plainLine)];
  }

  /**
   * The way to where something is set up.
   * @param {string} section
   * @param {string} words
   */
  setUp(section, words) {
    if (!this.account.owner) return null;
    return { key: 'set up', build: () => button('link', () => this.actions.setUp(section), words) };
  }

  /** @param {boolean} asks */
  askFirst(asks) {
    const build = () => {
      const box = el('input', { type: 'checkbox', name: 'first' });
      box.addEventListener('change', () => this.actions.ask(box.checked));
      return choice(box, 'Ask first', 'Ask before every tool call, whatever the mode (Alt+A)');
    };
    return {
      key: 'first',
      build,
      update: (/** @type {any} */ node) => {
        node.firstChild.checked = asks;
      },
    };
  }

  /** @param {any} fields */
  sandbox({ level, network, holds = [], doesNotHold = [] }) {
    const ports = Array.isArray(network) ? `ports ${network.join(', ')}` : (network ?? 'on');
    /** @param {string} words */
    const title = words => ({ key: words, build: () => el('h4', null, words) });
    return [
      choices(
        'Sandbox',
        SANDBOX_LEVELS,
        level,
        value => this.change({ sandbox: value }),
        value => STRICTER.indexOf(value) < STRICTER.indexOf(this.account.sandbox ?? 'off'),
      ),
      listOf('network', level === 'off' ? [] : [`Network: ${ports}`], plainLine),
      holds.length ? title('Holds here') : null,
      listOf('holds', holds, text => plainLine(text, 'check')),
      doesNotHold.length ? title('Does not hold here') : null,
      listOf('does not hold', doesNotHold, text => plainLine(text, 'warning')),
    ];
  }

  /**
   * What cannot be had is refused with its reason; then the state says what is.
   * @param {any} fields
   */
  async change(fields) {
    await this.session.attempt(() => this.session.call('set_permissions', fields));
    await this.session.attempt(() => this.session.refresh());
  }

  /** @param {any} fields */
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
    const lines = facts.flatMap(([name, text]) => [
      { key: name, build: () => el('dt', null, name) },
      { key: `of ${name}`, state: text, build: () => el('dd', null, text) },
    ]);
    const compact = () => button('plain', this.actions.compact, icon('compact'), 'Summarise older messages');
    return [
      {
        key: 'facts',
        build: () => el('dl', { class: 'facts-list' }),
        update: (/** @type {HTMLElement} */ node) => reconcile(node, lines),
      },
      { key: 'compact', build: compact },
    ];
  }

  /** @param {any} fields */
  toldLine({ kind, text, when, call, about }) {
    return el(
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
  }
}

/**
 * A choice with its words.
 * @param {HTMLInputElement} input
 * @param {string} title
 * @param {string} help
 */
const choice = (input, title, help) =>
  el('label', { class: 'choice' }, input, el('span', null, el('b', null, title), el('small', null, help)));

/**
 * One of several, each with its words: [value, title, help].
 * @param {string} name
 * @param {any[]} all
 * @param {string} chosen
 * @param {Act} choose
 * @param {(value: string) => boolean} isFixed whether a value cannot be had
 */
function choices(name, all, chosen, choose, isFixed) {
  /** @param {any} fields */
  const option = ([value, title, help]) =>
    choice(el('input', { type: 'radio', name, value, on: { change: () => choose(value) } }), title, help);
  return {
    key: name,
    build: () => el('div', { role: 'radiogroup', 'aria-label': name }, ...all.map(option)),
    update: (/** @type {HTMLElement} */ node) => {
      for (const input of node.querySelectorAll('input')) {
        input.checked = input.value === chosen;
        input.disabled = isFixed(input.value);
      }
    },
  };
}

/**
 * A list, folded away if it has a title; nothing if there is nothing in it.
 * @param {string} key
 * @param {any[]} items
 * @param {(item: any) => HTMLElement} line
 */
function listOf(key, items, line, title = '') {
  if (!items.length) return null;
  const lines = items.map(item => ({ key: JSON.stringify(item), build: () => line(item) }));
  const build = () => {
    const node = el('ul', { class: 'plain-list' });
    return title ? el('details', { class: 'folded' }, el('summary', null, el('span'), icon('chevron')), node) : node;
  };
  /** @param {any} node */
  const update = node => {
    if (title) node.querySelector('span').textContent = title;
    reconcile(title ? node.lastChild : node, lines);
  };
  return { key, build, update };
}

const NO_RULES = { key: 'none', build: () => el('p', { class: 'soft' }, 'None: the mode decides.') };

/** @param {string} text */
const plainLine = (text, symbol = '') => el('li', null, symbol ? icon(symbol) : null, el('span', null, text));

/** @param {any} fields */
const ruleLine = ({ behavior, rule, source }) =>
  el(
    'li',
    null,
    el('span', { class: `tag ${behavior}` }, behavior),
    el('span', null, el('code', null, rule), el('small', null, source)),
  );

/** @param {any} fields */
const serverLine = ({ name, state, transport, tools, error, source }) =>
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

/** @param {any} fields */
const toolLine = ({ name, description }) =>
  el('li', null, el('span', null, el('code', null, name), el('small', null, oneLine(description ?? '', 140))));
