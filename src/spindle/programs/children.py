"""Start a program so that it cannot outlive us, and end it with every process that it has started.

On Linux every child has a supervisor (see `supervisor`): a fork of one small process of ours, which is started with the
first child, or a fork that has served before. Elsewhere, and where that process cannot be started, a child is a process
group: a process that leaves the group is not found again. `kill_all` knows every child, whichever thread has started
it. POSIX only.
"""

import errno
import marshal
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias

from spindle.base import limits
from spindle.programs.search_path import on_path

Keep: TypeAlias = bool | Literal["program"]
"""What may outlive us: true, the processes that a program has left running at its end; `program`, the program too."""

_lock = threading.Lock()
"""Held while the supervisor or the list of its idle forks changes: threads start children too."""
_children: set["Child"] = set()
"""Children that may have processes left."""
_supervisor: "_Supervisor | None" = None
_MOST_IDLE = 4
"""How many idle forks wait for the next children; more children seldom run at once."""
most = 0
"""How many children one owner may have at a time; 0: any number."""


class Rules(Protocol):
    """Rules of Landlock, by a descriptor that stays open as long as they are held (`fence.Ruleset`)."""

    file: int


class Confinement(Protocol):
    """A fence as children take it (`fence.Fence`)."""

    filter: bytes
    less_root: bool

    def prefix(self) -> list[str]: ...

    def ruleset(self) -> Rules | None: ...


def environment(withheld: Collection[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: ours, without the names in `withheld`, with `extra`."""
    env = {name: value for name, value in os.environ.items() if name not in withheld}
    return env | dict(extra or {})


def start(
    argv: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    files: tuple[int, int, int],
    owner: Any = None,
    keep: Keep = False,
    tied: bool = False,
    fence: Confinement | None = None,
) -> "Child":
    """Start `argv` in a session of its own with `files` as its standard files.

    `owner`: whose child it is, for `kill_all`. `keep`: see `Keep`.
    `tied`: on Linux the program ends even if we and all supervisors are killed at once; starting it takes longer.
    `fence`: what the program may do; without it, what we may.
    Raises `OSError`, and `ValueError` or `TypeError` for arguments that cannot be passed to a program.
    """
    argv = [os.fspath(word) for word in argv]
    if fence is not None:
        argv = [*fence.prefix(), *argv]
    env = os.environ if env is None else env
    for word in (*argv, cwd or ""):
        if "\0" in word:
            raise ValueError("embedded null byte")
    others = remaining()
    if most and owner is not None and sum(child.owner is owner for child in others) >= most:
        raise OSError(f"{most} programs of this session are running, no more are allowed at a time")
    try:
        child = _supervised(argv, cwd, env, files, keep, tied, fence)
    except _NoSupervisor:
        if fence is not None and sys.platform == "linux":
            raise OSError("the sandbox cannot be set up: its supervisor does not start") from None
        child = _Group(argv, cwd, env, files, keep)
    child.owner = owner
    return child


def remaining() -> "list[Child]":
    """Return the children that have processes left."""
    for child in list(_children):
        if not child.watched:
            child.poll()
    return list(_children)


def kill_all(owner: Any = None) -> None:
    """Kill the children of `owner` with every process they have started; without `owner`, kill all and wait for it.

    Called at the end of an agent and at shutdown; needs no event loop.
    """
    children = [child for child in remaining() if (owner is None or child.owner is owner) and not child.kept]
    for child in children:
        child.kill()
    if owner is not None:
        return
    end = time.monotonic() + limits.CHILDREN_END
    for child in children:
        child.wait_all_gone(max(0.0, end - time.monotonic()))


class Child:
    """A running program and all processes below it."""

    def __init__(self, pid: int, keep: Keep) -> None:
        self.pid = pid
        self._keep = keep
        self.returncode: int | None = None
        """Negative: the signal that ended it."""
        self.owner: Any = None
        self._loop: Any = None
        _children.add(self)

    @property
    def watched(self) -> bool:
        """Whether an event loop watches `fileno`, which has to stay open then, and calls `poll`.

        A loop that was closed meanwhile does not count.
        """
        return self._loop is not None and not self._loop.is_closed()

    def watch(self, loop: Any) -> None:
        self._loop = loop

    def unwatch(self) -> None:
        self._loop = None

    @property
    def kept(self) -> bool:
        """Whether the processes that are left may stay."""
        return self._keep == "program" or (self._keep and self.returncode is not None)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has news; -1 if there is none."""
        raise NotImplementedError

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> int:
        """Block until the program has ended, and return its exit code. Raises `TimeoutError`."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask the program and all processes below it to end."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill the program and all processes below it, also those that it left at its end."""
        raise NotImplementedError

    def wait_all_gone(self, timeout: float) -> None:
        """Wait until no process is left, for at most `timeout` seconds."""
        raise NotImplementedError


# -- Linux ---------------------------------------------------------------------------------------


class _NoSupervisor(Exception):
    """No supervisor can be started on this machine."""


class _Supervisor:
    def __init__(self) -> None:
        import subprocess

        self.owner = os.getpid()
        self.idle: list[socket.socket] = []
        """Control sockets of forks that wait for a command."""
        self.socket, theirs = socket.socketpair()
        program = os.path.join(os.path.dirname(__file__), "supervisor.py")
        env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        try:
            # -P is part of -I: no file of a project can pose as a module. Its environment holds none of our secrets.
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", program],
                cwd="/",
                env=env,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self.socket.close()
            raise _NoSupervisor from None
        finally:
            theirs.close()

    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def fork(self) -> socket.socket:
        """Return the control socket of a new fork. Raises `OSError`."""
        control, theirs = socket.socketpair()
        control.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self.socket, [b"F"], [theirs.fileno()])
            except OSError:
                control.close()
                raise
        return control

    def release(self, control: socket.socket) -> None:
        """Take back a fork whose command has ended and has left no process."""
        with _lock:
            if self is _supervisor and self.owner == os.getpid() and len(self.idle) < _MOST_IDLE:
                self.idle.append(control)
            else:
                control.close()  # the fork ends

    def close(self) -> None:
        self.socket.close()
        for control in self.idle:
            control.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


def _supervised(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    files: tuple[int, int, int],
    keep: Keep,
    tied: bool,
    fence: Confinement | None,
) -> Child:
    if sys.platform != "linux":
        raise _NoSupervisor
    program: str | None = argv[0]
    if "/" not in argv[0]:
        program = on_path(argv[0], env.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(2, os.strerror(2), argv[0])
    words = [os.fsencode(word) for word in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    folder = os.fsencode(os.getcwd() if cwd is None else os.path.abspath(cwd))
    rules = None if fence is None else fence.ruleset()
    passed = files if rules is None else (*files, rules.file)
    confined = None if fence is None else (fence.filter, fence.less_root)
    request = marshal.dumps((os.fsencode(program or ""), words, folder, variables, keep, tied, confined))
    killed = 0
    while killed < 2:  # the fork or the supervisor may have been killed
        supervisor, control = _idle_fork()
        new = control is None
        try:
            control = control or supervisor.fork()
            answer = _ask(control, request, passed)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the supervisor is well, and other children need it
                raise
            answer = b""
        if answer.startswith(b"started "):
            assert control is not None
            line, _, rest = answer.partition(b"\n")
            return _Supervised(int(line.split()[1]), supervisor, control, keep, rest)
        if answer:
            assert control is not None
            supervisor.release(control)
            _, number, where = answer.split()
            raise OSError(int(number), os.strerror(int(number)), cwd if where == b"cwd" else argv[0])
        if control is not None:
            control.close()
        if new:
            killed += 1
            _forget(supervisor)
    raise _NoSupervisor


def _idle_fork() -> tuple[_Supervisor, socket.socket | None]:
    """Return the supervisor, started if need be, and the control socket of an idle fork, if there is one."""
    global _supervisor
    with _lock:
        if _supervisor is None or not _supervisor.usable():
            if _supervisor is not None:
                _supervisor.close()
            _supervisor = _Supervisor()
        return _supervisor, _supervisor.idle.pop() if _supervisor.idle else None


def _ask(control: socket.socket, request: bytes, files: Sequence[int]) -> bytes:
    """Return the fork's answer; empty if it was killed or does not answer in time. Raises `OSError`."""
    data = b"R%b%b" % (len(request).to_bytes(4, "little"), request)
    sent = socket.send_fds(control, [data], files)
    if sent < len(data):
        control.settimeout(limits.CHILD_START)
        control.sendall(memoryview(data)[sent:])
        control.setblocking(False)
    ready = select.poll()
    ready.register(control, select.POLLIN)
    return control.recv(64) if ready.poll(limits.CHILD_START * 1000) else b""


def _forget(supervisor: _Supervisor) -> None:
    global _supervisor
    with _lock:
        if supervisor is _supervisor:
            supervisor.close()
            _supervisor = None


class _Supervised(Child):
    def __init__(self, pid: int, supervisor: _Supervisor, control: socket.socket, keep: Keep, said: bytes) -> None:
        super().__init__(pid, keep)
        self._supervisor: _Supervisor | None = supervisor
        """Gets the control socket back; None if the fork was killed, or got an order and ends with the child."""
        self._control = control
        self._said = b""
        """The start of a line from the supervisor."""
        self._all_gone = False
        self._lock = threading.Lock()
        """Held while the socket is used: it serves another child as soon as no process is left."""
        if said:
            self._take(said)

    def fileno(self) -> int:
        return self._control.fileno()

    def unwatch(self) -> None:
        super().unwatch()
        with self._lock:
            self._leave_if_gone()

    def poll(self) -> int | None:
        with self._lock:
            while not self._all_gone:
                try:
                    said = self._control.recv(64)
                except BlockingIOError:
                    break
                except OSError:
                    said = b""
                self._take(said)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._wait(timeout, lambda: self.returncode is not None)
        if self.returncode is None:
            raise TimeoutError
        return self.returncode

    def wait_all_gone(self, timeout: float) -> None:
        self._wait(timeout, lambda: self._all_gone)

    def terminate(self) -> None:
        self._order(b"T")

    def kill(self) -> None:
        self._order(b"K")

    def _order(self, order: bytes) -> None:
        with self._lock, suppress(OSError):
            if not self._all_gone:
                self._supervisor = None
                self._control.send(order)

    def _take(self, said: bytes) -> None:
        self._said += said
        words = self._said.split()
        if len(words) == 3 and self._said.endswith(b"\n"):
            self._said = b""
            self.returncode = int(words[1])
            self._all_gone = words[2] == b"0"
        elif not said:
            self._all_gone = True
            if self.returncode is None:  # the supervisor was killed, and the program too
                self.returncode = -signal.SIGKILL
            self._supervisor = None
        self._leave_if_gone()

    def _leave_if_gone(self) -> None:
        if self._all_gone and not self.watched and self in _children:
            _children.discard(self)
            if self._supervisor is None:
                self._control.close()
            else:
                self._supervisor.release(self._control)

    def _wait(self, timeout: float | None, done: Callable[[], bool]) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        self.poll()
        while not done():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            ready = select.poll()
            ready.register(self._control, select.POLLIN)
            ready.poll(None if left is None else left * 1000)
            self.poll()


# -- elsewhere -----------------------------------------------------------------------------------


class _Group(Child):
    def __init__(
        self, argv: Sequence[str], cwd: str | None, env: Mapping[str, str], files: tuple[int, int, int], keep: Keep
    ):
        import subprocess

        stdin, stdout, stderr = files
        self._child = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        super().__init__(self._child.pid, keep)

    def fileno(self) -> int:
        return -1

    def poll(self) -> int | None:
        self.returncode = self._child.poll()
        self._forget_if_gone()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        import subprocess

        try:
            self.returncode = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return self.returncode

    def wait_all_gone(self, timeout: float) -> None:
        with suppress(TimeoutError):
            self.wait(timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self not in _children:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies.
            self._child.send_signal(number)

    def _forget_if_gone(self) -> None:
        """Forget the child when its group is empty: another group may get the number then."""
        if self.returncode is not None:
            try:
                os.killpg(self.pid, 0)
            except (ProcessLookupError, PermissionError):
                _children.discard(self)
