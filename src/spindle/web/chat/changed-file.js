// A changed file in the list of changes: a line, which opens into its hunks. They are made when it is opened, and those
// that stay the same stay in the document while the agent goes on editing.

import { diffView, showSize, sideBySide } from '../shared/diff.js';
import { button, copyButton, el, icon } from '../shared/dom.js';
import { count, shownName } from '../shared/format.js';
import { languageOfPath } from '../shared/highlight.js';
import { Row } from '../shared/list.js';
import { reconcile } from '../shared/reconcile.js';
import { commentForm } from './comment-form.js';

/** @import { LineComment } from './line-comments.js' */

const HUNKS_AT_ONCE = 40; // hunks that are shown before the reader wants more

export class ChangedFile extends Row {
  /** @type {any} */
  size;
  /** @type {any} */
  about;
  /** @type {any} */
  body;
  /** @type {any} */
  mark;
  /** @type {HTMLInputElement} */
  seen;

  /**
   * `pane`: `session`, `isWide`, `comments()`, `revert(change, hunk)`, `review(change, seen)`, `isReviewed(change)`.
   * @param {any} pane
   * @param {any} change
   * @param {boolean} open
   */
  constructor(pane, change, open) {
    super('changed', () => this.draw(), 46);
    this.pane = pane;
    this.change = change;
    this.open = open;
    this.most = HUNKS_AT_ONCE;
    this.size = this.about = this.body = null; // while it has an element
  }

  draw() {
    const path = shownName(this.change.path);
    const slash = path.lastIndexOf('/') + 1;
    const name = el(
      'span',
      { class: 'path', title: path },
      el('span', { class: 'soft' }, path.slice(0, slash)),
      el('b', null, path.slice(slash)),
    );
    this.size = el('span', { class: 'size' });
    this.about = el('p', { class: 'aside' });
    this.body = el('div', { class: 'hunks' });
    const copy = copyButton('Copy this file’s changes', () => this.change.patch);
    const revert = this.change.isKept ? button('link', () => this.pane.revert(this.change), 'Revert file') : null;
    this.seen = el('input', { type: 'checkbox' });
    this.seen.addEventListener('change', () => this.pane.review(this.change, this.seen.checked));
    const seen = el('label', { class: 'seen' }, this.seen, 'Reviewed');
    const tools = el('div', { class: 'file-tools' }, this.about, el('span', { class: 'room' }), seen, revert, copy);
    const summary = el('summary', null, icon('file'), name, this.size, icon('chevron'));
    const node = el('details', { class: 'changed', open: this.open }, summary, tools, this.body);
    // Made before it is seen: the event comes after that.
    summary.addEventListener('click', () => this.setOpen(!node.open));
    node.addEventListener('toggle', () => this.open !== node.open && this.setOpen(node.open));
    this.paint();
    return el('div', { class: 'changed-row' }, node);
  }

  /** @param {boolean} open */
  setOpen(open) {
    this.open = open;
    this.paint();
  }

  /**
   * The file has changed once more, or more is known of it.
   * @param {any} change
   */
  take(change) {
    const same = change === this.change && change.mark === this.mark;
    this.change = change;
    if (!same) this.paint();
  }

  paint() {
    if (!this.body) return;
    const { change } = this;
    this.mark = change.mark;
    this.seen.checked = this.pane.isReviewed(change);
    showSize(this.size, change.added, change.removed);
    this.about.textContent = change.about;
    this.about.hidden = !change.about;
    if (this.open) this.paintHunks();
  }

  paintHunks() {
    const { change, pane } = this;
    const language = languageOfPath(change.path);
    const seen = new Map();
    const all = change.parts();
    const parts = all.slice(0, this.most).map((/** @type {any} */ hunk) => {
      const text = hunk.rows.map((/** @type {any} */ { sign, text: line }) => `${sign || ' '}${line}`).join('\n');
      seen.set(text, (seen.get(text) ?? 0) + 1); // two hunks may be the same
      const comments = pane.comments().filter((/** @type {LineComment} */ one) => isAbout(one, change.path, hunk));
      const state = `${hunk.head} ${hunk.rows[0]?.after} ${pane.isWide} ${JSON.stringify(comments)}`;
      return { key: `${seen.get(text)} ${text}`, state, build: () => this.hunk(hunk, language, comments) };
    });
    const rest = all.length - parts.length;
    if (rest) parts.push({ key: 'more', state: String(rest), build: () => this.more(rest) });
    reconcile(this.body, parts);
  }

  /**
   * @param {any} hunk
   * @param {string} language
   * @param {LineComment[]} comments
   */
  hunk(hunk, language, comments) {
    const view = this.pane.isWide ? sideBySide : diffView;
    const { change } = this;
    const canRevert = change.isKept && change.status === 'modified' && hunk.text;
    const revert = canRevert ? button('link', () => this.pane.revert(change, hunk), 'Revert') : null;
    if (revert) revert.ariaLabel = `Revert these lines, from ${hunk.rows[0]?.after || hunk.rows[0]?.before}`;
    const diff = view(hunk.rows, language);
    const node = el('div', { class: 'hunk' }, diff, el('div', { class: 'hunk-tools' }, revert));
    diff.addEventListener('click', event => this.comment(node, placeOf(event.target)));
    const first = hunk.rows.find((/** @type {any} */ { sign }) => sign) ?? hunk.rows[0];
    const place = { line: Number(first?.after || first?.before), gone: first?.sign === '-', code: first?.text ?? '' };
    const comment = button('link', () => this.comment(node, place), 'Comment');
    comment.ariaLabel = `Comment on these lines, from ${place.line}`;
    node.lastElementChild?.prepend(comment);
    for (const { line, words } of comments)
      node.append(
        el('p', { class: 'comment' }, icon('pencil'), el('code', null, String(line)), el('span', null, words)),
      );
    return node;
  }

  /**
   * Let the user comment on a line; the comment goes along with the next message.
   * @param {HTMLElement} hunk
   * @param {{ line: number, gone: boolean, code: string } | null} place
   */
  comment(hunk, place) {
    if (!place?.line || !getSelection()?.isCollapsed) return;
    hunk.querySelector('.comment-form')?.remove();
    const form = commentForm({ path: this.change.path, ...place }, comment => {
      form.remove();
      if (comment) this.pane.session.emit('comment', comment);
    });
    hunk.append(form);
    form.querySelector('textarea')?.focus();
  }

  /** @param {number} rest */
  more(rest) {
    const show = () => {
      this.most += HUNKS_AT_ONCE;
      this.paintHunks();
    };
    return button('plain', show, `Show more: ${count(rest, 'part')} of the file are left`);
  }
}

/**
 * Whether a comment is about a line of a hunk.
 * @param {LineComment} comment
 * @param {string} changed
 * @param {Hunk} hunk
 */
const isAbout = ({ path, line, gone }, changed, hunk) =>
  path === changed && hunk.rows.some(row => (gone ? row.sign === '-' && row.before : row.after) === line);

/**
 * Which line of a diff something is in: in one column or in two.
 * @param {any} target
 */
function placeOf(target) {
  const row = target.closest('.half') ?? target.closest('.diff > div');
  const numbers = [...(row?.querySelectorAll('i') ?? [])].map(node => Number(node.textContent));
  const line = numbers.findLast(number => number > 0);
  return line
    ? { line, gone: row.classList.contains('del'), code: row.querySelector('span')?.textContent ?? '' }
    : null;
}
