// How the agent is set up, for whoever has no terminal: a model, a folder, settings, rules, servers, and what is loaded.

import { $, button, el, fill, icon, iconButton } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { reconcile } from '../shared/reconcile.js';
import { confirm } from './confirm.js';
import { NoCode, asOwner, isUnlocked } from './owner.js';
import { ruleSection, serverSection, settingSection } from './setup-lists.js';

const MEGABYTE = 1e6;

export class Setup {
  /**
   * `actions`: `open(sessionId)`.
   * @param {Session} session
   * @param {any} actions
   */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.node = $('setup');
    /** @type {[string, string, () => Promise<Node[]>][]} */
    this.sections = [
      ['model', 'Model', () => this.modelSection()],
      ['folder', 'Folder', () => this.folderSection()],
      ['settings', 'Settings', () => settingSection(this)],
      ['rules', 'Rules', () => ruleSection(this)],
      ['servers', 'MCP servers', () => serverSection(this)],
      ['loaded', 'Skills and extensions', () => this.loadedSection()],
    ];
    this.shown = 'model';
    this.turn = 0; // the section that was asked for last
    session.on('pull_progress', progress => this.showProgress(progress));
    session.on('address', (/** @type {Node[]} */ link) => this.tell('', 'soft', ...link));
  }

  open(section = this.shown) {
    if (!this.node.open) {
      this.build();
      this.node.showModal();
    }
    return this.show(section);
  }

  build() {
    const tabs = this.sections.map(([name, title]) =>
      el(
        'button',
        {
          type: 'button',
          role: 'tab',
          id: `setup-tab-${name}`,
          'aria-controls': 'setup-body',
          on: { click: () => name === this.shown || this.show(name) },
        },
        title,
      ),
    );
    const list = el('div', { role: 'tablist', 'aria-label': 'Set up', 'aria-orientation': 'vertical' }, ...tabs);
    list.addEventListener('keydown', event => {
      const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const at = this.sections.findIndex(([name]) => name === this.shown);
      const [next] = this.sections[(at + by + tabs.length) % tabs.length];
      this.show(next);
      $(`setup-tab-${next}`).focus();
    });
    this.told = el('div', { class: 'setup-told', role: 'status' });
    this.body = el('div', { role: 'tabpanel', id: 'setup-body', tabindex: '0' });
    fill(
      this.node,
      el(
        'header',
        null,
        el('h2', { id: 'setup-title' }, 'Set up'),
        iconButton('Close', 'close', () => this.node.close()),
      ),
      el('div', { class: 'setup-columns' }, list, el('div', { class: 'setup-main' }, this.told, this.body)),
    );
  }

  /**
   * Show a section, with what the server says now.
   * @param {string} name
   */
  async show(name) {
    if (name !== this.shown) this.tell('');
    this.shown = name;
    const turn = ++this.turn;
    for (const [one] of this.sections) {
      const tab = $(`setup-tab-${one}`);
      tab.setAttribute('aria-selected', String(one === name));
      tab.tabIndex = one === name ? 0 : -1;
    }
    this.body?.setAttribute('aria-labelledby', `setup-tab-${name}`);
    const make = this.sections.find(([one]) => one === name)?.[2];
    try {
      const nodes = (await make?.()) ?? [];
      if (turn === this.turn && this.body) fill(this.body, ...nodes);
    } catch (error) {
      if (turn === this.turn && this.body) fill(this.body, el('p', { class: 'wrong', role: 'alert' }, error.message));
    }
  }

  /** Show the present section again, without losing the place. */
  async again() {
    const { scrollTop } = this.body ?? { scrollTop: 0 };
    await this.show(this.shown);
    if (this.body) this.body.scrollTop = scrollTop;
  }

  /**
   * Say how something went, above the section.
   * @param {string} text
   * @param {string} [kind]
   * @param {...Node} more
   */
  tell(text, kind = 'good', ...more) {
    if (this.told) fill(this.told, ...(text || more.length ? [el('p', { class: kind }, text, ...more)] : []));
  }

  /**
   * Do something that only the owner may do, and say what went wrong. Returns the answer, or undefined.
   * @template {CommandName} C
   * @param {C} type
   * @param {Fields<C>} [fields]
   * @param {string} [done]
   * @returns {Promise<Commands[C]['data'] | undefined>}
   */
  async change(type, fields, done = '') {
    try {
      const answer = await asOwner(this.session, type, fields);
      this.tell(done);
      return answer ?? {};
    } catch (error) {
      this.tell(error.message, error instanceof NoCode ? 'soft' : 'wrong');
      return undefined;
    }
  }

  // -- a model ------------------------------------------------------------------------------------

  async modelSection() {
    const [{ ways }, { keys }] = await Promise.all([
      this.session.call('get_model_ways'),
      this.session.call('get_keys'),
    ]);
    const { model } = this.session.state;
    const kept = keys.filter(one => one.source !== 'not needed' || one.stored);
    const others = ways.filter(way => way.kind !== 'key');
    return [
      el(
        'p',
        null,
        model ? 'This conversation uses ' : 'There is no model yet. Choose a way to one:',
        model ? el('b', null, `${model.name} (${model.provider})`) : null,
      ),
      el('div', { class: 'ways' }, ...others.map(way => this.wayButton(way))),
      el('h3', null, 'Enter an API key'),
      this.keyForm(),
      ...(kept.length
        ? [el('h3', null, 'Keys and logins'), el('ul', { class: 'plain-list' }, ...kept.map(one => this.keyLine(one)))]
        : []),
    ];
  }

  /** @param {Way} way */
  wayButton(way) {
    const { model } = this.session.state;
    const isUsed = way.kind === 'server' && way.name === `${model?.provider}/${model?.id}`;
    const symbols = /** @type {any} */ ({ server: 'plus', keys: 'tag', 'sign-in': 'link', small: 'download' });
    const node = button(
      'plain way',
      async () => {
        node.disabled = true;
        await this.go(way);
        node.disabled = false;
      },
      icon(isUsed ? 'check' : symbols[way.kind]),
      way.title,
    );
    if (isUsed) node.setAttribute('aria-current', 'true');
    return node;
  }

  /** @param {Way} way */
  async go(way) {
    if (way.kind === 'server') return this.use(...splitName(way.name));
    if (way.kind === 'small') {
      this.tell('The model is on its way…', 'soft');
      const done = await this.change('pull_model', { name: way.name });
      return done && this.use('local', done.model);
    }
    if (way.kind === 'keys') {
      const done = await this.change('take_keys');
      if (!done) return undefined;
      await this.ready(`Keys were taken over: ${done.providers.join(', ') || 'none that are new'}`);
    } else {
      this.tell('The sign-in begins…', 'soft');
      if (await this.change('login', { providerId: way.name })) await this.ready('You are signed in');
    }
    return undefined;
  }

  /**
   * Use a model in this conversation; also in new ones, if this browser may say so.
   * @param {string} provider
   * @param {string} modelId
   */
  async use(provider, modelId) {
    try {
      await this.session.call('set_model', { provider, modelId });
    } catch (error) {
      return this.tell(error.message, 'wrong');
    }
    const keep = () => this.keepModel(provider, modelId);
    if (await isUnlocked(this.session)) return keep();
    await this.ready(`${modelId} answers in this conversation.`, button('link', keep, 'Use it in new ones, too'));
    return undefined;
  }

  /**
   * @param {string} provider
   * @param {string} modelId
   */
  async keepModel(provider, modelId) {
    if (!(await this.change('set_setting', { key: 'defaultProvider', value: provider }))) return;
    if (await this.change('set_setting', { key: 'defaultModel', value: modelId }))
      await this.ready(`${modelId} answers here and in new conversations`);
  }

  /**
   * There is a model now: the field can be used.
   * @param {string} text
   * @param {...Node} more
   */
  async ready(text, ...more) {
    await this.session.attempt(() => this.session.refresh());
    await this.show('model');
    this.tell(text + ' ', 'good', ...more);
    const done = button('link', () => this.node.close(), 'Close and write a message');
    if (this.session.state.model) this.told?.firstElementChild?.append(' ', done);
  }

  keyForm() {
    const field = el('input', {
      type: 'password',
      'aria-label': 'API key',
      placeholder: 'Paste a key: whose it is shows in its first letters',
      autocomplete: 'off',
      required: true,
    });
    const provider = el('input', {
      type: 'text',
      'aria-label': 'Provider',
      placeholder: 'Provider (if asked)',
      autocomplete: 'off',
      list: 'key-candidates',
    });
    const names = el('datalist', { id: 'key-candidates' });
    /** @param {Event} event */
    const submit = async event => {
      event.preventDefault();
      const done = await this.change('set_key', { key: field.value, provider: provider.value.trim() || undefined });
      if (!done) return;
      if (done.candidates?.length) {
        fill(names, ...done.candidates.map((/** @type {string} */ value) => el('option', { value })));
        this.tell(`Keys like this one are of several providers: ${done.candidates.join(', ')}. Say which.`, 'soft');
        provider.focus();
        return;
      }
      field.value = '';
      await this.ready(`The key of ${done.provider} is kept.`);
    };
    return el(
      'form',
      { class: 'key-form', on: { submit } },
      field,
      provider,
      names,
      el('button', { type: 'submit', class: 'primary' }, 'Keep the key'),
    );
  }

  /** @param {KeyState} fields */
  keyLine({ provider, source, stored }) {
    const remove = async () => {
      const what = stored === 'login' ? 'login' : 'key';
      if (
        !(await confirm(`Forget the ${what} of ${provider}?`, 'It is taken out of auth.json.', 'Forget it', 'danger'))
      )
        return;
      if (await this.change('remove_key', { provider })) await this.again();
    };
    return el(
      'li',
      null,
      icon(source ? 'check' : 'warning'),
      el('span', null, el('b', null, provider), el('small', null, source ?? 'it cannot be used')),
      stored ? iconButton(`Forget the ${stored} of ${provider}`, 'trash', remove) : null,
    );
  }

  /** @param {EventOf<'pull_progress'>} progress */
  showProgress({ name, done, whole }) {
    if (!this.node.open || !this.told) return;
    const bar = el('progress', { max: String(whole), value: String(done), 'aria-label': `Getting ${name}` });
    this.tell(`${name}: ${Math.round(done / MEGABYTE)} of ${Math.round(whole / MEGABYTE)} MB `, 'soft', bar);
  }

  // -- a folder -----------------------------------------------------------------------------------

  async folderSection() {
    const list = el('ul', { class: 'plain-list folders', 'aria-label': 'Folders' });
    const field = el('input', { type: 'text', 'aria-label': 'Folder', spellcheck: 'false', autocomplete: 'off' });
    /** @param {string} [path] */
    const look = async path => {
      try {
        const found = await this.session.call('list_folders', { path });
        this.tell('');
        field.value = found.path;
        const line = (/** @type {string} */ name, /** @type {string} */ to, /** @type {string} */ symbol) => ({
          key: to,
          build: () =>
            el(
              'li',
              null,
              button('plain folder', () => look(to), icon(symbol, to === found.parent ? 'up' : ''), name),
            ),
        });
        const base = found.path.replace(/\/$/, '');
        reconcile(list, [
          ...(found.parent ? [line('The folder above', found.parent, 'arrow')] : []),
          ...found.folders.map((/** @type {string} */ name) => line(name, `${base}/${name}`, 'folder')),
        ]);
      } catch (error) {
        this.tell(error.message, 'wrong');
      }
    };
    /** @param {Event} event */
    const submit = async event => {
      event.preventDefault();
      try {
        const { id } = await this.session.call('open_session', { cwd: field.value });
        this.node.close();
        this.actions.open(id);
      } catch (error) {
        this.tell(error.message, 'wrong');
      }
    };
    await look(this.session.cwd);
    return [
      el('p', null, 'A conversation works in one folder. Choose one, and begin a conversation there.'),
      el(
        'form',
        { class: 'row', on: { submit } },
        field,
        button('plain', () => look(field.value), 'Look'),
        el('button', { type: 'submit', class: 'primary' }, 'Work here'),
      ),
      list,
    ];
  }

  // -- what is loaded -----------------------------------------------------------------------------

  async loadedSection() {
    const { commands, extensions, problems } = await this.session.call('get_loaded');
    const skills = commands.filter(({ source }) => source === 'skill');
    const prompts = commands.filter(({ source }) => source !== 'skill');
    const again = async () => {
      try {
        await this.session.call('reload');
        await this.again();
        this.tell('Read again');
      } catch (error) {
        this.tell(error.message, 'wrong');
      }
    };
    /** @param {CommandItem} one */
    const command = ({ name, description, path, sourceInfo }) =>
      el(
        'li',
        { title: path ?? sourceInfo?.path },
        el('span', null, el('code', null, `/${name}`), el('small', null, description ?? '')),
      );
    /** @param {ExtensionInForce} one */
    const extension = ({ path, scope, tools, commands: own }) =>
      el(
        'li',
        null,
        el(
          'span',
          null,
          el('code', null, path),
          el(
            'small',
            null,
            [
              scope,
              ...(tools.length ? [`tools: ${tools.join(', ')}`] : []),
              ...(own.length ? [`commands: ${own.join(', ')}`] : []),
            ].join(' · '),
          ),
        ),
      );
    /**
     * @param {string} title
     * @param {any[]} items
     * @param {(item: any) => Node} line
     */
    const part = (title, items, line) => [
      el('h3', null, title),
      items.length ? el('ul', { class: 'plain-list' }, ...items.map(line)) : el('p', { class: 'soft' }, 'None.'),
    ];
    return [
      el('p', null, button('plain', again, icon('again'), 'Read all again')),
      ...part(`${count(skills.length, 'skill')}`, skills, command),
      ...part(`${count(prompts.length, 'prompt template')}`, prompts, command),
      ...part(`${count(extensions.length, 'extension')}`, extensions, extension),
      ...(problems.length
        ? part('Not loaded', problems, text => el('li', { class: 'warning' }, icon('warning'), el('span', null, text)))
        : []),
    ];
  }
}

/**
 * Provider and id of a model's whole name.
 * @param {string} name
 * @returns {[string, string]}
 */
function splitName(name) {
  const at = name.indexOf('/');
  return [name.slice(0, at), name.slice(at + 1)];
}
