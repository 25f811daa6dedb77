// Made from the registry in the code by `python scripts/typescript.py`; do not edit.

/** The sandbox as a command line, a program, a task or a client asks for it. None: as the settings say. */
export interface SandboxOptions {
  level?: "off" | "read-only" | "workspace-write" | null;
  writable?: string[] | null;
  network?: "off" | "on" | number[] | null;
}

export interface AbortAndPromptData {
  disposition: "handled" | "queued" | "started";
}

export interface AbortCommandsData {
  commands: string[];
}

export interface AddMcpServerData {
  servers: McpServerState[];
}

export interface McpServerState {
  name: string;
  state: string;
  transport?: string | null;
  source?: string | null;
  tools?: number | null;
  pid?: number | null;
  protocol?: string | null;
  error?: string | null;
  stderr?: string | null;
}

export interface AnswerQuestionData {
  disposition: "answered" | "started";
}

export interface BashOutput {
  output: string;
  exitCode?: number | null;
  cancelled: boolean;
  truncated: boolean;
  fullOutputPath?: string | null;
  totalLines?: number;
  totalBytes?: number;
  outputLines?: number;
  outputBytes?: number;
}

export interface Forked {
  text: string;
  cancelled: boolean;
}

export interface Queued {
  steering: string[];
  followUp: string[];
}

export interface CloneData {
  cancelled: boolean;
}

export interface CompactionResult {
  summary: string;
  firstKeptEntryId: string;
  tokensBefore: number;
  details?: unknown;
  estimatedTokensAfter?: number | null;
  usage?: Usage | null;
}

/** Tokens of one answer. `input` excludes cached tokens, `output` includes reasoning. */
export interface Usage {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  totalTokens?: number;
  cost?: Cost;
  reasoning?: number;
  cacheWrite1h?: number;
}

/** US dollars; every key is always written. */
export interface Cost {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  total?: number;
  totalFromProvider?: boolean;
  unknown?: boolean;
}

export interface CompleteCommandData {
  completions: string[];
}

export interface CompletePathData {
  paths: string[];
}

export interface CycledModel {
  model: Model;
  thinkingLevel: string;
  isScoped: boolean;
}

/** A model: where and how it is asked, what it costs, how much it can read and write. */
export interface Model {
  id: string;
  name: string;
  api: string;
  provider: string;
  baseUrl: string;
  reasoning: boolean;
  input: string[];
  cost: ModelCost;
  contextWindow: number;
  maxTokens: number;
  headers?: Record<string, string> | null;
  compat?: Record<string, unknown> | null;
  thinkingLevelMap?: Record<string, string | null> | null;
  samplingParams?: Record<string, unknown> | null;
  samplingParamsByThinkingLevel?: Record<string, Record<string, unknown>> | null;
  inputLimits?: Record<string, unknown> | null;
  promptCache?: Record<string, unknown> | null;
  costUnknown?: boolean;
}

/** US dollars per million tokens. */
export interface ModelCost {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  tiers?: Record<string, unknown>[] | null;
}

export interface Level {
  level: string;
}

export interface DeleteSessionData {
  cancelled: boolean;
}

export interface ExportHtmlData {
  path: string;
}

export interface ExportPageData {
  html: string;
}

export interface FindFilesData {
  paths: string[];
}

export interface FindTextData {
  found: FoundText[];
}

export interface FoundText {
  entryId: string;
  count: number;
}

export interface FollowUpData {
  disposition: "handled" | "queued" | "started";
}

/** What a client may do on a server, and what its user has used up today (UTC). */
export interface AccountState {
  name?: string | null;
  owner?: boolean;
  runs?: number;
  runsPerDay?: number | null;
  cost?: number;
  costPerDay?: number | null;
  mode?: string | null;
  sandbox?: string;
  models?: string[];
}

export interface GetAvailableCommandsData {
  commands: AvailableCommand[];
}

export interface AvailableCommand {
  name: string;
  description: string | null;
  source: "extension" | "file" | "skill";
}

export interface GetAvailableModelsData {
  models: Model[];
}

export interface GetAvailableThinkingLevelsData {
  levels: ("high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh")[];
}

/** Output of a command in the background. */
export interface BackgroundOutput {
  output: string;
  nextByte: number;
  status: string;
  running: boolean;
}

export interface GetForkMessagesData {
  messages: ForkMessage[];
}

export interface ForkMessage {
  entryId: string;
  text: string;
}

export interface FileChanges {
  files: ChangedFile[];
  added: number;
  removed: number;
  notCovered: NotedFile[];
}

/** How a file differs between two states. */
export interface ChangedFile {
  path: string;
  status: string;
  oldPath?: string | null;
  added?: number | null;
  removed?: number | null;
  diff?: string | null;
}

export interface NotedFile {
  path: string;
  why: string;
}

export interface GetCommandsData {
  commands: CommandItem[];
}

/** One entry of `get_commands`, with the keys of old clients (`location`, `path`) and of new ones. */
export interface CommandItem {
  name: string;
  source: "extension" | "prompt" | "skill";
  sourceInfo: SourceInfo;
  location: string;
  path: string;
  description?: string | null;
}

/** Where a resource or an extension came from, as the wire tells it. */
export interface SourceInfo {
  path: string;
  source: string;
  scope: string;
  origin: string;
  baseDir?: string | null;
}

export interface EntriesData {
  entries: Entry[];
  leafId: string | null;
  more?: boolean;
}

export interface GetKeysData {
  keys: KeyState[];
}

export interface KeyState {
  provider: string;
  source?: string | null;
  stored?: string | null;
}

export interface GetLastAssistantTextData {
  text: string | null;
}

export interface GetLinksData {
  links: LinkInfo[];
}

export interface LinkInfo {
  link: string;
  session: string;
  created: string;
}

export interface LoadedHere {
  commands: CommandItem[];
  extensions: ExtensionInForce[];
  problems: string[];
}

export interface ExtensionInForce {
  path: string;
  scope: string;
  tools: string[];
  commands: string[];
}

export interface GetLoginProvidersData {
  providers: LoginProvider[];
}

export interface LoginProvider {
  id: string;
  name: string;
  available: boolean;
  authenticated: boolean;
}

export interface GetMessagesData {
  messages: Message[];
}

export interface MessagesPage {
  messages: Message[];
  totalMessages: number;
  nextCursor?: string | null;
}

export interface GetModelWaysData {
  ways: Way[];
}

/** A way to a model for who has none. */
export interface Way {
  kind: "key" | "keys" | "server" | "sign-in" | "small";
  name: string;
  title: string;
  command: string;
}

export interface PermissionState {
  mode: string;
  rules: RuleInfo[];
  decision?: Decision | null;
}

export interface RuleInfo {
  behavior: string;
  rule: string;
  source: string;
}

/** The decision of the permissions about a tool call. */
export interface Decision {
  behavior: "allow" | "ask" | "deny";
  rule?: string | null;
  source?: string | null;
  reason?: string;
  always?: string[];
}

export interface GetRunResultData {
  result: RunResult | null;
}

/** The result of a run. */
export interface RunResult {
  status: string;
  stopReason: string;
  text: string;
  value?: unknown;
  error?: string | null;
  denials: Denial[];
  questions?: PermissionRequest[];
  turns: number;
  toolCalls: number;
  tokens: RunTokens;
  cost: number | null;
  costSource: string;
  sessionId: string;
  sessionFile: string | null;
  filesChanged: string[];
  fallbacks?: Fallback[];
  durationMs: number;
}

/** A tool call that was refused. */
export interface Denial {
  toolName: string;
  arguments: unknown;
  rule?: string | null;
  reason?: string;
  by?: "definition" | "error" | "extension" | "mode" | "nobody" | "program" | "rule" | "user";
  error?: string | null;
}

/** A question about a tool call, or a yes-or-no one, with all that is needed to answer it; `answer_permission` does. A dialog (`extension_ui_request`) with the same id follows, for clients that know only dialogs: one answer is enough. A question about the trust in a project has none. */
export interface PermissionRequest {
  type: "permission_request";
  id: string;
  kind: "confirm" | "outside" | "place" | "tool" | "trust" | "turns";
  session: string;
  run?: string | null;
  toolCallId?: string | null;
  subagent?: string | null;
  toolName?: string | null;
  arguments?: unknown;
  summary: string;
  preview?: DiffPreview | CommandPreview | FieldsPreview | AddressPreview | TextPreview | FailurePreview | null;
  reason?: string;
  rule?: string | null;
  source?: string | null;
  mode?: string;
  mayDestroy?: boolean;
  suggestions?: Suggestion[];
  keeps?: ("project" | "session" | "user")[];
  timeout?: number | null;
  waits: boolean;
}

/** The change of a file that an edit or a write would make. */
export interface DiffPreview {
  kind: "diff";
  path: string;
  diff: string;
  patch: string;
  added: number;
  removed: number;
  newFile?: boolean;
  cut?: boolean;
  place?: string | null;
}

/** The command that would run. */
export interface CommandPreview {
  kind: "command";
  command: string;
  directory: string;
  sandbox: "off" | "read-only" | "workspace-write";
  unsure?: string | null;
  stoppedBy?: string | null;
  background?: boolean;
  where?: string | null;
}

/** The fields of a call whose tool is not ours: of an MCP server, an extension or the client. */
export interface FieldsPreview {
  kind: "fields";
  fields: CallField[];
  server?: string | null;
}

export interface CallField {
  name: string;
  value: string;
}

/** The address that would be asked for. */
export interface AddressPreview {
  kind: "address";
  address: string;
  fields?: CallField[];
}

/** A text to read before answering. */
export interface TextPreview {
  kind: "text";
  text: string;
}

/** The call would fail. */
export interface FailurePreview {
  kind: "failure";
  reason: string;
}

/** Rules that would allow this call, and others like it, from now on. */
export interface Suggestion {
  text: string;
  rules: string[];
}

/** Tokens of all model calls of a run. */
export interface RunTokens {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  total?: number;
}

/** A switch to another model, because the one before could not answer. */
export interface Fallback {
  from: string;
  to: string;
  role: string;
  cause: string;
  price?: ModelCost | null;
  cost?: number;
}

export interface SessionStats {
  sessionFile?: string | null;
  sessionId: string;
  userMessages: number;
  assistantMessages: number;
  toolCalls: number;
  toolResults: number;
  totalMessages: number;
  tokens: TokenTotals;
  cost: number;
  costSource: string;
  contextUsage?: ContextUsage | null;
  subagents?: SubagentTotals | null;
  fallbacks?: Fallback[];
}

export interface TokenTotals {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  total?: number;
}

/** How full the model's window is; unknown (null) right after a compaction. */
export interface ContextUsage {
  tokens: number | null;
  contextWindow: number;
  percent: number | null;
}

/** The share of subagents in the figures of a session. */
export interface SubagentTotals {
  runs?: number;
  tokens?: TokenTotals;
  cost?: number;
}

export interface GetSettingsData {
  settings: SettingItem[];
}

export interface SettingItem {
  key: string;
  about: string;
  kind: "choice" | "list" | "number" | "object" | "switch" | "text";
  choices?: string[];
  default: unknown;
  value: unknown;
  source: "default" | "project" | "user";
}

export interface AgentState {
  model: Model | null;
  thinkingLevel: string;
  isStreaming: boolean;
  isCompacting: boolean;
  isSettled: boolean;
  steeringMode: string;
  followUpMode: string;
  interruptMode: string;
  sessionFile?: string | null;
  sessionId: string;
  sessionName?: string | null;
  sessionSaved: boolean;
  saveError?: string | null;
  autoCompactionEnabled: boolean;
  autoRetryEnabled: boolean;
  messageCount: number;
  pendingMessageCount: number;
  queuedMessageCount: number;
  queue: Queued;
  queueItems: QueuedItem[];
  approval: Asked;
  permissionMode: string;
  sandbox: SandboxState;
  exec?: FarState | null;
  todoPhases: TodoPhase[];
  systemPrompt: string;
  dumpTools: Record<string, unknown>[];
  contextUsage?: ContextUsage | null;
  untrustedResources?: string[];
  mcpServers?: McpServerState[];
  background?: RunningCommand[];
  interruptedRun?: InterruptedRun | null;
}

/** A message of the user in a queue. */
export interface QueuedItem {
  id: string;
  kind: string;
  text: string;
  images: number;
}

export interface Asked {
  tools: boolean;
  maxTurns?: number | null;
}

/** The sandbox, and what of it this machine can give. */
export interface SandboxState {
  level: "off" | "read-only" | "workspace-write";
  network?: "off" | "on" | number[];
  writable?: string[];
  holds?: string[];
  doesNotHold?: string[];
}

/** Where tools work. */
export interface FarState {
  command: string;
  cwd: string;
  python?: string | null;
}

export interface TodoPhase {
  id: string;
  name: string;
  tasks: TodoItem[];
}

export interface TodoItem {
  id: string;
  content: string;
  status: "abandoned" | "completed" | "in_progress" | "pending";
  notes?: string | null;
  details?: string | null;
}

/** A command in the background, as clients see it. */
export interface RunningCommand {
  id: string;
  command: string;
  outputFile: string;
  pid: number;
}

/** A run whose process ended before it. It can be resumed or abandoned; another prompt abandons it. */
export interface InterruptedRun {
  id: string;
  prompt?: string | null;
  promptId?: string | null;
  began: string;
  last: string;
  turns: number;
  cost: number;
  limits: Record<string, number>;
  openCalls: OpenCall[];
  questions?: PermissionRequest[];
}

/** A tool call without a result. */
export interface OpenCall {
  id: string;
  name: string;
  again: boolean;
}

export interface SubagentMessages {
  sessionFile: string;
  fromByte: number;
  nextByte: number;
  reset: boolean;
  entries: unknown[];
  messages: unknown[];
}

export interface GetSubagentsData {
  subagents: SubagentInfo[];
}

/** A subagent that is at work. */
export interface SubagentInfo {
  id: string;
  index: number;
  agent: string;
  agentSource: "bundled" | "project" | "user";
  description: string;
  status: "running";
  task: string;
  sessionFile?: string | null;
  lastUpdate: number;
  progress: WorkingSubagent;
  parentToolCallId: string;
}

/** What a subagent has done so far. */
export interface WorkingSubagent {
  id: string;
  index: number;
  agent: string;
  agentSource: string;
  status: string;
  task: string;
  description: string;
  recentTools?: string[];
  recentOutput?: string[];
  toolCount?: number;
  requests?: number;
  tokens?: number;
  cost?: number;
  durationMs?: number;
}

export interface TreeData {
  tree: EntryNode[];
  leafId: string | null;
}

export interface EntryNode {
  entry: Entry;
  children?: EntryNode[] | null;
  label?: string | null;
  labelTimestamp?: string | null;
  id?: string | null;
  parentId?: string | null;
}

export interface HandedOff {
}

export interface CheckpointList {
  checkpoints: Checkpoint[];
  enabled: boolean;
  folder: string;
  bytes: number;
  maxBytes: number;
  maxAgeDays: number;
}

/** The state of the files before a turn wrote to them, before the user's first command, or before a restore. */
export interface Checkpoint {
  id: string;
  entryId: string;
  timestamp: string;
  kind: string;
  prompt?: string | null;
  promptId?: string | null;
  onBranch: boolean;
  isKept: boolean;
  covers: string;
  files?: number | null;
  notCovered?: number | null;
  durationMs?: number | null;
  restored?: string | null;
}

export interface FolderContent {
  path: string;
  entries: FolderEntry[];
  total: number;
}

export interface FolderEntry {
  name: string;
  kind: string;
  size?: number | null;
  link?: string | null;
  isClosed?: boolean;
}

export interface Folders {
  path: string;
  parent: string | null;
  folders: string[];
}

export interface ListLiveSessionsData {
  sessions: LiveInfo[];
}

/** A live session, as a list shows it. */
export interface LiveInfo {
  id: string;
  currentId: string;
  node?: string | null;
  sessionFile?: string | null;
  name?: string | null;
  cwd: string;
  phase: string;
  model?: string | null;
  clients: number;
  queue: number;
  questions: number;
  cost?: number | null;
  tokens?: number;
  failed?: string | null;
  waiting?: unknown[];
  background?: RunningCommand[];
  subagents?: SubagentInfo[];
}

export interface SessionList {
  sessions: SessionItem[];
  nextCursor?: string | null;
  asOf: number;
}

export interface SessionItem {
  id: string;
  path: string;
  cwd: string;
  name?: string | null;
  firstMessage: string;
  modified: string;
  messageCount: number;
  interrupted?: boolean;
}

export interface LogInMcpServerData {
  servers: McpServerState[];
}

export interface LoggedIn {
  providerId: string;
}

export interface MakeSessionNameData {
  name: string;
}

export interface NavigatedTo {
  editorText?: string | null;
  cancelled: boolean;
}

export interface Negotiated {
  protocolVersion: number;
}

export interface NewSessionData {
  cancelled: boolean;
}

export interface PromptData {
  disposition: "handled" | "queued" | "started";
}

export interface PullModelData {
  model: string;
}

export interface FilePart {
  path: string;
  kind: string;
  size: number;
  text?: string;
  byte?: number;
  line?: number | null;
  nextByte?: number | null;
  mimeType?: string | null;
  data?: string | null;
}

export interface RemoveMcpServerData {
  servers: McpServerState[];
}

export interface RemovedMessage {
  kind: string;
  text: string;
  images: Image[];
}

export interface Image {
  type: "image";
  data: string;
  mimeType: string;
}

export interface RestartMcpServerData {
  servers: McpServerState[];
}

export interface Restored {
  files: ChangedFile[];
  conflicts: NotedFile[];
  notCovered: NotedFile[];
  checkpoint?: string | null;
  editorText?: string | null;
  cancelled?: boolean;
}

export interface ResumeRunData {
  disposition: "handled" | "queued" | "started";
}

export interface FoundSessions {
  sessions: FoundSession[];
  nextCursor?: string | null;
}

export interface FoundSession {
  id: string;
  snippet: string;
  entryId: string | null;
  session: SessionItem;
}

export interface SetEventFilterData {
  events: string[] | null;
}

export interface SetHostToolsData {
  toolNames: string[];
}

export interface SetHostUriSchemesData {
  schemes: string[];
}

export interface KeyKept {
  provider?: string | null;
  candidates?: string[];
}

export interface SetMcpServersData {
  servers: McpServerState[];
}

export interface SetSubagentSubscriptionData {
  level: "events" | "off" | "progress";
}

export interface SetTodosData {
  todoPhases: TodoPhase[];
}

export interface SteerData {
  disposition: "handled" | "queued" | "started";
}

export interface SwitchMcpServerData {
  servers: McpServerState[];
}

export interface Switched {
  cancelled: boolean;
  created?: boolean;
}

export interface TakeKeysData {
  providers: string[];
}

export interface UnlockData {
  permit: string;
}

export interface UploadFileData {
  path: string;
}

/** A run has ended; `agent_settled` follows when nothing goes on by itself. */
export interface AgentEnd {
  type: "agent_end";
  messages: Message[];
  willRetry: boolean;
}

/** No run, retry or compaction follows by itself any more. */
export interface AgentSettled {
  type: "agent_settled";
  aborted: boolean;
  stopReason: string;
  errorMessage?: string | null;
  background?: number;
}

/** A run begins. */
export interface AgentStart {
  type: "agent_start";
}

/** The same as `compaction_end`, if the agent had begun it by itself. */
export interface AutoCompactionEnd {
  type: "auto_compaction_end";
  reason: string;
  result: CompactionResult | null;
  aborted: boolean;
  willRetry: boolean;
  errorMessage?: string | null;
}

/** The same as `compaction_start`, if the agent has begun it by itself. */
export interface AutoCompactionStart {
  type: "auto_compaction_start";
  reason: string;
}

/** The tries after a failed model call are over. */
export interface AutoRetryEnd {
  type: "auto_retry_end";
  success: boolean;
  attempt: number;
  finalError?: string | null;
}

/** A model call has failed and is tried again after a while. */
export interface AutoRetryStart {
  type: "auto_retry_start";
  attempt: number;
  maxAttempts: number;
  delayMs: number;
  errorMessage: string;
}

/** The slash commands have changed. Sent after `negotiate_protocol`. */
export interface AvailableCommandsUpdate {
  type: "available_commands_update";
  commands: unknown[];
}

/** A shell command in the background has ended. */
export interface BackgroundEnd {
  type: "background_end";
  id: string;
  exitCode: number;
}

/** A shell command runs in the background from now on. */
export interface BackgroundStart {
  type: "background_start";
  id: string;
  command: string;
  outputFile: string;
}

/** Output of a shell command of the user. */
export interface BashExecutionUpdate {
  type: "bash_execution_update";
  id?: unknown;
  delta: string;
}

/** A compaction has ended. */
export interface CompactionEnd {
  type: "compaction_end";
  reason: string;
  result: CompactionResult | null;
  aborted: boolean;
  willRetry: boolean;
  errorMessage?: string | null;
}

/** The older part of the context is being replaced by a summary. */
export interface CompactionStart {
  type: "compaction_start";
  reason: string;
}

/** An extension has stored an entry in the session. */
export interface EntryAppended {
  type: "entry_appended";
  entry: Entry;
}

/** Code of an extension, or work beside the run, has failed. */
export interface ExtensionError {
  type: "extension_error";
  extensionPath: string;
  event: string;
  error: string;
  traceback?: string | null;
}

/** A question or message of an extension for the user; which fields are set depends on the method. */
export interface ExtensionUIRequest {
  type: "extension_ui_request";
  id: string;
  method: string;
  title?: string | null;
  options?: string[] | null;
  message?: string | null;
  placeholder?: string | null;
  prefill?: string | null;
  timeout?: number | null;
  notifyType?: string | null;
  statusKey?: string | null;
  statusText?: string | null;
  widgetKey?: string | null;
  widgetLines?: string[] | null;
  widgetPlacement?: string | null;
  text?: string | null;
  url?: string | null;
  instructions?: string | null;
  targetId?: string | null;
  toolCallId?: string | null;
  always?: string[] | null;
  offers?: string[] | null;
}

/** A request to the client: run your tool and send `host_tool_result` with this id. */
export interface HostToolCall {
  type: "host_tool_call";
  id: string;
  toolCallId: string;
  toolName: string;
  arguments: unknown;
}

/** The client may stop its tool; a result would be ignored. */
export interface HostToolCancel {
  type: "host_tool_cancel";
  id: string;
  targetId: string;
}

/** A request to the client is withdrawn. */
export interface HostUriCancel {
  type: "host_uri_cancel";
  id: string;
  targetId: string;
}

/** A request to the client, after `set_host_uri_schemes`: read or write an address, and send `host_uri_result` with this id: `content`, or `isError: true` and `error`. */
export interface HostUriRequest {
  type: "host_uri_request";
  id: string;
  operation: "read" | "write";
  url: string;
  content?: string | null;
}

/** A message is complete, and part of the conversation. */
export interface MessageEnd {
  type: "message_end";
  message: Message;
  entryId?: string | null;
}

/** A message begins: of the user, the model, a tool, or an extension. */
export interface MessageStart {
  type: "message_start";
  message: Message;
}

/** A piece of the answer; `text_delta` is its text. */
export interface MessageUpdate {
  type: "message_update";
  assistantMessageEvent: TextStart | TextDelta | TextEnd | ThinkingStart | ThinkingDelta | ThinkingEnd | ToolCallStart | ToolCallDelta | ToolCallEnd | AnswerStart | AnswerDone | AnswerFailed;
  message?: AssistantMessage;
  usage?: Usage;
}

export interface TextStart {
  type: "text_start";
  contentIndex: number;
  partial?: AssistantMessage;
}

export interface TextDelta {
  type: "text_delta";
  contentIndex: number;
  delta: string;
  partial?: AssistantMessage;
}

export interface TextEnd {
  type: "text_end";
  contentIndex: number;
  content: string;
  partial?: AssistantMessage;
}

export interface ThinkingStart {
  type: "thinking_start";
  contentIndex: number;
  partial?: AssistantMessage;
}

export interface ThinkingDelta {
  type: "thinking_delta";
  contentIndex: number;
  delta: string;
  partial?: AssistantMessage;
}

export interface ThinkingEnd {
  type: "thinking_end";
  contentIndex: number;
  content: string;
  partial?: AssistantMessage;
}

export interface ToolCallStart {
  type: "toolcall_start";
  contentIndex: number;
  id: string;
  toolName: string;
  partial?: AssistantMessage;
}

export interface ToolCallDelta {
  type: "toolcall_delta";
  contentIndex: number;
  delta: string;
  partial?: AssistantMessage;
}

export interface ToolCallEnd {
  type: "toolcall_end";
  contentIndex: number;
  toolCall: ToolCall;
  partial?: AssistantMessage;
}

export interface ToolCall {
  type: "toolCall";
  id: string;
  name: string;
  arguments: unknown;
  thoughtSignature?: string | null;
  asText?: boolean;
}

/** An answer begins. On the wire it has the answer as `partial`. */
export interface AnswerStart {
  type: "start";
  partial?: AssistantMessage;
}

/** An answer is complete. On the wire it has the answer as `message`. */
export interface AnswerDone {
  type: "done";
  reason: string;
  message?: AssistantMessage;
}

/** An answer was stopped or failed. On the wire it has the answer so far as `error`. */
export interface AnswerFailed {
  type: "error";
  reason: string;
  error?: AssistantMessage;
}

/** A remark for the user; nothing has failed. */
export interface Notice {
  type: "notice";
  message: string;
  level?: string;
}

/** A question is over. The first answer counts. */
export interface PermissionAnswered {
  type: "permission_answered";
  id: string;
  toolCallId?: string | null;
  behavior: "allow" | "deny" | "withdrawn";
  by?: "definition" | "error" | "extension" | "mode" | "nobody" | "program" | "rule" | "user";
  input?: unknown;
  keep?: "project" | "session" | "user" | null;
  rules?: string[];
  reason?: string;
  stop?: boolean;
}

/** A tool call was refused. `tool_execution_end` follows, as for a call that failed. */
export interface PermissionDenied {
  type: "permission_denied";
  toolCallId: string;
  toolName: string;
  arguments: unknown;
  rule?: string | null;
  reason?: string;
  by?: "definition" | "error" | "extension" | "mode" | "nobody" | "program" | "rule" | "user";
  error?: string | null;
}

/** A prompt of this client is over. Sent after `negotiate_protocol`, after the response and the run's events. */
export interface PromptResult {
  type: "prompt_result";
  id?: unknown;
  agentInvoked: boolean;
  status: string;
  error?: PromptError | null;
  sessionSettled: boolean;
}

export interface PromptError {
  message: string;
  provider?: string | null;
  model?: string | null;
  httpStatus?: number | null;
  retryable: boolean;
}

/** A model that was wanted on this machine is on its way (`pull_model`). */
export interface PullProgress {
  type: "pull_progress";
  name: string;
  done: number;
  whole: number;
}

/** A message was queued, or has left its queue. */
export interface QueueUpdate {
  type: "queue_update";
  steering: string[];
  followUp: string[];
  items?: QueuedItem[];
}

/** The first line: the agent listens. A client that finds all these numbers right may send `negotiate_protocol`. */
export interface Ready {
  type: "ready";
  version: string;
  protocolVersion?: number;
  supportedProtocolVersions?: number[];
  maxFrameBytes?: number;
  maxReassembledFrameBytes?: number;
  updateMode?: "delta" | "full";
  updateModes?: ("delta" | "full")[];
}

/** Another model answers from here on; a `notice` says so in words. */
export interface RetryFallbackApplied {
  type: "retry_fallback_applied";
  from: string;
  to: string;
  role: string;
  cause: string;
}

/** The other model has answered. */
export interface RetryFallbackSucceeded {
  type: "retry_fallback_succeeded";
  model: string;
  role: string;
}

/** The session was opened with a run that the end of its process cut off: `resume_run` or `abandon_run`. */
export interface RunInterrupted {
  type: "run_interrupted";
  run: InterruptedRun;
}

/** The conversation changed in a way that other events do not tell: another session, or another branch of it. */
export interface SessionChanged {
  type: "session_changed";
  sessionId: string;
  reason: string;
}

/** A session that this client has opened is no longer in memory. Its file stays, and its id opens it again. */
export interface SessionClosed {
  type: "session_closed";
  reason: string;
}

/** The session has another name. */
export interface SessionInfoChanged {
  type: "session_info_changed";
  name?: string | null;
}

/** Nothing follows by itself any more. Sent after `negotiate_protocol`, after all `prompt_result`. */
export interface SessionSettled {
  type: "session_settled";
}

/** A client or a server has changed the model, the permissions, a label of an entry, or the commands. */
export interface StateChanged {
  type: "state_changed";
}

/** An event of a subagent. It is inside of this one, so that no client takes it for an event of the agent itself. */
export interface SubagentEvent {
  type: "subagent_event";
  parentToolCallId: string;
  agent: string;
  subagentId: string;
  event: Event;
}

/** A subagent begins or has ended. Sent after `set_subagent_subscription`. */
export interface SubagentLifecycle {
  type: "subagent_lifecycle";
  payload: SubagentStep;
}

export interface SubagentStep {
  id: string;
  index: number;
  agent: string;
  agentSource: string;
  description: string;
  status: string;
  task: string;
  sessionFile: string | null;
  parentToolCallId: string;
}

/** A subagent has called a tool or got an answer. Sent after `set_subagent_subscription`. */
export interface SubagentProgress {
  type: "subagent_progress";
  payload: WorkingStep;
}

export interface WorkingStep {
  index: number;
  agent: string;
  agentSource: string;
  task: string;
  progress: WorkingSubagent;
  sessionFile: string | null;
  parentToolCallId: string;
}

/** The call for a summary is tried again. */
export interface SummarizationRetryAttemptStart {
  type: "summarization_retry_attempt_start";
  source: string;
  reason?: string | null;
}

/** The tries of a call for a summary are over. */
export interface SummarizationRetryFinished {
  type: "summarization_retry_finished";
}

/** The call for a summary has failed and is tried again after a while. */
export interface SummarizationRetryScheduled {
  type: "summarization_retry_scheduled";
  attempt: number;
  maxAttempts: number;
  delayMs: number;
  errorMessage: string;
}

/** The model thinks more or less from now on. */
export interface ThinkingLevelChanged {
  type: "thinking_level_changed";
  level: string;
}

/** A finished todo was removed from the list. */
export interface TodoAutoClear {
  type: "todo_auto_clear";
}

/** The model stopped with open todos and is told to go on. */
export interface TodoReminder {
  type: "todo_reminder";
  todos: unknown[];
  attempt: number;
  maxAttempts: number;
}

/** A tool call has ended. */
export interface ToolExecutionEnd {
  type: "tool_execution_end";
  toolCallId: string;
  toolName: string;
  result: ToolResult;
  isError: boolean;
  durationMs?: number | null;
  changedInput?: unknown;
}

/** The result of a tool, complete or so far. */
export interface ToolResult {
  content: (Text | Image)[];
  details?: unknown;
  terminate?: boolean;
}

export interface Text {
  type: "text";
  text: string;
  textSignature?: string | null;
}

/** A tool call begins. */
export interface ToolExecutionStart {
  type: "tool_execution_start";
  toolCallId: string;
  toolName: string;
  args: unknown;
}

/** What a tool has got so far. */
export interface ToolExecutionUpdate {
  type: "tool_execution_update";
  toolCallId: string;
  toolName: string;
  args: unknown;
  partialResult: ToolResult;
}

/** The answer broke a stream rule and was stopped. */
export interface RuleTriggered {
  type: "ttsr_triggered";
  rules: unknown[];
}

/** A model call and its tool calls have ended. */
export interface TurnEnd {
  type: "turn_end";
  message: AssistantMessage;
  toolResults: ToolResultMessage[];
}

export interface AssistantMessage {
  role: "assistant";
  content: (Text | Thinking | ToolCall)[];
  api: string;
  provider: string;
  model: string;
  usage: Usage;
  stopReason: string;
  timestamp: number;
  errorMessage?: string | null;
  responseId?: string | null;
  responseModel?: string | null;
  rawStopReason?: string | null;
  thinkingLevel?: string | null;
}

export interface Thinking {
  type: "thinking";
  thinking: string;
  thinkingSignature?: string | null;
  redacted?: boolean;
}

export interface ToolResultMessage {
  role: "toolResult";
  toolCallId: string;
  toolName: string;
  content: (Text | Image)[];
  details?: unknown;
  isError: boolean;
  timestamp: number;
  changedInput?: unknown;
}

/** A model call and its tool calls begin. */
export interface TurnStart {
  type: "turn_start";
}

export interface UserMessage {
  role: "user";
  content: string | (Text | Image)[];
  timestamp: number;
  attachments?: unknown[] | null;
}

/** A shell command that the user ran, not the model. */
export interface BashExecutionMessage {
  role: "bashExecution";
  command: string;
  output: string;
  exitCode?: number | null;
  cancelled: boolean;
  truncated: boolean;
  fullOutputPath?: string | null;
  timestamp: number;
  excludeFromContext?: boolean;
}

/** A message of an extension; the model sees its content as a user message. */
export interface CustomMessage {
  role: "custom";
  customType: string;
  content: string | (Text | Image)[];
  display: boolean;
  details?: unknown;
  timestamp: number;
}

export interface BranchSummaryMessage {
  role: "branchSummary";
  summary: string;
  fromId: string;
  timestamp: number | null;
}

export interface CompactionSummaryMessage {
  role: "compactionSummary";
  summary: string;
  tokensBefore: number;
  timestamp: number | null;
}

export interface MessageEntry {
  type: "message";
  id: string;
  parentId: string | null;
  timestamp: string;
  message: UserMessage | AssistantMessage | ToolResultMessage | BashExecutionMessage | CustomMessage | BranchSummaryMessage | CompactionSummaryMessage;
}

export interface ModelChangeEntry {
  type: "model_change";
  id: string;
  parentId: string | null;
  timestamp: string;
  provider: string;
  modelId: string;
}

export interface ThinkingLevelChangeEntry {
  type: "thinking_level_change";
  id: string;
  parentId: string | null;
  timestamp: string;
  thinkingLevel: string;
}

export interface CompactionEntry {
  type: "compaction";
  id: string;
  parentId: string | null;
  timestamp: string;
  summary: string;
  firstKeptEntryId?: string | null;
  tokensBefore: number;
  details?: unknown;
  usage?: Usage | null;
  fromHook?: boolean | null;
}

export interface BranchSummaryEntry {
  type: "branch_summary";
  id: string;
  parentId: string | null;
  timestamp: string;
  fromId: string;
  summary: string;
  details?: unknown;
  usage?: Usage | null;
  fromHook?: boolean | null;
}

/** State of an extension; never sent to a model. */
export interface CustomEntry {
  type: "custom";
  customType: string;
  data?: unknown;
  id: string;
  parentId: string | null;
  timestamp: string;
}

export interface CustomMessageEntry {
  type: "custom_message";
  customType: string;
  content: string | (Text | Image)[];
  display: boolean;
  details?: unknown;
  id: string;
  parentId: string | null;
  timestamp: string;
}

export interface LabelEntry {
  type: "label";
  id: string;
  parentId: string | null;
  timestamp: string;
  targetId: string;
  label?: string | null;
}

export interface SessionInfoEntry {
  type: "session_info";
  id: string;
  parentId: string | null;
  timestamp: string;
  name: string;
  usage?: Usage | null;
}

/** An image as clients send it: `data` and `mimeType`, or a `source` of `base64` or `url`, the older form. */
export interface GivenImage {
  type: "image";
  data?: string | null;
  mimeType?: string | null;
  source?: Record<string, unknown> | null;
}

export type Message = UserMessage | AssistantMessage | ToolResultMessage | BashExecutionMessage | CustomMessage | BranchSummaryMessage | CompactionSummaryMessage;

export type Entry = MessageEntry | ModelChangeEntry | ThinkingLevelChangeEntry | CompactionEntry | BranchSummaryEntry | CustomEntry | CustomMessageEntry | LabelEntry | SessionInfoEntry;

export type Event = AgentEnd | AgentSettled | AgentStart | AutoCompactionEnd | AutoCompactionStart | AutoRetryEnd | AutoRetryStart | AvailableCommandsUpdate | BackgroundEnd | BackgroundStart | BashExecutionUpdate | CompactionEnd | CompactionStart | EntryAppended | ExtensionError | ExtensionUIRequest | HostToolCall | HostToolCancel | HostUriCancel | HostUriRequest | MessageEnd | MessageStart | MessageUpdate | Notice | PermissionAnswered | PermissionDenied | PermissionRequest | PromptResult | PullProgress | QueueUpdate | Ready | RetryFallbackApplied | RetryFallbackSucceeded | RunInterrupted | SessionChanged | SessionClosed | SessionInfoChanged | SessionSettled | StateChanged | SubagentEvent | SubagentLifecycle | SubagentProgress | SummarizationRetryAttemptStart | SummarizationRetryFinished | SummarizationRetryScheduled | ThinkingLevelChanged | TodoAutoClear | TodoReminder | ToolExecutionEnd | ToolExecutionStart | ToolExecutionUpdate | RuleTriggered | TurnEnd | TurnStart;

/** Give up a run that the end of its process cut off; another prompt does the same. The conversation stays. */
export interface AbandonRunCommand {
  type: "abandon_run";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Stop the run, a retry or a compaction. The response comes when the agent is idle; queues are kept. A client need not wait for it before it sends a prompt: the prompt is answered after the abort, and runs then. */
export interface AbortCommand {
  type: "abort";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Stop as `abort` does, then send a message. */
export interface AbortAndPromptCommand {
  type: "abort_and_prompt";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  message: string;
  images?: GivenImage[];
}

/** Kill every running `bash` command. */
export interface AbortBashCommand {
  type: "abort_bash";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Stop running slash commands of extensions, and return their names. */
export interface AbortCommandsCommand {
  type: "abort_commands";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** End the wait for a retry; the run is over then. */
export interface AbortRetryCommand {
  type: "abort_retry";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Write an MCP server into the user's `mcp.json`, in the form of `mcpServers`, and use it from now on. */
export interface AddMcpServerCommand {
  type: "add_mcp_server";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
  config: Record<string, unknown>;
}

/** Answer the `permission_request` with the id `question`. The first answer counts. With `allow`: `input` takes the place of the call's arguments, and is checked by schema and rules; `keep` (`session`, `project` or `user`) keeps `rules` there, those of the first suggestion if there are none; on a server all but `session` wants its code (`unlock`), and so does a yes to a question of the kind `trust` or `place`. With `deny`: `reason` is told to the model, `stop` ends the run. With the kind `trust`, `keep` `user` remembers the answer, else it holds for the session. An answer that makes no sense is an error, and the question stays open. */
export interface AnswerPermissionCommand {
  type: "answer_permission";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  question: string;
  behavior: "allow" | "deny";
  input?: unknown;
  keep?: "project" | "session" | "user" | null;
  rules?: string[] | null;
  reason?: string | null;
  stop?: boolean;
}

/** Answer a question as `answer_permission` does, also one whose run waits in the session (`interruptedRun`). `started`: no other question waits, and the run goes on with the answer; its events follow. `answered`: the run goes on anyway, or waits for the answer to another question. */
export interface AnswerQuestionCommand {
  type: "answer_question";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  question: string;
  behavior: "allow" | "deny";
  input?: unknown;
  keep?: "project" | "session" | "user" | null;
  rules?: string[] | null;
  reason?: string | null;
  stop?: boolean;
}

/** Run a shell command as the user; the model sees it with the next prompt. */
export interface BashCommand {
  type: "bash";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  command: string;
  excludeFromContext?: boolean;
}

/** Do the same as `fork`, under the name that other clients use. */
export interface BranchCommand {
  type: "branch";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  entryId: string;
}

/** Empty both queues and return the messages that were in them. */
export interface ClearQueueCommand {
  type: "clear_queue";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Copy the current branch into a session of its own and go on there. */
export interface CloneCommand {
  type: "clone";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** End the session that `sessionId` names. Its file stays, and its id opens it again. */
export interface CloseSessionCommand {
  type: "close_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Replace the older part of the context by a summary. */
export interface CompactCommand {
  type: "compact";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  customInstructions?: string | null;
}

/** Return completions for the arguments of an extension's command; none if the command offers none. */
export interface CompleteCommandCommand {
  type: "complete_command";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
  prefix?: string;
}

/** Return files of the working directory that match the text typed after an `@`, the likeliest first. Text that begins with `/`, `~/`, `./` or `../` is completed as a path, wherever it leads; folders end with a slash. */
export interface CompletePathCommand {
  type: "complete_path";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  prefix?: string;
}

/** Switch to the next model of the scope; null if there is no other. */
export interface CycleModelCommand {
  type: "cycle_model";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Go to the next level; null if the model has only one. */
export interface CycleThinkingLevelCommand {
  type: "cycle_thinking_level";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Delete the current session and begin an empty one; refused while something runs. */
export interface DeleteSessionCommand {
  type: "delete_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Replace the text of a queued message; its place and its images stay. */
export interface EditQueuedCommand {
  type: "edit_queued";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  queuedId: string;
  message: string;
}

/** Write the session as one HTML page. */
export interface ExportHtmlCommand {
  type: "export_html";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  outputPath?: string | null;
}

/** Return the session as one HTML page. */
export interface ExportPageCommand {
  type: "export_page";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return those of some paths, at most 200, that are files which the agent may read. */
export interface FindFilesCommand {
  type: "find_files";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  paths: string[];
}

/** Return the entries of the current branch that contain a text, the oldest first. Messages, thoughts, summaries, arguments and results of tools are searched; upper and lower case are the same. */
export interface FindTextCommand {
  type: "find_text";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  text: string;
}

/** Queue a message that the model gets when the run would otherwise end. */
export interface FollowUpCommand {
  type: "follow_up";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  message: string;
  images?: GivenImage[];
}

/** Begin a session with everything before a user message, and return that message's text. */
export interface ForkCommand {
  type: "fork";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  entryId: string;
}

/** Return who the client is on this server, what its user may do, and what is used up today. */
export interface GetAccountCommand {
  type: "get_account";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the slash commands as oh-my-pi lists them; `get_commands` tells more. */
export interface GetAvailableCommandsCommand {
  type: "get_available_commands";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the models for which there are credentials. */
export interface GetAvailableModelsCommand {
  type: "get_available_models";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the levels of the current model. */
export interface GetAvailableThinkingLevelsCommand {
  type: "get_available_thinking_levels";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the output of a command in the background from a byte on. The model still gets all of it. */
export interface GetBackgroundOutputCommand {
  type: "get_background_output";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  backgroundId: string;
  fromByte?: number;
}

/** Return every user message of the session, to choose where to fork. */
export interface GetBranchMessagesCommand {
  type: "get_branch_messages";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return how files differ between two checkpoints, no matter who changed them; by default since the first one. `from` and `to` are ids of checkpoints; without `to`, the files as they are now. */
export interface GetChangesCommand {
  type: "get_changes";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  from?: string | null;
  to?: string | null;
}

/** Return the slash commands: commands of extensions, prompt templates, skills. */
export interface GetCommandsCommand {
  type: "get_commands";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the session's entries in the order they were appended, without those up to `since` and from `before` on. With `limit`, only the last of them, about 1 MiB at most: so a long session can be read from its end. */
export interface GetEntriesCommand {
  type: "get_entries";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  since?: string | null;
  before?: string | null;
  limit?: number | null;
}

/** Return every user message of the session, to choose where to fork. */
export interface GetForkMessagesCommand {
  type: "get_fork_messages";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the providers with a key or a login, and where it comes from; never the key. */
export interface GetKeysCommand {
  type: "get_keys";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the text of the last answer, or null. */
export interface GetLastAssistantTextCommand {
  type: "get_last_assistant_text";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the links to your conversations. */
export interface GetLinksCommand {
  type: "get_links";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the skills, prompt templates and extensions that are loaded, and what was not. */
export interface GetLoadedCommand {
  type: "get_loaded";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the providers that offer a sign-in, and whether there is a login. */
export interface GetLoginProvidersCommand {
  type: "get_login_providers";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the current context. */
export interface GetMessagesCommand {
  type: "get_messages";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return a part of the current context: at most `limit` messages, and 768 KiB unless one message is longer. Refused with the code `session_busy` during a run, `stale_cursor` if the session has changed since the last page. */
export interface GetMessagesPageCommand {
  type: "get_messages_page";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  cursor?: string | null;
  limit?: number;
}

/** Return the ways to a model, the least work first. Asks the servers on this machine, for a second at most. */
export interface GetModelWaysCommand {
  type: "get_model_ways";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the permission mode and all rules; with a tool and its arguments, also the decision on that call. */
export interface GetPermissionsCommand {
  type: "get_permissions";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  tool?: string | null;
  arguments?: unknown;
}

/** Return the result of the last run; null if there was none. */
export interface GetRunResultCommand {
  type: "get_run_result";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return counts, tokens and cost of the whole session, and how full the context is. */
export interface GetSessionStatsCommand {
  type: "get_session_stats";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return all settings: what each means, what holds in this working directory, and where that comes from. */
export interface GetSettingsCommand {
  type: "get_settings";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the state of the agent. */
export interface GetStateCommand {
  type: "get_state";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the entries of a stored session as `get_entries` does; another process may hold it. */
export interface GetStoredEntriesCommand {
  type: "get_stored_entries";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  session: string;
  since?: string | null;
  before?: string | null;
  limit?: number | null;
}

/** Return what is in the session file of a subagent, at work or not, from a byte on; 8 MiB at most. The subagent is named by its id or by its session file. */
export interface GetSubagentMessagesCommand {
  type: "get_subagent_messages";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  subagentId?: string | null;
  sessionFile?: string | null;
  fromByte?: number;
}

/** Return the subagents that are at work. */
export interface GetSubagentsCommand {
  type: "get_subagents";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the session's entries as a tree: nodes with `entry`, `children`, `label?`, `labelTimestamp?`. The tree is nested as deep as the session is long, and many JSON readers refuse that. With `flat` the nodes come in one list, parents before their children, with `id` and `parentId` (null for a root) instead of `children`. */
export interface GetTreeCommand {
  type: "get_tree";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  flat?: boolean;
}

/** Go on from a summary of the conversation, as `compact`; refused while a run goes on. A command of oh-my-pi. */
export interface HandoffCommand {
  type: "handoff";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  customInstructions?: string | null;
}

/** End a command in the background. The model is told, as of every end. */
export interface KillBackgroundCommand {
  type: "kill_background";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  backgroundId: string;
}

/** Return the checkpoints of this session: the states of the files before turns that wrote to them. */
export interface ListCheckpointsCommand {
  type: "list_checkpoints";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return what is in a folder, as tools see it. What the agent may not read is marked; a folder that it may not read is refused. */
export interface ListFilesCommand {
  type: "list_files";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  path?: string;
}

/** Return the folders in a folder that sessions may work in, for a client that lets a person choose one. */
export interface ListFoldersCommand {
  type: "list_folders";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  path?: string | null;
}

/** Return the live sessions of this process, in the order in which they were opened; on a server with a store also those of the other servers, each with its `node`. */
export interface ListLiveSessionsCommand {
  type: "list_live_sessions";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return the stored sessions of this working directory, the latest first; with `limit`, page by page. With `everywhere`, of all directories that sessions may work in, in pages of 500 without `limit`; `open_session` takes their ids. `changedSince`, the `asOf` of an earlier answer: only what has changed since, the latest change included. */
export interface ListSessionsCommand {
  type: "list_sessions";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  everywhere?: boolean;
  limit?: number | null;
  cursor?: string | null;
  changedSince?: number | null;
}

/** Log in at an MCP server: the client gets the address as `extension_ui_request` `open_url`. The login comes back to this machine, so the browser has to be here. The response comes when it is over. */
export interface LogInMcpServerCommand {
  type: "log_in_mcp_server";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
}

/** Sign in to a provider: the client gets the address as `extension_ui_request` `open_url`, and may be asked for what has to be pasted. The response comes when the login is kept. */
export interface LoginCommand {
  type: "login";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  providerId: string;
}

/** Let the model name the session after its conversation, and return the name; refused while something runs. */
export interface MakeSessionNameCommand {
  type: "make_session_name";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Go on from another entry of the session; with `summarize`, the old branch is summarised. */
export interface NavigateTreeCommand {
  type: "navigate_tree";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  entryId: string;
  summarize?: boolean;
  customInstructions?: string | null;
  label?: string | null;
}

/** Speak version 2 of oh-my-pi's protocol from now on, in all sessions; on stdin and stdout only. `prompt_result` tells the end of each prompt, `session_settled` that nothing follows. A line of more than 1 MiB comes as `rpc_chunk` frames: `chunkId`, `index`, `count`, `byteLength` of the line, and `data`, a piece in base64. */
export interface NegotiateProtocolCommand {
  type: "negotiate_protocol";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  protocolVersion: number;
}

/** Begin an empty session. */
export interface NewSessionCommand {
  type: "new_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  parentSession?: string | null;
}

/** Open another session beside this one: a new session, or the stored one that `session` (id or path) names. Its `id` is the `sessionId` of its commands and events. With `copy` it is a copy of the stored one, which another process may hold. `sandbox` is as in `set_permissions`. With `exec`, a command such as `docker exec -i NAME`, tools work elsewhere, in `execCwd` (elsewhere.md). `sessionDir`, as oh-my-pi has it, is refused. */
export interface OpenSessionCommand {
  type: "open_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  cwd?: string | null;
  session?: string | null;
  copy?: boolean;
  model?: string | null;
  name?: string | null;
  sessionDir?: string | null;
  sandbox?: "off" | "read-only" | "workspace-write" | SandboxOptions | null;
  exec?: string | null;
  execCwd?: string | null;
}

/** Send a message. The response comes once it is accepted, queued or handled; the run's events follow. Limits (model calls, US dollars, seconds, tokens), the JSON Schema of the result, the list `enabledTools` (see cli.md) and `fallback`, the models that answer if the model cannot (see providers.md; an empty list: none), hold for the run it starts. `traceparent` (W3C) makes the run part of a trace of the client's. */
export interface PromptCommand {
  type: "prompt";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  message: string;
  images?: GivenImage[];
  streamingBehavior?: "followUp" | "steer" | null;
  jsonSchema?: Record<string, unknown> | null;
  enabledTools?: string[] | null;
  fallback?: string[] | null;
  traceparent?: string | null;
  maxTurns?: number | null;
  maxCost?: number | null;
  maxTime?: number | null;
  maxTotalTokens?: number | null;
}

/** Get a model that runs on this machine, as `spindle models pull NAME`; `pull_progress` tells how far it is. Returns its id: its provider is `local`. */
export interface PullModelCommand {
  type: "pull_model";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
}

/** Return a text from a line on, at most 1 MiB, or an image. With `byte`, the `nextByte` of an earlier answer, the next part. Refused if the agent may not read it. */
export interface ReadFileCommand {
  type: "read_file";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  path: string;
  line?: number;
  byte?: number | null;
}

/** Read settings, skills, prompts, extensions and MCP servers again. */
export interface ReloadCommand {
  type: "reload";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Forget the key or the login of a provider in `auth.json`. */
export interface RemoveKeyCommand {
  type: "remove_key";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  provider: string;
}

/** Remove a link to one of your conversations. Who looks on by it is disconnected. */
export interface RemoveLinkCommand {
  type: "remove_link";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  link: string;
}

/** Take an MCP server out of the user's `mcp.json`. */
export interface RemoveMcpServerCommand {
  type: "remove_mcp_server";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
}

/** Take one message out of its queue and return it. The ids are in `queue_update`. */
export interface RemoveQueuedCommand {
  type: "remove_queued";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  queuedId: string;
}

/** End an MCP server and start it again; the answer comes when it is ready, or has failed. */
export interface RestartMcpServerCommand {
  type: "restart_mcp_server";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
}

/** Give files the state that they had at a checkpoint; refused while something runs. `files` names files and folders; the others stay. `hunks` are parts of the diff that `get_changes` has of one file since that checkpoint: only these are taken back. With `conversation`, the conversation goes back, too. With `dryRun` nothing changes, and the answer says what would. Files that were changed outside of the agent's runs are only overwritten with `force`. */
export interface RestoreCommand {
  type: "restore";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  checkpoint: string;
  files?: string[] | null;
  hunks?: string[] | null;
  conversation?: boolean;
  dryRun?: boolean;
  force?: boolean;
}

/** Go on with a run that the end of its process cut off (`interruptedRun` in `get_state`); its events follow. Limits hold on. Open calls of tools that only read are made again; the model is told of the others. */
export interface ResumeRunCommand {
  type: "resume_run";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Return those of the sessions of `list_sessions` whose name, or one message, contains all words of the query. They come in pages of `limit`, 50 unless told. */
export interface SearchSessionsCommand {
  type: "search_sessions";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  query: string;
  everywhere?: boolean;
  limit?: number | null;
  cursor?: string | null;
}

/** Deliver a queued message before all others: before the next model call, or at once if nothing runs. */
export interface SendQueuedCommand {
  type: "send_queued";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  queuedId: string;
}

/** Ask with a confirm dialog before every tool call (`tools`), and after every `maxTurns` model calls. */
export interface SetApprovalCommand {
  type: "set_approval";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  tools?: boolean;
  maxTurns?: number | null;
}

/** Switch automatic compaction and overflow recovery on or off. */
export interface SetAutoCompactionCommand {
  type: "set_auto_compaction";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  enabled: boolean;
}

/** Switch retries of transient errors on or off. */
export interface SetAutoRetryCommand {
  type: "set_auto_retry";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  enabled: boolean;
}

/** Send only events of these types, or all (null), in all sessions; on stdin and stdout only. Responses, questions, calls of host tools and `prompt_result` are always sent. */
export interface SetEventFilterCommand {
  type: "set_event_filter";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  events?: string[] | null;
}

/** Deliver follow-ups one per turn or all together. */
export interface SetFollowUpModeCommand {
  type: "set_follow_up_mode";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  mode: "all" | "one-at-a-time";
}

/** Declare the tools that run in the client, replacing those declared before. */
export interface SetHostToolsCommand {
  type: "set_host_tools";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  tools: unknown[];
}

/** Declare schemes of addresses that the client serves: objects with `scheme` (such as `db`) and `writable`. The tools `read` and `write` then take such addresses (`db://users/1`) as their path, and ask the client with `host_uri_request`. The schemes replace those declared before. */
export interface SetHostUriSchemesCommand {
  type: "set_host_uri_schemes";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  schemes: unknown[];
}

/** Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`). */
export interface SetInterruptModeCommand {
  type: "set_interrupt_mode";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  mode: "immediate" | "wait";
}

/** Keep a key of a provider (or of a product: `claude`) in `auth.json`. Without `provider` it is told by the key's first letters; if several have such keys, nothing is kept and the answer names them. */
export interface SetKeyCommand {
  type: "set_key";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  key: string;
  provider?: string | null;
}

/** Label an entry of the session, to find it in the tree; without `label`, remove its label. */
export interface SetLabelCommand {
  type: "set_label";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  entryId: string;
  label?: string | null;
}

/** Set MCP servers, replacing those set before: an object as `mcpServers` of `.mcp.json`, or a list as in ACP. */
export interface SetMcpServersCommand {
  type: "set_mcp_servers";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  servers: Record<string, unknown> | unknown[];
}

/** Switch models; the new one answers from the next turn on. */
export interface SetModelCommand {
  type: "set_model";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  provider: string;
  modelId: string;
}

/** Set the permission mode, and replace rules that this command set before; fields left out change nothing. `sandbox` is a level, or an object with `level`, `writable` and `network`. It cannot be wider than the command line says. If this machine cannot provide it, the command fails and changes nothing. */
export interface SetPermissionsCommand {
  type: "set_permissions";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  mode?: string | null;
  allow?: string[] | null;
  ask?: string[] | null;
  deny?: string[] | null;
  sandbox?: "off" | "read-only" | "workspace-write" | SandboxOptions | null;
}

/** Add a permission rule to the settings of the user, or of the project; with `remove` take it out. */
export interface SetRuleCommand {
  type: "set_rule";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  behavior: "allow" | "ask" | "deny";
  rule: string;
  project?: boolean;
  remove?: boolean;
}

/** Name the session. */
export interface SetSessionNameCommand {
  type: "set_session_name";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
}

/** Write a setting into the user's file; without a value it is taken out. It holds for this session at once, for others when they are opened or reloaded. */
export interface SetSettingCommand {
  type: "set_setting";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  key: string;
  value?: unknown;
}

/** Deliver steering messages one per turn or all together. */
export interface SetSteeringModeCommand {
  type: "set_steering_mode";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  mode: "all" | "one-at-a-time";
}

/** Tell of subagents in oh-my-pi's form, for clients that have negotiated version 2, in all sessions. `progress`: `subagent_lifecycle` and `subagent_progress`; `events`: also `subagent_event`, with a `payload`. */
export interface SetSubagentSubscriptionCommand {
  type: "set_subagent_subscription";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  level: "events" | "off" | "progress";
}

/** Set how hard the model thinks, clamped to the levels it supports. */
export interface SetThinkingLevelCommand {
  type: "set_thinking_level";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  level: "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
}

/** Replace the todo list. */
export interface SetTodosCommand {
  type: "set_todos";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  phases: unknown[];
}

/** Send the whole answer so far with every update (`full`) or only the new piece (`delta`). */
export interface SetUpdateModeCommand {
  type: "set_update_mode";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  mode: "delta" | "full";
}

/** Return a link with which other users of this server may look at the conversation; nobody can do anything by it. A conversation has one link. For users of a server (`spindle tokens`). */
export interface ShareSessionCommand {
  type: "share_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Answer, then end the process with code 0. */
export interface ShutdownCommand {
  type: "shutdown";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Queue a message that the model gets before its next call in this run, or with the next run. */
export interface SteerCommand {
  type: "steer";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  message: string;
  images?: GivenImage[];
}

/** Stop a subagent. The call that it works for ends with what it has said so far. */
export interface StopSubagentCommand {
  type: "stop_subagent";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  subagentId: string;
}

/** Switch an MCP server of the user's `mcp.json` on or off. */
export interface SwitchMcpServerCommand {
  type: "switch_mcp_server";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
  on: boolean;
}

/** Go on with another session file. If it worked at a far side that was never used here, you are asked about it. */
export interface SwitchSessionCommand {
  type: "switch_session";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  sessionPath: string;
}

/** Take over the keys that pi has in its own folder, where there are none yet. */
export interface TakeKeysCommand {
  type: "take_keys";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
}

/** Show the code that the server printed, or the permit that an earlier answer gave for a code: then this client may change keys, settings, rules and servers. A code counts once. On stdin and stdout nothing is locked. */
export interface UnlockCommand {
  type: "unlock";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  code?: string | null;
  permit?: string | null;
}

/** Store a file (base64) beside the sessions, for tools to read, and return its path. */
export interface UploadFileCommand {
  type: "upload_file";
  /** Any JSON value; the response has the same. */
  id?: unknown;
  sessionId?: string;
  name: string;
  data: string;
}

export interface AbandonRunResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abandon_run";
  success: true;
}

export interface AbortResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abort";
  success: true;
}

export interface AbortAndPromptResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abort_and_prompt";
  success: true;
  data: AbortAndPromptData;
}

export interface AbortBashResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abort_bash";
  success: true;
}

export interface AbortCommandsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abort_commands";
  success: true;
  data: AbortCommandsData;
}

export interface AbortRetryResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "abort_retry";
  success: true;
}

export interface AddMcpServerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "add_mcp_server";
  success: true;
  data: AddMcpServerData;
}

export interface AnswerPermissionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "answer_permission";
  success: true;
}

export interface AnswerQuestionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "answer_question";
  success: true;
  data: AnswerQuestionData;
}

export interface BashResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "bash";
  success: true;
  data: BashOutput;
}

export interface BranchResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "branch";
  success: true;
  data: Forked;
}

export interface ClearQueueResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "clear_queue";
  success: true;
  data: Queued;
}

export interface CloneResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "clone";
  success: true;
  data: CloneData;
}

export interface CloseSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "close_session";
  success: true;
}

export interface CompactResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "compact";
  success: true;
  data: CompactionResult;
}

export interface CompleteCommandResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "complete_command";
  success: true;
  data: CompleteCommandData;
}

export interface CompletePathResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "complete_path";
  success: true;
  data: CompletePathData;
}

export interface CycleModelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "cycle_model";
  success: true;
  data: CycledModel | null;
}

export interface CycleThinkingLevelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "cycle_thinking_level";
  success: true;
  data: Level | null;
}

export interface DeleteSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "delete_session";
  success: true;
  data: DeleteSessionData;
}

export interface EditQueuedResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "edit_queued";
  success: true;
}

export interface ExportHtmlResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "export_html";
  success: true;
  data: ExportHtmlData;
}

export interface ExportPageResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "export_page";
  success: true;
  data: ExportPageData;
}

export interface FindFilesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "find_files";
  success: true;
  data: FindFilesData;
}

export interface FindTextResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "find_text";
  success: true;
  data: FindTextData;
}

export interface FollowUpResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "follow_up";
  success: true;
  data: FollowUpData;
}

export interface ForkResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "fork";
  success: true;
  data: Forked;
}

export interface GetAccountResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_account";
  success: true;
  data: AccountState;
}

export interface GetAvailableCommandsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_available_commands";
  success: true;
  data: GetAvailableCommandsData;
}

export interface GetAvailableModelsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_available_models";
  success: true;
  data: GetAvailableModelsData;
}

export interface GetAvailableThinkingLevelsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_available_thinking_levels";
  success: true;
  data: GetAvailableThinkingLevelsData;
}

export interface GetBackgroundOutputResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_background_output";
  success: true;
  data: BackgroundOutput;
}

export interface GetBranchMessagesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_branch_messages";
  success: true;
  data: GetForkMessagesData;
}

export interface GetChangesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_changes";
  success: true;
  data: FileChanges;
}

export interface GetCommandsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_commands";
  success: true;
  data: GetCommandsData;
}

export interface GetEntriesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_entries";
  success: true;
  data: EntriesData;
}

export interface GetForkMessagesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_fork_messages";
  success: true;
  data: GetForkMessagesData;
}

export interface GetKeysResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_keys";
  success: true;
  data: GetKeysData;
}

export interface GetLastAssistantTextResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_last_assistant_text";
  success: true;
  data: GetLastAssistantTextData;
}

export interface GetLinksResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_links";
  success: true;
  data: GetLinksData;
}

export interface GetLoadedResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_loaded";
  success: true;
  data: LoadedHere;
}

export interface GetLoginProvidersResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_login_providers";
  success: true;
  data: GetLoginProvidersData;
}

export interface GetMessagesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_messages";
  success: true;
  data: GetMessagesData;
}

export interface GetMessagesPageResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_messages_page";
  success: true;
  data: MessagesPage;
}

export interface GetModelWaysResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_model_ways";
  success: true;
  data: GetModelWaysData;
}

export interface GetPermissionsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_permissions";
  success: true;
  data: PermissionState;
}

export interface GetRunResultResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_run_result";
  success: true;
  data: GetRunResultData;
}

export interface GetSessionStatsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_session_stats";
  success: true;
  data: SessionStats;
}

export interface GetSettingsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_settings";
  success: true;
  data: GetSettingsData;
}

export interface GetStateResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_state";
  success: true;
  data: AgentState;
}

export interface GetStoredEntriesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_stored_entries";
  success: true;
  data: EntriesData;
}

export interface GetSubagentMessagesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_subagent_messages";
  success: true;
  data: SubagentMessages;
}

export interface GetSubagentsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_subagents";
  success: true;
  data: GetSubagentsData;
}

export interface GetTreeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "get_tree";
  success: true;
  data: TreeData;
}

export interface HandoffResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "handoff";
  success: true;
  data: HandedOff;
}

export interface KillBackgroundResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "kill_background";
  success: true;
}

export interface ListCheckpointsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "list_checkpoints";
  success: true;
  data: CheckpointList;
}

export interface ListFilesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "list_files";
  success: true;
  data: FolderContent;
}

export interface ListFoldersResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "list_folders";
  success: true;
  data: Folders;
}

export interface ListLiveSessionsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "list_live_sessions";
  success: true;
  data: ListLiveSessionsData;
}

export interface ListSessionsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "list_sessions";
  success: true;
  data: SessionList;
}

export interface LogInMcpServerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "log_in_mcp_server";
  success: true;
  data: LogInMcpServerData;
}

export interface LoginResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "login";
  success: true;
  data: LoggedIn;
}

export interface MakeSessionNameResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "make_session_name";
  success: true;
  data: MakeSessionNameData;
}

export interface NavigateTreeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "navigate_tree";
  success: true;
  data: NavigatedTo;
}

export interface NegotiateProtocolResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "negotiate_protocol";
  success: true;
  data: Negotiated;
}

export interface NewSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "new_session";
  success: true;
  data: NewSessionData;
}

export interface OpenSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "open_session";
  success: true;
  data: LiveInfo;
}

export interface PromptResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "prompt";
  success: true;
  data: PromptData;
}

export interface PullModelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "pull_model";
  success: true;
  data: PullModelData;
}

export interface ReadFileResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "read_file";
  success: true;
  data: FilePart;
}

export interface ReloadResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "reload";
  success: true;
}

export interface RemoveKeyResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "remove_key";
  success: true;
}

export interface RemoveLinkResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "remove_link";
  success: true;
}

export interface RemoveMcpServerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "remove_mcp_server";
  success: true;
  data: RemoveMcpServerData;
}

export interface RemoveQueuedResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "remove_queued";
  success: true;
  data: RemovedMessage;
}

export interface RestartMcpServerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "restart_mcp_server";
  success: true;
  data: RestartMcpServerData;
}

export interface RestoreResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "restore";
  success: true;
  data: Restored;
}

export interface ResumeRunResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "resume_run";
  success: true;
  data: ResumeRunData;
}

export interface SearchSessionsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "search_sessions";
  success: true;
  data: FoundSessions;
}

export interface SendQueuedResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "send_queued";
  success: true;
}

export interface SetApprovalResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_approval";
  success: true;
}

export interface SetAutoCompactionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_auto_compaction";
  success: true;
}

export interface SetAutoRetryResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_auto_retry";
  success: true;
}

export interface SetEventFilterResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_event_filter";
  success: true;
  data: SetEventFilterData;
}

export interface SetFollowUpModeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_follow_up_mode";
  success: true;
}

export interface SetHostToolsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_host_tools";
  success: true;
  data: SetHostToolsData;
}

export interface SetHostUriSchemesResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_host_uri_schemes";
  success: true;
  data: SetHostUriSchemesData;
}

export interface SetInterruptModeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_interrupt_mode";
  success: true;
}

export interface SetKeyResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_key";
  success: true;
  data: KeyKept;
}

export interface SetLabelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_label";
  success: true;
}

export interface SetMcpServersResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_mcp_servers";
  success: true;
  data: SetMcpServersData;
}

export interface SetModelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_model";
  success: true;
  data: Model;
}

export interface SetPermissionsResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_permissions";
  success: true;
}

export interface SetRuleResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_rule";
  success: true;
}

export interface SetSessionNameResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_session_name";
  success: true;
}

export interface SetSettingResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_setting";
  success: true;
}

export interface SetSteeringModeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_steering_mode";
  success: true;
}

export interface SetSubagentSubscriptionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_subagent_subscription";
  success: true;
  data: SetSubagentSubscriptionData;
}

export interface SetThinkingLevelResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_thinking_level";
  success: true;
}

export interface SetTodosResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_todos";
  success: true;
  data: SetTodosData;
}

export interface SetUpdateModeResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "set_update_mode";
  success: true;
}

export interface ShareSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "share_session";
  success: true;
  data: LinkInfo;
}

export interface ShutdownResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "shutdown";
  success: true;
}

export interface SteerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "steer";
  success: true;
  data: SteerData;
}

export interface StopSubagentResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "stop_subagent";
  success: true;
}

export interface SwitchMcpServerResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "switch_mcp_server";
  success: true;
  data: SwitchMcpServerData;
}

export interface SwitchSessionResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "switch_session";
  success: true;
  data: Switched;
}

export interface TakeKeysResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "take_keys";
  success: true;
  data: TakeKeysData;
}

export interface UnlockResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "unlock";
  success: true;
  data: UnlockData;
}

export interface UploadFileResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: "upload_file";
  success: true;
  data: UploadFileData;
}

export interface ErrorResponse {
  /** Any JSON value; the response has the same. */
  id?: unknown;
  type: "response";
  command: string;
  success: false;
  error: string;
  code?: string;
}

export type Command = AbandonRunCommand | AbortCommand | AbortAndPromptCommand | AbortBashCommand | AbortCommandsCommand | AbortRetryCommand | AddMcpServerCommand | AnswerPermissionCommand | AnswerQuestionCommand | BashCommand | BranchCommand | ClearQueueCommand | CloneCommand | CloseSessionCommand | CompactCommand | CompleteCommandCommand | CompletePathCommand | CycleModelCommand | CycleThinkingLevelCommand | DeleteSessionCommand | EditQueuedCommand | ExportHtmlCommand | ExportPageCommand | FindFilesCommand | FindTextCommand | FollowUpCommand | ForkCommand | GetAccountCommand | GetAvailableCommandsCommand | GetAvailableModelsCommand | GetAvailableThinkingLevelsCommand | GetBackgroundOutputCommand | GetBranchMessagesCommand | GetChangesCommand | GetCommandsCommand | GetEntriesCommand | GetForkMessagesCommand | GetKeysCommand | GetLastAssistantTextCommand | GetLinksCommand | GetLoadedCommand | GetLoginProvidersCommand | GetMessagesCommand | GetMessagesPageCommand | GetModelWaysCommand | GetPermissionsCommand | GetRunResultCommand | GetSessionStatsCommand | GetSettingsCommand | GetStateCommand | GetStoredEntriesCommand | GetSubagentMessagesCommand | GetSubagentsCommand | GetTreeCommand | HandoffCommand | KillBackgroundCommand | ListCheckpointsCommand | ListFilesCommand | ListFoldersCommand | ListLiveSessionsCommand | ListSessionsCommand | LogInMcpServerCommand | LoginCommand | MakeSessionNameCommand | NavigateTreeCommand | NegotiateProtocolCommand | NewSessionCommand | OpenSessionCommand | PromptCommand | PullModelCommand | ReadFileCommand | ReloadCommand | RemoveKeyCommand | RemoveLinkCommand | RemoveMcpServerCommand | RemoveQueuedCommand | RestartMcpServerCommand | RestoreCommand | ResumeRunCommand | SearchSessionsCommand | SendQueuedCommand | SetApprovalCommand | SetAutoCompactionCommand | SetAutoRetryCommand | SetEventFilterCommand | SetFollowUpModeCommand | SetHostToolsCommand | SetHostUriSchemesCommand | SetInterruptModeCommand | SetKeyCommand | SetLabelCommand | SetMcpServersCommand | SetModelCommand | SetPermissionsCommand | SetRuleCommand | SetSessionNameCommand | SetSettingCommand | SetSteeringModeCommand | SetSubagentSubscriptionCommand | SetThinkingLevelCommand | SetTodosCommand | SetUpdateModeCommand | ShareSessionCommand | ShutdownCommand | SteerCommand | StopSubagentCommand | SwitchMcpServerCommand | SwitchSessionCommand | TakeKeysCommand | UnlockCommand | UploadFileCommand;

export type Response = AbandonRunResponse | AbortResponse | AbortAndPromptResponse | AbortBashResponse | AbortCommandsResponse | AbortRetryResponse | AddMcpServerResponse | AnswerPermissionResponse | AnswerQuestionResponse | BashResponse | BranchResponse | ClearQueueResponse | CloneResponse | CloseSessionResponse | CompactResponse | CompleteCommandResponse | CompletePathResponse | CycleModelResponse | CycleThinkingLevelResponse | DeleteSessionResponse | EditQueuedResponse | ExportHtmlResponse | ExportPageResponse | FindFilesResponse | FindTextResponse | FollowUpResponse | ForkResponse | GetAccountResponse | GetAvailableCommandsResponse | GetAvailableModelsResponse | GetAvailableThinkingLevelsResponse | GetBackgroundOutputResponse | GetBranchMessagesResponse | GetChangesResponse | GetCommandsResponse | GetEntriesResponse | GetForkMessagesResponse | GetKeysResponse | GetLastAssistantTextResponse | GetLinksResponse | GetLoadedResponse | GetLoginProvidersResponse | GetMessagesResponse | GetMessagesPageResponse | GetModelWaysResponse | GetPermissionsResponse | GetRunResultResponse | GetSessionStatsResponse | GetSettingsResponse | GetStateResponse | GetStoredEntriesResponse | GetSubagentMessagesResponse | GetSubagentsResponse | GetTreeResponse | HandoffResponse | KillBackgroundResponse | ListCheckpointsResponse | ListFilesResponse | ListFoldersResponse | ListLiveSessionsResponse | ListSessionsResponse | LogInMcpServerResponse | LoginResponse | MakeSessionNameResponse | NavigateTreeResponse | NegotiateProtocolResponse | NewSessionResponse | OpenSessionResponse | PromptResponse | PullModelResponse | ReadFileResponse | ReloadResponse | RemoveKeyResponse | RemoveLinkResponse | RemoveMcpServerResponse | RemoveQueuedResponse | RestartMcpServerResponse | RestoreResponse | ResumeRunResponse | SearchSessionsResponse | SendQueuedResponse | SetApprovalResponse | SetAutoCompactionResponse | SetAutoRetryResponse | SetEventFilterResponse | SetFollowUpModeResponse | SetHostToolsResponse | SetHostUriSchemesResponse | SetInterruptModeResponse | SetKeyResponse | SetLabelResponse | SetMcpServersResponse | SetModelResponse | SetPermissionsResponse | SetRuleResponse | SetSessionNameResponse | SetSettingResponse | SetSteeringModeResponse | SetSubagentSubscriptionResponse | SetThinkingLevelResponse | SetTodosResponse | SetUpdateModeResponse | ShareSessionResponse | ShutdownResponse | SteerResponse | StopSubagentResponse | SwitchMcpServerResponse | SwitchSessionResponse | TakeKeysResponse | UnlockResponse | UploadFileResponse | ErrorResponse;

/** What each command takes and what it answers. */
export interface Commands {
  /** Give up a run that the end of its process cut off; another prompt does the same. The conversation stays. */
  abandon_run: { fields: Omit<AbandonRunCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Stop the run, a retry or a compaction. The response comes when the agent is idle; queues are kept. A client need not wait for it before it sends a prompt: the prompt is answered after the abort, and runs then. */
  abort: { fields: Omit<AbortCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Stop as `abort` does, then send a message. */
  abort_and_prompt: { fields: Omit<AbortAndPromptCommand, 'id' | 'type' | 'sessionId'>; data: AbortAndPromptData };
  /** Kill every running `bash` command. */
  abort_bash: { fields: Omit<AbortBashCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Stop running slash commands of extensions, and return their names. */
  abort_commands: { fields: Omit<AbortCommandsCommand, 'id' | 'type' | 'sessionId'>; data: AbortCommandsData };
  /** End the wait for a retry; the run is over then. */
  abort_retry: { fields: Omit<AbortRetryCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Write an MCP server into the user's `mcp.json`, in the form of `mcpServers`, and use it from now on. */
  add_mcp_server: { fields: Omit<AddMcpServerCommand, 'id' | 'type' | 'sessionId'>; data: AddMcpServerData };
  /** Answer the `permission_request` with the id `question`. The first answer counts. With `allow`: `input` takes the place of the call's arguments, and is checked by schema and rules; `keep` (`session`, `project` or `user`) keeps `rules` there, those of the first suggestion if there are none; on a server all but `session` wants its code (`unlock`), and so does a yes to a question of the kind `trust` or `place`. With `deny`: `reason` is told to the model, `stop` ends the run. With the kind `trust`, `keep` `user` remembers the answer, else it holds for the session. An answer that makes no sense is an error, and the question stays open. */
  answer_permission: { fields: Omit<AnswerPermissionCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Answer a question as `answer_permission` does, also one whose run waits in the session (`interruptedRun`). `started`: no other question waits, and the run goes on with the answer; its events follow. `answered`: the run goes on anyway, or waits for the answer to another question. */
  answer_question: { fields: Omit<AnswerQuestionCommand, 'id' | 'type' | 'sessionId'>; data: AnswerQuestionData };
  /** Run a shell command as the user; the model sees it with the next prompt. */
  bash: { fields: Omit<BashCommand, 'id' | 'type' | 'sessionId'>; data: BashOutput };
  /** Do the same as `fork`, under the name that other clients use. */
  branch: { fields: Omit<BranchCommand, 'id' | 'type' | 'sessionId'>; data: Forked };
  /** Empty both queues and return the messages that were in them. */
  clear_queue: { fields: Omit<ClearQueueCommand, 'id' | 'type' | 'sessionId'>; data: Queued };
  /** Copy the current branch into a session of its own and go on there. */
  clone: { fields: Omit<CloneCommand, 'id' | 'type' | 'sessionId'>; data: CloneData };
  /** End the session that `sessionId` names. Its file stays, and its id opens it again. */
  close_session: { fields: Omit<CloseSessionCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Replace the older part of the context by a summary. */
  compact: { fields: Omit<CompactCommand, 'id' | 'type' | 'sessionId'>; data: CompactionResult };
  /** Return completions for the arguments of an extension's command; none if the command offers none. */
  complete_command: { fields: Omit<CompleteCommandCommand, 'id' | 'type' | 'sessionId'>; data: CompleteCommandData };
  /** Return files of the working directory that match the text typed after an `@`, the likeliest first. Text that begins with `/`, `~/`, `./` or `../` is completed as a path, wherever it leads; folders end with a slash. */
  complete_path: { fields: Omit<CompletePathCommand, 'id' | 'type' | 'sessionId'>; data: CompletePathData };
  /** Switch to the next model of the scope; null if there is no other. */
  cycle_model: { fields: Omit<CycleModelCommand, 'id' | 'type' | 'sessionId'>; data: CycledModel | null };
  /** Go to the next level; null if the model has only one. */
  cycle_thinking_level: { fields: Omit<CycleThinkingLevelCommand, 'id' | 'type' | 'sessionId'>; data: Level | null };
  /** Delete the current session and begin an empty one; refused while something runs. */
  delete_session: { fields: Omit<DeleteSessionCommand, 'id' | 'type' | 'sessionId'>; data: DeleteSessionData };
  /** Replace the text of a queued message; its place and its images stay. */
  edit_queued: { fields: Omit<EditQueuedCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Write the session as one HTML page. */
  export_html: { fields: Omit<ExportHtmlCommand, 'id' | 'type' | 'sessionId'>; data: ExportHtmlData };
  /** Return the session as one HTML page. */
  export_page: { fields: Omit<ExportPageCommand, 'id' | 'type' | 'sessionId'>; data: ExportPageData };
  /** Return those of some paths, at most 200, that are files which the agent may read. */
  find_files: { fields: Omit<FindFilesCommand, 'id' | 'type' | 'sessionId'>; data: FindFilesData };
  /** Return the entries of the current branch that contain a text, the oldest first. Messages, thoughts, summaries, arguments and results of tools are searched; upper and lower case are the same. */
  find_text: { fields: Omit<FindTextCommand, 'id' | 'type' | 'sessionId'>; data: FindTextData };
  /** Queue a message that the model gets when the run would otherwise end. */
  follow_up: { fields: Omit<FollowUpCommand, 'id' | 'type' | 'sessionId'>; data: FollowUpData };
  /** Begin a session with everything before a user message, and return that message's text. */
  fork: { fields: Omit<ForkCommand, 'id' | 'type' | 'sessionId'>; data: Forked };
  /** Return who the client is on this server, what its user may do, and what is used up today. */
  get_account: { fields: Omit<GetAccountCommand, 'id' | 'type' | 'sessionId'>; data: AccountState };
  /** Return the slash commands as oh-my-pi lists them; `get_commands` tells more. */
  get_available_commands: { fields: Omit<GetAvailableCommandsCommand, 'id' | 'type' | 'sessionId'>; data: GetAvailableCommandsData };
  /** Return the models for which there are credentials. */
  get_available_models: { fields: Omit<GetAvailableModelsCommand, 'id' | 'type' | 'sessionId'>; data: GetAvailableModelsData };
  /** Return the levels of the current model. */
  get_available_thinking_levels: { fields: Omit<GetAvailableThinkingLevelsCommand, 'id' | 'type' | 'sessionId'>; data: GetAvailableThinkingLevelsData };
  /** Return the output of a command in the background from a byte on. The model still gets all of it. */
  get_background_output: { fields: Omit<GetBackgroundOutputCommand, 'id' | 'type' | 'sessionId'>; data: BackgroundOutput };
  /** Return every user message of the session, to choose where to fork. */
  get_branch_messages: { fields: Omit<GetBranchMessagesCommand, 'id' | 'type' | 'sessionId'>; data: GetForkMessagesData };
  /** Return how files differ between two checkpoints, no matter who changed them; by default since the first one. `from` and `to` are ids of checkpoints; without `to`, the files as they are now. */
  get_changes: { fields: Omit<GetChangesCommand, 'id' | 'type' | 'sessionId'>; data: FileChanges };
  /** Return the slash commands: commands of extensions, prompt templates, skills. */
  get_commands: { fields: Omit<GetCommandsCommand, 'id' | 'type' | 'sessionId'>; data: GetCommandsData };
  /** Return the session's entries in the order they were appended, without those up to `since` and from `before` on. With `limit`, only the last of them, about 1 MiB at most: so a long session can be read from its end. */
  get_entries: { fields: Omit<GetEntriesCommand, 'id' | 'type' | 'sessionId'>; data: EntriesData };
  /** Return every user message of the session, to choose where to fork. */
  get_fork_messages: { fields: Omit<GetForkMessagesCommand, 'id' | 'type' | 'sessionId'>; data: GetForkMessagesData };
  /** Return the providers with a key or a login, and where it comes from; never the key. */
  get_keys: { fields: Omit<GetKeysCommand, 'id' | 'type' | 'sessionId'>; data: GetKeysData };
  /** Return the text of the last answer, or null. */
  get_last_assistant_text: { fields: Omit<GetLastAssistantTextCommand, 'id' | 'type' | 'sessionId'>; data: GetLastAssistantTextData };
  /** Return the links to your conversations. */
  get_links: { fields: Omit<GetLinksCommand, 'id' | 'type' | 'sessionId'>; data: GetLinksData };
  /** Return the skills, prompt templates and extensions that are loaded, and what was not. */
  get_loaded: { fields: Omit<GetLoadedCommand, 'id' | 'type' | 'sessionId'>; data: LoadedHere };
  /** Return the providers that offer a sign-in, and whether there is a login. */
  get_login_providers: { fields: Omit<GetLoginProvidersCommand, 'id' | 'type' | 'sessionId'>; data: GetLoginProvidersData };
  /** Return the current context. */
  get_messages: { fields: Omit<GetMessagesCommand, 'id' | 'type' | 'sessionId'>; data: GetMessagesData };
  /** Return a part of the current context: at most `limit` messages, and 768 KiB unless one message is longer. Refused with the code `session_busy` during a run, `stale_cursor` if the session has changed since the last page. */
  get_messages_page: { fields: Omit<GetMessagesPageCommand, 'id' | 'type' | 'sessionId'>; data: MessagesPage };
  /** Return the ways to a model, the least work first. Asks the servers on this machine, for a second at most. */
  get_model_ways: { fields: Omit<GetModelWaysCommand, 'id' | 'type' | 'sessionId'>; data: GetModelWaysData };
  /** Return the permission mode and all rules; with a tool and its arguments, also the decision on that call. */
  get_permissions: { fields: Omit<GetPermissionsCommand, 'id' | 'type' | 'sessionId'>; data: PermissionState };
  /** Return the result of the last run; null if there was none. */
  get_run_result: { fields: Omit<GetRunResultCommand, 'id' | 'type' | 'sessionId'>; data: GetRunResultData };
  /** Return counts, tokens and cost of the whole session, and how full the context is. */
  get_session_stats: { fields: Omit<GetSessionStatsCommand, 'id' | 'type' | 'sessionId'>; data: SessionStats };
  /** Return all settings: what each means, what holds in this working directory, and where that comes from. */
  get_settings: { fields: Omit<GetSettingsCommand, 'id' | 'type' | 'sessionId'>; data: GetSettingsData };
  /** Return the state of the agent. */
  get_state: { fields: Omit<GetStateCommand, 'id' | 'type' | 'sessionId'>; data: AgentState };
  /** Return the entries of a stored session as `get_entries` does; another process may hold it. */
  get_stored_entries: { fields: Omit<GetStoredEntriesCommand, 'id' | 'type' | 'sessionId'>; data: EntriesData };
  /** Return what is in the session file of a subagent, at work or not, from a byte on; 8 MiB at most. The subagent is named by its id or by its session file. */
  get_subagent_messages: { fields: Omit<GetSubagentMessagesCommand, 'id' | 'type' | 'sessionId'>; data: SubagentMessages };
  /** Return the subagents that are at work. */
  get_subagents: { fields: Omit<GetSubagentsCommand, 'id' | 'type' | 'sessionId'>; data: GetSubagentsData };
  /** Return the session's entries as a tree: nodes with `entry`, `children`, `label?`, `labelTimestamp?`. The tree is nested as deep as the session is long, and many JSON readers refuse that. With `flat` the nodes come in one list, parents before their children, with `id` and `parentId` (null for a root) instead of `children`. */
  get_tree: { fields: Omit<GetTreeCommand, 'id' | 'type' | 'sessionId'>; data: TreeData };
  /** Go on from a summary of the conversation, as `compact`; refused while a run goes on. A command of oh-my-pi. */
  handoff: { fields: Omit<HandoffCommand, 'id' | 'type' | 'sessionId'>; data: HandedOff };
  /** End a command in the background. The model is told, as of every end. */
  kill_background: { fields: Omit<KillBackgroundCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Return the checkpoints of this session: the states of the files before turns that wrote to them. */
  list_checkpoints: { fields: Omit<ListCheckpointsCommand, 'id' | 'type' | 'sessionId'>; data: CheckpointList };
  /** Return what is in a folder, as tools see it. What the agent may not read is marked; a folder that it may not read is refused. */
  list_files: { fields: Omit<ListFilesCommand, 'id' | 'type' | 'sessionId'>; data: FolderContent };
  /** Return the folders in a folder that sessions may work in, for a client that lets a person choose one. */
  list_folders: { fields: Omit<ListFoldersCommand, 'id' | 'type' | 'sessionId'>; data: Folders };
  /** Return the live sessions of this process, in the order in which they were opened; on a server with a store also those of the other servers, each with its `node`. */
  list_live_sessions: { fields: Omit<ListLiveSessionsCommand, 'id' | 'type' | 'sessionId'>; data: ListLiveSessionsData };
  /** Return the stored sessions of this working directory, the latest first; with `limit`, page by page. With `everywhere`, of all directories that sessions may work in, in pages of 500 without `limit`; `open_session` takes their ids. `changedSince`, the `asOf` of an earlier answer: only what has changed since, the latest change included. */
  list_sessions: { fields: Omit<ListSessionsCommand, 'id' | 'type' | 'sessionId'>; data: SessionList };
  /** Log in at an MCP server: the client gets the address as `extension_ui_request` `open_url`. The login comes back to this machine, so the browser has to be here. The response comes when it is over. */
  log_in_mcp_server: { fields: Omit<LogInMcpServerCommand, 'id' | 'type' | 'sessionId'>; data: LogInMcpServerData };
  /** Sign in to a provider: the client gets the address as `extension_ui_request` `open_url`, and may be asked for what has to be pasted. The response comes when the login is kept. */
  login: { fields: Omit<LoginCommand, 'id' | 'type' | 'sessionId'>; data: LoggedIn };
  /** Let the model name the session after its conversation, and return the name; refused while something runs. */
  make_session_name: { fields: Omit<MakeSessionNameCommand, 'id' | 'type' | 'sessionId'>; data: MakeSessionNameData };
  /** Go on from another entry of the session; with `summarize`, the old branch is summarised. */
  navigate_tree: { fields: Omit<NavigateTreeCommand, 'id' | 'type' | 'sessionId'>; data: NavigatedTo };
  /** Speak version 2 of oh-my-pi's protocol from now on, in all sessions; on stdin and stdout only. `prompt_result` tells the end of each prompt, `session_settled` that nothing follows. A line of more than 1 MiB comes as `rpc_chunk` frames: `chunkId`, `index`, `count`, `byteLength` of the line, and `data`, a piece in base64. */
  negotiate_protocol: { fields: Omit<NegotiateProtocolCommand, 'id' | 'type' | 'sessionId'>; data: Negotiated };
  /** Begin an empty session. */
  new_session: { fields: Omit<NewSessionCommand, 'id' | 'type' | 'sessionId'>; data: NewSessionData };
  /** Open another session beside this one: a new session, or the stored one that `session` (id or path) names. Its `id` is the `sessionId` of its commands and events. With `copy` it is a copy of the stored one, which another process may hold. `sandbox` is as in `set_permissions`. With `exec`, a command such as `docker exec -i NAME`, tools work elsewhere, in `execCwd` (elsewhere.md). `sessionDir`, as oh-my-pi has it, is refused. */
  open_session: { fields: Omit<OpenSessionCommand, 'id' | 'type' | 'sessionId'>; data: LiveInfo };
  /** Send a message. The response comes once it is accepted, queued or handled; the run's events follow. Limits (model calls, US dollars, seconds, tokens), the JSON Schema of the result, the list `enabledTools` (see cli.md) and `fallback`, the models that answer if the model cannot (see providers.md; an empty list: none), hold for the run it starts. `traceparent` (W3C) makes the run part of a trace of the client's. */
  prompt: { fields: Omit<PromptCommand, 'id' | 'type' | 'sessionId'>; data: PromptData };
  /** Get a model that runs on this machine, as `spindle models pull NAME`; `pull_progress` tells how far it is. Returns its id: its provider is `local`. */
  pull_model: { fields: Omit<PullModelCommand, 'id' | 'type' | 'sessionId'>; data: PullModelData };
  /** Return a text from a line on, at most 1 MiB, or an image. With `byte`, the `nextByte` of an earlier answer, the next part. Refused if the agent may not read it. */
  read_file: { fields: Omit<ReadFileCommand, 'id' | 'type' | 'sessionId'>; data: FilePart };
  /** Read settings, skills, prompts, extensions and MCP servers again. */
  reload: { fields: Omit<ReloadCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Forget the key or the login of a provider in `auth.json`. */
  remove_key: { fields: Omit<RemoveKeyCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Remove a link to one of your conversations. Who looks on by it is disconnected. */
  remove_link: { fields: Omit<RemoveLinkCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Take an MCP server out of the user's `mcp.json`. */
  remove_mcp_server: { fields: Omit<RemoveMcpServerCommand, 'id' | 'type' | 'sessionId'>; data: RemoveMcpServerData };
  /** Take one message out of its queue and return it. The ids are in `queue_update`. */
  remove_queued: { fields: Omit<RemoveQueuedCommand, 'id' | 'type' | 'sessionId'>; data: RemovedMessage };
  /** End an MCP server and start it again; the answer comes when it is ready, or has failed. */
  restart_mcp_server: { fields: Omit<RestartMcpServerCommand, 'id' | 'type' | 'sessionId'>; data: RestartMcpServerData };
  /** Give files the state that they had at a checkpoint; refused while something runs. `files` names files and folders; the others stay. `hunks` are parts of the diff that `get_changes` has of one file since that checkpoint: only these are taken back. With `conversation`, the conversation goes back, too. With `dryRun` nothing changes, and the answer says what would. Files that were changed outside of the agent's runs are only overwritten with `force`. */
  restore: { fields: Omit<RestoreCommand, 'id' | 'type' | 'sessionId'>; data: Restored };
  /** Go on with a run that the end of its process cut off (`interruptedRun` in `get_state`); its events follow. Limits hold on. Open calls of tools that only read are made again; the model is told of the others. */
  resume_run: { fields: Omit<ResumeRunCommand, 'id' | 'type' | 'sessionId'>; data: ResumeRunData };
  /** Return those of the sessions of `list_sessions` whose name, or one message, contains all words of the query. They come in pages of `limit`, 50 unless told. */
  search_sessions: { fields: Omit<SearchSessionsCommand, 'id' | 'type' | 'sessionId'>; data: FoundSessions };
  /** Deliver a queued message before all others: before the next model call, or at once if nothing runs. */
  send_queued: { fields: Omit<SendQueuedCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Ask with a confirm dialog before every tool call (`tools`), and after every `maxTurns` model calls. */
  set_approval: { fields: Omit<SetApprovalCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Switch automatic compaction and overflow recovery on or off. */
  set_auto_compaction: { fields: Omit<SetAutoCompactionCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Switch retries of transient errors on or off. */
  set_auto_retry: { fields: Omit<SetAutoRetryCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Send only events of these types, or all (null), in all sessions; on stdin and stdout only. Responses, questions, calls of host tools and `prompt_result` are always sent. */
  set_event_filter: { fields: Omit<SetEventFilterCommand, 'id' | 'type' | 'sessionId'>; data: SetEventFilterData };
  /** Deliver follow-ups one per turn or all together. */
  set_follow_up_mode: { fields: Omit<SetFollowUpModeCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Declare the tools that run in the client, replacing those declared before. */
  set_host_tools: { fields: Omit<SetHostToolsCommand, 'id' | 'type' | 'sessionId'>; data: SetHostToolsData };
  /** Declare schemes of addresses that the client serves: objects with `scheme` (such as `db`) and `writable`. The tools `read` and `write` then take such addresses (`db://users/1`) as their path, and ask the client with `host_uri_request`. The schemes replace those declared before. */
  set_host_uri_schemes: { fields: Omit<SetHostUriSchemesCommand, 'id' | 'type' | 'sessionId'>; data: SetHostUriSchemesData };
  /** Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`). */
  set_interrupt_mode: { fields: Omit<SetInterruptModeCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Keep a key of a provider (or of a product: `claude`) in `auth.json`. Without `provider` it is told by the key's first letters; if several have such keys, nothing is kept and the answer names them. */
  set_key: { fields: Omit<SetKeyCommand, 'id' | 'type' | 'sessionId'>; data: KeyKept };
  /** Label an entry of the session, to find it in the tree; without `label`, remove its label. */
  set_label: { fields: Omit<SetLabelCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Set MCP servers, replacing those set before: an object as `mcpServers` of `.mcp.json`, or a list as in ACP. */
  set_mcp_servers: { fields: Omit<SetMcpServersCommand, 'id' | 'type' | 'sessionId'>; data: SetMcpServersData };
  /** Switch models; the new one answers from the next turn on. */
  set_model: { fields: Omit<SetModelCommand, 'id' | 'type' | 'sessionId'>; data: Model };
  /** Set the permission mode, and replace rules that this command set before; fields left out change nothing. `sandbox` is a level, or an object with `level`, `writable` and `network`. It cannot be wider than the command line says. If this machine cannot provide it, the command fails and changes nothing. */
  set_permissions: { fields: Omit<SetPermissionsCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Add a permission rule to the settings of the user, or of the project; with `remove` take it out. */
  set_rule: { fields: Omit<SetRuleCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Name the session. */
  set_session_name: { fields: Omit<SetSessionNameCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Write a setting into the user's file; without a value it is taken out. It holds for this session at once, for others when they are opened or reloaded. */
  set_setting: { fields: Omit<SetSettingCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Deliver steering messages one per turn or all together. */
  set_steering_mode: { fields: Omit<SetSteeringModeCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Tell of subagents in oh-my-pi's form, for clients that have negotiated version 2, in all sessions. `progress`: `subagent_lifecycle` and `subagent_progress`; `events`: also `subagent_event`, with a `payload`. */
  set_subagent_subscription: { fields: Omit<SetSubagentSubscriptionCommand, 'id' | 'type' | 'sessionId'>; data: SetSubagentSubscriptionData };
  /** Set how hard the model thinks, clamped to the levels it supports. */
  set_thinking_level: { fields: Omit<SetThinkingLevelCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Replace the todo list. */
  set_todos: { fields: Omit<SetTodosCommand, 'id' | 'type' | 'sessionId'>; data: SetTodosData };
  /** Send the whole answer so far with every update (`full`) or only the new piece (`delta`). */
  set_update_mode: { fields: Omit<SetUpdateModeCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Return a link with which other users of this server may look at the conversation; nobody can do anything by it. A conversation has one link. For users of a server (`spindle tokens`). */
  share_session: { fields: Omit<ShareSessionCommand, 'id' | 'type' | 'sessionId'>; data: LinkInfo };
  /** Answer, then end the process with code 0. */
  shutdown: { fields: Omit<ShutdownCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Queue a message that the model gets before its next call in this run, or with the next run. */
  steer: { fields: Omit<SteerCommand, 'id' | 'type' | 'sessionId'>; data: SteerData };
  /** Stop a subagent. The call that it works for ends with what it has said so far. */
  stop_subagent: { fields: Omit<StopSubagentCommand, 'id' | 'type' | 'sessionId'>; data: undefined };
  /** Switch an MCP server of the user's `mcp.json` on or off. */
  switch_mcp_server: { fields: Omit<SwitchMcpServerCommand, 'id' | 'type' | 'sessionId'>; data: SwitchMcpServerData };
  /** Go on with another session file. If it worked at a far side that was never used here, you are asked about it. */
  switch_session: { fields: Omit<SwitchSessionCommand, 'id' | 'type' | 'sessionId'>; data: Switched };
  /** Take over the keys that pi has in its own folder, where there are none yet. */
  take_keys: { fields: Omit<TakeKeysCommand, 'id' | 'type' | 'sessionId'>; data: TakeKeysData };
  /** Show the code that the server printed, or the permit that an earlier answer gave for a code: then this client may change keys, settings, rules and servers. A code counts once. On stdin and stdout nothing is locked. */
  unlock: { fields: Omit<UnlockCommand, 'id' | 'type' | 'sessionId'>; data: UnlockData };
  /** Store a file (base64) beside the sessions, for tools to read, and return its path. */
  upload_file: { fields: Omit<UploadFileCommand, 'id' | 'type' | 'sessionId'>; data: UploadFileData };
}
