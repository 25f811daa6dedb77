// A question about a tool call: what the call would do, why it is asked, and the answers that there are.

import { diffView, rowsOfDiff } from '../shared/diff.js';
import { button, el } from '../shared/dom.js';
import { list, obj, str } from '../shared/format.js';
import { languageOfPath } from '../shared/highlight.js';

const USUAL = 'no rule allows it'; // says nothing about the call

/** @param {any} request */
export function questionTitle(request) {
  if (request.kind === 'outside') return 'Run it outside of the sandbox?';
  if (request.kind !== 'tool') return str(request.summary);
  return `Allow ${str(request.toolName)}?`;
}

/**
 * What a call would do, as the agent found out. Nothing may be hidden here.
 * @param {any} request
 */
export function previewOf(request) {
  const preview = obj(request.preview);
  const box = el('div', { class: 'question', tabindex: '0' });
  if (preview.kind === 'diff') {
    const size = [` +${preview.added}`, ` −${preview.removed}`];
    box.append(
      el(
        'p',
        { class: 'place' },
        el('code', null, str(preview.path)),
        el('span', { class: 'plus' }, size[0]),
        el('span', { class: 'minus' }, size[1]),
        preview.newFile ? ' new file' : '',
        preview.place ? ` as in ${str(preview.place)}` : '',
      ),
      diffView(rowsOfDiff(str(preview.diff)), languageOfPath(str(preview.path))),
    );
    if (hasMore(request)) box.append(el('pre', null, JSON.stringify(request.arguments)));
    if (preview.cut) box.append(el('p', { class: 'wrong' }, 'The change is longer than what is shown.'));
  } else if (preview.kind === 'command') box.append(el('pre', null, str(preview.command)));
  else if (preview.kind === 'fields' || preview.kind === 'address') {
    if (preview.address) box.append(el('p', null, el('code', null, str(preview.address))));
    const fields = list(preview.fields).map(obj);
    box.append(
      el(
        'dl',
        null,
        ...fields.flatMap(one => [el('dt', null, str(one.name)), el('dd', null, el('pre', null, str(one.value)))]),
      ),
    );
  } else if (preview.kind === 'failure') {
    box.append(el('p', { class: 'wrong' }, `It would fail: ${preview.reason}`));
    box.append(el('pre', null, JSON.stringify(request.arguments)));
  } else box.append(el('pre', null, str(preview.text) || str(request.reason)));
  return box;
}

/**
 * Whether the arguments have anything besides what the diff is made of.
 * @param {any} request
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
 * @param {any} request
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
 * @param {any} request
 */
export function keeping(request) {
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
 * @param {any} request
 * @param {(input: any, trouble: string) => void} use
 */
export function inputEditor(request, use) {
  const given = request.arguments;
  const command = typeof obj(given).command === 'string' ? given.command : null;
  const field = el('textarea', { rows: '8', class: 'input', 'aria-label': 'Input of the call', spellcheck: 'false' });
  field.value = command ?? JSON.stringify(given, null, 2);
  const send = () => {
    if (command !== null) return use({ ...given, command: field.value }, '');
    try {
      return use(JSON.parse(field.value), '');
    } catch (error) {
      return use(null, `This is no JSON: ${error instanceof Error ? error.message : error}`);
    }
  };
  return el('div', { class: 'editing' }, field, button('primary', send, 'Allow with this input'));
}
