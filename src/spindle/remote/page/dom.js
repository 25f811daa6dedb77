// Small helpers to build the page. It is made of elements and text nodes only; there is no innerHTML anywhere, so
// nothing that a model, a tool or a file says can become markup.

export const $ = id => document.getElementById(id);

/** Make an element. `props` are attributes, except `on` (listeners); null, undefined and false leave one out. */
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'on') for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined && child !== ''));
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

/** One of the symbols in index.html. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

/** A button of a kind (a class): `plain`, `primary`, `link`. */
export const button = (kind, listener, ...content) =>
  el('button', { type: 'button', class: kind, on: { click: listener } }, ...content);

/** A button with nothing but a symbol. */
export function iconButton(label, symbol, listener) {
  const node = button('quiet', listener, icon(symbol));
  node.title = node.ariaLabel = label;
  return node;
}

export function copyButton(label, getText) {
  const node = iconButton(label, 'copy', async () => {
    const done = await copy(getText());
    announce(done ? 'Copied' : 'Could not copy');
    node.classList.toggle('copied', done);
    setTimeout(() => node.classList.remove('copied'), 1400);
  });
  node.classList.add('copy');
  node.append(icon('check'));
  return node;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // not a secure context (plain http on a network): the old way still works
    const area = el('textarea', { class: 'offscreen', 'aria-hidden': 'true', tabindex: '-1' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Put a text field in the place of a node. `end` gets the text after Enter or on leaving it, null after Escape. */
export function editInPlace(node, field, end) {
  let done = false; // leaving the page is a blur too
  const finish = saves => {
    if (done) return;
    done = true;
    field.replaceWith(node);
    end(saves ? field.value.trim() : null);
  };
  field.addEventListener('keydown', event => {
    if (event.key !== 'Enter' && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    finish(event.key === 'Enter');
    $('prompt').focus();
  });
  field.addEventListener('blur', () => finish(true));
  node.replaceWith(field);
  field.select();
}

/** Tell screen readers, politely. */
export function announce(text) {
  $('announcer').textContent = text;
}

/** Run `paint` once in the next frame, however often it is asked for. Returns the function to ask with. */
export function perFrame(paint) {
  let asked = false;
  let took = 0;
  const run = () => {
    asked = false;
    const began = performance.now();
    paint();
    took = performance.now() - began;
  };
  return () => {
    if (asked) return;
    asked = true;
    // What takes longer than a frame must leave the reader time to scroll and to write.
    if (took > 16) setTimeout(() => requestAnimationFrame(run), 3 * took);
    else requestAnimationFrame(run);
  };
}

/** Values that outlive the page, where the browser allows it. */
export const remembered = {
  get(key) {
    try {
      return localStorage.getItem('spindle-' + key);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem('spindle-' + key, value);
    } catch {
      /* private window: it is forgotten with the page */
    }
  },
};
