// What the user is about to send along: images, and files that are kept on the server for tools to read.

import { el } from '../shared/dom.js';
import { IMAGE_TYPE } from '../shared/images.js';

const LONGEST_SIDE = 2000; // models scale larger ones down anyway
const LARGEST_FILE = 3_500_000;

/**
 * Turn a file into an image block, made smaller if it is very large; null if it is no image.
 * @param {File} file
 */
export async function readImage(file) {
  if (!file.type.startsWith('image/')) return null;
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const keep = scale === 1 && file.size <= LARGEST_FILE && IMAGE_TYPE.test(file.type);
  const blob = keep ? file : await redraw(bitmap, scale, file.type);
  bitmap.close();
  return { type: 'image', data: await base64(blob), mimeType: blob.type };
}

/**
 * @param {ImageBitmap} bitmap
 * @param {number} scale
 * @param {string} type
 */
async function redraw(bitmap, scale, type) {
  const canvas = el('canvas');
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext('2d')?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  /** @param {string} kind */
  const encode = kind => new Promise(resolve => canvas.toBlob(resolve, kind, 0.9));
  const first = await encode(type === 'image/jpeg' ? type : 'image/png');
  return first.size > LARGEST_FILE ? encode('image/jpeg') : first;
}

/** @param {Blob} blob */
export function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ''));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
