"""How quick the chat page is in Chromium, with a real server: `python -m benchmarks.web_page`.

A model server lets an answer come in 2,000 pieces a second; the server runs the agent and gathers the pieces; the page
shows them. A bare page, to which nothing comes and which changes one word a frame, says what the machine can do. Then
sessions of 5,000 and 50,000 entries are opened: cold (the server reads the file) and again; and 90 prompts are sent in
one tab. Needs playwright and a Chromium (on the path, or named by SPINDLE_CHROMIUM).
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.fast_model import RICH

RATE = 2000
"""Pieces per second."""
SECONDS = 5.0
SIZES = (5000, 50_000)
PROMPTS = 90
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc", "--enable-precise-memory-info"]
BARE = "<!doctype html><title>bare</title><body><p id=out>0</p>"
TURN = "() => { const tick = n => { out.textContent = n; requestAnimationFrame(tick); }; requestAnimationFrame(tick); }"
WATCH = """
() => {
  window.seen = { frames: [], long: [], first: 0, welcome: false };
  const tick = now => { seen.frames.push(now); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  const look = () => {
    if (document.querySelector('.answer')) seen.first = performance.now();
    else setTimeout(look, 1);
    seen.welcome ||= document.body?.classList.contains('blank') || /No model/.test(document.body?.innerText);
  };
  look();
  const note = list => seen.long.push(...list.getEntries().map(one => one.duration));
  new PerformanceObserver(note).observe({ type: 'longtask' });
}
"""
MEMORY = "(gc(), performance.memory.usedJSHeapSize / 1e6)"
WEIGHT = "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0) / 1e3"
NODES = "document.querySelectorAll('*').length"


def entries(count: int) -> Iterator[dict[str, Any]]:
    """Yield a conversation: a question, a call, its result, an answer; some of the calls edit files."""
    for i in range(count):
        stamp = {"id": f"e{i}", "parentId": f"e{i - 1}" if i else None, "timestamp": "2026-01-01T00:00:00.000Z"}
        call = {"type": "toolCall", "id": f"c{i - i % 4}", "name": "bash", "arguments": {"command": f"echo {i}"}}
        details: dict[str, Any] = {}
        if i % 16 < 4:
            edit = [{"oldText": "old", "newText": "new"}]
            call |= {"name": "edit", "arguments": {"path": f"src/file{i % 997}.py", "edits": edit}}
            details = {"details": {"diff": f" {i} def f():\n-{i + 1} old\n+{i + 1} new\n {i + 2} end"}}
        by_model = {"api": "openai-completions", "provider": "bench", "model": "bench-1", "usage": {}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Question {i}: why?"},
            {"role": "assistant", "content": [call], "stopReason": "toolUse", **by_model},
            {
                "role": "toolResult", "toolCallId": call["id"], "toolName": call["name"], "isError": False,
                "content": [{"type": "text", "text": f"{i}\n" * 20}], **details,
            },
            {
                "role": "assistant", "content": [{"type": "text", "text": f"Answer {i}\n\n{RICH}"}],
                "stopReason": "stop", **by_model,
            },
        ]  # fmt: skip
        yield {"type": "message", **stamp, "message": {"timestamp": 1, **messages[i % 4]}}


@contextmanager
def started(*command: str, said: str, stdin: Any = subprocess.PIPE, **options: Any) -> Iterator[str]:
    """Start a process, and yield the address that it says."""
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(said, line.decode()):
                yield found[1]
                break
        else:
            raise RuntimeError(f"{command} has ended")
    finally:
        process.kill()
        process.wait()


@contextmanager
def served(base: Path) -> Iterator[str]:
    """Serve the page of a server whose model is quick; it has the sessions of `SIZES`."""
    work, agent = base / "work", base / "agent"
    for folder in (work, agent / "sessions"):
        folder.mkdir(parents=True)
    for size in SIZES:
        head = {"type": "session", "version": 3, "id": f"long{size}", "timestamp": "2026-01-01T00:00:00.000Z"}
        lines = [json.dumps(one) for one in ({**head, "cwd": str(work)}, *entries(size))]
        (agent / "sessions" / f"2026-01-01T00-00-00-000Z_long{size}.jsonl").write_text("\n".join(lines) + "\n")
    with started(sys.executable, "-m", "benchmarks.fast_model", said=r"(http://\S+)") as model:
        api = {"baseUrl": f"{model}/v1", "api": "openai-completions", "apiKey": "k"}
        models = {"providers": {"bench": {**api, "models": [{"id": "bench-1", "name": "Bench"}]}}}
        (agent / "models.json").write_text(json.dumps(models))
        command = [sys.executable, "-m", "spindle", "--remote", "127.0.0.1:0", "--model", "bench/bench-1"]
        command += ["--session-dir", str(agent / "sessions")]
        environment = {**os.environ, "SPINDLE_DIR": str(agent), "PYTHONPATH": os.getcwd()}
        options = {"cwd": work, "env": environment, "stdin": subprocess.DEVNULL}
        with started(*command, said=r"Listening on (http://\S+?)/", **options) as url:
            yield url


async def measure(url: str, headed: bool) -> dict[str, Any]:
    from playwright.async_api import async_playwright

    found: dict[str, Any] = {}
    chromium = os.environ.get("SPINDLE_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None
    )
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS[headed:])
        for kind in ("bare", "rich", "code"):
            found[kind] = await frames(browser, url, kind)
        found |= await visits(browser, url)
        for size in SIZES:
            found |= await history(browser, url, size)
        found[f"{PROMPTS} prompts"] = await day(browser, url)
        await browser.close()
    return found


async def opened(browser: Any, address: str) -> Any:
    page = await browser.new_page(viewport={"width": 1280, "height": 860})
    await page.add_init_script(f"({WATCH})()")
    await page.goto(address)
    return page


async def say(page: Any, text: str) -> None:
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def frames(browser: Any, url: str, kind: str) -> dict[str, float]:
    page = await opened(browser, "about:blank" if kind == "bare" else url)
    if kind == "bare":
        await page.set_content(BARE)
        await page.evaluate(TURN)
    else:
        await page.wait_for_selector("body[data-connection=open]")
        await say(page, f"bench:{kind}:{int(RATE * SECONDS)}:{RATE}")
        await page.wait_for_selector(".answer")
    await page.evaluate("seen.frames.length = seen.long.length = 0")
    await asyncio.sleep(SECONDS - 0.7)
    seen = await page.evaluate("seen")
    await page.close()
    times = seen["frames"]
    gaps = sorted(b - a for a, b in pairwise(times))
    fps = 1000 * len(gaps) / (times[-1] - times[0])
    return {"fps": fps, "p95 ms": gaps[int(len(gaps) * 0.95)], "longest task ms": max(seen["long"], default=0)}


async def visits(browser: Any, url: str) -> dict[str, Any]:
    """A first visit, and a second one, which loads nothing."""
    found = {}
    context = await browser.new_context()
    for visit in ("first visit", "second visit"):
        page = await context.new_page()
        await page.goto(url, wait_until="commit")
        await page.wait_for_selector("body[data-connection=open]")
        found[visit] = {
            "kB": await page.evaluate(WEIGHT),
            "connected ms": await page.evaluate("performance.now()"),
            "memory MB": await page.evaluate(MEMORY),
        }
        await page.close()
    await context.close()
    return found


async def history(browser: Any, url: str, size: int) -> dict[str, Any]:
    found = {}
    for visit in ("cold", "again"):
        page = await opened(browser, f"{url}/#long{size}")
        await page.wait_for_selector(".answer", timeout=60_000)
        await page.wait_for_selector("#open-changes:visible", timeout=60_000)
        await page.wait_for_timeout(500)
        loading = await page.evaluate("seen")
        await page.evaluate("seen.long.length = 0")
        await page.click("#open-changes")
        await page.wait_for_selector(".changed")
        await page.wait_for_timeout(1500)
        changes = await page.evaluate("seen")
        found[f"{size} entries, {visit}"] = {
            "first messages ms": loading["first"],
            "longest task ms": max(loading["long"], default=0),
            "of the changes ms": max(changes["long"], default=0),
            "memory MB": await page.evaluate(MEMORY),
            "elements": await page.evaluate(NODES),
            "welcome seen": float(loading["welcome"]),
        }
        await page.close()
    return found


async def day(browser: Any, url: str) -> dict[str, float]:
    page = await opened(browser, url)
    await page.wait_for_selector("body[data-connection=open]")
    session = await page.context.new_cdp_session(page)
    for number in range(PROMPTS):
        await say(page, f"{number} bench:{'tool:2' if number % 3 == 0 else 'rich:200:100000'}")
        # Locators, because a handle would keep the element it was waited for.
        await page.locator(f".user:has-text('{number} bench')").wait_for()
        await page.locator("body:not(.running)").wait_for()
    await page.evaluate("gc()")
    counters = await session.send("Memory.getDOMCounters")
    figures = {"elements": await page.evaluate(NODES), "nodes kept": counters["nodes"]}
    await page.close()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_page", description=__doc__)
    parser.add_argument("--headed", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as url:
        found = asyncio.run(measure(url, options.headed))
    for name, figures in found.items():
        print(f"{name:>21}: " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
    for kind in ("rich", "code"):
        print(f"{kind}: {found[kind]['fps'] / found['bare']['fps']:.2f} of the bare page's frames")
    print(f"{time.perf_counter() - began:.0f} s, load average", *(f"{value:.1f}" for value in os.getloadavg()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
