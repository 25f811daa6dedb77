"""The fence of the kernel around commands: programs that try to get out, and what stays of what they did."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from spindle.programs import fence
from spindle.programs.fence import Support
from spindle.shapes.sandbox import SANDBOX_LEVELS, Network, SandboxLevel, read_network, read_sandbox
from spindle.workspace.area import SandboxError, Wanted
from spindle.workspace.disk import ToolError
from spindle.workspace.sandbox import Sandbox
from spindle.workspace.texts import open_kept
from tests.tools.outside import things_outside

ESCAPES = Path(__file__).with_name("escapes.py")
NETWORK = ["connect", "datagram", "listen", "fast_open", "listen_on_any_port"]
SOCKETS = ["unix_socket", "renamed_socket", "pair_led_elsewhere"]
"""Of Landlock, unless there is no network."""
HERE = fence.support()
GAPS = ["signal to the agent"] if HERE.landlock < 6 else []
"""What the kernel cannot stop: docs/sandbox.md says so."""
KINDS = {
    "landlock": replace(HERE, bwrap=None) if HERE.landlock >= fence.LEAST_LANDLOCK else None,
    "bwrap": HERE if HERE.bwrap else None,
}


@pytest.fixture(params=KINDS)
def using(request: pytest.FixtureRequest) -> Support:
    if (kind := KINDS[request.param]) is None:
        pytest.skip(f"no {request.param} here: {HERE.told()}")
    return kind


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, with a folder outside of it and a home with a key."""
    home, outside, work = tmp_path / "home", tmp_path / "outside", tmp_path / "work"
    for folder in (home / ".ssh", outside, work):
        folder.mkdir(parents=True)
    (home / ".ssh/key").write_text("secret")
    (outside / "victim").write_text("as it was")
    monkeypatch.setenv("HOME", str(home))
    return work


@pytest.fixture
def port() -> Iterator[int]:
    """A port that takes connections and datagrams, and a unix socket of that number."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_UNIX) as local,
    ):
        one.bind(server.getsockname())
        local.bind(f"\0escape-{server.getsockname()[1]}")
        local.listen()
        yield server.getsockname()[1]


def run(sandbox: Sandbox, *argv: str) -> tuple[int, str]:
    said = bytearray()

    async def to_end() -> int:
        how = {"cwd": sandbox.cwd, "env": os.environ, "on_output": said.extend, "owner": sandbox}
        return await sandbox.start(argv[-1], argv, **how).wait()

    code = asyncio.run(to_end())
    return code, said.decode()


def shell(sandbox: Sandbox, command: str) -> tuple[int, str]:
    return run(sandbox, "/bin/sh", "-c", command)


def escaped(work: Path, using: Support, port: int, level: SandboxLevel, network: Network) -> list[str]:
    sandbox = Sandbox(Wanted(level, str(work), network=network), using)
    secret = str(work.parent / "home/.ssh/key")
    arguments = (str(work.parent / "outside"), secret, str(os.getpid()), str(port))
    with things_outside(work.parent / "outside"):
        code, said = run(sandbox, sys.executable, str(ESCAPES), *arguments)
    assert code == 0, said
    found: list[str] = json.loads(said)
    return found


@pytest.mark.parametrize(
    ("network", "open_ways"),
    [("on", [*NETWORK, *SOCKETS]), ("off", []), ([1], ["datagram", "listen_on_any_port", *SOCKETS])],
)
def test_nothing_gets_out(work: Path, using: Support, port: int, network: Network, open_ways: list[str]) -> None:
    found = escaped(work, using, port, "workspace-write", network)
    if using.bwrap and network == "off":  # a network of its own, with nobody else in it
        found = [name for name in found if name not in NETWORK]
    # That of bubblewrap is a private one.
    more = ["/dev/shm"] if using.bwrap else ["attribute", "chmod", "shared_memory"]
    more += ["affinity_of_the_agent"]
    assert set(found) <= {*open_ways, *GAPS, *more}, found
    if using.bwrap:
        assert not {*found} & {*SOCKETS}
    assert not (work.parent / "outside/new").exists()
    assert (work.parent / "outside/victim").read_text() == "as it was"


def test_the_same_ways_lead_out_without_a_fence(work: Path, port: int) -> None:
    """Else the test above would show nothing. Only ways that do no harm: this is a real machine."""
    harmless = ["append", "connect", "datagram", "hard_link", "link_to_folder", "listen", "memory_file"]
    harmless += [
        "read the secret",
        "rename_out",
        "truncate",
        "write a new file",
        "unix_socket",
        "renamed_socket",
        "pair_led_elsewhere",
    ]
    harmless += ["fifo", "read_a_terminal", "write_to_a_terminal", "shared_memory", "affinity_of_the_agent"]
    harmless += ["lock_a_file", "fast_open", "listen_on_any_port"]
    arguments = [str(work.parent / "outside"), str(work.parent / "home/.ssh/key"), str(os.getpid()), str(port)]
    words = [sys.executable, str(ESCAPES), *arguments, *harmless]
    with things_outside(work.parent / "outside"):
        done = subprocess.run(words, cwd=work, capture_output=True, text=True, timeout=20)
    assert json.loads(done.stdout) == sorted(harmless)


def test_read_only_writes_only_its_temporary_folder(work: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("read-only", str(work), writable=(str(work),)), using)
    code, said = shell(sandbox, 'echo x > "$TMPDIR/x" && cat "$TMPDIR/x" && echo x > here')
    assert code != 0
    assert said.startswith("x\n")
    assert f"stopped this command: it may not write {work}/here" in said
    assert os.listdir(work) == []
    sandbox.end(None, lambda text: None)
    assert not os.path.exists(sandbox.temporary)


def test_programs_that_give_another_reason(work: Path, using: Support) -> None:
    """npm takes what the fence refuses for a fault of its own, and tells the user to run sudo."""
    logs = work.parent / "home/.npm/_logs"
    logs.mkdir(parents=True)
    told = f"npm error Log files were not written due to an error writing to the directory: {logs}"
    assert (
        f"it may not write {logs}]"
        in shell(Sandbox(Wanted("workspace-write", str(work)), using), f"echo {told}; false")[1]
    )


def test_writable_folders_devices_and_moves(work: Path, using: Support) -> None:
    cache = work.parent / "cache"
    cache.mkdir()
    sandbox = Sandbox(Wanted("workspace-write", str(work), writable=("../cache",)), using)
    command = f"echo x > {cache}/x && mkdir a && mv {cache}/x a/x && echo y > /dev/null && head -c1 /dev/urandom >a/y"
    assert shell(sandbox, command) == (0, "")
    assert sorted(os.listdir(work / "a")) == ["x", "y"]
    assert not any(line.startswith("Commands write") and "cache" not in line for line in sandbox.holds())


def test_protected_files_stay_as_they_are(work: Path, using: Support) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "AGENTS.md").write_text("ours")
    config = (work / ".git/config").read_text()
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    change = "echo evil > AGENTS.md; rm -rf .git/hooks; git config core.pager evil; echo {} > .mcp.json; ln -s / .pi; :"
    _, said = shell(sandbox, change)
    assert ".mcp.json is protected and was changed: it is put back" in said
    assert (work / "AGENTS.md").read_text() == "ours"
    assert (work / ".git/config").read_text() == config
    assert (work / ".git/hooks/pre-commit.sample").stat().st_mode & 0o111
    assert sorted(os.listdir(work)) == [".git", "AGENTS.md"]
    me = "git -c user.name=n -c user.email=e"
    assert shell(sandbox, f"{me} add AGENTS.md && {me} commit -qm x")[0] == 0, "git itself works"
    (work / "AGENTS.md").write_text("changed by the user")
    assert shell(sandbox, ":") == (0, "")
    assert (work / "AGENTS.md").read_text() == "changed by the user"


def test_a_process_that_goes_on_cannot_wait_for_its_chance(work: Path, using: Support) -> None:
    (work / "AGENTS.md").write_text("ours")
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)

    async def both() -> str:
        said = bytearray()
        how = {"cwd": sandbox.cwd, "env": os.environ, "on_output": said.extend, "owner": sandbox}
        wait = "until [ -e go ]; do sleep 0.01; done"
        words = f"({wait}; mv AGENTS.md x; echo evil > AGENTS.md; touch done; sleep 9) >&- 2>&- &"
        await sandbox.start("", ["/bin/sh", "-c", words], **how).wait()
        (work / "go").touch()
        while not (work / "done").exists():  # noqa: ASYNC110 - a file is all there is to wait for
            await asyncio.sleep(0.01)
        assert await sandbox.start("", ["/bin/sh", "-c", "cat AGENTS.md"], **how).wait() == 0
        sandbox.end(sandbox, lambda text: None)
        return said.decode()

    assert asyncio.run(both()).endswith("ours")


def test_a_command_ends_its_own_processes_and_sets_its_own_limits(work: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    _, said = shell(sandbox, "sleep 60 & kill $!; wait $!; echo $?; ulimit -n 64; ulimit -n")
    assert said.endswith("143\n64\n")
    if HERE.landlock >= 6:
        _, said = shell(sandbox, f"kill -0 {os.getpid()}")
        assert "it may not send signals to processes of other commands" in said


def test_a_link_does_not_lead_the_repair_elsewhere(work: Path) -> None:
    using = KINDS["landlock"] or pytest.skip("no Landlock here")
    elsewhere = work.parent / "outside/git"
    (work / ".git").mkdir()
    (work / ".git/config").write_text("ours")
    elsewhere.mkdir()
    (elsewhere / "config").write_text("theirs")
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    shell(sandbox, f"rm -rf .git; ln -s {elsewhere} .git")
    assert (elsewhere / "config").read_text() == "theirs"
    assert (work / ".git/config").read_text() == "ours"
    assert not (work / ".git").is_symlink()


def test_a_worktree_can_commit_but_not_configure(work: Path, using: Support) -> None:
    main, tree = work / "main", work / "tree"
    me = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run(["git", "-C", str(main), *me, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", str(main), "worktree", "add", "-q", str(tree)], check=True)
    config = (main / ".git/config").read_text()
    sandbox = Sandbox(Wanted("workspace-write", str(tree)), using)
    command = f"touch f && git add f && git {' '.join(me)} commit -qm y && git log --oneline | wc -l"
    assert shell(sandbox, command)[1].split() == ["2"]
    shell(sandbox, f"git config user.name evil; echo evil > {main}/.git/hooks/x; echo evil > {main}/f")
    assert (main / ".git/config").read_text() == config
    assert not (main / ".git/hooks/x").exists()
    assert not (main / "f").exists()
    (tree / "fake").mkdir()
    (tree / "fake/.git").write_text(f"gitdir: {work.parent}/outside\n")
    fooled = Sandbox(Wanted("workspace-write", str(tree / "fake")), using)
    assert str(work.parent / "outside") not in fooled.area.writable


def test_a_rule_that_denies_a_file_hides_it_where_that_is_possible(work: Path, using: Support) -> None:
    (work / ".env").write_text("secret")
    (work.parent / "outside/.env").write_text("secret")
    denied = (str(work / ".env"), str(work.parent / "outside/.env"))
    sandbox = Sandbox(Wanted("workspace-write", str(work), denied=denied), using)
    assert shell(sandbox, f"cat {denied[1]}")[1].split()[-1] != "secret"
    gap = any(f"{work}/.env can be read" in line for line in sandbox.does_not_hold())
    assert gap is (using.bwrap is None)
    assert ("secret" in shell(sandbox, "cat .env; :")[1].split()) is gap


def test_our_own_work_stays_inside_whatever_links_appear(work: Path) -> None:
    using = KINDS["landlock"] or pytest.skip("no Landlock here")
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)

    def swapped() -> None:
        (work / "folder").symlink_to(work.parent / "outside")
        (work / "folder/new").write_text("evil")

    with pytest.raises(PermissionError):
        sandbox.inner.run(swapped)
    (work.parent / "outside/new").write_text("other threads are free")
    assert threading.active_count() < 50


def test_what_cannot_be_had_is_an_error_with_choices(work: Path) -> None:
    with pytest.raises(SandboxError, match=r'"read-only" cannot be had here.*Choices: .*Here: no Landlock'):
        Sandbox(Wanted("read-only", str(work)), Support(0, None, False))
    with pytest.raises(SandboxError, match="some ports open needs Landlock ABI 4"):
        Sandbox(Wanted("read-only", str(work), network=[443]), Support(3, None, True))
    with pytest.raises(SandboxError, match="cannot be switched off here"):
        Sandbox(Wanted("read-only", str(work), network="off"), Support(3, None, False))


def test_words_of_the_command_line() -> None:
    assert list(SANDBOX_LEVELS) == list(get_args(SandboxLevel))
    assert (read_network("off"), read_network("443,80")) == ("off", [443, 80])
    for wrong in ("maybe", "0", "70000", "1,"):
        with pytest.raises(ValueError, match="on, off, or ports"):
            read_network(wrong)
    for wrong in ("workspace", {"level": "none"}, {"levle": "off"}, {"network": [0]}, 5):
        with pytest.raises(ValueError, match="sandbox"):
            read_sandbox(wrong)


def test_the_profile_for_macos_says_the_same() -> None:
    area = fence.Area(("/w", '/a"b'), ("/w/.git/config",), ("/h/.ssh",), network=[443])
    lines = fence.seatbelt_profile(area).split("\n")
    assert lines.index("(deny file-write*)") < lines.index('(allow file-write* (subpath "/w"))')
    assert lines.index('(allow file-write* (subpath "/w"))') < lines.index(
        '(deny file-write* (subpath "/w/.git/config"))'
    )
    assert '(allow file-write* (subpath "/a\\"b"))' in lines
    assert '(allow network-outbound (remote tcp "*:443"))' in lines


def test_a_command_costs_little_more(work: Path) -> None:
    """Measured by docs/sandbox.md: 0.4 ms with Landlock. Here only that no rules are made twice."""
    using = KINDS["landlock"] or pytest.skip("no Landlock here")
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    # Others make files beside our home, in the folder for temporary ones.
    assert any(sandbox.fence.ruleset() == sandbox.fence.ruleset() for _ in range(50))
    (work.parent / "home/new").touch()  # readable from now on
    assert shell(sandbox, 'cat "$HOME/new"') == (0, "")
    shutil.rmtree(work)
    work.mkdir()
    assert shell(sandbox, "touch x") == (0, ""), "the folder is another one, with the same name"


def test_secrets_that_come_later_and_the_folder_of_the_agent(
    work: Path, using: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = work.parent / "home"
    agent = home / ".pi/agent"
    (agent / "skills/one").mkdir(parents=True)
    (agent / "skills/one/SKILL.md").write_text("how to")
    (agent / "models.json").write_text("sk-MODELS")
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    monkeypatch.delenv("SPINDLE_DIR", raising=False)
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    assert "sk-MODELS" not in shell(sandbox, "cat ~/.pi/agent/models.json")[1]
    assert shell(sandbox, "cat ~/.pi/agent/skills/*/SKILL.md") == (0, "how to")
    (agent / "auth.json").write_text("sk-LATE")
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text("sk-LATE")
    (home / "elsewhere").mkdir()
    (home / "elsewhere/token").write_text("sk-LATE")
    (home / ".config").mkdir()
    (home / ".config/rclone").symlink_to(home / "elsewhere")
    (home / ".bash_history").write_text("export KEY=sk-LATE")
    _, said = shell(sandbox, "cat ~/.pi/agent/auth.json ~/.aws/* ~/.config/rclone/* ~/elsewhere/* ~/.bash_history")
    assert "sk-LATE" not in said
    for path in (agent / "auth.json", home / ".aws/credentials", home / "elsewhere/token", home / ".bash_history"):
        with pytest.raises(ToolError, match="is a secret"):
            sandbox.require(str(path))
    sandbox.require(str(agent / "skills/one/SKILL.md"))
    os.link(home / ".bash_history", work / "another-name")
    with pytest.raises(ToolError, match="is a secret"):
        sandbox.require(str(work / "another-name"))
    for name in (".histfile", ".config/configstore/firebase-tools.json", ".doppler/.doppler.yaml", ".mc/config.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("sk-LATE")
        assert "sk-LATE" not in shell(sandbox, f"cat ~/{name}")[1]
    (home / ".npmrc").write_text("a token")
    assert "token" not in shell(sandbox, "cat ~/.npmrc")[1]
    named = Sandbox(Wanted("workspace-write", str(work), writable=("~/.npmrc",)), using)
    assert shell(named, "cat ~/.npmrc") == (0, "a token")


def test_read_answers_as_cat_does(work: Path) -> None:
    using = KINDS["bwrap"] or pytest.skip("no bubblewrap here")
    beside = work.parent / "outside/victim"  # in /tmp, which is shown empty
    sandbox = Sandbox(Wanted("workspace-write", str(work), writable=("../cache",)), using)
    (work.parent / "cache/x").write_text("cached")
    code, said = shell(sandbox, f"cat {beside}; cat {work.parent}/cache/x")
    assert f"cannot see {beside}" in shell(sandbox, f"cat {beside}")[1]
    assert (code, "cached" in said, "as it was" in said) == (0, True, False)
    with pytest.raises(ToolError, match="shows this folder empty"):
        sandbox.require(str(beside))
    sandbox.require(str(work.parent / "cache/x"))
    path, file = open_kept("spindle-bash-")
    os.write(file, b"a long output")
    os.close(file)
    sandbox.require(path)
    assert shell(sandbox, f"cat {path}") == (0, "a long output")
    os.unlink(path)


def test_what_is_newly_refused_says_why(work: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)
    pair = "import pty, os; os.close(pty.openpty()[0])"
    code, said = run(sandbox, sys.executable, "-c", pair)
    assert (code == 0) is (using.bwrap is not None)
    assert code == 0 or "terminals are closed" in said
    code, said = run(sandbox, sys.executable, "-c", "import multiprocessing; multiprocessing.Lock()")
    assert (code == 0) is (using.bwrap is not None)
    assert code == 0 or "files in /dev/shm" in said
    assert "may not change priorities" in shell(sandbox, "renice -n 5 -p $$; false")[1]
    assert shell(sandbox, "nice -n 5 true; git init -q .; test -d .git/hooks") == (0, "")


def test_sockets_by_other_names_are_hidden(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ssh makes its own: bound by one name, and linked to another. The last program is elsewhere by now."""
    using = KINDS["bwrap"] or pytest.skip("no bubblewrap here")
    monkeypatch.chdir(work.parent / "outside")
    monkeypatch.setattr("spindle.workspace.area.PRIVATE", ())
    with ExitStack() as stack:
        one, two, three, four = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4))
        one.bind("relative")
        two.bind(f"{os.getcwd()}/t")
        os.rename("t", "renamed")
        other = work.parent / "outside/other"
        other.mkdir()
        os.chdir(other)
        three.bind(str(other / "plain"))
        four.bind("t")
        os.rename("t", "moved")
        for local in (one, two, three, four):
            local.listen()
        os.chdir(work.parent / "outside")
        sandbox = Sandbox(Wanted("workspace-write", str(work), network="off"), using)
        for name in ("relative", "renamed", "other/plain", "other/moved"):
            code = f"import socket; socket.socket(socket.AF_UNIX).connect('../outside/{name}')"
            assert "refused" in run(sandbox, sys.executable, "-c", code)[1]


def test_ports_are_no_rule_for_packets_that_root_makes(work: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(work), network=[443]), using)
    for family, kind in ((17, 3), (2, 3), (10, 3)):
        code = f"import socket; socket.socket({family}, {kind}, 1)"
        assert "Error" in run(sandbox, sys.executable, "-c", code)[1]
    assert run(sandbox, sys.executable, "-c", "import socket; socket.socket(16, 3, 0); socket.socket(2, 1)") == (0, "")


def test_tools_at_the_same_time_while_folders_change(work: Path, using: Support) -> None:
    """The rules of the kernel are made anew then, while other threads are about to use the ones before."""
    sandbox = Sandbox(Wanted("workspace-write", str(work)), using)

    def write(number: int) -> None:
        for i in range(20):
            (work.parent / f"entry{number}").mkdir()
            sandbox.change((work / f"{number}-{i}").touch)
            (work.parent / f"entry{number}").rmdir()

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(write, range(6))) == [None] * 6
    assert len(os.listdir(work)) >= 120
