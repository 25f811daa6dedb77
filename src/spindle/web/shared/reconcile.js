// Making the children of an element be what a list says. Those that are there already stay where they are, and with them
// the focus, a selection, and what the reader has opened or is about to click.

/**
 * Let an element have these children, in this order.
 * @param {any} parent
 * @param {any[]} nodes
 */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!wanted.has(node)) node.remove();
  let next = parent.firstChild;
  for (const node of wanted) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}

/**
 * A child of an element that is kept up to date. `key` tells it from the others; `state` is a text of all that `build`
 * depends on: the child is built again, and keeps the focus, if it has become another. `update` is called every time,
 * for what it has inside.
 * @typedef {{ key: any, state?: string, build: () => Element, update?: (node: any) => void }} Child
 */

/** @type {WeakMap<Element, Map<any, { node: Element, state: string }>>} */
const made = new WeakMap(); // element → key → its child

/**
 * Let an element have these children, which are built if they are not there yet.
 * @param {Element} parent
 * @param {Iterable<Child>} children
 */
export function reconcile(parent, children) {
  const before = made.get(parent);
  const now = new Map();
  const focused = document.activeElement;
  /** @type {HTMLElement | undefined} */
  let again;
  for (const { key, state = '', build, update } of children) {
    const kept = before?.get(key);
    const child = kept?.state === state ? kept : { node: build(), state };
    if (focused && kept && kept !== child && kept.node.contains(focused))
      again = likeIt(focused, kept.node, child.node);
    now.set(key, child);
    update?.(child.node);
  }
  made.set(parent, now);
  arrange(
    parent,
    Array.from(now.values(), ({ node }) => node),
  );
  again?.focus({ preventScroll: true });
}

/**
 * The link or button that has taken the place of another one.
 * @param {Element} one
 * @param {Element} before what it was in
 * @param {Element} now
 */
function likeIt(one, before, now) {
  const stopsIn = (/** @type {Element} */ node) =>
    /** @type {HTMLElement[]} */ ([node, ...node.querySelectorAll('a, button, summary')]);
  const found = stopsIn(now)[stopsIn(before).findIndex(other => other === one)];
  // A link may have another name by now; a button that says another thing is another one.
  return found && (found.localName === 'a' || found.textContent === one.textContent) ? found : undefined;
}
