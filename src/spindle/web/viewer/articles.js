// One entry of the session as an article of the main column, and as a line of the tree.

import { BACKGROUND } from '../shared/background.js';
import { copyButton, el, icon } from '../shared/dom.js';
import { count, imagesOf, list, obj, oneLine, plainWords, pretty, str, textOf } from '../shared/format.js';
import { picture } from '../shared/images.js';
import { highlight } from '../shared/highlight.js';
import { levelHeadings, markdown } from '../shared/markdown.js';
import { callTitle } from '../shared/tool-card.js';
import { FoldedCard, folded, moreButton } from './folded-card.js';
import { KIND } from './store.js';
import { view } from './view.js';

/** @type {Record<string, any>} */
const TITLES = {
  [KIND.USER]: 'User',
  [KIND.ASSISTANT]: 'Assistant',
  [KIND.TOOL]: 'Tool result',
  [KIND.BASH]: 'Command',
  [KIND.CUSTOM]: 'Custom',
  [KIND.COMPACTION]: 'Compaction',
  [KIND.SUMMARY]: 'Branch summary',
  [KIND.MODEL]: 'Model',
};
/** @type {Record<string, any>} */
export const CLASSES = {
  [KIND.USER]: 'user',
  [KIND.ASSISTANT]: 'assistant',
  [KIND.TOOL]: 'tool-result',
  [KIND.BASH]: 'command',
  [KIND.COMPACTION]: 'summary',
  [KIND.SUMMARY]: 'summary',
  [KIND.MODEL]: 'model',
};

const PROSE_LIMIT = 200_000; // characters of a message that are shown at once
const PROSE_PREVIEW = 20_000;

const dateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const dayFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

/**
 * A moment as the reader's own clock has it.
 * @param {string} stamp
 */
export function localTime(stamp) {
  const when = new Date(str(stamp));
  return Number.isNaN(when.getTime()) ? '' : dateFormat.format(when);
}

/**
 * A time of the day; on another day than the session began, the date too.
 * @param {string} stamp
 * @param {number} began
 */
function timeElement(stamp, began) {
  const when = new Date(str(stamp));
  if (Number.isNaN(when.getTime())) return null;
  const sameDay = when.toDateString() === new Date(str(began)).toDateString();
  const text = (sameDay ? '' : dayFormat.format(when) + ', ') + timeFormat.format(when);
  return el('time', { datetime: when.toISOString(), title: dateFormat.format(when) }, text);
}

/**
 * Make the article of entry `i`. `results` are the tool results (entries) that belong to its calls.
 * @param {Store} store
 * @param {number} i
 * @param {any[]} results
 * @param {boolean} continued
 * @param {Act} linkTo
 */
export function renderEntry(store, i, results, continued, linkTo) {
  const entry = store.entry(i);
  const kind = store.kind[i];
  const message = obj(entry.message);
  let title = TITLES[kind] ?? (str(message.role) || str(entry.type) || 'Entry');
  if (kind === KIND.CUSTOM) title = customType(entry, message).replace(/^background$/, 'Background command') || title;
  const body = renderBody(store, i, entry, message, results);
  if (kind === KIND.MODEL) return el('article', { class: 'item model', 'aria-label': 'Model change' }, body);
  const label = store.label(i);
  const head = el(
    'header',
    { class: 'head' },
    el('h2', { class: 'who' }, title.slice(0, 80)),
    label === undefined ? null : el('span', { class: 'label' }, label),
    timeElement(entry.timestamp, store.header.timestamp),
    el(
      'span',
      { class: 'actions' },
      copyButton('Copy text', () => sourceText(entry)),
      copyButton('Copy link', () => linkTo(i), 'link'),
    ),
  );
  const name = `item ${CLASSES[kind] ?? 'custom'}${continued ? ' continued' : ''}`;
  return el('article', { class: name, 'aria-label': title.slice(0, 80) }, head, body);
}

/**
 * @param {Store} store
 * @param {number} i
 * @param {any} entry
 * @param {any} message
 * @param {any[]} results
 */
function renderBody(store, i, entry, message, results) {
  const body = el('div', { class: 'body' });
  switch (store.kind[i]) {
    case KIND.USER:
      appendUser(body, message, i);
      break;
    case KIND.ASSISTANT:
      appendAnswer(body, store, message, i, results);
      break;
    case KIND.TOOL:
      body.append(toolCard(store, {}, message, `${i}:0`, i));
      break;
    case KIND.BASH:
      appendCommand(body, message, i);
      break;
    case KIND.CUSTOM:
      appendCustom(body, entry, message, i);
      break;
    case KIND.COMPACTION:
      body.append(
        disclosure(
          `${i}:s`,
          false,
          `Compacted from ${count(Number(entry.tokensBefore) || 0, 'token')}`,
          str(entry.summary),
        ),
      );
      break;
    case KIND.SUMMARY:
      body.append(disclosure(`${i}:s`, true, 'What happened on the branch that was left', str(entry.summary)));
      break;
    case KIND.MODEL:
      body.append(el('span', null, 'Model: ', el('b', null, modelName(entry.provider, entry.modelId))));
      break;
    default:
      appendOther(body, entry, message, i);
  }
  return body;
}

/**
 * @param {string} provider
 * @param {any} model
 */
const modelName = (provider, model) => [str(provider), str(model)].filter(Boolean).join('/') || 'unknown';

/**
 * @param {HTMLElement} body
 * @param {any} message
 * @param {number} i
 */
function appendUser(body, message, i) {
  const text = textOf(message.content);
  const skill = readSkill(text);
  if (skill) {
    body.append(disclosure(`${i}:k`, false, `Skill: ${skill.name}`, skill.text));
    body.append(prose(skill.rest, `${i}:t`));
  } else body.append(prose(text, `${i}:t`));
  appendImages(body, message.content);
}

/**
 * Tell a skill that was called by name from what the user wrote after it.
 * @param {string} text
 */
function readSkill(text) {
  const open = /^<skill name="([^"\n]{1,200})" location="[^"\n]{0,2000}">\n/.exec(text);
  const close = open ? text.indexOf('\n</skill>', open[0].length - 1) : -1;
  return !open || close < 0
    ? null
    : { name: open[1], text: text.slice(open[0].length, close), rest: text.slice(close + 9).trim() };
}

/**
 * @param {any} entry
 * @param {any} message
 */
function customType(entry, message) {
  const type = str(entry.customType) || str(message.customType);
  return type === BACKGROUND ? 'background' : type;
}

/**
 * A message of a program; of one about a command in the background, its first line tells how that went.
 * @param {HTMLElement} body
 * @param {any} entry
 * @param {any} message
 * @param {number} i
 */
function appendCustom(body, entry, message, i) {
  const content = entry.content ?? message.content;
  const text = textOf(content);
  const line = text.indexOf('\n');
  if (customType(entry, message) === 'background' && line > 0)
    body.append(disclosure(`${i}:out`, false, text.slice(0, line), text.slice(line + 1)));
  else body.append(prose(text, `${i}:t`));
  appendImages(body, content);
}

/**
 * @param {HTMLElement} body
 * @param {any} content
 */
function appendImages(body, content) {
  body.append(...imagesOf(content).map(picture));
}

/**
 * @param {HTMLElement} body
 * @param {Store} store
 * @param {any} message
 * @param {number} i
 * @param {any[]} results
 */
function appendAnswer(body, store, message, i, results) {
  const byCall = new Map();
  for (const r of results) byCall.set(obj(store.entry(r).message).toolCallId, r);
  list(message.content)
    .map(obj)
    .forEach((block, index) => {
      const key = `${i}:${index}`;
      if (block.type === 'text' && str(block.text).trim()) body.append(prose(block.text, key));
      else if (block.type === 'thinking') body.append(thinkingBlock(block, key));
      else if (block.type === 'toolCall') {
        const r = byCall.get(block.id);
        byCall.delete(block.id);
        body.append(toolCard(store, block, r === undefined ? null : obj(store.entry(r).message), key, r));
      }
    });
  // Two results for one call: the first of them stands alone.
  for (const r of byCall.values()) body.append(toolCard(store, {}, obj(store.entry(r).message), `${r}:0`, r));
  if (message.stopReason === 'aborted') body.append(el('p', { class: 'fault' }, 'Aborted'));
  else if (message.stopReason === 'error')
    body.append(el('p', { class: 'fault' }, `Error: ${str(message.errorMessage) || 'unknown'}`));
  else if (message.stopReason === 'length')
    body.append(el('p', { class: 'fault' }, 'Cut off: the answer reached the length limit'));
}

/**
 * @param {any} block
 * @param {string} key
 */
function thinkingBlock(block, key) {
  const text = str(block.thinking).trim() || (block.redacted === true ? '(withheld by the provider)' : '');
  return disclosure(`${key}:thinking`, view.thinking, 'Thinking', text, 'thinking');
}

/**
 * A text as Markdown; of one without end only the beginning, until the reader wants all of it.
 * @param {string} text
 * @param {string} key
 */
function prose(text, key) {
  if (text.length <= PROSE_LIMIT) {
    const whole = el('div', { class: 'md' }, markdown(text));
    levelHeadings(whole, 2);
    return inItsDirection(whole, text);
  }
  const open = view.isOpen(key + ':all', false, text);
  const node = el('div', { class: 'md' });
  if (open) for (const piece of inPieces(text)) node.append(el('div', { class: 'verbatim piece' }, piece));
  else node.append(markdown(text.slice(0, PROSE_PREVIEW)), el('p', { class: 'muted' }, '…'));
  node.append(moreButton(open, `Show all ${count(text.length, 'character')}`, key + ':all'));
  return node;
}

/**
 * Where there is text that runs from right to left, let lists and quotes begin on the side their text begins.
 * @param {HTMLElement} node
 * @param {string} text
 */
function inItsDirection(node, text) {
  if (/[\u0590-\u08ff]/.test(text))
    for (const block of node.querySelectorAll(/** @type {'ul'} */ ('ul, ol, blockquote, table'))) block.dir = 'auto';
  return node;
}

/**
 * Cut a text into pieces that a browser can lay out one by one, at the ends of lines where there are any.
 * @param {string} text
 */
function inPieces(text) {
  const pieces = [];
  for (let at = 0; at < text.length;) {
    const line = text.indexOf('\n', at + PROSE_PREVIEW);
    const to = line < 0 || line > at + 2 * PROSE_PREVIEW ? at + PROSE_PREVIEW : line + 1;
    pieces.push(text.slice(at, to));
    at = to;
  }
  return pieces;
}

/**
 * A text behind a line that opens it.
 * @param {string} key
 * @param {boolean} standard
 * @param {string} title
 * @param {string} text
 */
function disclosure(key, standard, title, text, style = 'folded') {
  const summary = el('summary', null, title, icon('chevron'));
  const details = el(
    'details',
    { class: style, open: view.isOpen(key, standard, text) },
    summary,
    prose(text, key + ':t'),
  );
  summary.addEventListener('click', () => view.remember(key, !details.open));
  return details;
}

/**
 * The card of a call and, inside it, of its result (null while none is known).
 * @param {Store} store
 * @param {any} call
 * @param {any} result
 * @param {string} key
 * @param {any} resultEntry
 */
function toolCard(store, call, result, key, resultEntry) {
  const card = new FoldedCard(str(call.name) || str(obj(result).toolName) || 'tool', 'cancelled', key);
  card.setArguments(call.arguments);
  card.paint();
  if (result) card.finish(result, result.isError === true);
  const end = store.ends.get(obj(obj(result).details).backgroundId);
  if (end) card.stand(end);
  if (resultEntry !== undefined) card.node.dataset.entry = resultEntry;
  return card.node;
}

/**
 * @param {HTMLElement} body
 * @param {any} message
 * @param {number} i
 */
function appendCommand(body, message, i) {
  const card = new FoldedCard('bash', 'done', String(i));
  card.setArguments({ command: message.command });
  card.paint();
  card.finishShell(message);
  if (message.excludeFromContext === true) card.output.append(el('p', { class: 'aside' }, 'Not sent to the model'));
  body.append(card.node);
}

/**
 * What this page has no shape for: its text if it has any, and the entry as it is.
 * @param {HTMLElement} body
 * @param {any} entry
 * @param {any} message
 * @param {number} i
 */
function appendOther(body, entry, message, i) {
  const text = textOf(message.content ?? entry.content) || str(entry.summary) || str(message.summary);
  if (text) body.append(prose(text, `${i}:t`));
  else {
    const lines = pretty(entry).split('\n');
    /** @param {any} shown */
    const draw = shown => el('pre', { tabindex: '0' }, el('code', null, highlight(shown.join('\n'), 'json')));
    body.append(folded(lines, 8, `${i}:out`, lines.join('\n'), draw));
  }
}

/**
 * What "copy text" gives: the text as it was written.
 * @param {any} entry
 */
function sourceText(entry) {
  const message = obj(entry.message);
  if (message.role === 'bashExecution') return `$ ${str(message.command)}\n${str(message.output)}`;
  return textOf(message.content ?? entry.content) || str(entry.summary) || pretty(message.content ?? entry);
}

/**
 * Everything of an entry that a search looks at.
 * @param {Store} store
 * @param {number} i
 */
export function searchText(store, i) {
  const entry = store.entry(i);
  const message = obj(entry.message);
  const parts = [
    store.label(i),
    message.role,
    message.toolName,
    message.command,
    message.output,
    message.errorMessage,
    entry.customType,
    message.customType,
    entry.summary,
    entry.provider,
    entry.modelId,
    entry.thinkingLevel,
    entry.name,
    textOf(message.content ?? entry.content),
  ];
  for (const block of list(message.content).map(obj)) {
    if (block.type === 'thinking') parts.push(block.thinking);
    else if (block.type === 'toolCall') parts.push(block.name, pretty(block.arguments));
  }
  return parts.filter(part => typeof part === 'string').join('\n');
}

const ROW_LIMIT = 100;
/** @param {string} text */
const rowLine = text => oneLine(text, ROW_LIMIT);
/** @param {string} text */
const rowWords = text => plainWords(text, ROW_LIMIT);

/**
 * The text of entry `i` in the tree: who, and the beginning of what.
 * @param {Store} store
 * @param {number} i
 */
export function rowText(store, i) {
  const entry = store.entry(i);
  const message = obj(entry.message);
  switch (store.kind[i]) {
    case KIND.USER: {
      const skill = readSkill(textOf(message.content));
      return skill ? ['user', `skill: ${skill.name}`] : ['user', rowWords(textOf(message.content)) || '(image)'];
    }
    case KIND.ASSISTANT:
      return ['assistant', answerRow(message)];
    case KIND.TOOL:
      return ['', toolRow(store, i, message)];
    case KIND.BASH:
      return ['[bash]', rowLine(str(message.command))];
    case KIND.COMPACTION:
      return ['', `[compaction: ${Math.round((Number(entry.tokensBefore) || 0) / 1000)}k tokens]`];
    case KIND.SUMMARY:
      return ['[branch summary]', rowWords(str(entry.summary))];
    case KIND.CUSTOM:
    case KIND.HIDDEN: {
      const type = rowLine(customType(entry, message)) || 'custom';
      return [`[${type}]`, rowWords(textOf(entry.content ?? message.content))];
    }
    case KIND.MODEL:
      return ['', `[model: ${modelName(entry.provider, entry.modelId)}]`];
    case KIND.LEVEL:
      return ['', `[thinking: ${rowLine(str(entry.thinkingLevel))}]`];
    case KIND.LABEL:
      return ['', `[label: ${rowLine(str(entry.label)) || 'cleared'}]`];
    case KIND.INFO:
      return ['', `[name: ${rowLine(str(entry.name)) || 'cleared'}]`];
    case KIND.STATE:
      return ['', `[${rowLine(str(entry.customType)) || 'custom'}]`];
    default:
      return ['', `[${rowLine(str(message.role) || str(entry.type)) || 'unknown'}]`];
  }
}

/** @param {AssistantMessage} message */
function answerRow(message) {
  if (message.stopReason === 'error') return `Error: ${rowLine(str(message.errorMessage))}`;
  const text = rowWords(textOf(message.content));
  if (message.stopReason === 'aborted') return text ? `(aborted) ${text}` : '(aborted)';
  return text || '(no text)';
}

/**
 * @param {Store} store
 * @param {number} i
 * @param {any} message
 */
function toolRow(store, i, message) {
  const from = store.call[i] >= 0 ? list(obj(store.entry(store.call[i]).message).content).map(obj) : [];
  const call = from.find(block => block.type === 'toolCall' && block.id === message.toolCallId);
  const name = str(message.toolName) || str(call?.name) || 'tool';
  const title = call ? rowLine(callTitle(name, obj(call.arguments))) : '';
  return title ? `[${name}: ${title}]` : `[${name}]`;
}
