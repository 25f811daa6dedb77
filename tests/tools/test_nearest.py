"""Errors that carry the repair: the nearest lines, names and tools."""

import time
from pathlib import Path

import pytest

from spindle.tools.nearest import near_tools

from .helpers import call, refusal, text_of

PROGRAM = """import os


def first(value):
    if value is None:
        return 0
    return value + 1


def second(value):
    if value is None:
        return 0
    return value + 2
"""
FOUND = "\nThere is src/pkg/settings.py. Call again with that path."
ONE_PLACE = "all lines of the one place that is meant as oldText, and the changed lines as newText; or with "
ONE_PLACE += '"replace_all": true if every occurrence is meant.'


def edit(tmp_path: Path, old: str) -> str:
    return refusal("edit", tmp_path, path="f.py", edits=[{"oldText": old, "newText": "x"}])


def test_a_missed_edit_shows_the_nearest_lines(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM)
    said = edit(tmp_path, "def secnd(value):\n  if value == None:\n")
    assert said.startswith("Could not find the exact text in f.py. ")
    assert "The nearest lines of the file (line 4, 10), and those around them, are:\n" in said
    assert "\ndef second(value):\n    if value is None:\n" in said
    assert (tmp_path / "f.py").read_text() == PROGRAM


def test_the_lines_can_be_copied_as_they_are_shown(tmp_path: Path) -> None:
    """A small model took the gutter of their numbers for indentation, and missed again."""
    (tmp_path / "s.css").write_text("h1 {\n  color: blue;\n}\np {\n  color: black;\n}\n")
    said = refusal("edit", tmp_path, path="s.css", edits=[{"oldText": "h1 {\n    color: blue;\n}", "newText": "x"}])
    assert " are:\nh1 {\n  color: blue;\n}\np {\n  color: black;\n" in said and said.count("\n  color: blue;") == 1
    assert said.endswith('Only blanks differ: "oldText": "h1 {\\n  color: blue;\\n}"')


def test_a_place_that_differs_only_in_blanks_is_the_place(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM.replace("    ", "\t"))
    said = edit(tmp_path, "    return value + 2\n")
    assert "(line 13)" in said and "value + 1" not in said
    step = "Call edit again with exactly these lines as oldText, and the changed lines as newText. Only blanks differ: "
    assert said.endswith(step + '"oldText": "\\treturn value + 2"'), said


def test_of_several_places_one_is_meant(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM)
    assert "exactly these lines as oldText, but only those of the one place" in edit(tmp_path, "return value + 3\n")


def test_what_cannot_be_copied_is_not_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("x" * 300)
    assert edit(tmp_path, "yyy").endswith("Call edit again with a short part of the line that is meant as oldText.")
    (tmp_path / "f.py").write_text("\n")
    assert edit(tmp_path, "yyy").endswith("The file is empty. Give it its content with write.")


@pytest.mark.parametrize(
    ("name", "ours"), [("run_shell_command", "bash"), ("ReadFile", "read"), ("apply_patch", "edit")]
)
def test_a_tool_of_another_program_names_ours(name: str, ours: str) -> None:
    assert near_tools(name, ["read", "bash", "edit"]).startswith(f". Did you mean {ours}?")


def test_at_most_three_places_are_shown(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("".join(f"result_{n} = compute(alpha_{n})\n\n\n" for n in range(50)))
    said = edit(tmp_path, "result_9 = compute(beta_9)")
    assert said.count("…\n") == 2 and "\nresult_9 = compute(alpha_9)\n" in said


def test_lines_around_them_are_shown_too(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("import os\n\n\ndef mean(values):\n    return sum(values) / len(values)\n")
    said = edit(tmp_path, "mean([])")
    lines, _, step = said.rpartition("\n")
    assert lines.endswith(" are:\ndef mean(values):\n    return sum(values) / len(values)"), said
    assert step == "Call edit again with exactly these lines as oldText, and the changed lines as newText."


def test_where_nothing_is_near_a_small_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM)
    said = edit(tmp_path, "SELECT name FROM customers")
    assert f"\nThis is the whole file:\n{PROGRAM.strip()}\nCall edit again" in said
    (tmp_path / "f.py").write_text(PROGRAM * 3)
    assert edit(tmp_path, "SELECT name FROM customers").endswith("Read the file, then copy the text from it.")


def test_a_miss_in_a_large_file_is_cheap(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("".join(f"value_{n} = compute(alpha, beta, {n})\n" for n in range(300_000)))
    begin = time.process_time()
    said = edit(tmp_path, "value_77 = compute(alpha, gamma, 77)\nvalue_78 = nothing")
    assert time.process_time() - begin < 5
    assert "\nvalue_77 = compute(alpha, beta, 77)\n" in said


def test_several_occurrences_are_told_by_their_lines(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM)
    said = edit(tmp_path, "        return 0\n")
    assert "They begin in lines 6, 12:\ndef first(value):\n" in said and said.count("\n        return 0\n") == 2
    assert said.endswith("\nCall edit again with " + ONE_PLACE)
    (tmp_path / "f.py").write_text("x\n" * 9)
    said = edit(tmp_path, "x\n")
    assert "They begin in lines 1, 2, 3, 4, 5 …:\nx\nx\nx\nx\nx\nCall edit again" in said, "places that touch are one"


def test_an_edit_that_changes_nothing_names_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(PROGRAM)
    said = refusal("edit", tmp_path, path="f.py", edits=[{"oldText": "first", "newText": "first"}])
    assert said.endswith(" call edit again with the changed lines as newText.")


@pytest.mark.parametrize("tool", ["read", "edit"])
def test_a_missing_file_names_the_nearest(tool: str, tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "settings.py").write_text("a = 1\n")
    more = {"edits": [{"oldText": "a", "newText": "b"}]} if tool == "edit" else {}
    assert refusal(tool, tmp_path, path="settings.py", **more).endswith(FOUND)
    assert refusal(tool, tmp_path, path="src/pkg/setings.py", **more).endswith(FOUND)
    assert "There is" not in refusal(tool, tmp_path, path="quite/another.c", **more)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "settings.py").write_text("")
    named = refusal(tool, tmp_path, path="src/pkg/setings.py", **more)
    assert named.endswith("\nThere is src/pkg/settings.py, lib/settings.py. Call again with the path that is meant."), (
        "the folder that was named comes first"
    )


def test_names_that_models_of_other_programs_write(tmp_path: Path) -> None:
    call("write", tmp_path, file_path="a.txt", content="one two\n")
    assert text_of(call("read", tmp_path, file_path="a.txt")) == "one two\n"
    call("edit", tmp_path, file_path="a.txt", old_string="one", new_string="1")
    call("edit", tmp_path, path="a.txt", edits=[{"old_string": "two", "new_string": "2"}])
    assert (tmp_path / "a.txt").read_text() == "1 2\n"


def test_our_own_name_wins(tmp_path: Path) -> None:
    call("write", tmp_path, path="a.txt", file_path="b.txt", content="x")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_arguments_as_they_came_are_not_changed() -> None:
    from spindle.tools.edit import TOOL

    args = {"path": "a.txt", "oldText": "x", "newText": "y"}
    assert TOOL.prepare is not None and TOOL.prepare(args) != args
    assert args == {"path": "a.txt", "oldText": "x", "newText": "y"}
