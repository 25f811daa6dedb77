"""The tutorial, followed to the letter: every line of its blocks is run, and what it says to write is typed."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.apps.cli.conftest import Place

from .terminal import Terminal

PAGE = (Path(__file__).parents[3] / "docs/tutorial.md").read_text()
BLOCKS = "".join(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", "")
LINES = [line for line in BLOCKS.splitlines() if not line.startswith("#")]
COMMANDS = [command for line in LINES for command in line.partition("  #")[0].strip().split(" && ")]
TYPED = re.findall(r"^> (.*)$", PAGE, re.MULTILINE)
SLASHES = [f"/{name}" for name in re.findall(r"`/(\w+)`", PAGE)]
STEPS = (
    "An empty file, and a missing one.",
    {
        "calls": [
            {"name": "write", "arguments": {"path": "words.py", "content": "print('words')\n"}},
            {"name": "write", "arguments": {"path": "test_words.py", "content": "print('it passes')\n"}},
        ]
    },
    {"calls": [{"name": "bash", "arguments": {"command": "python3 test_words.py"}}]},
    "The script and its test are there.",
    {"calls": [{"name": "edit", "arguments": {"path": "words.py", "oldText": "words", "newText": "letters, too"}}]},
    "Now it counts letters, too.",
    "It counts words.",
)


def test_the_tutorial_works_as_it_is_written(place: Place) -> None:
    assert [shlex.split(command)[0] for command in COMMANDS[:3]] == ["mkdir", "cd", "git"]
    plan, chat, *later = [command for command in COMMANDS[3:] if not command.startswith("spindle doctor")]
    assert shlex.split(chat) == ["spindle", "-c", "--permission-mode", "default"] and len(TYPED) == 2
    assert SLASHES[:3] == ["/diff", "/undo", "/redo"]
    folder = place.project / "words"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    name = place.script(STEPS[0]).removeprefix("scripted/")
    place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": name})

    def run(command: str, typed: str = "") -> str:
        done = place.run(*shlex.split(command)[1:], cwd=folder, stdin=typed)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    assert f"scripted/{name}" in run("spindle doctor")
    assert STEPS[0] in run(plan)
    place.script(*STEPS[1:-1])
    script, words = folder / "test_words.py", folder / "words.py"
    with Terminal(shlex.split(chat)[1:], env=place.environment(None), cwd=folder) as terminal:
        terminal.wait_for(str(STEPS[0]), "% of 1")
        terminal.enter(TYPED[0])
        for question in ("words.py", "test_words.py", "python3 test_words.py"):
            terminal.wait_for(question, "y  Allow once", "n  Deny\n?")
            terminal.quiet()
            terminal.keys("y")
        terminal.wait_for("The script and its test are there.")
        assert script.exists()
        terminal.enter("/diff")
        terminal.wait_for("words.py  added", "test_words.py  added")
        terminal.enter(TYPED[1])
        terminal.wait_for("letters, too", "n  Deny\n?")
        terminal.quiet()
        terminal.keys("y")
        terminal.wait_for("Now it counts letters, too.")
        terminal.enter("/undo")
        terminal.wait_for("files put back: words.py", f"\n❯ {TYPED[1]}\n")
        assert words.read_text() == "print('words')\n"
        assert "Ctrl-U empties the line" in PAGE
        terminal.keys("\x15")
        terminal.enter("/redo")
        terminal.wait_for("The undo is taken back")
        assert words.read_text() == "print('letters, too')\n"
        terminal.keys("\x04")
        assert terminal.wait_exit() == 0
    place.script(STEPS[-1])
    listed, shown, said, _, deleted, data = later
    assert "I want a Python script that counts words." in run(listed)
    assert "Now it counts letters, too." in run(shown)
    assert run(said).strip() == STEPS[-1]
    id = re.findall(r"\b[0-9a-f]{8,}\S*", run(listed))[0]
    run(deleted.replace("ID", id) + " --yes")  # it asks on a terminal
    assert "I want a Python script that counts words." not in run(listed)
    assert "sessions" in run(data)
