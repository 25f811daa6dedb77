// What is attached to messages that are not sent yet, by conversation: too large for the storage that texts are kept in.
// Where the browser has no database, or none for this page, it is forgotten with the page.

const KEPT_MS = 30 * 24 * 3600 * 1000; // of conversations that nobody comes back to

/** @type {Promise<IDBDatabase> | null} */
let database = null;

function openStore() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('spindle', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('drafts');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return database;
}

/**
 * @param {IDBTransactionMode} mode
 * @param {Act} act
 */
async function transact(mode, act) {
  const transaction = (await openStore()).transaction('drafts', mode);
  const request = act(transaction.objectStore('drafts'));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

/**
 * Keep images and files of a conversation; none takes them away.
 * @param {string} id
 * @param {any} fields
 */
export function keepAttached(id, { images, files }) {
  const draft = { images, files, when: Date.now() };
  const act = (/** @type {IDBObjectStore} */ store) => {
    if (images.length || files.length) store.put(draft, id);
    else store.delete(id);
    store.transaction.commit(); // the page may be left at once
  };
  return transact('readwrite', act).catch(() => null);
}

/**
 * Return the images and files that are kept for a conversation, or null.
 * @param {string} id
 */
export function attachedTo(id) {
  return transact('readonly', store => store.get(id)).catch(() => null);
}

/** Forget what is very old. */
export function forgetOld() {
  /** @param {any} store */
  const look = store => {
    store.openCursor().onsuccess = (/** @type {any} */ { target: { result: cursor } }) => {
      if (!cursor) return;
      if (Date.now() - cursor.value.when > KEPT_MS) cursor.delete();
      cursor.continue();
    };
  };
  return transact('readwrite', look).catch(() => null);
}
