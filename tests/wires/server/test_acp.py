"""Editors over a WebSocket: the same protocol as on stdin and stdout, behind the same doors as every other route."""

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from spindle.server.users import add_user
from tests.support.mock_model import call, gate, reply

from .server import TOKEN, ServerProcess

Frame = dict[str, Any]


class Editor:
    def __init__(self, server: ServerProcess, query: str = "", **options: Any) -> None:
        self.socket = connect(f"ws://{server.address}/acp{query}", proxy=None, **options).__enter__()
        self.cwd = str(server.cwd)
        self.updates: list[Frame] = []
        self._numbers = itertools.count(1)

    def send(self, method: str, **params: Any) -> int:
        id = next(self._numbers)
        self.socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return id

    def answer(self, id: int, allow: Callable[[Frame], bool] = lambda asked: True) -> Frame:
        """Return the answer to a request; questions about calls are answered on the way."""
        while True:
            frame: Frame = json.loads(self.socket.recv(20))
            if frame.get("method") == "session/request_permission":
                kind = "allow_once" if allow(frame["params"]) else "reject_once"
                (option,) = [o["optionId"] for o in frame["params"]["options"] if o["kind"] == kind]
                result = {"outcome": {"outcome": "selected", "optionId": option}}
                self.socket.send(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}))
            elif frame.get("method") == "session/update":
                self.updates.append(frame["params"]["update"])
            elif frame.get("id") == id:
                return frame

    def ask(self, method: str, **params: Any) -> Frame:
        return self.answer(self.send(method, **params))

    def ok(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def begin(self) -> str:
        assert self.ok("initialize", protocolVersion=1)["authMethods"] == []
        return str(self.ok("session/new", cwd=self.cwd, mcpServers=[])["sessionId"])

    def prompt(self, session: str, text: str = "go") -> Frame:
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    @property
    def said(self) -> str:
        chunks = [u["content"]["text"] for u in self.updates if u["sessionUpdate"] == "agent_message_chunk"]
        self.updates.clear()
        return "".join(chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def test_a_conversation() -> None:
    steps = [reply("Look.", call("bash", {"command": "echo hi"})), reply("Done.")]
    with ServerProcess(steps) as server, Editor(server) as editor:
        session = editor.begin()
        editor.ok("session/set_mode", sessionId=session, modeId="default")
        assert editor.prompt(session)["result"]["stopReason"] == "end_turn"
        assert editor.said == "Look.Done."
        assert [found["sessionId"] for found in editor.ok("session/list")["sessions"]] == [session]
        editor.socket.send("[]")
        refused = json.loads(editor.socket.recv(20))
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        with Editor(server) as other:  # another connection is another editor
            other.ok("initialize", protocolVersion=1)
            other.ok("session/load", sessionId=session, cwd=editor.cwd, mcpServers=[])
            assert other.said == "Look.Done."


def test_an_editor_that_is_cut_off_comes_back() -> None:
    with ServerProcess([reply("one ", gate("go"), "two")]) as server:
        with Editor(server) as editor:
            session = editor.begin()
            editor.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
            server.mock.wait_gate("go")
        server.mock.release("go")
        with Editor(server) as editor, server.rpc(f"?session={session}") as watcher:
            editor.ok("initialize", protocolVersion=1)
            while watcher.call("get_state")["data"]["isStreaming"]:
                pass
            editor.ok("session/load", sessionId=session, cwd=editor.cwd, mcpServers=[])
            assert editor.said == "one two"


def test_an_editor_that_leaves_answers_nothing(tmp_path: Path) -> None:
    """Another client of the session has the same question."""
    code = """
def extension(api):
    @api.command("choose")
    async def choose(arguments, ctx):
        ctx.ui.notify(f"chosen: {await ctx.ui.select('Which?', ['one', 'two'])}")
"""
    (tmp_path / "choose.py").write_text(code)
    with ServerProcess(args=["--extension", str(tmp_path / "choose.py")]) as server, Editor(server) as editor:
        session = editor.begin()
        with server.rpc(f"?session={session}") as other:
            other.write(json.dumps({"type": "prompt", "message": "/choose"}))
            asked = other.wait("extension_ui_request")
            while json.loads(editor.socket.recv(20)).get("method") != "session/request_permission":
                pass
            editor.socket.close()
            while [one["clients"] for one in other.call("list_live_sessions")["data"]["sessions"]] != [1]:
                pass
            other.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "value": "two"}))
            told = other.wait(lambda frame: frame.get("method") == "notify")
            assert told["message"] == "chosen: two"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Origin": "https://evil.example"}, 403)],
)
def test_the_same_doors(headers: dict[str, str], status: int) -> None:
    with ServerProcess(env={"SPINDLE_REMOTE_TOKEN": TOKEN} if status == 401 else {}) as server:
        with pytest.raises(InvalidStatus) as refused:
            Editor(server, additional_headers=headers)
        assert refused.value.response.status_code == status
        if status == 401:
            with Editor(server, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as editor:
                assert editor.begin()


def test_what_a_user_may_not_do(tmp_path: Path) -> None:
    """The user's models, modes, quota and folder hold, and other users' sessions are not there."""
    agent, folder = tmp_path / "agent", tmp_path / "work"
    folder.mkdir()
    agent.mkdir()
    anna = {"models": ["mock/m1"], "permissionMode": "default", "runsPerDay": 2, "roots": [str(folder)]}
    tokens = {name: add_user(agent / "tokens.json", name, user) for name, user in {"anna": anna, "bert": {}}.items()}
    steps = [reply(call("bash", {"command": "echo hi"})), reply("Done.")]

    def headers(name: str) -> dict[str, Any]:
        return {"additional_headers": {"Authorization": f"Bearer {tokens[name]}"}}

    with ServerProcess(steps, base=tmp_path, args=["--tokens"]) as server:
        with Editor(server, **headers("anna")) as editor:
            session = editor.begin()
            for option, value in (("mode", "bypassPermissions"), ("model", "mock/m2"), ("sandbox", "workspace-write")):
                answer = editor.ask("session/set_config_option", sessionId=session, configId=option, value=value)
                assert ("error" in answer) == (option != "sandbox"), answer
            assert "error" in editor.ask("session/new", cwd=str(tmp_path), mcpServers=[])
            assert editor.prompt(session)["result"]["stopReason"] == "end_turn"
            assert "result" in editor.prompt(session)
            assert "limit of 2 runs" in editor.prompt(session)["error"]["message"]
            command = editor.ask("_spindle/set_model", sessionId=session, provider="mock", modelId="m2")
            assert "You may not use mock/m2" in command["error"]["message"]
        with Editor(server, **headers("bert")) as editor:
            editor.ok("initialize", protocolVersion=1)
            assert editor.ok("session/list")["sessions"] == []
            assert (
                editor.ask("session/load", sessionId=session, cwd=editor.cwd, mcpServers=[])["error"]["code"] == -32002
            )
            editor.ask("session/delete", sessionId=session)
        with Editor(server, **headers("anna")) as editor:
            editor.ok("initialize", protocolVersion=1)
            assert [found["sessionId"] for found in editor.ok("session/list")["sessions"]] == [session]


def test_additional_directories_are_those_that_sessions_may_work_in(tmp_path: Path) -> None:
    """Else a user who may read nothing outside the folder could have every file of the server read."""
    agent, folder = tmp_path / "agent", tmp_path / "work"
    (folder / "inner").mkdir(parents=True)
    agent.mkdir()
    (tmp_path / "key").write_text("of-the-operator")
    anna = {"permissionMode": "dontAsk", "roots": [str(folder)]}
    token = add_user(agent / "tokens.json", "anna", anna)
    steps = [reply(call("read", {"path": str(tmp_path / "key")})), reply("Done.")] * 2
    wanted = {"cwd": str(folder), "mcpServers": [], "additionalDirectories": [str(tmp_path), str(folder / "inner")]}
    with ServerProcess(steps, base=tmp_path, args=["--tokens"]) as server:
        with Editor(server, additional_headers={"Authorization": f"Bearer {token}"}) as editor:
            editor.ok("initialize", protocolVersion=1)
            session = editor.ok("session/new", **wanted)["sessionId"]
            editor.prompt(session)
            editor.ok("session/resume", sessionId=session, **wanted)
            editor.prompt(session)
            told = json.dumps(editor.updates)
        results = [m["content"] for m in server.mock.requests[-1].body["messages"] if m["role"] == "tool"]
        system = server.mock.requests[-1].body["messages"][0]["content"]
    assert len(results) == 2 and "of-the-operator" not in str(results)
    assert f"Also part of the workspace: {folder}/inner" in system
    assert f"An additional directory is not used: Sessions may not work in {tmp_path}" in told


def test_connections_are_bounded_and_told_why() -> None:
    with ServerProcess(args=["--remote-option", "max_message_bytes=2000"]) as server:
        with Editor(server) as editor:
            editor.socket.send("x" * 3000)
            with pytest.raises(ConnectionClosed) as ended:
                editor.socket.recv(20)
            assert ended.value.rcvd is not None and ended.value.rcvd.code == 1009
        stopping = threading.Thread(target=server.stop)
        with Editor(server) as editor:
            editor.begin()
            stopping.start()
            with pytest.raises(ConnectionClosed) as ended:
                while True:
                    editor.socket.recv(20)
            assert ended.value.rcvd is not None and ended.value.rcvd.code == 1001
        stopping.join()
