// The page that explains the keyboard.

import { $, el, iconButton, openDialog } from '../shared/dom.js';

const MAC = /Mac|iPhone|iPad/.test(navigator.platform);

const HELP = [
  [
    'Writing',
    [
      ['Enter', 'Send; while the agent works: steer it'],
      ['Alt+Enter', 'While the agent works: send when it is done'],
      ['Shift+Enter', 'New line'],
      ['↑', 'In an empty field: what you said before'],
      ['/', 'Commands, templates and skills'],
      ['@', 'Files of the working directory'],
      ['!', 'Run a shell command; !! keeps it from the model'],
      ['Esc', 'Interrupt'],
    ],
  ],
  [
    'Deciding',
    [
      ['Alt+Y', 'Allow, yes'],
      ['Alt+N', 'Deny, no'],
      ['Alt+A', 'Ask before every tool: on or off'],
      ['Alt+R', 'Regenerate the last answer'],
      ['Alt+M', 'Choose the model'],
      ['Alt+L', 'Choose how hard it thinks'],
    ],
  ],
  [
    'Getting around',
    [
      ['Ctrl+K', 'Find a command or a conversation'],
      ['Ctrl+F', 'Find in this conversation'],
      ['Alt+F', 'Search conversations'],
      ['Alt+I', 'Session: what may run, rules, servers, cost'],
      ['Alt+D', 'Changed files'],
      ['Alt+B', 'Files and checkpoints'],
      ['Alt+W', 'All that runs: conversations, questions, subagents, commands'],
      ['Alt+O', 'Set up: model, keys, folder, settings, rules, servers'],
      ['Alt+C', 'New conversation'],
      ['Alt+T', 'Conversation tree'],
      ['Alt+S', 'Show or hide the sidebar'],
      ['Alt+E', 'To the end'],
      ['?', 'These keys'],
    ],
  ],
];

export function showHelp() {
  const dialog = $('keys');
  if (dialog.open) return;
  /** @param {string} name */
  const key = name =>
    el(
      'dt',
      null,
      ...name.split('+').map(part => el('kbd', null, MAC ? ({ Alt: '⌥', Ctrl: '⌘', Shift: '⇧' }[part] ?? part) : part)),
    );
  /** @param {any} fields */
  const part = ([title, keys]) =>
    el(
      'section',
      null,
      el('h3', null, title),
      el('dl', null, ...keys.flatMap((/** @type {any} */ [name, text]) => [key(name), el('dd', null, text)])),
    );
  const close = iconButton('Close', 'close', () => dialog.close());
  dialog.onclick = (/** @type {KeyboardEvent} */ event) => event.target === dialog && dialog.close();
  openDialog(
    dialog,
    el('header', null, el('h2', { id: 'keys-title' }, 'Keys'), close),
    el('div', { class: 'columns' }, ...HELP.map(part)),
  );
}
