// Mathematics: the part of TeX that people and models write in conversations, as MathML. What is not known is shown as
// it was written.

const MATHML = 'http://www.w3.org/1998/Math/MathML';
const GREEK =
  'alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ ' +
  'pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ ' +
  'Omega Ω infty ∞ ell ℓ hbar ℏ nabla ∇ partial ∂ emptyset ∅ Re ℜ Im ℑ aleph ℵ dots … ldots … cdots ⋯ vdots ⋮';
const OPERATORS =
  'times × cdot ⋅ div ÷ pm ± mp ∓ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ propto ∝ to → rightarrow → leftarrow ← ' +
  'Rightarrow ⇒ Leftarrow ⇐ implies ⟹ iff ⟺ leftrightarrow ↔ mapsto ↦ in ∈ notin ∉ subset ⊂ subseteq ⊆ supset ⊃ cup ∪ cap ∩ setminus ∖ ' +
  'forall ∀ exists ∃ neg ¬ land ∧ wedge ∧ lor ∨ vee ∨ oplus ⊕ otimes ⊗ circ ∘ ast ∗ star ⋆ perp ⊥ parallel ∥ mid ∣ langle ⟨ rangle ⟩ ' +
  'lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ ll ≪ gg ≫ prime ′ angle ∠ therefore ∴';
const LARGE = 'sum ∑ prod ∏ int ∫ oint ∮ bigcup ⋃ bigcap ⋂ lim lim max max min min sup sup inf inf';
const NAMES = new Set(
  'sin cos tan log ln exp det dim ker gcd arg deg sinh cosh tanh arcsin arccos arctan mod Pr'.split(' '),
);
const SPACES = {
  ',': '0.17em',
  ':': '0.22em',
  ';': '0.28em',
  ' ': '0.33em',
  '!': '-0.17em',
  quad: '1em',
  qquad: '2em',
};
const ACCENTS = { hat: '^', bar: '¯', vec: '→', tilde: '~', dot: '˙', ddot: '¨', overline: '‾', widehat: '^' };
const LETTERS = { R: 'ℝ', N: 'ℕ', Z: 'ℤ', Q: 'ℚ', C: 'ℂ', P: 'ℙ', E: '𝔼' };
const MAX_DEPTH = 40;

const table = text => new Map(Array.from(text.matchAll(/(\w+) (\S+)/g), ([, name, sign]) => [name, sign]));
const SIGNS = { letters: table(GREEK), operators: table(OPERATORS), large: table(LARGE) };

function tag(name, ...children) {
  const node = document.createElementNS(MATHML, name);
  node.append(...children);
  return node;
}

/** Return a formula as an element. */
export function mathElement(source, block) {
  try {
    const reader = new TexReader(source);
    const node = tag('math', tag('mrow', ...reader.row(0)));
    if (block) node.setAttribute('display', 'block');
    return node;
  } catch {
    const code = document.createElement('code');
    code.className = 'tex';
    code.textContent = source;
    return code;
  }
}

class TexReader {
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

  /** Read up to one of the `ends`, or to the end. */
  row(depth, ends = []) {
    if (depth > MAX_DEPTH) throw new Error('nested too deep');
    const nodes = [];
    for (let part; (part = this.peek()) !== undefined && !ends.includes(part);) {
      if (part === '}') throw new Error('a brace too many');
      nodes.push(this.scripts(this.atom(depth), depth));
    }
    return nodes;
  }

  /** One thing: a letter, a group, a command with what belongs to it. */
  atom(depth) {
    const part = this.next();
    if (part === undefined) throw new Error('something is missing');
    if (part === '{') return this.group(depth);
    if (/^\d/.test(part)) return tag('mn', part);
    if (/^[a-zA-Z]$/.test(part)) return tag('mi', part);
    if (part[0] === '\\') return this.command(part.slice(1), depth);
    if (part === '^' || part === '_' || part === '&') throw new Error('out of place');
    return tag('mo', { '-': '−', '*': '∗', "'": '′' }[part] ?? part);
  }

  group(depth) {
    const nodes = this.row(depth + 1, ['}']);
    if (this.next() !== '}') throw new Error('a brace is missing');
    return nodes.length === 1 ? nodes[0] : tag('mrow', ...nodes);
  }

  /** What a command takes: a group or a single thing. */
  argument(depth) {
    return this.atom(depth + 1);
  }

  /** The letters of a group, as they are. */
  text() {
    if (this.next() !== '{') throw new Error('a brace is missing');
    let text = '';
    for (let open = 1; ;) {
      const part = this.parts[this.at++];
      if (part === undefined) throw new Error('a brace is missing');
      if (part === '{') open++;
      if (part === '}' && --open === 0) return text;
      text += part;
    }
  }

  command(name, depth) {
    if (SIGNS.letters.has(name)) return tag('mi', SIGNS.letters.get(name));
    if (SIGNS.operators.has(name)) return tag('mo', SIGNS.operators.get(name));
    if (SIGNS.large.has(name)) return this.large(SIGNS.large.get(name));
    if (NAMES.has(name)) return tag('mi', name);
    if (Object.hasOwn(SPACES, name)) {
      const space = tag('mspace');
      space.setAttribute('width', SPACES[name]);
      return space;
    }
    if (Object.hasOwn(ACCENTS, name)) return tag('mover', this.argument(depth), tag('mo', ACCENTS[name]));
    switch (name) {
      case 'frac':
      case 'dfrac':
      case 'tfrac':
        return tag('mfrac', this.argument(depth), this.argument(depth));
      case 'binom':
        return tag('mrow', tag('mo', '('), this.stacked(depth), tag('mo', ')'));
      case 'sqrt':
        return this.root(depth);
      case 'text':
      case 'textrm':
      case 'mathrm':
      case 'operatorname':
      case 'textbf':
      case 'mathbf':
        return tag('mtext', this.text());
      case 'mathbb':
        return tag('mi', ...Array.from(this.text(), letter => LETTERS[letter] ?? letter));
      case 'mathcal':
      case 'mathit':
      case 'boldsymbol':
        return this.argument(depth);
      case 'left':
      case 'right':
      case 'big':
      case 'Big':
      case 'bigg':
      case 'Bigg':
        return this.fence();
      case 'begin':
        return this.environment(depth);
      case 'displaystyle':
      case 'limits':
      case 'nolimits':
        return tag('mrow');
      default:
        if (/^[{}%$#&_|]$/.test(name)) return tag('mo', name === '|' ? '‖' : name);
        throw new Error(`unknown: ${name}`);
    }
  }

  large(sign) {
    const node = tag('mo', sign);
    node.setAttribute('movablelimits', 'false');
    node.large = !/^[∫∮]/.test(sign);
    return node;
  }

  root(depth) {
    if (this.peek() !== '[') return tag('msqrt', this.argument(depth));
    this.next();
    const index = tag('mrow', ...this.row(depth + 1, [']']));
    this.next();
    return tag('mroot', this.argument(depth), index);
  }

  stacked(depth) {
    const node = tag('mfrac', this.argument(depth), this.argument(depth));
    node.setAttribute('linethickness', '0');
    return node;
  }

  fence() {
    const part = this.next() ?? '.';
    if (part === '.') return tag('mrow');
    return part[0] === '\\' ? this.command(part.slice(1), 0) : tag('mo', part);
  }

  /** A matrix, cases, or lines that stand under each other. */
  environment(depth) {
    const name = this.text();
    const kind = /^(p|b|v|B|V)?matrix$|^cases$|^aligned?\*?$|^gathered$/.exec(name);
    if (!kind) throw new Error(`unknown: ${name}`);
    const rows = [];
    let cells = [];
    for (let open = true; open;) {
      cells.push(tag('mtd', ...this.row(depth + 1, ['&', '\\\\', '\\end'])));
      const part = this.next();
      if (part === '&') continue;
      rows.push(tag('mtr', ...cells));
      cells = [];
      if (part === undefined) throw new Error('an end is missing');
      if (part === '\\end') open = this.text() !== name;
    }
    const made = tag('mtable', ...rows);
    const [left, right] =
      { p: '()', b: '[]', v: '||', B: '{}', V: '‖‖' }[kind[1]] ?? (name === 'cases' ? ['{', ''] : ['', '']);
    return left ? tag('mrow', tag('mo', left), made, ...(right ? [tag('mo', right)] : [])) : made;
  }

  /** What is raised or lowered after `base`. */
  scripts(base, depth) {
    let [low, high] = [null, null];
    for (let part; (part = this.peek()) === '^' || part === '_' || part === "'";) {
      this.next();
      if (part === "'") high = high ?? tag('mo', '′');
      else if (part === '_') low = this.argument(depth);
      else high = this.argument(depth);
    }
    const under = base.large === true;
    if (low && high) return tag(under ? 'munderover' : 'msubsup', base, low, high);
    if (low) return tag(under ? 'munder' : 'msub', base, low);
    return high ? tag(under ? 'mover' : 'msup', base, high) : base;
  }
}
