// A question about a tool call: what the call would do, why it is asked, and the answers that there are.

import { diffView, rowsOfDiff } from '../shared/diff.js';
import { button, el } from '../shared/dom.js';
import { list, obj, shownName, str, straight } from '../shared/format.js';
import { languageOfPath } from '../shared/highlight.js';
import { partsOf } from './call-parts.js';

const USUAL = 'no rule allows it'; // says nothing about the call

/** @param {PermissionRequest} request */
export function questionTitle(request) {
  if (request.kind === 'outside') return 'Run it outside of the sandbox?';
  if (request.kind !== 'tool') return str(request.summary);
  return `Allow ${str(request.toolName)}?`;
}

/**
 * What of a change is to be made: its parts can be chosen one by one.
 * @param {PermissionRequest} request
 */
export function choiceOf(request) {
  const parts = partsOf(request);
  if (!parts) return null;
  return { ...parts, chosen: new Set(parts.hunks.keys()), changed: () => {} };
}

/**
 * @param {NonNullable<ReturnType<typeof choiceOf>>} choice
 * @param {string} path
 */
function partList(choice, path) {
  return el(
    'div',
    { class: 'parts' },
    ...choice.hunks.map(({ rows }, i) => {
      const box = el('input', { type: 'checkbox', checked: true });
      box.addEventListener('change', () => {
        if (box.checked) choice.chosen.add(i);
        else choice.chosen.delete(i);
        part.classList.toggle('left-out', !box.checked);
        choice.changed();
      });
      const part = el(
        'div',
        { class: 'part' },
        el('label', null, box, `Part ${i + 1} of ${choice.hunks.length}`),
        diffView(
          rows.map(row => ({ ...row, text: straight(row.text) })),
          languageOfPath(path),
        ),
      );
      return part;
    }),
  );
}

/**
 * What a call would do, as the agent found out. Nothing may be hidden here.
 * @param {PermissionRequest} request
 * @param {ReturnType<typeof choiceOf>} [parts]
 * @param {string} [cwd] paths in there are shown from there
 */
export function previewOf(request, parts = null, cwd = '') {
  const preview = obj(request.preview);
  const box = el('div', { class: 'question', tabindex: '0' });
  /** @param {string} text */
  const pre = text => el('pre', null, straight(text));
  if (preview.kind === 'diff') {
    const path = str(preview.path);
    const size = [` +${preview.added}`, ` −${preview.removed}`];
    box.append(
      el(
        'p',
        { class: 'place' },
        el('code', null, shownName(cwd && path.startsWith(`${cwd}/`) ? path.slice(cwd.length + 1) : path)),
        el('span', { class: 'plus' }, size[0]),
        el('span', { class: 'minus' }, size[1]),
        !preview.newFile && !preview.added && !preview.removed ? ' nothing would change' : '',
        preview.newFile ? ' new file' : '',
        preview.place ? ` as in ${str(preview.place)}` : '',
      ),
      parts ? partList(parts, path) : diffView(rowsOfDiff(straight(str(preview.diff))), languageOfPath(path)),
    );
    if (hasMore(request)) box.append(pre(JSON.stringify(request.arguments)));
    if (preview.cut) box.append(el('p', { class: 'wrong' }, 'The change is longer than what is shown.'));
  } else if (preview.kind === 'command') box.append(pre(str(preview.command)));
  else if (preview.kind === 'fields' || preview.kind === 'address') {
    if (preview.address) box.append(el('p', null, el('code', null, str(preview.address))));
    const fields = list(preview.fields).map(obj);
    box.append(
      el('dl', null, ...fields.flatMap(one => [el('dt', null, str(one.name)), el('dd', null, pre(str(one.value)))])),
    );
  } else if (preview.kind === 'failure') {
    box.append(el('p', { class: 'wrong' }, `It would fail: ${preview.reason}`));
    box.append(pre(JSON.stringify(request.arguments)));
  } else box.append(pre(str(preview.text) || str(request.reason)));
  return box;
}

/**
 * Whether the arguments have anything besides what the diff is made of.
 * @param {PermissionRequest} request
 */
function hasMore(request) {
  const { path, content, edits, ...others } = obj(request.arguments);
  return (
    Object.keys(others).length > 0 ||
    list(edits).some(edit => Object.keys(obj(edit)).sort().join() !== 'newText,oldText') ||
    (content !== undefined && edits !== undefined) ||
    typeof path !== 'string'
  );
}

/**
 * Where and why: a line below the title.
 * @param {PermissionRequest} request
 */
export function aboutOf(request) {
  const preview = obj(request.preview);
  const parts = [];
  if (request.subagent) parts.push(`the subagent ${request.subagent} asks`);
  if (preview.kind === 'command') {
    parts.push(`in ${preview.directory}`);
    parts.push(preview.sandbox === 'off' ? 'no sandbox' : `sandbox ${preview.sandbox}`);
    if (preview.where) parts.push(`at the far side of ${preview.where}`);
    if (preview.background) parts.push('in the background');
    if (preview.stoppedBy) parts.push(`the sandbox stopped it: ${preview.stoppedBy}`);
  } else if (preview.kind === 'fields' || preview.kind === 'address') parts.push(str(request.summary));
  if (request.mayDestroy) parts.push('it may destroy data');
  if (request.kind === 'tool' && request.reason !== USUAL) parts.push(str(request.reason));
  return parts.length ? el('p', { class: 'about' }, parts.join(' · ')) : null;
}

/**
 * The answers that keep a rule: {words, rule, where, fields}.
 * @param {PermissionRequest} request
 */
export function keeping(request) {
  if (request.kind === 'trust' && list(request.keeps).length)
    return [
      { text: 'Yes, from now on', where: '', title: '', fields: { behavior: 'allow', keep: 'user' } },
      { text: 'No, and do not ask again', where: '', title: '', fields: { behavior: 'deny', keep: 'user' } },
    ];
  const found = list(request.suggestions)
    .map(obj)
    .map(one => ({
      text: str(one.text),
      where: '',
      title: 'Only calls that fit this rule, and only in this conversation',
      fields: { behavior: 'allow', keep: 'session', rules: one.rules },
    }));
  const keeps = list(request.keeps);
  const first = found[0];
  for (const [keep, where, title] of [
    ['project', ' (in this project)', 'The rule is written to the settings of the project'],
    ['user', ' (in all sessions)', 'The rule is written to your settings'],
  ])
    if (first && keeps.includes(keep)) found.push({ ...first, where, title, fields: { ...first.fields, keep } });
  return found;
}

/**
 * A field to change the input in; `use` gets the changed input, or the text of what is wrong.
 * @param {PermissionRequest} request
 * @param {(input: any, trouble: string) => void} use
 */
export function inputEditor(request, use) {
  const given = obj(request.arguments);
  const fields = plainFields(given);
  const area = (/** @type {string} */ label, /** @type {string} */ value) => {
    const rows = String(Math.min(16, Math.max(3, value.split('\n').length + 1)));
    const field = el('textarea', { rows, class: 'input', 'aria-label': label, spellcheck: 'false' });
    field.value = value;
    return field;
  };
  const shown = fields
    ? fields.map(({ label, value }) => area(label, value))
    : [area('Input of the call', JSON.stringify(request.arguments, null, 2))];
  const send = () => {
    if (fields)
      return use(
        fields.reduce((input, { put }, i) => put(input, shown[i].value), given),
        '',
      );
    try {
      return use(JSON.parse(shown[0].value), '');
    } catch (error) {
      return use(null, `This is no JSON: ${error instanceof Error ? error.message : error}`);
    }
  };
  const titled = shown.map((field, i) =>
    fields ? el('label', null, el('span', null, fields[i].label), field) : field,
  );
  return el('div', { class: 'editing' }, ...titled, button('primary', send, 'Allow with this input'));
}

/**
 * The texts of a call that a person would change: the command, the content, the new texts; null: all of it, as JSON.
 * @param {any} given
 * @returns {{ label: string, value: string, put: (input: any, text: string) => any }[] | null}
 */
function plainFields(given) {
  for (const [name, label] of [
    ['command', 'Input of the call'],
    ['content', 'What is written'],
  ])
    if (typeof given[name] === 'string')
      return [{ label, value: given[name], put: (input, text) => ({ ...input, [name]: text }) }];
  const edits = list(given.edits).map(obj);
  if (!edits.length || !edits.every(edit => typeof edit.newText === 'string')) return null;
  return edits.map((edit, i) => ({
    label: edits.length > 1 ? `New text of edit ${i + 1}` : 'New text',
    value: edit.newText,
    put: (input, text) => ({
      ...input,
      edits: list(input.edits).map((one, k) => (k === i ? { ...obj(one), newText: text } : one)),
    }),
  }));
}
