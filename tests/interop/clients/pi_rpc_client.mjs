// A session driven by pi's own RpcClient. It spawns `node <cliPath>`, so it gets a small script that starts us.
const { RpcClient } = await import(process.env.PI_PACKAGE + '/dist/modes/rpc/rpc-client.js');

const client = new RpcClient({
  cliPath: process.env.SHIM,
  cwd: process.env.WORK,
  provider: 'mock',
  model: 'm1',
  env: process.env,
});
await client.start();
const events = await client.promptAndWait('use a tool', undefined, 60000);
await client.promptAndWait('again', undefined, 60000);
const state = await client.getState();
const seen = {
  events: [...new Set(events.map(event => event.type))].sort(),
  last: await client.getLastAssistantText(),
  messages: (await client.getMessages()).map(message => message.role),
  bash: (await client.bash('echo from bash')).output,
  models: (await client.getAvailableModels()).length,
  cycled: (await client.cycleModel()).model.id,
  level: state.thinkingLevel,
  stats: (await client.getSessionStats()).assistantMessages,
};
await client.setSessionName('interop');
const forks = await client.getForkMessages();
seen.fork = (await client.fork(forks[forks.length - 1].entryId)).text;
seen.cloned = (await client.clone()).cancelled;
seen.commands = (await client.getCommands()).length;
await client.stop();
console.log(JSON.stringify(seen));
