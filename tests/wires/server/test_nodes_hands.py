"""What a session of a store needs besides its lines: uploads, wherever it goes on."""

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions.store import open_store
from spindle.sessions.transfer import put_file
from spindle.sessions.uploads import LARGEST, UPLOAD
from tests.support.mock_model import call, gate, reply

from .test_http import Http
from .test_nodes import Cluster, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with made.stack:
        yield made


def sent(content: bytes, name: str = "no tes.txt") -> dict[str, Any]:
    return {"name": name, "data": base64.b64encode(content).decode()}


def results(web: Http, id: str) -> str:
    messages = web.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]
    return json.dumps([message for message in messages if message["role"] == "toolResult"])


def test_an_upload_is_there_wherever_the_session_goes_on(cluster: Cluster) -> None:
    a, on_a = cluster.node()
    id = on_a.open(cwd=str(cluster.work))
    _, on_b = cluster.node()
    path = Path(on_b.post(f"/v1/sessions/{id}/upload_file", sent(b"sent through b"))[2]["path"])
    assert path.read_bytes() == b"sent through b" and path.parent.stat().st_mode & 0o777 == 0o700
    store = open_store(cluster.address)
    cluster.stack.callback(store.close)
    a.process.kill()
    shutil.rmtree(path.parent)
    read = reply(call("read", {"path": str(path)}))
    _, on_c = cluster.node([read, reply("read"), reply(call("bash", {"command": f"cat '{path}'"})), reply("again")])
    until(lambda: on_c.post(f"/v1/sessions/{id}/get_state")[0] == 200)
    holder = store.holder(id)
    assert holder is not None and holder.word == on_c.get("/healthz")[2]["node"]
    assert on_c.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": f"Read {path}"})[0] == 200
    assert "sent through b" in results(on_c, id)
    # A copy of the session needs it, too, and does not take it away.
    copy = on_c.open(cwd=str(cluster.work), session=id, copy=True)
    on_c.ask("DELETE", f"/v1/sessions/{id}")
    shutil.rmtree(path.parent, ignore_errors=True)
    on_c.post(f"/v1/sessions/{copy}/prompt?wait=true", {"message": "and again"})
    assert results(on_c, copy).count("sent through b") == 2
    assert on_c.ask("DELETE", f"/v1/stored/{copy}")[0] == 204
    assert store.get(UPLOAD, f"{id}/{path.parent.name}") is not None
    assert on_c.ask("DELETE", f"/v1/stored/{id}")[0] == 204
    assert store.get(UPLOAD, f"{id}/{path.parent.name}") is None


def test_an_upload_goes_to_the_far_side_and_is_made_there_again(cluster: Cluster, tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    options = ["--exec", f"env -i PATH=/usr/bin:/bin TMPDIR={far} HOME={far}", "--exec-cwd", str(far)]
    a, on_a = cluster.node([], *options)
    id = on_a.open(cwd=str(cluster.work))
    path = Path(on_a.post(f"/v1/sessions/{id}/upload_file", sent(b"for far hands"))[2]["path"])
    assert path.is_relative_to(far)
    a.process.kill()
    shutil.rmtree(path.parent)  # another machine, or another container
    _, on_b = cluster.node([reply(call("bash", {"command": f"cat '{path}'"})), reply("done")], *options)
    until(lambda: on_b.post(f"/v1/sessions/{id}/get_state")[0] == 200)
    on_b.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "Read it"})
    assert "for far hands" in results(on_b, id)


def test_what_is_no_upload_of_ours_is_not_made(cluster: Cluster, tmp_path: Path) -> None:
    """A session file may come from anywhere, and name any path."""
    _, on_a = cluster.node([reply(call("bash", {"command": "true"})), reply("done")])
    store = open_store(cluster.address)
    cluster.stack.callback(store.close)
    store.put(UPLOAD, "evil/0", b"ssh-ed25519", 0)
    (tmp_path / "keys").mkdir()
    linked = tmp_path / f"spindle-upload-{'0' * 16}"
    linked.symlink_to(tmp_path / "keys")
    lines = [{"type": "session", "version": 3, "id": "evil", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}]
    for number, place in enumerate((f"{tmp_path}/keys/authorized", f"{linked}/authorized")):
        data = {"path": place, "key": "evil/0"}
        entry = {"type": "custom", "customType": "spindle.upload", "data": data, "id": f"{number:08x}"}
        lines.append({**entry, "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"})
    (tmp_path / "evil.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    put_file(store, tmp_path / "evil.jsonl")
    assert on_a.ask("PUT", "/v1/sessions/evil", {"cwd": str(cluster.work)})[0] == 200
    assert on_a.post("/v1/sessions/evil/prompt?wait=true", {"message": "go"})[0] == 200
    assert list((tmp_path / "keys").iterdir()) == []


def test_a_large_file_is_refused(cluster: Cluster) -> None:
    _, on_a = cluster.node([], "--remote-option", "max_message_bytes=40000000")
    id = on_a.open(cwd=str(cluster.work))
    status, _, told = on_a.post(f"/v1/sessions/{id}/upload_file", sent(bytes(LARGEST + 1)))
    assert (status, told["error"]) == (409, "Cannot keep no tes.txt: a store takes files of at most 16 MiB")
    assert list(on_a.server.cwd.parent.rglob("spindle-upload-*")) == []
    assert on_a.post(f"/v1/sessions/{id}/upload_file", sent(bytes(LARGEST)))[0] == 200


def test_a_request_leaves_while_the_database_works(cluster: Cluster) -> None:
    a, on_a = cluster.node([reply("warm"), reply("fir", gate("later"), "st")])
    id = on_a.open(cwd=str(cluster.work))
    on_a.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": "warm"})
    stream, told = on_a.events(id), list[str]()
    import psycopg

    with psycopg.connect(cluster.address) as other:
        other.execute("SELECT 1 FROM spindle_sessions FOR UPDATE")  # it cannot be written to now
        asking = threading.Thread(
            target=lambda: told.append(str(on_a.post(f"/v1/sessions/{id}/prompt", {"message": "go"})[0]))
        )
        asking.start()
        a.mock.wait_gate("later")
        assert told == [], "accepted before it was kept"
        other.rollback()
    asking.join(20)
    assert told[0] in ("200", "204")
    a.mock.release("later")
    while stream.next()[1]["type"] != "agent_settled":
        pass
