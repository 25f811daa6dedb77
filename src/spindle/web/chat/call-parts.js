// The parts of a change that is asked about: each can be allowed without the others. The input of the call is made anew
// from the parts that are chosen.

import { hunksOfPatch } from '../shared/diff.js';
import { list, obj, str } from '../shared/format.js';

/** @typedef {{ head: string, text: string, rows: DiffRow[] }} Hunk */

/**
 * The parts of a call's change and a function that gives the input for some of them; null if it cannot be divided.
 * @param {PermissionRequest} request
 * @returns {{ hunks: Hunk[], input: (chosen: Set<number>) => any } | null}
 */
export function partsOf({ toolName, arguments: given, preview }) {
  const { kind, patch, cut, newFile } = obj(preview);
  const args = obj(given);
  if (kind !== 'diff' || cut || newFile) return null;
  const hunks = hunksOfPatch(str(patch));
  if (hunks.length < 2) return null;
  if (toolName === 'write' && typeof args.content === 'string')
    return { hunks, input: chosen => ({ ...args, content: withoutHunks(args.content, hunks, chosen) }) };
  const edits = list(args.edits).map(obj);
  if (toolName !== 'edit' || !edits.length) return null;
  const owners = edits.map(edit => ownersOf(hunks, str(edit.oldText)));
  // Several edits, each of which is in one part; or one that spans them all.
  if (
    edits.length > 1 &&
    owners.every(one => one.length === 1) &&
    hunks.every((_, i) => owners.some(([at]) => at === i))
  )
    return {
      hunks,
      input: chosen => ({ ...args, edits: list(args.edits).filter((_, i) => chosen.has(owners[i][0])) }),
    };
  if (edits.length > 1 || edits[0].replace_all) return null;
  const cores = hunks.map(coreOf);
  const newText = str(edits[0].newText);
  if (!cores.every(({ now }) => now && newText.split(now).length === 2)) return null;
  return {
    hunks,
    input: chosen => {
      let text = newText;
      cores.forEach(({ was, now }, i) => {
        if (!chosen.has(i)) text = text.replace(now, () => was);
      });
      return { ...args, edits: [{ ...edits[0], newText: text }] };
    },
  };
}

/**
 * Which parts have this text on their old side.
 * @param {Hunk[]} hunks
 * @param {string} text
 */
function ownersOf(hunks, text) {
  const found = [];
  for (const [i, { rows }] of hunks.entries()) {
    const old = rows.filter(({ sign }) => sign !== '+').map(row => `${row.text}\n`);
    if (text && old.join('').includes(text)) found.push(i);
  }
  return found;
}

/**
 * The lines of a part from the first that changes to the last, as they were and as they would be.
 * @param {Hunk} hunk
 */
function coreOf({ rows }) {
  const first = rows.findIndex(({ sign }) => sign);
  const last = rows.findLastIndex(({ sign }) => sign);
  const core = rows.slice(first, last + 1);
  /** @param {string} left */
  const side = left =>
    core
      .filter(({ sign }) => sign !== left)
      .map(({ text }) => text)
      .join('\n');
  return { was: side('+'), now: side('-') };
}

/**
 * A new text without the parts that are not chosen.
 * @param {string} content
 * @param {Hunk[]} hunks
 * @param {Set<number>} chosen
 */
export function withoutHunks(content, hunks, chosen) {
  const lines = content.split('\n');
  for (const [i, { head, rows, text: patch }] of [...hunks.entries()].reverse()) {
    if (chosen.has(i)) continue;
    const [, at, size] = /\+(\d+)(?:,(\d+))? @@/.exec(head) ?? [];
    const count = size === undefined ? 1 : Number(size);
    const start = count === 0 ? Number(at) : Number(at) - 1; // a part without new lines stands behind its line
    const old = rows.filter(({ sign }) => sign !== '+').map(({ text }) => text);
    lines.splice(start, count, ...old);
    // The end of the last line may be what changes.
    const was = /^[- ].*\n\\ /m.test(patch);
    const is = /^[+ ].*\n\\ /m.test(patch);
    if (was && !is) lines.pop();
    else if (is && !was) lines.push('');
  }
  return lines.join('\n');
}
