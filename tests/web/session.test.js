import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import './document.js';

/** The server's side: a session with entries, and the sockets that were opened to it. */
const server = { entries: [], sockets: [], asked: [], replay: false, streaming: false, delay: 0 };
const FIRST = { get_state: {}, get_entries: { limit: 160 } };

class Socket {
  readyState = 0;
  constructor() {
    server.sockets.push(this);
    setImmediate(() => {
      this.readyState = 1;
      this.tell({ type: 'ready', sessionId: 's1', cwd: '/w', eventCount: 0, replay: server.replay });
    });
  }
  addEventListener() {}
  tell(frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }
  async send(text) {
    const { id, type, ...fields } = JSON.parse(text);
    server.asked.push(type);
    const data = answers[type]?.(fields) ?? {};
    await pause(server.delay);
    if (this.readyState === 1) this.tell({ type: 'response', id, success: true, data });
  }
  close() {
    this.readyState = 3;
  }
}

const answers = {
  get_state: () => ({
    sessionId: 's1',
    isStreaming: server.streaming,
    isCompacting: false,
    queueItems: [],
    pendingMessageCount: 0,
  }),
  get_entries({ limit = Infinity, before, since }) {
    const { entries } = server;
    const end = before === undefined ? entries.length : entries.findIndex(({ id }) => id === before);
    const from = since === undefined ? Math.max(0, end - limit) : entries.findIndex(({ id }) => id === since) + 1;
    return { entries: entries.slice(from, end), leafId: entries.at(-1)?.id ?? null, more: from > 0 };
  },
};

Object.assign(globalThis, {
  WebSocket: Object.assign(Socket, { OPEN: 1 }),
  addEventListener() {},
  setInterval() {},
  sessionStorage: { getItem: () => null },
  fetch: async () => ({ status: 200, ok: true }),
  // One that does not keep this process alive.
  MessageChannel: class {
    port1 = /** @type {any} */ ({});
    port2 = { postMessage: () => setImmediate(() => this.port1.onmessage()) };
  },
  wire: { FIRST, takeFirst: () => null, open: () => new Socket() },
});
Object.assign(document, { addEventListener() {}, getElementById: () => document.createElement('div') });
const { Session } = await import('../../src/spindle/web/chat/session.js');

const until = async condition => {
  for (let tries = 0; !condition(); tries++) {
    assert.ok(tries < 2000, 'it never came');
    await pause(1);
  }
};
const message = (i, role = i % 2 ? 'assistant' : 'user') => ({
  type: 'message',
  id: `e${i}`,
  parentId: i ? `e${i - 1}` : null,
  message: { role, content: `text ${i}` },
});

function open() {
  const told = [];
  const session = new Session({ askToken: () => new Promise(() => {}), report: text => told.push(['report', text]) });
  const types = ['reset', 'earlier', 'attached', 'connection', 'queue', 'message_end'];
  for (const type of types) session.on(type, value => told.push([type, value]));
  session.open('s1');
  told.length = 0;
  return { session, told, of: type => told.filter(one => one[0] === type).map(one => one[1]) };
}

beforeEach(() =>
  Object.assign(server, {
    entries: Array.from({ length: 20 }, (_, i) => message(i)),
    sockets: [],
    asked: [],
    replay: false,
    streaming: false,
    delay: 0,
  }),
);

test('the end of a long session is shown first, then everything before it, each once and in order', async () => {
  server.entries = Array.from({ length: 9_001 }, (_, i) => message(i));
  const { session, of } = open();
  await until(() => of('reset').length);
  const [{ path, isWhole }] = of('reset');
  assert.equal(isWhole, false);
  assert.ok(path.length <= 160 && path[0].role === 'user' && path.at(-1).id === 'e9000');
  await until(() => of('earlier').length);
  assert.equal(of('earlier')[0].path.length + path.length, 9_001);
  const texts = session.messages.map(({ content }) => content);
  assert.deepEqual(
    texts,
    server.entries.map(entry => entry.message.content),
  );
});

test('what happens while it loads is not lost', async () => {
  server.delay = 20;
  const { session, of } = open();
  await until(() => server.asked.includes('get_entries'));
  server.entries.push(message(20));
  server.sockets[0].tell({ type: 'message_end', message: message(20).message });
  server.sockets[0].tell({ type: 'agent_settled' });
  await until(() => of('reset').length);
  assert.equal(of('message_end').length, 0, 'it is part of what is fetched');
  await until(() => server.asked.filter(type => type === 'get_state').length === 2);
  await session.updateEntries();
  assert.equal(session.entries.path().at(-1).id, 'e20');
});

test('it knows what runs and what waits from the events', async () => {
  const { session, of } = open();
  await until(() => of('reset').length);
  const [socket] = server.sockets;
  socket.tell({ type: 'agent_start' });
  assert.ok(session.busy);
  socket.tell({ type: 'queue_update', steering: ['a'], followUp: ['b'], items: [{ id: 'q1' }, { id: 'q2' }] });
  assert.deepEqual(of('queue').at(-1), { items: [{ id: 'q1' }, { id: 'q2' }], size: 2 });
  socket.tell({ type: 'message_end', message: { role: 'assistant', content: 'new' } });
  assert.equal(session.messages.at(-1).content, 'new');
  socket.tell({ type: 'agent_settled' });
  assert.ok(!session.busy);
});

test('a connection that breaks is opened again, and nothing is fetched twice if the server can go on', async () => {
  const { session, of } = open();
  await until(() => of('reset').length);
  server.replay = true;
  const lost = session.call('prompt', {});
  server.sockets[0].onclose({ code: 1006, reason: '' });
  await assert.rejects(lost, /connection/i);
  assert.equal(of('connection').at(-1).state, 'waiting');
  session.wire.reconnect();
  await until(() => of('attached').length === 2);
  assert.deepEqual(of('attached').at(-1), { known: true });
  assert.equal(of('reset').length, 1);
  assert.deepEqual(of('report'), []);
});
