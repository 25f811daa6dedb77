// The column of the conversation, of which only the rows near the window are in the document. It keeps the newest
// text in view until the reader goes up: with the wheel, a finger, the keys or the scroll bar, and by nothing else.

import { $, el } from '../shared/dom.js';
import { levelHeadings } from '../shared/markdown.js';

const WHOLE = 60; // up to so many rows nothing is left out, so the browser's own search finds everything
const MARGIN = 1200; // pixels above and below the window that are kept ready
const NEAR = 48; // pixels that still count as the end
const INTENT_MS = 700; // a scroll so soon after a gesture is the reader's
const KEYS = new Set(['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End', ' ', 'Tab']);

/** Run `paint` once in the next frame, however often it is asked for. Returns the function to ask with. */
export function perFrame(paint) {
  let asked = false;
  let took = 0;
  const run = () => {
    asked = false;
    const began = performance.now();
    paint();
    took = performance.now() - began;
  };
  return () => {
    if (asked) return;
    asked = true;
    // What takes longer than a frame must leave the reader time to scroll and to write.
    if (took > 12) setTimeout(() => requestAnimationFrame(run), 3 * took);
    else requestAnimationFrame(run);
  };
}

export class Row {
  constructor(kind, build, height = 90) {
    this.kind = kind;
    this.build = build;
    this.height = height; // as it was measured; before that a guess
    this.id = null; // of its entry
    this.node = null; // its element, while there is one
    this.keep = false; // it does not lose its element when it leaves the document
    this.turn = null;
    this.older = false; // a summary stands for it
    this.gone = false; // not to be seen
  }
}

export class Feed {
  /** `busy()` says whether something is being written. */
  constructor(busy) {
    this.busy = busy;
    this.scroller = $('scroller');
    this.root = $('feed');
    this.latest = $('latest');
    this.rows = []; // those that are not folded away
    this.first = 0; // of the rows in the document
    this.last = -1;
    this.sticks = true;
    this.intent = 0;
    this.sizes = new ResizeObserver(changes => this.resized(changes));
    this.listen();
  }

  listen() {
    const means = () => {
      this.intent = performance.now() + INTENT_MS;
    };
    this.scroller.addEventListener('wheel', means, { passive: true });
    this.scroller.addEventListener('touchmove', means, { passive: true });
    addEventListener(
      'keydown',
      event => KEYS.has(event.key) && !event.target.closest('#dock, #sidebar, dialog') && means(),
    );
    // The scroll bar, and a selection that is drawn over the edge.
    this.scroller.addEventListener('pointerdown', () => {
      this.intent = Infinity;
    });
    for (const type of ['pointerup', 'pointercancel', 'blur'])
      addEventListener(type, () => this.intent === Infinity && means());
    this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.latest.addEventListener('click', () => this.toEnd());
    // Opening something is reading: what was opened must not run away. What was touched is not built again.
    this.scroller.addEventListener(
      'click',
      ({ target }) => {
        if (!target.closest('summary, .link, .diff .plain')) return;
        const row = this.rows.find(({ node }) => node?.contains(target));
        if (row) row.keep = true;
        this.pause();
      },
      true,
    );
    const around = new ResizeObserver(() => this.follow());
    around.observe(this.scroller);
    around.observe($('asks'));
    addEventListener('beforeprint', () => this.print(true));
    addEventListener('afterprint', () => this.print(false));
    // Print as seen by the style sheet alone: there is no event for it.
    matchMedia('print').addEventListener('change', ({ matches }) => this.print(matches));
  }

  // -- rows -----------------------------------------------------------------------------------------

  /** Show these rows. Those that were here before keep their elements. */
  show(rows) {
    const anchor = this.sticks ? null : this.anchor();
    this.rows = rows;
    this.update(anchor && rows.includes(anchor.row) ? anchor : null);
  }

  /** Add a row at the end. */
  append(row) {
    this.rows.push(row);
    if (this.last === this.rows.length - 2) this.update();
    else this.pad();
  }

  unmount(row) {
    if (!row.node) return;
    this.sizes.unobserve(row.node);
    row.node.remove();
    if (!row.keep) row.node = null;
  }

  mount(first, last) {
    const wanted = new Set(this.rows.slice(first, last + 1));
    for (const node of [...this.root.children]) if (!wanted.has(node.row)) this.unmount(node.row);
    const fresh = [];
    let next = this.root.firstElementChild;
    for (const row of wanted) {
      if (!row.node) {
        row.node = el('div', { class: `row ${row.kind}-row` }, row.build());
        levelHeadings(row.node, 1);
      }
      row.node.row = row;
      if (row.node === next) {
        next = next.nextElementSibling; // it stays where it is, and keeps the focus
        continue;
      }
      this.root.insertBefore(row.node, next);
      fresh.push(row);
    }
    this.first = first;
    this.last = last;
    let changed = false;
    for (const row of fresh) {
      const { height } = row.node.getBoundingClientRect();
      changed ||= Math.abs(height - row.height) > 0.5;
      row.height = height;
      this.sizes.observe(row.node);
    }
    this.pad();
    return changed;
  }

  pad() {
    this.root.style.paddingTop = `${this.height(0, this.first)}px`;
    this.root.style.paddingBottom = `${this.height(this.last + 1, this.rows.length)}px`;
  }

  height(from, to) {
    let sum = 0;
    for (let i = from; i < to; i++) sum += this.rows[i].height;
    return sum;
  }

  /** Which row stands at a height, and where it begins. */
  at(height) {
    let top = 0;
    for (let i = 0; i < this.rows.length; i++) {
      const next = top + this.rows[i].height;
      if (next > height) return { index: i, top };
      top = next;
    }
    return { index: this.rows.length - 1, top };
  }

  // -- the window -----------------------------------------------------------------------------------

  /** The row at the upper edge, and how far above the edge it begins. */
  anchor() {
    const height = this.scroller.scrollTop - this.root.offsetTop;
    if (height <= 0 || !this.rows.length) return null;
    const { index, top } = this.at(height);
    return { row: this.rows[index], offset: height - top };
  }

  topOf(row) {
    return this.height(0, this.rows.indexOf(row));
  }

  /** Put into the document what is near the window. `anchor` stays where it is. */
  update(anchor = this.sticks ? null : this.anchor()) {
    if (this.printing) return;
    const count = this.rows.length;
    const { clientHeight } = this.scroller;
    for (let round = 0; round < 4; round++) {
      let [first, last] = [0, count - 1];
      if (count > WHOLE) {
        const edge = this.sticks
          ? this.height(0, count) - clientHeight
          : anchor
            ? this.topOf(anchor.row) + anchor.offset
            : this.scroller.scrollTop - this.root.offsetTop;
        first = this.at(Math.max(0, edge - MARGIN)).index;
        last = this.sticks ? count - 1 : this.at(edge + clientHeight + MARGIN).index;
      }
      if (!this.mount(first, last)) break;
    }
    if (anchor && !this.sticks) this.scrollTo(this.root.offsetTop + this.topOf(anchor.row) + anchor.offset);
    this.follow();
  }

  resized(changes) {
    const anchor = this.sticks ? null : this.anchor();
    let above = false;
    for (const { target } of changes) {
      const { row } = target;
      const { height } = target.getBoundingClientRect();
      if (!target.isConnected || Math.abs(height - row.height) <= 0.5) continue;
      above ||= anchor !== null && row !== anchor.row && this.rows.indexOf(row) < this.rows.indexOf(anchor.row);
      row.height = height;
    }
    if (above) this.scrollTo(this.root.offsetTop + this.topOf(anchor.row) + anchor.offset);
    this.follow();
  }

  scrollTo(top) {
    if (Math.abs(this.scroller.scrollTop - top) > 0.5) this.scroller.scrollTop = top;
  }

  /** Bring a row into view. */
  reveal(row) {
    if (!this.rows.includes(row)) return;
    this.sticks = false;
    this.update({ row, offset: -40 });
    this.showButton();
  }

  /** Paper has no window: put everything in the document. */
  print(on) {
    if (Boolean(this.printing) === on) return;
    this.printing = false;
    this.onPrint?.(on); // what is folded away belongs on paper, too
    if (on) this.mount(0, this.rows.length - 1);
    this.printing = on;
    if (!on) this.update();
  }

  // -- following ------------------------------------------------------------------------------------

  get atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  scrolled() {
    const { scrollHeight, clientHeight } = this.scroller;
    const same = scrollHeight === this.seen?.scrollHeight && clientHeight === this.seen.clientHeight;
    // At rest the browser may scroll for the reader, too: to what was searched for.
    if (performance.now() < this.intent || (same && !this.busy())) this.sticks = this.atEnd;
    if (this.rows.length > WHOLE && !this.sticks) this.update();
    else this.follow();
  }

  follow() {
    if (this.sticks && !this.held) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.seen = { scrollHeight: this.scroller.scrollHeight, clientHeight: this.scroller.clientHeight };
    this.showButton();
  }

  toEnd() {
    this.sticks = true;
    this.held = false;
    this.update();
  }

  /** Let what was just opened stay where it is. */
  pause() {
    if (!this.sticks) return;
    this.held = true;
    clearTimeout(this.holding);
    this.holding = setTimeout(() => {
      this.held = false;
      this.sticks = this.atEnd;
      this.showButton();
    }, 250);
  }

  showButton() {
    this.latest.hidden = this.sticks || this.atEnd;
  }
}
