"""The sandbox of a session: the area its commands and tools work in, and what became of a command behind the fence.

Commands get the fence of `base/fence.py`. Built-in tools ask `require` before they touch a file, and write behind the
same rules. Protected files that the kernel cannot protect are put back after each command (`put_back`). Imported only
if there is a sandbox.
"""

import os
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spindle.base import children
from spindle.base.agent_dir import agent_dir, expand_home
from spindle.base.fence import LEAST_LANDLOCK, Area, Fence, Support, landlock, support
from spindle.base.workspace import Running
from spindle.shapes.protected_files import PROTECTED_FILES, PROTECTED_FOLDERS
from spindle.shapes.sandbox import SECRETS, SOCKETS, Network, SandboxLevel
from spindle.tools.base import ToolError
from spindle.tools.put_back import PutBack

if TYPE_CHECKING:
    from spindle.base.process import Process

_GIT_FILES: Final = ("config", "config.worktree", "hooks", "info/attributes", "commondir")
"""Files of a git directory that make git run programs, or read such files elsewhere."""
_WORKTREE_FILES: Final = ("config.worktree", "hooks", "info/attributes", "commondir", "gitdir")
_SHARED_BY_WORKTREES: Final = ("objects", "refs", "logs")
_REFUSED: Final = re.compile(
    rb"permission denied|operation not permitted|read-only file system|cross-device link|\bE(?:ACCES|PERM|ROFS|XDEV)\b"
    rb"|not permitted|no such file",
    re.I,
)
_NETWORK: Final = re.compile(
    rb"could ?n[o']t (?:connect|resolve|open socket)|network is unreachable|name resolution|name or service not known"
    rb"|failed to connect|ENETUNREACH|EAI_AGAIN|ENOTFOUND|getaddrinfo|socket",
    re.I,
)
_SIGNAL: Final = re.compile(rb"kill\b.*not permitted", re.I)
_WORD: Final = re.compile(rb"[^\s'\"`:,;()\[\]<>\xe2]+")
_ASIDE: Final = "put-back"
_TAIL: Final = 32 * 1024
_MOST_NAMED: Final = 5


Output = Callable[[bytes], None]


class SandboxError(Exception):
    """A sandbox that was asked for is not possible here. The text says why, and what there is to choose."""


class Wanted(Struct, frozen=True):
    """A sandbox as it was asked for: everything that its area depends on."""

    level: SandboxLevel
    cwd: str
    writable: tuple[str, ...] = ()
    network: Network = "on"
    denied: tuple[str, ...] = ()
    """Files that a rule forbids to read."""


class Sandbox:
    """What the commands and tools of a session may touch."""

    def __init__(self, wanted: Wanted, using: Support | None = None) -> None:
        """Raises `SandboxError` if this machine cannot give what is wanted. `using`: what it can do."""
        self.using = using or support()
        self.level: SandboxLevel = wanted.level
        self.cwd = os.path.realpath(wanted.cwd)
        _check(wanted, self.using)
        self.temporary = os.path.realpath(tempfile.mkdtemp(prefix="spindle-"))
        """A folder of the session's own; it goes with the sandbox."""
        self._close = weakref.finalize(self, _remove, self.temporary)
        self.area = _area(wanted, self.cwd, self.temporary)
        self._fence = Fence(self.area, self.using)
        plain = replace(self.using, bwrap=None) if self.using.landlock else self.using
        self._inner = Fence(replace(self.area, network="on"), plain)
        """For searches and for work in our own process: without mounts, which take longer."""
        self._put_back = PutBack(list(self.area.protected), os.path.join(self.temporary, _ASIDE))
        self._put_back.remember()
        self._watched: weakref.WeakKeyDictionary[Running, _Watch] = weakref.WeakKeyDictionary()
        self.is_outside: Callable[[str], bool] = lambda command: False
        """Whether a rule lets a command run without the fence."""
        self.ask: Callable[[str, str], Awaitable[bool]] = _nobody
        """Asks whether a command may run again without the fence; takes the command, and what stopped it."""

    def end(self, owner: object, tell: Callable[[str], None]) -> None:
        """Give the sandbox up. Processes of `owner` that go on are ended, and files that they have changed put back."""
        if owner is not None and any(child.owner is owner and not child.kept for child in children.remaining()):
            children.kill_all(owner)
            self._undo_changes(lambda text: tell(text.decode().strip("[]\n")), left=True)
        self._close()

    # -- files, in our own process -----------------------------------------------------------------

    def require(self, path: str, *, write: bool = False) -> None:
        """Raise `ToolError` if a tool may not read, or with `write` change, the file that a path leads to."""
        real = os.path.realpath(path)
        if _inside(real, self.area.secrets):
            raise ToolError(f"EACCES: {path} is a secret, and the sandbox ({self.level}) does not let it be read")
        if not write:
            return
        if not _inside(real, self.area.writable):
            raise ToolError(
                f"EACCES: {path} is outside of what the sandbox ({self.level}) lets be written: {self.told()}"
            )
        if _inside(real, self.area.protected):
            raise ToolError(
                f"EACCES: {path} is protected: it makes programs run something, so the sandbox ({self.level}) "
                "does not let it be changed"
            )

    @property
    def inner(self) -> Fence:
        """The fence for searches and for work in our own process."""
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
        """Start a program behind the fence, and watch it. `command`: how it was asked for; the rest as for `Process`.

        Remarks about what the fence did are added to the output.
        """
        from spindle.base.process import Process

        file = -1 if callable(on_output) else os.dup(on_output)
        tell = on_output if callable(on_output) else partial(_write, file)
        # While processes of an earlier command go on, changes of protected files may be theirs.
        self._undo_changes(tell, left=any(child.owner is owner for child in children.remaining()))
        watch = _Watch(command, tell)
        env, output = self.environment(env), watch.write if callable(on_output) else on_output
        process = Process(argv, env=env, on_output=output, owner=owner, fence=self.fence, **how)
        self._watched[process] = watch
        if file >= 0:
            process.on_end(partial(watch.read, file))
        process.on_end(partial(self._ended, weakref.proxy(process), watch))
        if file >= 0:
            process.on_end(partial(os.close, file))
        return process

    def _ended(self, process: "Process", watch: "_Watch") -> None:
        self._undo_changes(watch.on_output, left=True)
        if process.returncode:
            watch.stopped_by = self._reason(watch)
            if watch.stopped_by:
                text = f"\n[The sandbox ({self.level}) stopped this command: {watch.stopped_by}]"
                watch.on_output(text.encode())

    def _undo_changes(self, tell: Output, *, left: bool) -> None:
        """Put protected files back if commands were `left` to change them; else take them for what the user wants."""
        if not left:
            self._put_back.remember()
            return
        for place in self._put_back.changed():
            shown = os.path.relpath(place, self.cwd) if _inside(place, [self.cwd]) else place
            try:
                self._inner.run(lambda place=place: self._put_back.restore(place))  # type: ignore[misc]
                aside = os.path.join(self.temporary, _ASIDE)
                text = f"{shown} is protected and was changed: it is put back as it was, the change is in {aside}"
            except OSError as error:
                text = f"{shown} is protected and was changed, and cannot be put back: {error.strerror or error}"
            tell(f"\n[Sandbox: {text}]".encode())

    async def may_run_outside(self, process: Running) -> bool:
        """Ask whether a command that the fence has stopped may run again without it."""
        watch = self._watched.pop(process, None)
        return watch is not None and bool(watch.stopped_by) and await self.ask(watch.command, watch.stopped_by)

    def _reason(self, watch: "_Watch") -> str:
        """Return what the fence refused, as far as the end of the output shows it.

        A path counts if it is outside of the area, and if the command could have used it without the fence.
        """
        lines = bytes(watch.tail).split(b"\n")
        found: dict[str, str] = {}
        for line in lines:
            if refused := _REFUSED.search(line):
                for path in self._paths(line, refused.start()):
                    if _inside(path, self.area.secrets):
                        found[path] = f"{path} is a secret"
                    elif b"o such file" not in line and not self._may_write(path) and _could_write(path):
                        found[path] = f"it may not write {path}"
        reasons = list(found.values())[:_MOST_NAMED]
        if any(_SIGNAL.search(line) for line in lines):
            reasons.append("it may not send signals to processes of other commands")
        if self.area.network != "on" and any(_NETWORK.search(line) for line in lines):
            open_ports = (
                "" if self.area.network == "off" else f" but for ports {', '.join(map(str, self.area.network))}"
            )
            reasons.append(f"perhaps because its network is off{open_ports}")
        return "; ".join(reasons)

    def _may_write(self, path: str) -> bool:
        return _inside(path, self.area.writable) and not _inside(path, self.area.protected)

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
        if self.area.secrets:
            lines.append(f"{len(self.area.secrets) - len(self._bare_secrets())} places with secrets cannot be read")
        if self.area.protected:
            lines.append(f"Protected files: {'read-only' if using.bwrap or using.seatbelt else 'put back if changed'}")
        if network == "off":
            how = "a network namespace" if using.bwrap else "seccomp" if using.filters else "Landlock"
            lines.append(f"Network: off (by {how})")
        elif network != "on":
            lines.append(f"Network: TCP only to and on ports {', '.join(map(str, network))}")
        return lines

    def does_not_hold(self) -> list[str]:
        """Return the gaps that this machine leaves."""
        using, lines = self.using, []
        if self.area.protected:
            lines.append("Only files at the top of a writable folder, and those of its git repository, are protected")
        if using.bwrap is None and not using.seatbelt:
            if self.area.protected:
                lines.append("Protected files can be changed while a command runs; they are put back at its end")
            lines += [f"{path} is too big to be put back" for path in self._put_back.unwatched()]
            lines.append("Modes, owners, times and attributes of files elsewhere can be changed (chmod, chown, touch)")
            found = [path for path in _sockets() if os.path.exists(path)]
            lines += [f"Programs behind sockets act without a fence: {path}" for path in found]
            lines += [f"{path} can be read: it lies in a folder that may be written" for path in self._bare_secrets()]
            if os.geteuid() == 0 and not _can_lose_capabilities():
                lines.append("Root keeps all its capabilities: it may not drop them here")
        if using.landlock < 6 and using.bwrap is None and not using.seatbelt:
            lines.append("A command can end the agent, which then puts no protected file back")
        if isinstance(self.area.network, list):
            lines.append("UDP, and other sockets than TCP, are open")
        if self.area.network == "off" and using.bwrap is None and not using.filters and not using.seatbelt:
            lines.append("UDP, and other sockets than TCP, are open")
        return lines

    def _bare_secrets(self) -> list[str]:
        """Return secrets that Landlock cannot hide: it cannot take back what lies below a granted folder."""
        if self.using.bwrap or self.using.seatbelt:
            return []
        return [path for path in self.area.secrets if _inside(path, self.area.writable)]


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
        if name == _ASIDE:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)
    with suppress(OSError):
        os.rmdir(temporary)


async def _nobody(command: str, reason: str) -> bool:
    return False


# -- the area ------------------------------------------------------------------------------------


def _check(wanted: Wanted, using: Support) -> None:
    """Raise `SandboxError` for a level or a network that this machine cannot give."""
    choices = (
        'Choices: the level "off"; a kernel with Landlock ABI 3 (Linux 6.2); bubblewrap, where user namespaces work. '
        f"Here: {using.told()}"
    )
    if not using.works:
        where = "" if sys.platform in ("linux", "darwin") else f" on {sys.platform}"
        raise SandboxError(f'The sandbox "{wanted.level}" cannot be had here{where}. {choices}')
    if isinstance(wanted.network, list) and using.landlock < 4 and not using.seatbelt:
        raise SandboxError(
            "A sandbox with some ports open needs Landlock ABI 4 (Linux 6.7). "
            f'Choices: network "on" or "off". Here: {using.told()}'
        )
    if wanted.network == "off" and not (using.bwrap or using.filters or using.landlock >= 4 or using.seatbelt):
        raise SandboxError(
            f'The network of the sandbox cannot be switched off here. Choices: network "on". Here: {using.told()}'
        )


def _area(wanted: Wanted, cwd: str, temporary: str) -> Area:
    named = [os.path.realpath(os.path.join(cwd, expand_home(path))) for path in wanted.writable]
    writable, protected = [temporary], []
    if wanted.level == "workspace-write":
        for folder in dict.fromkeys([cwd, *named]):
            writable.append(folder)
            with suppress(OSError):  # the kernel lets nothing be written to a folder that is not there
                os.makedirs(folder, exist_ok=True)
            if os.path.isdir(folder):
                more, forbidden = _git_places(folder)
                writable += more
                protected += [os.path.join(folder, name) for name in (*PROTECTED_FOLDERS, *PROTECTED_FILES)]
                protected = [path for path in protected if os.path.basename(path) != ".git"] + forbidden
        protected = [path for path in dict.fromkeys(protected) if not _inside(path, named, without=cwd)]
    homes = [str(agent_dir() / name) for name in ("auth.json", "mcp-auth.json")]
    secrets = [os.path.realpath(expand_home(path)) for path in (*SECRETS, *homes, *wanted.denied)]
    sockets = [path for path in _sockets() if os.path.exists(path)]
    there = [path for path in dict.fromkeys(secrets) if os.path.lexists(path) and not _inside(path, named, without=cwd)]
    return Area(tuple(writable), tuple(protected), tuple(there), tuple(sockets), wanted.network)


def _git_places(folder: str) -> tuple[list[str], list[str]]:
    """Return what git has to write outside of a folder, and the files of git that must not change."""
    git = os.path.join(folder, ".git")
    if not os.path.isfile(git):
        places = [git] if os.path.islink(git) else []
        modules = os.path.join(git, "modules")
        try:
            inner = [os.path.join(modules, name) for name in os.listdir(modules)]
        except OSError:
            inner = []
        return [], [*places, *(os.path.join(one, name) for one in (git, *inner) for name in _GIT_FILES)]
    own = _worktree_directory(git)
    if own is None:
        return [], [git]
    shared = os.path.dirname(os.path.dirname(own))
    more = [own, *(os.path.join(shared, name) for name in _SHARED_BY_WORKTREES)]
    return more, [git, *(os.path.join(own, name) for name in _WORKTREE_FILES)]


def _worktree_directory(git: str) -> str | None:
    """Return the git directory that the file `.git` of a worktree names, if that directory names the file in turn.

    Anybody can write a `.git` that names some folder; only git writes into the folder of a repository.
    """
    try:
        with open(git, encoding="utf-8") as file:
            named = re.fullmatch(r"gitdir: (.+)\n*", file.read(5000))
        if named is None:
            return None
        own = os.path.realpath(os.path.join(os.path.dirname(git), named[1]))
        with open(os.path.join(own, "gitdir"), encoding="utf-8") as file:
            back = file.read(5000).strip()
        is_mutual = os.path.realpath(os.path.join(own, back)) == os.path.realpath(git)
        return own if is_mutual and os.path.basename(os.path.dirname(own)) == "worktrees" else None
    except (OSError, UnicodeError):
        return None


def _sockets() -> list[str]:
    expanded = [os.path.expandvars(path) for path in SOCKETS]
    return list(dict.fromkeys(os.path.realpath(path) for path in expanded if "$" not in path))


def _inside(path: str, places: Iterable[str], without: str | None = None) -> bool:
    """Say whether a path is one of these places, or below one; the place `without` does not count."""
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places if place != without)


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
