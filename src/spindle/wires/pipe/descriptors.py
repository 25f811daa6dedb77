"""Reading and writing a descriptor that another process made, without blocking and without changing it.

Setting O_NONBLOCK on an inherited descriptor would change it for all processes that share it, and for a stderr that
leads to the same terminal. So sockets get the flag per call, pipes and terminals are opened a second time where the
system can do that, and for the rest a thread does the waiting.
"""

import asyncio
import contextlib
import errno
import os
import select
import socket
import stat
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

CHUNK_BYTES: Final = 256 << 10
# The kernel does not tell when it has buffers again.
NO_BUFFERS_S: Final = 0.01


def open_source(descriptor: int) -> "Source":
    """Return a reader of `descriptor`, which the caller still owns. `read` returns the next bytes; none at the end."""
    end = _open_end(descriptor, os.O_RDONLY)
    return _ThreadSource(descriptor) if end is None else _ReadySource(end)


def open_target(descriptor: int, on_ready: Callable[[], None], on_broken: Callable[[OSError], None]) -> "Target":
    """Return a writer of `descriptor`, which the caller still owns.

    `write` begins to write all of the bytes. True: done. False: the writer is `busy`, and calls `on_ready` when all
    bytes are written, or `on_broken`. Where the system can tell, it also calls `on_broken` when the reader goes away
    between two writes.
    """
    end = _open_end(descriptor, os.O_WRONLY)
    if end is None:
        return _ThreadTarget(descriptor, on_ready, on_broken)
    return _ReadyTarget(end, on_ready, on_broken)


# -- ends that never block -----------------------------------------------------------------------


class _End(NamedTuple):
    """A descriptor whose `read` and `write` raise `BlockingIOError` instead of waiting."""

    number: int
    read: Callable[[int], bytes]
    write: Callable[[bytes | memoryview], int]
    close: Callable[[], None]
    waits: bool
    """Whether the system tells when there is more to read; a file is always ready."""


def _socket_end(descriptor: int) -> _End:
    end = socket.socket(fileno=os.dup(descriptor))
    flag = socket.MSG_DONTWAIT
    return _End(end.fileno(), lambda size: end.recv(size, flag), lambda data: end.send(data, flag), end.close, True)


def _file_end(number: int, *, waits: bool) -> _End:
    return _End(number, partial(os.read, number), partial(os.write, number), partial(os.close, number), waits)


def _open_end(descriptor: int, flags: int) -> _End | None:
    """Return our own end for the file of `descriptor`; None if only blocking calls are possible."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        return _socket_end(descriptor)
    if not stat.S_ISFIFO(mode) and not os.isatty(descriptor):
        # Files and devices like /dev/null never make us wait.
        return _file_end(os.dup(descriptor), waits=False)
    try:
        number = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_NONBLOCK | os.O_NOCTTY)
        return _file_end(number, waits=True)
    except (OSError, AttributeError):
        return None


class _ReadySource:
    def __init__(self, end: _End) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._more = True
        """Whether bytes may be there already, so that reading comes before waiting."""
        self._watched = False
        self._wanted: asyncio.Future[bytes] | None = None

    async def read(self) -> bytes:
        if self._more:
            # Other tasks get a turn between two reads, even if the client never pauses.
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                return self._take()
        if not self._watched:
            self._loop.add_reader(self._end.number, self._come)
            self._watched = True
        self._wanted = self._loop.create_future()
        try:
            return await self._wanted
        finally:
            self._wanted = None

    def close(self) -> None:
        self._unwatch()
        self._end.close()

    def _come(self) -> None:
        if self._wanted is None:  # no `read` waits; the bytes stay where they are
            self._more = True
            self._unwatch()
        elif not self._wanted.done():
            with contextlib.suppress(BlockingIOError):
                self._wanted.set_result(self._take())

    def _take(self) -> bytes:
        try:
            data = self._end.read(CHUNK_BYTES)
        except BlockingIOError:
            self._more = False
            raise
        except OSError:
            # The client reset the connection, or the terminal hung up: that is the end as well.
            data = b""
        # A file has no readiness to wait for: it is read up to its end.
        self._more = len(data) == CHUNK_BYTES or not self._end.waits
        return data

    def _unwatch(self) -> None:
        if self._watched:
            self._loop.remove_reader(self._end.number)
            self._watched = False


class _ReadyTarget:
    def __init__(self, end: _End, on_ready: Callable[[], None], on_broken: Callable[[OSError], None]) -> None:
        self.busy = False
        self._end = end
        self._on_ready = on_ready
        self._on_broken = on_broken
        self._rest: bytes | memoryview = b""
        self._loop = asyncio.get_running_loop()
        self._watch = _watch_for_end(end.number)
        if self._watch is not None:
            self._loop.add_reader(self._watch.fileno(), self._break, BrokenPipeError(errno.EPIPE, "the reader is gone"))

    def write(self, data: bytes) -> bool:
        self._rest = data
        return self._go_on()

    def close(self) -> None:
        self._stop_watching()
        self._loop.remove_writer(self._end.number)
        self._end.close()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._loop.remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _break(self, error: OSError) -> None:
        # Busy for good: `_resume` is never called.
        self.busy = True
        self._rest = b""
        self._stop_watching()
        self._loop.remove_writer(self._end.number)
        self._on_broken(error)

    def _go_on(self) -> bool:
        try:
            while self._rest:
                written = self._end.write(self._rest)
                self._rest = memoryview(self._rest)[written:] if written < len(self._rest) else b""
        except BlockingIOError:
            self.busy = True
            self._loop.add_writer(self._end.number, self._resume)
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                self.busy = True
                self._loop.call_later(NO_BUFFERS_S, self._resume)
            else:
                self._break(error)
            return False
        return True

    def _resume(self) -> None:
        if self._go_on():
            self.busy = False
            self._loop.remove_writer(self._end.number)
            self._on_ready()


def _watch_for_end(number: int) -> "select.epoll | None":
    """Return a poll object that becomes readable when the other side of `number` is gone; None if that is not possible.

    Bytes that wait to be read do not count: a socket may be stdin, too.
    """
    if not hasattr(select, "epoll"):
        return None
    with contextlib.suppress(OSError):  # a file, or no descriptors are left
        watch = select.epoll()
        watch.register(number, 0)  # hang-ups and errors are reported in any case
        return watch
    return None


# -- threads that wait ---------------------------------------------------------------------------
#
# They are daemons: a thread that waits for a silent client must not keep the process alive. `select` is for
# descriptors that another process made non-blocking.


class _ThreadSource:
    def __init__(self, descriptor: int) -> None:
        from queue import SimpleQueue

        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[asyncio.Future[bytes] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    async def read(self) -> bytes:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._asked.put(answer)
        return await answer

    def close(self) -> None:
        self._asked.put(None)

    def _run(self) -> None:
        while answer := self._asked.get():
            _tell(self._loop, _give, answer, self._read())

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, CHUNK_BYTES)
            except BlockingIOError:
                select.select([self._descriptor], [], [])
            except OSError:
                return b""


class _ThreadTarget:
    def __init__(self, descriptor: int, on_ready: Callable[[], None], on_broken: Callable[[OSError], None]) -> None:
        from queue import SimpleQueue

        self.busy = False
        self._descriptor = descriptor
        self._on_ready = on_ready
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    def write(self, data: bytes) -> bool:
        self.busy = True
        self._asked.put(data)
        return False

    def close(self) -> None:
        self._asked.put(b"")

    def _run(self) -> None:
        while data := self._asked.get():
            try:
                self._write(memoryview(data))
            except OSError as error:
                _tell(self._loop, self._on_broken, error)
                return
            _tell(self._loop, self._done)

    def _write(self, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    def _done(self) -> None:
        self.busy = False
        self._on_ready()


def _give(answer: asyncio.Future[bytes], data: bytes) -> None:
    if not answer.done():
        answer.set_result(data)


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the result is of no use any more
        loop.call_soon_threadsafe(call, *values)


Source: TypeAlias = _ReadySource | _ThreadSource
Target: TypeAlias = _ReadyTarget | _ThreadTarget
