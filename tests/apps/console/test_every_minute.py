"""What people meet in the chat every minute: thoughts, costs, the default, commands and keys."""

import re
from collections.abc import Iterator

import pytest

from tests.apps.cli.conftest import Place
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, Step, gate, reply, think

from .terminal import PROMPT, Terminal

PRICES = {"cost": {"input": 1000.0, "output": 1000.0, "cacheRead": 0, "cacheWrite": 0}}


@pytest.fixture
def reasoner(place: Place) -> Iterator[tuple[MockModel, Terminal]]:
    """A chat with a model that sends `reasoning_content`, and ends its thoughts with the answer."""
    with MockModel() as mock:
        write_models(place.agent, mock.openai_url, **PRICES)
        with Terminal(["--model", "mock/m1"], env=place.environment(), cwd=place.project) as terminal:
            terminal.wait_for("0% of 100K")
            yield mock, terminal


def ask(mock: MockModel, terminal: Terminal, step: Step, text: str) -> None:
    mock.script(step)
    terminal.enter(text)


def test_a_thought_stands_before_its_answer(reasoner: tuple[MockModel, Terminal]) -> None:
    mock, terminal = reasoner
    ask(mock, terminal, reply(think("Hm, "), think("well."), "First.\n\nSec", "ond.\n\nThird."), "go")
    text = terminal.wait_for("Third.\n" + PROMPT)
    assert "❯ go\n\n∴ Thought: Hm, well.\n\nFirst.\n\nSecond.\n\nThird.\n" in text
    # More of the same thought, between two pieces of a word: it is to be seen with Ctrl-T, not in the middle.
    ask(mock, terminal, reply(think("One. "), "Fir", think("Two. "), "st.\n\nSec", think("Three."), "ond."), "again")
    text = terminal.wait_for("Second.\n" + PROMPT, "❯ again")
    assert text.partition("❯ again")[2].startswith("\n\n∴ Thought: One.\n\nFirst.\n\nSecond.\n")
    terminal.keys("\x14")
    terminal.wait_for("\nOne. Two. Three.\n")


def test_after_an_interrupt_the_cost_is_a_lower_bound(reasoner: tuple[MockModel, Terminal]) -> None:
    mock, terminal = reasoner
    ask(mock, terminal, reply("Fine."), "hello")
    cost = re.search(r"\$(\d+\.\d+)", terminal.wait_for("Fine.\n" + PROMPT, "· $"))
    assert cost is not None and "at least" not in terminal.text
    ask(mock, terminal, reply("Half an ", gate("never"), "answer"), "stop me")
    terminal.wait_for("Half an\n❯\n")
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted\n" + PROMPT, f"· at least ${cost[1]}")
    terminal.enter("/cost")
    terminal.wait_for(f"at least ${cost[1]}", "answers: 2")
