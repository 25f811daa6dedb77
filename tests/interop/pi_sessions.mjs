// Drives pi's own SessionManager: for each line, a list of steps, prints a line: the list of their results.
// A step is [method, ...arguments]; "open", "create", "continueRecent", "forkFrom" and "list" are static.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const { SessionManager } = await import(pathToFileURL(`${process.env.SPINDLE_TEST_PI}/dist/index.js`));
for await (const line of createInterface({ input: process.stdin })) {
  let manager;
  const results = [];
  for (const [method, ...given] of JSON.parse(line)) {
    // "@2" stands for the result of step 2.
    const args = given.map(arg => (/^@\d+$/.test(arg) ? results[Number(arg.slice(1))] : arg));
    if (['open', 'create', 'continueRecent', 'forkFrom'].includes(method)) {
      manager = SessionManager[method](...args);
      results.push(manager.getSessionFile());
    } else if (method === 'list') {
      results.push(await SessionManager.list(...args));
    } else {
      results.push(manager[method](...args) ?? null);
    }
  }
  process.stdout.write(JSON.stringify(results) + '\n');
}
