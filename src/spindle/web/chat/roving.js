// A row of buttons that is one stop of the Tab key: the arrow keys go from one to the next.

import { targetOf } from '../shared/dom.js';

const BUTTONS = 'button, a, [role=option]';

/**
 * Let Tab stop at one of the buttons in an element; the arrow keys, Home and End move.
 * @param {HTMLElement} node
 */
export function oneStop(node, selector = BUTTONS) {
  const all = () =>
    /** @type {HTMLButtonElement[]} */ ([...node.querySelectorAll(selector)]).filter(one => !one.disabled);
  /** @param {any} chosen */
  const mark = chosen => {
    for (const one of all()) one.tabIndex = one === chosen ? 0 : -1;
  };
  mark(all()[0]);
  node.addEventListener('focusin', event => targetOf(event).matches(selector) && mark(targetOf(event)));
  node.addEventListener('keydown', event => {
    const buttons = all().filter(one => one.checkVisibility());
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (event.target));
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1 }[event.key];
    const to = { Home: 0, End: buttons.length - 1 }[event.key] ?? next;
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[(to + buttons.length) % buttons.length].focus();
  });
  return node;
}
