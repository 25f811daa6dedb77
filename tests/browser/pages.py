"""Pages of one browser, used again by test after test: a new one costs a core a second, a process comes with it."""

import json
from typing import Any

__all__ = ["Lease", "Pages"]


class Lease:
    """A page, and everything suspicious that happened since it was lent: errors, warnings, dialogs, requests abroad."""

    def __init__(self, key: str, page: Any) -> None:
        self.key = key
        self.page = page
        self.trouble: list[str] = []
        self.home: tuple[str, ...] = ()
        """Where requests may go to."""
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("dialog", self._refuse)
        page.on("console", lambda line: line.type in ("error", "warning") and self.trouble.append(line.text))
        page.on("request", self._note_request)

    def _refuse(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((*self.home, "about:", "data:", "blob:")):
            self.trouble.append(f"request: {request.url}")


class Pages:
    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._idle: dict[str, list[Lease]] = {}

    def take(self, *home: str, **options: Any) -> Lease:
        """Lend an empty page in a context with these options, to which nothing that another test stored is left."""
        key = json.dumps(options, sort_keys=True, default=str)
        idle = self._idle.setdefault(key, [])
        lease = idle.pop() if idle else Lease(key, self._browser.new_context(**options).new_page())
        lease.home = home
        lease.trouble = []
        return lease

    def give_back(self, lease: Lease) -> None:
        from playwright.sync_api import Error

        page = lease.page
        try:
            page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.goto("about:blank")
            page.mouse.move(0, 0)
            page.context.clear_cookies()
            page.context.set_offline(False)
        except Error:  # it is closed, or shows nothing that has a storage
            page.context.close()
            return
        self._idle[lease.key].append(lease)
