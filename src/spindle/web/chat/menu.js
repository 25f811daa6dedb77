// One floating list for everything that is picked: models, thinking levels, actions. A filter appears if it is long.

import { $, el, fill, icon } from '../shared/dom.js';
import { reconcile } from '../shared/reconcile.js';

const FILTER_FROM = 9;
const MAX_SHOWN = 200;
/** @type {any} */
let opener = null;

/**
 * Open the list at `anchor`. `items`: {label, detail, chosen, danger, pick}. The arrow keys move, Enter picks, Escape closes.
 * As a `palette` it stands in the middle of the page and is always searched.
 * @param {HTMLElement} anchor
 * @param {string} label
 * @param {any[]} items
 */
export function openMenu(anchor, label, items, { palette = false } = {}) {
  const menu = $('menu');
  if (menu.matches(':popover-open') && opener === anchor) {
    menu.hidePopover();
    return;
  }
  opener = anchor;
  const list = el('div', { role: 'listbox', id: 'menu-list', 'aria-label': label, tabindex: '-1' });
  const filter =
    palette || items.length >= FILTER_FROM
      ? el('input', {
          type: 'text',
          placeholder: label,
          'aria-label': `Filter: ${label}`,
          role: 'combobox',
          'aria-expanded': 'true',
          'aria-controls': 'menu-list',
          'aria-autocomplete': 'list',
          autocomplete: 'off',
        })
      : null;
  const narrow = () => {
    const words = (filter?.value ?? '').toLowerCase().split(/\s+/);
    /** @param {any} item */
    const fits = item => words.every(word => `${item.label} ${item.detail ?? ''}`.toLowerCase().includes(word));
    const shown = items.filter(fits).slice(0, MAX_SHOWN);
    reconcile(
      list,
      shown.map(item => ({ key: item, build: () => option(item) })),
    );
    markOption(
      list,
      list.querySelector('[data-chosen]') && !filter?.value
        ? list.querySelector('[data-chosen]')
        : list.firstElementChild,
    );
  };
  fill(menu, filter ?? el('p', { class: 'menu-title' }, label), list);
  filter?.addEventListener('input', narrow);
  menu.onkeydown = (/** @type {KeyboardEvent} */ event) => key(event, list);
  narrow();
  menu.classList.toggle('palette', palette);
  menu.style.left = menu.style.top = '';
  menu.showPopover();
  if (!palette) placeMenu(menu, anchor);
  (filter ?? list).focus();
}

/** @param {any} fields */
function option({ label, detail, chosen, danger, pick }) {
  const choose = () => {
    $('menu').hidePopover();
    opener.focus();
    pick();
  };
  const props = {
    role: 'option',
    class: danger ? 'danger' : null,
    'data-chosen': Boolean(chosen),
    on: {
      click: choose,
      mousemove: (/** @type {any} */ { currentTarget }) => markOption(currentTarget.parentNode, currentTarget),
    },
  };
  return el(
    'div',
    props,
    el('span', null, label),
    detail ? el('small', null, detail) : null,
    chosen ? icon('check') : null,
  );
}

/**
 * Make `node` the one that Enter picks.
 * @param {any} list
 * @param {Element | null} node
 */
function markOption(list, node) {
  for (const one of list.children) one.setAttribute('aria-selected', String(one === node));
  const field = $('menu').querySelector('input') ?? list;
  if (node) {
    node.id = 'menu-marked';
    for (const one of list.children) if (one !== node) one.removeAttribute('id');
    field.setAttribute('aria-activedescendant', 'menu-marked');
  } else field.removeAttribute('aria-activedescendant');
  node?.scrollIntoView({ block: 'nearest' });
}

/**
 * @param {KeyboardEvent} event
 * @param {any} list
 */
function key(event, list) {
  const current = list.querySelector('[aria-selected=true]');
  /** @type {Record<string, any>} */
  const moves = {
    ArrowDown: () => current?.nextElementSibling ?? list.firstElementChild,
    ArrowUp: () => current?.previousElementSibling ?? list.lastElementChild,
  };
  if (moves[event.key]) markOption(list, moves[event.key]());
  else if (event.key === 'Enter') current?.click();
  else if (event.key === 'Escape') {
    $('menu').hidePopover();
    opener.focus();
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

/**
 * @param {HTMLElement} menu
 * @param {HTMLElement} anchor
 */
function placeMenu(menu, anchor) {
  const at = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const above = at.top > innerHeight / 2;
  menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
  menu.style.top = `${above ? Math.max(8, at.top - height - 6) : at.bottom + 6}px`;
}
