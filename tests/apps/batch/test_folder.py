"""Repositories of users: whatever tasks do in their workspaces, the user's own checkout stays as it is."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.mock_model import MockModel, call, reply

from .conftest import Tasks, git, make_repo, state


def bash(command: str) -> dict:
    return {"calls": [{"name": "bash", "arguments": {"command": command}}]}


@pytest.fixture
def repo(tasks: Tasks) -> Path:
    """A repository in use: staged and unstaged changes, a stash, untracked and ignored files, hooks, a submodule."""
    inner = make_repo(tasks.place.root / "inner", i_txt="inner\n")
    middle = make_repo(tasks.place.root / "middle", m_txt="middle\n")
    git(middle, "submodule", "add", "-q", str(inner), "deep")
    git(middle, "commit", "-q", "-m", "sub")
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n", b_txt="b\n", c_txt="c\n")
    git(repo, "submodule", "add", "-q", str(middle), "sub")
    git(repo, "submodule", "update", "-q", "--init", "--recursive")
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "submodule")
    (repo / "a.txt").write_text("stashed\n")
    git(repo, "stash", "-q")
    (repo / "a.txt").write_text("unstaged\n")
    (repo / "b.txt").write_text("staged\n")
    git(repo, "add", "b.txt")
    (repo / "new.txt").write_text("untracked\n")
    (repo / "x.log").write_text("ignored\n")
    (repo / "sub/m.txt").write_text("dirty submodule\n")
    for hook in ("post-checkout", "post-commit", "reference-transaction", "post-index-change"):
        path = repo / ".git/hooks" / hook
        path.write_text("#!/bin/sh\ntouch '%s'\n" % (tasks.place.root / "hook-ran"))
        path.chmod(0o755)
    monitor = str(repo / ".git/hooks/post-commit")
    for name, value in (("core.fsmonitor", monitor), ("diff.submodule", "log"), ("core.safecrlf", "true")):
        git(repo, "config", name, value)
    tasks.write(*({"id": f"t{number}", "prompt": f"p{number}", "repo": "repo"} for number in range(3)))
    return repo


EDIT = """echo changed > c.txt; rm b.txt; echo new > sub/deep/new.txt; echo i > sub/deep/i.txt; echo l > y.log
printf '* text eol=crlf\\n' > .gitattributes"""


@pytest.mark.parametrize("kind", ["worktree", "clone", "copy"])
def test_a_repository_in_use(tasks: Tasks, repo: Path, kind: str) -> None:
    before = state(repo)
    (tasks.place.root / "hook-ran").unlink(missing_ok=True)
    tasks.script(bash(EDIT), "done")
    done = tasks.run("--workspace", kind)
    assert done.returncode == 0, done.stdout
    assert not (tasks.place.root / "hook-ran").exists(), "hooks are the user's"
    assert state(repo) == before
    patch = tasks.runs / "t1/patch.diff"
    text = patch.read_text()
    for wanted in ("+changed", "-staged" if kind == "copy" else "-b", "+++ b/sub/deep/new.txt", "+++ b/sub/deep/i.txt"):
        assert wanted in text
    assert "y.log" not in text and "untracked" not in text and "unstaged" not in text
    assert not list(tasks.runs.glob("*/work")) and not list(tasks.runs.glob("*/objects"))
    if kind != "copy":
        fresh = tasks.place.root / "fresh"
        git(repo.parent, "clone", "-q", "--recurse-submodules", str(repo), str(fresh))
        git(fresh, "apply", str(patch))
        assert (fresh / "sub/deep/i.txt").read_text() == "i\n" and not (fresh / "b.txt").exists()


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_a_repository_whose_name_is_no_text(tasks: Tasks, kind: str) -> None:
    place = make_repo(Path(os.fsdecode(os.fsencode(tasks.place.project) + b"/caf\xe9")), a_txt="a\n")
    (tasks.place.project / "repo").symlink_to(place)
    tasks.write({"id": "t", "prompt": "p", "repo": "repo"})
    tasks.script(bash("echo b > a.txt"), "done")
    assert tasks.run("--workspace", kind).returncode == 0
    assert "+b" in (tasks.runs / "t/patch.diff").read_text() and (place / "a.txt").read_text() == "a\n"


def test_what_an_agent_does_with_git_stays_in_its_worktree(tasks: Tasks, repo: Path) -> None:
    before = state(repo)
    tasks.script(bash("echo x > c.txt; git commit -qam 'no stash'"), bash("echo y > a.txt; git -C . stash"), "done")
    tasks.run("--workspace", "worktree")
    after = state(repo)
    for name in ("status", "stash", "refs", "head", "index", "worktrees", "config"):
        assert after[name] == before[name]
    assert "+x" in (tasks.runs / "t0/patch.diff").read_text(), "commits are part of the patch"
    assert (tasks.runs / "t0/session.jsonl").read_text().count("shares its stash") == 1


def test_a_subagent_leaves_the_stash_of_the_user(served: tuple[Tasks, MockModel], repo: Path) -> None:
    tasks, mock = served
    before = state(repo)["stash"]
    assert before
    mock.script(
        reply(call("task", {"prompt": "p"})),
        reply(call("bash", {"command": "git stash clear"})),
        reply("tried"),
        reply("ok"),
    )
    tasks.write({"id": "t0", "prompt": "p", "repo": "repo"})
    tasks.run("--workspace", "worktree")
    assert state(repo)["stash"] == before
    assert "shares its stash" in str(mock.requests[2].body["messages"])


def test_a_failed_task_keeps_its_worktree_until_it_is_done_again(tasks: Tasks, repo: Path) -> None:
    before = state(repo)
    tasks.script(bash("echo x > c.txt"), "done")
    assert tasks.run("--verify", "test $SPINDLE_TASK_ID != t1").returncode == 1
    assert (tasks.runs / "t1/work/c.txt").read_text() == "x\n"
    assert len(git(repo, "worktree", "list").splitlines()) == 2
    assert tasks.run("--redo", "failed").returncode == 0
    assert state(repo) == before


def test_killed_worktrees_are_cleared(tasks: Tasks, repo: Path) -> None:
    before = state(repo)
    tasks.script({**bash("sleep 30"), "text": "now"}, "done")
    process = tasks.place.start(*tasks.arguments("--json"), text=True)
    assert process.stdout is not None
    seen: set[str] = set()
    for line in process.stdout:
        if '"tool":"bash"' in line:
            seen.add(line.split('"id":"')[1][:2])
        if len(seen) == 3:
            break
    process.kill()
    process.communicate(timeout=10)
    assert len(git(repo, "worktree", "list").splitlines()) == 4
    # One that was killed in the making: git knows of it, and there is no directory.
    git(repo, "worktree", "add", "-q", "--detach", "--lock", str(tasks.runs / "t9/work"))
    subprocess.run(["rm", "-rf", str(tasks.runs / "t9")], check=True)
    tasks.script("done")
    tasks.write(*({"id": f"t{number}", "prompt": "p", "repo": "repo"} for number in (0, 1, 2, 9)))
    assert tasks.run().returncode == 0
    assert state(repo) == before


def test_a_copy_of_a_linked_worktree_has_a_repository_of_its_own(tasks: Tasks, repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "--detach", str(tasks.place.project / "linked"))
    tasks.write({"id": "a", "prompt": "p", "cwd": "linked"})
    before = state(repo), git(tasks.place.project / "linked", "status", "--porcelain=v2", "--branch")
    tasks.script(bash("echo x > c.txt; git stash; echo y > c.txt; git commit -qam mine"), "done")
    assert tasks.run("--workspace", "copy").returncode == 0
    assert (state(repo), git(tasks.place.project / "linked", "status", "--porcelain=v2", "--branch")) == before
    assert "+y" in (tasks.runs / "a/patch.diff").read_text()


def test_a_commit_a_directory_and_an_address(tasks: Tasks, repo: Path) -> None:
    tasks.write(
        {"id": "old", "prompt": "p", "repo": "repo", "ref": "HEAD~1"},
        {"id": "below", "prompt": "p", "cwd": "repo/sub"},
        {"id": "url", "prompt": "p", "repo": f"file://{tasks.place.root / 'inner'}", "ref": "main"},
        {"id": "bad", "prompt": "p", "repo": "repo", "ref": "nothing"},
        {"id": "gone", "prompt": "p", "repo": f"file://{tasks.place.root / 'gone'}"},
    )
    tasks.script(bash("pwd; ls"), "done")
    assert tasks.run("--retries", "0").returncode == 1
    lines = {line["id"]: line for line in tasks.lines()}
    assert lines["old"]["commit"] == git(repo, "rev-parse", "HEAD~1").strip()
    assert "m.txt" in (tasks.runs / "below/session.jsonl").read_text()
    assert "i.txt" in (tasks.runs / "url/session.jsonl").read_text()
    assert (lines["bad"]["status"], lines["gone"]["status"]) == ("error", "error")
    assert "Needed a single revision" in lines["bad"]["error"]
    assert "git clone" in lines["gone"]["error"]


def test_without_workspace_tasks_take_turns_unless_they_only_read(tasks: Tasks) -> None:
    tasks.script(bash("test ! -e busy && touch busy && sleep 0.1 && rm busy"), "done")
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(4)))
    assert tasks.run("--workspace", "none").returncode == 0
    sessions = [(tasks.runs / f"t{number}/session.jsonl").read_text() for number in range(4)]
    assert not any('"isError":true' in text for text in sessions)
    tasks.script({"text": "x", "delay": 0.5})
    tasks.write(*({"id": f"r{number}", "prompt": "p"} for number in range(8)))
    program = [sys.executable, "-c", "import sys; from spindle.apps.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*program, *tasks.arguments("--tools", "read,ls")],
        cwd=tasks.place.project,
        env=tasks.place.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    ends = [line["finished"] for line in tasks.lines() if line["id"].startswith("r")]
    begun = [line["durationMs"] for line in tasks.lines() if line["id"].startswith("r")]
    assert max(begun) < 8 * 500 and len(ends) == 8


def test_results_inside_a_repository_are_not_part_of_it(tasks: Tasks, repo: Path) -> None:
    before = state(repo)
    tasks.script(bash("echo x > c.txt"), "done")
    tasks.write({"id": "a", "prompt": "p"})
    for kind in ("worktree", "copy"):
        done = tasks.place.run(
            *("batch", "../tasks.jsonl", "-o", "runs", "--model", tasks.model),
            *("--redo", "all", "--workspace", kind),
            cwd=repo,
        )
        assert done.returncode == 0, done.stdout
        text = (repo / "runs/a/patch.diff").read_text()
        assert "+x" in text and "runs/" not in text
    subprocess.run(["rm", "-r", str(repo / "runs")], check=True)
    assert state(repo) == before


def test_a_change_of_the_same_size_in_the_second_of_the_checkout_is_seen(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo", a_txt="first")
    # Git, which knows times in seconds, looks into such a file if its index is not younger; so it must not seem to be.
    tasks.script(bash("printf other > a.txt; sleep 1"), "done")
    tasks.write(*({"id": f"t{number}", "prompt": "p", "repo": "repo"} for number in range(6)))
    done = tasks.run("--jobs", "6")
    assert done.returncode == 0, done.stdout
    for number in range(6):
        assert "+other" in (tasks.runs / f"t{number}/patch.diff").read_text()


def test_what_git_cannot_add_is_no_failure(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo")
    tasks.script(bash("git init -q inner && echo x > inner/x && echo y > y.txt"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    done = tasks.run()
    assert done.returncode == 0, done.stdout
    assert "+++ b/y.txt" in (tasks.runs / "a/patch.diff").read_text()
    assert "inner/ is a repository of its own" in (tasks.runs / "a/log").read_text()


def test_a_large_patch_takes_no_memory(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo")
    tasks.script(bash("head -c 40000000 /dev/zero | tr '\\0' 'x' > big.txt"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    code, most = tasks.run_measured()
    assert code == 0
    assert tasks.lines()[0]["patchBytes"] > 40_000_000
    assert most < 70 << 10


def test_a_copy_leaves_out_what_is_no_file(tasks: Tasks) -> None:
    os.mkfifo(tasks.place.project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tasks.place.project / "server"))  # the name of a socket has to be short
        tasks.script(bash("ls > names"), "done")
        tasks.write({"id": "a", "prompt": "p"})
        done = tasks.run("--workspace", "copy")
    assert done.returncode == 0, done.stdout
    assert "+tasks.jsonl" in (tasks.runs / "a/patch.diff").read_text()


def test_results_in_the_directory_of_the_tasks(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo")
    tasks.script(bash("echo new > new.txt"), "done")
    tasks.write({"id": "a", "prompt": "p"})
    repo = tasks.place.project / "repo"
    run = ("batch", "../tasks.jsonl", "-o", ".", "--model", tasks.model, "--retries", "0", "--workspace")
    done = tasks.place.run(*run, "copy", cwd=repo)
    assert "The results are in" in done.stdout and "Traceback" not in done.stderr
    assert tasks.place.run(*run, "worktree", cwd=repo).returncode == 0
    assert "+new" in (repo / "a/patch.diff").read_text()
    (repo / "later.txt").write_text("seen")
    assert "?? later.txt" in git(repo, "status", "--short"), "the project is not hidden from git"


def test_a_copy_that_is_given_up_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write over what the next attempt does in the same place."""
    import asyncio

    from spindle.apps.batch.folder import AttemptFolder, Place, Turns

    for number in range(5):
        tmp_path.joinpath("source", str(number)).mkdir(parents=True)
        tmp_path.joinpath("source", str(number), "x").write_text("x")
    began, go_on, copied = threading.Event(), threading.Event(), []

    def copy(one: str, other: str) -> None:
        copied.append(other)
        began.set()
        assert go_on.wait(20)

    monkeypatch.setattr("shutil.copy2", copy)

    async def work() -> None:
        space = AttemptFolder(Place(str(tmp_path / "source")), "copy", tmp_path / "runs/a", None, Turns(), print)
        making = asyncio.create_task(space.make())
        await asyncio.to_thread(began.wait)
        making.cancel()
        await asyncio.wait([making])
        go_on.set()

    asyncio.run(work())  # waits for its threads
    assert len(copied) == 1
