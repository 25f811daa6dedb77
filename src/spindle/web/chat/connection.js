// The wire: one WebSocket that is opened again whenever it breaks. Commands are promises; everything else that
// arrives is an event and is counted, so that after a break the server can be asked for what was missed.

const FIRST_DELAY = 400;
const LONGEST_DELAY = 10_000;
const GOODBYE = 1000;
const NO_SUCH_SESSION = 4004;
const IN_USE = 4009;
const BEAT = 20_000;
const BEAT_TIMEOUT = 8000;
const { wire } = globalThis; // of early.js
const nextTask = () => new Promise(resolve => setTimeout(resolve));

export class CommandError extends Error {
  /**
   * @param {string} text
   * @param {string} [code]
   */
  constructor(text, code) {
    super(text);
    this.code = code; // of some kinds of errors
  }
}

/** The connection went away before the answer came. */
export class Disconnected extends CommandError {}

/**
 * Whether something failed because the server is away; a part of the page may not be here yet.
 * @param {any} error
 */
export const isAway = error => error instanceof Disconnected || /dynamically imported module/.test(error?.message);

export class Connection {
  /**
   * `onReady(hello)` is told of every (new) connection, `onEvent(event)` of every event, `onState(state, detail)` of
   * `connecting`, `open`, `waiting` (detail: when the next attempt is), `lost-session`, `held` (elsewhere; detail: by whom) and `closed` (by the agent, for
   * good); `signIn(token)` returns a promise that the browser is signed in, with a token that came with the address.
   * @param {any} fields
   */
  constructor({ onReady, onEvent, onState, signIn }) {
    this.onReady = onReady;
    this.onEvent = onEvent;
    this.onState = onState;
    this.signIn = signIn;
    this.sessionId = null;
    this.copy = false; // whether a copy of that session is wanted
    /** @type {Set<string> | null} */
    this.allowed = null; // the commands of somebody who may only look on
    this.seen = null; // number of the last event; null: nothing that could be gone on with
    this.socket = null;
    this.calls = new Map();
    this.asked = new Map(); // answers to what was asked before this script ran, by command
    this.name = Math.random().toString(36).slice(2, 8); // ids are seen by other clients, too
    this.lastId = 0;
    this.failures = 0;
    this.timer = 0;
    addEventListener('online', () => this.hurry());
    addEventListener('offline', () => this.socket && this.lost(true));
    document.addEventListener('visibilitychange', () => document.hidden || this.hurry() || this.beat());
    setInterval(() => document.hidden || this.beat(), BEAT);
  }

  /**
   * Leave the present session and go to another; null is a new one.
   * @param {string | null} sessionId
   */
  open(sessionId, copy = false) {
    this.drop();
    this.sessionId = sessionId;
    this.copy = copy;
    this.seen = null;
    this.failures = 0;
    this.connect();
  }

  /** An id for a command whose events are of interest. */
  newId() {
    return `${this.name}-${++this.lastId}`;
  }

  /**
   * Send a command; the promise gives its data.
   * @param {string} type
   */
  call(type, fields = {}, id = this.newId()) {
    if (this.socket?.readyState !== WebSocket.OPEN) return Promise.reject(new Disconnected('Not connected'));
    if (this.allowed?.has(type) === false) return Promise.reject(new Disconnected('Read-only'));
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ id, type, ...fields }));
    });
  }

  /**
   * Send a frame that gets no response. Returns whether it could be sent.
   * @param {any} frame
   */
  tell(frame) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** Try again now, whatever the plan was. */
  reconnect() {
    clearTimeout(this.timer);
    if (!this.socket) this.connect();
  }

  /** Try again now instead of later. Returns whether there was something to hurry. */
  hurry() {
    if (!this.timer) return false;
    this.reconnect();
    return true;
  }

  /** A network can die without a word; a question without an answer tells. */
  async beat() {
    const { socket } = this;
    if (socket?.readyState !== WebSocket.OPEN) return;
    const timer = setTimeout(() => this.socket === socket && this.lost(true), BEAT_TIMEOUT);
    await this.call('get_available_thinking_levels').catch(() => null);
    clearTimeout(timer);
  }

  connect() {
    this.timer = 0;
    this.onState('connecting');
    if (wire.given) {
      this.enter();
      return;
    }
    const early = wire.takeFirst(this.sessionId);
    const socket = early?.socket ?? wire.open(this.sessionId, this.seen, this.copy);
    this.socket = socket;
    let opened = socket.readyState === WebSocket.OPEN;
    socket.addEventListener('open', () => {
      opened = true;
    });
    socket.onmessage = (/** @type {any} */ { data }) => this.receive(JSON.parse(data));
    socket.onclose = (/** @type {any} */ { code, reason }) => {
      if (this.socket === socket) this.lost(opened, code, reason);
    };
    if (early) this.takeOver(early);
  }

  /**
   * Take what has come before this script ran.
   * @param {any} fields
   */
  async takeOver({ socket, frames }) {
    for (const type in wire.FIRST)
      this.asked.set(type, new Promise((resolve, reject) => this.calls.set(type, { resolve, reject })));
    for (const promise of this.asked.values()) promise.catch(() => null); // nobody may want it
    const { onmessage } = socket;
    socket.onmessage = (/** @type {any} */ frame) => frames.push(frame);
    // One at a time, as they would come: what is told of one is done before the next.
    while (frames.length && this.socket === socket) {
      onmessage(frames.shift());
      await nextTask();
    }
    if (this.socket === socket) socket.onmessage = onmessage;
  }

  /**
   * Ask for one of the first things; it may have been asked before this script ran.
   * @param {string} type
   */
  first(type) {
    const asked = this.asked.get(type);
    this.asked.delete(type);
    return asked ?? this.call(type, wire.FIRST[type]);
  }

  /**
   * Open a conversation for one command, and leave it again.
   * @param {string | null} sessionId
   * @param {string} type
   * @param {any} [fields]
   */
  once(sessionId, type, fields) {
    return new Promise((resolve, reject) => {
      const socket = wire.open(sessionId);
      socket.onopen = () => socket.send(JSON.stringify({ id: 'once', type, ...fields }));
      socket.onmessage = (/** @type {MessageEvent} */ { data }) => {
        const frame = JSON.parse(data);
        if (frame.type !== 'response') return;
        if (frame.success) resolve(frame.data);
        else reject(new CommandError(frame.error));
        socket.close();
      };
      socket.onclose = (/** @type {CloseEvent} */ { reason }) =>
        reject(new CommandError(reason || 'The conversation could not be opened'));
    });
  }

  /** @param {any} frame */
  receive(frame) {
    if (frame.type === 'response') {
      const call = this.calls.get(frame.id);
      this.calls.delete(frame.id);
      if (frame.success) call?.resolve(frame.data);
      else if (call) call.reject(new CommandError(frame.error, frame.code));
      else this.onEvent({ type: 'client_error', error: frame.error });
    } else if (frame.type === 'ready' && 'sessionId' in frame) {
      this.failures = 0;
      this.copy = false; // it is made; after a break it is gone on with
      this.sessionId = frame.sessionId;
      this.allowed = frame.commands ? new Set(frame.commands) : null;
      this.seen = frame.eventCount;
      this.onState('open');
      this.onReady(frame);
    } else {
      this.seen += frame.events ?? 1; // deltas that came together
      this.onEvent(frame);
    }
  }

  /** @param {boolean} opened */
  async lost(opened, code = 0, reason = '') {
    this.drop();
    if (code === NO_SUCH_SESSION || code === IN_USE) {
      this.onState(code === IN_USE ? 'held' : 'lost-session', { id: this.sessionId, reason });
      return;
    }
    if (code === GOODBYE) {
      this.onState('closed', { reason });
      return;
    }
    this.failures++;
    if (!opened && (await this.needsToken())) {
      await this.enter();
      return;
    }
    if (this.socket) return; // another session was opened meanwhile
    // A little chance, so that many pages do not come back in the same moment.
    const delay = Math.min(FIRST_DELAY * 2 ** (this.failures - 1), LONGEST_DELAY) * (0.75 + Math.random() / 2);
    this.onState('waiting', { until: Date.now() + delay, reason });
    this.timer = setTimeout(() => this.connect(), delay);
  }

  async enter() {
    const { given } = wire;
    wire.given = '';
    await this.signIn(given);
    if (!this.socket) this.connect();
  }

  /** A refused upgrade looks like a dead server; the health check tells the difference. */
  async needsToken() {
    try {
      const health = await fetch(new URL('healthz', document.baseURI), { cache: 'no-store' });
      return (await health.json()).auth === true;
    } catch {
      return false;
    }
  }

  drop() {
    clearTimeout(this.timer);
    this.timer = 0;
    const { socket } = this;
    this.socket = null;
    if (socket) {
      socket.onmessage = null;
      // A browser complains of one that is closed before it was open.
      if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
      else socket.close();
    }
    for (const { reject } of this.calls.values()) reject(new Disconnected('The connection was lost'));
    this.calls.clear();
    this.asked.clear();
  }
}
