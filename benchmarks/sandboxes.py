"""One table of ways out, tried under our sandbox, plain bubblewrap, codex's sandbox and srt.

The ways are those of `tests/tools/escapes.py`, and with `--git` those of `tests/tools/git_ways.py`. The network is on
where a sandbox has a switch for it. Each sandbox may write the working directory, and nothing else. Programs that are
not found are left out; npm installs codex and srt.

    python -m benchmarks.sandboxes [--as root|user|bare] [--git]

`user` is a normal user, `bare` root without capabilities where no user namespace can be made, as in many containers.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tools import git_ways
from tests.tools.outside import things_outside

from benchmarks.peers import ROOT

ESCAPES = ROOT / "tests/tools/escapes.py"
NOBODY = "65534"
Wrap = Callable[[Path, list[str]], list[str]]


def ours(kind: str) -> Wrap:
    return lambda work, words: [sys.executable, "-m", "benchmarks.sandboxes", "--run", kind, "--", *words]


def bwrap(work: Path, words: list[str]) -> list[str]:
    return ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(work), str(work), *words]


def codex(work: Path, words: list[str]) -> list[str]:
    settings = ("sandbox_mode='workspace-write'", "sandbox_workspace_write.network_access=true")
    return ["codex", "sandbox", *(word for one in settings for word in ("-c", one)), "--", *words]


def srt(work: Path, words: list[str]) -> list[str]:
    settings = work.parent / "srt.json"
    files = {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []}
    settings.write_text(
        json.dumps({"network": {"allowedDomains": ["localhost"], "deniedDomains": []}, "filesystem": files})
    )
    return ["srt", "--settings", str(settings), *words]


WRAPS: dict[str, Wrap] = {
    "Spindle, Landlock": ours("landlock"),
    "Spindle, bubblewrap": ours("bwrap"),
    "bwrap": bwrap,
    "codex": codex,
    "srt": srt,
}
IDENTITIES: dict[str, list[str]] = {
    "root": [],
    "user": ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"],
    "bare": [
        "unshare", "-Ur", "sh", "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all "$@"', "sh",
    ],
}  # fmt: skip


def run_ours(kind: str, words: list[str]) -> int:
    """Run a command in our sandbox, in this process."""
    from msgspec.structs import replace

    from spindle.programs.fence import support
    from spindle.workspace.area import Wanted
    from spindle.workspace.sandbox import Sandbox

    using = support()
    if kind == "bwrap" and using.bwrap is None:
        print("bubblewrap does not work here", file=sys.stderr)
        return 1
    sandbox = Sandbox(
        Wanted("workspace-write", os.getcwd()), replace(using, bwrap=None) if kind == "landlock" else using
    )

    async def main() -> int:
        how: dict[str, Any] = {"cwd": sandbox.cwd, "env": os.environ, "owner": sandbox}
        how["on_output"] = sys.stdout.buffer.write
        return await sandbox.start(words[0], words, **how).wait()

    return asyncio.run(main())


def attempt(wrap: Wrap, identity: list[str], port: int) -> tuple[list[str] | None, str, float]:
    """Return the ways that lead out, None if the sandbox does not start; its complaint; and what `true` costs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        home, outside, work = place / "home", place / "outside", place / "work"
        for folder in (home / ".ssh", outside, work):
            folder.mkdir(parents=True)
        (home / ".ssh/key").write_text("secret")
        (outside / "victim").write_text("as it was")
        subprocess.run(["chmod", "-R", "a+rwX", name], check=True)
        env = {
            **os.environ,
            "HOME": str(home),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        }
        agent = subprocess.Popen([*identity, "sleep", "60"])
        arguments = [str(outside), str(home / ".ssh/key"), str(agent.pid), str(port)]
        words = [*identity, *wrap(work, [sys.executable, str(ESCAPES), *arguments])]
        true = [*identity, *wrap(work, ["/bin/true"])]
        try:
            with things_outside(outside):
                done = subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, timeout=120)
            begin = time.monotonic()
            for _ in range(3):
                subprocess.run(true, cwd=work, env=env, capture_output=True, timeout=60)
            seconds = (time.monotonic() - begin) / 3
        finally:
            agent.kill()
            agent.wait()
    try:
        return json.loads(done.stdout.strip().splitlines()[-1]), "", seconds
    except (ValueError, IndexError):
        return None, (done.stderr.strip().splitlines() or ["no output"])[-1][:100], seconds


def against_git(wrap: Wrap, identity: list[str]) -> list[str]:
    """Return the ways after which the user's next git runs something. Each step is a command of its own."""
    found = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        home, copy = Path(name) / "home", Path(name) / "copy"
        home.mkdir()
        os.environ.update(git_ways.variables(home))
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        git_ways.make_repository(home)
        shutil.copytree(home, copy, symlinks=True)
        for way, steps in git_ways.WAYS.items():
            if any("until" in step for step in steps):
                continue  # here each step has an agent of its own, which ends what goes on
            shutil.rmtree(home)
            shutil.copytree(copy, home, symlinks=True)
            if identity:
                subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", name], check=True)
            for step in steps:
                line = git_ways.MEANS + step
                words = [*identity, *wrap(home / "work", ["/bin/sh", "-c", line])]
                subprocess.run(words, cwd=home / "work", env=env, capture_output=True, timeout=60)
            if identity:
                subprocess.run(["chown", "-R", "0:0", name], check=True)
            git_ways.use_git(home / "work")
            if (home / "MARK").exists():
                found.append(f"git: {way}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sandboxes", description=__doc__)
    parser.add_argument("--as", dest="identity", choices=IDENTITIES, default="root")
    parser.add_argument("--git", action="store_true", help="also try what makes git run something; takes minutes")
    parser.add_argument("--run", choices=("landlock", "bwrap"), help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run_ours(options.run, options.words)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_UNIX) as local,
    ):
        port = server.getsockname()[1]
        one.bind(server.getsockname())
        local.bind(f"\0escape-{port}")
        local.listen()
        found = {}
        for name, wrap in WRAPS.items():
            if name in ("bwrap", "codex", "srt") and shutil.which(name) is None:
                continue
            found[name] = attempt(wrap, IDENTITIES[options.identity], port)
            if options.git and (out := found[name][0]) is not None:
                out += against_git(wrap, IDENTITIES[options.identity])
    ways = sorted({way for out, *_ in found.values() for way in out or []})
    print(f"| way out, as {options.identity} | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for way in ways:
        cells = [
            "does not start" if out is None else "**open**" if way in out else "closed" for out, *_ in found.values()
        ]
        print(f"| {way} | {' | '.join(cells)} |")
    print(f"| `true`, with the start | {' | '.join(f'{seconds * 1000:.0f} ms' for *_, seconds in found.values())} |")
    for name, (out, complaint, _) in found.items():
        if out is None:
            print(f"\n{name}: {complaint}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
