"""docs/remote.md: its programs run, its tables are complete."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.wires.agent_cli.protocol import CONTROLS, INPUTS
from spindle.wires.network.options import CHANGEABLE, RemoteOptions
from tests.support.mock_model import call, reply

from .server import ServerProcess
from .test_seed_examples import NODE_MODULES

PAGE = (Path(__file__).parents[3] / "docs" / "remote.md").read_text()


def programs(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def shown(server: ServerProcess, *command: str, program: str) -> str:
    done = subprocess.run(
        [*command, program.replace("127.0.0.1:3838", server.address)],
        env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_limits_are_listed_with_their_defaults() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (\d+|true|false) \|", PAGE, re.MULTILINE))
    assert listed == {name: str(getattr(RemoteOptions(), name)).lower() for name in CHANGEABLE}


def test_all_inputs_are_listed() -> None:
    table = PAGE[PAGE.index("| input |") :]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {*CONTROLS, *INPUTS}


def test_the_first_program() -> None:
    steps = [reply("Two files."), reply(call("bash", {"command": "true"})), reply("For you.")]
    with ServerProcess(steps) as server:
        text = shown(server, sys.executable, "-c", program=programs("python")[0])
    assert "Two files. TokenUsage(prompt_tokens=10" in text and "[bash {'command': 'true'}]" in text
    assert "For you.\n TokenUsage(" in text


def test_the_program_that_answers_questions() -> None:
    with ServerProcess([reply(call("bash", {"command": "touch made"}))]) as server:
        text = shown(server, sys.executable, "-c", program=programs("python")[1])
        assert text.count("Tool 'bash' execution was not approved by user") == 2
        assert not (server.cwd / "made").exists()


def test_the_program_for_rpc() -> None:
    with ServerProcess([reply("Hel", "lo")]) as server:
        text = shown(server, sys.executable, "-c", program=programs("python")[2])
    assert text.startswith("session ") and text.endswith("Hello")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.skipif(
    NODE_MODULES is None or not Path(NODE_MODULES, "ws").is_dir(),
    reason="SPINDLE_TEST_NODE_MODULES does not name a node_modules directory with the package ws",
)
def test_the_program_in_javascript() -> None:
    with ServerProcess([reply("Once ", "upon")]) as server:
        text = shown(server, "node", "-e", program=programs("javascript")[0])
    assert text.startswith("Once upon") and "interrupted: false" in text
