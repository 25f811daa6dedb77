"""Long conversations on the web page: they load from their end, rows are let go, long turns are one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)
COUNT = 6000
WATCH = """
() => {
  window.seen = [];
  const look = () => {
    if (document.body?.classList.contains('blank')) seen.push('welcome');
    if (/No model|New conversation/.test(document.querySelector('#bar, #model')?.innerText)) seen.push('no model');
    requestAnimationFrame(look);
  };
  look();
}
"""


def store(server: ServerProcess, id: str, messages: list[dict[str, Any]]) -> None:
    """Store a session where the server finds it."""
    with server.rpc() as client:
        folder = Path(client.call("get_state")["data"]["sessionFile"]).parent
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "2026-01-01T00:00:00.000Z"
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": id, "timestamp": stamp, "cwd": str(server.cwd)}
    ]
    for n, message in enumerate(messages):
        link = {"id": f"e{n}", "parentId": f"e{n - 1}" if n else None, "timestamp": stamp}
        lines.append({"type": "message", **link, "message": {"timestamp": 1, **message}})
    file = folder / f"2026-01-01T00-00-00-000Z_{id}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def talk(count: int) -> list[dict[str, Any]]:
    said = []
    for n in range(count // 2):
        text = [{"type": "text", "text": f"Answer {n}. " + "word " * (n % 40)}]
        said += [{"role": "user", "content": f"Question {n}?"}, {"role": "assistant", "content": text}]
    return [one if one["role"] == "user" else {**one, "stopReason": "stop"} for one in said]


def test_a_long_conversation_shows_its_end_before_the_rest_is_there(browser: Any, shared: ServerProcess) -> None:
    store(shared, "long", talk(COUNT))
    with Tab(browser, shared, ready=False) as tab:
        tab.page.goto("about:blank")
        asked: list[dict[str, Any]] = []

        def listen(socket: Any) -> None:
            assert "deltas=gathered" in socket.url
            socket.on("framesent", lambda frame: asked.append(json.loads(frame)))

        tab.page.on("websocket", listen)
        tab.page.add_init_script(f"({WATCH})()")
        tab.page.goto(f"http://{shared.address}/#long")
        tab.sees(".answer >> nth=-1", f"Answer {COUNT // 2 - 1}.")
        tab.sees("#title", "Question 0?")  # then the first message is here, too
        assert tab.js("seen") == []
        pages = [command for command in asked if command["type"] == "get_entries"]
        assert pages[0]["limit"] < 500 and "before" in pages[1]
        assert tab.js("document.querySelectorAll('*').length") < 2500
        tab.page.locator("#scroller").hover()
        tab.js("document.getElementById('scroller').scrollTop = 0")
        tab.sees(".user >> nth=0", "Question 0?")
        # From there to the end, and the tree knows all of it.
        tab.press("Alt+e")
        tab.sees(".answer >> nth=-1", f"Answer {COUNT // 2 - 1}.")
        tab.press("Alt+t")
        tab.shows("#tree .line:focus")
        tab.press("Home")
        tab.sees("#tree .node", "Question 0?")
        assert tab.trouble == []


def test_what_came_before_does_not_move_what_is_read(browser: Any, shared: ServerProcess) -> None:
    store(shared, "still", talk(3000))
    held: list[Any] = []
    with Tab(browser, shared, ready=False) as tab:
        tab.page.goto("about:blank")

        def route(socket: Any) -> None:
            server = socket.connect_to_server()
            # The pages before the first one wait until they are let go.
            socket.on_message(lambda frame: held.append(frame) if '"before"' in frame else server.send(frame))
            held.append(server)

        tab.page.route_web_socket("**/rpc*", route)
        tab.page.goto(f"http://{shared.address}/#still")
        tab.sees(".answer >> nth=-1", "Answer 1499.")
        tab.page.locator("#scroller").hover()
        tab.page.mouse.wheel(0, -900)
        place = "[...document.querySelectorAll('.user')].map(n => [n.innerText, n.getBoundingClientRect().top])"
        tab.page.wait_for_timeout(200)
        before = dict(tab.js(place))
        while len(held) > 1 or "New" in tab.text("#title") or not tab.text("#title"):
            for frame in held[1:]:
                held.remove(frame)
                held[0].send(frame)
            tab.page.wait_for_timeout(20)
        tab.page.wait_for_timeout(300)
        after = dict(tab.js(place))
        seen = [text for text, top in before.items() if 0 < top < 800]
        assert seen and all(abs(after[text] - before[text]) < 2 for text in seen)


def test_rows_of_this_visit_are_let_go_and_come_back(open_tab: Any) -> None:
    text = "# A heading\n\n" + "\n\n".join(f"Paragraph *{n}* with `code` and **more**." for n in range(12))
    number = 24
    tab = open_tab(*(reply(f"Answer {n}.\n\n{text}") for n in range(number)))
    for n in range(number):
        tab.say(f"question {n}")
        tab.sees(".user >> nth=-1", f"question {n}")
        tab.sees(".answer >> nth=-1", "Paragraph 11")
        tab.settled()
    assert tab.page.locator(".answer").count() < 10
    assert tab.js("document.querySelectorAll('*').length") < 1500
    tab.js("document.getElementById('scroller').scrollTop = 0")
    tab.sees(".answer >> nth=0", "Answer 0.")
    tab.press("Alt+e")
    tab.sees(".answer >> nth=-1", f"Answer {number - 1}.")


def test_steps_of_a_long_turn_are_grouped_while_it_runs(open_tab: Any) -> None:
    steps = [reply(f"Step {n}.", call("bash", {"command": f"echo {n}"}, id=f"c{n}")) for n in range(8)]
    tab = open_tab(*steps, reply("All ", gate("end"), "done."))
    tab.say("go")
    tab.server.mock.wait_gate("end")
    tab.sees(".answer >> nth=-1", "All")
    tab.sees(".turn[aria-expanded=false]", "8 tools")
    tab.counts(".answer", 5)
    assert "Step 3." not in tab.text() and "Step 4." in tab.text()
    tab.click(".turn")
    tab.counts(".answer", 9)
    tab.server.mock.release("end")
    tab.settled()
    tab.counts(".answer", 9)  # as the reader wants it
    tab.page.reload()
    tab.counts(".answer", 5)


def test_marks_of_other_conversations_go_on_after_the_tab_was_hidden(browser: Any, shared: ServerProcess) -> None:
    shared.mock.script(reply("theirs"), reply("x", gate("live"), "y"))
    hide = "Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true })"
    with shared.rpc() as client, Tab(browser, shared) as tab:
        client.call("prompt", message="theirs")
        client.wait("agent_settled")
        tab.page.clock.install()
        tab.page.reload()
        tab.connected()
        tab.shows(".session-row")
        tab.js(f"() => {{ window.away = true; {hide} }}")
        tab.page.clock.run_for(30_000)  # looks that are not taken
        client.call("prompt", message="more of theirs")
        shared.mock.wait_gate("live")
        tab.js("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')) }")
        tab.shows(".live.runs")
        shared.mock.release("live")
        client.wait("agent_settled")
