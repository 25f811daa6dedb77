import assert from 'node:assert/strict';
import { test } from 'node:test';

import './document.js';
import { partsOf } from '../../src/spindle/web/chat/call-parts.js';

const OLD = Array.from({ length: 30 }, (_, i) => `line ${i + 1}`);
const PATCH = [
  '--- a',
  '+++ b',
  '@@ -1,5 +1,5 @@',
  ' line 1',
  '-line 2',
  '+second',
  ' line 3',
  ' line 4',
  ' line 5',
  '@@ -14,4 +14,6 @@',
  ' line 14',
  '+new a',
  '+new b',
  ' line 15',
  ' line 16',
  ' line 17',
  '@@ -27,4 +29,3 @@',
  ' line 27',
  '-line 28',
  ' line 29',
  ' line 30',
  '',
].join('\n');
const NEW = [
  ...OLD.slice(0, 1),
  'second',
  ...OLD.slice(2, 14),
  'new a',
  'new b',
  ...OLD.slice(14, 27),
  ...OLD.slice(28),
];

const text = lines => lines.join('\n') + '\n';
const write = {
  toolName: 'write',
  arguments: { path: 'x', content: text(NEW) },
  preview: { kind: 'diff', patch: PATCH },
};

test('a write is made of the parts that were chosen', () => {
  const { hunks, input } = partsOf(write);
  assert.equal(hunks.length, 3);
  assert.equal(input(new Set([0, 1, 2])).content, text(NEW));
  assert.equal(input(new Set()).content, text(OLD));
  assert.equal(input(new Set([0])).content, text(OLD.map(line => (line === 'line 2' ? 'second' : line))));
  assert.equal(input(new Set([2])).content, text(OLD.filter(line => line !== 'line 28')));
  assert.equal(input(new Set([1])).content, text([...OLD.slice(0, 14), 'new a', 'new b', ...OLD.slice(14)]));
  assert.equal(input(new Set([1])).path, 'x');
});

test('edits are chosen whole', () => {
  const edits = [
    { oldText: 'line 2\n', newText: 'second\n' },
    { oldText: 'line 14\n', newText: 'line 14\nnew a\nnew b\n' },
    { oldText: 'line 28\n', newText: '' },
  ];
  const { input } = partsOf({ ...write, toolName: 'edit', arguments: { path: 'x', edits } });
  assert.deepEqual(input(new Set([0, 2])).edits, [edits[0], edits[2]]);
});

test('one edit over several parts is divided where that is certain', () => {
  const patch = PATCH.split('\n').slice(0, 16).join('\n') + '\n';
  const edit = { oldText: text(OLD.slice(0, 20)), newText: text(NEW.slice(0, 22)) };
  const request = { toolName: 'edit', arguments: { path: 'x', edits: [edit] }, preview: { kind: 'diff', patch } };
  const { input } = partsOf(request);
  assert.equal(input(new Set([1])).edits[0].newText, edit.newText.replace('second', 'line 2'));
  assert.equal(input(new Set([1])).edits[0].oldText, edit.oldText);
  // Where a part only takes lines away, its place in the new text is not certain.
  const all = { oldText: text(OLD), newText: text(NEW) };
  assert.equal(partsOf({ ...request, arguments: { edits: [all] }, preview: { kind: 'diff', patch: PATCH } }), null);
});

test('what is cut, new or of one part is not divided', () => {
  assert.equal(partsOf({ ...write, preview: { ...write.preview, cut: true } }), null);
  assert.equal(partsOf({ ...write, preview: { ...write.preview, newFile: true } }), null);
  assert.equal(partsOf({ ...write, preview: { kind: 'command', command: 'x' } }), null);
  assert.equal(partsOf({ ...write, preview: { kind: 'diff', patch: PATCH.split('\n').slice(0, 8).join('\n') } }), null);
});

test('the end of the last line belongs to its part', () => {
  const patch = last =>
    PATCH.slice(0, PATCH.indexOf('@@ -27')) + '@@ -27,4 +29,4 @@\n line 27\n line 28\n line 29\n' + last;
  const body = [...NEW.slice(0, -3), 'line 27', 'line 28', 'line 29', 'line 30'];
  const parts = (content, last) =>
    partsOf({ ...write, arguments: { path: 'x', content }, preview: { kind: 'diff', patch: patch(last) } });
  const gone = parts(body.join('\n'), '-line 30\n+line 30\n\\ No newline at end of file\n');
  assert.equal(gone.input(new Set([0, 1])).content, text(body));
  const come = parts(text(body), '-line 30\n\\ No newline at end of file\n+line 30\n');
  assert.equal(come.input(new Set([0, 1])).content, body.join('\n'));
  const neither = parts(
    body.join('\n'),
    '-line 3\n\\ No newline at end of file\n+line 30\n\\ No newline at end of file\n',
  );
  assert.equal(neither.input(new Set([0, 1])).content, [...body.slice(0, -1), 'line 3'].join('\n'));
});
