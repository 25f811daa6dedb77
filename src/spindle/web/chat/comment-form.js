// The field for a comment on a line of the changes.

import { el } from '../shared/dom.js';

/** @import { LineComment } from './line-comments.js' */

const MOST_CODE = 160;

/**
 * A field for a comment on a line.
 * @param {{ path: string, line: number, gone: boolean, code: string }} place
 * @param {(comment: LineComment | null) => void} done
 */
export function commentForm(place, done) {
  const field = el('textarea', { rows: '2', 'aria-label': `Comment on line ${place.line}`, required: true });
  const form = el(
    'form',
    { class: 'comment-form' },
    el('small', null, `${place.path}:${place.line}`),
    field,
    el(
      'div',
      { class: 'buttons' },
      el('button', { type: 'submit', class: 'primary' }, 'Keep for the next message'),
      el('button', { type: 'button', class: 'plain', on: { click: () => done(null) } }, 'Cancel'),
    ),
  );
  const keep = () =>
    field.value.trim() && done({ ...place, code: place.code.slice(0, MOST_CODE), words: field.value.trim() });
  form.addEventListener('submit', event => {
    event.preventDefault();
    keep();
  });
  field.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      keep();
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      done(null);
    }
  });
  return form;
}
