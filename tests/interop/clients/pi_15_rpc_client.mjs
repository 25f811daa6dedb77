// Every method of the RpcClient of pi 1.5. It spawns `node <cliPath>`, so it gets a small script that starts us.
const { RpcClient } = await import(process.env.PI_PACKAGE + '/dist/modes/rpc/rpc-client.js');

const client = new RpcClient({
  cliPath: process.env.SHIM,
  cwd: process.env.WORK,
  provider: 'mock',
  model: 'm1',
  env: process.env,
});
const refused = request =>
  request.then(
    () => 'accepted',
    error => error.message,
  );
const told = [];
await client.start();
client.onEvent(event => told.push(event));
const events = await client.promptAndWait('use a tool', undefined, 60000);
await client.promptAndWait('again', undefined, 60000);
const { leafId, entries } = await client.getEntries();
const seen = {
  events: [...new Set(events.map(event => event.type))].sort(),
  keys: Object.keys(events.find(event => event.type === 'message_update')).sort(),
  text: events
    .filter(event => event.assistantMessageEvent?.type === 'text_delta')
    .map(event => event.assistantMessageEvent.delta)
    .join(''),
  last: await client.getLastAssistantText(),
  messages: (await client.getMessages()).map(message => message.role),
  entries: entries.filter(entry => entry.type === 'message').length,
  since: (await client.getEntries(leafId)).entries.length,
  tree: (await client.getTree()).leafId === leafId,
  state: Object.keys(await client.getState()).sort(),
  bash: (await client.bash('echo from bash')).output,
  models: (await client.getAvailableModels()).map(model => model.id),
  levels: await client.getAvailableThinkingLevels(),
  level: (await client.cycleThinkingLevel()).level,
  stats: (await client.getSessionStats()).assistantMessages,
  commands: (await client.getCommands()).map(command => [command.name, Object.keys(command).sort().join()]),
  queue: await client.clearQueue(),
  page: (await client.exportHtml(process.env.WORK + '/page.html')).path,
};
const idle = client.waitForIdle(60000);
seen.disposition = await client.prompt('once more');
await idle;
await client.setThinkingLevel('low');
await client.setSteeringMode('all');
await client.setFollowUpMode('one-at-a-time');
await client.setAutoCompaction(false);
await client.setAutoRetry(false);
await client.abortRetry();
await client.abortBash();
await client.abort();
await client.setSessionName('interop');
const held = client.promptAndWait('hold', undefined, 60000);
await client.steer('steered').catch(() => {});
await client.followUp('later').catch(() => {});
await held;
seen.compacted = Object.keys(await client.compact('briefly')).sort();
const forks = await client.getForkMessages();
seen.forks = forks.length;
seen.fork = (await client.fork(forks[0].entryId)).text;
seen.cloned = await refused(client.clone());
seen.set = (await client.setModel('mock', 'm2')).id;
seen.cycled = (await client.cycleModel()).model.id;
seen.wrong = await refused(client.setModel('mock', 'nobody'));
const file = (await client.getState()).sessionFile;
seen.fresh = [(await client.newSession()).cancelled, (await client.switchSession(file)).cancelled];
seen.told = [...new Set(told.map(event => event.type))].sort();
await client.stop();
console.log(JSON.stringify(seen));
