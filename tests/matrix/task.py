"""The task of all cells: the repository, what the model does in it, and what the user answers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.apps.batch.conftest import git, make_repo
from tests.support.mock_model import Step, call, reply

ASK = "Bash(touch *)"
NO_STASH = "Bash(git stash *)"
PRICE = {"cost": {"input": 1000, "output": 1000, "cacheRead": 0, "cacheWrite": 0}}
CALL_COST = 0.013
"""Of 13 tokens that are not cached."""
OUTSIDE = "{ echo out > ../outside.txt; } 2> hidden.log; true"
"""Hides its failure: where a failure shows, the user is asked whether the command may run without the sandbox."""
TOOLS = "read,bash,edit,write"
PROMPT = "Do the task."


def make_work(path: Path) -> Path:
    """Make a repository with one commit, and something of the user's in its stash."""
    make_repo(path, a_txt="one\ntwo\n")
    (path / "a.txt").write_text("precious\n")
    git(path, "stash", "push", "-q")
    return path


def script(subagent: bool) -> list[Step]:
    """Read, write, edit, run, stash, and ask twice; every answer of the model costs money."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "a.txt"}),
        ("write", {"path": "new.txt", "content": "new\n"}),
        ("edit", {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}]}),
        ("bash", {"command": f"echo ran > ran.txt; sleep 600 > sleep.log 2>&1 & {OUTSIDE}"}),
        ("bash", {"command": "git stash clear"}),
        ("bash", {"command": "touch agreed"}),
        ("bash", {"command": "touch refused"}),
    ]
    steps = [reply(call(name, arguments, id=f"c{number}")) for number, (name, arguments) in enumerate(calls)]
    if subagent:
        steps = [reply(call("task", {"prompt": "Do it."}, id="t1")), *steps, reply("The subagent is done.")]
    return [*steps, reply("Done.")]


def agrees(question: str) -> bool:
    """Say how the user answers: yes to `touch agreed`, and no to everything else."""
    return "touch agreed" in question


@dataclass
class Told:
    """What a wire told of a run, in the shapes of `get_run_result` and `get_changes`."""

    result: dict[str, Any]
    diff: str
    questions: list[str] = field(default_factory=list)
    """In the order in which the user was asked."""


def diff_of(changes: dict[str, Any]) -> str:
    return "".join(change["diff"] for change in changes["files"] if change.get("diff"))
