"""The web page of `spindle serve` in a real browser: talking, deciding, on any screen and with the keyboard."""

import base64
import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, failure, gate, reply, sse, stall, think

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .web_page import Tab, png, user_texts

pytestmark = pytest.mark.timeout(120)
AXE = Path(os.environ.get("SPINDLE_AXE") or Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js")


def more_arguments(piece: str) -> Any:
    """Return a piece of the arguments of the first call."""
    delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    return sse(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n")


# -- talking -------------------------------------------------------------------------------------


def test_an_answer_is_shown_as_it_is_written(open_tab: Any) -> None:
    answer = ["# Tit", "le\n\nHello **wor", gate("half"), "ld** and `code`\n\n```python\nreturn 1\n```\n"]
    tab = open_tab(reply(think("let me see"), *answer))
    tab.say("hi there")
    tab.server.mock.wait_gate("half")
    tab.sees(".answer h3", "Title")
    tab.sees(".answer strong", "wor")
    tab.shows("#stop")
    tab.server.mock.release("half")
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
    tab.sees("#cost", "cost unknown")
    assert tab.trouble == []


def test_tool_calls_show_arguments_output_and_the_diff(open_tab: Any) -> None:
    edits = [{"oldText": "two", "newText": "TWO"}]
    steps = [
        reply(call("bash", ['{"command": "printf a; ']), gate("args"), more_arguments('echo \\"<b>x</b>\\""}')),
        reply(call("edit", {"path": "f.txt", "edits": edits}, id="c2")),
        reply(call("read", {"path": "missing.txt"}, id="c3")),
        reply("done"),
    ]
    tab = open_tab(*steps)
    (tab.server.cwd / "f.txt").write_text("one\ntwo\nthree\n")
    tab.say("go")
    tab.server.mock.wait_gate("args")
    tab.sees("[data-tool=bash][data-state=writing] .command", "printf a;")
    tab.server.mock.release("args")
    tab.sees(".answer >> nth=-1", "done")
    tab.sees("[data-tool=bash][data-state=done] .output", "a<b>x</b>")
    tab.sees("[data-tool=edit] .del", "two")
    tab.sees("[data-tool=edit] .add", "TWO")
    tab.shows("[data-tool=read][data-state=failed][open]")
    assert tab.trouble == []


def test_a_server_may_use_the_id_of_a_call_again(open_tab: Any) -> None:
    steps = [
        reply("one", call("bash", {"command": "echo first"}, id="call_0")),
        reply("two", call("bash", {"command": "echo second"}, id="call_0")),
        reply("three", call("bash", {"command": "echo third; sleep 60"}, id="call_0")),
    ]
    tab = open_tab(*steps)
    tab.say("go")
    for _ in ("as it comes", "after a reload"):
        tab.sees(".tool[data-state=running]", "echo third")
        tab.counts(".tool", 3)
        for index, word in enumerate(("first", "second")):
            tab.sees(".answer", f"echo {word}", index)
            tab.sees(f".answer >> nth={index} >> .tool[data-state=done] .output", word)
        tab.page.reload()
    tab.shows(".tool[data-state=running]")
    tab.press("Escape")
    tab.sees(".tool >> nth=2", "Command aborted")
    tab.hides(".tool[data-state=running]")
    assert tab.trouble == []


def test_steering_and_queueing_while_it_works(open_tab: Any) -> None:
    steps = [reply("first", gate("steer")), reply("steered"), reply("followed")]
    tab = open_tab(*steps)
    tab.say("start")
    tab.server.mock.wait_gate("steer")
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
    tab.server.mock.release("steer")
    tab.sees(".answer >> nth=-1", "followed")
    tab.settled()
    assert user_texts(tab.server)[-1] == ["start", "rather this", "afterwards"]
    assert tab.page.locator(".bubble").all_inner_texts() == ["start", "rather this", "afterwards"]


def test_an_answer_is_interrupted_and_a_failure_is_clear_and_can_be_tried_again(open_tab: Any) -> None:
    failing = [failure(401, "bad key"), failure(503, "overloaded"), reply("better")]
    tab = open_tab(reply("so far", stall()), reply("again"), *failing)
    hangups = tab.server.mock.hangups
    tab.say("go")
    tab.sees(".answer", "so far")
    tab.press("Escape")
    tab.sees(".answer .aside", "Interrupted")
    tab.server.mock.wait_hangups(hangups + 1)
    tab.settled()
    tab.ask("once more")
    tab.sees(".answer >> nth=-1", "again")
    # A failure says why, and goes away when the next attempt succeeds.
    tab.say("and now?")
    tab.sees(".failure", re.compile("401 from mock: .*bad key"))
    tab.settled()
    tab.click(".failure button")
    tab.sees(".answer >> nth=-1", "better")
    tab.settled()
    tab.sees("#feed", "Went through after 1 more attempt")
    tab.counts(".failure", 0)
    tab.counts(".user", 3)
    assert tab.trouble == []


def test_images_are_pasted_dropped_picked_removed_and_sent(open_tab: Any, tmp_path: Path) -> None:
    tab = open_tab(reply("nice"))
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
    tab.sees("#attachments .file", "no.png")  # any file may come along, for tools to read
    tab.click("#attachments .file button")
    tab.ask("look")
    tab.counts(".bubble img", 2)
    tab.hides("#attachments img")
    parts = tab.server.mock.requests[0].body["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert urls[0] == "data:image/png;base64," + png(5, 5)
    scaled = base64.b64decode(urls[1].partition(",")[2])
    assert struct.unpack(">II", scaled[16:24]) == (2000, 7)


def test_a_shell_command_of_the_user(open_tab: Any) -> None:
    tab = open_tab(reply("I see"))
    tab.type("!printf 'a<b>'; exit 3")
    tab.shows("#composer[data-shell='You run this']")
    tab.press("Enter")
    tab.sees(".tool[data-state=failed] b", "you ran")
    tab.sees(".tool .output", "a<b>")
    tab.sees(".tool .time", "exit 3")
    tab.say("!! echo hush")
    tab.sees(".tool >> nth=1", "not told to the model")
    # One that does not end by itself is stopped like an answer, and shows what it had to say.
    tab.say("!echo begun; sleep 60")
    tab.sees(".tool[data-state=running] .output", "begun")
    tab.press("Escape")
    tab.sees(".tool >> nth=2", "interrupted")
    tab.hides("#stop")
    tab.ask("well?")
    (said,) = user_texts(tab.server)
    assert "printf" in said[0] and "begun" in said[1] and said[-1] == "well?" and "hush" not in str(said)
    before = tab.text()
    tab.page.reload()
    tab.sees(".answer", "I see")
    assert tab.text() == before
    assert tab.trouble == []


# -- deciding ------------------------------------------------------------------------------------


def test_what_a_tool_would_do_is_shown_whole_and_allowed_or_denied(open_tab: Any) -> None:
    sly = '{"command":"ls","x":"$(echo evil)"}'
    strange = {"path": "f.txt", "edits": [{"oldText": "one", "newText": "two", "all": "more"}]}
    tab = open_tab(
        reply(call("bash", {"command": "touch yes.txt"})),
        reply(call("bash", {"command": "touch no.txt"}, id="c2")),
        reply(call("edit", {"path": "f.txt", "edits": [{"oldText": "one", "newText": "<b>two</b>"}]}, id="c3")),
        reply(call("write", {"path": "new.txt", "content": "line 1\nline 2"}, id="c4")),
        reply(call("bash", {"command": sly}, id="c5")),
        reply(call("edit", strange, id="c6")),
        reply("understood"),
    )
    cwd = tab.server.cwd
    (cwd / "f.txt").write_text("one\n")
    tab.click("#approval")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("go")
    tab.sees(".tool[data-state=asking] .command", "touch yes.txt")
    assert not (cwd / "yes.txt").exists()
    assert tab.page.title().startswith("❓")
    tab.click("[data-answer=yes]")
    tab.sees(".tool[data-state=asking] .command", "touch no.txt")
    assert (cwd / "yes.txt").exists()
    tab.press("Alt+n")
    tab.sees(".tool[data-state=asking] .add", "<b>two</b>")
    tab.sees(".tool[data-state=asking] .gist", "f.txt")
    tab.press("Alt+y")
    tab.sees(".tool[data-state=asking] .add >> nth=0", "line 1")
    tab.sees(".tool[data-state=asking] .add >> nth=1", "line 2")
    tab.press("Alt+n")
    # A command that looks like arguments is a command all the same.
    tab.sees(".tool[data-state=asking] .command", sly)
    tab.press("Alt+n")
    tab.sees(".question:visible", '"all":"more"')
    tab.press("Alt+n")
    tab.sees(".answer >> nth=-1", "understood")
    tab.settled()
    assert not (cwd / "no.txt").exists() and not (cwd / "new.txt").exists()
    assert (cwd / "f.txt").read_text() == "<b>two</b>\n"
    tab.counts("[data-state=refused]", 3)
    tab.click(".turn")  # of a long turn only the last steps are in view
    tab.counts("[data-state=refused]", 4)
    tab.counts(".ask", 0)
    assert "❓" not in tab.page.title()
    assert tab.trouble == []


def test_the_turn_limit_is_asked_about(open_tab: Any) -> None:
    steps = [
        reply(call("bash", {"command": "echo 1"})),
        reply(call("bash", {"command": "echo 2"}, id="c2")),
        reply("k"),
    ]
    tab = open_tab(*steps)
    with tab.server.rpc(f"?session={tab.session}") as other:
        assert other.call("set_approval", tools=False, maxTurns=1)["success"]
    tab.say("go")
    tab.sees(".ask h3", "Go on?")
    tab.click("[data-answer=yes]")
    tab.counts("[data-tool=bash]", 2)
    tab.sees(".ask h3", "Go on?")
    tab.click("[data-answer=no]")
    tab.settled()
    assert len(tab.server.mock.requests) == 2


def test_the_welcome_a_prompt_that_cannot_be_sent_and_the_export(open_tab: Any) -> None:
    tab = open_tab(reply("an answer"))
    tab.sees("#welcome", "in work.")
    tab.click("#starters button")
    tab.holds("#prompt", "Explain this project to me")
    # Without a connection it is not lost.
    tab.context.set_offline(True)
    tab.shows("#banner")
    tab.page.press("#prompt", "Enter")
    tab.holds("#prompt", "Explain this project to me")
    tab.context.set_offline(False)
    tab.connected()
    tab.press("Enter")
    tab.hides("#welcome")
    tab.sees(".answer", "an answer")
    tab.settled()
    tab.click("#more")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("option", name="Export").click()
    assert download.value.suggested_filename == "Explain-this-project-to-me.html"
    assert "Explain this project to me" in Path(download.value.path()).read_text()


EXTENSION = """
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
"""


def test_extensions_ask_and_tell(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "survey.py").write_text(EXTENSION)
    with ServerProcess(args=["-e", str(tmp_path / "survey.py")]) as server, Tab(browser, server) as tab:
        tab.type("/sur")
        tab.sees("#completions", "Ask everything")
        tab.press("Tab")
        tab.holds("#prompt", "/survey ")
        tab.press("Enter")
        tab.sees(".ask h3", "Colour?")
        tab.page.wait_for_function("() => document.activeElement.textContent === 'red'")  # the keyboard is there
        tab.press("ArrowDown")
        tab.press("Enter")  # <i>blue</i>
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


def test_a_tool_that_starts_does_not_take_the_focus_from_an_answer(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "survey.py").write_text(EXTENSION)
    steps = [reply(gate("go"), call("ls", {"path": "."})), reply("Listed.")]
    with ServerProcess(steps, args=["-e", str(tmp_path / "survey.py")]) as server, Tab(browser, server) as tab:
        tab.type("go", "Enter")
        server.mock.wait_gate("go")
        tab.type("/survey ", "Enter")
        tab.page.get_by_role("button", name="<i>blue</i>").click()
        tab.sees(".ask h3", "Name?")
        tab.page.keyboard.type("A")
        server.mock.release("go")
        tab.sees(".answer >> nth=-1", "Listed.")
        tab.page.keyboard.type("da")
        assert tab.page.locator(".ask input").input_value() == "Ada"


# -- any screen ----------------------------------------------------------------------------------


def test_on_a_phone(browser: Any) -> None:
    wide = (
        "A word that is long: " + "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n|" + "col|" * 30 + "\n|" + "-|" * 30
    )
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    steps = [reply(wide, call("bash", {"command": "echo " + "z" * 300})), reply("k")]
    with ServerProcess(steps) as server, Tab(browser, server, **phone) as tab:
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(browser: Any, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm install axe-core, or its file in SPINDLE_AXE)")
    edit = call("edit", {"path": "f.txt", "edits": [{"oldText": "one", "newText": "two"}]}, id="c2")
    rich = "### One\n\n##### Two\n\ntext `code` $x^2$\n\n```py\nreturn 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    steps = [
        reply(think("hm"), rich, call("bash", {"command": "printf '\\033[32mok\\033[0m'"})),
        reply(edit),
        reply("done: `f.txt`", gate(f"axe {scheme}")),
        failure(401, "no"),
    ]
    with ServerProcess(steps) as server, Tab(browser, server, color_scheme=scheme, reduced_motion="reduce") as tab:
        (server.cwd / "f.txt").write_text("one\n")

        def check(state: str) -> None:
            violations = tab.js("axe.run(document).then(result => result.violations)")
            found = [f"{one['id']}: {one['nodes'][0]['html']}" for one in violations]
            assert found == [], state

        tab.js(AXE.read_text())
        check("an empty page")
        tab.press("Alt+a")
        tab.say("go")
        tab.shows(".ask")
        check("a question")
        tab.press("Alt+y")
        tab.sees(".tool[data-state=asking]", "f.txt")
        tab.press("Alt+y")
        server.mock.wait_gate(f"axe {scheme}")
        tab.type("wait for this", "Alt+Enter")
        tab.counts(".queued", 1)
        tab.click(".queued [aria-label='Edit this message']")
        check("at work, with a message that is edited")
        tab.press("Escape")
        tab.click(".queued [aria-label='Remove it']")
        tab.click("#tab-tree")
        tab.shows("#tree .current")
        tab.click("#tree .line")
        tab.shows("#confirm[open]")
        check("the page asks")
        tab.press("Escape")
        server.mock.release(f"axe {scheme}")
        tab.settled()
        tab.say("again")
        tab.shows(".failure")
        check("the tree, and a failure")
        tab.click("#open-changes")
        tab.shows(".changed .diff")
        check("changed files")
        tab.press("Escape")
        tab.press("Alt+i")
        tab.sees("#panel", "Context and cost")
        tab.press("Control+f")
        tab.page.keyboard.type("done")
        tab.sees("#find-count", "1 of 1")
        check("the session, and a text that was found")
        tab.press("Escape")
        tab.page.wait_for_selector(".path-link", state="attached")
        tab.press("Alt+b")
        tab.page.locator(".entry", has_text="f.txt").click()
        tab.sees(".file-view code", "two")
        check("files, and one of them")
        tab.click("#tab-checkpoints")
        tab.click(".compared summary")
        tab.shows(".compared .diff")
        check("states of the files")
        tab.press("Escape")
        tab.press("Alt+i")
        tab.edit()
        tab.click(".turn")
        check("a message that is edited, and a turn that is folded or open")
        tab.press("Alt+l")
        tab.shows("#menu")
        check("a menu")
        tab.press("Escape")
        tab.press("Control+k")
        tab.shows("#menu.palette")
        check("the palette")
        tab.page.keyboard.type("phone")
        tab.press("Enter")
        tab.shows("#share[open]")
        check("the address")
        tab.press("Escape")
        tab.page.focus("#help")
        tab.press("?")
        tab.shows("#keys[open]")
        check("the keys")


def test_light_and_dark(open_tab: Any) -> None:
    def paper(tab: Tab) -> str:
        return str(tab.js("getComputedStyle(document.body).backgroundColor"))

    tab = open_tab(reply("OK"), color_scheme="dark")
    dark = paper(tab)
    tab.click("#theme")
    assert paper(tab) == "rgb(255, 255, 255)" != dark
    tab.page.reload()
    tab.connected()
    assert paper(tab) == "rgb(255, 255, 255)"
