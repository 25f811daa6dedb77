"""What the tool tests share: calling a tool the way the loop does, and reading what came back."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from spindle.shapes.codec import encode
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.shapes.model import Model
from spindle.tools.base import Tool, ToolContext, ToolError, builtin_tools
from spindle.tools.validate import validate_arguments
from spindle.workspace.pipe import Pipe
from spindle.workspace.settings import ToolSettings

__all__ = ["Run", "call", "details_of", "golden", "refusal", "run", "text_of", "until", "wire"]

T = TypeVar("T")

far: Pipe | None = None
"""Leads to the far side that calls go to; None: they work here. `conftest.py` sets it."""
_shared = asyncio.Runner()
"""For calls that go elsewhere: the pipe belongs to one loop."""


def far_side(spool_folder: Path) -> Pipe:
    """Open a pipe to a shell of this machine, which stands in for another one: it sees the same files."""
    pipe = Pipe("env", os.environ | {"TMPDIR": str(spool_folder), "PATH": os.defpath})
    _shared.run(pipe.open())
    return pipe


def close(pipe: Pipe) -> None:
    _shared.run(pipe.close())


_GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> list[Any]:
    return [json.loads(line) for line in (_GOLDEN / f"{name}-0.87.1.jsonl").read_text("utf-8").splitlines()]


class Run:
    """One call of a built-in tool: its task, and the progress it told of."""

    def __init__(
        self,
        name: str,
        cwd: Path | str,
        args: Any,
        *,
        settings: ToolSettings | None = None,
        env: dict[str, str] | None = None,
        model: Model | None = None,
    ) -> None:
        tool: Tool = builtin_tools()[name]
        self.updates: list[ToolResult] = []
        self.times: list[float] = []
        """When each update came."""
        there = replace(settings or ToolSettings(), far=far)
        context = ToolContext(str(cwd), self._update, model, env or {}, there)
        prepared = tool.prepare(args) if tool.prepare else args

        async def call() -> ToolResult:
            return await tool.execute("call-1", await validate_arguments(name, tool.parameters, prepared), context)

        self.task: asyncio.Future[ToolResult] = asyncio.ensure_future(call())

    def _update(self, result: ToolResult) -> None:
        self.updates.append(result)
        self.times.append(time.monotonic())

    async def refusal(self) -> str:
        """Wait for the failure and return its text."""
        try:
            result = await self.task
        except ToolError as error:
            return str(error)
        raise AssertionError(f"should have failed, but gave {result}")


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async test body."""
    return asyncio.run(work()) if far is None else _shared.run(work())


def call(name: str, cwd: Path | str, /, **args: Any) -> ToolResult:
    """Call a tool and return its result."""

    async def main() -> ToolResult:
        return await Run(name, cwd, args).task

    return run(main)


def refusal(name: str, cwd: Path | str, /, **args: Any) -> str:
    """Call a tool that must fail and return the text."""

    async def main() -> str:
        return await Run(name, cwd, args).refusal()

    return run(main)


def text_of(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, Text)
    return block.text


def wire(value: Any) -> Any:
    """Return the value as a client sees it."""
    return json.loads(encode(value))


def details_of(result: ToolResult) -> Any:
    return wire(result).get("details")


async def until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    """Wait for something that happens outside of the event loop."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 -- nothing out there sets an event of ours
            await asyncio.sleep(0.005)
