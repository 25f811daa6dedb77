// The session's entries as a tree: fetched once, then only what is new. Everything on the page that can be gone back
// to is found here by its id.

import { imagesOf, oneLine, textOf } from '../shared/format.js';
import { readable } from './figures.js';

const READABLE = new Set(['message', 'custom_message', 'compaction', 'branch_summary']);

/** The beginning of a text, without the marks of Markdown. */
const preview = content => oneLine(textOf(content)).replace(/\*\*|`|^#+ /g, '');

export class Entries {
  constructor(session) {
    this.session = session;
    this.clear();
  }

  clear() {
    this.sessionId = this.session.id;
    this.byId = new Map();
    this.labels = new Map();
    this.leafId = null;
    this.lastId = undefined;
  }

  async refresh() {
    if (this.sessionId !== this.session.id) this.clear();
    const { byId } = this;
    const { entries, leafId } = await this.session.call('get_entries', { since: this.lastId });
    if (this.byId !== byId) return this; // of a session that was left meanwhile
    // Two requests at the same time get the same entries.
    for (const entry of entries) if (!byId.has(entry.id)) this.add(entry);
    this.leafId = leafId;
    return this;
  }

  add(raw) {
    const { id, parentId, type, message, targetId, label } = raw;
    this.lastId = id;
    if (type === 'label') this.labels.set(targetId, label);
    const entry = { id, parentId, type, children: [], role: message?.role ?? type, raw };
    this.byId.set(id, entry);
    this.byId.get(parentId)?.children.push(entry);
  }

  get roots() {
    return [...this.byId.values()].filter(entry => !this.byId.has(entry.parentId));
  }

  /** The way from the beginning to where the conversation is. */
  path() {
    const path = [];
    for (let entry = this.byId.get(this.leafId); entry; entry = this.byId.get(entry.parentId)) path.push(entry);
    return path.reverse();
  }

  /** The branches that begin beside an entry, itself included, as far as there is something to read. */
  siblings(entry) {
    const parent = this.byId.get(entry.parentId);
    const all = parent ? parent.children : this.roots;
    return all.length < 2 ? all : all.filter(child => child === entry || this.readableIn(child));
  }

  readableIn(entry) {
    for (const stack = [entry]; stack.length;) {
      const one = stack.pop();
      if (READABLE.has(one.type)) return true;
      stack.push(...one.children);
    }
    return false;
  }

  /** The newest end of the branch that an entry begins. */
  newest(entry) {
    let last = entry;
    const order = new Map([...this.byId.keys()].map((id, i) => [id, i]));
    for (const stack = [entry]; stack.length;) {
      const one = stack.pop();
      if (READABLE.has(one.type) && order.get(one.id) > order.get(last.id)) last = one;
      stack.push(...one.children);
    }
    return last;
  }
}

/** What a line of the tree says of an entry. Entries never change, so it is found out once. */
export function gist(entry) {
  entry.gist ??= gistOf(entry.raw);
  return entry.gist;
}

function gistOf({ type, message, summary, content, customType, display }) {
  const said = { text: '', images: 0, calls: [], error: '' };
  if (message) {
    said.text = message.role === 'bashExecution' ? oneLine(message.command) : preview(message.content);
    said.images = imagesOf(message.content).length;
    if (message.role === 'assistant')
      said.calls = message.content.filter(block => block.type === 'toolCall').map(call => call.name);
    said.error = readable(message.errorMessage ?? '');
  } else if (summary) said.text = preview(summary);
  else if (type === 'custom_message' && display) said.text = preview(content) || customType;
  return said;
}
