// Sessions of a server over plain HTTP: every command is a POST, events are a stream that is taken up where it broke.

import { CommandFailed } from './client.js';
import type { Data, Given } from './client.js';
import type { Commands, Event, ExtensionUIRequest, LiveInfo, RunResult } from './protocol.js';
import { ConnectionLost, Lines } from './transport.js';

export interface HttpOptions {
  token?: string;
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

export interface NewSession {
  cwd?: string;
  model?: string;
  name?: string;
  /** Id or path of a stored session to go on with. */
  session?: string;
}

/** The first event of a stream: `replay` says whether what was missed follows. */
export type StreamEvent = Event | { type: 'ready'; version: string; sessionId: string; cwd: string; replay: boolean };

/** How long to wait before a broken stream is taken up again. */
const AGAIN_MS = 500;

export class HttpServer {
  constructor(
    readonly address: string,
    readonly options: HttpOptions = {},
  ) {}

  /** Open a session: a new one, or a stored one. */
  async open(wanted: NewSession = {}): Promise<HttpSession> {
    const info = (await this.request('POST', '/v1/sessions', wanted)) as LiveInfo;
    return new HttpSession(this, info.id);
  }

  /** The session with exactly this id, which is begun if there is none. */
  async put(id: string, wanted: Omit<NewSession, 'session'> = {}): Promise<HttpSession> {
    await this.request('PUT', `/v1/sessions/${encodeURIComponent(id)}`, wanted);
    return new HttpSession(this, id);
  }

  async list(): Promise<LiveInfo[]> {
    return ((await this.request('GET', '/v1/sessions')) as { sessions: LiveInfo[] }).sessions;
  }

  /** @internal */
  async request(method: string, path: string, body?: object): Promise<unknown> {
    const response = await this.fetch(method, path, body);
    const text = await response.text();
    if (response.ok) return text ? JSON.parse(text) : undefined;
    throw new CommandFailed(path.split('/').at(-1) ?? path, messageOf(text, response.status), String(response.status));
  }

  /** @internal */
  async fetch(method: string, path: string, body?: object, headers: Record<string, string> = {}, signal?: AbortSignal) {
    const { token, fetch: ask = fetch } = this.options;
    if (token) headers['Authorization'] = `Bearer ${token}`;
    if (body) headers['Content-Type'] = 'application/json';
    const init: RequestInit = { method, headers };
    if (body) init.body = JSON.stringify(body);
    if (signal) init.signal = signal;
    try {
      return await ask(new URL(path, this.address), init);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ConnectionLost(`No answer from ${this.address}: ${error instanceof Error ? error.message : error}`);
    }
  }
}

function messageOf(text: string, status: number): string {
  try {
    return (JSON.parse(text) as { error: string }).error;
  } catch {
    return `The server answered with status ${status}`;
  }
}

export class HttpSession {
  constructor(
    readonly server: HttpServer,
    readonly id: string,
  ) {}

  get #path(): string {
    return `/v1/sessions/${encodeURIComponent(this.id)}`;
  }

  /** Send a command and return its data. */
  async call<Name extends keyof Commands>(name: Name, ...given: Given<Name>): Promise<Data<Name>> {
    return (await this.server.request('POST', `${this.#path}/${name}`, given[0] ?? {})) as Data<Name>;
  }

  /** Send a prompt, and wait for what comes of it. */
  async run(message: string, fields: Omit<Commands['prompt']['fields'], 'message'> = {}): Promise<RunResult> {
    return (await this.server.request('POST', `${this.#path}/prompt?wait=true`, { message, ...fields })) as RunResult;
  }

  /** Send a prompt and return the text of the answer. Throws if the run fails. */
  async ask(message: string, fields: Omit<Commands['prompt']['fields'], 'message'> = {}): Promise<string> {
    const result = await this.run(message, fields);
    if (result.status !== 'ok') throw new Error(result.error ?? `The run ended with ${result.stopReason}`);
    return result.text ?? '';
  }

  async questions(): Promise<ExtensionUIRequest[]> {
    const found = await this.server.request('GET', `${this.#path}/questions`);
    return (found as { questions: ExtensionUIRequest[] }).questions;
  }

  async answer(question: string, reply: { value?: string; confirmed?: boolean; cancelled?: boolean }): Promise<void> {
    await this.server.request('POST', `${this.#path}/answers/${encodeURIComponent(question)}`, reply);
  }

  /** End the session in the server's memory; its file stays. */
  async close(): Promise<void> {
    await this.server.request('DELETE', this.#path);
  }

  /** The session's events. A stream that breaks is taken up after the last event, without a gap and without a double. */
  async *events(signal?: AbortSignal): AsyncGenerator<StreamEvent> {
    let last: string | undefined;
    while (!signal?.aborted) {
      try {
        for await (const { id, event } of this.#stream(last, signal)) {
          last = id ?? last;
          yield event;
          if (event.type === 'session_closed') return;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof CommandFailed) throw error;
      }
      await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
    }
  }

  async *#stream(last?: string, signal?: AbortSignal): AsyncGenerator<{ id?: string; event: StreamEvent }> {
    const headers: Record<string, string> = last === undefined ? {} : { 'Last-Event-ID': last };
    const response = await this.server.fetch('GET', `${this.#path}/events`, undefined, headers, signal);
    if (!response.ok) throw new CommandFailed('events', messageOf(await response.text(), response.status));
    const lines = new Lines();
    const decoder = new TextDecoder();
    let id: string | undefined;
    const reader = response.body!.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        for (const line of lines.push(decoder.decode(value, { stream: true }))) {
          if (line.startsWith('id: ')) id = line.slice(4);
          else if (line.startsWith('data: ')) {
            const event = JSON.parse(line.slice(6)) as StreamEvent;
            yield id === undefined ? { event } : { id, event };
            id = undefined;
          }
        }
      }
    } finally {
      await reader.cancel().catch(() => {});
    }
  }
}
