"""`keybindings.json` of pi: its keys work in the chat, and what means nothing here is told."""

import itertools
from pathlib import Path

import pytest
from prompt_toolkit.key_binding import KeyBindings

from spindle.apps.console.keybindings import key_of, read_keys

from ..cli.conftest import Place
from .conftest import Chat
from .terminal import PROMPT

KEYS = {
    "app.session.fork": "ctrl+l",
    "selectUp": ["up", "ctrl+k"],
    "app.session.new": "alt+n",
    "tui.input.newLine": ["shift+enter"],
    "tui.editor.cursorLineStart": "alt+h",
    "app.tools.expand": "alt+o",
    "app.tree.editLabel": "shift+l",
    "app.suspend": [],
}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+l", "c-l"),
        ("Ctrl+Shift+Left", "c-s-left"),
        ("alt+enter", "escape enter"),
        ("pageUp", "pageup"),
        ("ctrl+-", "c-_"),
        ("shift+tab", "s-tab"),
        ("alt+shift+b", "escape B"),
        *((one, None) for one in ("a", "shift+l", "shift+enter", "super+k", "ctrl+m", "", "ctrl+", "nothing")),
    ],
)
def test_a_key_is_one_that_a_terminal_sends(written: str, key: str | None) -> None:
    assert key_of(written) == key


def test_every_key_can_be_bound() -> None:
    words = [*map(chr, range(33, 127)), "up", "home", "delete", "escape", "enter", "tab", "space", "f1", "f12", "f13"]
    held = [*itertools.permutations(("ctrl", "shift", "alt"), 2), ("alt",), ("ctrl",), ("shift",), ()]
    found = {key for word in words for keys in held if (key := key_of("+".join([*keys, word]))) is not None}
    for key in found:
        KeyBindings().add(*key.split())(lambda event: None)  # raises for a key that there is not
    assert len(found) > 150


def test_what_means_nothing_is_told(place: Place) -> None:
    place.write("agent/keybindings.json", KEYS)
    chosen = read_keys(place.agent)
    assert chosen.keys["tui.select.up"] == ["up", "c-k"] and chosen.keys["app.suspend"] == []
    assert "tui.input.newLine" not in chosen.keys  # Ctrl-J stays
    assert chosen.problems == [
        "tui.input.newLine: no terminal sends shift+enter, or it types a letter",
        "app.tree.editLabel means nothing here",
    ]
    told = place.run("doctor").stdout
    assert f"{place.agent}/keybindings.json: app.tree.editLabel means nothing here" in told
    place.write("agent/keybindings.json", "{")
    assert read_keys(place.agent).problems[0].startswith("cannot be read: ")
    assert read_keys(Path("/nonexistent")).problems == []


def test_the_keys_work_in_the_chat(place: Place, chat: Chat) -> None:
    place.write("agent/keybindings.json", KEYS)
    terminal = chat("chat", "hello", columns=110)
    terminal.wait_for("Fine.", PROMPT)
    terminal.keys("\x0c")
    terminal.wait_for("Fork before which message?")
    terminal.quiet(0.5)
    terminal.keys("\x1b")
    terminal.wait_for("Fine.\n" + PROMPT, without="Fork before which message?")
    terminal.keys("two words\x1bhand ")
    terminal.wait_for("❯ and two words")
    terminal.keys("\x03\x1bn")
    terminal.wait_for("(empty)\n" + PROMPT)
    place.write("agent/keybindings.json", {"app.thinking.cycle": "alt+t", "nope": "x"})
    terminal.enter("/reload")
    terminal.wait_for("keybindings.json: nope means nothing here", "Read again")
    terminal.keys("\x1bt")
    terminal.wait_for("script.json (high)")
    terminal.enter("/hotkeys")
    terminal.wait_for("alt+t  app.thinking.cycle")
