"""The two tables: where the agent may go, and what becomes of a request."""

import re
from pathlib import Path

import pytest

import spindle
from spindle.agent import AgentError
from spindle.agent.lifecycle import ADMISSION, MOVES, Lifecycle, Phase, RequestKind, Verdict

from .rig import run


def test_every_request_has_a_verdict_in_every_phase():
    assert set(ADMISSION) == set(RequestKind)
    for row in ADMISSION.values():
        assert set(row) == set(Phase)
        assert row[Phase.IDLE] in (Verdict.START, Verdict.QUEUE)


def test_there_is_a_way_back_from_every_phase():
    for phase in Phase:
        reached, new = {phase}, {phase}
        while new:
            new = {after for before in new for after in MOVES[before]} - reached
            reached |= new
        assert Phase.IDLE in reached


def test_a_refusal_is_raised_with_its_text():
    async def main():
        lifecycle = Lifecycle()
        assert lifecycle.admit(RequestKind.PROMPT) is Verdict.START
        lifecycle.begin(Phase.PREPARING)
        with pytest.raises(AgentError, match="already processing"):
            lifecycle.admit(RequestKind.PROMPT)
        assert lifecycle.admit(RequestKind.PROMPT_OR_QUEUE) is Verdict.QUEUE
        lifecycle.changes = 1
        assert lifecycle.admit(RequestKind.PROMPT) is Verdict.WAIT

    run(main())


ROOMS = ("wires", "protocol", "apps", "plugins")


def test_wires_call_methods_of_the_agent_and_nothing_behind_it():
    """Wires and applications know `AgentSession` and the parts that it names for them, and never ask for a phase."""
    behind = re.compile(
        r"(?<!spindle\.)agent\.(_\w+|engine|choice|store|bash|lifecycle)\b"
        r"|\bPhase\b"
    )
    root = Path(spindle.__file__).parent
    files = [*root.glob("*.py"), *(path for room in ROOMS for path in (root / room).rglob("*.py"))]
    assert len(files) > 100
    found = [f"{path.relative_to(root)}: {match[0]}" for path in files for match in behind.finditer(path.read_text())]
    assert found == []
