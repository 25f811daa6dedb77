// Commands that the model runs in the background: how they have ended is told by messages, and by results of other calls.

/** The type of messages about them. */
export const BACKGROUND = 'spindle.background';
const ENDED = /^\[?(bg\d+) ((?!is running).* after [\d.]+ s)/m;

/**
 * Note what a text says of the end of a command.
 * @param {Map<string, string>} ends id → words
 * @param {string} text of a message or a result
 * @returns {string | undefined} the id of the command, if there is one
 */
export function noteEnd(ends, text) {
  const [, id, end] = ENDED.exec(text) ?? [];
  if (id) ends.set(id, `${id} ${end}`);
  return id;
}
