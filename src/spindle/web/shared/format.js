// Values as people read them. What comes from a session may have any shape, so it is checked here before it is used.

/** @param {unknown} value */
export const str = value => (typeof value === 'string' ? value : '');
/** @param {unknown} value */
export const list = value => (Array.isArray(value) ? value : []);
/** @param {any} value */
export const obj = value => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {});
const grouped = new Intl.NumberFormat('en'); // making one takes as long as using it a thousand times
/**
 * @param {number} n
 * @param {string} noun
 */
export const count = (n, noun, format = grouped.format) => `${format(n)} ${noun}${n === 1 ? '' : 's'}`;

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * The text of a content field: a string, or a list of blocks.
 * @param {any} content
 */
export function textOf(content) {
  if (typeof content === 'string') return content;
  const texts = [];
  for (const block of list(content)) if (obj(block).type === 'text' && str(block.text)) texts.push(block.text);
  return texts.join('\n');
}

/** @param {any} content */
export const imagesOf = content => list(content).filter(block => obj(block).type === 'image');

const TURNING = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const UNSEEN = /[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/**
 * A text without what would turn round its letters.
 * @param {string} text
 */
export const straight = text => text.replace(TURNING, '\ufffd');

/**
 * A name without what would hide or turn round its letters.
 * @param {string} name
 */
export const shownName = name => name.replace(UNSEEN, '\ufffd');

/** @param {string} text */
export function oneLine(text, limit = 160) {
  const line = text
    .slice(0, limit * 4)
    .replace(/\s+/g, ' ')
    .trim();
  return line.length > limit ? line.slice(0, limit - 1) + '…' : line;
}

/**
 * The words of a text in Markdown, without its marks, in one line.
 * @param {string} text
 * @param {number} [limit]
 */
export function plainWords(text, limit) {
  const words = text
    .slice(0, 1000)
    .replace(/^ *(?:#{1,6}|>|[-*+]|```.*) +|^ *(?:```|~~~).*$/gm, '')
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, '$1')
    .replace(/\*\*|~~|`/g, '')
    .replace(/(^|[\s(])([*_])([^\s*_](?:[^*_\n]*[^\s*_])?)\2(?![\w*_])/gm, '$1$3');
  return oneLine(words, limit);
}

/**
 * JSON for people.
 * @param {unknown} value
 */
export function pretty(value) {
  try {
    return JSON.stringify(value, null, 2) ?? '';
  } catch {
    return '(nested too deep to show)';
  }
}
