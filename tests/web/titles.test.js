// What a conversation is called, and the files that came along with a message.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileName, firstSentence, titleOf } from '../../src/spindle/web/chat/titles.js';
import { splitFiles, withFiles } from '../../src/spindle/web/shared/attached.js';

test('a title is the first sentence', () => {
  for (const [said, title] of [
    ['Please fix the function. It is wrong.', 'Please fix the function'],
    ['Why is it slow? I measured it.', 'Why is it slow?'],
    ['look at src/a.py, v1.2 of it', 'look at src/a.py, v1.2 of it'], // no sentence ends within a word
    ['first line\nsecond line', 'first line'],
    ['これは何ですか。教えて', 'これは何ですか。'],
    [`${'word '.repeat(40)}`, `${'word '.repeat(16).slice(0, 79)}…`],
    ['Attached file: /a/b/notes v2.txt', 'notes v2.txt'],
    ['', ''],
  ])
    assert.equal(firstSentence(said), title);
  assert.equal(titleOf({ name: 'Named', firstMessage: 'said' }), 'Named');
  assert.equal(titleOf({ firstMessage: '' }), 'Conversation');
  assert.equal(fileName('“Why?” – a/b: ünï', '.html'), 'Why-a-b-ünï.html');
});

test('files of a message are found again', () => {
  const files = [
    { name: 'a b.txt', path: '/x/a b.txt' },
    { name: 'c', path: 'C:\\y\\c' },
  ];
  assert.deepEqual(splitFiles(withFiles('look', files)), { text: 'look', files });
  assert.deepEqual(splitFiles(withFiles('', files)), { text: '', files });
  const quoted = 'It says "Attached file: /x" and more';
  assert.deepEqual(splitFiles(quoted), { text: quoted, files: [] });
});
