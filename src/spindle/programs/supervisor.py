"""The program that holds the commands of one agent. `children` runs this file by its path; it imports nothing of ours.

Its first process only forks, once for each control socket that the agent hands it. A fork takes one request after
another from its socket, starts that command and is the reaper of every process the command starts: whatever a daemon
does to get away (setsid, double fork, nohup), the kernel hands it to the nearest reaper above it. So the fork finds all
these processes below itself. It kills them when the agent says so, or when the agent's end of the control socket
closes, for whatever reason. A command that is `tied` is killed by the kernel when its fork is killed, too. A command
may have a fence: rules of Landlock and a seccomp filter, which hold for it and for all that it starts. Linux only.

Agent to fork: `R`, a length and a request, with the command's files and the rules; `T` asks all processes to end, `K`
kills them.
Fork to agent, in lines: `started PID` or `failed ERRNO WHERE`, then `ended CODE LEFT`. If no process is left and the
fork got no order, it waits for the next request; otherwise the socket closes when no process is left.
"""

import _signal as signal  # type: ignore[import-not-found]  # not `signal`, which loads `enum`: the first command waits for this program to start
import _socket as socket
import _thread
import ctypes
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would double the time this program needs to start
    from typing import NoReturn

    Fence = tuple[bytes, bool]
    """A seccomp filter, and whether root loses capabilities."""

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_RESTRICT_SELF = 446
_CAPABILITIES = 41
_KEPT_CAPABILITIES = 0b0010_0100_1111_1011
"""Of root behind a fence: about owners and modes of files, signals, users, low ports and raw sockets. With others root
could reach around the fence: load modules, make devices, look into other processes."""
_KILL_INTERVAL_MS = 5
_PATIENCE = 40
"""Rounds of a kill in which a killed group may end before its processes are looked for one by one."""
"""Between two rounds of killing: a process forked during one round is found in the next."""
_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl


def main() -> None:
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(0))
    os.dup2(1, 0)  # /dev/null
    _become_reaper()

    def reap(*_: object) -> None:
        """Collect forks that have ended. If one was killed, kill the processes that it held."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if os.WIFSIGNALED(found[1]):
                    _kill_strays(forks)
                forks.discard(found[0])
        except ChildProcessError:
            pass

    forks: set[int] = set()
    signal.signal(signal.SIGCHLD, reap)
    while True:
        data, ancillary, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        if not data:  # the agent is gone
            os._exit(0)
        (control,) = memoryview(ancillary[0][2]).cast("i")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        fork = os.fork()
        if fork == 0:
            requests.close()
            _serve(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, control))
        forks.add(fork)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.close(control)


def _serve(control: socket.socket) -> "NoReturn":
    """Take one request after another, and hold the processes of each until they end."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    _become_reaper()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        data, ancillary, _, _ = control.recvmsg(1 << 16, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
        if data[:1] != b"R":  # the agent is gone, or its order came after the command had ended
            os._exit(0)
        files = memoryview(ancillary[0][2]).cast("i").tolist()
        data += _read(control, 5 - len(data))
        data += _read(control, 5 + int.from_bytes(data[1:5], "little") - len(data))
        program, argv, cwd, env, keep, tied, fence = marshal.loads(data[5:])
        if _is_gone(control):  # the agent was killed after its request: start nothing
            os._exit(0)
        where, pid = "cwd", 0
        try:
            os.chdir(cwd)
            where = "program"
            if tied:
                pid = _start_tied(program, argv, env, files, fence)
            else:
                pid = (_start if fence is None else _start_fenced)(program, argv, env, files, fence)
            _tell(control, b"started %d\n" % pid)
        except OSError as error:
            _tell(control, b"failed %d %s\n" % (error.errno or 0, where.encode()))
        os.chdir("/")
        for file in files:
            os.close(file)
        if pid:
            _hold(control, wake, poll, pid, keep)


def _start(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], files: list[int], fence: "Fence | None" = None
) -> int:
    """Raises `OSError`."""
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files[:3])],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


def _start_fenced(program: bytes, argv: list[bytes], env: dict[bytes, bytes], files: list[int], fence: "Fence") -> int:
    """Start a command behind a fence. Raises `OSError`.

    A thread goes behind the fence and starts the command from there: quicker than a fork of this process, which itself
    stays outside.
    """
    result: list[int | OSError] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def start() -> None:
        try:
            _confine(files, fence)
            result.append(_start(program, argv, env, files))
        except OSError as error:
            result.append(error)
        finally:
            ended.release()

    _thread.start_new_thread(start, ())
    ended.acquire()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


def _confine(files: list[int], fence: "Fence") -> None:
    """Put this thread behind Landlock's rules, if there is a fourth file, and a seccomp filter. Raises `OSError`."""
    lines, is_less = fence
    for number in range(_CAPABILITIES) if is_less else ():
        if not _KEPT_CAPABILITIES >> number & 1:
            _prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # a process that is not root has none to lose
    failed = _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not failed and len(files) > 3:
        failed = _libc.syscall(_LANDLOCK_RESTRICT_SELF, files[3], 0)
    if not failed and lines:
        failed = _prctl(_PR_SET_SECCOMP, 2, ctypes.byref(_Filter(len(lines) // 8, lines)), 0, 0)
    if failed:
        raise OSError(ctypes.get_errno(), "")


def _start_tied(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], files: list[int], fence: "Fence | None"
) -> int:
    """Start a command that does not outlive this process, however the process ends. Takes three times as long.

    Raises `OSError`.
    """
    me = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:  # the parent was killed before prctl took effect
                os._exit(0)
            os.setsid()
            for number, file in enumerate(files[:3]):
                os.dup2(file, number)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if fence is not None:
                _confine(files, fence)
            os.execve(program, argv, env)
        except OSError as error:
            os.write(write_end, bytes([error.errno or 0]))
        finally:
            os._exit(127)
    os.close(write_end)
    failure = os.read(read_end, 1)  # empty if the program runs
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(failure[0], "")
    return pid


def _hold(control: socket.socket, wake: int, poll: select.poll, command: int, keep: "bool | str") -> None:
    """Return when the command has ended by itself and has left no process; otherwise this process ends."""
    status: int | None = None
    told = ordered = killing = abandoned = False
    patience = 0
    while True:
        status, left = _reap(command, status)
        # A look for processes costs as much as there are on the machine: only for those that left the group.
        if killing and left and (status is not None or patience <= 0):
            killing = _signal_all(signal.SIGKILL)
        patience -= 1
        # During a kill, the agent is told of the end only when all processes have ended.
        if status is not None and not told and not (killing and left):
            told = True
            _tell(control, b"ended %d %d\n" % (os.waitstatus_to_exitcode(status), left))
            if not left and not ordered:
                return
        if not left or (abandoned and not killing):
            os._exit(0)
        for file, _ in poll.poll(_KILL_INTERVAL_MS if killing else None):
            if file == wake:
                os.read(wake, 4096)
                continue
            ordered = True
            order = _next_order(control)
            if order == b"T":
                _signal_all(signal.SIGTERM)
                continue
            if not killing and status is None and not (_may_stay(keep, status) and not order):
                patience = _kill_group(command)
            killing = True
            if not order:
                abandoned = True
                poll.unregister(control)
                if _may_stay(keep, status):
                    os._exit(0)


def _kill_group(command: int) -> int:
    """Kill the group of a command that has not been collected. Return for how many rounds its end may be waited for."""
    try:
        os.killpg(command, signal.SIGKILL)
    except OSError:  # a process of another user, by sudo for instance
        return 0
    return _PATIENCE


def _may_stay(keep: "bool | str", status: int | None) -> bool:
    """Say whether processes may outlive the agent: those that a command has left, or the command, too."""
    return keep == "program" or (bool(keep) and status is not None)


def _reap(command: int, status: int | None) -> tuple[int | None, bool]:
    """Collect ended processes. Return the status of the command, if known by now, and whether any process is left."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == command:
                status = found[1]
    except ChildProcessError:
        return status, False
    return status, True


def _next_order(control: socket.socket) -> bytes:
    """Return `T`, or `K` if that has come as well; empty if the agent is gone."""
    try:
        orders = control.recv(64)
    except OSError:
        return b""
    return b"K" if b"K" in orders else orders[:1]


def _is_gone(control: socket.socket) -> bool:
    try:
        return not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _tell(control: socket.socket, line: bytes) -> None:
    try:
        control.send(line)
    except OSError:
        pass  # the agent is gone; `_hold` finds out when it reads


def _read(control: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = control.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _become_reaper() -> None:
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("no reaper")  # a kernel before 3.4


def _signal_all(number: int) -> bool:
    """Send a signal to all processes below this one. Return whether any of them could be reached."""
    reached = False
    for pid in _below(os.getpid()):
        try:
            os.kill(pid, number)
            reached = True
        except ProcessLookupError:
            reached = True  # it has just ended
        except PermissionError:
            pass  # a process of another user, by sudo for instance
    return reached


def _kill_strays(forks: set[int]) -> None:
    """Kill processes that belong to none of the forks: their own fork was killed."""
    while strays := _below(os.getpid(), without=forks):
        reached = False
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
                reached = True
            except OSError:
                pass
        if not reached:
            return
        select.select([], [], [], _KILL_INTERVAL_MS / 1000)
        for pid in strays:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _below(root: int, without: "set[int] | frozenset[int]" = frozenset()) -> list[int]:
    """Return the processes below `root`, except those in `without` and all below them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in without]
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    main()
