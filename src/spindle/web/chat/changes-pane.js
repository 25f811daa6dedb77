// All files that were changed in this conversation, each as one diff: beside it on a wide page, over it on a phone.

import { showSize } from '../shared/diff.js';
import { $, button, copyButton, el, iconButton, slices } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { VirtualList } from '../shared/list.js';
import { ChangedFile } from './changed-file.js';
import { FileChanges } from './file-changes.js';
import { firstCheckpoint, restore } from './restore.js';

/** @import { LineComment } from './line-comments.js' */

const WHOLE_LIST = 30; // up to so many files all are in the document
const FEW = { files: 6, lines: 600 }; // that stand open by themselves
const LOOK_MS = 4000; // between two looks at files that others may change, while the pane is open
const OVER = '(max-width: 1100px)'; // the pane covers the conversation
const WIDE = 760; // pixels, from which on there is room for two columns

export class ChangesPane {
  /** @type {VirtualList} */
  list;
  /** @type {HTMLElement} */
  sum;
  /** @type {HTMLButtonElement} */
  commit;
  /** @type {HTMLElement} */
  empty;

  /**
   * `offer(text)` puts a command where the user writes; `comments()` has those that wait for the next message.
   * @param {Session} session
   * @param {(text: string) => void} offer
   * @param {() => LineComment[]} comments
   */
  constructor(session, offer, comments) {
    this.offer = offer;
    this.comments = comments;
    this.session = session;
    this.node = $('changes');
    this.rows = new Map(); // file → its row
    this.reviewed = new Map(); // file → what it was like when it was reviewed
    this.isWide = false;
    this.build();
    this.changes = new FileChanges(session, () => this.refresh());
    session.on('reset', () => this.refresh());
    session.on('comments', () => this.paint());
    setInterval(() => this.isOpen && !document.hidden && this.changes.look(), LOOK_MS);
  }

  build() {
    this.sum = el('span', { class: 'size' });
    this.commit = button('link', () => this.offerCommit(), 'Commit…');
    this.commit.title = 'Puts the command for a commit of what was reviewed into the field';
    const all = () => [...this.changes.files.values()].map(({ patch }) => patch).join('');
    this.empty = el('p', { class: 'empty' }, 'No file was changed here yet.');
    const root = el('div');
    const scroller = el('div', { class: 'changed-files' }, this.empty, root);
    this.node.append(
      el(
        'header',
        null,
        el('h2', { id: 'changes-title' }, 'Changes'),
        this.sum,
        el('span', { class: 'room' }),
        this.commit,
        copyButton('Copy all as a patch', all),
        iconButton('Close the changes', 'close', () => this.toggle(false)),
      ),
      scroller,
    );
    this.list = new VirtualList(scroller, root, WHOLE_LIST);
    scroller.addEventListener('scroll', () => this.rows.size > WHOLE_LIST && this.list.update(), { passive: true });
    new ResizeObserver(() => this.measure()).observe(scroller);
  }

  measure() {
    const isWide = this.list.scroller.clientWidth >= WIDE;
    if (isWide === this.isWide) return;
    this.isWide = isWide;
    this.paint();
  }

  paint() {
    for (const row of this.rows.values()) row.paint();
  }

  get isOpen() {
    return !this.node.hidden;
  }

  toggle(open = !this.isOpen) {
    this.node.hidden = !open;
    document.body.classList.toggle('with-changes', open);
    $('open-changes').setAttribute('aria-expanded', String(open));
    if (open) {
      this.measure();
      this.show();
      this.node.querySelector('button')?.focus();
    } else $('open-changes').focus();
  }

  refresh() {
    const { size } = this.changes.files;
    $('open-changes').hidden = size === 0 && !this.isOpen;
    $('open-changes').querySelector('span').textContent = String(size);
    $('open-changes').title = `${count(size, 'file')} changed (Alt+D)`;
    $('open-changes').ariaLabel = `${count(size, 'file')} changed`;
    if (this.isOpen) this.show();
  }

  /** Show the files; what is the same as before stays as it is. */
  async show() {
    const files = [...this.changes.files.values()];
    const lines = files.reduce((sum, { added, removed }) => sum + added + removed, 0);
    const open = files.length <= FEW.files && lines <= FEW.lines;
    const before = this.rows;
    this.rows = new Map(
      files.map(change => {
        const row = before.get(change.path) ?? new ChangedFile(this, change, open);
        row.take(change);
        return [change.path, row];
      }),
    );
    this.empty.hidden = files.length > 0;
    this.commit.hidden = !files.length;
    this.list.show([...this.rows.values()]);
    this.addUp();
    const pause = slices();
    for (const change of files) {
      if (!change.steps?.length) continue; // all is known of it
      await change.ready(pause);
      await pause();
      if (this.changes.files.get(change.path) !== change) return;
      this.rows.get(change.path)?.paint();
    }
    this.addUp();
  }

  /**
   * @param {any} change
   * @param {boolean} seen
   */
  review(change, seen) {
    if (seen) this.reviewed.set(change.path, change.mark);
    else this.reviewed.delete(change.path);
  }

  /**
   * Whether a file was reviewed as it is now.
   * @param {any} change
   */
  isReviewed(change) {
    return this.reviewed.get(change.path) === change.mark;
  }

  /** A commit is a command of the user: it is offered with the files that were reviewed, or with all. */
  offerCommit() {
    const files = [...this.changes.files.values()];
    const chosen = files.filter(change => this.isReviewed(change));
    const paths = (chosen.length ? chosen : files).flatMap(({ path, oldPath }) => (oldPath ? [oldPath, path] : [path]));
    const words = paths
      .map(path => (/^[\w./@%+=:,-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`))
      .join(' ');
    if (matchMedia(OVER).matches) this.toggle(false); // the field is behind it
    this.offer(`!git add -A -- ${words} && git commit -m "" -- ${words}`);
  }

  addUp() {
    const files = [...this.changes.files.values()];
    /** @param {string} key */
    const total = key => files.reduce((sum, change) => sum + change[key], 0);
    showSize(this.sum, total('added'), total('removed'));
  }

  /**
   * Give a file, or one part of it, the state from before the conversation.
   * @param {any} fields of the change
   * @param {any} hunk
   */
  revert({ path, oldPath }, hunk = null) {
    return this.session.attempt(async () => {
      const checkpoint = await firstCheckpoint(this.session);
      const files = [path, oldPath].filter(Boolean);
      const what = hunk ? `These lines of ${path}` : path;
      await restore(
        this.session,
        { checkpoint, files, hunks: hunk ? [hunk.text] : undefined },
        {
          title: hunk ? 'Revert these lines?' : 'Revert this file?',
          words: `${what} will be as before the conversation began to write.`,
          yes: 'Revert',
          done: `${what} ${hunk ? 'are' : 'is'} as before.`,
        },
      );
    });
  }
}
