"""What a task is, and the tasks of this folder.

A task is a folder of files, a prompt, and a program that says whether the work is done. The program is kept outside
the folder, so the agent does not see it. Every task has a reference solution: the tests prove that the check fails
without it and passes with it.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("tasks")
EASY = Path(__file__).with_name("easy.toml")
CHECK_SECONDS = 60
_GIT_ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


class TaskError(Exception):
    """A task is not well made, or its files cannot be written."""


@dataclass(frozen=True)
class Verdict:
    passed: bool
    reason: str = ""
    """The last line that the check said; empty if it passed."""


@dataclass(frozen=True)
class Task:
    name: str
    kind: str
    prompt: str
    check: str
    """A Python program. It runs in the workspace and passes by ending with code 0."""
    files: dict[str, str] = field(default_factory=dict)
    setup: str = ""
    """A Python program that makes the rest of the workspace."""
    solution: dict[str, str] = field(default_factory=dict)
    """Files of the reference solution."""
    solve: str = ""
    """A shell command that does the rest of the reference solution."""
    unchanged: tuple[str, ...] = ()
    """Files that the agent must leave as they are."""
    small: bool = False
    """Fit for a model of one or two billion parameters."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Files that the check needs and the agent does not see: they are written before the check."""
    services: bool = False
    """What the agent started stays up for the check."""

    @contextmanager
    def open(self, workspace: Path) -> Iterator["Place"]:
        """Make the workspace in an empty folder, and give the place of a trial. Raises `TaskError`."""
        self.prepare(workspace)
        yield Place(self, workspace)

    def prepare(self, workspace: Path) -> None:
        """Make the workspace in an empty folder."""
        _write(workspace, self.files)
        if self.setup:
            said = _python(self.setup, workspace)
            if said.returncode:
                raise TaskError(f"{self.name}: its setup failed: {said.stderr.strip()[-300:]}")

    def apply_reference(self, workspace: Path) -> None:
        _write(workspace, self.solution)
        if self.solve:
            env = os.environ | _GIT_ENV
            subprocess.run(
                ["sh", "-ec", self.solve], cwd=workspace, env=env, check=True, capture_output=True, timeout=60
            )

    def judge(self, workspace: Path) -> Verdict:
        """Run the check in the workspace."""
        for name in self.unchanged:
            path = workspace / name
            if not path.is_file() or path.read_text() != self.files[name]:
                return Verdict(False, f"{name} was changed")
        _write(workspace, self.hidden)
        try:
            said = _python(self.check, workspace)
        except subprocess.TimeoutExpired:
            return Verdict(False, f"the check took longer than {CHECK_SECONDS} seconds")
        if said.returncode == 0:
            return Verdict(True)
        lines = (said.stderr.strip() or said.stdout.strip() or f"exit code {said.returncode}").splitlines()
        return Verdict(False, lines[-1][:300])


@dataclass(frozen=True)
class Place:
    """Where one trial of a task happens."""

    task: Task
    workspace: Path

    @property
    def enter(self) -> list[str]:
        """Words that, before a command, run it there."""
        return []

    @property
    def env(self) -> dict[str, str]:
        """Variables that a program has there besides its own."""
        return {}

    def apply_reference(self) -> None:
        self.task.apply_reference(self.workspace)

    def judge(self) -> Verdict:
        return self.task.judge(self.workspace)


def load(folder: Path = FOLDER) -> list[Task]:
    """Return the tasks of a folder of `.toml` files, by name. Raises `TaskError`."""
    return [_task(path.stem, _read(path), path) for path in sorted(folder.glob("*.toml"))]


def load_easy(path: Path = EASY) -> list[Task]:
    """Return the easy tasks: one table of a file each. Raises `TaskError`."""
    return [_task(name, {"kind": "easy", **data}, path) for name, data in _read(path).items()]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{path.name}: {error}") from None


def _task(name: str, data: dict[str, Any], path: Path) -> Task:
    solve, unchanged = data.pop("solve", {}).get("run", ""), tuple(data.pop("unchanged", ()))
    try:
        return Task(name=name, solve=solve, unchanged=unchanged, **data)
    except TypeError as error:
        raise TaskError(f"{path.name}: {name}: {error}") from None


def _write(workspace: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _python(program: str, workspace: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program in the workspace, whose modules it can import."""
    command = [sys.executable, "-B", "-c", program]
    env = os.environ | _GIT_ENV | {"PYTHONUTF8": "1"}
    return subprocess.run(command, cwd=workspace, env=env, capture_output=True, text=True, timeout=CHECK_SECONDS)
