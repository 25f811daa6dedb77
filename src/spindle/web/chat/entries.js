// The session's entries as a tree: fetched once, then only what is new. Messages carry no ids; their entries do.

import { imagesOf, oneLine, textOf } from '../shared/format.js';
import { readable } from './figures.js';

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

  add({ id, parentId, type, message, summary, targetId, label, customType, content, display }) {
    this.lastId = id;
    if (type === 'label') this.labels.set(targetId, label);
    const entry = { id, parentId, type, children: [], role: message?.role ?? type, text: '' };
    if (message) {
      entry.text = message.role === 'bashExecution' ? oneLine(message.command) : preview(message.content);
      entry.images = imagesOf(message.content).length;
      entry.calls =
        message.role === 'assistant'
          ? message.content.filter(block => block.type === 'toolCall').map(call => call.name)
          : [];
      entry.error = readable(message.errorMessage ?? '');
    } else if (summary) entry.text = preview(summary);
    else if (content && display) entry.text = preview(content) || customType;
    this.byId.set(id, entry);
    this.byId.get(parentId)?.children.push(entry);
  }

  get roots() {
    return [...this.byId.values()].filter(entry => !this.byId.has(entry.parentId));
  }

  /** The way from the beginning to where the conversation is. */
  path() {
    const path = [];
    for (let entry = this.byId.get(this.leafId); entry; entry = this.byId.get(entry.parentId)) path.unshift(entry);
    return path;
  }

  /** The entry of a message of the user that is shown, found by counting from the end. */
  entryOf(message) {
    const shown = this.session.messages.filter(({ role }) => role === 'user');
    const stored = this.path().filter(({ role }) => role === 'user');
    return stored[stored.length - (shown.length - shown.indexOf(message))];
  }
}
