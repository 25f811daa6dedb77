"""The input of a call as a text that a person edits before it runs: a command, the new text of a file, else JSON."""

import copy
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from spindle.shapes.codec import decode

_FIELDS: Final[tuple[tuple[str | int, ...], ...]] = (("command",), ("content",), ("edits", 0, "newText"))
"""Where the text of a call stands that is worth editing: of `bash`, `write` and `edit`."""


def text_of_input(given: Any) -> tuple[str, str]:
    """Return the text to edit, and the suffix of a file for it."""
    if (field := _field(given)) is None:
        return json.dumps(given, indent=2, ensure_ascii=False), ".json"
    suffix = ".sh" if field == ("command",) else os.path.splitext(str(given.get("path") or ""))[1]
    return _at(given, field), suffix or ".txt"


def input_of_text(given: Any, text: str) -> Any:
    """Return the input with the edited text; None: it is as before. Raises `DecodeError`."""
    if (field := _field(given)) is None:
        changed = decode(text)
    else:
        changed = copy.deepcopy(given)
        before = _at(given, field)
        end = "" if before.endswith("\n") else "\n"  # editors end the last line
        _at(changed, field[:-1])[field[-1]] = text.removesuffix(end)
    return None if changed == given else changed


def _field(given: Any) -> tuple[str | int, ...] | None:
    """Return where the text to edit stands; None: the input is edited as a whole."""
    if not isinstance(given, dict) or (isinstance(given.get("edits"), list) and len(given["edits"]) != 1):
        return None
    for field in _FIELDS:
        try:
            if isinstance(_at(given, field), str):
                return field
        except (KeyError, IndexError, TypeError):
            continue
    return None


def _at(value: Any, field: Sequence[str | int]) -> Any:
    for key in field:
        value = value[key]
    return value
