"""A program with an agent in it: takes the arguments of `Agent.create` as JSON, and prints what it was told."""

import asyncio
import json
import sys
from typing import Any

import msgspec

from spindle import Agent
from tests.matrix.task import PROMPT, agrees


async def main(options: dict[str, Any]) -> None:
    questions: list[str] = []

    async def can_use_tool(name: str, arguments: dict[str, Any]) -> bool:
        questions.append(f"{name} {arguments}")
        return agrees(questions[-1])

    async with Agent.create(can_use_tool=can_use_tool, **options) as agent:
        result = await agent.run(PROMPT)
        changes = await agent.changes()
    told = {"result": result, "changes": changes, "questions": questions}
    sys.stdout.buffer.write(msgspec.json.encode(told))


asyncio.run(main(json.loads(sys.argv[1])))
