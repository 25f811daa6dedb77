// Puts the page together: makes its parts, and holds what involves several of them.

import { $, el, toggleTheme } from '../shared/dom.js';
import { Composer } from './composer.js';
import { takeToken } from './connection.js';
import { Conversation } from './conversation.js';
import { Dialogs } from './dialogs.js';
import { Entries } from './entries.js';
import { listenToKeys } from './keys.js';
import { openMenu } from './menu.js';
import { Pickers } from './pickers.js';
import { Scroll } from './scroll.js';
import { Session } from './session.js';
import { Sidebar } from './sidebar.js';
import { StatusView, toast } from './status.js';
import { TreePanel } from './tree-panel.js';

const session = new Session({ askToken, report: toast });
const entries = new Entries(session);
const scroll = new Scroll();
const status = new StatusView(session);
const composer = new Composer(session);
const conversation = new Conversation(session, {
  edit: message => go(message, 'jump'),
  fork: message => go(message, 'fork'),
  again: regenerate,
});
const tree = new TreePanel(session, entries, {
  jump: (id, summarize) => move(() => session.jump(id, summarize)),
  fork: id => move(() => session.fork(id)),
});
const sidebar = new Sidebar(session, tree);
const pickers = new Pickers(session);
const dialogs = new Dialogs(session, { composer, conversation, toast, stopAsking: () => pickers.setApproval(false) });

// -- going back, forking, doing again -------------------------------------------------------------

/** Go to another place of the conversation; the text to edit, if there is one, goes where the user writes. */
function move(action) {
  return session.attempt(async () => {
    const text = await action();
    sidebar.closeDrawer();
    if (text !== null) composer.offer(text);
  });
}

function go(message, how) {
  return move(async () => {
    const entry = (await entries.refresh()).entryOf(message);
    if (!entry) throw new Error('This message is not stored (any more)');
    return session[how](entry.id);
  });
}

/** Ask for the last answer once more: back to before the last message, and send it again. */
function regenerate() {
  return session.attempt(async () => {
    if (session.running) return;
    const message = session.messages.findLast(({ role }) => role === 'user');
    if (!message) return;
    const entry = (await entries.refresh()).entryOf(message);
    if (!entry) throw new Error('The last message is not stored');
    if ((await session.jump(entry.id)) === null) return;
    await composer.resend(message);
  });
}

function begin() {
  sidebar.closeDrawer();
  return session.attempt(async () => {
    await session.begin();
    composer.field.focus();
  });
}

function compact() {
  return session.attempt(() => session.call('compact'));
}

function exportPage() {
  return session.attempt(async () => {
    const { path } = await session.call('export_html');
    toast(`Written to ${path}`, 'info');
  });
}

// -- the address: the session's id is its fragment, so that a reload and a bookmark find it -------

function idInAddress() {
  takeToken();
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null; // an address written by hand
  }
}

session.on('state', () => {
  if (!session.id || session.id === idInAddress()) return;
  // A step back leads to the session before; the first one has none.
  history[idInAddress() ? 'pushState' : 'replaceState'](null, '', '#' + encodeURIComponent(session.id));
});

addEventListener('popstate', () => {
  if (idInAddress() !== session.id) session.open(idInAddress());
});

session.on('connection', ({ state }) => {
  if (state !== 'lost-session') return;
  toast('That conversation is not here any more. This is a new one.', 'info');
  history.replaceState(null, '', location.pathname);
  session.open(null);
});

// -- the token ------------------------------------------------------------------------------------

/** Ask for the token of the server. */
function askToken(wrong) {
  return new Promise(resolve => {
    const dialog = $('token-dialog');
    const field = el('input', { type: 'password', 'aria-label': 'Token', autocomplete: 'off', required: true });
    const submit = event => {
      event.preventDefault();
      dialog.close();
      resolve(field.value.trim());
    };
    const form = el(
      'form',
      { on: { submit } },
      el('h2', { id: 'token-title' }, 'This server needs a token'),
      el('p', null, wrong ? 'That token was not accepted. ' : '', 'It was set where the server was started.'),
      field,
      el('div', { class: 'buttons' }, el('button', { type: 'submit', class: 'primary' }, 'Connect')),
    );
    dialog.replaceChildren(form);
    dialog.oncancel = event => event.preventDefault();
    dialog.showModal();
  });
}

// -- the rest of the page -------------------------------------------------------------------------

$('new').addEventListener('click', begin);
$('starters').addEventListener('click', ({ target }) => {
  if (target.matches('button')) composer.offer(target.textContent);
});
$('context').addEventListener('click', () =>
  openMenu($('context'), 'Context', [{ label: 'Summarise older messages now', pick: compact }]),
);
$('more').addEventListener('click', () =>
  openMenu($('more'), 'Conversation', [
    { label: 'Rename', pick: () => status.rename() },
    { label: 'Regenerate the last answer', pick: regenerate },
    { label: 'Summarise older messages', pick: compact },
    { label: 'Export as a page', pick: exportPage },
    { label: 'Clear: begin a new one', pick: begin },
  ]),
);
$('theme').addEventListener('click', toggleTheme);

listenToKeys({
  KeyY: () => dialogs.answerFirst('yes'),
  KeyN: () => dialogs.answerFirst('no'),
  KeyA: () => pickers.setApproval(!pickers.asks),
  KeyR: regenerate,
  KeyM: () => pickers.pickModel(),
  KeyL: () => pickers.pickLevel(),
  KeyC: begin,
  KeyT: () => sidebar.reveal('tree'),
  KeyS: () => sidebar.toggle(),
  KeyE: () => scroll.toEnd(),
  search: () => sidebar.reveal('sessions'),
  escape: () => {
    if (sidebar.isDrawerOpen) sidebar.closeDrawer();
    else if (session.busy) session.abort();
  },
});

session.open(idInAddress());
if (!matchMedia('(pointer: coarse)').matches) composer.field.focus();
