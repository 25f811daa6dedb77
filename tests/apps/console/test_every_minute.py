"""What people meet in the chat every minute: thoughts, costs, the default, commands and keys."""

import re
from collections.abc import Iterator

import pytest

from tests.apps.cli.conftest import Place
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, Step, gate, reply, think

from .conftest import Chat
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
    ask(mock, terminal, reply("Only a ", gate("none"), "beginning"), "stop at once")
    terminal.wait_for("Only a\n❯\n")
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted\n" + PROMPT, "· at least $0.0000")
    terminal.enter("/new")
    terminal.wait_for("(empty)", without="at least $")
    ask(mock, terminal, reply("Fine."), "hello")
    cost = re.search(r"\$(\d+\.\d+)", terminal.wait_for("Fine.\n" + PROMPT, "· $"))
    assert cost is not None and "at least $" not in terminal.text
    ask(mock, terminal, reply("Half an ", gate("never"), "answer"), "stop me")
    terminal.wait_for("Half an\n❯\n")
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted\n" + PROMPT, f"· at least ${cost[1]}")
    terminal.enter("/cost")
    terminal.wait_for(f"at least ${cost[1]}", "answers: 2")


def test_the_head_says_where_with_what_and_that_everything_runs(place: Place, chat: Chat) -> None:
    text = chat().text
    folder = str(place.project)
    assert re.search(r"Spindle · …?(\S+) · script\.json · /help\n", text)[1] in folder  # type: ignore[index]
    assert "\nEverything runs unasked (mode bypass): Shift-Tab or /permissions to choose\n" in text
    place.write("agent/settings.json", {"permissions": {"deny": ["Bash(rm *)"]}})
    chat(ready="Everything runs unasked, but for 1 rule (mode bypass): ")
    home = chat("--permission-mode", "plan", ready="Only reading is allowed (mode plan)\n", env={"HOME": folder})
    assert "Spindle · ~ · script.json · /help" in home.text


@pytest.mark.parametrize("words", ["exit", "quit", "/exit", "/quit"])
def test_words_that_leave(chat: Chat, words: str) -> None:
    terminal = chat()
    terminal.enter(words)
    assert terminal.wait_exit() == 0


def test_help_as_a_word_and_no_other(chat: Chat) -> None:
    terminal = chat()
    terminal.enter("help")
    terminal.wait_for("/permissions [MODE]", "Shift-Tab, Ctrl-P")
    terminal.enter("help me")
    terminal.wait_for("❯ help me\n\nFine.")


def test_keys_for_the_mode_and_the_model(place: Place, chat: Chat) -> None:
    write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}
    terminal = chat(steps=[write, "Done."])
    for mode in ("default", "acceptEdits", "plan"):
        terminal.keys("\x1b[Z")
        terminal.wait_for(f"❯\nscript.json (medium) · 0% of 128K · {mode}")
    terminal.enter("go")
    terminal.wait_for("✗ write a.txt", "Done.\n" + PROMPT)  # it holds, it is not only shown
    assert not (place.project / "a.txt").exists()
    terminal.keys("/")
    terminal.wait_for(" /clear")
    terminal.keys("\x1b[Z")  # in the list, it goes up
    terminal.wait_for("❯ /undo")
    terminal.keys("\x1b\x03")
    terminal.quiet()
    assert "· plan" in terminal.text
    terminal.keys("\x10")
    terminal.wait_for("There is no other model.")
    write_models(place.agent, "http://127.0.0.1:9/v1")
    other = chat("--models", "mock/m1,mock/m2", ready="script.json")
    other.keys("\x10")
    other.wait_for("❯\nm2 ")
    other.keys("\x10")
    other.wait_for("❯\nm1 ")


def test_what_was_changed_and_taking_a_message_back(place: Place, chat: Chat) -> None:
    place.write("project/a.txt", "one\ntwo\n")
    edit = {"name": "edit", "arguments": {"path": "a.txt", "edits": [{"oldText": "two", "newText": "zwei"}]}}
    write = {"name": "write", "arguments": {"path": "b.txt", "content": "new\n\x1b[31mfile"}}
    shell = {"name": "bash", "arguments": {"command": "mv a.txt c.txt"}}
    terminal = chat(steps=["Hello.", {"calls": [edit, write]}, {"calls": [shell]}, "Done."])
    terminal.enter("/diff")
    terminal.wait_for("No file has changed")
    terminal.enter("/undo")
    terminal.wait_for("There is no message of yours to take back")
    terminal.enter("hello")
    terminal.wait_for("Hello.\n" + PROMPT)
    terminal.enter("change them")
    terminal.wait_for("Done.\n" + PROMPT)
    terminal.enter("/diff")
    text = terminal.wait_for("c.txt  added, +2 -0", "+zwei").rpartition("/diff")[2]
    assert "\na.txt  deleted, +0 -2\n" in text and "\n  +new\n  +file\n" in text
    place.write("project/b.txt", "mine")
    terminal.enter("/undo")
    terminal.wait_for("Changed by someone else, too: b.txt. Overwrite?")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("Hello.\n\nYour last message is taken back; files put back: a.txt, b.txt, c.txt. /redo")
    terminal.wait_for("❯ change them\nscript.json")  # it is in the input again
    assert (place.project / "a.txt").read_text() == "one\ntwo\n" and not (place.project / "b.txt").exists()
    terminal.keys("\x03")
    terminal.enter("/redo")
    terminal.wait_for("The undo is taken back; files put back: a.txt, b.txt, c.txt. /undo takes this back")
    assert (place.project / "b.txt").read_text() == "mine" and not (place.project / "a.txt").exists()
    terminal.enter("/undo")
    terminal.wait_for("❯ n  No\n  y  Yes\n?")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("❯ change them\nscript.json")
    terminal.keys("\x03")
    terminal.enter("/undo")
    terminal.wait_for("❯ hello\nscript.json", "taken back; files stay as they are. /tree")


def test_copying_and_clearing(place: Place, chat: Chat) -> None:
    terminal = chat(steps=["An *answer*."])
    terminal.enter("/copy")
    terminal.wait_for("There is no answer to copy")
    terminal.enter("hello")
    terminal.wait_for("An answer.\n" + PROMPT)
    terminal.enter("/copy")
    terminal.wait_for("Copied: 12 characters")
    terminal.wait_output(b"\x1b]52;c;QW4gKmFuc3dlciou\x07")  # the source, not what the screen shows
    terminal.keys("\x04")
    terminal.wait_exit()
    program = place.write("home/bin/pbcopy", f"#!/bin/sh\ncat > {place.root}/copied\n")
    program.chmod(0o755)
    other = chat("-c", env={"PATH": f"{program.parent}:/usr/bin:/bin"}, ready="An answer.\n" + PROMPT)
    other.enter("/copy")
    other.wait_for("Copied: 12 characters")
    assert (place.root / "copied").read_text() == "An *answer*."
    other.enter("/clear")
    other.wait_for("(empty)")
    other.quiet()
    assert "An answer" not in "\n".join(other.screen.display) and "An answer" in other.text
    assert len([*place.agent.rglob("*.jsonl")]) == 1  # the old session is still there


def test_a_key_entered_in_the_chat_is_not_shown_and_is_used(place: Place, chat: Chat) -> None:
    terminal = chat()
    terminal.enter("/login anthropic")
    terminal.wait_for("The API key of anthropic?")
    terminal.quiet()
    terminal.keys("sk-secret-1")
    terminal.wait_for("? ***********\n")
    terminal.keys("\r")
    terminal.wait_for("Kept in ")
    auth = place.agent / "auth.json"
    assert '"sk-secret-1"' in auth.read_text() and auth.stat().st_mode & 0o077 == 0
    terminal.enter("/login openai")
    terminal.wait_for("How, at openai?", "Sign in: ", "Enter a key")
    terminal.quiet()
    terminal.keys("key\r")
    terminal.wait_for("The API key of openai?")
    terminal.quiet()
    terminal.keys("\x1b")
    terminal.wait_for("No key was given")
    terminal.enter("/model anthropic/claude-opus-4-5")
    terminal.wait_for("Model: anthropic/claude-opus-4-5")
    assert b"sk-secret" not in terminal.output
    assert "sk-secret" not in (place.agent / "chat_history").read_text()
