"""What an author gets to know of a mistake: at once, in words, with the place."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.plugins.extensions.handlers import ANSWERS, as_answer
from tests.support import nursery
from tests.support.agent_process import agent_environment
from tests.support.mock_model import call, reply

from .helpers import BASH, load_places, place, result, run, start, write


def test_a_gate_with_a_slip_is_a_closed_gate(tmp_path):
    source = "def extension(agent):\n    agent.on('tool_call', lambda event, ctx: {'blok': True})"
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["isError"] and not (agent.cwd / "made").exists()
        assert 'unknown key "blok": did you mean "block"?' in result(agent)["content"][0]["text"]
        error = agent.wait("extension_error")
        assert error["event"] == "tool_call" and 'did you mean "block"' in error["error"]


@pytest.mark.parametrize("event", sorted(ANSWERS))
def test_answers_with_unknown_keys_are_refused(event):
    assert as_answer(dict.fromkeys(ANSWERS[event]), event).keys() == set(ANSWERS[event])
    with pytest.raises(TypeError, match=f"The answer of a {event} handler has an unknown key"):
        as_answer({ANSWERS[event][0]: None, "zzz": 1}, event)


def test_a_bug_in_a_tool_and_in_a_handler_shows_its_traceback(tmp_path):
    source = """
def extension(agent):
    @agent.tool
    def broken():
        "Fail."
        return {}["nothing there"]

    @agent.tool
    def refused():
        "Fail as it should."
        raise agent.ToolError("not today")

    @agent.on("agent_start")
    def slip(event, ctx):
        ctx.no_such_thing
"""
    both = reply(call("broken", {}), call("refused", {}, id="call_2"), finish="toolUse")
    with start(tmp_path, source, [both, reply("ok")]) as agent:
        agent.run("go")
        errors = {f["event"]: f for f in agent.frames if f["type"] == "extension_error"}
        assert set(errors) == {"tool broken", "agent_start"}
        for event, line in (("tool broken", 'return {}["nothing there"]'), ("agent_start", "ctx.no_such_thing")):
            assert line in errors[event]["traceback"] and str(tmp_path / "ext.py") in errors[event]["traceback"]
        assert result(agent)["isError"] and result(agent, "call_2")["content"][0]["text"] == "not today"
        agent.close_stdin()
        said = agent.stderr.decode()
        assert 'return {}["nothing there"]' in said and "ctx.no_such_thing" in said and "not today" not in said


@pytest.mark.parametrize("dialect", ["pi-0.74", "pi-0.87", "xcsh"])
def test_older_clients_get_the_error_alone(tmp_path, dialect):
    source = "def extension(agent):\n    agent.on('agent_start', lambda event, ctx: 1 / 0)"
    with start(tmp_path, source, [reply("ok")], args=["--dialect", dialect]) as agent:
        agent.prompt("go")
        error = agent.wait("extension_error")
        assert error.keys() == {"type", "extensionPath", "event", "error"} and error["error"] == "division by zero"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("agent.on('agent_start', lambda event: None)", "agent_start is called as <lambda>(event, ctx)"),
        ("agent.on('agent_start', 5)", "must be a function, not int"),
        ("agent.command('x')(lambda args: None)", "Command x is called as <lambda>(args, ctx)"),
        ("agent.tool(lambda *things: None, name='x')", "cannot be described"),
    ],
)
def test_signatures_are_checked_when_the_file_loads(tmp_path, line, text):
    file = write(tmp_path / "ext.py", f"def extension(agent):\n    {line}\n")
    _, failures, _ = run(load_places(place(file)))
    assert text in failures[0].error and "line 2" in failures[0].error


def test_what_can_be_called_loads(tmp_path):
    source = """
import functools, unittest.mock
class Watch:
    def see(self, event, ctx=None): ...
    async def __call__(self, *args): ...
def extension(agent):
    for function in (Watch().see, Watch(), functools.partial(print, 1), print, unittest.mock.Mock()):
        agent.on("agent_start", function)
"""
    assert run(load_places(place(write(tmp_path / "ext.py", source))))[1] == []


def test_an_extension_for_a_screen_loads(tmp_path):
    source = """
def extension(agent):
    @agent.shortcut("ctrl+x", help="Do it")
    def press(ctx): ...
    @agent.message_renderer("note")
    @agent.entry_renderer("note")
    def draw(message): ...
    assert (press.__name__, draw.__name__) == ("press", "draw")
    @agent.tool(render_call=draw, render_result=draw)
    def look() -> str:
        "Look around."
        return "all quiet"
"""
    with start(tmp_path, source, [reply(call("look", {}), finish="toolUse"), reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["content"][0]["text"] == "all quiet"


def _one_shot(tmp_path: Path, source: str, *args: str) -> "subprocess.CompletedProcess[str]":
    write(tmp_path / "ext.py", source)
    write(tmp_path / "script.json", '[{"text": "done"}]')
    command = [sys.executable, "-m", "spindle", "-e", "ext.py", "--model", "scripted/script.json", *args, "go"]
    return nursery.run(
        command,
        cwd=tmp_path,
        env=agent_environment(tmp_path / "agent"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("args", [["-p"], ["--mode", "json"]], ids=["print", "json"])
def test_notices_are_seen_in_one_shot_runs(tmp_path, args):
    source = (
        "def extension(agent):\n    agent.on('agent_start', lambda e, ctx: ctx.ui.notify('look here', 'warning'))\n"
    )
    done = _one_shot(tmp_path, source, *args)
    assert done.returncode == 0 and "Warning: look here" in done.stderr and "look here" not in done.stdout


def test_a_provider_that_yields_rubbish_says_so(tmp_path):
    source = """
def extension(agent):
    async def stream(model, request, options):
        yield {"text": "hello"}
    agent.provider("mine", api="mine", base_url="http://x", api_key="none", stream=stream, models=[{"id": "m"}])
"""
    done = _one_shot(tmp_path, source, "--model", "mine/m", "-p")
    assert done.returncode == 1
    assert "The stream function of mine yielded dict; it should yield str, Thinking, ToolCall or Usage" in done.stderr


# -- a terminal --------------------------------------------------------------------------------------


def test_type_ahead_answers_no_question(tmp_path):
    """What was typed before the question was asked is dropped; what comes after it counts."""
    source = """
import sys, time
def extension(agent):
    @agent.on("agent_start")
    async def ask(event, ctx):
        print("TYPE", file=sys.stderr, flush=True)
        time.sleep(0.5)
        print("answer:", await ctx.ui.confirm("Really?"), file=sys.stderr, flush=True)
"""
    write(tmp_path / "ext.py", source)
    write(tmp_path / "script.json", '[{"text": "done"}]')
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "spindle", "-e", "ext.py", "--model", "scripted/script.json", "-p", "go"],
        cwd=tmp_path,
        env=agent_environment(tmp_path / "agent"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)

    def wait_for(text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            seen += os.read(ours, 65536)
        return seen

    try:
        wait_for(b"TYPE")
        os.write(ours, b"y\n")
        wait_for(b"anything else is no")
        os.write(ours, b"n\n")
        assert b"answer: False" in wait_for(b"answer: ") + os.read(ours, 65536)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
