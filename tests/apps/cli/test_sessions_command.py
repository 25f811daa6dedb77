"""`spindle sessions`, as a person sees it."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.doctor import run_trust
from spindle.apps.cli.sessions_command import run
from spindle.sessions.manager import SessionManager
from tests.sessions.helpers import HEADER, entry, lines_of, write_session
from tests.sessions.test_fixtures import FIXTURES


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    monkeypatch.delenv("PI_CODING_AGENT_SESSION_DIR", raising=False)
    store = tmp_path / "agent" / "sessions" / ("-" + str(project).replace("/", "-") + "--")
    store.mkdir(parents=True)
    for name in ("real-everything", "damaged-torn-last-line"):
        shutil.copy(FIXTURES / f"{name}.jsonl", store)
    return store


def test_list(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "2026-11-15 06:44  01a1dde7     25  Export demo"
    assert "question 1" in second
    assert run(["list", "--all", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["messageCount"] for item in shown] == [25, 4]
    assert shown[0]["path"] == str(here / "real-everything.jsonl")
    assert run(["list", "--session-dir", str(here / "none")]) == 0
    assert capsys.readouterr() == ("", "No sessions here (--all: of all directories).\n")


def test_a_list_by_the_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    whole = capsys.readouterr().out
    assert run(["--limit", "1"]) == 0
    first, more = capsys.readouterr()
    assert more.startswith("More: --cursor ")
    assert run(["--limit", "1", *more.split()[1:]]) == 0
    second, no_more = capsys.readouterr()
    assert (first + second, no_more) == (whole, "")
    assert run(["--cursor", "elsewhere"]) == 1
    assert "There is no page at cursor 'elsewhere'" in capsys.readouterr().err


def test_sessions_are_looked_for_where_a_run_puts_them(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere, project = tmp_path / "elsewhere", tmp_path / "project"
    elsewhere.mkdir()
    write_session(elsewhere / "s.jsonl", [entry("a", None)], HEADER | {"cwd": str(project)})
    (project / ".pi").mkdir()
    settings = project / ".pi" / "settings.json"
    settings.write_text(json.dumps({"sessionDir": str(elsewhere)}))
    assert run(["list"]) == run(["list", "--all"]) == 0
    assert str(project) not in capsys.readouterr().out, "the project is not trusted"
    assert run_trust([str(project)]) == 0
    capsys.readouterr()
    for _ in ("setting", "environment"):
        assert run(["list"]) == run(["list", "--all"]) == run(["show", "11111111"]) == 0
        out = capsys.readouterr().out
        assert out.count(HEADER["id"][:8]) == 3 and "text of a" in out
        settings.unlink(missing_ok=True)
        monkeypatch.setenv("PI_CODING_AGENT_SESSION_DIR", str(elsewhere))


def test_show_by_the_beginning_of_an_id(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "01a1dde7"]) == 0
    out = capsys.readouterr().out
    assert "Name      Export demo\nModel     mock/mock-1, thinking high\n" in out
    assert "--- assistant\nFinal reply." in out
    assert "--- bash failed\nhi" in out
    assert "Alternative done." not in out, "that is on another branch"


def test_tree_shows_all_branches(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tree", str(here / "real-everything.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 36
    assert lines[2].startswith("● a28da9ab [start here] user: Please TOOLS")
    assert "  ○ 4b672924 assistant: Alternative done." in lines
    assert lines[-1].startswith("  ○") and lines[-6].startswith("  ● 21e2bfea")


def test_text_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m \ud83d \x9b2J\nrow"
    message = {"role": "user", "content": f"red {evil}", "timestamp": 1}
    entries = [
        entry("a\x1b[2J", None, message=message),
        entry("b", "a\x1b[2J", "label", targetId="a\x1b[2J", label=f"mark {evil}"),
        entry("c", "gone\x1b", "session_info", name=f"name {evil}"),
        entry("d", "c", "model_change", provider=evil, modelId=evil),
        entry("e", "d", "custom_message", customType=evil, content="x", display=True),
    ]
    path = write_session(tmp_path / "s.jsonl", entries, HEADER | {"cwd": f"/cwd{evil}"})
    for action in ("show", "tree", "check", "repair"):
        run([action, str(path)])
    run(["list", "--all", "--session-dir", str(tmp_path)])
    out, error = capsys.readouterr()
    for what in ("name", "mark", "red"):
        assert f"{what}  \ufffd  row" in " ".join(out.split("\n"))
    assert not {"\x1b", "\x9b"} & {*out, *error}
    assert not [line for line in out.splitlines() if line == "row"]


def test_a_terminal_without_unicode_gets_what_it_can_show(here: Path) -> None:
    command = [sys.executable, "-m", "spindle", "sessions", "tree", str(here / "real-everything.jsonl")]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert done.stdout.startswith(b"? ")
    assert done.stderr == b""


def test_export_writes_the_current_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "01a1dde7"]) == 0
    name = capsys.readouterr().out.removeprefix("Exported to: ").strip()
    assert Path(name).parent == Path.cwd()
    assert len(lines_of(name)) == 32
    assert run(["export", "01a1dde7", name]) == 1
    assert capsys.readouterr().err.startswith("Error: Cannot export session (File exists): ")


def test_check_tells_what_is_wrong_and_where(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, torn = here / "real-everything.jsonl", here / "damaged-torn-last-line.jsonl"
    assert run(["check", str(sound)]) == 0
    assert capsys.readouterr().out == f"{sound}: sound\n"
    assert run(["check", str(sound), str(torn)]) == 1
    assert "  line 6: torn line: the file ends in the middle of it" in capsys.readouterr().out
    other = here / "other.jsonl"
    other.write_text("hello\n")
    assert run(["check", str(other)]) == 1
    assert capsys.readouterr().out.startswith(f"Session file is not a valid pi session: {other}\n")
    newer = write_session(here / "newer.jsonl", [], HEADER | {"version": 99})
    assert run(["check", str(newer)]) == 0
    capsys.readouterr()
    assert run(["check", str(here / "missing.jsonl"), "zzz", str(here), str(sound)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"File not found: {here / 'missing.jsonl'}",
        "No session found matching 'zzz'",
        f"Session path is a directory: {here}",
        f"{sound}: sound",
    ]


def test_a_time_that_is_no_time_does_not_spoil_the_list(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = {"role": "user", "content": '<file name="/x/y.txt">\nz\n</file>\nfar away', "timestamp": 1e300}
    path = write_session(here / "far.jsonl", [entry("a", None, message=message)])
    assert run(["list"]) == 0
    assert "2025-01-01 00:00  11111111      1  far away" in capsys.readouterr().out
    assert run(["show", str(path)]) == 0


def test_repair_writes_a_copy_beside_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = here / "damaged-torn-last-line.jsonl"
    before = torn.read_bytes()
    assert run(["repair", str(torn)]) == 0
    copy = here / "damaged-torn-last-line.repaired.jsonl"
    assert capsys.readouterr().out == f"  left out line 6, which cannot be read\nRepaired copy: {copy}\n"
    assert torn.read_bytes() == before
    assert run(["check", str(copy)]) == 0
    assert run(["repair", str(torn)]) == 1


def test_what_does_not_name_one_session_is_an_error(here: Path) -> None:
    with pytest.raises(UsageError, match="No session found matching 'zzz'"):
        run(["show", "zzz"])
    shutil.copy(FIXTURES / "real-linear.jsonl", here)
    with pytest.raises(UsageError, match="Several sessions match '01a1dde':") as several:
        run(["show", "01a1dde"])
    assert len(str(several.value).splitlines()) == 3
    with pytest.raises(UsageError, match=r'unknown: "shw"\. Did you mean show\?'):
        run(["shw"])


def test_without_an_action_they_are_listed_newest_first_with_short_ids(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FIXTURES / "real-linear.jsonl", here)
    assert run([]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows] == ["01a1dde7-ea", "01a1dde7-e1", "11111111"]
    assert rows == sorted(rows, reverse=True)
    for row in rows:
        assert run(["show", row[2]]) == 0
    capsys.readouterr()
    assert run(["--all", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_rename(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (here / "real-everything.jsonl").read_bytes()
    assert run(["rename", "01a1dde7", "a", "better name"]) == 0
    assert "now called a better name" in capsys.readouterr().out
    assert (here / "real-everything.jsonl").read_bytes().startswith(before)
    assert run(["list"]) == 0
    assert "a better name" in capsys.readouterr().out
    assert run(["rename", "01a1dde7", ""]) == 0
    assert "has no name any more" in capsys.readouterr().out
    assert run(["rename", str(here / "none.jsonl"), "x"]) == 1
    assert not (here / "none.jsonl").exists()


def test_a_session_in_use_is_neither_renamed_nor_deleted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "real-everything.jsonl"
    with SessionManager.open(path):
        for action in (["rename", str(path), "x"], ["delete", "--yes", str(path)]):
            assert run(action) == 1
            assert f"Session is in use by process {os.getpid()}" in (told := capsys.readouterr().err)
            assert "End that program first" in told
    assert path.exists()


def test_delete_asks(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "real-everything.jsonl"
    waiting = here / "real-everything.jsonl.queue"
    waiting.write_text("{}")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="--yes"):
        run(["delete", "01a1dde7"])
    for answer, code, remains in (("\n", 1, True), ("no\n", 1, True), ("y\n", 0, False)):
        terminal = io.StringIO(answer)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", terminal)
        assert run(["delete", "01a1dde7"]) == code
        assert "Delete it for good? [y/N]" in capsys.readouterr().err
        assert path.exists() is remains and waiting.exists() is remains
    other = here / "other.jsonl"
    other.write_text("not a session\n")
    assert run(["delete", "--yes", str(other)]) == 1
    assert other.exists()
    assert sorted(os.listdir(here)) == ["damaged-torn-last-line.jsonl", "other.jsonl"]


def test_check_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--all"]) == 1
    out = capsys.readouterr().out
    assert "real-everything" not in out and "damaged-torn-last-line.jsonl: " in out
    assert out.endswith("2 sessions, 1 with damage\n")
    (here / "damaged-torn-last-line.jsonl").unlink()
    assert run(["check", "--all"]) == 0
    with pytest.raises(UsageError, match="--all"):
        run(["check"])


def test_the_timeline_has_times_and_costs_and_nothing_that_was_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "01a1dde7", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["time"] for line in told] == sorted(line["time"] for line in told)
    kinds = [line["kind"] for line in told]
    assert kinds[0] == "model_change" and {"prompt", "chat", "tool", "compaction", "branch_summary"} <= set(kinds)
    chat = next(line for line in told if line["kind"] == "chat" and line.get("toolCalls"))
    assert chat["model"] == "mock/mock-1" and chat["stopReason"] == "toolUse" and chat["seconds"] >= 0
    assert chat["inputTokens"] > 0 and "cost" in chat
    assert all(line["seconds"] >= 0 for line in told if line["kind"] == "tool")
    assert any(line.get("failed") for line in told if line["kind"] == "tool")
    assert run(["trace", "01a1dde7"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == len(told) and "model=mock/mock-1" in out
    assert "Final reply." not in out and "Alternative done." not in out
