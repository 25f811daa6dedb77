"""What the README tells a newcomer to type does what it says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Place

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """Return the first shell block below a heading."""
    found = re.search(rf"^## {title}\n.*?^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def newcomer(place: Place) -> Place:
    """Somebody in a project with a model that answers."""
    place.env["PATH"] = f"{Path(sys.executable).parent}:{place.env['PATH']}"
    model = place.script("one", "two")
    place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": model.removeprefix("scripted/")})
    place.write("project/notes.md", "# Notes\n")
    (place.project / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "hello.json", place.project / "examples")
    return place


def shell(place: Place, script: str) -> subprocess.CompletedProcess[str]:
    return place.program("sh", "-ec", script)


def test_the_command_line(newcomer: Place) -> None:
    done = shell(newcomer, "set -x\n" + section("From the command line"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("one\n")
    assert "agent_settled" in done.stdout
    assert "<html" in (newcomer.project / "talk.html").read_text(encoding="utf-8").lower()


def test_rpc(newcomer: Place) -> None:
    done = shell(newcomer, section("As a child process"))
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.search(r'^```\n({"type":"ready".*?\n)…\n', README, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert done.stdout.startswith(shown[1])
    assert '"agent_settled"' in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("program", [text for text in PROGRAMS if "asyncio.run" in text])
def test_programs(newcomer: Place, program: str) -> None:
    newcomer.write("project/program.py", program)
    done = shell(newcomer, f"{sys.executable} program.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_extension(newcomer: Place) -> None:
    (extension,) = [text for text in PROGRAMS if "def extension" in text]
    newcomer.write("project/gate.py", extension)
    call = {"name": "bash", "arguments": {"command": "rm -rf nothing || true"}}
    done = newcomer.run(
        "--mode", "json", "-e", "gate.py", "--model", newcomer.script({"calls": [call]}, "ok"), "--no-session", "go"
    )
    assert done.returncode == 0, done.stderr
    assert "The user refused this command." in done.stdout
