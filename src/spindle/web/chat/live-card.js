// The card of a tool call that may still be written or run: arguments and output are shown as they come.

import { el, fill } from '../shared/dom.js';
import { duration, oneLine, textOf } from '../shared/format.js';
import { CodePainter } from '../shared/highlight.js';
import { arrange } from '../shared/reconcile.js';
import { terminal } from '../shared/terminal.js';
import { MAX_OUTPUT, ToolCard } from '../shared/tool-card.js';
import { partialJson } from './partial-json.js';

export class LiveCard extends ToolCard {
  /** @type {any} */
  growing;
  /** @type {string | null} */
  source;
  /** @type {HTMLElement | null} */
  liveOutput;

  /**
   * @param {string} id
   * @param {string} name
   * @param {string} state
   */
  constructor(id, name, state) {
    super(name, state);
    this.id = id;
    this.node.dataset.call = id;
    this.source = ''; // the arguments as the model writes them; null once they are known
    this.started = 0;
    this.pending = ''; // output that is not shown yet
    this.written = ''; // of a command of the user
    this.growing = null; // arguments that are being written: {label, painter, code}
  }

  /** @param {Record<string, unknown>} args */
  setArguments(args) {
    super.setArguments(args);
    this.source = null;
  }

  /** @param {string} delta */
  push(delta) {
    if (this.source !== null) this.source += delta;
  }

  /** Bring the arguments up to date. */
  paint() {
    if (this.source) super.setArguments(partialJson(this.source) ?? this.args);
    super.paint();
  }

  /**
   * A long text grows at its end; what stands there already is not built again.
   * @param {string} code
   * @param {string} language
   * @param {string} label
   */
  showInput(code, language, label) {
    if (this.state !== 'writing' || !code) {
      this.growing = null;
      super.showInput(code, language, label);
      return;
    }
    if (this.growing?.label !== label || !code.startsWith(this.growing.code)) {
      const inner = el('code');
      this.growing = { label, painter: new CodePainter(inner, language) };
      const pre = el('pre', { tabindex: '0', class: label, 'aria-label': label }, inner);
      fill(this.input, el('div', { class: 'tail' }, pre));
    }
    this.growing.code = code;
    this.growing.painter.set(code, true);
  }

  /** The arguments are complete. */
  end() {
    this.shown = undefined; // to be shown as they stand
    if (this.state === 'writing') this.setState('called');
    this.paint();
  }

  /** @param {Record<string, unknown>} args */
  start(args) {
    this.setArguments(args);
    this.setState('running');
    this.restart();
    this.end();
  }

  /** Count the seconds from now. */
  restart() {
    this.started = performance.now();
    this.time.textContent = '';
  }

  /** Whether there is no result yet. */
  get isOpen() {
    return ['writing', 'called', 'asking', 'running'].includes(this.state);
  }

  /** The run is over; there will be no result. */
  abandon() {
    if (this.isOpen) this.setState('cancelled');
  }

  tick() {
    const passed = performance.now() - this.started;
    if (this.state === 'running' && passed > 1000) this.time.textContent = duration(Math.floor(passed / 1000) * 1000);
  }

  /**
   * Take all the output so far.
   * @param {any} result
   */
  progress(result) {
    // A subagent reports in one line, which is to be seen though the card is closed.
    if (this.name === 'task') this.size.textContent = oneLine(textOf(result.content));
    else this.pending = textOf(result.content);
  }

  /**
   * Take more output; of very much the end is kept.
   * @param {string} delta
   */
  addOutput(delta) {
    this.pending = this.written = (this.written + delta).slice(-MAX_OUTPUT);
  }

  paintProgress() {
    if (!this.pending) return;
    const text = terminal(this.pending.trimEnd());
    this.pending = '';
    if (!text.textContent) return;
    if (!this.liveOutput) {
      this.liveOutput = el('pre', { class: 'output', tabindex: '0', 'aria-label': 'output' });
      fill(this.output, el('div', { class: 'tail' }, this.liveOutput));
    }
    grow(this.liveOutput, text);
  }

  /**
   * @param {any} result
   * @param {boolean} isError
   * @param {number} [durationMs]
   */
  finish(result, isError, durationMs) {
    this.pending = '';
    this.liveOutput = null;
    this.duration = durationMs;
    super.finish(result, isError, durationMs);
  }
}

/**
 * Let an element have other pieces of text. Those at its beginning that are the same stay, and the last of them grows.
 * @param {HTMLElement} node
 * @param {any} fresh
 */
function grow(node, fresh) {
  const [old, next] = [node.childNodes, fresh.childNodes];
  let same = 0;
  while (same < old.length && same < next.length && old[same].isEqualNode(next[same])) same++;
  const [last, longer] = [old[same], next[same]];
  if (last instanceof Text && longer instanceof Text && longer.data.startsWith(last.data)) {
    last.appendData(longer.data.slice(last.length));
    same++;
  }
  arrange(node, [...[...old].slice(0, same), ...[...next].slice(same)]);
}

/**
 * The card of a command that the user runs; the model is told of it unless it is `hidden`.
 * @param {string} command
 * @param {boolean} hidden
 * @param {string} state
 */
export function shellCard(command, hidden, state) {
  const card = new LiveCard('', 'bash', state);
  card.setArguments({ command });
  card.end();
  card.label.textContent = hidden ? 'you ran (not told to the model)' : 'you ran';
  return card;
}
