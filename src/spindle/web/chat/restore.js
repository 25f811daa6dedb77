// Taking back what was done to files, and with it the conversation. It is asked first what would be lost, and each time
// it can be taken back itself.

import { button } from '../shared/dom.js';
import { count } from '../shared/format.js';
import { confirm } from './confirm.js';

const NAMED = 8; // files, in a question

/**
 * Give files the state of a checkpoint, after asking; `what` as of the command. Returns its answer, or null. `then(answer)`
 * does what else belongs to it, and says whether the conversation has gone back: the way back leads there again, too.
 * @param {Session} session
 * @param {any} what
 * @param {{ title: string, words: string, yes: string, done: string, then?: (told: any) => Promise<boolean> }} fields
 */
export async function restore(session, what, { title, words, yes, done, then }) {
  const { id } = session;
  const standing = standingOf(session);
  const running = session.background.map(({ command }) => command);
  const still = running.length ? `These still run in the background, and may write:\n${few(running)}` : '';
  let asked = '';
  let isForced = false;
  for (let again = ''; ; again = 'Something has changed since you were asked.') {
    const { files, conflicts, notCovered } = await session.call('restore', { ...what, dryRun: true });
    const now = JSON.stringify([files, conflicts]);
    if (now === asked) break; // it would do what was agreed to
    asked = now;
    isForced = conflicts.length > 0 || still !== '';
    const question = [again, words, listed(files), warned(conflicts, 'Changed by others, which would be lost'), still];
    question.push(warned(notCovered, 'Stays as it is'));
    if (!(await confirm(title, question.filter(Boolean).join('\n\n'), yes)) || session.id !== id) return null;
  }
  const { runs } = standing;
  const told = await session.call('restore', { ...what, force: isForced || undefined });
  if (told.cancelled) throw new Error('Not done: an extension does not allow it');
  let { conversation } = what;
  try {
    if (then) conversation = (await then(told)) || undefined;
    await session.loaded?.catch(() => null); // with the conversation, the page has changed
    await session.updateEntries();
  } finally {
    if (session.id !== id) session.report(done, 'info');
    else if (standing.runs !== runs) session.report(`${done} The checkpoints have the state from before.`, 'info');
    else offerBack(session, told.checkpoint, conversation, done);
  }
  return told;
}

/** What is offered to each session now, and how many runs have begun. @type {WeakMap<Session, { offer: Element | null, runs: number }>} */
const standings = new WeakMap();

/** @param {Session} session */
function standingOf(session) {
  /** @type {{ offer: Element | null, runs: number }} */
  const standing = standings.get(session) ?? { offer: null, runs: 0 };
  if (standings.has(session)) return standing;
  standings.set(session, standing);
  session.on('agent_start', () => standing.runs++);
  for (const type of ['agent_start', 'reset']) session.on(type, () => standing.offer?.remove());
  return standing;
}

/**
 * Say what was done, and offer the way back: until the next run begins, and in this conversation only. What it would
 * overwrite is asked about, and it can be taken back like everything else.
 * @param {Session} session
 * @param {string | null | undefined} checkpoint
 * @param {any} conversation
 * @param {string} done
 */
function offerBack(session, checkpoint, conversation, done) {
  const standing = standingOf(session);
  standing.offer?.remove();
  const takeBack = () =>
    session.attempt(async () => {
      const words = 'Files get the state that they had before it.';
      const told = { title: 'Take that back?', words, yes: 'Take it back', done: 'It was taken back.' };
      await restore(session, { checkpoint, conversation }, told);
    });
  standing.offer = session.report(done, 'info', button('link', takeBack, 'Take that back'));
}

/** @param {ChangedFile[]} files */
function listed(files) {
  /** @param {ChangedFile} fields */
  const facts = ({ path, added, removed }) => `${path}  +${added ?? 0} −${removed ?? 0}`;
  return files.length ? few(files.map(facts)) : 'No file would change.';
}

/**
 * @param {any[]} files
 * @param {string} words
 */
const warned = (files, words) =>
  files.length ? `${words}:\n${few(files.map(({ path, why }) => `${path} (${why})`))}` : '';

/** @param {string[]} lines */
const few = lines =>
  [...lines.slice(0, NAMED), lines.length > NAMED ? `and ${count(lines.length - NAMED, 'more file')}` : '']
    .filter(Boolean)
    .join('\n');

/**
 * The state of files when this conversation began to write.
 * @param {Session} session
 */
export async function firstCheckpoint(session) {
  const { checkpoints } = await session.call('list_checkpoints');
  if (!checkpoints[0]?.isKept) throw new Error('The state from before is not kept any more');
  return checkpoints[0].id;
}

/**
 * Take back a message with all that was done for it and after it. Returns its text, to be edited; null if not.
 * @param {Session} session
 * @param {string} entryId
 */
export async function undoMessage(session, entryId) {
  const { checkpoints } = await session.call('list_checkpoints');
  const { byId } = session.entries;
  const order = byId.get(entryId)?.order ?? 0;
  const later = checkpoints.filter(
    one => one.onBranch && one.kind === 'turn' && (byId.get(one.entryId)?.order ?? -Infinity) > order,
  );
  const words = 'The conversation goes back to before this message. What you leave stays on a branch of its own.';
  if (!later.length) {
    const only = `${words} No file was changed since.`;
    return (await confirm('Undo this message?', only, 'Undo')) ? session.jump(entryId) : null;
  }
  const [{ id, promptId, isKept }] = later;
  if (!isKept) throw new Error('The files of that time are not kept any more. Edit the message to go on without them');
  const conversation = promptId === entryId || undefined;
  /** @type {string | null} */
  let text = null;
  await restore(
    session,
    { checkpoint: id, conversation },
    {
      title: 'Undo this message?',
      words,
      yes: 'Undo',
      done: 'The files are as they were before the message.',
      then: async told => {
        text = conversation ? (told.editorText ?? '') : await session.jump(entryId);
        return text !== null;
      },
    },
  );
  return text;
}
