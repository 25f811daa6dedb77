// Tool cards that show a few lines of what went in and came back. The rest is behind a button (or the O key), and what
// the reader opened stays open when the list scrolls away and back.

import { el } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { isAside, ToolCard } from '../shared/tool-card.js';
import { view } from './view.js';

/** @type {Record<string, any>} */
const PREVIEW = { command: 10, content: 10, arguments: 12, changes: 40, output: 10 };
/** @type {Record<string, any>} */
const OUTPUT_PREVIEW = { bash: 6, ls: 20, grep: 20, find: 20 };
const PREVIEW_WIDTH = 5000;

export class FoldedCard extends ToolCard {
  /**
   * `key` says to the view which card this is.
   * @param {string} name
   * @param {string} state
   * @param {string} key
   */
  constructor(name, state, key) {
    super(name, state);
    this.key = key;
  }

  /** @param {Record<string, unknown>} args */
  setArguments(args) {
    super.setArguments(args);
    this.node.open = view.isOpen(this.key + ':card', !isAside(this.name, this.args), '');
  }

  touch() {
    super.touch();
    view.remember(this.key + ':card', !this.node.open);
  }

  /**
   * @param {string} text
   * @param {string} language
   * @param {string} label
   */
  codeView(text, language, label) {
    const tail = label === 'output' && this.name === 'bash';
    const limit =
      label === 'output' && Object.hasOwn(OUTPUT_PREVIEW, this.name) ? OUTPUT_PREVIEW[this.name] : PREVIEW[label];
    /** @param {string[]} lines */
    const draw = lines => super.codeView(lines.join('\n'), language, label);
    return folded(text.split('\n'), limit, `${this.key}:${label === 'output' ? 'out' : 'in'}`, text, draw, tail);
  }

  /** @param {any[]} rows */
  diffView(rows) {
    const text = rows.map(row => row.text).join('\n');
    return folded(rows, PREVIEW.changes, this.key + ':in', text, (/** @type {string[]} */ lines) =>
      super.diffView(lines),
    );
  }

  /**
   * @param {string} text
   * @param {string} language
   */
  outputView(text, language) {
    return this.name === 'task'
      ? super.outputView(text, language)
      : el('div', null, this.codeView(text, language, 'output'));
  }
}

/**
 * Show `limit` of the lines of `text`, or all of them. `tail` keeps the end, where a command says how it went.
 * @param {string[]} lines
 * @param {number} limit
 * @param {string} key
 * @param {string} text
 * @param {Act} draw
 */
export function folded(lines, limit, key, text, draw, tail = false) {
  const expanded = view.isOpen(key, view.tools, text);
  const hidden = lines.length - limit > 1 ? lines.length - limit : 0;
  let shown = expanded || !hidden ? lines : tail ? lines.slice(-limit) : lines.slice(0, limit);
  // A line may be endless, too.
  const wide = typeof lines[0] === 'string' && shown.join('\n').length > PREVIEW_WIDTH;
  if (wide && !expanded) {
    const preview = shown.join('\n');
    shown = [tail ? '…' + preview.slice(-PREVIEW_WIDTH) : preview.slice(0, PREVIEW_WIDTH) + '…'];
  }
  const box = el('div', { class: 'fold' }, draw(shown));
  if (!hidden && !wide) return box;
  const rest = hidden
    ? count(hidden, tail ? 'earlier line' : 'more line')
    : count(text.length - PREVIEW_WIDTH, 'more character');
  const more = moreButton(expanded, `Show ${rest}`, key);
  if (tail) box.prepend(more);
  else box.append(more);
  return box;
}

/**
 * @param {boolean} expanded
 * @param {string} label
 * @param {string} key
 */
export function moreButton(expanded, label, key) {
  const toggle = () => view.toggle(key, !expanded);
  return el(
    'button',
    { class: 'more', type: 'button', 'aria-expanded': String(expanded), on: { click: toggle } },
    expanded ? 'Show less' : label,
  );
}
