"""Markdown on the web page: growing text ends as the whole does, and no text takes long. What it becomes: tests/web."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.support.mock_model import reply
from tests.wires.server.server import ServerProcess

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)

GROW = """
async ([text, cuts]) => {
  const { GrowingMarkdown, rendered } = await import('/page/chat/growing.js');
  const node = document.createElement('div');
  const view = new GrowingMarkdown(node);
  for (const cut of cuts) view.set(text.slice(0, cut), true);
  view.set(text);
  for (const part of node.querySelectorAll(':scope > .part')) part.replaceWith(...part.childNodes);
  return [node.innerHTML, rendered(text).innerHTML];
}
"""
TIME = """
async text => {
  const { rendered } = await import('/page/chat/growing.js');
  const start = performance.now();
  rendered(text);
  return performance.now() - start;
}
"""


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Tab]:
    with ServerProcess() as server, Tab(browser, server) as tab:
        yield tab


PIECES = ["word ", "**", "*", "`", "```", "```py\n", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "# ", "|", "|-|-|\n", "["]
PIECES += ["](https://x.y)", "---", "===", "\t", "    ", "_", "~~", "\\", "<b>", "https://a.b ", "x = 1  # c\n"]
PIECES += ["#", "-", "1", ".", ">", "a", " ", "\n- b\n", "\n[a]: https://c.d\n", "[a]", "\r\n", "\t```\n"]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30), cuts=st.lists(st.integers(0, 200), max_size=8))
@example(
    pieces=["*", "    ", "    ", "\n[a]: https://c.d\n", "\t```\n", "#", "\n[a]: https://c.d\n", "word "],
    cuts=[51],
)
def test_text_that_grows_ends_as_the_whole_does(tab: Tab, pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    grown, whole = tab.js(GROW, [text, sorted(cut for cut in cuts if cut < len(text))])
    assert grown == whole


def test_a_text_in_parts_ends_as_the_whole_does(tab: Tab) -> None:
    text = "".join(f"## Part {i}\n\nSome *words*\n\n- one\n- two\n\n---\n\n" for i in range(40))
    grown, whole = tab.js(GROW, [text, list(range(0, len(text), 7))])
    assert grown == whole


def test_long_code_is_coloured_when_it_is_complete(tab: Tab) -> None:
    code = "```py\n" + "return 1\n" * 1000 + "```\n"
    text = code + "\nand\n\nso on\n\n"
    grown, whole = tab.js(GROW, [text, list(range(len(code) - 200, len(text)))])
    assert grown == whole
    assert whole.count("t-word") == 1000


LAID_OUT = """
async text => {
  const { GrowingMarkdown } = await import('/page/chat/growing.js');
  const node = document.createElement('div');
  node.className = 'md';
  document.body.append(node);
  const view = new GrowingMarkdown(node);
  const times = [];
  const show = (part, live) => {
    const start = performance.now();
    view.set(part, live);
    node.offsetHeight;
    times.push(performance.now() - start);
  };
  show(text, false);
  view.clear();
  show(text.slice(0, -200), true);
  for (const left of [-150, -100, -50]) show(text.slice(0, left), true);
  show(text, false);
  node.remove();
  return times;
}
"""
SENTENCE = "It is **said** in `some` words, again and again. "


def test_a_very_long_paragraph_ends_as_the_whole_does(tab: Tab) -> None:
    text = "Begin\n\n" + SENTENCE * 1500 + "\n" + "Some words in a line\n" * 1500 + "\n" + "a" * 40_000
    grown, whole = tab.js(GROW, [text, list(range(0, len(text), 997))])
    assert grown == whole
    assert whole.count('class="span"') > 12 and whole.count("<strong>said</strong>") == 1500


@pytest.mark.parametrize("text", ["word and more text. " * 50_000, "words in a line\n" * 60_000], ids=["line", "lines"])
def test_a_paragraph_of_a_megabyte_is_laid_out_at_once(tab: Tab, text: str) -> None:
    runs = [tab.js(LAID_OUT, text) for _ in range(3)]
    best = [min(times) for times in zip(*runs, strict=True)]
    assert max(best) < 400, best  # about 50 on a machine that does nothing else; it was 2000 and more


TIRING = ["*a " * 20_000, "[" * 50_000, "[a](" * 12_000, "`" * 40_000, "` `` " * 10_000, "> " * 20_000, "- " * 20_000]
TIRING += ["_a*" * 16_000, "https://" * 6_000, "|a" * 25_000 + "\n" + "|-" * 25_000, "#" * 50_000, "\\" * 50_000]
TIRING += ["* " * 10_000 + "x", "1. a\n\n" * 8_000]


@pytest.mark.parametrize("text", TIRING, ids=lambda text: repr(text[:6]))
def test_no_text_takes_long(tab: Tab, text: str) -> None:
    assert tab.js(TIME, text) < 2000


FORMULAS = r"A sum $\sum_{i=1}^n i$ and $$\left(\frac{a}{\frac{b}{c}}\right)$$ and $\nope$."


def test_what_draws_formulas_comes_with_the_first_one(browser: Any) -> None:
    with ServerProcess([reply("Nothing."), reply(FORMULAS)]) as server, Tab(browser, server) as tab:
        tab.ask("none")
        loaded = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('math')).length"
        assert tab.js(loaded) == 0
        tab.ask("some")
        tab.counts("#feed math", 2)
        assert tab.js(loaded) == 1 and tab.text("#feed .tex") == r"\nope"
        signs = tab.js("Array.from(document.querySelectorAll('math mo[fence]'), sign => sign.getAttribute('stretchy'))")
        assert signs == ["true", "true"]
        tab.page.reload()
        tab.connected()
        tab.counts("#feed math", 2)
    assert not tab.trouble
