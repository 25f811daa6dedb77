// The rows of a stretch of the conversation, made of messages in their order: of stored ones, and of those that come.

import { BACKGROUND, noteEnd } from '../shared/background.js';
import { button } from '../shared/dom.js';
import { count, imagesOf, obj, oneLine, textOf } from '../shared/format.js';
import { Row } from '../shared/list.js';
import { isAside } from '../shared/tool-card.js';
import { readable, tokens } from './figures.js';
import { bashExecution, custom, noticeOf, summary, userMessage } from './messages.js';
import { Turn } from './turns.js';

const ROWS_AT_ONCE = 400; // entries whose rows are made in a few milliseconds

export class MessageRow extends Row {
  /**
   * @param {string} kind
   * @param {Act} build
   * @param {number} [height]
   */
  constructor(kind, build, height) {
    super(kind, build, height);
    /** @type {string | null} */
    this.id = null; // of its entry
    /** @type {Turn | null} */
    this.turn = null;
    this.step = -1; // of an answer: its place in the turn
    /** @type {number[] | null} */
    this.thoughts = null; // how long it thought, by the place of the thoughts in the message
    this.older = false; // a summary stands for it
    this.gone = false; // not to be seen
    /** @type {any} */
    this.fork = null; // where the conversation divides before it: {entry, all}
    /** @type {any} */
    this.answer = null; // while it is being written
    /** @type {any} */
    this.message = null; // of an answer that is complete
    this.results = new Map(); // of its calls, by their place in the message
    this.durations = new Map(); // the same
    this.atWork = false; // its calls may still run
  }
}

export class Rows {
  /**
   * `page`: `show()` when a turn is opened, `toggleOlder()` and `olderOpen`, `buildAnswer(row)`, `addSwitch(row, node)`,
   * `actions` as of the conversation.
   * @param {any} page
   */
  constructor(page) {
    this.page = page;
    /** @type {MessageRow[]} */
    this.all = [];
    this.byEntry = new Map(); // entry id → row
    this.calls = new Map(); // the last call with each id: {row, index, block}; some servers use ids again and again
    this.ends = new Map(); // id of a command in the background → how it ended
    this.turn = null; // the last one
    this.summarises = false; // there is a summary that stands for what comes before
  }

  /**
   * Put the rows of what came before in front of these. They are of other turns.
   * @param {Rows} earlier
   */
  prepend(earlier) {
    this.all = [...earlier.all, ...this.all];
    for (const [id, row] of earlier.byEntry) this.byEntry.set(id, row);
    for (const [id, words] of earlier.ends) this.ends.set(id, words);
    this.turn ??= earlier.turn;
  }

  /**
   * Make the rows of a stretch of the path; after some of them it yields. With `older` a summary that comes later stands
   * for all of it. `isWhole` says that nothing comes before it.
   * @param {Entry[]} path
   */
  *adding(path, { older = false, isWhole = true } = {}) {
    const compacted = older ? undefined : path.findLast(({ type }) => type === 'compaction');
    const kept = compacted ? path.findIndex(({ id }) => id === compacted.raw.firstKeptEntryId) : -1;
    const edge = older ? path.length : kept < 0 && compacted ? path.indexOf(compacted) : kept;
    for (const [i, entry] of path.entries()) {
      if (compacted && i === Math.max(edge, 0)) this.addSummary(compacted, i > 0 || !isWhole);
      if (entry !== compacted) {
        const before = this.all.length;
        this.addSafely(entry, path[i + 1]);
        if (i < edge) for (let at = before; at < this.all.length; at++) this.all[at].older = true;
      }
      if (i % ROWS_AT_ONCE === ROWS_AT_ONCE - 1) yield;
    }
  }

  /**
   * @param {Entry} entry
   * @param {Entry} [next]
   */
  addSafely(entry, next) {
    try {
      this.addEntry(entry, next);
    } catch (error) {
      // A message of another program in a shape of its own must not cost the page all the others.
      const words = `A message that cannot be shown (${entry.role}): ${error.message}`;
      this.add(new MessageRow('notice', () => noticeOf('warning', words)));
    }
  }

  /**
   * @param {Entry} entry
   * @param {Entry} [next]
   */
  addEntry(entry, next) {
    const { raw } = entry;
    if (raw.type === 'custom_message') this.addMessage({ role: 'custom', ...raw }, entry);
    else if (raw.type === 'branch_summary') this.addMessage({ role: 'branchSummary', summary: raw.summary }, entry);
    else if (raw.type === 'compaction') this.addMessage({ role: 'compactionSummary', ...raw }, entry);
    else if (raw.type !== 'message') return;
    else if (raw.message.role === 'assistant' && raw.message.stopReason === 'error' && next?.role === 'assistant') {
      const words = `${oneLine(readable(raw.message.errorMessage ?? 'The model failed.'), 200)} · tried again`;
      this.add(new MessageRow('notice', () => noticeOf('again', words), 42)).turn = this.turn;
    } else this.addMessage(raw.message, entry);
  }

  /**
   * @param {Entry} entry
   * @param {boolean} hasOlder
   */
  addSummary(entry, hasOlder) {
    const { raw } = entry;
    const { page } = this;
    this.summarises = true;
    const build = () => {
      const title = `The conversation before this was summarised (${count(raw.tokensBefore ?? 0, 'token', tokens)})`;
      const words = () => (page.olderOpen ? 'Hide the earlier conversation' : 'Show the earlier conversation');
      const toggle = () => {
        page.toggleOlder();
        older.textContent = words();
        older.ariaExpanded = String(page.olderOpen);
      };
      const older = button('link', toggle, words());
      older.ariaExpanded = String(page.olderOpen);
      return summary('compact', title, raw.summary, hasOlder ? older : null);
    };
    const row = new MessageRow('summary', build, 60);
    row.id = entry.id;
    this.add(row);
  }

  /**
   * Add the row of a stored message.
   * @param {any} message
   * @param {Entry} entry
   */
  addMessage(message, entry) {
    const row = this.rowOf(message, Date.parse(entry.raw.timestamp));
    if (!row) return;
    this.name(row, entry.id);
    this.add(row);
  }

  /**
   * Say where the message of a row is stored.
   * @param {MessageRow} row
   * @param {string} [id]
   */
  name(row, id) {
    row.id = id ?? null;
    if (!id) return;
    this.byEntry.set(id, row);
    if (row.kind === 'user' && this.turn) this.turn.id = id;
  }

  /**
   * Make the row of a message; results go to the row of their call.
   * @param {any} message
   * @param {number} when
   */
  rowOf(message, when) {
    switch (message.role) {
      case 'user':
        return this.userRow(message, when);
      case 'assistant':
        return this.answerRow(message, when);
      case 'toolResult':
        this.takeResult(message, when);
        return null;
      case 'bashExecution':
        return new MessageRow('shell', () => bashExecution(message), 140);
      case 'custom':
        if (message.customType === BACKGROUND) noteEnd(this.ends, textOf(message.content));
        return message.display ? new MessageRow('custom', () => custom(message)) : null;
      case 'compactionSummary':
        return new MessageRow(
          'summary',
          () => summary('compact', `Summarised: ${count(message.tokensBefore ?? 0, 'token', tokens)}`, message.summary),
          42,
        );
      case 'branchSummary':
        return new MessageRow(
          'summary',
          () => summary('branch', 'Notes on a branch that was left', message.summary),
          42,
        );
      default:
        return null;
    }
  }

  /**
   * @param {UserMessage} message
   * @param {number} when
   */
  userRow(message, when) {
    const { page } = this;
    const build = () => {
      const images = imagesOf(message.content);
      const node = userMessage(message, {
        id: () => row.id,
        fork: () => page.actions.fork(row.id),
        undo: () => page.actions.undo(row.id),
        save: (/** @type {string} */ text) => page.actions.save(row.id, text, images),
        // Who answers it may not see them; before it is answered that is the present model.
        note: images.length ? page.actions.blind(turn.first) : null,
      });
      page.addSwitch(row, node);
      return node;
    };
    const row = new MessageRow('user', build, 90 + Math.min(260, textOf(message.content).length / 3));
    if (this.turn) this.turn.newest = this.turn.running = false;
    this.turn?.paint();
    const turn = (this.turn = new Turn(when, () => page.show()));
    turn.newest = true;
    return row;
  }

  /**
   * @param {AssistantMessage} message
   * @param {number} when
   */
  answerRow(message, when) {
    const height = 70 + Math.min(1200, textOf(message.content).length / 3);
    const row = new MessageRow('answer', () => this.page.buildAnswer(row), height);
    this.noteAnswer(row, message, when);
    return row;
  }

  /**
   * Count an answer into its turn, whose line stands before the first one that calls tools.
   * @param {MessageRow} row
   * @param {AssistantMessage} message
   * @param {number} when
   */
  noteAnswer(row, message, when) {
    row.message = message;
    this.turn ??= new Turn(when, () => this.page.show());
    this.turn.newest = true;
    if (row.step < 0) this.turn.step(row); // else it is known since its beginning
    row.turn = this.turn;
    this.turn.first ??= message;
    this.turn.takeAnswer(message, when);
    message.content.forEach((block, /** @type {number} */ index) => {
      if (block?.type === 'toolCall') this.calls.set(block.id, { row, index, block });
    });
    this.turn.paint();
  }

  /**
   * Returns the row of the call, if it is known.
   * @param {ToolResultMessage} message
   * @param {number} when
   */
  takeResult(message, when) {
    const call = this.calls.get(message.toolCallId);
    if (!call) return null;
    if (isAside(message.toolName, obj(call.block.arguments))) noteEnd(this.ends, textOf(message.content));
    call.row.results.set(call.index, message);
    call.row.turn.takeResult(message.toolName, call.block.arguments, message.isError, when);
    call.row.turn.paint();
    return call.row;
  }

  /** @param {MessageRow} row */
  add(row) {
    if (row.kind === 'answer' && row.turn?.tools && !row.turn.line) this.addLine(row.turn);
    this.all.push(row);
    return row;
  }

  /** @param {Turn} turn */
  addLine(turn, before = this.all.length) {
    turn.line = new MessageRow('turn', () => turn.build(), 38);
    this.all.splice(before, 0, turn.line);
  }
}
