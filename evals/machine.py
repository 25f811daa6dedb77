"""A small machine of its own for a task that was written for a container.

The programs are those of this machine, read-only; some folders at the root, as `/app` and `/tests`, belong to the task.
It has its own processes, which end with it. This is no sandbox: network, `/tmp` and the files that the user may read
are those of this machine. It needs Linux, and root or user namespaces.
"""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The new root is a tmpfs with everything of the old one, so that folders can be added without touching the old one.
_SCRIPT = """
set -e
PATH=$PATH:/usr/sbin:/sbin
folder=$1 new=$2; shift 2
mount -t tmpfs none "$new"
for path in /*; do
  case $path in
    /proc|/lost+found) continue ;;
  esac
  if [ -L "$path" ]; then cp -P "$path" "$new$path"; continue; fi
  [ -d "$path" ] || continue
  mkdir "$new$path"
  case $path in
    /dev|/sys|/run|/tmp) mount --rbind "$path" "$new$path" ;;
    *) mount --rbind "$path" "$new$path" && mount -o remount,bind,ro "$new$path" ;;
  esac
done
mkdir -p "$new/proc"
mount -t proc proc "$new/proc"
mount --bind "$folder" "$new$folder"
for name; do mkdir -p "$new/$name"; mount --bind "$folder/workspace/$name" "$new/$name"; done
exec chroot "$new" sh -c 'echo ready; exec sleep infinity'
"""


class MachineError(Exception):
    """The machine cannot be made here."""


@dataclass
class Machine:
    process: "subprocess.Popen[str]"
    pid: int
    """The first process of the machine, as seen from outside."""

    @classmethod
    def start(cls, folder: Path, names: Sequence[str]) -> "Machine":
        """Start a machine with `folder/workspace/NAME` as `/NAME`, and `folder` writable. Raises `MachineError`."""
        (folder / "root").mkdir(exist_ok=True)
        words = ["unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--mount", "--pid", "--fork"]
        words += ["--kill-child", "sh", "-c", _SCRIPT, "machine", str(folder), str(folder / "root"), *names]
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise MachineError(f"unshare: {error.strerror}") from None
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "ready\n":
            raise MachineError(process.communicate()[1].strip()[-300:])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return cls(process, int(children[0]))

    def enter(self, cwd: str) -> list[str]:
        """Return the words that, before a command, run it in the machine."""
        users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.pid}", *users, "--mount", "--pid", "--root", f"--wdns={cwd}", "--"]

    def run(self, words: Sequence[str], cwd: str, env: dict[str, str], seconds: float) -> tuple[int, str]:
        """Run a command to its end, whatever it leaves running. Return its exit code and its output."""
        with tempfile.TemporaryFile() as output:
            code = subprocess.call(
                [*self.enter(cwd), *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            )
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def stop(self) -> None:
        """End it with all its processes."""
        self.process.kill()
        self.process.communicate()
