"""What the package says of itself: its name, its extras, and hints that name it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_US = {"all", "dev", "docs", "build"}
APART = {"ray"}
"""Too large to come along unasked."""


def test_every_extra_is_documented() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in EXTRAS if f"| `{name}` |" not in page] == []


def test_all_is_all() -> None:
    (everything,) = EXTRAS["all"]
    named = re.fullmatch(r"spindle-agent\[(.*)\]", everything)
    assert named
    assert set(named[1].split(",")) == {name for name, packages in EXTRAS.items() if packages} - FOR_US - APART


def test_nothing_is_installed_by_name() -> None:
    """The distribution is on no index yet, and `spindle` on the index is another program."""
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    by_name = re.compile(r"(?:install|inject|--from|upgrade)\b[^\n`]*\bspindle-agent\b|install '?\"?spindle\b(?![-_/])")
    assert [(path.name, found[0]) for path in texts for found in by_name.finditer(path.read_text())] == []


def test_extras_that_are_named_exist() -> None:
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for extras in re.findall(r"install '\.\[([^\]]*)\]'", path.read_text()):
            assert EXTRAS.keys() >= set(extras.split(",")), path


def test_the_metadata_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    program = "import sys; from hatchling.build import prepare_metadata_for_build_wheel as p; print(p(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / done.stdout.strip() / "METADATA").read_text()
    head, _, description = text.partition("\n\n")
    assert "Requires-Dist: rich" in head and "Requires-Dist: prompt-toolkit" in head.replace("_", "-")
    assert "Provides-Extra: chat" in head and "extra == 'chat'" not in head
    for field in ("Name: spindle-agent", "Author: ", "Keywords: ", "License-Expression: MIT", "Classifier: "):
        assert f"\n{field}" in head
    assert head.count("Project-URL: ") >= 4
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
