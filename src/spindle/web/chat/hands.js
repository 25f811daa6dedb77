// Work beside the conversation: commands in the background, and subagents, each with a line of its progress.

import { $, el, icon } from '../shared/dom.js';
import { count, oneLine, textOf } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { callTitle } from '../shared/tool-card.js';

export class Hands {
  /** @type {RunningCommand[]} */
  commands;

  /** @param {Session} session */
  constructor(session) {
    this.node = $('background');
    this.commands = []; // as get_state lists them
    this.subagents = new Map(); // call id → {title, progress}
    session.on('background', (/** @type {RunningCommand[]} */ commands) => {
      this.commands = commands;
      this.show();
    });
    session.on('tool_execution_start', event => this.follow(event));
    session.on('tool_execution_update', event => this.follow(event));
    session.on('tool_execution_end', ({ toolCallId }) => this.forget(toolCallId));
    for (const event of ['agent_settled', 'reset']) session.on(event, () => this.forget());
    this.words = el('span');
    this.list = el('ul');
    this.node.append(el('summary', null, icon('clock'), this.words, icon('chevron')), this.list);
  }

  /** @param {any} fields */
  follow({ toolCallId, toolName, args, partialResult }) {
    if (toolName !== 'task') return;
    const progress = oneLine(textOf(partialResult?.content ?? ''), 160);
    this.subagents.set(toolCallId, { id: toolCallId, title: callTitle(toolName, args), progress });
    this.show();
  }

  /**
   * A call, or all of them, have come to their end.
   * @param {string} [id]
   */
  forget(id) {
    const known = this.subagents.size;
    if (id) this.subagents.delete(id);
    else this.subagents.clear();
    if (known !== this.subagents.size) this.show();
  }

  show() {
    const subagents = [...this.subagents.values()];
    const items = [
      ...this.commands.map(({ id, command, outputFile }) => ({ id, title: oneLine(command, 200), about: outputFile })),
      ...subagents,
    ];
    this.node.hidden = items.length === 0;
    const words = [
      this.commands.length ? count(this.commands.length, 'command') : '',
      subagents.length ? count(subagents.length, 'subagent') : '',
    ];
    this.words.textContent = `${words.filter(Boolean).join(', ')} at work`;
    reconcile(
      this.list,
      items.map(({ id, title, about, progress }) => ({
        key: id,
        build: () =>
          el(
            'li',
            { class: 'in_progress', title: about },
            progress === undefined ? el('b', null, `${id} `) : null,
            title,
            el('small'),
          ),
        update: line => {
          line.lastChild.textContent = progress ?? '';
        },
      })),
    );
  }
}
