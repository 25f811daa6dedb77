// What may be completed where the user writes: commands, templates and skills after a slash at the beginning, files
// of the working directory after an @.

import { $, el } from '../shared/dom.js';
import { oneLine } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';

const MAX_COMPLETIONS = 8;

export class Completions {
  /** @type {Promise<any[]> | null} */
  commands;
  /** @type {any[]} */
  found;

  /**
   * @param {Session} session
   * @param {HTMLTextAreaElement} field
   * @param {Act} onTaken
   */
  constructor(session, field, onTaken) {
    this.session = session;
    this.field = field;
    this.onTaken = onTaken;
    this.box = $('completions');
    this.commands = null;
    this.found = []; // {label, detail, text, from}: `text` takes the place of what stands behind `from`
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
    const before = this.field.value.slice(0, this.field.selectionStart);
    const slash = /^\/(\S*)$/.exec(this.field.value);
    const at = /(?:^|\s)@([^\s@]*)$/.exec(before);
    if (!slash && !at) return this.hide();
    const asked = this.field.value;
    const typed = (slash ?? at)?.[1] ?? '';
    const from = slash ? 0 : before.length - typed.length;
    this.narrow(typed.toLowerCase(), from);
    const found = slash ? await this.commandsFor(typed) : await this.filesFor(typed, from);
    if (this.field.value !== asked) return undefined; // something else was typed meanwhile
    this.found = found.slice(0, MAX_COMPLETIONS);
    this.chosen = 0;
    return this.show();
  }

  /**
   * Keep of the list what still fits: Tab and Enter may come before the list for what was typed now.
   * @param {string} low
   * @param {number} from
   */
  narrow(low, from) {
    this.found = this.found.filter(item => item.from === from && item.label.toLowerCase().includes(low));
    this.chosen = 0;
    if (this.open) this.show();
  }

  /** @param {string} typed */
  async commandsFor(typed) {
    this.commands ??= this.session
      .call('get_commands')
      .then(({ commands }) => commands)
      .catch(() => []);
    const low = typed.toLowerCase();
    /** @param {any} fields */
    const first = ({ name }) => (name.toLowerCase().startsWith(low) ? 0 : 1);
    return (await this.commands)
      .filter(({ name }) => name.toLowerCase().includes(low))
      .sort((a, b) => first(a) - first(b))
      .map(({ name, description = '' }) => ({
        label: `/${name}`,
        detail: oneLine(description, 120),
        text: `/${name} `,
        from: 0,
      }));
  }

  /**
   * @param {string} typed
   * @param {number} from
   */
  async filesFor(typed, from) {
    try {
      const { paths } = await this.session.call('complete_path', { prefix: typed });
      return paths.map((/** @type {string} */ path) => ({ label: path, detail: '', text: `${path} `, from }));
    } catch {
      return [];
    }
  }

  show() {
    if (!this.found.length) return this.hide();
    this.box.hidden = false;
    reconcile(
      this.box,
      this.found.map((item, i) => ({
        key: `${item.from} ${item.label}`,
        build: () => this.option(item),
        update: node => {
          node.id = `completion-${i}`;
          node.ariaSelected = String(i === this.chosen);
        },
      })),
    );
    this.field.setAttribute('aria-activedescendant', `completion-${this.chosen}`);
    return undefined;
  }

  /** @param {any} fields */
  option({ label, detail, text, from }) {
    /** @param {KeyboardEvent} event */
    const take = event => {
      event.preventDefault(); // the field keeps the focus
      this.take({ text, from });
    };
    const props = { role: 'option', on: { mousedown: take } };
    return el('div', props, el('b', null, label), detail ? el('span', null, detail) : null);
  }

  hide() {
    this.box.hidden = true;
    this.field.removeAttribute('aria-activedescendant');
  }

  /** @param {any} fields */
  take({ text, from }) {
    const end = this.field.selectionStart;
    this.field.setRangeText(text, from, from === 0 ? this.field.value.length : end, 'end');
    this.hide();
    this.onTaken();
  }

  /**
   * Handle a key if it is meant for the list.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (!this.open) return false;
    const step = /** @type {Record<string, any>} */ ({ ArrowDown: 1, ArrowUp: -1 })[event.key];
    if (step) {
      this.chosen = (this.chosen + step + this.found.length) % this.found.length;
      this.show();
    } else if (
      event.key === 'Tab' ||
      (event.key === 'Enter' && this.field.value.trimEnd() !== this.found[this.chosen].label)
    )
      this.take(this.found[this.chosen]);
    else if (event.key === 'Escape') this.hide();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
