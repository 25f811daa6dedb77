// The page while it shows a conversation that can only be read: of another user of the server, or one that another program
// writes to.

import { $, button, el, icon } from '../shared/dom.js';

const { wire } = globalThis; // of early.js

/**
 * Say who writes to it, and offer ways to go on.
 * @param {Session} session
 * @param {{ id: string, who: string }} held
 */
function showHeld(session, { id, who }) {
  const node = el(
    'p',
    { id: 'viewing', class: 'aside', role: 'status' },
    icon('info'),
    el('span', null, `${who || 'Another program holds this conversation'}. You can read it. `),
    button('link', () => session.open(id, true), 'Continue in a copy'),
    button('link', () => session.open(id), 'Try again'),
  );
  $('dock').prepend(node);
}

/**
 * Say whose conversation it is, and take away what cannot be used; or the other way round.
 * @param {Session} session
 */
export function show(session) {
  $('viewing')?.remove();
  const { held } = session;
  const wasShared = document.body.classList.contains('shared');
  document.body.classList.toggle('viewing', session.isShared || held !== null);
  if (document.body.classList.toggle('shared', session.isShared) !== wasShared)
    document.body.classList.toggle('no-sidebar', session.isShared);
  if (held) showHeld(session, held);
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
