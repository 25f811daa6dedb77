"""The sandbox of a session: what its commands and tools may touch, and what became of a command behind the fence.

Commands get the fence of `programs/fence.py`. Built-in tools ask `require` before they touch a file, and write behind
the same rules. Protected files that the kernel cannot protect are put back after each command (`gate`). Imported
only if there is a sandbox.
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.programs import children
from spindle.programs.fence import LEAST_LANDLOCK, Fence, Support, landlock, support
from spindle.shapes.sandbox import (
    Network,
    SandboxLevel,
)
from spindle.workspace import Running
from spindle.workspace.area import SandboxError, Wanted, area_of, check, inside
from spindle.workspace.disk import ToolError
from spindle.workspace.gate import Gate
from spindle.workspace.git_guard import path_folders
from spindle.workspace.sockets import sockets_to_hide
from spindle.workspace.unfenced import NoSandbox

if TYPE_CHECKING:
    from spindle.programs.process import Process

_REFUSED: Final = re.compile(
    rb"permission denied|operation not permitted|read-only file system|cross-device link|\bE(?:ACCES|PERM|ROFS|XDEV)\b"
    rb"|not permitted|no such file|not written|error writing|root-owned",
    re.I,
)
_NETWORK: Final = re.compile(
    rb"could ?n[o']t (?:connect|resolve|open socket)|network is unreachable|name resolution|name or service not known"
    rb"|failed to connect|ENETUNREACH|EAI_AGAIN|ENOTFOUND|getaddrinfo|socket",
    re.I,
)
_PRIORITY: Final = re.compile(rb"\bsetpriority|set priority", re.I)
_TERMINAL: Final = re.compile(rb"pty devices|pseudo-?terminal|/dev/ptmx|/dev/pts\b|openpty|forkpty", re.I)
_SHARED: Final = re.compile(rb"\bSemLock\b|\bsem_open\b|\bshm_open\b", re.I)
_SIGNAL: Final = re.compile(rb"(?=.*kill\b)(?=.*not permitted)", re.I)
_WORD: Final = re.compile(rb"[^\s'\"`:,;()\[\]<>\xe2]+")
_TAIL: Final = 32 * 1024
_MOST_NAMED: Final = 5


T = TypeVar("T")
Output = Callable[[bytes], None]


class Sandbox:
    """What the commands and tools of a session may touch."""

    def __init__(
        self, wanted: Wanted, using: Support | None = None, after: "Sandbox | NoSandbox | None" = None
    ) -> None:
        """Raises `SandboxError` if this machine cannot give what is wanted. `using`: what it can do.

        `after`: the sandbox that the session had before.
        """
        self.using = using or support()
        self.level: SandboxLevel = wanted.level
        self.cwd = os.path.realpath(wanted.cwd)
        check(wanted, self.using)
        self.temporary = os.path.realpath(tempfile.mkdtemp(prefix="spindle-"))
        """A folder of the session's own; it goes with the sandbox."""
        self._close = weakref.finalize(self, _remove, self.temporary)
        empty = tempfile.mkdtemp(prefix="spindle-empty-")
        os.chmod(empty, 0o555)
        self._remove_empty = weakref.finalize(self, _remove, empty)
        self.area = replace(area_of(wanted, self.cwd, self.temporary, self.using), empty=empty)
        if any(path in wanted.others for path in self._bare_secrets()):
            raise SandboxError(
                "Files of another user of the server lie in a folder that may be written, and Landlock cannot hide them"
                " there. Choices: a folder of its own for each user (--root); bubblewrap; the level read-only"
            )
        self._fence = Fence(self.area, self.using)
        plain = replace(self.using, bwrap=None) if self.using.landlock else self.using
        hidden = (*self.area.secrets, *self.area.private)
        self._inner = Fence(replace(self.area, secrets=hidden, network="on"), plain)
        """For searches and for work in our own process: without mounts, which take longer."""
        tops = [path for path in self.area.writable if path != self.temporary]
        before = after if isinstance(after, Sandbox) else None
        self._owners: dict[int, Any] = {} if before is None else before._owners
        """Those whose commands were started here, by `id`."""
        gate = before._gate if before is not None and before._goes_on() else None
        self._gate: Gate = Gate(self.cwd, list(self.area.protected), tops, self.temporary, self._inner.run, gate)
        self._gate.recover()
        self._looking: asyncio.TimerHandle | None = None
        """Looks after processes that commands have left."""
        self._plants = 0
        """How often these have changed what they may not."""
        self._watched: weakref.WeakKeyDictionary[Running, _Watch] = weakref.WeakKeyDictionary()
        self._is_outside: Callable[[str], bool] = lambda command: False
        self._ask: Callable[[str, str], Awaitable[bool]] = _nobody

    def bind(self, is_outside: Callable[[str], bool], ask: Callable[[str, str], Awaitable[bool]]) -> None:
        """Set who says whether a rule lets a command run without the fence, and who asks whether one that was stopped
        may run again without it: that takes the command, and what stopped it."""
        self._is_outside, self._ask = is_outside, ask

    @property
    def network(self) -> Network:
        return self.area.network

    @property
    def writable(self) -> Sequence[str]:
        """Where commands may write."""
        return self.area.writable

    def end(self, owner: object, tell: Callable[[str], None]) -> None:
        """Give the sandbox up. Processes of `owner` that go on are ended, and files that they have changed put back."""
        if self._looking is not None:
            self._looking.cancel()
        if owner is not None and self._goes_on():
            children.kill_all(owner)
            for text in self._gate.check():
                tell(f"Sandbox: {text}")
        self._gate.close()
        self._close()
        self._remove_empty()

    # -- files, in our own process -----------------------------------------------------------------

    def require(self, path: str, *, write: bool = False) -> None:
        """Raise `ToolError` if a tool may not read, or with `write` change, the file that a path leads to."""
        real = os.path.realpath(path)
        if self._hides(real, self._secrets()) or self._is_linked_secret(real):
            raise ToolError(f"EACCES: {path} is a secret, and the sandbox ({self.level}) does not let it be read")
        if not write:
            if self._hides(real, self.area.private):
                raise ToolError(f"ENOENT: {path} is hidden: the sandbox ({self.level}) shows this folder empty")
            return
        if not inside(real, self.area.writable):
            raise ToolError(
                f"EACCES: {path} is outside of what the sandbox ({self.level}) lets be written: {self.told()}"
            )
        if self._gate.refuses(real):
            raise ToolError(
                f"EACCES: {path} is protected: it makes programs run something, so the sandbox ({self.level}) "
                "does not let it be changed"
            )

    def look(self, work: Callable[[], T]) -> T:
        """Do work of a tool that only reads, behind the fence."""
        return self._inner.run(work)

    def change(self, work: Callable[[], T]) -> T:
        """Do work of a tool that changes files, behind the fence and the gate. Raises `ToolError`."""
        said = self.begin()
        try:
            result = self._inner.run(work)
        finally:
            said += self.finish()
        if said:
            raise ToolError("\n".join(said))
        return result

    def begin(self) -> list[str]:
        """Have the protected files remembered before work that may change them; `finish` compares them.

        Return remarks about what earlier work has done to them.
        """
        return [f"[Sandbox: {text}]" for text in self._gate.begin(left=self._has_left())]

    def finish(self) -> list[str]:
        """Put right what the work has done to protected files, and return remarks about it."""
        return [f"[Sandbox: {text}]" for text in self._gate.end(left=self._has_left())]

    def _goes_on(self) -> bool:
        """Say whether files may have been changed since they were compared last."""
        return self._gate.is_left or self._has_left()

    def _has_left(self) -> bool:
        """Say whether processes of earlier commands go on: changes of protected files may be theirs."""
        return any(id(child.owner) in self._owners for child in children.remaining())

    def _look_later(self, seconds: float = limits.LEFT_LOOK) -> None:
        if self._looking is not None:  # perhaps of a loop that has ended
            self._looking.cancel()
        if self._gate.is_left:
            look = partial(_look_of, weakref.ref(self))
            self._looking = asyncio.get_running_loop().call_later(seconds, look)

    def look_after_the_left(self) -> None:
        """Put right what processes have done that commands have left. If they do it again, end them."""
        self._looking, begin, goes_on = None, time.monotonic(), self._has_left()
        if self._gate.between(left=goes_on):
            self._plants += 1
            if goes_on and self._plants > 1:
                self._gate.unsaid.append("Processes that commands had left did this again: they were ended")
                for child in children.remaining():
                    if id(child.owner) in self._owners:
                        child.kill()
        self._look_later(max(limits.LEFT_LOOK, 20 * (time.monotonic() - begin)))

    def _secrets(self) -> list[str]:
        """Return the secrets, and where those lead that are links now."""
        links = [os.path.realpath(path) for path in self.area.secrets if os.path.islink(path)]
        return [*self.area.secrets, *links]

    def _hides(self, real: str, places: Sequence[str]) -> bool:
        """Say whether a path lies in one of these places, and not in something that is open again in there."""
        hidden = max((len(place) for place in places if inside(real, [place])), default=0)
        area = self.area
        opened = (*area.opened, *area.writable) if hidden else ()
        if hidden and real in area.kept():
            return False
        return hidden > max((len(place) for place in opened if inside(real, [place])), default=0)

    def _is_linked_secret(self, real: str) -> bool:
        """Say whether a file is a secret by another name."""
        try:
            status = os.stat(real)
        except OSError:
            return False
        return status.st_nlink > 1 and (status.st_dev, status.st_ino) in _numbers(self.area.secrets)

    @property
    def inner(self) -> Fence:
        """The fence for searches."""
        return self._inner

    # -- commands ----------------------------------------------------------------------------------

    @property
    def fence(self) -> Fence:
        return self._fence

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with our own temporary folder in it."""
        return {**env, "TMPDIR": self.temporary, "TMP": self.temporary, "TEMP": self.temporary}

    def start(
        self,
        command: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        on_output: Output | int,
        owner: Any,
        **how: Any,
    ) -> "Process":
        """Start a program behind the fence, unless a rule lets it run outside, and watch it.

        `command`: how it was asked for; the rest as for `Process`.
        Remarks about what the fence did are added to the output.
        """
        from spindle.programs.process import Process

        if self._is_outside(command):
            return Process(argv, env=env, on_output=on_output, owner=owner, **how)
        file = -1 if callable(on_output) else os.dup(on_output)
        tell = on_output if callable(on_output) else partial(_write, file)
        for said in self.begin():
            tell(os.fsencode(f"{said}\n"))
        if owner is not None:
            self._owners[id(owner)] = owner
        watch = _Watch(command, tell)
        env, output = self.environment(env), watch.write if callable(on_output) else on_output
        try:
            process = Process(argv, env=env, on_output=output, owner=owner, fence=self.fence, **how)
        except BaseException:
            self.finish()
            if file >= 0:
                os.close(file)
            raise
        self._watched[process] = watch
        if file >= 0:
            process.on_end(partial(watch.read, file))
        process.on_end(partial(self._ended, weakref.proxy(process), watch))
        if file >= 0:
            process.on_end(partial(os.close, file))
        return process

    def _ended(self, process: "Process", watch: "_Watch") -> None:
        for said in self.finish():
            watch.on_output(os.fsencode(f"\n{said}"))
        self._look_later()
        if process.returncode:
            watch.stopped_by = self._reason(watch)
            if watch.stopped_by:
                text = f"\n[The sandbox ({self.level}) stopped this command: {watch.stopped_by}]"
                watch.on_output(os.fsencode(text))

    async def may_run_outside(self, process: Running) -> bool:
        """Ask whether a command that the fence has stopped may run again without it."""
        watch = self._watched.pop(process, None)
        return watch is not None and bool(watch.stopped_by) and await self._ask(watch.command, watch.stopped_by)

    def _reason(self, watch: "_Watch") -> str:
        """Return what the fence refused, as far as the end of the output shows it.

        A path counts if it is outside of the area, and if the command could have used it without the fence.
        """
        lines = bytes(watch.tail).split(b"\n")
        reasons = list(dict(self._refused(lines)).values())[:_MOST_NAMED]
        if any(map(_SIGNAL.match, lines)):
            reasons.append("it may not send signals to processes of other commands")
        if any(_PRIORITY.search(line) for line in lines):
            reasons.append("it may not change priorities of processes by their numbers")
        if self.using.bwrap is None and any(_TERMINAL.search(line) for line in lines):
            reasons.append("terminals are closed, and those of its own cannot be told from others without bubblewrap")
        if not self._may_write("/dev/shm") and self.using.bwrap is None and any(_SHARED.search(line) for line in lines):
            reasons.append("named semaphores and shared memory are files in /dev/shm, which it may not write")
        if self.area.network != "on" and any(_NETWORK.search(line) for line in lines):
            open_ports = (
                "" if self.area.network == "off" else f" but for ports {', '.join(map(str, self.area.network))}"
            )
            reasons.append(f"perhaps because its network is off{open_ports}")
        return "; ".join(reasons)

    def _refused(self, lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
        """Yield the paths that complaints name and the fence refuses, with words."""
        for line in lines:
            if refused := _REFUSED.search(line):
                for path in self._paths(line, refused.start()):
                    if self._hides(path, self._secrets()):
                        yield path, f"{path} is a secret"
                    elif self._hides(path, self.area.private) and os.path.lexists(os.path.dirname(path)):
                        yield path, f"it cannot see {path}" if os.path.lexists(path) else f"it may not write {path}"
                    elif b"o such file" not in line and not self._may_write(path) and _could_write(path):
                        yield path, f"it may not write {path}"

    def _may_write(self, path: str) -> bool:
        return inside(path, self.area.writable) and not inside(path, self.area.protected)

    def _paths(self, line: bytes, end: int) -> Iterable[str]:
        """Yield the files that a complaint may name: mostly the word before its last part, which is at `end`."""
        named = _WORD.findall(line[:end])[-1:]
        for word in _WORD.findall(line):
            text = os.fsdecode(word).rstrip(".")
            complains = line.startswith(word) and text.startswith("/") and os.access(text, os.X_OK)
            if not complains and (word in named or "/" in text or os.path.lexists(os.path.join(self.cwd, text))):
                yield os.path.realpath(os.path.join(self.cwd, os.path.expanduser(text)))

    # -- what holds --------------------------------------------------------------------------------

    def told(self) -> str:
        """Return in words where commands may write."""
        return ", ".join(self.area.writable)

    def holds(self) -> list[str]:
        network, using = self.area.network, self.using
        lines = [f"Commands write only in {self.told()} (by {_by(using)})"]
        hidden = [path for path in self.area.secrets if os.path.lexists(path)]
        lines.append(f"{len(hidden) - len(self._bare_secrets())} places with secrets cannot be read, nor those to come")
        if self.area.protected:
            how = "read-only, and put back if they appear" if using.bwrap else "put back if changed"
            lines.append(f"Protected files: {'read-only' if using.seatbelt else how}")
            lines.append("Git at every depth: what makes it run programs is put back or put aside, and told")
        if using.bwrap:
            told = ", ".join(self.area.private)
            lines.append(f"Sockets of other programs that the kernel tells of are hidden; {told} are shown empty")
        if not using.seatbelt:
            lines.append("Other terminals cannot be read or written")
        if network == "off":
            how = "a network namespace" if using.bwrap else "seccomp" if using.filters else "Landlock"
            lines.append(f"Network: off (by {how})")
            if using.bwrap is None and using.filters:
                lines.append("Unix sockets: off, but for pairs (by seccomp)")
        elif network != "on":
            lines.append(f"Network: TCP only to and on ports {', '.join(map(str, network))}")
        return lines

    def does_not_hold(self) -> list[str]:
        """Return the gaps that this machine leaves."""
        using, network, lines = self.using, self.area.network, []
        if self.area.protected:
            lines.append(
                "Git and the folders of agents are looked after at every depth, other protected files at the top"
            )
            lines.append(
                "A command can change protected files until its end; if the agent is killed, until the next start"
            )
            lines.append("What processes change that outlive the agent (--keep-background) is not put back")
            lines += self._gaps_of_places()
            lines += [f"{path} is too big to be put back" for path in self._gate.unwatched()]
            lines += [f"{path} has too many folders: git is not looked after in all" for path in self._gate.too_many]
        if using.bwrap:
            lines.append("FIFOs outside can be written, and how other processes are scheduled can be changed (taskset)")
            lines.append("Sockets with a path that the kernel does not tell, or that appear during a command, are open")
        elif not using.seatbelt:
            lines += self._gaps_of_landlock()
        if not using.seatbelt:
            lines.append("Files that can be read can be locked (flock)")
        if network != "off":
            lines.append(
                "Servers on this machine that ask for no token take commands for you (spindle serve without one)"
            )
        if isinstance(network, list):
            lines.append("UDP is open, and programs can listen on a TCP port that the kernel chooses")
        if network == "off" and using.bwrap is None and not using.filters and not using.seatbelt:
            lines.append("UDP, and other sockets than TCP, are open")
        return lines

    def _gaps_of_places(self) -> Iterator[str]:
        """Yield what commands may write that others run: it depends on where the working directory is."""
        ours = (os.path.dirname(os.path.dirname(__file__)), sys.prefix, os.path.dirname(sys.executable))
        for path in dict.fromkeys(map(os.path.realpath, ours)):
            if inside(path, self.area.writable):
                yield f"Spindle itself runs from {path}, which commands may change: what they put there has no fence"
                break
        if found := path_folders(self.area.writable):
            yield f"Programs in folders of PATH can be changed, but for those that git runs: {', '.join(found)}"
        if inside(home := os.path.realpath(os.path.expanduser("~")), self.area.writable):
            yield f"What shells and desktops obey in {home} can be changed (~/.config, ~/.local), but for known names"

    def _gaps_of_landlock(self) -> Iterator[str]:
        using = self.using
        yield "Modes, owners, times and attributes of files elsewhere can be changed (chmod, chown, touch)"
        if self.area.network != "off" or not using.filters:
            found = ", ".join(sockets_to_hide()[:_MOST_NAMED]) or "none now"
            yield f"Programs behind unix sockets act without a fence (tmux, D-Bus, docker, agents): {found}"
        yield "SysV memory, queues and semaphores of other processes can be used, and POSIX queues removed"
        yield "How other processes are scheduled can be changed (taskset)"
        of_ours = {os.path.realpath(agent_dir()): "; Spindle obeys what commands put there, from its next start on"}
        yield from (
            f"{path} can be read and written: it lies in a folder that may be written{of_ours.get(path, '')}"
            for path in self._bare_secrets()
        )
        if os.geteuid() == 0 and not _can_lose_capabilities():
            yield "Root keeps all its capabilities: it may not drop them here"
        if using.landlock < 6:
            yield "A command can end the agent, which then puts no protected file back before its next start"

    def _bare_secrets(self) -> list[str]:
        """Return secrets that Landlock cannot hide: it cannot take back what lies below a granted folder."""
        if self.using.bwrap or self.using.seatbelt:
            return []
        return [path for path in self.area.secrets if inside(path, self.area.writable) and os.path.lexists(path)]


class _Watch:
    """A command behind the fence, with the end of its output."""

    def __init__(self, command: str, on_output: Output) -> None:
        self.command = command
        self.on_output = on_output
        self.tail = bytearray()
        self.stopped_by = ""
        """What the fence refused; empty: nothing, as far as one can see."""

    def write(self, data: bytes) -> None:
        self.tail += data
        if len(self.tail) > 2 * _TAIL:
            del self.tail[:-_TAIL]
        self.on_output(data)

    def read(self, file: int) -> None:
        """Take the end of the file that a command in the background has written to."""
        with suppress(OSError):
            self.tail += os.pread(file, _TAIL, max(0, os.fstat(file).st_size - _TAIL))


def _write(file: int, text: bytes) -> None:
    """Add a remark to the file that a command in the background writes to."""
    with suppress(OSError):
        os.write(file, text)


def _remove(temporary: str) -> None:
    """Remove a temporary folder, but for changes of protected files that were put aside."""
    try:
        names = os.listdir(temporary)
    except OSError:
        return
    for name in names:
        path = os.path.join(temporary, name)
        if name == "put-back":
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)
    with suppress(OSError):
        os.rmdir(temporary)


def _look_of(sandbox: "weakref.ref[Sandbox]") -> None:
    if (found := sandbox()) is not None:
        found.look_after_the_left()


async def _nobody(command: str, reason: str) -> bool:
    return False


def _numbers(places: Iterable[str]) -> set[tuple[int, int]]:
    """Return device and inode of files, and of files in folders."""
    found = set()
    for place in places:
        try:
            paths = [entry.path for entry in os.scandir(place)] if os.path.isdir(place) else [place]
            for status in map(os.stat, paths):
                found.add((status.st_dev, status.st_ino))
        except OSError:
            continue
    return found


def _could_write(path: str) -> bool:
    """Say whether we ourselves could write there: else it was not the fence that refused it."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def _can_lose_capabilities() -> bool:
    try:
        with open("/proc/self/status") as file:
            effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    except OSError:
        return False
    return bool(int(effective, 16) >> 8 & 1)


def _by(using: Support) -> str:
    return "sandbox-exec" if using.seatbelt else "bubblewrap" if using.bwrap else f"Landlock ABI {using.landlock}"


def level_that_works() -> str:
    """Return a sentence about the level that would work here, for those who run without one."""
    if (version := landlock()) >= LEAST_LANDLOCK:  # no need to try bubblewrap
        return f"--sandbox workspace-write works here (Landlock ABI {version})"
    using = support()
    return f"{'--sandbox workspace-write' if using.works else 'none'} works here ({using.told()})"
