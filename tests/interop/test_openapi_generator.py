"""Clients that openapi-generator makes from `/openapi.json`, in four languages, compile.

Needs java and the command in SPINDLE_TEST_OPENAPI_GENERATOR (`pip install openapi-generator-cli`). The client in Go is
looked at where there is go, the one in TypeScript where there is tsc.
"""

import compileall
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spindle.wires.http.openapi import openapi

GENERATOR = os.environ.get("SPINDLE_TEST_OPENAPI_GENERATOR", "")
TSC = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nowhere")) / ".bin/tsc"
VALIDATOR = "package validator\n\nfunc Validate(v interface{}) error { return nil }\n"
"""In place of the one package that the Go client needs, which no registry of ours has."""
HARMLESS = ("OpenAPI 3.1 support is still in beta", "Default to typing.Any")

pytestmark = [
    pytest.mark.skipif(not GENERATOR, reason="SPINDLE_TEST_OPENAPI_GENERATOR names no openapi-generator-cli"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java"),
]


@pytest.fixture(params=["python", "typescript-fetch", "go", "java"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "openapi.json").write_text(json.dumps(openapi()))
    command = [GENERATOR, "generate", "-i", "openapi.json", "-g", request.param, "-o", request.param]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    warnings = [line for line in done.stdout.splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    allowed = [*HARMLESS, "schema name: null"] if request.param == "python" else HARMLESS
    assert [line for line in warnings if not any(text in line for text in allowed)] == []
    return tmp_path / request.param


@pytest.mark.timeout(600)
def test_a_client_is_made_and_compiles(made: Path) -> None:
    match made.name:
        case "python":
            assert compileall.compile_dir(made / "openapi_client", quiet=1)
        case "typescript-fetch" if TSC.exists():
            options = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--lib", "es2022,dom"]
            run([TSC, *options, "--moduleResolution", "bundler", "index.ts"], made)
        case "go" if shutil.which("go"):
            stand_in = made.parent / "validator"
            stand_in.mkdir()
            (stand_in / "go.mod").write_text("module gopkg.in/validator.v2\n")
            (stand_in / "validator.go").write_text(VALIDATOR)
            shutil.rmtree(made / "test")  # they need more packages
            (made / "go.mod").write_text(
                re.sub(r"^go .*$", "go 1.18", (made / "go.mod").read_text(), flags=re.MULTILINE)
            )
            run(["go", "mod", "edit", "-replace", f"gopkg.in/validator.v2={stand_in}"], made)
            run(["go", "vet", "./..."], made)
        case _:
            assert any(made.rglob("*"))


def run(command: list[object], folder: Path) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOCACHE": str(folder.parent / "cache")}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
