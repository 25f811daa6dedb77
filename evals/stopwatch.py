"""How long a trial has taken.

A clock on the wall is wrong for a model that shares its cores with other work. So the time in which the model answers
can be counted by the CPU time of its server, divided by its threads; everything else counts by the wall.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TICK = 0.2
_HERTZ = os.sysconf("SC_CLK_TCK")


@dataclass
class Stopwatch:
    server: int | None = None
    """Process of the model's server, on this machine; None: the wall counts always."""
    threads: int = 1
    spent: float = 0.0

    async def run(self, answering: Callable[[], bool], limit: float) -> None:
        """Count until `limit` seconds are spent. `answering` says whether the model is at work."""
        wall, model = time.monotonic(), self._model()
        while self.spent < limit:
            await asyncio.sleep(min(_TICK, limit - self.spent))
            now, cpu = time.monotonic(), self._model()
            self.spent += cpu - model if self.server and answering() else now - wall
            wall, model = now, cpu

    def _model(self) -> float:
        if self.server is None:
            return 0.0
        fields = Path(f"/proc/{self.server}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _HERTZ / self.threads
