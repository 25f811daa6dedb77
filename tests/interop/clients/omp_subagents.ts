// Subagents, and the methods that the other session of oh-my-pi's client does not call.
const { RpcClient } = await import(process.env.OMP_PACKAGE + '/src/modes/rpc/rpc-client.ts');

const { SHIM: cliPath, WORK: cwd } = process.env;
const args = ['--tools', 'read,bash,task'];
const client = new RpcClient({ cliPath, cwd, provider: 'mock', model: 'm1', env: process.env, args });
const told: any = { lifecycle: [], progress: [], events: new Set(), commands: 0 };
client.onSubagentLifecycle((step: any) => told.lifecycle.push(step));
client.onSubagentProgress((step: any) => told.progress.push(step.progress));
client.onSubagentEvent((step: any) => told.events.add(step.event.type));
client.onAvailableCommandsUpdate(() => told.commands++);
await client.start();
const seen: any = { level: await client.setSubagentSubscription('events') };
await client.promptAndWait('go', undefined, 60000);
const [{ id, sessionFile, agent, agentSource }] = told.lifecycle;
const read = await client.getSubagentMessages({ sessionFile });
const rest = await client.getSubagentMessages({ subagentId: id, fromByte: read.nextByte });
seen.read = [read.messages.map((message: any) => message.role), rest.messages.length, rest.reset];
seen.statuses = told.lifecycle.map((step: any) => step.status);
seen.agent = [agent, agentSource];
seen.progress = told.progress.at(-1).requests;
seen.events = [...told.events].sort();
seen.commands = told.commands;
seen.levels = await client.getAvailableThinkingLevels();
await client.setThinkingLevel('low');
seen.cycled = (await client.cycleThinkingLevel()).level;
await client.setSteeringMode('all');
await client.setFollowUpMode('all');
await client.setAutoCompaction(true);
await client.setAutoRetry(true);
await client.abortRetry();
await client.abortBash();
seen.entries = Object.keys(await client.getEntries()).sort();
seen.tree = Object.keys(await client.getTree()).sort();
seen.handoff = await client.handoff('be brief');
seen.compact = await client.compact().then(
  () => 'done',
  (error: any) => [error.message, error.code],
);
seen.page = (await client.exportHtml(cwd + '/page.html')).path.endsWith('page.html');
seen.stats = (await client.getSessionStats()).toolCalls;
seen.set = [(await client.setModel('mock', 'm2')).id, (await client.cycleModel()).model.id];
seen.fresh = (await client.newSession()).cancelled;
await client.abortAndPrompt('again');
await client.waitForSettled(20000);
seen.last = await client.getLastAssistantText();
client.stop();
console.log(JSON.stringify(seen));
process.exit(0);
