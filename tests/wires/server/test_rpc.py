"""The RPC protocol over WebSocket: shared sessions, reconnecting, readers that stop, the page's files."""

import gzip
import json
import posixpath
import re
import socket
import time
import urllib.error
import urllib.request

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.mock_model import call, failure, gate, reply

from .server import ServerProcess


def get(server, path):
    with urllib.request.urlopen(f"http://{server.address}{path}") as answer:
        return answer.status, dict(answer.headers), answer.read()


def text_of(frames):
    pieces = [f["assistantMessageEvent"] for f in frames if f["type"] == "message_update"]
    return "".join(piece["delta"] for piece in pieces if piece["type"] == "text_delta")


def test_the_same_commands_and_events_as_on_stdio():
    with ServerProcess([reply("Hel", "lo")]) as server, server.rpc() as client:
        assert client.ready["type"] == "ready" and client.ready["eventCount"] == 0
        assert client.call("get_state")["data"]["sessionId"] == client.ready["sessionId"]
        assert client.call("prompt", message="hi")["data"] == {"disposition": "started"}
        client.wait("agent_settled")
        assert client.call("get_last_assistant_text")["data"] == {"text": "Hello"}
        client.write("rubbish")
        assert client.wait("response")["command"] == "parse"


def test_several_clients_see_one_session():
    with (
        ServerProcess([reply("a", gate("go"), "b")]) as server,
        server.rpc() as one,
        server.rpc(f"?session={one.ready['sessionId']}") as two,
    ):
        assert two.ready["sessionId"] == one.ready["sessionId"]
        one.call("prompt", message="hi")
        assert two.wait("message_start")["message"]["role"] == "user"
        assert two.call("steer", message="me too")["success"]
        assert one.wait("queue_update")["steering"] == ["me too"]
        server.mock.release("go")
        one.wait("agent_settled")
        two.wait("agent_settled")


def test_a_broken_connection_misses_nothing():
    with ServerProcess([reply("one ", "two ", gate("go"), "three ", "four")]) as server:
        with server.rpc() as client:
            id = client.ready["sessionId"]
            client.call("set_update_mode", mode="delta")
            client.call("prompt", message="hi")
            seen = [client.wait("message_update") for _ in range(3)]
            last = client.events
            client.socket.socket.shutdown(socket.SHUT_RDWR)  # no goodbye
        server.mock.release("go")
        with server.rpc(f"?session={id}&since={last}") as again:
            assert again.ready["replay"] is True and again.ready["eventCount"] == last
            frames = []
            while not frames or frames[-1]["type"] != "agent_settled":
                frames.append(again.read())
            assert text_of(seen) + text_of(frames) == "one two three four"


def test_deltas_are_gathered_for_a_client_that_wants_it():
    words = [f"word{n} " for n in range(300)]
    with ServerProcess([reply(*words, gate("go"), "the end")]) as server, server.rpc() as every:
        id = every.ready["sessionId"]
        with server.rpc(f"?session={id}&deltas=gathered") as viewer:
            for client in (every, viewer):
                client.call("set_update_mode", mode="delta")
            every.call("prompt", message="hi")
            seen = []
            while not text_of(seen).endswith("word299 "):
                seen.append(viewer.read())
            counts = [frame.get("events", 1) for frame in seen]
            assert max(counts) > 1 and len(seen) < 250
            viewer.socket.socket.shutdown(socket.SHUT_RDWR)
        server.mock.release("go")
        # It counts as if it had got each of them, so nothing is missed and nothing comes twice.
        last = viewer.ready["eventCount"] + sum(counts)
        with server.rpc(f"?session={id}&since={last}&deltas=gathered") as again:
            assert again.ready["replay"] is True
            frames = []
            while not frames or frames[-1]["type"] != "agent_settled":
                frames.append(again.read())
            assert text_of(frames) == "the end"
        alone = []
        while not alone or alone[-1]["type"] != "agent_settled":
            alone.append(every.wait(lambda frame: frame["type"] != "response"))
        assert text_of(alone) == "".join(words) + "the end" and not any("events" in frame for frame in alone)
        deltas = [f for f in alone if f.get("assistantMessageEvent", {}).get("type") == "text_delta"]
        assert len(deltas) == 301, "a program gets every delta"
        with pytest.raises(InvalidStatus) as refused:
            server.rpc("?deltas=some")
        assert refused.value.response.status_code == 400


def test_a_long_session_is_read_from_its_end():
    with ServerProcess([reply(f"answer {n}") for n in range(3)]) as server, server.rpc() as client:
        for n in range(3):
            client.call("prompt", message=f"question {n}")
            client.wait("agent_settled")
        every = client.call("get_entries")["data"]
        assert "more" not in every
        pages, before = [], None
        while True:
            page = client.call("get_entries", limit=4, **({"before": before} if before else {}))["data"]
            assert page["leafId"] == every["leafId"]
            pages[:0] = page["entries"]
            before = pages[0]["id"]
            if "more" not in page:
                break
            assert len(page["entries"]) == 4
        assert pages == every["entries"]
        assert client.call("get_entries", since=pages[1]["id"], limit=2)["data"]["more"]
        assert client.call("get_entries", before="nowhere")["error"] == "Entry not found: nowhere"


def test_a_client_that_missed_too_much_is_told():
    with (
        ServerProcess([reply("x")]) as server,
        server.rpc() as client,
        server.rpc(f"?session={client.ready['sessionId']}&since=999") as other,
    ):
        assert other.ready["replay"] is False


def test_a_dialect_brings_its_interrupt_mode():
    with ServerProcess([reply("r")]) as server:
        with server.rpc("?dialect=xcsh") as client:
            assert client.call("get_state")["data"]["interruptMode"] == "wait"
        with server.rpc() as client:
            assert client.call("get_state")["data"]["interruptMode"] == "immediate"


def test_a_frame_is_one_event_in_a_dialect_that_splits_runs():
    """Each try is a run of its own there, so the end of a try comes with the news that it is made again."""
    with ServerProcess([failure(529, "Overloaded"), reply("fine")]) as server, server.rpc("?dialect=pi-1.5") as client:
        client.call("prompt", message="go")
        end = client.wait(lambda frame: frame["type"] == "agent_end" and not frame["willRetry"])
        assert end["messages"][-1]["content"][0]["text"] == "fine"


def test_an_unknown_dialect_is_refused():
    with ServerProcess([reply("x")]) as server:
        with pytest.raises(InvalidStatus) as refused:
            server.rpc("?dialect=klingon")
        assert refused.value.response.status_code == 400
        text = refused.value.response.body.decode()
        assert text == "Unknown dialect 'klingon'; there are spindle, pi-0.74, pi-0.87, pi-1.5, xcsh, omp\n"
        with server.rpc("?dialect=spindle") as client:
            assert client.call("get_state")["success"]
        with server.chat("?dialect=klingon") as chat:
            assert chat.ask("a", {"Text": "hi"})["response"] == {"Text": "x"}, "the remote protocol has no dialects"


def test_shutdown_ends_the_connection_not_the_server():
    with ServerProcess([reply("x")]) as server:
        with server.rpc() as client:
            assert client.call("shutdown")["success"]
            with pytest.raises(ConnectionClosed):
                client.read()
        with server.rpc() as other:
            assert other.call("get_state")["success"]


def test_sessions_are_listed_and_found_again_after_a_restart(tmp_path):
    with ServerProcess([reply("answer")], base=tmp_path) as server, server.rpc() as client:
        client.call("prompt", message="a question")
        client.wait("agent_settled")
        (item,) = client.call("list_sessions")["data"]["sessions"]
        assert item["id"] == client.ready["sessionId"] and item["firstMessage"] == "a question"
        assert server.stop() == 0
    with ServerProcess([reply("more")], base=tmp_path) as server, server.rpc(f"?session={item['id']}") as client:
        assert [m["role"] for m in client.call("get_messages")["data"]["messages"]] == ["user", "assistant"]


def test_tools_are_asked_for_when_wanted():
    steps = [
        reply(call("bash", {"command": "echo hi"})),
        reply("ok"),
        reply(call("bash", {"command": "touch no"})),
        reply("ok"),
    ]
    with ServerProcess(steps) as server, server.rpc() as client:
        client.call("set_approval", tools=True)
        for allowed in (True, False):
            client.call("prompt", message="go")
            dialog = client.wait(lambda frame: frame.get("method") == "confirm")
            assert dialog["title"] == "Allow bash?"
            client.write(json.dumps({"type": "extension_ui_response", "id": dialog["id"], "confirmed": allowed}))
            assert client.wait("tool_execution_end")["isError"] is not allowed
            client.wait("agent_settled")
        assert not (server.cwd / "no").exists()


def test_the_tree_can_be_walked():
    with ServerProcess([reply("one"), reply("two")]) as server, server.rpc() as client:
        for message in ("first", "second"):
            client.call("prompt", message=message)
            client.wait("agent_settled")
        entries = client.call("get_entries")["data"]["entries"]
        users = [e["id"] for e in entries if e["type"] == "message" and e["message"]["role"] == "user"]
        assert client.call("navigate_tree", entryId=users[1])["data"] == {"editorText": "second", "cancelled": False}
        assert len(client.call("get_messages")["data"]["messages"]) == 2


def test_the_page_and_its_headers():
    with ServerProcess() as server:
        status, headers, body = get(server, "/")
        assert status == 200 and b"<html" in body.lower()
        assert (
            "default-src 'none'" in headers["Content-Security-Policy"]
            and headers["X-Content-Type-Options"] == "nosniff"
        )
        # What it needs is named in it, so that all comes after one journey.
        needed = re.findall(r' (?:href|src)="(page/.*?)"', body.decode())
        (version,) = {name.split("/")[1] for name in needed}
        names = {name.partition(f"page/{version}/")[2] for name in needed}
        assert {"chat.css", "early.js", "chat/main.js", "shared/dom.js"} <= names
        assert not {"chat/setup.js", "shared/math.js"} & names, "what is seldom wanted comes later"
        # All that the modules name is named in the page, so that it comes after one journey, and is small together.
        whole = 0
        for name in ["", *needed]:
            request = urllib.request.Request(f"http://{server.address}/{name}", headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request) as answer:
                packed = answer.read()
                text = gzip.decompress(packed) if answer.headers["Content-Encoding"] == "gzip" else packed
            whole += len(packed)
            folder = posixpath.dirname(name)
            for target in re.findall(rb'^import .*?from ?[\'"](.+)[\'"];$', text, re.MULTILINE):
                assert posixpath.normpath(posixpath.join(folder, target.decode())) in needed, name
            assert b"@param" not in text, name
        assert whole < 110_000
        # A browser asks for these files once; for the page itself it asks whether it has changed.
        assert "immutable" in get(server, f"/page/{version}/chat/main.js")[1]["Cache-Control"]
        assert headers["Cache-Control"] == get(server, "/page/chat/main.js")[1]["Cache-Control"] == "no-cache"
        again = urllib.request.Request(f"http://{server.address}/", headers={"If-None-Match": headers["ETag"]})
        with pytest.raises(urllib.error.HTTPError) as unchanged:
            urllib.request.urlopen(again)
        assert unchanged.value.code == 304
        small = urllib.request.Request(f"http://{server.address}/", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(small) as answer:
            assert gzip.decompress(answer.read()) == body
        assert json.loads(get(server, "/healthz")[2]) == {"status": "ok", "auth": False}


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py",
        "/page/chat/../../remote/server.py",
        "/page/..%2fserver.py",
        "/page/viewer/app.js",
        "/etc/passwd",
    ],
)
def test_nothing_outside_the_page_is_served(path):
    with ServerProcess() as server, pytest.raises(urllib.error.HTTPError) as refused:
        get(server, path)
    assert refused.value.code == 404


def test_a_reader_that_stops_does_not_hold_up_the_others():
    pieces = [f"{n:06d} " * 30 for n in range(2000)]
    with (
        ServerProcess([reply(*pieces)], args=["--remote-option", "viewer_stall_timeout=1"]) as server,
        server.rpc() as reader,
        # This one never reads: it is let go after a while, and the other gets everything.
        server.rpc(f"?session={reader.ready['sessionId']}", close_timeout=0.1),
    ):
        reader.call("set_update_mode", mode="delta")
        reader.call("prompt", message="go")
        text = ""
        while True:
            frame = reader.read(timeout=60)
            if frame["type"] == "agent_settled":
                break
            text += text_of([frame])
        assert text == "".join(pieces)


def test_a_question_is_asked_again_when_somebody_comes_back():
    with ServerProcess([reply(call("bash", {"command": "echo hi"})), reply("ok")]) as server:
        with server.rpc() as client:
            id = client.ready["sessionId"]
            client.call("set_approval", tools=True)
            client.call("prompt", message="go")
            asked = client.wait("extension_ui_request")
        with server.rpc(f"?session={id}") as again:
            assert again.wait("extension_ui_request")["id"] == asked["id"]
            again.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "confirmed": True}))
            assert again.wait("tool_execution_end")["isError"] is False
            again.wait("agent_settled")


def test_a_client_that_leaves_does_not_stop_a_restore_half_way(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    files = [folder / f"f{n}" for n in range(600)]
    for file in files:
        file.write_text("old\n")
    steps = [reply(call("bash", {"command": "for f in f*; do echo new > $f; done"})), reply("done")]
    with ServerProcess(steps, base=tmp_path) as server:
        with server.rpc() as client:
            client.call("prompt", message="go")
            client.wait("agent_settled")
            [checkpoint] = client.call("list_checkpoints")["data"]["checkpoints"]
            client.write(json.dumps({"type": "restore", "checkpoint": checkpoint["id"]}))
            end = time.monotonic() + 20
            while not any(file.read_text() == "old\n" for file in files):
                assert time.monotonic() < end
        session = client.ready["sessionId"]
        with server.rpc(f"?session={session}") as client:
            while "at work" in str(client.call("restore", checkpoint=checkpoint["id"], dryRun=True)):
                assert time.monotonic() < end
            left = client.call("restore", checkpoint=checkpoint["id"], dryRun=True)["data"]
            assert left["files"] == [] and all(file.read_text() == "old\n" for file in files)
