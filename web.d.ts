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

type Message = import('./clients/typescript/src/protocol.js').Message;
type ToolCall = import('./clients/typescript/src/protocol.js').ToolCall;
type Image = import('./clients/typescript/src/protocol.js').Image;
type PermissionRequest = import('./clients/typescript/src/protocol.js').PermissionRequest;
type ExtensionUIRequest = import('./clients/typescript/src/protocol.js').ExtensionUIRequest;
type LiveInfo = import('./clients/typescript/src/protocol.js').LiveInfo;
type SubagentInfo = import('./clients/typescript/src/protocol.js').SubagentInfo;
type RunningCommand = import('./clients/typescript/src/protocol.js').RunningCommand;
type SessionItem = import('./clients/typescript/src/protocol.js').SessionItem;
type Checkpoint = import('./clients/typescript/src/protocol.js').Checkpoint;
type ChangedFile = import('./clients/typescript/src/protocol.js').ChangedFile;
type FileChanges = import('./clients/typescript/src/protocol.js').FileChanges;
type Restored = import('./clients/typescript/src/protocol.js').Restored;
type FolderEntry = import('./clients/typescript/src/protocol.js').FolderEntry;
type FolderContent = import('./clients/typescript/src/protocol.js').FolderContent;
type SettingItem = import('./clients/typescript/src/protocol.js').SettingItem;
type RuleInfo = import('./clients/typescript/src/protocol.js').RuleInfo;
type McpServerState = import('./clients/typescript/src/protocol.js').McpServerState;
type Way = import('./clients/typescript/src/protocol.js').Way;
type KeyState = import('./clients/typescript/src/protocol.js').KeyState;
type QueuedItem = import('./clients/typescript/src/protocol.js').QueuedItem;
type TodoPhase = import('./clients/typescript/src/protocol.js').TodoPhase;
type LinkInfo = import('./clients/typescript/src/protocol.js').LinkInfo;
type CommandItem = import('./clients/typescript/src/protocol.js').CommandItem;
type ExtensionInForce = import('./clients/typescript/src/protocol.js').ExtensionInForce;
type SessionStats = import('./clients/typescript/src/protocol.js').SessionStats;
type SandboxState = import('./clients/typescript/src/protocol.js').SandboxState;
type ContextUsage = import('./clients/typescript/src/protocol.js').ContextUsage;
type FoundText = import('./clients/typescript/src/protocol.js').FoundText;
/** An event of the server, by its type. */
type EventOf<T extends ServerEvent['type']> = Extract<ServerEvent, { type: T }>;
/** A line of a diff. */
interface DiffRow {
  sign: string;
  /** Its number before and after the change; empty if it has none. */
  before: any;
  after: any;
  text: string;
  /** How its words differ. */
  words?: string;
}
type UserMessage = import('./clients/typescript/src/protocol.js').UserMessage;
type ToolResultMessage = import('./clients/typescript/src/protocol.js').ToolResultMessage;
type BashExecutionMessage = import('./clients/typescript/src/protocol.js').BashExecutionMessage;
type CustomMessage = import('./clients/typescript/src/protocol.js').CustomMessage;
type FoundSession = import('./clients/typescript/src/protocol.js').FoundSession;
type Hunk = { head: string; text: string; rows: DiffRow[] };
type AgentState = import('./clients/typescript/src/protocol.js').AgentState;
type FoundSessions = import('./clients/typescript/src/protocol.js').FoundSessions;
