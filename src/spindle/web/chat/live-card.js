// The card of a tool call that may still be written or run: arguments and output are shown as they come.

import { el } from '../shared/dom.js';
import { duration, plainOutput, textOf } from '../shared/format.js';
import { MAX_OUTPUT, ToolCard } from '../shared/tool-card.js';
import { partialJson } from './partial-json.js';

export class LiveCard extends ToolCard {
  constructor(id, name, state) {
    super(name, state);
    this.id = id;
    this.source = ''; // the arguments as the model writes them; null once they are known
    this.pending = ''; // output that is not shown yet
    this.written = ''; // of a command of the user
  }

  setArguments(args) {
    super.setArguments(args);
    this.source = null;
  }

  push(delta) {
    if (this.source !== null) this.source += delta;
  }

  /** Bring the arguments up to date. */
  paint() {
    if (this.source) super.setArguments(partialJson(this.source) ?? this.args);
    super.paint();
    const text = this.input.querySelector('pre');
    if (text && this.state === 'writing') text.scrollTop = text.scrollHeight;
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

  /** The run is over; there will be no result. */
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
      this.liveOutput = el('pre', { class: 'output', tabindex: '0' });
      this.output.replaceChildren(this.liveOutput);
    }
    const follows = this.liveOutput.scrollHeight - this.liveOutput.scrollTop - this.liveOutput.clientHeight < 30;
    this.liveOutput.textContent = text;
    if (follows) this.liveOutput.scrollTop = this.liveOutput.scrollHeight;
  }

  finish(result, isError, durationMs) {
    this.pending = '';
    this.liveOutput = null;
    super.finish(result, isError, durationMs);
  }
}

/** The card of a command that the user runs; the model is told of it unless it is `hidden`. */
export function shellCard(command, hidden, state) {
  const card = new LiveCard('', 'bash', state);
  card.setArguments({ command });
  card.end();
  card.label.textContent = hidden ? 'you ran (not told to the model)' : 'you ran';
  return card;
}
