"""Every path and every name in the pages for people who change Spindle is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from spindle.protocol.commands import COMMANDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "spindle"
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
PLACES = (ROOT, SOURCE, ROOT / "tests", ROOT / "docs")
# Not names of ours: what is typed in a shell, what other programs and formats are called, fields of frames and spans.
FOREIGN = re.compile(
    r"(make|python|spindle|git|\.ci/run|lint-imports|radon|pytest|subprocess|await|asyncio|Popen)\b.*"
    r"|with signal:|models\.json|mcp\.json|agent: …|/|\[tool\.importlinter\]|a?wait"
)


@cache
def names() -> frozenset[str]:
    """All that has a name in the source: modules, classes, functions, attributes, texts such as tags of events."""
    found: set[str] = set(COMMANDS)
    for path in SOURCE.rglob("*.py"):
        found.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
                found.update(argument.arg for argument in getattr(getattr(node, "args", None), "args", ()))
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
                found.add(node.value)
    return frozenset(found)


def is_there(word: str) -> bool:
    word = word.rstrip("/")
    if any((place / form).exists() for place in PLACES for form in (word, f"{word}.py")):
        return True
    if "/" in word:  # a name in a module: agent/loop.run
        module, _, name = word.rpartition(".")
        return bool(module) and is_there(module) and name in names()
    parts = re.sub(r"\(.*\)$", "", word).lstrip("@").removesuffix("_*").split(".")
    return all(part in names() or re.sub(r"_([a-z])", lambda m: m[1].upper(), part) in names() for part in parts)


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    words = {word for word in re.findall(r"`([^`\n]+)`", plain) if not FOREIGN.fullmatch(word)}
    assert len(words) > 15
    missing = sorted(word for word in words if not is_there(word))
    assert not missing, f"{page} names what is not there: {missing}"


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], ids=lambda page: page.name
)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"`((?:tests|src/spindle|examples|scripts|benchmarks|docs)/[\w./-]+)`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_objects_of_a_running_agent_are_there() -> None:
    page = (ROOT / PAGES[0]).read_text()
    drawing = page.partition("## The objects of a running agent")[2].split("```")[1]
    said = re.findall(r"\b(?:[A-Z][a-z]+){2,}\b|\b(?:Engine|Queues|Hub|Chain|Retry|Shell|Plugins|Server)\b", drawing)
    assert len(said) > 15 and [name for name in said if name not in names()] == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert not is_there("agent/nowhere.py") and not is_there("agent/loop.nothing_here") and not is_there("NoSuchThing")
