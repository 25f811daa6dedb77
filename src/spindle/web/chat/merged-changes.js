// What was done to a file, change by change, as one difference: from before the first change to after the last. Of the
// file only what the changes have shown is known, with the numbers of the lines.

import { common } from '../shared/diff.js';

const CONTEXT = 4; // lines that stay, shown around those that do not
const GAP = { sign: '', before: '', after: '', text: '…' };

export class MergedChanges {
  constructor() {
    this.lines = []; // as they stand, as far as known: {origin: number before all changes or null, text: or null}
    this.next = 1; // the number, before all changes, of the first line behind them
    this.gone = new Map(); // number before all changes → text of a line that is not there any more
    this.whole = false; // it was written whole: there is nothing behind the lines
    this.size = 0; // changes
    this.patch = ''; // of the only change
  }

  /** The file was written whole; what was before is not known. */
  write(rows) {
    this.lines = rows.map(({ text }) => ({ origin: null, text }));
    this.gone = new Map();
    this.whole = true;
    this.size++;
  }

  /** Take the rows of a diff. Returns whether they fit what is known: if not, something else has changed the file. */
  edit(rows, patch) {
    const made = [];
    const gone = new Map(this.gone);
    let [at, { next }] = [0, this];
    const take = () => this.lines[at++] ?? (this.whole ? null : { origin: next++, text: null });
    for (const { sign, before, after, text } of rows) {
      if (before === '' && after === '') continue; // lines that are left out
      const upTo = sign === '+' ? after - 1 - made.length : before - 1 - at;
      if (upTo < 0 || (this.whole && at + upTo > this.lines.length)) return false;
      for (let i = 0; i < upTo; i++) made.push(take());
      if (sign === '+') {
        made.push({ origin: null, text });
        continue;
      }
      const line = take();
      if (!line || (line.text !== null && line.text !== text)) return false;
      if (sign === '') made.push({ ...line, text });
      else if (line.origin !== null) gone.set(line.origin, text);
    }
    this.lines = [...made, ...this.lines.slice(at)];
    Object.assign(this, { next, gone, patch: this.size ? '' : patch });
    this.size++;
    return true;
  }

  /** The rows of the difference. */
  rows() {
    const gone = [...this.gone].sort(([a], [b]) => a - b).map(([before, text]) => ({ before, text }));
    const all = [];
    let come = [];
    const replace = end => {
      let went = 0;
      while (went < gone.length && gone[went].before < end) went++;
      const [old, fresh] = [gone.splice(0, went), come];
      come = [];
      // What was taken away and put back is no change.
      for (const [sign, text] of common(
        old.map(line => line.text),
        fresh.map(line => line.text),
      )) {
        const before = sign === '+' ? '' : old.shift().before;
        all.push({ sign, before, after: sign === '-' ? '' : fresh.shift().after, text });
      }
    };
    this.lines.forEach(({ origin, text }, i) => {
      if (origin === null) come.push({ after: i + 1, text });
      else {
        replace(origin);
        all.push({ sign: '', before: origin, after: i + 1, text });
      }
    });
    replace(Infinity);
    return near(all);
  }
}

/** Leave out what is far from any change. */
function near(rows) {
  const shown = new Set();
  rows.forEach(({ sign }, i) => {
    if (sign) for (let k = i - CONTEXT; k <= i + CONTEXT; k++) if (rows[k]?.text !== null) shown.add(k);
  });
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

/** The difference as text that `patch` reads. */
export function patchOf(path, changes) {
  if (changes.patch) return changes.patch;
  const hunks = [[]];
  for (const row of changes.rows()) {
    if (row === GAP) hunks.push([]);
    else hunks.at(-1).push(row);
  }
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
