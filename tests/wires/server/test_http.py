"""Plain HTTP: sessions, commands, events that are taken up again, questions, and the document that describes it all."""

import http.client
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from spindle.protocol.commands import COMMANDS
from tests.support.mock_model import call, failure, gate, reply

from .server import TOKEN, ServerProcess


class Http:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, server, token=None):
        self.server = server
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, method, path, body=None, **headers):
        """Return status, headers and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {**self.headers, **headers})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = answer.headers["Content-Type"] == "application/json" and text
        return answer.status, answer.headers, json.loads(text) if is_json else text.decode()

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, body=None, **headers):
        return self.ask("POST", path, body, **headers)

    def open(self, **fields):
        status, _, info = self.post("/v1/sessions", fields)
        assert status == 201, info
        return info["id"]

    def events(self, id, since=None):
        return Events(self.server, id, {**self.headers, **({} if since is None else {"Last-Event-ID": str(since)})})


class Events:
    """A stream of events; each is (number, object)."""

    def __init__(self, server, id, headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self.connection.request("GET", f"/v1/sessions/{id}/events", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200 and self.answer.headers["Content-Type"] == "text/event-stream"
        self.ready = self.next()

    def next(self):
        number, event = None, None
        while line := self.answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                event = json.loads(value)
            elif not name and event is not None:
                return number, event
        return None

    def until(self, kind):
        seen = []
        while (item := self.next()) is not None:
            seen.append(item)
            if item[1]["type"] == kind:
                return seen
        raise AssertionError(f"the stream ended: {seen[-3:]}")

    def close(self):
        self.answer.close()
        self.connection.close()


@pytest.fixture
def server(tmp_path):
    (tmp_path / "other").mkdir()
    steps = [
        reply("slow ", gate("go"), "answer", match="slow"),
        reply(call("bash", {"command": "touch made"}), match="touch", usage=(10, 5, 2)),
        reply("quick"),
    ]
    with ServerProcess(steps, base=tmp_path) as server:
        yield server


def test_a_prompt_that_was_accepted_outlives_a_kill(tmp_path):
    extension = tmp_path / "sleeper.py"
    extension.write_text(
        "import time\n\ndef extension(agent):\n    agent.on('input', lambda event, ctx: time.sleep(20))\n"
    )
    with ServerProcess(base=tmp_path, args=["-e", str(extension)]) as server:
        web = Http(server)
        answer = web.post(f"/v1/sessions/{web.open()}/prompt", {"message": "precious"})
        server.process.kill()  # nothing else gets a turn while the extension sleeps
        server.process.wait(10)
        assert answer[0] == 200 and answer[2] == {"disposition": "started"}
    assert any(b"precious" in file.read_bytes() for file in tmp_path.rglob("*.jsonl*"))


def test_a_session_from_its_opening_to_its_end(server, tmp_path):
    web = Http(server)
    status, _, info = web.post("/v1/sessions", {"cwd": str(tmp_path / "other"), "name": "bee"})
    assert status == 201 and info["cwd"] == str(tmp_path / "other") and info["name"] == "bee"
    at = f"/v1/sessions/{info['id']}"
    assert web.post(f"{at}/prompt", {"message": "hi"})[::2] == (200, {"disposition": "started"})
    status, _, result = web.post(f"{at}/prompt?wait=true", {"message": "again", "streamingBehavior": "followUp"})
    assert (status, result["status"], result["text"]) == (200, "ok", "quick")
    assert result["sessionId"] == info["currentId"]
    assert web.post(f"{at}/set_session_name", {"name": "wasp"})[0] == 204
    assert web.post(f"{at}/get_state")[2]["sessionName"] == "wasp"
    status, _, listed = web.get("/v1/sessions")
    assert [(one["id"], one["phase"], one["name"]) for one in listed["sessions"]] == [(info["id"], "idle", "wasp")]
    assert web.get(at)[2]["id"] == info["id"]
    assert web.ask("DELETE", at)[0] == 204
    assert web.get(at)[2]["phase"] == "stored" and web.get("/v1/sessions")[2] == {"sessions": []}
    assert web.post(f"{at}/get_state")[2]["sessionName"] == "wasp"  # the id still works


def test_a_session_is_begun_with_the_id_that_is_asked_for(server):
    web = Http(server)
    status, _, info = web.ask("PUT", "/v1/sessions/mine-1", {"name": "x"})
    assert (status, info["id"], info["name"]) == (200, "mine-1", "x")
    assert web.ask("PUT", "/v1/sessions/mine-1")[2]["name"] == "x" and len(web.get("/v1/sessions")[2]["sessions"]) == 1
    web.post("/v1/sessions/mine-1/prompt?wait=true", {"message": "hi"})
    web.ask("DELETE", "/v1/sessions/mine-1")
    assert web.ask("PUT", "/v1/sessions/mine-1")[0] == 200
    assert web.post("/v1/sessions/mine-1/get_state")[2]["messageCount"] == 2
    assert web.ask("PUT", "/v1/sessions/not%20an%20id")[0] == 409


def test_an_id_of_the_client_leads_to_the_same_session_by_any_method(server):
    """Also when its conversation goes on in another file."""
    web = Http(server)
    at = "/v1/sessions/customer-17"
    web.ask("PUT", at, {})
    web.post(f"{at}/prompt?wait=true", {"message": "hi"})
    web.post(f"{at}/new_session")
    shown = web.get(at)[2]
    assert shown["id"] == "customer-17" != shown["currentId"]
    status, _, put = web.ask("PUT", at, {})
    assert status == 200 and (put["id"], put["currentId"]) == (shown["id"], shown["currentId"])


def test_waiting_for_a_run_does_not_hold_up_others(server):
    web = Http(server)
    one, two = web.open(), web.open()
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(web.post(f"/v1/sessions/{one}/prompt?wait=true", {"message": "slow"}))
    )
    waiting.start()
    server.mock.wait_gate("go")
    assert web.post(f"/v1/sessions/{two}/prompt?wait=true", {"message": "hi"})[2]["text"] == "quick"
    assert web.post(f"/v1/sessions/{one}/get_state")[2]["isStreaming"]
    assert web.get(f"/v1/sessions/{one}")[2]["phase"] == "streaming"
    server.mock.release("go")
    waiting.join(10)
    assert answers[0][2]["text"] == "slow answer"


@pytest.fixture
def asks_before_a_change(tmp_path):
    """An extension that holds up a change of session with a question."""
    file = tmp_path / "asks.py"
    file.write_text(
        "def extension(agent):\n"
        "    @agent.on('session_before_switch')\n"
        "    async def ask(event, ctx):\n"
        "        await ctx.ui.confirm('change', 'now?')\n"
    )
    return ["-e", str(file)]


def test_the_end_of_a_run_before_it_is_not_what_came_of_a_prompt(tmp_path, asks_before_a_change):
    """A change of session ends that run while the prompt waits for the other session."""
    steps = [reply("slow ", gate("never"), match="slow"), reply("quick")]
    with ServerProcess(steps, base=tmp_path, args=asks_before_a_change) as server:
        web = Http(server)
        id = web.open()
        at, events, answers = f"/v1/sessions/{id}", web.events(id), []
        web.post(f"{at}/prompt", {"message": "slow"})
        server.mock.wait_gate("never")
        changing = threading.Thread(target=web.post, args=(f"{at}/new_session",))
        changing.start()
        question = events.until("extension_ui_request")[-1][1]["id"]
        waiting = threading.Thread(target=lambda: answers.append(web.post(f"{at}/prompt?wait=true", {"message": "hi"})))
        waiting.start()
        events.until("queue_update")
        web.post(f"{at}/answers/{question}", {"confirmed": True})
        waiting.join(20)
        changing.join(20)
        events.close()
        assert (answers[0][0], answers[0][2]["text"]) == (200, "quick")


@pytest.mark.parametrize("how", ["abort", "DELETE", "DELETE in a run"])
def test_a_prompt_that_never_begins_is_answered(tmp_path, asks_before_a_change, how):
    """It waits for a change of session, and is aborted there, or the session is ended."""
    steps = [reply("slow ", gate("never"), match="slow"), reply("quick")]
    with ServerProcess(steps, base=tmp_path, args=asks_before_a_change) as server:
        web = Http(server)
        id = web.open()
        at, events, answers = f"/v1/sessions/{id}", web.events(id), []
        if how == "DELETE in a run":
            web.post(f"{at}/prompt", {"message": "slow"})
            server.mock.wait_gate("never")
        changing = threading.Thread(target=web.post, args=(f"{at}/new_session",))
        changing.start()
        events.until("extension_ui_request")
        waiting = threading.Thread(target=lambda: answers.append(web.post(f"{at}/prompt?wait=true", {"message": "hi"})))
        waiting.start()
        events.until("queue_update")
        assert (web.post(f"{at}/abort") if how == "abort" else web.ask("DELETE", at))[0] == 204
        waiting.join(10)
        assert answers[0][0] == 409 and ("Aborted" if how == "abort" else "ended") in answers[0][2]["error"]
        if how == "abort":
            web.ask("DELETE", at)
        changing.join(20)
        events.close()


def test_events_are_numbered_and_taken_up_again(server):
    web = Http(server)
    id = web.open()
    stream = web.events(id)
    assert stream.ready[1]["type"] == "ready" and stream.ready[1]["replay"] is False
    web.post(f"/v1/sessions/{id}/prompt", {"message": "slow"})
    server.mock.wait_gate("go")
    seen = stream.until("message_update")
    stream.close()  # the network breaks
    server.mock.release("go")
    back = web.events(id, since=seen[-1][0])
    assert back.ready == (seen[-1][0], {**back.ready[1], "replay": True})
    seen += back.until("agent_settled")
    numbers = [number for number, _ in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(seen)))
    pieces = [event["assistantMessageEvent"] for _, event in seen if event["type"] == "message_update"]
    assert "".join(piece.get("delta", "") for piece in pieces if piece["type"] == "text_delta") == "slow answer"
    assert web.events(id, since=numbers[-1] + 5).ready[1]["replay"] is False
    web.ask("DELETE", f"/v1/sessions/{id}")
    assert back.until("session_closed")[-1][1]["reason"] == "closed"
    assert back.next() is None


def test_a_run_that_is_tried_again_has_one_end():
    with ServerProcess([failure(529, "Overloaded"), reply("fine")]) as server:
        web = Http(server)
        id = web.open()
        stream = web.events(id)
        web.post(f"/v1/sessions/{id}/prompt", {"message": "go"})
        seen = [event for _, event in stream.until("agent_settled")]
        assert [event["type"] for event in seen].count("agent_start") == 1
        (end,) = [event for event in seen if event["type"] == "agent_end"]
        assert [message.get("stopReason") for message in end["messages"]] == [None, "error", "stop"]


def test_what_was_missed_comes_at_once(server):
    web = Http(server)
    server.mock.script(reply(*(f"{number:05d} " * 100 for number in range(500))))
    id = web.open()
    web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "long"})
    began = time.monotonic()
    events = web.events(id, since=0)
    assert events.ready[1]["replay"] and len(events.until("agent_settled")) > 500
    assert time.monotonic() - began < 5  # and not at the pace of the heartbeat
    events.close()


def test_a_reader_sees_the_end_of_a_run_however_long_its_messages_are(tmp_path):
    steps = [reply("z" * 900_000, call("ls", {"path": "."}, id=f"c{number}")) for number in range(6)]
    with ServerProcess([*steps, reply("done")], base=tmp_path) as server:
        web = Http(server)
        id = web.open()
        events = web.events(id)
        web.post(f"/v1/sessions/{id}/prompt", {"message": "go"})
        seen = events.until("agent_settled")
        assert max(len(json.dumps(event)) for _, event in seen) > 4 << 20
        events.close()


def test_sessions_may_have_more_files_open_than_the_system_gives_unasked(tmp_path):
    few = ("bash", "-c", 'ulimit -Sn 64; exec "$@"', "bash")
    with ServerProcess([reply("ok")], base=tmp_path, before=few) as server:
        web = Http(server)
        for _ in range(40):
            assert web.post(f"/v1/sessions/{web.open()}/prompt?wait=true", {"message": "hi"})[0] == 200


def test_a_silent_stream_has_a_heartbeat(tmp_path):
    with ServerProcess(base=tmp_path, args=["--remote-option", "ping_seconds=1"]) as server:
        web = Http(server)
        stream = web.events(web.open())
        assert stream.answer.readline() == b": still here\n"


def test_questions_are_asked_and_answered(server, tmp_path):
    web = Http(server)
    id = web.open(cwd=str(tmp_path / "other"))
    at = f"/v1/sessions/{id}"
    web.post(f"{at}/set_permissions", {"mode": "default"})
    stream = web.events(id)
    web.post(f"{at}/prompt", {"message": "touch", "maxTurns": 2})
    question = stream.until("extension_ui_request")[-1][1]
    listed = web.get(f"{at}/questions")[2]
    assert [item["id"] for item in listed["questions"]] == [question["id"]]
    (request,) = listed["requests"]
    assert (request["id"], request["preview"]["kind"]) == (question["id"], "command")
    wrong = {"question": question["id"], "behavior": "allow", "keep": "everywhere"}
    assert web.post(f"{at}/answer_permission", wrong)[0] == 400
    wrong = {"question": question["id"], "behavior": "allow", "input": {"comand": "x"}}
    assert "command" in web.post(f"{at}/answer_permission", wrong)[2]["error"]
    assert web.get(at)[2]["questions"] == 1
    assert web.post(f"{at}/answer_permission", {"question": "nonsense", "behavior": "deny"})[0] == 409
    assert web.post(f"{at}/answers/nonsense", {"value": "x"})[0] == 404
    assert web.post(f"{at}/answers/{question['id']}", {})[0] == 400
    assert web.post(f"{at}/answers/{question['id']}", {"value": "Allow once"})[0] == 204
    assert stream.until("tool_execution_end")[-1][1]["isError"] is False
    web.post(f"{at}/abort")
    assert (tmp_path / "other" / "made").exists()
    assert web.get(f"{at}/questions")[2] == {"questions": [], "requests": []}


def test_what_is_wrong_is_said(server, tmp_path):
    web = Http(server)
    id = web.open()
    at = f"/v1/sessions/{id}"
    for path, body, status, text in [
        ("/v1/sessions/nothing/get_state", None, 404, "No session nothing"),
        (f"{at}/nonsense", None, 404, "Unknown command: nonsense"),
        (f"{at}/prompt", {}, 400, "message is required"),
        (f"{at}/prompt", {"message": 5}, 400, "Invalid message: expected string"),
        (f"{at}/prompt", b"{", 400, "not JSON"),
        (f"{at}/prompt", b"[]", 400, "must be a JSON object"),
        (f"{at}/prompt?wait=perhaps", {"message": "x"}, 400, "true or false"),
        (f"{at}/set_model", {"provider": "no", "modelId": "such"}, 409, "no/such"),
        (f"{at}/set_update_mode", {"mode": "full"}, 409, "Over HTTP"),
        ("/v1/sessions", {"cwd": str(tmp_path / "nowhere")}, 409, "no directory"),
        ("/v1/sessions", {"cwd": 5}, 400, "cwd"),
        ("/v1/nothing", None, 404, "No such path"),
        ("/v1/sessions/..%2fagent%2fmodels.json/get_state", None, 404, "is no id of a session"),
        ("/v1/sessions/%2fetc%2fpasswd/get_state", None, 404, "is no id of a session"),
    ]:
        answered, _, said = web.post(path, body)
        assert (answered, text in said["error"]) == (status, True), (path, answered, said)
    status, _, said = web.post(f"{at}/get_state", b"{}", **{"Content-Encoding": "gzip"})
    assert status == 400 and "The body cannot be read" in said["error"]
    status, headers, _ = web.get(f"{at}/prompt")
    assert status == 405 and headers["Allow"] == "POST"
    status, headers, _ = web.post(f"{at}/questions")
    assert status == 405 and headers["Allow"] == "GET"
    assert (
        web.ask("PUT", "/v1/sessions/x.jsonl")[0] == 404 and web.get("/v1/sessions/%2fetc%2fpasswd/questions")[0] == 404
    )
    assert web.ask("PUT", "/v1/sessions")[0] == 405 and web.ask("POST", "/")[0] == 405
    assert web.post(f"{at}/shutdown")[0] == 204 and web.get("/healthz")[0] == 200
    assert "Traceback" not in server.stderr


def test_the_same_doors_as_for_the_socket(tmp_path):
    with ServerProcess([reply("x")], base=tmp_path, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        for path in ("/v1/sessions", "/openapi.json", "/v1/sessions/x/events"):
            status, _, said = Http(server).get(path)
            assert status == 401 and "token is required" in said["error"]
            assert Http(server, "wrong-wrong-wrong-wrong").get(path)[0] == 401
        web = Http(server, TOKEN)
        assert web.get("/v1/sessions")[0] == 200
        assert web.get("/v1/sessions", Origin="https://evil.example")[0] == 403
        assert web.get("/v1/sessions", Host="evil.example")[0] in (200, 403)  # a page that gets here has no token
    with ServerProcess([reply("x")], base=tmp_path) as server:
        web = Http(server)
        assert web.get("/v1/sessions", Host="evil.example")[0] == 403
        assert web.post("/v1/sessions", {}, Origin="https://evil.example")[0] == 403


def test_limits(tmp_path):
    args = ["--remote-option", "max_sessions=2", "--remote-option", "max_message_bytes=20000"]
    with ServerProcess([reply("x", gate("go"))], base=tmp_path, args=args) as server:
        web = Http(server)
        one, two = web.open(), web.open()
        for id in (one, two):
            web.post(f"/v1/sessions/{id}/prompt", {"message": "hi"})
        status, headers, said = web.post("/v1/sessions", {})
        assert status == 429 and headers["Retry-After"] and "2 sessions" in said["error"]
        assert web.post(f"/v1/sessions/{one}/steer", {"message": "x" * 30_000})[0] == 413
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(
                f"POST /v1/sessions HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: 9999999999\r\n\r\n".encode()
            )
            assert b" 413 " in raw.recv(1000)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_session_does_not_leave_memory_while_a_request_is_in_hand(tmp_path, seconds):
    with ServerProcess([reply("ok")], base=tmp_path, args=["--remote-option", f"keep_seconds={seconds}"]) as server:
        web = Http(server)
        at = f"/v1/sessions/{web.open(name='bee')}"
        assert web.post(f"{at}/get_state")[2]["sessionName"] == "bee"
        assert web.post(f"{at}/prompt?wait=true", {"message": "hi"})[2]["text"] == "ok"
        assert web.post(f"{at}/new_session")[2] == {"cancelled": False}
        assert web.post(f"{at}/prompt?wait=true", {"message": "again"})[2]["text"] == "ok"
        said = web.post(f"{at}/bash", {"command": f"sleep {seconds + 0.5}; echo done"})[2]
        assert (said["output"], said["cancelled"]) == ("done\n", False)
        assert web.post(f"{at}/get_state")[2]["messageCount"] == 3


def test_a_question_that_no_client_is_there_to_answer_does_not_hold_a_request_for_ever(tmp_path):
    extension = tmp_path / "asks.py"
    extension.write_text(
        "def extension(agent):\n    @agent.on('input')\n"
        "    async def ask(event, ctx):\n        await ctx.ui.confirm('really', 'go on?')\n"
    )
    args = ["-e", str(extension), "--remote-option", "keep_seconds=1"]
    with ServerProcess([reply("ok")], base=tmp_path, args=args) as server:
        web = Http(server)
        status, _, result = web.post(f"/v1/sessions/{web.open()}/prompt?wait=true", {"message": "hi"})
        assert (status, result["status"]) == (200, "aborted")


def is_ended(port, client):
    """Wait until the server has closed its end of a connection (its client does not hear of it before it reads)."""
    ours, theirs = (f"0100007F:{number:04X}" for number in (port, client.getsockname()[1]))
    for _ in range(300):
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        if not any(row[1:4] == [ours, theirs, "01"] for row in rows):  # established
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at connections in /proc")
def test_a_reader_that_stops_holds_up_nobody(tmp_path):
    args = ["--remote-option", "viewer_stall_timeout=1", "--remote-option", "stall_timeout=1"]
    steps = [
        reply(*(" ".join(map(str, range(n * 1000, n * 1000 + 1000))) for n in range(1000)), match="long"),
        reply("quick"),
    ]
    with ServerProcess(steps, base=tmp_path, args=args) as server:
        web = Http(server)
        id = web.open()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(f"GET /v1/sessions/{id}/events HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode())
            assert b"200 OK" in stuck.recv(100)
            result = web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "long"})[2]
            assert result["status"] == "ok" and len(result["text"]) > 6_000_000
        assert web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "hi"})[2]["text"] == "quick"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = (
                f"POST /v1/sessions/{id}/get_messages HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: 2\r\n\r\n"
            )
            stuck.sendall(head.encode() + b"{}")
            assert is_ended(server.port, stuck), "the answer would stay in memory"


def test_the_document_names_every_command(server):
    status, _, document = Http(server).get("/openapi.json")
    assert status == 200 and document["openapi"].startswith("3.1")
    assert {f"/v1/sessions/{{id}}/{name}" for name in COMMANDS} <= document["paths"].keys()
    operations = [
        operation for path in document["paths"].values() for method, operation in path.items() if method != "parameters"
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["summary"] for operation in operations), "pages show it"
    made = {name.title().replace("_", "") + kind for name in names for kind in ("Result", "Response", "Body", "Params")}
    assert not made & document["components"]["schemas"].keys(), "generators make types of these names"
