"""What the README tells a newcomer to type does what it says."""

import json
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


def section(title: str, number: int = 0) -> str:
    """Return a shell block below a heading, the first unless told otherwise."""
    text = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[number]


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
    assert done.returncode == 3, done.stderr  # a call was refused
    assert "The user refused this command." in done.stdout


def test_http(newcomer: Place) -> None:
    lines = section("Over a network", 1)
    process = newcomer.start("--remote", "127.0.0.1:0")
    assert process.stderr is not None
    try:
        address = process.stderr.readline().decode().split("//")[1].strip().rstrip("/")
        opened, asked = lines.replace("\\\n", "").replace("localhost:3838", address).splitlines()
        session = json.loads(shell(newcomer, opened).stdout)["id"]
        assert json.loads(shell(newcomer, asked.replace("/ID/", f"/{session}/")).stdout)["text"] == "one"
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_batches(newcomer: Place) -> None:
    newcomer.write("project/Makefile", "test:\n\t@test -e notes.md\n")
    me = "-c user.name=me -c user.email=me@example.org"
    assert shell(newcomer, f"git init -q && git add . && git {me} commit -qm first").returncode == 0
    done = shell(newcomer, section("In batches"))
    assert done.returncode == 0, done.stderr
    assert "2 tasks: 2 ok" in done.stdout + done.stderr
    assert (newcomer.project / "runs" / "hints" / "patch.diff").exists()
