"""The conversation on the web page: what was typed is kept, what runs goes on, and what is shown stays what it is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import Step, call, failure, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .test_web_tree import HOLD_EARLIER
from .web_page import Tab, png, user_texts

pytestmark = pytest.mark.timeout(120)
END = "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.getElementById('scroller'))"


def bash(command: str, id: str = "c1") -> Step:
    return reply(call("bash", {"command": command}, id=id))


# -- 1 and 6: going back to a message ----------------------------------------------------------------


def test_messages_of_this_visit_are_edited_in_place_and_forked(open_tab: Any) -> None:
    tab = open_tab(reply("one"), reply("two"), reply("other"), reply("in the fork"))
    tab.ask("same")
    tab.bring("paste", png())
    tab.counts("#attachments img", 1)
    tab.ask("same")
    tab.type("a draft")
    tab.page.locator(".user").nth(1).hover()
    tab.click(".user [aria-label=Edit]", 1)
    tab.holds(".edit textarea", "same")
    tab.counts(".edit img", 1)
    tab.counts(".answer", 2)  # nothing has moved yet
    tab.press("Escape")
    tab.counts(".edit", 0)
    tab.click(".user [aria-label=Edit]", 1)
    tab.page.fill(".edit textarea", "something else")
    tab.page.get_by_role("button", name="Save").click()
    tab.sees(".answer >> nth=-1", "other")
    tab.settled()
    assert user_texts(tab.server)[-1] == ["same", "something else"]
    assert len(tab.server.mock.requests[-1].body["messages"][-1]["content"]) == 2, "the image is kept"
    tab.holds("#prompt", "a draft")
    # Where the conversation divides, both ways can be gone.
    tab.sees(".user:has(.fork)", "2/2")
    tab.click("[aria-label='Previous branch']")
    tab.sees(".answer >> nth=-1", "two")
    tab.sees(".user:has(.fork)", "1/2")
    # A fork is another conversation, with a draft of its own.
    first = tab.session
    tab.page.locator(".user").nth(1).hover()
    tab.click(".user [aria-label^=Fork]", 1)
    tab.holds("#prompt", "same")
    tab.counts("#attachments img", 1)
    assert tab.session != first
    tab.page.go_back()
    tab.counts(".user", 2)
    tab.holds("#prompt", "a draft")
    assert tab.trouble == []


# -- 2: the end stays in view ------------------------------------------------------------------------


def test_the_end_stays_in_view_until_the_reader_goes_up(open_tab: Any) -> None:
    loud = "for i in $(seq 80); do echo line $i; done"
    rest = [reply(f"Step {i}.", call("bash", {"command": loud}, id=f"c{i}")) for i in range(4)]
    tab = open_tab(*rest, reply("\n\n".join(["word"] * 40), gate("long"), "\n\nlast words"))
    tab.page.evaluate("window.off = []; setInterval(() => off.push(" + END + "), 40)")
    tab.say("go")
    tab.server.mock.wait_gate("long")
    tab.sees(".answer >> nth=-1", "word")
    before = tab.js("document.getElementById('scroller').scrollHeight")
    assert tab.js(END) < 2
    # Not by a script that scrolls, as browsers do by themselves: that is not the reader.
    tab.js("document.getElementById('scroller').scrollTop -= 400")
    tab.server.mock.release("long")
    tab.sees(".answer >> nth=-1", "last words")
    tab.settled()
    assert tab.js(END) < 2
    after = tab.js("document.getElementById('scroller').scrollHeight")
    line = tab.js("document.querySelector('.answer .md:last-of-type p:last-child').getBoundingClientRect().height")
    assert after - before < line * 2, "nothing but the words is new when the answer ends"
    tab.page.mouse.move(700, 300)
    tab.page.mouse.wheel(0, -600)
    tab.shows("#latest")
    tab.press("Alt+e")
    tab.hides("#latest")
    assert sum(off > 60 for off in tab.js("off")[:-20]) <= 2


def test_a_long_answer_leaves_out_what_is_out_of_sight_and_keeps_its_height(open_tab: Any) -> None:
    block = "## Heading\n\nSome **words** here.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n"
    tab = open_tab(reply(block * 40))
    tab.ask("at length")
    assert tab.js("document.querySelectorAll('.part').length") < 12
    assert tab.js("!document.querySelector('.part p').checkVisibility({ contentVisibilityAuto: true })")
    height = "document.querySelector('.answer').getBoundingClientRect().height"
    grown = tab.js(height)
    tab.page.reload()
    tab.sees(".answer", "Heading")
    assert abs(tab.js(height) - grown) <= 1


# -- 3 and 7: what waits -----------------------------------------------------------------------------


def test_messages_that_wait_are_changed_one_by_one(open_tab: Any) -> None:
    tab = open_tab(reply("first", gate("queue"), "!"), reply("k"), reply("k"), reply("k"))
    tab.say("start")
    tab.server.mock.wait_gate("queue")
    tab.type("alpha", "Alt+Enter")
    tab.bring("paste", png())
    tab.counts("#attachments img", 1)
    tab.type("beta", "Alt+Enter")
    tab.type("gamma", "Alt+Enter")
    tab.counts(".queued", 3)
    tab.sees(".queued >> nth=1", "1 image")
    tab.click(".queued [aria-label='Edit this message']", 0)
    tab.page.fill(".queued textarea", "alpha, better")
    tab.press("Enter")
    tab.sees(".queued >> nth=0", "alpha, better")
    tab.click(".queued [aria-label='Remove it']", 2)
    tab.counts(".queued", 2)
    # Taking back adds to what is written, and brings the image along.
    tab.type("half a sentence")
    tab.page.get_by_role("button", name="Take back").click()
    tab.holds("#prompt", "half a sentence\n\nalpha, better\n\nbeta")
    tab.counts("#attachments img", 1)
    tab.type("delta", "Alt+Enter")
    tab.counts(".queued", 1)
    # What stop leaves behind says so.
    tab.press("Escape")
    tab.sees(".queue-head", "did not go out")
    tab.click(".send-all")
    tab.hides("#queue")
    tab.sees(".bubble >> nth=-1", "delta")
    tab.counts(".bubble >> nth=-1 >> img", 1)
    tab.settled()
    # Sent now: before the next call of the model.
    tab.server.mock.script(reply("at work", gate("again"), "."), reply("k"), reply("k"))
    tab.say("again")
    tab.server.mock.wait_gate("again")
    tab.type("one", "Alt+Enter")
    tab.type("two", "Alt+Enter")
    tab.counts(".queued", 2)
    tab.click(".queued [aria-label='Send it now']", 1)
    tab.sees(".queued >> nth=0", "steer")
    tab.server.mock.release("again")
    tab.counts(".queued", 0)
    tab.settled()
    assert user_texts(tab.server)[-1][-2:] == ["two", "one"]
    assert tab.trouble == []


# -- 4: nothing is stopped by accident ---------------------------------------------------------------


def test_what_would_stop_the_work_is_asked_first(open_tab: Any) -> None:
    tab = open_tab(reply("one"), reply("at work", gate("work"), ", and done"))
    hangups = tab.server.mock.hangups
    tab.ask("first")
    tab.press("Alt+t")
    tab.counts("#tree .node", 2)
    tab.say("second")
    tab.server.mock.wait_gate("work")
    tab.click("#tree .line", 0)
    tab.sees("#confirm", "Stop what is running?")
    tab.press("Escape")
    tab.hides("#confirm")
    tab.click("#context")
    tab.page.get_by_role("button", name="Summarise older messages").click()
    tab.sees("#confirm", "Stop what is running?")
    tab.page.get_by_role("button", name="Cancel").click()
    tab.shows("#stop")
    tab.server.mock.release("work")
    tab.sees(".answer >> nth=-1", "at work, and done")
    assert tab.server.mock.hangups == hangups
    assert tab.trouble == []


# -- 5: before a summary -----------------------------------------------------------------------------


def test_what_was_summarised_can_be_read_and_edited(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    settings = {"compaction": {"keepRecentTokens": 1}, "retry": {"baseDelayMs": 20}}
    steps = [reply("answer one " + "x" * 400), reply("answer two"), reply("the summary")]
    steps += [reply("three", match="^question three"), reply("four", match="^question four")]
    with ServerProcess(steps, base=tmp_path) as server:
        (tmp_path / "agent" / "settings.json").write_text(json.dumps(settings))
        with Tab(browser, server) as tab:
            session = tab.session
            tab.ask("question one")
            tab.ask("question two")
            tab.click("#more")
            tab.page.get_by_role("option", name="Summarise").click()
            tab.sees("#feed", "Summarised")
            tab.settled()
            tab.ask("question three")
            tab.page.reload()
            tab.connected()
            tab.sees(".answer >> nth=-1", "three")
            assert "question one" not in tab.text()
            tab.page.get_by_role("button", name="Show the earlier conversation").click()
            tab.sees("#feed", "question one")
            tab.sees("#feed", "answer one")
            # The pencil opens the message that it stands at.
            tab.page.locator(".user", has_text="question three").hover()
            tab.page.locator(".user", has_text="question three").get_by_label("Edit").click()
            tab.holds(".edit textarea", "question three")
            tab.page.fill(".edit textarea", "question four")
            tab.page.get_by_role("button", name="Save").click()
            tab.sees(".answer >> nth=-1", "four")
            assert user_texts(server)[-1][-1] == "question four"
            assert tab.session == session
            assert tab.trouble == []


# -- 7: how things end -------------------------------------------------------------------------------


def test_a_command_shows_its_end_and_failure_is_a_mark(open_tab: Any) -> None:
    tab = open_tab(bash("for i in $(seq 99); do echo line $i; done; printf '\\033[31mno\\033[0m'; exit 3"), reply("k"))
    tab.ask("go")
    tab.sees(".tool[data-state=failed] .time", "exit 3")
    inside = tab.js(
        "(box => [box.scrollHeight > box.clientHeight, Math.abs(box.scrollTop) < 2])(document.querySelector('.tail'))"
    )
    assert inside == [True, True], "it is long, and stands at its end"
    tab.sees(".output .a-c1", "no")
    colours = "['.output', '.a-c1'].map(one => getComputedStyle(document.querySelector(one)).color)"
    assert len(set(tab.js(colours))) == 2, "only what the program made red is red"


def test_retries_count_down_in_words_and_what_failed_stays(browser: Any, tmp_path: Path) -> None:
    body = {"error": {"message": "Overloaded", "type": "overloaded_error"}}
    with ServerProcess([failure(529, body), reply("fine")], base=tmp_path) as server:
        (tmp_path / "agent" / "settings.json").write_text(json.dumps({"retry": {"baseDelayMs": 30000}}))
        with Tab(browser, server) as tab:
            tab.say("go")
            tab.sees(
                ".retry", re.compile(r"529 from mock: it is overloaded: .*\. Trying again in \d+ s \(attempt 1 of \d\)")
            )
            assert "{" not in tab.text(".retry")
            from playwright.sync_api import expect

            first = tab.text(".retry")
            expect(tab.page.locator(".retry")).not_to_have_text(first, use_inner_text=True)
            tab.click(".retry .link")
            tab.sees(".failure", "Overloaded")
            tab.settled()
            tab.click(".failure button")
            tab.sees(".answer >> nth=-1", "fine")
            assert tab.trouble == []


def test_figures_move_while_it_runs(open_tab: Any) -> None:
    tab = open_tab(bash("true"), reply("second", gate("figures")))
    tab.say("go")
    tab.server.mock.wait_gate("figures")
    tab.sees("#tokens", "10 in · 5 out")
    tab.server.mock.release("figures")
    tab.sees("#tokens", "20 in · 10 out")


def test_what_goes_wrong_again_and_again_is_said_once(open_tab: Any) -> None:
    body = {"error": {"message": 'overloaded: {"error": {"message": "come back later"}}'}}
    tab = open_tab(*[failure(529, body)] * 4)
    tab.say("go")
    tab.settled()
    tab.sees(".failure", "overloaded: come back later")
    tab.counts(".failure", 1)
    tab.counts(".retry", 0)


# -- 8: questions ------------------------------------------------------------------------------------


def test_a_question_stands_at_its_call(open_tab: Any) -> None:
    steps = [
        bash("touch once"),
        bash("touch once twice", "c2"),
        bash("touch thrice; sleep 0", "c3"),
        reply("understood"),
    ]
    tab = open_tab(*steps)
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("go")
    tab.sees(".tool .ask h3", "Allow bash?")
    tab.sees(".tool[data-state=asking] .command", "touch once")
    tab.page.wait_for_timeout(1300)
    assert tab.text(".tool .time") == "", "waiting is not running"
    tab.page.get_by_role("button", name="Always allow").first.click()
    tab.sees(".tool[data-state=asking]", "touch thrice")  # the second one fits the rule
    assert (tab.server.cwd / "twice").exists()
    tab.shows("#approval[aria-pressed=true]")
    tab.page.reload()
    tab.connected()
    tab.sees(".tool[data-state=asking] .ask", "Allow bash?")
    tab.page.fill(".reason", "use a file of your own")
    tab.click("[data-answer=no]")
    tab.sees(".answer >> nth=-1", "understood")
    assert "use a file of your own" in str(tab.server.mock.requests[-1].body["messages"][-1])
    assert not (tab.server.cwd / "thrice").exists()
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=false]")
    assert tab.trouble == []


def test_the_time_of_a_turn_does_not_run_while_a_question_waits(open_tab: Any) -> None:
    tab = open_tab(bash("true"), reply("done"))
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("go")
    tab.sees(".ask h3", "Allow bash?")
    tab.js("(now => { Date.now = () => now() + 3_600_000 })(Date.now)")  # an hour passes
    tab.page.wait_for_timeout(1200)  # the line is brought up to date each second
    quick = re.compile(r"1 tool(, [\d.]+ m?s)?")
    assert quick.fullmatch(tab.text(".turn")), tab.text(".turn")
    tab.click("[data-answer=yes]")
    tab.sees(".answer >> nth=-1", "done")
    tab.settled()
    assert quick.fullmatch(tab.text(".turn")), tab.text(".turn")


ASKING = """
def extension(agent):
    @agent.command("colour", help="Ask")
    async def colour(args, ctx):
        ctx.ui.notify("It is " + str(await ctx.ui.select("Colour?", ["red", "blue"])), "info")
"""


def test_a_question_of_an_extension_survives_a_reload(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(ASKING)
    with ServerProcess(args=["-e", str(tmp_path / "ask.py")]) as server, Tab(browser, server) as tab:
        tab.ask("hello")
        tab.say("/colour ")
        tab.sees(".ask", "Colour?")
        tab.page.reload()
        tab.connected()
        tab.page.get_by_role("button", name="blue").click()
        tab.sees(".toast", "It is blue")


# -- 9: what is written is not shown as something else -------------------------------------------------

GROWING = """
async text => {
  const { GrowingMarkdown } = await import('/page/chat/growing.js');
  const node = document.createElement('div');
  const view = new GrowingMarkdown(node);
  const seen = [];
  for (let cut = 1; cut <= text.length; cut++) {
    view.set(text.slice(0, cut), true);
    seen.push([...node.querySelectorAll('p, li, h3, h4, td, th, a, strong, em')].map(one => one.localName + ':' +
      [...one.childNodes].map(child => child.nodeType === 3 ? child.data : '').join('')).join(' '));
  }
  return [...new Set(seen)];
}
"""


def test_unfinished_marks_are_not_shown_as_something_else(open_tab: Any) -> None:
    tab = open_tab()
    text = "Some **bold words** and [a link](https://x.y/z) here\n\n- one\n- *two*\n\n"
    text += "| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd\n"
    seen = tab.js(GROWING, text)
    for marks in ("*", "[", "]", "|", "(http", "p:-", "p:1", "h3", "h4"):
        assert not [one for one in seen if marks in one], f"{marks} was shown"
    assert any("strong:bold w" in one for one in seen), "bold is bold before its end"
    code = "x = 1  # note\n" * 2000
    coloured = tab.js(
        """async text => {
          const { GrowingMarkdown } = await import('/page/chat/growing.js');
          const node = document.createElement('div');
          const view = new GrowingMarkdown(node);
          const counts = [];
          for (let cut = 4000; cut < text.length; cut += 4000) {
            view.set(text.slice(0, cut), true);
            counts.push(node.querySelectorAll('.t-comment').length);
          }
          return counts;
        }""",
        "```python\n" + code,
    )
    assert coloured == sorted(coloured) and coloured[-1] > 1500, "colours stay at any length"


def test_an_edit_is_shown_once_and_without_phantom_lines(open_tab: Any) -> None:
    edits = [{"oldText": "one\ntwo\nthree\n", "newText": "one\nTWO words\nthree\n"}]
    tab = open_tab(reply(call("edit", {"path": "f.txt", "edits": edits})), reply("k"))
    (tab.server.cwd / "f.txt").write_text("one\ntwo\nthree\nfour\n")
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("go")
    tab.shows(".tool .ask")
    for _ in ("before", "after"):
        tab.counts(".diff:visible .add", 1)
        tab.counts(".diff:visible .del", 1)
        if tab.page.locator(".ask").count():
            tab.press("Alt+y")
            tab.settled()
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=false]")
    assert tab.trouble == []


def test_what_matters_is_said_where_it_happens_and_stays(browser: Any, tmp_path: Path) -> None:
    steps = [reply(""), reply("k"), reply("blind")]
    with ServerProcess(steps, base=tmp_path) as server, Tab(browser, server) as tab:
        tab.say("go")
        tab.sees(".answer", "empty answer")
        tab.click(".answer .plain")
        tab.sees(".answer >> nth=-1", "k")
        tab.settled()
        tab.press("Alt+m")
        tab.page.get_by_role("option", name="Mock Two").click()
        tab.sees("#model", "Mock Two")
        tab.bring("paste", png())
        tab.sees("#blind", "does not see images")
        tab.ask("look")
        tab.sees(".user >> nth=-1", "Mock Two does not see images")
        # It goes by the model that answered, also after a reload and with another model.
        tab.press("Alt+m")
        tab.page.get_by_role("option", name="Mock One").click()
        tab.sees("#model", "Mock One")
        tab.page.reload()
        tab.connected()
        tab.sees(".user >> nth=-1", "Mock Two does not see images")
        assert tab.trouble == []


def test_a_message_without_a_key_comes_back_and_why_stays(browser: Any, tmp_path: Path) -> None:
    with ServerProcess(base=tmp_path) as server:
        models = tmp_path / "agent" / "models.json"
        models.write_text(re.sub(r'"apiKey": "[^"]*"', '"apiKey": "$SPINDLE_NO_SUCH_KEY"', models.read_text()))
        with Tab(browser, server, ready=False) as tab:
            tab.page.wait_for_selector("body[data-connection=open]")
            tab.page.clock.install()
            tab.say("precious words")
            tab.sees(".toast.error", re.compile("key|model", re.IGNORECASE))
            tab.holds("#prompt", "precious words")
            tab.page.clock.fast_forward(60_000)
            tab.shows(".toast.error")
            tab.context.close()  # no one else wants a page with this clock


def test_the_page_prints_whole(open_tab: Any, shared: ServerProcess, browser: Any) -> None:
    from tests.export.helpers import long_session

    tab = open_tab(reply("made"))
    tab.ask("make a file")
    (file,) = [f for f in (shared.base / "agent" / "sessions").rglob("*.jsonl") if tab.session in f.name]
    header = json.loads(file.read_text().partition("\n")[0])
    other = file.with_name(file.name.replace(header["id"], "printed"))
    lines = [{**header, "id": "printed"}, *long_session(400)]
    other.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    with Tab(browser, shared, ready=False, locale="en-GB") as long:  # a context of its own
        long.page.goto("about:blank")
        long.context.add_init_script(HOLD_EARLIER)
        long.page.goto(f"http://{shared.address}/#printed")
        long.sees(".answer >> nth=-1", "Answer 399")
        rows = "document.querySelectorAll('#feed > .row').length"
        assert long.js(rows) < 60
        # What came before the end arrives while it is being printed.
        long.js("dispatchEvent(new Event('beforeprint'))")
        long.js("letGo()")
        long.page.wait_for_function(f"() => {rows} >= 200")
        long.js("dispatchEvent(new Event('afterprint'))")
        assert long.js(rows) < 60
        assert long.trouble == []
