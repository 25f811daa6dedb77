// A row of buttons that is one stop of the Tab key: the arrow keys go from one to the next.

const BUTTONS = 'button, a, [role=option]';

/** Let Tab stop at one of the buttons in an element; the arrow keys, Home and End move. */
export function oneStop(node, selector = BUTTONS) {
  const all = () => [...node.querySelectorAll(selector)].filter(one => !one.disabled);
  const mark = chosen => {
    for (const one of all()) one.tabIndex = one === chosen ? 0 : -1;
  };
  mark(all()[0]);
  node.addEventListener('focusin', ({ target }) => target.matches(selector) && mark(target));
  node.addEventListener('keydown', event => {
    const buttons = all().filter(one => one.checkVisibility());
    const at = buttons.indexOf(event.target);
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1 }[event.key];
    const to = { Home: 0, End: buttons.length - 1 }[event.key] ?? next;
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[(to + buttons.length) % buttons.length].focus();
  });
  return node;
}
