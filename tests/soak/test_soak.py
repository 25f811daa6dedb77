"""The attacks of `make soak` in small: the same blows in every run, all of them in less than a minute."""

from pathlib import Path

import pytest

from tests.soak.__main__ import ATTACKS
from tests.soak.attack import strike
from tests.soak.matrix import Matrix

SEED = "short"
ROUNDS = {
    "kills": 8,
    "resumes": 1,
    "nodes": 1,
    "lines": 20,
    "frames": 4,
    "files": 6,
    "streams": 12,
    "arguments": 8,
    "faults": 8,
    "failovers": 4,
    "disks": 3,
    "pipes": 3,
    "sockets": 4,
    "shells": 1,
    "endurance": 13,
}

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


SHORT = [kind for kind in ATTACKS if kind is not Matrix]  # tests/matrix has a selection of its own


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.name)
def test_it_holds_against(kind):
    strike(kind(), SEED, rounds=ROUNDS[kind.name])
