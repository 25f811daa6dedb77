"""Where the page goes, and everything that can be in the way."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.export import ExportError, export_file, export_session, run_export, write_page
from spindle.sessions import open as sessions
from spindle.shapes.events import ToolResult
from spindle.tools.base import Tool, ToolContext, text_result

from .helpers import SESSIONS, open_session, session_files


@pytest.fixture
def session(tmp_path: Path) -> Path:
    target = tmp_path / "2026_demo.jsonl"
    target.write_bytes((SESSIONS / "real-everything.jsonl").read_bytes())
    return target


def test_the_command(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert run_export(str(session), str(out), redact=False) == 0
    assert capsys.readouterr().out == f"Exported to: {out}\n"
    assert b"Export demo" in out.read_bytes()


def test_the_default_name(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert export_file(session) == Path("pi-session-2026_demo.html")
    assert Path("pi-session-2026_demo.html").exists()


def test_a_missing_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "no.jsonl"
    assert run_export(str(missing), None, redact=False) == 1
    assert capsys.readouterr().err == f"Error: File not found: {missing}\n"
    assert not missing.exists()


def test_something_else_than_a_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("dear diary\n")
    assert run_export(str(other), str(tmp_path / "x.html"), redact=False) == 1
    assert "not a valid pi session" in capsys.readouterr().err
    assert other.read_text() == "dear diary\n"
    assert run_export(str(tmp_path), None, redact=False) == 1


@pytest.mark.parametrize("name", session_files())
def test_the_session_is_only_read(name: str, tmp_path: Path) -> None:
    session = tmp_path / "s.jsonl"
    session.write_bytes((SESSIONS / f"{name}.jsonl").read_bytes())
    before = session.read_bytes(), session.stat().st_mtime_ns
    export_file(session, tmp_path / "out.html")
    assert (session.read_bytes(), session.stat().st_mtime_ns) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "s.jsonl"]


def test_redaction_from_the_command(tmp_path: Path) -> None:
    session = tmp_path / "s.jsonl"
    text = (SESSIONS / "real-everything.jsonl").read_text()
    session.write_text(text.replace("Final reply.", "Final ghp_0123456789abcdefghij0123456789abcdef"))
    assert run_export(str(session), str(tmp_path / "o.html"), redact=True) == 0
    page = (tmp_path / "o.html").read_text()
    assert "ghp_" not in page.replace("ghp_…", "")
    assert "Final ‹redacted›" in page


def test_a_session_in_memory() -> None:
    with pytest.raises(ExportError, match=r"^Cannot export in-memory session to HTML$"):
        export_session(sessions.in_memory())


def test_nothing_said_yet(tmp_path: Path) -> None:
    session = sessions.create(tmp_path, tmp_path / "sessions")
    with pytest.raises(ExportError, match=r"^Nothing to export yet - start a conversation first$"):
        export_session(session, tmp_path / "o.html")
    assert not (tmp_path / "o.html").exists()


def test_a_live_session_with_its_tools(tmp_path: Path) -> None:
    async def execute(call_id: str, arguments: object, context: ToolContext) -> ToolResult:
        return text_result("")

    tool = Tool("lookup", "Look something up.", {"type": "object"}, execute)
    out = export_session(open_session("real-everything"), tmp_path / "o.html", system_prompt="Be kind.", tools=[tool])
    page = out.read_text()
    assert "Be kind." in page
    assert "Look something up." in page


# -- the file ------------------------------------------------------------------------------------


def test_an_ordinary_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "p.html"
    target.write_text("old")
    write_page(target, [b"new"])
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


def test_exports_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "p.html"

    def pieces() -> Iterator[bytes]:
        yield b"first "
        write_page(target, [b"second"])
        assert target.read_bytes() == b"second"
        yield b"whole"

    write_page(target, pieces())
    assert target.read_bytes() == b"first whole"
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


def test_a_session_that_breaks_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        write_page(tmp_path / "p.html", pieces())
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_page(tmp_path / "p.html", [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "p.html").stat().st_mode) == 0o644


def test_links_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    for target in (precious, tmp_path / "dangling"):
        link = tmp_path / f"link-{target.name}"
        link.symlink_to(target)
        with pytest.raises(ExportError, match="symbolic link"):
            write_page(link, [b"x"])
        assert link.is_symlink()
    assert precious.read_text() == "keep me"
    assert not (tmp_path / "dangling").exists()


def test_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is a folder"):
        write_page(tmp_path, [b"x"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ExportError, match="not an ordinary file"):
        write_page(tmp_path / "pipe", [b"x"])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"Cannot write .*the folder .*nowhere does not exist"):
        write_page(tmp_path / "nowhere" / "p.html", [b"x"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="Cannot write"):
        write_page(tmp_path / "file" / "p.html", [b"x"])


def test_an_impossible_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Cannot write"):
        write_page(tmp_path / "a\0b", [b"x"])
    with pytest.raises(ExportError, match="Cannot write"):
        write_page(tmp_path / ("x" * 300), [b"x"])


def test_a_failed_write_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "p.html"
    target.write_text("old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ExportError, match="No space left on device"):
        write_page(target, [b"new"])
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


def test_the_session_itself_is_never_the_target(session: Path) -> None:
    before = session.read_bytes()
    with pytest.raises(ExportError, match="the session itself"):
        export_file(session, session)
    twin = session.with_name("twin.html")
    os.link(session, twin)
    with pytest.raises(ExportError, match="the session itself"):
        export_file(session, twin)
    assert session.read_bytes() == twin.read_bytes() == before
