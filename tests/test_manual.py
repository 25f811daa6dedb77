"""The manual says what the code does: tables are current, names exist, links lead somewhere, the agent finds it."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from benchmarks.plot import plot
from scripts.marks import put

from spindle.agent.run.result import EXIT_CODES
from spindle.apps.cli.args import IGNORED, OPTIONS
from spindle.apps.cli.subcommands import COMMANDS
from spindle.base.settings import Settings
from spindle.models.catalog import builtin_providers
from spindle.resources.prompt import PromptParts, manual, prompt_sections
from spindle.tools.base import builtin_tools

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("name", ["manual.py", "python_client.py", "typescript.py"])
def test_what_is_made_of_the_code_is_current(name):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / name, "--check"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_figures_have_a_place_to_be_written_to():
    text = page("benchmarks.md")
    for name in ("beside", "survived"):  # `make bench`, `make soak`
        text = put(text, name, f"new {name}")
    assert "new beside" in text and "new survived" in text and "BROKEN" not in text.partition("Two attacks")[0]


def test_the_picture_of_the_figures_is_that_of_the_table():
    picture = (DOCS / "pictures" / "benchmarks.svg").read_text()
    assert picture == plot(page("benchmarks.md")) and picture.count("×</text>") > 12


def keys(group: type[msgspec.Struct], prefix: str = "") -> "list[str]":
    found = []
    for item in msgspec.structs.fields(group):
        nested = isinstance(item.type, type) and issubclass(item.type, msgspec.Struct)
        name = prefix + item.encode_name
        found += keys(item.type, f"{name}.") if nested else [name]
    return found


def test_every_setting_is_there_with_a_meaning():
    rows = dict(
        re.findall(
            r"^\| `([\w.]+)` \|.*\| ([^|]+) \|$",
            page("settings.md").partition("## Environment variables")[0],
            re.MULTILINE,
        )
    )
    assert set(keys(Settings)) == set(rows)
    assert all(len(meaning) > 5 for meaning in rows.values())


def test_every_option_command_and_exit_code_is_there():
    text = page("cli.md")
    for option in (*OPTIONS, *IGNORED):
        assert all(f"`{name}`" in text for name in option.names.split())
    assert all(f"`spindle {name}" in text for name in COMMANDS)
    codes = set(re.findall(r"^\| (\d+) \| ", text, re.MULTILINE))
    assert codes == {str(code) for code in EXIT_CODES.values()} | {"2"}


def variables() -> set[str]:
    """Return the names that the code reads from, or puts into, an environment."""
    ours = re.compile(r"(SPINDLE|PI|AWS|AZURE|GOOGLE|GCLOUD|OLLAMA|COPILOT|CLOUDFLARE|AI|GH|GITHUB)(_[A-Z0-9]+)+")
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text()
        if "environ" not in text and not ours.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and ours.fullmatch(value):
                found.add(value)
            if "environ" in text and isinstance(node, ast.Call | ast.Subscript):
                named = [node.slice] if isinstance(node, ast.Subscript) else node.args[:1]
                target = node.value if isinstance(node, ast.Subscript) else node.func
                if "environ" in ast.unparse(target):
                    names = {item.value for item in named if isinstance(item, ast.Constant)}
                    found |= {name for name in names if re.fullmatch("[A-Z_]+", name)}
    return found


def test_every_variable_is_there():
    text, names = page("settings.md").partition("## Environment variables")[2], variables()
    assert {"SPINDLE_DIR", "PI_MODEL", "SPINDLE_REMOTE_TOKEN", "PATH", "AWS_REGION"} <= names
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_every_key_of_a_provider_is_in_the_table_of_providers():
    text = page("providers.md")
    assert [name for info in builtin_providers().values() for name in info.env if f"`{name}`" not in text] == []


def test_the_index_names_every_page():
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", page("README.md")))
    there = {file.name for file in DOCS.glob("*.md")} - {"README.md"}
    assert there == named
    site = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert set(re.findall(r"- ([\w-]+\.md)$", site, re.MULTILINE)) == there | {"README.md"}


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("file", sorted(DOCS.glob("*.md")), ids=lambda file: file.name)
def test_links_lead_somewhere(file):
    text = re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", text):
        other = DOCS / target if target else file
        assert other.exists(), target
        assert not anchor or anchor in anchors(other.read_text()), f"{target}#{anchor}"


def test_the_readme_promises_what_the_manual_explains():
    explained = re.findall(r"^### (.+)$", page("security.md").partition("## What Spindle promises")[2], re.MULTILINE)
    text = (ROOT / "README.md").read_text().partition("## Ten promises")[2].partition("\n## ")[0]
    promised = re.findall(r"^\d+\. (.+)$", text, re.MULTILINE)
    assert len(explained) == len(promised) == 10
    assert [one for one in explained if not any(sentence.startswith(one) for sentence in promised)] == []


def test_every_picture_is_used_and_small():
    pages = [ROOT / "README.md", *DOCS.glob("*.md")]
    shown = {Path(name).name for file in pages for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", file.read_text())}
    there = {file.name for file in (DOCS / "pictures").iterdir()}
    assert shown == there
    assert [file.name for file in (DOCS / "pictures").iterdir() if file.stat().st_size > 200_000] == []


def test_the_agent_is_told_where_the_manual_is():
    tools = builtin_tools()
    told = prompt_sections([tools["read"]], "/w", PromptParts())["docs"]
    assert str(DOCS) in told and manual() == DOCS
    assert "docs" not in prompt_sections([tools["ls"]], "/w", PromptParts())
    assert "docs" not in prompt_sections([tools["read"]], "/w", PromptParts(custom="Mine."))


def test_the_wheel_carries_it(tmp_path: Path):
    pytest.importorskip("hatchling")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    look = "from spindle.resources.prompt import manual; print(manual())"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    folder = Path(done.stdout.strip())
    assert folder == tmp_path / "installed" / "spindle" / "docs", done.stderr
    assert {file.name for file in folder.glob("*.md")} == {file.name for file in DOCS.glob("*.md")}
