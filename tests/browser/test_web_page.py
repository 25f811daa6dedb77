"""The web page of `spindle --remote` in a real browser: talking, deciding, going back, coming back."""

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, failure, gate, reply, sse, stall, think

pytest.importorskip("websockets", reason="the extra [remote] (websockets) is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.remote.server import TOKEN, ServerProcess

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)


def png(width: int = 3, height: int = 2) -> str:
    """Return a small red image in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def more_arguments(piece: str) -> Any:
    """Return a piece of the arguments of the first call."""
    delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    return sse(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n")


def user_texts(server: ServerProcess) -> list[list[str]]:
    """Return what the user said in each request that the model got."""
    found = []
    for request in server.mock.requests:
        said = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
        found.append([one if isinstance(one, str) else "".join(p.get("text", "") for p in one) for one in said])
    return found


# -- talking -------------------------------------------------------------------------------------


def test_an_answer_is_shown_as_it_is_written(browser: Any) -> None:
    answer = ["# Tit", "le\n\nHello **wor", gate("half"), "ld** and `code`\n\n```python\nreturn 1\n```\n"]
    with ServerProcess([reply(think("let me see"), *answer)]) as server, Tab(browser, server) as tab:
        tab.say("hi there")
        server.mock.wait_gate("half")
        tab.sees(".answer h3", "Title")
        tab.sees(".answer", "Hello **wor")
        tab.shows("#stop")
        server.mock.release("half")
        tab.settled()
        tab.sees(".answer strong", "world")
        tab.sees(".answer .code", "return 1")
        tab.sees(".answer .code .t-word", "return")
        tab.sees(".bubble", "hi there")
        tab.sees(".thinking summary", "Thought for")
        assert not tab.page.locator(".thinking[open]").count()
        tab.click(".thinking summary")
        tab.sees(".thinking", "let me see")
        tab.sees("#tokens", "10 in · 5 out")
        assert tab.trouble == []


def test_tool_calls_show_arguments_output_and_the_diff(browser: Any) -> None:
    edits = [{"oldText": "two", "newText": "TWO"}]
    steps = [
        reply(call("bash", ['{"command": "printf a; ']), gate("args"), more_arguments('echo \\"<b>x</b>\\""}')),
        reply(call("edit", {"path": "f.txt", "edits": edits}, id="c2")),
        reply(call("read", {"path": "missing.txt"}, id="c3")),
        reply("done"),
    ]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        (server.cwd / "f.txt").write_text("one\ntwo\nthree\n")
        tab.say("go")
        server.mock.wait_gate("args")
        tab.sees("[data-tool=bash][data-state=writing] .command", "printf a;")
        server.mock.release("args")
        tab.sees(".answer >> nth=-1", "done")
        tab.sees("[data-tool=bash][data-state=done] .output", "a<b>x</b>")
        tab.sees("[data-tool=edit] .del", "two")
        tab.sees("[data-tool=edit] .add", "TWO")
        tab.shows("[data-tool=read][data-state=failed][open]")
        assert tab.trouble == []


def test_steering_and_queueing_while_it_works(browser: Any) -> None:
    steps = [reply("first", gate("go")), reply("steered"), reply("followed")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.say("start")
        server.mock.wait_gate("go")
        tab.type("afterwards", "Alt+Enter")
        tab.type("rather this", "Enter")
        tab.counts(".queued", 2)
        tab.sees("#queue", "rather this")
        tab.click("#queue .link")
        tab.hides("#queue")
        tab.holds("#prompt", "rather this\n\nafterwards")
        tab.type("afterwards", "Alt+Enter")
        tab.type("rather this", "Enter")
        tab.counts(".queued", 2)
        server.mock.release("go")
        tab.sees(".answer >> nth=-1", "followed")
        tab.settled()
        assert user_texts(server)[-1] == ["start", "rather this", "afterwards"]
        assert tab.page.locator(".bubble").all_inner_texts() == ["start", "rather this", "afterwards"]


def test_escape_interrupts(browser: Any) -> None:
    with ServerProcess([reply("so far", stall()), reply("again")]) as server, Tab(browser, server) as tab:
        tab.say("go")
        tab.sees(".answer", "so far")
        tab.press("Escape")
        tab.sees(".answer .aside", "Interrupted")
        server.mock.wait_hangups()
        tab.settled()
        tab.ask("once more")
        tab.sees(".answer >> nth=-1", "again")


def test_images_are_pasted_dropped_picked_removed_and_sent(browser: Any, tmp_path: Path) -> None:
    with ServerProcess([reply("nice")]) as server, Tab(browser, server) as tab:
        tab.bring("paste", png())
        tab.counts("#attachments img", 1)
        tab.bring("drop", png(5, 5))
        tab.counts("#attachments img", 2)
        tab.page.locator("#attachments button").first.click()
        tab.counts("#attachments img", 1)
        file = tmp_path / "large.png"
        file.write_bytes(base64.b64decode(png(3000, 10)))
        tab.page.set_input_files("#files", [str(file)])
        tab.counts("#attachments img", 2)
        (tmp_path / "no.png").write_text("not an image")
        tab.page.set_input_files("#files", [str(tmp_path / "no.png")])
        tab.sees(".toast", "no.png is not an image")
        tab.ask("look")
        tab.counts(".bubble img", 2)
        tab.hides("#attachments img")
        parts = server.mock.requests[0].body["messages"][-1]["content"]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        assert urls[0] == "data:image/png;base64," + png(5, 5)
        scaled = base64.b64decode(urls[1].partition(",")[2])
        assert struct.unpack(">II", scaled[16:24]) == (2000, 7)


def test_a_failure_is_clear_and_can_be_tried_again(browser: Any) -> None:
    steps = [failure(401, "bad key"), failure(503, "overloaded"), reply("better")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.say("go")
        tab.sees(".failure", "bad key")
        tab.settled()
        tab.click(".failure button")
        tab.sees(".answer >> nth=-1", "better")
        tab.settled()
        tab.sees("#feed", "Went through after 1 more attempt")
        tab.counts(".failure", 0)
        tab.counts(".user", 1)
        assert tab.trouble == []


def test_a_refused_prompt_is_not_lost(browser: Any) -> None:
    with ServerProcess() as server, Tab(browser, server) as tab:
        tab.context.set_offline(True)
        tab.shows("#banner")
        tab.say("precious words")
        tab.holds("#prompt", "precious words")
        tab.context.set_offline(False)
        tab.connected()
        tab.press("Enter")
        tab.sees(".answer", "OK")


# -- deciding ------------------------------------------------------------------------------------


def test_tools_are_allowed_and_denied(browser: Any) -> None:
    steps = [
        reply(call("bash", {"command": "touch yes.txt"})),
        reply(call("bash", {"command": "touch no.txt"}, id="c2")),
        reply("understood"),
    ]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.click("#approval")
        tab.say("go")
        tab.sees(".ask .question", "touch yes.txt")
        assert not (server.cwd / "yes.txt").exists()
        tab.click("[data-answer=yes]")
        tab.sees(".ask .question", "touch no.txt")
        assert (server.cwd / "yes.txt").exists()
        tab.press("Alt+n")
        tab.sees(".answer >> nth=-1", "understood")
        tab.settled()
        assert not (server.cwd / "no.txt").exists()
        tab.counts("[data-state=failed]", 1)
        tab.counts(".ask", 0)
        assert tab.trouble == []


def test_allow_and_stop_asking(browser: Any) -> None:
    steps = [reply(call("bash", {"command": "echo 1"})), reply(call("bash", {"command": "echo 2"}, id="c2")), reply("k")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.press("Alt+a")
        tab.shows("#approval[aria-pressed=true]")
        tab.say("go")
        tab.click(".ask .link")
        tab.sees(".answer >> nth=-1", "k")
        tab.counts("[data-state=done]", 2)
        tab.shows("#approval[aria-pressed=false]")


def test_the_turn_limit_is_asked_about(browser: Any) -> None:
    steps = [reply(call("bash", {"command": "echo 1"})), reply(call("bash", {"command": "echo 2"}, id="c2")), reply("k")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        with server.rpc(f"?session={tab.session}") as other:
            assert other.call("set_approval", tools=False, maxTurns=1)["success"]
        tab.say("go")
        tab.sees(".ask h3", "Go on?")
        tab.click("[data-answer=yes]")
        tab.counts("[data-tool=bash]", 2)
        tab.sees(".ask h3", "Go on?")
        tab.click("[data-answer=no]")
        tab.settled()
        assert len(server.mock.requests) == 2


EXTENSION = '''
def extension(agent):
    @agent.command("survey", help="Ask everything")
    async def survey(args, ctx):
        color = await ctx.ui.select("Colour?", ["red", "<i>blue</i>"])
        name = await ctx.ui.input("Name?", "e.g. Ada")
        text = await ctx.ui.editor("Story?", "Once")
        ctx.ui.set_status("s", "surveyed")
        ctx.ui.set_widget("w", ["line one", "line two"])
        ctx.ui.set_editor_text("from the extension")
        ctx.ui.notify(f"{color}|{name}|{text}", "warning")
'''


def test_extensions_ask_and_tell(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "survey.py").write_text(EXTENSION)
    with ServerProcess(args=["-e", str(tmp_path / "survey.py")]) as server, Tab(browser, server) as tab:
        tab.type("/sur")
        tab.sees("#completions", "Ask everything")
        tab.press("Tab")
        tab.holds("#prompt", "/survey ")
        tab.press("Enter")
        tab.sees(".ask h3", "Colour?")
        tab.page.get_by_role("button", name="<i>blue</i>").click()
        tab.page.get_by_label("Name?").and_(tab.page.locator("input")).fill("Ada")
        tab.press("Enter")
        tab.sees(".ask h3", "Story?")
        assert tab.page.locator(".ask textarea").input_value() == "Once"
        tab.page.locator(".ask textarea").fill("The end")
        tab.click(".ask .primary")
        tab.sees(".toast", "<i>blue</i>|Ada|The end")
        tab.sees("#statuses", "surveyed")
        tab.sees("#widgets-above", "line two")
        tab.holds("#prompt", "from the extension")
        assert tab.trouble == []


# -- going back ----------------------------------------------------------------------------------


def test_the_tree_leads_back_and_forks(browser: Any) -> None:
    steps = [reply("answer one"), reply("answer two"), reply("another two"), reply("in the fork")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.ask("first")
        tab.ask("second")
        original = tab.session
        tab.press("Alt+t")
        tab.counts("#tree .node", 4)
        tab.click("#tree .line", 1)  # the first answer
        tab.counts(".user", 1)
        tab.ask("second, differently")
        tab.counts("#tree .node", 6)
        tab.counts("#tree .node.path", 4)
        assert user_texts(server)[-1] == ["first", "second, differently"]
        # A message of the user: what came before it is kept, its text can be changed.
        tab.page.get_by_title("second", exact=True).click()
        tab.holds("#prompt", "second")
        tab.counts(".user", 1)
        tab.type("")
        tab.page.locator("#tree .node", has_text="second, differently").get_by_label("Fork").click()
        tab.holds("#prompt", "second, differently")
        assert tab.session != original
        tab.ask("elsewhere")
        tab.sees(".answer >> nth=-1", "in the fork")
        assert user_texts(server)[-1] == ["first", "elsewhere"]
        tab.click("#tab-sessions")
        tab.counts(".session", 2)
        assert tab.trouble == []


def test_editing_and_regenerating(browser: Any) -> None:
    steps = [reply("one"), reply("two"), reply("two again"), reply("other")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.ask("same")
        tab.bring("paste", png())
        tab.counts("#attachments img", 1)
        tab.ask("same")
        tab.press("Alt+r")
        tab.sees(".answer >> nth=-1", "two again")
        tab.settled()
        assert tab.page.locator(".answer .md").all_inner_texts() == ["one", "two again"]
        first, second = server.mock.requests[1].body["messages"], server.mock.requests[2].body["messages"]
        assert [m for m in first if m["role"] != "system"] == [m for m in second if m["role"] != "system"]
        tab.page.locator(".user").first.hover()
        tab.click(".user [aria-label='Go back and edit']")
        tab.holds("#prompt", "same")
        tab.counts(".user", 0)
        tab.ask("changed")
        assert user_texts(server)[-1] == ["changed"]


def test_a_new_conversation_and_the_list(browser: Any) -> None:
    with ServerProcess([reply("ok")]) as server, Tab(browser, server) as tab:
        tab.ask("about parsers")
        first = tab.session
        tab.click("#title")
        tab.page.fill(".rename", "Parsers <b>&amp;</b>")
        tab.press("Enter")
        tab.sees("#title", "Parsers <b>&amp;</b>")
        tab.press("Alt+c")
        tab.shows("#welcome")
        tab.ask("about lexers")
        assert tab.session != first
        tab.press("Control+k")
        tab.counts(".session", 2)
        tab.page.keyboard.type("parsers")
        tab.counts(".session", 1)
        tab.click(".session")
        tab.sees(".bubble", "about parsers")
        tab.sees("#title", "Parsers <b>&amp;</b>")
        assert tab.session == first
        tab.page.go_back()
        tab.sees(".bubble", "about lexers")
        assert tab.trouble == []


def test_work_goes_on_while_another_conversation_is_begun(browser: Any) -> None:
    steps = [reply("slow", gate("go"), " but done"), reply("quick")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.say("long task")
        server.mock.wait_gate("go")
        busy = tab.session
        tab.click("#new")
        tab.shows("#welcome")
        tab.connected()
        tab.ask("something else")
        server.mock.release("go")
        tab.click(f".session[href='#{busy}']")
        tab.sees(".answer", "slow but done")
        assert server.mock.hangups == 0


# -- coming back ---------------------------------------------------------------------------------


def test_a_reload_finds_the_session_and_the_draft(browser: Any) -> None:
    steps = [reply(think("hm"), "intro", call("bash", {"command": "echo out"})), reply("the end")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.ask("remember me")
        tab.type("half a thought")
        before, session = tab.text(), tab.session
        tab.page.reload()
        tab.connected()
        tab.sees(".answer >> nth=-1", "the end")
        assert tab.session == session
        assert tab.text().replace("Thoughts", "Thought for a moment") == before
        tab.sees("[data-tool=bash][data-state=done]", "out")
        tab.holds("#prompt", "half a thought")


def test_a_reload_in_mid_answer_shows_all_of_it(browser: Any) -> None:
    with ServerProcess([reply("The beginning, ", gate("a"), "the middle", gate("b"), " and the end.")]) as server:
        with Tab(browser, server) as tab:
            tab.say("go")
            tab.sees(".answer", "The beginning")
            tab.page.reload()
            tab.connected()
            tab.shows("#stop")
            server.mock.release("a")
            tab.sees(".answer", "The beginning, the middle")
            server.mock.release("b")
            tab.settled()
            tab.sees(".answer .md", re.compile("^The beginning, the middle and the end.$"))


def test_a_broken_connection_is_made_good(browser: Any) -> None:
    steps = [reply("one ", gate("a"), "two ", gate("b"), "three"), reply("next")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.say("count")
        tab.sees(".answer", "one")
        tab.context.set_offline(True)
        tab.sees("#banner", "Connection lost")
        server.mock.release("a")
        server.mock.wait_gate("b")
        tab.context.set_offline(False)
        tab.hides("#banner")
        tab.sees(".answer .md", "one two")
        server.mock.release("b")
        tab.settled()
        assert tab.text(".answer .md") == "one two three"
        tab.counts(".user", 1)
        tab.ask("more")
        tab.sees(".answer >> nth=-1", "next")


def test_a_server_that_was_started_again_is_found(browser: Any, tmp_path: Path) -> None:
    with ServerProcess([reply("before")], base=tmp_path) as server, Tab(browser, server) as tab:
        tab.ask("hello")
        session = tab.session
        server.stop()
        tab.shows("#banner")
        address = f"127.0.0.1:{server.port}"
        with ServerProcess([reply("after")], base=tmp_path, args=["--remote", address]) as again:
            tab.hides("#banner")
            tab.sees(".answer", "before")
            tab.ask("still there?")
            tab.sees(".answer >> nth=-1", "after")
            assert user_texts(again) == [["hello", "still there?"]]
            assert tab.session == session


def test_two_tabs_see_the_same_conversation(browser: Any) -> None:
    with ServerProcess([reply("for both")]) as server, Tab(browser, server) as one:
        with Tab(browser, server, session=one.session) as two:
            one.ask("who is there?")
            two.sees(".bubble", "who is there?")
            two.sees(".answer", "for both")
            two.settled()


def test_an_unknown_session_is_told(browser: Any) -> None:
    with ServerProcess() as server, Tab(browser, server, session="no-such-session") as tab:
        tab.sees(".toast", "not here any more")
        assert tab.session != "no-such-session"
        tab.ask("hi")


def test_a_token_is_asked_for_once(browser: Any) -> None:
    with ServerProcess(env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        with Tab(browser, server, ready=False) as tab:
            tab.sees("#token-dialog", "needs a token")
            tab.page.fill("#token-dialog input", "wrong")
            tab.press("Enter")
            tab.sees("#token-dialog", "not accepted")
            tab.page.fill("#token-dialog input", TOKEN)
            tab.press("Enter")
            tab.connected()
            tab.ask("hi")
            tab.page.reload()
            tab.connected()
            tab.sees(".answer", "OK")
            assert TOKEN not in tab.page.content()


# -- any content ---------------------------------------------------------------------------------

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
        assert {rel for _, rel in targets} == {"noopener noreferrer nofollow"}
        assert {href.partition(":")[0] for href, _ in targets} == {"https"}
        assert tab.js("window.pwned === undefined")
        assert tab.trouble == []


def test_the_policy_forbids_scripts_of_others(browser: Any) -> None:
    with ServerProcess() as server, Tab(browser, server) as tab:
        tab.js(
            "() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
            " document.body.append(s); document.body.setAttribute('onclick', 'window.pwned = 2'); document.body.click() }"
        )
        assert tab.js("window.pwned === undefined")
        assert len(tab.trouble) == 2
        assert all("Content Security Policy" in line for line in tab.trouble)


# -- any screen ----------------------------------------------------------------------------------


def test_on_a_phone(browser: Any) -> None:
    wide = "A word that is long: " + "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n|" + "col|" * 30 + "\n|" + "-|" * 30
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with ServerProcess([reply(wide, call("bash", {"command": "echo " + "z" * 300})), reply("k")]) as server:
        with Tab(browser, server, **phone) as tab:
            tab.type("line one", "Enter")
            tab.page.locator("#prompt").press_sequentially("line two")
            tab.holds("#prompt", "line one\nline two")
            tab.page.tap("#send")
            tab.sees(".answer >> nth=-1", "k")
            tab.settled()
            assert tab.js("document.documentElement.scrollWidth") == 360
            assert tab.js("document.getElementById('scroller').scrollWidth") <= 360
            assert not tab.page.locator("#sidebar").is_visible()
            tab.page.tap("#open-sidebar")
            tab.shows("#sidebar")
            tab.page.tap(".session")
            tab.hides("#sidebar")
            small = tab.js(
                "[...document.querySelectorAll('main button')].filter(b => b.offsetParent && b.offsetHeight < 24)"
                ".map(b => b.id || b.className)"
            )
            assert small == ["context"]


def test_the_keyboard(browser: Any) -> None:
    with ServerProcess([reply("ok")]) as server, Tab(browser, server) as tab:
        assert tab.js("document.activeElement.id") == "prompt"
        tab.press("Alt+m")
        tab.shows("#menu")
        tab.press("ArrowDown")
        tab.press("Enter")
        tab.sees("#model", "Mock Two")
        tab.hides("#thinking")
        tab.press("Alt+m")
        tab.shows("#menu")
        tab.press("ArrowUp")
        tab.press("Enter")
        tab.sees("#model", "Mock One")
        tab.press("Alt+l")
        tab.page.get_by_role("option", name="High", exact=True).click()
        tab.sees("#thinking", "High")
        tab.page.focus("#help")
        tab.press("?")
        tab.sees("#keys", "Regenerate the last answer")
        tab.press("Escape")
        tab.hides("#keys")
        tab.press("/")
        assert tab.js("document.activeElement.id") == "prompt"
        tab.type("one")
        tab.press("Shift+Enter")
        tab.page.keyboard.type("two")
        tab.press("Enter")
        tab.sees(".bubble", "one\ntwo")
        tab.settled()
        tab.press("ArrowUp")
        tab.holds("#prompt", "one\ntwo")
        tab.press("Alt+s")
        tab.hides("#sidebar")


def test_light_and_dark(browser: Any) -> None:
    def paper(tab: Tab) -> str:
        return str(tab.js("getComputedStyle(document.body).backgroundColor"))

    with ServerProcess() as server, Tab(browser, server, color_scheme="dark") as tab:
        dark = paper(tab)
        tab.click("#theme")
        assert paper(tab) == "rgb(255, 255, 255)" != dark
        tab.page.reload()
        tab.connected()
        assert paper(tab) == "rgb(255, 255, 255)"


def test_a_long_conversation_stays_quick_and_in_place(browser: Any, tmp_path: Path) -> None:
    from tests.export.helpers import long_session

    count = 2000
    with ServerProcess([reply("first"), reply(*["word "] * 200, gate("go"), "end")], base=tmp_path) as server:
        with Tab(browser, server) as tab:
            tab.ask("make a file")
            session = tab.session
        server.stop()
    (file,) = (tmp_path / "agent" / "sessions").rglob("*.jsonl")
    header = json.loads(file.read_text().partition("\n")[0])
    file.write_text("\n".join(json.dumps(line) for line in [header, *long_session(count)]) + "\n")
    with ServerProcess([reply(*["word "] * 200, gate("go"), "end")], base=tmp_path) as server:
        with Tab(browser, server, session=session) as tab:
            tab.sees(".answer >> nth=-1", f"Answer {count - 1}")
            tab.counts("#feed > *", count // 4 * 3)
            at_end = "(s => s.scrollHeight - s.scrollTop - s.clientHeight < 2)(document.getElementById('scroller'))"
            assert tab.js(at_end)
            tab.say("and now?")
            server.mock.wait_gate("go")
            tab.sees(".answer >> nth=-1", "word")
            assert tab.js(at_end)
            # Whoever reads further up is left there.
            tab.page.mouse.move(700, 400)
            tab.page.mouse.wheel(0, -3000)
            tab.shows("#latest")
            before = tab.js("document.getElementById('scroller').scrollTop")
            server.mock.release("go")
            tab.settled()
            assert tab.js("document.getElementById('scroller').scrollTop") == pytest.approx(before, abs=2)
            tab.click("#latest")
            tab.hides("#latest")
            assert tab.js(at_end)
