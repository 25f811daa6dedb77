"""The program that holds the commands of one agent. `children` runs this file by its path, with nothing of ours loaded.

The first process of it only forks. Each fork waits for one request on the agent's socket, starts that command and
becomes the reaper of everything the command starts: whatever a daemon does to get away (setsid, double fork, nohup),
the kernel hands it to the nearest reaper above it. So one walk down from here finds all of it, and it is killed when
the agent says so, or when the agent's end of the control socket closes, for whatever reason. A command that is `tied`
is killed by the kernel when its fork is killed, too. Linux only.

Agent to fork: `T` asks everything to end, `K` kills it. Fork to agent, in lines: `started PID` or `failed ERRNO WHERE`,
then `ended CODE LEFT`. The socket closes when nothing is left.
"""

import _signal as signal  # type: ignore[import-not-found]  # not `signal`, which loads `enum`: the first command waits for this program to start
import _socket as socket
import ctypes
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would double the time this program needs to start
    from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_INTERVAL_MS = 5
"""Between two rounds of killing: what was forked during one round is found in the next."""
_prctl = ctypes.CDLL(None).prctl


def main() -> None:
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(0))
    os.dup2(1, 0)  # /dev/null
    _become_reaper()
    wake, woken = os.pipe()
    spare = 0

    def reap(*_: object) -> None:
        """See which forks have ended. What one left that was killed is killed too."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                os.write(woken, _number(found[0]))
                if os.WIFSIGNALED(found[1]):
                    _kill_strays(forks)
                forks.discard(found[0])
        except ChildProcessError:
            pass

    forks: set[int] = set()
    signal.signal(signal.SIGCHLD, reap)
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        spare = os.fork()
        if spare == 0:
            os.close(wake)
            _serve(requests, woken)
        forks.add(spare)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        # Wait until the spare has taken a request or has died. Zero: the agent is gone.
        while (number := int.from_bytes(os.read(wake, 4), "little")) != spare:
            if number == 0:
                os._exit(0)


def _serve(requests: socket.socket, woken: int) -> "NoReturn":
    """Take one request, and hold what it starts to the end."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    _become_reaper()
    data, ancillary, _, _ = requests.recvmsg(4, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
    if not data:
        os.write(woken, _number(0))
        os._exit(0)
    control_fd, *files = memoryview(ancillary[0][2]).cast("i")
    data += _read(requests, 4 - len(data))
    program, argv, cwd, env, keep, tied = marshal.loads(_read(requests, int.from_bytes(data, "little")))
    os.write(woken, _number(os.getpid()))
    os.close(woken)
    requests.close()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, control_fd)
    where = "cwd"
    try:
        os.chdir(cwd)
        where = "program"
        pid = (_start_tied if tied else _start)(program, argv, env, files)
    except OSError as error:
        control.send(b"failed %d %s\n" % (error.errno or 0, where.encode()))
        os._exit(0)
    control.send(b"started %d\n" % pid)
    os.chdir("/")
    for file in files:
        os.close(file)
    _hold(control, wake, pid, keep)


def _start(program: bytes, argv: list[bytes], env: dict[bytes, bytes], files: list[int]) -> int:
    """Raises `OSError`."""
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def _start_tied(program: bytes, argv: list[bytes], env: dict[bytes, bytes], files: list[int]) -> int:
    """Start a command that does not outlive this process, however that ends; it takes three times as long.

    Raises `OSError`.
    """
    me = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:  # it was killed before the kernel knew
                os._exit(0)
            os.setsid()
            for number, file in enumerate(files):
                os.dup2(file, number)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execve(program, argv, env)
        except OSError as error:
            os.write(write_end, _number(error.errno or 0))
        finally:
            os._exit(127)
    os.close(write_end)
    failure = os.read(read_end, 4)  # nothing if the program runs
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int.from_bytes(failure, "little"), "")
    return pid


def _hold(control: socket.socket, wake: int, command: int, keep: bool) -> "NoReturn":
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    status: int | None = None
    told = killing = abandoned = False
    left = True
    while True:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == command:
                    status = found[1]
        except ChildProcessError:
            left = False
        if killing and left:
            killing = _signal_all(signal.SIGKILL)
            left = killing or left
        # While it is being killed the end is told when everything has ended.
        if status is not None and not told and not (killing and left) and not abandoned:
            told = True
            try:
                control.send(b"ended %d %d\n" % (os.waitstatus_to_exitcode(status), left))
            except OSError:
                pass  # read as the end below
        if not left or (abandoned and not killing):
            os._exit(0)
        for file, _ in poll.poll(_KILL_INTERVAL_MS if killing else None):
            if file == wake:
                os.read(wake, 4096)
                continue
            try:
                order = control.recv(64)
            except OSError:
                order = b""
            if not order:
                abandoned = True
                poll.unregister(control)
                if keep and status is not None:
                    os._exit(0)
            if b"K" in order or not order:
                killing = True
            elif b"T" in order:
                _signal_all(signal.SIGTERM)


def _number(pid: int) -> bytes:
    return pid.to_bytes(4, "little")


def _read(requests: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = requests.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _become_reaper() -> None:
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("no reaper")  # a kernel before 3.4


def _signal_all(number: int) -> bool:
    """Send a signal to all below this process. Returns whether one of them could be reached."""
    reached = False
    for pid in _below(os.getpid()):
        try:
            os.kill(pid, number)
            reached = True
        except ProcessLookupError:
            reached = True  # it is on its way
        except PermissionError:
            pass  # of another user, by sudo for instance
    return reached


def _kill_strays(forks: set[int]) -> None:
    """Kill what belongs to none of the forks: the one that held it was killed."""
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
    """Return the processes below `root`, by their parents; those of `without` and below them are left out."""
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
