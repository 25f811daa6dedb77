// Questions of the page itself, before something that cannot be undone.

import { $, button, el, openDialog } from '../shared/dom.js';

/**
 * Ask; the promise gives whether the user agreed.
 * @param {string} title
 * @param {string} text
 * @param {string} yes
 */
export function confirm(title, text, yes, kind = '') {
  return new Promise(resolve => {
    const dialog = $('confirm');
    /** @param {boolean} agreed */
    const end = agreed => {
      dialog.onclose = null;
      dialog.close();
      resolve(agreed);
    };
    const agree = button(`primary ${kind}`.trim(), () => end(true), yes);
    dialog.onclose = () => end(false);
    openDialog(
      dialog,
      el('h2', { id: 'confirm-title' }, title),
      el('p', null, text),
      el(
        'div',
        { class: 'buttons' },
        el('span', { class: 'room' }),
        button('plain', () => end(false), 'Cancel'),
        agree,
      ),
    );
    agree.focus();
  });
}

/**
 * Ask before work that goes on is stopped; nothing is asked if there is none.
 * @param {Session} session
 * @param {string} text
 */
export const mayStop = (session, text) =>
  session.running ? confirm('Stop what is running?', text, 'Stop it and go on') : Promise.resolve(true);
