// The states that the files had, as a time line: two of them are compared, or one with the files as they are now, and the
// files are given a former state. What that would overwrite is asked about, and it can be taken back (restore.js).

import { diffView, hunksOfPatch, showSize } from '../shared/diff.js';
import { button, el, fill, icon } from '../shared/dom.js';
import { count, oneLine, shownName } from '../shared/format.js';
import { languageOfPath } from '../shared/highlight.js';
import { reconcile } from '../shared/reconcile.js';
import { fullTime, shortTime } from './figures.js';
import { sizeOf } from './folder-tree.js';
import { restore } from './restore.js';

const NOW = 'now';
const MOST_HUNKS = 60; // of a file, in a comparison

export class TimeLine {
  /** @type {any[]} */
  all;
  /** @type {string} */
  from;
  /** @type {string} */
  to;
  /** @type {string} */
  compared;

  /**
   * `chosen()` is called when the reader wants to see the comparison.
   * @param {Session} session
   * @param {Act} chosen
   */
  constructor(session, chosen) {
    this.session = session;
    this.facts = el('p', { class: 'empty' });
    this.list = el('ol', { class: 'time-line' });
    this.see = button('plain', chosen, 'Show the comparison');
    this.see.classList.add('see');
    this.node = el('div', null, this.list, this.see, this.facts);
    this.node.addEventListener('change', () => this.choose());
    this.comparison = el('section', { class: 'comparison', 'aria-label': 'Comparison', tabindex: '0' });
    this.clear();
  }

  clear() {
    this.all = [];
    this.from = ''; // the id of a checkpoint
    this.to = NOW;
    this.compared = ''; // what the comparison was made of
    fill(this.comparison);
    fill(this.list);
    this.see.hidden = true;
  }

  focus() {
    /** @type {HTMLElement | null} */ (this.list.querySelector('input:checked'))?.focus();
  }

  async refresh() {
    const { checkpoints, enabled, bytes, maxBytes, maxAgeDays } = await this.session.call('list_checkpoints');
    this.all = checkpoints.toReversed();
    const kept = this.all.filter(({ isKept }) => isKept);
    if (!kept.some(({ id }) => id === this.from)) this.from = kept[0]?.id ?? '';
    if (this.to !== NOW && !kept.some(({ id }) => id === this.to)) this.to = NOW;
    this.see.hidden = !this.from;
    const none = enabled
      ? 'No state of the files was kept yet: that is done before the agent, or a command of yours, first writes.'
      : 'No states are kept: "checkpoints" is false in the settings.';
    const size = `${sizeOf(bytes)} of ${sizeOf(maxBytes)} are used for this folder; states go after ${maxAgeDays} days.`;
    this.facts.textContent = this.all.length ? size : none;
    this.show();
    await this.compare();
  }

  show() {
    const now = { id: NOW, isKept: true, kind: NOW };
    reconcile(
      this.list,
      (this.all.length ? [now, ...this.all] : []).map(one => ({
        key: one.id,
        state: JSON.stringify(one),
        build: () => this.row(one),
        update: node => {
          for (const name of /** @type {const} */ (['from', 'to'])) {
            const radio = node.querySelector(`[name=compare-${name}]`);
            if (radio) radio.checked = this[name] === one.id;
          }
        },
      })),
    );
  }

  /** @param {any} one */
  row(one) {
    const title = this.titleOf(one);
    const radio = (/** @type {'from' | 'to'} */ name, /** @type {boolean} */ can) =>
      can
        ? el('input', {
            type: 'radio',
            name: `compare-${name}`,
            value: one.id,
            'aria-label': `Compare ${name}: ${title}${one.timestamp ? `, ${fullTime(one.timestamp)}` : ''}`,
            title: name === 'from' ? 'Compare from here' : 'Compare to here',
          })
        : el('i');
    const facts = [
      one.timestamp ? shortTime(one.timestamp) : '',
      one.covers === 'edits' ? 'only what edit and write changed' : '',
      one.onBranch === false ? 'on another branch' : '',
      one.isKept ? '' : 'not kept any more',
    ];
    const canRestore = one.id !== NOW && one.isKept;
    const go = canRestore ? button('link', () => this.restore(one), 'Restore…') : null;
    if (go) go.ariaLabel = `Restore… ${title}`;
    return el(
      'li',
      { 'data-kind': one.kind },
      radio('from', canRestore),
      radio('to', one.isKept),
      el('span', { class: 'what' }, el('span', null, title), el('small', null, facts.filter(Boolean).join(' · '))),
      go,
    );
  }

  /**
   * @param {Checkpoint} one
   * @returns {string}
   */
  titleOf({ id, kind, prompt, restored }) {
    if (id === NOW) return 'Now';
    if (kind === 'command') return 'Before your first command';
    if (kind !== 'restore') return prompt ? `Before “${oneLine(prompt, 90)}”` : 'Before a turn';
    const of = this.all.find(other => other.id === restored);
    return of && of.kind !== 'restore' ? `Before going back to: ${this.titleOf(of)}` : 'Before a restore';
  }

  choose() {
    for (const name of /** @type {const} */ (['from', 'to'])) {
      const chosen = /** @type {any} */ (this.list.querySelector(`[name=compare-${name}]:checked`));
      if (chosen) this[name] = chosen.value;
    }
    this.session.attempt(() => this.compare());
  }

  /** Compare what is chosen, the earlier with the later. */
  async compare() {
    const order = [NOW, ...this.all.map(({ id }) => id)];
    const [to, from] = [this.from, this.to].sort((one, other) => order.indexOf(one) - order.indexOf(other));
    if (!this.from) return fill(this.comparison);
    const mark = `${from} ${to}`;
    if (mark !== this.compared) fill(this.comparison, el('p', { class: 'aside' }, 'Comparing…'));
    this.compared = mark;
    /** @type {any} */
    let found;
    try {
      found = await this.session.call('get_changes', { from, to: to === NOW ? undefined : to });
    } catch (error) {
      if (this.compared === mark) fill(this.comparison, el('p', { class: 'wrong' }, error.message));
      return;
    }
    if (this.compared === mark) this.showComparison(from, to, found);
  }

  /**
   * @param {string} from
   * @param {string} to
   * @param {FileChanges} found
   */
  showComparison(from, to, { files, added, removed, notCovered }) {
    const named = (/** @type {string} */ id) => this.all.find(one => one.id === id) ?? { id: NOW };
    const size = el('span', { class: 'size' });
    showSize(size, added, removed);
    const when = (/** @type {any} */ one) => (one.timestamp ? fullTime(one.timestamp) : 'now');
    const head = () =>
      el(
        'h2',
        null,
        `${files.length ? count(files.length, 'file') : 'No file'} changed from ${when(named(from))} to ${when(named(to))} `,
        size,
      );
    const left = notCovered.map(({ path, why }) => `${path} (${why})`).join(', ');
    reconcile(this.comparison, [
      { key: 'head', state: [from, to, files.length, added, removed].join(), build: head },
      ...files.map(file => ({
        key: `${from} ${to} ${file.path}`,
        state: `${file.status} ${file.diff ?? file.added}`,
        build: () => this.file(named(from), file),
      })),
      ...(left
        ? [{ key: 'left', state: left, build: () => el('p', { class: 'aside' }, `Not compared: ${left}`) }]
        : []),
    ]);
  }

  /**
   * A file of the comparison; its lines are made when it is opened.
   * @param {Checkpoint} from
   * @param {any} file
   */
  file(from, { path, oldPath, status, added, removed, diff }) {
    const size = el('span', { class: 'size' });
    if (added !== undefined) showSize(size, added, removed ?? 0);
    const words = [
      oldPath ? `renamed from ${shownName(oldPath)}` : status === 'modified' ? '' : status,
      added === undefined ? 'binary' : diff === undefined ? 'too long to show' : '',
    ];
    const files = [path, oldPath].filter(Boolean);
    const go = button('link', () => this.restore(from, files), 'Restore…');
    go.ariaLabel = `Restore… ${shownName(path)}`;
    const node = el(
      'details',
      { class: 'compared' },
      el('summary', null, icon('file'), el('bdi', null, shownName(path)), size, icon('chevron')),
      el('p', { class: 'aside' }, words.filter(Boolean).join(', '), el('span', { class: 'room' }), go),
    );
    const open = () => {
      const hunks = hunksOfPatch(diff ?? '');
      for (const { rows } of hunks.slice(0, MOST_HUNKS)) node.append(diffView(rows, languageOfPath(path)));
      if (hunks.length > MOST_HUNKS)
        node.append(el('p', { class: 'aside' }, `${count(hunks.length - MOST_HUNKS, 'more part')}, not shown`));
    };
    node.addEventListener('toggle', open, { once: true });
    return node;
  }

  /**
   * Give the files, or one of them, a former state.
   * @param {any} one
   * @param {string[]} [files]
   */
  restore(one, files) {
    return this.session.attempt(async () => {
      const when = fullTime(one.timestamp);
      const what = files ? shownName(files[0]) : 'The files';
      await restore(
        this.session,
        { checkpoint: one.id, files },
        {
          title: files ? 'Restore this file?' : 'Restore the files?',
          words: `${what} will be as of ${when}: ${this.titleOf(one)}. The conversation stays as it is.`,
          yes: 'Restore',
          done: `${what} ${files ? 'is' : 'are'} as of ${when}.`,
        },
      );
    });
  }
}
