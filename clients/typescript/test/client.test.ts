// Against the real program, with a model that answers from a script.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { WebSocket as NodeSocket } from 'ws';

import { startAgent } from '../src/child.js';
import type { ChildOptions } from '../src/child.js';
import { Client, CommandFailed, ConnectionLost, HttpServer, Lines, connectSocket } from '../src/index.js';
import type { Event, PermissionRequest, StreamEvent } from '../src/index.js';

const program = (process.env['SPINDLE_COMMAND'] ?? 'spindle').split(' ');
let place = '';
let env: Record<string, string | undefined> = {};

before(async () => {
  place = await mkdtemp(join(tmpdir(), 'spindle-ts-'));
  env = { ...process.env, HOME: place, SPINDLE_DIR: join(place, 'agent'), PI_CODING_AGENT_DIR: undefined };
});
after(() => rm(place, { recursive: true, force: true }));

async function script(name: string, steps: unknown[]): Promise<string> {
  const path = join(place, `${name}.json`);
  await writeFile(path, JSON.stringify(steps));
  return path;
}

async function agent(name: string, steps: unknown[], options: ChildOptions = {}): Promise<Client> {
  const args = ['--no-session', '--model', `scripted/${await script(name, steps)}`, ...(options.args ?? [])];
  return startAgent({ command: program, cwd: place, env, onStderr: () => {}, ...options, args });
}

const asks = (name: string, args: object) => ({ calls: [{ name, arguments: args }] });

test('a run is iterated for its events and awaited for its result', async () => {
  const client = await agent('hello', [{ text: 'One two three.' }, { text: 'Again.' }]);
  const run = client.run('hi');
  let text = '';
  for await (const piece of run.text()) text += piece;
  assert.equal(text, 'One two three.');
  const result = await run.result();
  assert.equal(result.status, 'ok');
  assert.equal(result.text, 'One two three.');
  assert.equal(await client.ask('more'), 'Again.');
  const { messages } = await client.call('get_messages');
  assert.deepEqual(
    messages.map(message => message.role),
    ['user', 'assistant', 'user', 'assistant'],
  );
  await client.close();
});

test('the agent uses a tool of the client, and hears of its errors', async () => {
  const steps = [asks('lookup', { key: 'a' }), asks('lookup', { key: 'b' }), { text: 'Done.' }];
  const keys: unknown[] = [];
  const lookup = {
    name: 'lookup',
    description: 'Look a key up.',
    parameters: { type: 'object', properties: { key: { type: 'string' } }, required: ['key'] },
    run: ({ key }: Record<string, unknown>) => {
      keys.push(key);
      if (key === 'b') throw new Error('no such key');
      return { found: key };
    },
  };
  const client = await agent('tools', steps, { tools: [lookup] });
  const ends: Event[] = [];
  client.on('tool_execution_end', event => ends.push(event));
  assert.equal(await client.ask('go'), 'Done.');
  assert.deepEqual(keys, ['a', 'b']);
  const told = JSON.stringify(ends);
  assert.match(told, /\{\\"found\\":\\"a\\"\}/);
  assert.match(told, /no such key/);
  await client.close();
});

test('a question before a call has a preview, and its answer decides', async () => {
  const steps = [
    asks('bash', { command: 'echo first' }),
    asks('bash', { command: 'echo second' }),
    { text: 'Done.' },
  ];
  const seen: PermissionRequest[] = [];
  const client = await agent('asked', steps, {
    args: ['--permission-mode', 'default'],
    onPermission: request => {
      seen.push(request);
      return seen.length === 1 ? { behavior: 'allow' } : { behavior: 'deny', reason: 'not that one' };
    },
  });
  const ends: string[] = [];
  client.on('tool_execution_end', event => ends.push(JSON.stringify(event.result.content)));
  await client.run('go').result();
  assert.equal(seen.length, 2);
  const preview = seen[0]?.preview;
  assert.equal(preview?.kind === 'command' && preview.command, 'echo first');
  assert.match(ends[0] ?? '', /first/);
  assert.match(ends[1] ?? '', /not that one/);
  await client.close();
});

test('dialogs nobody answers are a no', async () => {
  const client = await agent('no', [asks('bash', { command: 'touch made' }), { text: 'Done.' }], {
    args: ['--permission-mode', 'default'],
  });
  const result = await client.run('go').result();
  assert.equal(result.denials?.length, 1);
  await client.close();
});

test('what is refused is an error with the words of the agent', async () => {
  const client = await agent('refused', [{ text: 'x' }]);
  await assert.rejects(client.call('set_model', { provider: 'none', modelId: 'none' }), (error: Error) => {
    assert.ok(error instanceof CommandFailed);
    assert.equal(error.command, 'set_model');
    return error.message.length > 10;
  });
  await assert.rejects(client.run('hi', { maxTurns: 0 }).result(), CommandFailed);
  await client.close();
  await assert.rejects(client.call('get_state'), ConnectionLost);
});

test('an agent that cannot be started, or ends, is told of', async () => {
  const missing = startAgent({ command: [join(place, 'missing')], onStderr: () => {} });
  await assert.rejects(missing, /cannot be started/);
  const wrong = startAgent({ command: program, args: ['--no-such-option'], env, onStderr: () => {} });
  await assert.rejects(wrong, /ended with code 2: .*no-such-option/s);
  const client = await agent('ends', [{ text: 'slow', delay: 30 }]);
  const run = client.run('hi');
  await run.accepted;
  void client.call('shutdown').catch(() => {});
  await assert.rejects(async () => {
    for await (const event of run) void event;
    throw new ConnectionLost('settled before the end');
  }, ConnectionLost);
});

test('the same over WebSocket and HTTP', async () => {
  const model = `scripted/${await script('served', [{ text: 'Over a wire.' }, { text: 'Over HTTP again' }, { text: 'Once more.' }])}`;
  const [command = '', ...first] = program;
  const args = [...first, 'serve', '127.0.0.1:0', '--no-session', '--model', model];
  const token = 'token-of_this.test';
  const told = { ...env, SPINDLE_REMOTE_TOKEN: token } as NodeJS.ProcessEnv;
  const server = spawn(command, args, { cwd: place, env: told, stdio: ['ignore', 'ignore', 'pipe'] });
  try {
    const address = await new Promise<string>((resolve, reject) => {
      let said = '';
      server.on('close', () => reject(new Error(said)));
      server.stderr.setEncoding('utf8').on('data', (text: string) => {
        said += text;
        const found = /Listening on https?:\/\/([^\s/]+)\//.exec(said);
        if (found?.[1]) resolve(found[1]);
      });
    });
    await assert.rejects(new HttpServer(`http://${address}`).open(), /token/);
    const http = new HttpServer(`http://${address}`, { token });
    const session = await http.open();
    const events: StreamEvent[] = [];
    const stop = new AbortController();
    const reading = (async () => {
      for await (const event of session.events(stop.signal)) {
        events.push(event);
        if (event.type === 'ready') void session.run('hi');
        if (event.type === 'agent_settled') break;
      }
    })();
    await reading;
    stop.abort();
    assert.equal(events[0]?.type, 'ready');
    const text = events.map(event =>
      event.type === 'message_update' && event.assistantMessageEvent.type === 'text_delta'
        ? event.assistantMessageEvent.delta
        : '',
    );
    assert.equal(text.join(''), 'Over a wire.');
    assert.equal((await http.list()).length >= 1, true);
    assert.equal(await session.ask('and again'), 'Over HTTP again');
    await assert.rejects(session.call('set_session_name', {} as never), CommandFailed);
    await session.close();
    const WebSocket = NodeSocket as unknown as typeof globalThis.WebSocket;
    await assert.rejects(connectSocket(`ws://${address}/rpc`, { WebSocket, token: 'wrong' }), ConnectionLost);
    const client = await Client.connect(await connectSocket(`ws://${address}/rpc`, { WebSocket, token }));
    const run = client.run('hi');
    assert.equal((await run.result()).text, 'Once more.');
    await client.close();
    await assert.rejects(client.call('get_state'), ConnectionLost);
  } finally {
    server.kill('SIGTERM');
  }
});

test('lines are cut at newlines only, however they come', () => {
  const lines = new Lines();
  assert.deepEqual(lines.push('{"a":"\u2028'), []);
  assert.deepEqual(lines.push('"}\n\n{"b":1}\n{"c"'), ['{"a":"\u2028"}', '{"b":1}']);
  assert.deepEqual(lines.push(':2}\n'), ['{"c":2}']);
});
