"""A browser for the tests of our pages: headless Chromium that opens files from disk and has no network to reach.

Needs the Python package `playwright` and a Chromium on the path, or named by SPINDLE_CHROMIUM. The one without a window
is preferred: it takes half the time.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .pages import Lease, Pages

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = os.environ.get("SPINDLE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Pages]:
    # Not for the whole session: while Playwright is open, its event loop runs and no other test could have one.
    sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path (or in SPINDLE_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Pages(browser)
        browser.close()


class Visit:
    """A page that was opened."""

    def __init__(self, lease: Lease, path: Path) -> None:
        self.page = lease.page
        self.path = path
        self.trouble = lease.trouble

    def go(self, address: str = "", *, ready: bool = True) -> "Visit":
        # A change of the fragment alone would not load the page again.
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + address)
        if ready:
            self.page.wait_for_selector("html.ready", state="attached", timeout=120_000)
        return self

    def text(self, selector: str = "#messages") -> str:
        return str(self.page.locator(selector).inner_text())

    def rows(self) -> list[str]:
        return list(self.page.locator("#tree .row-text").all_inner_texts())

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.page.evaluate(expression, *arguments)

    def expect(self, condition: str) -> None:
        """Wait until it is true. (Playwright's own way needs eval, which the page's policy forbids.)"""
        look = f"if ({condition}) return true; await new Promise(done => setTimeout(done, 20));"
        came = self.js(f"async () => {{ for (let n = 0; n < 1000; n++) {{ {look} }} }}")
        assert came, f"never came true: {condition}"

    def in_view(self, selector: str) -> bool:
        return bool(
            self.js(
                "s => { const r = document.querySelector(s)?.getBoundingClientRect();"
                " return !!r && r.bottom > 0 && r.top < innerHeight }",
                selector,
            )
        )


# -- the chat page --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    """One server for all tests of a module."""
    pytest.importorskip("websockets", reason="websockets is not installed")
    from tests.wires.server.server import ServerProcess

    with ServerProcess() as server:
        yield server


@pytest.fixture
def open_tab(browser: Pages, shared: Any) -> Iterator[Callable[..., Any]]:
    """Open the page on a conversation of its own, with a model that answers from these steps."""
    from .web_page import Tab

    tabs: list[Tab] = []

    def open_page(*steps: Any, **options: Any) -> Tab:
        if steps:
            shared.mock.script(*steps)
        tabs.append(Tab(browser, shared, **options))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.close()


# -- an exported page -----------------------------------------------------------------------------

Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Pages, tmp_path: Path) -> Iterator[Open]:
    leases: list[Lease] = []

    def open_page(page: bytes, address: str = "", *, ready: bool = True, **options: Any) -> Visit:
        path = tmp_path / f"page{len(leases)}.html"
        path.write_bytes(page)
        options.setdefault("viewport", {"width": 1280, "height": 900})
        leases.append(browser.take("file:", **options))
        return Visit(leases[-1], path).go(address, ready=ready)

    yield open_page
    for lease in leases:
        browser.give_back(lease)
