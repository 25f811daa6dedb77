import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StoredList } from '../../src/spindle/web/chat/stored-list.js';

const row = (number, modified = number) => ({
  id: `s${number}`,
  modified: new Date(modified * 1000).toISOString(),
  firstMessage: `question ${number}`,
});

/** A server with sessions; `asked` counts the rows that it has sent. */
function server(count) {
  const rows = Array.from({ length: count }, (_, number) => row(number));
  const sent = [];
  const call = async (command, { limit, cursor, changedSince = -1 }) => {
    const latest = rows.toSorted((a, b) => b.modified.localeCompare(a.modified));
    const start = cursor === undefined ? 0 : latest.findIndex(one => one.id === cursor) + 1;
    const wanted = latest.filter(one => Date.parse(one.modified) >= changedSince);
    const sessions = wanted.slice(start, start + limit);
    sent.push(sessions.length);
    const nextCursor = start + limit < wanted.length ? sessions.at(-1).id : undefined;
    return { sessions, nextCursor, asOf: Date.parse(latest[0].modified) };
  };
  return { rows, sent, call };
}

test('a page at first, and for one prompt no more than its row', async () => {
  const { rows, sent, call } = server(10_000);
  const list = new StoredList(call, false);
  await list.look();
  assert.equal(list.sessions.length, 100);
  assert.equal(list.sessions[0].id, 's9999');
  rows[7] = row(7, 20_000);
  await list.look();
  assert.deepEqual(sent, [100, 2]); // and the one that was the latest
  assert.deepEqual([list.sessions.length, list.sessions[0].id], [101, 's7']);
  await list.more();
  assert.deepEqual([list.sessions.length, list.sessions.at(-1).id], [201, 's9800']);
});

test('more than a page of changes begins the list again', async () => {
  const { rows, sent, call } = server(300);
  const list = new StoredList(call, true);
  await list.look();
  for (let number = 0; number < 150; number++) rows[number] = row(number, 1000 + number);
  await list.look();
  assert.deepEqual(sent, [100, 100, 100]);
  assert.equal(list.sessions[0].id, 's149');
  assert.equal(list.sessions.length, 100);
});

test('the last page has no further one', async () => {
  const { sent, call } = server(130);
  const list = new StoredList(call, false);
  await list.look();
  await list.more();
  await list.more();
  assert.deepEqual(sent, [100, 30]);
  assert.equal(list.sessions.length, 130);
  list.forget();
  await list.look();
  assert.equal(list.sessions.length, 100);
});

test('further prompts in the latest one cost one row each', async () => {
  const { rows, sent, call } = server(10_000);
  const list = new StoredList(call, false);
  await list.look();
  for (let prompt = 1; prompt < 4; prompt++) {
    rows[9_999] = row(9_999, 10_000 + prompt);
    await list.look();
  }
  assert.deepEqual(sent, [100, 1, 1, 1]);
});
