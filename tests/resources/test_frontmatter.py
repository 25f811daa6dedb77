"""Front matter: what people write there, and what is no YAML."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.resources.frontmatter import BadFrontMatter, split_front_matter


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("name: x\ndescription: Does y", {"name": "x", "description": "Does y"}),
        ("name: 'it''s'\nq: \"a: \\\"b\\\" \\u00e9\"", {"name": "it's", "q": 'a: "b" é'}),
        (
            "a: true\nb: false\nc: null\nd: ~\ne:\nf: 12",
            {"a": True, "b": False, "c": None, "d": None, "e": None, "f": "12"},
        ),
        ("# comment\na: b # more\nc: d#e", {"a": "b", "c": "d#e"}),
        ("a: >\n  one\n  two\n\n  three\nb: x", {"a": "one two\nthree", "b": "x"}),
        ("a: |\n  one\n    two\n", {"a": "one\n  two"}),
        ("a: first\n  second", {"a": "first second"}),
        ("a:\n  - x\n  - 'y z'", {"a": ["x", "y z"]}),
        ("a:\n- x\n- y\nb: 1", {"a": ["x", "y"], "b": "1"}),
        ("a: [x, 'y', z]", {"a": ["x", "y", "z"]}),
        (
            "metadata:\n  author: me\n  version: '1.0'\nname: n",
            {"metadata": {"author": "me", "version": "1.0"}, "name": "n"},
        ),
        ("allowed-tools: Bash(git:*) Read", {"allowed-tools": "Bash(git:*) Read"}),
        ("", {}),
        ("a: 2026-01-31\nb: yes\nc: 'true'\nd: \"\"", {"a": "2026-01-31", "b": "yes", "c": "true", "d": ""}),
        ("a: x\na: y", {"a": "y"}),
        ('a:\tb\tc \t\nd: "\\ud83d\\ude00"', {"a": "b\tc", "d": "😀"}),
        ("argument-hint: [file] [--fast]\ndescription: x", {"description": "x"}),
        ("argument-hint: >\n  [file]", {"argument-hint": "[file]"}),
    ],
)
def test_values(block: str, expected: dict[str, Any]) -> None:
    assert split_front_matter(f"---\n{block}\n---\n\n body \n") == (expected, "body")


def test_line_ends_and_absence() -> None:
    assert split_front_matter("---\r\nname: a\r\n---\r\nbody\r\n") == ({"name": "a"}, "body")
    assert split_front_matter("no front matter\n") == ({}, "no front matter")
    assert split_front_matter("---\nnever: closed\n") == ({}, "---\nnever: closed")


@pytest.mark.parametrize("block", ["description: use this: always", "just words", 'a: "open', "a: *anchor", "- list"])
def test_what_is_no_yaml_is_refused_with_the_place(block: str) -> None:
    with pytest.raises(BadFrontMatter, match=r"^line [34]: "):
        split_front_matter(f"---\nname: x\n{block}\n---\nbody")


@pytest.mark.parametrize("block", ["a: " + "[" * 100_000, "- " * 100_000, "just words"])
def test_what_is_no_mapping_is_refused(block: str) -> None:
    with pytest.raises(BadFrontMatter):
        split_front_matter(f"---\n{block}\n---\nbody")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        matter, body = split_front_matter(f"---\n{text}\n---\nrest")
    except BadFrontMatter:
        return
    assert isinstance(matter, dict)
    assert isinstance(body, str)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12).filter(
            lambda t: t not in ("true", "false", "null")
        ),
    )
)
def test_simple_pairs_survive(pairs: dict[str, str]) -> None:
    block = "\n".join(f"{key}: {value}" for key, value in pairs.items())
    assert split_front_matter(f"---\n{block}\n---\nx") == (pairs, "x")
