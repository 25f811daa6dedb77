"""Code that hangs, raises or prints where it should not."""

import pytest

from tests.support.mock_model import reply

from .helpers import BASH, start


def test_what_extensions_print_does_not_reach_the_wire(tmp_path):
    source = """
import os, subprocess, sys
print("import")
os.write(1, b"raw import\\n")

def extension(agent):
    print("factory")
    def loud(event, ctx):
        print("handler", flush=True)
        sys.stdout.write("not json\\n")
        sys.__stdout__.write("old stdout\\n")
        sys.__stdout__.flush()
        os.write(1, b"{}\\n")
        subprocess.run(["echo", "child"])
    agent.on("turn_start", loud)
"""
    with start(tmp_path, source, [reply("x")]) as agent:
        agent.run("go")
        assert agent.close_stdin() == 0
        assert all("type" in frame for frame in agent.frames)
    for word in (b"raw import", b"factory", b"handler", b"not json", b"child"):
        assert word in agent.stderr


HANGING = {
    "async": "import asyncio\nasync def hang(event, ctx):\n    await asyncio.sleep(3600)\n",
    "blocking": "import time\ndef hang(event, ctx):\n    time.sleep(3600)\n",
}


@pytest.mark.parametrize("kind", HANGING)
@pytest.mark.parametrize("event", ["input", "before_agent_start", "turn_start", "context", "tool_call", "message_end"])
def test_a_hanging_handler_holds_up_neither_control_commands_nor_an_abort(tmp_path, kind, event):
    source = HANGING[kind] + f"def extension(agent):\n    agent.on({event!r}, hang)\n"
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.send("prompt", message="go")
        if event == "tool_call":
            agent.wait("tool_execution_start")
        elif event == "context":
            agent.wait("turn_start")
        agent.data("get_state")
        assert agent.call("abort")["success"]
        assert agent.data("get_state")["isStreaming"] is False
        assert not (agent.cwd / "made").exists()
        assert agent.close_stdin() == 0


@pytest.mark.parametrize("kind", HANGING)
def test_a_hanging_shutdown_handler_ends_after_its_time(tmp_path, kind):
    source = HANGING[kind] + "def extension(agent):\n    agent.on('session_shutdown', hang, timeout=0.2)\n"
    with start(tmp_path, source) as agent:
        agent.data("get_state")
        assert agent.close_stdin() == 0
        assert agent.wait("extension_error")["error"] == "The session_shutdown handler took longer than 0.2 s"


def test_handlers_that_raise_everywhere_do_not_stop_a_run(tmp_path):
    source = """
from spindle.plugins.extensions.events import EVENTS

def extension(agent):
    def fail(event, ctx):
        raise ValueError("x" * 10)
    for name in EVENTS:
        if name != "tool_call":
            agent.on(name, fail)
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert agent.data("get_last_assistant_text") == {"text": "ok"}
        errors = [f for f in agent.frames if f["type"] == "extension_error"]
        assert {f["error"] for f in errors} == {"x" * 10}
        assert {f["event"] for f in errors} >= {"session_start", "input", "turn_start", "message_update", "tool_result"}
        assert errors[0]["extensionPath"] == str(tmp_path / "ext.py")
        # It comes before the event during which it happened.
        kinds = [f["type"] if f["type"] != "extension_error" else f["event"] for f in agent.frames]
        assert kinds.index("turn_start") < len(kinds) and kinds[kinds.index("turn_start") + 1] == "turn_start"
