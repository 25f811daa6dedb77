"""The page as text: its parts, its figures, its size, and that nothing of a session gets out of its place."""

import json
import re
import tracemalloc
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.export.page import build_page
from spindle.web import modules, read

from .helpers import HEADER, answer, chain, long_session, message, page_of, page_of_file, result, session_files, user

HOSTILE = "</script><script>alert(1)</script><!--<script>\"'&<img src=x onerror=alert(1)>"


class Outline(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of scripts and styles."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open = (tag, dict(attrs))
            self.raw.append((*self._open, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attributes, text = self.raw[-1]
            self.raw[-1] = (tag, attributes, text + data)


def data_lines(page: bytes) -> list[Any]:
    (text,) = (text for _, attributes, text in Outline(page).raw if attributes.get("id") == "data")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.strip().split("\n")]


def static_text(page: bytes) -> str:
    """Return what the page says before any script runs."""
    body = page.decode().partition("<main>")[2].partition("</main>")[0]
    return unescape(re.sub(r"<[^>]+>", " ", body))


def fact(page: bytes, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt><dd>(.*?)</dd>", page.decode())
    return unescape(re.sub(r"<[^>]+>", "", found[1])) if found else ""


@pytest.mark.parametrize("name", session_files())
def test_every_session_keeps_all_its_entries(name: str) -> None:
    page = page_of_file(name)
    meta, header, *entries = data_lines(page)
    assert meta["entries"] == len(entries) > 0
    assert header["type"] == "session"
    data = len(page.partition(b'id="data">')[2].partition(b"</script>")[0])
    assert data > 8_000 or len(page) < 165_000


def test_the_figures() -> None:
    page = page_of_file("real-everything")
    assert "<h1>Export demo</h1>" in page.decode()
    assert "Session: 01a1dde7-ea74-7e0b-bdae-96919b5ee003" in static_text(page)
    assert fact(page, "Models") == "mock/mock-1"
    assert fact(page, "Messages").startswith(
        "6 user · 10 assistant · 8 tool results · 1 command · 2 custom · 1 compaction"
    )
    assert fact(page, "Tool calls") == "8"
    assert fact(page, "Tokens") == "↑8,084 ↓3,482 R5,360 W72"
    assert fact(page, "Branches") == "2"
    assert fact(page, "Cost") == "$0.199"


@pytest.mark.parametrize(
    ("cost", "text"), [(0, "$0.00"), (0.00042, "$0.00042"), (0.25, "$0.250"), (1234.5, "$1,234.50")]
)
def test_the_cost_has_its_sign(cost: float, text: str) -> None:
    page = page_of([answer("a", None, "x", usage={"cost": {"total": cost}})])
    assert fact(page, "Cost") == text


def test_figures_survive_nonsense() -> None:
    usage = {"input": "many", "output": True, "cacheRead": -5, "cacheWrite": 1e300, "cost": [1]}
    page = page_of([answer("a", None, "x", usage=usage), answer("b", "a", "y", usage=None)])
    assert fact(page, "Cost") == "$0.00"
    assert fact(page, "Tokens") == ""


def test_system_prompt_and_tools() -> None:
    tool = {"name": "bash", "description": "Run <b>it</b>", "parameters": {"type": "object"}}
    text = static_text(page_of([user("a", None, "hi")], system_prompt="Be <brief>.", tools=[tool]))
    assert "Be <brief>." in text
    assert "Tools (1)" in text
    assert "Run <b>it</b>" in text


def test_damage_is_told() -> None:
    page = page_of_file("damaged-bad-line-middle")
    assert "The session file is damaged" in static_text(page)
    assert "line 4" in static_text(page)
    many = page_of([user("a", None, "hi")], damage_notes=[f"note {number}" for number in range(50)])
    assert "and 30 more" in static_text(many)


def test_a_session_without_a_name_is_called_by_its_first_words() -> None:
    assert "<title>Fix the bug</title>" in page_of([user("a", None, "Fix \n the bug")]).decode()
    assert "<title>Session test-session</title>" in page_of([answer("a", None, "x")]).decode()


# -- without a script ----------------------------------------------------------------------------


def test_the_transcript_is_the_active_branch() -> None:
    text = static_text(page_of_file("real-everything"))
    assert "Explain with **markdown**" in text
    assert "Error: 503 overloaded" in text
    assert "Aborted" in text
    assert "$ echo hi; exit 3" in text
    assert "Exit code 1" in text
    assert "CI **passed**" in text
    assert "Alternative branch" not in text
    assert "not shown" not in text


def test_a_long_transcript_is_cut_in_the_middle() -> None:
    text = static_text(page_of(long_session(1000)))
    assert "Question 0:" in text
    assert "Question 996:" in text
    assert "Question 500:" not in text
    assert "800 messages are left out" in text


def test_long_texts_are_cut() -> None:
    text = static_text(page_of([user("a", None, "x" * 50_000), result("b", "a", "c", "bash", "y\n" * 50_000)]))
    assert "38,000 more characters" in text
    assert "50,001 lines" in text


def test_a_circle_of_parents_ends() -> None:
    page = page_of([user("a", "b", "first"), user("b", "a", "second")])
    assert static_text(page).count("second") >= 1


# -- safety --------------------------------------------------------------------------------------


def policy(page: bytes) -> str:
    for tag, attributes in Outline(page).elements:
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy":
            return str(attributes["content"])
    raise AssertionError("no policy")


def test_the_policy_names_the_hash_of_each_script_and_style() -> None:
    page = page_of_file("real-everything")
    rules = policy(page)
    assert "unsafe" not in rules
    assert "default-src 'none'" in rules
    assert "trusted-types 'none'" in rules
    executable = [(tag, text) for tag, attributes, text in Outline(page).raw if not attributes.get("type")]
    assert [tag for tag, _ in executable] == ["style", "script", "script"]
    for _, text in executable:
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in rules


@pytest.mark.parametrize("script", ["viewer/app.js", "chat/main.js"])
def test_no_two_modules_of_the_script_declare_the_same_name(script: str) -> None:
    """They all end up in one text, where the second declaration would replace the first, or be an error."""
    # Only what stands alone in its module: names inside of functions are indented there.
    names = [
        name
        for module in modules(script)
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+|\$)", read(module), re.MULTILINE
        )
    ]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_nothing_is_loaded() -> None:
    for tag, attributes in Outline(page_of_file("real-everything")).elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert attributes.get("src", "data:,") == "data:,"
        assert not any(name.startswith("on") or name == "style" for name in attributes)


def hostile_page() -> bytes:
    entries = [
        message("a", None, role="user", content=HOSTILE),
        answer("b", "a", HOSTILE, {"type": "thinking", "thinking": HOSTILE}, stopReason="error", errorMessage=HOSTILE),
        message("c", "b", role=HOSTILE, content=[{"type": "image", "mimeType": HOSTILE, "data": HOSTILE}]),
        {"type": "label", "id": "d", "parentId": "c", "timestamp": HOSTILE, "targetId": "a", "label": HOSTILE},
        {"type": HOSTILE, "id": HOSTILE, "parentId": "d", "timestamp": HOSTILE},
    ]
    header = {**HEADER, "id": HOSTILE, "cwd": HOSTILE, "parentSession": HOSTILE}
    tools = [{"name": HOSTILE, "description": HOSTILE, "parameters": {HOSTILE: HOSTILE}}]
    return page_of(entries, header=header, name=HOSTILE, system_prompt=HOSTILE, tools=tools, damage_notes=[HOSTILE])


def test_hostile_text_makes_no_elements() -> None:
    def shape(page: bytes) -> set[tuple[str, frozenset[str]]]:
        return {(tag, frozenset(attributes)) for tag, attributes in Outline(page).elements}

    harmless = page_of_file("real-everything", system_prompt="x", tools=[{"name": "x"}])
    page = hostile_page()
    assert shape(page) <= shape(harmless) | {("div", frozenset({"class"})), ("ul", frozenset()), ("li", frozenset())}
    assert len(Outline(page).raw) == 4
    assert policy(page) == policy(harmless)


def test_the_data_holds_no_tag_and_comes_back_as_it_was() -> None:
    page = hostile_page()
    block = page.partition(b'id="data">')[2].partition(b"</script>")[0]
    assert b"<" not in block
    _, header, *entries = data_lines(page)
    assert header["id"] == HOSTILE
    assert entries[0]["message"]["content"] == HOSTILE


def test_placeholders_in_a_session_are_text() -> None:
    page = page_of([user("a", None, "{{script}} {{data}} \\1 $& $1")], name="{{style}}")
    assert "<h1>{{style}}</h1>" in page.decode()
    assert "{{script}} {{data}} \\1 $& $1" in static_text(page)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["id", "parentId", "timestamp", "message", "summary", "targetId", "label", "usage", "content"])


@settings(max_examples=120)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["message", "label", "compaction", "custom_message", "x"]),
            st.dictionaries(keys, json_values),
        ),
        max_size=5,
    )
)
def test_any_json_makes_a_page(drawn: list[tuple[str, dict[str, Any]]]) -> None:
    entries = [{"type": kind, **fields} for kind, fields in drawn]
    leaf = entries[-1].get("id") if entries else None
    page = page_of([*entries, {"id": leaf, "type": "custom", "parentId": leaf}])
    meta, _, *lines = data_lines(page)
    assert meta["entries"] == len(lines) == len(entries) + 1
    assert len(Outline(page).raw) == 4


def test_lone_surrogates_and_numbers_without_end() -> None:
    entry = user("a", None, "\ud800 broken")
    entry["n"] = float("inf")
    page = page_of([entry, user("b", "a", "\udfff")])
    assert [line["id"] for line in data_lines(page)[2:]] == ["a", "b"]


# -- cost ----------------------------------------------------------------------------------------


def test_time_grows_with_the_session_and_no_faster() -> None:
    small, large = long_session(5_000), long_session(50_000)
    page_of(small)
    started = process_time()
    page_of(small)
    between = process_time()
    page_of(large)
    ended = process_time()
    assert ended - between < 30 * max(between - started, 0.02)


def test_a_session_is_never_held_decoded() -> None:
    """A large session beside a running agent: what is needed is about what the page weighs, not ten times that."""
    size = sum(map(len, build_page(HEADER, chain(3_000), None, name="x")))
    tracemalloc.start()
    try:
        build_page(HEADER, chain(3_000), None, name="x")
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()


def test_depth_has_no_limit() -> None:
    deep: Any = "bottom"
    for _ in range(300):
        deep = {"inner": [deep]}
    page = page_of([answer("a", None, {"type": "toolCall", "id": "c", "name": "x", "arguments": deep})], redact=True)
    assert len(data_lines(page)) == 3
