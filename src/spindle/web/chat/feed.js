// The column of the conversation. It keeps the newest text in view until the reader goes up: with the wheel, a finger,
// the keys or the scroll bar, and by nothing else.

import { $, el, targetOf } from '../shared/dom.js';
import { VirtualList } from '../shared/list.js';
import { levelHeadings } from '../shared/markdown.js';

const WHOLE = 40; // up to so many rows nothing is left out
const TOUCHED = 12; // rows in which the reader has opened something, and which stay as they are
const NEAR = 48; // pixels that still count as the end
const INTENT_MS = 700; // a scroll so soon after a gesture is the reader's
const KEYS = new Set(['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End', ' ', 'Tab']);

/**
 * Run `paint` once in the next frame, however often it is asked for. Returns the function to ask with.
 * @param {Act} paint
 */
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

export class Feed extends VirtualList {
  /** @type {boolean} */
  printing = false;
  /** @type {any[]} */
  touched;
  /** @type {any} */
  seen;

  /**
   * `busy()` says whether something is being written.
   * @param {Act} busy
   */
  constructor(busy) {
    super($('scroller'), $('feed'), WHOLE);
    this.busy = busy;
    this.latest = $('latest');
    this.sticks = true;
    this.waits = false; // it shows a question above the end
    this.intent = 0;
    this.touched = [];
    /** @type {((on: boolean) => void) | null} what is folded away belongs on paper, too */
    this.onPrint = null;
    this.listen();
  }

  /** @param {MessageRow} row */
  make(row) {
    const node = el('div', { class: `row ${row.kind}-row` }, row.build());
    levelHeadings(node, 1);
    return node;
  }

  painted() {
    this.follow();
  }

  listen() {
    const means = () => {
      this.intent = performance.now() + INTENT_MS;
      this.waits = false;
    };
    this.scroller.addEventListener('wheel', means, { passive: true });
    this.scroller.addEventListener('touchmove', means, { passive: true });
    addEventListener(
      'keydown',
      event => KEYS.has(event.key) && !targetOf(event).closest('#dock, #sidebar, dialog') && means(),
    );
    // The scroll bar, and a selection that is drawn over the edge.
    this.scroller.addEventListener('pointerdown', () => {
      this.intent = Infinity;
      this.waits = false;
    });
    for (const type of ['pointerup', 'pointercancel', 'blur'])
      addEventListener(type, () => this.intent === Infinity && means());
    this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.latest.addEventListener('click', () => this.toEnd());
    // Opening something is reading: what was opened must not run away.
    this.scroller.addEventListener(
      'click',
      event => {
        const target = targetOf(event);
        if (!target.closest('summary, .link, .diff .plain') || target.closest('.ask')) return;
        const row = target.closest('.row')?.row;
        if (row) this.touch(row);
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

  /**
   * The reader has opened something in a row: it is not built again, as long as that is not long ago.
   * @param {MessageRow} row
   */
  touch(row) {
    if (row.keep) return;
    row.keep = true;
    this.touched.push(row);
    if (this.touched.length > TOUCHED) this.letGo(this.touched.shift());
  }

  /**
   * A row need not keep its element any more.
   * @param {MessageRow} row
   */
  letGo(row) {
    row.keep = this.touched.includes(row);
    if (!row.keep && !row.node?.isConnected) row.node = null;
  }

  /**
   * @param {MessageRow} row
   * @param {number} [offset]
   */
  reveal(row, offset) {
    const found = super.reveal(row, offset);
    if (found) this.showButton();
    return found;
  }

  /**
   * Paper has no window: put everything in the document.
   * @param {boolean} on
   */
  print(on) {
    if (this.printing === on) return;
    this.printing = false;
    this.onPrint?.(on);
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
    this.waits = false;
    this.held = false;
    this.update();
  }

  /**
   * Show this instead of the end, until the work goes on.
   * @param {HTMLElement} node
   */
  stayAt(node) {
    this.sticks = false;
    this.waits = true;
    node.scrollIntoView({ block: 'start' });
    this.showButton();
  }

  goOn() {
    if (this.waits) this.toEnd();
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
