"""The grep tool: what it finds, what it leaves out, what it says."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from spindle.tools import grep as rg

from .helpers import call, details_of, refusal, text_of
from .trees import make_tree

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"pattern": "two"}, "a.txt:2: two\nb/c.txt:1: two too"),
        ({"pattern": "TWO", "ignoreCase": True}, "a.txt:2: two\nb/c.txt:1: two too"),
        ({"pattern": "TWO"}, "No matches found"),
        ({"pattern": "t.o$"}, "a.txt:2: two\nb/c.txt:1: two too"),
        ({"pattern": "t.o", "literal": True}, "No matches found"),
        ({"pattern": "(x)", "literal": True}, "a.txt:4: (x)"),
        ({"pattern": "two", "path": "b"}, "c.txt:1: two too"),
        ({"pattern": "two", "path": "b/c.txt"}, "c.txt:1: two too"),
        ({"pattern": "two", "glob": "*.txt", "path": "b"}, "c.txt:1: two too"),
        ({"pattern": "two", "glob": "b/**"}, "b/c.txt:1: two too"),
        ({"pattern": "two", "glob": "!b/**"}, "a.txt:2: two"),
        ({"pattern": "hidden"}, ".h:1: hidden"),
        ({"pattern": "cr"}, "w.txt:1: crlf"),
        ({"pattern": "two", "context": 1, "path": "a.txt"}, "a.txt-1- one\na.txt:2: two\na.txt-3- three"),
        (
            {"pattern": "x", "context": 5, "path": "a.txt"},
            "a.txt-1- one\na.txt-2- two\na.txt-3- three\na.txt:4: (x)\na.txt-5- ",
        ),
        (
            {"pattern": "^o|^th", "context": 1, "path": "a.txt"},
            "a.txt:1: one\na.txt-2- two\na.txt-2- two\na.txt:3: three\na.txt-4- (x)",
        ),
    ],
)
def test_lines_found(args: dict[str, Any], text: str, tmp_path: Path) -> None:
    make_tree(
        tmp_path, {"a.txt": "one\ntwo\nthree\n(x)\n", "b/c.txt": "two too", ".h": "hidden\n", "bin": "two\0two\n"}
    )
    (tmp_path / "w.txt").write_bytes(b"cr\rlf\r\n")
    result = call("grep", tmp_path, **args)
    assert text_of(result) == text
    assert result.details is None


def test_files_come_in_order(tmp_path: Path) -> None:
    names = [f"{folder}/{name}" for folder in ("a", "a-b", "a.c/d") for name in ("1", "10", "2")]
    make_tree(tmp_path, dict.fromkeys(names, "x\nx\n"))
    found = text_of(call("grep", tmp_path, pattern="x")).split("\n")
    assert found == [f"{name}:{line}: x" for name in names for line in (1, 2)]


def test_letters_with_a_third_case(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("300 \u212a\nwor\u017fe\n")
    assert text_of(call("grep", tmp_path, pattern="300 k", ignoreCase=True)) == "f:1: 300 \u212a"
    assert text_of(call("grep", tmp_path, pattern="worse", ignoreCase=True)) == "f:2: wor\u017fe"


def test_ignore_files(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", ".gitignore": "no", "no": "x", "yes": "x", "sub/.ignore": "f", "sub/f": "x"})
    assert text_of(call("grep", tmp_path, pattern="x")) == "yes:1: x"


def test_a_binary_file_is_searched_only_if_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"two\nx\0two\n")
    make_tree(tmp_path, {"late": "two\n" + "." * 80_000 + "\n\0"})
    assert text_of(call("grep", tmp_path, pattern="two")) == "late:1: two"
    assert text_of(call("grep", tmp_path, pattern="two", path="bin")) == "bin:1: two\nbin:2: x\0two"


def test_options_of_the_user_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {"config": "--heading\n--only-matching\n--column\n", "f": "one two\n"})
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    assert text_of(call("grep", tmp_path, pattern="two")) == "f:1: one two"


def test_limit(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": "x\n" * 1000})
    result = call("grep", tmp_path, pattern="x", limit=2)
    notice = "[2 matches limit reached. Use limit=4 for more, or refine pattern]"
    assert text_of(result) == f"f:1: x\nf:2: x\n\n{notice}"
    assert details_of(result) == {"matchLimitReached": 2}
    assert details_of(call("grep", tmp_path, pattern="x", limit=0)) == {"matchLimitReached": 1}
    assert details_of(call("grep", tmp_path, pattern="x")) == {"matchLimitReached": 100}


def test_long_lines_and_long_output(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": ("x" * 700 + "\n") * 200})
    result = call("grep", tmp_path, pattern="x", limit=150)
    text, _, notice = text_of(result).rpartition("\n\n")
    assert notice == (
        "[150 matches limit reached. Use limit=300 for more, or refine pattern. 50.0KB limit reached. "
        "Some lines truncated to 500 chars. Use read tool to see full lines]"
    )
    assert text.startswith("f:1: " + "x" * 500 + "... [truncated]\nf:2: ")
    details = details_of(result)
    assert (details["matchLimitReached"], details["linesTruncated"]) == (150, True)
    assert details["truncation"]["truncatedBy"] == "bytes"
    assert details["truncation"]["maxLines"] == 2**53 - 1


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9 x\n")
    with open(os.fsencode(tmp_path) + b"/n\xffm", "wb") as file:
        file.write(b"x y\n")
    assert sorted(text_of(call("grep", tmp_path, pattern="x")).split("\n")) == [
        "latin:1: caf\ufffd x",
        "n\ufffdm:1: x y",
    ]


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    assert refusal("grep", tmp_path, pattern="x", path="nope") == f"Path not found: {tmp_path}/nope"
    text = refusal("grep", tmp_path, pattern="(")
    assert "regex parse error:" in text and text.endswith(
        ("error: unclosed group", "unterminated subpattern at position 0")
    )
    glob = refusal("grep", tmp_path, pattern="x", glob="[")
    assert glob.endswith("error parsing glob '[': unclosed character class; missing ']'")
    assert refusal("grep", tmp_path, pattern="a\0b") == "Pattern must not contain null bytes"


@pytest.mark.only_here
def test_a_file_that_vanishes_before_its_context_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {"f": "x\n"})
    monkeypatch.setattr("spindle.workspace.disk._lines_of", lambda *_: [])
    assert text_of(call("grep", tmp_path, pattern="x", context=1)) == "f:1: (unable to read file)"


def test_a_pipe_in_the_tree_is_no_trap(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": "x\n"})
    os.mkfifo(tmp_path / "pipe")
    assert text_of(call("grep", tmp_path, pattern="x")) == "f:1: x"


def test_a_pipe_or_a_device_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal("grep", tmp_path, pattern="x", path="pipe") == f"Not a regular file: {tmp_path}/pipe"
    assert refusal("grep", tmp_path, pattern="x", path="/dev/zero") == "Not a regular file: /dev/zero"


def test_any_number_of_lines_around_a_match_takes_little_memory(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": "one\nneedle\nlast\n"})
    source = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
        from tests.tools.helpers import call, text_of
        print(text_of(call("grep", {str(tmp_path)!r}, pattern="needle", context=10**10)))
    """
    done = subprocess.run([sys.executable, "-c", dedent(source)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "f-1- one\nf:2: needle\nf-3- last\nf-4- \n", done.stderr


def test_a_line_of_any_length_takes_little_memory(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.write(b"one\nneedle" + b" " * 9000)
        file.truncate(1 << 27)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    # In a process of its own, because memory is limited for a process as a whole.
    source = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
        from tests.tools.helpers import call, text_of
        print(text_of(call("grep", {str(tmp_path)!r}, pattern="needle|last", path="f", context=1)))
    """
    done = subprocess.run([sys.executable, "-c", dedent(source)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert [line[:13] for line in done.stdout.splitlines()[:6]] == [
        *("f-1- one", "f:2: needle  ", "f-3- last"),
        *("f-2- needle  ", "f:3: last", "f-4- "),
    ], done.stderr


def test_a_matching_line_may_be_longer_than_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rg, "_MAX_LINE_BYTES", 1 << 16)
    make_tree(tmp_path, {"a": "x\n", "b": "needle" + " y" * (1 << 20) + "\nx\n", "c": "needle"})
    result = call("grep", tmp_path, pattern="needle")
    head, tail, *_ = text_of(result).split("\n")
    assert head.startswith("b:1: needle y y") and head.endswith("... [truncated]") and tail == "c:1: needle"
    assert details_of(result) == {"linesTruncated": True}
