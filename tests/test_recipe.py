"""The same files and options make the same agent on every wire: what the model is sent tells."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from tests.plugins.mcp.helpers import entry
from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply
from tests.wires.acp.editor_process import EditorProcess
from tests.wires.server.server import ServerProcess
from tests.wires.server.test_http import Http

Body = dict[str, Any]
EXTENSION = """
def extension(agent):
    agent.flag("colour", type=str, default="grey", help="What to paint with")

    def paint(thing: str) -> str:
        return "painted"

    paint.__doc__ = f"Paint a thing {agent.get_flag('colour')}."
    agent.tool(paint)
"""
SKILL = "---\nname: greeting\ndescription: How to greet people here.\n---\nSay hello.\n"


class House:
    """A home with an extension, an MCP server and a skill, and a project with a context file, for all wires."""

    def __init__(self, base: Path) -> None:
        self.base, self.work = base, base / "work"
        for path, text in {
            "agent/extensions/painter.py": EXTENSION,
            "agent/skills/greeting/SKILL.md": SKILL,
            "agent/mcp.json": json.dumps({"mcpServers": {"own": entry("--plain")}}),
            "work/AGENTS.md": "Never use tabs.\n",
            "work/more.json": json.dumps({"mcpServers": {"more": entry("--plain")}}),
        }.items():
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_text(text)

    def run(self, *arguments: str) -> Body:
        """Run the program to its end, and return the first request."""
        with MockModel() as mock:
            self.program(mock, *arguments)
            return mock.requests[0].body

    def program(self, mock: MockModel, *arguments: str) -> None:
        write_models(self.base / "agent", mock.openai_url)
        done = nursery.run(
            [sys.executable, "-m", "spindle", *arguments, "--model", "mock/m1"],
            cwd=self.work,
            env=agent_environment(self.base / "agent"),
            input="",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout

    def meet_servers(self) -> None:
        """Let an agent look for tools once: from then on it is known what the servers have, without starting them."""
        with MockModel([reply(call("tool_search", {"query": "echo"})), reply("ok")]) as mock:
            self.program(mock, "--no-session", "--mcp-config", "more.json", "-p", "hi")


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    for name, value in agent_environment(tmp_path / "agent").items():
        monkeypatch.setenv(name, value)
    house = House(tmp_path)
    house.meet_servers()
    return house


def printed(house: House, *options: str) -> Body:
    return house.run("--no-session", *options, "-p", "hi")


def in_process(house: House) -> Body:
    async def ask() -> None:
        more = {"more": entry("--plain")}
        async with await Agent.create(cwd=house.work, model="mock/m1", persist=False, mcp_servers=more) as agent:
            await agent.ask("hi")

    with MockModel() as mock:
        write_models(house.base / "agent", mock.openai_url)
        asyncio.run(ask())
        return mock.requests[0].body


def over_rpc(house: House, *options: str) -> Body:
    with AgentProcess(base=house.base, args=options) as agent:
        agent.run("hi")
        return agent.mock.requests[0].body


def over_http(house: House, *options: str) -> Body:
    with ServerProcess(base=house.base, args=options) as server:
        http = Http(server)
        http.post(f"/v1/sessions/{http.open()}/prompt", {"message": "hi", "wait": True})
        server.mock.wait_requests(1)
        return server.mock.requests[0].body


def in_editor(house: House, *options: str) -> Body:
    with EditorProcess(base=house.base, args=options) as editor:
        assert editor.stop_reason(editor.say(editor.new(), "hi")) == "end_turn"
        return editor.mock.requests[0].body


def in_batch(house: House, *options: str) -> Body:
    tasks = house.base / "tasks.jsonl"
    tasks.write_text(json.dumps({"prompt": "hi", "cwd": "work"}))
    return house.run("batch", str(tasks), "-o", str(house.base / "runs"), "--redo", "all", "--sandbox", "off", *options)


ON_THE_COMMAND_LINE: list[Callable[..., Body]] = [printed, over_rpc, over_http, in_editor, in_batch]
NOT_FOR_PROGRAMS = (printed, over_http, in_editor, in_batch)
"""Wires with the tools that programs have to ask for."""


def tools(body: Body) -> list[Body]:
    return sorted((tool["function"] for tool in body["tools"]), key=lambda tool: tool["name"])


def system_prompt(body: Body) -> str:
    return str(body["messages"][0]["content"])


def painter(body: Body) -> str:
    return next(str(tool["description"]) for tool in tools(body) if tool["name"] == "paint")


def without_background(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools as programs get them, which have to ask for commands in the background."""
    (bash,) = (tool for tool in tools if tool["name"] == "bash")
    bash["parameters"]["properties"].pop("background", None)
    return [tool for tool in tools if tool["name"] not in ("bash_output", "bash_kill")]


def test_every_wire_offers_the_model_the_same(house: House) -> None:
    expected = in_process(house)
    assert {"bash", "paint", "mcp__own__echo", "mcp__more__echo"} <= {tool["name"] for tool in tools(expected)}
    assert "Never use tabs." in system_prompt(expected) and "How to greet people" in system_prompt(expected)
    for wire in ON_THE_COMMAND_LINE:
        body = wire(house, "--mcp-config", "more.json")
        offered = [tool for tool in tools(body) if tool["name"] != "task"]
        assert (len(tools(body)) > len(offered)) is (wire in NOT_FOR_PROGRAMS), wire.__name__
        assert without_background(offered) == tools(expected), wire.__name__
        prompt, unattended, _ = system_prompt(body).partition("\n\n<unattended>\n")
        assert prompt == system_prompt(expected), wire.__name__
        assert bool(unattended) is (wire in (printed, in_batch)), wire.__name__


def test_options_of_extensions_and_without_servers(house: House) -> None:
    for wire in ON_THE_COMMAND_LINE:
        body = wire(house, "--colour=green", "--mcp-config=more.json", "--no-mcp")
        assert painter(body) == "Paint a thing green.", wire.__name__
        assert not any("mcp" in tool["name"] for tool in tools(body)), wire.__name__
