"""What must be true of every cell. A sentence is a function; `judge` asks all and tells which do not hold."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.apps.batch.conftest import git, make_repo
from tests.matrix.cells import Cell
from tests.matrix.task import CALL_COST, Told, make_work
from tests.matrix.wires import Wire
from tests.soak.attack import processes_of, until
from tests.support.nursery import run

PI = os.environ.get("SPINDLE_TEST_PI", "")
FILES = {"a.txt": "one\n2\n", "new.txt": "new\n", "ran.txt": "ran\n"}
Sentence = Callable[[Wire, Told], None]


def judge(cell: Cell, base: Path) -> list[str]:
    """Do the task in this cell; return the sentences that do not hold, each with what was seen."""
    wire = cell.wire(base / "home", cell.features)
    for repository in sorted({wire.work, wire.place}):  # one may lie in the other
        make_work(repository)
    told = wire.drive()
    faults = []
    for sentence in SENTENCES:
        try:
            sentence(wire, told)
        except (AssertionError, OSError, KeyError) as error:
            faults.append(f"{cell}: {sentence.__doc__} {error}")
    return faults


def the_files(wire: Wire, told: Told) -> None:
    """The files are as the model left them."""
    place = _result_of_patch(wire, told) if wire.name == "batch" else wire.place  # its worktree is removed
    assert {name: (place / name).read_text() for name in FILES} == FILES
    assert (place / "agreed").exists() == wire.asks, "touch agreed"
    assert not (place / "refused").exists(), "touch refused"


def the_diff(wire: Wire, told: Told) -> None:
    """`git apply` takes the diff, and makes the same files."""
    applied = _result_of_patch(wire, told)
    assert {name: (applied / name).read_text() for name in FILES} == FILES


def the_cost(wire: Wire, told: Told) -> None:
    """Every call of a model is counted."""
    cost = told.result["cost"]
    assert cost is not None and abs(cost - wire.calls * CALL_COST) < 1e-6, (cost, wire.calls)


def the_refusals(wire: Wire, told: Told) -> None:
    """Every refusal is told, and nothing else."""
    commands = [denial["arguments"]["command"] for denial in told.result["denials"]]
    refused = ["git stash clear"] if "rules" in wire.features else []
    refused += ["touch refused"] if wire.asks else ["touch agreed", "touch refused"]
    assert [command for command in commands if command in refused] == refused, commands
    touched = [question for question in told.questions if "touch" in question]
    assert len(touched) == (2 if wire.asks else 0), told.questions


def the_stash(wire: Wire, told: Told) -> None:
    """The stash of the user is empty only where nothing refused that."""
    refused = "rules" in wire.features or wire.keeps_stash
    assert bool(git(wire.place, "stash", "list")) == refused, "intact" if not refused else "emptied"
    if wire.place != wire.work:
        assert git(wire.work, "stash", "list"), "the one here is emptied"


def the_fence(wire: Wire, told: Told) -> None:
    """A command writes outside, but not in a sandbox."""
    outside = list(wire.place.parent.glob("outside.txt")) + list((wire.base / "runs").rglob("outside.txt"))
    assert bool(outside) == ("sandbox" not in wire.features), outside


def the_end(wire: Wire, told: Told) -> None:
    """Nothing is left running."""
    assert until(lambda: not any(processes_of(wire.agent_dir))), list(processes_of(wire.agent_dir))


def the_session(wire: Wire, told: Told) -> None:
    """The session files are valid, for pi too."""
    files = [path for path in wire.base.rglob("*.jsonl") if path.name not in ("tasks.jsonl", "results.jsonl")]
    files = [path for path in files if path.read_bytes().startswith(b'{"type":"session"')]
    assert len(files) == (2 if "subagent" in wire.features else 1), files
    for path in files:
        checked = run([sys.executable, "-m", "spindle", "sessions", "check", str(path)], capture_output=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        if PI:
            assert _read_by_pi(path) == len(path.read_bytes().splitlines()) - 1, "entries that pi reads"


SENTENCES: list[Sentence] = [
    the_files,
    the_diff,
    the_cost,
    the_refusals,
    the_stash,
    the_fence,
    the_end,
    the_session,
]


def _result_of_patch(wire: Wire, told: Told) -> Path:
    """Apply the diff to a fresh repository."""
    fresh = wire.base / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    make_repo(fresh, a_txt="one\ntwo\n")
    done = subprocess.run(["git", "apply", "-"], cwd=fresh, input=told.diff, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{told.diff}"
    return fresh


def _read_by_pi(path: Path) -> int:
    driver = Path(__file__).parents[1] / "interop/pi_sessions.mjs"
    steps: list[Any] = [["open", str(path)], ["getEntries"]]
    command = [os.environ.get("SPINDLE_TEST_NODE", "node"), str(driver)]
    done = subprocess.run(command, input=json.dumps(steps) + "\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return len(json.loads(done.stdout)[1])
