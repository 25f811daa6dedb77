// What the page knows of the session it shows: loads it, follows its events, and tells the parts of the page.
// Listeners are added with `on`: for events of the wire by their type, for `reset` (everything is different), `earlier` (what came
// before what is shown is here, too),
// `entries` (the tree has grown), `state` (model, name, running, …), `stats`, `queue`, `todos`, `background`, `connection`, and `shell_start` and `shell_end` of
// commands that the user runs here.

import { announce, breathe } from '../shared/dom.js';
import { Connection, Disconnected, isAway } from './connection.js';
import { Entries } from './entries.js';

const CHANGES_STATE = new Set([
  'agent_start',
  'agent_settled',
  'compaction_start',
  'compaction_end',
  'thinking_level_changed',
  'session_info_changed',
]);

/** @param {Entry[]} path */
const messagesOf = path => path.filter(({ type }) => type === 'message').map(({ raw }) => raw.message);

const READ_ON_MS = 4000; // between two looks at what another program writes
/** What may be done beside such a conversation. */
const READING = new Set([
  'get_stored_entries',
  'list_sessions',
  'list_live_sessions',
  'search_sessions',
  'get_account',
  'get_available_thinking_levels',
  'unlock',
]);

// What is said once, and is not part of what is fetched.
const NOT_STORED = new Set([
  'extension_ui_request',
  'notice',
  'permission_answered',
  'permission_denied',
  'permission_request',
]);

export class Session {
  /** @type {string | null} */
  id;
  /** @type {string} */
  cwd;
  /** @type {any} */
  state;
  /** @type {SessionStats | undefined} */
  stats;
  /** @type {string | undefined} */
  mark;
  /** @type {string | null} */
  title;
  /** @type {any[]} */
  messages;
  /** @type {RunningCommand[]} */
  background;
  /** @type {Set<string>} */
  shells;
  /** @type {boolean} */
  running;
  /** @type {{ id: string, who: string } | null} */
  held;
  /** @type {boolean} */
  asking;
  /** @type {boolean | symbol} */
  loading;
  /** @type {Promise<void> | null} */
  loaded;
  /** @type {Promise<void> | null} */
  whole;
  /** @type {boolean} */
  missed;
  /** @type {boolean} */
  wantsSnapshot;

  /** @param {any} fields */
  constructor({ signIn, report }) {
    this.report = report;
    this.listeners = new Map();
    this.clear();
    this.entries = new Entries(this);
    this.wire = new Connection({
      signIn,
      onReady: (/** @type {any} */ hello) => this.ready(hello),
      onEvent: (/** @type {any} */ event) => this.receive(event),
      onState: (/** @type {any} */ state, /** @type {any} */ detail) => this.emit('connection', { state, ...detail }),
    });
  }

  clear() {
    this.id = null;
    this.held = null; // what is shown is written to by another program, which is named
    this.cwd = '';
    this.state = { model: null, thinkingLevel: 'off', sessionName: null, approval: { tools: false } };
    this.title = null; // of the window, if an extension has set one
    this.messages = [];
    this.running = false;
    this.background = []; // commands that the model runs there: {id, command, outputFile}
    this.shells = new Set(); // ids of commands that the user runs
    this.asking = false; // the user is asked something
    this.loading = true; // events are part of what is being fetched
    this.loaded = null; // a promise of the end of that
    this.whole = null; // a promise that all of the conversation is here
    this.missed = false; // some were
    this.wantsSnapshot = false; // an answer is being written whose beginning was not seen
  }

  /**
   * @template {string} T
   * @param {T} type
   * @param {(value: Told<T>) => void} listener
   */
  on(type, listener) {
    const all = this.listeners.get(type) ?? [];
    this.listeners.set(type, [...all, listener]);
  }

  /**
   * @param {string} type
   * @param {any} [value]
   */
  emit(type, value) {
    for (const listener of this.listeners.get(type) ?? []) listener(value);
  }

  /** Whether it is another user's, to be looked at. */
  get isShared() {
    return this.wire.allowed !== null && !this.held;
  }

  // -- going to a session -------------------------------------------------------------------------

  /** @param {string | null} sessionId */
  open(sessionId, copy = false) {
    this.leave();
    this.wire.open(sessionId, copy);
  }

  /**
   * Show a conversation that another program writes to, to be read. The connection is one of a new conversation.
   * @param {{ id: string, who: string }} held
   */
  look(held) {
    this.leave();
    this.held = held;
    this.wire.open(null);
  }

  leave() {
    this.clear();
    this.entries.clear();
    this.emit('reset', { path: [] });
    this.emit('state');
  }

  /** @param {any} fields */
  ready({ sessionId, cwd, replay }) {
    const known = replay && !this.loading && this.id === sessionId;
    this.id = this.held?.id ?? sessionId;
    this.cwd = cwd;
    if (this.held) this.wire.allowed = READING;
    this.emit('attached', { known });
    if (!known) this.load().catch(error => this.complain(error));
    else
      this.call('set_update_mode', { mode: 'delta' })
        .then(() => this.refresh())
        .catch(error => this.complain(error));
  }

  /** Fetch everything: after connecting without replay, and when the conversation has become another one. */
  load() {
    this.loaded = this.fetchAll();
    return this.loaded;
  }

  async fetchAll() {
    const ticket = (this.loading = Symbol('this load'));
    this.missed = false;
    const { entries } = this;
    const asked = this.held ? null : this.wire.first('get_state');
    const [state] = await Promise.all([asked, entries.begin()]);
    if (this.loading !== ticket) return; // it has changed again meanwhile
    const path = entries.tail();
    this.messages = messagesOf(path);
    this.loading = false;
    if (state) this.takeState(state);
    this.emit('reset', { path, isWhole: entries.isWhole });
    this.whole = this.fetchEarlier(path[0]).catch(error => this.complain(error));
    if (!state) {
      this.readOn();
      return;
    }
    // Whole messages come with updates until we say otherwise: the first one brings what an answer has so far.
    this.wantsSnapshot = state.isStreaming;
    if (!state.isStreaming) await this.call('set_update_mode', { mode: 'delta' });
    // Something may have ended between the answers about the state and the messages.
    await (this.missed ? this.refresh() : this.updateStats());
  }

  /**
   * Fetch what came before the entry that is shown first, while the page is used already.
   * @param {Entry} first
   */
  async fetchEarlier(first) {
    const { entries } = this;
    if (entries.isWhole) return;
    await breathe();
    while (await entries.fetchEarlier()) await breathe();
    const path = entries.path();
    const at = path.indexOf(first);
    if (!entries.isWhole || at < 0) return; // another conversation was opened, or another branch
    this.messages = [...messagesOf(path.slice(0, at)), ...this.messages];
    this.emit('earlier', { path: path.slice(0, at) });
    this.emit('entries');
    this.emit('state');
  }

  /** What another program adds is shown while the page is seen. */
  async readOn() {
    const { held, entries } = this;
    this.emit('queue', { items: [], size: 0 });
    this.emit('todos', []);
    this.takeBackground([]);
    await this.whole;
    const named = [...entries.byId.values()].findLast(({ type }) => type === 'session_info');
    this.state.sessionName = named?.raw.name ?? null;
    this.emit('state');
    for (let wait = READ_ON_MS; ;) {
      await new Promise(resolve => setTimeout(resolve, wait));
      if (this.held !== held) return;
      if (document.hidden) continue;
      const [began, last] = [Date.now(), entries.lastId];
      await entries.refresh().catch(() => null); // the next look may find it
      wait = Math.max(READ_ON_MS, (Date.now() - began) * 20);
      if (this.held !== held) return;
      if (entries.lastId === last) continue;
      const path = entries.path();
      this.messages = messagesOf(path);
      this.emit('reset', { path, isWhole: true });
      this.emit('state');
    }
  }

  async refresh() {
    if (this.held) return;
    this.takeState(await this.call('get_state'));
    await this.updateStats();
  }

  /** @param {any} state */
  takeState(state) {
    this.id = this.wire.sessionId = state.sessionId ?? this.id;
    this.state = state;
    this.running = state.isStreaming || state.isCompacting;
    this.emit('state');
    this.emit('queue', { items: state.queueItems ?? [], size: state.pendingMessageCount });
    this.emit('todos', state.todoPhases ?? []);
    this.takeBackground(state.background ?? []);
  }

  /** @param {RunningCommand[]} commands */
  takeBackground(commands) {
    this.background = commands;
    this.emit('background', commands);
  }

  async updateStats() {
    this.stats = await this.call('get_session_stats');
    this.emit('stats', this.stats);
  }

  /** Learn what was stored. */
  async updateEntries() {
    await this.entries.refresh();
    this.emit('entries');
  }

  // -- events -------------------------------------------------------------------------------------

  /** @param {any} event */
  receive(event) {
    if (this.held) return; // it is about the new conversation
    if (event.type === 'session_changed') {
      this.id = event.sessionId;
      // A command that the user runs here is shown already.
      if (event.reason !== 'bash' || !this.shells.size) this.load().catch(error => this.complain(error));
      return;
    }
    if (this.loading) this.missed = true;
    if (this.loading && !NOT_STORED.has(event.type)) return;
    this.follow(event);
    this.emit(event.type, event);
    if (CHANGES_STATE.has(event.type)) this.emit('state');
  }

  /** @param {any} event */
  follow(event) {
    switch (event.type) {
      case 'agent_start':
      case 'compaction_start':
        this.running = true;
        break;
      case 'agent_settled':
        this.running = false;
        announce(event.aborted ? 'Interrupted' : 'Done');
        this.refresh().catch(error => this.complain(error));
        this.updateEntries().catch(error => this.complain(error));
        break;
      case 'compaction_end':
        // A manual one stands alone; an automatic one is part of what ends with `agent_settled`.
        if (event.reason === 'manual') this.running = false;
        this.updateStats().catch(error => this.complain(error));
        break;
      case 'message_start':
        if (event.message.role === 'assistant') this.snapshotSeen();
        break;
      case 'message_update':
        this.snapshotSeen();
        break;
      case 'message_end':
        this.messages.push(event.message);
        if (event.message.role === 'assistant') this.updateStats().catch(error => this.complain(error));
        if (event.message.role === 'user') this.updateEntries().catch(error => this.complain(error));
        break;
      case 'queue_update':
        this.emit('queue', { items: event.items ?? [], size: event.steering.length + event.followUp.length });
        break;
      case 'background_start':
        this.takeBackground([...this.background, event]);
        break;
      case 'background_end':
        this.takeBackground(this.background.filter(({ id }) => id !== event.id));
        break;
      case 'state_changed':
        this.refresh().catch(error => this.complain(error));
        break;
      case 'thinking_level_changed':
        this.state.thinkingLevel = event.level;
        break;
      case 'session_info_changed':
        this.state.sessionName = event.name ?? null;
        break;
      case 'tool_execution_end':
        if (event.result.details?.phases) this.emit('todos', event.result.details.phases);
        break;
    }
  }

  snapshotSeen() {
    if (!this.wantsSnapshot) return;
    this.wantsSnapshot = false;
    this.call('set_update_mode', { mode: 'delta' }).catch(error => this.complain(error));
  }

  // -- commands -----------------------------------------------------------------------------------

  /**
   * @template {CommandName} C
   * @param {C} type
   * @param {Fields<C>} [fields]
   * @returns {Answer<C>}
   */
  call(type, fields) {
    return this.wire.call(type, fields);
  }

  /**
   * Send one command to another conversation, over a connection of its own; to this one over the one there is.
   * @template {CommandName} C
   * @param {string} id
   * @param {C} type
   * @param {Fields<C>} [fields]
   * @returns {Answer<C>}
   */
  aside(id, type, fields) {
    return id === this.id ? this.call(type, fields) : this.wire.once(id, type, fields);
  }

  /**
   * Run an action and show what went wrong, if something did. Returns whether it went well.
   * @param {Act} action
   */
  async attempt(action) {
    try {
      await action();
      return true;
    } catch (error) {
      this.complain(error);
      return false;
    }
  }

  /** @param {Error} error */
  complain(error) {
    // The connection shows its own state.
    if (error instanceof Disconnected) return;
    this.report(isAway(error) ? 'Not connected: a part of the page is missing' : error.message || String(error));
  }

  /**
   * Send a message, or queue it if the agent is at work.
   * @param {string} message
   * @param {Image[]} [images]
   * @param {'steer' | 'followUp'} streamingBehavior
   */
  prompt(message, images, streamingBehavior = 'steer') {
    return this.call('prompt', { message, images, streamingBehavior });
  }

  /**
   * Run a command of the user. The model gets to know of it with the next message, unless it is `hidden`.
   * @param {string} command
   * @param {boolean} hidden
   */
  async bash(command, hidden) {
    const id = this.wire.newId();
    this.shells.add(id);
    this.emit('shell_start', { id, command, hidden });
    this.emit('state');
    try {
      const result = await this.wire.call('bash', { command, excludeFromContext: hidden }, id);
      const message = { role: 'bashExecution', command, excludeFromContext: hidden, ...result };
      this.messages.push(message);
      this.emit('shell_end', { id, message });
    } catch (error) {
      if (!this.shells.has(id)) return; // another conversation was opened; it ended with the connection
      this.emit('shell_end', { id });
      throw error;
    } finally {
      this.shells.delete(id);
      this.emit('state');
    }
  }

  get busy() {
    return this.running || this.shells.size > 0;
  }

  abort() {
    return this.attempt(() => this.call(this.running ? 'abort' : 'abort_bash'));
  }

  /**
   * Go on from another entry. Returns the text to edit if it was a message of the user, null if it was refused.
   * @param {string} entryId
   */
  async jump(entryId, summarize = false) {
    const { cancelled, editorText } = await this.call('navigate_tree', { entryId, summarize });
    if (cancelled) return null;
    await this.loaded?.catch(() => null); // an event has told of the change; a break now does not undo it
    return editorText ?? '';
  }

  /**
   * Go on in a copy of what came before a message of the user. Returns that message's text.
   * @param {string} entryId
   */
  async fork(entryId) {
    const { cancelled, text } = await this.call('fork', { entryId });
    if (cancelled) return null;
    await this.loaded;
    return text ?? '';
  }

  /** Begin a new session. A run in progress is not lost: then the new session gets an agent of its own. */
  async begin() {
    if (this.held) return this.open(null);
    if (this.busy) return this.open((await this.call('open_session', { cwd: this.cwd })).id);
    await this.call('new_session');
    return this.loaded;
  }
}
