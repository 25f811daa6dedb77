// A turn: a message of the user and all that follows from it. One line says what was done; it opens into the steps.

import { el, icon } from '../shared/dom.js';
import { count, duration, obj, str } from '../shared/format.js';
import { pathOf } from '../shared/tool-card.js';
import { cost } from './figures.js';

const CHANGING = new Set(['write', 'edit']);

export class Turn {
  /** `toggled()` is called when the reader opens or closes it. */
  constructor(began, toggled) {
    this.began = began; // milliseconds
    this.ended = began;
    this.tools = 0;
    this.files = new Set();
    this.cost = 0;
    this.chosen = null; // whether it is open, if the reader has decided that
    this.newest = false;
    this.running = false;
    this.last = null; // the row of the last answer, which is always in view
    this.words = el('span');
    this.node = el(
      'button',
      { type: 'button', class: 'turn', on: { click: () => this.toggle(toggled) } },
      icon('chevron'),
      this.words,
    );
  }

  get open() {
    return this.chosen ?? this.newest;
  }

  toggle(toggled) {
    this.chosen = !this.open;
    toggled();
  }

  takeAnswer(message, when) {
    this.ended = Math.max(this.ended, when || 0);
    this.cost += obj(obj(message.usage).cost).total || 0;
    for (const block of message.content) if (block?.type === 'toolCall') this.tools++;
  }

  takeResult(name, args, isError, when) {
    this.ended = Math.max(this.ended, when || 0);
    if (CHANGING.has(name) && !isError && str(pathOf(obj(args)))) this.files.add(pathOf(args));
  }

  paint() {
    const passed = (this.running ? Date.now() : this.ended) - this.began;
    const facts = [
      count(this.tools, 'tool'),
      this.files.size ? count(this.files.size, 'file') : '',
      passed >= 1000 ? duration(this.running ? Math.floor(passed / 1000) * 1000 : passed) : '',
      this.cost ? cost(this.cost) : '',
    ];
    const text = facts.filter(Boolean).join(', ');
    if (this.words.textContent !== text) this.words.textContent = text;
    this.node.setAttribute('aria-expanded', String(this.open));
    this.node.classList.toggle('running', this.running);
  }
}
