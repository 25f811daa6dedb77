"""Where the agent stands, as one table.

A prompt is `PREPARING` while hooks and checks look at it, then the run goes back and forth between `STREAMING` (the
model writes) and `TOOLS`. Once it has told of its end it is `ENDING` until it is clear what follows: the agent may wait
(`RETRYING`) or summarise (`COMPACTING`) and go on by itself; when nothing more follows it is `IDLE` again. Outside any
run, `SUMMARIZING` is a summary that a person asked for and `SWITCHING` the change to another session.
"""

import asyncio
from enum import Enum

__all__ = ["Lifecycle", "Phase"]


class Phase(Enum):
    IDLE = "idle"
    PREPARING = "preparing"
    STREAMING = "streaming"
    TOOLS = "tools"
    ENDING = "ending"
    RETRYING = "retrying"
    COMPACTING = "compacting"
    SUMMARIZING = "summarizing"
    SWITCHING = "switching"


_P = Phase
MOVES: dict[Phase, frozenset[Phase]] = {
    _P.IDLE: frozenset({_P.PREPARING, _P.SUMMARIZING, _P.SWITCHING}),
    # A prompt may be refused or handled elsewhere (back to idle), or need room first.
    _P.PREPARING: frozenset({_P.STREAMING, _P.COMPACTING, _P.IDLE}),
    _P.STREAMING: frozenset({_P.TOOLS, _P.ENDING, _P.IDLE}),
    _P.TOOLS: frozenset({_P.STREAMING, _P.ENDING, _P.IDLE}),
    _P.ENDING: frozenset({_P.STREAMING, _P.RETRYING, _P.COMPACTING, _P.IDLE}),
    _P.RETRYING: frozenset({_P.STREAMING, _P.IDLE}),
    # Compaction returns to where it came from: before a prompt, or after a run.
    _P.COMPACTING: frozenset({_P.PREPARING, _P.ENDING, _P.IDLE}),
    _P.SUMMARIZING: frozenset({_P.IDLE}),
    _P.SWITCHING: frozenset({_P.IDLE}),
}


class Lifecycle:
    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self._moved = asyncio.Event()

    def move(self, to: Phase) -> None:
        """Go on to another phase. Staying is always allowed; a move that is not in the table is a bug."""
        if to is self.phase:
            return
        if to not in MOVES[self.phase]:
            raise RuntimeError(f"An agent that is {self.phase.value} cannot become {to.value}")
        self.phase = to
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        """Wait for the next move."""
        await self._moved.wait()

    @property
    def running(self) -> bool:
        """Whether a prompt is being worked on, its pauses included."""
        return self.phase not in (Phase.IDLE, Phase.SUMMARIZING, Phase.SWITCHING)

    @property
    def compacting(self) -> bool:
        return self.phase in (Phase.COMPACTING, Phase.SUMMARIZING)
