import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { plain } from './document.js';
import { GrowingMarkdown, rendered } from '../../src/spindle/web/chat/growing.js';
import { formulas } from '../../src/spindle/web/shared/inline.js';
import { mathElement } from '../../src/spindle/web/shared/math.js';

formulas.draw = mathElement;

const cases = JSON.parse(await readFile(new URL('markdown.json', import.meta.url), 'utf-8'));

for (const [text, expected] of cases) {
  test(`Markdown: ${JSON.stringify(text).slice(0, 60)}`, () => assert.equal(plain(rendered(text)), expected));
}

test('a text that grows letter by letter becomes what the whole text becomes', () => {
  for (const [text, expected] of cases) {
    const node = document.createElement('div');
    const view = new GrowingMarkdown(node);
    for (let end = 1; end <= text.length; end++) view.set(text.slice(0, end), true);
    view.set(text);
    assert.equal(plain(node), expected, text);
  }
});

// Pieces in which the beginning of a line, of code, of emphasis or of a formula may be cut in two.
const PIECES = [
  'word ',
  '**',
  '*',
  '`',
  '```',
  '```py\n',
  '\n',
  '\n\n',
  '- ',
  '  - ',
  '1. ',
  '> ',
  '# ',
  '|',
  '|-|-|\n',
];
PIECES.push('[', '](https://x.y)', '---', '===', '\t', '    ', '_', '~~', '\\', '<b>', 'https://a.b ', 'x = 1  # c\n');
PIECES.push(
  'a',
  ' ',
  '\n- b\n',
  '\n[a]: https://c.d\n',
  '[a]',
  '\t```\n',
  '  ```\n',
  '  ls\n',
  '$$',
  '$x^2$',
  '> ```\n',
);
PIECES.push('<details>\n', '</details>\n');

test('whatever grows in steps becomes what the whole text becomes', () => {
  let seed = 7;
  const random = below => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % below;
  for (let round = 0; round < 3000; round++) {
    const text = Array.from({ length: 1 + random(14) }, () => PIECES[random(PIECES.length)]).join('');
    const node = document.createElement('div');
    const view = new GrowingMarkdown(node);
    for (let end = 1; end <= text.length; end += 1 + random(3)) view.set(text.slice(0, end), true);
    view.set(text);
    assert.equal(plain(node), plain(rendered(text)), JSON.stringify(text));
  }
});
