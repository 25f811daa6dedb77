// Light colouring of code: comments, strings, numbers, keywords, names that are called. A few families of languages
// share one scanner each; what is not known stays plain.

import { el } from './dom.js';

const LIMIT = 60_000;
const words = text => new Set(text.split(' '));

const C_LIKE = words(
  'abstract as async await auto bool boolean break byte case catch char class const constexpr continue debugger ' +
    'default defer delete do double else enum export extends extern false final finally float fn for foreach from ' +
    'func function go goto if impl implements import in inline instanceof int interface internal is let long loop ' +
    'match mod move mut namespace new nil null nullptr of operator override package private protected pub public ' +
    'readonly record ref return sealed self short signed sizeof static struct super switch template this throw ' +
    'throws trait true try type typedef typeof undefined union unsafe unsigned use using val var virtual void ' +
    'volatile when where while with yield',
);
const PYTHON = words(
  'and as assert async await break case class continue def del elif else except False finally for from global ' +
    'if import in is lambda match None nonlocal not or pass raise return self True try while with yield',
);
const SHELL = words(
  'if then else elif fi for while until do done case esac in function return exit export local readonly set ' +
    'unset source cd echo alias true false break continue shift trap eval exec sudo',
);
const RUBY = words(
  'alias and begin break case class def defined? do else elsif end ensure false for if in module next nil not ' +
    'or redo require rescue retry return self super then true undef unless until when while yield local function ' +
    'nil repeat',
);
const SQL = words(
  'add all alter and as asc between by case create cross default delete desc distinct drop else end exists ' +
    'false foreign from full group having if in index inner insert into is join key left like limit not null ' +
    'offset on or order outer primary references returning right select set table then true union unique update ' +
    'using values view when where with',
);
const LITERALS = words('true false null yes no on off');

const SLASHES = String.raw`//[^\n]*|/\*[^]*?(?:\*/|$)`;
const HASH = String.raw`(?<![\w$&{])#[^\n]*`;
const QUOTES = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const TICKS = '|`(?:[^`\\\\]|\\\\[^])*`?';
const TRIPLE = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;

const family = (comment, string, keywords, options = {}) => ({
  scanner: new RegExp(`(${comment})|(${string})|(${NUMBER})|([A-Za-z_$][\\w$${options.dashes ? '-' : ''}]*\\??)`, 'g'),
  keywords,
  ...options,
});

const FAMILIES = {
  c: family(SLASHES, QUOTES + TICKS, C_LIKE),
  python: family(HASH, TRIPLE + QUOTES, PYTHON),
  shell: family(HASH, QUOTES, SHELL, { dashes: true, noCalls: true }),
  ruby: family(`${HASH}|--[^\\n]*`, QUOTES, RUBY),
  sql: family(String.raw`--[^\n]*|/\*[^]*?(?:\*/|$)`, QUOTES, SQL, { anyCase: true }),
  data: family(`${HASH}|^;[^\\n]*`, QUOTES, LITERALS, { dashes: true, keys: true }),
  css: family(SLASHES, QUOTES, new Set(), { dashes: true, keys: true }),
};

const NAMES = {
  c: 'js javascript jsx mjs cjs ts typescript tsx java c h cpp cc hpp c++ cs csharp go rs rust swift kt kotlin php',
  python: 'py python python3 pyi',
  shell: 'sh bash zsh shell console shellsession fish dockerfile docker make makefile',
  ruby: 'rb ruby lua elixir ex',
  sql: 'sql postgresql sqlite mysql',
  data: 'json jsonc json5 jsonl yaml yml toml ini cfg conf env properties',
  css: 'css scss less',
  markup: 'html xml svg vue htm xhtml',
  diff: 'diff patch',
};
const FAMILY_OF = new Map(
  Object.entries(NAMES).flatMap(([name, all]) => all.split(' ').map(language => [language, name])),
);

const paint = (style, text) => el('span', { class: 't-' + style }, text);

/** The language of a file, from its name. */
export const languageOf = path =>
  path
    .slice(path.lastIndexOf('/') + 1)
    .split('.')
    .pop()
    .toLowerCase();

/** Return `code` as a list of texts and coloured elements. */
export function highlight(code, language) {
  const name = code.length > LIMIT ? undefined : FAMILY_OF.get(language.toLowerCase());
  if (!name) return [code];
  if (name === 'diff') return diff(code);
  return name === 'markup' ? markup(code) : scan(code, FAMILIES[name]);
}

function scan(code, language) {
  const nodes = [];
  let done = 0;
  for (const match of code.matchAll(language.scanner)) {
    const style = styleOf(match, code, language);
    if (!style) continue;
    if (match.index > done) nodes.push(code.slice(done, match.index));
    nodes.push(paint(style, match[0]));
    done = match.index + match[0].length;
  }
  nodes.push(code.slice(done));
  return nodes;
}

function styleOf({ 0: text, 1: comment, 2: string, 3: number, index }, code, { keywords, anyCase, keys, noCalls }) {
  if (comment) return 'comment';
  if (number) return 'number';
  const end = index + text.length;
  const next = code.slice(end, end + 20).trimStart()[0];
  if (keys && (next === ':' || next === '=')) return 'name';
  if (string) return 'string';
  if (keywords.has(anyCase ? text.toLowerCase() : text)) return 'word';
  return next === '(' && !noCalls ? 'name' : null;
}

function diff(code) {
  return code.split(/(?<=\n)/).map(line => {
    const style = /^(?:\+\+\+|---|diff |index )/.test(line)
      ? 'comment'
      : { '+': 'add', '-': 'del', '@': 'name' }[line[0]];
    return style ? paint(style, line) : line;
  });
}

function markup(code) {
  return code.split(/(<!--[^]*?(?:-->|$)|<\/?[A-Za-z][^<>]*>?)/).flatMap((part, i) => {
    if (i % 2 === 0) return [part];
    if (part.startsWith('<!--')) return [paint('comment', part)];
    const [, tag, rest] = /^(<\/?[\w:.-]+)([^]*)$/.exec(part);
    return [
      paint('word', tag),
      ...rest.split(/("[^"]*"|'[^']*')/).map((text, j) => (j % 2 ? paint('string', text) : text)),
    ];
  });
}
