// A tool call as a card: what is called, its arguments as they are written, output while it runs, and the result.

import { diffOfEdits, diffOfText } from './diff.js';
import { copyButton, el, icon } from './dom.js';
import { duration, imagesOf, oneLine, plainOutput, textOf } from './format.js';
import { highlight, languageOfPath } from './highlight.js';
import { picture } from './images.js';
import { partialJson } from './partial-json.js';

const SYMBOLS = {
  bash: 'terminal',
  read: 'file',
  write: 'pencil',
  edit: 'pencil',
  grep: 'search',
  find: 'search',
  ls: 'folder',
  todo_write: 'list',
};
const OPEN_BY_ITSELF = new Set(['bash', 'edit', 'write']);
const MAX_OUTPUT = 100_000;
const STATES = {
  writing: 'being written',
  called: 'about to run',
  running: 'running',
  done: 'done',
  failed: 'failed',
  cancelled: 'not run',
};

/** Models write what they like; only a text is a text. */
const str = value => (typeof value === 'string' ? value : '');

/** What a call is about, in one line. */
function gist(name, args) {
  const [command, path, pattern] = [args.command, args.path, args.pattern].map(str);
  if (name === 'bash') return oneLine(command);
  if (name === 'grep' || name === 'find') return oneLine(path ? `${pattern} in ${path}` : pattern);
  if (name === 'read') return oneLine(path) + lineRange(args);
  return oneLine([path, ...Object.values(args)].map(str).find(Boolean) ?? '');
}

function lineRange({ offset, limit }) {
  if (!Number.isInteger(offset) && !Number.isInteger(limit)) return '';
  const from = Number.isInteger(offset) ? offset : 1;
  return `:${from}${Number.isInteger(limit) ? `–${from + limit - 1}` : ''}`;
}

export class ToolCard {
  constructor(id, name, state) {
    this.id = id;
    this.name = name;
    this.source = ''; // the arguments as the model writes them; null once they are known
    this.args = {};
    this.pending = ''; // output that is not shown yet
    this.written = ''; // of a command of the user
    this.gist = el('span', { class: 'gist' });
    this.time = el('span', { class: 'time' });
    this.mark = el('span', { class: 'mark', role: 'img' });
    this.input = el('div', { class: 'tool-input' });
    this.output = el('div', { class: 'tool-output' });
    const summary = el(
      'summary',
      null,
      icon(SYMBOLS[name] ?? 'tool'),
      el('b', null, name),
      this.gist,
      this.time,
      this.mark,
      icon('chevron'),
    );
    this.node = el('details', { class: 'tool', 'data-tool': name }, summary, this.input, this.output);
    this.node.open = OPEN_BY_ITSELF.has(name);
    summary.addEventListener('click', () => {
      this.touched = true;
    });
    this.setState(state);
  }

  setState(state) {
    this.state = this.node.dataset.state = state;
    this.mark.setAttribute('aria-label', STATES[state]);
    this.mark.title = STATES[state];
  }

  setArguments(args) {
    this.args = args && typeof args === 'object' ? args : {};
    this.source = null;
  }

  push(delta) {
    if (this.source !== null) this.source += delta;
  }

  /** Bring the arguments up to date. */
  paint() {
    if (this.source) {
      const parsed = partialJson(this.source);
      if (parsed && typeof parsed === 'object') this.args = parsed;
    }
    this.gist.textContent = gist(this.name, this.args);
    this.paintInput();
  }

  paintInput() {
    const { command, content, path, edits } = this.args;
    if (this.name === 'bash' && str(command)) this.showInput(command, 'sh', 'command');
    else if (this.name === 'write' && str(content)) this.showInput(content, languageOfPath(str(path)), 'content');
    else if (this.name === 'edit' && Array.isArray(edits)) {
      if (!this.hasDiff) this.input.replaceChildren(diffOfEdits(edits));
    } else {
      const rest = Object.entries(this.args).filter(([, value]) => value !== this.gist.textContent);
      this.showInput(rest.length ? JSON.stringify(Object.fromEntries(rest), null, 2) : '', 'json', 'arguments');
    }
  }

  showInput(code, language, label) {
    if (code === this.shown) return;
    this.shown = code;
    this.input.replaceChildren();
    if (!code) return;
    const live = this.state === 'writing';
    const content = el('code', null, live ? code : highlight(code, language));
    this.input.append(
      el('pre', { tabindex: '0', class: this.name === 'bash' ? 'command' : null, 'aria-label': label }, content),
    );
    if (live) this.input.firstChild.scrollTop = this.input.firstChild.scrollHeight;
  }

  /** The arguments are complete. */
  end() {
    this.shown = undefined; // to be coloured
    if (this.state === 'writing') this.setState('called');
    this.paint();
  }

  start(args) {
    this.setArguments(args);
    this.setState('running');
    this.started = performance.now();
    this.end();
  }

  /** The run is over and nobody will answer this call. */
  abandon() {
    if (['writing', 'called', 'running'].includes(this.state)) this.setState('cancelled');
  }

  tick() {
    const passed = performance.now() - this.started;
    if (this.state === 'running' && passed > 1000) this.time.textContent = duration(Math.floor(passed / 1000) * 1000);
  }

  /** Take all the output so far. */
  progress(result) {
    this.pending = textOf(result.content);
  }

  /** Take more output; of very much the end is kept. */
  addOutput(delta) {
    this.pending = this.written = (this.written + delta).slice(-MAX_OUTPUT);
  }

  paintProgress() {
    if (!this.pending) return;
    const text = plainOutput(this.pending);
    this.pending = '';
    if (!text) return;
    if (!this.liveOutput) {
      this.liveOutput = el('pre', { class: 'output', tabindex: '0' }, '');
      this.output.replaceChildren(this.liveOutput);
    }
    const follows = this.liveOutput.scrollHeight - this.liveOutput.scrollTop - this.liveOutput.clientHeight < 30;
    this.liveOutput.textContent = text;
    if (follows) this.liveOutput.scrollTop = this.liveOutput.scrollHeight;
  }

  /** Show the result: of `tool_execution_end`, or of a stored toolResult message. */
  finish({ content, details }, isError, durationMs) {
    this.pending = '';
    this.liveOutput = null;
    this.setState(isError ? 'failed' : 'done');
    this.time.textContent = durationMs > 50 ? duration(durationMs) : '';
    this.output.replaceChildren();
    const text = plainOutput(textOf(content)).trimEnd();
    if (typeof details?.diff === 'string' && !isError) {
      this.hasDiff = true;
      this.input.replaceChildren();
      this.output.append(diffOfText(details.diff));
    } else if (text && !(this.name === 'write' && !isError)) this.output.append(outputOf(text));
    this.output.append(...imagesOf(content).map(picture));
    if (isError && !this.touched) this.node.open = true;
  }
}

function outputOf(text) {
  const cut = text.length > MAX_OUTPUT;
  const pre = el(
    'pre',
    { class: 'output', tabindex: '0', 'aria-label': 'output' },
    cut ? text.slice(0, MAX_OUTPUT) : text,
  );
  const note = cut ? el('p', { class: 'aside' }, 'The rest is too long to show; copy it to see all.') : null;
  return el(
    'div',
    { class: 'with-copy' },
    pre,
    note,
    copyButton('Copy output', () => text),
  );
}
