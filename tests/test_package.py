"""What the package says of itself: its name, its extras, and hints that name it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
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
    for field in ("Name: spindle-agent", "Author: ", "Keywords: ", "License-Expression: MIT", "Classifier: "):
        assert f"\n{field}" in head
    assert head.count("Project-URL: ") >= 4
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


VERSIONED = (
    "scripts/dist",
    "src/spindle/base/version.py",
    "CHANGELOG.md",
    "packaging/acp-registry/spindle/agent.json",
    "clients/typescript/package.json",
)
CHECK = "import runpy; runpy.run_path('scripts/dist')['check_version']()"


def checked(place: Path) -> str:
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=place, capture_output=True, text=True, timeout=60)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


def test_everything_names_the_same_version() -> None:
    assert checked(ROOT) == ""


@pytest.mark.parametrize("name", [*VERSIONED[2:], "a tag"])
def test_no_wheel_is_built_of_two_versions(name: str, tmp_path: Path) -> None:
    version = re.findall(r'= "(.+)"', (ROOT / "src/spindle/base/version.py").read_text())[0]
    for each in VERSIONED:
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / each).read_text()
        (tmp_path / each).write_text(text.replace(version, "9.9") if each == name else text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    tag = "v9.9" if name == "a tag" else f"v{version}"
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        subprocess.run([*git, *words], check=True)
    said = checked(tmp_path)
    assert f"base/version.py says {version}" in said and "9.9" in said and "must agree" in said


def test_the_entry_for_the_registry_of_editors_is_complete() -> None:
    """The rules of the registry: these fields, this form of the id, an icon in one colour."""
    place = ROOT / "packaging/acp-registry/spindle"
    agent = msgspec.json.decode((place / "agent.json").read_bytes())
    assert {"id", "name", "version", "description", "repository", "authors", "license", "distribution"} == agent.keys()
    assert agent["id"] == place.name and re.fullmatch(r"[a-z][a-z0-9-]*", agent["id"])
    assert agent["distribution"]["uvx"]["package"].partition("==")[0] in PROJECT["scripts"], (
        "uvx runs what is called so"
    )
    icon = (place / "icon.svg").read_text()
    assert 'width="16" height="16" viewBox="0 0 16 16"' in icon
    assert set(re.findall(r'(?:fill|stroke)="([^"]+)"', icon)) <= {"currentColor", "none"}
