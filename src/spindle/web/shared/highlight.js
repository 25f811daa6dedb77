// Colours for code. One scanner per language, made of a few patterns that each consume what they match, so the
// work is linear whatever the text; the result is spans around text nodes.

import { el } from './dom.js';

/** @param {string} text */
const words = text => new Set(text.split(' '));

const C_LIKE =
  'break case const continue default do else enum for goto if return static struct switch void while true false null';
/** @type {Record<string, any>} */
const LANGUAGES = {
  javascript: {
    words: words(
      'as async await break case catch class const continue debugger default delete do else export extends false ' +
        'finally for from function get if implements import in instanceof interface let new null of package private ' +
        'protected public readonly return set static super switch this throw true try type typeof undefined var void ' +
        'while with yield abstract any boolean declare enum infer is keyof namespace never number satisfies string ' +
        'symbol unknown',
    ),
    strings: '"\'`',
  },
  python: {
    words: words(
      'False None True and as assert async await break class continue def del elif else except finally for from ' +
        'global if import in is lambda match nonlocal not or pass raise return self try while with yield case type',
    ),
    comment: '#',
    strings: '"\'',
    triple: true,
    decorator: true,
  },
  c: {
    words: words(
      C_LIKE +
        ' auto bool char class constexpr constinit consteval delete double explicit export extern final float friend ' +
        'inline int long mutable namespace new noexcept nullptr operator override private protected public register ' +
        'short signed sizeof template this throw try catch typedef typename union unsigned using virtual volatile',
    ),
    directive: true,
  },
  java: {
    words: words(
      C_LIKE +
        ' abstract as assert async await boolean byte catch char class data decimal delegate double dynamic event ' +
        'explicit extends extension final finally fixed float foreach fun get implements import in init inner ' +
        'instanceof int interface internal is lateinit let lock long match module namespace new object open operator ' +
        'out override package params partial permits private protected public readonly record ref sealed set short ' +
        'string super suspend synchronized this throw throws trait transient try typealias typeof using val var virtual ' +
        'volatile when where with yield',
    ),
    decorator: true,
  },
  go: {
    words: words(
      'break case chan const continue default defer else fallthrough for func go goto if import interface map nil ' +
        'package range return select struct switch type var true false any bool byte error float32 float64 int int32 ' +
        'int64 rune string uint uint8 uint32 uint64',
    ),
    strings: '"\'`',
  },
  rust: {
    words: words(
      'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move ' +
        'mut pub ref return self Self static struct super trait true type union unsafe use where while bool char f32 ' +
        'f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize',
    ),
    strings: '"',
    directive: true,
  },
  swift: {
    words: words(
      'actor as associatedtype async await break case catch class continue default defer deinit do else enum ' +
        'extension fallthrough false fileprivate final for func get guard if import in init inout internal is lazy let ' +
        'mutating nil open operator override private protocol public repeat required rethrows return self Self set some ' +
        'static struct subscript super switch throw throws true try typealias var weak where while',
    ),
    strings: '"',
    triple: true,
    decorator: true,
  },
  php: {
    words: words(
      'abstract and array as break callable case catch class clone const continue declare default do echo else elseif ' +
        'empty enum extends false final finally fn for foreach function global if implements include instanceof ' +
        'interface isset list match namespace new null or private protected public readonly require require_once return ' +
        'static switch throw trait true try unset use var while yield',
    ),
    hash: true,
  },
  ruby: {
    words: words(
      'BEGIN END alias and begin break case class def defined do else elsif end ensure false for if in module next ' +
        'nil not or redo rescue retry return self super then true undef unless until when while yield require ' +
        'attr_reader attr_accessor private',
    ),
    comment: '#',
  },
  shell: {
    words: words(
      'case do done elif else esac export fi for function if in local read return select set shift source then trap ' +
        'unset until while cd echo exit printf test alias sudo',
    ),
    comment: '#',
    variables: true,
  },
  lua: {
    words: words(
      'and break do else elseif end false for function goto if in local nil not or repeat return then true until ' +
        'while',
    ),
    comment: '--',
  },
  sql: {
    words: words(
      'add all alter and as asc begin between by case check column commit constraint create cross default delete desc ' +
        'distinct drop else end exists foreign from full group having if in index inner insert into is join key left ' +
        'like limit not null offset on or order outer primary references returning right rollback select set table then ' +
        'transaction union unique update using values view when where with',
    ),
    comment: '--',
    block: true,
    anyCase: true,
  },
  config: { words: words('true false null yes no on off'), comment: '#', keys: true },
  json: { words: words('true false null'), comment: '', keys: true, strings: '"' },
  css: { words: words('important'), comment: '', block: true, keys: true, at: true },
};
/** @type {Record<string, any>} */
const ALIASES = {
  js: 'javascript',
  jsx: 'javascript',
  mjs: 'javascript',
  cjs: 'javascript',
  ts: 'javascript',
  tsx: 'javascript',
  mts: 'javascript',
  typescript: 'javascript',
  vue: 'markup',
  svelte: 'markup',
  py: 'python',
  pyi: 'python',
  python3: 'python',
  h: 'c',
  cc: 'c',
  cpp: 'c',
  cxx: 'c',
  hpp: 'c',
  'c++': 'c',
  objc: 'c',
  m: 'c',
  kt: 'java',
  kts: 'java',
  kotlin: 'java',
  cs: 'java',
  csharp: 'java',
  scala: 'java',
  dart: 'java',
  groovy: 'java',
  gradle: 'java',
  golang: 'go',
  rs: 'rust',
  rb: 'ruby',
  sh: 'shell',
  bash: 'shell',
  zsh: 'shell',
  fish: 'shell',
  console: 'shell',
  shellsession: 'shell',
  dockerfile: 'shell',
  docker: 'shell',
  makefile: 'shell',
  mk: 'shell',
  yaml: 'config',
  yml: 'config',
  toml: 'config',
  ini: 'config',
  conf: 'config',
  cfg: 'config',
  env: 'config',
  properties: 'config',
  jsonc: 'json',
  json5: 'json',
  jsonl: 'json',
  ndjson: 'json',
  scss: 'css',
  less: 'css',
  html: 'markup',
  xml: 'markup',
  svg: 'markup',
  xhtml: 'markup',
  htm: 'markup',
  patch: 'diff',
};
const HIGHLIGHT_LIMIT = 400_000;
const CHUNK = 64; // lines that are laid out together

/** @param {string} name */
function languageOf(name) {
  const key = name.toLowerCase();
  const found = Object.hasOwn(ALIASES, key) ? ALIASES[key] : key;
  return Object.hasOwn(LANGUAGES, found) || found === 'diff' || found === 'markup' ? found : '';
}

/**
 * The language of a file, from its name.
 * @param {string} path
 */
export function languageOfPath(path) {
  const file = path.slice(path.lastIndexOf('/') + 1);
  return languageOf(file.slice(file.lastIndexOf('.') + 1));
}

/**
 * Build the one pattern of a language; its groups are comment, string, number, sigil, name.
 * @param {any} language
 */
function scannerOf(language) {
  if (language.scanner) return language.scanner;
  const comments = [];
  const line = language.comment ?? '//';
  if (line === '#') comments.push(String.raw`(?<![\w$&{])#[^\n]*`);
  else if (line) comments.push(line + String.raw`[^\n]*`);
  if (language.hash) comments.push(String.raw`#[^\n]*`);
  if (language.block || line === '//') comments.push(String.raw`/\*[^]*?(?:\*/|$)`);
  const strings = [];
  if (language.triple) strings.push(String.raw`"""[^]*?(?:"""|$)`, String.raw`'''[^]*?(?:'''|$)`);
  for (const quote of language.strings ?? '"\'') {
    // An end is always found (the quote, the line's end, the text's end), so nothing is tried twice.
    const inner = quote === '`' ? '[^`\\\\]*' : `[^${quote}\\\\\\n]*`;
    strings.push(`${quote}${inner}(?:\\\\[^]?${inner})*(?:${quote}|(?=\\n)|$)`);
  }
  const sigils = [];
  if (language.decorator) sigils.push(String.raw`@[A-Za-z_][\w.]*`);
  if (language.directive) sigils.push(String.raw`#!?\[?[a-z]+`);
  if (language.at) sigils.push(String.raw`@[a-z-]+|#[0-9a-fA-F]{3,8}\b`);
  if (language.variables) sigils.push(String.raw`\$\{?\w+\}?`);
  const none = '(?!)';
  const name = language.keys ? String.raw`[A-Za-z_$][\w$-]*` : String.raw`[A-Za-z_$][\w$]*`;
  language.scanner = new RegExp(
    [
      `(${comments.join('|') || none})`,
      `(${strings.join('|')})`,
      String.raw`(\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*)`,
      `(${sigils.join('|') || none})`,
      `(${name})`,
    ].join('|'),
    'g',
  );
  return language.scanner;
}

/**
 * Return `code` as a fragment, coloured if the language is known.
 * @param {string} code
 * @param {string} name
 */
export function highlight(code, name) {
  const fragment = document.createDocumentFragment();
  new CodePainter(fragment, name).set(code);
  return fragment;
}

// Code that may still grow. What cannot change any more is built once; only the last line is coloured again. Lines
// stand in chunks, each a block of its own, so that a browser need not lay out a long text for every new word.
export class CodePainter {
  /** @type {any} */
  chunk;
  /** @type {any[]} */
  loose;

  /**
   * @param {ParentNode} node
   * @param {string} name
   */
  constructor(node, name) {
    this.node = node;
    this.language = languageOf(name);
    this.done = 0; // characters that are final
    this.chunk = null;
    this.lines = 0; // in the last chunk
    this.loose = []; // nodes of what is not final
  }

  /**
   * Show `code`, which begins with what was shown before. With `live` more may follow.
   * @param {string} code
   */
  set(code, live = false) {
    for (const node of this.loose) node.remove();
    this.loose = [];
    const language = code.length > HIGHLIGHT_LIMIT ? '' : this.language;
    const spans = spansOf(code, language, this.done);
    const line = live ? code.lastIndexOf('\n') + 1 : code.length;
    const open = spans.find(span => span.from < line && (span.whole ?? span.to) > line);
    const final = Math.max(this.done, open && live ? open.from : line);
    this.emit(code, spans, this.done, final, (/** @type {string} */ text, /** @type {string[]} */ style) =>
      this.add(text, style),
    );
    this.emit(code, spans, final, code.length, (/** @type {string} */ text, /** @type {string[]} */ style) => {
      this.chunk ??= this.newChunk();
      const node = piece(text, style);
      this.chunk.append(node);
      this.loose.push(node);
    });
    this.done = final;
  }

  /**
   * @param {string} code
   * @param {any[]} spans
   * @param {number} from
   * @param {number} to
   * @param {Act} add
   */
  emit(code, spans, from, to, add) {
    let at = from;
    for (const span of spans) {
      if (span.from < at || span.to > to) continue;
      if (span.from > at) add(code.slice(at, span.from), '');
      add(code.slice(span.from, span.to), span.style);
      at = span.to;
    }
    if (at < to) add(code.slice(at, to), '');
  }

  /**
   * Add final text, a new chunk whenever one is full.
   * @param {string} text
   * @param {string[]} style
   */
  add(text, style) {
    for (let at = 0; at < text.length;) {
      this.chunk ??= this.newChunk();
      let to = at;
      while (to < text.length && this.lines < CHUNK) {
        const end = text.indexOf('\n', to);
        to = end < 0 ? text.length : end + 1;
        if (end >= 0) this.lines++;
      }
      this.chunk.append(piece(text.slice(at, to), style));
      if (this.lines >= CHUNK) {
        this.chunk.classList.add('full');
        this.chunk = null;
      }
      at = to;
    }
  }

  newChunk() {
    this.lines = 0;
    const node = el('span', { class: 'chunk' });
    this.node.append(node);
    return node;
  }
}

/**
 * @param {string} text
 * @param {string[]} style
 */
const piece = (text, style) => (style ? el('span', { class: 't-' + style }, text) : document.createTextNode(text));

/**
 * Find what is coloured in `code` from a place on at which nothing is open; `whole` is where it might reach.
 * @param {string} code
 * @param {string} language
 * @param {number} from
 */
function spansOf(code, language, from) {
  /** @type {any[]} */
  const spans = [];
  let done = from;
  /**
   * @param {number} start
   * @param {number} end
   * @param {string[]} style
   * @param {string} whole
   */
  const paint = (start, end, style, whole) => {
    if (start < done) return;
    spans.push({ from: start, to: end, style, whole });
    done = end;
  };
  if (language === 'diff') paintDiff(code, paint, from);
  else if (language === 'markup') paintMarkup(code, paint, from);
  else if (language) paintCode(code, LANGUAGES[language], paint, from);
  return spans;
}

/**
 * @param {string} code
 * @param {any} language
 * @param {Act} paint
 * @param {number} start
 */
function paintCode(code, language, paint, start) {
  const next = /[ \t]*(.?)/y;
  const scanner = scannerOf(language);
  scanner.lastIndex = start;
  for (const match of code.matchAll(scanner)) {
    const from = match.index;
    const to = from + match[0].length;
    if (match[1] !== undefined) paint(from, to, 'comment');
    else if (match[3] !== undefined) paint(from, to, 'number');
    else if (match[4] !== undefined) paint(from, to, 'name');
    else {
      next.lastIndex = to;
      const after = /** @type {RegExpExecArray} */ (next.exec(code))[1];
      if (match[2] !== undefined) paint(from, to, language.keys && after === ':' ? 'name' : 'string');
      else if (language.words.has(language.anyCase ? match[5].toLowerCase() : match[5])) paint(from, to, 'word');
      else if (language.keys ? after === ':' || after === '=' : after === '(') paint(from, to, 'name');
      else if (/^[A-Z][a-z]\w*$/.test(match[5])) paint(from, to, 'type');
    }
  }
}

/**
 * @param {string} code
 * @param {Act} paint
 * @param {number} start
 */
function paintDiff(code, paint, start) {
  let at = start;
  for (const line of code.slice(start).split('\n')) {
    const style = /^(?:\+\+\+|---|diff |index )/.test(line)
      ? 'comment'
      : { '+': 'add', '-': 'del', '@': 'name' }[line[0]];
    if (style) paint(at, at + line.length, style);
    at += line.length + 1;
  }
}

/**
 * @param {string} code
 * @param {Act} paint
 * @param {number} start
 */
function paintMarkup(code, paint, start) {
  const attributes = /[^<>]*/y;
  const inside = /("[^"]*"|'[^']*')|([\w:@.-]+)(\s*=)?/g;
  const tags = /<!--[^]*?(?:-->|$)|<\/?[A-Za-z][\w:.-]*/g;
  tags.lastIndex = start;
  for (const match of code.matchAll(tags)) {
    const end = match.index + match[0].length;
    const isComment = match[0].startsWith('<!--');
    attributes.lastIndex = end;
    const rest = isComment ? '' : /** @type {RegExpExecArray} */ (attributes.exec(code))[0];
    paint(match.index, end, isComment ? 'comment' : 'word', end + rest.length);
    for (const part of rest.matchAll(inside)) {
      const from = end + part.index;
      if (part[1] !== undefined) paint(from, from + part[0].length, 'string');
      else if (part[3] !== undefined) paint(from, from + part[2].length, 'name');
    }
  }
}
