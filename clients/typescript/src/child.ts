// An agent as a child process, for node. Apart from the rest, so that browsers load nothing of it.

import { spawn } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';

import { Client } from './client.js';
import type { ClientOptions } from './client.js';
import { ConnectionLost, Lines } from './transport.js';
import type { Incoming, Transport } from './transport.js';

export interface ChildOptions extends ClientOptions {
  /** The program and its first arguments; `--mode rpc` is added. */
  command?: string[];
  /** More arguments, as `['--model', 'anthropic/*']`. */
  args?: string[];
  cwd?: string;
  env?: Record<string, string | undefined>;
  /** Gets what the agent writes to stderr; it is passed on to ours if left out. */
  onStderr?: (text: string) => void;
}

/** How long a child may take to end by itself after its input has ended. */
const ENDING_MS = 15_000;

/** Start an agent, and wait until it listens. */
export async function startAgent(options: ChildOptions = {}): Promise<Client> {
  const [program = 'spindle', ...first] = options.command ?? ['spindle'];
  const child = spawn(program, [...first, '--mode', 'rpc', '--updates', 'delta', ...(options.args ?? [])], {
    cwd: options.cwd,
    env: options.env ?? process.env,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  return Client.connect(new Child(child, options.onStderr), options);
}

class Child implements Transport {
  #child: ChildProcessByStdio<Writable, Readable, Readable>;
  #ended: Promise<void>;
  #reason: Error | undefined;
  #onEnd: ((reason: Error) => void) | undefined;
  #last = '';

  constructor(child: ChildProcessByStdio<Writable, Readable, Readable>, onStderr?: (text: string) => void) {
    this.#child = child;
    child.stdin.on('error', () => {}); // it ended; `close` says why
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#last = (this.#last + text).slice(-2000);
      if (onStderr) onStderr(text);
      else process.stderr.write(text);
    });
    this.#ended = new Promise(resolve => {
      const end = (reason: string) => {
        this.#reason ??= new ConnectionLost(reason);
        this.#onEnd?.(this.#reason);
        resolve();
      };
      child.on('error', error => end(`The agent cannot be started: ${error.message}`));
      child.on('close', (code, signal) => {
        const said = this.#last.trim();
        end(`The agent ended with ${signal ?? `code ${code}`}${said ? `: ${said}` : ''}`);
      });
    });
  }

  send(frame: object): void {
    if (this.#reason) throw this.#reason;
    this.#child.stdin.write(`${JSON.stringify(frame)}\n`);
  }

  listen(frame: (frame: Incoming) => void, end: (reason: Error) => void): void {
    const lines = new Lines();
    this.#onEnd = end;
    this.#child.stdout.setEncoding('utf8').on('data', (text: string) => {
      for (const line of lines.push(text)) frame(JSON.parse(line) as Incoming);
    });
    if (this.#reason) end(this.#reason);
  }

  async close(): Promise<void> {
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), ENDING_MS);
    await this.#ended;
    clearTimeout(timer);
  }
}
