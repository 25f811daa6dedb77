"""The set of tools as a whole: what the model is told, and that it costs nothing until it is used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.shapes.builtin_tools import BUILTIN_TOOLS, default_tools
from spindle.tools.base import builtin_tools

PARAMETERS = {
    "read": (["path", "offset", "limit"], ["path"]),
    "bash": (["command", "timeout"], ["command"]),
    "edit": (["path", "edits"], ["path", "edits"]),
    "write": (["path", "content"], ["path", "content"]),
    "grep": (["pattern", "path", "glob", "ignoreCase", "literal", "context", "limit"], ["pattern"]),
    "find": (["pattern", "path", "limit"], ["pattern"]),
    "ls": (["path", "limit"], []),
}


def test_names_order_and_parameters() -> None:
    tools = builtin_tools()
    assert list(tools) == list(PARAMETERS) == list(BUILTIN_TOOLS)
    assert default_tools("rpc") == default_tools("sdk") == ("read", "bash", "edit", "write")
    assert default_tools("chat") == ("read", "bash", "edit", "write", "bash_output", "bash_kill", "task")
    for name, tool in tools.items():
        properties, required = PARAMETERS[name]
        assert (list(tool.parameters["properties"]), tool.parameters.get("required", [])) == (properties, required)
        assert tool.snippet
    assert [name for name, tool in tools.items() if not tool.interruptible] == ["edit", "write"]
    assert not any(tool.sequential for tool in tools.values())


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("read", ["jpg", "png", "gif", "webp", "bmp", "2000", "50KB", "offset"]),
        ("bash", ["working directory", "stdout", "stderr", "2000", "50KB", "file"]),
        ("edit", ["exact", "once", "overlap", "merge", "several", "short"]),
        ("write", ["folders", "replace"]),
        ("grep", [".gitignore", "hidden", "100", "50KB", "500"]),
        ("find", [".gitignore", "hidden", "1000", "50KB"]),
        ("ls", ["slash", "hidden", "500", "50KB"]),
    ],
)
def test_descriptions_state_the_facts_briefly(name: str, facts: list[str]) -> None:
    description = builtin_tools()[name].description
    assert [fact for fact in facts if fact not in description] == []
    assert len(description) < 400


def test_the_tools_load_nothing_heavy() -> None:
    heavy = ["difflib", "PIL", "tempfile", "shutil", "unicodedata", "urllib.parse", "spindle.base.globs"]
    code = (
        "import asyncio, sys; from spindle.tools.base import builtin_tools; builtin_tools(); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_ripgrep_grep_and_find_are_not_offered_but_their_names_stay_taken(tmp_path: Path) -> None:
    def spindle(*args: str, said: str = "") -> str:
        # As if Python were where its wheels' programs are not.
        code = (
            "import sys; sys.executable = '/nowhere/python'; "
            f"sys.argv[1:] = {args}; from spindle.apps.cli import main; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={"PATH": "/nowhere", "HOME": str(tmp_path), "PI_CODING_AGENT_DIR": str(tmp_path)},
            input=said,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert "rg: not found (the tools grep and find are not offered without it: " in spindle("doctor")
    lent = {"name": "grep", "description": "mine", "parameters": {"type": "object"}}
    asked = [{"id": "1", "type": "get_state"}, {"id": "2", "type": "set_host_tools", "tools": [lent]}]
    told = spindle(
        "--mode", "rpc", "--tools", "read,grep,find", said="".join(f"{json.dumps(line)}\n" for line in asked)
    )
    answers = {frame["id"]: frame for line in told.splitlines() if "id" in (frame := json.loads(line))}
    assert [tool["name"] for tool in answers["1"]["data"]["dumpTools"]] == ["read"]
    assert answers["2"]["error"] == 'RPC host tool "grep" conflicts with an existing tool'
