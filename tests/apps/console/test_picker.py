"""The list of sessions: titles that differ, other directories, and what can be done to a session in it."""

import json
from typing import Any

from spindle.apps.console.picker import distinct, title_of

from ..cli.conftest import Place
from .conftest import Chat
from .test_chat import PROMPT


def stored(place: Place, id: str, *texts: str, cwd: str = "project", name: str | None = None) -> None:
    where = str(place.root / cwd)
    time = "2026-01-02T03:04:05.000Z"
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": id, "timestamp": time, "cwd": where}]
    parent = None
    for number, text in enumerate(texts):
        entry = {"type": "message", "id": f"{number:08x}", "parentId": parent, "timestamp": time}
        message: dict[str, Any] = {"role": "user", "content": text, "timestamp": 1767323045000}
        lines.append({**entry, "message": message})
        parent = entry["id"]
    if name:
        lines.append({"type": "session_info", "id": "ffffffff", "parentId": parent, "timestamp": time, "name": name})
    folder = f"--{where.strip('/').replace('/', '-')}--"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    place.write(f"agent/sessions/{folder}/2026-01-02T03-04-05-000Z_{id}.jsonl", text)


def test_titles_leave_files_out_and_differ() -> None:
    def item(text: str, id: str = "a1b2") -> dict[str, Any]:
        return {"id": id, "firstMessage": text}

    assert title_of(item('<file name="/x/a.py">\nprint(1)\n</file>\nWhat is this?')) == "What is this?"
    assert title_of(item('<file name="/x/a.py">\nprint(1) and a text that was cut o')) == "@a.py"
    assert title_of({**item("x"), "name": "The talk"}) == "The talk"
    same = "Please look at the following text and tell me all that is wrong in it: "
    titles = [same + "apples", same + "pears", "Other", "Other"]
    told = distinct(titles, [item(title, f"id0{at}") for at, title in enumerate(titles)])
    assert told == ["Please loo… …apples", "Please loo… …pears", "Other #id02", "Other #id03"]


def test_look_rename_delete_and_other_directories(place: Place, chat: Chat) -> None:
    (place.root / "else").mkdir()
    stored(place, "11111111-aaaa", "first question", "and more")
    stored(place, "22222222-bbbb", "second question")
    stored(place, "33333333-cccc", "far away", cwd="else")
    terminal = chat(columns=110)
    terminal.enter("/resume")
    text = terminal.wait_for("Which session? this directory, latest first", "first question (2 messages)")
    assert "second question (1 message)" in text and "far away" not in text
    terminal.keys("first\x0f")
    terminal.wait_for("  you: first question\n  you: and more")
    terminal.keys("second\x12")
    terminal.wait_for("Its name?")
    terminal.keys("Better\r")
    terminal.wait_for("Better (1 message)")
    terminal.keys("Better\x04")
    terminal.wait_for("Delete this session for good?", "n  No")
    terminal.quiet(0.5)
    terminal.keys("y")
    terminal.wait_for("Which session?", "first question (2 messages)")
    assert not list(place.agent.rglob("*22222222-bbbb.jsonl"))
    terminal.keys("\t")
    terminal.wait_for("Which session? all directories", "far away (1 message)")
    terminal.keys("\x1b")
    terminal.wait_for(PROMPT)
    terminal.enter("/resume")
    terminal.wait_for("Which session?")
    terminal.keys("more\x06")  # only in a later message
    terminal.wait_for('this directory with "more"', "and more")
    terminal.quiet(0.5)
    terminal.keys("\r")
    terminal.wait_for("❯ first question\n\n❯ and more\n")


def test_r_lists_at_the_start_in_a_small_window(place: Place, chat: Chat) -> None:
    for number in range(12):
        stored(place, f"{number:08}-aaaa", f"question {number}")
    terminal = chat("-r", ready="Which session?", columns=40, lines=10)
    terminal.keys("question 7")
    terminal.wait_for("  question 7", "? question 7")
    terminal.quiet(0.5)
    terminal.keys("\r")
    terminal.wait_for("❯ question 7\n")
