"""Shell commands of the user: plain text, pieces as they come, never an error because of what they do."""

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.tools.base import ToolError
from spindle.tools.user_bash import BashOutput, Sanitizer, run_user_bash
from spindle.workspace.settings import ToolSettings

from . import helpers
from .helpers import run, until, wire


def user_bash(command: str, cwd: Path) -> tuple[BashOutput, list[str]]:
    deltas: list[str] = []

    async def body() -> BashOutput:
        return await run_user_bash(command, str(cwd), ToolSettings(far=helpers.far), deltas.append)

    return run(body), deltas


def counts(output: str) -> dict[str, int]:
    """Return the counts of a short output; a zero is left out."""
    lines, size = output.count("\n"), len(output)
    found = {"totalLines": lines, "totalBytes": size, "outputLines": lines, "outputBytes": size}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("echo out; echo err >&2; exit 7", "out\nerr\n", 7),
        ("true", "", 0),
        ("", "", 0),
        ("cat", "", 0),
        (r"printf 'a\r\nb\x1b[31mred\x1b[0m\x00z\n'", "a\nbredz\n", 0),
        ("kill -9 $$", "", 137),
    ],
)
def test_results(command: str, output: str, code: int, tmp_path: Path) -> None:
    result, deltas = user_bash(command, tmp_path)
    ended = {"exitCode": code, "cancelled": False, "truncated": False}
    assert wire(result) == {"output": output, **ended, **counts(output)}
    assert "".join(deltas) == output


def test_pieces_come_while_it_runs_and_sequences_cut_in_two_are_removed(tmp_path: Path) -> None:
    async def body() -> list[str]:
        deltas: list[str] = []
        command = r"printf 'one\n\x1b'; until [ -e go ]; do sleep 0.01; done; printf '[1mtwo\n'"
        task = asyncio.ensure_future(
            run_user_bash(command, str(tmp_path), ToolSettings(far=helpers.far), deltas.append)
        )
        await until(lambda: bool(deltas))
        (tmp_path / "go").touch()
        assert (await task).output == "one\ntwo\n"
        return deltas

    assert run(body) == ["one\n", "two\n"]


@pytest.mark.parametrize(
    ("command", "begin", "size"),
    [("seq 1 2500", "501\n", 11393), ("head -c 70000 /dev/zero | tr '\\0' x", "x" * 51200, 70000)],
)
def test_long_output_keeps_its_end_and_all_of_it_in_a_file(command: str, begin: str, size: int, tmp_path: Path) -> None:
    result, deltas = user_bash(command, tmp_path)
    assert result.truncated
    assert result.output.startswith(begin)
    assert result.full_output_path is not None
    assert Path(result.full_output_path).read_text() == "".join(deltas)
    assert len("".join(deltas)) == size


def test_cancelling_gives_what_came_so_far(tmp_path: Path) -> None:
    async def body() -> BashOutput:
        deltas: list[str] = []
        task = asyncio.ensure_future(
            run_user_bash("echo begin; sleep 60; echo end", str(tmp_path), ToolSettings(far=helpers.far), deltas.append)
        )
        await until(lambda: bool(deltas))
        task.cancel()
        return await task

    cancelled = {"cancelled": True, "truncated": False}
    assert wire(run(body)) == {"output": "begin\n", **cancelled, **counts("begin\n")}


def test_only_a_shell_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Working directory does not exist"):
        user_bash("true", tmp_path / "gone")


# -- cleaning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdata\x1b\\x", "x"),
        ("\x1b(Bx\x1b=y\x1bcz", "xyz"),
        ("\x9b31mx", "x"),
        ("tab\tnl\ncr\rnul\0bell\x07", "tab\tnl\ncrnulbell"),
        ("a\ufff9b\ufffac\ufffbd\ufffd", "abcd\ufffd"),
        ("\x1b[31", "[31"),
        ("50% \x1b[", "50% ["),
    ],
)
def test_cleaning(text: str, clean: str) -> None:
    sanitizer = Sanitizer()
    assert sanitizer.feed(text) + sanitizer.flush() == clean


@given(
    st.lists(st.sampled_from(["\x1b", "[", "]", "0", ";", "m", "\x07", "\\", "P", "a", "\n", "\r", "\x9b", "("])),
    st.data(),
)
def test_cleaning_does_not_depend_on_where_the_stream_is_cut(characters: list[str], data: st.DataObject) -> None:
    text = "".join(characters)
    whole = Sanitizer()
    expected = whole.feed(text) + whole.flush()
    pieces = Sanitizer()
    out, rest = "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += pieces.feed(rest[:size])
        rest = rest[size:]
    out += pieces.flush()
    assert out == expected
    assert not re.search("[\x00-\x08\x0b-\x1f]", out)


def test_an_escape_that_never_ends_is_let_go() -> None:
    sanitizer = Sanitizer()
    out = "".join(sanitizer.feed("\x1b]" + "x" * 3000) for _ in range(10))
    assert len(out + sanitizer.flush()) > 20_000
