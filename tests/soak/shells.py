"""Shell lines that hide what a rule denies, run by bash as the judge."""

import random
import tempfile
from pathlib import Path

from tests.soak.attack import Attack
from tests.support.shell_fuzz import Judge, make_line

SEEN = "No line does what a rule denies, or what none allows"
LINES = 200
"""Lines of one round."""


class Shells(Attack):
    name = "shells"

    def start(self) -> None:
        self.judge = Judge(Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "judge")

    def round(self, chance: random.Random) -> None:
        for _ in range(LINES):
            deed, line = make_line(chance)
            self.figures[f"lines decided with {self.judge.decision(deed, line)}"] += 1
            self.must(SEEN, not self.judge.fault(deed, line), (deed, line))
