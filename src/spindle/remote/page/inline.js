// Text inside a paragraph: code, emphasis, links, line breaks. One scan with a stack of what is open; a thing that
// is never closed turns back into the characters it was written with. Linear time, whatever the text.

import { el } from './dom.js';

const MAX_OPEN = 64;
const MAX_LENGTH = 50_000;
const SPECIAL = /[\\`*_~[\]!<\n]|https?:\/\//g;
const TARGET = /\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+["'(][^"'()\n]*["')])?\s*\)/y;
const ANGLE = /<((?:https?:\/\/|mailto:)[^\s<>]+)>|<br\s*\/?>/iy;
const URL_TEXT = /https?:\/\/[^\s<>"'`[\]]+/y;
const isWord = c => c !== undefined && /[\p{L}\p{N}]/u.test(c);
const isSpace = c => c === undefined || /\s/.test(c);

/** Only these may be followed; anything else stays text. */
const isSafeLink = target => /^(?:https?:\/\/|mailto:)[^\s\x00-\x1f]+$/i.test(target);

const link = (target, ...children) =>
  el('a', { href: target, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children);

/** Return the nodes of `text`. */
export function inline(text) {
  return text.length > MAX_LENGTH ? [text] : new Scanner(text).run();
}

class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.open = [{ mark: '', nodes: [] }]; // the first one is the paragraph itself
    this.lastTicks = new Map(); // where the last run of so many backticks begins: no search for an end is in vain
    for (const match of text.matchAll(/`+/g)) this.lastTicks.set(match[0].length, match.index);
  }

  run() {
    const { text } = this;
    for (let match; ((SPECIAL.lastIndex = this.at), (match = SPECIAL.exec(text))) !== null;) {
      if (match.index > this.at) this.add(text.slice(this.at, match.index));
      this.at = match.index;
      const c = text[this.at];
      if (match[0].length > 1) this.url();
      else if (c === '\\') this.escape();
      else if (c === '`') this.code();
      else if (c === '\n') this.take(1, el('br'));
      else if (c === '[') this.begin('[');
      else if (c === '!') text[this.at + 1] === '[' ? this.begin('![') : this.take(1, '!');
      else if (c === ']') this.bracket();
      else if (c === '<') this.angle();
      else this.emphasis(c);
    }
    if (this.at < text.length) this.add(text.slice(this.at));
    this.flatten(0);
    return this.open[0].nodes;
  }

  add(node) {
    this.open.at(-1).nodes.push(node);
  }

  take(length, node) {
    this.add(node);
    this.at += length;
  }

  begin(mark) {
    if (this.open.length < MAX_OPEN) this.open.push({ mark, nodes: [] });
    else this.add(mark);
    this.at += mark.length;
  }

  /** Give up everything that was opened above `index`: it was only text. */
  flatten(index) {
    const { nodes } = this.open[index];
    for (const { mark, nodes: inner } of this.open.splice(index + 1)) nodes.push(mark, ...inner);
  }

  /** Close what was opened at `index` and return its nodes. */
  close(index) {
    this.flatten(index);
    return this.open.pop().nodes;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === '\n') this.take(2, el('br'));
    else if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) this.take(2, next);
    else this.take(1, '\\');
  }

  code() {
    const ticks = /`+/y;
    ticks.lastIndex = this.at;
    const run = ticks.exec(this.text)[0];
    const begin = this.at + run.length;
    for (let end = begin; end <= this.lastTicks.get(run.length);) {
      ticks.lastIndex = end = this.text.indexOf('`', end);
      const { length } = ticks.exec(this.text)[0];
      if (length === run.length) {
        const code = this.text.slice(begin, end).replaceAll('\n', ' ');
        const padded = code.startsWith(' ') && code.endsWith(' ') && code.trim() !== '';
        this.take(end + length - this.at, el('code', null, padded ? code.slice(1, -1) : code));
        return;
      }
      end += length;
    }
    this.take(run.length, run);
  }

  url() {
    URL_TEXT.lastIndex = this.at;
    const found = URL_TEXT.exec(this.text)?.[0] ?? '';
    let url = found.replace(/[.,;:!?*_~\])]+$/, '');
    // A closing parenthesis belongs to the address if one was opened in it.
    while (found[url.length] === ')' && url.split('(').length > url.split(')').length) url += ')';
    if (url.length > 'https://'.length) this.take(url.length, link(url, url));
    else this.take(4, this.text.slice(this.at, this.at + 4));
  }

  angle() {
    ANGLE.lastIndex = this.at;
    const match = ANGLE.exec(this.text);
    if (!match) this.take(1, '<');
    else this.take(match[0].length, match[1] ? link(match[1], match[1].replace(/^mailto:/i, '')) : el('br'));
  }

  bracket() {
    const index = this.open.findLastIndex(one => one.mark.endsWith('['));
    TARGET.lastIndex = this.at + 1;
    const target = index > 0 && !this.open[index].dead ? TARGET.exec(this.text) : null;
    if (!target || !isSafeLink(target[1])) {
      if (index > 0) this.fall(index);
      this.take(1, ']');
      return;
    }
    // Images of the web are not loaded: a link stands in their place. No link holds another one.
    const nodes = this.close(index).map(node => (node.nodeName === 'A' ? node.textContent : node));
    this.take(1 + target[0].length, link(target[1], ...(nodes.length ? nodes : [target[1]])));
    for (const one of this.open) if (one.mark === '[') one.dead = true;
  }

  /** Turn the bracket at `index` back into text without touching what was opened before it. */
  fall(index) {
    this.flatten(index);
    const { mark, nodes } = this.open.pop();
    this.open.at(-1).nodes.push(mark, ...nodes);
  }

  emphasis(c) {
    let end = this.at;
    while (this.text[end] === c) end++;
    const [before, after] = [this.text[this.at - 1], this.text[end]];
    let run = end - this.at;
    this.at = end;
    if (c === '~' && run !== 2) return this.add(c.repeat(run));
    if (!isSpace(before) && !(c === '_' && isWord(after))) run = this.endEmphasis(c, run);
    if (run > 0 && run <= 3 && !isSpace(after) && !(c === '_' && isWord(before))) {
      this.at -= run;
      if (run >= 2) this.begin(c.repeat(2));
      if (run % 2) this.begin(c);
    } else if (run > 0) this.add(c.repeat(run));
    return undefined;
  }

  /** Close as much as `run` marks can; returns how many are left. */
  endEmphasis(c, run) {
    for (let index; run > 0; run -= this.lastClosed) {
      index = this.open.findLastIndex(({ mark }) => mark[0] === c && mark.length <= run);
      if (index < 1 || this.isEmpty(index)) return run;
      this.lastClosed = this.open[index].mark.length;
      const tag = c === '~' ? 'del' : this.lastClosed === 2 ? 'strong' : 'em';
      const nodes = this.close(index);
      this.add(el(tag, null, ...nodes));
    }
    return run;
  }

  isEmpty(index) {
    return index === this.open.length - 1 && this.open[index].nodes.length === 0;
  }
}
