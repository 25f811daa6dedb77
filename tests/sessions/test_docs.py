"""docs/sessions.md: its programs print what it shows, its tables are complete."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import Session, SessionManager, entries, open

PAGE = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_the_page_shows(tmp_path: Path, program: str, output: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == (output, "")


def test_no_program_is_left_out() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") == 3


def test_every_type_of_entry_is_listed_with_its_fields() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## Session\n")[0], re.MULTILINE))
    kinds: list[Any] = [
        kind for name, kind in vars(entries).items() if name.endswith("Entry") and isinstance(kind, type)
    ]
    kinds = [kind for kind in kinds if kind.__struct_config__.tag]
    assert set(rows) == {kind.__struct_config__.tag for kind in kinds}
    for kind in kinds:
        fields = set(kind.__struct_encode_fields__) - {"id", "parentId", "timestamp"}
        assert fields <= set(re.findall(r"`(\w+)`", rows[kind.__struct_config__.tag]))


@pytest.mark.parametrize("holder", [Session, SessionManager, open])
def test_every_name_is_mentioned(holder: object) -> None:
    names = holder.__all__ if holder is open else [name for name in vars(holder) if name.islower() and name[0] != "_"]
    assert set(names) <= set(re.findall(r"\w+", PAGE))
