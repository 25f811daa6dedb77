"""Answers the permission gate with the `pi-py-sdk` package. Prints what it saw as JSON."""

import asyncio
import json
import os

from pi_py_sdk import PiAgent, PiConfig


async def main() -> None:
    asked = []

    def decide(request):
        asked.append([request.method, request.title, request.message])
        return len(asked) == 2

    config = PiConfig(
        bin=os.environ["PI"], model="mock/m1", cwd=os.environ["WORK"], extra_args=["-e", os.environ["EXTENSION"]]
    )
    async with PiAgent(config=config) as agent:
        agent.on_ui_request(decide)
        await agent.prompt_and_wait("refuse this")
        refused = os.path.exists(os.path.join(os.environ["WORK"], "precious"))
        await agent.prompt_and_wait("allow this")
        allowed = not os.path.exists(os.path.join(os.environ["WORK"], "precious"))
    print(json.dumps({"asked": asked, "refused": refused, "allowed": allowed}))


asyncio.run(main())
