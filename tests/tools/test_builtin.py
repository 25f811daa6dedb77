"""The set of tools as a whole: what the model is told, and that it costs nothing until it is used."""

import subprocess
import sys

import pytest

from spindle.tools.base import BUILTIN_TOOLS, DEFAULT_TOOLS, builtin_tools

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
    assert DEFAULT_TOOLS == ("read", "bash", "edit", "write")
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
        ("bash", ["working directory", "stdout", "stderr", "2000", "50KB", "file", "timeout"]),
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
    heavy = ["difflib", "PIL", "tempfile", "shutil", "unicodedata", "urllib.parse", "spindle.globs"]
    code = (
        "import asyncio, sys; from spindle.tools.base import builtin_tools; builtin_tools(); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
