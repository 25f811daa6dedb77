// Where the user writes: the text field, images to send along, commands after a slash, sending, steering, queueing.
// A text that begins with `!` is a shell command; with `!!` the model does not get to know of it.

import { $, announce, button, el, iconButton, remembered, unsent } from '../shared/dom.js';
import { splitFiles, withFiles } from '../shared/attached.js';
import { textOf } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { Completions } from './completions.js';
import { Disconnected, isAway } from './connection.js';
import { attachedTo, forgetOld, keepAttached } from './draft-store.js';
import { LineComments, withComments } from './line-comments.js';
import { fileChip } from './messages.js';

const TOUCH = matchMedia('(pointer: coarse)').matches; // no Alt, no Shift: there Enter makes a new line
const SHELL = /^\s*(!!?)([^]*)$/;
const MAX_IMAGES_LENGTH = 12_000_000; // of base64 in one message; the server takes 16 MiB
const MAX_FILE = 11_000_000;
const FORGET_MS = 20_000; // after the page was opened

export class Composer {
  /** @type {any[]} */
  images;
  /** @type {any[]} */
  files;
  /** @type {number | undefined} */
  recalled;
  /** @type {any} */
  unsure;
  /** @type {string | null} */
  owner;
  /** @type {string | null} */
  heir;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.field = $('prompt');
    this.images = [];
    this.files = []; // kept on the server: {name, path}
    this.drafts = new Map(); // {images, files} of messages that are not sent, by conversation
    this.unsure = null; // a message of which it is not known whether it has arrived: {text, images, after}
    this.owner = null; // the conversation that the field belongs to
    /** @type {{ images?: any, files?: any }} */
    this.stored = {}; // the images and files as they were kept last
    this.heir = null; // a conversation that is gone; what is attached there is meant for the next one
    this.comments = new LineComments(session);
    this.completions = new Completions(session, this.field, () => this.resize());
    this.listen();
    session.on('state', () => this.showState());
    session.on('reset', () => this.changeDraft());
    session.on('deleted', (/** @type {string} */ id) => this.forget(id));
    setTimeout(forgetOld, FORGET_MS);
    session.on('stats', () => this.offerAgain());
    for (const event of ['reset', 'entries', 'queue']) session.on(event, told => this.findUnsure(told?.items));
  }

  listen() {
    this.field.addEventListener('input', () => this.changed());
    this.field.addEventListener('click', () => this.completions.update());
    this.field.addEventListener('keydown', (/** @type {any} */ event) => this.key(event));
    $('composer').addEventListener('submit', (/** @type {any} */ event) => {
      event.preventDefault();
      this.send('steer');
    });
    $('later').addEventListener('click', () => this.send('followUp'));
    $('stop').addEventListener('click', () => this.session.abort());
    $('attach').addEventListener('click', () => $('files').click());
    $('files').addEventListener('change', (/** @type {any} */ { target }) => {
      this.addFiles([...target.files]);
      target.value = '';
    });
    this.field.addEventListener('paste', (/** @type {any} */ event) => {
      const files = [...event.clipboardData.files];
      if (files.length === 0) return;
      event.preventDefault();
      this.addFiles(files);
    });
    addEventListener('dragover', event => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      $('composer').classList.add('dropping');
    });
    addEventListener('dragleave', event => event.relatedTarget === null && $('composer').classList.remove('dropping'));
    addEventListener('drop', event => {
      $('composer').classList.remove('dropping');
      const files = [...(event.dataTransfer?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.addFiles(files);
    });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.isComposing || this.completions.key(event)) return;
    if (event.key === 'Enter' && !TOUCH && !event.shiftKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.send(event.altKey ? 'followUp' : 'steer');
    } else if (event.key === 'ArrowUp' && this.field.value === '' && !event.altKey) {
      this.recall(event, -1);
    } else if (this.recalled !== undefined && (event.key === 'ArrowUp' || event.key === 'ArrowDown') && !event.altKey) {
      this.recall(event, event.key === 'ArrowUp' ? -1 : 1);
    }
  }

  /**
   * Go through what was said before, as a shell does; anything that is typed ends it.
   * @param {KeyboardEvent} event
   * @param {number} by
   */
  recall(event, by) {
    const said = this.session.messages
      .filter(({ role }) => role === 'user')
      .map(({ content }) => textOf(content))
      .filter(Boolean);
    const at = (this.recalled ?? said.length) + by;
    if (at < 0 || !said.length) return;
    event.preventDefault();
    this.take(said[at] ?? '');
    this.showImages();
    this.recalled = at < said.length ? at : undefined;
  }

  // -- sending ------------------------------------------------------------------------------------

  /** @param {'steer' | 'followUp'} behaviour */
  async send(behaviour) {
    const text = this.field.value;
    const { images, files } = this;
    const [, marks, command] = SHELL.exec(text) ?? [];
    const hasComments = !marks && this.comments.all.length > 0;
    if ((command ?? text).trim() === '' && images.length === 0 && files.length === 0 && !hasComments) return;
    const comments = hasComments ? this.comments.take() : [];
    const whole = withFiles(withComments(text, comments), files);
    const { owner } = this;
    const after = this.session.entries.lastId;
    this.clear();
    try {
      if (marks && images.length === 0) await this.session.bash(command.trim(), marks === '!!');
      else await this.session.prompt(whole, images, behaviour);
    } catch (error) {
      this.putBack(owner, text, images, files);
      if (comments.length) this.comments.set([...comments, ...this.comments.all]);
      const isOffline = error instanceof Disconnected;
      if (!marks && isOffline) this.unsure = { text, whole, images, after };
      this.session.report(error.message, isOffline ? 'offline' : 'error');
    }
  }

  /**
   * Nothing that was written may be lost: it stands where it was, before what was written since.
   * @param {string | null} owner
   * @param {string} text
   * @param {Image[]} images
   * @param {{ name: string, path: string }[]} files
   */
  putBack(owner, text, images, files) {
    /**
     * @param {string} first
     * @param {string} second
     */
    const join = (first, second) => [first, second].filter(part => part.trim()).join('\n\n');
    if (owner !== this.owner && owner !== null) {
      const draft = this.drafts.get(owner) ?? { images: [], files: [] };
      const together = { images: [...images, ...draft.images], files: [...files, ...draft.files] };
      this.drafts.set(owner, together);
      keepAttached(owner, together);
      this.keep(owner, join(text, this.kept(owner)));
      return;
    }
    this.images = [...images, ...this.images];
    this.files = [...files, ...this.files];
    this.setText(join(text, this.field.value));
    this.showImages();
  }

  /**
   * The connection broke before a message was answered, but it may have arrived: then it must not be sent again.
   * @param {any[]} [queued]
   */
  findUnsure(queued = []) {
    if (!this.unsure) return;
    const { text, whole, images, after } = this.unsure;
    const said = this.session.entries.after(after).map(({ raw }) => raw.message);
    const arrived =
      said.some(message => message?.role === 'user' && textOf(message.content) === whole) ||
      queued.some(item => item.text === whole);
    if (!arrived) return;
    this.unsure = null;
    if (!this.field.value.startsWith(text)) return; // it has become something else
    this.images = this.images.filter(image => !images.includes(image));
    this.files = [];
    this.setText(this.field.value.slice(text.length).trimStart());
    this.showImages();
  }

  /** There is a connection again, and it is known what has arrived: offer to send what has not. */
  offerAgain() {
    if (!this.unsure || !this.field.value.startsWith(this.unsure.text)) return;
    this.unsure = null;
    const again = button('link', () => note.remove() || this.send('steer'), 'Send it now');
    const note = this.session.report('Your message was not sent.', 'info', again);
    this.field.addEventListener('input', () => note.remove(), { once: true });
  }

  clear() {
    this.images = [];
    this.files = [];
    this.showImages();
    this.setText('');
    if (!TOUCH) this.field.focus();
  }

  // -- the text -----------------------------------------------------------------------------------

  /** @param {string} text */
  setText(text) {
    this.field.value = text;
    this.changed();
    this.field.setSelectionRange(text.length, text.length);
  }

  /**
   * Write what was said once: its text, and the files that came along.
   * @param {any} message
   */
  take(message) {
    const { text, files } = splitFiles(message);
    this.files = files;
    this.setText(text);
  }

  /**
   * Put a text to edit here, unless the user is in the middle of writing something else.
   * @param {string} text
   * @param {Image[]} [images]
   */
  offer(text, images = []) {
    if (this.field.value.trim() === '' && this.images.length === 0) {
      if (text) this.take(text);
      this.images = images;
      this.showImages();
    }
    this.field.focus();
  }

  /**
   * Put something behind what is written already.
   * @param {any} message
   * @param {Image[]} images
   */
  addText(message, images) {
    const before = this.field.value.trimEnd();
    const { text, files } = splitFiles(message);
    this.images = [...this.images, ...images];
    this.files = [...this.files, ...files];
    this.setText(before && text ? `${before}\n\n${text}` : before || text);
    this.showImages();
    this.field.focus();
  }

  changed() {
    this.recalled = undefined;
    if (this.owner) this.keep(this.owner, this.field.value);
    this.completions.update();
    this.resize();
    this.showState();
  }

  /** A draft belongs to its conversation: it stays there, and is there again on coming back. */
  changeDraft() {
    const { id } = this.session;
    if (id === this.owner) return;
    const { images, files } = this;
    const text = this.field.value;
    const first = this.owner === null;
    if (!first) this.drafts.set(this.owner, { images, files });
    this.owner = id;
    if (id === null) {
      this.clear();
      return;
    }
    // What was typed before there was a connection was meant for this one.
    const mine = first && (text || images.length || files.length);
    const draft = mine ? { images, files } : this.drafts.get(id);
    this.images = draft?.images ?? [];
    this.files = draft?.files ?? [];
    if (!mine) this.stored = { images: this.images, files: this.files };
    this.setText(mine ? text : this.kept(id));
    this.showImages();
    if (!this.drafts.has(id)) this.fetchAttached(this.heir ?? id, id);
    this.heir = null;
  }

  /**
   * Bring back what was attached before a reload.
   * @param {string} from
   * @param {string} id
   */
  async fetchAttached(from, id) {
    const found = await attachedTo(from);
    if (!found || id !== this.owner) return;
    if (from !== id) this.forget(from);
    this.images = [...found.images, ...this.images];
    this.files = [...found.files, ...this.files];
    this.showImages();
    this.showState();
  }

  /**
   * A conversation is no more.
   * @param {string} id
   */
  forget(id) {
    this.keep(id, null);
    this.drafts.delete(id);
    keepAttached(id, { images: [], files: [] });
  }

  /**
   * Keep a draft: for this tab, and for whoever comes back to the conversation in another one.
   * @param {string} id
   * @param {any} text
   */
  keep(id, text) {
    for (const storage of [remembered, unsent]) storage.set(`draft-${id}`, text || null);
  }

  /** @param {string} id */
  kept(id) {
    return unsent.get(`draft-${id}`) ?? remembered.get(`draft-${id}`) ?? '';
  }

  /**
   * A conversation is gone: what was written for it is meant for the next one.
   * @param {string} id
   */
  moveOn(id) {
    const text = this.field.value || this.kept(id);
    if (this.owner === id) this.forget(id);
    else this.heir = id;
    this.keep(id, null);
    this.owner = null;
    this.setText(text);
  }

  resize() {
    this.field.style.height = 'auto';
    this.field.style.height = `${this.field.scrollHeight}px`;
  }

  showState() {
    const { running, busy } = this.session;
    const nothing = this.images.length === 0 && this.files.length === 0 && this.comments.all.length === 0;
    const empty = this.field.value.trim() === '' && nothing;
    const shell = this.images.length === 0 ? SHELL.exec(this.field.value)?.[1] : undefined;
    $('stop').hidden = !busy;
    $('send').hidden = busy && empty;
    $('later').hidden = !running || empty || Boolean(shell);
    $('send').disabled = empty;
    const { model } = this.session.state;
    $('blind').hidden = !this.images.length || !model || model.input.includes('image');
    $('blind').lastChild.textContent = `${model?.name} does not see images`;
    $('send').title = shell ? 'Run (Enter)' : running ? 'Steer (Enter)' : 'Send (Enter)';
    $('composer').dataset.shell = shell ? `You run this${shell === '!!' ? '; the model does not see it' : ''}` : '';
    this.field.placeholder = running ? 'Steer while it works' : 'Message Spindle';
    document.body.classList.toggle('running', running);
  }

  // -- images -------------------------------------------------------------------------------------

  /** @param {any[]} files */
  async addFiles(files) {
    for (const file of files) {
      await this.session.attempt(() =>
        this.addFile(file).catch(error => {
          throw isAway(error) ? new Error(`Not connected: ${file.name} was not added`) : error;
        }),
      );
    }
    this.showImages();
    this.showState();
  }

  /** @param {File} file */
  async addFile(file) {
    const { readImage } = await import('./attachments.js');
    const image = await readImage(file);
    if (!image) {
      await this.upload(file);
      return;
    }
    const length = [...this.images, image].reduce((sum, { data }) => sum + data.length, 0);
    if (length > MAX_IMAGES_LENGTH) throw new Error('These images are too large for one message');
    this.images = [...this.images, image];
    announce('Image added');
  }

  /**
   * Bring any other file to the server, where tools can read it.
   * @param {File} file
   */
  async upload(file) {
    if (file.size > MAX_FILE) throw new Error(`${file.name} is too large to send (${Math.round(file.size / 1e6)} MB)`);
    const { base64 } = await import('./attachments.js');
    const { path } = await this.session.call('upload_file', { name: file.name, data: await base64(file) });
    this.files = [...this.files, { name: file.name, path }];
    announce('File added');
  }

  showImages() {
    const { images, files, stored } = this;
    if (this.owner && (images !== stored.images || files !== stored.files)) {
      this.stored = { images, files };
      keepAttached(this.owner, { images, files });
    }
    reconcile($('attachments'), [
      ...images.map(image => ({ key: image, build: () => this.imageToSend(image) })),
      ...files.map(file => ({ key: file, build: () => this.fileToSend(file) })),
    ]);
  }

  /** @param {any} image */
  imageToSend(image) {
    const remove = () => {
      this.images = this.images.filter(other => other !== image);
    };
    const thumbnail = el('img', { src: `data:${image.mimeType};base64,${image.data}`, alt: 'Image to send' });
    return el('figure', null, thumbnail, this.removeButton('image', remove));
  }

  /** @param {File} file */
  fileToSend(file) {
    const remove = () => {
      this.files = this.files.filter(other => other !== file);
    };
    const chip = fileChip(file);
    chip.append(this.removeButton(file.name, remove));
    return chip;
  }

  /**
   * @param {string} name
   * @param {Act} remove
   */
  removeButton(name, remove) {
    return iconButton(`Remove ${name}`, 'close', () => {
      remove();
      this.showImages();
      this.showState();
      this.field.focus();
    });
  }
}
