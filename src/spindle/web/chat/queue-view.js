// Messages that wait for the agent: each can be changed, sent now, or taken out.

import { $, button, el, iconButton } from '../shared/dom.js';
import { splitFiles } from '../shared/attached.js';
import { count, oneLine } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';

/** @import { Child } from '../shared/reconcile.js' */

/** @type {Record<string, any>} */
const KINDS = { steer: 'steer', followUp: 'then' };

export class QueueView {
  /** @type {QueuedItem[]} */
  items;
  /** @type {any} */
  editing;

  /**
   * @param {Session} session
   * @param {Composer} composer
   */
  constructor(session, composer) {
    this.session = session;
    this.composer = composer;
    this.items = [];
    this.size = 0;
    this.editing = null; // the message that is being changed, with its field
    this.head = el('div', { class: 'queue-head' });
    this.list = el('ul');
    $('queue').append(this.head, this.list);
    session.on('queue', ({ items, size }) => {
      Object.assign(this, { items, size });
      this.show();
    });
    session.on('state', () => this.show());
  }

  show() {
    const { items, size } = this;
    $('queue').hidden = size === 0;
    if (this.editing && items.every(({ id }) => id !== this.editing.id)) this.leaveEditing();
    this.showHead();
    const lines = items.map(item => {
      const isEdited = this.editing?.id === item.id;
      const state = isEdited ? 'edited' : JSON.stringify(item);
      return { key: item.id, state, build: () => (isEdited ? this.form(item) : this.row(item)) };
    });
    const others = size - items.length;
    if (others)
      lines.push({ key: 'others', state: `${others}`, build: () => el('li', null, `${others} more of an extension`) });
    reconcile(this.list, lines);
  }

  showHead() {
    const { items, size } = this;
    const stopped = !this.session.running && items.length > 0;
    const words = stopped
      ? `${count(items.length, 'message')} did not go out: the run was stopped`
      : `${count(size, 'message')} waiting`;
    /**
     * @param {string} kind
     * @param {Act} act
     * @param {string} label
     */
    const action = (kind, act, label) => ({ key: label, build: () => button(`link ${kind}`, act, label) });
    /** @type {Child[]} */
    const parts = [{ key: 'words', state: words, build: () => el('span', null, words) }];
    if (stopped) parts.push(action('send-all', () => this.call('send_queued', this.items[0]), 'Send'));
    if (items.length) parts.push(action('', () => this.takeBack(), 'Take back'));
    if (stopped) parts.push(action('drop-all', () => this.drop(), 'Drop'));
    this.head.classList.toggle('stopped', stopped);
    reconcile(this.head, parts);
  }

  /** @param {any} item */
  row(item) {
    const { id, kind, text, images } = item;
    const { text: said, files } = splitFiles(text);
    return el(
      'li',
      { class: 'queued', 'data-id': id },
      el('span', { class: 'tag' }, KINDS[kind] ?? kind),
      el('span', { class: 'queued-text' }, oneLine([said, ...files.map(({ name }) => name)].join(' '), 200)),
      images ? el('small', null, count(images, 'image')) : null,
      iconButton('Edit this message', 'pencil', () => this.edit(item)),
      iconButton('Send it now', 'send', () => this.call('send_queued', item)),
      iconButton('Remove it', 'close', () => this.call('remove_queued', item)),
    );
  }

  /**
   * @param {'edit_queued' | 'send_queued' | 'remove_queued'} command
   * @param {any} fields
   */
  call(command, { id }, more = {}) {
    return this.session.attempt(() => this.session.call(command, { queuedId: id, ...more }));
  }

  /** @param {any} item */
  edit(item) {
    const field = el('textarea', { rows: '2', 'aria-label': 'Message that waits' });
    field.value = item.text;
    this.editing = { ...item, field };
    this.show();
    field.focus();
  }

  closeEditing() {
    this.editing = null;
    this.show();
    this.composer.field.focus();
  }

  /** @param {any} item */
  form(item) {
    const { field } = this.editing;
    /** @param {Event} [event] */
    const submit = async event => {
      event?.preventDefault();
      const text = field.value.trim();
      if (!text || text === item.text || (await this.call('edit_queued', item, { message: text }))) this.closeEditing();
    };
    field.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
      if (event.isComposing) return;
      if (event.key === 'Escape') this.closeEditing();
      else if (event.key === 'Enter' && !event.shiftKey) submit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = el(
      'div',
      { class: 'buttons' },
      button('plain', () => this.closeEditing(), 'Cancel'),
      el('button', { type: 'submit', class: 'primary' }, 'Save'),
    );
    return el('li', { class: 'queued', 'data-id': item.id }, el('form', { on: { submit } }, field, buttons));
  }

  /** The message that is being changed waits no longer: what was made of it goes where the next one is written. */
  leaveEditing() {
    const { text, field } = this.editing;
    this.editing = null;
    if (field.value.trim() === text.trim()) return;
    this.composer.addText(field.value, []);
    this.session.report('The message has gone out as it was. What you made of it is in the field.', 'info');
  }

  drop() {
    return this.session.attempt(() =>
      Promise.all(this.items.map(({ id }) => this.session.call('remove_queued', { queuedId: id }))),
    );
  }

  /** Put everything that waits into the field, behind what stands there, with its images. */
  takeBack() {
    return this.session.attempt(async () => {
      for (const { id } of this.items) {
        const { text, images } = await this.session.call('remove_queued', { queuedId: id });
        this.composer.addText(text, images);
      }
    });
  }
}
