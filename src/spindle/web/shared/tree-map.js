// The whole conversation as a small map: down goes the time, to the right stand the branches, and the way that is shown
// is a straight line at the left. However long it is, it fits; it is drawn with a handful of paths, not with a node per
// message. Arrow keys and the pointer lead from message to message, and the line below says which one it is.

import { el, SVG } from './dom.js';

const HEIGHT = 168; // pixels at most
const STEP = 13; // between messages, where there is room
const WIDTH = 220;
const LANE = 16; // between branches
const MAX_LANES = 40; // more branches at the same height share the last one
const PAD = 9;
const DOTS = 5; // pixels between messages that leave room for dots

/**
 * @param {string} tag
 * @param {string} name
 */
const shape = (tag, name) => {
  const node = document.createElementNS(SVG, tag);
  node.setAttribute('class', name);
  return node;
};

/** @typedef {{ above: number, way: boolean, user?: boolean }} MapRow the row that one hangs on; whether it is shown */

export class TreeMap {
  /** @type {MapRow[]} */
  rows = [];
  current = -1;
  /** Of each row from 1 on, the row that goes straight on from it; of nothing: 0. */
  heir = new Int32Array(0);
  level = new Int32Array(0);
  lane = new Int32Array(0);
  /** @type {number[][]} the rows of each lane, from above */
  lanes = [];
  /** @type {number[]} the rows where a line begins */
  starts = [];
  step = 0; // pixels between levels
  gap = 0; // pixels between lanes

  /**
   * Rows are numbers.
   * @param {{ say: (row: number) => string, go: (row: number) => void }} actions the words for a row; goes to a row
   */
  constructor({ say, go }) {
    this.say = say;
    this.go = go;
    this.svg = shape('svg', 'map');
    this.svg.setAttribute('aria-hidden', 'true');
    const parts = ['other', 'way', 'dots', 'dots way', 'dots said', 'dots way said'];
    this.paths = new Map(parts.map(name => [name, shape('path', name)]));
    this.here = shape('circle', 'here');
    this.ring = shape('circle', 'ring');
    this.svg.append(...this.paths.values(), this.here, this.ring);
    this.item = el('div', { role: 'treeitem', class: 'map-at', id: 'map-at' });
    const props = { class: 'tree-map', role: 'tree', tabindex: '0', 'aria-label': 'Map of the conversation' };
    this.node = el('div', { ...props, 'aria-activedescendant': 'map-at' }, this.svg, this.item);
    this.node.addEventListener('keydown', event => this.key(event));
    this.node.addEventListener('blur', () => this.point(this.current));
    this.svg.addEventListener('pointermove', event => this.point(this.nearest(event)));
    this.svg.addEventListener('pointerleave', () => this.node.matches(':focus-visible') || this.point(this.current));
    this.svg.addEventListener('pointerdown', event => {
      // A finger covers what it points at: it chooses first, and goes with the second touch.
      this.chosen = event.pointerType === 'mouse' || this.nearest(event) === this.touched;
      this.touched = this.nearest(event);
    });
    this.svg.addEventListener('click', event => {
      this.point(this.nearest(event));
      if (this.chosen) this.go(this.at);
    });
  }

  /**
   * Show these rows: `above` is the row that one hangs on (or -1), `way` says that it is on the way that is shown.
   * @param {any[]} rows
   * @param {any} current
   */
  show(rows, current) {
    this.rows = rows;
    this.current = current;
    this.node.hidden = rows.length === 0;
    if (!rows.length) return;
    this.arrange();
    this.draw();
    this.touched = undefined;
    this.point(current);
  }

  /** Give every row a level and a lane: what is on the way, or came first, goes straight on. */
  arrange() {
    const { rows } = this;
    this.heir = new Int32Array(rows.length + 1).fill(-1);
    rows.forEach(({ above, way }, i) => {
      if (this.heir[above + 1] < 0 || way) this.heir[above + 1] = i;
    });
    this.level = new Int32Array(rows.length);
    this.lane = new Int32Array(rows.length);
    /** @type {number[]} */
    const starts = [];
    rows.forEach(({ above }, i) => {
      this.level[i] = above < 0 ? 0 : this.level[above] + 1;
      if (this.heir[above + 1] !== i || above < 0) starts.push(i);
    });
    starts.sort(
      (a, b) => this.level[a] - this.level[b] || Number(this.heir[0] === b) - Number(this.heir[0] === a) || a - b,
    );
    /** @type {number[]} */
    const ends = []; // the last level that is taken, by lane
    this.lanes = [];
    for (const start of starts) {
      const from = rows[start].above;
      let lane = from < 0 ? 0 : this.lane[from] + 1;
      while (lane < MAX_LANES - 1 && ends[lane] >= this.level[start] - 1) lane++;
      for (let i = start; i >= 0; i = this.heir[i + 1]) {
        this.lane[i] = lane;
        (this.lanes[lane] ??= []).push(i);
        ends[lane] = Math.max(ends[lane] ?? -1, this.level[i]);
      }
    }
    this.starts = starts;
    for (const lane of this.lanes) lane?.sort((a, b) => this.level[a] - this.level[b]);
  }

  draw() {
    const { rows } = this;
    const deepest = this.level.reduce((most, level) => Math.max(most, level), 0);
    this.step = deepest ? Math.min(STEP, (HEIGHT - 2 * PAD) / deepest) : 0;
    const height = Math.ceil(2 * PAD + deepest * this.step);
    const gaps = this.lanes.length - 1;
    this.gap = gaps ? Math.min(LANE, (WIDTH - 2 * PAD) / gaps) : 0;
    const width = 2 * PAD + gaps * this.gap;
    this.svg.setAttribute('width', String(width));
    this.svg.setAttribute('height', String(height));
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const drawn = Object.fromEntries([...this.paths.keys()].map(name => [name, ['']]));
    const end = this.current;
    for (const start of this.starts) {
      const { above, way } = rows[start];
      let last = start;
      while (this.heir[last + 1] >= 0) last = this.heir[last + 1];
      const [x, y] = this.place(start);
      const [, bottom] = this.place(last);
      if (above >= 0) {
        const [fromX, fromY] = this.place(above);
        const turn = Math.min(LANE, (x - fromX) / 2);
        drawn.other.push(`M${fromX} ${fromY}C${fromX + turn} ${fromY} ${x} ${fromY} ${x} ${y}`);
      }
      if (way) drawn.way.push(`M${x} ${y}V${this.place(end)[1]}`);
      if (bottom > y) drawn.other.push(`M${x} ${y}V${bottom}`);
    }
    rows.forEach(({ way, user, above }, i) => {
      const ends = this.heir[i + 1] < 0 || above < 0; // where there is no room for all, those at the ends
      if (this.step < DOTS && deepest && !ends) return;
      const [x, y] = this.place(i);
      drawn[`dots${way ? ' way' : ''}${user ? ' said' : ''}`].push(`M${x} ${y}h0`);
    });
    for (const [name, path] of this.paths) path.setAttribute('d', drawn[name].join(''));
    this.put(this.here, this.current, 5);
  }

  /** @param {any} row */
  place(row) {
    return [PAD + this.lane[row] * this.gap, Math.round((PAD + this.level[row] * this.step) * 10) / 10];
  }

  /**
   * @param {any} circle
   * @param {any} row
   * @param {number} radius
   */
  put(circle, row, radius) {
    const [x, y] = this.place(row);
    circle.setAttribute('cx', x);
    circle.setAttribute('cy', y);
    circle.setAttribute('r', radius);
  }

  /**
   * Point at a row, and say what it is.
   * @param {any} row
   */
  point(row) {
    if (!(row >= 0) || !this.rows.length) return;
    this.at = row;
    this.put(this.ring, row, 7.5);
    const words = this.say(row);
    if (this.item.textContent !== words) this.item.textContent = this.item.title = words;
    this.item.setAttribute('aria-level', String(this.lane[row] + 1));
    this.item.setAttribute('aria-current', String(row === this.current));
  }

  /**
   * The row nearest to a pointer.
   * @param {any} fields
   */
  nearest({ clientX, clientY }) {
    const box = this.svg.getBoundingClientRect();
    const level = this.step ? (clientY - box.top - PAD) / this.step : 0;
    let best = this.current;
    let least = Infinity;
    this.lanes.forEach((rows, lane) => {
      const away = (clientX - box.left - PAD - lane * this.gap) ** 2;
      for (const row of this.around(rows, level)) {
        const distance = away + ((this.level[row] - level) * this.step) ** 2;
        if (distance < least) [best, least] = [row, distance];
      }
    });
    return best;
  }

  /**
   * The two rows of a lane above and below a level.
   * @param {any[]} rows
   * @param {number} level
   */
  around(rows, level) {
    let low = 0;
    let high = rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.level[rows[middle]] < level) low = middle + 1;
      else high = middle;
    }
    return rows.slice(Math.max(0, low - 1), low + 1);
  }

  /** @param {any} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { at } = this;
    if (event.key === 'ArrowUp') this.point(this.rows[at].above);
    else if (event.key === 'ArrowDown') this.point(this.heir[at + 1]);
    else if (event.key === 'ArrowLeft') this.point(this.beside(-1));
    else if (event.key === 'ArrowRight') this.point(this.beside(1));
    else if (event.key === 'Home') this.point(this.heir[0]);
    else if (event.key === 'End') this.point(this.current);
    else if (event.key === 'Enter' || event.key === ' ') this.go(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * The row at about this height on the next branch to the left or right.
   * @param {number} by
   */
  beside(by) {
    for (let lane = this.lane[this.at] + by; lane >= 0 && lane < this.lanes.length; lane += by) {
      /** @param {any} row */
      const away = row => Math.abs(this.level[row] - this.level[this.at]);
      const found = this.around(this.lanes[lane], this.level[this.at]);
      if (found.length) return found.reduce((one, other) => (away(other) < away(one) ? other : one));
    }
    return this.at;
  }
}
