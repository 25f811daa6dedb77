"""The program at the far side of a pipe: carries out operations on files, and runs programs, for an agent elsewhere.

It is sent over the pipe at the start and leaves nothing behind. Calls run in threads; the output of programs goes back
in frames as it comes, and waits if the pipe is full. When the pipe ends, all programs are killed but those that are to
be kept.

Runs on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import errno
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from typing import Any

from spindle.programs.search_path import on_path
from spindle.workspace import disk, replacing, states, texts, viewing
from spindle.workspace.disk import Cancel, ToolError, doing, find_shell
from spindle.workspace.frames import PART, Decoder, FrameError, frame, parts, unpack
from spindle.workspace.texts import OutputFile, Spool

_MODULES = (disk, replacing, texts, states, viewing)
_LOOK = 0.1
_WAITING = 8
"""Frames that wait for the pipe. If there are too many, the thread that has more waits."""
_SUBREAPER = 36

SOURCES: dict[str, str] = {}
"""The modules of this program, by name."""


class Helper:
    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._out: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._data: dict[int, bytearray] = {}
        """Bytes that came for calls."""
        self._calls: dict[int, Cancel] = {}
        self.programs: dict[int, Program] = {}
        self.keeps: set[int] = set()
        """Processes that may outlive this program."""
        self.lock = threading.Lock()
        """Held while a program starts, so that it is not taken for an orphan."""
        self.own: set[int] = set()
        """Processes that are waited for."""

    def run(self) -> None:
        threading.Thread(target=self._write, daemon=True).start()
        self.send(0, b"H", _facts())
        decoder = Decoder()
        while True:
            data = os.read(self._source, PART)
            if not data:
                self.end()
            try:
                for id, kind, content in decoder.feed(data):
                    self._take(id, kind, content)
            except FrameError:
                self.end()
            self._reap()

    def end(self) -> None:
        """Kill what must not outlive us, and leave."""
        for program in list(self.programs.values()):
            if not program.keep:
                program.kill()
        for pid in below(os.getpid(), self.keeps):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def send(self, id: int, kind: bytes, value: Any) -> None:
        for part in parts(id, kind, value):
            self._out.put(part)

    def send_bytes(self, id: int, kind: bytes, data: bytes) -> None:
        self._out.put(frame(id, kind, data))

    def _write(self) -> None:
        try:
            while True:
                view = memoryview(self._out.get())
                while view:
                    view = view[os.write(self._target, view) :]
        except OSError:  # the agent is gone
            self.end()

    def _take(self, id: int, kind: bytes, content: bytes) -> None:
        """Never waits: what it sends itself is sent by threads."""
        if kind == b"D":
            self._data.setdefault(id, bytearray()).extend(content)
        elif kind in (b"C", b"S"):
            request = unpack(content, self._data.pop(id, b""))
            self._calls[id] = cancel = Cancel()
            work = self._call if kind == b"C" else self._start
            threading.Thread(target=self._carry_out, args=(work, id, request, cancel), daemon=True).start()
        elif kind == b"?":
            with suppress(queue.Full):  # then bytes flow anyway
                self._out.put_nowait(frame(id, b"!"))
        else:
            self._order(id, kind)

    def _order(self, id: int, kind: bytes) -> None:
        program = self.programs.get(id)
        if kind == b"X":
            self._data.pop(id, None)
            if id in self._calls:
                self._calls[id].set()
        if program is not None:
            {b"X": program.kill, b"T": program.terminate, b"P": program.pause, b"G": program.go_on}[kind]()

    def _carry_out(self, work: Any, id: int, request: dict[str, Any], cancel: Cancel) -> None:
        try:
            work(id, request, cancel)
        except ToolError as error:
            self.send(id, b"F", {"tool": str(error)})
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0)
            self.send(id, b"F", {"code": code, "text": error.strerror or str(error), "path": error.filename})
        except Exception as error:
            fault = f"{type(error).__name__} in {request.get('name', 'the start of a program')}"
            self.send(id, b"F", {"tool": f"The helper failed by a fault of its own: {fault}"})
        finally:
            self._calls.pop(id, None)

    def _call(self, id: int, request: dict[str, Any], cancel: Cancel) -> None:
        name = request["name"]
        work = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
        self.send(id, b"R", work(cancel, *request["args"]))

    def _start(self, id: int, request: dict[str, Any], cancel: Cancel) -> None:
        program = Program(self, id, request)
        self.programs[id] = program
        if cancel.is_set():
            program.kill()
        program.watch()

    def _reap(self) -> None:
        """Collect processes that lost their parent and became ours. Operations wait for those that they start."""
        if not hasattr(os, "waitid"):
            return
        with self.lock, suppress(OSError):
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None or found.si_pid in self.own or os.getsid(found.si_pid) == os.getsid(0):
                    return
                os.waitpid(found.si_pid, os.WNOHANG)
                self.forget_ended()

    def forget_ended(self) -> None:
        """Forget programs that have ended and left no process: their numbers may belong to others soon."""
        for id, program in list(self.programs.items()):
            if program.has_ended and not program.left():
                self.programs.pop(id, None)


class Program:
    """A program that runs for a call."""

    def __init__(self, helper: Helper, id: int, request: dict[str, Any]) -> None:
        """Raises `ToolError`, `OSError`."""
        self._helper = helper
        self._id = id
        self._request = request
        self.keep = bool(request.get("keep"))
        self.has_ended = False
        self._spool = Spool() if request.get("spool") else None
        self._file: OutputFile | None = None
        self._goes = threading.Event()
        self._goes.set()
        separate = bool(request.get("errors"))
        argv = _argv(request)
        if request.get("file"):
            with doing("open"):
                self._file = OutputFile()
        try:
            with helper.lock, doing("spawn", argv[0]) if "command" in request else nullcontext():
                self._child = subprocess.Popen(
                    argv,
                    cwd=request["cwd"],
                    env={**os.environ, **request.get("env", {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self._file is None else self._file.file,
                    stderr=subprocess.PIPE if separate else subprocess.STDOUT,
                    start_new_session=True,
                )
                helper.own.add(self._child.pid)
        except BaseException:
            if self._file is not None:
                self._file.remove()
            raise
        self.pid = self._child.pid
        self._ended, self._end_told = os.pipe()
        if self.keep:
            helper.keeps.add(self.pid)
        helper.send(id, b"B", {"pid": self.pid, "path": self._file.path if self._file else None})

    def watch(self) -> None:
        """Tell of the output until the end; then of the end."""
        threading.Thread(target=self._wait, daemon=True).start()
        if self._file is not None:
            self._watch_file(self._file)
        else:
            self._read_pipes()
        code = self._child.wait()
        if self._spool is not None:
            self._spool.close()
        self._helper.send(self._id, b"R", {"code": code})
        if self._file is None:  # a background command may have left processes, which can still be killed
            self._helper.programs.pop(self._id, None)
        self.has_ended = True
        self._helper.forget_ended()
        os.close(self._ended)

    def _wait(self) -> None:
        self._child.wait()
        with self._helper.lock:
            self._helper.own.discard(self.pid)
        os.close(self._end_told)

    def _watch_file(self, file: OutputFile) -> None:
        done = False
        while not done:
            done = bool(select.select([self._ended], [], [], _LOOK)[0])
            if file.look():
                self._helper.send(self._id, b"N", {"size": file.size, "dropped": file.dropped})
        file.close()

    def _read_pipes(self) -> None:
        pipes = {pipe.fileno(): kind for pipe, kind in ((self._child.stdout, b"O"), (self._child.stderr, b"E")) if pipe}
        poll = select.poll()
        for pipe in (*pipes, self._ended):
            poll.register(pipe, select.POLLIN | select.POLLHUP)
        gone = 0.0
        while pipes:
            self._goes.wait()
            wait: float | None = None
            if gone:
                # Only processes that the program has left hold the pipe now.
                wait = 1000 * min(self._request["quiet"], gone + self._request["linger"] - time.monotonic())
            ready = [pipe for pipe, _ in poll.poll(wait)] if wait is None or wait > 0 else []
            if not ready:
                break
            for pipe in ready:
                if pipe == self._ended:
                    gone = time.monotonic()
                    poll.unregister(pipe)
                else:
                    data = os.read(pipe, disk.CHUNK)
                    self._pass_on(pipes[pipe], data)
                    if not data:
                        poll.unregister(pipe)
                        del pipes[pipe]
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()

    def _pass_on(self, kind: bytes, data: bytes) -> None:
        if self._spool is not None and data:
            known = self._spool.path
            self._spool.write(data)
            if known != self._spool.path or (self._spool.error and self._spool.path is None):
                self._helper.send(self._id, b"N", {"path": self._spool.path, "error": self._spool.error})
        if data:
            self._helper.send_bytes(self._id, kind, data)

    def pause(self) -> None:
        self._goes.clear()

    def go_on(self) -> None:
        self._goes.set()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.go_on()

    def left(self) -> list[int]:
        """Return the processes that it has left running."""
        return below(os.getpid(), set(), session=self.pid)

    def _signal(self, number: int) -> None:
        others = self.left() if self.has_ended else below(self.pid, set())
        if not self.has_ended:
            with suppress(OSError):
                os.killpg(self.pid, number)
        for pid in others:
            with suppress(OSError):
                os.kill(pid, number)


def _argv(request: dict[str, Any]) -> list[str]:
    """Raises `ToolError`."""
    if "command" in request:
        return [find_shell(request["cwd"], request.get("shell")), "-c", request["command"]]
    argv: list[str] = request["argv"]
    if argv[0] == "rg":
        program = on_path("rg")
        return [program or "rg", *argv[1:]] if program else [*_own_search(), *argv[1:]]
    return argv


def _own_search() -> list[str]:
    names = ("spindle.base.globs", "spindle.workspace.search")
    text = program({name: SOURCES[name] for name in names}, "spindle.workspace.search")
    return [sys.executable, "-I", "-X", "utf8", "-c", text]


def program(sources: dict[str, str], main: str) -> str:
    """Return modules as one program that begins with `main` of one of them."""
    return f"SOURCES = {sources!r}\nMAIN = {main!r}\n{_LOADER}"


_LOADER = """
import sys, types
for name in {"spindle", *(name.rpartition(".")[0] for name in SOURCES)}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in SOURCES.items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules[MAIN].SOURCES = SOURCES
sys.modules[MAIN].main()
"""


def below(root: int, without: set[int], session: int | None = None) -> list[int]:
    """Return the processes below `root`, except those in `without` and all below them; none where /proc is not.

    With a session, return only those that belong to it.
    """
    children: dict[int, list[int]] = {}
    sessions: dict[int, int] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{name}/stat", "rb") as file:
                        fields = file.read().rpartition(b")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(name))
                    sessions[int(name)] = int(fields[3]) if fields[0] != b"Z" else 0
    found: list[int] = []
    waiting = [root]
    while waiting:
        inner = [pid for pid in children.get(waiting.pop(), ()) if pid not in without]
        found += inner
        waiting += inner
    return found if session is None else [pid for pid in found if sessions[pid] == session]


def _facts() -> dict[str, Any]:
    home = os.path.expanduser("~")
    return {
        "cwd": os.getcwd(),
        "home": home if os.path.isabs(home) else "/",
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": sys.platform,
        "rg": on_path("rg") is not None,
        "git": on_path("git") is not None,
    }


def main() -> None:
    # Nothing but frames may go to the pipe, and no program may read from it.
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not ignored: programs that we start would inherit that
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # processes that leave their group stay below us
    Helper(source, target).run()
