// The arguments of a tool call while the model is still writing them.

/**
 * Parse JSON that may stop anywhere; what cannot be told yet is left out. Returns undefined if there is nothing.
 * @param {string} text
 */
export function partialJson(text) {
  const cut = withEnds(text);
  for (const candidate of [text, cut.whole, cut.safe]) {
    try {
      return JSON.parse(candidate);
    } catch {
      /* the next one leaves out more */
    }
  }
  return undefined;
}

/**
 * Close everything that is open: at the end of the text, and at the last place where a value was complete.
 * @param {string} text
 */
function withEnds(text) {
  const open = [];
  let string = false;
  let safe = '';
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (string) {
      if (c === '\\') i++;
      else if (c === '"') string = false;
    } else if (c === '"') string = true;
    else if (c === '{' || c === '[') {
      open.push(c === '{' ? '}' : ']');
      safe = text.slice(0, i + 1) + ends(open);
    } else if (c === '}' || c === ']') open.pop();
    else if (c === ',') safe = text.slice(0, i) + ends(open);
  }
  // A string may stop within an escape sequence.
  const rest = string ? text.replace(/\\(?:u[\da-fA-F]{0,3})?$/, '') + '"' : text;
  return { whole: rest + ends(open), safe };
}

/** @param {string[]} open */
const ends = open => open.toReversed().join('');
