"""What was typed on the web page and not sent yet: no break, reload, other tab or new server takes it away."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .web_page import Tab, png, user_texts

pytestmark = pytest.mark.timeout(120)
# The connection breaks with the next prompt (or another command): before it is sent, or right after.
BREAK = """
(sends, kind = 'prompt') => {
  const { send } = WebSocket.prototype;
  window.breakNow = () => dispatchEvent(new Event('offline'));
  WebSocket.prototype.send = function (frame) {
    if (JSON.parse(frame).type !== kind) return send.call(this, frame);
    WebSocket.prototype.send = send;
    if (sends) send.call(this, frame);
    if (sends) breakNow();
  };
}
"""
BREAK_AT = f"kind => ({BREAK})(true, kind)"


@pytest.mark.parametrize("open_all_the_time", [True, False])
def test_a_draft_outlives_the_conversation_it_was_meant_for(
    browser: Any, tmp_path: Path, open_all_the_time: bool
) -> None:
    """Nothing was said yet, so a server that is started again knows nothing of it."""
    with ServerProcess(base=tmp_path) as server, Tab(browser, server) as tab:
        tab.type("a long draft")
        before = tab.session
        if not open_all_the_time:
            tab.page.goto("about:blank")
        server.stop()
        with ServerProcess(base=tmp_path, address=server.address):
            if not open_all_the_time:
                tab.page.goto(f"http://{server.address}/#{before}")
            tab.sees(".toast", "not here any more")
            tab.connected()
            assert tab.session != before
            tab.holds("#prompt", "a long draft")
            tab.page.reload()
            tab.connected()
            tab.holds("#prompt", "a long draft")


def test_half_an_answer_stays_and_what_was_typed_is_offered_again(browser: Any, tmp_path: Path) -> None:
    steps = [reply("Half of **an** answer, ", gate("never"), "the rest")]
    with ServerProcess(steps, base=tmp_path) as server, Tab(browser, server) as tab:
        tab.say("tell me")
        tab.shows(".answer strong")
        server.process.kill()
        server.process.wait(5)
        tab.shows("#banner")
        tab.say("typed while away")
        tab.sees(".toast", "Not connected")
        tab.holds("#prompt", "typed while away")
        with ServerProcess([reply("there")], base=tmp_path, address=server.address) as again:
            tab.sees(".answer", "Half of an answer,")
            tab.sees(".answer .aside", "The server ended here")
            tab.sees(".toast", "was not sent")
            tab.counts(".toast", 1)
            tab.page.reload()  # the tab has kept it
            tab.sees(".answer", "Half of an answer,")
            tab.holds("#prompt", "typed while away")
            tab.press("Enter")
            tab.sees(".answer >> nth=-1", "there")
            assert user_texts(again)[-1] == ["tell me", "typed while away"]


def test_what_could_not_be_sent_stands_before_what_was_written_since(open_tab: Any) -> None:
    tab = open_tab(reply("hello"), reply("done"))
    tab.ask("hi")
    tab.js(BREAK, False)
    tab.say("first thought")
    tab.type("second thought")
    tab.js("breakNow()")
    tab.holds("#prompt", "first thought\n\nsecond thought")
    tab.hides("#banner")
    tab.say(tab.page.input_value("#prompt"))
    tab.sees(".answer >> nth=-1", "done")
    assert user_texts(tab.server)[-1][-1] == "first thought\n\nsecond thought"


def test_what_could_not_be_sent_goes_back_to_its_conversation(open_tab: Any) -> None:
    tab = open_tab(reply("hello"), reply("other"))
    tab.ask("hi")
    first = tab.session
    tab.js(BREAK, False)
    tab.say("meant for the first")
    tab.press("Alt+c")
    tab.shows("#welcome")
    assert tab.page.input_value("#prompt") == ""
    tab.js("breakNow()")
    tab.hides("#banner")
    assert tab.page.input_value("#prompt") == ""
    tab.js("id => location.hash = '#' + id", first)
    tab.sees(".answer", "hello")
    tab.holds("#prompt", "meant for the first")


def test_a_message_that_has_arrived_is_not_offered_again(open_tab: Any) -> None:
    tab = open_tab(reply("hello"), reply("once"), reply("twice"))
    tab.ask("hi")
    tab.js(BREAK, True)
    tab.say("say it once")
    tab.sees(".answer >> nth=-1", "once")
    tab.holds("#prompt", "")
    tab.settled()
    tab.counts(".user", 2)


def test_an_edit_outlives_what_others_do_and_a_reload(open_tab: Any) -> None:
    one = open_tab(reply("one"), reply("two"), reply("three"))
    one.ask("first")
    two = open_tab(session=one.session)
    one.edit()
    one.page.locator(".edit textarea").press_sequentially(", but longer")
    one.page.keyboard.press("Home")
    # Another client goes on, and comes back to the same place: the page is built again.
    two.ask("second")
    two.press("Alt+t")
    two.page.locator("#tree .line", has_text="one").click()
    two.counts(".user", 1)
    one.counts(".user", 1)
    one.holds(".edit textarea", "first, but longer")
    one.page.keyboard.type("At ")
    one.holds(".edit textarea", "At first, but longer")
    one.page.reload()
    one.connected()
    one.holds(".edit textarea", "At first, but longer")
    one.page.get_by_role("button", name="Save").click()
    one.sees(".answer", "three")
    assert one.text(".bubble") == "At first, but longer"
    one.page.reload()
    one.connected()
    one.counts(".edit", 0)


def test_an_edit_that_is_not_accepted_is_kept(open_tab: Any) -> None:
    tab = open_tab(reply("one"), reply("two"))
    tab.ask("first")
    tab.edit("better")
    tab.js(BREAK, False)
    tab.page.get_by_role("button", name="Save").click()
    tab.counts(".user", 0)
    tab.js("breakNow()")
    tab.holds("#prompt", "better")


def test_an_edit_outlives_a_break_wherever_it_comes(open_tab: Any) -> None:
    """While the place is changed, while that is fetched, and while the message is sent."""
    tab = open_tab()
    for kind in ("navigate_tree", "get_state", "prompt"):
        tab.server.mock.script(reply("one"), reply("two"))
        tab.ask("first")
        tab.edit("better")
        tab.js(BREAK_AT, kind)
        tab.page.get_by_role("button", name="Save").click()
        if kind == "prompt":
            tab.sees(".answer", "two")  # it had arrived
            assert user_texts(tab.server)[-1] == ["better"]
        else:
            tab.holds("#prompt", "better")
        tab.connected()
        tab.begin()


def test_what_is_attached_outlives_a_reload_and_goes_when_it_is_sent(open_tab: Any) -> None:
    tab = open_tab(reply("hello"), reply("other"), reply("seen"))
    tab.ask("hi")
    tab.bring("paste", png())
    tab.counts("#attachments img", 1)
    first = tab.session
    tab.page.reload()
    tab.connected()
    tab.counts("#attachments img", 1)
    # It belongs to its conversation.
    tab.press("Alt+c")
    tab.shows("#welcome")
    tab.counts("#attachments img", 0)
    tab.page.reload()
    tab.connected()
    tab.counts("#attachments img", 0)
    tab.ask("something else")
    tab.js("id => location.hash = '#' + id", first)
    tab.counts("#attachments img", 1)
    tab.ask("look at this")
    assert len(tab.server.mock.requests[-1].body["messages"][-1]["content"]) == 2
    tab.counts("#attachments img", 0)
    tab.page.reload()
    tab.connected()
    tab.counts(".user", 2)
    assert tab.page.locator("#attachments img").count() == 0
    # What was taken away is gone, too.
    tab.bring("drop", png())
    tab.counts("#attachments img", 1)
    tab.click("#attachments [aria-label='Remove image']")
    tab.counts("#attachments img", 0)
    tab.page.reload()
    tab.connected()
    tab.counts(".user", 2)
    assert tab.page.locator("#attachments img").count() == 0


def test_a_file_that_cannot_be_brought_is_told_of(open_tab: Any, tmp_path: Path) -> None:
    """Also if it is the first one, and what reads files is not here yet."""
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    tab = open_tab(reply("hello"))
    tab.ask("hi")
    tab.context.set_offline(True)
    tab.sees("#banner", "Connection lost")
    tab.page.set_input_files("#files", str(notes))
    tab.sees(".toast", "Not connected: notes.txt was not added")
    tab.context.set_offline(False)
    tab.connected()
    tab.page.set_input_files("#files", str(notes))
    tab.sees("#attachments", "notes.txt")
    tab.context.set_offline(True)
    tab.sees("#banner", "Connection lost")
    tab.click(".toast [aria-label=Dismiss]")
    tab.page.set_input_files("#files", str(notes))
    tab.sees(".toast", "Not connected: notes.txt was not added")
    tab.context.set_offline(False)


def test_half_an_answer_to_a_question_outlives_a_reload(open_tab: Any) -> None:
    tab = open_tab(reply(call("bash", {"command": "echo 1"})), reply("as you like"))
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("go")
    tab.page.locator(".ask .reason").press_sequentially("rather not, ")
    tab.page.reload()
    tab.connected()
    tab.holds(".ask .reason", "rather not, ")
    tab.page.get_by_role("button", name="Edit…").click()
    tab.page.get_by_label("Input of the call").fill("echo 2")
    tab.page.reload()
    tab.connected()
    tab.holds(".ask .editing textarea", "echo 2")
    tab.context.set_offline(True)
    tab.press("Alt+n")
    tab.sees(".ask [role=alert]", "Not connected")
    tab.context.set_offline(False)
    tab.connected()
    tab.hides(".ask [role=alert]")
    tab.page.locator(".ask .reason").press("End")
    tab.page.keyboard.type("thanks")
    tab.press("Enter")
    tab.sees(".answer >> nth=-1", "as you like")
    assert "rather not, thanks" in str(tab.server.mock.requests[-1].body["messages"][-1])


def test_a_waiting_message_that_goes_out_while_it_is_changed(open_tab: Any) -> None:
    tab = open_tab(reply("first", gate("unsent"), "!"), reply("k"))
    tab.say("start")
    tab.server.mock.wait_gate("unsent")
    tab.type("and then", "Alt+Enter")
    tab.click(".queued [aria-label='Edit this message']")
    tab.page.fill(".queued textarea", "and then the rest")
    tab.server.mock.release("unsent")
    tab.holds("#prompt", "and then the rest")
    tab.sees(".toast", "as it was")
    tab.settled()
    assert user_texts(tab.server)[-1][-1] == "and then"
