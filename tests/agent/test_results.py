"""Results of tools that run together: saved as they end, shown in the order of the calls."""

import asyncio
import json
from pathlib import Path
from typing import Any

from spindle.sessions import open as sessions
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import Tool, ToolContext

from .rig import Rig, run, until_true


def waiting_tool(name: str, go: asyncio.Event | None) -> Tool:
    async def execute(call_id: str, args: Any, ctx: ToolContext) -> ToolResult:
        if go is not None:
            await go.wait()
        return ToolResult([Text(name)])

    return Tool(name, name, {"type": "object", "properties": {}}, execute)


def results_in(file: Path) -> list[str]:
    messages = [json.loads(line).get("message") or {} for line in file.read_text().splitlines()]
    return [message["toolName"] for message in messages if message.get("role") == "toolResult"]


def test_a_result_is_in_the_file_before_its_end_is_told(tmp_path):
    async def main():
        go = asyncio.Event()
        tools = [waiting_tool("slow", go), waiting_tool("quick", None)]
        steps = [{"calls": [{"name": "slow"}, {"name": "quick"}]}, "done"]
        async with Rig(tmp_path, steps, tools=tools, session=True) as rig:
            await rig.call("prompt", message="go")
            end = await rig.until("tool_execution_end")
            file = Path((await rig.data("get_state"))["sessionFile"])
            assert end["toolName"] == "quick" and results_in(file) == ["quick"]
            go.set()
            await rig.until("agent_settled")
            assert results_in(file) == ["quick", "slow"]
            told = [f["message"]["toolName"] for f in rig.of("message_end") if f["message"]["role"] == "toolResult"]
            assert told == ["slow", "quick"]
            for messages in ((await rig.data("get_messages"))["messages"], rig.script.requests[-1].messages):
                names = [getattr(m, "tool_name", None) or (isinstance(m, dict) and m.get("toolName")) for m in messages]
                assert [name for name in names if name] == ["slow", "quick"]
        with sessions.load(file, read_only=True) as session:
            names = [getattr(message, "tool_name", None) for message in session.context().messages]
            assert [name for name in names if name] == ["slow", "quick"]

    run(main())


def test_an_abort_keeps_the_results_that_were_told(tmp_path):
    async def main():
        tools = [waiting_tool("slow", asyncio.Event()), waiting_tool("quick", None)]
        steps = [{"calls": [{"name": "slow"}, {"name": "quick"}]}]
        async with Rig(tmp_path, steps, tools=tools, session=True) as rig:
            await rig.call("prompt", message="go")
            await rig.until("tool_execution_end")
            await rig.call("abort")
            file = Path((await rig.data("get_state"))["sessionFile"])
            await until_true(lambda: results_in(file) == ["quick", "slow"])
            assert [m["toolName"] for m in (await rig.data("get_messages"))["messages"] if "toolName" in m] == [
                "slow",
                "quick",
            ]

    run(main())
