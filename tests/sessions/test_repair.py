"""A repaired copy is sound, keeps all that could be read, and the damaged file stays as it is."""

from pathlib import Path

import pytest

from spindle.sessions import SessionError, SessionManager
from spindle.sessions.load import load_session
from spindle.sessions.repair import examine, repair_copy

from .helpers import entry, lines_of, write_session
from .test_fixtures import ALL, FIXTURES


@pytest.mark.parametrize("name", ALL)
def test_every_fixture_has_a_sound_copy(tmp_path: Path, name: str) -> None:
    source, target = FIXTURES / f"{name}.jsonl", tmp_path / "copy.jsonl"
    before = source.read_bytes()
    repair_copy(source, target, "/srv/demo")
    assert source.read_bytes() == before
    assert [item for item in examine(target) if item.kind != "newer version"] == []
    target.read_bytes().decode()
    try:
        readable = len(load_session(source).tree.entries) if load_session(source).tree else 0
    except SessionError:
        return
    lost = 1 if name == "damaged-duplicate-header" else 0  # the very same entry twice
    assert len(load_session(target).tree.entries) == readable - lost


def test_a_chain_broken_by_a_bad_line_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_session(path, [entry("a", None), entry("b", "a"), entry("other", "a"), entry("c", "b")])
    data = path.read_bytes().split(b"\n")
    data[2] = data[2].replace(b": ", b":").replace(b", ", b",")[:60]  # b, as pi writes it, torn
    path.write_bytes(b"\n".join(data))
    done = repair_copy(path, tmp_path / "copy.jsonl", "/p")
    assert [(e["id"], e["parentId"]) for e in lines_of(tmp_path / "copy.jsonl")[1:]] == [
        ("a", None),
        ("other", "a"),
        ("c", "a"),
    ]
    assert done == ["left out line 3, which cannot be read", "hung entry c below a: its parent is lost"]


def test_lost_headers_and_ids_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"type":"message","message":{"role":"user","content":"q","timestamp":1}}\r{"type":"custom"}\r')
    repair_copy(path, tmp_path / "copy.jsonl", "/p")
    header, first, second = lines_of(tmp_path / "copy.jsonl")
    assert (header["cwd"], header["version"]) == ("/p", 3)
    assert (first["parentId"], second["parentId"]) == (None, first["id"])
    with SessionManager.open(tmp_path / "copy.jsonl") as manager:
        assert len(manager.build_session_context().messages) == 1


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s.jsonl", [entry("a", None)])
    before = path.read_bytes()
    with pytest.raises(SessionError, match=r"^Cannot repair session \(File exists\): "):
        repair_copy(path, path, "/p")
    with pytest.raises(SessionError, match=r"^Cannot repair session \(No such file or directory\): "):
        repair_copy(tmp_path / "missing.jsonl", tmp_path / "copy.jsonl", "/p")
    assert path.read_bytes() == before
    assert not (tmp_path / "copy.jsonl").exists()
