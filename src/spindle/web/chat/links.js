// Links to conversations, for other users of the server to look at them.

import { $, button, copyButton, el, fill, openDialog } from '../shared/dom.js';
import { shortTime } from './figures.js';

const { wire } = globalThis; // of early.js

/**
 * Show the links that there are: the one to this conversation first.
 * @param {Session} session
 */
export function showLinks(session) {
  const dialog = $('links');
  /** @param {() => Promise<any>} action */
  const change = action =>
    session.attempt(async () => {
      await action();
      await draw();
    });
  /** @param {{ link: string, created: string }} one */
  const line = ({ link, created }) => {
    const address = `${location.origin}${location.pathname}#${wire.SHARED}${link}`;
    return el(
      'div',
      { class: 'shared-link' },
      el(
        'p',
        { class: 'address' },
        el('code', null, address),
        copyButton('Copy the link', () => address),
      ),
      el(
        'p',
        { class: 'hint' },
        `Made ${shortTime(Date.parse(created))}. `,
        button('link', () => change(() => session.call('remove_link', { link })), 'Remove'),
      ),
    );
  };
  async function draw() {
    const { links } = await session.call('get_links');
    const here = links.filter(({ session: id }) => id === session.id);
    const others = links.filter(({ session: id }) => id !== session.id);
    const make = () => change(() => session.call('share_session'));
    const words =
      'Who has the link and is signed in to this server sees the conversation while it goes on, with all that tools have read and ' +
      'written in it. Nobody but you can do anything in it. Removing the link ends it at once.';
    const show = dialog.open ? fill : openDialog;
    show(
      dialog,
      el('h2', { id: 'links-title' }, 'Share with others of this server'),
      el('p', { class: 'hint' }, words),
      ...(here.length ? here.map(line) : [el('p', null, button('primary', make, 'Make a link'))]),
      ...(others.length ? [el('h3', null, 'Your other conversations')] : []),
      ...others.map(line),
      el(
        'div',
        { class: 'buttons' },
        el('span', { class: 'room' }),
        button('plain', () => dialog.close(), 'Close'),
      ),
    );
  }
  return session.attempt(draw);
}
