// Making the children of an element be what a list says. Those that are there already stay where they are, and with them
// the focus, a selection, and what the reader has opened or is about to click.

/** Let an element have these children, in this order. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!wanted.has(node)) node.remove();
  let next = parent.firstChild;
  for (const node of wanted) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}

const made = new WeakMap(); // element → key → {node, state} of its children

/**
 * Let an element have a child for each item. `key(item)` tells items apart; `build(item)` makes the child of a new one,
 * and of one whose `state(item)`, a text of all that is to be seen of it, has become another.
 * @template Item
 * @param {Element} parent
 * @param {Iterable<Item>} items
 * @param {{ key: (item: Item) => any, build: (item: Item) => Node, state?: (item: Item) => string }} how
 */
export function reconcile(parent, items, { key, build, state = () => '' }) {
  const before = made.get(parent) ?? new Map();
  const now = new Map();
  for (const item of items) {
    const [id, shown] = [key(item), state(item)];
    const kept = before.get(id);
    now.set(id, kept && kept.state === shown ? kept : { node: build(item), state: shown });
  }
  made.set(parent, now);
  arrange(
    parent,
    [...now.values()].map(({ node }) => node),
  );
}
