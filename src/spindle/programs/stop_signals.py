"""Signals that end the process, and a watchdog that ends it if nothing else does.

The event loop learns of a signal only when it runs: not while code holds it, nor while a library holds Python's global
lock. So the signal also goes, written by a handler in C, through a pipe to a small shell, which kills the process when
its time is over. Children then end as after any other death of ours (`children`).
"""

import asyncio
import faulthandler
import os
from collections.abc import Callable, Sequence

from spindle.base import limits

# $1: our process; $2: how long it may take to end. stdin: a few lines for each signal (the stack of the main thread),
# the first of which is always the same. It ends when our process does. A second signal leaves the process one second.
_WATCHDOG = """
exec 3<&0 0</dev/null
read -r head <&3 || exit 0
(
    trap 'kill $nap; exit 0' TERM
    sleep "$2" & nap=$!
    wait $nap
    trap '' TERM
    kill -9 "$1" && echo "Error: The process was killed: it did not end within $2 s of a signal" >&4
) & timer=$!
while read -r line <&3; do
    [ "$line" != "$head" ] || { sleep 1; kill -9 "$1"; }
done
kill $timer
"""
_watchdog = -1
"""The end of the pipe that signals are written to, once there is a watchdog."""


def on_stop(numbers: Sequence[int], call: Callable[[int], None], *, seconds: float = limits.PROCESS_END) -> None:
    """Call `call` with the number of each of these signals. The process ends within `seconds` of the first.

    A mode that lets work go on after the signal adds the time for it to `seconds`.
    """
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, call, number)
    try:
        target = _start_watchdog(seconds)
    except (OSError, NotImplementedError):  # no shell, or no process is left: the process ends as well as it can
        return
    for number in numbers:  # after the loop's handler, which is called too
        faulthandler.register(number, target, all_threads=False, chain=True)


def _start_watchdog(seconds: float) -> int:
    """Return the descriptor for signals. Raises `OSError`."""
    global _watchdog
    if _watchdog < 0:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        words = ["sh", "-c", _WATCHDOG, "spindle-watchdog", str(os.getpid()), f"{seconds:g}"]
        files = [
            (os.POSIX_SPAWN_DUP2, read_end, 0),
            (os.POSIX_SPAWN_DUP2, 2, 4),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            # In a group of its own: Ctrl-C on a terminal is not for it.
            os.posix_spawn("/bin/sh", words, {"PATH": os.defpath}, file_actions=files, setpgroup=0, setsigmask=())
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        _watchdog = write_end
    return _watchdog
