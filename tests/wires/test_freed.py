"""What ended sessions and clients that left take up is freed at once, without the garbage collector.

An extension in the process switches the collector off and counts what there is. Whatever a session adds has to be gone
when it has ended, whichever wire it was used over.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply, stall
from tests.wires.acp.editor_process import EditorProcess
from tests.wires.server.server import ServerProcess
from tests.wires.server.test_http import Http

COUNTING = """
import gc
import json
from collections import Counter

PARTS = ("spindle.agent.", "spindle.protocol.", "spindle.sessions.", "spindle.wires.")
gc.disable()
gc.enable = lambda: None  # the process would do so when it has started

def extension(agent):
    @agent.command("count")
    async def count(args, ctx):
        kinds = [type(item) for item in gc.get_objects()]
        found = Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith(PARTS))
        ctx.ui.notify(json.dumps(found))
"""
STEPS = [reply("I", stall(), match="wait"), *[reply(call("bash", {"command": "echo hi"})), reply("done")] * 20]
"""A prompt is answered after a call of a tool; or, if it asks to wait, never."""
WAIT_S = 20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    extensions = tmp_path / "agent" / "extensions"
    extensions.mkdir(parents=True)
    (extensions / "counting.py").write_text(COUNTING)
    return tmp_path


def leaves_nothing(use: Callable[[], AbstractContextManager[None]], count: Callable[[], Counter[str]]) -> None:
    """Use sessions and end them, and see that there is no more of anything than the time before."""
    with use():
        pass  # the first time something may be made that stays
    before = count()
    with use():
        assert count()["AgentSession"] > before["AgentSession"]
    end = time.monotonic() + WAIT_S
    while more := count() - before:
        assert time.monotonic() < end, f"there are more: {more}"
        time.sleep(0.05)


def is_count(frame: dict[str, Any]) -> bool:
    return bool(frame.get("type") == "extension_ui_request" and frame.get("method") == "notify")


def test_several_sessions_on_stdio(place: Path) -> None:
    with AgentProcess(STEPS, base=place, session=True) as agent:

        def count() -> Counter[str]:
            agent.prompt("/count")
            return Counter(json.loads(agent.wait(is_count)["message"]))

        @contextmanager
        def use() -> Iterator[None]:
            ids = [agent.data("open_session")["id"] for _ in range(3)]
            for id in ids:
                agent.prompt("go", sessionId=id)
                agent.wait(lambda frame, id=id: frame.get("type") == "agent_settled" and frame.get("sessionId") == id)
                agent.data("new_session", sessionId=id)
            agent.prompt("wait", sessionId=ids[0])
            yield
            for id in ids:
                agent.data("close_session", sessionId=id)

        leaves_nothing(use, count)


@contextmanager
def server_in(place: Path) -> Iterator[tuple[ServerProcess, Callable[[], Counter[str]]]]:
    with ServerProcess(STEPS, base=place) as server, server.rpc() as first:

        def count() -> Counter[str]:
            first.call("prompt", message="/count")
            return Counter(json.loads(first.wait(is_count)["message"]))

        yield server, count


def test_http(place: Path) -> None:
    with server_in(place) as (server, count):
        web = Http(server)

        @contextmanager
        def use() -> Iterator[None]:
            id = web.open()
            events = web.events(id)
            assert web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "go"})[0] == 200
            events.until("agent_settled")
            assert web.post(f"/v1/sessions/{id}/prompt", {"message": "wait"})[0] == 200
            yield
            assert web.ask("DELETE", f"/v1/sessions/{id}")[0] == 204
            events.until("session_closed")
            events.close()

        leaves_nothing(use, count)


@pytest.mark.parametrize("who", ["the client leaves first", "the session ends first"])
def test_websocket(place: Path, who: str) -> None:
    with server_in(place) as (server, count):

        @contextmanager
        def use() -> Iterator[None]:
            client = server.rpc()
            ids = [client.ready["sessionId"], client.call("open_session")["data"]["id"]]
            client.call("prompt", message="go")
            client.wait(lambda frame: frame["type"] == "agent_settled" and "sessionId" not in frame)
            client.call("prompt", message="go", sessionId=ids[1])
            client.wait(lambda frame: frame["type"] == "agent_settled" and frame.get("sessionId") == ids[1])
            yield
            if who == "the client leaves first":
                client.socket.close()
            for id in ids:
                assert Http(server).ask("DELETE", f"/v1/sessions/{id}")[0] == 204
            client.socket.close()

        leaves_nothing(use, count)


def test_chat(place: Path) -> None:
    with server_in(place) as (server, count):
        web = Http(server)

        @contextmanager
        def use() -> Iterator[None]:
            known = {session["id"] for session in web.get("/v1/sessions")[2]["sessions"]}
            with server.chat() as client:
                client.send("one", {"Text": "go"}, stream=True)
                assert client.until_terminal()[-1]["error"] is None
                yield
            for session in web.get("/v1/sessions")[2]["sessions"]:
                if session["id"] not in known:
                    assert web.ask("DELETE", f"/v1/sessions/{session['id']}")[0] == 204

        leaves_nothing(use, count)


def test_an_editor(place: Path) -> None:
    with EditorProcess(STEPS, base=place) as editor:
        first = editor.new()

        def count() -> Counter[str]:
            told = len(editor.text(first, "agent_thought"))
            editor.stop_reason(editor.say(first, "/count"))
            text = editor.text(first, "agent_thought")[told:]
            return Counter(json.loads(text[text.index("{") : text.rindex("}") + 1]))

        @contextmanager
        def use() -> Iterator[None]:
            session = editor.new()
            assert editor.stop_reason(editor.say(session, "go")) == "end_turn"
            yield
            editor.ok("session/close", sessionId=session)

        leaves_nothing(use, count)
