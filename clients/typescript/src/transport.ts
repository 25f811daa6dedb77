// How lines reach an agent and come back. A transport knows nothing of commands.

import type { Command, Event, Response } from './protocol.js';

export type Incoming = Response | Event;
/** What a client sends beside commands: answers to what the agent asks. They get no response. */
export interface Reply {
  type: 'extension_ui_response' | 'host_tool_result' | 'host_tool_update';
  id: string;
  [field: string]: unknown;
}

export interface Transport {
  /** Send one frame. Throws if the connection has ended. */
  send(frame: Command | Reply): void;
  /** Called once, before anything is sent: every frame goes to `frame`, the end to `end`, with the reason. */
  listen(frame: (frame: Incoming) => void, end: (reason: Error) => void): void;
  close(): Promise<void>;
}

/** The connection to the agent has ended. */
export class ConnectionLost extends Error {
  override name = 'ConnectionLost';
}

/** Cuts a stream of text into lines. Only "\n" ends a line: JSON may hold the other separators. */
export class Lines {
  #rest: string[] = [];

  push(text: string): string[] {
    const parts = text.split('\n');
    this.#rest.push(parts[0] ?? '');
    if (parts.length === 1) return [];
    const first = this.#rest.join('');
    this.#rest = [parts.pop() ?? ''];
    return [first, ...parts.slice(1)].filter(line => line.trim());
  }
}

export interface SocketOptions {
  /** For servers that ask for one. It goes as a subprotocol, since a browser sets no headers on a WebSocket. */
  token?: string;
  /** The class to use where there is no global one: `ws` in node 20. */
  WebSocket?: typeof WebSocket;
}

/** The RPC protocol over WebSocket, as `spindle serve` has it at `/rpc`. */
export async function connectSocket(address: string, options: SocketOptions = {}): Promise<Transport> {
  const Socket = options.WebSocket ?? globalThis.WebSocket;
  if (!Socket) throw new Error('There is no WebSocket here: pass one, as { WebSocket } of the package "ws"');
  const url = new URL(address);
  const protocols = options.token ? ['spindle', `spindle.token.${base64url(options.token)}`] : ['spindle'];
  const socket = new Socket(url, protocols);
  const early: string[] = [];
  let ended: Error | undefined;
  let onFrame: ((frame: Incoming) => void) | undefined;
  let onEnd: ((reason: Error) => void) | undefined;
  socket.onmessage = ({ data }) => {
    const text = String(data);
    if (onFrame) onFrame(JSON.parse(text) as Incoming);
    else early.push(text);
  };
  const closed = new Promise<void>(resolve => {
    socket.onclose = ({ code, reason }) => {
      ended = new ConnectionLost(`The server closed the connection (${code}${reason ? `: ${reason}` : ''})`);
      onEnd?.(ended);
      resolve();
    };
  });
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => resolve();
    socket.onerror = () => reject(new ConnectionLost(`No connection to ${url.origin}${url.pathname}`));
  });
  return {
    send(frame) {
      if (socket.readyState !== Socket.OPEN) throw ended ?? new ConnectionLost('The connection is closed');
      socket.send(JSON.stringify(frame));
    },
    listen(frame, end) {
      onFrame = frame;
      onEnd = end;
      for (const text of early.splice(0)) frame(JSON.parse(text) as Incoming);
      if (ended) end(ended);
    },
    async close() {
      socket.close();
      await closed;
    },
  };
}

function base64url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
