"""The pages in Firefox: what differs between browsers, once. Everything else is tested in Chromium."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.support.mock_model import call, gate, reply

pytest.importorskip("websockets", reason="websockets is not installed")

from tests.wires.server.server import ServerProcess

from .firefox import Firefox, FoxTab

PROGRAM = os.environ.get("SPINDLE_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(PROGRAM is None, reason="no firefox on the path (or in SPINDLE_FIREFOX)"),
]
MARKDOWN = "# Found\n\nA *needle*, `code` and $x^2$.\n\n```python\nreturn 1  # needle\n```\n"


async def opened(firefox: Firefox, server: ServerProcess, session: str = "", **size: int) -> FoxTab:
    tab = await firefox.tab(f"http://{server.address}/#{session}", **size)
    await tab.until("document.body.dataset.connection === 'open'")
    await tab.sees("#model", "Mock")
    return tab


def test_a_conversation_in_firefox(tmp_path: Path) -> None:
    asyncio.run(_converse(tmp_path))


async def _converse(folder: Path) -> None:
    assert PROGRAM is not None
    pieces = [MARKDOWN[i : i + 9] for i in range(0, len(MARKDOWN), 9)]
    steps = [reply(*pieces, gate("stream"), "The end."), reply(call("bash", {"command": "echo hi"}, id="b1"))]
    (profile := folder / "profile").mkdir()
    with ServerProcess([*steps, reply("done")]) as server:
        async with Firefox(PROGRAM, profile) as firefox:
            tab = await opened(firefox, server)
            # An answer is drawn while it comes, and a second message waits for its end.
            await tab.say("go")
            server.mock.wait_gate("stream")
            await tab.sees(".answer pre", "return 1")
            await tab.until("document.querySelector('math')?.getBoundingClientRect().width > 5")
            await tab.js("document.getElementById('prompt').focus()")
            await tab.write("more")
            await tab.press("Alt+Enter")
            await tab.counts(".queued", 1)
            await tab.press("Alt+a")  # ask first
            await tab.until("document.getElementById('approval').ariaPressed === 'true'")
            server.mock.release("stream")
            # A question is answered with the keyboard.
            await tab.sees("[data-call=b1] .ask", "Allow bash?")
            await tab.press("Alt+y")
            await tab.sees("[data-call=b1] .tool-output", "hi")
            await tab.sees(".answer", "done")
            # Ctrl+F is ours, and hits are marked, also over several pieces of text.
            await tab.press("Control+f")
            await tab.write("needle")
            await tab.sees("#find-count", "of 2")
            assert await tab.js("CSS.highlights.get('find').size") == 2
            await tab.press("Escape")
            # A mode is chosen with the arrow keys, which stay there.
            await tab.press("Alt+i")
            await tab.js("document.querySelector('#panel [value=bypass]').focus()")
            await tab.press("ArrowDown")
            await tab.sees("#mode", "Ask")
            assert await tab.js("document.activeElement.value") == "default"
            session = await tab.js("location.hash.slice(1)")
            # On a phone the drawer has the keyboard as soon as it opens.
            phone = await opened(firefox, server, session, width=390, height=844)
            await phone.sees(".answer", "done")
            await phone.press("Alt+f")
            await phone.write("needle")
            await phone.sees("#sessions small", "needle")
            await phone.press("ArrowDown")
            assert "session" in await phone.js("document.activeElement.className")
            assert not await phone.js("document.documentElement.scrollWidth > innerWidth")
            # The server dies and comes back: both tabs are there again.
            server.process.kill()
            server.process.wait()
            await tab.until("!document.getElementById('banner').hidden")
            with ServerProcess([reply("back")], base=server.base, address=server.address):
                for one in (tab, phone):
                    await one.until("document.body.dataset.connection === 'open'")
                await tab.say("still there?")
                for one in (tab, phone):
                    await one.sees(".answer", "back")
                exported = folder / "exported.html"
                exported.write_text(await tab.js(EXPORT))
                page = await firefox.tab(exported.as_uri())
                await page.until("document.documentElement.classList.contains('ready')")
                await page.sees("#messages", "The end.")
            assert [line for line in firefox.console if "WebSocket" not in line and "can’t establish" not in line] == []


EXPORT = """
new Promise(resolve => {
  const socket = wire.open(location.hash.slice(1));
  socket.onopen = () => socket.send(JSON.stringify({ id: 1, type: 'export_page' }));
  socket.onmessage = ({ data }) => data.includes('"html"') && resolve(JSON.parse(data).data.html);
})
"""
