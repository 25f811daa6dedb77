// node build/examples/ask.js "What is here?": the answer as it comes, with the tools that were used.
import { startAgent } from '../src/child.js';

const [, , prompt = 'What is here?', ...args] = process.argv;
const agent = await startAgent({ command: (process.env['SPINDLE_COMMAND'] ?? 'spindle').split(' '), args });
for await (const event of agent.run(prompt)) {
  if (event.type === 'tool_execution_start') console.error(`[${event.toolName}]`);
  else if (event.type === 'message_update' && event.assistantMessageEvent.type === 'text_delta')
    process.stdout.write(event.assistantMessageEvent.delta);
}
process.stdout.write('\n');
await agent.close();
