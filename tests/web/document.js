// A document with as much of the DOM as the scripts under test use to build elements: a tree that can be read again.
// Importing it makes it the global `document`.

class TreeNode {
  parentNode = null;
  replaceWith(...nodes) {
    const siblings = this.parentNode?.childNodes ?? [];
    for (const node of nodes) node.parentNode = this.parentNode;
    if (siblings.includes(this)) siblings.splice(siblings.indexOf(this), 1, ...nodes);
    this.parentNode = null;
  }
  remove() {
    this.replaceWith();
  }
  get nextSibling() {
    const siblings = this.parentNode?.childNodes ?? [];
    return siblings[siblings.indexOf(this) + 1] ?? null;
  }
}

class TextNode extends TreeNode {
  constructor(data) {
    super();
    this.data = data;
  }
  get textContent() {
    return this.data;
  }
}

class Fragment extends TreeNode {
  childNodes = [];
  append(...nodes) {
    for (const node of nodes) {
      const isFragment = node instanceof Fragment && !(node instanceof ElementNode);
      for (const one of isFragment ? [...node.childNodes] : [node]) {
        const child = one instanceof TreeNode ? one : new TextNode(String(one));
        child.remove();
        child.parentNode = this;
        this.childNodes.push(child);
      }
    }
  }
  replaceChildren(...nodes) {
    this.textContent = '';
    this.append(...nodes);
  }
  get children() {
    return this.childNodes.filter(node => node instanceof ElementNode);
  }
  get childElementCount() {
    return this.children.length;
  }
  get textContent() {
    return this.childNodes.map(node => node.textContent).join('');
  }
  set textContent(text) {
    for (const child of [...this.childNodes]) child.remove();
    if (text) this.append(text);
  }
  insertBefore(node, next) {
    node.remove();
    node.parentNode = this;
    this.childNodes.splice(next ? this.childNodes.indexOf(next) : this.childNodes.length, 0, node);
  }
  get firstChild() {
    return this.childNodes[0] ?? null;
  }
  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }
}

class ElementNode extends Fragment {
  constructor(tag) {
    super();
    this.localName = tag;
    this.tagName = tag.toUpperCase();
    this.attributes = new Map();
    this.dataset = {};
    this.style = { setProperty() {} };
    const names = () => new Set(this.className.split(' ').filter(Boolean));
    this.classList = {
      contains: name => names().has(name),
      add: name => (this.className = [...names().add(name)].join(' ')),
      remove: name => (this.className = [...names()].filter(one => one !== name).join(' ')),
    };
  }
  get className() {
    return this.attributes.get('class') ?? '';
  }
  set className(value) {
    this.attributes.set('class', value);
  }
  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }
  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }
  addEventListener() {}
}

globalThis.document = /** @type {any} */ ({
  createElement: tag => new ElementNode(tag),
  createElementNS: (_, tag) => new ElementNode(tag),
  createTextNode: text => new TextNode(text),
  createDocumentFragment: () => new Fragment(),
});

globalThis.HTMLParagraphElement = /** @type {any} */ (
  class {
    static [Symbol.hasInstance](node) {
      return node.localName === 'p';
    }
  }
);

const EMPTY = new Set(['br', 'hr']);

/** Elements as short markup: without attributes except targets, without buttons and icons, and `div` and `span` left out. */
export function plain(node) {
  return node.childNodes
    .map(child => {
      if (child instanceof TextNode) return child.data;
      const { localName: tag, classList } = child;
      if (classList.contains('corner') || classList.contains('icon')) return '';
      if (tag === 'div' || tag === 'span') return plain(child);
      const target = tag === 'a' ? `=${child.getAttribute('href')}` : '';
      return `<${tag}${target}>${plain(child)}${EMPTY.has(tag) ? '' : `</${tag}>`}`;
    })
    .join('');
}
