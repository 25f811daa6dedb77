// Messages that wait for the agent: each can be changed, sent now, or taken out.

import { $, button, el, iconButton } from '../shared/dom.js';
import { splitFiles } from '../shared/attached.js';
import { count, oneLine } from '../shared/format.js';

const KINDS = { steer: 'steer', followUp: 'then' };

export class QueueView {
  constructor(session, composer) {
    this.session = session;
    this.composer = composer;
    this.items = [];
    this.size = 0;
    this.editing = null; // the message that is being changed: {id, text, field}
    session.on('queue', ({ items, size }) => {
      Object.assign(this, { items, size });
      this.show();
    });
    session.on('state', () => this.show());
  }

  show() {
    const { items, size, session } = this;
    const node = $('queue');
    node.hidden = size === 0;
    const state = JSON.stringify([items, size, session.running]);
    if (state === this.shown) return;
    if (this.editing && items.every(({ id }) => id !== this.editing.id)) this.leaveEditing();
    if (this.editing) return; // after that
    this.shown = state;
    const rows = items.map(item => this.row(item));
    if (size > items.length) rows.push(el('li', null, `${size - items.length} more of an extension`));
    node.replaceChildren(this.head(items), el('ul', null, ...rows));
  }

  head(items) {
    const stopped = !this.session.running && items.length > 0;
    const words = stopped
      ? `${count(items.length, 'message')} did not go out: the run was stopped`
      : `${count(this.size, 'message')} waiting`;
    const buttons = items.length ? [button('link', () => this.takeBack(), 'Take back')] : [];
    if (stopped) {
      buttons.unshift(button('link send-all', () => this.call('send_queued', items[0]), 'Send'));
      buttons.push(button('link drop-all', () => this.drop(items), 'Drop'));
    }
    return el('div', { class: stopped ? 'queue-head stopped' : 'queue-head' }, el('span', null, words), ...buttons);
  }

  row(item) {
    const { id, kind, text, images } = item;
    const { text: said, files } = splitFiles(text);
    const words = el(
      'span',
      { class: 'queued-text' },
      oneLine([said, ...files.map(({ name }) => name)].join(' '), 200),
    );
    const row = el(
      'li',
      { class: 'queued', 'data-id': id },
      el('span', { class: 'tag' }, KINDS[kind] ?? kind),
      words,
      images ? el('small', null, count(images, 'image')) : null,
      iconButton('Edit this message', 'pencil', () => this.edit(item, row)),
      iconButton('Send it now', 'send', () => this.call('send_queued', item)),
      iconButton('Remove it', 'close', () => this.call('remove_queued', item)),
    );
    return row;
  }

  call(command, { id }, more = {}) {
    return this.session.attempt(() => this.session.call(command, { queuedId: id, ...more }));
  }

  edit(item, row) {
    const field = el('textarea', { rows: '2', 'aria-label': 'Message that waits' });
    field.value = item.text;
    this.editing = { ...item, field };
    const close = () => {
      this.editing = null;
      this.shown = '';
      this.show();
      this.composer.field.focus();
    };
    const submit = async event => {
      event?.preventDefault();
      const text = field.value.trim();
      if (!text || text === item.text || (await this.call('edit_queued', item, { message: text }))) close();
    };
    field.addEventListener('keydown', event => {
      if (event.isComposing) return;
      if (event.key === 'Escape') close();
      else if (event.key === 'Enter' && !event.shiftKey) submit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = el(
      'div',
      { class: 'buttons' },
      button('plain', close, 'Cancel'),
      el('button', { type: 'submit', class: 'primary' }, 'Save'),
    );
    row.replaceChildren(el('form', { on: { submit } }, field, buttons));
    field.focus();
  }

  /** The message that is being changed waits no longer: what was made of it goes where the next one is written. */
  leaveEditing() {
    const { text, field } = this.editing;
    this.editing = null;
    if (field.value.trim() === text.trim()) return;
    this.composer.addText(field.value, []);
    this.session.report('The message has gone out as it was. What you made of it is in the field.', 'info');
  }

  drop(items) {
    return this.session.attempt(() =>
      Promise.all(items.map(({ id }) => this.session.call('remove_queued', { queuedId: id }))),
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
