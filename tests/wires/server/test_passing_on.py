"""Sessions of other nodes on an open connection, in lists, and at nodes that are frozen."""

import gzip
import http.client
import http.server
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.server.users import add_user
from spindle.sessions.store import open_store
from tests.support.mock_model import gate, reply

from .test_acp import Editor
from .test_nodes import Cluster, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with made.stack:
        yield made


def test_an_open_websocket_reaches_sessions_of_other_nodes(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("of a"), reply("more of a"), reply("named")], recovers=False)
    b, on_b = cluster.node([reply("of b"), reply("taken over")], recovers=False)
    id, other = on_a.open(cwd=str(cluster.work), name="Far"), on_a.open(cwd=str(cluster.work))
    with b.rpc() as client:
        client.call("set_update_mode", mode="delta")
        opened = client.call("open_session", session=id)["data"]
        assert (opened["id"], opened["name"], opened["clients"]) == (id, "Far", 0)
        assert client.call("prompt", message="hello", sessionId=id)["sessionId"] == id
        update = client.wait(lambda frame: frame["type"] == "message_update")
        assert update["sessionId"] == id
        assert "message" not in update, "not in the form that the client has asked for"
        end = client.wait(lambda frame: frame["type"] == "agent_settled")
        assert end["sessionId"] == id
        assert client.call("get_last_assistant_text", sessionId=id)["data"]["text"] == "of a"
        # Its own session goes on beside it; another one is reached by its name alone.
        client.call("prompt", message="here")
        assert "sessionId" not in client.wait("agent_settled")
        assert client.call("set_session_name", name="Other", sessionId=other)["success"]
        assert on_a.post(f"/v1/sessions/{other}/get_state")[2]["sessionName"] == "Other"
        listed = {one["id"]: one for one in client.call("list_live_sessions")["data"]["sessions"]}
        assert set(listed) == {id, other, client.ready["sessionId"]}
        names = {name: http.get("/healthz")[2]["node"] for name, http in (("a", on_a), ("b", on_b))}
        assert listed[id]["node"] == names["a"] and listed[client.ready["sessionId"]]["node"] == names["b"]
        assert {one["id"] for one in on_a.get("/v1/sessions")[2]["sessions"]} == set(listed)
        assert client.call("new_session", sessionId=id)["success"]
        assert client.call("get_state", sessionId=id)["data"]["sessionId"] != id
        assert client.call("close_session", sessionId=other)["success"]
        assert client.wait("session_closed") == {"sessionId": other, "type": "session_closed", "reason": "closed"}
        assert other not in [one["id"] for one in on_a.get("/v1/sessions")[2]["sessions"]]
        # Over plain HTTP, the same command is answered by the node that has it.
        home = client.ready["sessionId"]
        assert on_a.post(f"/v1/sessions/{on_a.open()}/open_session", {"session": home})[2]["node"] == names["b"]
        # The node dies: the client is told, and its next command goes to who has the session then.
        current = client.call("get_state", sessionId=id)["data"]["sessionId"]
        client.call("prompt", message="keep it", sessionId=id)
        client.wait("agent_settled")
        a.process.send_signal(signal.SIGSTOP)
        client.write(json.dumps({"type": "get_messages", "id": {"odd": 1}, "sessionId": id}))
        client.write(json.dumps({"type": "get_state", "sessionId": id}))
        a.process.kill()
        lost = [client.wait("response"), client.wait("response")]
        assert [(one.get("id"), one["command"], one["success"]) for one in lost] == [
            ({"odd": 1}, "get_messages", False),
            (None, "get_state", False),
        ]
        assert "look before you repeat it" in lost[0]["error"] and lost[0]["sessionId"] == id
        closed = client.wait("session_closed")
        assert closed["sessionId"] == id and "ended" in closed["reason"]
        client.call("prompt", message="go on", sessionId=current)
        assert client.wait("agent_settled")["sessionId"] == current
        assert client.call("get_last_assistant_text", sessionId=current)["data"]["text"] == "taken over"


def test_an_editor_on_a_websocket_reaches_sessions_of_other_nodes(cluster: Cluster, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token = add_user(tokens, "ann", {})
    args = ["--tokens", str(tokens), "--root", str(tmp_path), "--permission-mode", "default"]
    steps = [cluster.marking(0), reply("of a"), reply("late ", gate("go"), "answer")]
    a, _ = cluster.node(steps, *args, base=tmp_path / "a", recovers=False)
    b, _ = cluster.node([], *args, base=tmp_path / "b", recovers=False)
    headers = {"Authorization": f"Bearer {token}"}
    with Editor(a, additional_headers=headers) as first, Editor(b, additional_headers=headers) as second:
        id = first.begin()
        second.ok("initialize", protocolVersion=1)
        assert second.ask("session/load", sessionId="none", cwd=str(cluster.work), mcpServers=[])["error"]
        assert second.ok("session/resume", sessionId=id, cwd=second.cwd, mcpServers=[])["modes"]
        asked = []
        number = second.send("session/prompt", sessionId=id, prompt=[{"type": "text", "text": "work"}])
        answer = second.answer(number, lambda question: bool(asked.append(question)) or True)
        assert answer["result"]["stopReason"] == "end_turn"
        assert asked and second.said == "of a" and cluster.marks() == "x\n"
        number = second.send("session/prompt", sessionId=id, prompt=[{"type": "text", "text": "more"}])
        until(lambda: len(a.mock.requests) == 3)
        second.socket.send(json.dumps({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}}))
        assert second.answer(number)["result"]["stopReason"] == "cancelled"
        number = second.send("_spindle/get_state", sessionId=id)
        assert second.answer(number)["result"]["sessionId"] == id
        a.process.kill()
        with Editor(b, additional_headers=headers) as third:  # which waits until the lease of the dead node has ended
            third.ok("initialize", protocolVersion=1)
            third.ok("session/load", sessionId=id, cwd=third.cwd, mcpServers=[])
            assert third.said.startswith("of a")
        until(lambda: second.ask("session/resume", sessionId=id, cwd=second.cwd, mcpServers=[]).get("result"))
        assert not b.mock.requests


def test_a_request_at_a_frozen_node_is_answered_by_the_next_owner(cluster: Cluster) -> None:
    """Its connections are open and silent, so only the end of its lease tells that it is gone."""
    a, on_a = cluster.node([reply("one")], recovers=False)
    b, on_b = cluster.node([], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "hello"})
    stream, socket = on_b.events(id), b.rpc(f"?session={id}")
    a.process.send_signal(signal.SIGSTOP)
    answers = {}

    def ask(name: str, *request: str) -> None:
        answers[name] = on_b.ask(*request)

    asked = [
        threading.Thread(target=ask, args=("read", "GET", f"/v1/sessions/{id}")),
        threading.Thread(target=ask, args=("prompt", "POST", f"/v1/sessions/{id}/get_messages")),
    ]
    began = time.monotonic()
    for thread in asked:
        thread.start()
    listed = on_b.get("/v1/sessions")[2]
    assert len(listed["silent"]) <= 1
    for thread in asked:
        thread.join(15)
    assert time.monotonic() - began < 12
    assert answers["read"][0] == 200 and answers["read"][2]["id"] == id
    assert answers["prompt"][0] == 502 and "look before you repeat it" in answers["prompt"][2]["error"]
    with pytest.raises(Exception, match=r"IncompleteRead|closed|reset"):
        while stream.next() is not None:
            pass
        raise ConnectionError("the stream is closed")
    with socket, pytest.raises(Exception, match="ended"):
        socket.wait("never")
    assert len(on_b.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]) == 2
    a.process.send_signal(signal.SIGCONT)


def test_a_session_of_a_program_is_refused_in_words(cluster: Cluster) -> None:
    """It is no server, so that nothing can be passed on to it; a dead one would lose its lease in this time."""
    _, on_b = cluster.node([], recovers=False)
    store = open_store(cluster.address)
    cluster.stack.callback(store.close)
    store.lease("of-a-program")
    status, _, told = on_b.get("/v1/sessions/of-a-program")
    assert status == 503 and "in use by a program that takes no requests" in told["error"], told


class Packing(http.server.BaseHTTPRequestHandler):
    """A node that packs its answers, and notes what it was asked for."""

    def do_GET(self) -> None:
        accepted = self.headers.get("Accept-Encoding")
        body = json.dumps({"accepted": accepted}).encode()
        self.send_response(200)
        if accepted is not None:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_an_answer_that_is_passed_on_keeps_its_packing(cluster: Cluster) -> None:
    _, on_b = cluster.node()
    packing = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Packing)
    cluster.stack.callback(packing.server_close)
    cluster.stack.callback(packing.shutdown)
    threading.Thread(target=packing.serve_forever, daemon=True).start()
    store = open_store(cluster.address)
    cluster.stack.callback(store.close)
    store.answers_at(f"http://127.0.0.1:{packing.server_port}", is_ours=True)
    store.lease("far")
    answers = []
    for headers in ({"Accept-Encoding": "gzip"}, {}):
        connection = http.client.HTTPConnection("127.0.0.1", on_b.server.port, timeout=20)
        connection.putrequest("GET", "/v1/sessions/far", skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answers.append((answer.headers["Content-Encoding"], answer.read()))
    (packed, body), plain = answers
    assert packed == "gzip" and json.loads(gzip.decompress(body)) == {"accepted": "gzip"}
    assert plain == (None, b'{"accepted": null}')
