"""Two agents in one process: nothing that an extension brings to one reaches the other."""

import asyncio
import time

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.testing import Pause, Script

from .helpers import run, write


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))


def bringing(name, log):
    """Return an extension with one of everything, named after its agent."""

    def extension(agent):
        agent.command(f"go-{name}")(lambda args, ctx: log.append((name, "command", args)))
        agent.flag(f"flag-{name}")
        agent.on("input", lambda event, ctx: agent.transform(f"{event.text} ({name})"))
        agent.on("agent_settled", lambda event, ctx: log.append((name, "settled", ctx.model.id)))
        agent.on("session_shutdown", lambda event, ctx: log.append((name, event.type, event.reason)))
        agent.events.on("news", lambda data: log.append((name, "news", data)))

        async def stream(model, request, options):
            yield f"this is {name}"

        settings = {"api": "shared-name", "base_url": "http://127.0.0.1:1", "api_key": "k"}
        agent.provider("shared", stream=stream, models=[{"id": f"m-{name}"}], **settings)

        @agent.tool(name=f"tool_{name}")
        def tool():
            """Do nothing."""

        @agent.tool(name="bash")
        def bash(command: str):
            """Pretend."""
            return f"{name} ran {command}"

    return extension


def names(agent):
    session = agent.session
    return [tool.name for tool in session.toolbox.active_tools()], [item.name for item in session.commands()]


def test_finished_waits_for_events_that_are_on_their_way(tmp_path):
    seen = []

    def extension(agent):
        @agent.on("agent_settled")
        def slow(event, ctx):
            time.sleep(0.2)
            seen.append(event.type)

    async def main():
        async with await Agent.create(
            cwd=tmp_path, model=Script(["ok"]).model(), persist=False, extensions=[extension]
        ) as agent:
            assert await agent.ask("hello") == "ok"
            assert not seen
            await agent.session.finished()
            assert seen == ["agent_settled"]

    run(main())


def test_hooks_tools_providers_and_commands_stay_where_they_are(tmp_path):
    log = []

    async def main():
        async with (
            await Agent.create(cwd=tmp_path, model="shared/m-a", persist=False, extensions=[bringing("a", log)]) as a,
            await Agent.create(cwd=tmp_path, model="shared/m-b", persist=False, extensions=[bringing("b", log)]) as b,
            await Agent.create(cwd=tmp_path, model=Script(["plain"]).model(), persist=False) as plain,
        ):
            answers = await asyncio.gather(*(agent.ask("hello") for agent in (a, b, plain)))
            assert answers == ["this is a", "this is b", "plain"]
            for agent, text in ((a, "hello (a)"), (b, "hello (b)"), (plain, "hello")):
                assert agent.session.conversation.user_messages()[0][1] == text
            own = ["read", "bash", "edit", "write"]
            assert names(a) == ([*own, "tool_a"], ["go-a"])
            assert names(b) == ([*own, "tool_b"], ["go-b"])
            assert names(plain) == (own, [])
            shared = [[m.id for m in agent.session.resources.registry.all("shared")] for agent in (a, b, plain)]
            assert shared == [["m-a"], ["m-b"], []]
            # A command of the other is just text here.
            assert await a.ask("/go-b x") == "this is a"
            assert await a.ask("/go-a x") == ""
            await asyncio.gather(a.session.finished(), b.session.finished())
            assert sorted(log) == [
                ("a", "command", "x"),
                ("a", "settled", "m-a"),
                ("a", "settled", "m-a"),
                ("b", "settled", "m-b"),
            ]
            log.clear()
            await b.session.new_session()
            assert log == [("b", "session_shutdown", "new")]
            await b.close()
            assert log == [("b", "session_shutdown", "new"), ("b", "session_shutdown", "quit")]
            assert await a.ask("still there?") == "this is a"
            log.clear()
        assert ("a", "session_shutdown", "quit") in log
        with pytest.raises(AgentError):
            await Agent.create(cwd=tmp_path, model="shared/m-a", persist=False)

    run(main())


def test_one_file_in_two_agents_is_two_modules(tmp_path):
    source = """
seen = []

def extension(agent):
    agent.on("input", lambda event, ctx: seen.append(event.text))
    agent.command("seen")(lambda args, ctx: agent.append_entry("seen", list(seen)))
"""
    file = str(write(tmp_path / "ext.py", source))

    async def main():
        made = [
            await Agent.create(cwd=tmp_path, model=Script(["x"]).model(), persist=False, extensions=[file])
            for _ in range(2)
        ]
        for number, agent in enumerate(made):
            await agent.ask(f"prompt {number}")
            await agent.ask("/seen")
        kept = [
            entry.value["data"] for agent in made for entry in agent.session.session.entries if entry.type == "custom"
        ]
        assert kept == [["prompt 0"], ["prompt 1"]]
        for agent in made:
            await agent.close()

    run(main())


def test_an_abort_of_one_does_not_stop_a_handler_of_the_other(tmp_path):
    hanging, go = asyncio.Event(), asyncio.Event()

    def patient(agent):
        @agent.on("before_agent_start")
        async def wait(event, ctx):
            hanging.set()
            await go.wait()
            return {"systemPrompt": "waited"}

    async def main():
        script, other = Script(["one"]), Script([{"text": ["x", Pause(gate="never")]}])
        async with (
            await Agent.create(cwd=tmp_path, model=script.model(), persist=False, extensions=[patient]) as a,
            await Agent.create(cwd=tmp_path, model=other.model(), persist=False, extensions=[lambda agent: None]) as b,
        ):
            first = asyncio.create_task(a.ask("hello"))
            second = asyncio.create_task(b.ask("hello"))
            await hanging.wait()
            await other.reached("never")
            await b.abort()
            with pytest.raises(AgentError):
                await second
            go.set()
            assert await first == "one"
            assert script.requests[0].system_prompt == "waited"

    run(main())
