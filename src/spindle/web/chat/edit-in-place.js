// A text field in the place of what it changes: names and labels.

import { $ } from '../shared/dom.js';

/**
 * Put `field` in the place of `node`. `end` gets the text after Enter or on leaving it, null after Escape.
 * @param {HTMLElement} node
 * @param {HTMLInputElement} field
 * @param {(text: string | null) => any} end
 */
export function editInPlace(node, field, end) {
  let done = false; // leaving the page is a blur too
  /** @param {boolean} saves */
  const finish = saves => {
    if (done) return;
    done = true;
    field.replaceWith(node);
    end(saves ? field.value.trim() : null);
  };
  field.addEventListener('keydown', event => {
    if (event.key !== 'Enter' && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    finish(event.key === 'Enter');
    $('prompt').focus();
  });
  field.addEventListener('blur', () => finish(true));
  node.replaceWith(field);
  field.select();
}
