"""Tables of input and output, recorded from the program whose sessions we share."""

import json
from pathlib import Path
from typing import Any

__all__ = ["rows"]


def rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    text = (Path(__file__).parent / f"{table}-0.87.1.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]
