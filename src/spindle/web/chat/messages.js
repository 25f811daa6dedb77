// What stands in the conversation besides answers: messages of the user, summaries, notices, commands.

import { BACKGROUND } from '../shared/background.js';
import { button, copyButton, el, icon, iconButton, unsent } from '../shared/dom.js';
import { splitFiles, withFiles } from '../shared/attached.js';
import { imagesOf, textOf } from '../shared/format.js';
import { picture } from '../shared/images.js';
import { fullTime } from './figures.js';
import { rendered } from './growing.js';
import { shellCard } from './live-card.js';
import { oneStop } from './roving.js';

const LONG_MESSAGE = 1800;

/**
 * A message of the user. `actions`: `id()` of its entry, `fork()`, `undo()`, `save(text)`; `note` promises words about it, or none.
 * @param {UserMessage} message
 * @param {any} fields
 */
export function userMessage(message, { id, fork, save, undo, note }) {
  const { text, files } = splitFiles(textOf(message.content));
  const images = imagesOf(message.content).map(picture);
  const attached = [...images, ...files.map(fileChip)];
  const body = el('div', { class: 'said' }, text);
  const sent = attached.length ? el('div', { class: 'sent-along' }, ...attached) : null;
  const bubble = el('div', { class: 'bubble' }, sent, text ? body : null);
  if (text.length > LONG_MESSAGE || text.split('\n').length > 24) clamp(bubble);
  const actions = el(
    'div',
    { class: 'actions' },
    copyButton('Copy message', () => text),
    iconButton('Edit', 'pencil', () => open().focus()),
    iconButton('Fork: new conversation from here', 'branch', fork),
    iconButton('Undo: the files, too, as before this message', 'undo', undo),
  );
  oneStop(actions);
  const remark = el('p', { class: 'aside', hidden: '' }, icon('warning'), el('span'));
  const node = el(
    'article',
    { class: 'user', 'aria-label': 'You', title: message.timestamp ? fullTime(message.timestamp) : null },
    bubble,
    remark,
    actions,
  );
  note?.then((/** @type {string} */ words) => {
    /** @type {Node} */ (remark.lastChild).textContent = words;
    remark.hidden = !words;
  });
  const open = () =>
    edit(node, bubble, actions, { id, text, save: (/** @type {string} */ written) => save(withFiles(written, files)) });
  if (id() && unsent.get(`edit-${id()}`) !== null) open();
  return node;
}

/**
 * A file that came along, by its name.
 * @param {any} fields
 */
export const fileChip = ({ name, path }) =>
  el('span', { class: 'file', title: path }, icon('file'), el('span', null, name));

/** @param {HTMLElement} bubble */
function clamp(bubble) {
  bubble.classList.add('clamped');
  const toggle = () => {
    const clamped = bubble.classList.toggle('clamped');
    more.textContent = clamped ? 'Show all' : 'Show less';
    more.ariaExpanded = String(!clamped);
  };
  const more = button('link', toggle, 'Show all');
  more.ariaExpanded = 'false';
  bubble.append(more);
}

/**
 * Write over a message in its place. Nothing else changes until it is saved. Returns the field.
 * @param {HTMLElement} node
 * @param {HTMLElement} bubble
 * @param {any} actions
 * @param {any} fields
 */
function edit(node, bubble, actions, { id, text, save }) {
  const field = el('textarea', { 'aria-label': 'Message', rows: '1' });
  field.value = unsent.get(`edit-${id()}`) ?? text;
  const fit = () => {
    field.style.height = 'auto';
    field.style.height = `${Math.min(field.scrollHeight + 2, innerHeight * 0.6)}px`;
  };
  const close = () => {
    unsent.set(`edit-${id()}`, null);
    form.remove();
    bubble.hidden = actions.hidden = false;
    node.classList.remove('editing');
    actions.querySelectorAll('button')[1].focus();
  };
  /** @param {Event} [event] */
  const submit = async event => {
    event?.preventDefault();
    const written = field.value.trim();
    if (!written) return;
    if (await save(written)) close();
  };
  field.addEventListener('input', () => {
    unsent.set(`edit-${id()}`, field.value);
    fit();
  });
  field.addEventListener('keydown', event => {
    if (event.isComposing) return;
    if (event.key === 'Escape') close();
    else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const attached = [...bubble.querySelectorAll('.sent-along')].map(one => one.cloneNode(true));
  const form = el(
    'form',
    { class: 'bubble edit', on: { submit } },
    ...attached,
    field,
    el(
      'div',
      { class: 'buttons' },
      el('span', { class: 'hint' }, 'What came after stays on a branch of its own'),
      button('plain', close, 'Cancel'),
      el('button', { type: 'submit', class: 'primary' }, 'Save'),
    ),
  );
  bubble.hidden = actions.hidden = true;
  node.classList.add('editing');
  node.prepend(form);
  fit();
  field.setSelectionRange(field.value.length, field.value.length);
  return field;
}

/**
 * ‹ 2/3 › at a message where the conversation divides.
 * @param {number} place
 * @param {number} total
 * @param {Act} go
 */
export function branchSwitch(place, total, go) {
  /**
   * @param {number} by
   * @param {string} label
   * @param {string} sign
   */
  const step = (by, label, sign) => {
    const node = button('quiet', () => go(place + by), sign);
    node.ariaLabel = node.title = label;
    node.tabIndex = -1; // the arrow keys lead to it
    node.disabled = place + by < 0 || place + by >= total;
    return node;
  };
  return el(
    'span',
    { class: 'fork', role: 'group', 'aria-label': 'Branches' },
    step(-1, 'Previous branch', '‹'),
    el('span', null, `${place + 1}/${total}`),
    step(1, 'Next branch', '›'),
  );
}

/**
 * @param {string} symbol
 * @param {string} text
 * @param {...any} more
 */
export const noticeOf = (symbol, text, ...more) =>
  el('div', { class: 'notice', role: 'note' }, icon(symbol), el('span', null, text), ...more);

/**
 * A command of the user that has ended.
 * @param {any} message
 */
export function bashExecution(message) {
  const card = shellCard(message.command, message.excludeFromContext, 'done');
  card.finishShell(message);
  return card.node;
}

/** @param {any} fields */
export function custom({ customType, content }) {
  const [title, ...rest] = textOf(content).split('\n');
  if (customType === BACKGROUND) return summary('terminal', title, rest.join('\n'));
  const images = imagesOf(content).map(picture);
  return el(
    'article',
    { class: 'custom' },
    el('span', { class: 'tag' }, customType),
    rendered(textOf(content)),
    ...images,
  );
}

/**
 * A summary that opens; `older` is a button to what it stands for.
 * @param {string} symbol
 * @param {string} title
 * @param {string} text
 * @param {HTMLElement | null} older
 */
export function summary(symbol, title, text, older = null) {
  const node = el(
    'details',
    { class: 'notice summary' },
    el('summary', null, icon(symbol), el('span', null, title), icon('chevron')),
    rendered(text),
  );
  return older ? el('div', { class: 'divide' }, node, older) : node;
}
