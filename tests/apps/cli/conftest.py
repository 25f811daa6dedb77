"""The command line as a program: a fresh home, a fresh project, and `run`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import nursery


@dataclass
class Place:
    """Directories of one test and the program in them."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    @property
    def project(self) -> Path:
        return self.root / "project"

    def write(self, name: str, content: Any) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "spindle", *arguments]

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**self.env, **(env or {})}

    def run(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; stdin is empty unless given."""
        return nursery.run(
            self.command(*arguments),
            cwd=cwd or self.project,
            env=self.environment(env),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=60,
        )

    def program(
        self, *command: Any, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run any program there to its end, and as it is: what looks at a start does not want the nursery."""
        options = {"stdin": None if "input" in options else subprocess.DEVNULL, "timeout": 100, "text": True, **options}
        where: dict[str, Any] = {"cwd": self.project, "env": self.environment(env)}
        return subprocess.run(command, capture_output=True, **where, **options)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """Start it with pipes for stdout and stderr; stdin is empty unless given."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return nursery.Popen(self.command(*arguments), cwd=self.project, env=self.environment(), **{**pipes, **options})

    def script(self, *steps: Any) -> str:
        """Write a script and return the model that plays it."""
        return f"scripted/{self.write('script.json', list(steps))}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for folder in ("home", "agent", "project"):
        (tmp_path / folder).mkdir()
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR", "PYTHONPYCACHEPREFIX")}
    return Place(tmp_path, {**kept, "HOME": str(tmp_path / "home"), "SPINDLE_DIR": str(tmp_path / "agent")})
