"""A session driven by the `pi-py-sdk` package. Prints what it saw as JSON."""

import asyncio
import json
import os

from pi_py_sdk import MessageUpdateEvent, PiAgent, PiConfig, message_text


async def main() -> None:
    deltas = []
    async with PiAgent(config=PiConfig(bin=os.environ["PI"], model="mock/m1", cwd=os.environ["WORK"])) as agent:
        async for event in agent.prompt_stream("use a tool"):
            piece = event.assistantMessageEvent if isinstance(event, MessageUpdateEvent) else None
            if piece is not None and piece.type == "text_delta":
                deltas.append(piece.delta)
        await agent.prompt_and_wait("again")
        seen = {
            "deltas": "".join(deltas),
            "messages": [message.role for message in await agent.get_messages()],
            "texts": [message_text(message) for message in await agent.get_messages()],
            "bash": (await agent.bash("echo from bash"))["output"],
            "last": await agent.get_last_assistant_text(),
            "stats": (await agent.get_session_stats())["assistantMessages"],
        }
    print(json.dumps(seen))


asyncio.run(main())
