// The lists of the set-up: settings with their controls, permission rules, MCP servers.

import { button, el, icon, iconButton } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { confirm } from './confirm.js';
import { SERVER_STATES } from './server-states.js';

/** @import { Setup } from './setup.js' */

// -- settings -------------------------------------------------------------------------------------

/** @param {Setup} setup */
export async function settingSection(setup) {
  const { settings } = await setup.session.call('get_settings');
  const rows = settings.map(item => settingRow(setup, item));
  const filter = el('input', {
    type: 'search',
    placeholder: `Find one of ${settings.length}`,
    'aria-label': 'Find a setting',
    autocomplete: 'off',
  });
  filter.addEventListener('input', () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    settings.forEach(({ key, about }, /** @type {number} */ i) => {
      const text = `${key} ${about}`.toLowerCase();
      rows[i].hidden = !words.every(word => text.includes(word));
    });
  });
  return [filter, el('div', { class: 'settings' }, ...rows)];
}

/**
 * @param {Setup} setup
 * @param {SettingItem} item
 */
function settingRow(setup, item) {
  const id = `setting-${item.key}`;
  const row = el('div', { class: 'setting' });
  /** @param {unknown} value */
  const save = async value => {
    if ((await setup.change('set_setting', { key: item.key, value }, `${item.key} is kept`)) === undefined) return;
    const { settings } = await setup.session.call('get_settings');
    row.replaceWith(settingRow(setup, settings.find(one => one.key === item.key) ?? item));
  };
  /** @param {string} text */
  const complain = text => setup.tell(`${item.key}: ${text}`, 'wrong');
  const isOurs = item.source === 'user';
  row.append(
    el(
      'div',
      { class: 'setting-head' },
      el('label', { for: id }, el('code', null, item.key)),
      item.source === 'default' ? null : el('span', { class: 'tag' }, item.source),
      isOurs ? iconButton(`Back to the default of ${item.key}`, 'undo', () => save(null)) : null,
    ),
    el('small', { id: `${id}-about` }, plainText(item.about)),
    control(id, item, save, complain),
  );
  return row;
}

/**
 * A text of the manual without its marks.
 * @param {string} text
 */
const plainText = text => text.replace(/\[([^\]]+)\]\([^)]*\)/g, '$1').replaceAll('`', '');

/**
 * What a value is given with.
 * @param {string} id
 * @param {any} item
 * @param {Act} save
 * @param {Act} complain
 */
function control(id, item, save, complain) {
  const { kind, value, choices = [] } = item;
  const props = { id, 'aria-describedby': `${id}-about` };
  if (kind === 'switch') {
    const box = el('input', { ...props, type: 'checkbox', on: { change: () => save(box.checked) } });
    box.checked = value === true;
    return box;
  }
  if (kind === 'choice') {
    const pick = el(
      'select',
      { ...props, on: { change: () => save(pick.value || null) } },
      ...(value === null ? [el('option', { value: '' }, 'not set')] : []),
      ...choices.map((/** @type {string} */ word) => el('option', { value: word }, word)),
    );
    pick.value = value ?? '';
    return pick;
  }
  if (kind === 'number' || kind === 'text') {
    const field = el('input', { ...props, type: kind, step: kind === 'number' ? 'any' : null, autocomplete: 'off' });
    field.value = value ?? '';
    field.addEventListener('change', () => {
      const text = field.value.trim();
      if (!text) save(null);
      else if (kind === 'text') save(text);
      else if (Number.isFinite(Number(text))) save(Number(text));
      else complain('a number is wanted');
    });
    return field;
  }
  const lines = kind === 'list';
  const area = el('textarea', { ...props, rows: '2', spellcheck: 'false', placeholder: lines ? 'One a line' : 'JSON' });
  area.value = lines ? (value ?? []).join('\n') : JSON.stringify(value, null, 2);
  area.addEventListener('change', () => {
    const text = area.value.trim();
    if (!text) return save(null);
    if (lines)
      return save(
        text
          .split('\n')
          .map(line => line.trim())
          .filter(Boolean),
      );
    try {
      return save(JSON.parse(text));
    } catch (error) {
      return complain(error.message);
    }
  });
  return area;
}

// -- rules ----------------------------------------------------------------------------------------

const KEPT_IN = /** @type {Record<string, string>} */ ({ 'user settings': 'user', 'project settings': 'project' });

/** @param {Setup} setup */
export async function ruleSection(setup) {
  const { rules } = await setup.session.call('get_permissions');
  const behavior = el('select', { 'aria-label': 'What happens' });
  for (const word of ['allow', 'ask', 'deny']) behavior.append(el('option', { value: word }, word));
  const place = el('select', { 'aria-label': 'Where it is kept' });
  place.append(el('option', { value: 'user' }, 'everywhere'), el('option', { value: 'project' }, 'in this project'));
  const rule = el('input', {
    type: 'text',
    'aria-label': 'Rule',
    placeholder: 'Bash(git *)',
    spellcheck: 'false',
    autocomplete: 'off',
    required: true,
  });
  /** @param {Event} event */
  const submit = async event => {
    event.preventDefault();
    const happens = /** @type {'allow' | 'ask' | 'deny'} */ (behavior.value);
    const fields = { behavior: happens, rule: rule.value.trim(), project: place.value === 'project', remove: false };
    if (await setup.change('set_rule', fields, 'The rule holds from now on')) await setup.again();
  };
  /** @param {RuleInfo} one */
  const line = one => {
    const keep = KEPT_IN[one.source];
    const remove = async () => {
      const happens = /** @type {'allow' | 'ask' | 'deny'} */ (one.behavior);
      const fields = { behavior: happens, rule: one.rule, project: keep === 'project', remove: true };
      if (await setup.change('set_rule', fields, `${one.rule} was removed`)) await setup.again();
    };
    return el(
      'li',
      null,
      el('span', { class: `tag ${one.behavior}` }, one.behavior),
      el('span', null, el('code', null, one.rule), el('small', null, one.source)),
      keep ? iconButton(`Remove ${one.rule}`, 'trash', remove) : null,
    );
  };
  return [
    el(
      'p',
      null,
      'Rules decide about calls of tools: deny comes first, then ask, then allow. The mode decides the rest.',
    ),
    el(
      'form',
      { class: 'row', on: { submit } },
      behavior,
      rule,
      place,
      el('button', { type: 'submit', class: 'primary' }, 'Add'),
    ),
    rules.length
      ? el('ul', { class: 'plain-list' }, ...rules.map(line))
      : el('p', { class: 'soft' }, 'There are no rules.'),
  ];
}

// -- MCP servers ----------------------------------------------------------------------------------

/** @param {Setup} setup */
export async function serverSection(setup) {
  const { mcpServers = [] } = await setup.session.call('get_state');
  return [
    el('p', null, 'Servers bring tools of other programs. What is added here is kept in mcp.json, for all folders.'),
    mcpServers.length
      ? el('ul', { class: 'plain-list' }, ...mcpServers.map(one => serverRow(setup, one)))
      : el('p', { class: 'soft' }, 'There are none.'),
    el('h3', null, 'Add a server'),
    serverForm(setup),
  ];
}

/**
 * @param {Setup} setup
 * @param {McpServerState} server
 */
function serverRow(setup, { name, state, transport, tools, error, source }) {
  /**
   * @param {CommandName} type
   * @param {string} done
   * @param {any} [more]
   */
  const act = (type, done, more) => async () => {
    if (await setup.change(type, { name, ...more }, `${name} ${done}`)) await setup.again();
  };
  const remove = async () => {
    if (await confirm(`Remove ${name}?`, 'It is taken out of mcp.json.', 'Remove it', 'danger'))
      await act('remove_mcp_server', 'was removed')();
  };
  const isOff = state === 'disabled';
  const words = [SERVER_STATES[state] ?? state, transport, typeof tools === 'number' ? count(tools, 'tool') : ''];
  return el(
    'li',
    { class: error ? 'bad' : null },
    icon(error ? 'warning' : state === 'ready' ? 'check' : 'clock'),
    el(
      'span',
      null,
      el('b', null, name),
      el('span', null, words.filter(Boolean).join(' · ')),
      error ? el('small', null, error) : null,
      el('small', null, source ?? ''),
      el(
        'span',
        { class: 'buttons' },
        isOff || state === 'invalid'
          ? null
          : button('plain', act('restart_mcp_server', 'was started again'), 'Restart'),
        transport && transport !== 'stdio' && !isOff
          ? button('plain', act('log_in_mcp_server', 'is logged in'), 'Log in')
          : null,
        button(
          'plain',
          act('switch_mcp_server', isOff ? 'is switched on' : 'is switched off', { on: isOff }),
          isOff ? 'Switch on' : 'Switch off',
        ),
        button('plain', remove, 'Remove'),
      ),
    ),
  );
}

/** @param {Setup} setup */
function serverForm(setup) {
  const field = (/** @type {string} */ label, /** @type {string} */ placeholder, required = true) =>
    el('input', { type: 'text', 'aria-label': label, placeholder, required, spellcheck: 'false', autocomplete: 'off' });
  const name = field('Name', 'Name');
  const what = field('Address or command', 'https://… or a command with its arguments');
  const values = el('textarea', {
    rows: '2',
    'aria-label': 'Variables or headers',
    placeholder: 'NAME=value for a command, Name: value for an address; one a line',
    spellcheck: 'false',
  });
  /** @param {Event} event */
  const submit = async event => {
    event.preventDefault();
    const config = serverConfig(what.value.trim(), values.value);
    if (await setup.change('add_mcp_server', { name: name.value.trim(), config }, `${name.value} was added`))
      await setup.again();
  };
  return el(
    'form',
    { class: 'server-form', on: { submit } },
    name,
    what,
    values,
    el('button', { type: 'submit', class: 'primary' }, 'Add'),
  );
}

/**
 * The entry of a server, from what was written into the form.
 * @param {string} what
 * @param {string} values
 */
export function serverConfig(what, values) {
  const isAddress = /^https?:\/\//.test(what);
  const pairs = Object.fromEntries(
    values
      .split('\n')
      .map(line => line.trim())
      .filter(Boolean)
      .map(line => {
        const at = line.indexOf(isAddress ? ':' : '=');
        return at < 0 ? [line, ''] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }),
  );
  const some = Object.keys(pairs).length > 0;
  if (isAddress) return { type: 'http', url: what, ...(some ? { headers: pairs } : {}) };
  const words = [...what.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(found => found[1] ?? found[2] ?? found[3]);
  return { command: words[0], args: words.slice(1), ...(some ? { env: pairs } : {}) };
}
