"""The program that is sent to the far side: old Python, standard library, one text."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spindle
from spindle.workspace import pipe

_PACKAGE = Path(spindle.__file__).parent
_MODULES = {f"spindle.{name}": _PACKAGE / f"{name.replace('.', '/')}.py" for name in pipe._MODULES}
_LATER = (
    "removeprefix",
    "removesuffix",
    "is_relative_to",
    "batched",
    "pairwise",
    "readlink_to",
    "waitstatus_to_exitcode",
)
"""Methods and functions that Python 3.8 does not have, and that we like to use."""


@pytest.mark.parametrize("name", _MODULES)
def test_modules_are_old_python_of_the_standard_library(name: str) -> None:
    tree = ast.parse(_MODULES[name].read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(one.name in sys.stdlib_module_names for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{one.name}" for one in node.names] if node.module == "spindle.workspace" else []
            assert node.module in sys.stdlib_module_names | _MODULES.keys() or all(one in _MODULES for one in inner)
        elif isinstance(node, ast.Attribute):
            assert node.attr not in _LATER
        elif isinstance(node, (ast.Match, getattr(ast, "TypeAlias", ast.Match))):
            raise AssertionError("this is newer than Python 3.8")


def test_the_program_is_one_text_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    """It begins in an empty directory, without our packages, and says what it finds."""
    command = [sys.executable, "-I", "-S", "-c", pipe._source().decode()]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as program:
        assert program.stdout is not None
        first: bytes = program.stdout.read1()  # type: ignore[attr-defined] # at the end of its input it leaves at once
        rest, errors = program.communicate(timeout=60)
    assert str(tmp_path).encode() in first and (rest, errors, program.returncode) == (b"", b"", 0)
    assert list(tmp_path.iterdir()) == []
