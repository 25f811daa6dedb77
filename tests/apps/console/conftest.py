"""A place with a scripted model, and chats in it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.cli.conftest import Place

from .terminal import Terminal

Chat = Callable[..., Terminal]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for folder in ("home", "agent", "project"):
        (tmp_path / folder).mkdir()
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "TMPDIR", "PYTHONPYCACHEPREFIX")}
    env = {"HOME": str(tmp_path / "home"), "SPINDLE_DIR": str(tmp_path / "agent"), "TERM": "xterm-256color"}
    place = Place(tmp_path, {**kept, **env, "LANG": "C.UTF-8"})
    place.write("agent/settings.json", {"retry": {"enabled": False}})
    return place


@pytest.fixture
def chat(place: Place) -> Iterator[Chat]:
    """Start `spindle --model <these steps> ARGUMENTS` and wait for its prompt."""
    open_ones: list[Terminal] = []

    def start(
        *arguments: str,
        steps: Any = ("Fine.",),
        env: dict[str, str] | None = None,
        ready: str = "0% of 1",
        **options: Any,
    ) -> Terminal:
        terminal = Terminal(
            ["--model", place.script(*steps), *arguments],
            env=place.environment(env),
            cwd=place.project,
            **options,
        )
        open_ones.append(terminal.__enter__())
        terminal.wait_for(ready)
        return terminal

    yield start
    for terminal in open_ones:
        terminal.__exit__()
