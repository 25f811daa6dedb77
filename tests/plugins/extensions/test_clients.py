"""Clients answer the permission gate: ours, and those of others if `SPINDLE_TEST_CLIENTS` names a Python with them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.client import RpcClient
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply

from .helpers import EXAMPLES, run

CLIENTS = Path(__file__).parent / "clients"
PYTHON = os.environ.get("SPINDLE_TEST_CLIENTS")
GATE = str(EXAMPLES / "permission_gate.py")
QUESTION = ["confirm", "Dangerous command", "rm -rf precious"]


@pytest.fixture
def world(tmp_path):
    """A scripted model that wants to delete something, twice."""
    steps = [reply(call("bash", {"command": "rm -rf precious"}), finish="toolUse"), reply("well")] * 2
    with MockModel(steps) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        (tmp_path / "work" / "precious").mkdir(parents=True)
        program = tmp_path / "pi"
        program.write_text(f"#!{sys.executable}\nfrom spindle.apps.cli import main\nraise SystemExit(main())\n")
        program.chmod(0o755)
        yield agent_environment(tmp_path / "agent", PI=str(program), WORK=str(tmp_path / "work"), EXTENSION=GATE)


def test_our_own_client(world):
    asked = []

    def decide(request):
        if request["method"] != "confirm":
            return None
        asked.append([request["method"], request["title"], request["message"]])
        return len(asked) == 2

    async def check():
        command = [sys.executable, "-m", "spindle", "--mode", "rpc", "--model", "mock/m1", "-e", GATE]
        precious = Path(world["WORK"]) / "precious"
        async with RpcClient(command, cwd=world["WORK"], env=world, on_ui_request=decide) as agent:
            await agent.prompt_and_wait("refuse this")
            assert precious.exists()
            await agent.prompt_and_wait("allow this")
            assert not precious.exists()

    run(check())
    assert asked == [QUESTION, QUESTION]


@pytest.mark.timeout(180)
@pytest.mark.skipif(not PYTHON, reason="SPINDLE_TEST_CLIENTS is not set")
@pytest.mark.parametrize("script", ["pi_py.py", "picable_client.py"])
def test_clients_of_others(world, script):
    done = subprocess.run([str(PYTHON), str(CLIENTS / script)], env=world, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"asked": [QUESTION, QUESTION], "refused": True, "allowed": True}
