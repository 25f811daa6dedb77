// Paths in answers and tool calls become links that open the file, at the line if one is named. Whether there is such a
// file, and the agent may read it, is asked of the server for many paths at once, when the page is at rest.

import { $, breathe, el } from '../shared/dom.js';

const REST_MS = 400; // after the last change of the page
const AT_ONCE = 200; // paths in one question
const MOST_WORDS = 400; // of one text that are looked at
const LONGEST = 100_000; // characters of a text that is looked at
const NAMED = ':is([data-tool=read], [data-tool=edit], [data-tool=write])'; // tools whose line is a path
const DONE = '.tool:is([data-state=done], [data-state=failed])';
const TEXTS = `.md, ${DONE}${NAMED} .gist, ${DONE} :is(pre.output, pre.command)`;
// A word that may be a path, and the line that may follow it: `:12`, `:12-20`, `#L12`, `(12)`.
const WORD = /([\p{L}\p{N}_./@+~-]{3,300})(?:(?::|#L)(\d{1,7})(?:[:–-]L?\d{1,7})?|\((\d{1,7})(?:,\d{1,7})?\))?/gu;
const LINE = /(?::|#L)(\d{1,7})(?:[:–-]L?\d{1,7})?$/;
const NAME_ALONE = /^[A-Z][\w-]{2,40}$/; // Makefile, LICENSE

/**
 * Whether a word looks like a path. What begins with // is the rest of an address.
 * @param {string} word
 */
const isLikely = word => !word.startsWith('//') && /\/[^/]|\.\p{L}[\p{L}\p{N}]{0,9}$/u.test(word);

export class PathLinks {
  /** @type {Map<string, boolean>} */
  known;
  /** @type {WeakMap<Element, string | null>} */
  done;
  /** @type {ReturnType<typeof setTimeout>} */
  timer;
  isLooking = false;

  /**
   * `open(path, line)` shows a file.
   * @param {Session} session
   * @param {(path: string, line: number) => void} open
   */
  constructor(session, open) {
    this.session = session;
    this.open = open;
    this.feed = $('feed');
    this.forget();
    new MutationObserver(() => this.plan()).observe(this.feed, { childList: true, subtree: true, characterData: true });
    // Before the line of a tool call opens or closes.
    this.feed.addEventListener('click', (/** @type {Event} */ event) => this.follow(event), true);
    this.feed.addEventListener(
      'keydown',
      (/** @type {any} */ event) => event.key === 'Enter' && this.follow(event),
      true,
    );
    session.on('reset', () => this.forget());
    for (const event of ['agent_settled', 'shell_end', 'background_end']) session.on(event, () => this.lookAgain());
    this.plan();
  }

  forget() {
    this.known = new Map(); // path → whether it can be opened
    this.lookAgain();
  }

  /** There may be files by now that were not there. */
  lookAgain() {
    for (const [path, exists] of this.known) if (!exists) this.known.delete(path);
    this.done = new WeakMap(); // element → its text when it was looked at
    this.plan();
  }

  plan() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), REST_MS);
  }

  /** Find what may be paths, ask for those that are not known, and make links. */
  async look() {
    if (this.isLooking) return this.plan();
    this.isLooking = true;
    await this.linkAll();
    this.isLooking = false;
  }

  async linkAll() {
    const { known, done } = this;
    if (!this.session.id || this.session.loading) return;
    /** @type {Place[]} */
    const places = [];
    for (const node of this.feed.querySelectorAll(TEXTS)) {
      const text = node.textContent ?? '';
      if (done.get(node) === text || node.closest('.answer:has(.pulse)')) continue; // it is not complete
      done.set(node, text);
      if (text.length <= LONGEST) places.push(...placesIn(node));
      await breathe();
    }
    const asked = [...new Set(places.map(({ path }) => path))].filter(path => !known.has(path));
    try {
      for (let i = 0; i < asked.length; i += AT_ONCE) {
        const paths = asked.slice(i, i + AT_ONCE);
        const found = new Set((await this.session.call('find_files', { paths })).paths);
        for (const path of paths) known.set(path, found.has(path));
      }
    } catch {
      this.done = new WeakMap(); // later, when there is a connection
      return;
    }
    if (known !== this.known) return; // another conversation was opened
    // From behind: the places before stay where they are.
    for (const place of places.reverse()) if (known.get(place.path)) link(place);
  }

  /** @param {Event} event */
  follow(event) {
    const node = /** @type {Element} */ (event.target).closest?.('.path-link');
    if (!(node instanceof HTMLElement) || !getSelection()?.isCollapsed) return;
    event.preventDefault();
    event.stopPropagation();
    this.open(node.dataset.path ?? '', Number(node.dataset.line));
  }
}

/** A stretch of a text that may be a path. @typedef {{ node: Text, from: number, to: number, words: string, path: string, line: number }} Place */

/**
 * @param {Element} root
 * @returns {Place[]}
 */
function placesIn(root) {
  /** @type {Place[]} */
  const places = [];
  root.normalize(); // a sign that could have been a mark, as in my_file.py, is a piece of its own
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && places.length < MOST_WORDS) {
    const node = /** @type {Text} */ (walker.currentNode);
    const around = /** @type {Element} */ (node.parentElement);
    if (around.closest('a, math, .md pre, .md button')) continue;
    const isName = root.matches('.gist') || around.matches('.md code');
    places.push(...(isName ? nameIn(node) : wordsIn(node)));
  }
  return places;
}

/**
 * A text that is a path as a whole, if it is one: it may have spaces.
 * @param {Text} node
 */
function nameIn(node) {
  const text = node.data;
  const found = LINE.exec(text);
  const path = found ? text.slice(0, found.index) : text;
  if (path.length < 3 || path.length > 300 || /\n|^-|:\/\//.test(path) || !(isLikely(path) || NAME_ALONE.test(path)))
    return [];
  return [{ node, from: 0, to: text.length, words: text, path, line: Number(found?.[1] ?? 0) }];
}

/** @param {Text} node */
function wordsIn(node) {
  const places = [];
  for (const match of node.data.matchAll(WORD)) {
    const line = Number(match[2] ?? match[3] ?? 0);
    const path = line ? match[1] : match[1].replace(/[.-]+$/, ''); // a full stop at the end of a sentence
    const words = line ? match[0] : path;
    const from = match.index;
    if (isLikely(path)) places.push({ node, from, to: from + words.length, words, path, line });
  }
  return places;
}

/** @param {Place} place */
function link({ node, from, to, words, path, line }) {
  if (!node.isConnected || node.data.slice(from, to) !== words) return; // it has changed meanwhile
  const selection = getSelection();
  if (selection && !selection.isCollapsed && selection.containsNode(node, true)) return; // the reader is about to copy it
  if (to < node.length) node.splitText(to);
  const text = from ? node.splitText(from) : node;
  const title = line ? `Show line ${line} of ${path}` : `Show ${path}`;
  const props = { class: 'path-link', 'data-path': path, 'data-line': line, title };
  const forKeys = { role: 'link', tabindex: '0' };
  // The line of a call is a button by itself: there the link is for the pointer, and for the keys it follows in the card.
  const output = text.parentElement?.closest('.gist')
    ? text.parentElement.closest('.tool')?.querySelector('.tool-output')
    : null;
  const anchor = el('a', output ? props : { ...props, ...forKeys });
  text.before(anchor);
  anchor.append(text);
  if (output && !output.querySelector(':scope > .path-link')) output.append(el('a', { ...props, ...forKeys }, title));
}
