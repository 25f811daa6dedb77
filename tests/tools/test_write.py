"""The write tool, and the queue in front of every file."""

import asyncio
import errno
import os
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.tools import files
from spindle.tools.diff_preview import whole_preview
from spindle.tools.files import file_lock
from spindle.tools.replace import Region, display_diff, find_changes, split_lines, unified_patch
from spindle.workspace.disk import Cancel
from spindle.workspace.threads import run_to_end

from .helpers import Run, call, refusal, run, text_of, until


@pytest.mark.parametrize("content", ["hey\n", "", "é😀", "a\r\nb\r", "\ufeffx"])
def test_content_is_written_as_it_is(content: str, tmp_path: Path) -> None:
    result = call("write", tmp_path, path="w.txt", content=content)
    assert text_of(result) == "Successfully wrote to w.txt"
    assert result.details is None
    assert (tmp_path / "w.txt").read_bytes() == content.encode()


def test_folders_are_made(tmp_path: Path) -> None:
    call("write", tmp_path, path="a/b/c.txt", content="x")
    assert (tmp_path / "a/b/c.txt").read_text() == "x"


def test_what_is_replaced_keeps_its_link_and_mode(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("a longer text than the new one")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to("target")
    call("write", tmp_path, path="link", content="new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


def test_a_link_to_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    call("write", tmp_path, path="link", content="new")
    assert (tmp_path / "target").read_text() == "new" and (tmp_path / "link").is_symlink()


@pytest.mark.only_here
def test_a_new_file_gets_the_permissions_of_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        call("write", tmp_path, path="f", content="x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_every_name_of_a_file_with_several_has_the_new_content(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    os.link(tmp_path / "one", tmp_path / "two")
    call("write", tmp_path, path="one", content="new")
    assert (tmp_path / "two").read_text() == "new"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_in_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    tmp_path.chmod(0o555)
    try:
        call("write", tmp_path, path="f", content="new")
    finally:
        tmp_path.chmod(0o755)
    assert (tmp_path / "f").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no attributes here")
def test_attributes_stay(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    try:
        os.setxattr(tmp_path / "f", "user.origin", b"here")
    except OSError:
        pytest.skip("this file system has no attributes")
    call("write", tmp_path, path="f", content="new")
    assert os.getxattr(tmp_path / "f", "user.origin") == b"here"


WRITER = """
import asyncio, itertools, sys
from spindle.tools.base import ToolContext, builtin_tools
async def main():
    tools, ctx = builtin_tools(), ToolContext(cwd=sys.argv[1])
    print(flush=True)
    for number in itertools.count():
        old, new = "ab"[number % 2], "ba"[number % 2]
        await tools["write"].execute("1", {"path": "w", "content": new * 3_000_000}, ctx)
        edits = [{"oldText": f"[{old}]", "newText": f"[{new}]"}]
        await tools["edit"].execute("1", {"path": "e", "edits": edits}, ctx)
asyncio.run(main())
"""


def test_a_kill_at_any_time_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    sides = [f"[{letter}]" + "x" * 2_000_000 for letter in "ab"]
    (tmp_path / "w").write_text("a" * 3_000_000)
    for attempt in range(15):
        (tmp_path / "e").write_text(sides[0])
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(0.005 * attempt)
            program.kill()
        assert (tmp_path / "w").read_text() in ("a" * 3_000_000, "b" * 3_000_000)
        assert (tmp_path / "e").read_text() in sides


def test_a_lone_surrogate_is_no_crash(tmp_path: Path) -> None:
    call("write", tmp_path, path="f", content="a\ud800b")
    assert (tmp_path / "f").read_text() == "a\ufffdb"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "folder": f"EISDIR: illegal operation on a directory, open '{tmp_path}/folder'",
        "file/x": f"EEXIST: file already exists, mkdir '{tmp_path}/file'",
        "file/x/y": f"ENOTDIR: not a directory, mkdir '{tmp_path}/file/x'",
        "loop": f"ELOOP: too many symbolic links encountered, open '{tmp_path}/loop'",
        "pipe": f"Not a regular file: {tmp_path}/pipe",
    }
    for path, text in expected.items():
        assert refusal("write", tmp_path, path=path, content="x") == text
    assert (tmp_path / "file").read_text() == "kept"


@pytest.fixture
def little_room() -> Iterator[None]:
    """Let no file of this process grow beyond 64 KiB, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.only_here
@pytest.mark.usefixtures("little_room")
@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot promise room")
def test_what_there_is_no_room_for_leaves_the_old_content(tmp_path: Path) -> None:
    old, new = "precious" + "." * 30_000, "x" * 100_000
    (tmp_path / "f").write_text(old)
    assert refusal("write", tmp_path, path="f", content=new) == "EFBIG: file too large, write"
    assert (tmp_path / "f").read_text() == old
    changes = [{"oldText": "precious", "newText": new}]
    assert refusal("edit", tmp_path, path="f", edits=changes) == "EFBIG: file too large, write"
    assert (tmp_path / "f").read_text() == old


@pytest.mark.only_here
@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot promise room")
def test_there_may_be_no_room_inside_of_a_file_with_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("precious")
    os.link(tmp_path / "f", tmp_path / "g")  # so that it cannot be replaced as a whole
    os.truncate(tmp_path / "f", 1 << 20)
    if os.stat(tmp_path / "f").st_blocks * 512 >= 1 << 20:
        pytest.skip("this file system makes no holes")

    def refuse(file: int, begin: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert refusal("write", tmp_path, path="f", content="x" * 1000).startswith("ENOSPC")
    assert (tmp_path / "f").read_bytes() == b"precious".ljust(1 << 20, b"\0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "f").touch(mode=0o400)
    assert refusal("write", tmp_path, path="f", content="x") == f"EACCES: permission denied, open '{tmp_path}/f'"


# -- the queue -----------------------------------------------------------------------------------


def test_writers_of_one_file_take_turns_in_the_order_they_came(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "alias").symlink_to("real")

    async def body() -> list[int]:
        order: list[int] = []

        async def one(number: int) -> None:
            async with file_lock(str(tmp_path / ("real" if number % 2 else "alias"))):
                order.append(number)
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(*(one(number) for number in range(6)))
        assert not files._queues
        return order

    assert run(body) == [number for number in range(6) for _ in range(2)]


def test_writers_of_different_files_do_not_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with file_lock(str(tmp_path / "a")), asyncio.timeout(5), file_lock(str(tmp_path / "b")):
            pass

    run(body)


def test_agents_on_two_event_loops_take_turns_at_one_file(tmp_path: Path) -> None:
    order: list[str] = []
    queues = files._queues

    async def first() -> None:
        async with file_lock(str(tmp_path / "f")):
            other.start()
            await until(lambda: any(len(queue) == 3 for queue in queues.values()))
            order.append("first")

    async def second() -> None:
        async def one(name: str) -> None:
            async with file_lock(str(tmp_path / "f")):
                order.append(name)

        await asyncio.gather(one("second"), one("third"))

    other = threading.Thread(target=lambda: asyncio.run(second()))
    run(first)
    other.join(20)
    assert order == ["first", "second", "third"]
    assert not queues


def test_work_that_is_cancelled_holds_the_file_until_it_has_ended(tmp_path: Path) -> None:
    go, started = threading.Event(), threading.Event()
    ended: list[str] = []

    def slow(cancel: Cancel) -> None:
        started.set()
        go.wait(10)
        ended.append("first")

    async def first() -> None:
        async with file_lock(str(tmp_path / "f")):
            await run_to_end(slow)

    async def second() -> None:
        async with file_lock(str(tmp_path / "f")):
            ended.append("second")

    async def body() -> None:
        one = asyncio.ensure_future(first())
        await asyncio.to_thread(started.wait, 10)
        two = asyncio.ensure_future(second())
        for _ in range(3):
            one.cancel()
            await asyncio.sleep(0.01)
        assert not one.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await one
        await two

    run(body)
    assert ended == ["first", "second"]


def test_work_cancelled_before_it_changed_anything_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    async def body() -> None:
        async with file_lock(str(tmp_path / "f")):
            writing = Run("write", tmp_path, {"path": "f", "content": "new"}).task
            await asyncio.sleep(0.01)
            writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    run(body)
    assert (tmp_path / "f").read_text() == "old"
    assert not files._queues


def test_many_writers_of_one_file_leave_one_whole_content(tmp_path: Path) -> None:
    async def body() -> None:
        contents = [str(number) * (1000 * (10 - number)) for number in range(10)]
        runs = [Run("write", tmp_path, {"path": "f", "content": content}) for content in contents]
        await asyncio.gather(*(one.task for one in runs))
        assert (tmp_path / "f").read_text() == contents[-1]

    run(body)


@pytest.mark.parametrize("lines", [10, 20_000])
def test_a_preview_of_a_long_text_ends_early_and_counts_all(lines: int) -> None:
    """A question costs what is shown of the change, not the whole of it twice."""
    old = "".join(f"old line {number} {'x' * 40}\n" for number in range(lines))
    new = "".join(f"new line {number} {'y' * 40}\n" for number in range(lines - 3))
    before, after = split_lines(old), split_lines(new)
    changes = find_changes(before, [Region(0, len(before), after)])
    shown = whole_preview("f", "f", old, new, None)
    assert (shown.added, shown.removed) == (lines - 3, lines)
    assert shown.cut is (lines > 10)
    for text, whole in [
        (shown.diff, display_diff(before, after, changes)),
        (shown.patch, unified_patch(before, after, changes, "f")),
    ]:
        assert whole.startswith(text) and (len(text) == len(whole)) is not shown.cut
        assert not shown.cut or len(text) > 510_000
