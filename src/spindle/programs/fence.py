"""A fence around child processes, made by the kernel: what it can do on this machine, and how it is described to it.

On Linux, Landlock says where a child may write and which secrets it may not read; it needs no rights and no namespace,
but its rules only add: nothing below a granted folder can be taken back. A seccomp filter closes the rest. Where
bubblewrap works, mounts take the place of Landlock's rules for files, and can take back. On macOS `sandbox-exec` does.
The supervisor applies the fence in the child, before the program starts; no process can leave it again.

Imported only if there is a fence: it loads ctypes.
"""

import ctypes
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spindle.base import limits
from spindle.programs import children
from spindle.programs.file_times import is_settled
from spindle.programs.search_path import on_path
from spindle.shapes.sandbox import Network

T = TypeVar("T")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
_PATH_BENEATH, _NET_PORT = 1, 2
_READ_FILE = 1 << 2
_WRITE_FILE = 1 << 1
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FOLDER_RIGHTS = sum(1 << bit for bit in range(4, 14))
"""Remove and make entries of a folder; the last moves them to another folder."""
_MAKE_DEVICES = 1 << 6 | 1 << 11
"""Granted nowhere: root could make a disk and write to it."""
_TCP = 3
"""Bind and connect."""
_SCOPES = 3
"""Abstract unix sockets and signals: only to processes of the same command."""
LEAST_LANDLOCK = 3
"""Before, nothing stops a command from emptying a file anywhere."""
_TCP_ABI, _IOCTL_ABI, _SCOPE_ABI = 4, 5, 6
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Not terminals: those of other programs are no business of a command. `tty` is its own, and it has none."""
_READABLE_DEVICES = (*_DEVICES, "shm", "mqueue")


class _Calls(Struct, frozen=True):
    """The numbers of system calls."""

    name: int
    """Of the architecture."""
    socket: int
    socketpair: int
    prlimit64: int
    setpriority: int
    ioprio_set: int
    keys: tuple[int, ...]
    """`add_key`, `request_key`, `keyctl`."""
    sends: tuple[tuple[int, int], ...]
    """`sendto`, `sendmsg`, `sendmmsg`: each with the place of its flags among the arguments."""


_ARCHITECTURES = {
    "x86_64": _Calls(0xC000003E, 41, 53, 302, 141, 251, (248, 249, 250), ((44, 3), (46, 2), (307, 3))),
    "aarch64": _Calls(0xC00000B7, 198, 199, 261, 140, 30, (217, 218, 219), ((206, 3), (211, 2), (269, 3))),
}
_IO_URING_SETUP = 425
_UNIX, _INET, _INET6, _NETLINK, _PACKET, _ALGORITHMS = 1, 2, 10, 16, 17, 38
"""Families of sockets; others, as VSOCK and SMC, reach around what is said about the network."""
_RAW = 3
_OTHER_PROTOCOLS = (33, 132, 136, 256, 262)
"""DCCP, SCTP, UDPLITE, SMC, MPTCP: the rules for TCP ports do not see them."""
_FAST_OPEN = 0x20000000
"""Connects with the first bytes; the rules for TCP ports do not see that either."""
_EACCES, _ENOSYS, _EPROTONOSUPPORT, _EOPNOTSUPP, _EAFNOSUPPORT = 13, 38, 93, 95, 97

_FEW = 8
"""Names that are sooner asked for one by one than looked for in the list of a folder."""

_libc = ctypes.CDLL(None, use_errno=True)


class Area(Struct, frozen=True):
    """What a fence lets through. Paths are absolute, without links in them."""

    writable: Sequence[str] = ()
    """Folders, with everything below them, and single files."""
    protected: Sequence[str] = ()
    """Files and folders below those that may not be changed."""
    secrets: Sequence[str] = ()
    """They may not be there yet."""
    opened: Sequence[str] = ()
    """What can be read all the same, in folders of `secrets` and `private`."""
    kept: Callable[[], Sequence[str]] = tuple
    """Returns files that were `opened` later."""
    private: Sequence[str] = ()
    """Folders that are shown empty, but for what is writable or `opened` in them; only by bubblewrap."""
    sockets: Callable[[], Sequence[str]] = tuple
    """Returns the sockets that are there, and are to be hidden by bubblewrap."""
    network: Network = "on"
    empty: str = ""
    """An empty folder, to be shown in the place of hidden ones."""


class Support(Struct, frozen=True):
    """What fences are made of on this machine."""

    landlock: int
    """The version of Landlock; 0: there is none."""
    bwrap: str | None
    """The program, if it works here."""
    filters: bool
    """Whether a seccomp filter can close the network."""
    seatbelt: bool = False
    """Whether this is macOS with `sandbox-exec`."""

    @property
    def works(self) -> bool:
        return self.landlock >= LEAST_LANDLOCK or self.bwrap is not None or self.seatbelt

    def told(self) -> str:
        """Return in a few words what there is."""
        if self.seatbelt:
            return "sandbox-exec (not tried by us)"
        landlock = f"Landlock ABI {self.landlock}" if self.landlock else "no Landlock"
        return f"{landlock}, {'bwrap works' if self.bwrap else 'no bwrap that works'}"


def landlock() -> int:
    """Return the version of Landlock; 0: there is none."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


@lru_cache(1)
def support() -> Support:
    """Look once what this machine can do. Trying bubblewrap takes some milliseconds."""
    if sys.platform == "darwin":
        return Support(0, None, False, os.path.exists("/usr/bin/sandbox-exec"))
    if sys.platform != "linux":
        return Support(0, None, False)
    found = Support(landlock(), None, os.uname().machine in _ARCHITECTURES)
    program = on_path("bwrap")
    if program is not None and _runs(Fence(Area(), replace(found, bwrap=program))):
        return replace(found, bwrap=program)
    return found


def _runs(fence: "Fence") -> bool:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        child = children.start(["/bin/sh", "-c", ":"], cwd="/", env={}, files=(null, null, null), fence=fence)
        try:
            return child.wait(limits.FENCE_TRIAL) == 0
        except TimeoutError:
            child.kill()
            return False
    except OSError:
        return False
    finally:
        os.close(null)


class Ruleset:
    """Rules of Landlock. Several threads may use them while others are made, so they end with their last user."""

    def __init__(self, file: int) -> None:
        self.file = file

    def __del__(self) -> None:
        os.close(self.file)


class Fence:
    """An area in the form that the kernel takes. Rules are made once, and again when a folder on the way changes."""

    def __init__(self, area: Area, using: Support) -> None:
        self.area = area
        self._using = using
        self._ruleset: Ruleset | None = None
        self._making = threading.Lock()
        self._seen: list[tuple[str, bool, tuple[int, ...]]] = []
        """The folders that the rules were made of: path, whether its entries count, state."""
        self.filter = b""
        """A seccomp filter for the child."""
        self.less_root = using.bwrap is None
        """Whether root loses capabilities that reach around the fence; bubblewrap needs them, and drops them later."""
        if using.filters:
            is_open = area.network != "off" or using.bwrap is not None
            self.filter = _filter(sockets=is_open, ports=isinstance(area.network, list))
        self._hidden: list[str] = []
        """What Landlock can hide. In a writable folder it cannot: new files there must be readable."""
        self._groups: dict[int, dict[str, list[str]]] = {}
        """Paths of the area, by the folder around them."""
        self._there: dict[str, tuple[tuple[int, ...], list[str]]] = {}
        """For a group of paths: the state of the folder around them, and those that were there."""
        self._away: dict[str, tuple[int, ...]] = {}
        """Folders that were not there, with the state of the folder around them."""
        self._spread: list[str] = []
        """Folders above that, whose other entries are granted one by one."""

    def prefix(self) -> list[str]:
        """Return the words that come before the program and its arguments."""
        if self._using.seatbelt:
            return ["/usr/bin/sandbox-exec", "-p", seatbelt_profile(self.area)]
        return [] if self._using.bwrap is None else [self._using.bwrap, *self._mounts(), "--"]

    def run(self, work: Callable[[], T]) -> T:
        """Do work of our own behind Landlock's rules, in a thread that ends with it; without Landlock, just do it."""
        rules = self.ruleset()
        if rules is None:
            return work()
        result: list[T] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                _checked(_libc.syscall(_RESTRICT_SELF, rules.file, 0))
                result.append(work())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=inside, daemon=True)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return result[0]

    # -- Landlock --------------------------------------------------------------------------------

    def ruleset(self) -> Ruleset | None:
        """Return the rules of Landlock, as they are now; None if there are none. Raises `OSError`."""
        if not self._using.landlock:
            return None
        with self._making:
            if self._ruleset is None or self._is_changed():
                if not self._using.bwrap:
                    # A secret may have become a link meanwhile.
                    paths = (*self.area.secrets, *map(os.path.realpath, self.area.secrets), "/dev")
                    self._hidden = [path for path in dict.fromkeys(paths) if not _is_below(path, self.area.writable)]
                    self._spread = [path for path in _above(self._hidden) if self._shows(path)]
                seen = self._states()
                self._ruleset, self._seen = self._make(), seen
            return self._ruleset

    def _is_changed(self) -> bool:
        return any(_state(path, entries=entries) != state for path, entries, state in self._seen)

    def _states(self) -> list[tuple[str, bool, tuple[int, ...]]]:
        """Return the states to compare. What is not there stays away while the folder around it is not changed."""
        now, found = time.time_ns(), {path: _state(path, entries=True) for path in self._spread}

        def is_implied(path: str) -> bool:
            above = found.get(os.path.dirname(path))
            if above is None or found[path] or os.path.islink(path):
                return False
            return not above or is_settled(above[2], now)

        spread = [(path, True, state) for path, state in found.items() if not is_implied(path)]
        return [*spread, *((path, False, _state(path)) for path in self.area.writable)]

    def _make(self) -> Ruleset | None:
        abi, area = self._using.landlock, self.area
        writing = _WRITE_FILE | _FOLDER_RIGHTS | _TRUNCATE | (_IOCTL_DEV if abi >= _IOCTL_ABI else 0)
        files = 0 if self._using.bwrap else writing | (_READ_FILE if self._spread else 0)
        is_closed = area.network != "on" and (self._using.bwrap is None or area.network != "off")
        tcp = _TCP if abi >= _TCP_ABI and is_closed else 0
        scope = _SCOPES if abi >= _SCOPE_ABI else 0
        if not files and not tcp and not scope:
            return None
        ruleset = Ruleset(_checked(_libc.syscall(_CREATE_RULESET, struct.pack("QQQ", files, tcp, scope), 24, 0)))
        if files:
            self._grant_files(ruleset.file, files & (writing & ~_MAKE_DEVICES | _READ_FILE))
        if tcp and isinstance(area.network, list):
            for port in area.network:
                _checked(_libc.syscall(_ADD_RULE, ruleset.file, _NET_PORT, struct.pack("QQ", _TCP, port), 0))
        return ruleset

    def _grant_files(self, ruleset: int, rights: int) -> None:
        """Allow `rights` where the area can be written, and reading beside the secrets."""
        for path in (*self.area.writable, *(f"/dev/{name}" for name in _DEVICES)):
            _grant(ruleset, path, rights)
        for path in (*self._readable(), *(f"/dev/{name}" for name in _READABLE_DEVICES)):
            _grant(ruleset, path, _READ_FILE)

    def _shows(self, path: str) -> bool:
        """Say whether a folder can be read: the nearest place around it decides."""
        return _depth(path, self._hidden) <= _depth(path, self.area.opened)

    def _readable(self) -> list[str]:
        """Return all files and folders beside the secrets: together with the secrets they are the whole tree."""
        hidden = {*self._hidden, *self._spread}
        found = [path for path in self.area.opened if path not in hidden]
        for folder in self._spread:
            with suppress(OSError), os.scandir(folder) as entries:
                # A link is no way around: what it leads to has a path of its own.
                found += [one.path for one in entries if one.path not in hidden and not one.is_symlink()]
        return found

    # -- bubblewrap ------------------------------------------------------------------------------

    def _present(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that are there. They are looked at again only when the folder around them has changed."""
        if (groups := self._groups.get(id(paths))) is None:
            groups = self._groups[id(paths)] = {}
            for path in paths:
                groups.setdefault(os.path.dirname(path), []).append(path)
        now, states, found = time.time_ns(), dict[str, tuple[int, ...]](), set[str]()
        for above, inside in groups.items():
            state = self._state_of(above, states, now)
            seen, there = self._there.get(above + inside[0]) or (None, [])
            if state != seen:
                names = names_in(above) if len(inside) > _FEW else None
                near = [one for one in inside if names is None or os.path.basename(one).casefold() in names]
                there = [path for path in near if os.path.lexists(path)]
                self._there.pop(above + inside[0], None)
                if not state or is_settled(state[2], now):
                    self._there[above + inside[0]] = state, there
            found.update(there)
        return [path for path in paths if path in found] if found else []

    def _state_of(self, folder: str, states: dict[str, tuple[int, ...]], now: int) -> tuple[int, ...]:
        """Return the state of a folder. One that is not there stays away while the folder around it is not changed."""
        if (state := states.get(folder)) is not None:
            return state
        above = os.path.dirname(folder)
        around = self._away.get(folder)
        if around is None or around != self._state_of(above, states, now):
            self._away.pop(folder, None)
            state = _state(folder, entries=True)
            if not state and not os.path.islink(folder):
                around = self._state_of(above, states, now)
                if not around or is_settled(around[2], now):
                    self._away[folder] = around
        states[folder] = state or ()
        return states[folder]

    def _emptied(self, path: str) -> list[str]:
        """Return the words that hide a folder. Each mount counts: one that holds nothing of ours needs only one."""
        area = self.area
        inner = any(_is_below(one, [path]) for one in (*area.opened, *area.writable, *area.kept()))
        return ["--tmpfs", path] if inner or not area.empty else ["--ro-bind", area.empty, path]

    def _mounts(self) -> list[str]:
        area = self.area
        words = ["--unshare-user", "--unshare-ipc", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev"]
        if self._using.landlock < _SCOPE_ABI:  # else the rules of Landlock keep the child from other processes
            words += ["--unshare-pid", "--proc", "/proc"]
        if area.network == "off":
            words.append("--unshare-net")
        private = [path for path in area.private if os.path.isdir(path)]
        for path in private:
            words += self._emptied(path)
        words += _bound("--ro-bind-try", [path for path in (*area.opened, *area.kept()) if _is_below(path, private)])
        for path in area.writable:
            words += ["--dev-bind-try" if path.startswith("/dev/") else "--bind-try", path, path]
        words += _bound("--ro-bind-try", self._present(area.protected))
        present = (path for path in self._present(area.secrets) if _is_open(path))
        secrets = list(dict.fromkeys(map(os.path.realpath, present)))
        hidden = [path for path in secrets if os.path.isdir(path)]
        for path in secrets:
            words += self._emptied(path) if path in hidden else ["--ro-bind", "/dev/null", path]
        words += _bound("--ro-bind-try", [path for path in area.opened if _is_below(path, hidden)])
        words += _bound("--bind-try", [path for path in area.writable if _is_below(path, hidden)])
        for path in area.sockets():
            if not _is_below(path, private) or _is_below(path, area.opened):
                words += ["--ro-bind", "/dev/null", path]
        for path in (*hidden, *private):
            if path not in area.writable and self._emptied(path)[0] == "--tmpfs":
                words += ["--remount-ro", path]
        return words


def _is_open(path: str) -> bool:
    """Say whether we could read a file, or reach what is in a folder: else a command could not, either."""
    return os.access(path, os.R_OK) or os.access(path, os.X_OK)


def _bound(option: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths if os.path.lexists(path) for word in (option, path, path)]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result


def _grant(ruleset: int, path: str, rights: int) -> None:
    """Allow `rights` in and below `path`, if it exists."""
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(file)
        if not stat.S_ISDIR(status.st_mode):
            rights &= _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, file), 0))
    finally:
        os.close(file)


def names_in(folder: str) -> set[str] | None:
    """Return the names in a folder, without the difference of capitals; None: it cannot be listed."""
    try:
        return {name.casefold() for name in os.listdir(folder)}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError:
        return None


def _state(path: str, *, entries: bool = False) -> tuple[int, ...]:
    """Return numbers that change if a folder is replaced; with `entries`, also if it gets or loses an entry."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns if entries else 0


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _depth(path: str, places: Sequence[str]) -> int:
    """Return the length of the longest of these places that a path lies in."""
    return max((len(place) for place in places if _is_below(path, [place])), default=0)


def _above(paths: Sequence[str]) -> list[str]:
    """Return all folders above these paths."""
    found: dict[str, None] = {}
    for path in paths:
        while path != "/":
            path = os.path.dirname(path)
            found[path] = None
    return list(found)


def _filter(*, sockets: bool, ports: bool) -> bytes:
    """Return a seccomp filter: nothing that reaches other processes, and only the kinds of sockets that we know.

    Limits could end the agent before it has put protected files back, and priorities slow it down. io_uring could make
    sockets behind the filter's back, and calls of another architecture have other numbers. Without `sockets` only
    netlink ones are made, and pairs; datagram pairs are not, because they can be led to any name. `ports`: whether
    there are rules for ports: what they would not see is refused, as packets of root's own.
    """
    calls = _ARCHITECTURES[os.uname().machine]
    load, mask, equal, bit, at_least, end = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06
    number = (load, 0, 0, 0)

    def refuse(error: int) -> tuple[int, int, int, int]:
        return (end, 0, 0, 0x00050000 | error)

    def argument(index: int) -> tuple[int, int, int, int]:
        return (load, 0, 0, 16 + 8 * index)

    def only(values: Sequence[int], error: int) -> list[tuple[int, int, int, int]]:
        tests = [(equal, len(values) - index, 0, value) for index, value in enumerate(values)]
        return [*tests, refuse(error)]

    def of_call(call: int, *body: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
        return [(equal, 0, len(body) + 1, call), *body, number]

    lines = [(load, 0, 0, 4), (equal, 1, 0, calls.name), refuse(_EACCES)]
    lines += [number, (at_least, 0, 1, 0x40000000), refuse(_EACCES)]  # x32
    lines += of_call(calls.prlimit64, argument(0), *only([0], _EACCES))
    lines += of_call(calls.setpriority, argument(0), *only([0], _EACCES), argument(1), *only([0], _EACCES))
    lines += of_call(calls.ioprio_set, argument(0), *only([1], _EACCES), argument(1), *only([0], _EACCES))
    for call in (_IO_URING_SETUP, *calls.keys):
        lines += of_call(call, refuse(_ENOSYS))
    families = [_UNIX, _INET, _INET6, _NETLINK, _ALGORITHMS, *([] if ports else [_PACKET])] if sockets else [_NETLINK]
    others = [line for one in _OTHER_PROTOCOLS for line in ((equal, 0, 1, one), refuse(_EPROTONOSUPPORT))]
    refused = _EAFNOSUPPORT if sockets else _EACCES
    kinds = [argument(1), (mask, 0, 0, 0xF), (equal, 0, 1, _RAW), refuse(_EACCES)] if ports else []
    # Netlink sockets may be called raw, and reach no ports.
    kinds = [argument(0), (equal, len(kinds), 0, _NETLINK), *kinds]
    lines += of_call(calls.socket, argument(0), *only(families, refused), argument(2), *others, *kinds)
    for call, place in calls.sends if ports else ():
        lines += of_call(call, argument(place), (bit, 0, 1, _FAST_OPEN), refuse(_EOPNOTSUPP))
    if not sockets:
        lines += of_call(calls.socketpair, argument(1), (mask, 0, 0, 0xF), *only([1, 5], _EACCES))
    lines.append((end, 0, 0, 0x7FFF0000))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def seatbelt_profile(area: Area) -> str:
    """Return the same area in the language of `sandbox-exec`. Later lines win."""

    def paths(action: str, found: Sequence[str]) -> list[str]:
        quoted = [path.replace("\\", "\\\\").replace('"', '\\"') for path in found]
        return [f'({action} (subpath "{path}"))' for path in quoted]

    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += ['(allow file-write* (subpath "/dev"))', *paths("allow file-write*", area.writable)]
    lines += [*paths("deny file-write*", area.protected), *paths("deny file-read* file-write*", area.secrets)]
    lines += paths("allow file-read*", area.opened)
    if area.network != "on":
        lines.append("(deny network*)")
        for port in area.network if isinstance(area.network, list) else ():
            lines += [f'(allow network-outbound (remote tcp "*:{port}"))', f'(allow network* (local tcp "*:{port}"))']
    lines += paths("deny network-outbound", area.sockets())
    return "\n".join(lines)
