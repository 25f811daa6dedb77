"""Words that people try: each does what it says, has a help of its own, and takes what is most likely meant."""

import re
import signal
import time
from typing import Any

import pytest

from spindle.apps.cli.subcommands import COMMANDS
from spindle.base.version import __version__

from .conftest import Place


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_of_its_own(place: Place, command: str) -> None:
    done = place.run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(rf"usage: spindle {command}\b", done.stdout, re.IGNORECASE)
    if command != "help":
        assert place.run("help", command).stdout == done.stdout


def test_help_and_version(place: Place) -> None:
    assert place.run("help").stdout == place.run("--help").stdout
    assert place.run("version").stdout == f"{__version__}\n"
    wrong = place.run("help", "docter")
    assert wrong.returncode == 2 and "Did you mean doctor?" in wrong.stderr


def test_a_mode_by_another_name_shows_the_options_that_count_there(place: Place) -> None:
    served, talked = place.run("serve", "--help").stdout, place.run("chat", "--help").stdout
    assert "--remote-cert" in served and "--remote-cert" not in talked
    assert "--model" in served and "--model" in talked


def listening(place: Place, *arguments: str, **options: Any) -> str:
    """Start a server, wait until it listens, end it, and return all that it said."""
    process = place.start(*arguments, text=True, **options)
    assert process.stderr and process.stdout
    said = ""
    while "Listening on" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    deadline = time.monotonic() + 10
    while "web" in arguments and not (place.root / "opened").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said += process.communicate(timeout=20)[1]
    assert process.returncode == 0
    return said


@pytest.mark.parametrize("arguments", [["0"], ["127.0.0.1:0", "--no-session"], ["--remote", "0"]])
def test_serve_serves_where_it_is_told(place: Place, arguments: list[str]) -> None:
    said = listening(place, "serve", "--model", place.script("ok"), *arguments)
    assert re.match(r"Listening on http://127\.0\.0\.1:\d+/\S*\n(To change keys and settings [^\n]*\n)?Stopping", said)


def test_serve_refuses_what_is_no_address(place: Place) -> None:
    done = place.run("serve", "tea")
    assert done.returncode == 2 and "127.0.0.1:3838" in done.stderr


def test_web_opens_the_page(place: Place) -> None:
    target = place.root / "opened"
    browser = place.write("browser", f'#!/bin/sh\necho "$1" > {target}.part && mv {target}.part {target}\n')
    browser.chmod(0o700)
    place.env |= {"BROWSER": str(browser), "DISPLAY": ":9"}
    place.env.pop("SSH_CONNECTION", None)
    said = listening(place, "web", "0", "--model", place.script("ok"))
    address = re.match(r"Listening on (\S+)", said)
    assert address and target.read_text().strip() == address[1]


def test_the_newest_session_is_meant_if_none_is_named(place: Place) -> None:
    for words in (["sessions", "show"], ["sessions", "tree"], ["sessions", "export"], ["export"]):
        done = place.run(*words)
        assert done.returncode == 1 and done.stderr.startswith("Error: No sessions here")
    for text in ("older", "newer"):
        assert place.run("--model", place.script(f"the {text} answer"), "-p", "hello").returncode == 0
    assert "the newer answer" in place.run("sessions", "show").stdout
    assert "the newer answer" in place.run("sessions", "tree").stdout
    written = place.run("sessions", "export").stdout.removeprefix("Exported to: ").strip()
    assert "the newer answer" in (place.project / written).read_text()
    page = place.run("export", "--redact").stdout.removeprefix("Exported to: ").strip()
    assert page.endswith(".html") and (place.project / page).stat().st_size > 10_000
    session = next(path for path in place.agent.rglob("*.jsonl") if "older" in path.read_text())
    assert place.run("export", str(session), "older.html").stdout == "Exported to: older.html\n"
