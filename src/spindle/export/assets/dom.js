// Small helpers. The page is built from elements and text nodes only: there is no innerHTML anywhere, and the
// page's policy (trusted types) would refuse it. Values of the session are checked here before they are used.

const $ = id => document.getElementById(id);

/** Make an element. `props` are attributes, except class and on (listeners); null and false leave one out. */
function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const key in props) {
    const value = props[key];
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') node.className = value;
    else if (key === 'on') for (const type in value) node.addEventListener(type, value[type]);
    else node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children) if (child !== null && child !== undefined && child !== '') node.append(child);
  return node;
}

function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(space, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

const str = value => (typeof value === 'string' ? value : '');
const list = value => (Array.isArray(value) ? value : []);
const obj = value => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {});
const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;

/** Text of a content field: a string, or the text blocks of a list. */
function contentText(content) {
  if (typeof content === 'string') return content;
  const texts = [];
  for (const block of list(content)) if (obj(block).type === 'text' && str(block.text)) texts.push(block.text);
  return texts.join('\n');
}

/** JSON for people; a value nested too deep for that is shown as it is. */
function pretty(value) {
  try {
    return JSON.stringify(value, null, 2) ?? '';
  } catch {
    return '(nested too deep to show)';
  }
}

/** Terminal output without its control sequences. */
const CONTROL = /\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
const plainOutput = text => (text.includes('\x1b') ? text.replace(CONTROL, '') : text);

const dateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const dayFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

/** A time of the day; on another day than the session began, the date too. */
function timeElement(stamp, began) {
  const when = new Date(str(stamp));
  if (Number.isNaN(when.getTime())) return null;
  const sameDay = when.toDateString() === new Date(str(began)).toDateString();
  const text = (sameDay ? '' : dayFormat.format(when) + ', ') + timeFormat.format(when);
  return el('time', { datetime: when.toISOString(), title: dateFormat.format(when) }, text);
}

const IMAGE_TYPE = /^image\/(?:png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/\s]+={0,2}\s*$/;

/** An image of the session: only known kinds, only from the page itself, never from the network. */
function imageElement(block) {
  const type = str(block.mimeType) || str(obj(block.source).mediaType);
  const data = str(block.data) || str(obj(block.source).data);
  if (!IMAGE_TYPE.test(type) || !BASE64.test(data)) {
    return el('p', { class: 'muted' }, `[image not shown: ${type.slice(0, 60) || 'unknown kind'}]`);
  }
  const image = el('img', { src: `data:${type};base64,${data}`, alt: `Image (${type.slice(6)})` });
  return el('button', { class: 'picture', type: 'button', title: 'Enlarge', on: { click: () => showImage(image.src) } }, image);
}

function showImage(source) {
  const viewer = $('viewer');
  viewer.querySelector('img').src = source;
  viewer.showModal();
}

const remembered = {
  get(key) {
    try { return localStorage.getItem('spindle-' + key); } catch { return null; }
  },
  set(key, value) {
    try { localStorage.setItem('spindle-' + key, value); } catch { /* no storage: forget it */ }
  },
};

async function copyText(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el('textarea', { class: 'offscreen', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  say(done ? 'Copied' : 'Could not copy');
  button.classList.toggle('done', done);
  setTimeout(() => button.classList.remove('done'), 1200);
}

/** A short message at the edge of the page, also for screen readers. */
function say(text) {
  const toast = $('toast');
  toast.textContent = text;
  toast.classList.add('on');
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove('on'), 1600);
}

function copyButton(label, getText, name = 'copy') {
  const button = el('button', { class: 'mini', type: 'button', title: label, 'aria-label': label }, icon(name));
  button.addEventListener('click', () => copyText(getText(), button));
  return button;
}

/** Let the browser paint and answer before going on with long work. */
const breathe = () => new Promise(resolve => {
  const channel = new MessageChannel();
  channel.port1.onmessage = resolve;
  channel.port2.postMessage(0);
});
