// A tree as lines, as both sidebars show it: chains stay flat, only forks indent. Nothing here is recursive, so a chain
// may be as long as it likes.

// A row knows its node, the row of the nearest visible node `above` it (or -1), its `depth`, the row where its `branch`
// began (or -1), and its `place` among so many `siblings`.

/**
 * Return the rows of all visible nodes, each above what hangs on it.
 * @param {any[]} roots
 * @param {Act} childrenOf
 * @param {Act} isVisible
 */
export function treeRows(roots, childrenOf, isVisible) {
  /** @type {any[]} */
  const rows = [];
  const members = [0]; // visible children of each row, from 1 on; the first: of nothing
  /** @type {any[]} */
  const stack = [];
  /**
   * @param {Node[]} nodes
   * @param {number} above
   */
  const push = (nodes, above) => {
    for (let k = nodes.length - 1; k >= 0; k--) stack.push(nodes[k], above);
  };
  push(roots, -1);
  while (stack.length) {
    let above = stack.pop();
    const node = stack.pop();
    if (isVisible(node)) {
      rows.push({ node, above, depth: 0, branch: -1, place: ++members[above + 1], siblings: 1 });
      members.push(0);
      above = rows.length - 1;
    }
    push(childrenOf(node), above);
  }
  rows.forEach((row, i) => {
    const up = rows[row.above];
    row.siblings = members[row.above + 1];
    row.depth = (up?.depth ?? 0) + (row.siblings > 1 ? 1 : 0);
    row.branch = row.siblings > 1 ? i : (up?.branch ?? -1);
  });
  return rows;
}
