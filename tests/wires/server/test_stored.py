"""Stored sessions over plain HTTP, without opening them."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from spindle.sessions.open import create, load
from spindle.shapes.messages import UserMessage
from tests.support.mock_model import call, gate, reply

from .server import ServerProcess
from .test_http import Http
from .test_team import Team, read


def test_stored_sessions_are_listed_read_renamed_and_deleted(tmp_path: Path) -> None:
    with ServerProcess([reply("an answer")], base=tmp_path) as server:
        web = Http(server)
        for id, text in (("one", "about wombats"), ("two", "about koalas"), ("three", "more wombats")):
            web.ask("PUT", f"/v1/sessions/{id}")
            web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": text})
            web.ask("DELETE", f"/v1/sessions/{id}")

        status, _, page = web.get("/v1/stored?limit=2")
        assert (status, [one["id"] for one in page["sessions"]]) == (200, ["three", "two"])
        rest = web.get(f"/v1/stored?limit=2&cursor={page['nextCursor']}")[2]
        assert [one["id"] for one in rest["sessions"]] == ["one"] and "nextCursor" not in rest
        found = web.get("/v1/stored?search=wombats%20about")[2]["sessions"]
        assert [(one["id"], one["snippet"]) for one in found] == [("one", "about wombats")]
        assert web.get(f"/v1/stored?cwd={server.base}")[2] == {"sessions": []}
        assert len(web.get(f"/v1/stored?cwd={server.cwd}")[2]["sessions"]) == 3

        read = web.get("/v1/stored/one")[2]
        assert read["messageCount"] == 2 and read["messages"][0]["content"][0]["text"] == "about wombats"
        shown = web.get("/v1/sessions/one")[2]
        assert (shown["phase"], shown["id"], shown["sessionFile"]) == ("stored", "one", read["path"])
        assert web.ask("PATCH", "/v1/stored/one", {"name": " the first "})[2]["name"] == "the first"
        assert web.get("/v1/stored/one")[2]["name"] == "the first"
        assert web.get("/v1/sessions")[2] == {"sessions": []}, "none was opened"

        assert web.ask("DELETE", "/v1/stored/one")[0] == 204
        assert not Path(read["path"]).exists()
        for method, at, body in (
            ("GET", "/v1/stored/one", None),
            ("GET", "/v1/sessions/one", None),
            ("PATCH", "/v1/stored/one", {"name": "x"}),
            ("DELETE", "/v1/stored/one", None),
        ):
            status, _, told = web.ask(method, at, body)
            assert (status, told) == (404, {"error": "No session one"})


def test_a_deleted_session_leaves_nothing(tmp_path: Path) -> None:
    """Uploads, whole outputs, states of files, subagents' sessions and the catalog go with it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    long = "for i in $(seq 3000); do echo rhododendron $i; done"
    steps = [
        reply(call("bash", {"command": long})),
        reply(call("write", {"path": "notes.txt", "content": "new"})),
        reply("done"),
        reply("other"),
    ]
    with ServerProcess(steps, base=tmp_path, env={"TMPDIR": str(temporary)}) as server:
        (server.cwd / "notes.txt").write_text("rhododendron before")
        web = Http(server)
        web.ask("PUT", "/v1/sessions/one")
        content = base64.b64encode(b"a rhododendron of mine").decode()
        upload = Path(web.post("/v1/sessions/one/upload_file", {"name": "a.txt", "data": content})[2]["path"])
        web.post("/v1/sessions/one/prompt?wait=true", {"message": "rhododendron?"})
        assert web.get("/v1/stored?search=rhododendron")[2]["sessions"]
        web.ask("PUT", "/v1/sessions/two")
        web.post("/v1/sessions/two/prompt?wait=true", {"message": "hello"})
        assert upload.read_bytes() == b"a rhododendron of mine"
        assert len(list(temporary.glob("spindle-bash-*.log"))) == 1
        assert list(server.agent_dir.glob("checkpoints/*/states/*.json"))

        assert web.ask("DELETE", "/v1/stored/one")[0] == 204
        assert list(server.agent_dir.glob("checkpoints/*/states/*.json")) == []
        assert list(server.agent_dir.glob("checkpoints/*/git/objects/??/*")) == []
        left = [file for place in (server.agent_dir, temporary) for file in place.rglob("*") if file.is_file()]
        assert [file for file in left if b"rhododendron" in file.read_bytes()] == []
        assert [one["id"] for one in web.get("/v1/stored")[2]["sessions"]] == ["two"]


def test_live_and_held_sessions(tmp_path: Path) -> None:
    with ServerProcess([reply("a", gate("go"), "b"), reply("c")], base=tmp_path) as server:
        web = Http(server)
        web.ask("PUT", "/v1/sessions/live")
        web.post("/v1/sessions/live/prompt", {"message": "hi"})
        server.mock.wait_gate("go")
        status, _, told = web.ask("DELETE", "/v1/stored/live")
        assert status == 409 and "stop it first" in told["error"]
        server.mock.release("go")
        web.post("/v1/sessions/live/prompt?wait=true", {"message": "again", "streamingBehavior": "followUp"})
        assert web.ask("PATCH", "/v1/stored/live", {"name": "lively"})[2]["name"] == "lively"
        assert web.post("/v1/sessions/live/get_state")[2]["sessionName"] == "lively", "its clients see it"
        assert web.ask("DELETE", "/v1/stored/live")[0] == 204
        assert web.get("/v1/sessions")[2] == {"sessions": []}

        other = create(server.cwd, web_folder(server), id="held")
        other.append_message(UserMessage(content="elsewhere", timestamp=1))
        for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
            status, _, told = web.ask(method, "/v1/stored/held", body)
            assert status == 409 and "Session is in use by process" in told["error"]
        assert web.get("/v1/stored/held")[2]["messages"][0]["content"] == "elsewhere", "reading disturbs nobody"
        with server.rpc() as wire:
            told = wire.call("get_stored_entries", session="held")["data"]
            assert [entry["id"] for entry in told["entries"]] == [other.leaf_id] and told["leafId"] == other.leaf_id
            assert wire.call("get_stored_entries", session="held", since=other.leaf_id)["data"]["entries"] == []
            for id in ("another", str(other.path), "../held"):
                assert wire.call("get_stored_entries", session=id)["error"] == f"No session {id}"
        with pytest.raises(ConnectionClosed) as refusal:
            server.rpc("?session=held")
        assert refusal.value.rcvd is not None and refusal.value.rcvd.code == 4009
        assert refusal.value.rcvd.reason == "Another program on this machine holds this conversation"
        other.close()
        with load(other.path, read_only=True) as session:
            assert session.name is None


def web_folder(server: ServerProcess) -> Path:
    """Return where the server keeps the sessions of its directory."""
    return server.agent_dir / "sessions" / ("--" + str(server.cwd).lstrip("/").replace("/", "-") + "--")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with ServerProcess(base=tmp_path) as server:
        web = Http(server)
        web.ask("PUT", "/v1/sessions/one")
        web.post("/v1/sessions/one/prompt?wait=true", {"message": "hi"})
        web.ask("DELETE", "/v1/sessions/one")
        for method, at, body, status, words in (
            ("GET", "/v1/stored?limit=many", None, 400, "Expected `int`"),
            ("GET", "/v1/stored?limit=0", None, 409, "limit must be at least 1"),
            ("GET", "/v1/stored?cursor=x", None, 409, "the cursor that came with the page before"),
            ("PATCH", "/v1/stored/one", {}, 400, "missing required field `name`"),
            ("PATCH", "/v1/stored/one", {"name": " "}, 409, "cannot be empty"),
            ("GET", "/v1/stored/..%2Fone.jsonl", None, 404, "is no id of a session"),
            ("POST", "/v1/stored", {}, 405, "Allowed here: GET"),
            ("PUT", "/v1/stored/one", {}, 405, "Allowed here: GET, PATCH, DELETE"),
        ):
            told = web.ask(method, at, body)
            assert told[0] == status and words in told[2]["error"], (method, at, told)


def test_users_see_and_delete_only_theirs(tmp_path: Path) -> None:
    with Team(tmp_path, {"anna": {}, "bob": {}}, [reply("the answer")]) as server:
        with server.socket("anna") as anna:
            anna.call("prompt", message="a private question")
            anna.wait("agent_settled")
            id = anna.call("get_state")["data"]["sessionId"]
        assert json.loads(server.http("bob", "GET", "/v1/stored")[1]) == {"sessions": []}
        for method, at, body in (
            ("GET", f"/v1/stored/{id}", None),
            ("GET", f"/v1/sessions/{id}", None),
            ("PATCH", f"/v1/stored/{id}", {"name": "mine"}),
            ("DELETE", f"/v1/stored/{id}", None),
        ):
            status, text = server.http("bob", method, at, body)
            assert (status, json.loads(text)) == (404, {"error": f"No session {id}"})
        with server.socket("bob") as bob:
            assert bob.call("get_stored_entries", session=id)["error"] == f"No session {id}"
        assert [one["id"] for one in json.loads(server.http("anna", "GET", "/v1/stored")[1])["sessions"]] == [id]
        assert server.http("anna", "DELETE", f"/v1/stored/{id}")[0] == 204
        assert json.loads(server.http("anna", "GET", "/v1/stored")[1]) == {"sessions": []}


def test_sessions_outside_of_the_roots_are_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ServerProcess(base=tmp_path, args=["--root", str(tmp_path / "work")]) as server:
        folder = server.agent_dir / "sessions" / "--somewhere--"
        folder.mkdir(parents=True)
        with create(elsewhere, folder, id="secret") as session:
            session.append_message(UserMessage(content="hello", timestamp=1))
        web = Http(server)
        assert web.get("/v1/stored")[2] == {"sessions": []}
        assert web.ask("DELETE", "/v1/stored/secret")[0] == 404
        assert session.path is not None and session.path.exists()
        shutil.rmtree(folder)


def test_a_full_disk_stops_new_work_and_nothing_else(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.write_text(str(10 << 30))
    extension = tmp_path / "small_disk.py"
    extension.write_text(
        "from pathlib import Path\nfrom spindle.server import room\n\n"
        f"room.free = lambda folder: int(Path({str(room)!r}).read_text())\n\ndef extension(agent):\n    pass\n"
    )
    steps = [reply("one"), reply("slow ", gate("go"), "answer"), reply("three")]
    with ServerProcess(steps, base=tmp_path, args=["-e", str(extension)]) as server:
        web = Http(server)
        web.ask("PUT", "/v1/sessions/one")
        assert web.post("/v1/sessions/one/prompt?wait=true", {"message": "hi"})[0] == 200
        web.post("/v1/sessions/one/prompt", {"message": "slowly"})
        server.mock.wait_gate("go")
        room.write_text(str(10 << 20))
        queued = {"message": "more", "streamingBehavior": "followUp"}
        upload = {"name": "a.txt", "data": "eHg="}
        for at, body in (
            *(("prompt", queued), ("steer", {"message": "and"}), ("compact", {})),
            ("upload_file", upload),
        ):
            status, _, told = web.post(f"/v1/sessions/one/{at}", body)
            assert status == 503 and "nearly full" in told["error"], at
        server.mock.release("go")  # what was taken is done, and kept
        while web.get("/v1/sessions/one")[2]["phase"] != "idle":
            pass
        assert "slow answer" in json.dumps(web.get("/v1/stored/one")[2]["messages"])
        now = read(server.address)
        assert now["spindle_disk_free_bytes"] == 10 << 20
        assert now['spindle_disk_bytes{kind="sessions"}'] > 100
        assert now['spindle_refusals_total{reason="disk",user=""}'] == 4
        room.write_text(str(10 << 30))
        assert web.post("/v1/sessions/one/prompt?wait=true", {"message": "again"})[2]["text"] == "three"
    assert "10 MiB are left on the disk of the sessions" in server.stderr


def test_a_stored_session_is_named_by_its_id_and_not_by_that_of_a_live_one(tmp_path: Path) -> None:
    """A live session keeps its id when it goes on in another file."""
    with ServerProcess([reply("one"), reply("two")], base=tmp_path) as server:
        web = Http(server)
        id = web.open()
        web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "first"})
        web.post(f"/v1/sessions/{id}/new_session")
        web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "second"})
        assert web.ask("PATCH", f"/v1/stored/{id}", {"name": "Old"})[2]["firstMessage"] == "first"
        assert web.ask("DELETE", f"/v1/stored/{id}")[0] == 204
        assert [one["firstMessage"] for one in web.get("/v1/stored")[2]["sessions"]] == ["second"]
        assert web.get(f"/v1/sessions/{id}")[2]["id"] == id
