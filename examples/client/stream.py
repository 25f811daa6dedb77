"""Show an answer while it is being written, and what the agent does for it.

python examples/client/stream.py                                  # the spindle command
python examples/client/stream.py some-agent --mode rpc            # any other agent that speaks the protocol
"""

import asyncio
import sys

from spindle.client import RpcClient

COMMAND = sys.argv[1:] or ["spindle", "--mode", "rpc", "--no-session"]


async def main() -> None:
    # Delta updates carry only what is new: enough to print, and small for long answers.
    async with RpcClient(COMMAND, updates="delta") as agent:
        async for event in agent.run("Which files are in this directory, and what are they for?"):
            if event.type == "tool_execution_start":
                print(f"\n[{event['toolName']} {event['args']}]")
            else:
                print(event.text_delta, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main())
