"""Types that four programs for TypeScript make of `spindle schema` and `/openapi.json` compile and narrow.

Needs the folder `node_modules` with them in SPINDLE_TEST_GENERATORS; `.ci/run` installs them.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from spindle.protocol.schema import json_schema
from spindle.wires.http.openapi import openapi

GENERATORS = os.environ.get("SPINDLE_TEST_GENERATORS", "")
USE = """
export function show(event: Event): string {
  if (event.type === 'tool_execution_start') return event.toolName;
  if (event.type === 'agent_end') {
    const message = event.messages[0];
    if (message && message.role === 'assistant') return message.model;
  }
  // @ts-expect-error no event has this type
  if (event.type === 'no_such_event') return '';
  return event.type;
}
"""
"""What a program does with events: the type narrows them, and messages are no `unknown`."""
MADE = {
    "openapi-typescript": (
        ["openapi-typescript", "openapi.json", "-o", "{}/made.ts"],
        "import type { components } from './made';\ntype Event = components['schemas']['Event'];",
    ),
    "hey-api": (["openapi-ts", "-i", "openapi.json", "-o", "{}/made"], "import type { Event } from './made';"),
    "json-schema-to-typescript": (
        ["json2ts", "-i", "schema.json", "-o", "{}/made.ts"],
        "import type { SpindleRPC, Event } from './made';\nexport const known = (event: Event): SpindleRPC => event;",
    ),
    "quicktype": (
        [
            "quicktype",
            "--src-lang",
            "schema",
            "schema.json",
            "--lang",
            "ts",
            "--top-level",
            "Frame",
            "-o",
            "{}/made.ts",
        ],
        "import { Convert } from './made';\nexport const read = (line: string): string => Convert.toFrame(line).type;",
    ),
}

pytestmark = pytest.mark.skipif(not GENERATORS, reason="SPINDLE_TEST_GENERATORS names no node_modules")


@pytest.mark.timeout(300)
def test_the_types_compile_and_narrow(tmp_path: Path) -> None:
    for file, document in (("schema", json_schema()), ("openapi", openapi())):
        (tmp_path / f"{file}.json").write_text(json.dumps(document))
    for name, (words, head) in MADE.items():
        (tmp_path / name).mkdir()
        run([word.format(name) for word in words], tmp_path)
        (tmp_path / name / "use.ts").write_text(head + (USE if name != "quicktype" else ""))
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--lib", "es2022,dom,dom.iterable"]
    run(["tsc", *options, "--moduleResolution", "bundler", *(f"{name}/use.ts" for name in MADE)], tmp_path)


def run(words: list[str], folder: Path) -> None:
    command = [f"{GENERATORS}/.bin/{words[0]}", *words[1:]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
