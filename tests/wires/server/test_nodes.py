"""Several servers on one PostgreSQL, without a shared disk: each answers for every session."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spindle.server.users import add_user
from spindle.sessions.store import open_store
from tests.support import postgres
from tests.support.mock_model import Step, call, gate, reply

from .server import ServerProcess
from .test_http import Http

LEASE = "2"


class Cluster:
    """Nodes on a database of their own, each with an agent directory of its own; all work in one directory."""

    def __init__(self, base: Path) -> None:
        self.stack = ExitStack()
        self.address = postgres.database()
        self.work = base / "shared-work"
        self.work.mkdir()

    def node(self, steps: Sequence[Step] = (), *args: str, **options: Any) -> tuple[ServerProcess, Http]:
        env = {"SPINDLE_STORE": self.address, "SPINDLE_LEASE_SECONDS": LEASE, **options.pop("env", {})}
        args = (*args, *["--recover"] * options.pop("recovers", True))
        server = self.stack.enter_context(ServerProcess(steps, args=args, env=env, **options))
        return server, Http(server)

    def marks(self) -> str:
        file = self.work / "marks"
        return file.read_text() if file.exists() else ""

    def marking(self, seconds: float) -> Step:
        return reply(call("bash", {"command": f"echo x >> {self.work}/marks; sleep {seconds}"}))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with made.stack:
        yield made


def until(true: Callable[[], Any], seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def read_until(events: Any, type: str) -> list[tuple[int, dict[str, Any]]]:
    found = []
    while True:
        number, event = events.next()
        found.append((number, event))
        if event["type"] == type:
            return found


def test_any_node_answers_for_any_session(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("one"), reply("two"), reply("three")])
    b, on_b = cluster.node()
    id = on_a.open(cwd=str(cluster.work))
    assert on_b.get(f"/v1/sessions/{id}")[2]["phase"] == "idle"
    status, _, result = on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "hello"})
    assert (status, result["text"]) == (200, "one")
    events = on_b.events(id)
    with b.rpc(f"?session={id}") as through_b, a.rpc(f"?session={id}") as direct:
        assert through_b.ready["sessionId"] == direct.ready["sessionId"] == id
        assert direct.call("prompt", message="more")["success"]
        text = through_b.wait("agent_end")["messages"][-1]["content"][0]["text"]
        assert text == "two"
        assert read_until(events, "agent_settled")
    with b.chat(f"?session={id}") as chat:
        chat.send("r1", {"Text": "and more"})
        frames = chat.until_terminal()
    assert "three" in json.dumps(frames)
    assert [one["id"] for one in on_b.get("/v1/stored")[2]["sessions"]] == [id]
    assert not b.mock.requests
    # The owner lets go of it; then the other node has it.
    assert on_b.ask("DELETE", f"/v1/sessions/{id}")[0] == 204
    assert on_b.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]
    assert on_a.get(f"/v1/sessions/{id}")[2]["phase"] == "idle"
    assert on_b.ask("PATCH", f"/v1/stored/{id}", {"name": "Named"})[2]["name"] == "Named"
    assert on_a.get(f"/v1/stored/{id}")[2]["name"] == "Named"


def test_an_id_leads_to_the_same_conversation_at_every_node(cluster: Cluster) -> None:
    """Also after the session behind it was changed: the id that a client was told goes on to name it."""
    _, on_a = cluster.node([reply("one"), reply("two")], recovers=False)
    _, on_b = cluster.node([reply("of b")], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    assert on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})[2]["text"] == "one"
    assert on_b.post(f"/v1/sessions/{id}/new_session")[0] == 200
    assert on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "second"})[2]["text"] == "two"
    current = on_b.post(f"/v1/sessions/{id}/get_state")[2]["sessionId"]
    assert current != id
    # What it held before is a stored session like others.
    assert on_b.ask("PATCH", f"/v1/stored/{id}", {"name": "First"})[2]["name"] == "First"
    assert on_b.post(f"/v1/sessions/{id}/get_state")[2]["sessionId"] == current
    assert on_b.ask("DELETE", f"/v1/stored/{id}")[0] == 204
    assert [one["id"] for one in on_b.get("/v1/stored")[2]["sessions"]] == [current]
    assert on_a.post(f"/v1/sessions/{id}/get_state")[2]["sessionId"] == current


def test_the_lease_of_an_id_ends_with_its_session(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("one")], recovers=False)
    _, on_b = cluster.node([], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})
    with a.rpc(f"?session={id}") as socket:
        assert socket.call("new_session")["success"]
        assert socket.call("switch_session", sessionPath=id)["data"]["cancelled"] is False
        assert socket.call("new_session")["success"]
        assert open_store(cluster.address).holder(id) is not None
    assert on_a.ask("DELETE", f"/v1/sessions/{id}")[0] == 204
    until(lambda: open_store(cluster.address).holder(id) is None)
    assert on_b.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]


def test_a_slow_database_holds_up_the_session_that_asks_alone(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("one"), reply("two")], recovers=False)
    id, other = on_a.open(cwd=str(cluster.work)), on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})
    import psycopg

    with a.rpc(f"?session={other}") as beside, psycopg.connect(cluster.address) as held:
        held.execute("SELECT 1 FROM spindle_sessions FOR UPDATE")  # no lease can be given back now
        asked = threading.Thread(target=on_a.ask, args=("DELETE", f"/v1/sessions/{id}"))
        asked.start()
        until(lambda: id not in str(on_a.get("/v1/sessions")[2]))
        began = time.monotonic()
        assert beside.call("get_state")["success"]
        assert time.monotonic() - began < 1
        assert asked.is_alive()
        held.rollback()
        asked.join(10)


def test_a_database_that_refuses_is_told_like_one_that_is_gone(cluster: Cluster) -> None:
    _, on_a = cluster.node([reply("one"), reply("never"), reply("two")], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})[0] == 200
    stream = on_a.events(id)
    server = postgres.server()
    server.sql(cluster.address, "ALTER TABLE spindle_lines RENAME TO away")
    try:
        status, _, told = on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "second"})
    finally:
        server.sql(cluster.address, "ALTER TABLE away RENAME TO spindle_lines")
    assert status == 503 and "cannot be kept now" in told["error"] and "no tables" in told["error"], told
    assert b"session_closed" in stream.answer.read()
    assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "third"})[2]["text"] == "two"
    said = on_a.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]
    assert [one["content"][0]["text"] for one in said] == ["first", "one", "third", "two"]


def test_two_nodes_begin_one_session_once(cluster: Cluster) -> None:
    _, on_a = cluster.node([reply("a")])
    _, on_b = cluster.node([reply("b")])
    for number in range(5):
        id = f"same-{number}"
        requests = []
        for one in (on_a, on_b):
            connection = http.client.HTTPConnection("127.0.0.1", one.server.port, timeout=20)
            connection.request("PUT", f"/v1/sessions/{id}", json.dumps({"cwd": str(cluster.work)}))
            requests.append(connection)
        assert [one.getresponse().status for one in requests] == [200, 200]
    holders = [open_store(cluster.address).holder(f"same-{number}") for number in range(5)]
    assert None not in holders


def test_a_dead_node_is_replaced_and_streams_go_on_by_number(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("hi"), cluster.marking(30), reply("never")])
    b, on_b = cluster.node([reply("went on")])
    id = on_a.open(cwd=str(cluster.work))
    on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "hello"})
    stream, first = on_b.events(id), on_a.events(id, since=0)
    on_b.post(f"/v1/sessions/{id}/prompt", {"message": "work"})
    seen = read_until(stream, "message_end")
    assert seen[-1][1]["message"]["role"] == "user"
    last = read_until(first, "tool_execution_start")[-1][0]
    until(cluster.marks)
    began = time.monotonic()
    a.process.kill()
    until(lambda: on_b.post(f"/v1/sessions/{id}/get_state")[0] == 200)  # it waits for the end of the lease
    again = on_b.events(id, since=last)
    assert again.ready[1]["replay"] is True
    rest = read_until(again, "agent_settled")
    assert time.monotonic() - began < 12
    ends = [event["message"]["role"] for _, event in rest if event["type"] == "message_end"]
    assert ends == ["toolResult", "assistant"]
    # A client that had seen less gets the answer with the call first, once.
    more = read_until(on_b.events(id, since=seen[-1][0]), "agent_settled")
    ends = [event["message"]["role"] for _, event in more if event["type"] == "message_end"]
    assert ends == ["assistant", "toolResult", "assistant"]
    half = read_until(on_b.events(id, since=more[0][0]), "agent_settled")
    assert [event for _, event in half] == [event for _, event in more[1:]]
    numbers = [number for number, _ in more]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert cluster.marks() == "x\n"
    assert "went on" in json.dumps(rest)
    with b.rpc(f"?session={id}&since={last}") as socket:
        assert socket.ready["replay"] is True


def test_nobody_is_told_of_a_message_that_is_not_kept(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("warm"), reply("an", gate("end"), "swer")], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "warm"})
    stream, results = on_a.events(id), list[Any]()
    ask = threading.Thread(
        target=lambda: results.append(on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "go"}))
    )
    import psycopg

    with psycopg.connect(cluster.address) as other:
        with other.transaction():  # nothing can be added now
            other.execute("SELECT 1 FROM spindle_sessions FOR UPDATE")
            ask.start()
            a.mock.wait_gate("end")
            assert on_a.events(id, since=0).ready[1]["replay"] is not None
            seen = read_until(stream, "message_start")
        seen += read_until(stream, "message_update")
        with other.transaction():
            other.execute("SELECT 1 FROM spindle_sessions FOR UPDATE")
            a.mock.release("end")
            while seen[-1][1].get("assistantMessageEvent", {}).get("delta") != "swer":
                seen.append(stream.next())
            assert [event["message"]["role"] for _, event in seen if event["type"] == "message_end"] == ["user"]
            time.sleep(0.2)  # now it would have been told
            on_a.post(f"/v1/sessions/{id}/get_state")
            assert results == []
            a.process.send_signal(signal.SIGSTOP)  # before it knows that the answer is kept
    ends = [number for number, event in seen if event["type"] == "message_end"]
    _, on_b = cluster.node([reply("never")])
    until(lambda: on_b.post(f"/v1/sessions/{id}/get_state")[0] == 200)
    later = read_until(on_b.events(id, since=ends[-1]), "agent_settled")
    told = [event["message"]["content"][0]["text"] for _, event in later if event["type"] == "message_end"]
    assert told == ["answer"]
    a.process.send_signal(signal.SIGCONT)
    until(lambda: results)
    assert results[0][2]["text"] == "answer", "it was kept in time"


def test_a_result_that_is_not_kept_is_not_returned(cluster: Cluster) -> None:
    """Another node took the session while its last answer was on the way to the database."""
    a, on_a = cluster.node([reply("an", gate("end"), "swer")], recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    stream, results = on_a.events(id), list[Any]()
    ask = threading.Thread(
        target=lambda: results.append(on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "go"}))
    )
    ask.start()
    a.mock.wait_gate("end")
    read_until(stream, "message_update")
    import psycopg

    with psycopg.connect(cluster.address) as other:
        other.execute("UPDATE spindle_sessions SET node = 'another', lease = lease + 1")
        a.mock.release("end")
        seen = read_until(stream, "message_update")
        time.sleep(0.2)
        assert results == []
        other.commit()
    ask.join(20)
    status, _, told = results[0]
    assert status == 409 and "goes on elsewhere" in told["error"], results
    while seen[-1][1]["type"] != "session_closed":
        seen.append(stream.next())
    assert "message_end" not in [event["type"] for _, event in seen]


def test_a_node_that_ends_hands_its_runs_over(cluster: Cluster) -> None:
    a, on_a = cluster.node([cluster.marking(30)], "--drain", "30")
    _, on_b = cluster.node([reply("handed over")])
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt", {"message": "work"})
    until(cluster.marks)
    began = time.monotonic()
    assert a.stop() == 0
    until(lambda: "handed over" in json.dumps(on_b.get(f"/v1/stored/{id}")[2]))
    assert time.monotonic() - began < 8
    assert cluster.marks() == "x\n"


def test_a_question_is_answered_on_another_node_after_the_death_of_the_first(cluster: Cluster) -> None:
    options = ["--ask", "Bash", "--on-question", "wait"]
    a, on_a = cluster.node([cluster.marking(0)], *options, recovers=False)
    cluster.node([], *options, recovers=False)
    _, on_c = cluster.node([reply("done")], *options, recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt", {"message": "work"})
    until(lambda: b"spindle.question" in b"".join(getattr(open_store(cluster.address).load(id), "lines", [])))
    a.process.kill()
    until(lambda: on_c.post(f"/v1/sessions/{id}/get_state")[0] == 200)
    state = on_c.post(f"/v1/sessions/{id}/get_state")[2]["interruptedRun"]
    (question,) = state["questions"]
    assert cluster.marks() == ""
    answered = on_c.post(f"/v1/sessions/{id}/answer_question", {"question": question["id"], "behavior": "allow"})
    assert answered[0] == 200, answered
    until(lambda: "done" in json.dumps(on_c.post(f"/v1/sessions/{id}/get_messages")[2]))
    assert cluster.marks() == "x\n"


def test_a_node_that_was_stopped_adds_nothing_when_it_wakes(cluster: Cluster) -> None:
    """Its lease was lost in the middle of a tool call: the clock of the database decides, not ours."""
    a, on_a = cluster.node([cluster.marking(0.5), cluster.marking(0), reply("of a")])
    _, on_b = cluster.node([reply("of b")])
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt", {"message": "work"})
    until(cluster.marks)
    a.process.send_signal(signal.SIGSTOP)
    until(lambda: "of b" in json.dumps(on_b.get(f"/v1/stored/{id}")[2]))
    before = open_store(cluster.address).load(id)
    a.process.send_signal(signal.SIGCONT)
    assert on_a.post(f"/v1/sessions/{id}/get_state")[0] == 200
    until(lambda: "goes on" in json.dumps(a.stderr) or on_a.get("/v1/sessions")[2]["sessions"] == [])
    after = open_store(cluster.address).load(id)
    assert before is not None and after is not None
    assert before.lines == after.lines
    assert cluster.marks() == "x\n"


def test_a_node_that_slept_knows_nothing_of_what_others_did(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("one")])
    _, on_b = cluster.node([reply("two"), reply("three")])
    id = on_a.open(cwd=str(cluster.work))
    assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})[0] == 200
    at_a = on_a.events(id)
    a.process.send_signal(signal.SIGSTOP)
    try:
        assert until(lambda: on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "second"})[0] == 200)
        seen = [number for number, _ in on_b.events(id, since=at_a.ready[0]).until("agent_settled")]
    finally:
        a.process.send_signal(signal.SIGCONT)
    there = on_a.events(id, since=seen[-1])
    assert there.ready[1]["replay"] is True, "the one that has the session answers"
    assert b"session_closed" in at_a.answer.read()
    assert on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "third"})[0] == 200
    told = [event["message"]["content"] for _, event in there.until("agent_settled") if event["type"] == "message_end"]
    assert [content[0]["text"] for content in told] == ["third", "three"]


def test_a_client_may_break_off_again_while_it_catches_up(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("one"), reply("two")], recovers=False)
    b, on_b = cluster.node(recovers=False)
    _, on_c = cluster.node(recovers=False)
    id = on_a.open(cwd=str(cluster.work))
    start = on_a.events(id).ready[0]
    for message in ("first", "second"):
        assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": message})[0] == 200
    a.process.kill()
    until(lambda: on_b.post(f"/v1/sessions/{id}/get_state", {})[0] == 200)
    first = on_b.events(id, since=start).next()
    b.process.kill()
    until(lambda: on_c.post(f"/v1/sessions/{id}/get_state", {})[0] == 200)
    stream = on_c.events(id, since=first[0])
    assert stream.ready[1]["replay"] is False or "two" in json.dumps(stream.until("agent_settled"))


def test_numbers_go_on_in_a_session_that_was_gone_to(cluster: Cluster) -> None:
    """The former owner told of it with the numbers of the session before, whose lease had the same number."""
    a, on_a = cluster.node([reply(str(number)) for number in range(5)], recovers=False)
    _, on_b = cluster.node([reply("of b"), reply("more of b")], recovers=False)
    stored, id = on_a.open(cwd=str(cluster.work)), on_a.open(cwd=str(cluster.work))
    for one in (stored, stored, stored, id):
        on_a.post(f"/v1/sessions/{one}/prompt?wait=true", {"message": "before"})
        on_a.ask("DELETE", f"/v1/sessions/{one}")
    stream = on_a.events(id)
    on_a.post(f"/v1/sessions/{id}/new_session")
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "second"})
    new, last = on_a.post(f"/v1/sessions/{id}/get_state")[2]["sessionId"], stream.until("agent_settled")[-1][0]
    on_a.post(f"/v1/sessions/{id}/switch_session", {"sessionPath": stored})
    changed = stream.until("session_changed")[-1][0]
    a.process.kill()
    for one in (new, stored):
        until(lambda one=one: on_b.post(f"/v1/sessions/{one}/get_state")[0] == 200)  # type: ignore[misc]
        on_b.post(f"/v1/sessions/{one}/prompt?wait=true", {"message": "third"})
    for one, since in ((new, last), (stored, changed)):
        there = on_b.events(one, since=since)
        assert there.ready[1]["replay"] is True
        ends = [event["message"] for _, event in there.until("agent_settled") if event["type"] == "message_end"]
        assert len(ends) == 2 and ends[0]["content"][0]["text"] == "third", ends


def test_what_is_queued_is_accepted_when_it_is_kept(cluster: Cluster) -> None:
    server = postgres.Server.of_its_own()
    cluster.stack.callback(server.remove)
    cluster.address = server.database()
    _, on_a = cluster.node([reply("long ", gate("go"), "answer"), reply("then")])
    id = on_a.open(cwd=str(cluster.work))
    assert on_a.post(f"/v1/sessions/{id}/prompt", {"message": "first"})[0] == 200
    queued = {"message": "queued", "streamingBehavior": "followUp"}
    assert on_a.post(f"/v1/sessions/{id}/prompt", queued)[0] == 200
    server.stop()
    for command, body in (("prompt", queued), ("steer", {"message": "more"}), ("follow_up", {"message": "more"})):
        assert on_a.post(f"/v1/sessions/{id}/{command}", body)[0] == 503, command


def test_quotas_hold_across_nodes(cluster: Cluster, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token = add_user(tokens, "ann", {"runsPerDay": 3})
    roots = ["--tokens", str(tokens), "--root", str(tmp_path)]
    nodes = [cluster.node([reply("ok")] * 4, *roots, base=tmp_path / name) for name in "ab"]
    clients = [Http(server, token) for server, _ in nodes]
    id = clients[0].open(cwd=str(cluster.work))
    statuses = []
    for number in range(4):
        statuses.append(clients[number % 2].post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "go"})[0])
    other = clients[1].open(cwd=str(cluster.work))
    statuses.append(clients[1].post(f"/v1/sessions/{other}/prompt", {"message": "go"})[0])
    assert statuses == [200, 200, 200, 429, 429]
    assert open_store(cluster.address).page().cards == []
    assert len(open_store(cluster.address).within("ann").page().cards) == 1


def test_two_nodes_with_one_address_are_refused(cluster: Cluster) -> None:
    a, on_a = cluster.node()
    with pytest.raises(AssertionError, match="Another node answers at"):
        cluster.node([], "--node-address", f"http://{a.address}")
    assert on_a.get("/readyz")[0] == 200


def test_a_database_that_ends_is_told_and_nothing_is_lost(cluster: Cluster) -> None:
    server = postgres.Server.of_its_own()
    cluster.stack.callback(server.remove)
    cluster.address = server.database()
    a, on_a = cluster.node([reply("one"), reply("two"), reply("three")])
    id = on_a.open(cwd=str(cluster.work))
    assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})[0] == 200
    socket = cluster.stack.enter_context(a.rpc())
    assert socket.call("prompt", message="first")["success"]
    socket.wait("agent_settled")
    stream = on_a.events(id)
    server.stop()
    began = time.monotonic()
    sent = http.client.HTTPConnection("127.0.0.1", a.port, timeout=30)
    sent.request("POST", f"/v1/sessions/{id}/prompt?wait=true", json.dumps({"message": "second"}))
    assert sent.getresponse().status == 503, "it was not accepted"
    closed = stream.answer.read()
    assert time.monotonic() - began < 25
    assert b"session_closed" in closed and b"does not answer" in closed
    assert b'"message_end"' not in closed and b'"agent_settled"' not in closed, "it is not kept"
    assert until(lambda: on_a.get("/readyz")[0] == 503)
    assert on_a.post(f"/v1/sessions/{id}/get_state", {})[0] == 503, "another node may have it"
    answer = socket.call("prompt", message="second over a WebSocket")
    assert not answer["success"] and "does not answer" in answer["error"]
    server.start()
    until(lambda: on_a.get("/readyz")[0] == 200)
    assert on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "third"})[0] == 200
    lines = open_store(cluster.address).load(id)
    assert lines is not None
    texts = [line for line in lines.lines if b'"role":"user"' in line]
    assert [sum(text in line for line in texts) for text in (b"first", b"second", b"third")] == [1, 0, 1]
