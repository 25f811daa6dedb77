import assert from 'node:assert/strict';
import { test } from 'node:test';
import './document.js';
import { common, counts, hunksOfPatch, rowsOfDiff, rowsOfEdit, rowsOfText } from '../../src/spindle/web/shared/diff.js';

const short = rows => rows.map(({ sign, before, after, text }) => `${before}|${after}|${sign}${text}`);

test('the way from one list to another leads there, and is the shortest', () => {
  const [a, b] = [[...'the quick brown fox'], [...'a quick brow fix']];
  const way = common(a, b);
  assert.equal(way.map(([sign, item]) => (sign === '+' ? '' : item)).join(''), a.join(''));
  assert.equal(way.map(([sign, item]) => (sign === '-' ? '' : item)).join(''), b.join(''));
  assert.equal(way.filter(([sign]) => sign).length, 7);
  assert.deepEqual(common([], []), []);
});

test('lists that are too long to compare go and come whole, but for their ends', () => {
  const side = name => Array.from({ length: 2000 }, (_, i) => `${name}${i}`);
  const way = common(['head', ...side('a'), 'tail'], ['head', ...side('b'), 'tail']);
  assert.deepEqual(
    [way[0], way.at(-1)],
    [
      ['', 'head'],
      ['', 'tail'],
    ],
  );
  assert.equal(way.length, 4002);
});

test('a patch has the numbers of the lines before and after', () => {
  const patch = [
    '--- a/x',
    '+++ b/x',
    '@@ -3,3 +3,3 @@',
    ' same',
    '-old',
    '+new',
    ' end',
    '@@ -20 +20,2 @@',
    ' x',
    '+y',
  ];
  const hunks = hunksOfPatch(patch.join('\n'));
  assert.deepEqual(
    hunks.map(({ rows }) => short(rows)),
    [
      ['3|3|same', '4||-old', '|4|+new', '5|5|end'],
      ['20|20|x', '|21|+y'],
    ],
  );
  assert.equal(hunks[1].text, '@@ -20 +20,2 @@\n x\n+y\n');
});

test('the result of an edit has its numbers in its lines', () => {
  const rows = rowsOfDiff(' 1 a\n-2 b\n+2 c\n+3 d\n 3 e\n   ...');
  assert.deepEqual(short(rows), ['1|1|a', '2||-b', '|2|+c', '|3|+d', '3|4|e', '||…']);
  assert.deepEqual(counts(rows), { added: 2, removed: 1 });
});

test('an edit is shown before it is made, in either of its forms', () => {
  const signs = args => rowsOfEdit(args).map(({ sign, text }) => sign + text);
  assert.deepEqual(signs({ oldText: 'a\nb\n', newText: 'a\nc\n' }), ['a', '-b', '+c']);
  assert.deepEqual(signs({ old_string: 'a', new_string: '' }), ['-a']);
  const edits = [
    { oldText: 'a', newText: 'b' },
    { oldText: 'c', newText: 'd' },
  ];
  assert.deepEqual(signs({ edits }), ['-a', '+b', '…', '-c', '+d']);
  assert.deepEqual(short(rowsOfText('a\nb\n')), ['|1|+a', '|2|+b']);
});
