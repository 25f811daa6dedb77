// Comments on lines of the changes: they wait above the field, and go to the model with the next message.

import { $, el, icon, iconButton, unsent } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';

/** @typedef {{ path: string, line: number, gone: boolean, code: string, words: string }} LineComment */

/**
 * A message with comments at its end.
 * @param {string} text
 * @param {LineComment[]} comments
 */
export function withComments(text, comments) {
  if (!comments.length) return text;
  const parts = comments.map(({ path, line, gone, code, words }) =>
    [`${path}:${line}${gone ? ' (a line that was removed)' : ''}`, `> ${code}`, words].join('\n'),
  );
  return [text, `Comments on the changes:\n\n${parts.join('\n\n')}`].filter(part => part.trim()).join('\n\n');
}

export class LineComments {
  /** @type {LineComment[]} */
  all = [];

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.node = $('comments');
    session.on('attached', () => this.recall());
    session.on('comment', (/** @type {LineComment} */ comment) => this.set([...this.all, comment]));
  }

  /** Those of this conversation that were written in this tab. */
  recall() {
    this.all = JSON.parse(unsent.get(`comments-${this.session.id}`) ?? '[]');
    this.show();
  }

  /** @param {LineComment[]} all */
  set(all) {
    this.all = all;
    unsent.set(`comments-${this.session.id}`, all.length ? JSON.stringify(all) : null);
    this.show();
  }

  /** Take them all: they are sent. */
  take() {
    const { all } = this;
    if (all.length) this.set([]);
    return all;
  }

  show() {
    this.node.hidden = !this.all.length;
    const title = {
      key: 'title',
      build: () => el('b'),
      update: (/** @type {Element} */ node) => {
        node.textContent = `${count(this.all.length, 'comment')} on the changes, for the next message`;
      },
    };
    reconcile(this.node, [
      title,
      ...this.all.map((comment, i) => ({
        key: `${i} ${JSON.stringify(comment)}`,
        build: () => this.line(comment),
      })),
    ]);
    this.session.emit('comments');
    this.session.emit('state');
  }

  /** @param {LineComment} comment */
  line(comment) {
    const remove = () => this.set(this.all.filter(one => one !== comment));
    return el(
      'div',
      { class: 'comment' },
      icon('pencil'),
      el('span', null, el('code', null, `${comment.path}:${comment.line}`), ' ', comment.words),
      iconButton('Remove the comment', 'close', remove),
    );
  }
}
