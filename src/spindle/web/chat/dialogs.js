// Questions of the agent and its extensions, asked inside the conversation, and the other things extensions may show.

import { diffView, rowsOfEdit, rowsOfText } from '../shared/diff.js';
import { $, announce, button, el, icon, unsent } from '../shared/dom.js';
import { languageOfPath } from '../shared/highlight.js';
import { reconcile } from '../shared/reconcile.js';
import { oneStop } from './roving.js';

/** @param {any} edit */
const isEdit = edit =>
  Object.keys(edit).sort().join() === 'newText,oldText' && Object.values(edit).every(text => typeof text === 'string');

/**
 * What is offered: words, and the rule that they stand for.
 * @param {string} offer
 */
function offerWords(offer) {
  const [, words, rule, where] = /^(Always allow [^:(]+): (.+\)|\w+)( \(in all sessions\))?$/.exec(offer) ?? [];
  return words ? [`${words}${where ?? ''} `, el('code', null, rule)] : [offer];
}

/**
 * What a tool would do. Whatever is not known to the last key is shown as it came: nothing may be hidden here.
 * @param {string | undefined} tool
 * @param {any} message
 */
function callOf(tool, message) {
  const raw = el('pre', { class: 'question', tabindex: '0' }, message);
  if (tool !== 'edit' && tool !== 'write') return raw; // a lone text stands for itself; it may look like anything
  try {
    const { path, content, edits, ...others } = JSON.parse(message);
    const known = tool === 'edit' ? content === undefined && edits.every(isEdit) : edits === undefined;
    if (!known || Object.keys(others).length || typeof (content ?? '') !== 'string') return raw;
    const rows = tool === 'edit' ? rowsOfEdit({ edits }) : rowsOfText(content);
    return el(
      'div',
      { class: 'question', tabindex: '0' },
      el('code', null, path),
      diffView(rows, languageOfPath(path)),
    );
  } catch {
    return raw;
  }
}

/**
 * Whether a card shows all of what is asked about, and nothing else.
 * @param {LiveCard} card
 * @param {any} message
 */
function isShown(card, message) {
  const { args, name } = card;
  const keys = Object.keys(args).sort().join();
  if (name === 'bash') return keys === 'command' && args.command === message;
  if (name === 'write' && keys !== 'content,path') return false;
  if (name === 'edit' && (keys !== 'edits,path' || !args.edits.every(isEdit))) return false;
  if (name !== 'write' && name !== 'edit') return false;
  try {
    return JSON.stringify(sorted(args)) === JSON.stringify(sorted(JSON.parse(message)));
  } catch {
    return false;
  }
}

/**
 * @param {any} value
 * @returns {any}
 */
const sorted = value =>
  value && typeof value === 'object' && !Array.isArray(value)
    ? Object.fromEntries(
        Object.keys(value)
          .sort()
          .map(key => [key, sorted(value[key])]),
      )
    : Array.isArray(value)
      ? value.map(sorted)
      : value;

export class Dialogs {
  /**
   * `composer` for texts that extensions put there.
   * @param {Session} session
   * @param {any} fields
   */
  constructor(session, { composer, conversation, toast }) {
    this.session = session;
    this.composer = composer;
    this.conversation = conversation;
    this.toast = toast;
    this.open = new Map(); // by the request's id
    this.statuses = new Map(); // key → text
    this.widgets = new Map(); // key → {place, text}
    session.on('extension_ui_request', (/** @type {any} */ request) => this.receive(request));
    session.on('attached', (/** @type {any} */ { known }) => known || this.forget());
    // What was asked before the conversation was loaded belongs to a call in it.
    session.on('reset', () => this.open.forEach(asked => this.place(asked)));
    session.on('tool_execution_start', () => this.open.forEach(asked => this.place(asked)));
  }

  /** @param {any} request */
  receive(request) {
    /** @type {Record<string, any>} */
    const methods = {
      confirm: this.confirm,
      select: this.select,
      input: this.input,
      editor: this.editor,
      cancel: this.cancel,
      notify: this.notify,
      setStatus: this.setStatus,
      setWidget: this.setWidget,
      setTitle: this.setTitle,
      set_editor_text: this.setEditorText,
    };
    methods[request.method]?.call(this, request);
  }

  // -- questions ----------------------------------------------------------------------------------

  /** @param {any} request */
  confirm(request) {
    const { title = '', message = '' } = request;
    const tool = /^Allow (.+)\?$/.exec(title)?.[1];
    const [yes, no] = tool ? ['Allow', 'Deny'] : ['Yes', 'No'];
    /** @param {boolean} confirmed */
    const answer = (confirmed, more = {}) =>
      this.answer(request, { confirmed, ...more }, tool ? '' : `${confirmed ? 'Yes' : 'No'}: ${title}`, confirmed);
    const reason = tool
      ? this.reasonField(request, (/** @type {any} */ value) => answer(false, { reason: value }))
      : null;
    const buttons = [
      button('primary', () => answer(true), yes, el('kbd', null, 'Alt+Y')),
      button('plain', () => answer(false, reason?.value ? { reason: reason.value } : {}), no, el('kbd', null, 'Alt+N')),
    ];
    buttons[0].dataset.answer = 'yes';
    buttons[1].dataset.answer = 'no';
    for (const offer of request.offers ?? []) {
      const always = button('link', () => answer(true, { always: offer }), ...offerWords(offer));
      always.title = 'Only calls that fit this rule, and only in this conversation';
      buttons.push(always);
    }
    const question = message ? callOf(tool, message) : null;
    this.ask(request, tool ? 'shield' : 'warning', question, reason, el('div', { class: 'buttons' }, ...buttons));
  }

  /**
   * Where a refusal can be explained; the model reads it.
   * @param {any} request
   * @param {Act} deny
   */
  reasonField(request, deny) {
    const field = el('input', {
      type: 'text',
      class: 'reason',
      placeholder: 'If not: why? The model reads it (optional)',
      'aria-label': 'Reason for a denial',
    });
    field.addEventListener('keydown', event => {
      if (event.key !== 'Enter' || event.isComposing) return;
      event.preventDefault();
      deny(field.value);
    });
    return this.keeping(request, field);
  }

  /**
   * Keep what is written in an answer: the question may be asked again, after a break or a reload.
   * @param {any} fields
   * @param {HTMLInputElement | HTMLTextAreaElement} field
   */
  keeping({ id }, field) {
    field.value = unsent.get(`answer-${id}`) ?? field.value;
    field.addEventListener('input', () => unsent.set(`answer-${id}`, field.value));
    return field;
  }

  /** @param {any} request */
  select(request) {
    const about = /^(Allow \S+\?) ([^]*)$/.exec(request.title ?? '');
    if (request.toolCallId && about) {
      this.permission(request, about[1], about[2]);
      return;
    }
    /** @param {any} value */
    const pick = value => this.answer(request, { value }, `${request.title}: ${value}`, true);
    const options = (request.options ?? []).map((/** @type {any} */ value) =>
      button('plain', () => pick(value), value),
    );
    const list = oneStop(el('div', { class: 'options' }, ...options));
    this.ask(request, 'list', list, this.cancelRow(request));
    // The keyboard is there, unless it is in the middle of a message.
    if (!this.composer.field.value) options[0]?.focus();
  }

  /**
   * The question of a permission rule: once, always, or no.
   * @param {any} request
   * @param {string} title
   * @param {any} message
   */
  permission(request, title, message) {
    const options = request.options ?? [];
    /** @param {any} value */
    const answer = (value, more = {}) => this.answer(request, { value, ...more }, '', true);
    const no = options.at(-1);
    const reason = this.reasonField(request, (/** @type {string} */ text) => answer(no, { reason: text }));
    const buttons = options.map((/** @type {any} */ value, /** @type {number} */ i) => {
      const more = () => (value === no && reason.value ? { reason: reason.value } : {});
      const kind = i === 0 ? 'primary' : value === no ? 'plain' : 'link';
      const key = i === 0 ? 'Alt+Y' : value === no ? 'Alt+N' : '';
      const made = button(kind, () => answer(value, more()), ...offerWords(value), key ? el('kbd', null, key) : null);
      if (key) made.dataset.answer = i === 0 ? 'yes' : 'no';
      return made;
    });
    const tool = title.slice('Allow '.length, -1);
    this.ask(
      { ...request, title, message },
      'shield',
      callOf(tool, message),
      reason,
      el('div', { class: 'buttons' }, ...buttons),
    );
  }

  /** @param {any} request */
  input(request) {
    this.askText(request, el('input', { type: 'text', placeholder: request.placeholder, 'aria-label': request.title }));
  }

  /** @param {any} request */
  editor(request) {
    const field = el('textarea', { rows: '8', 'aria-label': request.title });
    field.value = request.prefill ?? '';
    this.askText(request, field);
  }

  /**
   * @param {any} request
   * @param {HTMLInputElement | HTMLTextAreaElement} field
   */
  askText(request, field) {
    /** @param {any} event */
    const submit = event => {
      event.preventDefault();
      this.answer(request, { value: field.value }, `${request.title}: answered`, true);
    };
    this.keeping(request, field);
    const done = el('button', { type: 'submit', class: 'primary' }, 'Answer');
    const form = el('form', { on: { submit } }, field, this.cancelRow(request, done));
    this.ask(request, 'pencil', form);
    field.focus();
  }

  /**
   * @param {any} request
   * @param {...any} others
   */
  cancelRow(request, ...others) {
    const cancel = () => this.answer(request, { cancelled: true }, `${request.title}: cancelled`, false);
    return el('div', { class: 'buttons' }, ...others, button('plain', cancel, 'Cancel'));
  }

  /**
   * @param {any} request
   * @param {string} symbol
   * @param {...any} content
   */
  ask(request, symbol, ...content) {
    this.open.get(request.id)?.node.remove();
    const title = el('h3', { 'aria-level': 2 }, icon(symbol), request.title ?? '');
    const node = el('section', { class: 'ask', role: 'group', 'aria-label': request.title }, title, ...content);
    const timer = request.timeout ? setTimeout(() => this.close(request.id), request.timeout) : 0;
    if (request.timeout) {
      const bar = el('div', { class: 'countdown' });
      bar.style.animationDuration = `${request.timeout}ms`;
      node.append(bar);
    }
    const asked = { request, node, timer, card: null };
    this.open.set(request.id, asked);
    this.place(asked);
    this.session.emit('asked', request.title ?? '');
    announce(`${request.title} ${request.message ?? ''}`);
    this.tell();
  }

  /**
   * Put a question where it belongs: at its call, else at the end.
   * @param {any} asked
   */
  place(asked) {
    const { request, node } = asked;
    const card = request.toolCallId && !this.session.loading ? this.conversation.cardOf(request.toolCallId) : null;
    if (node.isConnected && asked.card === card) return; // moving it would take the focus from its field
    asked.card = card;
    const question = node.querySelector('.question');
    if (card) {
      card.setState('asking');
      card.node.open = true;
      if (question) question.hidden = isShown(card, request.message ?? '');
      card.node.append(node);
    } else {
      if (question) question.hidden = false;
      $('asks').append(node);
    }
    this.conversation.feed.follow();
  }

  /** Let the title say it: the page may be in the background. */
  tell() {
    this.session.asking = this.open.size > 0;
    this.session.emit('state');
  }

  /**
   * @param {any} request
   * @param {any} fields
   * @param {string} text
   * @param {boolean} positive
   */
  answer(request, fields, text, positive) {
    if (!this.session.wire.tell({ type: 'extension_ui_response', id: request.id, ...fields })) {
      this.toast('Not connected: the answer could not be sent', 'offline');
      return;
    }
    this.close(request.id);
    if (text) this.conversation.notice(positive ? 'check' : 'close', text);
    this.composer.field.focus();
  }

  /**
   * Answer the oldest yes-or-no question, if there is one.
   * @param {any} answer
   */
  answerFirst(answer) {
    for (const { node } of this.open.values()) {
      const found = node.querySelector(`[data-answer=${answer}]`);
      if (found) return found.click();
    }
    return undefined;
  }

  /** @param {any} fields */
  cancel({ targetId }) {
    this.close(targetId);
  }

  /** @param {string} id */
  close(id) {
    unsent.set(`answer-${id}`, null);
    this.takeAway(id);
  }

  /** @param {string} id */
  takeAway(id) {
    const asked = this.open.get(id);
    if (!asked) return;
    clearTimeout(asked.timer);
    asked.node.remove();
    this.open.delete(id);
    // What runs now has waited: its seconds count from here.
    if (asked.card?.state === 'asking') asked.card.setState('running');
    if (![...this.open.values()].some(({ card }) => card)) this.conversation.restartCards();
    this.tell();
  }

  /** Another session: nothing of the old one is of use. */
  forget() {
    for (const id of [...this.open.keys()]) this.takeAway(id);
    this.statuses.clear();
    this.widgets.clear();
    this.showExtras();
  }

  // -- notices ------------------------------------------------------------------------------------

  /** @param {any} fields */
  notify({ message, notifyType }) {
    this.toast(message, notifyType ?? 'info');
  }

  /** @param {any} fields */
  setStatus({ statusKey, statusText }) {
    if (statusText === undefined) this.statuses.delete(statusKey);
    else this.statuses.set(statusKey, statusText);
    this.showExtras();
  }

  /** @param {any} fields */
  setWidget({ widgetKey, widgetLines, widgetPlacement }) {
    const place = widgetPlacement === 'belowEditor' ? 'widgets-below' : 'widgets-above';
    if (widgetLines) this.widgets.set(widgetKey, { place, text: widgetLines.join('\n') });
    else this.widgets.delete(widgetKey);
    this.showExtras();
  }

  /** Show what extensions say beside the conversation. */
  showExtras() {
    /**
     * @param {string} key
     * @param {string} state
     * @param {Act} build
     */
    const child = (key, state, build) => ({ key, state, build: () => build(state) });
    /** @param {string} text */
    const tag = text => el('span', { class: 'tag' }, text);
    /** @param {string} text */
    const widget = text => el('pre', { class: 'widget' }, text);
    reconcile(
      $('statuses'),
      Array.from(this.statuses, ([key, text]) => child(key, text, tag)),
    );
    for (const id of ['widgets-above', 'widgets-below']) {
      const here = [...this.widgets].filter(([, { place }]) => place === id);
      reconcile(
        $(id),
        here.map(([key, { text }]) => child(key, text, widget)),
      );
    }
  }

  /** @param {any} fields */
  setTitle({ title }) {
    this.session.title = title ?? null;
    this.session.emit('state');
  }

  /** @param {any} fields */
  setEditorText({ text }) {
    this.composer.setText(text ?? '');
  }
}
