// The page while it shows a conversation of another user of the server: there is nothing to do but to read.

import { $, el, icon } from '../shared/dom.js';

const { wire } = globalThis; // of early.js

/**
 * Say whose conversation it is, and take away what cannot be used; or the other way round.
 * @param {Session} session
 */
export function show(session) {
  $('viewing')?.remove();
  document.body.classList.toggle('viewing', session.isShared);
  document.body.classList.toggle('no-sidebar', session.isShared);
  if (!session.isShared) return;
  const owner = session.id?.slice(wire.SHARED.length).split(':')[0] ?? '';
  const own = el('a', { href: location.pathname }, 'Your own conversations');
  $('dock').prepend(
    el(
      'p',
      { id: 'viewing', class: 'aside', role: 'status' },
      icon('info'),
      el('span', null, el('b', null, owner), ' shows you this conversation. You can read it, nothing else. ', own),
    ),
  );
}
