"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment

from .test_client import FAKE

EXAMPLES = Path(__file__).parents[2] / "examples" / "client"


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
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *FAKE], capture_output=True, text=True, timeout=30)
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
        timeout=30,
        env=agent_environment(tmp_path / "agent"),
    )
    assert "[replace_in_buffer]" in done.stdout and 'print("Hello, " + name)' in done.stdout, done.stderr
