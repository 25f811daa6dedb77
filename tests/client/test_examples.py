"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

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
