import assert from 'node:assert/strict';
import { test } from 'node:test';
import { duration, oneLine, plainWords } from '../../src/spindle/web/shared/format.js';

test('the words of Markdown without its marks', () => {
  const cases = {
    '## Done\n\nThe server **works**: see `a.txt`.': 'Done The server works: see a.txt.',
    '- first `make`\n- then a *test*, _too_': 'first make then a test, too',
    '> [a link](https://x.y) and ~~no~~\n\n```sh\nls *.py\n```': 'a link and no ls *.py',
    'snake_case and 2 * 3 * 4 and __init__.py': 'snake_case and 2 * 3 * 4 and __init__.py',
    '1. one\n2. two': '1. one 2. two',
  };
  for (const [text, words] of Object.entries(cases)) assert.equal(plainWords(text), words);
  assert.equal(plainWords('**word** '.repeat(50), 20), 'word word word word…');
});

test('lines and times', () => {
  assert.equal(oneLine(' a\n\tb  c '), 'a b c');
  assert.deepEqual([900, 1500, 65_000, 3_720_000].map(duration), ['900 ms', '1.5 s', '1 min 5 s', '1 h 2 min']);
});
