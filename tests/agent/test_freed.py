"""A closed agent is freed at once, without the garbage collector."""

import asyncio
import gc
import json
import os
import time
import weakref
from pathlib import Path
from typing import Any, cast

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.sessions.entries import SessionError
from spindle.testing import Pause, Script
from spindle.tools.base import Tool, text_result
from tests.plugins.mcp.helpers import entry, running

from .rig import run


@pytest.fixture(autouse=True)
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def home(home):
    """With settings by which any conversation is long enough for a compaction."""
    agent_dir = Path(os.environ["SPINDLE_DIR"])
    agent_dir.mkdir()
    (agent_dir / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1}}))
    return home


class Freed:
    """Parts of agents that have to go."""

    def __init__(self):
        self._parts = []

    def watch(self, agent):
        session = agent.session
        parts = (session, session._engine, session.conversation, session.session, *session.hooks._members)
        self._parts += [(type(part).__name__, weakref.ref(part)) for part in parts]

    async def check(self):
        # Callbacks of tasks that have just ended hold them for a turn; a thread that has told the loop of its end may
        # not have returned yet. What only the collector could free stays for ever.
        end = time.monotonic() + 10
        while left := [name for name, part in self._parts if part() is not None]:
            assert time.monotonic() < end, left
            await asyncio.sleep(0.005)


def asking_for(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def extension(agent):
    @agent.on("tool_call")
    async def look(event, ctx):
        assert ctx.cwd and agent.path

    @agent.on("agent_end")
    def ended(event, ctx):
        agent.append_entry("seen", {"at": ctx.session.leaf_id})

    @agent.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @agent.command("again")
    async def again(args, ctx):
        await ctx.new_session()


def check_freed(live):
    """Check that nothing is left of the agents that `live` watches, once it has returned."""

    async def main():
        freed = Freed()
        await live(freed)
        await freed.check()

    run(main())


def test_after_a_long_life(home):
    """With an extension, an MCP server, calls of all kinds of tools, a compaction and changes of session."""

    async def live(freed):
        async with running() as server:
            await server.connected()  # its tools are known from here on
        steps = [
            asking_for("bash", command="echo hi"),
            asking_for("add", a=1, b=2),
            asking_for("mcp__fake__echo", text="hi"),
            "done",
            "a summary",
            "in the other session",
        ]
        agent = await Agent.create(
            cwd=home, model=Script(steps).model(), extensions=[extension], mcp_servers={"fake": entry()}
        )
        freed.watch(agent)
        assert await agent.ask("go") == "done"
        results = [message.content[0].text for message in agent.messages if message.role == "toolResult"]
        assert results == ["hi\n", "3", "echo: hi"]
        assert "a summary" in (await agent.session.compact()).summary
        assert await agent.session.new_session() is False
        freed.watch(agent)
        assert await agent.ask("and here?") == "in the other session"
        await agent.ask("/again")
        await agent.session.shell.run("echo of the user")
        freed.watch(agent)
        await agent.close()

    check_freed(live)


async def wait_for_ever():
    await asyncio.Event().wait()


@pytest.mark.parametrize("end", ["aborted", "closed"])
@pytest.mark.parametrize("work", ["writes", "runs a tool", "waits for an extension"])
def test_when_a_run_is_stopped(home, work, end):
    async def live(freed):
        script, reached = Script([{"text": ["one", Pause(gate="never")]}]), asyncio.Event()
        if work != "writes":
            script = Script([asking_for("look")])

        async def look(call_id, arguments, ctx):
            if work == "runs a tool":
                reached.set()
                await wait_for_ever()
            return text_result("nothing")

        def extension(agent):
            @agent.on("tool_result")
            async def slow(event, ctx):
                reached.set()
                await asyncio.sleep(60)

        tool = Tool("look", "Look around.", {"type": "object"}, look)
        agent = await Agent.create(cwd=home, model=script.model(), tools=[tool], extensions=[extension])
        freed.watch(agent)
        await agent.session.submit("go")
        await (script.reached("never") if work == "writes" else reached.wait())
        if end == "aborted":
            await agent.abort()
        await agent.close()

    check_freed(live)


def test_with_a_prompt_that_waits_for_a_change(home):
    async def live(freed):
        agent = await Agent.create(cwd=home, model=Script(["never said"]).model())
        freed.watch(agent)
        change = asyncio.create_task(agent.session.new_session())
        await asyncio.sleep(0)
        waits = await agent.session.submit("for the other session")
        assert waits.disposition == "queued"
        await agent.close()
        await asyncio.gather(change, return_exceptions=True)
        with pytest.raises(AgentError, match="The session has ended"):
            await waits.result()

    check_freed(live)


def test_after_failures(home):
    """Exceptions know the frames they came through."""

    def broken(agent):
        @agent.on("agent_start")
        def fail(event, ctx):
            raise ValueError("no luck")

    async def no_luck(call_id, arguments, ctx):
        raise RuntimeError("no luck")

    async def live(freed):
        async with running() as server:
            await server.connected()
        fails = Tool("fails", "Fail.", {"type": "object"}, no_luck)
        steps = [asking_for("fails"), asking_for("mcp__fake__crash"), "done", {"error": "no such model"}]
        agent = await Agent.create(
            cwd=home,
            model=Script(steps).model(),
            tools=[fails, "mcp__fake__crash"],
            extensions=[broken],
            mcp_servers={"fake": entry()},
        )
        freed.watch(agent)
        assert await agent.ask("go") == "done"
        with pytest.raises(AgentError):
            await agent.session.fork("nothing")
        with pytest.raises(SessionError):
            await agent.session.switch_session(str(home))
        with pytest.raises(AgentError, match="no such model"):
            await agent.session.compact()
        await agent.close()

    check_freed(live)


def test_though_another_agent_uses_the_same_server(home):
    """The server is started again for the other one, by what the first has left it."""

    async def first(freed):
        agent = await Agent.create(cwd=home, model=Script(["hi"]).model(), mcp_servers={"fake": entry()})
        freed.watch(agent)
        await agent.ask("hi")
        return agent

    async def main():
        async with running() as server:
            await server.connected()
        freed = Freed()
        agent = await first(freed)
        script = Script([asking_for("mcp__fake__crash"), asking_for("mcp__fake__echo", text="again"), "done"])
        async with await Agent.create(cwd=home, model=script.model(), mcp_servers={"fake": entry()}) as other:
            servers = [cast(Any, one).session.mcp_servers._servers for one in (agent, other)]
            assert servers[0] == servers[1]
            await agent.close()
            agent = None
            await freed.check()
            assert await other.ask("go") == "done"
            assert other.messages[-2].content[0].text == "echo: again"

    run(main())


def test_though_a_command_left_a_process_running(home):
    (Path(os.environ["SPINDLE_DIR"]) / "settings.json").write_text(json.dumps({"keepBackgroundProcesses": True}))

    async def live(freed):
        script = Script([asking_for("bash", command="sleep 60 >/dev/null 2>&1 & echo $!"), "done"])
        agent = await Agent.create(cwd=home, model=script.model())
        freed.watch(agent)
        await agent.ask("go")
        pid = int(agent.messages[-2].content[0].text)
        await agent.close()
        return pid

    async def main():
        freed = Freed()
        pid = await live(freed)
        try:
            os.kill(pid, 0)
            await freed.check()
        finally:
            os.kill(pid, 9)

    run(main())
