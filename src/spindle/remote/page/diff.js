// Changes to a file as coloured lines.

import { button, el } from './dom.js';

const MAX_ROWS = 400;

/** The diff that comes with the result of an edit: every line begins with its sign and its number. */
export function diffOfText(text) {
  const split = line => /^([-+ ]?)( *\d*) ?([^]*)$/.exec(line).slice(1);
  return table(text.split('\n').map(split));
}

/** Edits before they are made: what goes and what comes. */
export function diffOfEdits(edits) {
  const lines = (sign, value) => (typeof value === 'string' ? value.split('\n').map(line => [sign, '', line]) : []);
  return table(edits.flatMap(edit => [...lines('-', edit?.oldText), ...lines('+', edit?.newText)]));
}

function table(rows) {
  const node = el('div', { class: 'diff', tabindex: '0', role: 'group', 'aria-label': 'changes' });
  node.append(...rows.slice(0, MAX_ROWS).map(row));
  if (rows.length > MAX_ROWS) {
    const showAll = () => more.replaceWith(...rows.slice(MAX_ROWS).map(row));
    const more = button('plain', showAll, `Show ${rows.length - MAX_ROWS} more lines`);
    node.append(more);
  }
  return node;
}

function row([sign, number, text]) {
  const kind = { '+': 'add', '-': 'del' }[sign];
  return el('div', { class: kind }, el('i', null, number.trim()), el('b', null, sign.trim()), el('span', null, text));
}
