// Questions of the agent and its extensions, asked inside the conversation, and the other things extensions may show.

import { $, announce, button, el, icon, unsent } from '../shared/dom.js';
import { shownName, straight } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { asOwner } from './owner.js';
import { aboutOf, choiceOf, inputEditor, keeping, previewOf, questionTitle } from './permission-question.js';
import { oneStop } from './roving.js';

/**
 * What is offered: words, and the rule that they stand for.
 * @param {string} offer
 */
function offerWords(offer) {
  const [, words, rule, where] =
    /^(Always allow [^:(]+): (.+\)|\w+)( \(in all sessions\))?$/.exec(shownName(offer)) ?? [];
  return words ? [`${words}${where ?? ''} `, el('code', null, rule)] : [shownName(offer)];
}

/**
 * Whether a card shows all of what is asked about, and nothing else.
 * @param {LiveCard} card
 * @param {string} command
 */
const isShown = (card, command) =>
  card.name === 'bash' &&
  Object.keys(card.args).join() === 'command' &&
  card.args.command === command &&
  straight(command) === command;

const SEEN = 200; // pixels of a long question that are enough to see it

/**
 * What of a card should be shown, so that its question can be read; null: it can be.
 * @param {HTMLElement} card
 * @param {HTMLElement} question
 * @param {HTMLElement} scroller
 */
function outOfSight(card, question, scroller) {
  const { top } = scroller.getBoundingClientRect();
  const whole = [card, question].find(node => node.offsetHeight < scroller.clientHeight);
  if (whole) return whole.getBoundingClientRect().top < top ? whole : null;
  return question.getBoundingClientRect().bottom < top + SEEN ? question : null;
}

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
    this.requests = new Set(); // ids of questions about calls: their dialogs, which follow, are left out
    session.on('extension_ui_request', request => this.receive(request));
    session.on('permission_request', request => this.permission(request));
    session.on('permission_answered', ({ id }) => this.close(id));
    session.on('message_end', ({ message }) => this.callEnded(message));
    session.on('attached', ({ known }) => (known ? this.connected() : this.forget()));
    // What was asked before the conversation was loaded belongs to a call in it.
    session.on('reset', () => this.open.forEach(asked => this.place(asked)));
    session.on('tool_execution_start', () => this.open.forEach(asked => this.place(asked)));
  }

  /** @param {EventOf<'extension_ui_request'>} request */
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
      open_url: this.openUrl,
    };
    if (!this.requests.has(request.id)) methods[request.method]?.call(this, request);
  }

  // -- questions ----------------------------------------------------------------------------------

  /** @param {any} request */
  confirm(request) {
    const { title = '', message = '' } = request;
    /** @param {boolean} confirmed */
    const answer = confirmed => this.answer(request, { confirmed }, `${confirmed ? 'Yes' : 'No'}: ${title}`, confirmed);
    const buttons = [
      button('primary', () => answer(true), 'Yes', el('kbd', null, 'Alt+Y')),
      button('plain', () => answer(false), 'No', el('kbd', null, 'Alt+N')),
    ];
    buttons[0].dataset.answer = 'yes';
    buttons[1].dataset.answer = 'no';
    const question = message ? el('pre', { class: 'question', tabindex: '0' }, message) : null;
    this.ask(request, 'warning', question, el('div', { class: 'buttons' }, ...buttons));
  }

  /**
   * Where a refusal can be explained; the model reads it.
   * @param {PermissionRequest} request
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
    /** @param {unknown} value */
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
   * A question about a call: once, with another input, always, or no.
   * @param {any} request
   */
  permission(request) {
    this.requests.add(request.id);
    const trouble = el('p', { class: 'wrong', role: 'alert', hidden: true });
    /** @param {any} fields */
    const answer = async fields => {
      try {
        await asOwner(this.session, 'answer_permission', { question: request.id, ...fields });
        this.close(request.id);
        this.composer.field.focus();
      } catch (error) {
        trouble.textContent = error instanceof Error ? error.message : String(error);
        trouble.hidden = false;
      }
    };
    const deny = (more = {}) =>
      answer({ behavior: 'deny', ...(reason.value.trim() ? { reason: reason.value.trim() } : {}), ...more });
    const reason = this.reasonField(request, () => deny());
    const isCall = request.kind === 'tool' || request.kind === 'outside';
    const [yes, no] = isCall ? ['Allow', 'Deny'] : ['Yes', 'No'];
    const choice = request.kind === 'tool' ? choiceOf(request) : null;
    const isAll = () => !choice || choice.chosen.size === choice.hunks.length;
    const give = () =>
      answer({ behavior: 'allow', ...(choice && !isAll() ? { input: choice.input(choice.chosen) } : {}) });
    const words = el('span', null, yes);
    const allow = button('primary', give, words, el('kbd', null, 'Alt+Y'));
    if (choice)
      choice.changed = () => {
        const { size } = choice.chosen;
        words.textContent = isAll() ? yes : `${yes} ${size} of ${choice.hunks.length} parts`;
        allow.disabled = size === 0;
      };
    const refuse = button('plain', () => deny(), no, el('kbd', null, 'Alt+N'));
    allow.dataset.answer = 'yes';
    refuse.dataset.answer = 'no';
    const buttons = [allow, refuse];
    const written = `input-${request.id}`;
    let change = () => {};
    if (request.kind === 'tool') {
      change = () => {
        edit.disabled = true;
        const editor = inputEditor(request, (input, wrong) => {
          trouble.textContent = wrong;
          trouble.hidden = !wrong;
          if (!wrong) answer({ behavior: 'allow', input });
        });
        const fields = [...editor.querySelectorAll('textarea')];
        JSON.parse(unsent.get(written) ?? '[]').forEach((/** @type {string} */ text, /** @type {number} */ i) => {
          fields[i].value = text;
        });
        editor.addEventListener('input', () => unsent.set(written, JSON.stringify(fields.map(({ value }) => value))));
        buttonRow.before(editor);
      };
      const edit = button('plain', change, 'Edit…');
      edit.title = 'Change the input of the call before it runs';
      const stop = button('plain', () => deny({ stop: true }), 'Deny and stop');
      stop.title = 'The run ends';
      buttons.push(edit, stop);
    }
    for (const one of keeping(request)) {
      const always = button('link', () => answer(one.fields), ...offerWords(one.text + one.where));
      always.title = one.title;
      buttons.push(always);
    }
    const buttonRow = el('div', { class: 'buttons' }, ...buttons);
    this.ask(
      { ...request, title: questionTitle(request), message: request.preview?.command ?? '' },
      isCall ? 'shield' : 'warning',
      aboutOf(request),
      previewOf(request, choice, this.session.cwd),
      isCall ? reason : null,
      trouble,
      buttonRow,
    );
    if (unsent.get(written) !== null) change();
  }

  /** @param {ExtensionUIRequest} request */
  input(request) {
    this.askText(request, el('input', { type: 'text', placeholder: request.placeholder, 'aria-label': request.title }));
  }

  /** @param {ExtensionUIRequest} request */
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
    /** @param {KeyboardEvent} event */
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
    const { feed } = this.conversation;
    feed.follow();
    // Other calls may stand below: then the end waits until this is answered.
    const unseen = card && feed.sticks ? outOfSight(card.node, node, feed.scroller) : null;
    if (unseen) feed.stayAt(unseen);
  }

  /** Let the title say it: the page may be in the background. */
  tell() {
    this.session.asking = this.open.size > 0;
    this.session.emit('state');
  }

  /**
   * @param {PermissionRequest} request
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
    unsent.set(`input-${id}`, null);
    this.requests.delete(id);
    this.takeAway(id);
  }

  /**
   * A call that has its result asks nothing: who asked may have ended without a word.
   * @param {EventOf<'message_end'>['message']} message
   */
  callEnded(message) {
    if (message.role !== 'toolResult') return;
    for (const [id, { request }] of this.open) if (request.toolCallId === message.toolCallId) this.close(id);
  }

  /** What could not be sent can be now. */
  connected() {
    for (const { node } of this.open.values())
      for (const said of node.querySelectorAll('[role=alert]')) said.hidden = true;
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
    if (![...this.open.values()].some(({ card }) => card)) {
      this.conversation.restartCards();
      this.conversation.feed.goOn();
    }
    this.tell();
  }

  /** Another session: nothing of the old one is of use. */
  forget() {
    for (const id of [...this.open.keys()]) this.takeAway(id);
    this.requests.clear();
    this.statuses.clear();
    this.widgets.clear();
    this.showExtras();
  }

  // -- notices ------------------------------------------------------------------------------------

  /** @param {any} fields */
  notify({ message, notifyType }) {
    this.toast(message, notifyType ?? 'info');
  }

  /**
   * An address to visit, such as that of a sign-in: where the set-up is open, it is shown there.
   * @param {any} fields
   */
  openUrl({ url, instructions }) {
    if (!/^https?:\/\//.test(url)) return;
    const words = instructions ?? 'Sign in';
    const link = el('a', { href: url, target: '_blank', rel: 'noreferrer noopener' }, 'Open the page');
    if ($('setup').open) this.session.emit('address', [`${words} `, link]);
    else this.toast(words, 'notice', link);
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
