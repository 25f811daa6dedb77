"""A disk that is full for a while: the conversation goes on, the client is told, and nothing is missing afterwards.

Two ways to fill it: a limit on the size of files, set on the running process from outside, and, where mounting is
allowed, a small file system in memory with nothing left on it.
"""

import os
import random
import resource
import subprocess
import tempfile
from pathlib import Path

from tests.soak.attack import Attack, SoakAgent, as_stored, check_session, whole_lines
from tests.support.mock_model import call, reply

KIB = 1024


class Disks(Attack):
    name = "disks"
    share = 0.7

    def round(self, chance: random.Random) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            mounted = chance.random() < 0.5 and mount(place)
            try:
                self.strike(place, chance, mounted)
            finally:
                if mounted:
                    subprocess.run(["umount", "-l", str(place)], check=True)
            self.figures["full file systems" if mounted else "limits on file size"] += 1

    def strike(self, place: Path, chance: random.Random, mounted: bool) -> None:
        path = place / "session.jsonl"
        write = call("write", {"path": str(place / "written.txt"), "content": "y" * 300 * KIB})
        steps = [
            reply("answer " * chance.randrange(1, 500), *([write] if chance.random() < 0.2 else [])) for _ in range(40)
        ]
        with SoakAgent(steps, session=True, args=["--session", str(path)]) as agent:
            agent.run("before")
            free = self.fill(agent, path, chance, mounted)
            prompts = [f"full {number} " + "x" * chance.randrange(3000) for number in range(chance.randrange(2, 8))]
            for prompt in prompts:
                agent.run(prompt)
            notices = [frame for frame in agent.frames if frame.get("event") == "session_write"]
            self.must("A client is told that saving fails", bool(notices), agent.stderr[-300:])
            free()
            agent.run("after")
            shown = agent.data("get_messages")["messages"]
            assert agent.close_stdin() == 0, agent.stderr
            self.must("No error of ours reaches stderr", b"Traceback" not in agent.stderr, agent.stderr[-1500:])
        entries = whole_lines(path)
        stored = [entry.get("message", entry["type"]) for entry in entries if "message" in entry["type"]]
        # Remarks of ours are entries of another form.
        told = ["custom_message" if one["role"] == "custom" else as_stored(one) for one in shown]
        self.must("What a full disk held up is saved later", stored == told, f"{len(stored)} of {len(told)}")
        check_session(path)
        self.figures["prompts on a full disk"] += len(prompts)

    def fill(self, agent: SoakAgent, path: Path, chance: random.Random, mounted: bool):  # type: ignore[no-untyped-def]
        """Fill the disk, but for a few bytes; returns what makes it free again."""
        some = chance.randrange(0, 4 * KIB)
        if not mounted:
            infinity = resource.RLIM_INFINITY
            resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (path.stat().st_size + some, infinity))
            return lambda: resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (infinity, infinity))
        filler = path.parent / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4 * KIB)
            except OSError:
                pass
        return filler.unlink


def mount(place: Path) -> bool:
    """Mount a small file system in memory; False where that is not allowed."""
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True).returncode == 0
