// What has changed in files: as the server compares them, whoever has changed them; without checkpoints, as the tools
// have told. A change has `path`, `about`, `added` and `removed` (once it is `ready()`), `patch`, and `parts()`, the hunks.

import { counts, hunksOfPatch, hunksOfRows, rowsOfDiff, rowsOfText } from '../shared/diff.js';
import { slices } from '../shared/dom.js';
import { count, obj, str } from '../shared/format.js';
import { CHANGING, pathOf } from '../shared/tool-card.js';
import { MergedChanges, patchOf } from './merged-changes.js';

const PAUSE_MS = 700; // between two looks at the files

/** How a file differs from the first checkpoint. */
class Compared {
  /** @param {any} fields */
  constructor({ path, status, oldPath, added, removed, diff }) {
    this.path = path;
    this.oldPath = oldPath;
    this.status = status;
    this.added = added ?? 0;
    this.removed = removed ?? 0;
    this.patch = diff ?? '';
    const form = added === undefined ? 'binary' : diff === undefined ? 'too long to show' : '';
    const what = oldPath ? `renamed from ${oldPath}` : status === 'modified' ? '' : status;
    this.about = [what, form].filter(Boolean).join(', ');
    this.isKept = true; // it can be taken back
    this.mark = this.patch; // what is to be seen of it
  }

  ready() {}

  parts() {
    return hunksOfPatch(this.patch);
  }
}

/** What tools have told of a file. They are put together when somebody wants to see it. */
class Told {
  /** @param {string} path */
  constructor(path) {
    this.path = path;
    /** @type {any[]} */
    this.steps = []; // of those that are not merged yet
    this.merged = [new MergedChanges()]; // several if something else has changed the file in between
    this.added = this.removed = 0;
    this.about = '';
    this.mark = 0; // changes that are put together
  }

  /**
   * Put together what was told; `pause` is waited for after each step.
   * @param {Act} pause
   */
  async ready(pause) {
    if (!this.steps.length) return;
    const { steps } = this;
    this.steps = [];
    for (const { content, diff, patch } of steps) {
      if (content !== undefined) this.last.write(rowsOfText(content));
      else this.edit(diff ? rowsOfDiff(diff) : [], patch);
      await pause();
    }
    const sums = this.merged.map(one => counts(one.rows()));
    this.added = sums.reduce((sum, { added }) => sum + added, 0);
    this.removed = sums.reduce((sum, { removed }) => sum + removed, 0);
    const number = this.merged.reduce((sum, { size }) => sum + size, 0);
    const facts = [
      this.merged[0].whole ? 'written whole' : '',
      number > 1 ? count(number, 'change') : '',
      this.merged.length > 1 ? 'something else has changed the file in between' : '',
      this.added + this.removed ? '' : 'nothing is left of it',
    ];
    this.about = facts.filter(Boolean).join(', ');
    this.mark = number;
  }

  /**
   * @param {DiffRow[]} rows
   * @param {string} patch
   */
  edit(rows, patch) {
    if (this.last.edit(rows, patch)) return;
    this.merged.push(new MergedChanges());
    this.last.edit(rows, patch);
  }

  get last() {
    return this.merged[this.merged.length - 1];
  }

  get patch() {
    return this.merged.map(one => patchOf(this.path, one)).join('');
  }

  parts() {
    return this.merged.flatMap(one => hunksOfRows(one.rows()));
  }
}

export class FileChanges {
  /** @type {number} */
  read;
  /** @type {Entry | undefined} */
  last;
  /** @type {Map<string, any>} */
  calls;
  /** @type {Map<string, Told>} */
  told;
  /** @type {Map<string, any>} */
  files;

  /**
   * `changed()` is called when files have changed.
   * @param {Session} session
   * @param {Act} changed
   */
  constructor(session, changed) {
    this.session = session;
    this.changed = changed;
    this.files = new Map(); // path → its change
    this.forget();
    session.on('reset', () => this.forget());
    for (const event of ['entries', 'reset']) session.on(event, () => this.look());
    // Files are changed by more than tools: by commands of the user, in the background, and by others.
    for (const event of ['shell_end', 'background_end'])
      session.on(event, () => session.attempt(() => session.updateEntries()).then(() => this.look()));
    document.addEventListener('visibilitychange', () => document.hidden || this.look());
    addEventListener('focus', () => this.look());
    for (const event of ['tool_execution_end', 'agent_settled'])
      session.on(event, () => session.attempt(() => session.updateEntries()));
    // Calls may have ended while this part was on its way.
    session.attempt(() => session.updateEntries());
  }

  /** Begin again: the conversation may be another one. */
  forget() {
    this.read = 0; // entries of the path
    this.last = undefined; // of them
    this.calls = new Map();
    this.told = new Map();
  }

  /** Look at the files, and once more if something happens meanwhile. */
  async look() {
    this.isOld = true;
    if (this.isLooking) return;
    this.isLooking = true;
    while (this.isOld) {
      this.isOld = false;
      // Whether the agent keeps checkpoints of this conversation's files: then the files themselves are compared.
      if (this.session.entries.checkpoints) await this.session.attempt(() => this.compare());
      else await this.listen();
      this.changed();
      if (this.isOld) await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
    }
    this.isLooking = false;
  }

  async compare() {
    const { files } = await this.session.call('get_changes');
    // What has not changed stays the same object.
    /** @param {ChangedFile} file */
    const same = file => {
      const known = this.files.get(file.path);
      return known?.patch === (file.diff ?? '') && known.status === file.status ? known : new Compared(file);
    };
    this.files = new Map(files.map(file => [file.path, same(file)]));
  }

  /** Take what tools have told since the last time. */
  async listen() {
    const { entries } = this.session;
    if (!entries.isWhole) return;
    const path = entries.path();
    if (path[this.read - 1] !== this.last) this.forget();
    const { told } = this;
    const pause = slices();
    while (this.read < path.length && this.told === told) {
      this.last = path[this.read++];
      this.take(this.last.raw.message);
      await pause();
    }
    this.files = this.told;
  }

  /** @param {Message} message */
  take(message) {
    if (message?.role === 'assistant' && Array.isArray(message.content)) {
      for (const block of message.content)
        if (block?.type === 'toolCall' && CHANGING.has(block.name)) this.calls.set(block.id, block);
    } else if (message?.role === 'toolResult' && !message.isError) {
      const call = this.calls.get(message.toolCallId);
      if (!call) return;
      const args = obj(message.changedInput ?? call.arguments);
      const path = this.shortened(pathOf(args));
      if (!path) return;
      const told = this.told.get(path) ?? new Told(path);
      this.told.set(path, told);
      const { diff, patch } = obj(message.details);
      const step = call.name === 'write' ? { content: str(args.content) } : { diff: str(diff), patch: str(patch) };
      told.steps.push(step);
    }
  }

  /**
   * One file may be named in several ways.
   * @param {string} path
   */
  shortened(path) {
    const { cwd } = this.session;
    const inside = cwd && path.startsWith(`${cwd}/`) ? path.slice(cwd.length + 1) : path;
    return inside.replace(/^(?:\.\/)+/, '');
  }
}
