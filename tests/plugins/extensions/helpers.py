"""What the tests of extensions share."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from spindle.plugins.extensions.discover import find_extensions
from spindle.plugins.extensions.generation import Generation
from spindle.plugins.extensions.handlers import ExtensionHooks
from spindle.plugins.extensions.loader import LoadFailure, load_extensions
from spindle.resources.sources import Source
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

__all__ = [
    "BASH",
    "EXAMPLES",
    "GATE",
    "answer",
    "command",
    "dialog",
    "load_places",
    "notices",
    "place",
    "result",
    "run",
    "start",
    "write",
]

T = TypeVar("T")
EXAMPLES = Path(__file__).parents[3] / "examples" / "extensions"
BASH = reply(call("bash", {"command": "touch made && echo ran"}), finish="toolUse")
GATE = """
def extension(agent):
    @agent.on("tool_call", tool="bash"{timeout})
    async def gate(event, ctx):
        if not await ctx.ui.confirm("Run?", event.input["command"]{limit}):
            return agent.block("The user said no")
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def write(path: Path, source: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


# -- loading, without an agent ------------------------------------------------------------------------


def place(path: Path, **options: Any) -> Source:
    return Source(path, options.pop("source", "auto"), "user", **options)


async def load_places(
    *places: Source, before: Generation | None = None
) -> tuple[Generation, list[LoadFailure], list[Path]]:
    generation = Generation()
    candidates, foreign = find_extensions(places, Path("/nowhere"))
    failures = await load_extensions(candidates, ExtensionHooks(generation), before=before and before.extensions)
    return generation, failures, foreign


# -- the real process ---------------------------------------------------------------------------------


def start(tmp_path: Path, source: str, steps: Any = (), *, args: Any = (), **options: Any) -> AgentProcess:
    """Start an agent with an extension of this source."""
    file = write(tmp_path / "ext.py", source)
    return AgentProcess(list(steps), args=["-e", str(file), *args], **options)


def result(agent: AgentProcess, call_id: str = "call_1") -> dict[str, Any]:
    """Return the result message of a tool call."""
    found = [
        f["message"] for f in agent.frames if f["type"] == "message_end" and f["message"].get("toolCallId") == call_id
    ]
    return found[-1]


def dialog(agent: AgentProcess, method: str) -> dict[str, Any]:
    """Wait for the next request to the user of this kind."""
    return agent.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == method)


def answer(agent: AgentProcess, request: dict[str, Any], **fields: Any) -> None:
    """Answer a dialog as a client does: no response follows."""
    agent.send("extension_ui_response", id=request["id"], **fields)


def notices(agent: AgentProcess) -> list[str]:
    """Return what was shown so far."""
    return [f["message"] for f in agent.frames if f["type"] == "extension_ui_request" and f["method"] == "notify"]


def command(agent: AgentProcess, line: str) -> str:
    """Run a command that shows a notice, and return that: the command itself is answered before it runs."""
    assert agent.data("prompt", message=line) == {"disposition": "handled"}
    return str(dialog(agent, "notify")["message"])
