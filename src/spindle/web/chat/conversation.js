// The conversation: one column that only grows at its end. While an answer is written only its last blocks change,
// once per frame. Of a long history the newest part is built first, the rest while the browser is idle.

import { $, announce, button, copyButton, el, icon, iconButton } from '../shared/dom.js';
import { count, duration, imagesOf, oneLine, textOf } from '../shared/format.js';
import { picture } from '../shared/images.js';
import { Answer } from './answer.js';
import { fullTime, tokens } from './figures.js';
import { rendered } from './growing.js';
import { LiveCard, shellCard } from './live-card.js';

const AT_ONCE = 80; // messages built before the first paint
const PER_PAUSE = 40;
const LONG_MESSAGE = 1800;
const idle = window.requestIdleCallback ?? (work => setTimeout(work, 30));

/** Run `paint` once in the next frame, however often it is asked for. Returns the function to ask with. */
function perFrame(paint) {
  let asked = false;
  let took = 0;
  const run = () => {
    asked = false;
    const began = performance.now();
    paint();
    took = performance.now() - began;
  };
  return () => {
    if (asked) return;
    asked = true;
    // What takes longer than a frame must leave the reader time to scroll and to write.
    if (took > 16) setTimeout(() => requestAnimationFrame(run), 3 * took);
    else requestAnimationFrame(run);
  };
}

export class Conversation {
  /** `actions`: `edit(message)`, `fork(message)`, `again()`. */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.feed = $('feed');
    this.cards = new Map(); // cards of calls that may go on, by id; some servers use their ids again and again
    this.live = null; // the answer being written
    this.busyCards = new Set();
    this.repaint = perFrame(() => this.paint());
    this.hooks = {
      addCard: (id, card) => this.cards.set(id, card),
      again: () => actions.again(),
    };
    this.listen();
    setInterval(() => this.busyCards.forEach(card => card.tick()), 1000);
  }

  listen() {
    const on = (type, listener) => this.session.on(type, listener.bind(this));
    on('reset', this.reset);
    on('message_start', this.messageStart);
    on('message_update', this.messageUpdate);
    on('message_end', this.messageEnd);
    on('tool_execution_start', this.toolStart);
    on('tool_execution_update', this.toolUpdate);
    on('tool_execution_end', this.toolEnd);
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

  // -- history ------------------------------------------------------------------------------------

  reset({ messages }) {
    this.feed.replaceChildren();
    this.cards.clear();
    this.busyCards.clear();
    this.live = this.compaction = this.retry = null;
    this.results = resultsOf(messages);
    this.atWork = this.session.running ? messages.findLast(({ role }) => role === 'assistant') : null;
    const older = messages.slice(0, -AT_ONCE);
    this.feed.append(...this.build(messages.slice(-AT_ONCE)));
    this.feed.dispatchEvent(new CustomEvent('shown'));
    this.fill(older, (this.filling = Symbol('this history')));
  }

  build(messages) {
    const buildSafely = message => {
      try {
        return this.buildMessage(message);
      } catch (error) {
        // A message of another program in a shape of its own must not cost the page all the others.
        return noticeOf('warning', `A message that cannot be shown (${message?.role}): ${error.message}`);
      }
    };
    return messages.map(buildSafely).filter(Boolean);
  }

  /** Put older messages in front, some at a time. */
  fill(older, ticket) {
    if (!older.length) return;
    idle(() => {
      if (this.filling !== ticket) return;
      const scroller = this.feed.closest('.scroller');
      const height = scroller.scrollHeight;
      this.feed.prepend(...this.build(older.slice(-PER_PAUSE)));
      // Browsers without scroll anchoring would let the text jump.
      if (!CSS.supports('overflow-anchor', 'auto')) scroller.scrollTop += scroller.scrollHeight - height;
      this.fill(older.slice(0, -PER_PAUSE), ticket);
    });
  }

  buildMessage(message) {
    switch (message.role) {
      case 'user':
        return this.userMessage(message);
      case 'assistant':
        return this.storedAnswer(message);
      case 'bashExecution':
        return bashExecution(message);
      case 'custom':
        return message.display ? custom(message) : null;
      case 'compactionSummary':
        return summary(
          'compact',
          `The conversation before this was summarised (${tokens(message.tokensBefore)} tokens)`,
          message.summary,
        );
      case 'branchSummary':
        return summary('branch', 'Notes on a branch that was left', message.summary);
      default:
        return null; // results are shown in the card of their call
    }
  }

  storedAnswer(message) {
    const answer = new Answer(this.hooks);
    answer.finish(message);
    message.content.forEach((call, index) => {
      if (call.type !== 'toolCall') return;
      const card = answer.blocks[index];
      const result = this.results.get(call);
      if (result) card.finish(result, result.isError);
      else if (message === this.atWork) {
        card.setState('running');
        this.cards.set(call.id, card);
      }
    });
    return answer.node;
  }

  userMessage(message) {
    const text = textOf(message.content);
    const body = el('div', { class: 'said' }, text);
    const bubble = el('div', { class: 'bubble' }, ...imagesOf(message.content).map(picture), text ? body : null);
    if (text.length > LONG_MESSAGE || text.split('\n').length > 24) {
      bubble.classList.add('clamped');
      const toggle = () => {
        const clamped = bubble.classList.toggle('clamped');
        more.textContent = clamped ? 'Show all' : 'Show less';
        more.ariaExpanded = String(!clamped);
      };
      const more = button('link', toggle, 'Show all');
      more.ariaExpanded = 'false';
      bubble.append(more);
    }
    const actions = el(
      'div',
      { class: 'actions' },
      copyButton('Copy message', () => text),
      iconButton('Go back and edit', 'pencil', () => this.actions.edit(message)),
      iconButton('Fork: new conversation from here', 'branch', () => this.actions.fork(message)),
    );
    return el(
      'article',
      { class: 'user', 'aria-label': 'You', title: message.timestamp ? fullTime(message.timestamp) : null },
      bubble,
      actions,
    );
  }

  // -- events -------------------------------------------------------------------------------------

  messageStart({ message }) {
    if (message.role === 'assistant') this.beginAnswer();
    else if (message.role !== 'toolResult') {
      const node = this.buildMessage(message);
      if (node) this.feed.append(node);
      if (message.role === 'user') this.feed.dispatchEvent(new CustomEvent('said'));
    }
  }

  beginAnswer() {
    this.live = new Answer(this.hooks, true);
    this.feed.append(this.live.node);
    return this.live;
  }

  messageUpdate(event) {
    (this.live ?? this.beginAnswer()).update(event);
    this.repaint();
  }

  messageEnd({ message }) {
    if (message.role !== 'assistant') return;
    const answer = this.live ?? this.beginAnswer();
    this.live = null;
    const text = answer.finish(message);
    this.lastAnswer = answer;
    if (text) announce(oneLine(text, 400));
    else if (message.errorMessage) announce(message.errorMessage);
  }

  toolStart({ toolCallId, toolName, args }) {
    let card = this.cards.get(toolCallId);
    if (!card) {
      card = new LiveCard(toolCallId, toolName, 'running');
      this.cards.set(toolCallId, card);
      this.feed.append(card.node);
    }
    card.start(args);
    this.busyCards.add(card);
  }

  toolUpdate({ toolCallId, partialResult }) {
    const card = this.cards.get(toolCallId);
    if (!card) return;
    card.progress(partialResult);
    this.busyCards.add(card);
    this.repaint();
  }

  toolEnd({ toolCallId, result, isError, durationMs }) {
    const card = this.cards.get(toolCallId);
    card?.finish(result, isError, durationMs);
    this.busyCards.delete(card);
  }

  paint() {
    this.live?.paint();
    for (const card of this.busyCards) card.paintProgress();
  }

  settled() {
    for (const card of this.cards.values()) {
      if (card.id === '') continue; // a command of the user goes on
      card.abandon();
      this.busyCards.delete(card);
    }
  }

  // -- commands of the user -----------------------------------------------------------------------

  shellStart({ id, command, hidden }) {
    const card = shellCard(command, hidden, 'running');
    card.start({ command });
    this.cards.set(id, card);
    this.busyCards.add(card);
    this.feed.append(card.node);
    this.feed.dispatchEvent(new CustomEvent('said'));
  }

  shellUpdate({ id, delta }) {
    const card = this.cards.get(id); // those of other clients are shown when they are done
    if (!card) return;
    card.addOutput(delta);
    this.repaint();
  }

  shellEnd({ id, message }) {
    const card = this.cards.get(id);
    this.busyCards.delete(card);
    if (message && card) card.finishShell(message);
    else if (message) this.session.attempt(() => this.session.load()); // another client has changed the page meanwhile
    else card?.abandon();
  }

  // -- notices ------------------------------------------------------------------------------------

  notice(symbol, text, ...more) {
    const node = noticeOf(symbol, text, ...more);
    this.feed.append(node);
    return node;
  }

  compactionStart({ reason }) {
    const why = { threshold: 'The context is nearly full', overflow: 'The context was full' }[reason];
    this.compaction = this.notice('compact', `${why ? why + ': s' : 'S'}ummarising the conversation…`);
    this.compaction.classList.add('busy');
  }

  compactionEnd({ result, aborted, errorMessage }) {
    const left = result?.estimatedTokensAfter ? ` to ${tokens(result.estimatedTokensAfter)}` : '';
    const node = result
      ? summary('compact', `Summarised: ${tokens(result.tokensBefore)}${left} tokens`, result.summary)
      : noticeOf('compact', aborted ? 'Summary cancelled' : (errorMessage ?? 'Nothing to summarise'));
    if (this.compaction) this.compaction.replaceWith(node);
    else this.feed.append(node);
    this.compaction = null;
  }

  retryStart({ attempt, maxAttempts, delayMs, errorMessage }) {
    // The failed attempt is not part of the conversation any more; the notice says what happened.
    this.lastAnswer?.node.remove();
    const cancel = button('link', () => this.session.attempt(() => this.session.call('abort_retry')), 'Cancel');
    const text = `${oneLine(errorMessage, 140)} · next attempt in ${duration(delayMs)} (${attempt} of ${maxAttempts})`;
    this.retry?.remove();
    this.retry = this.notice('again', text, cancel);
    this.retry.classList.add('busy');
  }

  retryEnd({ success, attempt, finalError }) {
    this.retry?.remove();
    this.retry = null;
    // A last failure stands in the answer itself.
    if (success) this.notice('again', `Went through after ${count(attempt, 'more attempt')}`);
    else if (finalError === 'Retry cancelled') this.notice('close', finalError);
  }
}

/** Find the results of tool calls, by the block of the call: each belongs to the last call with its id. */
function resultsOf(messages) {
  const calls = new Map();
  const results = new Map();
  for (const message of messages) {
    if (message.role === 'toolResult') results.set(calls.get(message.toolCallId), message);
    else if (message.role === 'assistant' && Array.isArray(message.content))
      for (const block of message.content) if (block?.type === 'toolCall') calls.set(block.id, block);
  }
  return results;
}

const noticeOf = (symbol, text, ...more) =>
  el('div', { class: 'notice', role: 'note' }, icon(symbol), el('span', null, text), ...more);

function bashExecution(message) {
  const card = shellCard(message.command, message.excludeFromContext, 'done');
  card.finishShell(message);
  return card.node;
}

function custom({ customType, content }) {
  const images = imagesOf(content).map(picture);
  return el(
    'article',
    { class: 'custom' },
    el('span', { class: 'tag' }, customType),
    rendered(textOf(content)),
    ...images,
  );
}

function summary(symbol, title, text) {
  return el(
    'details',
    { class: 'notice summary' },
    el('summary', null, icon(symbol), el('span', null, title), icon('chevron')),
    rendered(text),
  );
}
