// The conversation tree in the sidebar: every branch of this session, to jump to or to fork from.

import { $, el, icon, iconButton } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { treeRows } from '../shared/tree.js';
import { editInPlace } from './edit-in-place.js';
import { gist } from './entries.js';

const SHOWN = new Set(['user', 'assistant', 'compaction', 'branch_summary', 'custom_message', 'bashExecution']);
const SYMBOLS = { compaction: 'compact', branch_summary: 'branch', bashExecution: 'terminal' };
const MAX_INDENT = 7;

export class TreePanel {
  /** `actions`: `jump(entryId, summarize)`, `fork(entryId)`, `show(entryId)`. */
  constructor(session, actions) {
    this.entries = session.entries;
    this.actions = actions;
    this.session = session;
    this.open = false;
    for (const event of ['entries', 'reset', 'stats']) session.on(event, () => this.open && this.show());
  }

  async show() {
    await this.session.attempt(async () => {
      await this.entries.refresh();
      if ($('tree').querySelector('.rename')) return; // a label is being written; after that
      this.onPath = new Set(this.entries.path().map(({ id }) => id));
      const lines = this.lines();
      const current = lines.findLastIndex(({ entry }) => this.onPath.has(entry.id));
      const nodes = lines.map((line, i) => this.row(line, i === current));
      $('tree').replaceChildren(...(nodes.length ? nodes : [el('p', { class: 'empty' }, 'Nothing here yet')]));
      $('tree').querySelector('.current')?.scrollIntoView({ block: 'nearest' });
    });
  }

  /** List the entries worth a line. Answers that only call tools are gathered into one. */
  lines() {
    const isShown = entry => {
      if (!SHOWN.has(entry.role)) return false;
      const { text, images, calls, error } = gist(entry);
      const failed = error && entry.children.length === 0; // what was tried again is not worth a line
      return text || images || calls.length || failed;
    };
    const lines = [];
    treeRows(this.entries.roots, entry => entry.children, isShown).forEach(
      ({ node: entry, above, depth, branch }, i) => {
        const { text, calls } = gist(entry);
        const steps = entry.role === 'assistant' && !text && calls.length ? calls : null;
        const last = lines.at(-1);
        if (steps && branch !== i && above === i - 1 && last?.steps) {
          last.entry = entry;
          last.steps.push(...steps);
        } else lines.push({ entry, depth, starts: branch === i, steps: steps && [...steps] });
      },
    );
    return lines;
  }

  row({ entry, depth, starts, steps }, current) {
    const { id, role } = entry;
    const { text, error } = gist(entry);
    const shown = steps
      ? `${count(steps.length, 'step')}: ${[...new Set(steps)].join(', ')}`
      : text || error || '[image]';
    const label = this.entries.labels.get(id);
    const go = () => this.actions.jump(id, false);
    const line = el(
      'button',
      { type: 'button', class: 'line', 'aria-current': current ? 'step' : null, title: shown, on: { click: go } },
      SYMBOLS[role] ? icon(SYMBOLS[role]) : null,
      label ? el('span', { class: 'tag' }, label) : null,
      el('span', null, shown),
    );
    const classes = ['node', starts && 'start', this.onPath.has(id) && 'path', current && 'current']
      .filter(Boolean)
      .join(' ');
    const node = el(
      'div',
      { class: classes, 'data-role': steps ? 'steps' : role },
      line,
      el('div', { class: 'node-actions' }, ...this.rowActions(entry, () => node)),
    );
    node.style.setProperty('--depth', Math.min(depth, MAX_INDENT));
    return node;
  }

  /** Let the user write a label in the place of a line; none takes it away. */
  label(id, node) {
    const field = el('input', { type: 'text', class: 'rename', 'aria-label': 'Label', maxlength: '80' });
    field.value = this.entries.labels.get(id) ?? '';
    editInPlace(node.querySelector('.line'), field, text => {
      if (text === null || text === (this.entries.labels.get(id) ?? '')) return this.show();
      return this.session.attempt(() => this.session.call('set_label', { entryId: id, label: text || undefined }));
    });
  }

  rowActions({ id, role }, node) {
    const buttons = [iconButton('Label', 'tag', () => this.label(id, node()))];
    if (this.onPath.has(id))
      buttons.push(iconButton('Show it in the conversation', 'search', () => this.actions.show(id)));
    else
      buttons.push(iconButton('Go there and take notes on what is left', 'list', () => this.actions.jump(id, true)));
    if (role === 'user')
      buttons.push(iconButton('Fork: new conversation from here', 'branch', () => this.actions.fork(id)));
    return buttons;
  }
}
