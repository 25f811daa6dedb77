// The keyboard, and the page that explains it. Letters are told by their place on the keyboard, because Alt changes
// the character on some systems.

import { $, el, iconButton, openDialog, targetOf } from '../shared/dom.js';

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
      ['Alt+O', 'Set up: model, keys, folder, settings, rules, servers'],
      ['Alt+C', 'New conversation'],
      ['Alt+T', 'Conversation tree'],
      ['Alt+S', 'Show or hide the sidebar'],
      ['Alt+E', 'To the end'],
      ['?', 'These keys'],
    ],
  ],
];

/**
 * `actions` by the place of the letter that is pressed with Alt, and `escape`, `palette`, `find`.
 * @param {any} actions
 */
export function listenToKeys(actions) {
  addEventListener('keydown', event => {
    if (event.defaultPrevented || event.isComposing) return;
    const target = targetOf(event);
    const writing = target.closest('input, textarea, select');
    const alt = event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (alt && actions[event.code]) run(event, actions[event.code]);
    else if ((event.ctrlKey || event.metaKey) && event.code === 'KeyK') run(event, actions.palette);
    // A second time it is the search of the browser.
    else if ((event.ctrlKey || event.metaKey) && event.code === 'KeyF' && target.id !== 'find-text' && !event.altKey)
      run(event, actions.find);
    else if (event.key === 'Escape' && !document.querySelector('dialog[open], :popover-open'))
      run(event, actions.escape);
    else if (!writing && !event.ctrlKey && !event.metaKey && !event.altKey) plain(event);
  });
  $('help').addEventListener('click', showHelp);
}

/** @param {KeyboardEvent} event */
function plain(event) {
  if (event.key === '?') run(event, showHelp);
  else if (event.key === '/') run(event, () => $('prompt').focus());
}

/**
 * @param {KeyboardEvent} event
 * @param {Act} action
 */
function run(event, action) {
  event.preventDefault();
  action();
}

function showHelp() {
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
