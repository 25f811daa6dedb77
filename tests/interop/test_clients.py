"""Other people's clients drive us as they drive pi. Nothing in them is changed.

They run when they are installed: `SPINDLE_TEST_CLIENTS` names a Python interpreter with the PyPI clients,
`SPINDLE_TEST_PI` the directory of the npm package `@earendil-works/pi-coding-agent` (0.74.2). `.ci/run` sets both.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply

CLIENTS = Path(__file__).parent / "clients"
PYTHON = os.environ.get("SPINDLE_TEST_CLIENTS")
PI = os.environ.get("SPINDLE_TEST_PI")
needs_clients = pytest.mark.skipif(not PYTHON, reason="SPINDLE_TEST_CLIENTS is not set")
needs_pi = pytest.mark.skipif(
    not PI or not shutil.which("node"), reason="SPINDLE_TEST_PI is not set or node is missing"
)


@pytest.fixture
def world(tmp_path):
    """An agent directory with a scripted model, a working directory, and a program called `pi` that is us."""
    steps = [
        reply("Let me look. ", call("bash", {"command": "echo tool output"})),
        reply("first ", "answer"),
        reply("second"),
    ]
    with MockModel([*steps, reply("more")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        (tmp_path / "work").mkdir()
        program = tmp_path / "pi"
        program.write_text(f"#!{sys.executable}\nfrom spindle.cli import main\nraise SystemExit(main())\n")
        program.chmod(0o755)
        shim = tmp_path / "shim.mjs"
        shim.write_text(
            'import { spawn } from "node:child_process";\n'
            f"const child = spawn({json.dumps(str(program))}, process.argv.slice(2), {{ stdio: 'inherit' }});\n"
            'child.on("exit", (code) => process.exit(code ?? 1));\n'
            'process.on("SIGTERM", () => child.kill());\n'
        )
        env = agent_environment(tmp_path / "agent", PI=str(program), SHIM=str(shim), WORK=str(tmp_path / "work"))
        yield env


def drive(command: list[str], env: dict[str, str]) -> dict:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_clients
def test_pi_agent_python_sdk(world):
    seen = drive([str(PYTHON), str(CLIENTS / "pi_agent_sdk.py")], world)
    assert seen["first"].endswith("first answer") and seen["second"] == "second"
    assert seen["version"] == "0.87.1" and seen["bash"] == "from bash\n" and seen["fork"] == "again"
    assert seen["models"] == 2 and "high" in seen["levels"] and seen["entries"] and seen["tree"]
    assert seen["cleared"] == []


@needs_clients
def test_pi_py_sdk(world):
    seen = drive([str(PYTHON), str(CLIENTS / "pi_py.py")], world)
    assert seen["deltas"] == "Let me look. first answer" and seen["last"] == "second"
    assert seen["messages"] == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    assert "tool output\n" in seen["texts"] and seen["bash"] == "from bash\n" and seen["stats"] == 3


@needs_clients
def test_picable(world):
    seen = drive([str(PYTHON), str(CLIENTS / "picable_client.py")], world)
    assert seen["last"] == "second" and seen["fork"] == "again" and seen["bash"] == "from bash\n"
    assert "agent_settled" not in seen["kinds"] and "tool_execution_end" in seen["kinds"]


@needs_pi
def test_pis_own_client(world):
    seen = drive(["node", str(CLIENTS / "pi_rpc_client.mjs")], {**world, "PI_PACKAGE": str(PI)})
    assert seen["last"] == "second" and seen["fork"] == "again" and seen["cycled"] == "m2" and seen["cloned"] is False
    assert seen["messages"] == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    assert {"agent_start", "tool_execution_end", "agent_end"} <= set(seen["events"])
