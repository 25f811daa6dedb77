// Stored conversations, the latest first: a page at first, more when asked for, and later only what has changed.

const AT_ONCE = 100;

export class StoredList {
  /**
   * @param {(command: CommandName, fields: any) => Promise<any>} call
   * @param {boolean} everywhere of all directories, not only of the one that is open
   */
  constructor(call, everywhere) {
    this.call = call;
    this.everywhere = everywhere;
    /** @type {any[]} */
    this.sessions = [];
    /** @type {string | undefined} */
    this.cursor = undefined; // of the next page
    /** @type {number | undefined} */
    this.asOf = undefined; // when we looked last, by the clock of the files; undefined: never
  }

  /** Forget everything: the next look begins with the first page. */
  forget() {
    this.asOf = undefined;
  }

  /**
   * Look for the first time, or learn what has changed since.
   * @returns {Promise<void>}
   */
  async look() {
    const since = this.asOf;
    const answer = await this.ask(since === undefined ? {} : { changedSince: since });
    if (since !== undefined && answer.nextCursor) {
      this.forget(); // more has changed than fits in a page
      return this.look();
    }
    if (since === undefined) [this.sessions, this.cursor] = [answer.sessions, answer.nextCursor];
    else this.put(answer.sessions);
    this.asOf = answer.asOf;
  }

  /** Learn of older ones. */
  async more() {
    if (this.cursor === undefined) return;
    const answer = await this.ask({ cursor: this.cursor });
    this.put(answer.sessions);
    this.cursor = answer.nextCursor;
  }

  /** @param {any} fields */
  ask(fields) {
    return this.call('list_sessions', { everywhere: this.everywhere, limit: AT_ONCE, ...fields });
  }

  /** @param {any[]} news */
  put(news) {
    const byId = new Map([...this.sessions, ...news].map(one => [one.id, one]));
    this.sessions = [...byId.values()].sort((a, b) => b.modified.localeCompare(a.modified));
  }
}
