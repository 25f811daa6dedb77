"""The examples run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply

from .test_client import FAKE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "client"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("stream.py", "Hello\n"),
        ("one_question.py", "Hello\n"),
        ("host_tool.py", "MiB are free\n"),
        ("dialogs.py", 'the agent says: May I?\n{"confirmed": true}\n'),
    ],
)
def test_client_examples(name: str, shown: str) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *FAKE], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(shown)


def test_the_editor_example_on_the_real_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        """[
        {"calls": [{"name": "read_buffer", "arguments": {"name": "notes.md"}}]},
        {"calls": [{"name": "replace_in_buffer", "arguments": {"name": "greet.py", "old": "Helo", "new": "Hello"}}]},
        "Fixed."]"""
    )
    agent = [sys.executable, "-m", "spindle", "--mode", "rpc", "--no-session", "--model", f"scripted/{script}"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "editor_buffers.py"), *agent],
        capture_output=True,
        text=True,
        timeout=50,
        env=agent_environment(tmp_path / "agent"),
    )
    assert "[replace_in_buffer]" in done.stdout and 'print("Hello, " + name)' in done.stdout, done.stderr


def test_the_client_of_the_readme_lends_its_tool(tmp_path: Path) -> None:
    (code,) = [text for text in (ROOT / "README.md").read_text().split("```python\n") if "RpcClient(" in text]
    (tmp_path / "readme.py").write_text(code.partition("```")[0])
    command = tmp_path / "spindle"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m spindle "$@" --model mock/m1\n')
    command.chmod(0o755)
    with MockModel([reply(call("open_files", {})), reply("Two ", "files.")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        env = agent_environment(tmp_path / "agent")
        env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
        program = [sys.executable, str(tmp_path / "readme.py")]
        done = subprocess.run(program, capture_output=True, text=True, timeout=50, env=env, cwd=tmp_path)
        assert (done.stdout, done.returncode) == ("Two files.", 0), done.stderr
        assert mock.requests[1].body["messages"][-1]["content"] == "main.py (modified)\nREADME.md"
