"""A browser for the tests of our pages: headless Chromium that opens files from disk and has no network to reach.

Needs the Python package `playwright` and a Chromium (`chromium` on the path, or named by SPINDLE_CHROMIUM).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("SPINDLE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
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
def browser() -> Iterator[Any]:
    # Not for the whole session: while Playwright is open, its event loop runs and no other test could have one.
    sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path (or in SPINDLE_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page that was opened, and everything suspicious that happened since."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.path = path
        self.trouble: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("dialog", self._refuse)
        page.on("console", lambda line: line.type in ("error", "warning") and self.trouble.append(line.text))
        page.on("request", self._note_request)

    def _refuse(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(f"request: {request.url}")

    def go(self, address: str = "", *, ready: bool = True) -> "Visit":
        # A change of the fragment alone would not load the page again.
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
        for _ in range(1000):
            if self.js(condition):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"never came true: {condition}")

    def in_view(self, selector: str) -> bool:
        return bool(
            self.js(
                "s => { const r = document.querySelector(s)?.getBoundingClientRect();"
                " return !!r && r.bottom > 0 && r.top < innerHeight }",
                selector,
            )
        )


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def open_page(page: bytes, address: str = "", *, ready: bool = True, **options: Any) -> Visit:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_bytes(page)
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        return Visit(context.new_page(), path).go(address, ready=ready)

    yield open_page
    for context in contexts:
        context.close()
