// The address of this page for another device, as a link and as a picture that a phone reads.

import { $, button, copyButton, el, openDialog, SVG } from '../shared/dom.js';
import { qrModules } from './qr.js';
import { ticket } from './sign-in.js';

const QUIET = 4; // modules around the code

/**
 * Show the address of this page, to be opened elsewhere. Where one has to sign in, it does that: once, and soon.
 * @param {string | null} sessionId
 */
export async function showLink(sessionId) {
  const isSignedIn = localStorage.getItem(globalThis.wire.KEY) !== null;
  const rest = isSignedIn ? `token=${await ticket()}` : encodeURIComponent(sessionId ?? '');
  const address = `${location.origin}${location.pathname}#${rest}`;
  const dialog = $('share');
  const local = /^(?:localhost|127\.|\[::1\])/.test(location.hostname);
  const note = local
    ? 'This server listens on this machine only; a phone reaches it once it is started on an address of the network, with a token.'
    : `Whoever opens this address can work here as you do.${isSignedIn ? ' It signs in one browser, in the next five minutes.' : ''}`;
  const code = qrModules(address);
  openDialog(
    dialog,
    el('h2', { id: 'share-title' }, 'Open on a phone'),
    ...(code ? [drawing(code)] : []),
    el(
      'p',
      { class: 'address' },
      el('code', null, address),
      copyButton('Copy the address', () => address),
    ),
    el('p', { class: 'hint' }, note),
    el(
      'div',
      { class: 'buttons' },
      el('span', { class: 'room' }),
      button('plain', () => dialog.close(), 'Close'),
    ),
  );
}

/** @param {any[]} modules */
function drawing(modules) {
  const size = modules.length + 2 * QUIET;
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${size} ${size}`);
  svg.setAttribute('class', 'qr');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', 'The address as a QR code');
  const path = document.createElementNS(SVG, 'path');
  const dark = modules.flatMap((row, y) =>
    row.map((/** @type {boolean} */ on, /** @type {number} */ x) => (on ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : '')),
  );
  path.setAttribute('d', dark.join(''));
  svg.append(path);
  return svg;
}
