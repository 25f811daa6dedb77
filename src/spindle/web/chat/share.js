// The address of this page for another device, as a link and as a picture that a phone reads.

import { $, button, copyButton, el, openDialog, SVG } from '../shared/dom.js';
import { qrModules } from './qr.js';

const QUIET = 4; // modules around the code

/**
 * Show an address to be opened elsewhere.
 * @param {string} address
 */
export function showLink(address) {
  const dialog = $('share');
  const local = /^(?:localhost|127\.|\[::1\])/.test(location.hostname);
  const note = local
    ? 'This server listens on this machine only; a phone reaches it once it is started on an address of the network, with a token.'
    : 'Whoever has this address can work here as you do.';
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
