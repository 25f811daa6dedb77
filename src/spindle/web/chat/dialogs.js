// Questions of the agent and its extensions, asked inside the conversation, and the other things extensions may show.

import { diffView, rowsOfEdit } from '../shared/diff.js';
import { $, announce, button, el, icon } from '../shared/dom.js';

const isEdit = edit =>
  Object.keys(edit).sort().join() === 'newText,oldText' && Object.values(edit).every(text => typeof text === 'string');

/** What a tool would do. Whatever is not known to the last key is shown as it came: nothing may be hidden here. */
function callOf(tool, message) {
  const raw = el('pre', { class: 'question', tabindex: '0' }, message);
  if (tool !== 'edit' && tool !== 'write') return raw; // a lone text stands for itself; it may look like anything
  try {
    const { path, content, edits, ...others } = JSON.parse(message);
    const known = tool === 'edit' ? content === undefined && edits.every(isEdit) : edits === undefined;
    if (!known || Object.keys(others).length || typeof (content ?? '') !== 'string') return raw;
    const change = tool === 'edit' ? diffView(rowsOfEdit({ edits })) : el('pre', null, content);
    return el('div', { class: 'question', tabindex: '0' }, el('code', null, path), change);
  } catch {
    return raw;
  }
}

export class Dialogs {
  /** `composer` for texts that extensions put there, `stopAsking()` ends the questions about tools. */
  constructor(session, { composer, conversation, toast, stopAsking }) {
    Object.assign(this, { session, composer, conversation, toast, stopAsking });
    this.open = new Map(); // by the request's id
    this.statuses = new Map();
    session.on('extension_ui_request', request => this.receive(request));
    session.on('attached', ({ known }) => known || this.forget());
  }

  receive(request) {
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

  confirm(request) {
    const { title = '', message = '' } = request;
    const tool = /^Allow (.+)\?$/.exec(title)?.[1];
    const [yes, no] = tool ? ['Allow', 'Deny'] : ['Yes', 'No'];
    const answer = (confirmed, word) =>
      this.answer(request, { confirmed }, `${word}${tool ? ` ${tool}` : `: ${title}`}`, confirmed);
    const buttons = [
      button('primary', () => answer(true, tool ? 'Allowed' : 'Yes'), yes, el('kbd', null, 'Alt+Y')),
      button('plain', () => answer(false, tool ? 'Denied' : 'No'), no, el('kbd', null, 'Alt+N')),
    ];
    buttons[0].dataset.answer = 'yes';
    buttons[1].dataset.answer = 'no';
    if (tool) {
      const always = () => {
        this.stopAsking();
        answer(true, 'Allowed from now on:');
      };
      buttons.push(button('link', always, 'Allow and stop asking'));
    }
    this.ask(request, tool ? 'shield' : 'warning', message ? callOf(tool, message) : null, el('div', { class: 'buttons' }, ...buttons));
  }

  select(request) {
    const pick = value => this.answer(request, { value }, `${request.title}: ${value}`, true);
    const options = (request.options ?? []).map(value => button('plain', () => pick(value), value));
    this.ask(request, 'list', el('div', { class: 'options' }, ...options), this.cancelRow(request));
  }

  input(request) {
    this.askText(request, el('input', { type: 'text', placeholder: request.placeholder, 'aria-label': request.title }));
  }

  editor(request) {
    const field = el('textarea', { rows: '8', 'aria-label': request.title });
    field.value = request.prefill ?? '';
    this.askText(request, field);
  }

  askText(request, field) {
    const submit = event => {
      event.preventDefault();
      this.answer(request, { value: field.value }, `${request.title}: answered`, true);
    };
    const done = el('button', { type: 'submit', class: 'primary' }, 'Answer');
    const form = el('form', { on: { submit } }, field, this.cancelRow(request, done));
    this.ask(request, 'pencil', form);
    field.focus();
  }

  cancelRow(request, ...others) {
    const cancel = () => this.answer(request, { cancelled: true }, `${request.title}: cancelled`, false);
    return el('div', { class: 'buttons' }, ...others, button('plain', cancel, 'Cancel'));
  }

  ask(request, symbol, ...content) {
    this.open.get(request.id)?.node.remove();
    const title = el('h3', null, icon(symbol), request.title ?? '');
    const node = el('section', { class: 'ask', role: 'group', 'aria-label': request.title }, title, ...content);
    const timer = request.timeout ? setTimeout(() => this.close(request.id), request.timeout) : 0;
    if (request.timeout) {
      const bar = el('div', { class: 'countdown' });
      bar.style.animationDuration = `${request.timeout}ms`;
      node.append(bar);
    }
    this.open.set(request.id, { node, timer });
    $('asks').append(node);
    announce(`${request.title} ${request.message ?? ''}`);
    this.tell();
  }

  /** Let the title say it: the page may be in the background. */
  tell() {
    this.session.asking = this.open.size > 0;
    this.session.emit('state');
  }

  answer(request, fields, text, positive) {
    if (!this.session.wire.tell({ type: 'extension_ui_response', id: request.id, ...fields })) {
      this.toast('Not connected: the answer could not be sent');
      return;
    }
    this.close(request.id);
    this.conversation.notice(positive ? 'check' : 'close', text);
    this.composer.field.focus();
  }

  /** Answer the oldest yes-or-no question, if there is one. */
  answerFirst(answer) {
    $('asks').querySelector(`[data-answer=${answer}]`)?.click();
  }

  cancel({ targetId }) {
    this.close(targetId);
  }

  close(id) {
    const asked = this.open.get(id);
    if (!asked) return;
    clearTimeout(asked.timer);
    asked.node.remove();
    this.open.delete(id);
    this.tell();
  }

  /** Another session: nothing of the old one is of use. */
  forget() {
    for (const id of [...this.open.keys()]) this.close(id);
    this.statuses.clear();
    for (const node of [$('statuses'), $('widgets-above'), $('widgets-below')]) node.replaceChildren();
  }

  // -- notices ------------------------------------------------------------------------------------

  notify({ message, notifyType }) {
    this.toast(message, notifyType ?? 'info');
  }

  setStatus({ statusKey, statusText }) {
    if (statusText === undefined) this.statuses.delete(statusKey);
    else this.statuses.set(statusKey, statusText);
    $('statuses').replaceChildren(...[...this.statuses.values()].map(text => el('span', { class: 'tag' }, text)));
  }

  setWidget({ widgetKey, widgetLines, widgetPlacement }) {
    const place = $(widgetPlacement === 'belowEditor' ? 'widgets-below' : 'widgets-above');
    for (const old of document.querySelectorAll('.widget')) if (old.dataset.key === widgetKey) old.remove();
    if (widgetLines) place.append(el('pre', { class: 'widget', 'data-key': widgetKey }, widgetLines.join('\n')));
  }

  setTitle({ title }) {
    this.session.title = title ?? null;
    this.session.emit('state');
  }

  setEditorText({ text }) {
    this.composer.setText(text ?? '');
  }
}
