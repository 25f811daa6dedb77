"""The examples of docs/http.md, run by a shell, one after the other."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.mock_model import reply

from .server import TOKEN, ServerProcess

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text()


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("jq"), reason="the examples need curl and jq")
def test_the_examples_run(tmp_path):
    examples = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) > 5
    with ServerProcess([reply("Hello!")], base=tmp_path, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        script = "set -eu -o pipefail\n" + "".join(examples).replace(
            "http://127.0.0.1:3838", f"http://{server.address}"
        )
        ended = subprocess.run(
            ["bash", "-c", script.replace("curl ", "curl --fail-with-body ")],
            env={"PATH": "/usr/bin:/bin", "SPINDLE_REMOTE_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=50,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("Hello!\n") and '"disposition"' in ended.stdout
    assert "event: ready" in ended.stdout and '"first steps"' in ended.stdout and "\thello\tidle\t0" in ended.stdout
