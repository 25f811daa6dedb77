"""All cells of tests/matrix, one in each round; those that fail are told together."""

import random
import tempfile
from pathlib import Path

from tests.matrix.cells import cells
from tests.matrix.sentences import judge
from tests.soak.attack import Attack


class Matrix(Attack):
    name = "matrix"
    enough = len(list(cells()))

    def start(self) -> None:
        self.cells, self.faults = list(cells()), list[str]()

    def round(self, chance: random.Random) -> None:
        with tempfile.TemporaryDirectory() as base:
            found = judge(self.cells[self.number % len(self.cells)], Path(base))
        for fault in found:
            print(fault, flush=True)
        self.faults += found

    def finish(self) -> None:
        self.must("The same sentences hold on every wire with every feature", not self.faults, "\n".join(self.faults))
