// Keeps the newest text in view, but only while the reader is at the end.

import { $ } from '../shared/dom.js';

const NEAR = 48; // pixels that still count as the end

export class Scroll {
  constructor() {
    this.scroller = $('scroller');
    this.latest = $('latest');
    this.sticks = true;
    this.top = 0;
    this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.latest.addEventListener('click', () => this.toEnd());
    // Opening something is reading: what was opened must not run away.
    this.scroller.addEventListener('click', event => event.target.closest('summary, .link') && this.pause(), true);
    const observer = new ResizeObserver(() => this.follow());
    observer.observe($('column'));
    observer.observe(this.scroller);
    $('feed').addEventListener('said', () => this.toEnd());
    $('feed').addEventListener('shown', () => this.toEnd());
  }

  get atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  scrolled() {
    const { scrollTop } = this.scroller;
    // Text that grows also moves the end away; only going up means leaving it.
    if (this.atEnd) this.sticks = true;
    else if (scrollTop < this.top) this.sticks = false;
    this.top = scrollTop;
    this.show();
  }

  follow() {
    if (this.sticks) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.show();
  }

  toEnd() {
    this.sticks = true;
    this.follow();
  }

  pause() {
    this.sticks = false;
    setTimeout(() => {
      this.sticks = this.atEnd;
    }, 250);
  }

  show() {
    this.latest.hidden = this.sticks || this.atEnd;
    // At the end, the browser must not hold on to what is in view: that would look like the reader going up.
    this.scroller.style.overflowAnchor = this.sticks ? 'none' : '';
  }
}
