// What a program wrote for a terminal, as elements: colours, bold and the like, and lines that it wrote over.

import { el } from './dom.js';

const SEQUENCE = /\x1b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
const MAX_STYLED = 4000; // elements in one output; the rest is plain

/**
 * Output of a program as it would stand there in the end, without colours: for copying.
 * @param {string} text
 */
export const plainOutput = text => overwritten(text.replace(SEQUENCE, ''));

/**
 * Return the output as a fragment.
 * @param {string} text
 */
export function terminal(text) {
  const fragment = document.createDocumentFragment();
  const source = overwritten(text);
  if (!source.includes('\x1b')) {
    fragment.append(source);
    return fragment;
  }
  /** @type {any[]} */
  let style = [];
  let at = 0;
  let made = 0;
  /** @param {number} to */
  const add = to => {
    if (to === at) return;
    const piece = source.slice(at, to);
    if (style.length && made++ < MAX_STYLED) fragment.append(el('span', { class: style.join(' ') }, piece));
    else fragment.append(piece);
  };
  for (const match of source.matchAll(SEQUENCE)) {
    add(match.index);
    at = match.index + match[0].length;
    if (match[2] === 'm') style = styled(style, match[1]);
  }
  add(source.length);
  return fragment;
}

/**
 * A carriage return goes back to the beginning of the line: what follows is written over what stood there.
 * @param {string} text
 */
function overwritten(text) {
  if (!text.includes('\r')) return text;
  return text
    .replace(/\r+\n/g, '\n')
    .split('\n')
    .map(line => (line.includes('\r') ? overwrittenLine(line) : line))
    .join('\n');
}

/** @param {string} line */
function overwrittenLine(line) {
  let shown = '';
  for (const part of line.split('\r')) {
    if (part === '') continue;
    // With sequences in it, places cannot be counted; then the last writing stands alone.
    const mixed = part.includes('\x1b') || shown.includes('\x1b');
    shown = mixed ? part : part + shown.slice(part.length);
  }
  return shown;
}

/** @type {Record<string, any>} */
const SIMPLE = { 1: 'a-bold', 2: 'a-dim', 3: 'a-italic', 4: 'a-under', 9: 'a-strike' };
/** @type {Record<string, any>} */
const ENDS = {
  22: /^a-(?:bold|dim)$/,
  23: /^a-italic$/,
  24: /^a-under$/,
  29: /^a-strike$/,
  39: /^a-c\d+$/,
  49: /^a-g\d+$/,
};

/**
 * @param {string[]} style
 * @param {string} codes
 */
function styled(style, codes) {
  const numbers = codes.split(/[;:]/).map(Number);
  for (let k = 0; k < numbers.length; k++) {
    const n = numbers[k];
    if (n === 0) style = [];
    else if (SIMPLE[n]) style = [...style.filter(one => one !== SIMPLE[n]), SIMPLE[n]];
    else if (ENDS[n]) style = style.filter(one => !ENDS[n].test(one));
    else if ((n >= 30 && n <= 37) || (n >= 90 && n <= 97)) style = coloured(style, 'c', n % 10);
    else if ((n >= 40 && n <= 47) || (n >= 100 && n <= 107)) style = coloured(style, 'g', n % 10);
    else if (n === 38 || n === 48) {
      const direct = numbers[k + 1] === 2;
      const number = direct ? nearest(numbers.slice(k + 2, k + 5)) : paletted(numbers[k + 2]);
      k += direct ? 4 : 2;
      style = coloured(style, n === 38 ? 'c' : 'g', number);
    }
  }
  return style;
}

/**
 * @param {string[]} style
 * @param {string} kind
 * @param {number} number
 */
function coloured(style, kind, number) {
  const others = style.filter(one => !one.startsWith(`a-${kind}`));
  return [...others, `a-${kind}${number}`];
}

/**
 * One of the eight colours for one of the 256; bright ones look like the others.
 * @param {number} n
 */
function paletted(n) {
  if (!(n >= 16)) return Math.max(0, n || 0) % 8;
  if (n >= 232) return n < 240 ? 0 : 7;
  const m = n - 16;
  return nearest([Math.floor(m / 36) * 51, Math.floor((m % 36) / 6) * 51, (m % 6) * 51]);
}

/** @param {number[]} colour */
function nearest([r = 0, g = 0, b = 0]) {
  const bit = (/** @type {number} */ value) => (value > 110 ? 1 : 0);
  return bit(r) + 2 * bit(g) + 4 * bit(b);
}
