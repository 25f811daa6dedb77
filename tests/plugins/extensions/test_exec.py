"""`agent.exec`: what extensions get to know of the programs they run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spindle.plugins.extensions.api import ExecResult, execute


def run(*argv: Any, **options: Any) -> ExecResult:
    return asyncio.run(execute(argv, **{"cwd": Path("/"), **options}))


def test_output_errors_and_exit_code(tmp_path: Path) -> None:
    assert run("sh", "-c", "pwd; echo err >&2; exit 3", cwd=tmp_path) == ExecResult(f"{tmp_path}\n", "err\n", 3, False)
    assert run("sh", "-c", "kill -9 $$").code == -9
    assert run("printf", r"\377") == ExecResult("\ufffd", "", 0, False)


@pytest.mark.parametrize("input", ["größe", "größe".encode()])
def test_input_as_text_or_bytes(input: str | bytes) -> None:
    assert run("cat", input=input).stdout == "größe"


def test_without_input_there_is_nothing_to_read() -> None:
    assert run("cat") == ExecResult("", "", 0, False)


def test_the_end_of_its_time() -> None:
    assert run("sh", "-c", "echo up; exec sleep 60", timeout=1) == ExecResult("up\n", "", -15, True)


@pytest.mark.parametrize(
    ("argv", "options", "told"),
    [
        ([], {}, "No program: "),
        (["/no/such"], {}, "/no/such: "),
        (["true"], {"cwd": Path("/no/such")}, "true: "),
        (["true", "a\0b"], {}, "true: "),
        (["true", 5], {}, "true: "),
    ],
)
def test_what_cannot_be_started(argv: list[Any], options: dict[str, Any], told: str) -> None:
    done = run(*argv, **options)
    assert (done.stdout, done.code, done.killed) == ("", 127, False)
    assert done.stderr.startswith(told)
