"""The tree on the web page: a map of the whole conversation, and a line per message, however many there are."""

from typing import Any

import pytest

from tests.support.mock_model import gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)


def divide(tab: Tab) -> None:
    """Make a conversation with two branches after the first answer; the second one is shown."""
    tab.ask("first")
    tab.ask("second")
    tab.press("Alt+t")
    tab.counts("#tree .node", 4)
    tab.click("#tree .line", 1)
    tab.counts(".user", 1)
    tab.ask("second, differently")
    tab.counts("#tree .node", 6)


def at(tab: Tab) -> str:
    return tab.text(".map-at")


def test_the_map_shows_the_branches_and_leads_there(open_tab: Any) -> None:
    tab = open_tab(reply("answer one"), reply("answer two"), reply("another two"), reply("slow", gate("map"), "!"))
    divide(tab)
    assert at(tab) == "another two", "where the conversation is"
    here, ring = (tab.js(f"document.querySelector('.map .{name}').getAttribute('cx')") for name in ("here", "ring"))
    assert here == ring
    # The way that is shown goes straight down, the other one stands beside it.
    assert tab.js("document.querySelector('.map path.way').getAttribute('d').match(/[A-Z]/g).join('')") == "MV"
    assert tab.js("document.querySelector('.map path.other').getAttribute('d').match(/C/g).length") == 1
    tab.page.locator(".tree-map").focus()
    walk = [("ArrowUp", "second, differently"), ("ArrowUp", "answer one"), ("ArrowDown", "second, differently")]
    walk += [("ArrowRight", "second"), ("ArrowDown", "answer two"), ("ArrowLeft", "another two"), ("Home", "first")]
    for key, words in walk:
        tab.press(key)
        assert at(tab) == words, key
    for key in ("End", "ArrowRight", "Enter"):
        tab.press(key)
    tab.sees(".answer >> nth=-1", "answer two")
    assert at(tab) == "answer two"
    # The pointer says what it is over, and goes there.
    box = tab.page.locator(".map").bounding_box()
    first = [box["x"] + 9, box["y"] + 9]
    tab.page.mouse.move(*first)
    assert at(tab) == "first"
    tab.page.mouse.move(0, 0)
    assert at(tab) == "answer two"
    # What runs is not stopped without a question.
    tab.say("go on")
    tab.server.mock.wait_gate("map")
    tab.sees(".map-at", "go on")
    tab.page.mouse.click(*first)
    tab.sees("#confirm h2", "Stop what is running?")
    tab.page.get_by_role("button", name="Cancel").click()
    tab.server.mock.release("map")
    tab.settled()
    tab.counts(".user", 3)
    assert tab.trouble == []


def test_a_finger_points_first(open_tab: Any) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}
    tab = open_tab(reply("answer one"), reply("answer two"), **phone)
    tab.type("first")
    tab.page.tap("#send")
    tab.sees(".answer", "answer one")
    tab.settled()
    tab.page.tap("#open-sidebar")
    tab.page.tap("#tab-tree")
    tab.sees(".map-at", "answer one")
    box = tab.page.locator(".map").bounding_box()
    tab.page.touchscreen.tap(box["x"] + 9, box["y"] + 9)
    tab.sees(".map-at", "first")
    tab.counts(".user", 1)
    tab.page.touchscreen.tap(box["x"] + 9, box["y"] + 9)
    tab.counts(".user", 0)
    tab.holds("#prompt", "first")


def test_a_click_on_a_line_is_not_lost_when_the_tree_is_shown_again(open_tab: Any) -> None:
    tab = open_tab(reply("answer one"), reply("answer two"))
    tab.ask("first")
    tab.ask("second")
    tab.press("Alt+t")
    tab.page.locator("#tree .line", has_text="answer one").hover()
    tab.page.mouse.down()
    with tab.server.rpc(f"?session={tab.session}") as other:
        entries = other.call("get_entries")["data"]["entries"]
        last = [entry for entry in entries if entry["type"] == "message"][-1]
        other.call("set_label", entryId=last["id"], label="the end")
        tab.sees("#tree .tag", "the end")
    tab.page.mouse.up()
    tab.counts(".user", 1)


# Earlier entries are asked for only after `letGo`.
HOLD_EARLIER = """
const { send } = WebSocket.prototype;
const held = [];
let free = false;
globalThis.letGo = () => { free = true; for (const one of held) one(); };
WebSocket.prototype.send = function (data) {
  if (free || !String(data).includes('"before"')) send.call(this, data);
  else held.push(() => send.call(this, data));
};
"""


def long_conversation(shared: Any) -> str:
    from spindle.sessions.open import create

    kept = create(shared.cwd, shared.agent_dir / "sessions" / f"--{str(shared.cwd)[1:].replace('/', '-')}--")
    for i in range(2500):
        said = {"role": "user", "content": f"question {i}", "timestamp": i}
        kept.append_message(said)
        answer = {"role": "assistant", "content": [{"type": "text", "text": f"answer {i}"}], "timestamp": i}
        kept.append_message({**answer, "stopReason": "stop", "usage": {}, "api": "x", "provider": "p", "model": "m"})
    kept.close()
    return str(kept.id)


def test_the_first_line_keeps_the_focus_while_earlier_ones_arrive(open_tab: Any, shared: Any) -> None:
    tab = open_tab(locale="en-GB")  # a context of its own
    tab.page.goto("about:blank")
    tab.context.add_init_script(HOLD_EARLIER)
    tab.page.goto(f"http://{shared.address}/#{long_conversation(shared)}")
    tab.sees(".answer >> nth=-1", "answer 2499")
    tab.press("Alt+t")
    tab.sees("#tree .current", "answer 2499")
    tab.press("Home")
    tab.shows("#tree .line:focus")
    assert tab.text("#tree .line:focus") != "question 0", "it is not here yet"
    tab.js("letGo()")
    tab.sees("#tree .line:focus", "question 0")
    tab.press("ArrowDown")
    tab.sees("#tree .line:focus", "answer 0")
    assert tab.trouble == []


def test_thousands_of_entries(open_tab: Any, shared: Any) -> None:
    tab = open_tab(session=long_conversation(shared))
    tab.sees(".answer >> nth=-1", "answer 2499")
    tab.press("Alt+t")
    tab.sees(".map-at", "answer 2499")
    assert tab.page.locator("#tree *").count() < 1500, "only the lines in sight are in the document"
    assert tab.page.locator(".map *").count() < 10
    assert tab.js("document.querySelector('.map').getBoundingClientRect().height") <= 168
    tab.sees("#tree .current", "answer 2499")
    # The keys reach every line, and every message on the map.
    tab.press("Home")
    tab.sees("#tree .line:focus", "question 0")
    tab.press("End")
    tab.press("ArrowUp")
    tab.sees("#tree .line:focus", "question 2499")
    tab.page.locator(".tree-map").focus()
    tab.press("ArrowUp")
    assert at(tab) == "question 2499"
    box = tab.page.locator(".map").bounding_box()
    tab.page.mouse.move(box["x"] + 9, box["y"] + box["height"] / 2)
    assert abs(int(at(tab).split()[1]) - 1250) < 40
    assert tab.trouble == []
