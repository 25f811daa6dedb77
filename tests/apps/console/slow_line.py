"""A program behind a slow line: what it writes comes late and slowly, and so does the news of another size.

python slow_line.py BYTES_PER_SECOND DELAY COMMAND …
"""

import fcntl
import os
import pty
import select
import signal
import sys
import termios
import time
import tty
from collections import deque

STEP = 0.02


def main(rate: float, delay: float, command: list[str]) -> int:
    child, line = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    resized: deque[float] = deque([0.0])
    signal.signal(signal.SIGWINCH, lambda *_: resized.append(time.monotonic() + delay))
    before = termios.tcgetattr(0)
    tty.setraw(0)
    coming: deque[tuple[float, bytes]] = deque()
    typed: deque[tuple[float, bytes]] = deque()
    rest, budget, then = b"", 0.0, time.monotonic()
    try:
        while True:
            ready, _, _ = select.select([0, line], [], [], STEP)
            now = time.monotonic()
            if line in ready:
                try:
                    coming.append((now + delay, os.read(line, 65536)))
                except OSError:  # it has ended
                    while coming:
                        os.write(1, coming.popleft()[1])
                    os.write(1, rest)
                    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if 0 in ready:
                typed.append((now + delay, os.read(0, 65536)))
            while typed and typed[0][0] <= now:
                os.write(line, typed.popleft()[1])
            if resized and resized[0] <= now:
                resized.popleft()
                fcntl.ioctl(line, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
            budget, then = min(budget + (now - then) * rate, rate), now
            while budget >= 1 and (rest or (coming and coming[0][0] <= now)):
                rest = rest or coming.popleft()[1]
                piece, rest = rest[: int(budget)], rest[int(budget) :]
                budget -= len(piece)
                os.write(1, piece)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
