"""The tables of the matrix. A cell is a wire with one feature, or with two of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from spindle.programs import fence
from tests.matrix.wires import AgentCli, Batch, Editor, EditorSocket, Http, InProcess, Stdio, WebSocket, Wire

WIRES: list[type[Wire]] = [Stdio, WebSocket, Http, AgentCli, Editor, EditorSocket, InProcess, Batch]
FEATURES = ["plain", "rules", "sandbox", "elsewhere", "subagent", "user", "home"]
"""`home`: the working directory has the agent directory in it."""

NO_SENSE: list[tuple[set[str], str]] = [
    ({"sandbox", "elsewhere"}, "the sandbox fences programs of this machine: both together are an error at the start"),
    ({"stdio", "user"}, "who starts the process is its only user; there is no token"),
    ({"acp", "user"}, "this editor starts the process itself; there is no token"),
    ({"in process", "user"}, "the program is the user; there is no token"),
    ({"batch", "user"}, "a batch is a command of its user; there is no token"),
]

ALWAYS = ["batch-subagent"]
"""Cells that broke once in a way that no other cell of the selection shows."""


@dataclass(frozen=True)
class Cell:
    wire: type[Wire]
    features: frozenset[str]

    def __str__(self) -> str:
        return "-".join([self.wire.name, *sorted(self.features)])

    def names(self) -> set[str]:
        return {self.wire.name, *self.features}

    def no_sense(self) -> str:
        """Say why there is no such cell; empty if there is one."""
        if "sandbox" in self.features and not fence.support().works:
            return f"no sandbox here: {fence.support().told()}"
        return next((why for names, why in NO_SENSE if names <= self.names()), "")

    def pairs(self) -> set[frozenset[str]]:
        return {frozenset(pair) for pair in combinations(self.names(), 2)}


def all_cells() -> list[Cell]:
    several = [set(pair) for pair in combinations([name for name in FEATURES if name != "plain"], 2)]
    return [Cell(wire, frozenset(some)) for some, wire in product([*({name} for name in FEATURES), *several], WIRES)]


def cells() -> Iterator[Cell]:
    return (cell for cell in all_cells() if not cell.no_sense())


def selection() -> list[Cell]:
    """Choose few cells that have every pair of a wire and a feature, and every pair of two features."""
    chosen = [cell for cell in cells() if str(cell) in ALWAYS]
    left = {pair for cell in cells() for pair in cell.pairs()} - {pair for cell in chosen for pair in cell.pairs()}
    while left:
        best = max(cells(), key=lambda cell: len(cell.pairs() & left))  # the first of equals, so always the same
        chosen.append(best)
        left -= best.pairs()
    return chosen
