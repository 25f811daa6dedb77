// A session driven by oh-my-pi's own RpcClient. It spawns `bun <cliPath>`, so it gets a small script that starts us.
const { RpcClient } = await import(process.env.OMP_PACKAGE + "/src/modes/rpc/rpc-client.ts");

const begun = Promise.withResolvers<void>();
const cancelled = Promise.withResolvers<void>();
const lend = {
  name: "lend",
  label: "Lend",
  description: "Lend something",
  parameters: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
  async execute(args: any, context: any) {
    if (args.n === 3) {
      context.signal.addEventListener("abort", () => cancelled.resolve());
      begun.resolve();
      return await new Promise(() => {});
    }
    context.sendUpdate("half");
    if (args.n === 2) throw new Error("out of paper");
    return { content: [{ type: "text", text: `lent ${args.n}` }], details: { n: args.n } };
  },
};
const { SHIM: cliPath, WORK: cwd } = process.env;
const client = new RpcClient({ cliPath, cwd, provider: "mock", model: "m1", env: process.env, customTools: [lend] });
const results: any[] = [];
let settled = 0;
client.onPromptResult((result: any) => results.push(result));
client.onSessionSettled(() => settled++);
await client.start();
const events = await client.promptAndWait("use the tool", undefined, 60000);
await client.promptAndWait("again", undefined, 60000);
const ends = events.filter((event: any) => event.type === "tool_execution_end");
const seen: any = {
  events: [...new Set(events.map((event: any) => event.type))],
  results: ends.map((end: any) => [end.toolCallId, end.isError, end.result.content[0].text]).sort(),
  last: await client.getLastAssistantText(),
  mode: (await client.getState()).interruptMode,
  prompt: (await client.getState()).systemPrompt?.length,
};
await client.prompt("take long");
await begun.promise;
await client.abort();
await cancelled.promise;
await client.promptAndWait("go on", undefined, 60000);
seen.after = await client.getLastAssistantText();
await client.waitForSettled(20000);
seen.statuses = results.map((result: any) => [result.agentInvoked, result.status, result.sessionSettled]);
seen.settled = settled;
const refused = async (request: Promise<unknown>) => await request.then(() => "accepted", (error: any) => error.message);
seen.refused = [
  await refused(client.setFastMode(true)),
  await refused(client.openSession(cwd!)),
  await refused(client.getMessagesPage({ limit: 1000 })),
];
const page = await client.getMessagesPage({ limit: 3 });
seen.page = [page.messages.length, page.totalMessages, typeof page.nextCursor];
seen.commands = (await client.getAvailableCommands()).map((command: any) => [command.name, command.source]);
seen.messages = (await client.getMessages()).map((message: any) => message.role);
seen.bash = (await client.bash("echo from bash")).output;
const points = await client.getBranchMessages();
seen.branch = (await client.branch(points[1].entryId)).text;
seen.tools = await client.setCustomTools([]);
seen.filter = await client.setEventFilter(["agent_end"]);
seen.filtered = (await client.promptAndWait("quiet", undefined, 60000)).map((event: any) => event.type);
await client.setEventFilter(null);
await client.promptAndWait("long", undefined, 60000);
seen.long = (await client.getLastAssistantText())?.length;
await client.promptAndWait("fail", undefined, 60000);
seen.failed = results.at(-1);
seen.level = await client.setSubagentSubscription("progress");
seen.subagents = (await client.getSubagents()).length;
seen.logins = (await client.getLoginProviders()).map((provider: any) => [provider.id, provider.authenticated]);
seen.unknown = await refused(client.getSubagentMessages({ subagentId: "nobody" }));
seen.login = await refused(client.login("nobody"));
client.stop();
console.log(JSON.stringify(seen));
process.exit(0);
