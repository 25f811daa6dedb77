// The keyboard. Letters are told by their place on the keyboard, because Alt changes
// the character on some systems.

import { $, targetOf } from '../shared/dom.js';

/**
 * `actions` by the place of the letter that is pressed with Alt, and `escape`, `palette`, `find`.
 * @param {any} actions
 */
export function listenToKeys(actions) {
  addEventListener('keydown', event => {
    if (event.defaultPrevented || event.isComposing) return;
    const { classList } = document.body;
    if (classList.contains('shared') || (classList.contains('viewing') && !leads(event))) return; // there is nothing to do
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

/**
 * Whether a key leads to something to be read, or away.
 * @param {KeyboardEvent} event
 */
const leads = ({ altKey, code, key }) =>
  altKey ? ['KeyC', 'KeyE', 'KeyF', 'KeyS', 'KeyT'].includes(code) : code === 'KeyF' || key === 'Escape' || key === '?';

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

async function showHelp() {
  (await import('./key-help.js')).showHelp();
}
