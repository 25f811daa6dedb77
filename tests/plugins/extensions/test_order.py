"""Extensions see events in the order in which they happened, also those that nothing waits for."""

import asyncio
import subprocess
import sys

import pytest

from spindle import Agent
from spindle.base import limits
from spindle.plugins.extensions.handlers import Backlog
from spindle.shapes.events import ToolExecutionUpdate, ToolResult
from spindle.testing import Script
from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, reply

from .helpers import command, run, write


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def logger(log, *events):
    """Return an extension that notes these events."""

    def extension(agent):
        for name in events:
            agent.on(name, lambda event, ctx: log.append(event.type))

    return extension


# -- in a process -------------------------------------------------------------------------------------

SLOW = """
import asyncio

def extension(agent):
    @agent.on("agent_settled")
    async def settled(event, ctx):
        await asyncio.sleep(0.3)
"""
LOG = """
def extension(agent):
    def log(event, ctx):
        with open({log!r}, "a") as file:
            file.write(event.type + "\\n")
    for name in {events!r}:
        agent.on(name, log)

    @agent.command("note")
    def note(args, ctx):
        log(type("Event", (), {{"type": "command"}}), ctx)
        ctx.ui.notify("noted")
"""


def test_what_a_client_does_after_the_end_comes_after_it_for_extensions_too(tmp_path):
    slow = write(tmp_path / "slow.py", SLOW)
    events = ["agent_settled", "session_before_fork", "session_before_switch", "user_bash", "input"]
    log = write(tmp_path / "log.py", LOG.format(log=str(tmp_path / "log"), events=events))
    with AgentProcess([reply("a"), reply("b")], args=["-e", str(slow), "-e", str(log)], session=True) as agent:
        agent.run("one")
        agent.data("bash", command="true")
        agent.run("two")
        assert command(agent, "/note") == "noted"
        entry = agent.data("get_fork_messages")["messages"][0]["entryId"]
        agent.data("fork", entryId=entry)
        agent.data("new_session")
    assert (tmp_path / "log").read_text().split() == [
        "input",
        "agent_settled",
        "user_bash",
        "input",
        "agent_settled",
        "command",
        "session_before_fork",
        "session_before_switch",
    ]


@pytest.mark.parametrize("ending", ["new_session", "stdin"])
def test_the_end_of_a_run_is_told_before_a_session_is_left(tmp_path, ending):
    slow = write(tmp_path / "slow.py", SLOW)
    log = write(tmp_path / "log.py", LOG.format(log=str(tmp_path / "log"), events=["agent_settled"]))
    with AgentProcess([reply("a")], args=["-e", str(slow), "-e", str(log)]) as agent:
        agent.run("one")
        if ending == "stdin":
            assert agent.close_stdin() == 0
        else:
            agent.data("new_session")
        assert (tmp_path / "log").read_text() == "agent_settled\n"
        assert not [frame for frame in agent.frames if frame["type"] == "extension_error"]


def one_shot(tmp_path, source, steps, *messages):
    file = write(tmp_path / "ext.py", source)
    (tmp_path / "work").mkdir()
    with MockModel(steps) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        argv = [sys.executable, "-m", "spindle", "-p", *messages, "--model", "mock/m1", "--no-session"]
        done = nursery.run(
            [*argv, "-e", str(file)],
            cwd=tmp_path / "work",
            env=agent_environment(tmp_path / "agent"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(), len(mock.requests)


def test_a_one_shot_run_waits_for_what_extensions_do_when_it_has_settled(tmp_path):
    source = """
import asyncio

def extension(agent):
    rounds = []

    @agent.on("agent_settled")
    async def settled(event, ctx):
        await asyncio.sleep(0.1)
        rounds.append(event)
        if len(rounds) == 1:
            await agent.send_user_message("again")
"""
    assert one_shot(tmp_path, source, [reply("first"), reply("second")], "go") == ("second\n", 2)


def test_a_one_shot_run_waits_for_a_command(tmp_path):
    source = """
import asyncio

def extension(agent):
    @agent.command("slow")
    async def slow(args, ctx):
        await asyncio.sleep(0.1)
        await agent.send_user_message(args)
"""
    assert one_shot(tmp_path, source, [reply("first"), reply("second")], "/slow one", "two") == ("second\n", 2)


def test_an_extension_may_end_a_one_shot_run_before_its_next_message(tmp_path):
    source = """
def extension(agent):
    agent.on("agent_end", lambda event, ctx: ctx.shutdown())
"""
    assert one_shot(tmp_path, source, [reply("first"), reply("second")], "one", "two") == ("first\n", 1)


# -- in a program -------------------------------------------------------------------------------------


def test_a_run_that_a_handler_begins_comes_after_the_event_for_everybody(work):
    log = []

    def sender(agent):
        @agent.on("agent_settled")
        async def settled(event, ctx):
            if log.count("agent_end") == 1:
                await agent.send_user_message("again")

    async def check():
        script = Script([{"text": "one"}, {"text": "two"}])
        extensions = [sender, logger(log, "agent_start", "agent_end", "agent_settled")]
        async with await Agent.create(cwd=work, model=script.model(), persist=False, extensions=extensions) as agent:
            await agent.ask("go")
            await agent.session.hooks.caught_up()
            await agent.session.wait_idle()
        assert log == ["agent_start", "agent_end", "agent_settled"] * 2

    run(check())


def test_a_handler_may_wait_for_what_it_began(work, monkeypatch):
    monkeypatch.setattr(limits, "EVENT_HANDLERS", 60)  # a handler that waited for itself would never end
    write(work.parent / "agent" / "settings.json", '{"compaction": {"keepRecentTokens": 1}}')
    log = []

    def compacting(agent):
        @agent.on("agent_settled")
        async def settled(event, ctx):
            await ctx.compact()
            log.append("compacted")

        agent.on("session_before_compact", lambda event, ctx: {"compaction": {"summary": "short"}})

    async def check():
        script = Script([{"text": "one"}])
        async with await Agent.create(cwd=work, model=script.model(), persist=False, extensions=[compacting]) as agent:
            await agent.ask("go")
            await agent.session.hooks.caught_up()
        assert log == ["compacted"]

    run(check())


def test_an_abort_in_a_run_that_a_handler_began_ends_the_handler_too(work):
    log = []

    def extension(agent):
        @agent.tool
        async def stop(*, ctx):
            """Abort the run."""
            ctx.abort()

        @agent.on("agent_settled")
        async def settled(event, ctx):
            if log:
                return
            log.append("settled")
            await agent.send_user_message("again")
            try:
                await asyncio.Event().wait()
            finally:
                log.append("ended")

    async def check():
        script = Script([{"text": "one"}, {"calls": [{"name": "stop", "arguments": {}}]}])
        async with await Agent.create(cwd=work, model=script.model(), persist=False, extensions=[extension]) as agent:
            await agent.ask("go")
            await agent.session.hooks.caught_up()
            assert log == ["settled", "ended"]

    run(check())


def test_a_handler_that_hangs_holds_up_the_next_event_only_for_a_while(work, monkeypatch, capsys):
    monkeypatch.setattr(limits, "EVENT_HANDLERS", 0.05)
    log = []

    def hanging(agent):
        @agent.on("agent_settled")
        async def settled(event, ctx):
            await asyncio.Event().wait()

    async def check():
        script = Script([{"text": "one"}, {"text": "two"}])
        extensions = [hanging, logger(log, "input", "agent_end")]
        async with await Agent.create(cwd=work, model=script.model(), persist=False, extensions=extensions) as agent:
            assert await agent.ask("go") == "one"
            assert await agent.ask("go") == "two"
        assert log == ["input", "agent_end"] * 2

    run(check())
    assert "Handlers of agent_settled take longer than 0.05 s" in capsys.readouterr().err


# -- the backlog itself -------------------------------------------------------------------------------


def update(call_id: str, text: str) -> ToolExecutionUpdate:
    return ToolExecutionUpdate(call_id, "bash", {}, ToolResult([], text))


def test_progress_that_was_not_seen_yet_is_replaced_by_newer_progress():
    told = []

    async def tell(event):
        told.append((event.tool_call_id, event.partial_result.details))
        await asyncio.sleep(0)

    async def check():
        waiting = Backlog(tell)
        waiting.add(update("a", "0"))
        await asyncio.sleep(0)  # this one is being told
        for number in range(1000):
            waiting.add(update("a", str(number)))
        waiting.add(update("b", "x"))
        waiting.add(update("a", "end"))
        await waiting.caught_up()

    run(check())
    assert told == [("a", "0"), ("a", "999"), ("b", "x"), ("a", "end")]


def test_nothing_waits_for_a_backlog_that_was_closed():
    async def check():
        waiting = Backlog(lambda event: asyncio.Event().wait())  # type: ignore[return-value]
        for number in range(3):
            waiting.add(update(str(number), ""))
        waits = asyncio.gather(waiting.caught_up(), waiting.caught_up())
        await asyncio.sleep(0)
        await waiting.close()
        await waits
        await waiting.caught_up()

    run(check())


def test_a_backlog_may_be_closed_before_it_has_begun():
    async def check():
        waiting = Backlog(lambda event: asyncio.sleep(0))
        waiting.add(update("a", ""))
        await waiting.close()
        await waiting.caught_up()

    run(check())


def test_a_handler_that_does_not_care_to_be_cancelled_does_not_keep_the_end_waiting(monkeypatch):
    monkeypatch.setattr(limits, "TASKS_END", 0.05)

    async def check():
        enough, at_work = asyncio.Event(), asyncio.Event()

        async def stubborn(event):
            at_work.set()
            while not enough.is_set():
                try:
                    await enough.wait()
                except asyncio.CancelledError:
                    pass

        waiting = Backlog(stubborn)
        waiting.add(update("a", ""))
        await at_work.wait()
        await waiting.close()
        enough.set()

    run(check())
