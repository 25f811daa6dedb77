"""Nothing that a model, a tool or a file says becomes part of the web page's markup or script."""

from typing import Any

import pytest

from tests.support.mock_model import call, reply, think

pytest.importorskip("websockets", reason="the extra [remote] (websockets) is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.remote.server import ServerProcess

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
