"""Tasks as Harbor has them (`task.toml`, `instruction.md`, `environment`, `tests`), without containers.

A trial runs in a machine of its own: `/app` and what else the Dockerfile fills belong to the task, the programs are
those of this machine. So a task fits if its image is little more than files; one that installs something is refused.
The agent does not see `/tests` and `/solution`, and what it started is still up when the tests run.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.machine import Machine, MachineError
from evals.tasks import Place, Task, TaskError, Verdict

_OWN = ("app", "tests", "solution", "logs")
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
_BUILD_SECONDS = 300
_SCRIPT_SECONDS = 600
_KEPT_VARIABLES = re.compile(r"PATH|LANG|LC_ALL|TERM|TZ|(PIP|UV|SSL_CERT)_\w+|(https?|no)_proxy", re.IGNORECASE)
"""Variables for the image and the tests: those of package indexes, which both often need, and no keys."""


@dataclass(frozen=True)
class _Image:
    """The part of a Dockerfile that can be had here."""

    steps: tuple[tuple[str, str], ...]
    """Instructions with their words, in order."""
    workdir: str
    env: dict[str, str]

    @property
    def folders(self) -> set[str]:
        """Names at the root of the machine that the steps write to."""
        paths = {self.workdir, *(words[-1] for name, text in self.steps if name == "COPY" and (words := _copy(text)))}
        return {path.split("/")[1] for path in paths if path.startswith("/")} - {""}


@dataclass(frozen=True)
class HarborTask(Task):
    folder: Path = Path()
    image: _Image = field(default_factory=lambda: _Image((), "/app", {}))
    config: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def open(self, workspace: Path) -> Iterator[Place]:
        names = sorted({*_OWN, *self.image.folders})
        if refused := set(names) & set(_SYSTEM):
            raise TaskError(f"{self.name}: its image changes /{min(refused)}, so it needs a container")
        for name in (*names, "home", "logs/agent", "logs/verifier", "logs/artifacts"):
            (workspace / name).mkdir(parents=True, exist_ok=True)
        try:
            machine = Machine.start(workspace.parent, names)
        except MachineError as error:
            raise TaskError(f"{self.name}: no machine for it: {error}") from None
        try:
            place = _Inside(self, workspace, machine)
            place.build()
            yield place
        finally:
            machine.stop()


@dataclass(frozen=True)
class _Inside(Place):
    """A place in a machine."""

    task: HarborTask
    machine: Machine

    @property
    def enter(self) -> list[str]:
        return self.machine.enter(self.task.image.workdir)

    def build(self) -> None:
        """Do what the Dockerfile says. Raises `TaskError`."""
        cwd = "/"
        for name, text in self.task.image.steps:
            if name == "WORKDIR":
                cwd = os.path.join(cwd, text)
                self._outside(cwd).mkdir(parents=True, exist_ok=True)
            elif name == "COPY":
                self._copy(cwd, _copy(text))
            else:
                code, said = self.machine.run(["sh", "-c", text], cwd, self._environment(), _BUILD_SECONDS)
                if code:
                    raise TaskError(f"{self.task.name}: its image cannot be made here: RUN {text[:80]}: {_end(said)}")

    def apply_reference(self) -> None:
        self._script("solution", "solve.sh", self.task.config.get("solution", {}))

    def judge(self) -> Verdict:
        try:
            said = self._script("tests", "test.sh", self.task.config.get("verifier", {}))
        except subprocess.TimeoutExpired:
            return Verdict(False, "the tests took too long")
        reward = _reward(self.workspace / "logs" / "verifier")
        if reward is None:
            return Verdict(False, f"the tests left no reward: {_end(said)}")
        return Verdict(True) if reward >= 1 else Verdict(False, f"reward {reward:g}: {_end(said)}")

    def _script(self, folder: str, name: str, config: dict[str, Any]) -> str:
        """Put a folder of the task into the machine and run its script there. Return its output."""
        shutil.copytree(self.task.folder / folder, self.workspace / folder, dirs_exist_ok=True)
        env = self._environment() | config.get("env", {})
        seconds = float(config.get("timeout_sec", _SCRIPT_SECONDS))
        return self.machine.run(["bash", f"/{folder}/{name}"], self.task.image.workdir, env, seconds)[1]

    @property
    def env(self) -> dict[str, str]:
        """What the image sets; packages that it installs with pip are the trial's own."""
        base = self.workspace / "home" / ".local"
        env = {"PYTHONUSERBASE": str(base), "PATH": f"{base}/bin:{os.environ['PATH']}"}
        for name, value in self.task.image.env.items():
            env[name] = re.sub(r"\$\{?(\w+)\}?", lambda match: env.get(match[1], ""), value)
        return env

    def _environment(self) -> dict[str, str]:
        """Return the environment of the build and of the tests."""
        kept = {name: value for name, value in os.environ.items() if _KEPT_VARIABLES.fullmatch(name)}
        return (
            kept | {"HOME": str(self.workspace / "home"), "PIP_USER": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"} | self.env
        )

    def _copy(self, cwd: str, words: list[str]) -> None:
        *sources, target = words
        there = self._outside(os.path.join(cwd, target))
        for pattern in sources:
            found = sorted((self.task.folder / "environment").glob(pattern.removeprefix("./").rstrip("/") or "."))
            if not found:
                raise TaskError(f"{self.task.name}: COPY finds no {pattern}")
            for path in found:
                if path.is_dir():
                    shutil.copytree(path, there, dirs_exist_ok=True)
                    continue
                into = target.endswith(("/", ".")) or len(sources) + len(found) > 2 or there.is_dir()
                place = there / path.name if into else there
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)

    def _outside(self, path: str) -> Path:
        """Return where a path of the machine is for this program."""
        return self.workspace / os.path.normpath(path).lstrip("/")


def load(folder: Path) -> list[Task]:
    """Return the tasks of a folder, or the one that it is. Raises `TaskError` if there are none."""
    places = (
        [folder] if (folder / "task.toml").is_file() else sorted(path.parent for path in folder.glob("*/task.toml"))
    )
    if not places:
        raise TaskError(f"{folder} has no task.toml, nor has a folder in it")
    return [_task(path) for path in places]


def _task(path: Path) -> Task:
    dockerfile = path / "environment" / "Dockerfile"
    image = _read_dockerfile(dockerfile.read_text() if dockerfile.is_file() else "")
    return HarborTask(
        name=path.name,
        kind="harbor",
        prompt=(path / "instruction.md").read_text(encoding="utf-8").strip(),
        check="",
        services=True,
        folder=path.resolve(),
        image=image,
        config=tomllib.loads((path / "task.toml").read_text(encoding="utf-8")),
    )


def _read_dockerfile(text: str) -> _Image:
    steps: list[tuple[str, str]] = []
    workdir, env = "/app", dict[str, str]()
    for name, words in _instructions(text):
        if name == "WORKDIR":
            workdir = os.path.join(workdir, words)
        if name == "ENV":
            pairs = re.findall(r'(\w+)=("[^"]*"|\S+)', words) or [tuple(words.split(None, 1))]
            env |= {key: value.strip('"') for key, value in pairs}
        if name in ("WORKDIR", "COPY", "RUN"):
            steps.append((name, words))
    return _Image((("WORKDIR", "/app"), *steps), workdir, env)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\s*\n", " ", "\n".join(lines)).splitlines():
        name, _, words = line.strip().partition(" ")
        yield name.upper(), words.strip()


def _copy(text: str) -> list[str]:
    """Return sources and target of a COPY."""
    words: list[str] = json.loads(text) if text.startswith("[") else shlex.split(text)
    return [word for word in words if not word.startswith("--")]


def _reward(folder: Path) -> float | None:
    try:
        if (folder / "reward.txt").is_file():
            return float((folder / "reward.txt").read_text())
        rewards = json.loads((folder / "reward.json").read_text())
        return min(float(value) for value in rewards.values())
    except (OSError, ValueError, AttributeError):
        return None


def _end(output: str) -> str:
    return (output.strip() or "no output").splitlines()[-1][:200]
