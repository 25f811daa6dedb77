// Properties that the scripts of the web pages give to elements and to the window, for tsc.

interface Element {
  /** Of a row of a virtual list: the row it shows. */
  row?: any;
  /** Of a line of the tree: where it is, the entry it shows, and its key. */
  at?: any;
  line?: any;
  key?: any;
  /** Of the line about a turn: the turn. */
  turn?: any;
  /** Of a formula: limits stand above and below it; it is the name of a function. */
  large?: boolean;
  isName?: boolean;
}

/** Where the server is, and how it is reached: made by early.js. */
declare var wire: any;

/** What each command takes and what it answers, made from the declarations in Python (`scripts/typescript.py`). */
type Commands = import('./clients/typescript/src/protocol.js').Commands;
type CommandName = keyof Commands;
/** The fields of a command; one that is undefined is left out. */
type Fields<C extends CommandName> = { [K in keyof Commands[C]['fields']]: Commands[C]['fields'][K] | undefined };
type Answer<C extends CommandName> = Promise<Commands[C]['data']>;

type Model = import('./clients/typescript/src/protocol.js').Model;
type AssistantMessage = import('./clients/typescript/src/protocol.js').AssistantMessage;

type ServerEvent = import('./clients/typescript/src/protocol.js').Event;
/** What a listener is told: of an event of the server, that event. */
type Told<T extends string> = T extends ServerEvent['type'] ? Extract<ServerEvent, { type: T }> : any;

type Session = import('./src/spindle/web/chat/session.js').Session;
type MessageRow = import('./src/spindle/web/chat/rows.js').MessageRow;
/** A function that is handed over, to be called. */
type Act = (...args: any[]) => any;

type Store = import('./src/spindle/web/viewer/store.js').Store;
type LiveCard = import('./src/spindle/web/chat/live-card.js').LiveCard;
type Turn = import('./src/spindle/web/chat/turns.js').Turn;
type Composer = import('./src/spindle/web/chat/composer.js').Composer;
type Conversation = import('./src/spindle/web/chat/conversation.js').Conversation;
type Row = import('./src/spindle/web/shared/list.js').Row;

/** An entry of a session as the page knows it (entries.js); `raw` is as the server sent it. */
interface Entry {
  id: string;
  parentId: string | null;
  type: string;
  role: string;
  order: number;
  children: Entry[];
  raw: any;
  gist?: any;
}
