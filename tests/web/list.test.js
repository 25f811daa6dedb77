import assert from 'node:assert/strict';
import { test } from 'node:test';
import './document.js';
import { Heights } from '../../src/spindle/web/shared/heights.js';
import { Row, VirtualList } from '../../src/spindle/web/shared/list.js';
import { arrange, reconcile } from '../../src/spindle/web/shared/reconcile.js';

let seed = 11;
const random = below => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % below;

test('heights are added up and found again, whatever changes', () => {
  const values = Array.from({ length: 300 }, () => 1 + random(90));
  const heights = new Heights(values.slice(0, 200));
  for (const value of values.slice(200)) heights.push(value);
  for (let round = 0; round < 500; round++) {
    const i = random(values.length);
    values[i] = 1 + random(90);
    heights.set(i, values[i]);
    const n = random(values.length + 1);
    const before = values.slice(0, n).reduce((sum, value) => sum + value, 0);
    assert.equal(heights.before(n), before);
    if (n < values.length) assert.equal(heights.at(before), n);
    if (n < values.length) assert.equal(heights.at(before + values[n] - 0.5), n);
  }
  assert.equal(heights.at(1e9), values.length - 1);
  assert.equal(new Heights().at(5), -1);
});

test('children that stay keep their elements, in whatever order they are wanted', () => {
  const parent = document.createElement('div');
  const nodes = Array.from({ length: 6 }, () => document.createElement('p'));
  arrange(parent, nodes);
  const wanted = [nodes[5], nodes[0], nodes[3], document.createElement('p')];
  arrange(parent, wanted);
  assert.deepEqual([...parent.childNodes], wanted);
});

test('of items with keys, only those are built again that look different', () => {
  const parent = document.createElement('div');
  const built = [];
  const show = (...items) => {
    built.length = 0;
    reconcile(
      parent,
      items.map(([key, state]) => ({
        key,
        state,
        build: () => built.push(key) && document.createElement('p'),
        update: node => (node.textContent = `${key}${state}`),
      })),
    );
    return [...parent.childNodes];
  };
  const [a, b] = show([1, 'a'], [2, 'b']);
  const [c, d, e] = show([3, 'c'], [2, 'b'], [1, 'changed']);
  assert.deepEqual(built, [3, 1]);
  assert.equal(d, b);
  assert.ok(c !== a && e !== a);
  assert.equal(parent.textContent, '3c2b1changed');
});

/** A list in a window of 800 pixels, whose rows have their height only once they are in the document. */
function listOf(count, heightOf) {
  globalThis.ResizeObserver = /** @type {any} */ (class { observe() {} unobserve() {} }); // prettier-ignore
  const scroller = {
    scrollTop: 0,
    clientHeight: 800,
    getBoundingClientRect: () => ({ top: 0 }),
    scrollTo: ({ top }) => (scroller.scrollTop = top),
  };
  const root = document.createElement('div');
  root.getBoundingClientRect = () => /** @type {any} */ ({ top: -scroller.scrollTop });
  const list = new VirtualList(/** @type {any} */ (scroller), root, 50);
  const rows = Array.from({ length: count }, (_, i) => {
    const node = () =>
      Object.assign(document.createElement('p'), { getBoundingClientRect: () => ({ height: heightOf(i) }) });
    return new Row('row', node);
  });
  list.show(rows);
  return { list, rows, root, scroller };
}

test('of a long list only what is near the window is in the document, and what is read does not move', () => {
  const heightOf = i => 20 + ((i * 37) % 200);
  const { list, rows, root, scroller } = listOf(20_000, heightOf);
  for (let round = 0; round < 60; round++) {
    scroller.scrollTop = 3000 + random(Math.floor(list.heights.total - 4000));
    list.update();
    for (let step = 0; step < 8; step++) {
      scroller.scrollTop -= 300; // rows above, which were never seen, get their heights
      const anchor = list.anchor();
      list.update();
      const now = list.anchor();
      assert.ok(anchor && now && now.row === anchor.row && Math.abs(now.offset - anchor.offset) < 1);
    }
    assert.ok(root.childNodes.length < 200, `${root.childNodes.length} rows`);
    const edge = list.topOf(rows[list.first]);
    const end = list.topOf(rows[list.last]) + rows[list.last].height;
    assert.ok(edge <= scroller.scrollTop && end >= Math.min(scroller.scrollTop + 800, list.heights.total));
  }
  assert.ok(rows.filter(row => row.node).length < 200, 'rows that left the window are let go');
});

test('a row is revealed wherever it is; a short list is there as a whole', () => {
  const { list, rows, scroller } = listOf(5_000, () => 33);
  assert.ok(list.reveal(rows[4_321], -40));
  assert.ok(rows[4_321].node);
  assert.ok(Math.abs(list.topOf(rows[4_321]) - scroller.scrollTop - 40) < 1);
  assert.equal(list.reveal(new Row('other', () => document.createElement('p'))), false);
  assert.equal(listOf(50, () => 33).root.childNodes.length, 50);
});
