"""Ways to make the user's next git run something. Each leaves a mark when it works, so without the gate each fails."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.programs.fence import Support
from spindle.testing import Script
from spindle.workspace.area import Wanted
from spindle.workspace.git_guard import GitGuard
from spindle.workspace.sandbox import Sandbox
from tests.tools.git_ways import MEANS, ORDINARY, WAYS, git, make_repository, use_git, variables
from tests.tools.test_sandbox import KINDS, shell
from tests.tools.test_sandbox import using as using


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Git notes whole paths: the repository is made once, and every test begins with a copy at the same place."""
    home = tmp_path_factory.mktemp("git-ways") / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables(home).items():
            patch.setenv(name, value)
        make_repository(home)
    shutil.copytree(home, home.with_name("copy"), symlinks=True)
    return home


@pytest.fixture
def top(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in variables(made).items():
        monkeypatch.setenv(name, value)
    shutil.rmtree(made)
    shutil.copytree(made.with_name("copy"), made, symlinks=True)
    return made / "work"


CASES = [*((way, "landlock") for way in WAYS), *((way, "bwrap") for way in [*WAYS][::6])]


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_git_does_not_turn_against_its_owner(top: Path, way: str, kind: str) -> None:
    using = KINDS[kind] or pytest.skip(f"no {kind} here")
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    said = "".join(shell(sandbox, MEANS + step)[1] for step in WAYS[way])
    use_git(top)
    assert not (top.parent / "MARK").exists(), said


def _unfenced(step: str, top: Path) -> None:
    env = {**os.environ, "TMPDIR": str(top.parent)}
    subprocess.run(["/bin/sh", "-c", MEANS + step], cwd=top, env=env, capture_output=True, timeout=30)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("a line that goes on", "a nested submodule")][::5])
def test_the_same_ways_work_without_the_gate(top: Path, way: str) -> None:
    """Else the test above would show nothing."""
    for step in WAYS[way]:
        _unfenced(step, top)
    use_git(top)
    assert (top.parent / "MARK").exists()


@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_work_with_git(top: Path, using: Support, what: str) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    code, said = shell(sandbox, f"set -e; {ORDINARY[what]}")
    assert code == 0, said
    assert "Sandbox" not in said
    code, said = shell(sandbox, "git init -q again; rm -rf again new; git status --short | head -3")
    assert (code, "Sandbox" in said) == (0, False), said


INDEX = (
    "import hashlib; b = open('.git/index', 'rb').read().replace(b'xgit/', b'.git/')[:-20]; "
    "open('.git/index', 'wb').write(b + hashlib.sha1(b).digest())"
)
RESTORED = {
    "an index with files of git": f'hook xgit/hooks post-checkout; git add xgit; rm -r xgit; python3 -c "{INDEX}"',
    "an index with its configuration": "mkdir xgit; cp .git/config xgit; evil >>xgit/config; git add xgit; rm -r xgit; "
    f'python3 -c "{INDEX}"',
    "a shorter index with files of git": "git update-index --index-version 4; hook xgit/hooks post-checkout; "
    f'git add xgit; rm -r xgit; python3 -c "{INDEX}"',
    "a work tree in git": "hook hooks post-index-change; git add hooks; git commit -qm h; rm -r hooks; "
    "git config core.worktree .",
    "a work tree that becomes git": "hook hooks post-index-change; git add hooks; git commit -qm h; rm -r hooks; "
    "mkdir w; git config core.worktree ../w; rmdir w; ln -s .git w",
}


@pytest.mark.parametrize("is_fenced", [True, False])
@pytest.mark.parametrize("way", RESTORED)
def test_git_writes_no_files_of_its_own(top: Path, way: str, is_fenced: bool) -> None:
    plain = top / "plain"
    plain.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        git(*words, cwd=plain)
    if is_fenced:
        sandbox = Sandbox(Wanted("workspace-write", str(plain)), KINDS["landlock"] or pytest.skip("no landlock here"))
        shell(sandbox, MEANS + RESTORED[way])
    else:
        _unfenced(RESTORED[way], plain)
    for words in (["reset", "-q", "--hard"] if "tree" in way else ["restore", "."], ["checkout", "."], ["status"]):
        git(*words, cwd=plain, check=False)
    assert (top.parent / "MARK").exists() is not is_fenced


def test_a_repository_with_a_name_that_is_no_text(top: Path, using: Support) -> None:
    """The note of what there was has to take it, else no command runs any more."""
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    for _ in range(2):
        code, said = shell(sandbox, "git init -q \"$(printf 'a\\377')\"; echo done")
        assert (code, said) == (0, "done\n")


def test_the_next_start_notices_what_a_dead_agent_left(top: Path, using: Support) -> None:
    program = (
        "import sys; from tests.tools.test_git_ways import *\n"
        "import tests.tools.test_sandbox as t; kind = t.KINDS[sys.argv[1]]\n"
        "sandbox = Sandbox(Wanted('workspace-write', sys.argv[2]), kind)\n"
        "shell(sandbox, MEANS + 'evil >>.git/config; touch ready; sleep 60')\n"
    )
    kind = "bwrap" if using.bwrap else "landlock"
    agent = subprocess.Popen([sys.executable, "-c", program, kind, str(top)], cwd=Path(__file__).parents[2])
    try:
        while not (top / "ready").exists():
            assert agent.poll() is None
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    _, said = shell(sandbox, ":")
    assert "whose agent was killed" in said
    assert "put back as it was" in said
    use_git(top)
    assert not (top.parent / "MARK").exists()
    sandbox.end(None, lambda text: None)
    assert os.listdir(top.parent / "agent/fences") == []


SECRET = "-----BEGIN KEY-----\n# TOPSECRET\nTOPSECRET\n[TOPSECRET]\n\tname = TOPSECRET\n"
LED = [
    ".git/config",
    "deep/.git/config",
    "deep/.gitmodules",
    "deep/.git/commondir",
    ".git/worktrees/tree/commondir",
    ".git/worktrees/elsewhere/commondir",
    ".git/rebase-merge/git-rebase-todo",
    "shared.inc",
]


@pytest.mark.parametrize("path", LED)
def test_the_gate_reads_no_secret_for_who_has_made_a_link(top: Path, using: Support, path: str) -> None:
    (top.parent / ".netrc").write_text(SECRET)
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    _, said = shell(sandbox, f"git init -q deep; ln -sf $TOP/.netrc {path}")
    _, more = shell(sandbox, f"cat {path}; find $TMPDIR -type f -o -type l | xargs cat")
    assert "TOPSECRET" not in said + more


def test_a_link_of_the_users_to_a_configuration_elsewhere_stays(top: Path, using: Support) -> None:
    (top / ".git/config").rename(top.parent / "conf")
    (top / ".git/config").symlink_to("../../conf")
    (top / "pre").mkdir()
    git("config", "core.hooksPath", "pre", cwd=top)
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    assert shell(sandbox, "git status >/dev/null") == (0, "")
    said = shell(sandbox, "rm .git/config; touch pre/post-index-change")[1]
    assert os.path.realpath(top / ".git/config") == str(top.parent / "conf")
    assert not os.listdir(top / "pre")
    assert "put back" in said


@pytest.mark.parametrize("folder", ["elsewhere", "work/scripts", "work/ci", "plain"])
def test_a_repository_around_names_files_of_ours(top: Path, using: Support, folder: str) -> None:
    """A worktree, a folder below a repository, and one that the user's own configuration names."""
    home = top.parent
    (home / "plain/more").mkdir(parents=True)
    (home / "elsewhere/scripts").mkdir()
    subprocess.run(["git", "config", "--global", "include.path", str(home / "plain/more/git.inc")], check=True)
    sandbox = Sandbox(Wanted("workspace-write", str(home / folder)), using)
    steps = {
        "elsewhere": "hook scripts pre-commit",
        "work/scripts": "hook . pre-commit",
        "work/ci": "hook . hook.sh",
        "plain": "evil >more/git.inc",
    }
    _, said = shell(sandbox, MEANS + steps[folder])
    use_git(top)
    assert not (home / "MARK").exists(), said
    assert "put back" in said or "Read-only" in said


async def _calls(top: Path, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    steps = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    model, found = Script([*steps, {"text": "Done."}]).model(), []
    async with await Agent.create(
        cwd=top, model=model, sandbox="workspace-write", tools=["bash", "write", "edit"], persist=False
    ) as agent:
        async for event in agent.prompt("go"):
            if event.type == "tool_execution_end":
                found.append(event.result.content[0].text)
    return found


def test_tools_pass_the_same_gate(top: Path) -> None:
    evil = f"[core]\n\tfsmonitor = touch {top.parent}/MARK; false\n"
    os.link(top / ".git/config", top / "x")
    (top / "deep/g3/objects").mkdir(parents=True)
    (top / "deep/g3/refs").mkdir()
    found = asyncio.run(
        _calls(
            top,
            ("write", {"path": "x", "content": evil}),
            ("write", {"path": "deep/.git", "content": "gitdir: g3\n"}),
            ("write", {"path": "deep/g3/config", "content": evil}),
            ("write", {"path": "deep/g3/HEAD", "content": "ref: refs/heads/main\n"}),
            ("write", {"path": "deep/g3/config", "content": evil}),
            ("write", {"path": "shared.inc", "content": evil}),
            ("bash", {"command": "ln -s g3 deep/.git; cat deep/g3/config"}),
        )
    )
    assert [text.startswith("EACCES: ") for text in found[:6]] == [True, True, False, False, False, True], found
    assert all("names something that git would run" in text for text in found[3:5])
    assert "fsmonitor" not in found[6]
    use_git(top)
    assert not (top.parent / "MARK").exists()


def test_what_changed_between_two_commands_is_looked_at_again(top: Path, using: Support) -> None:
    """What was there is not asked for again: not even if the user has made it another thing meanwhile."""
    (top / ".git/hooks").mkdir(exist_ok=True)
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    for _ in range(3):
        assert shell(sandbox, "sleep 0.05") == (0, "")
    (top / "a-hook").write_text("right")
    (top / "included").write_text("[user]\n\tname = right\n")
    (top / ".git/hooks/post-merge").symlink_to("../../a-hook")
    (top / ".git/config").write_text((top / ".git/config").read_text() + "[include]\n\tpath = ../included\n")
    (top / "CLAUDE.md").write_text("right")
    (top / "sub/late/.claude").mkdir(parents=True)
    for _ in range(2):
        shell(sandbox, "for one in a-hook included CLAUDE.md sub/late/.claude/x; do echo evil >>$one; done; true")
        assert [(top / one).read_text() for one in ("a-hook", "CLAUDE.md")] == ["right", "right"]
        assert "evil" not in (top / "included").read_text()
        assert not (top / "sub/late/.claude/x").exists()


@pytest.mark.parametrize(
    "evil", ["evil >>.git/config", "mkdir -p sub/.pi; touch sub/.pi/x", "hook .git/modules/libs/foo/hooks x"]
)
def test_what_one_agent_is_at_is_not_right_for_another(top: Path, evil: str) -> None:
    """Else the second one would put back what a command of the first one has planted, or let its own plant it again."""
    using = KINDS["landlock"] or pytest.skip("no landlock here")
    one, other = (Sandbox(Wanted("workspace-write", str(top)), using) for _ in range(2))
    before = subprocess.run(["find", ".git/config", "sub", "shared-hooks"], cwd=top, capture_output=True).stdout

    async def both() -> None:
        def start(sandbox: Sandbox, line: str) -> Any:
            words = ["/bin/sh", "-c", MEANS + line]
            return sandbox.start("", words, cwd=sandbox.cwd, env=os.environ, on_output=lambda data: None, owner=sandbox)

        first = start(one, f"{evil}; touch $TMPDIR/done; until [ -e go ]; do sleep 0.02; done")
        while not os.path.exists(f"{one.temporary}/done"):  # noqa: ASYNC110 - a file is all there is to wait for
            await asyncio.sleep(0.01)
        second = start(other, f"until [ -e on ]; do sleep 0.02; done; {evil}")
        (top / "go").touch()
        await first.wait()
        (top / "on").touch()
        await second.wait()

    asyncio.run(both())
    assert "fsmonitor" not in (top / ".git/config").read_text()
    after = subprocess.run(["find", ".git/config", "sub", "shared-hooks"], cwd=top, capture_output=True).stdout
    assert (after, (top / "shared-hooks/x").exists()) == (before, False)


def test_closed_folders_in_closed_folders_are_looked_into(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is closed to root")
    (tmp_path / "a").mkdir()
    guard = GitGuard([str(tmp_path)], str(tmp_path / "none"))
    guard.remember()
    (tmp_path / "a/b/c/.git").mkdir(parents=True)
    (tmp_path / "a/b/c/.git/config").write_text("[core]\n\tfsmonitor = evil\n")
    for folder in ("a/b/c", "a/b", "a"):
        (tmp_path / folder).chmod(0o311)
    for _, repair in guard.wrong(os.unlink):
        repair()
    assert "fsmonitor" not in (tmp_path / "a/b/c/.git/config").read_text()
