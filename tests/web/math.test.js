import assert from 'node:assert/strict';
import { test } from 'node:test';
import { plain } from './document.js';
import { mathElement } from '../../src/spindle/web/shared/math.js';

/** A formula as letters, with the names of the elements that place them. */
const drawn = source =>
  plain({ childNodes: [mathElement(source)] })
    .replace(/<\/?(?:math|mrow|mi|mo|mn|mtext)>/g, '')
    .replace(/<mspace><\/mspace>/g, ' ')
    .replace(/<(\/?)m/g, '<$1');

const CASES = [
  ['\\frac{a}{b}', '<frac>ab</frac>'],
  ["f''(x)", '<sup>f′′</sup>(x)'],
  ['\\sum\\limits_{i=1}^n i^2', '<underover>∑i=1n</underover><sup>i2</sup>'],
  ['\\sum\\nolimits_{i} i', '<sub>∑i</sub>i'],
  ['\\overline{a+b} \\widehat{xy}', 'a+b<over>xyˆ</over>'],
  ['\\int_0^1', '<subsup>∫01</subsup>'],
  ['\\operatorname*{arg\\,max}_x', '<under>arg\\,maxx</under>'],
  ['\\argmax_\\theta', '<under>arg\u00a0maxθ</under>'],
  ['\\mathbf{x}^T \\mathbb{R} \\mathcal{L} \\mathbf{\\alpha 1}', '<sup>𝐱T</sup>ℝ𝓛α𝟏'],
  ['\\mathrm{\\Delta t}', 'Δ\u00a0t'],
  ['\\underbrace{a+b}_{n}', '<under><under>a+b⏟</under>n</under>'],
  ['\\overset{!}{=} \\stackrel{a}{\\to}', '<over>=!</over><over>→a</over>'],
  ['a \\not\\in B \\pmod{7}', 'a∈\u0338B(mod7)'],
  ['\\left\\{ x \\middle| y \\right.', '{x|y'],
  ['\\bigl( \\lVert v \\rVert \\bigr)', '(‖v‖)'],
  ['a &= b \\\\ c &= d', '<table><tr><td>a</td><td>=b</td></tr><tr><td>c</td><td>=d</td></tr></table>'],
  [
    '\\begin{array}{c|c} 1 & 2 \\\\[2pt] \\hline 3 & 4 \\end{array}',
    '<table><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>',
  ],
  ['\\begin{cases} 1 & x > 0 \\end{cases}', '{<table><tr><td>1</td><td>x>0</td></tr></table>'],
  ['E = mc^2 \\tag{1}', 'E=m<sup>c2</sup>\u2003(1)'],
];

for (const [source, expected] of CASES) test(`formula ${source}`, () => assert.equal(drawn(source), expected));

test('what is not known, or does not end, is not drawn', () => {
  for (const source of [
    '\\unknown{x}',
    '\\frac{a}',
    '{a',
    'a}',
    '\\begin{tikz}x\\end{tikz}',
    '{'.repeat(99),
    'x^',
    '&',
  ])
    assert.equal(mathElement(source), null);
});
