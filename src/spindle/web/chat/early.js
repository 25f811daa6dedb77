// Runs before everything else, while the rest of the page is on its way: opens the connection, which `Connection` takes
// over. Where the server is, and what it must be told, is known here alone.

globalThis.wire = {
  // Where the key of a browser that is signed in is kept: half of what lets it in, the other half is a cookie.
  KEY: 'spindle-key',
  given: '', // a token that came with the address
  SHARED: 'shared=', // begins the address of another user's conversation
  // What is asked first: the state, and the last entries.
  FIRST: { get_state: {}, get_entries: { limit: 160 } },

  /** The id of the session in the address; null if there is none. */
  idInAddress() {
    this.takeToken();
    try {
      return decodeURIComponent(location.hash.slice(1)) || null;
    } catch {
      return null; // an address written by hand
    }
  },

  /** Take a token (`#token=…`) out of the address. */
  takeToken() {
    if (!location.hash.startsWith('#token=')) return;
    this.given = location.hash.slice('#token='.length);
    history.replaceState(null, '', location.pathname);
  },

  /**
   * A socket to a session; null is a new one. `since` is the number of the last event that was seen.
   * @param {string} sessionId
   */
  open(sessionId, since = null, copy = false) {
    const url = new URL('rpc', document.baseURI);
    url.protocol = url.protocol.replace('http', 'ws');
    url.hash = url.search = '';
    const shared = sessionId?.startsWith(this.SHARED);
    if (shared) url.searchParams.set('shared', sessionId.slice(this.SHARED.length));
    else if (sessionId) url.searchParams.set('session', sessionId);
    if (since !== null) url.searchParams.set('since', since);
    if (copy) url.searchParams.set('copy', 'true');
    url.searchParams.set('deltas', 'gathered');
    const key = localStorage.getItem(this.KEY);
    return new WebSocket(url, key ? ['spindle', 'spindle.token.' + btoa(key).replaceAll('=', '')] : ['spindle']);
  },

  begin() {
    const sessionId = this.idInAddress();
    if (this.given) return;
    /** @type {any} */
    const first = { sessionId, socket: this.open(sessionId), frames: [] };
    first.socket.onmessage = (/** @type {MessageEvent} */ frame) => first.frames.push(frame);
    first.socket.onopen = () => {
      for (const [type, fields] of Object.entries(this.FIRST))
        first.socket.send(JSON.stringify({ id: type, type, ...fields }));
    };
    this.first = first;
  },

  /**
   * The socket that was opened early, if it leads to this session, and what has come over it so far.
   * @param {string} sessionId
   * @returns {any}
   */
  takeFirst(sessionId) {
    /** @type {any} */
    const { first } = this;
    this.first = null;
    if (first && first.sessionId === sessionId && first.socket.readyState <= WebSocket.OPEN) return first;
    first?.socket.close();
    return null;
  },
};
wire.begin();
