"""The web page of a real server in a real browser, driven the way a person does.

    with ServerProcess([reply("Hello")]) as server:
        tab = Tab(browser, server)
        tab.say("hi")
        tab.sees("#feed", "Hello")

A tab notes everything suspicious (`trouble`): errors, warnings, dialogs, requests to anywhere but our server.
"""

import base64
import re
import struct
import zlib
from typing import Any

from tests.wires.server.server import ServerProcess

from .pages import Pages

__all__ = ["Tab", "png", "user_texts"]

WAIT_MS = 20_000
PASTE = """
async ([type, name, base64]) => {
  const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: 'image/png' }));
  const field = document.getElementById('prompt');
  const init = { bubbles: true, cancelable: true };
  field.dispatchEvent(
    type === 'paste' ? new ClipboardEvent('paste', { ...init, clipboardData: data })
                     : new DragEvent('drop', { ...init, dataTransfer: data }));
}
"""


class Tab:
    def __init__(
        self, browser: Pages, server: ServerProcess, *, session: str = "", ready: bool = True, **options: Any
    ) -> None:
        options.setdefault("viewport", {"width": 1280, "height": 860})
        self.server = server
        self._browser = browser
        self._last_url = ""
        self._lease = browser.take(f"http://{server.address}/", **options)
        self.page = self._lease.page
        self.context = self.page.context
        self.trouble = self._lease.trouble
        self.page.set_default_timeout(WAIT_MS)
        self.page.goto(f"http://{server.address}/" + (f"#{session}" if session else ""))
        if ready:
            self.connected()

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._last_url = self.page.url
        self._browser.give_back(self._lease)

    # -- doing -----------------------------------------------------------------------------------

    def type(self, text: str, key: str = "") -> None:
        """Write into the message field; `key` is pressed then."""
        self.page.fill("#prompt", text)
        if key:
            self.page.press("#prompt", key)

    def say(self, text: str) -> None:
        self.type(text, "Enter")

    def ask(self, text: str) -> None:
        """Say something and wait until the agent is done with it."""
        before = self.page.locator(".user").count()
        self.say(text)
        self.counts(".user", before + 1)
        self.settled()

    def begin(self) -> None:
        """Begin a new conversation."""
        before = self.page.url
        self.press("Alt+c")
        self.page.wait_for_url(lambda url: url != before)
        self.shows("#welcome")
        self.connected()

    def click(self, selector: str, index: int = 0) -> None:
        self.page.locator(selector).nth(index).click()

    def edit(self, text: str | None = None) -> None:
        """Begin to edit the first message."""
        self.page.locator(".user").first.hover()
        self.click(".user [aria-label=Edit]")
        if text is not None:
            self.page.fill(".edit textarea", text)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def bring(self, how: str, base64: str, name: str = "shot.png") -> None:
        """Let an image arrive by `paste` or `drop`."""
        self.page.evaluate(PASTE, [how, name, base64])

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.page.evaluate(expression, *arguments)

    # -- seeing ----------------------------------------------------------------------------------

    def connected(self) -> None:
        # The model's name comes with the state: then everything has been loaded.
        self.page.wait_for_selector("body[data-connection=open]")
        self.sees("#model", re.compile("Mock"))

    def settled(self) -> None:
        self.page.wait_for_selector("body:not(.running)")

    def sees(self, selector: str, text: "str | re.Pattern[str]", index: int = 0) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(selector).nth(index)).to_contain_text(text, timeout=WAIT_MS)

    def shows(self, selector: str) -> None:
        self.page.wait_for_selector(selector, state="visible")

    def hides(self, selector: str) -> None:
        self.page.wait_for_selector(selector, state="hidden")

    def counts(self, selector: str, number: int) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_count(number, timeout=WAIT_MS)

    def titled(self, start: str) -> None:
        """Wait until the title begins so."""
        from playwright.sync_api import expect

        expect(self.page).to_have_title(re.compile("^" + re.escape(start)), timeout=WAIT_MS)

    def holds(self, selector: str, value: str) -> None:
        """Wait until a field has this value."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_value(value, timeout=WAIT_MS)

    def text(self, selector: str = "#feed") -> str:
        return str(self.page.locator(selector).first.inner_text())

    @property
    def session(self) -> str:
        return str((self._last_url or self.page.url).partition("#")[2])


def png(width: int = 3, height: int = 2) -> str:
    """Return a small red image in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def user_texts(server: ServerProcess) -> list[list[str]]:
    """Return what the user said in each request that the model got."""
    found = []
    for request in server.mock.requests:
        said = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
        found.append([one if isinstance(one, str) else "".join(p.get("text", "") for p in one) for one in said])
    return found
