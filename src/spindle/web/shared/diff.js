// Changes to a file as coloured lines. A row is its sign, its number and its text.

import { button, el } from './dom.js';
import { list, obj, str } from './format.js';

const MAX_ROWS = 400;

/** The diff that comes with the result of an edit: every line begins with its sign and its number. */
export const rowsOfDiff = text => text.split('\n').map(line => /^([-+ ]?)( *\d*) ?([^]*)$/.exec(line).slice(1));

/** The arguments of an edit, before it is made: what goes and what comes. */
export function rowsOfEdit(args) {
  const lines = (sign, text) => (text ? text.split('\n').map(line => [sign, '', line]) : []);
  return (Array.isArray(args.edits) ? list(args.edits) : [args]).map(obj).flatMap(edit => [
    ...lines('-', str(edit.oldText) || str(edit.old_string)),
    ...lines('+', str(edit.newText) || str(edit.new_string)),
  ]);
}

/** A diff, of a very long one the beginning until the reader wants all of it. */
export function diffView(rows) {
  const node = el('div', { class: 'diff', tabindex: '0', role: 'group', 'aria-label': 'changes' });
  node.append(...rows.slice(0, MAX_ROWS).map(diffRow));
  if (rows.length > MAX_ROWS) {
    const showAll = () => more.replaceWith(...rows.slice(MAX_ROWS).map(diffRow));
    const more = button('plain', showAll, `Show ${rows.length - MAX_ROWS} more lines`);
    node.append(more);
  }
  return node;
}

function diffRow([sign, number, text]) {
  const kind = { '+': 'add', '-': 'del' }[sign];
  return el('div', { class: kind }, el('i', null, number.trim()), el('b', null, sign.trim()), el('span', null, text));
}
