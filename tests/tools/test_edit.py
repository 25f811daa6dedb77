"""The edit tool: what is found, what is refused, what the file looks like afterwards."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spindle.tools.base import ToolError
from spindle.tools.replace import Edit, display_diff, find_changes, normalize, replace_texts, split_lines, unified_patch

from .helpers import Run, call, details_of, golden, refusal, run, text_of


def edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"oldText": old, "newText": new} for old, new in pairs]


@pytest.mark.parametrize("row", golden("edit"), ids=range(len(golden("edit"))))
def test_recorded_edits(row: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    file.write_bytes(row["text"].encode())
    if "error" in row:
        assert refusal("edit", tmp_path, path="f.txt", edits=row["edits"]).startswith(row["error"])
        assert file.read_bytes() == row["text"].encode()
        return
    result = call("edit", tmp_path, path="f.txt", edits=row["edits"])
    assert text_of(result) == f"Successfully replaced {len(row['edits'])} block(s) in f.txt."
    assert details_of(result) == {key: row[key] for key in ("diff", "patch", "firstChangedLine")}
    written = file.read_bytes()
    if "\r" in row["text"].replace("\r\n", ""):  # it was recorded from a program that makes all line ends the same
        written = written.replace(b"\r", b"\n")
    assert written == row["file"].encode()


# -- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        {"edits": edits(("a", "b"))},
        {"edits": '[{"oldText": "a", "newText": "b"}]'},
        {"edits": {"oldText": "a", "newText": "b"}},
        {"edits": '{"oldText": "a", "newText": "b"}'},
        {"oldText": "a", "newText": "b"},
        {"edits": [], "oldText": "a", "newText": "b"},
        {"edits": edits(("a", "b")), "unknown": 1},
    ],
)
def test_what_models_send_instead_of_a_list(args: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("xax")
    call("edit", tmp_path, path="f", **args)
    assert (tmp_path / "f").read_text() == "xbx"


@pytest.mark.parametrize("bad", ["not json", 5, None, [1], [{"oldText": "a"}]])
def test_arguments_beyond_repair(bad: Any, tmp_path: Path) -> None:
    assert refusal("edit", tmp_path, path="f", edits=bad).startswith('Validation failed for tool "edit"')


def test_no_edits_at_all(tmp_path: Path) -> None:
    expected = "Edit tool input is invalid. edits must contain at least one replacement."
    assert refusal("edit", tmp_path, path="f", edits=[]) == expected


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "x\ny", b"\xef\xbb\xbfx\r\ny\r\n"),
        (b"a\r\nb\r\n", "a\r\n", "c\r\nd\r\n", b"c\r\nd\r\nb\r\n"),
        (b"a\nb\r\nc\n", "a", "x", b"x\nb\r\nc\n"),
        (b"a\r\nb\nc\r\nd\n", "b\nc", "x\ny\nz", b"a\r\nx\ny\r\nz\r\nd\n"),
        (b"a\r\nb\nc\rd\r\n", "a\nb\nc\nd", "a\nB\nc\nd", b"a\r\nB\nc\rd\r\n"),
        (b"a\nb\r\nc", "c", "c\nd\n", b"a\nb\r\nc\r\nd\r\n"),
        (b"a\nb\r\nc\n", "b\nc", "b\nnew\nc", b"a\nb\r\nnew\r\nc\n"),
        (b"no newline", "no", "NO\n", b"NO\n newline"),
        (b"caf\xe9 \xff\nb\n", "b", "c", b"caf\xe9 \xff\nc\n"),
        (b"a\0b", "a", "c", b"c\0b"),
        ("it’s — “so”  \nkeep “me”  \n".encode(), 'it\'s - "so"', "x", "x\nkeep “me”  \n".encode()),
    ],
)
def test_bytes_that_were_not_asked_about_stay(before: bytes, old: str, new: str, after: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(before)
    call("edit", tmp_path, path="f", edits=edits((old, new)))
    assert (tmp_path / "f").read_bytes() == after


def test_mode_and_owner_stay(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("long old text")
    file.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
    before = file.stat()
    call("edit", tmp_path, path="f", edits=edits(("long old text", "x")))
    after = file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert file.read_text() == "x"
    assert os.listdir(tmp_path) == ["f"]


MEMORY = """
import asyncio, resource, sys
from spindle.tools.base import ToolContext, builtin_tools
edits = [{"oldText": "line 1000000 ", "newText": "changed "}]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
asyncio.run(builtin_tools()["edit"].execute("1", {"path": sys.argv[1], "edits": edits}, ToolContext(cwd="/")))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_large_file_takes_less_than_seven_times_its_size(tmp_path: Path, end: str) -> None:
    file = tmp_path / "f"
    lines = f"a line of a big file, with some text{end}" * 150_000
    with open(file, "w", newline="") as out:
        out.writelines([lines, f"line 1000000 of it{end}", lines])
    size = file.stat().st_size
    assert size > 10_000_000
    taken = subprocess.run([sys.executable, "-c", MEMORY, str(file)], capture_output=True, text=True, check=True)
    assert int(taken.stdout) < 7 * size
    assert file.stat().st_size == size - len("line 1000000 ") + len("changed ")


def test_what_cannot_be_edited(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 30)
    expected = {
        "nope.txt": "Could not edit file: nope.txt. Error code: ENOENT.",
        "loop": "Could not edit file: loop. Error code: ELOOP.",
        "folder": "EISDIR: illegal operation on a directory, read",
        "pipe": f"Not a regular file: {tmp_path}/pipe",
        "huge": "Could not edit file: huge. It is 1024.0MB, more than 256.0MB.",
    }
    for path, text in expected.items():
        told = refusal("edit", tmp_path, path=path, edits=edits(("a", "b")))
        assert told.replace("more than 64.0MB", "more than 256.0MB") == text, "64 MB cross a pipe"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    (tmp_path / "f").chmod(0o400)
    text = refusal("edit", tmp_path, path="f", edits=edits(("a", "b")))
    assert text == "Could not edit file: f. Error code: EACCES."


def test_several_edits_are_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    text = refusal("edit", tmp_path, path="f", edits=edits(("a", "x"), ("zzz", "y")))
    assert text.startswith("Could not find edits[1] in f.")
    assert (tmp_path / "f").read_text() == "a\nb\n"


def test_edits_of_one_file_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{n}>\n" for n in range(20)))

    async def body() -> None:
        runs = [Run("edit", tmp_path, {"path": "f", "edits": edits((f"<{n}>", f"[{n}]"))}) for n in range(20)]
        await asyncio.gather(*(one.task for one in runs))

    run(body)
    assert (tmp_path / "f").read_text() == "".join(f"[{n}]\n" for n in range(20))


# -- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pairs", "message"),
    [
        ("a a", [("a", "b")], "Found 2 occurrences of the text in f. The text must be unique. "),
        ("foo bar foo", [("foo ", "x")], "Found 2 occurrences of the text in f. "),
        ('“a” "a"', [('"a"', "x")], "Found 2 occurrences of the text in f. "),
        ("ab", [("a", "x"), ("ab", "y")], "edits[0] and edits[1] overlap in f. "),
        ("abc", [("bc", "x"), ("ab", "y")], "edits[1] and edits[0] overlap in f. "),
        ("a", [("  ", "x")], "Could not find the exact text in f. "),
        ("  a", [("a\n", "x")], "Could not find the exact text in f. "),
        ("    a", [("\ta", "x")], "Could not find the exact text in f. "),
    ],
)
def test_refusals(text: str, pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ToolError) as caught:
        replace_texts(text, [Edit(*pair) for pair in pairs], "f")
    assert str(caught.value).startswith(message)


def test_long_runs_of_spaces_cost_no_more_than_their_length() -> None:
    text = (" " * 50_000 + "x\n") * 20
    assert normalize(text) == text
    assert normalize(" " * 1_000_000) == ""


def reference(text: str, pairs: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(pairs, reverse=True):
        text = text[:start] + new + text[end:]
    return text


LINES = st.lists(st.text("ab {}\té", max_size=6), min_size=1, max_size=12)


@settings(max_examples=150)
@given(LINES, st.booleans(), st.data())
def test_exact_edits_do_what_slicing_does(lines: list[str], final_newline: bool, data: st.DataObject) -> None:
    text = "\n".join(f"{number}{line}" for number, line in enumerate(lines)) + "\n" * final_newline
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=6, unique=True)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    news = [data.draw(st.text("xy\n", max_size=5)) for _ in spans]
    plain = normalize(text)
    chosen = [(start, end, new) for (start, end), new in zip(spans, news, strict=True)]
    assume(all(plain.count(normalize(text[start:end]) or text[start:end]) == 1 for start, end, _ in chosen))
    assume(all(text.count(text[start:end]) == 1 for start, end, _ in chosen))
    expected = reference(text, chosen)
    assume(expected != text)
    edit_list = [Edit(text[start:end], new) for start, end, new in chosen]
    replaced = replace_texts(text, data.draw(st.permutations(edit_list)), "f")
    assert replaced.text == expected
    check_diff(text, expected, replaced)


@given(LINES, st.data())
def test_near_matches_change_only_the_lines_they_touch(lines: list[str], data: st.DataObject) -> None:
    fancy = [f"“{number}” — {line}  " for number, line in enumerate(lines)]
    text = "\n".join(fancy) + "\n"
    index = data.draw(st.integers(0, len(lines) - 1))
    replaced = replace_texts(text, [Edit(f'"{index}" -', "new")], "f")
    rest = normalize(fancy[index]).removeprefix(f'"{index}" -')
    assert replaced.text.split("\n") == [*fancy[:index], f"new{rest}", *fancy[index + 1 :], ""]
    check_diff(text, replaced.text, replaced)


def check_diff(old_text: str, new_text: str, replaced: Any) -> None:
    """The changes, applied to the old lines, must give the new ones, and change no equal lines at their edges."""
    old, new = split_lines(old_text), split_lines(new_text)
    changes = find_changes(replaced.old_lines, replaced.regions)
    rebuilt, done = [], 0
    for change in changes:
        assert change.start >= done
        rebuilt += old[done : change.start] + new[change.new_start : change.new_end]
        assert old[change.start : change.end] != new[change.new_start : change.new_end]
        done = change.end
    assert rebuilt + old[done:] == new
    shown = display_diff(old, new, changes).split("\n")
    assert sum(line[0] == "+" for line in shown) == sum(change.new_end - change.new_start for change in changes)
    assert sum(line[0] == "-" for line in shown) == sum(change.end - change.start for change in changes)


def test_the_patch_is_one_that_patch_applies(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 60)) + "last without newline"
    replaced = replace_texts(
        text, [Edit("line 3\n", ""), Edit("line 30", "x\ny"), Edit("without newline", "one\n")], "f"
    )
    old, new = split_lines(text), split_lines(replaced.text)
    patch = unified_patch(old, new, find_changes(old, replaced.regions), "f")
    (tmp_path / "f").write_text(text)
    try:
        subprocess.run(["git", "apply", "-p0", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("no git here")
    assert (tmp_path / "f").read_text() == replaced.text


def test_a_file_of_a_hundred_thousand_lines_is_no_trouble() -> None:
    text = "".join(f"line {n}\n" for n in range(100_000))
    pairs = [Edit(f"line {n}\n", f"changed {n}\n") for n in range(50_000, 50_100)]
    replaced = replace_texts(text, pairs, "f")
    changes = find_changes(replaced.old_lines, replaced.regions)
    assert [(change.start, change.end) for change in changes] == [(50_000, 50_100)]
