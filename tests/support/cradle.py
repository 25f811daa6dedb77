"""The process that `nursery` forks `spindle` processes from: it has imported the program, and forks for each start.

A child goes on as `python -m spindle` does after its imports, with its own arguments, environment, directory and
standard files or terminal. It has the modules that serve an agent (for a terminal, those of the chat, too) and nothing
else of the program or of the tests. It ends as the interpreter does (threads, `atexit`, flush), but does not take
modules apart: that would copy all memory that the fork shares, and cost more than the rest of a short command.
"""

import atexit
import fcntl
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import termios
import threading
from importlib import import_module
from typing import Any

LOADED = (
    "aiohttp",
    "spindle.apps.cli.agent_source",
    "spindle.apps.cli.assemble",
    "spindle.apps.cli.serving",
    "spindle.apps.cli.session_choice",
    "spindle.llm.http",
    "spindle.llm.stream",
    "spindle.plugins.mcp.mcp_host",
    "spindle.protocol.schema",
    "spindle.wires.http.api",
    "spindle.wires.server",
    "spindle.wires.stdio",
    "spindle.tools.todo",
    "spindle.tools.user_bash",
)
CHAT = ("spindle.apps.cli.interactive", "spindle.apps.console.editor", "spindle.apps.console.talk")


def serve(control: socket.socket) -> None:
    """Fork for each request, and report how each child ended. Returns in the child."""
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    born: dict[int, socket.socket] = {}
    while True:
        ready = select.select([control, wake], [], [])[0]
        if wake in ready:
            wake.recv(4096)
            while born and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with born.pop(ended[0]) as channel:
                    _tell(channel, ended[1])
        if control in ready:
            message, files, _, _ = socket.recv_fds(control, 1 << 20, 4)
            if not message:
                os._exit(0)
            channel = socket.socket(fileno=files.pop())
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for one in (control, wake, woken, channel, *born.values()):
                    one.close()
                _become(json.loads(message), files)
                return
            for file in files:
                os.close(file)
            born[pid] = channel
            _tell(channel, pid)


def _tell(channel: socket.socket, number: int) -> None:
    try:
        channel.send(str(number).encode())
    except OSError:  # the test does not wait for the child any more
        pass


def _become(request: dict[str, Any], files: list[int]) -> None:
    os.environ.clear()
    os.environ.update(request["env"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
    sys.argv[1:] = request["arguments"]
    sys.orig_argv[1:] = ["-m", "spindle", *request["arguments"]]
    for number, (name, file) in enumerate(zip(("stdin", "stdout", "stderr"), files, strict=True)):
        old: io.TextIOWrapper = getattr(sys, name)
        os.dup2(file, number)
        os.close(file)
        how = {"encoding": old.encoding, "errors": old.errors, "line_buffering": number == 2 or os.isatty(number)}
        raw: Any = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        setattr(sys, name, io.TextIOWrapper(raw, **how))
        setattr(sys, f"__{name}__", getattr(sys, name))


if __name__ == "__main__":
    gc.disable()
    del sys.path[0]  # the directory of this file
    for module in LOADED + CHAT * (sys.argv[2] == "chat"):
        import_module(module)
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.argv = [str(sys.modules["spindle"].__file__).replace("__init__", "__main__")]
    serve(control)
    from spindle.apps.cli import main

    code = main()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except (OSError, ValueError):
            code = 120
    os._exit(code)
