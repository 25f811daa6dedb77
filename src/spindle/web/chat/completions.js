// What may follow a slash at the beginning of a message: commands of extensions, prompt templates and skills.

import { $, el } from '../shared/dom.js';
import { oneLine } from '../shared/format.js';

const MAX_SHOWN = 8;

export class Completions {
  constructor(session, field, onTaken) {
    this.session = session;
    this.field = field;
    this.onTaken = onTaken;
    this.box = $('completions');
    this.commands = null;
    this.chosen = 0;
    session.on('attached', () => {
      this.commands = null;
    });
    field.addEventListener('blur', () => this.hide());
  }

  get open() {
    return !this.box.hidden;
  }

  async update() {
    const typed = /^\/(\S*)$/.exec(this.field.value)?.[1];
    if (typed === undefined) return this.hide();
    this.commands ??= this.session
      .call('get_commands')
      .then(({ commands }) => commands)
      .catch(() => []);
    const commands = await this.commands;
    if (this.field.value !== '/' + typed) return undefined;
    const fits = ({ name }) => name.toLowerCase().includes(typed.toLowerCase());
    const first = ({ name }) => (name.toLowerCase().startsWith(typed.toLowerCase()) ? 0 : 1);
    this.found = commands
      .filter(fits)
      .sort((a, b) => first(a) - first(b))
      .slice(0, MAX_SHOWN);
    this.chosen = 0;
    return this.show();
  }

  show() {
    this.box.hidden = this.found.length === 0;
    this.box.replaceChildren(
      ...this.found.map(({ name, description = '' }, i) => {
        const take = event => {
          event.preventDefault(); // the field keeps the focus
          this.take(i);
        };
        const props = {
          role: 'option',
          id: `completion-${i}`,
          'aria-selected': String(i === this.chosen),
          on: { mousedown: take },
        };
        return el('div', props, el('b', null, '/' + name), el('span', null, oneLine(description, 120)));
      }),
    );
    if (this.open) this.field.setAttribute('aria-activedescendant', `completion-${this.chosen}`);
  }

  hide() {
    this.box.hidden = true;
    this.field.removeAttribute('aria-activedescendant');
  }

  take(index) {
    this.field.value = `/${this.found[index].name} `;
    this.hide();
    this.onTaken();
  }

  /** Handle a key if it is meant for the list. */
  key(event) {
    if (!this.open) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.chosen = (this.chosen + step + this.found.length) % this.found.length;
      this.show();
    } else if (
      event.key === 'Tab' ||
      (event.key === 'Enter' && this.field.value !== '/' + this.found[this.chosen].name)
    )
      this.take(this.chosen);
    else if (event.key === 'Escape') this.hide();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
