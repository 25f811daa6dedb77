// A tool call as a card: what is called, its arguments, and what came back. The chat page adds what happens while a
// call is written and runs (LiveCard), the viewer folds long texts (FoldedCard).

import { counts, diffView, rowsOfDiff, rowsOfEdit, rowsOfText, showSize } from './diff.js';
import { copyButton, el, fill, icon } from './dom.js';
import {
  count,
  duration,
  imagesOf,
  list,
  obj,
  oneLine,
  plainWords,
  pretty,
  shownName,
  str,
  straight,
  textOf,
} from './format.js';
import { CodePainter, languageOfPath } from './highlight.js';
import { picture } from './images.js';
import { levelHeadings, markdown } from './markdown.js';
import { plainOutput, terminal } from './terminal.js';
import { TOOL_KINDS } from './tool-kinds.js';

/** @type {Record<string, any>} */
const KIND_ICONS = {
  read: 'file',
  search: 'search',
  edit: 'pencil',
  execute: 'terminal',
  think: 'list',
  other: 'tool',
};
const OPEN_BY_ITSELF = new Set(['edit', 'execute']);
// Arguments that the line about a call names already.
/** @type {Record<string, any>} */
const TOLD = { read: ['offset', 'limit'], grep: ['pattern'], find: ['pattern'] };
const PATHS = ['path', 'file_path', 'filePath'];
/** @type {Record<string, any>} */
const CARD_STATES = {
  writing: 'being written',
  called: 'about to run',
  asking: 'waits for an answer',
  running: 'running',
  done: 'done',
  failed: 'failed',
  refused: 'refused',
  cancelled: 'no result',
};
export const MAX_OUTPUT = 100_000;
// How a command in the background stands, as the result of its call ends with.
const STANDING = /\n*\[(bg\d+ (?:is running|.*? after [\d.]+ s))(?:\. [^\]]*)?\]\s*$/;
const REFUSED = /^(?:Permission denied: this call|The user did not allow this call) of /;
const EXIT = /\n*Command exited with code (\d+)\s*$/;

/** Tools that write files. */
export const CHANGING = new Set(Object.keys(TOOL_KINDS).filter(name => TOOL_KINDS[name] === 'edit'));
/** @param {Record<string, unknown>} args */
export const pathOf = args => PATHS.map(key => str(args[key])).find(Boolean) ?? '';

/**
 * Whether a call does its work beside the conversation: a subagent, or a command in the background.
 * @param {string} name
 * @param {Record<string, unknown>} args
 */
export const isAside = (name, args) =>
  name === 'task' || name === 'bash_output' || name === 'bash_kill' || (name === 'bash' && args.background === true);

/**
 * What a call is about, in one line.
 * @param {string} name
 * @param {any} args
 */
export function callTitle(name, args) {
  const path = shownName(pathOf(args));
  if (name === 'bash') return oneLine(straight(str(args.command)));
  if (name === 'grep' || name === 'find')
    return oneLine([str(args.pattern), path && `in ${path}`].filter(Boolean).join(' '));
  if (name === 'read') return oneLine(path) + lineRange(args);
  if (name === 'task') return plainWords(`${str(args.agent) || 'general'}: ${str(args.prompt)}`);
  return oneLine([path, ...Object.values(args)].map(str).find(Boolean) ?? '');
}

/** @param {any} fields */
function lineRange({ offset, limit }) {
  if (!Number.isInteger(offset) && !Number.isInteger(limit)) return '';
  const from = Number.isInteger(offset) ? offset : 1;
  return `:${from}${Number.isInteger(limit) ? `–${from + limit - 1}` : ''}`;
}

/**
 * What a subagent has done, in a few words.
 * @param {any} fields
 */
function workOf({ status, toolCalls, tokens, cost }) {
  const parts = [status === 'ok' ? '' : str(status)];
  if (Number.isInteger(toolCalls)) parts.push(count(toolCalls, 'call'));
  if (Number.isInteger(obj(tokens).total)) parts.push(count(tokens.total, 'token'));
  if (cost > 0) parts.push(`$${cost.toFixed(2)}`);
  return parts.filter(Boolean).join(' · ');
}

/**
 * What a subagent is asked, or answers.
 * @param {string} text
 */
function asideView(text) {
  const node = el('div', { class: 'md aside-text' }, markdown(text));
  levelHeadings(node, 2);
  return node;
}

export class ToolCard {
  /** @type {any} */
  args;
  /** @type {string} */
  state;
  /** @type {string | undefined} */
  shown;
  /** @type {boolean | undefined} */
  touched;

  /**
   * @param {string} name
   * @param {string} state
   */
  constructor(name, state) {
    this.name = name;
    this.args = {};
    this.label = el('b', null, name);
    this.title = el('span', { class: 'gist' });
    this.size = el('span', { class: 'size' });
    this.time = el('span', { class: 'time' });
    this.mark = el('span', { class: 'mark', role: 'img' });
    this.input = el('div', { class: 'tool-input' });
    this.output = el('div', { class: 'tool-output' });
    const kind = Object.hasOwn(TOOL_KINDS, name) ? TOOL_KINDS[name] : 'other';
    const symbol = name === 'ls' ? 'folder' : KIND_ICONS[kind];
    const summary = el(
      'summary',
      null,
      icon(symbol),
      this.label,
      this.title,
      this.size,
      this.time,
      this.mark,
      icon('chevron'),
    );
    this.node = el(
      'details',
      { class: 'tool', 'data-tool': name, open: OPEN_BY_ITSELF.has(kind) },
      summary,
      this.input,
      this.output,
    );
    summary.addEventListener('click', () => this.touch());
    this.setState(state);
  }

  /** The reader opens or closes the card. */
  touch() {
    this.touched = true;
  }

  /** @param {string} state */
  setState(state) {
    this.state = this.node.dataset.state = state;
    this.mark.ariaLabel = this.mark.title = CARD_STATES[state];
  }

  /** @param {Record<string, unknown>} args */
  setArguments(args) {
    this.args = obj(args);
  }

  /** Show the arguments. */
  paint() {
    this.title.textContent = callTitle(this.name, this.args);
    const { name, args } = this;
    const edit = name === 'edit' ? rowsOfEdit(args) : [];
    if (name === 'bash' && str(args.command)) this.showInput(args.command, 'sh', 'command');
    else if (name === 'task' && str(args.prompt)) this.showInput(args.prompt, 'markdown', 'task');
    else if (name === 'write' && str(args.content))
      this.showInput(args.content, languageOfPath(pathOf(args)), 'content');
    else if (edit.length) {
      if (!this.hasDiff) fill(this.input, this.diffView(edit));
    } else {
      const told = [...PATHS, ...(Object.hasOwn(TOLD, name) ? TOLD[name] : [])];
      const title = this.title.textContent;
      /**
       * @param {string} key
       * @param {unknown} value
       */
      const isTold = (key, value) =>
        told.includes(key) && (typeof value === 'string' ? title.includes(value) : Number.isInteger(value));
      const rest = Object.entries(args).filter(([key, value]) => value !== title && !isTold(key, value));
      this.showInput(rest.length ? pretty(Object.fromEntries(rest)) : '', 'json', 'arguments');
    }
  }

  /**
   * @param {string} code
   * @param {string} language
   * @param {string} label
   */
  showInput(code, language, label) {
    if (code === this.shown) return;
    this.shown = code;
    fill(this.input, !code ? '' : label === 'task' ? asideView(code) : this.codeView(code, language, label));
  }

  /**
   * A text in the card. `label` says which: command, content, arguments or output.
   * @returns {HTMLElement}
   * @param {string} text
   * @param {string} language
   * @param {string} label
   */
  codeView(text, language, label) {
    const code = el('code');
    if (label === 'output' && !language) code.append(terminal(text));
    else new CodePainter(code, language).set(text);
    return el('pre', { tabindex: '0', class: label, 'aria-label': label }, code);
  }

  /** @param {any[]} rows */
  diffView(rows) {
    const { added, removed } = counts(rows);
    if (added || removed) showSize(this.size, added, removed);
    return diffView(rows, languageOfPath(pathOf(this.args)));
  }

  /**
   * What a tool said; of a command the end is in view, where it says how it went.
   * @param {string} text
   * @param {string} language
   */
  outputView(text, language) {
    const cut = text.length > MAX_OUTPUT;
    const tail = this.name === 'bash';
    const note = cut ? el('p', { class: 'aside' }, 'The rest is too long to show; copy it to see all.') : null;
    const part = cut ? (tail ? text.slice(-MAX_OUTPUT) : text.slice(0, MAX_OUTPUT)) : text;
    const node = this.name === 'task' ? asideView(part) : this.codeView(part, language, 'output');
    return tail ? el('div', null, note, el('div', { class: 'tail' }, node)) : el('div', null, node, note);
  }

  /**
   * Show the result: of `tool_execution_end`, or of a stored toolResult message.
   * @param {{ content?: any, details?: any, changedInput?: any }} result
   * @param {boolean} isError
   */
  finish({ content, details, changedInput }, isError, durationMs = 0) {
    const isChanged = changedInput !== undefined && changedInput !== null;
    if (isChanged) this.change(changedInput);
    // The last block says so in the words for the model.
    const said = textOf(isChanged ? list(content).slice(0, -1) : content).trimEnd();
    this.setState(!isError ? 'done' : REFUSED.test(said) ? 'refused' : 'failed');
    this.output.textContent = '';
    const exit = isError && this.name === 'bash' ? EXIT.exec(said) : null;
    const stands = isAside(this.name, this.args) ? STANDING.exec(said) : null;
    const text = exit || stands ? said.slice(0, (exit ?? stands)?.index) : said;
    // Of a command in the background, what stands there says how long it took.
    this.time.textContent = [exit ? `exit ${exit[1]}` : '', durationMs > 50 && !stands ? duration(durationMs) : '']
      .filter(Boolean)
      .join(' · ');
    if (this.name === 'task') this.size.textContent = workOf(obj(details));
    else if (stands) this.size.textContent = stands[1];
    const diff = isError ? '' : str(obj(details).diff);
    if (diff) {
      this.hasDiff = true;
      this.input.textContent = '';
      this.output.append(this.diffView(rowsOfDiff(diff)));
    } else if (text && (isError || this.name !== 'write')) {
      const node = this.outputView(text, !isError && this.name === 'read' ? languageOfPath(pathOf(this.args)) : '');
      node.classList.add('with-copy');
      node.append(copyButton('Copy output', () => plainOutput(said)));
      this.output.append(node);
    }
    if (this.name === 'write' && !isError && str(this.args.content))
      showSize(this.size, counts(rowsOfText(this.args.content)).added);
    this.output.append(...imagesOf(content).map(picture));
    if (isChanged) this.output.prepend(el('p', { class: 'aside' }, 'The input was changed when the call was allowed.'));
    if (!this.touched && (isError || stands)) this.node.open = isError;
  }

  /**
   * It ran with another input than the model had written.
   * @param {any} input
   */
  change(input) {
    this.setArguments(input);
    this.shown = undefined;
    this.paint();
  }

  /**
   * Show how a command in the background stands now.
   * @param {string} words
   */
  stand(words) {
    this.size.textContent = words;
    this.setState(/ is running$/.test(words) ? 'running' : / code 0\b/.test(words) ? 'done' : 'failed');
  }

  /**
   * Show how a command of the user ended (a bashExecution message).
   * @param {any} fields
   */
  finishShell({ output, exitCode, cancelled, truncated, fullOutputPath }) {
    const failed = cancelled === true || (Number.isFinite(exitCode) && exitCode !== 0);
    this.finish({ content: str(output) }, failed);
    this.time.textContent = cancelled === true ? 'interrupted' : failed ? `exit ${exitCode}` : this.time.textContent;
    if (truncated !== true) return;
    const whole = str(fullOutputPath);
    this.output.append(el('p', { class: 'aside' }, `Output was truncated${whole ? `; all of it is in ${whole}` : ''}`));
  }
}
