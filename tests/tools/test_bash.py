"""The bash tool: texts, progress, time-outs, abort."""

import asyncio
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spindle.shapes.events import ToolResult
from spindle.workspace.settings import ToolSettings

from .helpers import Run, call, details_of, refusal, run, text_of, until, wire


def bash(cwd: Path, args: Any, **options: Any) -> tuple[ToolResult | str, list[Any]]:
    """Run and return the result or the error text, and all updates as a client sees them."""

    async def body() -> tuple[ToolResult | str, list[Any]]:
        call_ = Run("bash", cwd, args, **options)
        (result,) = await asyncio.gather(call_.task, return_exceptions=True)
        return result if isinstance(result, ToolResult) else str(result), wire(call_.updates)

    return run(body)


UNCUT = {"truncation": None, "fullOutputPath": None}
BEGUN = {"content": [{"type": "text", "text": ""}], "details": UNCUT}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi", "hi\n"),
        ("printf 'no newline'", "no newline"),
        ("true", "(no output)"),
        ("", "(no output)"),
        ("echo out; echo err >&2", "out\nerr\n"),
        (r"printf 'a\r\033[31mred\007'", "a\r\x1b[31mred\x07"),
        (r"printf 'a\377\342\202b\342'", "a\ufffd\ufffdb\ufffd"),
        ("cat", "(no output)"),
    ],
)
def test_output_as_it_was_written(command: str, text: str, tmp_path: Path) -> None:
    result = call("bash", tmp_path, command=command)
    assert text_of(result) == text
    assert result.details == UNCUT


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo out; exit 3", "out\n\n\nCommand exited with code 3"),
        ("exit 2", "(no output)\n\nCommand exited with code 2 (usually wrong arguments)"),
        ("exit 200", "(no output)\n\nCommand exited with code 200"),
        ("exit 127", "(no output)\n\nCommand exited with code 127 (the program was not found)"),
        ("kill -9 $$", "(no output)\n\nCommand exited with code 137 (ended by SIGKILL)"),
        ("printf x; kill -TERM $$", "x\n\nCommand exited with code 143"),
    ],
)
def test_failures_keep_the_output(command: str, text: str, tmp_path: Path) -> None:
    assert refusal("bash", tmp_path, command=command) == text


def test_it_runs_in_the_working_directory(tmp_path: Path) -> None:
    assert text_of(call("bash", tmp_path, command="pwd -P")).strip() == os.path.realpath(tmp_path)


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    expected = f"Working directory does not exist: {gone}\nCannot execute bash commands."
    assert refusal("bash", gone, command="true") == expected


@pytest.mark.only_here
def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_SESSION_ID", "of another agent")
    monkeypatch.setenv("PI_MODEL", "of another agent")
    command = 'echo "$PI_CODING_AGENT $AI_AGENT $PI_SESSION_ID $PI_MODEL $HOME"; echo "$PATH"'
    settings = ToolSettings(bin_dir="/agent/bin")
    result, _ = bash(tmp_path, {"command": command}, settings=settings, env={"PI_SESSION_ID": "s1"})
    assert isinstance(result, ToolResult)
    marks, path = text_of(result).splitlines()
    assert marks == f"true pi s1  {os.environ['HOME']}"
    assert path == f"/agent/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", f"/usr/bin:/bin:{settings.bin_dir}")
    result, _ = bash(tmp_path, {"command": "echo $PATH"}, settings=settings)
    assert isinstance(result, ToolResult)
    assert text_of(result) == "/usr/bin:/bin:/agent/bin\n"


def test_the_users_shell_and_prefix(tmp_path: Path) -> None:
    settings = ToolSettings(shell_path="/bin/sh", shell_command_prefix="greet() { echo hello; }")
    result, _ = bash(tmp_path, {"command": 'greet; echo "$0"'}, settings=settings)
    assert isinstance(result, ToolResult)
    assert text_of(result) == "hello\n/bin/sh\n"
    result, _ = bash(tmp_path, {"command": "true"}, settings=ToolSettings(shell_path="/no/shell"))
    assert result == "Custom shell path not found: /no/shell"


@pytest.mark.parametrize("command", ["echo \0", "echo " + "x" * 200_000])
def test_commands_no_system_can_run_fail_in_words(command: str, tmp_path: Path) -> None:
    text = refusal("bash", tmp_path, command=command)
    assert text in ("Command must not contain null bytes", "E2BIG: argument list too long, spawn '/bin/bash'")


def test_a_lone_surrogate_in_the_command_is_no_crash(tmp_path: Path) -> None:
    assert text_of(call("bash", tmp_path, command="echo '\ud800'")) == "\ufffd\n"


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "head", "begin", "notice", "size"),
    [
        (
            "seq 1 3000",
            "\n".join(map(str, range(1, 51))),
            "1001\n",
            "[Showing lines 1001-3000 of 3000. Full output: {}]",
            13893,
        ),
        (
            "seq -f %040g 1 1990",
            "\n".join(f"{n:040}" for n in range(1, 51)),
            f"{743:040}\n",
            "[Showing lines 743-1990 of 1990 (50.0KB limit). Full output: {}]",
            81590,
        ),
        (
            "seq 1 3; head -c 70000 /dev/zero | tr '\\0' x",
            "1\n2\n3",
            "x",
            "[Showing last 50.0KB of line 4 (line is 68.4KB). Full output: {}]",
            70006,
        ),
        (
            "head -c 70000 /dev/zero | tr '\\0' x; echo",
            "x" * 4096,
            "x",
            "[Showing last 50.0KB of line 1 (line is 68.4KB). Full output: {}]",
            70001,
        ),
    ],
)
def test_long_output_keeps_its_beginning_and_its_end(
    command: str, head: str, begin: str, notice: str, size: int, tmp_path: Path
) -> None:
    result = call("bash", tmp_path, command=command)
    details = details_of(result)
    path = details["fullOutputPath"]
    body, _, bracket = text_of(result).rpartition("\n\n")
    assert bracket == notice.format(path)
    shown, _, body = body.partition("\n\n[… The middle is left out. The end of the output is: …]\n\n")
    assert shown == head
    assert body.startswith(begin)
    assert details["truncation"]["content"] == body
    assert details["truncation"]["totalBytes"] == size
    assert Path(path).stat().st_size == size


def test_a_failing_command_with_long_output_says_both(tmp_path: Path) -> None:
    text = refusal("bash", tmp_path, command="seq 1 2500; exit 2")
    assert text.startswith("1\n2\n") and "is: …]\n\n501\n" in text
    assert "\n2500\n\n[Showing lines 501-2500 of 2500. Full output: " in text
    assert text.endswith(".log]\n\nCommand exited with code 2")


def test_a_flood_is_all_in_the_file(tmp_path: Path) -> None:
    result = call("bash", tmp_path, command="seq 1 400000")
    details = details_of(result)
    assert details["truncation"]["totalLines"] == 400000
    expected = "".join(f"{n}\n" for n in range(1, 400001))
    assert Path(details["fullOutputPath"]).read_text() == expected


# -- time and abort ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (-1, "Invalid timeout: must be a finite number of seconds"),
        (2147484, "Invalid timeout: maximum is 2147483.647 seconds"),
    ],
)
def test_bad_timeouts(timeout: float, text: str, tmp_path: Path) -> None:
    assert refusal("bash", tmp_path, command="touch ran", timeout=timeout) == text
    assert not (tmp_path / "ran").exists()


def test_a_timeout_of_0_is_none(tmp_path: Path) -> None:
    assert text_of(call("bash", tmp_path, command="sleep 0.1; echo done", timeout=0)) == "done\n"


def test_timeout(tmp_path: Path) -> None:
    assert refusal("bash", tmp_path, command="sleep 30", timeout=0.2) == "Command timed out after 0.2 seconds"
    text = refusal("bash", tmp_path, command="echo x; sleep 30", timeout=3.0)
    assert text == "x\n\n\nCommand timed out after 3 seconds"


@pytest.mark.parametrize(
    ("command", "text"),
    [("touch up; sleep 30", "Command aborted"), ("echo x; touch up; sleep 30", "x\n\n\nCommand aborted")],
)
def test_abort(command: str, text: str, tmp_path: Path) -> None:
    async def body() -> str:
        call_ = Run("bash", tmp_path, {"command": command})
        await until((tmp_path / "up").exists)
        call_.task.cancel()
        return await call_.refusal()

    assert run(body) == text


def test_abort_reaches_grandchildren_and_a_command_that_ignores_signals(tmp_path: Path) -> None:
    async def body() -> None:
        command = "trap '' TERM INT HUP; (trap '' TERM; sleep 60; touch survived) & echo $! > pid; wait"
        call_ = Run("bash", tmp_path, {"command": command})
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        call_.task.cancel()
        assert await call_.refusal() == "Command aborted"
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())

    run(body)


# -- progress ------------------------------------------------------------------------------------


def test_progress_is_told_at_once_then_all_so_far(tmp_path: Path) -> None:
    async def body() -> list[Any]:
        command = "echo a; until [ -e go ]; do sleep 0.01; done; echo b"
        call_ = Run("bash", tmp_path, {"command": command})
        await until(lambda: len(call_.updates) == 2)
        (tmp_path / "go").touch()
        assert text_of(await call_.task) == "a\nb\n"
        return wire(call_.updates)

    assert run(body) == [
        BEGUN,
        {"content": [{"type": "text", "text": "a\n"}], "details": UNCUT},
        {"content": [{"type": "text", "text": "a\nb\n"}], "details": UNCUT},
    ]


def test_no_output_no_progress(tmp_path: Path) -> None:
    assert bash(tmp_path, {"command": "true"})[1] == [BEGUN]
    assert bash(tmp_path, {"command": "sleep 30", "timeout": 0.05})[1] == [BEGUN]


def test_progress_comes_at_most_every_tenth_of_a_second_and_ends_with_the_last_word(tmp_path: Path) -> None:
    async def body() -> tuple[ToolResult, list[Any], list[float]]:
        call_ = Run("bash", tmp_path, {"command": "for i in $(seq 1 60); do echo $i; sleep 0.005; done"})
        return await call_.task, wire(call_.updates), call_.times

    result, updates, times = run(body)
    texts = [update["content"][0]["text"] for update in updates[1:]]
    assert all(later.startswith(earlier) and later != earlier for earlier, later in pairwise(texts))
    assert texts[-1] == text_of(result)
    # The first comes at once, the last may follow at any time.
    assert all(later - earlier > 0.09 for earlier, later in pairwise(times[1:-1]))


def test_progress_of_long_output_says_where_all_of_it_is(tmp_path: Path) -> None:
    _, updates = bash(tmp_path, {"command": "seq 1 3000"})
    details = updates[-1]["details"]
    assert details["truncation"]["truncatedBy"] == "lines"
    assert Path(details["fullOutputPath"]).exists()
    assert updates[-1]["content"][0]["text"] == details["truncation"]["content"]


def test_many_commands_at_once(tmp_path: Path) -> None:
    async def body() -> list[str]:
        calls = [Run("bash", tmp_path, {"command": f"sleep 0.05; echo {number}"}) for number in range(30)]
        return [text_of(await call_.task) for call_ in calls]

    assert run(body) == [f"{number}\n" for number in range(30)]
