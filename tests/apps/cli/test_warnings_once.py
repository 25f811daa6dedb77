"""Warnings about files: told once, then only by `spindle doctor`, and again when something has changed."""

import json
import stat

import pytest

from .conftest import Place


@pytest.fixture
def pi_user(place: Place) -> Place:
    place.write("agent/extensions/guard.ts", "export default () => {}\n")
    place.write("agent/settings.json", {"packages": ["npm:@x/y"], "skills": ["~/gone"]})
    place.write("agent/mcp.json", {"mcpServers": {"odd": {"command": 5}}})
    place.write("agent/auth.json", {"groq": 3})
    return place


def told(place: Place, *arguments: str) -> list[str]:
    done = place.run("--model", place.script("ok"), "--no-session", *arguments)
    assert done.returncode == 0
    return done.stderr.splitlines()


def test_each_is_told_once(pi_user: Place) -> None:
    place = pi_user
    first = told(place, "-p", "hi")
    words = ("gone", "npm:@x/y", "guard.ts", "odd", "groq")
    assert all(any(word in line for line in first) for word in words) and len(first) == 5
    for mode in (["-p", "hi"], ["--mode", "rpc"], ["--mode", "json", "hi"], ["--help"]):
        assert told(place, *mode) == []
    report = place.run("doctor").stdout
    assert all(word in report for word in words)
    assert "npm:@x/y" in "".join(told(place, "--verbose", "-p", "hi"))
    remembered = place.agent / "spindle-told.json"
    assert stat.S_IMODE(remembered.stat().st_mode) == 0o600 and "npm" not in remembered.read_text()

    place.write("agent/extensions/other.ts", "")
    (line,) = told(place, "-p", "hi")
    assert "other.ts" in line and "guard.ts" in line


def test_errors_are_told_every_time(place: Place) -> None:
    place.write("agent/extensions/broken.py", "raise ValueError('no')\n")
    for _ in range(2):
        (line,) = told(place, "-p", "hi")
        assert "broken.py" in line


def test_what_cannot_be_remembered_is_told_again(pi_user: Place) -> None:
    place = pi_user
    place.write("agent/spindle-told.json", "no JSON")
    assert len(told(place, "-p", "hi")) == len(told(place, "-p", "hi")) == 5


def test_a_remark_on_the_command_line_is_told_every_time(place: Place) -> None:
    for _ in range(2):
        done = place.run("--model", place.script("ok"), "--session-id", "a-b", "--no-title", "-p", "hi")
        place.run("sessions", "delete", "--yes", "a-b")
        assert "No session with id a-b, creating it" in done.stderr


def test_many_processes_at_once_keep_the_file_whole(pi_user: Place) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: told(pi_user, "-p", "hi"), range(4)))
    assert len(json.loads((pi_user.agent / "spindle-told.json").read_text())) == 5
    assert told(pi_user, "-p", "hi") == []
