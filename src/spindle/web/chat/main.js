// Puts the page together: makes its parts, and holds what involves several of them.

import { $, button, copyText, el, toggleTheme } from '../shared/dom.js';
import { count, imagesOf, oneLine, textOf } from '../shared/format.js';
import { formulas } from '../shared/inline.js';
import { Composer } from './composer.js';
import { mayStop } from './confirm.js';
import { Disconnected } from './connection.js';
import { Conversation } from './conversation.js';
import { Dialogs } from './dialogs.js';
import { Hands } from './hands.js';
import { listenToKeys } from './keys.js';
import { openMenu } from './menu.js';
import { Notices } from './notices.js';
import { Pickers } from './pickers.js';
import { QueueView } from './queue-view.js';
import { SessionPanel } from './session-panel.js';
import { Session } from './session.js';
import { Sidebar } from './sidebar.js';
import { StatusView, toast } from './status.js';
import { fileName, titleOf } from './titles.js';

const LOOK_MS = 4000; // between two looks whether there is a model by now
const STOPS = 'Another place can only be gone to when nothing runs. What was done so far is kept.';

formulas.draw = (source, block) => {
  // What draws them comes with the first one, which is seen as it was written until then.
  const place = el('code', { class: 'tex' }, source);
  import('../shared/math.js').then(
    ({ mathElement }) => {
      formulas.draw = mathElement;
      place.replaceWith(mathElement(source, block) ?? place);
    },
    () => null, // the server may be away
  );
  return place;
};
const { wire } = globalThis; // of early.js
/** @param {string} given */
const signIn = async given => (await import('./sign-in.js')).signIn(given);
const session = new Session({ signIn, report: toast });
const status = new StatusView(session);
const composer = new Composer(session);
new QueueView(session, composer);
new Hands(session);
const conversation = new Conversation(session, {
  save,
  fork,
  undo,
  branch,
  goOn,
  resume: () => session.attempt(() => session.call('resume_run')),
  again: regenerate,
  againWith: (/** @type {HTMLElement} */ anchor) => pickers.pickModel(anchor, regenerate),
  nameOf: (/** @type {AssistantMessage} */ answer) => pickers.nameOf(answer),
  blind: (/** @type {AssistantMessage | null} */ answer) => pickers.blind(answer),
});
const treePart = part(
  async () =>
    new (await import('./tree-panel.js')).TreePanel(session, {
      isOpen: () => tree.open,
      jump: (/** @type {string} */ id, /** @type {boolean} */ summarize) => move(() => session.jump(id, summarize)),
      fork,
      show: (/** @type {string} */ id) => {
        sidebar.closeDrawer();
        conversation.reveal(id);
      },
    }),
);
const tree = {
  open: false,
  show: async () => (await treePart())?.show(),
  focus: async () => (await treePart())?.focus(),
};
const sidebar = new Sidebar(session, tree);
const pickers = new Pickers(session);
/** @type {import('./changes-pane.js').ChangesPane | undefined} */
let changes;
const changesPart = part(async () => {
  const { ChangesPane } = await import('./changes-pane.js');
  const offer = (/** @type {string} */ text) => {
    composer.offer(text);
    const at = text.indexOf('""');
    if (composer.field.value === text) composer.field.setSelectionRange(at + 1, at + 1);
    else toast('The field is not empty: send or clear what is in it first', 'info');
  };
  changes = new ChangesPane(session, offer, () => composer.comments.all);
  return changes;
});
/** @type {import('./files-pane.js').FilesPane | undefined} */
let files;
const filesPart = part(async () => (files = new (await import('./files-pane.js')).FilesPane(session)));
/** @param {(pane: import('./files-pane.js').FilesPane) => any} show */
const inFiles = async show => {
  const pane = await filesPart();
  if (pane) alone(pane);
  if (pane) show(pane);
};
const showFiles = () => inFiles(pane => pane.toggle());
const linksPart = part(async () => {
  const { PathLinks } = await import('./path-links.js');
  return new PathLinks(session, (path, line) => inFiles(pane => pane.showFile(path, line)));
});
for (const event of ['entries', 'reset', 'shell_end'])
  session.on(event, () => {
    if (!session.messages.length) return;
    changesPart(true);
    linksPart(true);
  });
const notices = new Notices(session);
const findPart = part(async () => new (await import('./find.js')).Find(session, conversation));
async function openFind() {
  const chosen = String(getSelection()).trim();
  // At once: what is typed next is meant for it.
  const inside = $('find').contains(document.activeElement);
  if (!inside && chosen && !chosen.includes('\n')) $('find-text').value = chosen;
  $('find').hidden = false;
  $('find-text').select();
  (await findPart())?.open();
}
session.on('hit', async hit => (await findPart())?.come(hit));
const dialogs = new Dialogs(session, { composer, conversation, toast });
const panel = new SessionPanel(session, {
  compact,
  ask: (/** @type {boolean} */ on) => pickers.setApproval(on),
  showCall: (/** @type {string} */ id) => conversation.showCall(id),
  setUp: (/** @type {string} */ section) => setUp(section),
  toast,
});
/** What is seldom wanted comes when it is. */
const setup = part(async () => {
  const { Setup } = await import('./setup.js');
  return new Setup(session, { open: (/** @type {string} */ id) => session.open(id) });
});
/** @param {string} [section] */
const setUp = async section => (await setup())?.open(section);
const work = part(async () => {
  const { Work } = await import('./work.js');
  return new Work(session, {
    open: (/** @type {string} */ id) => session.open(id),
    title: (/** @type {any} */ { currentId, name, cwd }) => {
      const known = [...sidebar.sessions, ...sidebar.elsewhere].find(({ id }) => id === currentId);
      const own = currentId === session.id ? status.title.textContent : '';
      return oneLine(name || own || (known ? titleOf(known) : cwd), 80);
    },
  });
});
const showWork = async () => (await work())?.open();
$('open-work').addEventListener('click', showWork);
session.on('live', (/** @type {any[]} */ all) => {
  const asking = all.filter(one => one.questions > 0 || one.waiting?.length).length;
  const working = all.filter(one => one.phase !== 'idle' || one.background?.length).length;
  const words = [count(working, 'conversation') + ' at work', asking ? `${asking} waiting for an answer` : ''];
  $('open-work').hidden = working + asking === 0;
  $('open-work').classList.toggle('asks', asking > 0);
  $('open-work').querySelector('span').textContent = String(Math.max(working, asking));
  $('open-work').ariaLabel = words.filter(Boolean).join(', ');
});
$('connect-model').addEventListener('click', () => setUp('model'));
// A key may have been stored somewhere else, in a terminal or another tab.
const lookForModel = () =>
  document.hidden || !session.id || session.loading || session.state.model || session.refresh();
setInterval(() => session.attempt(lookForModel), LOOK_MS);
document.addEventListener('visibilitychange', () => session.attempt(lookForModel));

/** The styles of such parts stand beside those that are there from the beginning. */
function seldomStyles() {
  if ($('seldom')) return null;
  const href = document.querySelector('link[rel=stylesheet]')?.getAttribute('href')?.replace('chat.css', 'seldom.css');
  const link = el('link', { rel: 'stylesheet', id: 'seldom', href });
  return new Promise(resolve => {
    link.onload = link.onerror = resolve;
    document.head.append(link);
  });
}

/**
 * A part of the page that is fetched and made when it is wanted first.
 * @template T
 * @param {() => Promise<T>} make
 */
function part(make) {
  /** @type {Promise<T | undefined> | undefined} */
  let made;
  const whole = async () => {
    await seldomStyles();
    return make();
  };
  /** @param {boolean} [quiet] nobody has asked for it: the server may be away */
  return quiet =>
    (made ??= whole().catch(error => {
      made = undefined; // it may be there next time
      if (!quiet) session.complain(error);
      return undefined;
    }));
}

// -- going back, forking, doing again -------------------------------------------------------------

/**
 * Go to another place of the conversation; the text to edit, if there is one, goes where the user writes.
 * @param {Act} action
 */
function move(action) {
  return session.attempt(async () => {
    if (!(await mayStop(session, STOPS))) return;
    const text = await action();
    sidebar.closeDrawer();
    if (text !== null) composer.offer(text);
  });
}

/**
 * Go on in a new conversation from before a message, which is there to be changed, its images too.
 * @param {string} entryId
 */
function fork(entryId) {
  return session.attempt(async () => {
    if (!(await mayStop(session, STOPS))) return;
    const images = imagesOf(session.entries.byId.get(entryId)?.raw.message?.content);
    const text = await session.fork(entryId);
    sidebar.closeDrawer();
    if (text !== null) composer.offer(text, images);
  });
}

/**
 * Say something else in the place of a message. Returns whether it was sent.
 * @param {string} entryId
 * @param {string} text
 * @param {Image[]} images
 */
function save(entryId, text, images) {
  return session.attempt(async () => {
    if (!(await mayStop(session, STOPS))) throw new Error('Not saved: it is still running');
    let left = false;
    try {
      left = (await session.jump(entryId)) !== null;
      if (!left) throw new Error('Not saved: an extension does not allow it');
      await session.prompt(text, images);
    } catch (error) {
      // The message that it was written over is left already, or may be.
      if (left || error instanceof Disconnected) composer.addText(text, images);
      throw error;
    }
  });
}

/**
 * Take back a message, and what was done to files for it and since; its text goes where the user writes.
 * @param {string} entryId
 */
function undo(entryId) {
  return session.attempt(async () => {
    if (!(await mayStop(session, STOPS))) return;
    if (session.running) await session.call('abort');
    const { undoMessage } = await import('./restore.js');
    const text = await undoMessage(session, entryId);
    if (text !== null) composer.offer(text);
  });
}

/**
 * Show another branch: the newest end of it.
 * @param {Entry} entry
 */
function branch(entry) {
  return move(() => session.jump(session.entries.newest(entry).id));
}

/** Ask for the last answer once more: back to before the last message, and send it again. */
function regenerate() {
  return session.attempt(async () => {
    if (session.running) return;
    await session.updateEntries();
    const entry = session.entries.path().findLast(({ role }) => role === 'user');
    if (!entry) return;
    const { content } = entry.raw.message;
    if ((await session.jump(entry.id)) === null) return;
    await session.prompt(textOf(content), imagesOf(content));
  });
}

/** Let the model go on with an answer that was cut. */
function goOn() {
  return session.attempt(() =>
    session.state.interruptedRun ? session.call('resume_run') : session.prompt('Continue where you stopped.'),
  );
}

/** Let the model find a name for the conversation. */
function makeName() {
  return session.attempt(async () => {
    toast('The model looks for a name', 'info');
    await session.call('make_session_name');
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
  return session.attempt(async () => {
    if (!(await mayStop(session, 'A summary can only be made when nothing runs.'))) return;
    await session.call('compact');
  });
}

/** The session, the changes, the files: there is room for one of them. */
const panes = () => [panel, changes, files];

/** @param {any} pane */
function alone(pane) {
  for (const other of panes()) if (other?.isOpen && other !== pane) other.toggle(false);
}

/** @param {boolean} [open] */
function showPanel(open) {
  alone(panel);
  panel.toggle(open);
}

async function showChanges() {
  const pane = await changesPart();
  alone(pane);
  pane?.toggle();
}
$('open-changes').addEventListener('click', showChanges);
$('open-files').addEventListener('click', showFiles);

/**
 * Give the browser a file to keep.
 * @param {string} text
 * @param {string} type
 * @param {string} name
 */
function download(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function exportPage() {
  return session.attempt(async () => {
    const { html } = await session.call('export_page');
    download(html, 'text/html', fileName(status.title.textContent, '.html'));
  });
}

function copyMarkdown() {
  return session.attempt(async () => {
    const said = session.messages.filter(
      ({ role, content }) => (role === 'user' || role === 'assistant') && textOf(content),
    );
    const text = said
      .map(({ role, content }) => `## ${role === 'user' ? 'User' : 'Assistant'}\n\n${textOf(content)}`)
      .join('\n\n');
    await copyText(text);
    toast('The conversation is on the clipboard', 'info');
  });
}

/** Everything that can be done, and every conversation, to be found by its name. */
function palette() {
  const actions = [
    { label: 'New conversation', detail: 'Alt+C', pick: begin },
    { label: 'Choose the model', detail: 'Alt+M', pick: () => pickers.pickModel() },
    { label: 'Choose how hard it thinks', detail: 'Alt+L', pick: () => pickers.pickLevel() },
    { label: 'Ask before every tool: on or off', detail: 'Alt+A', pick: () => pickers.setApproval(!pickers.asks) },
    { label: 'Session: permissions, sandbox, servers, tools, cost', detail: 'Alt+I', pick: () => showPanel() },
    { label: 'All that runs', detail: 'Alt+W', pick: showWork },
    { label: 'Changed files', detail: 'Alt+D', pick: showChanges },
    { label: 'Set up: model, keys, folder, settings, rules, servers', detail: 'Alt+O', pick: () => setUp() },
    { label: 'Conversation tree', detail: 'Alt+T', pick: () => sidebar.reveal('tree') },
    { label: 'Search conversations', detail: 'Alt+F', pick: () => sidebar.reveal('sessions') },
    ...conversationActions(),
    { label: 'Light or dark', pick: toggleTheme },
    { label: 'Keys', detail: '?', pick: () => $('help').click() },
  ];
  const others = [...sidebar.sessions, ...sidebar.elsewhere].map(({ id, name, firstMessage, cwd }) => ({
    label: oneLine(titleOf({ name, firstMessage }), 80),
    detail: cwd === session.cwd ? 'conversation' : cwd,
    pick: () => (location.hash = '#' + id),
  }));
  openMenu($('prompt'), 'Find a command or a conversation', [...actions, ...others], { palette: true });
}

function conversationActions() {
  return [
    { label: 'Find in this conversation', detail: 'Ctrl+F', pick: openFind },
    { label: 'Files', detail: 'Alt+B', pick: showFiles },
    { label: 'Checkpoints: compare and restore', pick: () => inFiles(pane => pane.show('checkpoints')) },
    { label: 'Rename', pick: () => status.rename() },
    { label: 'Let the model name it', pick: makeName },
    { label: 'Regenerate the last answer', detail: 'Alt+R', pick: regenerate },
    { label: 'Regenerate with another model', pick: () => pickers.pickModel($('model'), regenerate) },
    {
      label: 'Undo the last message, files too',
      pick: () => undo(session.entries.path().findLast(({ role }) => role === 'user')?.id ?? ''),
    },
    { label: 'Summarise older messages', pick: compact },
    { label: 'Copy as Markdown', pick: copyMarkdown },
    { label: 'Export as a page', detail: 'download', pick: exportPage },
    { label: 'Open on a phone', pick: async () => (await import('./share.js')).showLink(session.id) },
    ...(localStorage.getItem('spindle-user')
      ? [
          {
            label: 'Share with others of this server',
            detail: 'read-only',
            pick: async () => (await links())?.(session),
          },
        ]
      : []),
    ...(localStorage.getItem(wire.KEY)
      ? [{ label: 'Sign out', pick: () => session.attempt(async () => (await import('./sign-in.js')).signOut()) }]
      : []),
    {
      label: notices.wanted ? 'Do not notify me' : 'Notify me when it is done or asks',
      pick: () => session.attempt(() => notices.toggle()),
    },
  ];
}

// -- the address: the session's id is its fragment, so that a reload and a bookmark find it -------

const idInAddress = () => wire.idInAddress();

// With the first word of the server, while the messages are on their way: changing an address takes a while.
for (const event of ['attached', 'state'])
  session.on(event, () => {
    if (!session.id || session.id === idInAddress()) return;
    // A step back leads to the session before; the first one has none.
    history[idInAddress() ? 'pushState' : 'replaceState'](null, '', '#' + encodeURIComponent(session.id));
  });

addEventListener('popstate', () => {
  if (idInAddress() !== session.id) session.open(idInAddress());
});

const links = part(async () => (await import('./links.js')).showLinks);
const viewing = part(() => import('./viewing.js'));
session.on('attached', async () => {
  if (session.isShared || session.held || document.body.classList.contains('viewing')) (await viewing())?.show(session);
});

session.on('connection', ({ state, id, reason }) => {
  if (state === 'held' && !id?.startsWith(wire.SHARED)) session.look({ id, who: reason });
  else if (state === 'held') leaveHeld(id);
  if (state !== 'lost-session') return;
  const what = id?.startsWith(wire.SHARED)
    ? 'That link leads nowhere any more.'
    : 'That conversation is not here any more.';
  toast(`${what} This is a new one.`, 'info');
  composer.moveOn(idInAddress() ?? session.id);
  history.replaceState(null, '', location.pathname);
  session.open(null);
});

/**
 * A conversation of another user cannot be looked at now: begin a new one, so that the page can be used.
 * @param {string | null} id
 */
function leaveHeld(id) {
  history.replaceState(null, '', location.pathname);
  session.open(null);
  const go = () => {
    note.remove();
    session.open(id);
  };
  const again = button('link', go, 'Try again');
  const note = toast('Another program holds that conversation. This is a new one.', 'info', again);
}

// -- the rest of the page -------------------------------------------------------------------------

$('new').addEventListener('click', begin);
$('starters').addEventListener('click', (/** @type {any} */ { target }) => {
  if (target.matches('button')) composer.offer(target.textContent);
});
for (const id of ['context', 'mode']) $(id).addEventListener('click', () => showPanel(true));
$('more').addEventListener('click', () =>
  openMenu($('more'), 'Conversation', [
    ...conversationActions(),
    { label: 'Set up', detail: 'Alt+O', pick: () => setUp() },
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
  KeyE: () => conversation.feed.toEnd(),
  KeyF: () => sidebar.reveal('sessions'),
  KeyD: showChanges,
  KeyB: showFiles,
  KeyI: () => showPanel(),
  KeyO: () => setUp(),
  KeyW: showWork,
  palette,
  find: openFind,
  escape: () => {
    const pane = panes().find(one => one?.isOpen && one.node.contains(document.activeElement));
    if (sidebar.isDrawerOpen) sidebar.closeDrawer();
    else if (pane) pane.toggle(false);
    else if (session.busy) session.abort();
  },
});

session.open(idInAddress());
if (!matchMedia('(pointer: coarse)').matches) composer.field.focus();
