"""Foreign text on a terminal is only text, whichever command prints it; in a pipe it is as it came."""

import ast
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle.base.terminal import plain

from .conftest import Place

EVIL = "\x1b]0;OWNED\x07\x1b[2J\x9b5A\x1bP+q\x1b\\\u202eturned\u2066\x08\r\x1bc"
SEEN = ("\x1b]", "\x1b[2J", "\x9b", "\x1bP", "\u202e", "\u2066", "\x08", "\x1bc", "OWNED")


def on_a_terminal(place: Place, *arguments: str) -> str:
    """Run it with a terminal for stdin, stdout and stderr; return all that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        place.command(*arguments),
        cwd=place.project,
        env=place.environment({"TERM": "xterm", "COLUMNS": "200"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65536):
            written += data
    except OSError:  # how Linux tells the end of a terminal
        pass
    finally:
        os.close(ours)
        process.wait(30)
    return written.decode("utf-8", "replace")


SERVER = f"import sys; sys.stderr.write({EVIL + 'complains'!r}); sys.exit(3)"
NOTICE = f"""
import sys
def extension(agent):
    print({EVIL + "printed"!r}, file=sys.stderr)
    @agent.on("session_start")
    def start(event, ctx):
        ctx.ui.notify({EVIL + "noticed"!r})
"""


def _prepared(place: Place) -> str:
    """Put hostile text wherever it may come from; return the model that says more of it."""
    call = {"name": f"no{EVIL}tool", "arguments": {"path": EVIL}}
    place.write("agent/extensions/loud.py", NOTICE)
    place.write("agent/mcp.json", {"mcpServers": {"bad": {"command": sys.executable, "args": ["-c", SERVER]}}})
    own = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k"}
    place.write("agent/models.json", {"providers": {"mine": own | {"models": [{"id": f"m{EVIL}x", "name": EVIL}]}}})
    place.write("agent/skills/bad/SKILL.md", f"---\nname: bad\ndescription: {EVIL!r} {EVIL}\n---\n")
    place.write("project/tasks.jsonl", [{"id": "a", "prompt": "go"}][0])
    return place.script({"text": f"{EVIL}said", "calls": [call]}, f"{EVIL}answered")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["-p", "go", "--verbose"], "turnedanswered"),
        (["batch", "tasks.jsonl", "-o", "out"], "1 ok"),
        (["mcp", "list"], "complains"),
        (["models"], "turnedx"),
        (["doctor"], "Skills"),
        (["-p", "go", "--tools", f"{EVIL}bsh"], "turnedbsh"),
        (["-p", "go", f"--no{EVIL}such"], "turnedsuch"),
        (["sessions", "show", f"{EVIL}none"], "turnednone"),
    ],
    ids=lambda value: " ".join(value)[:12].strip() if isinstance(value, list) else "",
)
def test_on_a_terminal_foreign_text_is_only_text(place: Place, arguments: list[str], wanted: str) -> None:
    model = _prepared(place)
    agent = arguments[0] in ("-p", "batch")
    written = on_a_terminal(place, *arguments, *(["--model", model] if agent else []))
    assert wanted in written
    shown = written.replace("\r\n", "\n").replace(r"\x1b]0;OWNED", "")  # arguments of a call are shown with their codes
    assert [sign for sign in SEEN if sign in shown] == []


def test_in_a_pipe_it_is_as_it_came(place: Place) -> None:
    model = place.script(f"{EVIL}answered")
    done = place.program(*place.command("-p", "go", "--no-session", "--model", model), text=False)
    assert done.stdout == f"{EVIL}answered\n".encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\r\nc\n", "a\tb\nc\n"),
        ("über 日本 \U0001f600 \u200f", "über 日本 \U0001f600 \u200f"),
        ("a\x1b[38;5;1mb\x1b[0m", "ab"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;QQ==\x07x", "x"),
        ("\x9d0;t\x9cx\x90q\x9cy", "xy"),
        ("cut \x1b", "cut "),
        ("cut \x1b]0;t\nnext", "cut \nnext"),
        ("\ud800", "\ufffd"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert plain(shown) == shown


def test_nothing_goes_round_the_guard() -> None:
    """Streams are guarded as a whole, so `print` is safe. Other ways to a terminal are few, and known."""
    source = Path(__file__).parents[3] / "src" / "spindle"
    known = {
        "apps/cli/progress.py",  # the status line
        "apps/cli/first_minute.py",  # a list to choose from
        "apps/cli/streamed.py",  # the answer as the chat shows it
        "apps/cli/models_command.py",  # the bar of a download
        "apps/cli/batch_view.py",  # the table
        "apps/cli/terminal.py",  # the change that a question is about, in colours
        "apps/console/editor.py",  # the prompt
        "base/terminal.py",
        "workspace/search.py",  # a program of its own at the far side, which is read through a pipe
    }
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if _goes_round(node):
                found.add(str(path.relative_to(source)))
    assert found == known


def _goes_round(node: Any) -> bool:
    """Say whether code takes the stream behind the guard, or one that never had a guard."""
    if isinstance(node, ast.Name):
        return node.id == "unguarded"
    if isinstance(node, ast.Attribute):
        return node.attr in ("unguarded", "__stdout__", "__stderr__")
    to_descriptor = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "write"
    return (
        to_descriptor
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "os"
        and isinstance(node.args[0], ast.Constant)
    )
