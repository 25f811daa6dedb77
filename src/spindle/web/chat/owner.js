// What only the owner may change: keys, settings, rules, servers. The server wants its code for it, once per browser; the
// permit that it gives for a code is kept here.

import { $, button, el, openDialog, remembered } from '../shared/dom.js';

const PERMIT = 'permit';

/** The user did not want to give the code. */
export class NoCode extends Error {}

/**
 * Send a command that only the owner may send; the user is asked for the code if the server wants it.
 * @template {CommandName} C
 * @param {Session} session
 * @param {C} type
 * @param {Fields<C>} [fields]
 * @returns {Answer<C>}
 */
export async function asOwner(session, type, fields) {
  try {
    return await session.call(type, fields);
  } catch (error) {
    if (error.code !== 'locked') throw error;
  }
  await unlock(session);
  return session.call(type, fields);
}

/**
 * Whether the server takes such commands from this browser without asking for its code.
 * @param {Session} session
 */
export async function isUnlocked(session) {
  const permit = remembered.get(PERMIT);
  return (
    permit !== null &&
    session.call('unlock', { permit }).then(
      () => true,
      () => false,
    )
  );
}

/** @param {Session} session */
async function unlock(session) {
  if (await isUnlocked(session)) return;
  for (let wrong = ''; ;) {
    const code = await askCode(wrong);
    if (code === null) throw new NoCode('Nothing was changed: the code of the server was not given');
    try {
      const { permit } = await session.call('unlock', { code });
      remembered.set(PERMIT, permit);
      return;
    } catch (error) {
      if (error.code !== 'locked') throw error;
      wrong = error.message;
    }
  }
}

/**
 * @param {string} wrong
 * @returns {Promise<string | null>}
 */
function askCode(wrong) {
  return new Promise(resolve => {
    const dialog = $('confirm');
    const field = el('input', {
      type: 'text',
      class: 'code-field',
      'aria-label': 'Code',
      autocomplete: 'off',
      autocapitalize: 'characters',
      spellcheck: 'false',
      placeholder: 'ABCD-EFGH',
      maxlength: '12',
      required: true,
    });
    /** @param {string | null} code */
    const end = code => {
      dialog.onclose = null;
      dialog.close();
      resolve(code);
    };
    /** @param {Event} event */
    const submit = event => {
      event.preventDefault();
      end(field.value.trim());
    };
    dialog.onclose = () => end(null);
    openDialog(
      dialog,
      el(
        'form',
        { on: { submit } },
        el('h2', { id: 'confirm-title' }, 'The code of the server'),
        el(
          'p',
          null,
          'This changes keys, settings, rules or servers. The server has printed a code where it was started; this browser needs it once.',
        ),
        wrong ? el('p', { class: 'wrong', role: 'alert' }, wrong) : null,
        field,
        el(
          'div',
          { class: 'buttons' },
          el('span', { class: 'room' }),
          button('plain', () => end(null), 'Cancel'),
          el('button', { type: 'submit', class: 'primary' }, 'Go on'),
        ),
      ),
    );
    field.focus();
  });
}
