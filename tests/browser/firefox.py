"""Firefox, driven over WebDriver BiDi, which it speaks by itself: a browser of another family than Chromium.

Only what the test needs. A tab waits for what it looks for, as `Tab` of `web_page.py` does.
"""

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

__all__ = ["Firefox", "FoxTab"]

PREFERENCES = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "remote.prefs.recommended": True,
    "toolkit.telemetry.enabled": False,
}
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "Alt": "\ue00a", "Control": "\ue009"}
WAIT = 20
"""Seconds, at most."""


class Firefox:
    """`async with Firefox(program, folder) as firefox`: a headless Firefox with a profile in the folder."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.console: list[str] = []
        """Errors and warnings of scripts."""

    async def __aenter__(self) -> "Firefox":
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items())
        (self._folder / "user.js").write_text("\n".join(lines))
        options = ["--headless", "--no-remote", "--profile", str(self._folder), "--remote-debugging-port=0"]
        self._process = await asyncio.create_subprocess_exec(
            self._program, *options, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        found = None
        while not found:
            line = await self._process.stderr.readline()
            assert line, "Firefox has ended"
            found = re.search(rb"WebDriver BiDi listening on (\S+)", line)
        address = found[1].decode()
        self._socket: ClientConnection = await connect(f"{address}/session", proxy=None, max_size=None)
        self._reader = asyncio.create_task(self._read())
        await self.call("session.new", capabilities={})
        await self.call("session.subscribe", events=["log.entryAdded"])
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._reader.cancel()
        await self._socket.close()
        self._process.terminate()
        await self._process.communicate()

    async def _read(self) -> None:
        async for text in self._socket:
            frame = json.loads(text)
            if frame.get("id") in self._calls:
                self._calls.pop(frame["id"]).set_result(frame)
            elif frame.get("method") == "log.entryAdded" and frame["params"]["level"] in ("error", "warn"):
                self.console.append(str(frame["params"]["text"]))

    async def call(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self._calls[id] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        answer = await asyncio.wait_for(self._calls[id], WAIT + 5)
        assert answer["type"] == "success", answer
        return answer["result"]

    async def tab(self, address: str, *, width: int = 1280, height: int = 800) -> "FoxTab":
        context = (await self.call("browsingContext.create", type="tab"))["context"]
        viewport = {"width": width, "height": height}
        await self.call("browsingContext.setViewport", context=context, viewport=viewport)
        tab = FoxTab(self, context)
        await tab.go(address)
        return tab


class FoxTab:
    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox = firefox
        self.context = context

    async def call(self, method: str, **params: Any) -> Any:
        return await self._firefox.call(method, context=self.context, **params)

    async def go(self, address: str) -> None:
        await self.call("browsingContext.navigate", url=address, wait="complete")

    async def js(self, expression: str) -> Any:
        """Return the value of an expression, which may be a promise."""
        answer = await self._firefox.call(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self.context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        look = f"if ({expression}) return true; await new Promise(done => setTimeout(done, 20));"
        came = await self.js(
            f"(async () => {{ for (const end = Date.now() + {WAIT}e3; Date.now() < end;) {{ {look} }} }})()"
        )
        assert came, f"never came true: {expression}"

    async def sees(self, selector: str, text: str) -> None:
        said = f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText).join()"
        await self.until(f"{said}.includes({json.dumps(text)})")

    async def counts(self, selector: str, number: int) -> None:
        await self.until(f"document.querySelectorAll({json.dumps(selector)}).length === {number}")

    async def press(self, keys: str) -> None:
        """Press `Alt+d`, or `Enter`."""
        pressed = [KEYS.get(one, one) for one in keys.split("+")]
        actions = [{"type": "keyDown", "value": one} for one in pressed]
        actions += [{"type": "keyUp", "value": one} for one in reversed(pressed)]
        await self.call("input.performActions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    async def write(self, text: str) -> None:
        actions = [{"type": kind, "value": one} for one in text for kind in ("keyDown", "keyUp")]
        await self.call("input.performActions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    async def say(self, text: str) -> None:
        await self.js("document.getElementById('prompt').focus()")
        await self.write(text)
        await self.press("Enter")
