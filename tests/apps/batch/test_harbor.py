"""A trial of Harbor, without containers: the real `harbor run` with our agent.

`SPINDLE_TEST_HARBOR` is the Python of an environment that has Harbor in it (`make test-harbor` makes one).
"""

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, call, reply

PYTHON = os.environ.get("SPINDLE_TEST_HARBOR", "")
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not PYTHON, reason="SPINDLE_TEST_HARBOR names no Python with Harbor")
TASK = 'version = "1.0"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\n'
TEST = """#!/bin/bash
cd "$(dirname "$0")/.."
if grep -q hello app/hello.txt; then echo 1; else echo 0; fi > logs/verifier/reward.txt
"""
TALK = """#!/bin/bash
cd "$(dirname "$0")/.."
for try in $(seq 50); do
  said=$(curl --silent http://127.0.0.1:PORT/hello.txt) && break
  sleep 0.1
done
if [ "$said" = hello ]; then echo 1; else echo 0; fi > logs/verifier/reward.txt
kill $(cat app/pid)
"""
WRITE = call("bash", {"command": "echo hello > hello.txt"})


def trial(place: Path, mock: MockModel, *arguments: str, test: str = TEST, there: bool = True) -> dict[str, Any]:
    """Run one task and return the result of the trial. `there`: the environment has Spindle already."""
    task = place / "task"
    for name, text in (
        ("task.toml", TASK),
        ("instruction.md", "Write hello into hello.txt."),
        ("environment/Dockerfile", "FROM scratch\n"),
        ("tests/test.sh", test),
    ):
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    home = place / "home"
    prices = {"input": 100_000, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    write_models(home / ".pi/agent", mock.openai_url, cost=prices)
    (home / ".local/bin").mkdir(parents=True, exist_ok=True)
    spindle = home / ".local/bin/spindle"
    if there:
        spindle.symlink_to(Path(sys.executable).parent / "spindle")
    env = {
        "PATH": f"{home / '.local/bin'}:{os.environ['PATH'] if there else os.defpath}",
        "HOME": str(home),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "SPINDLE_HARBOR_ROOT": str(place / "machine"),
        "HARBOR_TELEMETRY": "0",
        "DO_NOT_TRACK": "1",
    }
    command = [PYTHON, "-m", "harbor.cli.main", "run", "-p", str(task), "-o", str(place / "jobs"), "-n", "1", "--yes"]
    command += [
        "--agent",
        "spindle.harbor:Spindle",
        "--env",
        "tests.apps.batch.harbor_local:LocalEnvironment",
        "--quiet",
    ]
    done = subprocess.run(
        [*command, *arguments],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = (place / "jobs").glob("*/*/result.json")
    found: dict[str, Any] = json.loads(result.read_text())
    assert found["exception_info"] is None, found["exception_info"]
    return found


@pytest.mark.timeout(120)
def test_a_trial(tmp_path: Path) -> None:
    with MockModel([reply(WRITE, usage=(10, 3, 0)), reply("written", usage=(20, 4, 5))]) as mock:
        result = trial(tmp_path, mock, "-m", "mock/m1", "--ak", "max_turns=5", "--ak", "max_cost=9.5")
        assert result["verifier_result"]["rewards"] == {"reward": 1.0}
        used = result["agent_result"]
        assert (used["n_input_tokens"], used["n_output_tokens"], used["n_cache_tokens"]) == (30, 7, 5)
        assert used["cost_usd"] == pytest.approx(2.5)
        (trajectory,) = (tmp_path / "jobs").glob("*/*/agent/trajectory.json")
        steps = json.loads(trajectory.read_text())["steps"]
        assert [step["source"] for step in steps] == ["user", "agent", "agent"]


@pytest.mark.timeout(240)
def test_a_wheel_of_this_package_is_installed(tmp_path: Path) -> None:
    build = [PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with MockModel([reply(WRITE), reply("written")]) as mock:
        result = trial(tmp_path, mock, "-m", "mock/m1", "--ak", f"package={wheel}", there=False)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["agent_info"]["version"] == version("spindle-agent")
    assert (tmp_path / "home" / ".local/bin/spindle").resolve().is_relative_to(tmp_path), "it is the installed one"


@pytest.mark.timeout(120)
def test_the_verifier_talks_to_a_server_that_the_agent_started(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    serve = call("bash", {"command": f"echo $$ > pid; exec python3 -m http.server {port}", "background": True})
    with MockModel([reply(WRITE), reply(serve), reply("It is up.")]) as mock:
        arguments = ("-m", "mock/m1", "--ak", "max_time=50")
        result = trial(tmp_path, mock, *arguments, test=TALK.replace("PORT", port))
        assert result["verifier_result"]["rewards"] == {"reward": 1.0}


@pytest.mark.timeout(120)
def test_a_limit_is_an_end_that_is_judged(tmp_path: Path) -> None:
    skill = tmp_path / "skills/greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n")
    mcp = tmp_path / "mcp.json"
    mcp.write_text(json.dumps({"mcpServers": {"notes": {"command": "notes-server", "args": ["--all"]}}}))
    with MockModel([reply(WRITE)]) as mock:
        arguments = ("-m", "openai/m1", "--ak", "max_turns=2", "--skill", str(skill), "--mcp-config", str(mcp))
        endpoint = ("--ak", "model_api=openai-completions", "--ae", f"OPENAI_BASE_URL={mock.openai_url}")
        result = trial(tmp_path, mock, *arguments, *endpoint, "--ae", "OPENAI_API_KEY=test-key")
        assert result["verifier_result"]["rewards"] == {"reward": 1.0}
        assert len(mock.requests) == 2, "two model calls, then the limit"
        assert "Left for this work: 1 of 2" in json.dumps(mock.requests[1].body["messages"][-1])
        assert "greeting" in json.dumps(mock.requests[0].body["messages"][0])
        (config,) = (tmp_path / "machine").glob("*/tmp/harbor-pi-agent/mcp.json")
        assert json.loads(config.read_text())["mcpServers"]["notes"]["command"] == "notes-server"
