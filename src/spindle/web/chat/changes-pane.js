// All files that were changed in this conversation, each as one diff: beside it on a wide page, over it on a phone.

import { counts, diffView, rowsOfDiff, rowsOfPatch, rowsOfText } from '../shared/diff.js';
import { $, copyButton, el, icon, iconButton } from '../shared/dom.js';
import { count, obj, str } from '../shared/format.js';
import { languageOfPath } from '../shared/highlight.js';
import { CHANGING, pathOf } from '../shared/tool-card.js';
import { MergedChanges, patchOf } from './merged-changes.js';

export class ChangesPane {
  constructor(session) {
    this.session = session;
    this.node = $('changes');
    this.closed = new Set(); // files whose diff the reader has folded away
    $('open-changes').addEventListener('click', () => this.toggle());
    this.compared = new Map(); // file → its difference from the first checkpoint, whoever has made it
    for (const event of ['entries', 'reset']) session.on(event, () => this.compare());
    session.on('tool_execution_end', () => session.attempt(() => session.updateEntries()));
    session.on('agent_settled', () => session.attempt(() => session.updateEntries()));
  }

  /** Whether the agent keeps checkpoints of this conversation's files: then the files themselves are compared. */
  get hasCheckpoints() {
    return this.session.entries.path().some(({ raw }) => raw.customType === 'checkpoint');
  }

  /** Look at the files, and once more if something happens meanwhile. */
  async compare() {
    this.isOld = true;
    if (this.isComparing) return;
    this.isComparing = true;
    while (this.isOld) {
      this.isOld = false;
      let files = [];
      if (this.hasCheckpoints) {
        await this.session.attempt(async () => {
          ({ files } = await this.session.call('get_changes'));
        });
      }
      this.compared = new Map(files.map(file => [file.path, [new Compared(file)]]));
    }
    this.isComparing = false;
    this.refresh();
  }

  get isOpen() {
    return !this.node.hidden;
  }

  toggle(open = !this.isOpen) {
    this.node.hidden = !open;
    document.body.classList.toggle('with-changes', open);
    $('open-changes').setAttribute('aria-expanded', String(open));
    if (open) {
      this.show();
      this.node.querySelector('button')?.focus();
    } else $('open-changes').focus();
  }

  /** File → the changes to it, merged; several if something else has changed the file in between. */
  files() {
    return this.hasCheckpoints ? this.compared : this.reported();
  }

  /** The same, from what the tools said: something else may have changed files, too. */
  reported() {
    const files = new Map();
    const calls = new Map();
    for (const { raw } of this.session.entries.path()) {
      const { message } = raw;
      if (message?.role === 'assistant' && Array.isArray(message.content)) {
        for (const block of message.content) if (block?.type === 'toolCall') calls.set(block.id, block);
      } else if (message?.role === 'toolResult' && !message.isError) {
        const call = calls.get(message.toolCallId);
        if (!call || !CHANGING.has(call.name)) continue;
        const args = obj(call.arguments);
        const diff = str(obj(message.details).diff);
        const path = this.shortened(pathOf(args));
        if (!path) continue;
        if (!files.has(path)) files.set(path, [new MergedChanges()]);
        const all = files.get(path);
        if (call.name === 'write') all.at(-1).write(rowsOfText(str(args.content)));
        else {
          const rows = diff ? rowsOfDiff(diff) : [];
          const patch = str(obj(message.details).patch);
          if (all.at(-1).edit(rows, patch)) continue;
          all.push(new MergedChanges());
          all.at(-1).edit(rows, patch);
        }
      }
    }
    return files;
  }

  /** One file may be named in several ways. */
  shortened(path) {
    const { cwd } = this.session;
    const inside = cwd && path.startsWith(`${cwd}/`) ? path.slice(cwd.length + 1) : path;
    return inside.replace(/^(?:\.\/)+/, '');
  }

  refresh() {
    const files = this.files();
    $('open-changes').hidden = files.size === 0 && !this.isOpen;
    $('open-changes').querySelector('span').textContent = String(files.size);
    $('open-changes').title = `${count(files.size, 'file')} changed (Alt+D)`;
    $('open-changes').ariaLabel = `${count(files.size, 'file')} changed`;
    if (this.isOpen) this.show(files);
  }

  show(files = this.files()) {
    const top = this.node.querySelector('.changed-files')?.scrollTop ?? 0;
    const sum = { added: 0, removed: 0 };
    const nodes = [...files].map(([path, changes]) => this.file(path, changes, sum));
    const all = () => [...files].flatMap(([path, changes]) => changes.map(one => patchOf(path, one))).join('');
    this.node.replaceChildren(
      el(
        'header',
        null,
        el('h2', { id: 'changes-title' }, 'Changes'),
        el(
          'span',
          { class: 'size' },
          el('span', { class: 'plus' }, `+${sum.added}`),
          ' ',
          el('span', { class: 'minus' }, `−${sum.removed}`),
        ),
        el('span', { class: 'room' }),
        copyButton('Copy all as a patch', all),
        iconButton('Close the changes', 'close', () => this.toggle(false)),
      ),
      el(
        'div',
        { class: 'changed-files' },
        ...(nodes.length ? nodes : [el('p', { class: 'empty' }, 'No file was changed here yet.')]),
      ),
    );
    this.node.querySelector('.changed-files').scrollTop = top;
  }

  file(path, changes, sum) {
    const total = { added: 0, removed: 0 };
    const made = changes.map(one => ({ rows: one.rows(), about: aboutOf(one, changes) }));
    for (const { rows } of made) {
      const { added, removed } = counts(rows);
      total.added += added;
      total.removed += removed;
    }
    sum.added += total.added;
    sum.removed += total.removed;
    const slash = path.lastIndexOf('/') + 1;
    const name = el(
      'span',
      { class: 'path', title: path },
      el('span', { class: 'soft' }, path.slice(0, slash)),
      el('b', null, path.slice(slash)),
    );
    const size = el(
      'span',
      { class: 'size' },
      el('span', { class: 'plus' }, `+${total.added}`),
      ' ',
      el('span', { class: 'minus' }, `−${total.removed}`),
    );
    const node = el(
      'details',
      { class: 'changed', open: !this.closed.has(path) },
      el('summary', null, icon('file'), name, size, icon('chevron')),
    );
    const copy = copyButton('Copy this file’s changes', () => changes.map(one => patchOf(path, one)).join(''));
    const body = el(
      'div',
      { class: 'with-copy' },
      ...made.map(({ rows, about }) =>
        el(
          'div',
          null,
          about ? el('p', { class: 'aside' }, about) : null,
          rows.length ? diffView(rows, languageOfPath(path)) : null,
        ),
      ),
      copy,
    );
    node.append(body);
    node.addEventListener('toggle', () => this.closed[node.open ? 'delete' : 'add'](path));
    return node;
  }
}

/** How a file differs from the first checkpoint. */
class Compared {
  constructor({ status, oldPath, added, diff }) {
    this.patch = diff ?? '';
    const form = added === undefined ? 'binary' : '';
    this.about = [oldPath ? `renamed from ${oldPath}` : status === 'modified' ? '' : status, form]
      .filter(Boolean)
      .join(', ');
  }

  rows() {
    return rowsOfPatch(this.patch);
  }
}

/** What stands above a diff. */
function aboutOf(changes, all) {
  if (changes instanceof Compared) return changes.about;
  const facts = [
    changes.whole ? 'written whole' : '',
    changes.size > 1 ? count(changes.size, 'change') : '',
    changes === all[0] ? '' : 'after something else had changed the file',
    changes.rows().length ? '' : 'nothing is left of it',
  ];
  return facts.filter(Boolean).join(', ');
}
