"""Checkpoints: what a run did to files is known, whoever did it, and can be taken back byte for byte.

Most tests run twice: with the files here, and on the far side of a pipe.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import random
import resource
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.agent.features.undo import checkpoints
from spindle.base import limits
from spindle.states import git as base_git
from spindle.states import inventory, recorder
from spindle.states import store as snapshots
from spindle.testing import Pause

from ..support.agent_process import AgentProcess
from ..support.mock_model import call, reply
from .rig import Rig, run, until_true

SETTINGS = [
    "user.name=n", "user.email=e@x", "protocol.file.allow=always", "core.hooksPath=/dev/null", "core.fsmonitor=false",
    "filter.lfs.clean=cat", "filter.lfs.smudge=cat",
]  # fmt: skip
GIT = ["git", *(word for setting in SETTINGS for word in ("-c", setting))]


def git(folder: Path, *arguments: str, ok: bool = True) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout


def calls(*given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in given]}


def shell(command: str) -> dict[str, Any]:
    return calls(("bash", {"command": command}))


_there = False
"""Whether tools work on the far side."""


@pytest.fixture(autouse=True, params=["here", "there"])
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    global _there
    _there = request.param == "there"
    if _there and request.node.get_closest_marker("only_here"):
        pytest.skip("only here")
    yield
    _there = False


def rig(folder: Path, steps: list[Any], **options: Any) -> Rig:
    from spindle.tools.base import builtin_tools

    found = builtin_tools()
    # A shell of this machine stands in for another one: it sees the same files, and has a home of its own.
    far = f"env -i PATH={os.defpath} HOME={folder}/home-there" if _there else None
    return Rig(folder, steps, tools=[found["bash"], found["edit"]], far=far, **options)


def stored(folder: Path, name: str) -> Path:
    """Return a file of the store, whose name is a pattern."""
    return next((folder / "agent").glob(f"checkpoints-elsewhere/*/*/{name}" if _there else f"checkpoints/*/{name}"))


def picture(folder: Path) -> dict[str, Any]:
    """All files, links and folders below a folder, with modes and content; git's own are left out."""
    seen: dict[str, Any] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in (*folders, *(name for name in files if name != ".git")):
            path = os.path.join(place, name)
            about = os.lstat(path)
            content: Any = None
            if stat.S_ISLNK(about.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(about.st_mode):
                content = Path(path).read_bytes()
            seen[os.path.relpath(path, folder)] = (about.st_mode, content)
    return seen


def of_git(folder: Path) -> dict[str, str]:
    """Index, HEAD, refs, hooks and objects of a repository, as digests."""
    top = folder / git(folder, "rev-parse", "--git-common-dir").strip()
    return {str(path): hashlib.sha1(path.read_bytes()).hexdigest() for path in top.rglob("*") if path.is_file()}


# -- repositories as people have them ------------------------------------------------------------


def plain(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src/a.py").write_text("one\ntwo\n")
    (folder / "src/run.sh").write_text("#!/bin/sh\n")
    (folder / "src/run.sh").chmod(0o755)
    (folder / "data.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "notes.txt").write_text("notes\n")
    (folder / "notes.txt").chmod(0o600)
    (folder / "to-notes").symlink_to("notes.txt")
    (folder / "nowhere").symlink_to("missing/file")
    (folder / "empty/inside").mkdir(parents=True)
    (folder / "tight").mkdir(mode=0o700)
    (folder / "tight/x").write_text("x")
    (folder / ".gitignore").write_text("*.log\n/build/\n")
    (folder / "old.log").write_text("log\n")
    os.makedirs(os.fsencode(folder / "names"))
    for name in (b"\xff b\n\xc3\xa4", b":(glob)x", b":!x", b"-rf", b"[ab]*?", b'q"\\uote', b"\xe2\x80\xa8", b"a" * 255):
        Path(os.fsdecode(os.fsencode(folder / "names") + b"/" + name)).write_text("odd\n")
    (folder / ":(top)folder").mkdir(mode=0o700)
    (folder / ":(top)folder/x").write_text("odd\n")


def repository(folder: Path) -> None:
    plain(folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")


def dirty(folder: Path) -> None:
    repository(folder)
    (folder / "src/a.py").write_text("one\nchanged\n")
    (folder / "staged.txt").write_text("staged\n")
    git(folder, "add", "staged.txt")
    (folder / "staged.txt").write_text("staged, then changed\n")
    (folder / "untracked.txt").write_text("untracked\n")
    git(folder, "rm", "-q", "--cached", "notes.txt")
    (folder / "src/run.sh").write_text("stashed\n")
    git(folder, "stash", "-q")
    git(folder, "stash", "apply", "-q")


def conflict(folder: Path) -> None:
    repository(folder)
    git(folder, "checkout", "-qb", "other")
    (folder / "src/a.py").write_text("theirs\n")
    git(folder, "commit", "-qam", "theirs")
    git(folder, "checkout", "-q", "-")
    (folder / "src/a.py").write_text("ours\n")
    git(folder, "commit", "-qam", "ours")
    git(folder, "merge", "other", ok=False)
    assert "UU src/a.py" in git(folder, "status", "--porcelain")


def converted(folder: Path) -> None:
    """Line endings, keywords and a filter, all of which change files on their way into git."""
    repository(folder)
    git(folder, "config", "core.autocrlf", "true")
    git(folder, "config", "filter.lfs.clean", "exit 1; touch ../ran")
    git(folder, "config", "filter.lfs.smudge", "touch ../ran")
    git(folder, "config", "filter.lfs.required", "true")
    git(folder, "config", "core.fsmonitor", "touch ../ran; false")
    (folder / ".git/hooks/post-index-change").write_text("#!/bin/sh\ntouch ../ran\n")
    (folder / ".git/hooks/post-index-change").chmod(0o755)
    (folder / "mixed.txt").write_bytes(b"a\r\nb\nc\rd\r\n")
    (folder / "src/a.py").write_bytes(b"one\r\ntwo\n")
    (folder / "keyword.txt").write_text("$Id: 1234 $\n")
    (folder / "big.psd").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
    (folder / ".gitattributes").write_text("*.psd filter=lfs diff=lfs -text\n*.txt text ident\n*.py eol=crlf\n")


def sparse(folder: Path) -> None:
    repository(folder)
    git(folder, "sparse-checkout", "set", "--no-cone", "/src", "/.gitignore")


def worktree(folder: Path) -> None:
    beside = folder.parent / "main"
    beside.mkdir()
    repository(beside)
    folder.rmdir()
    git(beside, "worktree", "add", "-q", str(folder))


def submodule(folder: Path) -> None:
    beside = folder.parent / "library"
    beside.mkdir()
    repository(beside)
    repository(folder)
    git(folder, "submodule", "--quiet", "add", str(beside), "lib")
    git(folder, "commit", "-qm", "lib")


KINDS = [plain, repository, dirty, conflict, converted, sparse, worktree, submodule]


def some_edits(seed: int, folder: Path) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """A shell command with random changes, and calls of tools."""
    dice = random.Random(seed)
    files = sorted(path for path in picture(folder) if not path.startswith(("lib", "names")))
    lines = []
    for number in range(12):
        path = dice.choice(files)
        lines.append(
            dice.choice(
                [
                    f"rm -rf '{path}'",
                    f"mv '{path}' 'moved {number}'",
                    f"mkdir -p 'new {number}/deep/empty' && echo new > 'new {number}/deep/f'",
                    f"printf 'a\\0b\\r\\n' > '{path}'",
                    f"chmod {dice.choice(['600', '755', '711', '640'])} '{path}'",
                    f"sed -i 's/o/0/' '{path}'",
                    f"ln -sfn elsewhere '{path}'",
                    f"rm -rf '{path}' && mkdir -p '{path}/now a folder' && echo x > '{path}/x'",
                    f"mkdir -p 'bare {number}'; rmdir empty/inside",
                ]
            )
        )
    writes = [
        ("write", {"path": f"written-{seed}.txt", "content": "w\r\n"}),
        ("write", {"path": "src/a.py", "content": "w"}),
    ]
    return "; ".join(f"{{ {line}; }} 2>/dev/null" for line in lines) + "; true", writes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_files_come_back(tmp_path, kind):
    folder = tmp_path / "work"
    folder.mkdir()
    kind(folder)
    seed = KINDS.index(kind) + int(os.environ.get("SPINDLE_TEST_SEED", "0"))
    command, writes = some_edits(seed, folder)
    is_repository = (folder / ".git").exists()
    before, status = picture(folder), git(folder, "status", "--porcelain") if is_repository else ""
    own = of_git(folder) if is_repository else {}

    async def main():
        async with rig(tmp_path, [shell(command), calls(*writes), shell("rm -f old.log.1; true"), "done"]) as it:
            await it.run("change things")
            changed = picture(folder)
            assert changed != before
            found = await it.data("list_checkpoints")
            assert [one["kind"] for one in found["checkpoints"]] == ["turn"] * 3
            assert 0 < found["bytes"] < found["maxBytes"]
            first = found["checkpoints"][0]["id"]
            # Ignored files are covered only if a tool names them.
            ignored = {path for path in before.keys() | changed.keys() if ".log" in path}
            told = {one["path"].rstrip("/") for one in (await it.data("get_changes"))["files"]}
            told |= {one["oldPath"] for one in (await it.data("get_changes"))["files"] if "oldPath" in one}
            files = {path for path in before.keys() | changed.keys() if before.get(path) != changed.get(path)}
            files = {path for path in files if not stat.S_ISDIR((changed.get(path) or before[path])[0])} - ignored
            assert files <= told

            would = await it.data("restore", checkpoint=first, dryRun=True)
            assert would["files"] and not would["conflicts"] and picture(folder) == changed
            done = await it.data("restore", checkpoint=first)
            kept = {path: form for path, form in picture(folder).items() if path not in ignored}
            assert kept == {path: form for path, form in before.items() if path not in ignored}
            if is_repository:
                assert of_git(folder) == own
                assert git(folder, "status", "--porcelain") == status
                git(folder, "fsck", "--no-progress")
                assert not (tmp_path / "ran").exists()

            await it.data("restore", checkpoint=done["checkpoint"])  # and the undo is undone
            again = {path: form for path, form in picture(folder).items() if path not in ignored}
            assert again == {path: form for path, form in changed.items() if path not in ignored}

    run(main())


def test_a_file_that_the_user_changed_is_not_overwritten(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        steps = [shell("echo agent >> src/a.py; echo new > new.txt"), "done", shell("echo more >> notes.txt"), "done"]
        async with rig(tmp_path, steps) as it:
            await it.run("one")
            (folder / "src/a.py").write_text("mine\n")
            await it.run("two")
            (folder / "notes.txt").write_text("my notes\n")
            (folder / "own.txt").write_text("own\n")
            first, second = (one["id"] for one in (await it.data("list_checkpoints"))["checkpoints"])

            would = await it.data("restore", checkpoint=first, dryRun=True)
            assert {one["path"] for one in would["conflicts"]} == {"src/a.py", "notes.txt", "own.txt"}
            refused = await it.call("restore", checkpoint=first)
            assert not refused["success"] and "src/a.py" in refused["error"] and "force" in refused["error"]
            assert (folder / "src/a.py").read_text() == "mine\n" and (folder / "new.txt").exists()

            done = await it.data("restore", checkpoint=first, files=["new.txt"])
            assert [one["path"] for one in done["files"]] == ["new.txt"] and not (folder / "new.txt").exists()
            would = await it.data("restore", checkpoint=second, dryRun=True)
            assert {one["path"] for one in would["conflicts"]} == {"notes.txt", "own.txt"}

            done = await it.data("restore", checkpoint=first, force=True)
            assert (folder / "src/a.py").read_text() == "one\ntwo\n" and not (folder / "own.txt").exists()
            await it.data("restore", checkpoint=done["checkpoint"])
            assert (folder / "own.txt").read_text() == "own\n" and (folder / "notes.txt").read_text() == "my notes\n"

    run(main())


def hunks_of(diff: str) -> list[str]:
    return ["@@" + part for part in ("\n" + diff).split("\n@@")[1:]]


def test_hunks_are_taken_back_one_by_one(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)
    old = "".join(f"line {n}\r\n" for n in range(40)) + "the end, \u00e4, without a newline"
    new = old.replace("line 3\r\n", "").replace("line 20\r\n", "line 20\r\nmore\r\n").replace("the end", "The end")
    (folder / "text.txt").write_bytes(old.encode())
    script = f"import pathlib; pathlib.Path('text.txt').write_bytes({new.encode()!r})"

    async def main():
        steps = [calls(("bash", {"command": f"{sys.executable} -c {shlex.quote(script)}; echo x > made"})), "done"]
        async with rig(tmp_path, steps) as it:
            await it.run("one")
            [first] = [one["id"] for one in (await it.data("list_checkpoints"))["checkpoints"]]
            made, text = (await it.data("get_changes"))["files"]
            hunks = hunks_of(text["diff"])
            assert len(hunks) == 3
            asked = {"checkpoint": first, "files": ["text.txt"]}
            would = await it.data("restore", **asked, hunks=[hunks[1]], dryRun=True)
            assert [(one["path"], one.get("added"), one["removed"]) for one in would["files"]] == [("text.txt", 0, 1)]
            assert (folder / "text.txt").read_bytes() == new.encode()

            done = await it.data("restore", **asked, hunks=[hunks[0], hunks[2]])
            now = old.replace("line 20\r\n", "line 20\r\nmore\r\n")
            assert (folder / "text.txt").read_bytes() == now.encode()
            refused = await it.call("restore", **asked, hunks=[hunks[0]])
            assert not refused["success"] and "do not fit" in refused["error"]
            await it.data("restore", checkpoint=done["checkpoint"])
            assert (folder / "text.txt").read_bytes() == new.encode(), "undo is undone"
            await it.data("restore", **asked, hunks=hunks)
            assert (folder / "text.txt").read_bytes() == old.encode()

            # A file that was not there has no hunks, and hunks are of one file.
            for files in (["made"], ["text.txt", "made"], None):
                fields = {"files": files} if files else {}
                refused = await it.call("restore", checkpoint=first, hunks=hunks_of(made["diff"]), **fields)
                assert not refused["success"] and "hunks" in refused["error"]
            assert (folder / "made").read_text() == "x\n"

    run(main())


def test_git_applies_the_diffs_in_the_working_directory(tmp_path):
    """In a part of a repository too; only files outside of it have their whole path."""
    folder, other = tmp_path / "work", tmp_path / "other"
    folder.mkdir()
    repository(folder)
    shutil.copytree(folder, other, symlinks=True)
    outside = tmp_path / "outside.txt"

    async def main():
        edit = ("edit", {"path": "a.py", "edits": [{"oldText": "one", "newText": "1"}]})
        written = [("write", {"path": path, "content": "new\n"}) for path in ("new.txt", "../top.txt", str(outside))]
        made = rig(tmp_path, [calls(*written), calls(edit), "done"])
        made.cwd = folder / "src"
        async with made as it:
            await it.run("go")
            return {one["path"]: one["diff"] for one in (await it.data("get_changes"))["files"]}

    diffs = run(main())
    assert f"+++ b{outside}\n" in diffs.pop(str(outside))
    for place in ("src", "."):
        git(other, "stash", "-q", "-u")
        for path in ("a.py", "new.txt", "../top.txt")[: 3 if place == "." else 2]:
            subprocess.run(["git", "apply"], input=diffs[path].encode(), cwd=other / place, check=True)
        assert (other / "src/a.py").read_text() == "1\ntwo\n" and (other / "src/new.txt").read_text() == "new\n"
    assert (other / "top.txt").read_text() == "new\n"


def test_the_conversation_goes_back_too_and_forth_again(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        steps = ["hello", shell("echo 1 > n"), shell("echo 2 > n"), "done", "again"]
        async with rig(tmp_path, steps, session=True) as it:
            await it.run("hi")
            await it.run("count")
            first, second = (await it.data("list_checkpoints"))["checkpoints"]
            assert first["prompt"] == second["prompt"] == "count" and first["files"] == 17
            path = it.agent.session.path

            done = await it.data("restore", checkpoint=second["id"], conversation=True)
            assert (folder / "n").read_text() == "1\n" and "editorText" not in done
            assert it.roles() == ["user", "assistant(stop)", "user", "assistant(toolUse)", "toolResult"]
            undone = await it.data("restore", checkpoint=first["id"], conversation=True)
            assert undone["editorText"] == "count" and it.roles() == ["user", "assistant(stop)"]
            assert not (folder / "n").exists()
        async with rig(tmp_path, ["again"], open=str(path)) as it:  # a new process goes on there
            assert it.roles() == ["user", "assistant(stop)"]
            listed = (await it.data("list_checkpoints"))["checkpoints"]
            assert [(one["kind"], one["onBranch"]) for one in listed] == [
                ("turn", False), ("turn", False), ("restore", False), ("restore", True),
            ]  # fmt: skip
            await it.data("restore", checkpoint=done["checkpoint"], conversation=True)
            assert (folder / "n").read_text() == "2\n" and it.roles()[-1] == "assistant(stop)" and len(it.roles()) == 8
            fork = (await it.data("get_fork_messages"))["messages"][-1]["entryId"]
            await it.data("clone")
            kept = (await it.data("list_checkpoints"))["checkpoints"]
            assert [one["isKept"] for one in kept] == [True] * 3 and fork
            await it.data("restore", checkpoint=first["id"])
            assert not (folder / "n").exists()

    run(main())


def test_nothing_is_restored_while_the_agent_works(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        async with rig(tmp_path, [shell("echo 1 > n"), {"text": ["x", Pause(gate="go"), "y"]}]) as it:
            await it.call("prompt", message="hi")
            await it.script.reached("go")
            (only,) = (await it.data("list_checkpoints"))["checkpoints"]
            assert [one["path"] for one in (await it.data("get_changes"))["files"]] == ["n"]
            refused = await it.call("restore", checkpoint=only["id"])
            assert not refused["success"] and "at work" in refused["error"]
            async with rig(tmp_path, [shell("touch here"), "done"]) as other:
                await other.run("hi")
                (own,) = (await other.data("list_checkpoints"))["checkpoints"]
                refused = await other.call("restore", checkpoint=own["id"])
                assert not refused["success"] and "Another session is at work" in refused["error"]
            it.script.release("go")
            await it.until("agent_settled")
            assert (await it.call("restore", checkpoint="nonsense"))["error"].startswith("There is no checkpoint")
            assert (await it.data("restore", checkpoint=only["id"]))["files"][0]["status"] == "deleted"

    run(main())


def test_a_restore_and_a_run_in_the_same_folder_wait_for_each_other(tmp_path):
    (tmp_path / "work").mkdir()

    def held(name):
        file = os.open(stored(tmp_path, name), os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def is_at_work():
        try:
            os.close(held("working"))
        except BlockingIOError:
            return True
        return False

    async def main():
        async with (
            rig(tmp_path, [shell("echo 1 > n"), "done"]) as one,
            rig(tmp_path, [shell("echo 2 > n"), "x"]) as two,
        ):
            await one.run("go")
            first = (await one.data("list_checkpoints"))["checkpoints"][0]["id"]
            lock = held("lock")  # the checkpoint of the other run takes its time
            await two.data("prompt", message="go")
            async with asyncio.timeout(20):
                while not is_at_work():  # noqa: ASYNC110 -- a lock tells nobody
                    await asyncio.sleep(0.01)
                assert "Another session" in (await one.call("restore", checkpoint=first, force=True))["error"]
            os.close(lock)
            await two.until("agent_settled")
        async with rig(tmp_path, [shell("echo 3 > n"), "done"]) as it:
            lock = held("working")  # a restore goes on
            await it.data("prompt", message="go")
            await it.until("tool_execution_start")
            await asyncio.sleep(0.1)
            assert (tmp_path / "work/n").read_text() == "2\n"
            os.close(lock)
            await it.until("agent_settled")
            assert (tmp_path / "work/n").read_text() == "3\n"

    run(main())


def test_turns_that_only_read_and_the_setting_leave_nothing(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        async with rig(tmp_path, [calls(("read", {"path": "notes.txt"})), "done"]) as it:
            await it.run("read")
            assert (await it.data("list_checkpoints"))["checkpoints"] == []
            assert (await it.data("get_changes"))["files"] == []
            assert not [*(tmp_path / "agent").glob("checkpoints*/**/states/*")]  # it may have looked at the files
        shutil.rmtree(tmp_path / "agent")
        async with rig(tmp_path, [shell("echo 1 > n"), "done"], settings={"checkpoints": False}) as it:
            await it.run("write")
            found = await it.data("list_checkpoints")
            assert found["checkpoints"] == [] and found["enabled"] is False
        assert not [*(tmp_path / "agent").glob("checkpoints*")]

    run(main())


def test_the_state_is_looked_at_while_the_model_thinks_and_is_that_before_the_call(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        thinking = {"text": [Pause(gate="go")], **shell("echo agent >> src/a.py; true")}
        async with rig(tmp_path, [thinking, shell("eval true"), "done"]) as it:
            await it.data("prompt", message="go")
            await until_true(lambda: any((tmp_path / "agent").glob("checkpoints*/**/lock")))
            await until_true(lambda: it.agent.checkpoints._ahead is None)
            assert (await it.data("list_checkpoints"))["checkpoints"] == [], "it is noted with the first call"
            (folder / "src/a.py").write_text("mine, at the last moment\n")
            it.script.release("go")
            await it.until("agent_settled")
            first, _ = (await it.data("list_checkpoints"))["checkpoints"]
            assert (folder / "src/a.py").read_text() == "mine, at the last moment\nagent\n"
            await it.data("restore", checkpoint=first["id"])
            assert (folder / "src/a.py").read_text() == "mine, at the last moment\n"

    run(main())


def test_files_are_looked_at_ahead_of_a_call_only_after_work_that_took_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "HEAD_START", 0.2)
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        after = [{"text": [Pause(gate=gate)], **shell("eval true")} for gate in ("brief", "long")]
        brief, long = calls(("write", {"path": "n", "content": "1\n"})), shell("sleep 0.25; echo 2 > n")
        async with rig(tmp_path, [brief, after[0], long, after[1], "x"]) as it:
            await it.data("prompt", message="go")
            await it.script.reached("brief")
            assert it.agent.checkpoints._timer is None and it.agent.checkpoints._ahead is None
            it.script.release("brief")
            await it.script.reached("long")
            began = stored(tmp_path, "lock").stat().st_mtime_ns
            await until_true(lambda: stored(tmp_path, "lock").stat().st_mtime_ns > began)
            it.script.release("long")
            await it.until("agent_settled")
            found = (await it.data("list_checkpoints"))["checkpoints"]
            assert len(found) == 4
            await it.data("restore", checkpoint=found[1]["id"])
            assert (folder / "n").read_text() == "1\n"

    run(main())


def test_nothing_is_written_when_nothing_has_changed(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        async with rig(tmp_path, [*[shell("eval true")] * 2, shell("echo 1 > n"), shell("eval true"), "done"]) as it:
            await it.run("go")
            found = (await it.data("list_checkpoints"))["checkpoints"]
            kept = [stored(tmp_path, f"states/{one['id']}.json").stat().st_ino for one in found]
            assert kept[0] == kept[1] == kept[2] != kept[3]
            await it.data("restore", checkpoint=found[1]["id"])
            assert not (folder / "n").exists()

    run(main())


def test_a_line_that_plainly_reads_has_no_checkpoint(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        both = calls(("bash", {"command": "cat notes.txt | wc -l"}), ("bash", {"command": "rm notes.txt"}))
        async with rig(tmp_path, [shell("ls src && git status"), both, shell("head -1 src/a.py"), "done"]) as it:
            (folder / "notes.txt").write_text("mine\n")
            await it.run("go")
            (only,) = (await it.data("list_checkpoints"))["checkpoints"]
            assert [file["path"] for file in (await it.data("get_changes"))["files"]] == ["notes.txt"]
            await it.data("restore", checkpoint=only["id"])
            assert (folder / "notes.txt").read_text() == "mine\n"

    run(main())


def test_what_the_user_runs_before_anything_else_is_among_the_changes(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        async with rig(tmp_path, [shell("echo agent > n"), "done"], session=True) as it:
            await it.data("bash", command="git status; ls")  # plainly reads
            assert (await it.data("list_checkpoints"))["checkpoints"] == []
            await it.data("bash", command="rm notes.txt; echo user > u")
            await it.data("bash", command="echo more >> u")
            (only,) = (await it.data("list_checkpoints"))["checkpoints"]
            assert only["kind"] == "command" and only["isKept"] and "prompt" not in only
            await it.run("go")
            changed = {one["path"]: one["status"] for one in (await it.data("get_changes"))["files"]}
            assert changed == {"n": "added", "notes.txt": "deleted", "u": "added"}
            # The user's own work is not overwritten unasked, the agent's is.
            would = await it.data("restore", checkpoint=only["id"], dryRun=True)
            why = "changed since, but not by this session's agent"
            assert would["conflicts"] == [{"path": path, "why": why} for path in ("notes.txt", "u")]
            await it.data("restore", checkpoint=only["id"], files=["n"])
            await it.data("restore", checkpoint=only["id"], force=True)
            assert (folder / "notes.txt").exists() and not (folder / "u").exists() and not (folder / "n").exists()

    run(main())


def test_files_that_are_not_covered_are_told_and_left_alone(tmp_path, monkeypatch):
    for module in (inventory, recorder):
        monkeypatch.setattr(module, "LARGEST", 1000)
    folder = tmp_path / "work"
    folder.mkdir()
    submodule(folder)
    (folder / "large").write_text("x" * 2000)
    (folder / "grows").write_text("small\n")
    (folder / ".env").write_text("KEY=1\n")
    (folder / ".gitignore").write_text(".env\n*.log\n")
    outside = tmp_path / "outside.txt"
    outside.write_text("outside\n")

    async def main():
        command = (
            "git init -q nested; echo 1 > nested/f; echo y > large; head -c 2000 /dev/zero > grows; "
            "echo 1 >> lib/notes.txt; echo > .gitignore; echo 2 >> notes.txt"
        )
        edits = [
            ("write", {"path": str(outside), "content": "changed\n"}),
            ("write", {"path": "old.log", "content": ""}),
        ]
        async with rig(tmp_path, [calls(*edits), shell(command), "done"]) as it:
            await it.run("go")
            found = await it.data("get_changes")
            told = {one["path"]: one["why"] for one in found["notCovered"]}
            assert {"large", "grows", "lib/", "nested/"} <= told.keys()
            assert {"notes.txt", str(outside), "old.log"} <= {one["path"] for one in found["files"]} | {"old.log"}
            first = (await it.data("list_checkpoints"))["checkpoints"][0]["id"]
            done = await it.data("restore", checkpoint=first)
            assert {"large", ".env", "nested/"} <= {one["path"] for one in done["notCovered"]}
            assert (folder / "grows").read_text() == "small\n"
            assert (folder / ".env").read_text() == "KEY=1\n"  # it was ignored then, and is not now
            assert (folder / "large").read_text() == "y\n" and (folder / "nested/f").exists()
            assert (folder / "lib/notes.txt").read_text() == "notes\n1\n"
            assert (folder / "notes.txt").read_text() == "notes\n"
            assert outside.read_text() == "outside\n" and (folder / "old.log").read_text() == "log\n"

    run(main())


# -- what it has, it gives back ------------------------------------------------------------------


def inside(folder: Path) -> None:
    """A repository whose `info/exclude` counts, with a folder that hands can spoil."""
    repository(folder)
    (folder / ".git/info/exclude").write_text("private\n")
    (folder / "private").write_text("mine\n")
    (folder / "src/deep").mkdir()
    (folder / "src/deep/m.py").write_text("m\n")


SPOILED = {
    "too large": "head -c 12000000 /dev/zero > src/a.py",
    "another repository": "git init -q src; rm src/deep/m.py; echo 2 > src/a.py",
    "another repository, nothing lost": "git init -q src",
    "gone, and a repository below": "rm -rf src; git init -q src/deep",
    "no repository": "rm -rf .git src",
    "nothing": 'cd /; rm -rf "$OLDPWD"',
    "closed": "chmod 000 notes.txt src",
    "closed but for its names": "chmod 600 src",
    "a folder that is called like ours": "mkdir -p .spindle-restoring/x; echo 1 > .spindle-restoring/y; rm src/a.py",
    "names like .git": "mkdir .GIT; echo 1 > 'git~1'; echo 2 > .GIT/x; rm src/a.py",
}


@pytest.mark.parametrize("how", SPOILED)
def test_the_target_decides_what_comes_back(tmp_path, how):
    """And the session says which folder it is, also in the next process."""
    is_closed = how.startswith("closed")
    if is_closed and os.getuid() == 0:
        pytest.skip("nothing is closed to root")
    folder = tmp_path / "work"
    folder.mkdir()
    inside(folder)
    before = picture(folder)

    async def main():
        async with rig(tmp_path, [shell(SPOILED[how]), "done"], session=True) as it:
            await it.run("spoil it")
            spoiled = picture(folder) if folder.exists() and not is_closed else {}
            path = it.agent.session.path
            [first] = (await it.data("list_checkpoints"))["checkpoints"]
            changed = {one["path"] for one in (await it.data("get_changes"))["files"]}
            if spoiled:
                is_spoiled = spoiled.get("src/a.py") != before["src/a.py"]
                assert ("src/a.py" in changed) == is_spoiled
                would = await it.data("restore", checkpoint=first["id"], dryRun=True)
                assert not would["conflicts"] and picture(folder) == spoiled
        folder.mkdir(exist_ok=True)  # nobody can work in a folder that is not there
        async with rig(tmp_path, ["x"], open=str(path)) as it:
            done = await it.data("restore", checkpoint=first["id"])
            now = picture(folder)
            if how == "nothing":
                before.pop("private"), before.pop("old.log")  # ignored
            assert {path: form for path, form in now.items() if path in before} == before
            assert "git~1" not in now
            told = {one["path"] for one in done["notCovered"]}
            assert told - {"src/", "src/deep/"} == ({".GIT/x"} if how == "names like .git" else set())
            await it.data("restore", checkpoint=done["checkpoint"])  # and the undo is undone
            if is_closed:
                mode = 0 if how == "closed" else 0o600  # notes.txt had that, too
                assert (folder / "src").stat().st_mode & 0o777 == mode == (folder / "notes.txt").stat().st_mode & 0o777
                (folder / "src").chmod(0o700)
                assert (folder / "src/a.py").exists()
                return
            again = picture(folder)
            ours = [name for name in spoiled if name.startswith(".spindle-restoring")]  # it has another name now
            for name in ("private", "old.log", "src/deep", *ours):
                spoiled.pop(name, None), again.pop(name, None)
            assert {path: form for path, form in again.items() if path in spoiled} == spoiled
            assert set(again) <= set(spoiled) | {"names", "src"}

    run(main())


def test_a_git_directory_that_is_not_there_costs_no_checkpoint(tmp_path):
    """As in a container that has a worktree, but not its repository."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / ".git").write_text("gitdir: /nowhere/.git/worktrees/w\n")
    (folder / "a").write_text("1\n")

    async def main():
        async with rig(tmp_path, [shell("echo 2 > a"), "done"]) as it:
            await it.run("go")
            [first] = (await it.data("list_checkpoints"))["checkpoints"]
            await it.data("restore", checkpoint=first["id"])
            assert (folder / "a").read_text() == "1\n"

    run(main())


def test_what_the_user_does_in_a_folder_that_became_a_repository_is_a_conflict(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    inside(folder)

    async def main():
        async with rig(tmp_path, [shell("git init -q src; echo 2 > src/a.py"), "done"]) as it:
            await it.run("go")
            [first] = (await it.data("list_checkpoints"))["checkpoints"]
            (folder / "src/a.py").write_text("mine\n")
            would = await it.data("restore", checkpoint=first["id"], dryRun=True)
            assert [one["path"] for one in would["conflicts"]] == ["src/a.py"]

    run(main())


@pytest.mark.only_here
def test_a_restore_that_fails_is_no_success_and_leaves_nothing_half(tmp_path):
    """As on a full disk: here files may not be larger than a megabyte."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("large", "other"):
        (folder / name).write_bytes(b"old\n" * (500_000 if name == "large" else 1))

    async def main():
        async with rig(tmp_path, [shell("echo new > large; echo new > other"), "done"]) as it:
            await it.run("go")
            [first] = (await it.data("list_checkpoints"))["checkpoints"]
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
            try:
                done = await it.call("restore", checkpoint=first["id"])
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            assert not done["success"] and "1 of 2 changes failed: large (File too large)" in done["error"]
            assert (folder / "large").read_text() == "new\n" and (folder / "other").read_text() == "old\n"
            assert sorted(os.listdir(folder)) == ["large", "other"]
            await it.data("restore", checkpoint=first["id"])
            assert (folder / "large").stat().st_size == 2_000_000

    run(main())


def test_a_link_in_the_place_of_a_folder_leads_nobody_out(tmp_path):
    folder, outside, others = tmp_path / "work", tmp_path / "outside", tmp_path / "others"
    for place in (folder / "ignored", outside, others):
        place.mkdir(parents=True)
        (place / "key").write_text("mine\n")
    (others / "key").write_text("secret\n")
    (folder / ".gitignore").write_text("ignored\n")

    async def main():
        edits = [("write", {"path": path, "content": "x"}) for path in ("ignored/key", str(outside / "key"))]
        links = f"for one in ignored {outside}; do rm -r $one; ln -s {others} $one; done"
        async with rig(tmp_path, [calls(*edits), shell(links), "done"]) as it:
            await it.run("go")
            changes = await it.data("get_changes")
            assert "secret" not in str(changes)
            assert {one["path"]: one["status"] for one in changes["files"]}["ignored/key"] == "deleted"
            first = (await it.data("list_checkpoints"))["checkpoints"][0]["id"]
            done = await it.call("restore", checkpoint=first)
            assert not done["success"] and "2 of 2 changes failed" in done["error"]
            assert "ignored/key (" in done["error"] and f"{outside}/key (a link leads to it)" in done["error"]
        assert (others / "key").read_text() == "secret\n"

    run(main())


@pytest.mark.only_here
def test_a_file_that_git_could_not_read_is_not_taken_for_a_new_one(tmp_path, monkeypatch):
    """Another program wrote to it at that moment, or the disk was full."""
    folder, real, fails = tmp_path / "work", base_git._run, True
    folder.mkdir()
    for name in ("cursed", "other"):
        (folder / name).write_text("old\n")

    async def cursed(name, arguments, **options):
        if fails and name == "update-index" and b"cursed\0" in (options.get("input") or b""):
            raise base_git.GitError("short read while indexing cursed")
        return await real(name, arguments, **options)

    monkeypatch.setattr(base_git, "_run", cursed)

    async def main():
        nonlocal fails
        async with rig(tmp_path, [shell("echo new > other"), "done", shell("echo new > cursed"), "done"]) as it:
            await it.run("go")
            told = {one["path"]: one["why"] for one in (await it.data("get_changes"))["notCovered"]}
            assert told == {"cursed": "git cannot read it: short read while indexing cursed"}
            fails = False
            await it.run("again")
            first, second = (await it.data("list_checkpoints"))["checkpoints"]
            assert first["notCovered"] == 1 and second["notCovered"] == 0
            done = await it.data("restore", checkpoint=first["id"])
            assert [one["path"] for one in done["notCovered"]] == ["cursed"]
            assert (folder / "other").read_text() == "old\n" and (folder / "cursed").read_text() == "new\n"
            await it.data("restore", checkpoint=second["id"], force=True)
            assert (folder / "cursed").read_text() == "old\n"

    run(main())


def told_once(it: Rig, words: str) -> None:
    """The model was told once, outside of the results."""
    messages = [frame["message"] for frame in it.of("message_end")]
    assert [one["role"] for one in messages if words in str(one)] == ["custom"]


@pytest.mark.only_here
def test_a_full_disk_of_ours_is_told(tmp_path, monkeypatch):
    folder, real = tmp_path / "work", base_git._run
    folder.mkdir()
    plain(folder)

    async def full(name, arguments, **options):
        if name in ("update-index", "hash-object"):
            raise base_git.GitError(f"git {name}: No space left on device")
        return await real(name, arguments, **options)

    monkeypatch.setattr(base_git, "_run", full)

    async def main():
        async with rig(tmp_path, [calls(*[("bash", {"command": "echo 1 > n"})] * 2), "done"]) as it:
            await it.run("go")
            assert [one["message"] for one in it.of("notice")] == [
                "No checkpoint of the files: git hash-object: No space left on device"
            ]
            told_once(it, "(git hash-object: No space left on device): what this call changed cannot be undone")
            assert (await it.data("list_checkpoints"))["checkpoints"] == []

    run(main())


def test_a_store_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / ("checkpoints-elsewhere" if _there else "checkpoints")).write_text("in the way")

    async def main():
        async with rig(tmp_path, [calls(*[("bash", {"command": "echo 1 > n"})] * 2), "done"]) as it:
            await it.run("go")
            assert "No checkpoint of the files" in it.of("notice")[0]["message"]
            told_once(it, "There is no checkpoint of the files")
            said = await it.call("restore", checkpoint="0" * 12)
            assert said["error"].startswith("Cannot read the checkpoints of") and "Not a directory" in said["error"]

    run(main())


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_a_pipe_that_git_would_wait_for_holds_no_run(tmp_path, monkeypatch, name):
    monkeypatch.setattr(base_git, "LOOK_AFTER", 0.2)
    (tmp_path / "work/inner").mkdir(parents=True)

    async def main():
        steps = [shell(f"mkfifo inner/{name}"), shell("for n in 1 2 3; do echo $n > inner/$n; done"), "done"]
        async with rig(tmp_path, steps) as it:
            await it.run("go")
            told = [frame["message"] for frame in it.frames if frame["type"] == "notice"]
            assert told == [f"No checkpoint of the files: inner/{name} is a pipe, and git would wait for it"]
            assert (tmp_path / "work/inner/3").exists()
            (tmp_path / "work/inner" / name).unlink()
            assert {one["path"] for one in (await it.data("get_changes"))["files"]} == {"inner/1", "inner/2", "inner/3"}

    run(main())


@pytest.mark.only_here
@pytest.mark.parametrize(
    "damage",
    [{"id": "../../../work/evil"}, {"id": "a" * 5000}, {"id": "a\0"}, {"leaf": ["x"]}, {"root": 5}, {"files": "x"}],
    ids=["a path", "too long", "no name", "leaf", "root", "files"],
)
def test_a_damaged_entry_of_a_checkpoint_is_passed_over(tmp_path, damage):
    with AgentProcess(
        [reply(call("bash", {"command": "echo 1 > x"})), reply("done")], base=tmp_path, session=True
    ) as it:
        it.run("go")
        file = Path(it.data("get_state")["sessionFile"])
        [known] = it.data("list_checkpoints")["checkpoints"]
        kept = next((tmp_path / "agent/checkpoints").glob(f"*/states/{known['id']}.json"))
        state = json.loads(kept.read_text()) | {"copies": {str(tmp_path / "victim"): None}}
        (tmp_path / "work/evil.json").write_text(json.dumps(state))
        (tmp_path / "victim").write_text("here")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if line.get("customType") == "checkpoint":
                line["data"] |= damage
        other = file.with_name("other.jsonl")
        other.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        it.data("switch_session", sessionPath=str(other))
        assert it.data("list_checkpoints")["checkpoints"] == [] and it.data("get_changes")["files"] == []
        wanted = damage.get("id", known["id"])
        said = it.call("restore", checkpoint=wanted, conversation=True, force=True)
        assert "There is no checkpoint" in said["error"]
        assert (tmp_path / "victim").exists() and b"Traceback" not in it.stderr


def test_of_a_folder_that_is_too_large_the_edits_of_tools_are_covered(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_FILES_OUTSIDE", 3)
    folder = tmp_path / "work"
    folder.mkdir()
    plain(folder)

    async def main():
        edit = ("edit", {"path": "src/a.py", "edits": [{"oldText": "one", "newText": "1"}]})
        steps = [
            calls(("write", {"path": "new/n.txt", "content": "n"}), ("write", {"path": "notes.txt", "content": "n"})),
            calls(edit),
            shell("echo 1 > by-shell"),
            "done",
        ]
        async with rig(tmp_path, steps) as it:
            frames = await it.run("go")
            assert any("do not cover" in frame.get("message", "") for frame in frames if frame["type"] == "notice")
            found = await it.data("list_checkpoints")
            assert {one["covers"] for one in found["checkpoints"]} == {"edits"}
            changed = {one["path"] for one in (await it.data("get_changes"))["files"]}
            assert changed == {"new/n.txt", "src/a.py", "notes.txt"}
            done = await it.data("restore", checkpoint=found["checkpoints"][0]["id"])
            assert (folder / "src/a.py").read_text() == "one\ntwo\n" and not (folder / "new/n.txt").exists()
            assert (folder / "by-shell").exists() and (folder / "notes.txt").read_text() == "notes\n"
            await it.data("restore", checkpoint=done["checkpoint"])
            assert (folder / "src/a.py").read_text() == "1\ntwo\n" and (folder / "new/n.txt").read_text() == "n"

    run(main())


def test_the_result_of_a_run_names_the_files_that_the_shell_changed(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)

    async def main():
        both = calls(("write", {"path": "kept.txt", "content": "k"}), ("write", {"path": "brief.txt", "content": "b"}))
        steps = [both, shell("sed -i s/one/1/ src/a.py; git mv notes.txt N; rm brief.txt; touch data.bin"), "done"]
        async with rig(tmp_path, steps) as it:
            await it.run("go")
            result = (await it.data("get_run_result"))["result"]
            assert result["filesChanged"] == ["N", "kept.txt", "notes.txt", "src/a.py"]

    run(main())


def test_what_is_too_old_goes_and_the_rest_stays(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    plain(folder)

    async def main():
        async with rig(tmp_path, [shell("echo 1 > n"), "done", shell("echo 2 > n"), "done"]) as it:
            await it.run("one")
            await it.run("two")
            first, second = (await it.data("list_checkpoints"))["checkpoints"]
            kept = it.agent.checkpoints.snapshots()
            long_ago = time.time() - snapshots.MAX_AGE - 60
            for name in (first["id"], first["id"] + "+"):
                os.utime(kept.store / "states" / f"{name}.json", (long_ago, long_ago))
            await kept.tidy()
            listed = (await it.data("list_checkpoints"))["checkpoints"]
            assert [one["isKept"] for one in listed] == [False, True]
            assert "not kept" in (await it.call("restore", checkpoint=first["id"]))["error"]
            await it.data("restore", checkpoint=second["id"])
            assert (folder / "n").read_text() == "1\n"

    run(main())


@pytest.mark.parametrize("damage", [b"", b"{", b'{"root": 5}'], ids=["empty", "half", "other"])
def test_a_damaged_manifest_fails_no_run_and_no_command(tmp_path, damage):
    folder = tmp_path / "work"
    folder.mkdir()
    plain(folder)

    async def main():
        async with rig(tmp_path, [*[shell("echo 1 >> n"), "done"] * 3]) as it:
            for prompt in ("one", "two"):
                await it.run(prompt)
            first, second = (await it.data("list_checkpoints"))["checkpoints"]
            states = it.agent.checkpoints.snapshots().store / "states"
            (states / f"{second['id']}.json").write_bytes(damage)
            assert [one["path"] for one in (await it.data("get_changes", since=first["id"]))["files"]] == ["n"]
            long_ago = time.time() - snapshots.MAX_AGE - 60
            os.utime(states / f"{first['id']}+.json", (long_ago, long_ago))
            it.agent.checkpoints._is_tidied = False  # as in the next process
            await it.run("three")
            result = (await it.data("get_run_result"))["result"]
            assert result["status"] == "ok", result
            listed = (await it.data("list_checkpoints"))["checkpoints"]
            assert [one["isKept"] for one in listed] == [True, False, True]
            await it.data("restore", checkpoint=first["id"], force=True)
            assert not (folder / "n").exists()

    run(main())


def test_files_that_the_repository_has_although_it_ignores_them_are_covered(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository(folder)
    (folder / "build").mkdir()
    (folder / "build/kept.txt").write_text("kept\n")
    git(folder, "add", "-f", "build/kept.txt")

    async def main():
        async with rig(tmp_path, [shell("echo 2 > build/kept.txt; echo 1 > build/new"), "done"]) as it:
            await it.run("go")
            assert [one["path"] for one in (await it.data("get_changes"))["files"]] == ["build/kept.txt"]
            (only,) = (await it.data("list_checkpoints"))["checkpoints"]
            await it.data("restore", checkpoint=only["id"])
            assert (folder / "build/kept.txt").read_text() == "kept\n" and (folder / "build/new").exists()

    run(main())


# -- kill -9 -------------------------------------------------------------------------------------

MOMENTS = {
    "the store is there": "checkpoints/*/lock",
    "git is at work": "checkpoints/*/git/*.lock",
    "the tree is made": "checkpoints/*/git/refs/kept/*",
    "the state is kept": "checkpoints/*/states/*.json",
}


def many_files(folder: Path) -> None:
    repository(folder)
    for number in range(600):
        (folder / f"src/f{number}").write_text(f"{number}\n" * 50)


def kill_when(agent: AgentProcess, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
    agent.kill()


@pytest.mark.only_here
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_agent_is_killed_while_it_takes_a_checkpoint(tmp_path, moment):
    folder = tmp_path / "work"
    folder.mkdir()
    many_files(folder)
    before, own = picture(folder), of_git(folder)
    spoil = call("bash", {"command": "rm -r src; echo changed > notes.txt"})
    with AgentProcess([reply(spoil), reply("done")], base=tmp_path, session=True) as agent:
        agent.prompt("spoil it")
        kill_when(agent, lambda: any((tmp_path / "agent").glob(MOMENTS[moment])))
    session = next((tmp_path / "agent/sessions").rglob("*.jsonl"))
    with AgentProcess(
        [reply(spoil), reply("done")], base=tmp_path, session=True, args=["--session", str(session)]
    ) as agent:
        # No tool has begun before its checkpoint was noted.
        assert agent.data("list_checkpoints")["checkpoints"] or picture(folder) == before
        if picture(folder) == before:
            agent.run("again")
        assert picture(folder) != before
        first = agent.data("list_checkpoints")["checkpoints"][0]["id"]
        agent.data("restore", checkpoint=first, force=True)
        assert picture(folder) == before and of_git(folder) == own
    shutil.rmtree(folder / ".git")  # the objects are our own
    (store,) = (tmp_path / "agent/checkpoints").iterdir()
    fsck = ["git", "fsck", "--no-progress", "--connectivity-only"]
    subprocess.run(fsck, check=True, env={**os.environ, "GIT_DIR": str(store / "git")})


@pytest.mark.only_here
def test_an_agent_is_killed_while_it_restores(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    many_files(folder)
    before = picture(folder)
    spoil = call("bash", {"command": "for f in src/*; do echo changed > $f; done; rm tight/x; echo 1 > n"})
    with AgentProcess([reply(spoil), reply("done")], base=tmp_path, session=True) as agent:
        agent.run("spoil it")
        changed = picture(folder)
        (only,) = agent.data("list_checkpoints")["checkpoints"]
        session = agent.data("get_state")["sessionFile"]
        agent.send("restore", checkpoint=only["id"])
        kill_when(agent, lambda: (folder / "src/f1").read_text() != "changed\n")
    assert picture(folder) not in (before, changed)
    with AgentProcess([reply("x")], base=tmp_path, session=True, args=["--session", session]) as agent:
        *_, saved = agent.data("list_checkpoints")["checkpoints"]
        assert saved["kind"] == "restore" and saved["isKept"]
        agent.data("restore", checkpoint=only["id"])
        assert picture(folder) == before
        agent.data("restore", checkpoint=saved["id"])
        assert picture(folder) == changed and not list(folder.rglob(".spindle*"))


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "linked"])
def test_the_working_directory_is_a_home_with_the_agent_directory_in_it(tmp_path: Path, linked: bool) -> None:
    """As `ssh host` gives it, and as a shell begins: our own files in there are neither kept nor put back."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    home = tmp_path / ("link" if linked else "real")
    files = {"a.txt": "one\n", "gone.txt": "gone\n", ".gitignore": "*.log\n!.cache/**\n", "old.log": "log\n"}
    for name, text in files.items():
        (home / name).write_text(text)
    lines = "echo two > a.txt; rm gone.txt; echo new > new.txt; echo more >> old.log"
    far = ["--exec", f"env -C {home}"] if _there else []
    steps = [reply(call("bash", {"command": lines})), reply("Done."), reply("Done again.")]
    with AgentProcess(steps, base=home, session=True, args=["--cwd", str(home), *far]) as agent:
        agent.run("go")
        changed = {one["path"]: one["status"] for one in agent.data("get_changes")["files"]}
        assert changed == {"a.txt": "modified", "gone.txt": "deleted", "new.txt": "added"}
        [first] = agent.data("list_checkpoints")["checkpoints"]
        back = agent.data("restore", checkpoint=first["id"])
        assert {name: (home / name).read_text() for name in files} == {**files, "old.log": "log\nmore\n"}
        assert not (home / "new.txt").exists()
        agent.data("restore", checkpoint=back["checkpoint"])
        assert (home / "a.txt").read_text() == "two\n" and not (home / "gone.txt").exists()
        agent.run("and again")
        stored = Path(agent.data("get_state")["sessionFile"]).read_text()
        assert stored.count('"role":"user"') == 2 and stored.count('"checkpoint"') >= 3
        assert agent.close_stdin() == 0


def test_the_working_directory_is_the_agent_directory(tmp_path: Path) -> None:
    """What Spindle keeps in there is not put back; edits are."""
    home = tmp_path / "agent"
    home.mkdir()
    (home / "AGENTS.md").write_text("one\n")
    change = call("edit", {"path": "AGENTS.md", "edits": [{"oldText": "one", "newText": "two"}]})
    far = ["--exec", f"env -C {home}"] if _there else []
    steps = [reply(change, call("bash", {"command": "echo made > made.txt"})), reply("Done.")]
    with AgentProcess(steps, base=tmp_path, session=True, args=["--cwd", str(home), *far]) as agent:
        agent.run("go")
        notices = [frame["message"] for frame in agent.frames if frame["type"] == "notice"]
        assert any("the agent directory" in notice and "only the tools' own edits" in notice for notice in notices)
        [first] = agent.data("list_checkpoints")["checkpoints"]
        agent.data("restore", checkpoint=first["id"])
        assert (home / "AGENTS.md").read_text() == "one\n" and (home / "made.txt").exists()
        assert agent.data("get_state")["messageCount"] == 5
        assert Path(agent.data("get_state")["sessionFile"]).read_text().count('"role":"user"') == 1


def of_subagents(folder: Path, steps: list[Any]) -> Rig:
    tools: Any = ("bash", "edit", "task")
    far = f"env -i PATH={os.defpath} HOME={folder}/home-there" if _there else None
    return Rig(folder, steps, tools=tools, far=far)


def test_a_file_that_one_subagent_has_made_is_none_that_was_there_for_another(tmp_path: Path) -> None:
    make = "echo one > x.txt; while [ ! -e stop ]; do sleep 0.01; done"
    change = calls(("edit", {"path": "x.txt", "edits": [{"oldText": "one", "newText": "two"}]}))
    both = calls(("task", {"prompt": "make"}), ("task", {"prompt": "change"}))
    steps = [
        {"match": "^go$", **both},
        {"match": "^make$", **shell(make)},
        {"match": "^change$", "text": ["I ", Pause(gate="made")], **change},
        {"match": "^change$", **shell("touch stop")},
        *({"match": f"^{who}$", "text": "Done."} for who in ("go", "make", "change")),
    ]

    async def main() -> None:
        async with of_subagents(tmp_path, steps) as rig:
            await rig.call("prompt", message="go")
            await until_true((rig.cwd / "x.txt").exists)
            rig.script.release("made")
            await rig.until("agent_settled")
            assert (rig.cwd / "x.txt").read_text() == "two\n"
            found = {one["path"]: one["status"] for one in (await rig.data("get_changes"))["files"]}
            assert found == {"x.txt": "added", "stop": "added"}
            first = (await rig.data("list_checkpoints"))["checkpoints"][0]["id"]
            await rig.data("restore", checkpoint=first)
            assert picture(rig.cwd) == {}

    run(main())


def test_calls_of_two_subagents_wait_for_one_checkpoint(tmp_path: Path) -> None:
    change = calls(("edit", {"path": "x.txt", "edits": [{"oldText": "one", "newText": "two"}]}))
    steps = [
        {"match": "^go$", **shell("touch begun")},
        {"match": "^go$", **calls(("task", {"prompt": "make"}), ("task", {"prompt": "change"}))},
        {"match": "^make$", "text": ["I ", Pause(gate="make")], **shell("touch made")},
        {"match": "^change$", "text": ["I ", Pause(gate="change")], **change},
        *({"match": f"^{who}$", "text": "Done."} for who in ("go", "make", "change")),
    ]

    async def main() -> None:
        async with of_subagents(tmp_path, steps) as rig:
            (rig.cwd / "x.txt").write_text("one\n")
            await rig.call("prompt", message="go")
            await rig.script.reached("make")
            await rig.script.reached("change")
            with stored(tmp_path, "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for who, started in (("make", 1), ("change", 2)):
                    rig.script.release(who)
                    begun = ("tool_execution_start",)
                    await until_true(lambda: len(inner(rig, begun)) == started)  # noqa: B023
                await asyncio.sleep(0.1)
                assert (rig.cwd / "x.txt").read_text() == "one\n"
            await rig.until("agent_settled")
            assert (rig.cwd / "x.txt").read_text() == "two\n"
            last = (await rig.data("list_checkpoints"))["checkpoints"][-1]["id"]
            await rig.data("restore", checkpoint=last)
            assert (rig.cwd / "x.txt").read_text() == "one\n" and not (rig.cwd / "made").exists()

    run(main())


def inner(rig: Rig, kinds: tuple[str, ...]) -> list[Any]:
    """Return the events of subagents of these kinds."""
    return [one for one in rig.of("subagent_event") if one["event"]["type"] in kinds]


def test_a_run_ends_though_its_files_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_END", 0.3)
    (tmp_path / "work").mkdir()
    steps = [shell("echo 1 > n"), {"text": ["I ", Pause(gate="end"), "am done."]}, shell("echo 2 > n"), "Again."]

    async def main() -> None:
        async with rig(tmp_path, steps) as it:
            await it.call("prompt", message="go")
            await it.script.reached("end")
            with stored(tmp_path, "lock").open("w") as lock:  # of a process that stands still
                fcntl.flock(lock, fcntl.LOCK_EX)
                it.script.release("end")
                await it.until("agent_settled")
            assert any("No checkpoint" in one["message"] for one in it.of("notice"))
            await it.run("go on")
            first = (await it.data("list_checkpoints"))["checkpoints"][0]["id"]
            await it.data("restore", checkpoint=first, force=True)
            assert not (tmp_path / "work/n").exists()

    run(main())


def test_a_restore_says_nothing_of_the_time_before_it(tmp_path: Path) -> None:
    """A file that `write` has made, and that is gone and there again by restores, was not there in between."""

    async def main() -> None:
        lines = ["rm a.txt", "rm a.txt", "touch b.txt"]
        write = calls(("write", {"path": "a.txt", "content": "two\n"}))
        steps = [shell(lines[0]), "1", write, "2", shell(lines[1]), "3", shell(lines[2]), "4"]
        async with rig(tmp_path, steps) as it:
            (it.cwd / "a.txt").write_text("one\n")
            for number in range(4):
                await it.run(f"run {number}")
            ids = [one["id"] for one in (await it.data("list_checkpoints"))["checkpoints"]]
            pictures = ["one\n", None, "two\n", None]
            for number in (0, 1, 0, 3, 2, 1, 3):
                await it.data("restore", checkpoint=ids[number])
                there = (it.cwd / "a.txt").read_text() if (it.cwd / "a.txt").exists() else None
                assert (number, there) == (number, pictures[number])

    run(main())
