"""Coroutines of an extension that block their thread: their own session waits, others do not."""

import time

import pytest

from tests.support.mock_model import call, gate, reply

from .helpers import BASH, command, result, start

# It blocks until the test has looked at the others, however slow the machine is.
BLOCK = """
import asyncio, os, time
def block():
    open("blocked", "w").close()
    while not os.path.exists("go on"):
        time.sleep(0.01)
"""
KINDS = {
    "tool": "    @agent.tool\n    async def nap():\n        'Sleep.'\n        block()\n        return 'slept'\n",
    "handler": (
        "    @agent.on('turn_start')\n    async def nap(event, ctx):\n"
        "        if ctx.cwd.name != 'other':\n            block()\n"
    ),
    "command": "    @agent.command('nap')\n    async def nap(args, ctx):\n        block()\n",
    "provider": (
        "    async def stream(model, request, options):\n        yield 'a'\n        block()\n        yield 'b'\n"
        "    agent.provider('own', api='own', base_url='http://127.0.0.1:1', api_key='k', stream=stream,"
        " models=[{'id': 'm'}])\n"
    ),
}


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_what_blocks_holds_up_its_own_session_only(tmp_path, kind):
    source = f"{BLOCK}def extension(agent):\n{KINDS[kind]}"
    steps = [reply("one ", gate("go"), "two", match="stream"), reply("ok")]
    if kind == "tool":
        steps.insert(1, reply(call("nap", {})))
    (tmp_path / "other").mkdir()
    with start(tmp_path, source, steps, session=True) as agent:
        other = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
        if kind == "provider":
            agent.data("set_model", provider="own", modelId="m")
        agent.prompt("/nap" if kind == "command" else "nap")
        until((agent.cwd / "blocked").exists)
        waits = []
        agent.prompt("stream", sessionId=other)
        agent.wait_delta("one ")
        for session in (None, other):
            begin = time.monotonic()
            agent.data("get_state", **({"sessionId": session} if session else {}))
            waits.append(time.monotonic() - begin)
        agent.mock.release("go")
        agent.wait(lambda frame: frame["type"] == "agent_settled" and frame.get("sessionId") == other)
        assert agent.data("get_last_assistant_text", sessionId=other)["text"] == "one two"
        assert max(waits) < 2  # a busy machine; it is a millisecond on a quiet one
        (agent.cwd / "go on").touch()
        if kind != "command":
            agent.wait(lambda frame: frame["type"] == "agent_settled" and "sessionId" not in frame)
        if kind == "tool":
            assert result(agent)["content"][0]["text"] == "slept"
        assert agent.close_stdin() == 0


@pytest.mark.parametrize("event", ["input", "tool_call"])
def test_what_blocks_for_ever_holds_up_neither_an_abort_nor_the_end(tmp_path, event):
    source = f"{BLOCK}async def hang(event, ctx):\n    block()\ndef extension(agent):\n    agent.on({event!r}, hang)\n"
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.send("prompt", message="go")
        until((agent.cwd / "blocked").exists)
        assert agent.call("abort")["success"]
        assert agent.data("get_state")["isStreaming"] is False
        assert not (agent.cwd / "made").exists()
        assert agent.close_stdin() == 0


def test_all_coroutines_of_a_session_share_one_loop(tmp_path):
    """What is made in one of them can be used in the others: locks, clients, tasks."""
    source = """
import asyncio, threading

def extension(agent):
    seen, places = asyncio.Queue(), set()

    def here():
        places.add((asyncio.get_running_loop(), threading.get_ident()))

    @agent.on("input")
    async def look(event, ctx):
        here()
        await seen.put(event.text)

    @agent.tool
    async def last():
        "Return the last input."
        here()
        return await asyncio.wait_for(seen.get(), 5)

    @agent.command("places")
    async def count(args, ctx):
        here()
        ctx.ui.notify(f"{len(places)} {threading.main_thread().ident in [ident for _, ident in places]}")
"""
    steps = [reply(call("last", {}), finish="toolUse"), reply("done")]
    with start(tmp_path, source, steps) as agent:
        agent.run("remember")
        assert result(agent)["content"][0]["text"] == "remember"
        assert command(agent, "/places") == "1 False"


def test_an_abort_reaches_a_coroutine_and_waits_for_its_end(tmp_path):
    source = """
import asyncio

def extension(agent):
    @agent.tool
    async def wait(*, update):
        "Wait."
        update("waiting")
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.2)
            open("cleaned", "w").close()
"""
    with start(tmp_path, source, [reply(call("wait", {}), finish="toolUse")]) as agent:
        agent.prompt("go")
        agent.wait("tool_execution_update")
        assert agent.call("abort")["success"]
        assert (agent.cwd / "cleaned").exists()
