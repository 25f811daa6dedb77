// Tells what happens while the reader looks elsewhere: in the title of the page, and as a notification of the system.

import { remembered } from '../shared/dom.js';
import { oneLine, textOf } from '../shared/format.js';

export class Notices {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.unseen = ''; // the mark in the title
    session.on('agent_settled', ({ aborted, stopReason }) => aborted || this.ended(stopReason));
    session.on('asked', (/** @type {string} */ title) => this.tell('❓ ', title, 'Waits for an answer'));
    const seen = () => {
      if (document.hidden || !this.unseen) return;
      this.unseen = session.mark = '';
      session.emit('state');
    };
    document.addEventListener('visibilitychange', seen);
    addEventListener('focus', seen);
  }

  get wanted() {
    return remembered.get('notify') === 'true' && globalThis.Notification?.permission === 'granted';
  }

  /** Switch notifications of the system; the browser asks the user the first time. */
  async toggle() {
    if (this.wanted) remembered.set('notify', 'false');
    else {
      if (!globalThis.Notification || (await Notification.requestPermission()) !== 'granted')
        throw new Error('The browser does not allow notifications for this page');
      remembered.set('notify', 'true');
    }
  }

  /** @param {string} stopReason */
  ended(stopReason) {
    const last = this.session.messages.findLast(({ role }) => role === 'assistant');
    this.tell(
      '✓ ',
      stopReason === 'error' ? 'Failed' : stopReason === 'length' ? 'Cut off' : 'Done',
      oneLine(textOf(last?.content ?? ''), 160),
    );
  }

  /**
   * @param {string} mark
   * @param {string} title
   * @param {string} body
   */
  tell(mark, title, body) {
    if (!document.hidden) return;
    this.unseen = this.session.mark = mark;
    this.session.emit('state');
    if (!this.wanted) return;
    const note = new Notification(`${title} – ${this.session.state.sessionName ?? 'Spindle'}`, {
      body,
      tag: this.session.id ?? '',
    });
    note.onclick = () => window.focus();
  }
}
