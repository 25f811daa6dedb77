// The session's entries as a tree. The end of a session is fetched first, then the rest, page by page, and from then on
// only what is new. Everything on the page that can be gone back to is found here by its id.

import { splitFiles } from '../shared/attached.js';
import { imagesOf, oneLine, plainWords, textOf } from '../shared/format.js';
import { readable } from './figures.js';

const READABLE = new Set(['message', 'custom_message', 'compaction', 'branch_summary']);
const FIRST = globalThis.wire.FIRST.get_entries; // asked for before this script ran
const PAGE = 4000; // entries in one page; the server makes it shorter if they are long

/**
 * The beginning of a text, without the marks of Markdown.
 * @param {unknown} content
 */
const preview = content => plainWords(splitFiles(textOf(content)).text);

export class Entries {
  /** @type {Map<string | null, Entry>} */
  byId;
  /** @type {Map<string | null, Entry[]>} */
  childrenOf;
  /** @type {Map<string, string>} */
  labels;
  /** @type {Promise<boolean> | null} */
  fetching;
  /** @type {string | null} */
  sessionId;
  /** @type {string | null} */
  leafId;
  /** @type {string | undefined} */
  firstId;
  /** @type {string | undefined} */
  lastId;
  /** @type {number} */
  divided;
  /** @type {number} */
  checkpoints;
  /** @type {number} */
  first;
  /** @type {number} */
  next;
  /** @type {boolean} */
  isWhole;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.clear();
  }

  clear() {
    this.sessionId = this.session.id;
    this.byId = new Map();
    this.childrenOf = new Map(); // id → entries, also of an entry that is not here yet
    this.labels = new Map();
    this.divided = 0; // entries that have more than one child
    this.checkpoints = 0;
    this.leafId = null;
    this.firstId = this.lastId = undefined; // in the order in which they were stored
    this.first = this.next = 0; // the place of the first one, and of the next to come: only their order counts
    this.isWhole = false;
    this.fetching = null; // a page that is on its way
  }

  /**
   * @param {{ since?: string, before?: string, limit?: number }} fields
   * @returns {Answer<'get_entries'>}
   */
  ask(fields) {
    const { session } = this;
    if (session.held) return session.call('get_stored_entries', { session: session.held.id, ...fields });
    return fields === FIRST ? session.wire.first('get_entries') : session.call('get_entries', fields);
  }

  /** Fetch enough of the end to show it, or what is new if there is something already. */
  async begin() {
    if (this.sessionId !== this.session.id) this.clear();
    if (this.lastId !== undefined) return this.refresh();
    const { byId } = this;
    const { entries, leafId, more } = await this.ask(FIRST);
    if (this.byId !== byId) return this; // of a session that was left meanwhile
    this.isWhole = !more;
    this.leafId = leafId;
    for (const entry of entries) if (!byId.has(entry.id)) this.add(entry, this.next++);
    this.firstId = entries[0]?.id;
    this.lastId = entries.at(-1)?.id;
    while (!this.isWhole && !this.tail().length && this.byId === byId) await this.fetchEarlier();
    return this;
  }

  /** Fetch the page before what is here. Returns whether there was something to fetch. */
  fetchEarlier() {
    if (this.isWhole) return false;
    this.fetching ??= this.fetchPage().finally(() => {
      this.fetching = null;
    });
    return this.fetching;
  }

  async fetchPage() {
    const { byId } = this;
    const { entries, more } = await this.ask({ before: this.firstId, limit: PAGE });
    if (this.byId !== byId) return false;
    for (const entry of entries.reverse()) if (!byId.has(entry.id)) this.add(entry, --this.first);
    this.firstId = entries.at(-1)?.id;
    this.isWhole = !more;
    return true;
  }

  async refresh() {
    if (this.sessionId !== this.session.id) this.clear();
    const { byId } = this;
    const { entries, leafId } = await this.ask({ since: this.lastId });
    if (this.byId !== byId) return this;
    if (this.lastId === undefined) this.isWhole = true;
    // Two requests at the same time get the same entries.
    for (const entry of entries) if (!byId.has(entry.id)) this.add(entry, this.next++);
    this.lastId = entries.at(-1)?.id ?? this.lastId;
    this.leafId = leafId;
    return this;
  }

  /**
   * @param {any} raw
   * @param {number} order
   */
  add(raw, order) {
    const { id, parentId, type, message, targetId, label, customType } = raw;
    // What was fetched later may have been stored before.
    if (type === 'label' && (order >= 0 || !this.labels.has(targetId))) this.labels.set(targetId, label);
    if (customType === 'checkpoint') this.checkpoints++;
    const entry = { id, parentId, type, order, children: this.children(id), role: message?.role ?? type, raw };
    this.byId.set(id, entry);
    const beside = this.children(parentId);
    if (beside.length && order < beside[0].order) beside.unshift(entry);
    else beside.push(entry);
    if (beside.length === 2) this.divided++;
  }

  /** @param {string | null} id */
  children(id) {
    const known = this.childrenOf.get(id) ?? [];
    this.childrenOf.set(id, known);
    return known;
  }

  get roots() {
    const found = [...this.byId.values()].filter(entry => !this.byId.has(entry.parentId));
    return found.sort((a, b) => a.order - b.order);
  }

  /** The way from the beginning, as far as it is here, to where the conversation is. */
  path() {
    const path = [];
    for (let entry = this.byId.get(this.leafId); entry; entry = this.byId.get(entry.parentId)) path.push(entry);
    return path.reverse();
  }

  /**
   * The part of the path that can be shown: all of it, or while the rest is on its way, from a message of the user on. It
   * has all that the last summary has kept. It is empty if that is not here yet.
   */
  tail() {
    const path = this.path();
    if (this.isWhole) return path;
    const from = path.findIndex(({ role }) => role === 'user');
    const compacted = path.findLast(({ type }) => type === 'compaction');
    const kept = compacted ? path.findIndex(({ id }) => id === compacted.raw.firstKeptEntryId) : from;
    return from < 0 || kept < from ? [] : path.slice(from);
  }

  /**
   * The entries that were stored after one, in their order.
   * @param {string} id
   */
  after(id) {
    const order = this.byId.get(id)?.order ?? -Infinity;
    const found = [...this.byId.values()].filter(entry => entry.order > order);
    return found.sort((a, b) => a.order - b.order);
  }

  /**
   * The branches that begin beside an entry, itself included, as far as there is something to read.
   * @param {Entry} entry
   */
  siblings(entry) {
    const all = this.byId.has(entry.parentId) ? this.children(entry.parentId) : this.isWhole ? this.roots : [entry];
    return all.length < 2 ? all : all.filter(child => child === entry || this.readableIn(child));
  }

  /** @param {Entry} entry */
  readableIn(entry) {
    const stack = [entry];
    for (let one; (one = stack.pop());) {
      if (READABLE.has(one.type)) return true;
      stack.push(...one.children);
    }
    return false;
  }

  /**
   * The newest end of the branch that an entry begins.
   * @param {Entry} entry
   */
  newest(entry) {
    let last = entry;
    const stack = [entry];
    for (let one; (one = stack.pop());) {
      if (READABLE.has(one.type) && one.order > last.order) last = one;
      stack.push(...one.children);
    }
    return last;
  }
}

/**
 * What a line of the tree says of an entry. Entries never change, so it is found out once.
 * @param {Entry} entry
 */
export function gist(entry) {
  entry.gist ??= gistOf(entry.raw);
  return entry.gist;
}

/** @param {any} fields */
function gistOf({ type, message, summary, content, customType, display }) {
  const said = { text: '', images: 0, calls: [], error: '' };
  if (message) {
    said.text = message.role === 'bashExecution' ? oneLine(message.command) : preview(message.content);
    said.images = imagesOf(message.content).length;
    if (message.role === 'assistant')
      said.calls = message.content
        .filter((/** @type {any} */ block) => block.type === 'toolCall')
        .map((/** @type {any} */ call) => call.name);
    said.error = readable(message.errorMessage ?? '');
  } else if (summary) said.text = preview(summary);
  else if (type === 'custom_message' && display) said.text = preview(content) || customType;
  return said;
}
