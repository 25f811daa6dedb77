"""Nothing that a model, a tool or a file says becomes part of the web page's markup or script."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, gate, reply, think

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)

EVIL = (
    "<img src=x onerror='window.pwned=1'> <script>window.pwned=2</script> <svg onload=alert(1)>\n\n"
    "[click](javascript:window.pwned=3) [data](data:text/html,<script>1</script>) <javascript:alert(4)>\n\n"
    "![pic](https://example.invalid/p.png) [ok](https://example.org/?a=1&b=2) "
    '[quote](https://example.org/"onmouseover="window.pwned=5)\n\n'
    '```<img src=x onerror="window.pwned=6">\n</code></pre><script>window.pwned=7</script>\n```\n\n'
    "| <b>a</b> | b |\n|---|---|\n| <i>c</i> | d |\n"
)


def test_nothing_that_is_said_becomes_markup(browser: Any) -> None:
    command = "printf '<img src=x onerror=\"window.pwned=8\">'"
    steps = [reply(think(EVIL), EVIL, call("bash", {"command": command})), reply(EVIL)]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.ask(EVIL)
        tab.click(".thinking summary")
        with server.rpc(f"?session={tab.session}") as other:
            assert other.call("set_session_name", name="<img src=x onerror=window.pwned=9>")["success"]
        tab.sees("#title", "<img src=x")
        tab.press("Alt+t")
        tab.counts("#tree .node", 3)
        tab.page.reload()
        tab.connected()
        tab.sees(".answer >> nth=-1", "<script>window.pwned=2</script>")
        inside = "#feed :is(script, style, iframe, object, img, svg:not(.icon), b:not(summary *), i), #feed [onload]"
        assert tab.page.locator(inside).count() == 0
        targets = tab.js("[...document.querySelectorAll('#feed a')].map(a => [a.href, a.rel])")
        assert {rel for _, rel in targets} == {"noopener noreferrer"}
        assert {href.partition(":")[0] for href, _ in targets} == {"https"}
        assert tab.js("window.pwned === undefined")
        assert tab.trouble == []


def test_names_are_text_wherever_they_stand(browser: Any, tmp_path: Path) -> None:
    """Of tools, files, conversations, labels and what waits: in lists, menus, questions and the title, too."""

    def bad(number: int) -> str:
        return f"<img src=x onerror=window.pwned={number}>"

    upload = tmp_path / f"{bad(5)}.txt"
    upload.write_text("hello")
    steps = [
        reply(
            call(bad(1), {bad(2): bad(3)}, id="c1"), call("write", {"path": f"{bad(4)}.md", "content": "x\n"}, id="c2")
        ),
        reply("done", gate("names"), "."),
        reply("k"),
    ]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.page.set_input_files("#files", str(upload))
        tab.sees("#attachments", bad(5))
        tab.say(bad(6))
        server.mock.wait_gate("names")
        tab.type(bad(7), "Alt+Enter")
        tab.sees("#queue", bad(7))
        tab.sees(".tool b", bad(1))
        server.mock.release("names")
        tab.settled()
        with server.rpc(f"?session={tab.session}") as other:
            assert other.call("set_session_name", name=bad(8))["success"]
            entries = other.call("get_entries")["data"]["entries"]
            said = [entry["id"] for entry in entries if entry["type"] == "message"]
            assert other.call("set_label", entryId=said[-1], label=bad(9))["success"]
        tab.sees(".session", bad(8))
        tab.page.keyboard.press("Alt+t")
        tab.sees("#tree", bad(9))
        tab.page.keyboard.press("Alt+d")
        tab.sees("#changes", f"{bad(4)}.md")
        tab.page.keyboard.press("Alt+d")
        tab.type("@<img")
        tab.page.get_by_role("option").first.wait_for()
        tab.page.keyboard.press("Escape")
        tab.type("")
        tab.page.keyboard.press("Control+k")
        tab.page.get_by_role("option", name=bad(8)).wait_for()
        tab.page.keyboard.press("Escape")
        tab.page.keyboard.press("Alt+f")
        tab.page.locator(".session-row").hover()
        tab.click(".session-row > .quiet")
        tab.page.get_by_role("option", name="Delete").click()
        tab.sees("dialog[open]", bad(8))
        assert tab.page.locator("img[src=x], [onerror]").count() == 0
        assert tab.js("window.pwned === undefined")
        assert tab.trouble == []


def test_the_policy_forbids_scripts_of_others(browser: Any) -> None:
    with ServerProcess() as server, Tab(browser, server) as tab:
        tab.js(
            "() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
            " document.body.append(s); document.body.setAttribute('onclick', 'window.pwned = 2');"
            " document.body.click() }"
        )
        assert tab.js("window.pwned === undefined")
        assert len(tab.trouble) == 2
        assert all("Content Security Policy" in line for line in tab.trouble)
