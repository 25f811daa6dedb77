"""`spindle batch` as a program, on tasks and repositories of one test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel

from ..cli.conftest import Place
from ..cli.conftest import place as place  # a fixture

GIT_ENV = {
    "GIT_AUTHOR_NAME": "n",
    "GIT_AUTHOR_EMAIL": "n@example.org",
    "GIT_COMMITTER_NAME": "n",
    "GIT_COMMITTER_EMAIL": "n@example.org",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}


def git(cwd: Path, *arguments: str) -> str:
    env = {**os.environ, **GIT_ENV, "GIT_OPTIONAL_LOCKS": "0"}  # `git status` must not write to the index
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, env=env, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_repo(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name, text in (files or {"a_py": "a = 1\n"}).items():
        (path / name.replace("_", ".")).write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


def state(repo: Path) -> dict[str, str]:
    """Return all that must be the same before and after."""
    return {
        "status": git(repo, "status", "--porcelain=v2", "--branch"),
        "stash": git(repo, "stash", "list"),
        "refs": git(repo, "for-each-ref"),
        "head": (repo / ".git/HEAD").read_text(),
        "index": (repo / ".git/index").read_bytes().hex(),
        "config": (repo / ".git/config").read_text(),
        "worktrees": git(repo, "worktree", "list"),
        "entries": ",".join(sorted(path.name for path in (repo / ".git").iterdir())),
        "fsck": git(repo, "fsck", "--full", "--strict"),
        "objects": git(repo, "count-objects"),
    }


class Tasks:
    """A place with tasks in it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.model = "scripted/none"

    def script(self, *steps: Any) -> None:
        """Set what the model does for every task."""
        given = [{"text": step} if isinstance(step, str) else step for step in steps]
        self.model = self.place.script(*({"match": ".", **step} for step in given))

    def write(self, *tasks: Any) -> None:
        lines = [json.dumps({"prompt": task} if isinstance(task, str) else task) for task in tasks]
        self.place.write("project/tasks.jsonl", "\n".join(lines) + "\n")

    def arguments(self, *arguments: str) -> tuple[str, ...]:
        return "batch", "tasks.jsonl", "-o", "runs", "--sandbox", "off", "--model", self.model, *arguments

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.place.run(*self.arguments(*arguments), **options)

    def run_measured(self, *arguments: str) -> tuple[int, int]:
        """Return the exit code and the most KiB of memory. A program counts as large as who starts it, so that one is
        small."""
        small = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); "
        small += "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        done = self.place.program(sys.executable, "-c", small, *self.place.command(*self.arguments(*arguments)))
        code, most = map(int, done.stdout.split())
        return code, most

    @property
    def runs(self) -> Path:
        return self.place.project / "runs"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.runs / "results.jsonl").read_text().splitlines()]

    def statuses(self) -> dict[str, str]:
        """Return the last status of every task."""
        return {line["id"]: line["status"] for line in self.lines()}


@pytest.fixture
def tasks(place: Place) -> Tasks:
    place.env |= GIT_ENV
    return Tasks(place)


DEAR = {"cost": {"input": 100_000, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
"""A dollar for ten tokens of input."""


@pytest.fixture
def served(tasks: Tasks):
    """Tasks whose model is behind HTTP."""
    with MockModel() as mock:
        write_models(tasks.place.agent, mock.openai_url, **DEAR)
        tasks.model = "mock/m1"
        tasks.place.write("agent/settings.json", {"retry": {"baseDelayMs": 10, "maxRetries": 1}})
        yield tasks, mock


EXTENSION = """
def extension(agent):
    agent.flag("colour", type=str, help="What to paint with")

    @agent.tool(name=f"paint_{agent.get_flag('colour')}")
    def paint():
        "Paint it."
"""
