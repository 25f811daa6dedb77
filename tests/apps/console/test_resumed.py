"""A run that was cut off, and one that waits, in the chat."""

import pytest

from tests.apps.cli.conftest import Place

from .conftest import Chat

SLOW = {"calls": [{"name": "bash", "arguments": {"command": "echo ran >> marker; sleep 60"}}]}
QUICK = {"calls": [{"name": "bash", "arguments": {"command": "echo ran >> marker"}}]}


def cut(place: Place, chat: Chat) -> None:
    terminal = chat(steps=[SLOW])
    terminal.enter("do it")
    marker = place.project / "marker"
    while not marker.exists():
        terminal.read_once(0.05)
    terminal.__exit__()  # kill -9


@pytest.mark.parametrize("how", ["enter", "option"])
def test_a_run_that_was_cut_off_goes_on(place: Place, chat: Chat, how: str) -> None:
    cut(place, chat)
    again = chat("-c", *(["--resume-run"] if how == "option" else []), steps=["I looked: it ran."], ready="do it")
    if how == "enter":
        again.wait_for("interrupted", "Enter", "0% of 1")  # before, Enter is a line feed
        again.enter("")
    again.wait_for("I looked: it ran.")
    assert (place.project / "marker").read_text() == "ran\n"


def test_another_prompt_takes_its_place(place: Place, chat: Chat) -> None:
    cut(place, chat)
    again = chat("-c", steps=["Something else, then."], ready="do it")
    again.wait_for("interrupted", "0% of 1")
    again.enter("never mind")
    again.wait_for("Something else, then.")
    again.enter("")  # nothing to go on with any more
    assert "no interrupted run" not in again.quiet()


def test_a_question_that_waited_is_asked_when_the_run_goes_on(place: Place, chat: Chat) -> None:
    wait = ["--on-question", "wait", "--ask", "Bash"]
    first = chat(*wait, steps=[QUICK])
    first.enter("do it")
    first.wait_for("Allow")
    first.__exit__()
    again = chat("-c", *wait, steps=["It ran."], ready="do it")
    again.wait_for("waits for your answer", "0% of 1")
    again.enter("")
    again.wait_for("Allow")
    again.quiet()  # a key that comes too early is no answer
    again.keys("y")
    again.wait_for("It ran.")
    assert (place.project / "marker").read_text() == "ran\n"
