"""Keys that the user has chosen in `keybindings.json`, pi's file for them: those that mean something in this chat.

A key is written here as prompt_toolkit does: `c-l`, or `escape l` for Alt. What the keys do is known to the editor.
"""

import re
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from spindle.base.user_files import BadFile, read_object

FILE: Final = "keybindings.json"
EDITING: Final = {
    "tui.editor.cursorUp": "previous-line",
    "tui.editor.cursorDown": "next-line",
    "tui.editor.cursorLeft": "backward-char",
    "tui.editor.cursorRight": "forward-char",
    "tui.editor.cursorWordLeft": "backward-word",
    "tui.editor.cursorWordRight": "forward-word",
    "tui.editor.cursorLineStart": "beginning-of-line",
    "tui.editor.cursorLineEnd": "end-of-line",
    "tui.editor.deleteCharBackward": "backward-delete-char",
    "tui.editor.deleteCharForward": "delete-char",
    "tui.editor.deleteWordBackward": "backward-kill-word",
    "tui.editor.deleteWordForward": "kill-word",
    "tui.editor.deleteToLineStart": "unix-line-discard",
    "tui.editor.deleteToLineEnd": "kill-line",
    "tui.editor.yank": "yank",
    "tui.editor.yankPop": "yank-pop",
    "tui.editor.undo": "undo",
}
"""Commands of readline."""
SLASH: Final = {
    "app.session.new": "/new",
    "app.session.tree": "/tree",
    "app.session.fork": "/fork",
    "app.session.resume": "/resume",
    "app.model.select": "/model",
}
_OWN: Final = (
    *("tui.input.newLine", "tui.input.submit", "tui.select.up", "tui.select.down", "app.interrupt", "app.clear"),
    *("app.exit", "app.suspend", "app.editor.external", "app.clipboard.pasteImage", "app.model.cycleForward"),
    *("app.thinking.cycle", "app.thinking.toggle", "app.tools.expand", "app.message.followUp", "app.message.dequeue"),
)
ACTIONS: Final = frozenset({*EDITING, *SLASH, *_OWN})
_OLD: Final = {
    "selectUp": "tui.select.up",
    "selectDown": "tui.select.down",
    "cycleThinkingLevel": "app.thinking.cycle",
    "cycleModelForward": "app.model.cycleForward",
    "selectModel": "app.model.select",
    "expandTools": "app.tools.expand",
    "toggleThinking": "app.thinking.toggle",
    "externalEditor": "app.editor.external",
    "pasteImage": "app.clipboard.pasteImage",
    "newSession": "app.session.new",
    **{id.rpartition(".")[2]: id for id in ACTIONS if id.startswith(("tui.editor.", "tui.input."))},
    **{name: f"app.{name}" for name in ("interrupt", "clear", "exit", "suspend")},
    **{name: f"app.session.{name}" for name in ("tree", "fork", "resume")},
    **{name: f"app.message.{name}" for name in ("followUp", "dequeue")},
}
"""Names of older versions of pi."""
_WRITTEN: Final = re.compile(r"((?:(?:ctrl|shift|alt)\+)*)(.|[a-z]+\d*)")
_MOVES: Final = ("up", "down", "left", "right", "home", "end", "insert", "delete", "pageup", "pagedown")
_SAME: Final = {"esc": "escape", "return": "enter"}


class ChosenKeys(Struct, frozen=True):
    keys: dict[str, list[str]] = field(default_factory=dict)
    """By action."""
    written: dict[str, list[str]] = field(default_factory=dict)
    """The same as in the file."""
    problems: list[str] = field(default_factory=list)


def read_keys(folder: Path) -> ChosenKeys:
    """Return the keys that the file of an agent directory has, and what of it means nothing here."""
    chosen = ChosenKeys()
    try:
        given = read_object(folder / FILE) or {}
    except BadFile as error:
        return ChosenKeys(problems=[f"cannot be read: {error}"])
    for name, value in given.items():
        id = name if name in ACTIONS else _OLD.get(name, name)
        written = [value] if isinstance(value, str) else value if isinstance(value, list) else [value]
        if id not in ACTIONS:
            chosen.problems.append(f"{name} means nothing here")
            continue
        keys = {str(one): key for one in written if (key := key_of(one)) is not None}
        if keys or not written:  # else the usual key stays
            chosen.keys[id], chosen.written[id] = [*keys.values()], [*keys]
        wrong = [str(one) for one in written if str(one) not in keys]
        chosen.problems.extend(f"{name}: no terminal sends {one}, or it types a letter" for one in wrong)
    return chosen


def key_of(written: Any) -> str | None:
    """Return a key as prompt_toolkit calls it; None if a terminal does not send it, or types a letter with it."""
    found = _WRITTEN.fullmatch(written.lower()) if isinstance(written, str) else None
    if found is None:
        return None
    held, base = set(found[1].split("+")) - {""}, _SAME.get(found[2], found[2])
    alt, plain = "escape " if "alt" in held else "", held - {"alt"}
    is_function = re.fullmatch(r"f([1-9]|1[0-2])", base)
    if is_function and "shift" in plain:
        return None
    if base in _MOVES or is_function:
        return f"{alt}{'c-' if 'ctrl' in plain else ''}{'s-' if 'shift' in plain else ''}{base}"
    if plain == {"ctrl"}:
        base = {"-": "_", "/": "_", "space": "@"}.get(base, base)
        return f"{alt}c-{base}" if re.fullmatch(r"[a-z0-9\\\]^_@]", base) and base not in "im" else None
    if base in ("enter", "escape", "tab", "backspace"):
        return f"{alt}{base}" if not plain else f"{alt}s-tab" if base == "tab" else None
    if not alt or len(base) != 1:
        return None
    return f"{alt}{base.upper() if plain else base}"
