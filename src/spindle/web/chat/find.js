// Finding a text in the conversation: in all of it, though only a part is in the document. The server says which entries
// have it and how often; the page shows them one by one, out of whatever they are folded into.

import { $, announce } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { perFrame } from './feed.js';

const TYPING_MS = 150; // after a key, before the server is asked
const MOST_MARKS = 2000;
const TOO_SHORT = /^[\x00-\x7f]?$/; // one letter is everywhere

export class Find {
  /** @type {any[]} */
  found;
  /** @type {Range | null} */
  now;
  /** @type {any} */
  wanted;

  /**
   * @param {Session} session
   * @param {Conversation} conversation
   */
  constructor(session, conversation) {
    this.session = session;
    this.conversation = conversation;
    this.bar = $('find');
    this.field = $('find-text');
    this.found = []; // {entryId, count, start}: entries, and the number of the first hit in each
    this.total = 0;
    this.at = -1;
    this.now = null; // the range of the hit that is shown
    this.wanted = null; // a hit of another conversation, which is on its way: {id, entryId, text}
    this.field.addEventListener('input', () => this.soon());
    this.field.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => this.key(event));
    $('find-next').addEventListener('click', () => this.step(1));
    $('find-previous').addEventListener('click', () => this.step(-1));
    $('find-close').addEventListener('click', () => this.close());
    this.repaint = perFrame(() => this.mark());
    this.rows = new MutationObserver(this.repaint);
    session.on('reset', () => this.arrive() || (this.isOpen && this.look()));
    session.on('message_end', () => this.isOpen && this.soon(false));
  }

  get isOpen() {
    return !this.bar.hidden;
  }

  /**
   * Show a hit, once its conversation is here.
   * @param {any} hit
   */
  come(hit) {
    this.wanted = hit;
    this.arrive();
  }

  open() {
    this.bar.hidden = false;
    this.rows.observe(this.conversation.feed.root, { childList: true });
    if (this.field.value) this.look(true);
  }

  close() {
    this.bar.hidden = true;
    this.rows.disconnect();
    this.found = [];
    this.total = 0;
    this.now = null;
    this.mark();
    $('prompt').focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.isComposing) return;
    if (event.key === 'Enter') this.step(event.shiftKey ? -1 : 1);
    else if (event.key === 'Escape') this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  soon(go = true) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(go), TYPING_MS);
  }

  // -- looking --------------------------------------------------------------------------------------

  /** Ask where the text is; with `go`, show the first place from here on. */
  async look(go = false) {
    const text = this.field.value.trim();
    const before = this.hit(this.at);
    const found = TOO_SHORT.test(text) ? [] : await this.ask(text);
    if (text !== this.field.value.trim()) return; // something else was typed meanwhile
    this.total = 0;
    this.found = found.map(one => ({ ...one, start: (this.total += one.count) - one.count }));
    const same = before && this.found.find(({ entryId }) => entryId === before.entryId);
    this.at = same && before.nth < same.count ? same.start + before.nth : -1;
    this.now = null;
    if (go && this.total) await this.go(this.firstFromHere());
    this.tell();
    this.mark();
  }

  /** @param {string} text */
  async ask(text) {
    /** @type {any[]} */
    let found = [];
    await this.session.attempt(async () => {
      ({ found } = await this.session.call('find_text', { text }));
    });
    return found;
  }

  /**
   * The hit with this number: its entry, and the place in it.
   * @param {number} at
   */
  hit(at) {
    const one = this.found.findLast(({ start }) => start <= at);
    return one && { entryId: one.entryId, nth: at - one.start };
  }

  /** The first hit that does not stand above the window. */
  firstFromHere() {
    const { feed } = this.conversation;
    const top = feed.sticks ? feed.rows.at(-1) : (feed.anchor()?.row ?? feed.rows[0]);
    const id = feed.rows.slice(top?.place ?? 0).find((/** @type {MessageRow} */ row) => row.id)?.id;
    const order = new Map(this.session.entries.path().map((entry, i) => [entry.id, i]));
    const from = order.get(id) ?? order.size;
    return this.found.find(({ entryId }) => (order.get(entryId) ?? 0) >= from)?.start ?? this.total - 1;
  }

  /** @param {number} by */
  step(by) {
    if (this.total) this.go((this.at + by + this.total) % this.total);
  }

  /** @param {number} at */
  async go(at) {
    const { entryId, nth } = this.hit(at);
    this.at = at;
    this.tell();
    const row = await this.conversation.reveal(entryId);
    if (!row || this.at !== at) return;
    const { message } = this.session.entries.byId.get(entryId)?.raw ?? {};
    const card = message?.toolCallId && row.node.querySelector(`[data-call="${CSS.escape(message.toolCallId)}"]`);
    const places = rangesIn(card || row.node, this.field.value.trim());
    this.now = places[Math.min(nth, places.length - 1)] ?? null;
    if (this.now) {
      this.conversation.feed.touch(row); // what is opened here stays open
      unfold(this.now);
      centre(this.now);
    }
    this.mark();
  }

  tell() {
    const nothing = TOO_SHORT.test(this.field.value.trim()) ? '' : 'Nothing found';
    const words = this.total ? `${this.at + 1} of ${this.total}` : nothing;
    $('find-count').textContent = words;
    if (words) announce(this.total ? `Hit ${words}` : words);
    for (const id of ['find-next', 'find-previous']) $(id).disabled = this.total === 0;
  }

  // -- a hit of the search in all conversations -----------------------------------------------------

  /** Go to the hit that was chosen, if its conversation is here. Returns whether it is. */
  arrive() {
    const { session, wanted } = this;
    if (!wanted || wanted.id !== session.id || session.loading) return false;
    this.wanted = null;
    this.showHit(wanted);
    return true;
  }

  /** @param {any} fields */
  async showHit({ entryId, text }) {
    this.bar.hidden = false;
    this.rows.observe(this.conversation.feed.root, { childList: true });
    // The words of a search may stand apart from each other; then the longest of them is looked for.
    const longest = text.split(/\s+/).toSorted((/** @type {any} */ a, /** @type {any} */ b) => b.length - a.length)[0];
    for (const words of new Set([text, longest])) {
      this.field.value = words;
      await this.look();
      const one = this.found.find(hit => hit.entryId === entryId);
      if (one) {
        await this.go(one.start);
        return;
      }
    }
    this.session.report(`It is on another branch: the tree leads to it (${count(this.total, 'hit')} here)`, 'info');
  }

  // -- marks ----------------------------------------------------------------------------------------

  /** Mark all places in the rows that are in the document. */
  mark() {
    if (!globalThis.Highlight) return; // an older browser; the hit is in view all the same
    const text = this.isOpen ? this.field.value.trim() : '';
    const all = text ? rangesIn(this.conversation.feed.root, text) : [];
    CSS.highlights.set('find', new Highlight(...all));
    CSS.highlights.set('find-now', new Highlight(...(this.now ? [this.now] : [])));
  }
}

/**
 * The places of a text in an element, also where it is made of several pieces.
 * @param {HTMLElement} node
 * @param {string} text
 */
function rangesIn(node, text) {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  /** @type {any[]} */
  const pieces = []; // {node, start}
  let whole = '';
  while (walker.nextNode()) {
    const piece = /** @type {Text} */ (walker.currentNode);
    pieces.push({ node: piece, start: whole.length });
    whole += piece.data.toLowerCase();
  }
  const wanted = text.toLowerCase();
  const found = [];
  let last = 0;
  /** @param {number} at */
  const placed = at => {
    while (pieces[last + 1]?.start <= at) last++;
    const { node: piece, start } = pieces[last];
    return { piece, offset: Math.min(at - start, piece.length) };
  };
  for (let at = whole.indexOf(wanted); at >= 0 && found.length < MOST_MARKS; at = whole.indexOf(wanted, at + 1)) {
    const range = new Range();
    const start = placed(at);
    range.setStart(start.piece, start.offset);
    const end = placed(at + wanted.length - 1);
    range.setEnd(end.piece, Math.min(end.offset + 1, end.piece.length));
    found.push(range);
  }
  return found;
}

/**
 * Open all that hides a place.
 * @param {any} fields
 */
function unfold({ startContainer }) {
  const { parentElement } = startContainer;
  for (let node = parentElement.closest('details'); node; node = node.parentElement.closest('details'))
    node.open = true;
  parentElement.closest('.clamped')?.querySelector('.link')?.click();
}

/**
 * Scroll every box around a place so that it is in the middle.
 * @param {Range} range
 */
function centre(range) {
  for (let node = range.startContainer.parentElement; node && node !== document.body; node = node.parentElement) {
    if (node.scrollHeight <= node.clientHeight + 1 || getComputedStyle(node).overflowY === 'visible') continue;
    const [place, box] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
    if (node.id === 'scroller' || place.top < box.top || place.bottom > box.bottom)
      node.scrollTop += place.top - box.top - box.height / 2;
  }
}
