"""Files of older versions: replaced at once or not at all, with nothing lost."""

import json
import os
from pathlib import Path

import pytest

from spindle.sessions import SessionManager

from .helpers import lines_of, user

V1 = (
    '{"type":"session","id":"S","cwd":"/p","provider":"x","extra":{"kept":1.0}}\n'
    '{"type":"message","message":{"role":"user","content":"q","timestamp":1},"odd":[1.0,1e-7,12345678901234567890]}\n'
    "{broken\n"
    '{"type":"martian","x":"\\ud83d"}\n'
    '{"type":"compaction","summary":"s","firstKeptEntryIndex":1,"tokensBefore":2}\n'
)
V2 = (
    '{"type":"session","version":2,"id":"S","cwd":"/p"}\n'
    '{"type":"message","id":"a","parentId":null,"message":{"role":"hookMessage","content":"h","big":1e-7}}\n'
    '{ "type":"message", "id":"b","parentId":"a","message":{"role":"user","content":"q","timestamp":1.0}}\n'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def test_what_a_migration_does_not_understand_keeps_its_bytes(path: Path) -> None:
    path.write_text(V1)
    SessionManager.open(path).close()
    header, first, odd, compaction = path.read_text().splitlines()
    assert header == V1.splitlines()[0][:-1] + ',"version":3}'
    ids = [json.loads(line)["id"] for line in (first, odd, compaction)]
    assert first == V1.splitlines()[1][:-1] + f',"id":"{ids[0]}","parentId":null}}'
    assert odd == V1.splitlines()[3][:-1] + f',"id":"{ids[1]}","parentId":"{ids[0]}"}}'
    assert json.loads(compaction)["firstKeptEntryId"] == ids[0]
    assert path.with_name("s.jsonl.bak").read_text() == V1


def test_version_2_changes_one_word(path: Path) -> None:
    path.write_text(V2)
    SessionManager.open(path).close()
    assert path.read_text() == V2.replace('"version":2', '"version":3').replace("hookMessage", "custom")
    assert [p.name for p in path.parent.iterdir()] == ["s.jsonl"], "nothing was lost, so no copy is kept"


def test_an_old_backup_is_never_overwritten(path: Path) -> None:
    path.write_text(V1)
    path.with_name("s.jsonl.bak").write_text("precious")
    SessionManager.open(path).close()
    assert path.with_name("s.jsonl.bak").read_text() == "precious"
    assert path.with_name("s.jsonl.bak1").read_text() == V1


def test_a_migrated_file_is_private_and_migrated_once(path: Path) -> None:
    path.write_text(V1)
    with SessionManager.open(path) as manager:
        manager.append_message(user())
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    SessionManager.open(path).close()
    assert path.read_bytes() == before
    assert len(lines_of(path)) == 5


def test_reading_an_old_file_changes_nothing(path: Path) -> None:
    path.write_text(V1)
    with SessionManager.open(path, read_only=True) as manager:
        assert [e.type for e in manager.get_branch()] == ["message", "martian", "compaction"]
    assert path.read_text() == V1
    assert [p.name for p in path.parent.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file(path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(V1)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fail)
        if step == "link":
            broken.setattr("shutil.copy2", fail)
        with SessionManager.open(path, fsync="never") as manager:
            manager.append_message(user("goes on"))
            assert manager.write_error is not None and "No space left on device" in manager.write_error
            assert len(manager.get_branch()) == 4
            assert path.read_text() == V1
            broken.undo()
            manager.append_message(user("and is saved at last"))
            assert manager.write_error is None
    assert [line["type"] for line in lines_of(path)] == ["session", "message", "martian", "compaction"] + [
        "message"
    ] * 2
    assert not list(path.parent.glob("*.tmp-*"))
