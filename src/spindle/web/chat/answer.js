// An answer of the model, finished or still being written: text, thinking and tool calls in the order they come.

import { button, copyButton, el, icon, iconButton } from '../shared/dom.js';
import { count, duration, textOf } from '../shared/format.js';
import { fullTime, readable, tokens } from './figures.js';
import { GrowingMarkdown } from './growing.js';
import { LiveCard } from './live-card.js';
import { oneStop } from './roving.js';

class TextBlock {
  /** @param {HTMLElement} node has the text, or something around it */
  constructor(node = el('div', { class: 'md' }), body = node) {
    this.node = node;
    this.view = new GrowingMarkdown(body);
    this.source = '';
  }

  /** @param {string} delta */
  push(delta) {
    this.source += delta;
  }

  /** @param {boolean} live */
  paint(live) {
    this.view.set(this.source, live);
  }

  end() {
    this.paint(false);
  }
}

class ThinkingBlock extends TextBlock {
  /** @param {boolean} live */
  constructor(live) {
    const label = el('span', { class: live ? 'shimmer' : null }, live ? 'Thinking' : 'Thoughts');
    const body = el('div', { class: 'md' });
    const summary = el('summary', null, icon('thought'), label, icon('chevron'));
    const details = el('details', { class: 'thinking', open: live }, summary, body);
    super(details, body);
    this.details = details;
    this.label = label;
    summary.addEventListener('click', () => {
      this.touched = true;
    });
    this.started = live ? performance.now() : 0;
    this.took = 0; // milliseconds, if somebody has watched
  }

  /** Fold the thoughts away once they are complete, unless the reader has taken over. */
  end() {
    super.end();
    this.node.hidden = this.source.trim() === '';
    this.label.className = '';
    if (!this.started) return;
    this.showTime(performance.now() - this.started);
    this.started = 0;
    if (!this.touched) this.details.open = false;
  }

  /** @param {number} took */
  showTime(took) {
    this.took = took;
    this.label.textContent = `Thought for ${took < 1000 ? 'a moment' : duration(took)}`;
  }
}

export class Answer {
  /** @type {any[]} */
  blocks;

  /**
   * `hooks`: `addCard(id, card)` gets the tool cards of a live answer, `again()` regenerates, `againWith(button)` with
   * another model, `goOn()` lets the model continue, `nameOf(message)` promises the name of a model.
   * @param {any} hooks
   */
  constructor(hooks, live = false) {
    this.hooks = hooks;
    this.live = live;
    this.blocks = [];
    this.changed = new Set();
    this.body = el('div', { class: 'blocks' });
    this.node = el('article', { class: 'answer', 'aria-label': 'Answer' }, this.body);
    // Where the buttons will be: they take no more room when the answer ends.
    this.foot = el('div', { class: 'actions' });
    if (!live) return;
    this.node.classList.add('grown');
    this.foot.append(el('span', { class: 'pulse', 'aria-hidden': 'true' }));
    this.foot.classList.add('marked');
    this.node.append(this.foot);
  }

  /**
   * Take a `message_update`.
   * @param {any} fields
   */
  update({ assistantMessageEvent: event, message }) {
    if (message) {
      this.take(message);
      return;
    }
    if (event.contentIndex === undefined) return; // the start or the end of the answer
    const block = this.block(event.contentIndex, event.type, event);
    if (event.delta !== undefined) block.push(event.delta);
    else if (event.content !== undefined) block.source = event.content;
    else if (event.toolCall) block.setArguments(event.toolCall.arguments);
    this.changed.add(block);
    if (event.type === 'thinking_end') this.endBlock(block);
    else if (event.type !== 'thinking_delta' && event.type !== 'thinking_start') this.endThoughts(event.contentIndex);
  }

  /**
   * Some APIs close thoughts only with the whole answer; what follows them says the same.
   * @param {number} index
   */
  endThoughts(index) {
    for (const block of this.blocks.slice(0, index))
      if (block instanceof ThinkingBlock && block.started) this.endBlock(block);
  }

  /** @param {any} block */
  endBlock(block) {
    this.changed.delete(block);
    block.end();
  }

  /**
   * Show the message as it stands.
   * @param {AssistantMessage} message
   */
  take(message) {
    message.content.forEach((/** @type {any} */ content, /** @type {number} */ index) => {
      const block = this.block(index, content.type, { id: content.id, toolName: content.name });
      if (content.type === 'text') block.source = content.text;
      else if (content.type === 'thinking') block.source = content.thinking;
      else if (content.type === 'toolCall') block.setArguments(content.arguments);
      this.changed.add(block);
    });
  }

  /**
   * @param {number} index
   * @param {string} type
   * @param {any} call
   */
  block(index, type = '', { id, toolName }) {
    if (this.blocks[index]) return this.blocks[index];
    let block;
    if (type.startsWith('thinking')) block = new ThinkingBlock(this.live);
    else if (type.startsWith('toolcall') || type === 'toolCall') {
      block = new LiveCard(id, toolName ?? '', this.live ? 'writing' : 'cancelled');
      this.foot.remove();
      if (this.live) this.hooks.addCard(id, block);
    } else block = new TextBlock();
    this.blocks[index] = block;
    this.body.append(block.node);
    return block;
  }

  /** Bring the page up to date; once per frame. */
  paint() {
    for (const block of this.changed) block.paint(true);
    this.changed.clear();
  }

  /** The message so far, as it would be stored. */
  get content() {
    return this.blocks.filter(Boolean).map(block => {
      if (block instanceof ThinkingBlock) return { type: 'thinking', thinking: block.source };
      if (block instanceof TextBlock) return { type: 'text', text: block.source };
      return { type: 'toolCall', id: block.id, name: block.name, arguments: block.args };
    });
  }

  /** How long each block of thoughts took, as far as that was seen. */
  get thoughts() {
    return this.blocks.map(block => block?.took ?? 0);
  }

  /**
   * The message is complete. `thoughts` are those of the same answer when it was written.
   * @param {AssistantMessage} message
   * @param {number[] | null} thoughts
   */
  finish(message, thoughts = null) {
    this.take(message);
    for (const [index, block] of this.blocks.entries()) {
      block?.end();
      if (thoughts?.[index]) block.showTime(thoughts[index]);
    }
    this.changed.clear();
    this.live = false;
    this.foot.textContent = '';
    this.foot.classList.remove('marked');
    const text = textOf(message.content).trim();
    const calls = message.content.some((/** @type {any} */ block) => block.type === 'toolCall');
    if (message.stopReason === 'error') this.add(this.failure(readable(message.errorMessage ?? 'The model failed.')));
    else if (message.stopReason === 'aborted') this.add(this.cut('stop', 'Interrupted'));
    else if (message.stopReason === 'lost')
      this.add(el('p', { class: 'aside' }, icon('warning'), 'The server ended here. Only this tab has this part.'));
    else if (message.stopReason === 'length') this.add(this.cut('warning', 'Cut off at the output limit'));
    else if (!text && !calls) this.add(this.failure('The model gave an empty answer.', 'aside'));
    if (text && !calls) {
      this.fillFoot(message, text);
      this.node.append(this.foot);
    } else this.foot.remove();
    return text;
  }

  /** @param {HTMLElement} node */
  add(node) {
    this.node.insertBefore(node, this.foot.parentNode === this.node ? this.foot : null);
  }

  /**
   * Say that there is more to come, and let it come.
   * @param {string} symbol
   * @param {string} words
   */
  cut(symbol, words) {
    return el('p', { class: 'aside' }, icon(symbol), words, button('link again', this.hooks.goOn, 'Continue'));
  }

  /** @param {any} error */
  failure(error, kind = 'failure') {
    const again = button('plain', this.hooks.again, icon('again'), 'Try again');
    return el('div', { class: kind }, icon('warning'), el('p', { title: error }, error), again);
  }

  /**
   * @param {AssistantMessage} message
   * @param {string} text
   */
  fillFoot(message, text) {
    const { usage, timestamp } = message;
    const again = iconButton('Regenerate', 'again', this.hooks.again);
    const other = iconButton('Regenerate with another model', 'branch', () => this.hooks.againWith(other));
    for (const one of [again, other]) one.classList.add('again');
    const about = el('span', { class: 'facts', title: timestamp ? fullTime(timestamp) : null });
    /** @param {string} name */
    const show = name => {
      about.textContent = [name, usage?.output ? count(usage.output, 'token', tokens) : ''].filter(Boolean).join(' · ');
    };
    show(message.model);
    this.hooks.nameOf(message).then(show);
    const copy = copyButton('Copy as Markdown', () => text);
    this.foot.append(copy, again, other, about);
    oneStop(this.foot);
  }
}
