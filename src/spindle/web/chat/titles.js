// What a conversation is called: by the name it was given, else by the first sentence that was said in it.

import { splitFiles } from '../shared/attached.js';
import { plainWords } from '../shared/format.js';

const SENTENCE = /^.{6,79}?[.!?…:](?=\s|$)|^.{3,40}?[。！？]/u;
const LONGEST = 80;

/**
 * The first sentence of a message, without marks of Markdown, or the names of its files.
 * @param {any} message
 */
export function firstSentence(message) {
  const { text, files } = splitFiles(message);
  const lines = text.trim().split('\n', 1)[0].trim() || text;
  const sentence = SENTENCE.exec(plainWords(lines, 400))?.[0] ?? plainWords(lines, LONGEST);
  return sentence.replace(/[.:]$/, '') || files.map(({ name }) => name).join(', ');
}

/**
 * Of a conversation in the list.
 * @param {any} fields
 */
export const titleOf = ({ name, firstMessage }) => name || firstSentence(firstMessage ?? '') || 'Conversation';

/**
 * The name of a file that is made of a conversation.
 * @param {string} title
 * @param {string} end
 */
export const fileName = (title, end) =>
  `${title
    .replace(/[^\p{L}\p{N}_-]+/gu, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60)}${end}`;
