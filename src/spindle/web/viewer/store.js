// The session in memory. The lines stay text; an index over them holds what the tree needs, and an entry is parsed
// again when it is shown. So a session of a hundred thousand entries costs a few typed arrays, and no step is
// quadratic or recursive.

import { BACKGROUND, noteEnd } from '../shared/background.js';
import { breathe } from '../shared/dom.js';
import { list, obj, str, textOf } from '../shared/format.js';

export const KIND = {
  USER: 0,
  ASSISTANT: 1,
  TOOL: 2,
  BASH: 3,
  CUSTOM: 4,
  HIDDEN: 5,
  COMPACTION: 6,
  SUMMARY: 7,
  MODEL: 8,
  LEVEL: 9,
  LABEL: 10,
  INFO: 11,
  STATE: 12,
  OTHER: 13,
};
/** @type {Record<string, any>} */
const ROLES = { user: KIND.USER, assistant: KIND.ASSISTANT, toolResult: KIND.TOOL, bashExecution: KIND.BASH };
/** @type {Record<string, any>} */
const TYPES = {
  compaction: KIND.COMPACTION,
  branch_summary: KIND.SUMMARY,
  model_change: KIND.MODEL,
  thinking_level_change: KIND.LEVEL,
  label: KIND.LABEL,
  session_info: KIND.INFO,
  custom: KIND.STATE,
};
export const SHOWN = new Set([
  KIND.USER,
  KIND.ASSISTANT,
  KIND.TOOL,
  KIND.BASH,
  KIND.CUSTOM,
  KIND.COMPACTION,
  KIND.SUMMARY,
  KIND.OTHER,
]);
export const TOOL_ONLY = 1;
export const FAULT = 2;

/** @param {any} entry */
function kindOf(entry) {
  if (entry.type === 'message') {
    const role = str(obj(entry.message).role);
    if (Object.hasOwn(ROLES, role)) return ROLES[role];
    if (role === 'custom' || role === 'hookMessage')
      return obj(entry.message).display === false ? KIND.HIDDEN : KIND.CUSTOM;
    return KIND.OTHER;
  }
  if (entry.type === 'custom_message') return entry.display === false ? KIND.HIDDEN : KIND.CUSTOM;
  return Object.hasOwn(TYPES, str(entry.type)) ? TYPES[entry.type] : KIND.OTHER;
}

export class Store {
  dead = new Uint8Array(0); // an id that comes again later; the later entry counts
  childStart = new Int32Array(0); // children of i: childList[childStart[i] .. childStart[i + 1]]; of count: the roots
  childList = new Int32Array(0);
  newest = new Int32Array(0); // of every entry the newest leaf below it
  readable = new Uint8Array(0); // whether there is something to read, there or below
  /** @type {Map<string, string>} a command in the background → how it ended */
  ends = new Map();
  /** @type {string[]} */
  parentIds;

  /** @param {string} text */
  constructor(text) {
    this.text = text;
    let at = text.indexOf('\n') + 1;
    let end = text.indexOf('\n', at);
    this.meta = JSON.parse(text.slice(at, end));
    this.sessionAt = at = end + 1;
    end = text.indexOf('\n', at);
    this.header = obj(JSON.parse(text.slice(at, end)));
    this.firstEntryAt = end + 1;
    const n = (this.count = this.meta.entries);
    this.starts = new Uint32Array(n + 1);
    this.kind = new Uint8Array(n);
    this.flags = new Uint8Array(n);
    this.size = new Uint32Array(n);
    this.time = new Float64Array(n);
    this.parent = new Int32Array(n).fill(-1);
    this.call = new Int32Array(n).fill(-1); // of a tool result: the entry that made the call
    this.ids = new Array(n);
    this.parentIds = new Array(n);
    this.byId = new Map();
    this.labels = new Map();
    this.cache = new Map();
  }

  /** The session as JSON lines, for download. */
  jsonl() {
    // In the page every < is written as an escape; a pair of backslashes is not the beginning of one.
    return this.text.slice(this.sessionAt).replace(/\\(?:\\|u003c)/g, found => (found === '\\\\' ? found : '<'));
  }

  /** @param {number} i */
  line(i) {
    return this.text.slice(this.starts[i], this.starts[i + 1] - 1);
  }

  /** @param {number} i */
  entry(i) {
    let entry = this.cache.get(i);
    if (entry === undefined) {
      entry = obj(JSON.parse(this.line(i)));
      if (this.cache.size > 500) this.cache.delete(this.cache.keys().next().value);
      this.cache.set(i, entry);
    }
    return entry;
  }

  /**
   * Read all lines, a slice at a time, so that the page answers meanwhile.
   * @param {Act} progress
   */
  async load(progress) {
    const calls = new Map();
    let at = this.firstEntryAt;
    let pause = performance.now() + 60;
    for (let i = 0; i < this.count; i++) {
      this.starts[i] = at;
      const end = this.text.indexOf('\n', at);
      this.note(i, obj(JSON.parse(this.text.slice(at, end))), calls);
      at = end + 1;
      if ((i & 63) === 63 && performance.now() > pause) {
        progress(i / this.count);
        await breathe();
        pause = performance.now() + 60;
      }
    }
    this.starts[this.count] = at;
    this.link();
  }

  /**
   * @param {number} i
   * @param {any} entry
   * @param {Map<string, number>} calls
   */
  note(i, entry, calls) {
    const id = (this.ids[i] = str(entry.id) || `#${i}`);
    this.byId.set(id, i);
    this.parentIds[i] = str(entry.parentId);
    this.time[i] = Date.parse(str(entry.timestamp));
    const kind = (this.kind[i] = kindOf(entry));
    const message = obj(entry.message);
    if (kind === KIND.ASSISTANT) this.noteAnswer(i, message, calls);
    else if (kind === KIND.TOOL) {
      const call = calls.get(message.toolCallId);
      if (call !== undefined) this.call[i] = call;
      if (message.isError === true) this.flags[i] |= FAULT;
      if (str(message.toolName).startsWith('bash')) noteEnd(this.ends, textOf(message.content));
      this.size[i] = 200;
    } else if (kind === KIND.LABEL) {
      if (str(entry.label)) this.labels.set(str(entry.targetId), entry.label);
      else this.labels.delete(str(entry.targetId));
    } else {
      const text = textOf(message.content ?? entry.content);
      if (kind === KIND.CUSTOM && (entry.customType ?? message.customType) === BACKGROUND) noteEnd(this.ends, text);
      this.size[i] = text.length;
    }
  }

  /**
   * @param {number} i
   * @param {AssistantMessage} message
   * @param {Map<string, number>} calls
   */
  noteAnswer(i, message, calls) {
    let text = 0;
    let tools = 0;
    for (const block of list(message.content)) {
      if (obj(block).type === 'toolCall') {
        tools++;
        calls.set(block.id, i);
      } else if (obj(block).type === 'text') text += str(block.text).trim().length;
    }
    if (text === 0) this.flags[i] |= TOOL_ONLY;
    if (message.stopReason === 'error' || message.stopReason === 'aborted') this.flags[i] |= FAULT;
    this.size[i] = text + tools * 500;
  }

  /** Turn parent ids into a tree that holds whatever the file says: orphans, circles and double ids included. */
  link() {
    const { count: n, parent, byId } = this;
    this.dead = new Uint8Array(n);
    for (let i = 0; i < n; i++) {
      if (byId.get(this.ids[i]) !== i) this.dead[i] = 1;
      else parent[i] = byId.get(this.parentIds[i]) ?? -1;
    }
    this.parentIds = [];
    this.cutCircles();
    this.childStart = new Int32Array(n + 2);
    for (let i = 0; i < n; i++) if (!this.dead[i]) this.childStart[(parent[i] < 0 ? n : parent[i]) + 1]++;
    for (let i = 0; i <= n; i++) this.childStart[i + 1] += this.childStart[i];
    const fill = this.childStart.slice();
    this.childList = new Int32Array(this.childStart[n + 1]);
    for (let i = 0; i < n; i++) if (!this.dead[i]) this.childList[fill[parent[i] < 0 ? n : parent[i]]++] = i;
    for (let i = 0; i < n; i++) this.sortChildren(i);
    this.measure();
  }

  cutCircles() {
    const walk = new Int32Array(this.count); // the walk that came by, counted from 1
    for (let i = this.count - 1; i >= 0; i--) {
      let last = -1;
      let at = i;
      while (at >= 0 && walk[at] === 0) {
        walk[at] = i + 1;
        last = at;
        at = this.parent[at];
      }
      if (at >= 0 && last >= 0 && walk[at] === i + 1) this.parent[last] = -1;
    }
  }

  /** @param {number} i */
  sortChildren(i) {
    const children = this.childList.subarray(this.childStart[i], this.childStart[i + 1]);
    if (children.length < 2) return;
    for (const child of children) if (Number.isNaN(this.time[child])) return;
    children.sort((a, b) => this.time[a] - this.time[b] || a - b);
  }

  /** @param {number} i */
  children(i) {
    return this.childList.subarray(this.childStart[i], this.childStart[i + 1]);
  }

  measure() {
    const n = this.count;
    const order = new Int32Array(this.childList.length);
    let filled = 0;
    for (const root of this.children(n)) order[filled++] = root;
    for (let k = 0; k < filled; k++) for (const child of this.children(order[k])) order[filled++] = child;
    this.newest = new Int32Array(n).fill(-1);
    this.readable = new Uint8Array(n);
    for (let k = filled - 1; k >= 0; k--) {
      const i = order[k];
      if (this.newest[i] < 0) this.newest[i] = i;
      if (SHOWN.has(this.kind[i])) this.readable[i] = 1;
      const up = this.parent[i];
      if (up < 0) continue;
      if (this.newest[i] > this.newest[up]) this.newest[up] = this.newest[i];
      if (this.readable[i]) this.readable[up] = 1;
    }
  }

  /**
   * The entries from the root to `leaf`.
   * @param {number} leaf
   */
  path(leaf) {
    const path = [];
    for (let i = leaf; i >= 0; i = this.parent[i]) path.push(i);
    return path.reverse();
  }

  /** @param {number} i */
  label(i) {
    return this.labels.get(this.ids[i]);
  }

  /**
   * The branches that begin beside `i`, itself included, of those with something to read; none if there is no choice.
   * @param {number} i
   */
  siblings(i) {
    const all = this.children(this.parent[i] < 0 ? this.count : this.parent[i]);
    return all.length < 2 ? [] : Array.from(all).filter(child => this.readable[child]);
  }
}
