"""Extensions outside RPC: in a Python program, in one-shot runs, on a terminal."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from contextvars import ContextVar

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.ext import StaleExtensionError
from spindle.testing import Pause, Script
from tests.support import nursery
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply

from .helpers import run, write

GATE = """
def extension(agent):
    @agent.on("tool_call", tool="bash")
    async def gate(event, ctx):
        if not await ctx.ui.confirm("Run?", event.input["command"]):
            return agent.block("The user said no")
    agent.on("turn_start", lambda event, ctx: 1 / 0)
"""
BASH = reply(call("bash", {"command": "touch made"}), finish="toolUse")


# -- in a program -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    (tmp_path / "work").mkdir()
    return tmp_path


class Yes:
    """A user who agrees to everything."""

    has_ui = True

    def __init__(self):
        self.asked = []

    async def ask(self, request):
        self.asked.append(request.title)
        return {"confirmed": True}

    def tell(self, request): ...

    def open_requests(self):
        return []

    def withdraw(self): ...


@pytest.mark.parametrize("somebody", [True, False])
def test_a_program_brings_its_own_extension_and_its_own_dialogs(home, somebody):
    seen = []

    def extension(agent):
        agent.on("session_start", lambda event, ctx: seen.append((event.reason, ctx.mode, ctx.has_ui)))

        @agent.on("tool_call")
        async def gate(event, ctx):
            if not await ctx.ui.confirm("Sure?"):
                return agent.block("no")
            return None

    script = Script([{"calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}, {"text": "done"}])
    front = Yes() if somebody else None

    async def check():
        async with await Agent.create(
            cwd=home / "work", model=script.model(), persist=False, extensions=[extension], ui=front
        ) as agent:
            result = await agent.run("go").result()
            assert result.text == "done" and [one.by for one in result.denials] == ["extension"] * (not somebody)

    run(check())
    assert seen == [("startup", "sdk", somebody)]
    assert (home / "work" / "made").exists() is somebody
    assert front is None or front.asked == ["Sure?"]


def test_a_program_hears_why_an_extension_does_not_load(home):
    async def check():
        with pytest.raises(AgentError, match="Failed to load extension"):
            await Agent.create(cwd=home / "work", persist=False, extensions=[str(home / "missing.py")])

    run(check())


# -- one-shot runs ------------------------------------------------------------------------------------


def one_shot(tmp_path, *args: str, **options) -> tuple[subprocess.CompletedProcess, list]:
    file = write(tmp_path / "ext.py", GATE)
    (tmp_path / "work").mkdir()
    with MockModel([BASH, reply("done")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        command = [sys.executable, "-m", "spindle", *args, "--model", "mock/m1", "--no-session", "-e", str(file)]
        done = nursery.run(
            command,
            cwd=tmp_path / "work",
            env=agent_environment(tmp_path / "agent"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        return done, list(mock.requests)


@pytest.mark.parametrize("mode", [["-p", "go"], ["--mode", "json", "go"]], ids=["print", "json"])
def test_without_a_terminal_the_answer_is_no_and_errors_go_to_stderr(tmp_path, mode):
    done, requests = one_shot(tmp_path, *mode)
    assert done.returncode == 3  # a call was refused
    assert "The user said no" in json.dumps(requests[1].body)
    assert not (tmp_path / "work" / "made").exists()
    assert f"Extension error ({tmp_path / 'ext.py'}): division by zero" in done.stderr.decode()
    if mode[0] == "-p":
        assert done.stdout == b"done\n"
    else:
        kinds = {json.loads(line)["type"] for line in done.stdout.splitlines()}
        assert "agent_settled" in kinds and not kinds & {"extension_error", "extension_ui_request"}


@pytest.mark.parametrize(("typed", "ran"), [("y\n", True), ("no\n", False)])
def test_on_a_terminal_the_user_is_asked_there(tmp_path, typed, ran):
    file = write(tmp_path / "ext.py", GATE)
    (tmp_path / "work").mkdir()
    with MockModel([BASH, reply("done")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "spindle", "-p", "go", "--model", "mock/m1", "--no-session", "-e", str(file)]
        process = subprocess.Popen(
            command,
            cwd=tmp_path / "work",
            env=agent_environment(tmp_path / "agent"),
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
        )
        os.close(theirs)
        said = b""
        while b"Type y for yes" not in said:
            said += os.read(ours, 4096)
        os.write(ours, typed.encode())
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
        assert process.wait(60) == (0 if ran else 3)
        os.close(ours)
    assert b"Run?" in said and b"touch made" in said
    assert (tmp_path / "work" / "made").exists() is ran


def test_handlers_and_the_loop_of_the_program_get_along(home):
    """An extension of a program may share objects of its event loop."""

    async def check():
        told: asyncio.Queue[str] = asyncio.Queue()

        def extension(agent):
            @agent.on("agent_settled")
            async def settled(event, ctx):
                told.put_nowait("settled")

        script = Script([{"text": "hi"}])
        async with await Agent.create(
            cwd=home / "work", model=script.model(), persist=False, extensions=[extension]
        ) as agent:
            await agent.ask("go")
            assert await asyncio.wait_for(told.get(), 60) == "settled"

    run(check())


def test_context_variables_of_the_program_reach_its_extensions(home):
    request = ContextVar("request", default="none")
    seen = []

    def extension(agent):
        agent.on("agent_start", lambda event, ctx: seen.append(request.get()))

    async def check():
        async with await Agent.create(
            cwd=home / "work", model=Script([{"text": "hi"}]).model(), persist=False, extensions=[extension]
        ) as agent:
            request.set("r1")
            await agent.ask("go")
        assert seen == ["r1"]

    run(check())


def test_reloads_at_the_same_time_leave_one_generation(home):
    agents = []

    async def extension(agent):
        agents.append(agent)
        await asyncio.sleep(0.01)

    async def check():
        async with await Agent.create(cwd=home / "work", persist=False, extensions=[extension]) as agent:
            await asyncio.gather(*(agent.session.reload() for _ in range(3)))
            for old in agents[:-1]:
                with pytest.raises(StaleExtensionError):
                    old.append_entry("note")
            agents[-1].append_entry("note")
        assert len(agents) == 4

    run(check())


def test_a_reload_in_the_middle_of_a_run_does_not_lose_count_of_its_turns(home):
    turns = []
    script = Script([{"text": ["a", Pause(gate="go"), "b"]}])

    async def check():
        def extension(agent):
            agent.on("turn_end", lambda event, ctx: turns.append(event.turn_index))

        async with await Agent.create(
            cwd=home / "work", model=script.model(), persist=False, extensions=[extension]
        ) as agent:
            asking = asyncio.create_task(agent.ask("go"))
            await script.reached("go")
            await agent.session.reload()
            script.release("go")
            await asking
        assert turns == [0]

    run(check())
