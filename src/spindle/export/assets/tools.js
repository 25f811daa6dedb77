// Boxes for tool calls, one shape per tool. A box shows a few lines of what came back; the rest is behind a button
// (or the O key), and what the reader opened stays open when the list scrolls away and back.

const PREVIEW = { bash: 6, read: 10, write: 10, edit: 40, ls: 20, grep: 20, find: 20 };
const PREVIEW_WIDTH = 5000;
const TITLE_LINES = 6;

/** A block of lines cut to `limit`. `tail` keeps the end, where a command says how it went. */
function clipped(text, limit, key, { language = '', tail = false, paint = null } = {}) {
  const lines = text.split('\n');
  const expanded = view.isOpen(key, view.tools, text);
  const hidden = lines.length - limit > 1 ? lines.length - limit : 0;
  const preview = hidden ? (tail ? lines.slice(-limit) : lines.slice(0, limit)).join('\n') : text;
  const wide = preview.length > PREVIEW_WIDTH;
  const shown = expanded ? text : wide ? (tail ? '…' + preview.slice(-PREVIEW_WIDTH) : preview.slice(0, PREVIEW_WIDTH) + '…') : preview;
  const pre = el('pre', { tabindex: '0' }, el('code', null, paint ? paint(shown) : highlight(shown, language)));
  const box = el('div', { class: 'output' }, pre);
  if (hidden || wide) {
    const rest = hidden ? count(hidden, tail ? 'earlier line' : 'more line') : count(text.length - PREVIEW_WIDTH, 'more character');
    const label = expanded ? 'Show less' : `Show ${rest}`;
    const button = el('button', { class: 'more', type: 'button', 'aria-expanded': String(expanded) }, label);
    button.addEventListener('click', () => view.toggle(key, !expanded));
    if (tail) box.prepend(button);
    else box.append(button);
  }
  return box;
}

/** Colour the lines of a diff by their first character. */
function paintDiffLines(text) {
  const fragment = document.createDocumentFragment();
  for (const line of text.split('\n')) {
    const style = { '+': 'add', '-': 'del' }[line[0]] ?? 'same';
    fragment.append(el('span', { class: 'line t-' + style }, line + '\n'));
  }
  return fragment;
}

const pathOf = args => str(args.path) || str(args.file_path) || str(args.filePath);

/** Name what a call does in one line, for its box and for the tree. */
function callTitle(name, args) {
  const path = pathOf(args);
  if (name === 'bash') return str(args.command);
  if (name === 'read') {
    const from = Number.isFinite(args.offset) ? args.offset : 1;
    const to = Number.isFinite(args.limit) ? `-${from + args.limit - 1}` : '';
    return args.offset === undefined && args.limit === undefined ? path : `${path}:${from}${to}`;
  }
  if (name === 'grep' || name === 'find') return [str(args.pattern), path && `in ${path}`].filter(Boolean).join(' ');
  return path;
}

/** What a call shows besides its title: file contents, the change, or the arguments as they are. */
function callBody(name, args, result, key) {
  if (name === 'write' && typeof args.content === 'string') {
    return clipped(args.content, PREVIEW.write, key + ':in', { language: languageOfPath(pathOf(args)) });
  }
  if (name === 'edit') {
    const diff = str(obj(obj(result).details).diff) || diffOf(args);
    return diff ? clipped(diff, PREVIEW.edit, key + ':in', { paint: paintDiffLines }) : null;
  }
  if (name === 'bash') return longCommand(str(args.command), key + ':in');
  if (Object.hasOwn(PREVIEW, name)) return null;
  if (Object.keys(args).length === 0) return null;
  return clipped(pretty(args), 12, key + ':in', { language: 'json' });
}

/** Without a recorded diff, show what was to be replaced by what. */
function diffOf(args) {
  const edits = Array.isArray(args.edits) ? args.edits : [args];
  const lines = [];
  for (const edit of edits.map(obj)) {
    const before = str(edit.oldText) || str(edit.old_string);
    const after = str(edit.newText) || str(edit.new_string);
    if (before) for (const line of before.split('\n')) lines.push('-' + line);
    if (after) for (const line of after.split('\n')) lines.push('+' + line);
  }
  return lines.join('\n');
}

function toolHead(name, title, state) {
  const long = isLong(title);
  return el('div', { class: 'tool-head' },
    el('span', { class: 'tool-name' }, name === 'bash' && !long ? '$' : name),
    el('span', { class: 'tool-title' }, long ? '' : title),
    state ? el('span', { class: 'tool-state' }, state) : null);
}

/** Whether a title is a text of its own: a script given to the shell. */
const isLong = title => title.length > 600 || title.split('\n', TITLE_LINES + 1).length > TITLE_LINES;

const longCommand = (command, key) => (isLong(command) ? clipped(command, PREVIEW.write, key, { language: 'shell' }) : null);

/** The box of a call and, inside it, of its result (undefined while none is known). */
function toolBox(call, result, key, resultEntry) {
  const name = str(call.name) || str(obj(result).toolName) || 'tool';
  const args = obj(call.arguments);
  const failed = obj(result).isError === true;
  const state = result === undefined ? 'pending' : failed ? 'failed' : 'done';
  const head = toolHead(name, callTitle(name, args), state === 'done' ? '' : failed ? 'failed' : 'no result');
  const box = el('div', { class: `tool ${state}`, role: 'group', 'aria-label': `Tool ${name}` }, head, callBody(name, args, result, key));
  if (result !== undefined) appendResult(box, name, args, result, key, failed);
  if (resultEntry >= 0) box.dataset.entry = resultEntry;
  return box;
}

function appendResult(box, name, args, result, key, failed) {
  const text = plainOutput(contentText(result.content)).trimEnd();
  // A change that worked is told by its diff; the sentence about it would only repeat that.
  if (text && !(name === 'edit' && !failed && box.childNodes.length > 1)) {
    const language = name === 'read' && !failed ? languageOfPath(pathOf(args)) : '';
    const limit = Object.hasOwn(PREVIEW, name) ? PREVIEW[name] : 10;
    const output = clipped(text, limit, key + ':out', { language, tail: name === 'bash' });
    if (failed) output.classList.add('fault');
    box.append(output);
  }
  for (const block of list(result.content)) if (obj(block).type === 'image') box.append(imageElement(block));
}
