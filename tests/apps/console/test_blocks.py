"""Streamed Markdown is cut at the same places however it comes, and nothing is lost; text cannot move the cursor."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from spindle.apps.console.look import Look, clean, fit, rows
from spindle.apps.console.markdown import Block, Blocks, render

_LINES = ["# T", "word", "", "- a", "  more", "1. b", "```", "```py", "~~~", "    x", "| a |", "> q", "   "]
_MARKDOWN = st.lists(st.sampled_from(_LINES), max_size=30).map("\n".join)


def cut(text: str, size: int) -> list[Block]:
    blocks = Blocks()
    found = [block for at in range(0, len(text), size) for block in blocks.feed(text[at : at + size])]
    return found + blocks.flush()


@given(_MARKDOWN, st.integers(1, 7))
def test_pieces_make_no_difference(text: str, size: int) -> None:
    whole = cut(text, len(text) or 1)
    assert cut(text, size) == whole
    kept = [line.strip() for block in whole for line in block.text.split("\n") if line.strip()]
    assert kept == [line.strip() for line in text.split("\n") if line.strip()]


def test_where_blocks_end() -> None:
    text = (
        "# T\n\nHello\nworld.\n\n1. one\n   - x\n2. two\n\n   more\n\nend\n```py\na\n```\n| a |\n|---|\n| 1 |\n\nlast"
    )
    assert [(kind, text) for kind, text, *_ in cut(text, 3)] == [
        ("text", "# T"),
        ("text", "Hello\nworld."),
        ("text", "1. one\n   - x"),
        ("item", "2. two\n\n   more"),
        ("text", "end"),
        ("open", "```py"),
        ("code", "a"),
        ("close", "```"),
        ("text", "| a |\n|---|\n| 1 |"),
        ("text", "last"),
    ]


def test_long_code_comes_in_parts_that_know_what_was_before() -> None:
    lines = [f"line {number}" for number in range(20)]
    parts = [block for block in cut("\n".join(["```", *lines, "```"]), 5) if block.kind == "code"]
    assert "\n".join(part.text for part in parts).split("\n") == lines
    assert len(parts) == 3
    assert list(parts[2].before) == lines[:16]


def test_an_indented_fence_is_one_but_in_an_item() -> None:
    assert [block.kind for block in cut("  ```py\n  x\n\ny\n  ```\nend", 3)] == ["open", "code", "close", "text"]
    assert [block.kind for block in cut("- a\n  ```py\n  x\n\n  y\n  ```\n- b", 3)] == ["text", "item"]


@pytest.mark.parametrize(
    "text",
    [
        "A Vec<T> of <b>those</b>",
        "<details>\nhidden\n</details>",
        "See [there][1]\n\n[1]: http://host/path",
        "![picture](http://host/a.png) and [link](http://host/b)",
        "<!-- comment -->",
        "<http://host/c>",
    ],
)
def test_nothing_that_is_written_in_markdown_is_lost(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = "\n".join(render(block, Look()) for block in cut(text, len(text)))
    for word in re.findall(r"[\w:/.]+", text):
        assert word in shown


def test_lines_stay_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for text in ("Roses are red,\nviolets are blue", "<details>\n<summary>x</summary>\n</details>"):
        assert render(Block("text", text), Look()) == text


def test_a_paragraph_is_given_out_at_its_end() -> None:
    blocks = Blocks()
    assert blocks.feed("one\n") == []
    assert blocks.feed("\nt") == [Block("text", "one")]
    assert blocks.open == "t"


@given(st.text())
def test_clean_text_has_no_control_characters(text: str) -> None:
    assert all(letter == "\n" or not (ord(letter) < 32 or 127 <= ord(letter) < 160) for letter in clean(text))


@given(st.text("aé漢\u0301😀 ", max_size=50), st.integers(2, 20))
def test_lines_fit(text: str, width: int) -> None:
    assert all(cell_len(row) <= width for row in rows(text, width))
    assert "".join(rows(text, width)) == text
    assert fit(text, 1000) == text
    assert len(fit(text, width)) <= max(width, len(text))


def test_words_stay_whole_if_they_fit() -> None:
    assert rows("some words\n\n  and Donaudampfschiff", 8) == ["some ", "words", "", "  and ", "Donaudam", "pfschiff"]
