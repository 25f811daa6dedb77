// What the reader wants to see open. It outlives the elements, which come and go as the list scrolls.

export const view = {
  thinking: false,
  tools: false,
  words: [], // what is searched for
  printing: false,
  chosen: new Map(), // what was opened or closed by hand
  redraw() {}, // set by the page

  /**
   * Whether a part is open: as the reader left it, else because the search found something in it, else `standard`.
   * @param {string} key
   * @param {boolean} standard
   * @param {string} text
   */
  isOpen(key, standard, text) {
    if (this.printing) return true; // paper cannot be opened
    const chosen = this.chosen.get(key);
    if (chosen !== undefined) return chosen;
    return standard || (this.words.length > 0 && holdsAny(text, this.words));
  },
  /**
   * @param {string} key
   * @param {boolean} open
   */
  remember(key, open) {
    this.chosen.set(key, open);
  },
  /**
   * @param {string} key
   * @param {boolean} open
   */
  toggle(key, open) {
    this.chosen.set(key, open);
    this.redraw();
  },
};

/**
 * @param {string} text
 * @param {any} words
 */
function holdsAny(text, words) {
  const lower = text.toLowerCase();
  return words.some((/** @type {string} */ word) => lower.includes(word));
}
