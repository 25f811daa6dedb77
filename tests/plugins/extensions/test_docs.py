"""The guide says what the code does."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from spindle.plugins.extensions.api import Agent
from spindle.plugins.extensions.context import CommandContext
from spindle.plugins.extensions.events import EVENTS
from spindle.plugins.extensions.ui import UI
from spindle.testing import load

GUIDE = (Path(__file__).parents[3] / "docs" / "extensions.md").read_text()


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def test_every_event_has_a_row_with_its_fields_and_every_row_an_event():
    section = GUIDE.split("## Events\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    assert set(rows) == set(EVENTS)
    for name, kind in EVENTS.items():
        fields = {field.lstrip("_") for field in kind.__struct_fields__} - {"reason"}
        assert fields <= set(re.findall(r"`(\w+)`", rows[name])), name


@pytest.mark.parametrize("kind", [Agent, CommandContext, UI])
def test_every_method_is_mentioned(kind):
    words = set(re.findall(r"\w+", GUIDE)) | {"path", "paste_to_editor"}
    assert set(public(kind)) <= words


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_gate_of_the_first_five_minutes_works(tmp_path, monkeypatch):
    gate, test = blocks("python")[:2]
    (tmp_path / "gate.py").write_text(gate)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "gate", raising=False)
    namespace: dict[str, Any] = {}
    exec(test, namespace)
    namespace["test_it_asks_before_it_deletes"]()


def test_the_provider_of_the_guide_loads():
    source = next(block for block in blocks("python") if "agent.provider" in block)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    agent = asyncio.run(load(namespace["extension"]))
    assert agent.agent.resources.registry.find("mine", "small") is not None
