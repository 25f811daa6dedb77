"""The pipe to a far side: greetings, stalls, cuts and floods; what it says when there is none."""

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from spindle.base import limits
from spindle.tools.base import ToolError
from spindle.workspace.disk import list_folder, read_for_edit
from spindle.workspace.far import Far
from spindle.workspace.frames import frame
from spindle.workspace.pipe import FarError, Pipe
from spindle.workspace.replacing import write_file
from spindle.workspace.settings import ToolSettings


def through(command: str, work: Callable[[Pipe, Far], Coroutine[Any, Any, None]]) -> None:
    """Open a pipe, work with the far side, and close it."""

    async def main() -> None:
        pipe = Pipe(command, os.environ)
        await pipe.open()
        try:
            await work(pipe, Far(pipe, ToolSettings(far=pipe)))
        finally:
            await pipe.close()

    asyncio.run(main())


def refusal(command: str) -> str:
    async def main() -> str:
        pipe = Pipe(command, os.environ)
        with pytest.raises(FarError) as caught:
            await pipe.open()
        return str(caught.value)

    return asyncio.run(main())


def script(folder: Path, text: str) -> str:
    """Make a program that takes the place of ssh; `sh` is added to its arguments."""
    path = folder / "lead"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return shlex.quote(str(path))


async def shell(far: Far, command: str, cwd: Path) -> tuple[int, bytes]:
    output = bytearray()
    running = await far.shell(command, str(cwd), {}, output.extend, far.kept())
    return await running.wait(), bytes(output)


def test_greetings_before_the_first_frame_are_passed_over(tmp_path: Path) -> None:
    lead = script(tmp_path, 'echo "Welcome to far"; printf "no newline at the end"; echo "a warning" >&2; exec "$@"')

    async def work(pipe: Pipe, far: Far) -> None:
        assert await shell(far, "echo hello", tmp_path) == (0, b"hello\n")

    through(lead, work)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/no/such/program", "Cannot run `/no/such/program`: there is no such program"),
        ("", "is empty"),
        ("a 'quote", "is no command"),
        ("sh -c 'echo Connection refused >&2; exit 255'", "ended with exit code 255: Connection refused"),
        ("true", "ended with exit code 0"),
    ],
)
def test_a_command_that_gives_no_pipe_says_why(command: str, words: str) -> None:
    async def main() -> str:
        with pytest.raises(FarError) as caught:
            await Pipe(command, os.environ).open()
        return str(caught.value)

    assert words in asyncio.run(main())


def test_a_command_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAR_START", 0.3)
    assert "did not answer within 0.3 s: hm" in refusal(script(tmp_path, "echo hm; exec sleep 60"))


def test_a_command_that_floods_is_no_pipe() -> None:
    assert "floods its output" in refusal("sh -c 'yes nonsense' --")


def test_calls_at_once_and_bytes_of_every_kind(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000 + b"\r\n\0\xff"

    async def work(pipe: Pipe, far: Far) -> None:
        slow = asyncio.create_task(shell(far, "until [ -e go ]; do sleep 0.01; done; echo late", tmp_path))
        paths = [f"{tmp_path}/{number}" for number in range(20)]
        await asyncio.gather(*(far.change(write_file, path, data) for path in paths))
        assert set(await asyncio.gather(*(far.do(read_for_edit, path, path, "/", 1 << 30) for path in paths))) == {data}
        await far.change(write_file, f"{tmp_path}/go", b"")
        assert await slow == (0, b"late\n")

    through("env", work)


def test_a_cancelled_command_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        command = "setsid sh -c 'echo $$ > away; exec sleep 600' & sleep 600 & echo $! > pid; wait"
        task = asyncio.create_task(shell(far, command, tmp_path))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "away").exists())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not any(alive((tmp_path / name).read_text()) for name in ("pid", "away")))

    through("env", work)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110 -- nothing out there sets an event of ours
            await asyncio.sleep(0.01)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid.strip()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_pipe_that_is_cut_ends_calls_and_is_opened_again(tmp_path: Path) -> None:
    lead = script(tmp_path, f'echo $$ > {tmp_path}/lead.pid; "$@"')

    async def work(pipe: Pipe, far: Far) -> None:
        running = asyncio.create_task(shell(far, f"echo $$ > {tmp_path}/pid; exec sleep 600", tmp_path))
        await until(lambda: (tmp_path / "pid").exists())
        os.kill(int((tmp_path / "lead.pid").read_text()), signal.SIGKILL)
        with pytest.raises(ToolError, match=r"(?s)broke: .* ended with signal 9.*opens the pipe again"):
            await running
        await until(lambda: not alive((tmp_path / "pid").read_text()))  # nothing of ours stays there
        assert await shell(far, "echo again", tmp_path) == (0, b"again\n")

    through(lead, work)


def test_a_pipe_that_stalls_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAR_BEAT", 0.1)
    monkeypatch.setattr(limits, "FAR_SILENCE", 0.5)
    relay = (
        "import os,subprocess,sys,threading\n"
        "child=subprocess.Popen(sys.argv[1:],stdin=subprocess.PIPE,stdout=subprocess.PIPE)\n"
        "def up():\n"
        "  while True: os.write(child.stdin.fileno(),os.read(0,65536))\n"
        "threading.Thread(target=up,daemon=True).start()\n"
        "while True:\n"
        "  data=os.read(child.stdout.fileno(),65536)\n"
        f"  while os.path.exists({str(tmp_path / 'stall')!r}): pass\n"
        "  os.write(1,data)\n"
    )

    async def work(pipe: Pipe, far: Far) -> None:
        # Silence of a command is no stall.
        assert await shell(far, "sleep 1; echo slow", tmp_path) == (0, b"slow\n")
        (tmp_path / "stall").touch()
        with pytest.raises(ToolError, match=r"broke: no answer for \d+ s"):
            await far.do(list_folder, str(tmp_path), 10)

    through(f"{shlex.quote(sys.executable)} -c {shlex.quote(relay)}", work)


def test_a_flood_leaves_other_calls_a_turn_and_takes_little_memory(tmp_path: Path) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        seen = 0

        def count(data: bytes) -> None:
            nonlocal seen
            seen += len(data)

        running = await far.shell("yes flood", str(tmp_path), {}, count, far.kept())
        waits = []
        for _ in range(20):
            began = time.monotonic()
            await far.do(list_folder, str(tmp_path), 10)
            waits.append(time.monotonic() - began)
        while seen <= 1 << 20:
            await far.do(list_folder, str(tmp_path), 10)
        running.pause()
        await far.do(list_folder, str(tmp_path), 10)
        before = seen
        await asyncio.sleep(0.1)
        await far.do(list_folder, str(tmp_path), 10)
        assert seen - before < 1 << 21  # what was on its way
        await running.stop(0)
        assert sorted(waits)[10] < 5

    through("env", work)


def test_no_secret_and_no_variable_of_a_session_crosses(tmp_path: Path) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        running_env = {"PI_SESSION_ID": "s1", "PI_SESSION_FILE": "/home/me/session.jsonl"}
        output = bytearray()
        running = await far.shell("env", str(tmp_path), running_env, output.extend, far.kept())
        assert await running.wait() == 0
        assert b"PI_SESSION_ID=s1" in output and b"AI_AGENT=pi" in output and b"session.jsonl" not in output

    through("env -i PATH=/usr/bin:/bin", work)


def test_a_far_side_that_inherits_our_environment_gets_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", "ghp-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    monkeypatch.setenv("npm_config__authToken", "npm-secret")
    monkeypatch.setenv("EDITOR", "vi")

    async def work(pipe: Pipe, far: Far) -> None:
        _, output = await shell(far, "/usr/bin/env; /bin/cat /proc/$PPID/environ", tmp_path)
        assert b"-secret" not in output and b"SPINDLE_EXEC" not in output and b"EDITOR=vi" in output

    through("env", work)
    (tmp_path / "sh").symlink_to("/bin/sh")
    through(f"/usr/bin/env PATH={tmp_path}", work)  # no other program can be found there
    through(script(tmp_path, f"exec {sys.executable} -c '{_WITHOUT_PYTHON}' \"$@\""), work)


def test_settings_of_git_in_our_environment_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the settings look like secrets; git would fail with their number alone."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "http.extraHeader")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Authorization: secret")

    async def work(pipe: Pipe, far: Far) -> None:
        assert (await shell(far, "git init -q . && git status --short", tmp_path))[0] == 0
        assert b"GIT_CONFIG" not in (await shell(far, "env", tmp_path))[1]

    through("env", work)


def test_without_python_only_shell_commands_work(tmp_path: Path) -> None:
    """The lead hides Python from the script that looks for it."""
    lead = script(tmp_path, f"exec {sys.executable} -c '{_WITHOUT_PYTHON}' \"$@\"")

    async def work(pipe: Pipe, far: Far) -> None:
        assert pipe.facts.python == ""
        assert await shell(far, "pwd; echo err >&2; exit 7", tmp_path) == (7, f"{tmp_path}\nerr\n".encode())
        assert await shell(far, "printf 'no newline'", tmp_path) == (0, b"no newline")
        gone = await shell(far, "true", tmp_path / "gone")
        assert gone[0] == 1 and gone[1].startswith(b"Working directory does not exist: ")
        with pytest.raises(ToolError, match=r"no Python 3\.8 or newer on the far side .* only bash works there"):
            await far.do(list_folder, str(tmp_path), 10)
        task = asyncio.create_task(shell(far, "echo $$ > pid; sleep 600 & wait", tmp_path))
        await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not alive((tmp_path / "pid").read_text()))

    through(lead, work)


_WITHOUT_PYTHON = (
    "import os,subprocess,sys;"
    "child=subprocess.Popen(sys.argv[1:],stdin=subprocess.PIPE);"
    'text=os.read(0,1<<20).replace(b"python3 /usr/bin/python3 /usr/local/bin/python3 python;",b"none;");'
    "child.stdin.write(text);child.stdin.close();sys.exit(child.wait())"
)


def test_files_of_a_project_do_not_pose_as_modules(tmp_path: Path) -> None:
    for name in ("queue", "json", "struct", "difflib", "fnmatch", "re", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('wrong module')")

    async def work(pipe: Pipe, far: Far) -> None:
        output, errors = bytearray(), bytearray()
        running = await far.ripgrep(["--line-number", "--", "wrong", "."], str(tmp_path), output.extend, errors.extend)
        assert (await running.wait(), bytes(errors)) == (0, b"")

    # Without rg on the PATH, the helper starts a search of its own.
    (tmp_path / "bin").mkdir()
    for name in ("sh", "sed", "env"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (tmp_path / "bin/python3").chmod(0o755)
    through(f"/usr/bin/env -i -C {shlex.quote(str(tmp_path))} PATH={shlex.quote(str(tmp_path / 'bin'))}", work)


def test_without_python_links_are_followed_by_the_shell(tmp_path: Path) -> None:
    (tmp_path / "it's secret").write_text("")
    (tmp_path / "link").symlink_to("it's secret")
    lead = script(tmp_path, f"exec {sys.executable} -c '{_WITHOUT_PYTHON}' \"$@\"")

    async def work(pipe: Pipe, far: Far) -> None:
        wanted = [f"{tmp_path}/link", f"{tmp_path}/it's secret", "/no/such/file"]
        assert await far.real_paths(wanted) == [f"{tmp_path}/it's secret", f"{tmp_path}/it's secret", "/no/such/file"]
        assert far.home == os.path.expanduser("~")

    through(lead, work)


def test_a_call_that_is_cancelled_while_it_is_sent_is_forgotten(tmp_path: Path) -> None:
    slow = "import os,subprocess,sys,time\np = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, bufsize=0)\n"
    slow += "sent = 0\nwhile data := os.read(0, 1 << 14):\n p.stdin.write(data); sent += len(data)\n"
    slow += " time.sleep(0.05 * (sent > 200_000))\n"

    async def work(pipe: Pipe, far: Far) -> None:
        task = asyncio.create_task(far.change(write_file, str(tmp_path / "new"), bytes(8_000_000)))
        await until(lambda: bool(pipe._calls))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not pipe._calls
        assert await far.do(list_folder, str(tmp_path), 10) == (["lead"], False)

    through(script(tmp_path, f'exec {sys.executable} -c {shlex.quote(slow)} "$@"'), work)


def test_a_far_side_that_sends_nonsense_breaks_only_the_pipe(tmp_path: Path) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        running = await far.background("sleep 600", str(tmp_path), {}, lambda: None)
        id = max(pipe._calls)
        pipe._receive(frame(id, b"N", b"[" * 100_000))
        with pytest.raises(FarError, match="nested deeper than 100 levels"):
            await running[0].wait()
        assert await shell(far, "echo again", tmp_path) == (0, b"again\n")

    through("env -i PATH=/usr/bin:/bin", work)
