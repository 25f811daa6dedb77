import assert from 'node:assert/strict';
import { test } from 'node:test';
import './document.js';
import { MergedChanges, patchOf } from '../../src/spindle/web/chat/merged-changes.js';
import { rowsOfDiff } from '../../src/spindle/web/shared/diff.js';

/** A sequence of numbers that looks like chance, and is the same every time. */
function chance(seed) {
  let state = seed;
  return below => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
}

/** Replace `gone` lines of a file behind the line `at`, and say so as a tool does: with a line around it. */
function replace(file, at, gone, fresh) {
  const row = (sign, before, after, text) => ({ sign, before, after, text });
  const rows = [];
  if (at > 0) rows.push(row('', at, at, file[at - 1]));
  for (let i = 0; i < gone; i++) rows.push(row('-', at + i + 1, '', file[at + i]));
  fresh.forEach((text, i) => rows.push(row('+', '', at + i + 1, text)));
  if (at + gone < file.length) rows.push(row('', at + gone + 1, at + fresh.length + 1, file[at + gone]));
  file.splice(at, gone, ...fresh);
  return rows;
}

test('many changes of a file become the one difference between its first and its last state', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const pick = chance(seed);
    const first = Array.from({ length: 30 }, (_, i) => `line ${i + 1}`);
    const last = [...first];
    const changes = new MergedChanges();
    for (let n = 0; n < 6; n++) {
      const at = pick(last.length);
      const fresh = Array.from({ length: pick(3) }, (_, i) => `new ${seed} ${n} ${i}`);
      const gone = Math.min(pick(3), last.length - at);
      assert.ok(changes.edit(replace(last, at, gone, fresh), ''), `seed ${seed}`);
    }
    const rows = changes.rows().filter(({ before, after }) => before !== '' || after !== '');
    for (const { sign, before, after, text } of rows) {
      if (sign !== '+') assert.equal(first[before - 1], text, `seed ${seed}`);
      if (sign !== '-') assert.equal(last[after - 1], text, `seed ${seed}`);
    }
    const made = [...first];
    for (const { before } of rows.filter(({ sign }) => sign === '-').toReversed()) made.splice(before - 1, 1);
    for (const { after, text } of rows.filter(({ sign }) => sign === '+')) made.splice(after - 1, 0, text);
    assert.deepEqual(made, last, `seed ${seed}`);
  }
});

test('lines that no change has shown cost nothing, however many they are', () => {
  const changes = new MergedChanges();
  const edit = n => changes.edit(rowsOfDiff(` ${n} def f():\n-${n + 1} old\n+${n + 1} new\n ${n + 2} end`), '');
  assert.ok(edit(50_000_000) && edit(1000) && edit(2_000_000));
  assert.ok(changes.pieces.length < 20);
  assert.deepEqual(
    changes.rows().map(({ sign, before, after, text }) => `${before}|${after}|${sign}${text}`),
    [1000, 2_000_000, 50_000_000].flatMap((n, i) => [
      ...(i ? ['||…'] : []),
      `${n}|${n}|def f():`,
      `${n + 1}||-old`,
      `|${n + 1}|+new`,
      `${n + 2}|${n + 2}|end`,
    ]),
  );
});

test('what does not fit is refused, and what was put back is no change', () => {
  const changes = new MergedChanges();
  changes.write(['a', 'b'].map(text => ({ text })));
  assert.equal(changes.edit(rowsOfDiff('-2 other\n+2 new'), ''), false);
  assert.equal(changes.edit(rowsOfDiff('-3 c\n+3 new'), ''), false);
  assert.equal(changes.edit(rowsOfDiff('+9 new'), ''), false);
  assert.ok(changes.edit(rowsOfDiff(' 1 a\n-2 b\n+2 B'), ''));
  assert.equal(patchOf('f.txt', changes), '--- /dev/null\n+++ f.txt\n@@ -0,0 +1,2 @@\n+a\n+B\n');
  const back = new MergedChanges();
  assert.ok(back.edit(rowsOfDiff('-7 x\n+7 y'), '') && back.edit(rowsOfDiff('-7 y\n+7 x'), ''));
  assert.deepEqual(back.rows(), []);
});
