"""The child process that holds a model: started when first needed, shared by all users of a model, ended with us.

A lease keeps a server from being stopped while an answer comes; a model without a lease makes room when another one is
wanted. A thread waits for the load. An abort gives up the wait; the child ends at once when the last wait is given up.
"""

import asyncio
import atexit
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import msgspec

from spindle.base import limits
from spindle.llm.local import RUNTIME, LocalModelError, ModelHeader, check_machine, read_header
from spindle.programs import children
from spindle.shapes.codec import decode, encode

DEBUG = "SPINDLE_LOCAL_DEBUG"
"""Environment variable: show the model server's log on stderr."""
_LOG_LIMIT = 20_000
_GIVEN_UP = "Loading was given up"


class WantedModel(msgspec.Struct, frozen=True):
    """The model to run, and how."""

    path: Path
    name: str
    """Name of the model in the server's answers."""
    context: int
    threads: int | None = None
    """None: as many as this machine can spare."""


class Facts(msgspec.Struct, frozen=True):
    """A running server and the model in it."""

    url: str
    key: str
    parameters: int
    context: int
    tools: bool
    """The model's chat template knows tools."""
    thinking: bool
    """The model's chat template can switch thinking off."""


@asynccontextmanager
async def lease(wanted: WantedModel) -> AsyncIterator[Facts]:
    """Give a server with that model, starting it if need be. Raises `LocalModelError`."""
    server = _claim(wanted)
    try:
        loaded = asyncio.wrap_future(server.facts)
        # Look at a failure that comes after the wait was given up, or asyncio will complain about it.
        loaded.add_done_callback(lambda loaded: loaded.cancelled() or loaded.exception())
        yield await asyncio.shield(loaded)  # others may wait for the same load
    finally:
        _release(server)


def stop_all() -> None:
    """End every child, used or not."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
    for server in servers:
        server.stop()


# -- leases --------------------------------------------------------------------------------------

_lock = threading.Lock()
_servers: dict[WantedModel, "_Server"] = {}


def _claim(wanted: WantedModel) -> "_Server":
    with _lock:
        if not _servers:
            atexit.register(stop_all)  # more than once does no harm
        server = _servers.get(wanted)
        if server is None or not server.usable():
            idle = [_servers.pop(key) for key in [key for key, other in _servers.items() if other.users == 0]]
            server = _servers[wanted] = _Server(wanted, idle)
        server.users += 1
    return server


def _release(server: "_Server") -> None:
    with _lock:
        server.users -= 1
        given_up = server.users == 0 and not server.facts.done()
        if given_up and _servers.get(server.wanted) is server:
            del _servers[server.wanted]
    if given_up:
        server.stop()


# -- one child -----------------------------------------------------------------------------------


class _Server:
    def __init__(self, wanted: WantedModel, instead_of: "list[_Server]") -> None:
        self.wanted = wanted
        self.users = 0
        self.facts: Future[Facts] = Future()
        """Done when the model is loaded, or cannot be loaded."""
        self._process: children.Child | None = None
        self._stdin: IO[bytes] | None = None
        self._stopped = False
        self._guard = threading.Lock()
        """Held while the child is started or stopped, which may happen in two threads."""
        # A daemon: leaving the program must not wait for a load.
        threading.Thread(target=self._start, args=(instead_of,), name="spindle-local-load", daemon=True).start()

    def usable(self) -> bool:
        """Tell whether the server is loading or serving."""
        if not self.facts.done():
            return True
        return self.facts.exception() is None and self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the child. Wait for a child that has loaded; leave a loading one to the thread that loads it."""
        with self._guard:
            self._stopped = True
            process = self._process
        if process is None:
            return
        if not self.facts.done():
            process.kill()  # a loading child does not look at its stdin
            return
        assert self._stdin is not None
        self._stdin.close()
        try:
            process.wait(limits.LOCAL_SERVER_EXIT)
        except TimeoutError:
            process.kill()
            process.wait()

    def _start(self, instead_of: "list[_Server]") -> None:
        try:
            for server in instead_of:
                server.stop()  # before we look how much memory is free
            check_machine()
            check_memory(self.wanted.path, read_header(self.wanted.path), self.wanted.context)
            with tempfile.TemporaryFile() as log:
                facts = self._load(log)
            self.facts.set_result(facts)
        except LocalModelError as error:
            self.facts.set_exception(error)
        except Exception as error:  # any failure must end the wait
            self.facts.set_exception(LocalModelError(f"Cannot start the local model: {error}"))

    def _load(self, log: IO[bytes]) -> Facts:
        debug = bool(os.environ.get(DEBUG))
        wanted = {
            "path": str(self.wanted.path),
            "name": self.wanted.name,
            "context": self.wanted.context,
            "threads": self.wanted.threads or default_threads(),
            "key": secrets.token_urlsafe(24),
            "debug": debug,
        }
        with self._guard:
            if self._stopped:
                raise LocalModelError(_GIVEN_UP)
            process, self._stdin, stdout = _start_worker(2 if debug else log.fileno())
            self._process = process
        with stdout:
            try:
                self._stdin.write(encode(wanted) + b"\n")
                self._stdin.flush()
            except BrokenPipeError:
                pass  # its log and exit code say more
            line = stdout.readline()
        answer = decode(line) if line else {"error": ""}
        if "error" not in answer:
            return msgspec.convert({**answer, "key": wanted["key"]}, Facts)
        code = process.wait()
        if self._stopped:
            raise LocalModelError(_GIVEN_UP)
        log.seek(0)
        said = log.read(_LOG_LIMIT).decode(errors="replace")
        raise LocalModelError(_reason(self.wanted.path, answer["error"], said, code))


def _start_worker(stderr: int) -> tuple[children.Child, IO[bytes], IO[bytes]]:
    """Start a child; return it with our ends of its stdin and stdout."""
    # -P: a file of the project must not be imported in place of a module.
    argv = [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))]
    # The child needs none of these.
    secrets = [name for name in os.environ if name.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD"))]
    (stdin, write_end), (read_end, stdout) = os.pipe(), os.pipe()
    try:
        files = (stdin, stdout, stderr)
        child = children.start(argv, cwd=None, env=children.environment(secrets), files=files, tied=True)
    except BaseException:
        os.close(write_end)
        os.close(read_end)
        raise
    finally:
        os.close(stdin)
        os.close(stdout)
    return child, os.fdopen(write_end, "wb"), os.fdopen(read_end, "rb")


def _reason(path: Path, error: str, log: str, code: int) -> str:
    """Turn the error, the log and the exit code of a child into one line of advice."""
    from spindle.base.installation import install_command

    name = path.name
    if error.startswith(("ImportError", "ModuleNotFoundError", "OSError")):
        advice = f"Reinstall it: {install_command('--force-reinstall', RUNTIME)}"
        if "cannot open shared object file" in error:
            advice = "Install that library with the system's packages (libgomp.so.1: apt install libgomp1)"
        return f"The local model runtime does not load here ({error}). {advice}"
    if "unknown model architecture" in log:
        return f"{name} is of a kind this runtime does not know. Update it: {install_command('--upgrade', RUNTIME)}"
    if "insufficient memory" in log or "failed to allocate" in log or code == -9:
        return f"Not enough memory for {name}. Use a smaller model or a smaller local.contextSize in settings.json"
    if code == -4:
        advice = "Use a model server such as Ollama instead"
        return f"This processor lacks instructions the local model runtime needs. {advice}"
    if "error loading model" in log:
        detail = log.split("error loading model: ", 1)[1].splitlines()[0].replace(str(path), name)
        return f"{name} is damaged or incomplete ({detail}). Remove it and get it again"
    return f"The local model {name} did not start ({error or f'exit code {code}'}). See why with {DEBUG}=1"


# -- memory and threads of this machine ----------------------------------------------------------

_MAX_THREADS = 8
_GIB = 1 << 30


def check_memory(path: Path, header: ModelHeader, context: int) -> None:
    """Raise `LocalModelError` if the model cannot fit."""
    free, needed = available_memory(), header.memory(context)
    if free is not None and needed > free:
        raise LocalModelError(
            f"Not enough memory for {path.name}: it takes {needed / _GIB:.1f} GiB and {free / _GIB:.1f} are free. "
            "Use a smaller model or a smaller local.contextSize in settings.json"
        )


def available_memory() -> int | None:
    """Return how many bytes can be used; None if this system does not tell."""
    limits = [limit for limit in (_free_memory(), _container_limit()) if limit is not None]
    return min(limits, default=None)


def default_threads() -> int:
    """Return how many threads to compute with: one core is left for everything else.

    The threads wait for each other after every step, so one that has to share its core slows all of them down: with
    as many threads as cores a busy machine is thirty times slower, not two times.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores - 1, 1), _MAX_THREADS)


def _free_memory() -> int | None:
    if sys.platform == "win32":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _container_limit() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text("ascii"))
    except (OSError, ValueError):  # no container, or "max"
        return None
