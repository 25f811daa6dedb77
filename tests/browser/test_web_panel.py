"""What the server says on the web page, finding in a conversation, names and files of conversations."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .web_page import Tab, png, user_texts

pytestmark = pytest.mark.timeout(120)


def test_the_session_panel_shows_what_the_server_says(browser: Any) -> None:
    steps = [reply(call("bash", {"command": "rm -rf build"}, id="c0")), reply("I may not.")]
    with ServerProcess(steps, args=["--deny", "Bash(rm *)", "--allow", "Nothing(x)"]) as server:
        with server.rpc() as other:
            session = other.ready["sessionId"]
            servers = {"gone": {"command": "/no/such/program"}}
            other.call("set_mcp_servers", servers=servers)
        with Tab(browser, server, session=session) as tab:
            tab.ask("clean up")
            tab.sees("#toasts", "hold for no tool that there is: Nothing(x)")
            tab.shows("#open-panel.marked")
            tab.press("Alt+i")
            tab.sees("#panel .refused", "Refused: bash rm -rf build")
            tab.sees("#panel .refused", "refused by rule Bash(rm *)")
            tab.sees("#panel", "These permission rules hold for no tool that there is: Nothing(x)")
            tab.sees("#panel .deny + span", "Bash(rm *)command line")
            tab.sees("#panel", 'MCP server "gone": cannot be started')
            tab.sees("#panel li.bad", "gone")
            tab.sees("#panel .facts-list", "Written10 tokens")
            tab.sees("#panel .folded", re.compile(r"\d+ tools"))
            # A mode and a level are chosen with the keyboard, which stays there.
            tab.page.locator("#panel [value=bypass]").focus()
            tab.press("ArrowDown")
            tab.sees("#mode", "Ask")
            assert tab.js("document.activeElement.value") == "default"
            assert server_state(server, session)["permissionMode"] == "default"
            tab.page.locator("#panel [value=read-only]").click()
            level = tab.page.locator("#panel [name=Sandbox]:checked")
            if server_state(server, session)["sandbox"]["level"] == "off":  # no Landlock here: the reason is told
                tab.sees(".toast.error", "andbox")
                assert level.input_value() == "off"
            else:
                tab.sees("#mode", "Ask · Read only")
                tab.sees("#panel", "Holds here")
            # What was told is there after a reload, and the way to the call.
            tab.page.reload()
            tab.connected()
            tab.click("#open-panel")
            tab.page.get_by_role("button", name="Show the call").click()
            tab.shows("[data-call=c0]")
            tab.press("Escape")
            assert tab.trouble == []


def server_state(server: ServerProcess, session: str) -> dict[str, Any]:
    with server.rpc(f"?session={session}") as other:
        state: dict[str, Any] = other.call("get_state")["data"]
        return state


def test_always_offers_what_people_mean(open_tab: Any) -> None:
    tab = open_tab(
        reply(*(call("read", {"path": path}, id=path) for path in ("sub/a", "b"))),
        reply(call("write", {"path": "sub/c", "content": "x"}, id="c")),
        reply("done"),
    )
    (tab.server.cwd / "sub").mkdir()
    for path in ("sub/a", "b"):
        (tab.server.cwd / path).write_text("text")
    tab.press("Alt+a")
    tab.say("read them")
    tab.page.get_by_role("button", name=re.compile("Always allow reading in the working directory Read.*[)]$")).click()
    tab.page.get_by_role(
        "button", name="Always allow edits in sub Edit(./sub/**)", exact=True
    ).click()  # b was not asked about
    tab.sees(".answer >> nth=-1", "done")
    tab.press("Alt+i")
    tab.sees("#panel", "Edit(./sub/**)")
    rules = tab.page.locator("#panel .tag.allow + span code")
    assert rules.all_inner_texts() == ["Read(./**)", "Edit(./sub/**)"]


def test_find_reaches_all_that_was_said(browser: Any, shared: ServerProcess) -> None:
    (shared.cwd / "long.txt").write_text("\n".join(f"row {n}{' Koala' if n == 90 else ''}" for n in range(120)))
    steps = []
    for n in range(24):
        steps += [reply(call("read" if n == 2 else "ls", {"path": "long.txt" if n == 2 else "."}, id=f"c{n}"))]
        steps += [reply(f"Answer {n}. " + "word " * 150 + ("The koala, the koala." if n == 12 else ""))]
    shared.mock.script(*steps)
    with shared.rpc() as other:
        session = other.ready["sessionId"]
        for n in range(24):
            other.call("prompt", message=f"question {n}")
            other.wait(lambda frame: frame.get("type") == "agent_settled")
    with Tab(browser, shared, session=session) as tab:
        tab.press("Control+f")
        tab.page.keyboard.type("KOALA")
        tab.sees("#find-count", "3 of 3")  # nothing below: the last one
        shows_hit(tab, "koala")
        tab.press("Enter")
        tab.sees("#find-count", "1 of 3")
        tab.shows("[data-call=c2][open]")  # folded away before: its turn, and its card
        shows_hit(tab, "Koala")
        tab.press("Shift+Enter")
        tab.sees("#find-count", "3 of 3")
        tab.page.fill("#find-text", "wombat")
        tab.sees("#find-count", "Nothing found")
        tab.press("Escape")
        tab.hides("#find")
        # From another conversation, through the search of the sidebar, with the keyboard.
        tab.begin()
        tab.press("Alt+f")
        tab.page.keyboard.type("koala row")
        tab.sees(".session small", "row")
        tab.press("ArrowDown")
        tab.press("Enter")
        tab.page.wait_for_url(lambda url: url.endswith(session))
        tab.sees("#find-count", "1 of 3")
        tab.shows("[data-call=c2][open]")
        assert tab.page.input_value("#find-text") == "koala"
        assert tab.trouble == []


def shows_hit(tab: Tab, text: str) -> None:
    """Wait until the hit is marked, and in view: its number is told before its row is there."""
    tab.page.wait_for_function(
        """text => {
          const [hit] = CSS.highlights.get('find-now') ?? [];
          const box = hit?.getBoundingClientRect();
          return hit?.toString() === text && box.bottom > 90 && box.top < innerHeight - 120;
        }""",
        arg=text,
    )


def test_files_are_chips_and_conversations_have_names(browser: Any, tmp_path: Path) -> None:
    answers = [reply("seen", finish="length"), reply("more"), reply("Feeding wombats"), reply("again")]
    with ServerProcess(answers, model={"input": ["text"]}) as server, Tab(browser, server) as tab:
        (tmp_path / "notes v2.txt").write_text("x")
        tab.page.set_input_files("#files", [str(tmp_path / "notes v2.txt")])
        tab.sees("#attachments .file", "notes v2.txt")
        tab.bring("paste", png(40, 30))
        tab.sees("#blind", "Mock One does not see images")
        tab.ask("Feed the wombat. It is hungry.")
        assert "Attached file: /" in user_texts(server)[-1][-1]
        tab.sees(".bubble .file", "notes v2.txt")
        assert "Attached" not in tab.text(".bubble") and "uploads" not in tab.text("body")
        assert tab.text("#title") == "Feed the wombat"
        assert tab.js("document.querySelector('.bubble img').getBoundingClientRect().width") <= 96
        # An answer that was cut goes on; the model has one name; the other conversation keeps its file.
        tab.sees(".answer .facts", "Mock One · 5 tokens")
        tab.page.get_by_role("button", name="Continue").click()
        tab.sees(".answer >> nth=-1", "more")
        assert user_texts(server)[-1][-1] == "Continue where you stopped."
        tab.click("#more")
        tab.page.get_by_role("option", name="Let the model name it").click()
        tab.sees("#title", "Feeding wombats")
        with tab.page.expect_download() as download:
            tab.click("#more")
            tab.page.get_by_role("option", name="Export as a page").click()
        assert download.value.suggested_filename == "Feeding-wombats.html"
        tab.edit("Feed it twice.")
        tab.page.get_by_role("button", name="Save").click()
        tab.sees(".answer >> nth=-1", "again")
        said = user_texts(server)[-1][-1]
        assert said.startswith("Feed it twice.") and "Attached file: /" in said
        assert tab.trouble == []


def test_one_stop_of_the_tab_key_for_each_row(open_tab: Any) -> None:
    tab = open_tab(reply("one"))
    tab.ask("first")
    stops = "[...document.querySelectorAll('.user, .answer, .session-row')].map(row =>"
    stops += " [...row.querySelectorAll('button, a')].filter(one => one.tabIndex >= 0).length)"
    assert set(tab.js(stops)) == {1}
    tab.page.locator(".answer .actions button").first.focus()
    tab.press("ArrowRight")
    assert tab.js("document.activeElement.title") == "Regenerate"
    tab.page.locator(".session").first.focus()
    tab.press("ArrowRight")
    tab.press("Enter")
    delete = tab.page.get_by_role("option", name="Delete")
    assert delete.evaluate("node => getComputedStyle(node.firstChild).color") != delete.evaluate(
        "node => getComputedStyle(document.body).color"
    )
    tab.press("Escape")


def test_subagents_at_work_are_listed(open_tab: Any) -> None:
    tab = open_tab(
        reply(call("task", {"agent": "explore", "prompt": "look around"}, id="t1")),
        reply(call("ls", {"path": "."}, id="l1")),
        reply(gate("explorer"), "All seen."),
        reply("done"),
    )
    tab.say("go")
    tab.sees("#background summary", "1")
    tab.click("#background summary")
    tab.sees("#background li", "explore: look around")
    tab.sees("#background li small", "1 call")
    tab.server.mock.release("explorer")
    tab.sees(".answer >> nth=-1", "done")
    tab.hides("#background")


HOLD = """
() => {
  window.held = {};
  for (const [name, selector] of Object.entries({
    queued: '.queued .queued-text', todo: '#todos li', background: '#background li', fact: '#panel dt',
  })) held[name] = document.querySelector(selector);
}
"""


def test_focus_and_selection_stay_where_the_page_is_updated(open_tab: Any) -> None:
    """Queue, plan, background, panel and banner are brought up to date around what the reader does there."""
    plan, done = (
        [{"name": "Plan", "tasks": [{"content": "dig", "status": status}, {"content": "fill", "status": "pending"}]}]
        for status in ("in_progress", "completed")
    )
    sleep = {"command": "until [ -e over ]; do sleep 0.05; done", "background": True}
    tab = open_tab(
        reply(call("bash", sleep, id="b1")),
        reply("so far", gate("held"), call("todo_write", {"ops": [{"op": "replace", "phases": done}]}, id="t2")),
        reply("end", gate("last")),
        reply("k"),
        reply("k"),
    )
    with tab.server.rpc(f"?session={tab.session}") as other:
        other.call("set_todos", phases=plan)
    tab.say("go")
    tab.server.mock.wait_gate("held")
    for text in ("alpha", "beta"):
        tab.page.fill("#prompt", text)
        tab.press("Alt+Enter")
    tab.counts(".queued", 2)
    tab.press("Alt+i")
    tab.click("#todos summary")
    tab.click("#background summary")
    tab.sees("#background li", "bg1")
    tab.js(HOLD)
    # The keyboard is at a button of the queue while a message is added, and another one is edited.
    tab.page.locator(".queued >> nth=1").get_by_role("button", name="Send it now").focus()
    tab.js("getSelection().selectAllChildren(held.queued)")
    with tab.server.rpc(f"?session={tab.session}") as other:
        other.call("prompt", message="gamma", streamingBehavior="followUp")
    tab.counts(".queued", 3)
    assert tab.js("getSelection().toString()") == "alpha"
    assert tab.js("document.activeElement.closest('.queued').innerText").split() == ["then", "beta"]
    # A message is written over while the others come and go.
    tab.click(".queued [aria-label='Edit this message']", 1)
    tab.page.fill(".queued textarea", "better")
    with tab.server.rpc(f"?session={tab.session}") as other:
        queued = other.call("get_state")["data"]["queueItems"]
        other.call("remove_queued", queuedId=queued[0]["id"])
    tab.counts(".queued", 2)
    assert tab.js("document.activeElement.value") == "better"
    tab.press("Enter")
    tab.sees(".queued >> nth=0", "better")
    # The plan goes on, figures change, a command ends: what is there already is not built again.
    tab.page.get_by_role("button", name="Summarise older messages").focus()
    tab.server.mock.release("held")
    tab.server.mock.wait_gate("last")
    tab.shows("#todos li.completed")
    assert tab.js("document.activeElement.innerText") == "Summarise older messages"
    assert tab.js("held.todo.isConnected && held.fact.isConnected && held.background.isConnected")
    (tab.server.cwd / "over").touch()
    tab.hides("#background")
    tab.sees("[data-call=b1] .size", "bg1 exited with code 0")
    tab.server.mock.release("last")
    tab.settled()
    assert tab.trouble == []


def test_users_see_who_they_are_and_what_is_fixed(browser: Any, tmp_path: Any) -> None:
    from tests.wires.server.test_team import Team

    from .web_page import Tab

    users = {"anna": {"runsPerDay": 5, "permissionMode": "acceptEdits"}}
    with Team(tmp_path, users) as server, Tab(browser, server, ready=False, locale="en-ZA") as tab:
        tab.page.fill("#sign-in input", server.tokens["anna"])
        tab.page.press("#sign-in input", "Enter")
        tab.connected()
        tab.press("Alt+i")
        tab.sees("#panel", "0 of 5 runs today")
        tab.sees("#panel", "Fixed by the operator")
        assert tab.page.get_by_role("radio", name="Bypass").is_disabled()
        assert tab.page.get_by_role("radio", name="Accept edits").is_enabled()
        tab.counts("#panel .link:has-text('Change rules')", 0)
