// What was done to a file, change by change, as one difference: from before the first change to after the last. Of the
// file only what the changes have shown is known, with the numbers of the lines.

import { common } from '../shared/diff.js';

const CONTEXT = 4; // lines that stay, shown around those that do not
/** @type {any} */
const GAP = { sign: '', before: '', after: '', text: '…' };

export class MergedChanges {
  /** @type {any[]} */
  pieces;
  /** @type {Map<number, string>} */
  gone;

  constructor() {
    // The file as it stands, as far as it is known: lines, and stretches of lines that no change has shown (`text` is
    // null). A stretch is one piece however long it is. {origin: number before all changes or null, text, length}
    this.pieces = [];
    this.next = 1; // the number, before all changes, of the first line behind them
    this.gone = new Map(); // number before all changes → text of a line that is not there any more
    this.whole = false; // it was written whole: there is nothing behind the pieces
    this.size = 0; // changes
    this.patch = ''; // of the only change
  }

  /**
   * The file was written whole; what was before is not known.
   * @param {DiffRow[]} rows
   */
  write(rows) {
    this.pieces = rows.map(({ text }) => ({ origin: null, text, length: 1 }));
    this.gone = new Map();
    this.whole = true;
    this.size++;
  }

  /**
   * Take the rows of a diff. Returns whether they fit what is known: if not, something else has changed the file.
   * @param {DiffRow[]} rows
   * @param {string} patch
   */
  edit(rows, patch) {
    /** @type {any[]} */
    const made = [];
    const gone = new Map(this.gone);
    const rest = this.pieces.toReversed(); // the next one is the last
    let [at, to, { next }] = [0, 0, this]; // lines that are taken, and made
    /** @param {number} most */
    const take = most => {
      const piece = rest.pop() ?? { origin: (next += most) - most, text: null, length: most };
      const { origin, length } = piece;
      if (length > most) rest.push({ ...piece, origin: origin + most, length: length - most });
      at += Math.min(most, length);
      return length > most ? { ...piece, length: most } : piece;
    };
    /** @param {any} piece */
    const put = piece => {
      made.push(piece);
      to += piece.length;
    };
    for (const { sign, before, after, text } of rows) {
      if (before === '' && after === '') continue; // lines that are left out
      const skipped = sign === '+' ? after - 1 - to : before - 1 - at;
      if (skipped < 0 || (this.whole && skipped + (sign === '+' ? 0 : 1) > rest.length)) return false;
      for (const end = at + skipped; at < end;) put(take(end - at));
      if (sign === '+') {
        put({ origin: null, text, length: 1 });
        continue;
      }
      const line = take(1);
      if (line.text !== null && line.text !== text) return false;
      if (sign === '') put({ ...line, text });
      else if (line.origin !== null) gone.set(line.origin, text);
    }
    this.pieces = [...made, ...rest.reverse()];
    Object.assign(this, { next, gone, patch: this.size ? '' : patch });
    this.size++;
    return true;
  }

  /** The rows of the difference. */
  rows() {
    const gone = [...this.gone].sort(([a], [b]) => b - a).map(([before, text]) => ({ before, text })); // the next is the last
    const all = [];
    let after = 1;
    /** @type {any[]} */
    let fresh = [];
    /** @param {number} end */
    const replace = end => {
      /** @type {any[]} */
      const old = [];
      while (gone.length && gone[gone.length - 1].before < end) old.push(gone.pop());
      if (!old.length && !fresh.length) return;
      // What was taken away and put back is no change.
      for (const [sign, text] of common(
        old.map(line => line.text),
        fresh.map(line => line.text),
      )) {
        const before = sign === '+' ? '' : old.shift().before;
        all.push({ sign, before, after: sign === '-' ? '' : fresh.shift().after, text });
      }
      fresh = [];
    };
    for (const { origin, text, length } of this.pieces) {
      if (origin === null) fresh.push({ after, text });
      else {
        replace(origin);
        all.push({ sign: '', before: origin, after, text });
      }
      after += length;
    }
    replace(Infinity);
    return near(all);
  }
}

/**
 * Leave out what is far from any change, or not known.
 * @param {DiffRow[]} rows
 */
function near(rows) {
  const shown = new Set();
  /**
   * @param {number} from
   * @param {number} by
   */
  const show = (from, by) => {
    for (let k = from; Math.abs(k - from) <= CONTEXT && typeof rows[k]?.text === 'string'; k += by) shown.add(k);
  };
  rows.forEach(({ sign }, i) => {
    if (sign) [1, -1].forEach(by => show(i, by));
  });
  /** @type {any[]} */
  const found = [];
  let last = -1;
  rows.forEach((row, i) => {
    if (!shown.has(i)) return;
    if (found.length && last !== i - 1) found.push(GAP);
    found.push(row);
    last = i;
  });
  return found;
}

/**
 * The difference as text that `patch` reads.
 * @param {string} path
 * @param {MergedChanges} changes
 */
export function patchOf(path, changes) {
  if (changes.patch) return changes.patch;
  /** @type {any[][]} */
  const hunks = [[]];
  for (const row of changes.rows()) {
    if (row === GAP) hunks.push([]);
    else hunks[hunks.length - 1].push(row);
  }
  /**
   * @param {any[]} rows
   * @param {string} key
   */
  const place = (rows, key) => {
    const numbered = rows.filter(row => row[key] !== '');
    return `${numbered[0]?.[key] ?? 0},${numbered.length}`;
  };
  const text = hunks
    .filter(rows => rows.length)
    .map(rows => {
      const lines = rows.map(row => `${row.sign || ' '}${row.text}\n`).join('');
      return `@@ -${place(rows, 'before')} +${place(rows, 'after')} @@\n${lines}`;
    });
  return text.length ? `--- ${changes.whole ? '/dev/null' : path}\n+++ ${path}\n${text.join('')}` : '';
}
