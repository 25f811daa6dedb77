"""The pages as people read them: links by title, and code of the pages for newcomers that a narrow window can show."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NARROW = 80
FOR_NEWCOMERS = [
    *("install", "tutorial", "terminal", "cli", "cookbook", "data", "python", "python-jobs"),
    *("typescript", "http", "web-page", "permissions"),
]
LONG = ("Error: Spindle has no command", "data: {json.dumps({'text': event.text_delta})}")
"""What a program prints, and a text that cannot be cut."""


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_a_link_says_where_it_leads(page: Path) -> None:
    assert re.findall(r"\[`?(?:docs/)?[a-z-]+\.md`?\]\([^)]*\)", page.read_text()) == []


@pytest.mark.parametrize("name", FOR_NEWCOMERS)
def test_code_fits_a_narrow_window(name: str) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / f"docs/{name}.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if not any(one in line for one in LONG)]
    assert [line for line in lines if len(line) > NARROW] == []


def test_the_reference_of_python_names_what_is_there() -> None:
    names = re.findall(r"^::: (\S+)", (ROOT / "docs/python-api.md").read_text(), re.MULTILINE)
    assert len(names) > 30
    for name in names:
        assert pkgutil.resolve_name(name).__doc__, name
