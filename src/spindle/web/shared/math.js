// Mathematics: the part of TeX that people and models write in conversations, as MathML. What is not known is shown as
// it was written.

const MATHML = 'http://www.w3.org/1998/Math/MathML';
const LETTER_NAMES =
  'alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ ' +
  'pi π rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ ' +
  'Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ ell ℓ hbar ℏ nabla ∇ partial ∂ emptyset ∅ varnothing ∅ Re ℜ Im ℑ aleph ℵ ' +
  'imath ı jmath ȷ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ square □ blacksquare ■ triangle △ top ⊤ bot ⊥ degree ° dagger †';
const OPERATORS =
  'times × cdot ⋅ div ÷ pm ± mp ∓ leq ≤ le ≤ leqslant ≤ geq ≥ ge ≥ geqslant ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ ' +
  'propto ∝ asymp ≍ doteq ≐ coloneqq ≔ colon : to → rightarrow → leftarrow ← longrightarrow ⟶ longleftarrow ⟵ Rightarrow ⇒ ' +
  'Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ impliedby ⟸ iff ⟺ leftrightarrow ↔ mapsto ↦ hookrightarrow ↪ rightharpoonup ⇀ ' +
  'uparrow ↑ downarrow ↓ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ subsetneq ⊊ supset ⊃ supseteq ⊇ cup ∪ cap ∩ setminus ∖ forall ∀ ' +
  'exists ∃ nexists ∄ neg ¬ lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ vdash ⊢ models ⊨ oplus ⊕ otimes ⊗ odot ⊙ circ ∘ bullet ∙ ast ∗ ' +
  'star ⋆ perp ⊥ parallel ∥ mid ∣ nmid ∤ langle ⟨ rangle ⟩ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ lbrace { rbrace } ' +
  'lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ ll ≪ gg ≫ prec ≺ succ ≻ prime ′ angle ∠ therefore ∴ because ∵ bmod mod';
const LARGE =
  'sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀ lim lim ' +
  'limsup lim&nbsp;sup liminf lim&nbsp;inf max max min min sup sup inf inf argmax arg&nbsp;max argmin arg&nbsp;min';
const NAMES = new Set(
  'sin cos tan cot sec csc log ln lg exp det dim ker gcd arg deg hom sinh cosh tanh arcsin arccos arctan mod Pr'.split(
    ' ',
  ),
);
/** @type {Record<string, string>} */
const SPACES = {
  ',': '0.17em',
  ':': '0.22em',
  ';': '0.28em',
  ' ': '0.33em',
  '!': '-0.17em',
  quad: '1em',
  qquad: '2em',
};
/** @type {Record<string, string>} */
const ACCENTS = {
  hat: 'ˆ',
  widehat: 'ˆ',
  bar: '¯',
  vec: '→',
  overrightarrow: '→',
  overleftarrow: '←',
  tilde: '˜',
  widetilde: '˜',
  check: 'ˇ',
  dot: '˙',
  ddot: '¨',
  overbrace: '⏞',
  underbrace: '⏟',
};
const WIDE = /^(?:wide|over|under)/; // as wide as what they belong to
const LINES = new Set(['overline', 'underline']); // drawn as borders, which need no font
const LABELLED = new Set(['overbrace', 'underbrace']); // what is written above or below them stands there
/** @type {Record<string, number>} */
const HEIGHTS = { big: 1.2, Big: 1.8, bigg: 2.4, Bigg: 3 };
/** @type {Record<string, boolean>} */
const STYLES = { displaystyle: true, textstyle: false };
/** @type {Record<string, string>} */
const AROUND = { p: '()', b: '[]', v: '||', B: '{}', V: '‖‖' };
// Alphabets: where their capital, small letters and digits begin in Unicode.
/** @type {Record<string, number[]>} */
const ALPHABETS = {
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce],
  boldsymbol: [0x1d468, 0x1d482, 0x1d7ce],
  bm: [0x1d468, 0x1d482, 0x1d7ce],
  mathcal: [0x1d4d0, 0x1d4ea],
  mathscr: [0x1d4d0, 0x1d4ea],
  mathfrak: [0x1d56c, 0x1d586],
  mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6],
  mathbb: [0x1d538, 0x1d552, 0x1d7d8],
};
/** @type {Record<string, string>} */
const OLDER = {
  '\u{1d53a}': 'ℂ',
  '\u{1d53f}': 'ℍ',
  '\u{1d545}': 'ℕ',
  '\u{1d547}': 'ℙ',
  '\u{1d548}': 'ℚ',
  '\u{1d549}': 'ℝ',
  '\u{1d551}': 'ℤ',
};
const SILENT = new Set('limits nolimits nonumber notag hline'.split(' '));
const SIZES = /^([bB]igg?)[lrm]?$/;
const OPENS = /^[([{⟨⌊⌈|‖]?$/; // or nothing: the beginning of a row
const TEXTS = new Set('text textrm textbf textit texttt mathrm mathit operatorname mbox'.split(' '));
const ENVIRONMENT =
  /^(p|b|v|B|V)?matrix$|^(?:smallmatrix|cases|array|split|gathered)$|^(?:aligned|(?:align|gather|equation|eqnarray|multline)\*?)$/;
const MAX_DEPTH = 40;

/** @param {string} text */
const table = text =>
  new Map(Array.from(text.matchAll(/(\w+) (\S+)/g), ([, name, sign]) => [name, sign.replace('&nbsp;', '\u00a0')]));
const SIGNS = { letters: table(LETTER_NAMES), operators: table(OPERATORS), large: table(LARGE) };

/**
 * @param {string} name
 * @param {...(Element | string)} children
 * @returns {Element}
 */
function tag(name, ...children) {
  const node = document.createElementNS(MATHML, name);
  node.append(...children);
  return node;
}

/**
 * An operator with attributes.
 * @param {string} sign
 * @param {Record<string, string>} attributes
 */
function operator(sign, attributes) {
  const node = tag('mo', sign);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/**
 * A sign that does not grow with what stands beside it.
 * @param {string} sign
 */
const plainSign = sign => operator(sign, { stretchy: 'false' });

/**
 * A bracket that is as high as what it belongs to.
 * @param {string} sign
 * @param {'prefix' | 'infix' | 'postfix'} form
 */
const fence = (sign, form) => operator(sign, { fence: 'true', stretchy: 'true', form });

/**
 * Put the letters and digits of an element into another alphabet.
 * @param {Element} node
 * @param {number[]} places
 */
function inAlphabet(node, [capital, small, digit]) {
  /** @param {string} c */
  const letter = c => {
    const at = /[A-Z]/.test(c) ? capital - 65 : /[a-z]/.test(c) ? small - 97 : digit && /\d/.test(c) ? digit - 48 : 0;
    const made = at ? String.fromCodePoint(c.charCodeAt(0) + at) : c;
    return OLDER[made] ?? made;
  };
  if (node.localName === 'mi' || node.localName === 'mn')
    node.textContent = Array.from(node.textContent, letter).join('');
  else for (const child of node.children) inAlphabet(child, [capital, small, digit]);
  return node;
}

/**
 * Return a formula as an element; null if it cannot be read.
 * @param {string} source
 * @param {boolean} [block]
 */
export function mathElement(source, block) {
  try {
    const inRows = /\\\\/.test(source) && !/\\begin/.test(source);
    const reader = new TexReader(inRows ? `\\begin{aligned}${source}\\end{aligned}` : source);
    const node = tag('math', tag('mrow', ...reader.row(0)));
    if (block) node.setAttribute('display', 'block');
    return node;
  } catch {
    return null;
  }
}

class TexReader {
  /** @param {string} text */
  constructor(text) {
    this.parts = text.match(/\\[a-zA-Z]+|\\[^]|[{}^_&]|\d+(?:\.\d+)?|[a-zA-Z]|\s+|[^]/g) ?? [];
    this.at = 0;
  }

  peek() {
    while (/^\s+$/.test(this.parts[this.at] ?? '')) this.at++;
    return this.parts[this.at];
  }

  next() {
    const part = this.peek();
    this.at++;
    return part;
  }

  /**
   * Read up to one of the `ends`, or to the end.
   * @param {number} depth
   * @param {string[]} [ends]
   * @returns {Element[]}
   */
  row(depth, ends = []) {
    if (depth > MAX_DEPTH) throw new Error('nested too deep');
    const nodes = [];
    for (let part; (part = this.peek()) !== undefined && !ends.includes(part);) {
      if (part === '}') throw new Error('a brace too many');
      const style = part[0] === '\\' ? STYLES[part.slice(1)] : undefined;
      if (style !== undefined) {
        this.next(); // it holds for the rest
        const rest = tag('mrow', ...this.row(depth + 1, ends));
        rest.setAttribute('displaystyle', String(style));
        return [...nodes, rest];
      }
      const base = this.atom(depth);
      const node = this.scripts(base, depth);
      if (base.isName) {
        // Room beside a name, but none inside of brackets.
        if (OPENS.test(nodes.at(-1)?.textContent ?? '')) base.setAttribute('lspace', '0');
        if (/^(?:[([,)\]]|\\left)?$/.test(this.peek() ?? '')) base.setAttribute('rspace', '0');
      }
      nodes.push(node);
    }
    return nodes;
  }

  /**
   * One thing: a letter, a group, a command with what belongs to it.
   * @param {number} depth
   * @returns {Element}
   */
  atom(depth) {
    const part = this.next();
    if (part === undefined) throw new Error('something is missing');
    if (part === '{') return this.group(depth);
    if (/^\d/.test(part)) return tag('mn', part);
    if (/^[a-zA-Z]$/.test(part)) return tag('mi', part);
    if (part[0] === '\\') return this.command(part.slice(1), depth);
    if (part === '^' || part === '_' || part === '&') throw new Error('out of place');
    return plainSign({ '-': '−', '*': '∗', "'": '′' }[part] ?? part);
  }

  /**
   * @param {number} depth
   * @returns {Element}
   */
  group(depth) {
    const nodes = this.row(depth + 1, ['}']);
    if (this.next() !== '}') throw new Error('a brace is missing');
    return nodes.length === 1 ? nodes[0] : tag('mrow', ...nodes);
  }

  /**
   * What a command takes: a group or a single thing.
   * @param {number} depth
   * @returns {Element}
   */
  argument(depth) {
    return this.atom(depth + 1);
  }

  /** The letters of a group, as they are. */
  text() {
    if (this.peek() === '*') this.next(); // a form of some commands
    if (this.next() !== '{') throw new Error('a brace is missing');
    let text = '';
    for (let open = 1; ;) {
      const part = this.parts[this.at++];
      if (part === undefined) throw new Error('a brace is missing');
      if (part === '{') open++;
      if (part === '}' && --open === 0) return text;
      text += SIGNS.letters.get(part.slice(1)) ?? (part === '\\ ' ? ' ' : part);
    }
  }

  /**
   * @param {string} name
   * @param {number} depth
   * @returns {Element}
   */
  command(name, depth) {
    const letter = SIGNS.letters.get(name);
    if (letter) return tag('mi', letter);
    const sign = SIGNS.operators.get(name);
    if (sign) return plainSign(sign);
    const large = SIGNS.large.get(name);
    if (large) return this.large(large);
    if (NAMES.has(name)) return this.name(name);
    if (Object.hasOwn(SPACES, name)) {
      const space = tag('mspace');
      space.setAttribute('width', SPACES[name]);
      return space;
    }
    if (Object.hasOwn(ACCENTS, name)) return this.accent(name, depth);
    if (LINES.has(name)) {
      const lined = tag('mrow', this.argument(depth));
      lined.setAttribute('class', name);
      return lined;
    }
    if (Object.hasOwn(ALPHABETS, name)) return inAlphabet(this.argument(depth), ALPHABETS[name]);
    if (name === 'left') return this.fenced(depth);
    const size = SIZES.exec(name);
    if (size) {
      const height = `${HEIGHTS[size[1]]}em`;
      return operator(this.sign(), { stretchy: 'true', symmetric: 'true', minsize: height, maxsize: height });
    }
    if (SILENT.has(name)) return tag('mrow');
    if (TEXTS.has(name)) {
      const starred = this.peek() === '*';
      const words = this.text().replaceAll(' ', '\u00a0'); // plain ones at its ends would be lost
      if (name !== 'operatorname') return tag('mtext', words);
      return starred ? this.large(words) : this.name(words);
    }
    switch (name) {
      case 'frac':
      case 'dfrac':
      case 'tfrac':
      case 'cfrac': {
        const node = tag('mfrac', this.argument(depth), this.argument(depth));
        if (name !== 'frac') node.setAttribute('displaystyle', String(name !== 'tfrac'));
        return node;
      }
      case 'binom':
        return tag('mrow', fence('(', 'prefix'), this.stacked(depth), fence(')', 'postfix'));
      case 'pmod': {
        const mod = operator('mod', { lspace: '0', rspace: '0.28em' });
        return tag('mrow', plainSign('('), mod, this.argument(depth), plainSign(')'));
      }
      case 'sqrt':
        return this.root(depth);
      case 'overset':
      case 'stackrel': {
        const above = this.argument(depth);
        return tag('mover', this.argument(depth), above);
      }
      case 'underset': {
        const below = this.argument(depth);
        return tag('munder', this.argument(depth), below);
      }
      case 'not':
        return tag('mo', this.argument(depth).textContent + '\u0338');
      case 'tag':
        return tag('mtext', `\u2003(${this.text()})`);
      case 'label':
        this.text();
        return tag('mrow');
      case 'begin':
        return this.environment(depth);
      default:
        if (/^[{}%$#&_|]$/.test(name)) return plainSign(name === '|' ? '‖' : name);
        throw new Error(`unknown: ${name}`);
    }
  }

  /**
   * @param {string} name
   * @param {number} depth
   */
  accent(name, depth) {
    const below = name === 'underbrace';
    const sign = operator(ACCENTS[name], { stretchy: String(WIDE.test(name)) });
    const node = tag(below ? 'munder' : 'mover', this.argument(depth), sign);
    node.setAttribute(below ? 'accentunder' : 'accent', 'true');
    node.large = LABELLED.has(name);
    return node;
  }

  /**
   * The name of a function.
   * @param {string} name
   */
  name(name) {
    const node = operator(name, { lspace: '0.1667em', rspace: '0.1667em' });
    node.isName = true;
    return node;
  }

  /**
   * A sign or a word whose limits stand above and below it, within a line beside it.
   * @param {string} sign
   */
  large(sign) {
    const node = /^[a-z]/.test(sign) ? this.name(sign) : tag('mo', sign);
    node.large = !/^[∫∬∭∮]/.test(sign);
    if (node.large) node.setAttribute('movablelimits', 'true');
    return node;
  }

  /**
   * @param {number} depth
   * @returns {Element}
   */
  root(depth) {
    if (this.peek() !== '[') return tag('msqrt', this.argument(depth));
    this.next();
    const index = tag('mrow', ...this.row(depth + 1, [']']));
    this.next();
    return tag('mroot', this.argument(depth), index);
  }

  /** @param {number} depth */
  stacked(depth) {
    const node = tag('mfrac', this.argument(depth), this.argument(depth));
    node.setAttribute('linethickness', '0');
    return node;
  }

  /** A bracket after `\left` and its like; a point is none. */
  sign() {
    const part = this.next() ?? '.';
    if (part[0] === '\\') return this.command(part.slice(1), 0).textContent ?? '';
    return part === '.' ? '' : ({ '<': '⟨', '>': '⟩' }[part] ?? part);
  }

  /**
   * What stands between `\left` and `\right`, with brackets that are as high.
   * @param {number} depth
   */
  fenced(depth) {
    const nodes = [fence(this.sign(), 'prefix')];
    for (;;) {
      nodes.push(...this.row(depth + 1, ['\\middle', '\\right']));
      const part = this.next();
      if (part === undefined) throw new Error('a bracket is missing');
      nodes.push(fence(this.sign(), part === '\\middle' ? 'infix' : 'postfix'));
      if (part === '\\right') return tag('mrow', ...nodes);
    }
  }

  /**
   * A matrix, cases, or lines that stand under each other.
   * @param {number} depth
   */
  environment(depth) {
    const name = this.text();
    const kind = ENVIRONMENT.exec(name);
    if (!kind) throw new Error(`unknown: ${name}`);
    if (name === 'array') this.text(); // how its columns are aligned
    const rows = [];
    const aligned = /^(?:align|split|eqn)/.test(name);
    /** @type {Element[]} */
    let cells = [];
    for (let open = true; open;) {
      const cell = this.row(depth + 1, ['&', '\\\\', '\\end']);
      // A sign at the beginning of a cell on the right stands between two things.
      cells.push(tag('mtd', ...(aligned && cells.length % 2 ? [tag('mrow')] : []), ...cell));
      const part = this.next();
      if (part === '&') continue;
      rows.push(tag('mtr', ...cells));
      cells = [];
      if (part === undefined) throw new Error('an end is missing');
      if (part === '\\end') open = this.text() !== name;
      else if (this.peek() === '[') while (this.next() !== ']' && this.peek() !== undefined); // room below the row
    }
    const made = tag('mtable', ...rows);
    if (aligned || name === 'gathered') made.setAttribute('displaystyle', 'true');
    if (aligned || name === 'cases') made.setAttribute('class', aligned ? 'aligned' : name);
    const [left, right = ''] = name === 'cases' ? '{' : (AROUND[kind[1]] ?? '');
    return left ? tag('mrow', fence(left, 'prefix'), made, fence(right, 'postfix')) : made;
  }

  /**
   * What is raised or lowered after `base`.
   * @param {Element} base
   * @param {number} depth
   */
  scripts(base, depth) {
    /** @type {Element | undefined} */
    let low;
    /** @type {Element | undefined} */
    let high;
    let primes = '';
    let under = base.large;
    for (let part; /^(?:[\^_']|\\(?:no)?limits)$/.test((part = this.peek() ?? ''));) {
      this.next();
      if (part === "'") high = tag('mo', (primes += '′'));
      else if (part[0] === '\\') {
        under = part === '\\limits';
        base.setAttribute('movablelimits', 'false');
      } else if (part === '_') low = this.argument(depth);
      else high = this.argument(depth);
    }
    if (low && high) return tag(under ? 'munderover' : 'msubsup', base, low, high);
    if (low) return tag(under ? 'munder' : 'msub', base, low);
    return high ? tag(under ? 'mover' : 'msup', base, high) : base;
  }
}
