"""Children: groups killed as a whole, pipes that others hold, nothing outlives us."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.models.credentials import UnresolvedValue, resolve_value
from spindle.programs import children
from spindle.programs.children import kill_all
from spindle.programs.process import Completed, Process
from spindle.programs.process import run as run_child
from tests.support.agent_process import AgentProcess
from tests.tools.helpers import run, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(script: str, **options: object) -> tuple[Process, bytearray]:
    out = bytearray()
    return Process(["/bin/sh", "-c", script], cwd="/", env=os.environ, on_output=out.extend, **options), out  # type: ignore[arg-type]


@pytest.fixture(params=["supervisor", "group"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "group":
        monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.usefixtures("watcher")
@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_exit_codes(script: str, code: int) -> None:
    async def body() -> int:
        return await start(script)[0].wait()

    assert run(body) == code


@pytest.mark.usefixtures("watcher")
def test_both_streams_in_the_order_they_were_written() -> None:
    async def body() -> bytes:
        process, out = start("for i in 1 2 3; do echo o$i; echo e$i >&2; done")
        await process.wait()
        return bytes(out)

    assert run(body) == b"o1\ne1\no2\ne2\no3\ne3\n"


def test_streams_can_be_kept_apart() -> None:
    async def body() -> tuple[bytes, bytes]:
        errors = bytearray()
        process, out = start("echo out; echo err >&2", on_errors=errors.extend)
        await process.wait()
        return bytes(out), bytes(errors)

    assert run(body) == (b"out\n", b"err\n")


def test_stdin_is_empty_and_our_own_streams_are_not_handed_on() -> None:
    async def body() -> bytes:
        process, out = start("cat; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l")
        await process.wait()
        return bytes(out)

    stdin, descriptors = run(body).split()
    assert stdin == b"/dev/null"
    assert int(descriptors) == 4  # the three, and the one `ls` reads the folder with


def test_a_missing_program_is_an_error_and_leaks_nothing() -> None:
    async def body() -> None:
        await start("true")[0].wait()  # the first one starts the supervisor
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(FileNotFoundError):
            Process(["/no/such/program"], cwd="/", env={}, on_output=lambda data: None)
        assert len(os.listdir("/proc/self/fd")) == before

    run(body)


@pytest.mark.usefixtures("watcher")
def test_cancelling_kills_the_whole_group(tmp_path: Path) -> None:
    async def body() -> list[int]:
        process, out = start("sleep 60 & echo $!; sleep 60 & echo $!; echo $$; wait")
        waiting = asyncio.ensure_future(process.wait())
        await until(lambda: out.count(b"\n") == 3)
        pids = [int(line) for line in out.split()]
        assert all(map(alive, pids))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not any(map(alive, pids)))
        return pids

    assert len(run(body)) == 3


def test_cancelling_twice_is_no_worse_than_once() -> None:
    async def body() -> None:
        process, out = start("echo up; sleep 60")
        waiting = asyncio.ensure_future(process.wait())
        await until(lambda: bool(out))
        waiting.cancel()
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not alive(process.pid))

    run(body)


def test_a_background_child_that_holds_the_pipe_is_not_waited_for() -> None:
    async def body() -> tuple[bytes, float, int]:
        process, out = start("sleep 60 & echo $!; echo done")
        began = time.monotonic()
        assert await process.wait() == 0
        pid = int(out.split()[0])
        took = time.monotonic() - began
        assert alive(pid), "it may go on"
        os.kill(pid, signal.SIGKILL)
        return bytes(out), took, pid

    out, took, pid = run(body)
    assert out == f"{pid}\ndone\n".encode()
    assert 0.1 <= took < 20


def test_what_a_background_child_still_says_soon_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_QUIET", 20.0)
    monkeypatch.setattr(limits, "CHILD_LINGER", 20.0)

    async def body() -> bytes:
        process, out = start("(sleep 0.05; echo late) & echo first")
        await process.wait()
        return bytes(out)

    assert run(body) == b"first\nlate\n"


def test_a_background_child_that_never_is_quiet_is_given_up(tmp_path: Path) -> None:
    async def body() -> None:
        process, _ = start(f"yes & echo $! > {tmp_path}/pid")
        try:
            assert await asyncio.wait_for(process.wait(), 40) == 0
        finally:
            with suppress(ProcessLookupError):  # the pipe it writes to is closed by now
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    run(body)


def test_a_group_outlives_its_leader_for_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    # It counts as ended once its pipe was silent for so long; a busy machine must not get there first.
    monkeypatch.setattr(limits, "CHILD_QUIET", 50.0)
    monkeypatch.setattr(limits, "CHILD_LINGER", 50.0)

    async def body() -> None:
        process, out = start("sleep 60 & echo $!")
        waiting = asyncio.ensure_future(process.wait())
        await until(lambda: bool(out) and not alive(process.pid))
        process.kill()
        await waiting
        await until(lambda: not alive(int(out)))

    run(body)


def test_kill_all_leaves_nothing_alive() -> None:
    async def body() -> None:
        started = [start("sleep 60 & echo $!; echo $$; wait") for _ in range(8)]
        await until(lambda: all(out.count(b"\n") == 2 for _, out in started))
        pids = [int(line) for _, out in started for line in out.split()]
        assert sum(map(alive, pids)) == 16
        kill_all()
        assert {await process.wait() for process, _ in started} == {137}
        await until(lambda: not any(map(alive, pids)))
        assert not {process._child for process, _ in started}.intersection(children.remaining())

    run(body)


def test_many_at_once_keep_their_output_apart_and_close_all_they_opened() -> None:
    async def one(number: int) -> bool:
        process, out = start(f"seq {number} {number + 2000}")
        await process.wait()
        return bytes(out) == "".join(f"{n}\n" for n in range(number, number + 2001)).encode()

    async def body() -> None:
        assert await one(0)
        before = len(os.listdir("/proc/self/fd"))
        assert all(await asyncio.gather(*(one(number) for number in range(40))))
        assert len(os.listdir("/proc/self/fd")) <= before + 4, "supervisors that wait for more"

    run(body)


def test_a_flood_leaves_the_loop_time_for_others() -> None:
    async def body() -> float:
        size = 0

        def count(data: bytes) -> None:
            nonlocal size
            size += len(data)

        process = Process(["/bin/sh", "-c", "yes"], cwd="/", env=os.environ, on_output=count)
        waiting = asyncio.ensure_future(process.wait())
        await until(lambda: size > 10_000_000)
        worst = 0.0
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0.001)
            worst = max(worst, time.monotonic() - began)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return worst

    assert run(body) < 2


# -- run, and what it is stopped with ------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5, 1_000_000])
def test_input_of_any_size_comes_back(size: int) -> None:
    done = run(lambda: run_child(["cat"], input=b"x" * size))
    assert done == Completed(0, b"x" * size, b"", False)


def test_a_child_that_does_not_read_its_input_is_no_error() -> None:
    done = run(lambda: run_child(["sh", "-c", "echo out; echo err >&2; exit 3"], input=b"x" * 1_000_000))
    assert done == Completed(3, b"out\n", b"err\n", False)


def test_run_listens_until_the_last_writer_has_gone() -> None:
    done = run(lambda: run_child(["sh", "-c", "(sleep 0.5; echo late) & echo first"]))
    assert done.output == b"first\nlate\n"


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done", 4, b"up\nbye\n"),
        ("echo up; exec sleep 60", -signal.SIGTERM, b"up\n"),
        ("trap '' TERM; echo up; while :; do sleep 0.05; done", -signal.SIGKILL, b"up\n"),
    ],
)
def test_a_child_whose_time_is_up_is_asked_first(script: str, code: int, output: bytes) -> None:
    grace = 0.3 if code == -signal.SIGKILL else 30
    done = run(lambda: run_child(["sh", "-c", script], timeout=1, grace=grace))
    assert (done.code, done.output, done.timed_out) == (code, output, True)


def test_a_grandchild_that_left_the_group_is_given_up_where_there_is_no_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & wait"
    done = run(lambda: run_child(["sh", "-c", script], timeout=1, grace=0.1))
    assert (done.timed_out, done.output) == (True, b"")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_cancelling_run_kills_the_group_and_forgets_it(tmp_path: Path) -> None:
    async def body() -> None:
        pid = tmp_path / "pid"
        running = asyncio.ensure_future(
            run_child(["sh", "-c", f"sleep 60 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"])
        )
        await until(pid.exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not alive(int(pid.read_text())) and not children.remaining())

    run(body)


# -- every child is known ------------------------------------------------------------------------


def test_a_child_is_forgotten_even_if_its_event_loop_did_not_see_its_end() -> None:
    async def leave() -> int:
        process = Process(["sleep", "60"], cwd=None, on_output=lambda data: None)
        process.kill()
        process.give_up()
        return process.pid

    pid = asyncio.run(leave())

    async def forgotten() -> None:
        await until(lambda: pid not in [child.pid for child in children.remaining()])

    run(forgotten)


def test_kill_all_knows_credential_commands(tmp_path: Path) -> None:
    async def body() -> None:
        pid = tmp_path / "pid"
        command = f"!trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 60; true"
        asking = asyncio.ensure_future(resolve_value(command))
        await until(pid.exists)
        kill_all()
        with pytest.raises(UnresolvedValue):
            await asking
        await until(lambda: not alive(int(pid.read_text())))

    run(body)


def test_kill_all_knows_children_of_threads() -> None:
    with open(os.devnull, "r+b") as null:
        files = (null.fileno(),) * 3
        child = children.start(["sleep", "60"], cwd=None, env=None, files=files)
    kill_all()
    assert child.wait(20) == -signal.SIGKILL
    kill_all()


EXEC_AT_THE_END = """
def extension(agent):
    @agent.on("session_shutdown")
    async def end(event, ctx):
        await agent.exec(["sh", "-c", "trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600; true"])
"""


def test_programs_of_extensions_do_not_outlive_a_second_signal(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    extension = tmp_path / "ext.py"
    extension.write_text(EXEC_AT_THE_END.format(pid=pid))

    async def body() -> None:
        with AgentProcess(args=["-e", str(extension)]) as agent:
            agent.call("get_state")
            agent.process.send_signal(signal.SIGTERM)
            await until(pid.exists)
            agent.process.send_signal(signal.SIGTERM)
            assert agent.process.wait(20) == 143
        await until(lambda: not alive(int(pid.read_text())))

    run(body)


SCARCE = """
import asyncio, os, resource
from spindle.programs.process import Process

def count():
    return len(os.listdir("/proc/self/fd"))

def start(both):
    def drop(data): ...
    how = {"on_errors": drop, "input": b"x"} if both else {}
    return Process(["/bin/sh", "-c", "sleep 100"], cwd="/", env=os.environ, on_output=drop, **how)

async def end(process):
    process.kill()
    await process.wait()

async def main():
    running = start(False)
    await end(start(True))
    before, refused = count(), 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for both in (True, False):
        for free in range(12):
            taken = []
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                for file in taken[:free]:
                    os.close(file)
            started = None
            try:
                started = start(both)
            except OSError as error:
                assert error.errno == 24, error
                refused += 1
            for file in taken[free:]:
                os.close(file)
            if started is not None:
                await end(started)
            assert count() == before, (both, free, count(), before)
    assert refused > 5
    assert running._child.poll() is None
    await end(running)

asyncio.run(main())
"""


def test_a_start_without_free_descriptors_leaks_none_and_ends_no_other_child() -> None:
    ended = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
