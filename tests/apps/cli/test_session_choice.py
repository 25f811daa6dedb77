"""Which session a command line means, seen from the files it leaves."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place


def ask(place: Place, *arguments: str, stdin: str | None = None, cwd: Path | None = None) -> Any:
    return place.run("--model", place.script("ok"), *arguments, "-p", "hello", stdin=stdin, cwd=cwd)


def at_terminal(place: Place, answer: str, *arguments: str) -> tuple[str, str]:
    """Run it to a good end with a person who types an answer. Returns stdout and stderr."""
    keyboard, terminal = os.openpty()
    process = place.start("--model", place.script("ok"), *arguments, "-p", "hi", stdin=terminal, text=True)
    os.close(terminal)
    os.write(keyboard, answer.encode())
    out, errors = process.communicate(timeout=30)
    os.close(keyboard)
    assert process.returncode == 0
    return out, errors


def files(place: Place) -> list[Path]:
    return sorted(place.agent.glob("sessions/*/*.jsonl"))


def header(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text().splitlines()[0]))


def users(path: Path) -> int:
    return path.read_text().count('"role":"user"')


def test_a_new_session_each_time_and_continue(place: Place) -> None:
    assert ask(place).stdout == "ok\n"
    assert ask(place).stdout == "ok\n"
    first, second = files(place)
    assert (users(first), users(second)) == (1, 1)
    os.utime(first, (time.time() + 60, time.time() + 60))
    assert ask(place, "-c").stdout == "ok\n"
    assert (users(first), users(second)) == (2, 1)


def test_continue_without_a_session_begins_one(place: Place) -> None:
    assert ask(place, "--continue").stdout == "ok\n"
    assert len(files(place)) == 1


def test_no_session_leaves_nothing(place: Place) -> None:
    assert ask(place, "--no-session").stdout == "ok\n"
    assert files(place) == []


def test_session_by_id_prefix_and_path(place: Place) -> None:
    ask(place)
    (file,) = files(place)
    for name in (header(file)["id"], header(file)["id"][:20], str(file), os.path.relpath(file, place.project)):
        assert ask(place, "--session", name).returncode == 0
    assert files(place) == [file]
    assert users(file) == 5


def test_a_path_that_does_not_exist_is_a_new_session_there(place: Place) -> None:
    assert ask(place, "--session", "mine/s.jsonl").stdout == "ok\n"
    assert users(place.project / "mine" / "s.jsonl") == 1


def test_an_ambiguous_prefix_names_the_candidates(place: Place) -> None:
    ask(place, "--session-id", "abc-1")
    ask(place, "--session-id", "abc-2")
    done = ask(place, "--session", "abc")
    assert done.returncode == 2
    assert "abc-1" in done.stderr
    assert "abc-2" in done.stderr
    assert ask(place, "--session", "abc-1").returncode == 0


def test_session_id_is_created_once(place: Place) -> None:
    done = ask(place, "--session-id", "my.id-1")
    assert "my.id-1" in done.stderr
    done = ask(place, "--session-id", "my.id-1")
    assert (done.stdout, done.stderr) == ("ok\n", "")
    (file,) = files(place)
    assert (header(file)["id"], users(file)) == ("my.id-1", 2)


def test_fork_copies(place: Place) -> None:
    ask(place)
    (source,) = files(place)
    assert ask(place, "--fork", header(source)["id"]).stdout == "ok\n"
    copy = next(file for file in files(place) if file != source)
    assert (users(source), users(copy)) == (1, 2)
    assert header(copy)["parentSession"] == str(source)
    missing = ask(place, "--fork", "none.jsonl")
    assert missing.returncode == 1
    assert missing.stderr.startswith("Error: ")


@pytest.mark.parametrize(("answer", "sessions"), [("y\n", 2), ("n\n", 1), ("", 1)])
def test_a_session_of_another_project_is_forked_if_wanted(place: Place, answer: str, sessions: int) -> None:
    other = place.root / "other"
    other.mkdir()
    ask(place, cwd=other)
    (file,) = files(place)
    out, errors = at_terminal(place, answer or "\x04", "--session", header(file)["id"])
    assert f"Session found in different project: {other}" in errors
    assert (out, "Aborted." in errors) == (("ok\n", False) if sessions == 2 else ("", True))
    assert len(files(place)) == sessions


@pytest.mark.parametrize(("answer", "chosen"), [("2\n", True), ("\n", False), ("9\n", False)])
def test_resume_is_a_numbered_list(place: Place, answer: str, chosen: bool) -> None:
    ask(place, "--name", "First one")
    ask(place)
    first, second = files(place)
    out, errors = at_terminal(place, answer, "--resume")
    assert "  1  " in errors
    assert "First one (2 messages)" in errors
    assert (users(first), users(second)) == ((2, 1) if chosen else (1, 1))
    assert (out == "ok\n") is chosen
    assert ("No session selected" in errors) is not chosen


def test_resume_without_a_terminal(place: Place) -> None:
    ask(place)
    done = ask(place, "--resume")
    assert done.returncode == 2
    assert "--session" in done.stderr


def test_where_sessions_are_kept(place: Place) -> None:
    place.write("agent/settings.json", {"sessionDir": str(place.root / "from-settings")})
    ask(place)
    assert len(list((place.root / "from-settings").glob("*.jsonl"))) == 1
    place.env["PI_CODING_AGENT_SESSION_DIR"] = "~/from-env"
    ask(place)
    assert len(list((place.root / "home" / "from-env").glob("*.jsonl"))) == 1
    ask(place, "--session-dir", "from-option")
    assert len(list((place.project / "from-option").glob("*.jsonl"))) == 1
    assert files(place) == []


def test_a_session_whose_directory_is_gone(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    ask(place, cwd=other)
    (file,) = files(place)
    for item in other.iterdir():
        item.unlink()
    other.rmdir()
    done = ask(place, "--session", str(file))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"Error: Stored session working directory does not exist: {other}",
        f"Session file: {file}",
        f"Current working directory: {place.project}",
    ]


def test_a_file_that_is_no_session_is_left_alone(place: Place) -> None:
    path = place.write("project/notes.jsonl", "my notes\n")
    done = ask(place, "--session", "notes.jsonl")
    assert done.returncode == 1
    assert path.read_text() == "my notes\n"


def test_the_model_of_a_session_is_taken_up_again(place: Place) -> None:
    ask(place)
    done = place.run("-c", "-p", "again")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    (file,) = files(place)
    text = file.read_text().replace("scripted", "vanished")
    file.write_text(text)
    done = place.run("-c", "-p", "again")
    assert "Could not restore model vanished/" in done.stderr
    assert "(model no longer exists)" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_question_waits(place: Place, number: signal.Signals) -> None:
    model = place.script("ok")
    place.run("--model", model, "-p", "x")
    keyboard, terminal = os.openpty()
    process = place.start("--resume", "--model", model, "-p", "y", stdin=terminal, start_new_session=True)
    assert process.stderr is not None
    shown = b""
    while b"Session number: " not in shown:
        shown += os.read(process.stderr.fileno(), 4096)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -number
    assert errors == b""
    os.close(keyboard)
    os.close(terminal)
