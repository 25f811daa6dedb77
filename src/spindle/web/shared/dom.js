// Small helpers to build a page. It is made of elements and text nodes only: there is no innerHTML anywhere, so
// nothing that a model, a tool or a file says can become markup.

/**
 * An element of the page by its id. The caller knows that it exists, and its kind.
 * @type {(id: string) => any}
 */
export const $ = id => document.getElementById(id);

/** @type {(event: Event) => Element} of an event that comes from an element */
export const targetOf = event => /** @type {Element} */ (event.target);

/**
 * Make an element. `props` are attributes, except `on` (listeners); null, undefined and false leave one out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Node | string | number | null | undefined)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const key in props) {
    const value = props[key];
    if (value === null || value === undefined || value === false) continue;
    if (key === 'on') for (const type in value) node.addEventListener(type, value[type]);
    else node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children)
    if (child !== null && child !== undefined && child !== '') node.append(/** @type {Node | string} */ (child));
  return node;
}

export const SVG = 'http://www.w3.org/2000/svg';

/**
 * One of the symbols in icons.svg; `up`: turned upside down.
 * @param {string} name
 * @param {'up' | ''} [turned]
 */
export function icon(name, turned = '') {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', turned ? `icon ${turned}` : 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

/**
 * A button of a kind (a class): `plain`, `primary`, `link`.
 * @param {string} kind
 * @param {Act} listener
 * @param {...any} content
 */
export const button = (kind, listener, ...content) =>
  el('button', { type: 'button', class: kind, on: { click: listener } }, ...content);

/**
 * A button with nothing but a symbol.
 * @param {string} label
 * @param {string} symbol
 * @param {Act} listener
 */
export function iconButton(label, symbol, listener) {
  const node = button('quiet', listener, icon(symbol));
  node.title = node.ariaLabel = label;
  return node;
}

/**
 * @param {string} label
 * @param {Act} getText
 */
export function copyButton(label, getText, symbol = 'copy') {
  const node = iconButton(label, symbol, async () => {
    const done = await copyText(getText());
    announce(done ? 'Copied' : 'Could not copy');
    node.classList.toggle('copied', done);
    setTimeout(() => node.classList.remove('copied'), 1400);
  });
  node.classList.add('copy');
  node.append(icon('check'));
  return node;
}

/**
 * Put a text on the clipboard. Returns whether that went well.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from disk or over plain http has no clipboard; the old way still works.
    const area = el('textarea', { class: 'offscreen', 'aria-hidden': 'true', tabindex: '-1' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/**
 * Show something else, all of it, in an element. What changes bit by bit is for `reconcile`: it keeps focus and selection.
 * @param {HTMLElement} node
 * @param {...any} content
 */
export function fill(node, ...content) {
  // eslint-disable-next-line no-restricted-properties
  node.replaceChildren(...content);
}

/**
 * Open a dialog with this in it.
 * @param {HTMLDialogElement} dialog
 * @param {...any} content
 */
export function openDialog(dialog, ...content) {
  fill(dialog, ...content);
  dialog.showModal();
}

/** Let the browser paint and answer before going on with long work. */
export const breathe = () =>
  new Promise(resolve => {
    const channel = new MessageChannel();
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(0);
  });

const SLICE_MS = 12;

/** Work that lets the page answer in between: call it once, and wait for what it returns after each step. */
export function slices() {
  let end = performance.now() + SLICE_MS;
  return async () => {
    if (performance.now() < end) return;
    await breathe();
    end = performance.now() + SLICE_MS;
  };
}

/** @type {ReturnType<typeof setTimeout>} */
let announced;

/**
 * Tell screen readers, politely; where the announcer has a place on the page, everybody sees it for a moment.
 * @param {string} text
 */
export function announce(text) {
  const node = $('announcer');
  node.textContent = text;
  node.classList.add('on');
  clearTimeout(announced);
  announced = setTimeout(() => node.classList.remove('on'), 1600);
}

/** @param {Act} getStorage */
const keptIn = getStorage => ({
  /** @param {string} key */
  get(key) {
    try {
      return getStorage().getItem('spindle-' + key);
    } catch {
      return null;
    }
  },
  /**
   * @param {string} key
   * @param {unknown} value
   */
  set(key, value) {
    try {
      if (value === null) getStorage().removeItem('spindle-' + key);
      else getStorage().setItem('spindle-' + key, value);
    } catch {
      /* no storage: it is forgotten with the page */
    }
  },
});

/** Values that outlive the page, where the browser allows it. */
export const remembered = keptIn(() => localStorage);

/** What is written in this tab and not sent yet: it outlives a reload, and a page that is built again around it. */
export const unsent = keptIn(() => sessionStorage);

/** Switch between light and dark; the choice is remembered (theme.js applies it to the next page). */
export function toggleTheme() {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  dataset.theme = dark ? 'light' : 'dark';
  remembered.set('theme', dataset.theme);
}
