// Drives pi's own SessionManager: reads a list of steps from stdin, prints the list of their results.
// A step is [method, ...arguments]; "open", "create", "continueRecent", "forkFrom" and "list" are static.
import { pathToFileURL } from "node:url";

const { SessionManager } = await import(pathToFileURL(`${process.env.SPINDLE_TEST_PI}/dist/index.js`));
let input = "";
for await (const piece of process.stdin) input += piece;

let manager;
const results = [];
for (const [method, ...given] of JSON.parse(input)) {
  // "@2" stands for the result of step 2.
  const args = given.map((arg) => (/^@\d+$/.test(arg) ? results[Number(arg.slice(1))] : arg));
  if (["open", "create", "continueRecent", "forkFrom"].includes(method)) {
    manager = SessionManager[method](...args);
    results.push(manager.getSessionFile());
  } else if (method === "list") {
    results.push(await SessionManager.list(...args));
  } else {
    results.push(manager[method](...args) ?? null);
  }
}
process.stdout.write(JSON.stringify(results));
