"""The exported page of very large sessions, and of texts made to be slow."""

import pytest

from tests.export.helpers import answer, long_session, page_of, user

from .conftest import Open

pytestmark = pytest.mark.timeout(180)


def test_fifty_thousand_entries(visit: Open) -> None:
    page = visit(page_of(long_session(50_000)))
    assert page.trouble == []
    assert "Question 0:" in page.text()
    assert page.text("#status") == "50,000 / 50,000 entries"
    # Something to read is painted before the whole of it is read in.
    paint, ready = page.js("[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]")
    assert paint < ready / 2
    # Only what is near the window is in the document, wherever one is.
    for place in (0.25, 0.5, 0.9, 1):
        page.js("place => scrollTo(0, place * document.documentElement.scrollHeight)", place)
        page.expect(
            "Array.from(document.querySelectorAll('#messages article')).some(node => {"
            " const box = node.getBoundingClientRect(); return box.top < innerHeight && box.bottom > 60 })"
        )
        assert page.js("document.querySelectorAll('*').length") < 4000
    page.js("scrollTo(0, document.documentElement.scrollHeight)")
    page.expect("document.querySelector('#messages').innerText.includes('Answer 49999')")
    page.page.fill("#search", "49996:")
    page.expect("document.querySelectorAll('#tree .row').length === 1")
    page.page.click("#tree .row")
    assert page.in_view("article.flash")


def test_scrolling_is_steady(visit: Open) -> None:
    """Going down and up again by the wheel, no article jumps: heights that were guessed wrong are made up for."""
    page = visit(page_of(long_session(4000)), "#target=00000800")
    page.page.mouse.move(900, 500)
    where = (
        "() => { const node = document.elementFromPoint(800, 450)?.closest('article');"
        " return node && [Number(node.dataset.item), node.getBoundingClientRect().top] }"
    )
    for step in (-300,) * 12 + (300,) * 6:
        before = page.js(where)
        page.page.mouse.wheel(0, step)
        page.js(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"
        )
        after = page.js(
            'item => document.querySelector(`article[data-item="${item}"]`)?.getBoundingClientRect().top', before[0]
        )
        assert abs((after - before[1]) - (-step)) < 3


def test_a_wide_tree_and_a_deep_one(visit: Open) -> None:
    wide = [user("root", None, "root"), *(user(f"w{number}", "root", f"child {number}") for number in range(5000))]
    page = visit(page_of(wide))
    assert page.text("#status") == "5,001 / 5,001 entries"
    assert "Branch 5000 of 5000" in page.text()
    stairs = [user("d0", None, "start")]
    for number in range(1, 6000, 2):
        stairs.append(user(f"d{number}", f"d{number - 1}", "aside"))
        stairs.append(user(f"d{number + 1}", f"d{number - 1}", f"step {number}"))
    page = visit(page_of(stairs))
    assert page.trouble == []
    assert page.text("#status") == "6,001 / 6,001 entries"


def test_what_a_browser_cannot_hold_is_told(visit: Open) -> None:
    """A browser gives an empty text for an element of more than half a gigabyte."""
    page = page_of([user("a", None, "still to be read")])
    before, _, rest = page.partition(b'id="data">')
    visited = visit(before + b'id="data"></script>' + rest.partition(b"</script>")[2], ready=False)
    visited.expect("document.querySelector('#status').textContent.startsWith('Too large for this browser')")
    assert "still to be read" in visited.text()


SLOW = [
    "*a **b _c ~~d ",
    "[[](",
    "[a](b ",
    "`" * 3 + "x`",
    "> - 1. ",
    "|a",
    "<a <!-- ",
    "https://x.y/..",
    "&#",
    "\\",
    "_a_",
]


def test_hostile_text_is_drawn_in_linear_time(visit: Open) -> None:
    """Five times the text may take more than five times as long (the machine is shared), but not 25 times."""

    def page_with(size: int) -> bytes:
        entries = []
        for number, piece in enumerate(SLOW):
            text = piece * (size // len(piece))
            entries.append(answer(f"e{number}", f"e{number - 1}" if number else None, f"{text}\n\n```js\n{text}\n```"))
        return page_of(entries)

    def milliseconds(size: int) -> float:
        page = visit(page_with(size))
        assert "cannot be shown" not in page.text()
        redraw = (
            "() => { const from = performance.now(); document.querySelector('#thinking-button').click();"
            " return performance.now() - from }"
        )
        return float(min(page.js(redraw) for _ in range(3)))

    assert milliseconds(10_000) < 15 * max(milliseconds(2_000), 30)
