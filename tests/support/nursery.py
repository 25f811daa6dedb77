"""`Popen` and `run` of `subprocess`, with a short way for `python -m spindle`: a fork of a process that imported it.

A test that starts a process spends half of its time on importing the same modules again. A fork is a process like any
other: arguments, environment, directory, pipes, signals, exit code. With `terminal=True` its standard files are a
terminal, which it controls. Starts that need more (a session of their own, other descriptors) go the ordinary way.
Tests of the start itself use `subprocess`.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

__all__ = ["Popen", "end", "run", "use_short_way"]

SPINDLE = [sys.executable, "-m", "spindle"]
_short_way = sys.platform == "linux"
_cradles: dict[tuple[Any, ...], socket.socket] = {}
_lock = threading.Lock()


def use_short_way(use: bool) -> None:
    global _short_way
    _short_way = use


def run(
    args: list[str], *, input: Any = None, capture_output: bool = False, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process of a test at once; `make coverage` lets it write down first which lines it has reached."""
    if process.poll() is not None:
        return
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait(5)


class Popen(subprocess.Popen[Any]):
    _channel: socket.socket | None = None

    def __init__(self, args: list[str], *, terminal: bool = False, **options: Any) -> None:
        usual = options.keys() <= {"cwd", "env", "stdin", "stdout", "stderr", "text", "bufsize"}
        self._short = usual and _short_way and list(args[:3]) == SPINDLE
        self._terminal = terminal
        if terminal and not self._short:
            options |= {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        # The parameters stand in the same order in every Python from 3.11 to 3.14.
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        files = [number if pipe == -1 else pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        if not self._short or (not self._terminal and any(map(os.isatty, files))):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        env = dict(os.environ if env is None else env)
        arguments = [os.fspath(argument) for argument in args[3:]]
        request = {"arguments": arguments, "env": env, "cwd": os.fspath(cwd or os.getcwd()), "terminal": self._terminal}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with _lock, theirs:
            socket.send_fds(_cradle(env, self._terminal), [json.dumps(request).encode()], [*files, theirs.fileno()])
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = int(self._channel.recv(32))
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._channel is None:
            return super()._try_wait(flags)  # type: ignore[misc]
        return self._ended(flags)

    def _ended(self, flags: int) -> tuple[int, int]:
        assert self._channel is not None
        try:
            said = self._channel.recv(32, socket.MSG_DONTWAIT if flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        except OSError:  # the garbage collector has closed the channel after a test
            said = b""
        self._channel.close()
        return self.pid, int(said or signal.SIGKILL)

    def _internal_poll(self, *rest: Any, **names: Any) -> int | None:
        if self._channel is None:
            return super()._internal_poll(*rest, **names)  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None and (ended := self._ended(os.WNOHANG))[0]:
                    self._handle_exitstatus(ended[1])  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _cradle(env: dict[str, str], chat: bool) -> socket.socket:
    """Return the socket of a cradle that was started with the settings of `env` for Python, locale and coverage."""
    start = {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG", "COVERAGE"))}
    key = (chat, *sorted(start.items()))
    if key not in _cradles:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            what = "chat" if chat else "no chat"
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("cradle.py")), str(theirs.fileno()), what],
                env={"PATH": os.environ["PATH"], **start},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        _cradles[key] = ours
    return _cradles[key]
