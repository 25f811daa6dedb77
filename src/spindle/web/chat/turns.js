// A turn: a message of the user and all that follows from it. One line says what was done; it opens into the steps.

import { button, el, icon, unsent } from '../shared/dom.js';
import { count, duration, obj, str } from '../shared/format.js';
import { CHANGING, pathOf } from '../shared/tool-card.js';
import { cost } from './figures.js';

const RECENT = 5; // steps of the newest turn that are in view

export class Turn {
  /**
   * `toggled()` is called when the reader opens or closes it.
   * @param {number} began
   * @param {Act} toggled
   */
  constructor(began, toggled) {
    this.began = began; // milliseconds
    this.ended = began;
    this.tools = 0;
    this.files = new Set();
    this.cost = 0;
    /** @type {boolean | null} */
    this.chosen = null; // whether it is open, if the reader has decided that
    this.newest = false;
    this.running = false;
    /** @type {string | null} */
    this.id = null; // of the message it begins with
    /** @type {any} */
    this.waited = null; // milliseconds in which the user was asked something, as far as this tab knows
    this.asked = 0; // since when, while that is so
    this.steps = 0; // answers
    this.recent = 0; // the first of the newest turn's steps that are in view
    this.last = null; // the row of the last answer, which is always in view
    /** @type {AssistantMessage | null} */
    this.first = null; // answer, once it is complete
    /** @type {MessageRow | null} */
    this.line = null; // its own row
    this.toggled = toggled;
  }

  build() {
    this.remember();
    const node = button('turn', () => this.toggle(), icon('chevron'), el('span'));
    node.turn = this;
    this.paint(node);
    return node;
  }

  /**
   * Whether all steps are in view.
   * @returns {boolean}
   */
  get open() {
    return this.chosen ?? (this.newest && this.recent === 0);
  }

  /**
   * Whether a row of it is in view: of the newest turn, unless the reader has decided, the last steps are.
   * @param {MessageRow} row
   */
  shows(row) {
    return this.open || row === this.last || (this.newest && this.chosen === null && row.step >= this.recent);
  }

  /**
   * Take the row of the next answer.
   * @param {MessageRow} row
   */
  step(row) {
    row.step = this.steps++;
    this.last = row;
  }

  /** Let only the last steps be in view. */
  fold() {
    this.recent = Math.max(0, this.steps - RECENT);
  }

  /**
   * An answer begins; with `folds`, steps that are over may leave the view. Returns whether one has.
   * @param {MessageRow} row
   * @param {boolean} folds
   */
  begin(row, folds) {
    const { open, recent } = this;
    this.step(row);
    this.running = true;
    if (folds) this.fold();
    return this.line !== null && (!open || recent !== this.recent);
  }

  toggle() {
    this.chosen = !this.open;
    this.toggled();
  }

  remember() {
    this.waited ??= Number(unsent.get(`waited-${this.id}`) ?? 0);
  }

  /**
   * Time in which the user is asked something does not count.
   * @param {boolean} asked
   */
  wait(asked) {
    if (asked === this.asked > 0) return;
    this.remember();
    if (!asked) {
      this.waited += Date.now() - this.asked;
      if (this.id) unsent.set(`waited-${this.id}`, String(this.waited));
    }
    this.asked = asked ? Date.now() : 0;
    this.paint();
  }

  /**
   * @param {AssistantMessage} message
   * @param {number} when
   */
  takeAnswer(message, when) {
    this.ended = Math.max(this.ended, when || 0);
    this.cost += obj(obj(message.usage).cost).total || 0;
    for (const block of message.content) if (block?.type === 'toolCall') this.tools++;
  }

  /**
   * @param {string} name
   * @param {Record<string, unknown>} args
   * @param {boolean} isError
   * @param {number} when
   */
  takeResult(name, args, isError, when) {
    this.ended = Math.max(this.ended, when || 0);
    if (CHANGING.has(name) && !isError && str(pathOf(obj(args)))) this.files.add(pathOf(args));
  }

  /** Bring its line up to date, if that is in the document. */
  paint(node = this.line?.node?.querySelector('.turn')) {
    if (!node) return;
    const passed = (this.running ? this.asked || Date.now() : this.ended) - this.began - this.waited;
    const facts = [
      count(this.tools, 'tool'),
      this.files.size ? count(this.files.size, 'file') : '',
      passed >= 1000 ? duration(this.running ? Math.floor(passed / 1000) * 1000 : passed) : '',
      this.cost ? cost(this.cost) : '',
    ];
    const text = facts.filter(Boolean).join(', ');
    const words = node.querySelector('span');
    if (words.textContent !== text) words.textContent = text;
    node.setAttribute('aria-expanded', String(this.open));
    node.classList.toggle('running', this.running);
  }
}
