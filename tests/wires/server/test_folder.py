"""The files around a session, as a client looks at them: what the agent may read, in parts, and nothing that blocks."""

import base64
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from spindle.programs import fence
from tests.support.mock_model import reply

from .server import ServerProcess
from .test_team import Team

MIB = 1 << 20
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


@pytest.fixture(scope="module")
def server() -> Any:
    with ServerProcess([reply("hi")], args=["--permission-mode", "default"]) as server:
        yield server


def test_a_folder_is_listed_and_odd_things_are_told_apart(server: ServerProcess) -> None:
    folder = server.cwd / "odd"
    (folder / "zeta").mkdir(parents=True)
    (folder / "Beta.txt").write_text("b")
    (folder / "alpha\u202etxt.exe").write_text("")
    os.mkfifo(folder / "pipe")
    (folder / "away").symlink_to("/etc/passwd")
    (folder / "lost").symlink_to("nowhere")
    (folder / os.fsdecode(b"bad\xff.txt")).write_text("")
    with server.rpc() as wire:
        content = wire.call("list_files", path="odd")["data"]
        assert content["path"] == str(folder) and content["total"] == 7
        found = {entry["name"]: entry for entry in content["entries"]}
        assert list(found) == ["zeta", "alpha\u202etxt.exe", "away", "bad\ufffd.txt", "Beta.txt", "lost", "pipe"]
        assert found["zeta"] == {"name": "zeta", "kind": "folder"}
        assert found["Beta.txt"] == {"name": "Beta.txt", "kind": "file", "size": 1}
        assert found["pipe"]["kind"] == found["lost"]["kind"] == "other"
        assert found["away"]["link"] == "/etc/passwd"
        for path, why in (("odd/pipe", "Not a regular file"), ("odd/zeta", "EISDIR"), ("odd/none", "ENOENT")):
            assert why in wire.call("read_file", path=path)["error"]
        assert "Not a directory" in wire.call("list_files", path="odd/Beta.txt")["error"]
        assert "secrets of a process" in wire.call("read_file", path="/proc/self/environ")["error"]
        assert "null bytes" in wire.call("read_file", path="a\0b")["error"]
        asked = ["odd/Beta.txt", "odd/pipe", "odd/zeta", "odd/none", str(folder / "Beta.txt")]
        assert wire.call("find_files", paths=asked)["data"]["paths"] == [asked[0], asked[4]]


def test_a_file_is_read_in_parts_from_a_line_or_a_byte_on(server: ServerProcess) -> None:
    lines = "".join(f"line {n} é\n" for n in range(1, 200_001))
    (server.cwd / "long.txt").write_text(lines)
    (server.cwd / "wide.txt").write_text("x" + "é" * (MIB - 9))
    (server.cwd / "shot.bin").write_bytes(PIXEL)
    (server.cwd / "data.png").write_bytes(b"text\0" * 10)
    with open(server.cwd / "huge.log", "wb") as file:
        file.truncate(100 * MIB)
    with server.rpc() as wire:

        def read(path: str, **fields: Any) -> dict[str, Any]:
            return dict(wire.call("read_file", path=path, **fields)["data"])

        whole = len(lines.encode())
        part = read("long.txt", line=150_000)
        assert part["text"].startswith("line 150000 é\nline 150001") and part["line"] == 150_000
        assert part["size"] == whole and "nextByte" not in part
        text, part = "", read("long.txt")
        while True:
            assert len(part["text"].encode()) <= MIB and part["text"].endswith("\n")
            text += part["text"]
            if "nextByte" not in part:
                break
            part = read("long.txt", byte=part["nextByte"])
        assert text == lines
        assert read("long.txt", line=900_000)["line"] == 1
        first = read("wide.txt")
        second = read("wide.txt", byte=first["nextByte"])
        assert first["text"] + second["text"] == "x" + "é" * (MIB - 9), "no character is cut"
        picture = read("shot.bin")
        assert (picture["kind"], picture["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(picture["data"]) == PIXEL
        for name, size in (("data.png", 50), ("huge.log", 100 * MIB)):
            found = read(name)
            assert (found["kind"], found["size"], found.get("text", "")) == ("binary", size, "")


def test_what_the_rules_close_is_not_shown(server: ServerProcess) -> None:
    folder = server.cwd / "closed"
    folder.mkdir()
    (folder / ".env").write_text("KEY=hush")
    (folder / "plain.txt").write_text("plain")
    (folder / "link.txt").symlink_to(".env")
    with server.rpc() as wire:
        assert wire.call("set_permissions", deny=["Read(.env)"])["success"]
        entries = {one["name"]: one for one in wire.call("list_files", path="closed")["data"]["entries"]}
        assert {name for name, one in entries.items() if one.get("isClosed")} == {".env", "link.txt"}
        for name in (".env", "link.txt", "../closed/link.txt"):
            answer = wire.call("read_file", path=f"closed/{name}")
            assert not answer["success"] and "hush" not in str(answer), answer
        assert wire.call("find_files", paths=["closed/.env", "closed/link.txt"])["data"]["paths"] == []
        assert wire.call("read_file", path="closed/plain.txt")["data"]["text"] == "plain"


def test_a_user_sees_no_files_outside_of_the_roots(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.txt").write_text("of another")
    (tmp_path / "own" / "way").symlink_to(tmp_path / "other")
    users = {"anna": {"roots": [str(tmp_path / "own")]}}
    with Team(tmp_path, users) as server, server.socket("anna") as wire:
        assert [one["name"] for one in wire.call("list_files")["data"]["entries"]] == ["way"]
        assert wire.call("list_files")["data"]["entries"][0]["isClosed"]
        for path in ("way", "..", str(tmp_path / "other"), "/"):
            assert "may not work in" in wire.call("list_files", path=path)["error"]
        for path in ("way/secret.txt", str(tmp_path / "other" / "secret.txt"), "/etc/passwd"):
            assert "may not work in" in wire.call("read_file", path=path)["error"]
            assert wire.call("find_files", paths=[path])["data"]["paths"] == []


@pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")
def test_what_the_sandbox_hides_is_not_shown(tmp_path: Path) -> None:
    server = ServerProcess(args=["--sandbox", "workspace-write"])  # which makes a token
    with server, server.rpc(additional_headers={"Authorization": f"Bearer {server.made_token}"}) as wire:
        secret = server.agent_dir / "auth.json"
        secret.write_text('{"openai": {"type": "api_key", "key": "hush"}}')
        (server.cwd / "way").symlink_to(secret)
        for path in (str(secret), "way"):
            assert "is a secret" in wire.call("read_file", path=path)["error"]
        entries = wire.call("list_files")["data"]["entries"]
        assert [one["isClosed"] for one in entries if one["name"] == "way"] == [True]


def test_files_of_a_far_side_are_shown_through_the_workspace(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "src").mkdir(parents=True)
    (there / "src" / "a.py").write_text("one\ntwo\n")
    (there / "shot.png").write_bytes(PIXEL)
    (there / "away").symlink_to(there / "src" / "a.py")
    far = "env -i PATH=/usr/bin:/bin HOME=/proc/nowhere"
    with ServerProcess(args=["--exec", far, "--exec-cwd", str(there)]) as server, server.rpc() as wire:
        assert wire.call("set_permissions", deny=["Read(a.py)"])["success"]
        content = wire.call("list_files")["data"]
        assert content["path"] == str(there)
        closed = {one["name"]: one.get("isClosed", False) for one in content["entries"]}
        assert closed == {"src": False, "away": True, "shot.png": False}
        assert not wire.call("read_file", path="away")["success"]
        assert wire.call("set_permissions", deny=[])["success"]
        assert wire.call("read_file", path="src/a.py", line=2)["data"]["text"] == "two\n"
        assert base64.b64decode(wire.call("read_file", path="shot.png")["data"]["data"]) == PIXEL
        assert wire.call("find_files", paths=["src/a.py", shlex.quote("src/none")])["data"]["paths"] == ["src/a.py"]
