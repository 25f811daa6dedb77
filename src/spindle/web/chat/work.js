// All that runs, in one view: conversations that work, wait or have failed, the questions that wait in them, subagents, and
// commands in the background with what they write. Anything can be read and stopped here.

import { $, button, el, fill, icon, iconButton } from '../shared/dom.js';
import { count, list, obj, oneLine, str, textOf } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { plainOutput } from '../shared/terminal.js';
import { cost, tokens } from './figures.js';
import { aboutOf, previewOf, questionTitle } from './permission-question.js';

const LOOK_MS = 1500;
const MOST_OUTPUT = 200_000; // characters that are shown
/** @type {Record<string, string>} */
const PHASES = { idle: 'idle', streaming: 'works', tools: 'works', retrying: 'tries again', compacting: 'summarises' };

export class Work {
  /** @type {LiveInfo[]} */
  sessions = [];

  /**
   * `actions`: `open(sessionId)`, `title(info)`.
   * @param {Session} session
   * @param {any} actions
   */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.node = $('work');
    this.isBlind = false; // the last look failed
    this.reading = new Map(); // key → {text, byte, status, open} of what is read
    this.told = el('p', { class: 'wrong', role: 'alert', hidden: true });
    this.list = el('div', { class: 'work-list' });
    this.none = el('p', { class: 'soft' }, 'Nothing runs, and nothing waits.');
    const close = iconButton('Close', 'close', () => this.node.close());
    fill(
      this.node,
      el('header', null, el('h2', { id: 'work-title' }, 'All that runs'), close),
      this.told,
      this.none,
      this.list,
    );
  }

  async open() {
    if (this.node.open) return;
    this.node.showModal();
    while (this.node.open) {
      if (!document.hidden) await this.look();
      await new Promise(resolve => setTimeout(resolve, LOOK_MS));
    }
  }

  async look() {
    try {
      const { sessions } = await this.session.call('list_live_sessions');
      this.sessions = sessions;
      if (this.isBlind) this.complain(null);
      this.isBlind = false;
      for (const [key, read] of this.reading) if (read.open) await this.readOn(key, read);
      this.show();
    } catch (error) {
      this.isBlind = true;
      this.complain(error);
    }
  }

  /** @param {Error | null} error */
  complain(error) {
    this.told.hidden = !error;
    this.told.textContent = error?.message ?? '';
  }

  /**
   * Send a command to a conversation, and look what came of it.
   * @template {CommandName} C
   * @param {string} id
   * @param {C} type
   * @param {Fields<C>} [fields]
   */
  async act(id, type, fields) {
    try {
      await this.session.aside(id, type, fields);
      this.complain(null);
    } catch (error) {
      this.complain(error);
    }
    await this.look();
  }

  // -- what is shown ------------------------------------------------------------------------------

  show() {
    const asks = (/** @type {LiveInfo} */ info) => Number(questionsOf(info).length > 0);
    const shown = this.sessions.filter(busy).sort((one, other) => asks(other) - asks(one)); // what waits comes first
    this.none.hidden = shown.length > 0;
    reconcile(
      this.list,
      shown.map(info => ({
        key: info.currentId,
        build: () => el('section'),
        update: node => reconcile(node, this.parts(info)),
      })),
    );
  }

  /** @param {LiveInfo} info */
  parts(info) {
    const { currentId: id, phase, failed } = info;
    const works = phase !== 'idle';
    const asks = questionsOf(info);
    const state = asks.length
      ? 'waits for an answer'
      : works
        ? (PHASES[phase] ?? phase)
        : failed
          ? 'has failed'
          : 'idle';
    const facts = [
      state,
      info.tokens ? `${tokens(info.tokens)} tokens` : '',
      info.cost ? cost(info.cost) : '',
      info.cwd,
    ];
    const head = () =>
      el(
        'div',
        { class: 'work-head' },
        el('i', { class: `live ${asks.length ? 'asks' : works ? 'runs' : failed ? 'failed' : ''}` }),
        el('span', null, el('b', null, this.actions.title(info)), el('small', null, facts.filter(Boolean).join(' · '))),
        button('plain', () => this.go(id), 'Open'),
        works ? button('plain', () => this.act(id, 'abort'), 'Stop') : null,
      );
    return [
      { key: 'head', state: JSON.stringify([facts, this.actions.title(info)]), build: head },
      ...(failed ? [{ key: 'failed', state: failed, build: () => el('p', { class: 'wrong' }, failed) }] : []),
      ...asks.map(one => ({ key: one.id, build: () => this.question(id, one) })),
      ...list(info.subagents).map(one => this.subagent(id, one)),
      ...list(info.background).map(one => this.command(id, one)),
    ];
  }

  /** @param {string} id */
  go(id) {
    this.node.close();
    if (id !== this.session.id) this.actions.open(id);
  }

  /**
   * @param {string} id
   * @param {any} request
   */
  question(id, request) {
    if (request.type !== 'permission_request')
      return el(
        'div',
        { class: 'ask' },
        el('h3', null, str(request.title) || 'A question'),
        el(
          'div',
          { class: 'buttons' },
          button('primary', () => this.go(id), 'Answer it there'),
        ),
      );
    /** @param {'allow' | 'deny'} behavior */
    const answer = behavior => () => this.act(id, 'answer_permission', { question: request.id, behavior });
    const [yes, no] = request.kind === 'tool' || request.kind === 'outside' ? ['Allow', 'Deny'] : ['Yes', 'No'];
    return el(
      'div',
      { class: 'ask' },
      el('h3', null, icon('shield'), questionTitle(request)),
      aboutOf(request),
      previewOf(request),
      el(
        'div',
        { class: 'buttons' },
        button('primary', answer('allow'), yes),
        button('plain', answer('deny'), no),
        button('link', () => this.go(id), 'Open the conversation'),
      ),
    );
  }

  /**
   * @param {string} id
   * @param {SubagentInfo} one
   */
  subagent(id, { id: name, agent, description, progress }) {
    const { toolCount = 0, requests = 0, cost: dollars = 0, recentTools = [] } = obj(progress);
    const facts = [
      count(requests, 'step'),
      count(toolCount, 'tool'),
      dollars ? cost(dollars) : '',
      recentTools.length ? `last: ${recentTools[0]}` : '',
    ];
    const stop = () => this.act(id, 'stop_subagent', { subagentId: name });
    return this.hand(`${id} ${name}`, agent, description, facts.filter(Boolean).join(' · '), 'Stop', stop, {
      id,
      subagent: name,
    });
  }

  /**
   * @param {string} id
   * @param {RunningCommand} one
   */
  command(id, { id: name, command }) {
    const kill = () => this.act(id, 'kill_background', { backgroundId: name });
    return this.hand(`${id} ${name}`, name, oneLine(command, 200), 'in the background', 'Kill', kill, {
      id,
      command: name,
    });
  }

  /**
   * A line of something that works, which can be read and ended.
   * @param {string} key
   * @param {string} name
   * @param {string} what
   * @param {string} facts
   * @param {string} end
   * @param {Act} stop
   * @param {any} source
   */
  hand(key, name, what, facts, end, stop, source) {
    const read = this.reading.get(key) ?? { ...source, text: '', byte: 0, status: '', open: false };
    this.reading.set(key, read);
    const build = () => {
      const details = el(
        'details',
        { class: 'hand', open: read.open },
        el('summary', null, icon('chevron'), el('span', null, el('b', null, name), ` ${what}`, el('small'))),
        el('pre', { tabindex: '0', 'aria-label': `What ${name} says` }),
      );
      details.addEventListener('toggle', async () => {
        read.open = details.open;
        if (read.open) await this.look();
      });
      return el('div', { class: 'hand-row' }, details, button('plain', stop, end));
    };
    /** @param {any} node */
    const update = node => {
      node.querySelector('small').textContent = facts;
      const pre = node.querySelector('pre');
      const text = read.text || (read.open ? 'Nothing yet.' : '');
      if (pre.textContent === text) return;
      const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 20;
      pre.textContent = text;
      if (atEnd) pre.scrollTop = pre.scrollHeight;
    };
    return { key, build, update };
  }

  /**
   * Read what has come since the last time.
   * @param {string} key
   * @param {any} read
   */
  async readOn(key, read) {
    try {
      if (read.command) {
        const fields = { backgroundId: read.command, fromByte: read.byte };
        const { output, nextByte } = await this.session.aside(read.id, 'get_background_output', fields);
        read.text = plainOutput(read.text + output).slice(-MOST_OUTPUT);
        read.byte = nextByte;
      } else {
        const fields = { subagentId: read.subagent, fromByte: read.byte };
        const { messages, nextByte, reset } = await this.session.aside(read.id, 'get_subagent_messages', fields);
        const fresh = messages.map(stepOf).filter(Boolean).join('\n\n');
        read.text = [reset ? '' : read.text, fresh].filter(Boolean).join('\n\n').slice(-MOST_OUTPUT);
        read.byte = nextByte;
      }
    } catch {
      this.reading.delete(key); // it has ended; the conversation has the rest
    }
  }
}

/**
 * Whether there is anything to say of a conversation here.
 * @param {LiveInfo} info
 */
export const busy = info =>
  info.phase !== 'idle' || info.failed || info.background?.length || info.subagents?.length || info.waiting?.length;

/**
 * Each question once: those about calls come as a dialog, too.
 * @param {LiveInfo} info
 */
function questionsOf(info) {
  const waiting = list(info.waiting);
  const calls = waiting.filter(({ type }) => type === 'permission_request');
  const known = new Set(calls.map(({ id }) => id));
  return [...calls, ...waiting.filter(one => one.type !== 'permission_request' && !known.has(one.id))];
}

/**
 * A message of a subagent as a step.
 * @param {any} message
 */
function stepOf({ role, content, toolName }) {
  const text = textOf(content);
  if (role === 'user') return `› ${text}`;
  if (role === 'toolResult') return `${toolName}: ${oneLine(text, 300)}`;
  const calls = (Array.isArray(content) ? content : [])
    .filter(block => block.type === 'toolCall')
    .map(({ name, arguments: args }) => `→ ${name} ${oneLine(JSON.stringify(args), 200)}`);
  return [text, ...calls].filter(Boolean).join('\n');
}
