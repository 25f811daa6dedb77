"""Every pair of a wire and a feature, and of two features, in few cells; `make soak ONLY=matrix` has all cells."""

from pathlib import Path

import pytest

from tests.matrix.cells import Cell, all_cells, selection
from tests.matrix.sentences import judge

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


@pytest.mark.parametrize("cell", selection(), ids=str)
def test_the_same_sentences_hold(cell: Cell, tmp_path: Path) -> None:
    assert judge(cell, tmp_path) == []


def test_the_selection_has_every_pair() -> None:
    chosen = {pair for cell in selection() for pair in cell.pairs()}
    for cell in all_cells():
        assert cell.no_sense() or cell.pairs() <= chosen, cell
