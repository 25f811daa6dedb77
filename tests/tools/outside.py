"""What is outside of a sandbox for `escapes.py` to reach: sockets, a pipe, a terminal, shared memory."""

import ctypes
import os
import pty
import socket
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_PRIVATE, _REMOVE = 0, 0


@contextmanager
def things_outside(folder: Path) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as stack:
        for name, kind in (("socket", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM)):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            here = os.getcwd()
            os.chdir(folder)  # names of sockets must be short
            try:
                one.bind(str(folder / name) if len(str(folder / name)) < 100 else name)
            finally:
                os.chdir(here)
            if kind == socket.SOCK_STREAM:
                one.listen()
        renamed = stack.enter_context(socket.socket(socket.AF_UNIX))
        here = os.getcwd()
        os.chdir(folder)
        try:
            renamed.bind("t")
            renamed.listen()
            os.rename("t", "renamed")
        finally:
            os.chdir(here)
        os.mkfifo(folder / "fifo")
        stack.callback(os.close, os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK))
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        tty.setraw(slave)
        os.write(master, b"secret")
        (folder / "terminal").write_text(os.ttyname(slave))
        segment = libc.shmget(_PRIVATE, 4096, 0o1600)
        libc.shmat.restype = ctypes.c_void_p
        place = libc.shmat(segment, None, 0)
        ctypes.memmove(place, b"secret", 6)
        stack.callback(libc.shmctl, segment, _REMOVE, None)
        stack.callback(libc.shmdt, ctypes.c_void_p(place))
        (folder / "memory").write_text(str(segment))
        for name in ("socket", "datagram", "renamed", "fifo", "terminal", "memory"):
            with suppress(PermissionError):
                os.chmod(folder / name, 0o666)
        yield
