// The client of one session: commands with their answers, runs with their events, tools and questions of the agent.

import type { AgentSettled, AssistantMessage, Commands, Event, ExtensionUIRequest, HostToolCall } from './protocol.js';
import type { PermissionRequest, Response, RunResult } from './protocol.js';
import { ConnectionLost } from './transport.js';
import type { Incoming, Reply, Transport } from './transport.js';

export type Fields<Name extends keyof Commands> = Commands[Name]['fields'];
export type Data<Name extends keyof Commands> = Commands[Name]['data'];
/** The arguments after the name of a command: its fields, which may be left out if none is required. */
export type Given<Name extends keyof Commands> = {} extends Fields<Name> ? [fields?: Fields<Name>] : [fields: Fields<Name>];
export type EventOf<Type extends Event['type']> = Extract<Event, { type: Type }>;

export interface ClientTool {
  name: string;
  description: string;
  /** A JSON Schema of the arguments; none: an object without fields. */
  parameters?: Record<string, unknown>;
  /** Returns a text, or a result with content. What it throws is told to the model as an error. */
  run(args: Record<string, unknown>, signal: AbortSignal): unknown;
}

/** A question, and how to answer it. What is not answered is a no when its time is over. */
export type Question = ExtensionUIRequest | PermissionRequest;

export interface ClientOptions {
  tools?: ClientTool[];
  /**
   * Answers dialogs: a text or a chosen option for `input`, `editor` and `select`, true or false for `confirm`. Undefined
   * cancels. Without it every dialog is cancelled, which is a no.
   */
  onDialog?: (dialog: ExtensionUIRequest) => unknown;
  /**
   * Answers questions before a tool call. Such a question comes beside a dialog for older clients; with this function
   * that dialog is left alone.
   */
  onPermission?: (request: PermissionRequest) => PermissionAnswer | Promise<PermissionAnswer>;
}

export type PermissionAnswer = Omit<Fields<'answer_permission'>, 'question'>;

/** The agent has refused a command; the message says why. */
export class CommandFailed extends Error {
  override name = 'CommandFailed';
  constructor(
    readonly command: string,
    message: string,
    readonly code?: string,
  ) {
    super(message);
  }
}

const DIALOGS = new Set(['select', 'confirm', 'input', 'editor']);

type Waiting = { resolve: (data: never) => void; reject: (reason: Error) => void };

export class Client {
  #transport: Transport;
  #options: ClientOptions;
  #tools = new Map<string, ClientTool>();
  #running = new Map<string, AbortController>();
  #waiting = new Map<number, Waiting>();
  #listeners = new Set<(event: Event) => void>();
  #ends = new Set<(reason: Error) => void>();
  #last = 0;
  #lost: Error | undefined;

  private constructor(transport: Transport, options: ClientOptions) {
    this.#transport = transport;
    this.#options = options;
    transport.listen(
      frame => this.#take(frame),
      reason => this.#end(reason),
    );
  }

  /** Make a client of a transport, with updates that carry only what is new, and declare its tools. */
  static async connect(transport: Transport, options: ClientOptions = {}): Promise<Client> {
    const client = new Client(transport, options);
    try {
      await client.call('set_update_mode', { mode: 'delta' });
      if (options.tools?.length) await client.setTools(options.tools);
    } catch (error) {
      await transport.close();
      throw error;
    }
    return client;
  }

  /** Send a command and return its data. Throws `CommandFailed` if it is refused, `ConnectionLost` if nobody answers. */
  call<Name extends keyof Commands>(name: Name, ...given: Given<Name>): Promise<Data<Name>> {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      if (this.#lost) throw this.#lost;
      this.#waiting.set(id, { resolve: resolve as Waiting['resolve'], reject });
      this.#transport.send({ ...given[0], id, type: name } as never);
    });
  }

  /** Hear of every event. Returns a function that ends it. */
  onEvent(listener: (event: Event) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Hear of events of one type. */
  on<Type extends Event['type']>(type: Type, listener: (event: EventOf<Type>) => void): () => void {
    return this.onEvent(event => event.type === type && listener(event as EventOf<Type>));
  }

  /** Send a prompt. The run can be iterated for its events, or awaited for its result, or both. */
  run(message: string, fields: Omit<Fields<'prompt'>, 'message'> = {}): Run {
    return new Run(this, message, fields);
  }

  /** Send a prompt and return the text of the answer. Throws if the run fails. */
  async ask(message: string, fields: Omit<Fields<'prompt'>, 'message'> = {}): Promise<string> {
    const result = await this.run(message, fields).result();
    if (result.status !== 'ok') throw new Error(result.error ?? `The run ended with ${result.stopReason}`);
    return result.text ?? '';
  }

  /** Lend these tools to the agent, in place of those lent before. */
  async setTools(tools: ClientTool[]): Promise<void> {
    const declared = tools.map(({ name, description, parameters }) => ({
      name,
      description,
      parameters: parameters ?? { type: 'object', properties: {} },
    }));
    await this.call('set_host_tools', { tools: declared });
    this.#tools = new Map(tools.map(tool => [tool.name, tool]));
  }

  /** End the connection; a child ends with it. */
  async close(): Promise<void> {
    await this.#transport.close();
  }

  /** @internal */
  onEnd(listener: (reason: Error) => void): () => void {
    if (this.#lost) listener(this.#lost);
    this.#ends.add(listener);
    return () => this.#ends.delete(listener);
  }

  #take(frame: Incoming): void {
    if (frame.type === 'response') return this.#answer(frame);
    for (const listener of [...this.#listeners]) listener(frame);
    if (frame.type === 'host_tool_call') void this.#runTool(frame);
    else if (frame.type === 'host_tool_cancel') this.#running.get(frame.targetId)?.abort();
    else if (frame.type === 'permission_request' && this.#options.onPermission) void this.#permit(frame);
    else if (frame.type === 'extension_ui_request' && DIALOGS.has(frame.method)) void this.#ask(frame);
  }

  #answer(response: Response): void {
    const waiting = this.#waiting.get(response.id as number);
    this.#waiting.delete(response.id as number);
    if (response.success) waiting?.resolve(('data' in response ? response.data : undefined) as never);
    else waiting?.reject(new CommandFailed(response.command, response.error, response.code));
  }

  #end(reason: Error): void {
    this.#lost = reason;
    for (const { reject } of this.#waiting.values()) reject(reason);
    for (const controller of this.#running.values()) controller.abort();
    for (const listener of [...this.#ends]) listener(reason);
    this.#waiting.clear();
  }

  #reply(reply: Reply): void {
    if (!this.#lost) this.#transport.send(reply);
  }

  async #runTool(call: HostToolCall): Promise<void> {
    const controller = new AbortController();
    this.#running.set(call.id, controller);
    const reply = { type: 'host_tool_result', id: call.id } as const;
    try {
      const tool = this.#tools.get(call.toolName);
      if (!tool) throw new Error(`There is no tool ${call.toolName}`);
      const made = await tool.run((call.arguments ?? {}) as Record<string, unknown>, controller.signal);
      this.#reply({ ...reply, result: asResult(made) });
    } catch (error) {
      this.#reply({ ...reply, result: asResult(error instanceof Error ? error.message : error), isError: true });
    } finally {
      this.#running.delete(call.id);
    }
  }

  async #permit(request: PermissionRequest): Promise<void> {
    let answer: PermissionAnswer;
    try {
      answer = await this.#options.onPermission!(request);
    } catch (error) {
      answer = { behavior: 'deny', reason: `The client failed: ${error instanceof Error ? error.message : error}` };
    }
    await this.call('answer_permission', { question: request.id, ...answer }).catch(() => {}); // answered elsewhere
  }

  async #ask(dialog: ExtensionUIRequest): Promise<void> {
    if (dialog.toolCallId && this.#options.onPermission) return;
    const answer = await Promise.resolve(this.#options.onDialog?.(dialog)).catch(() => undefined);
    const reply = { type: 'extension_ui_response', id: dialog.id } as const;
    if (answer === undefined || answer === null) this.#reply({ ...reply, cancelled: true });
    else if (typeof answer === 'boolean') this.#reply({ ...reply, confirmed: answer });
    else this.#reply({ ...reply, value: String(answer) });
  }
}

function asResult(value: unknown): unknown {
  if (value !== null && typeof value === 'object' && 'content' in value) return value;
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return { content: [{ type: 'text', text }] };
}

/** A prompt that was sent: its events, until nothing more follows by itself, and what came of it. */
export class Run implements AsyncIterable<Event> {
  #client: Client;
  #events: Event[] = [];
  #wake: (() => void) | undefined;
  #lost: Error | undefined;
  #settled: AgentSettled | undefined;
  /** Resolves when the prompt is accepted; rejects if it is refused. */
  readonly accepted: Promise<Data<'prompt'>>;
  #over: Promise<void>;

  constructor(client: Client, message: string, fields: Omit<Fields<'prompt'>, 'message'>) {
    this.#client = client;
    let handled = false;
    this.#over = new Promise(resolve => {
      const leave = [
        client.onEvent(event => {
          this.#events.push(event);
          if (event.type === 'agent_settled') finish(event);
          this.#wake?.();
        }),
        client.onEnd(reason => {
          this.#lost ??= reason;
          finish();
        }),
      ];
      const finish = (settled?: AgentSettled) => {
        this.#settled = settled;
        for (const end of leave ?? []) end();
        resolve();
        this.#wake?.();
      };
      queueMicrotask(() => {
        this.accepted.then(
          data => {
            handled = data.disposition === 'handled';
            if (handled) finish();
          },
          (error: Error) => {
            this.#lost ??= error;
            finish();
          },
        );
      });
    });
    this.accepted = client.call('prompt', { message, ...fields });
    this.accepted.catch(() => {}); // told by whoever iterates or awaits
  }

  /** Whether nothing follows any more. */
  get done(): boolean {
    return this.#settled !== undefined || this.#lost !== undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    let over = false;
    void this.#over.then(() => {
      over = true;
      this.#wake?.();
    });
    for (let next = 0; ; ) {
      const event = this.#events[next];
      if (event) {
        next += 1;
        yield event;
      } else if (over || this.done) {
        if (this.#lost) throw this.#lost;
        return;
      } else await new Promise<void>(resolve => (this.#wake = resolve));
    }
  }

  /** The pieces of the answer's text, as they come. */
  async *text(): AsyncGenerator<string> {
    for await (const event of this)
      if (event.type === 'message_update' && event.assistantMessageEvent.type === 'text_delta')
        yield event.assistantMessageEvent.delta;
  }

  /** Wait for the end of the run and return what came of it. */
  async result(): Promise<RunResult> {
    await this.#over;
    if (this.#lost) throw this.#lost;
    const { result } = await this.#client.call('get_run_result');
    if (!result) throw new ConnectionLost('The prompt was handled without a run');
    return result;
  }
}

/** The text of an answer, without its thoughts and calls. */
export function textOf(message: AssistantMessage): string {
  return message.content.map(block => (block.type === 'text' ? block.text : '')).join('');
}
