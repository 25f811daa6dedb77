// The conversation: rows in a column that grows at its end. While an answer is written only its last blocks change,
// once per frame. A row knows the id of its entry: that is how messages are found again.

import { announce, breathe, button, unsent } from '../shared/dom.js';
import { count, obj, oneLine } from '../shared/format.js';
import { levelHeadings } from '../shared/markdown.js';
import { Answer } from './answer.js';
import { Feed, perFrame } from './feed.js';
import { readable, tokens } from './figures.js';
import { LiveCard, shellCard } from './live-card.js';
import { branchSwitch, noticeOf, summary } from './messages.js';
import { MessageRow, Rows } from './rows.js';

const loading = () => {
  const node = noticeOf('clock', 'Loading what came before…');
  node.classList.add('busy');
  return node;
};

export class Conversation {
  /** @type {Rows} */
  rows;
  /** @type {Map<string, any>} */
  cards;
  /** @type {Set<LiveCard>} */
  busyCards;
  /** @type {Map<string, any>} */
  asides;
  /** @type {any} */
  live;
  /** @type {any} */
  compaction;
  /** @type {any} */
  retry;
  /** @type {boolean} */
  olderOpen;
  /** @type {any} */
  waits;
  /** @type {any} */
  unanswered;
  /** @type {any} */
  lastAnswer;
  /** @type {any} */
  adding;
  /** @type {boolean | undefined} */
  printing;

  /**
   * `actions`: `save(entryId, text, images)`, `fork(entryId)`, `undo(entryId)`, `branch(entry)`, and hooks of answers.
   * @param {Session} session
   * @param {any} actions
   */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.feed = new Feed(() => session.running);
    this.feed.onPrint = on => {
      this.printing = on;
      this.show();
    };
    this.repaint = perFrame(() => this.paint());
    this.hooks = {
      ...actions,
      addCard: (/** @type {string} */ id, /** @type {LiveCard} */ card) => this.cards.set(id, card),
    };
    this.clear();
    this.listen();
    setInterval(() => this.tick(), 1000);
  }

  clear() {
    this.rows = new Rows(this);
    this.cards = new Map(); // cards of calls that may go on, by id
    this.busyCards = new Set();
    this.asides = new Map(); // commands in the background of which no end is told yet, by id: {card, exit}
    this.live = null; // the row of the answer being written
    this.compaction = this.retry = null;
    this.olderOpen = false;
  }

  /** The last one. */
  get turn() {
    return this.rows.turn;
  }

  listen() {
    /**
     * @param {string} type
     * @param {Act} listener
     */
    const on = (type, listener) => this.session.on(type, listener.bind(this));
    on('reset', this.reset);
    on('entries', this.showBranches);
    on('earlier', ({ path }) => {
      this.adding = this.addEarlier(path);
    });
    on('state', () => this.turn?.wait(this.session.asking));
    on('connection', ({ state }) => state === 'waiting' && this.keepHalf());
    addEventListener('pagehide', () => this.turn?.wait(false));
    on('message_start', this.messageStart);
    on('message_update', this.messageUpdate);
    on('message_end', this.messageEnd);
    on('tool_execution_start', this.toolStart);
    on('tool_execution_update', this.toolUpdate);
    on('tool_execution_end', this.toolEnd);
    on('background', this.showAsides);
    on('background_end', this.asideEnd);
    on('agent_settled', this.settled);
    on('compaction_start', this.compactionStart);
    on('compaction_end', this.compactionEnd);
    on('auto_retry_start', this.retryStart);
    on('auto_retry_end', this.retryEnd);
    on('extension_error', event => this.notice('warning', `An extension failed: ${event.error}`));
    on('client_error', event => this.notice('warning', event.error));
    on('shell_start', this.shellStart);
    on('bash_execution_update', this.shellUpdate);
    on('shell_end', this.shellEnd);
  }

  // -- history --------------------------------------------------------------------------------------

  /** @param {any} fields */
  reset({ path, isWhole = true }) {
    const field = document.activeElement?.closest(/** @type {'textarea'} */ ('.edit textarea')); // the rows are built again around it
    const editing = field && { id: field.closest('.row')?.row.id, at: [field.selectionStart, field.selectionEnd] };
    this.turn?.wait(false);
    this.clear();
    if (!isWhole) this.waits = this.rows.add(new MessageRow('notice', () => loading(), 42));
    for (const _ of this.rows.adding(path, { isWhole })); // at once
    const last = this.rows.all.findLast(({ kind }) => kind === 'answer');
    if (this.session.running && last && last === this.turn?.last) last.atWork = last.keep = true;
    if (this.turn) this.turn.running = this.session.running;
    this.turn?.fold();
    this.turn?.wait(this.session.asking);
    this.turn?.paint();
    this.showBranches();
    this.feed.sticks = true;
    this.show();
    this.unanswered = this.session.running || !path.length ? null : this.tellUnanswered(path);
    if (editing) this.editAgain(editing);
    this.tick();
  }

  /**
   * What came before the first row is here: put it there, without moving what is in view.
   * @param {Entry[]} path
   */
  async addEarlier(path) {
    const { rows } = this;
    const earlier = new Rows(this);
    // A summary that stands for something stands for all of this, too.
    for (const _ of earlier.adding(path, { older: rows.summarises })) {
      await breathe();
      if (this.rows !== rows) return; // another conversation was opened
    }
    this.waits.gone = true;
    rows.prepend(earlier);
    this.showBranches();
    this.show();
  }

  /**
   * Say so if the work has ended before its answer: the server may have been stopped. Returns the notice.
   * @param {Entry[]} path
   */
  tellUnanswered(path) {
    const { message } = path.findLast(({ type }) => type === 'message' || type === 'compaction')?.raw ?? {};
    const calls =
      this.session.state.interruptedRun || (message?.role === 'assistant' && message.stopReason === 'toolUse');
    if (!calls && message?.role !== 'user' && message?.role !== 'toolResult') return null;
    if (this.session.held) return null; // the work may be going on there
    this.showHalf();
    if (this.session.state.interruptedRun) {
      const { openCalls = [], questions = [] } = this.session.state.interruptedRun;
      const asked = questions.map((/** @type {any} */ { toolName }) => toolName).join(', ');
      if (asked)
        return this.notice(
          'shield',
          `This run waits for your answer: may it call ${asked}?`,
          button('link', () => this.actions.resume(), 'Answer'),
        );
      if (message?.stopReason === 'aborted') return null; // it says so, and can be continued
      const open = openCalls.map((/** @type {any} */ { name }) => name).join(', ');
      return this.notice(
        'warning',
        `This run was interrupted${open && ` in ${open}`}`,
        button('link', () => this.actions.resume(), 'Go on'),
      );
    }
    return this.notice(
      'warning',
      'The work ended here before there was an answer',
      button('link', () => this.actions.again(), 'Try again'),
    );
  }

  /** The connection is lost in the middle of an answer. If the server has died, nothing else has what came of it. */
  keepHalf() {
    if (!this.live || !this.turn?.id) return;
    unsent.set(`half-${this.turn.id}`, JSON.stringify(this.live.answer.content));
  }

  /** Show what came of an answer whose server has died. */
  showHalf() {
    const half = unsent.get(`half-${this.turn?.id}`);
    if (half === null) return;
    const message = { role: 'assistant', content: JSON.parse(half), stopReason: 'lost' };
    const row = this.rows.rowOf(message, Date.now());
    if (row) this.append(row);
  }

  /** @param {any} fields */
  editAgain({ id, at }) {
    const row = this.rows.byEntry.get(id);
    if (!row) return;
    this.feed.reveal(row);
    const field = row.node.querySelector('.edit textarea');
    field?.focus();
    field?.setSelectionRange(...at);
  }

  /** @param {MessageRow} row */
  buildAnswer(row) {
    const { message } = row;
    const answer = new Answer(this.hooks);
    answer.finish(message, row.thoughts);
    message.content.forEach((/** @type {any} */ call, /** @type {number} */ index) => {
      if (call?.type !== 'toolCall') return;
      const card = answer.blocks[index];
      const result = row.results.get(index);
      if (result) this.finishCard(card, result, result.isError, row.durations.get(index));
      else if (row.atWork && this.session.running) {
        card.setState('running');
        card.restart();
        this.cards.set(call.id, card);
        this.busyCards.add(card);
      }
    });
    this.addSwitch(row, answer.node);
    return answer.node;
  }

  // -- rows -----------------------------------------------------------------------------------------

  /** @param {MessageRow} row */
  isShown(row) {
    if (row.gone) return false;
    if (this.printing) return true;
    if (row.older && !this.olderOpen) return false;
    return !row.turn?.line || row.turn.shows(row);
  }

  show() {
    this.feed.show(this.rows.all.filter(row => this.isShown(row)));
    for (const { turn } of this.feed.root.querySelectorAll('.turn')) turn.paint();
  }

  toggleOlder() {
    this.olderOpen = !this.olderOpen;
    this.show();
  }

  /**
   * Bring a message into view, out of whatever it is folded into. Returns its row; of a result that of its call.
   * @param {string} entryId
   */
  async reveal(entryId) {
    if (!this.rowOf(entryId)) {
      await this.session.whole;
      await this.adding;
    }
    const row = this.rowOf(entryId);
    if (!row) return null;
    this.olderOpen ||= row.older;
    if (row.turn && !this.isShown(row)) row.turn.chosen = true;
    this.show();
    this.feed.reveal(row);
    return row;
  }

  /** @param {string} entryId */
  rowOf(entryId) {
    const { byId } = this.session.entries;
    let entry = byId.get(entryId);
    while (entry?.role === 'toolResult') entry = byId.get(entry.parentId);
    return this.rows.byEntry.get(entry?.id);
  }

  /**
   * Bring a tool call into view.
   * @param {string} id
   */
  showCall(id) {
    this.reveal(this.rows.calls.get(id)?.row.id);
  }

  /**
   * Add a row that has just come.
   * @param {MessageRow} row
   */
  append(row) {
    const shown = this.rows.all.length;
    this.rows.add(row);
    // With the line of its turn two rows are new.
    if (this.rows.all.length - shown === 1 && this.isShown(row)) this.feed.append(row);
    else this.show();
    return row;
  }

  // -- branches -------------------------------------------------------------------------------------

  /** Learn where the conversation divides: at the first row after each fork. */
  showBranches() {
    const { entries } = this.session;
    if (!entries.divided) return;
    let fork = null;
    for (const entry of entries.path()) {
      if (entries.siblings(entry).length > 1) fork = entry;
      const row = this.rows.byEntry.get(entry.id);
      if (!row || (row.kind !== 'user' && row.kind !== 'answer')) continue;
      const before = row.fork && `${row.fork.entry.id} ${row.fork.all.length}`;
      row.fork = fork && { entry: fork, all: entries.siblings(fork) };
      if (row.node && before !== (fork && `${fork.id} ${row.fork.all.length}`)) this.addSwitch(row, row.node);
      fork = null;
    }
  }

  /**
   * @param {MessageRow} row
   * @param {HTMLElement} node
   */
  addSwitch(row, node) {
    node.querySelector('.fork')?.remove();
    node.querySelector('.actions')?.classList.toggle('marked', Boolean(row.fork));
    if (!row.fork) return;
    const { all, entry } = row.fork;
    const place = all.indexOf(entry);
    const made = branchSwitch(place, all.length, target => this.actions.branch(all[target]));
    const actions = node.querySelector('.actions');
    if (row.kind === 'user' && actions) actions.append(made);
    else if (actions) actions.prepend(made);
    else node.append(made);
  }

  // -- events ---------------------------------------------------------------------------------------

  /** @param {EventOf<'message_start'>} fields */
  messageStart({ message }) {
    if (message.role === 'assistant') this.beginAnswer();
  }

  beginAnswer() {
    if (this.unanswered) this.remove(this.unanswered);
    this.unanswered = null;
    const answer = new Answer(this.hooks, true);
    const row = new MessageRow('answer', () => answer.node);
    row.answer = answer;
    row.keep = true;
    row.turn = this.turn;
    this.live = row;
    const folds = this.turn?.begin(row, this.feed.sticks);
    if (folds) this.rows.add(row) && this.show();
    else this.append(row);
    return row;
  }

  /** @param {EventOf<'message_update'>} event */
  messageUpdate(event) {
    const row = this.live ?? this.beginAnswer();
    row.answer.update(event);
    if (event.assistantMessageEvent.type === 'toolcall_start' && this.turn && !this.turn.line) {
      this.turn.tools++;
      this.rows.addLine(this.turn, this.rows.all.indexOf(row));
      this.turn.tools--; // it is counted when the answer is complete
      this.show();
    }
    this.repaint();
  }

  /** @param {any} fields */
  messageEnd({ message, entryId }) {
    if (entryId && this.rows.byEntry.has(entryId)) return; // it was among what was fetched
    if (message.role === 'assistant') this.endAnswer(message, entryId);
    else if (message.role === 'toolResult') this.endCall(message);
    else {
      const row = this.rows.rowOf(message, Date.now());
      if (row) this.rows.name(row, entryId);
      if (row && message.role === 'user') {
        if (this.turn) this.turn.running = true;
        this.rows.add(row);
        this.show(); // the turn before is folded
        this.feed.toEnd();
      } else if (row) this.append(row);
    }
    this.showAsides();
  }

  /**
   * @param {AssistantMessage} message
   * @param {string} entryId
   */
  endAnswer(message, entryId) {
    const row = this.live ?? this.beginAnswer();
    this.live = null;
    const { answer } = row;
    if (this.turn?.id) unsent.set(`half-${this.turn.id}`, null);
    row.answer = null;
    row.build = () => this.buildAnswer(row);
    this.rows.name(row, entryId);
    this.rows.noteAnswer(row, message, Date.now());
    const text = answer.finish(message);
    row.thoughts = answer.thoughts;
    levelHeadings(answer.node, 1);
    this.addSwitch(row, answer.node);
    this.lastAnswer = row;
    row.atWork = message.content.some(block => block?.type === 'toolCall');
    if (!row.atWork) this.feed.letGo(row);
    if (text) announce(oneLine(text, 400));
    else if (message.errorMessage) announce(readable(message.errorMessage));
  }

  /**
   * A call has its result. A row whose calls have all ended may leave the document, and be built again.
   * @param {ToolResultMessage} message
   */
  endCall(message) {
    // It may not have run to its end: another server has gone on with the run.
    const card = this.cards.get(message.toolCallId);
    if (card?.isOpen) {
      card.finish(message, message.isError);
      this.busyCards.delete(card);
    }
    const row = this.rows.takeResult(message, Date.now());
    if (!row?.atWork) return;
    const calls = row.message.content.filter((/** @type {any} */ block) => block?.type === 'toolCall');
    if (row.results.size >= calls.length) this.endWork(row);
  }

  /** @param {MessageRow} row */
  endWork(row) {
    row.atWork = false;
    for (const block of row.message.content) if (block?.type === 'toolCall') this.cards.delete(block.id);
    this.feed.letGo(row);
  }

  /**
   * The card of a call, if there is one.
   * @param {string} toolCallId
   */
  cardOf(toolCallId) {
    const call = this.rows.calls.get(toolCallId);
    // A card that was not built yet, because its row was out of sight.
    if (call && !this.cards.has(toolCallId) && !call.row.node && call.row.atWork) this.feed.update();
    return this.cards.get(toolCallId) ?? null;
  }

  /** Calls waited for an answer of the user: their time begins now. */
  restartCards() {
    for (const card of this.busyCards) if (card.state === 'running' && !card.liveOutput) card.restart();
  }

  /** @param {EventOf<'tool_execution_start'>} fields */
  toolStart({ toolCallId, toolName, args }) {
    let card = this.cards.get(toolCallId);
    if (!card) {
      card = new LiveCard(toolCallId, toolName, 'running');
      this.cards.set(toolCallId, card);
      const { node } = card;
      const row = new MessageRow('tool', () => node);
      row.keep = true;
      this.append(row);
    }
    card.start(args);
    this.busyCards.add(card);
  }

  /** @param {EventOf<'tool_execution_update'>} fields */
  toolUpdate({ toolCallId, partialResult }) {
    const card = this.cards.get(toolCallId);
    if (!card) return;
    card.progress(partialResult);
    this.busyCards.add(card);
    this.repaint();
  }

  /** @param {any} fields */
  toolEnd({ toolCallId, result, isError, durationMs, changedInput }) {
    const card = this.cards.get(toolCallId);
    if (card) this.finishCard(card, { ...result, changedInput }, isError, durationMs);
    const call = this.rows.calls.get(toolCallId);
    call?.row.durations.set(call.index, durationMs);
    this.busyCards.delete(card);
  }

  /**
   * A call has its result. Of a command in the background, how it stands now is shown, too.
   * @param {LiveCard} card
   * @param {{ content?: unknown, details?: any, changedInput?: unknown }} result
   * @param {boolean} isError
   * @param {number} [durationMs]
   */
  finishCard(card, result, isError, durationMs) {
    card.finish(result, isError, durationMs);
    const id = obj(result.details).backgroundId;
    if (!id) return;
    this.asides.set(id, { card, exit: '' });
    this.showAsides();
  }

  showAsides() {
    const running = new Set(this.session.background.map(({ id }) => id));
    for (const [id, { card, exit }] of this.asides) {
      const end = this.rows.ends.get(id);
      // One that does not run, and of which no end is known, has gone with its server.
      card.stand(end ?? `${id} ${exit || (running.has(id) ? 'is running' : 'has ended')}`);
      if (end) this.asides.delete(id);
    }
  }

  /**
   * A command in the background has ended. How, a message tells in more words, when the model reads it.
   * @param {EventOf<'background_end'>} fields
   */
  asideEnd({ id, exitCode }) {
    const aside = this.asides.get(id);
    if (aside) aside.exit = exitCode > 128 ? `was killed by signal ${exitCode - 128}` : `exited with code ${exitCode}`;
    this.showAsides();
  }

  paint() {
    this.live?.answer.paint();
    for (const card of this.busyCards) card.paintProgress();
  }

  tick() {
    for (const card of this.busyCards) card.tick();
    if (this.turn?.running) this.turn.paint();
  }

  settled() {
    for (const [id, card] of this.cards) {
      if (card.id === '') continue; // a command of the user goes on
      card.abandon();
      this.busyCards.delete(card);
      this.cards.delete(id);
    }
    for (const { row } of this.rows.calls.values()) if (row.atWork) this.endWork(row);
    if (!this.turn) return;
    this.turn.wait(false);
    this.turn.running = false;
    this.turn.ended = Math.max(this.turn.ended, Date.now());
    this.turn.paint();
  }

  // -- commands of the user -------------------------------------------------------------------------

  /** @param {any} fields */
  shellStart({ id, command, hidden }) {
    const card = shellCard(command, hidden, 'running');
    card.start({ command });
    this.cards.set(id, card);
    this.busyCards.add(card);
    const row = new MessageRow('shell', () => card.node);
    row.keep = true;
    this.append(row);
    this.feed.toEnd();
  }

  /** @param {any} fields */
  shellUpdate({ id, delta }) {
    const card = this.cards.get(id); // those of other clients are shown when they are done
    if (!card) return;
    card.addOutput(delta);
    this.repaint();
  }

  /** @param {any} fields */
  shellEnd({ id, message }) {
    const card = this.cards.get(id);
    this.busyCards.delete(card);
    if (message && card) card.finishShell(message);
    else if (message)
      this.session.attempt(() => this.session.load()); // another client has changed the page meanwhile
    else card?.abandon();
  }

  // -- notices --------------------------------------------------------------------------------------

  /**
   * @param {string} symbol
   * @param {string} text
   * @param {...any} more
   */
  notice(symbol, text, ...more) {
    const node = noticeOf(symbol, text, ...more);
    const row = new MessageRow('notice', () => node, 42);
    row.keep = true;
    this.append(row);
    return node;
  }

  /** @param {HTMLElement} node */
  remove(node) {
    const row = this.rows.all.find(one => one.node?.contains(node));
    if (!row) return;
    row.gone = true;
    this.show();
  }

  /** @param {EventOf<'compaction_start'>} fields */
  compactionStart({ reason }) {
    const why = /** @type {Record<string, any>} */ ({
      threshold: 'The context is nearly full',
      overflow: 'The context was full',
    })[reason];
    this.compaction = this.notice('compact', `${why ? why + ': s' : 'S'}ummarising the conversation…`);
    this.compaction.classList.add('busy');
  }

  /** @param {EventOf<'compaction_end'>} fields */
  compactionEnd({ result, aborted, errorMessage }) {
    const left = result?.estimatedTokensAfter ? ` to ${tokens(result.estimatedTokensAfter)}` : '';
    const node = result
      ? summary('compact', `Summarised: ${tokens(result.tokensBefore)}${left} tokens`, result.summary)
      : noticeOf('compact', aborted ? 'Summary cancelled' : (errorMessage ?? 'Nothing to summarise'));
    if (this.compaction) this.compaction.replaceWith(node);
    else this.append(Object.assign(new MessageRow('notice', () => node, 42), { keep: true }));
    this.compaction = null;
  }

  /** @param {EventOf<'auto_retry_start'>} fields */
  retryStart({ attempt, maxAttempts, delayMs, errorMessage }) {
    // The failed attempt is out of sight while it is tried again; the notice says what happened.
    if (this.lastAnswer) this.lastAnswer.gone = true;
    const cancel = button('link', () => this.session.attempt(() => this.session.call('abort_retry')), 'Cancel');
    this.endRetry();
    const words = oneLine(readable(errorMessage), 200).replace(/\.$/, '');
    const until = Date.now() + delayMs;
    const node = this.notice('again', words, cancel);
    node.classList.add('busy', 'retry');
    const tick = () => {
      const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
      const next = left ? `Trying again in ${left} s` : 'Trying again';
      /** @type {Element} */ (node.querySelector('span')).textContent =
        `${words}. ${next} (attempt ${attempt} of ${maxAttempts})`;
    };
    tick();
    this.retry = { node, timer: setInterval(tick, 1000) };
    this.show();
  }

  endRetry() {
    if (!this.retry) return;
    clearInterval(this.retry.timer);
    this.remove(this.retry.node);
    this.retry = null;
  }

  /** @param {EventOf<'auto_retry_end'>} fields */
  retryEnd({ success, attempt }) {
    this.endRetry();
    if (success) {
      this.notice('again', `Went through after ${count(attempt, 'more attempt')}`);
      return;
    }
    // What went wrong stays, and can be tried again.
    if (this.lastAnswer) this.lastAnswer.gone = false;
    this.show();
  }
}
