// Images of a conversation: only known kinds, only from the message itself, never from the network.

import { $, button, el } from './dom.js';
import { obj, str } from './format.js';

export const IMAGE_TYPE = /^image\/(?:png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/\s]+={0,2}\s*$/;

/**
 * An image block of a message; a click enlarges it.
 * @param {any} block
 */
export function picture(block) {
  const type = str(block.mimeType) || str(obj(block.source).mediaType);
  const data = str(block.data) || str(obj(block.source).data);
  if (!IMAGE_TYPE.test(type) || !BASE64.test(data)) {
    return el('p', { class: 'aside' }, `[image not shown: ${type.slice(0, 60) || 'unknown kind'}]`);
  }
  const image = el('img', { src: `data:${type};base64,${data}`, alt: `Image (${type.slice(6)})`, decoding: 'async' });
  const node = button('picture', () => enlarge(image.src), image);
  node.title = node.ariaLabel = 'Enlarge image';
  return node;
}

/** @param {string} source */
function enlarge(source) {
  const viewer = $('viewer');
  viewer.querySelector('img').src = source;
  viewer.onclick = () => viewer.close();
  viewer.showModal();
}
