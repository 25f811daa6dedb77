"""How quick the chat page is in Chromium, beside a bare page that only appends: `python -m benchmarks.web_page`.

A small server of our own stands in for the agent: it serves the real page and answers its commands, and lets an answer
come in pieces at a steady pace. So the page alone is measured. Compare the ratios; both pages see the same machine.
Needs playwright and a Chromium (on the path, or named by SPINDLE_CHROMIUM).
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from itertools import pairwise
from typing import Any

from aiohttp import WSMsgType, web

from spindle.web import CHAT_POLICY, chat_answer

RATE = 2000
"""Pieces per second."""
SECONDS = 5.0
ENTRIES = 5000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc", "--enable-precise-memory-info"]
BARE = """<!doctype html><title>bare</title><body><pre id="out"></pre><script src="bare.js"></script>"""
BARE_SCRIPT = """
const out = document.getElementById('out');
globalThis.socket = new WebSocket(location.href.replace('http', 'ws').replace('/bare', '/rpc'));
socket.onopen = () => socket.send(JSON.stringify({ type: 'prompt', id: '1' }));
socket.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  if (event.assistantMessageEvent) out.append(event.assistantMessageEvent.delta ?? '');
};
"""
WATCH = """
() => {
  window.seen = { frames: [], long: [] };
  const tick = now => { seen.frames.push(now); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  const note = list => seen.long.push(...list.getEntries().map(one => one.duration));
  new PerformanceObserver(note).observe({ type: 'longtask' });
}
"""
RICH = (
    "## A heading\n\nSome **bold words**, `code` and [a link](https://example.org/page) in a paragraph that goes on "
    "for a while, with *emphasis* and more words.\n\n- one item\n- another **item**\n  - nested\n\n"
    "| name | value |\n|---|---|\n| alpha | 1 |\n| beta | 2 |\n\n"
    "```python\ndef f(x):\n    return x + 1  # note\n```\n\n"
)
CODE = "    total = compute(index, 'some text') + 42  # a comment\n"


def pieces(kind: str) -> list[str]:
    text = "```python\n" + CODE * 4000 if kind == "code" else RICH * 400
    return [text[at : at + 5] for at in range(0, int(RATE * SECONDS) * 5, 5)]


def entries(count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for i in range(count):
        stamp = {"id": f"e{i}", "parentId": f"e{i - 1}" if i else None, "timestamp": "2026-01-01T00:00:00.000Z"}
        if i % 4 == 0:
            message: dict[str, Any] = {"role": "user", "content": f"Question {i}: why?"}
        elif i % 4 == 1:
            call = {"type": "toolCall", "id": f"c{i}", "name": "bash", "arguments": {"command": f"echo {i}"}}
            message = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
        elif i % 4 == 2:
            text = [{"type": "text", "text": f"{i}\n" * 20}]
            message = {"role": "toolResult", "toolCallId": f"c{i - 1}", "toolName": "bash", "content": text}
        else:
            message = {
                "role": "assistant",
                "content": [{"type": "text", "text": f"Answer {i}\n\n{RICH}"}],
                "stopReason": "stop",
            }
        made.append({"type": "message", **stamp, "message": {"timestamp": 1, **message}})
    return made


class Stand:
    """Serves the page, and answers it as an agent would."""

    def __init__(self) -> None:
        self.kind = "rich"
        self.entries: list[dict[str, Any]] = []
        self.served: list[int] = []
        """Status of every file that was asked for."""

    async def file(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/bare"):
            text, kind = (BARE_SCRIPT, "text/javascript") if request.path == "/bare.js" else (BARE, "text/html")
            return web.Response(text=text, content_type=kind)
        found = chat_answer(request.path, dict(request.headers))
        if found is None:
            raise web.HTTPNotFound
        self.served.append(found.status)
        headers = {**found.headers, "Content-Security-Policy": CHAT_POLICY}
        return web.Response(status=found.status, headers=headers, body=found.body)

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, protocols=("spindle",))
        await socket.prepare(request)
        hello = {"type": "ready", "version": "0", "sessionId": "s", "cwd": "/work", "eventCount": 0, "replay": False}
        await socket.send_str(json.dumps(hello))
        streaming = None
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                break
            command = json.loads(frame.data)
            data = self.answer(command)
            await socket.send_str(json.dumps({"type": "response", "id": command["id"], "success": True, "data": data}))
            if command["type"] == "prompt":
                streaming = asyncio.create_task(self.stream(socket))
        if streaming is not None:
            streaming.cancel()
        return socket

    def answer(self, command: dict[str, Any]) -> Any:
        model = {"id": "m", "name": "Model", "provider": "p", "input": ["text"], "contextWindow": 100000}
        tokens = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
        leaf = self.entries[-1]["id"] if self.entries else None
        return {
            "get_state": {
                "model": model, "thinkingLevel": "off", "isStreaming": False, "isCompacting": False, "sessionId": "s",
                "approval": {"tools": False}, "queueItems": [], "pendingMessageCount": 0, "todoPhases": [],
            },
            "get_entries": {"entries": [] if command.get("since") else self.entries, "leafId": leaf},
            "get_session_stats": {"tokens": tokens, "cost": 0},
            "list_sessions": {"sessions": []},
            "list_live_sessions": {"sessions": []},
        }.get(command["type"], {})  # fmt: skip

    async def stream(self, socket: web.WebSocketResponse) -> None:
        send = socket.send_str
        user = {"role": "user", "content": "go", "timestamp": 1}
        await send(json.dumps({"type": "agent_start"}))
        await send(json.dumps({"type": "message_end", "message": user, "entryId": "u1"}))
        await send(json.dumps({"type": "message_start", "message": {"role": "assistant", "content": []}}))
        began, sent = time.perf_counter(), 0
        all_pieces = pieces(self.kind)
        while sent < len(all_pieces):
            due = min(len(all_pieces), int((time.perf_counter() - began) * RATE))
            for piece in all_pieces[sent:due]:
                event = {"type": "text_delta", "contentIndex": 0, "delta": piece}
                await send(json.dumps({"type": "message_update", "assistantMessageEvent": event}))
            sent = due
            await asyncio.sleep(0.004)


async def measure(headed: bool) -> dict[str, Any]:
    from playwright.async_api import async_playwright

    stand = Stand()
    app = web.Application()
    app.router.add_get("/rpc", stand.socket)
    app.router.add_get("/{path:.*}", stand.file)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    found: dict[str, Any] = {}
    chromium = os.environ.get("SPINDLE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS[headed:])
        for kind in ("rich", "code"):
            stand.kind = kind
            for name, path in (("bare", "/bare"), ("page", "/")):
                found[f"{kind} {name}"] = await stream(browser, url + path, name)
        found |= await history(browser, url, stand)
        await browser.close()
    await runner.cleanup()
    return found


async def stream(browser: Any, url: str, name: str) -> dict[str, float]:
    page = await browser.new_page(viewport={"width": 1280, "height": 860})
    await page.add_init_script(f"({WATCH})()")
    await page.goto(url)
    if name == "page":
        await page.wait_for_selector("body[data-connection=open]")
        await page.fill("#prompt", "go")
        await page.press("#prompt", "Enter")
        await page.wait_for_selector(".answer")
    await page.evaluate("seen.frames.length = seen.long.length = 0")
    await asyncio.sleep(SECONDS - 0.5)
    seen = await page.evaluate("seen")
    await page.close()
    frames = seen["frames"]
    gaps = sorted(b - a for a, b in pairwise(frames))
    fps = 1000 * len(gaps) / (frames[-1] - frames[0])
    return {"fps": fps, "p95 ms": gaps[int(len(gaps) * 0.95)], "longest task ms": max(seen["long"], default=0)}


MEMORY = "(gc(), performance.memory.usedJSHeapSize / 1e6)"
WEIGHT = "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0) / 1e3"
FIRST = """
new Promise(done => {
  const look = () => (document.querySelector('.answer') ? done(performance.now()) : requestAnimationFrame(look));
  look();
})
"""


OPENED = """
new Promise(done => {
  const look = () => (OPEN ? done(performance.now()) : setTimeout(look, 1));
  look();
})
"""


async def history(browser: Any, url: str, stand: Stand) -> dict[str, Any]:
    found: dict[str, Any] = {}
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{url}/bare", wait_until="commit")
    bare = await page.evaluate(OPENED.replace("OPEN", "globalThis.socket?.readyState === 1"))
    found["bare visit"] = {"connected ms": bare}
    await context.close()
    context = await browser.new_context()
    page = await context.new_page()
    for visit in ("first visit", "second visit"):
        stand.served.clear()
        await page.goto(url, wait_until="commit")
        connected = await page.evaluate(OPENED.replace("OPEN", "document.body?.dataset.connection === 'open'"))
        weight = await page.evaluate(WEIGHT)
        loaded = sum(status == 200 for status in stand.served)
        found[visit] = {"files loaded": loaded, "kB": weight, "connected ms": connected}
        await page.goto("about:blank")
    await page.goto(url)
    await page.wait_for_selector("body[data-connection=open]")
    empty = await page.evaluate(MEMORY)
    stand.entries = entries(ENTRIES)
    await page.reload()
    shown = await page.evaluate(FIRST)
    await page.wait_for_timeout(500)
    full, nodes = await page.evaluate(MEMORY), await page.evaluate("document.querySelectorAll('*').length")
    found[f"{ENTRIES} entries"] = {"first messages ms": shown, "memory ratio": full / empty, "elements": nodes}
    await context.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_page", description=__doc__)
    parser.add_argument("--headed", action="store_true")
    found = asyncio.run(measure(parser.parse_args().headed))
    for name, figures in found.items():
        print(f"{name:>16}: " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
    for kind in ("rich", "code"):
        print(f"{kind}: {found[f'{kind} page']['fps'] / found[f'{kind} bare']['fps']:.2f} of the bare page's frames")
    print("load average", *(f"{value:.1f}" for value in os.getloadavg()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
