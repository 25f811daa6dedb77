// The model, how hard it thinks, and whether it must ask before it acts.

import { $, remembered } from '../shared/dom.js';
import { tokens } from './figures.js';
import { openMenu } from './menu.js';
import { PERMISSION_MODES, SANDBOX_LEVELS } from './permission-words.js';

/** @type {Record<string, any>} */
const LEVELS = {
  off: 'No thinking',
  minimal: 'Minimal',
  low: 'Low',
  medium: 'Medium',
  high: 'High',
  xhigh: 'Very high',
  max: 'Maximum',
};
const TURNS = 25; // model calls in a row before the user is asked whether to go on

export class Pickers {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    $('model').addEventListener('click', () => this.pickModel());
    $('thinking').addEventListener('click', () => this.pickLevel());
    $('approval').addEventListener('click', () => this.setApproval(!this.asks));
    /** @type {Promise<Model[]> | null} */
    this.models = null; // once they are asked for
    session.on('state', () => this.show());
    // An agent that has just been made does not know yet what this reader wants.
    session.on(
      'reset',
      () => remembered.get('approval') === 'true' && session.id && !this.asks && this.setApproval(true),
    );
    this.show();
  }

  get asks() {
    return this.session.state.approval.tools;
  }

  show() {
    const { model, thinkingLevel } = this.session.state;
    const none = this.session.loading === false ? 'No model' : '…';
    $('model').querySelector('span').textContent = model?.name ?? none;
    $('thinking').hidden = !model?.reasoning;
    $('thinking').querySelector('span').textContent = LEVELS[thinkingLevel] ?? thinkingLevel;
    $('approval').setAttribute('aria-pressed', String(this.asks));
    const { permissionMode = 'bypass', sandbox } = this.session.state;
    const words = [
      ...PERMISSION_MODES.filter(([name]) => name === permissionMode && name !== 'bypass'),
      ...SANDBOX_LEVELS.filter(([name]) => name === sandbox?.level && name !== 'off'),
    ];
    $('mode').hidden = !words.length;
    $('mode').textContent = words.map(([, title]) => title).join(' · ');
    $('mode').title = words.map(([, , help]) => help).join('. ');
  }

  /**
   * The model that has given an answer, as the list of models has it.
   * @param {AssistantMessage} answer
   */
  async modelOf({ provider, model }) {
    /** @param {Model | null} one */
    const isIt = one => one?.id === model && one.provider === provider;
    const current = this.session.state.model;
    if (isIt(current)) return current;
    this.models ??= this.session.call('get_available_models').then(
      ({ models }) => models,
      () => {
        this.models = null; // not connected: it is asked again
        return [];
      },
    );
    return (await this.models).find(isIt);
  }

  /** @param {AssistantMessage} answer */
  async nameOf(answer) {
    return (await this.modelOf(answer))?.name ?? answer.model;
  }

  /**
   * Words about a model that sees no images: the one that gave an answer, or the present one.
   * @param {AssistantMessage | null} answer
   */
  async blind(answer) {
    const model = answer ? await this.modelOf(answer) : this.session.state.model;
    return model && !model.input.includes('image') ? `${model.name} does not see images` : '';
  }

  /**
   * Let the user choose a model; `then()` is called when it is the one.
   * @param {HTMLElement} anchor
   * @param {() => any} then
   */
  pickModel(anchor = $('model'), then = () => null) {
    return this.session.attempt(async () => {
      const { models } = await this.session.call('get_available_models');
      const current = this.session.state.model;
      /** @param {Model} model */
      const isCurrent = model => current?.id === model.id && current.provider === model.provider;
      // A model that was named on the command line need not be in the list.
      const all = current && !models.some(isCurrent) ? [current, ...models] : models;
      openMenu(
        anchor,
        'Model',
        all.map(model => ({
          label: model.name,
          detail: [
            model.provider,
            tokens(model.contextWindow),
            ...model.input.filter((/** @type {string} */ kind) => kind !== 'text'),
          ].join(' · '),
          chosen: isCurrent(model),
          pick: async () => (await this.change('set_model', { provider: model.provider, modelId: model.id })) && then(),
        })),
      );
    });
  }

  pickLevel() {
    return this.session.attempt(async () => {
      const { levels } = await this.session.call('get_available_thinking_levels');
      openMenu(
        $('thinking'),
        'Thinking',
        levels.map(level => ({
          label: LEVELS[level] ?? level,
          chosen: level === this.session.state.thinkingLevel,
          pick: () => this.change('set_thinking_level', { level }),
        })),
      );
    });
  }

  /**
   * Change something; an event tells when it is so.
   * @template {CommandName} C
   * @param {C} command
   * @param {Fields<C>} fields
   */
  change(command, fields) {
    return this.session.attempt(() => this.session.call(command, fields));
  }

  /** @param {boolean} asks */
  setApproval(asks) {
    remembered.set('approval', String(asks));
    return this.change('set_approval', { tools: asks, maxTurns: asks ? TURNS : null });
  }
}
