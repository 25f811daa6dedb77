// Signing this browser in and out. The token is given once; what the browser gets for it is a cookie, which no script
// can read, and a key, which is kept here.

import { $, el, openDialog } from '../shared/dom.js';

const { wire } = globalThis; // of early.js

/**
 * @param {string} path
 * @param {any} [body]
 */
async function post(path, body = {}) {
  const key = localStorage.getItem(wire.KEY);
  const answer = await fetch(new URL(path, document.baseURI), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...(key ? { Authorization: `Bearer ${key}` } : {}) },
    body: JSON.stringify(body),
  });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

/**
 * Sign this browser in: with the token that came with the address, or with one that is asked for.
 * @param {string} given
 * @returns {Promise<void>}
 */
export async function signIn(given) {
  let said = '';
  const health = await fetch(new URL('healthz', document.baseURI), { cache: 'no-store' }).then(answer => answer.json());
  // A link could sign somebody in as another user, without being noticed: who shares a server is asked.
  if (given && !health.users) {
    try {
      keep(await post('signin', { token: given }));
      return;
    } catch (error) {
      [said, given] = [error.message, ''];
    }
  }
  if (given) said = 'The address that you have opened has a token in it. Go on if it is a link of your own.';
  await ask(said, given);
}

/** @param {any} fields */
function keep({ key, user }) {
  localStorage.setItem(wire.KEY, key);
  localStorage.setItem('spindle-user', user ?? '');
}

/**
 * @param {string} said
 * @param {string} given
 * @returns {Promise<void>}
 */
function ask(said, given) {
  return new Promise(resolve => {
    const dialog = $('sign-in');
    const name = 'current-password'; // a password manager may keep it
    const field = el('input', { type: 'password', 'aria-label': 'Token', autocomplete: name, required: true });
    field.value = given;
    const words = el('p', { role: 'status' }, said || 'It needs your token, once in this browser.');
    const button = el('button', { type: 'submit', class: 'primary' }, 'Sign in');
    const done = () => {
      removeEventListener('storage', look);
      dialog.close();
      resolve();
    };
    // Another tab has signed in.
    const look = (/** @type {StorageEvent} */ { key, newValue }) => key === wire.KEY && newValue && done();
    addEventListener('storage', look);
    /** @param {KeyboardEvent} event */
    const submit = async event => {
      event.preventDefault();
      button.disabled = true;
      try {
        keep(await post('signin', { token: field.value.trim() }));
        done();
      } catch (error) {
        words.textContent = error.message;
        field.select();
      }
      button.disabled = false;
    };
    dialog.oncancel = (/** @type {any} */ event) => event.preventDefault();
    openDialog(
      dialog,
      el(
        'form',
        { on: { submit } },
        el('h2', { id: 'sign-in-title' }, 'Sign in to this server'),
        words,
        field,
        el('div', { class: 'buttons' }, button),
      ),
    );
  });
}

/** End the sign-in of this browser, in all its tabs. */
export async function signOut() {
  await post('signout').catch(() => null); // then it did not count any more
  for (const one of [wire.KEY, 'spindle-user']) localStorage.removeItem(one);
  location.reload();
}

/** What signs another browser in, once and soon. */
export async function ticket() {
  return (await post('signin/ticket')).ticket;
}
