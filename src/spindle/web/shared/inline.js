// Text inside a paragraph: code, emphasis, links, line breaks. First the text becomes a list of tokens, then pairs of
// delimiters are found with a stack (as CommonMark describes), then the elements are built in one go.

import { el } from './dom.js';

/**
 * How formulas are drawn: who shows text sets it. One that cannot be drawn (null) is shown as it was written.
 * @type {{ draw: (source: string, block: boolean) => Element | null }}
 */
export const formulas = { draw: () => null };
export const PIECE = 8000; // characters of a paragraph that are laid out at once, at least
const MAX_OPEN = 24; // of elements in each other
/** @type {Record<string, any>} */
const ENTITIES = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  copy: '©',
  hellip: '…',
  mdash: '—',
  ndash: '–',
  rarr: '→',
  larr: '←',
  times: '×',
  middot: '·',
  bull: '•',
};
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
// Every repeat has a limit, so that a bracket without an end costs little.
const INLINE_TARGET = new RegExp(
  String.raw`\(\s{0,20}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\([^\s()]{0,500}\)){0,2000}))` +
    String.raw`(?:\s{1,20}(?:"[^"]{0,500}"|'[^']{0,500}'|\([^()]{0,500}\)))?\s{0,20}\)`,
  'y',
);
const SPECIAL = /[\\`*_~[\]!<&$\n]|https?:\/\//g;
// The few elements that people write in Markdown; whatever else stands in angle brackets is text.
const PLAIN_TAG = /<(\/?)(kbd|sub|sup|u|mark|small)>/iy;

/**
 * Where definitions of links are found.
 * @param {string} label
 */
export const linkKey = label => label.trim().replace(/\s+/g, ' ').toLowerCase();

/**
 * Add `text` to `parent`; `links` are the definitions it may refer to.
 * @param {string} text
 * @param {ParentNode & Node} parent
 * @param {Map<string, string>} links
 */
export function renderInline(text, parent, links) {
  const tokens = tokenize(text, links);
  pairDelimiters(tokens, 0);
  pairTags(tokens);
  build(tokens, parent);
}

/**
 * Where the first piece of a very long paragraph ends; 0 if it is to be shown as one. A browser takes seconds to lay out
 * a megabyte that is one paragraph. What follows begins with a letter: it cannot be taken for another kind of block.
 * @param {string} text
 */
export function pieceEnd(text) {
  if (text.length < 2 * PIECE) return 0;
  const near = text.slice(PIECE, 2 * PIECE);
  const end = /[.!?]\s+(?=\p{L})/u.exec(near) ?? /\s(?=\p{L})/u.exec(near) ?? /\p{L}(?=\p{L})/u.exec(near);
  return end ? PIECE + end.index + end[0].length : 0;
}

/**
 * Only these may be followed; anything else stays text.
 * @param {any} target
 */
function safeLink(target) {
  return /^(?:https?:\/\/|mailto:)[^\s\x00-\x1f]+$/i.test(target) ? target : '';
}

/**
 * @param {string} text
 * @param {Map<string, string>} links
 */
function tokenize(text, links) {
  /** @type {any[]} */
  const tokens = [];
  /** @type {{ open: number[], dead: number }} */
  const brackets = { open: [], dead: 0 }; // open [ and ![ as indexes into tokens; how many cannot become links any more
  const ticks = lastTicks(text);
  let at = 0;
  /** @param {any} token */
  const push = token => tokens.push(token);
  /**
   * @param {number} from
   * @param {number} to
   */
  const plain = (from, to) => {
    if (to > from) push({ type: 'text', text: text.slice(from, to) });
  };
  SPECIAL.lastIndex = 0;
  for (let match; ((SPECIAL.lastIndex = at), (match = SPECIAL.exec(text))) !== null;) {
    plain(at, match.index);
    at = match.index;
    const c = text[at];
    if (c === '\\') at = readTexInline(text, at, push) || readEscape(text, at, push);
    else if (c === '$') at = readMath(text, at, push);
    else if (c === '`') at = readCode(text, at, ticks, push);
    else if (c === '\n') {
      push({ type: 'break' });
      at++;
    } else if (c === '*' || c === '_' || c === '~') at = readDelimiters(text, at, push);
    else if (c === '[' && text[at + 1] === '^' && readFootnote(text, at, push)) at = text.indexOf(']', at) + 1;
    else if (c === '[' || (c === '!' && text[at + 1] === '[')) {
      const width = c === '[' ? 1 : 2;
      brackets.open.push(tokens.length);
      push({ type: 'bracket', text: text.slice(at, at + width), image: width === 2, from: at + width });
      at += width;
    } else if (c === ']') at = readBracket(text, at, tokens, brackets, links);
    else if (c === '<') at = readAngle(text, at, push);
    else if (c === '&') at = readEntity(text, at, push);
    else if (match[0].length > 4) at = readUrl(text, at, push);
    else {
      push({ type: 'text', text: c });
      at++;
    }
  }
  plain(at, text.length);
  return tokens;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readEscape(text, at, push) {
  const next = text[at + 1];
  if (next === '\n') push({ type: 'break' });
  else if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) push({ type: 'text', text: next });
  else {
    push({ type: 'text', text: '\\' });
    return at + 1;
  }
  return at + 2;
}

/**
 * Where the last run of each number of backticks begins, so that no search for a missing end is made twice.
 * @param {string} text
 */
function lastTicks(text) {
  const last = new Map();
  for (const match of text.matchAll(/`+/g)) last.set(match[0].length, match.index);
  return last;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {any} ticks
 * @param {Act} push
 */
function readCode(text, at, ticks, push) {
  const run = /`+/y;
  run.lastIndex = at;
  const width = /** @type {RegExpExecArray} */ (run.exec(text))[0].length;
  const from = at + width;
  if ((ticks.get(width) ?? -1) < from) {
    push({ type: 'text', text: text.slice(at, from) });
    return from;
  }
  const runs = /`+/g;
  runs.lastIndex = from;
  const nextRun = () => /** @type {RegExpExecArray} */ (runs.exec(text));
  let close = nextRun();
  while (close[0].length !== width) close = nextRun();
  let code = text.slice(from, close.index).replaceAll('\n', ' ');
  if (code.startsWith(' ') && code.endsWith(' ') && code.trim()) code = code.slice(1, -1);
  push({ type: 'code', text: code });
  return close.index + width;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readDelimiters(text, at, push) {
  const c = text[at];
  let to = at;
  while (text[to] === c) to++;
  const before = at === 0 ? '\n' : characterBefore(text, at);
  const after = to === text.length ? '\n' : String.fromCodePoint(text.codePointAt(to) ?? 10);
  const spaceAfter = /\s/.test(after);
  const spaceBefore = /\s/.test(before);
  const left = !spaceAfter && (!PUNCTUATION.test(after) || spaceBefore || PUNCTUATION.test(before));
  const right = !spaceBefore && (!PUNCTUATION.test(before) || spaceAfter || PUNCTUATION.test(after));
  const inWord = c === '_';
  push({
    type: 'delimiter',
    c,
    width: to - at,
    text: '',
    opens: [],
    closes: [],
    canOpen: c === '~' ? to - at <= 2 && left : left && (!inWord || !right || PUNCTUATION.test(before)),
    canClose: c === '~' ? to - at <= 2 && right : right && (!inWord || !left || PUNCTUATION.test(after)),
    whole: to - at,
  });
  return to;
}

/**
 * @param {string} text
 * @param {number} at
 */
function characterBefore(text, at) {
  const low = text.charCodeAt(at - 1);
  return low >= 0xdc00 && low <= 0xdfff && at > 1 ? text.slice(at - 2, at) : text[at - 1];
}

/**
 * `[^1]`: a mark that leads to a note. Returns 0 if this is none.
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readFootnote(text, at, push) {
  const mark = /\[\^([\w-]{1,30})\](?!:)/y;
  mark.lastIndex = at;
  const match = mark.exec(text);
  if (match) push({ type: 'footnote', text: match[1] });
  return match ? mark.lastIndex : 0;
}

/**
 * A closing bracket: make a link or an image of what stands between, if a target follows.
 * @param {string} text
 * @param {number} at
 * @param {any[]} tokens
 * @param {any} brackets
 * @param {Map<string, string>} links
 */
function readBracket(text, at, tokens, brackets, links) {
  const place = brackets.open.length - 1;
  const opener = place < 0 ? -1 : brackets.open.pop();
  const open = tokens[opener];
  const live = open !== undefined && (open.image || place >= brackets.dead);
  brackets.dead = Math.min(brackets.dead, Math.max(place, 0));
  const target = live ? readTarget(text, at + 1, text.slice(open.from, Math.min(at, open.from + 300)), links) : null;
  if (!target) {
    tokens.push({ type: 'text', text: ']' });
    return at + 1;
  }
  pairDelimiters(tokens, opener + 1);
  open.type = 'link';
  open.href = safeLink(target.href);
  tokens.push({ type: 'endlink', refused: open.href ? '' : target.href });
  // No link stands inside a link: what was opened around this one stays text.
  if (!open.image) brackets.dead = brackets.open.length;
  return target.end;
}

/**
 * Read `(target "title")`, `[label]`, or nothing when the text itself is a label.
 * @param {string} text
 * @param {number} at
 * @param {string} label
 * @param {Map<string, string>} links
 */
function readTarget(text, at, label, links) {
  if (text[at] === '(') {
    INLINE_TARGET.lastIndex = at;
    const match = INLINE_TARGET.exec(text);
    if (match)
      return {
        href: decodeEntities((match[1] ?? match[2] ?? '').replace(/\\([!-/:-@[-`{-~])/g, '$1')),
        end: INLINE_TARGET.lastIndex,
      };
  }
  const reference = /\[([^[\]]{0,200})\]/y;
  reference.lastIndex = at;
  const match = reference.exec(text);
  const key = linkKey(match?.[1] || label);
  return links.has(key) ? { href: links.get(key), end: match ? reference.lastIndex : at } : null;
}

/**
 * Mathematics between dollars; a price is none.
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readMath(text, at, push) {
  const math = /\$\$([^$]{1,4000})\$\$|\$(?![\s$])([^$\n]{0,400}[^\s$\\])\$(?![\d\w])/y;
  math.lastIndex = at;
  const match = math.exec(text);
  if (!match) {
    push({ type: 'text', text: '$' });
    return at + 1;
  }
  push({ type: 'math', text: match[1] ?? match[2], block: match[1] !== undefined });
  return math.lastIndex;
}

/**
 * Mathematics as TeX writes it: \\( … \\) and \\[ … \\]. Returns 0 if this is none.
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readTexInline(text, at, push) {
  const close = { '(': '\\)', '[': '\\]' }[text[at + 1]];
  const end = close ? text.indexOf(close, at + 2) : -1;
  // An escaped bracket around words is a bracket.
  if (end < 0 || end - at > 4000 || !/[\\^_=+<>]/.test(text.slice(at + 2, end))) return 0;
  push({ type: 'math', text: text.slice(at + 2, end), block: close === '\\]' });
  return end + 2;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readAngle(text, at, push) {
  PLAIN_TAG.lastIndex = at;
  const tag = PLAIN_TAG.exec(text);
  if (tag) {
    push({ type: 'tag', name: tag[2].toLowerCase(), closes: tag[1] !== '', text: tag[0] });
    return PLAIN_TAG.lastIndex;
  }
  const auto = /<(?:((?:https?:\/\/|mailto:)[^\s<>]{1,2000})|br\s{0,9}\/?)>/iy;
  auto.lastIndex = at;
  const match = auto.exec(text);
  // The one piece of HTML that people write in tables.
  if (match && !match[1]) push({ type: 'break' });
  else push(match ? { type: 'url', text: match[1] } : { type: 'text', text: '<' });
  return match ? auto.lastIndex : at + 1;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readEntity(text, at, push) {
  const entity = /&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-z]{2,8});/y;
  entity.lastIndex = at;
  const match = entity.exec(text);
  push({ type: 'text', text: match ? decodeEntities(match[0]) : '&' });
  return at + (match ? match[0].length : 1);
}

/** @param {string} text */
function decodeEntities(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-z]{2,8}));/g, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : whole;
    const point = decimal ? parseInt(decimal, 10) : parseInt(hex, 16);
    return point > 0 && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff)
      ? String.fromCodePoint(point)
      : '\ufffd';
  });
}

/**
 * A bare address; the full stop or bracket after it is not part of it.
 * @param {string} text
 * @param {number} at
 * @param {Act} push
 */
function readUrl(text, at, push) {
  const address = /https?:\/\/[^\s<>"`\\^{|}]{1,2000}/y;
  address.lastIndex = at;
  const match = address.exec(text);
  const inWord = at > 0 && /\w/.test(text[at - 1]);
  if (!match || inWord) {
    const scheme = text.indexOf('//', at) + 2;
    push({ type: 'text', text: text.slice(at, scheme) });
    return scheme;
  }
  // An address may be the text of a link.
  let end = (match[0] + '](').indexOf('](');
  while (".,:;!?'*_~".includes(match[0][end - 1])) end--;
  let url = match[0].slice(0, end);
  if (url.endsWith(')') && !url.includes('(')) url = url.slice(0, -1);
  if (url.endsWith(']') && !url.includes('[')) url = url.slice(0, -1);
  push({ type: safeLink(url) ? 'url' : 'text', text: url });
  return at + url.length;
}

/**
 * Find the pairs of written elements; what has no partner stays text.
 * @param {any[]} tokens
 */
function pairTags(tokens) {
  const open = [];
  for (const token of tokens) {
    if (token.type !== 'tag') continue;
    if (!token.closes) open.push(token);
    else if (open.at(-1)?.name === token.name) open.pop().paired = token.paired = true;
  }
}

/**
 * Match opening and closing delimiters from token `from` on; what matched is noted on the tokens.
 * @param {any[]} tokens
 * @param {number} from
 */
function pairDelimiters(tokens, from) {
  /** @type {Record<string, any[]>} */
  const openers = { '*': [], _: [], '~': [] };
  for (let i = from; i < tokens.length; i++) {
    const token = tokens[i];
    if (token.type !== 'delimiter' || token.done) continue;
    token.done = true;
    const stack = openers[token.c];
    while (token.canClose && token.width > 0) {
      const opener = findOpener(stack, token);
      if (!opener) break;
      const width = token.c === '~' ? token.width : Math.min(opener.width, token.width, 2);
      const tag = token.c === '~' ? 'del' : width === 2 ? 'strong' : 'em';
      opener.width -= width;
      token.width -= width;
      opener.opens.push(tag);
      token.closes.push(tag);
      // Whatever was opened in between and not closed stays text.
      for (const other of Object.values(openers))
        while (other.length && other[other.length - 1].place > opener.place) other.pop();
      if (opener.width === 0) stack.pop();
    }
    if (token.canOpen && token.width > 0) {
      token.place = i;
      stack.push(token);
    }
  }
}

/**
 * Look for the nearest opener that fits; only a few are tried, so that hostile text stays cheap.
 * @param {any[]} stack
 * @param {string} closer
 */
function findOpener(stack, closer) {
  for (let k = stack.length - 1; k >= 0 && k >= stack.length - 8; k--) if (fits(stack[k], closer)) return stack[k];
  return null;
}

/**
 * @param {any} opener
 * @param {any} closer
 */
function fits(opener, closer) {
  if (opener.c === '~') return opener.width === closer.width;
  // The rule of three: `*a**b*` is not two emphases in each other.
  const both = opener.canClose || closer.canOpen;
  return !both || (opener.whole + closer.whole) % 3 !== 0 || (opener.whole % 3 === 0 && closer.whole % 3 === 0);
}

/**
 * @param {any[]} tokens
 * @param {ParentNode & Node} parent
 */
function build(tokens, parent) {
  const open = [parent];
  const tags = [];
  let linked = 0; // how many links we are in: there are no links inside links
  /** @param {Node} node */
  const add = node => open[open.length - 1].append(node);
  /** @param {HTMLElement} node */
  const enter = node => {
    // Deeper than anyone writes: go on, but without another element.
    const inner = open.length < MAX_OPEN ? node : open[open.length - 1];
    if (inner === node) add(node);
    open.push(inner);
  };
  for (const token of tokens) {
    switch (token.type) {
      case 'text':
      case 'bracket':
        add(token.text);
        break;
      case 'code':
        add(el('code', null, token.text));
        break;
      case 'break':
        add(el('br'));
        break;
      case 'math':
        add(formulas.draw(token.text, token.block) ?? el('code', { class: 'tex' }, token.text));
        break;
      case 'footnote':
        add(el('sup', { class: 'note-mark' }, token.text));
        break;
      case 'tag':
        if (!token.paired) add(token.text);
        else if (token.closes)
          tags.pop()?.(); // emphasis that was opened inside ends with it
        else {
          const depth = open.length;
          enter(el(token.name));
          tags.push(() => {
            open.length = Math.min(open.length, depth);
          });
        }
        break;
      case 'url':
        add(linked ? token.text : anchor(token.text, token.text.replace(/^mailto:/i, '')));
        break;
      case 'link':
        enter(token.href && !linked ? anchor(token.href, token.image ? 'Image: ' : '') : el('span'));
        linked++;
        break;
      case 'endlink':
        if (token.refused) add(el('span', { class: 'muted' }, ` (${token.refused.slice(0, 200)})`));
        if (open.length > 1) open.pop();
        linked--;
        break;
      case 'delimiter':
        for (let k = 0; k < token.closes.length && open.length > 1; k++) open.pop();
        if (token.width) add(token.c.repeat(token.width));
        for (let k = token.opens.length - 1; k >= 0; k--) enter(el(token.opens[k]));
    }
  }
}

/**
 * @param {string} href
 * @param {string} text
 */
function anchor(href, text) {
  return el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, text);
}
