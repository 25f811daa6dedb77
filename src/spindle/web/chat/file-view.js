// A file, to be looked at: a text with colours and numbers of lines, or an image. Of a long text the part around the line
// that was asked for comes first, and more of it when the reader wants more.

import { announce, button, copyButton, el, fill } from '../shared/dom.js';
import { count, shownName } from '../shared/format.js';
import { CodePainter, languageOfPath } from '../shared/highlight.js';
import { picture } from '../shared/images.js';
import { sizeOf } from './folder-tree.js';

const LINE = 20; // pixels; the style sheet agrees
const BEFORE = 200; // lines before the one that was asked for, if it is far down in a long file
const LONG_LINE = 5000; // characters, from which on lines are wrapped: browsers are slow with longer ones

export class FileView {
  /** @type {string} */
  path;
  /** @type {string} */
  text;
  /** @type {number} */
  first;
  /** @type {number} */
  nextByte;
  /** @type {number} */
  whole;
  /** @type {string | null | undefined} */
  data;
  /** @type {string} */
  numbered;
  /** @type {HTMLElement} */
  bar;
  /** @type {HTMLElement} */
  rest;
  /** @type {HTMLElement} */
  numbers;
  /** @type {CodePainter} */
  painter;
  /** @type {CodePainter} */
  numberPainter;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.node = el('section', { class: 'file-view', 'aria-label': 'File' });
    this.name = el('span', { class: 'path' });
    this.size = el('small');
    this.field = el('input', { type: 'text', inputmode: 'numeric', 'aria-label': 'Go to line', placeholder: 'Line' });
    this.field.addEventListener('keydown', event => this.fieldKey(event));
    this.copy = copyButton('Copy what is shown', () => this.text);
    this.body = el('div', { class: 'file-body', tabindex: '0', role: 'region' });
    this.body.addEventListener('keydown', event => this.bodyKey(event));
    const head = el('header', null, this.name, this.size, el('span', { class: 'room' }), this.field, this.copy);
    this.node.append(head, this.body);
    this.clear();
  }

  clear() {
    this.path = '';
    this.text = '';
    this.first = 1; // the number of the first line that is here
    this.nextByte = 0; // where the rest begins, if it is not here
    this.whole = 0; // bytes of the file
    this.data = ''; // of an image
    this.node.hidden = true;
  }

  /**
   * Show a file, with a line of it in view. Returns its path as the server has it.
   * @param {string} path
   * @param {number} line
   */
  async show(path, line) {
    this.clear();
    this.path = path;
    this.node.hidden = false;
    this.title(path, '');
    fill(this.body, el('p', { class: 'aside' }, 'Reading…'));
    try {
      const part = await this.read(path, line);
      if (this.path !== path) return '';
      this.path = part.path;
      this.take(part, line);
      return part.path;
    } catch (error) {
      if (this.path === path) this.say(error.message, 'wrong');
      return '';
    }
  }

  /**
   * @param {string} path
   * @param {number} line
   */
  async read(path, line) {
    const part = await this.session.call('read_file', { path });
    if (!part.nextByte || line < linesOf(part.text ?? '')) return part;
    return this.session.call('read_file', { path, line: Math.max(1, line - BEFORE) });
  }

  /**
   * @param {string} path
   * @param {string} size
   */
  title(path, size) {
    const { cwd } = this.session;
    const shown = shownName(path.startsWith(`${cwd}/`) ? path.slice(cwd.length + 1) : path);
    const slash = shown.lastIndexOf('/') + 1;
    fill(this.name, el('span', { class: 'soft' }, shown.slice(0, slash)), el('b', null, shown.slice(slash)));
    this.name.title = shown;
    this.size.textContent = size;
    this.body.ariaLabel = shown;
  }

  /**
   * @param {any} part
   * @param {number} line
   */
  take({ path, kind, size, text = '', line: first, nextByte, mimeType, data }, line) {
    this.whole = size;
    this.data = data;
    this.title(path, sizeOf(size));
    this.field.hidden = this.copy.hidden = kind !== 'text';
    if (kind === 'binary') this.say(`This is no text: ${sizeOf(size)} of binary data, of which nothing is shown.`);
    else if (kind === 'image' && !data) this.say(`An image of ${sizeOf(size)}: too large to be shown.`);
    else if (kind === 'image') fill(this.body, el('div', { class: 'file-image' }, picture({ mimeType, data })));
    else if (!size) this.say('The file is empty.');
    else this.takeText(text, first ?? 1, nextByte, line);
  }

  /**
   * @param {string} words
   * @param {string} [kind]
   */
  say(words, kind = 'aside') {
    fill(this.body, el('p', { class: kind, role: 'status' }, words));
  }

  /**
   * @param {string} text
   * @param {number} first
   * @param {number | null | undefined} nextByte
   * @param {number} line
   */
  takeText(text, first, nextByte, line) {
    this.text = text;
    this.first = first;
    this.bar = el('div', { class: 'file-mark', hidden: true });
    this.rest = el('p', { class: 'aside' });
    this.numbers = el('pre', { class: 'numbers', 'aria-hidden': 'true' });
    const code = el('code');
    this.numbered = '';
    this.painter = new CodePainter(code, languageOfPath(this.path));
    this.numberPainter = new CodePainter(this.numbers, '');
    const isLong = text.split('\n', 20_000).some(one => one.length > LONG_LINE);
    const kind = isLong ? 'file-lines long' : 'file-lines';
    const start = button('link', () => this.show(this.path, 0), 'From the beginning');
    const before = first > 1 ? el('p', { class: 'aside' }, start) : '';
    fill(this.body, before, el('div', { class: kind }, this.numbers, el('pre', null, code), this.bar), this.rest);
    this.paint(nextByte);
    this.mark(line);
  }

  /** @param {number | null | undefined} nextByte */
  paint(nextByte) {
    this.nextByte = nextByte ?? 0;
    this.painter.set(this.text);
    const last = this.first + linesOf(this.text) - 1;
    for (let n = this.first + this.numbered.split('\n').length - 1; n <= last; n++) this.numbered += `${n}\n`;
    this.numberPainter.set(this.numbered);
    this.numbers.style.minWidth = `calc(${String(last).length}ch + 24px)`;
    const more = () => this.session.attempt(() => this.more());
    const words = `Show more: ${sizeOf(this.whole - this.nextByte)} are left`;
    fill(this.rest, this.nextByte ? button('plain', more, words) : '');
    this.rest.hidden = !this.nextByte;
  }

  async more() {
    const { path } = this;
    const part = await this.session.call('read_file', { path, byte: this.nextByte });
    if (this.path !== path || part.byte !== this.nextByte) return;
    this.text += part.text ?? '';
    this.paint(part.nextByte);
  }

  /**
   * Bring a line into view and mark it; 0 is none.
   * @param {number} line
   */
  mark(line) {
    const last = this.first + linesOf(this.text) - 1;
    this.bar.hidden = line < this.first || line > last;
    if (!line) {
      this.body.scrollTop = 0;
      return;
    }
    if (this.bar.hidden) {
      announce(`The file has ${count(last, 'line')}`);
      return;
    }
    this.bar.style.top = `${(line - this.first) * LINE}px`;
    this.bar.scrollIntoView({ block: 'center', inline: 'start' });
    announce(`Line ${line}`);
  }

  /** @param {KeyboardEvent} event */
  fieldKey(event) {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    const line = Number.parseInt(this.field.value, 10);
    if (!(line > 0)) return;
    this.field.value = '';
    if (this.nextByte && line > this.first + linesOf(this.text) - 1) this.show(this.path, line);
    else if (line < this.first) this.show(this.path, line);
    else this.mark(line);
    this.body.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  bodyKey(event) {
    if (event.key !== 'g' || event.altKey || event.ctrlKey || event.metaKey || this.field.hidden) return;
    event.preventDefault();
    this.field.focus();
  }

  /** Read it again: something may have changed it. The place in it stays. */
  async refresh() {
    const { path } = this;
    if (!path) return;
    const part = await this.session.call('read_file', { path, line: this.first });
    const text = part.text ?? '';
    const isSame = part.size === this.whole && part.data === this.data && this.text.startsWith(text);
    if (this.path !== path || isSame) return;
    const { scrollTop } = this.body;
    this.take(part, 0);
    this.body.scrollTop = scrollTop;
  }
}

/** @param {string} text */
function linesOf(text) {
  let n = text.endsWith('\n') || !text ? 0 : 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) n++;
  return n;
}
