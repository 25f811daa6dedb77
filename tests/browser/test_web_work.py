"""One view of all that runs: conversations, questions, subagents and commands, each to be read and stopped."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import postgres
from tests.support.mock_model import call, gate, reply

from .web_page import Tab

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

pytestmark = pytest.mark.timeout(120)

TASKS = [call("task", {"prompt": f"look into {name}"}, f"t{name}") for name in ("alpha", "beta", "gamma")]
SERVE = "echo ready; while sleep 0.2; do date +tick-%N; done"


def test_three_subagents_and_two_commands_are_seen_and_stopped(open_tab: Any, shared: Any) -> None:
    commands = [call("bash", {"command": f"# {n}\n{SERVE}", "background": True}, f"b{n}") for n in (1, 2)]
    tab: Tab = open_tab(
        reply(*commands, *TASKS),
        *(reply("I look", gate(name), match=f"look into {name}") for name in ("alpha", "beta", "gamma")),
        reply("all done"),
    )
    with shared.rpc(f"?session={tab.session}") as other:
        other.call("set_session_name", name="The busy one")
    tab.say("go")
    for name in ("alpha", "beta", "gamma"):
        shared.mock.wait_gate(name)
    tab.sees("#open-work", "1")
    tab.press("Alt+w")
    section = tab.page.locator("#work section", has_text="The busy one")
    tab.counts("#work .hand", 5)
    assert section.get_by_text("look into beta").count() == 1
    # What a command writes arrives while it writes.
    section.locator(".hand", has_text="# 1").locator("summary").click()
    tab.sees("#work .hand[open] pre", "tick-")
    before = tab.text("#work .hand[open] pre")
    tab.page.wait_for_timeout(50)
    tab.js(
        "async before => { for (let n = 0; n < 200 && "
        "document.querySelector('#work .hand[open] pre').textContent === before; n++) "
        "await new Promise(done => setTimeout(done, 50)); }",
        before,
    )
    assert len(tab.text("#work .hand[open] pre")) > len(before)
    section.locator(".hand-row", has_text="# 1").get_by_role("button", name="Kill").click()
    tab.counts("#work .hand", 4)
    # A subagent is read, and stopped; the others go on.
    section.locator(".hand", has_text="look into alpha").locator("summary").click()
    tab.sees("#work .hand[open] pre", "look into alpha")
    section.locator(".hand-row", has_text="look into alpha").get_by_role("button", name="Stop").click()
    tab.counts("#work .hand", 3)
    for name in ("beta", "gamma"):
        shared.mock.release(name)
    shared.mock.release("alpha")
    tab.counts("#work .hand", 1)
    section.get_by_role("button", name="Kill").click()
    tab.counts("#work .hand", 0)
    assert tab.trouble == []


def test_a_question_of_another_conversation_is_answered_on_a_phone(open_tab: Any, shared: Any) -> None:
    tab: Tab = open_tab(
        reply(call("write", {"path": "asked.txt", "content": "x\n"})),
        reply("done"),
        viewport={"width": 390, "height": 800},
        is_mobile=True,
        has_touch=True,
    )
    with shared.rpc() as other:
        assert other.call("set_permissions", mode="default")["success"]
        assert other.call("set_session_name", name="Elsewhere")["success"]
        other.call("prompt", message="write it")
        other.wait("permission_request")
        tab.sees("#open-work", "1")
        tab.page.tap("#open-work")  # the first tap
        section = "#work section:has-text('Elsewhere')"
        tab.sees(section, "waits for an answer")
        tab.sees(f"{section} .ask", "asked.txt")
        tab.page.locator(section).get_by_role("button", name="Allow", exact=True).tap()  # the second
        other.wait("agent_settled")
        tab.counts(f"{section} .ask", 0)
    assert (shared.cwd / "asked.txt").read_text() == "x\n"
    assert tab.trouble == []


def test_what_runs_elsewhere_is_stopped(open_tab: Any, shared: Any) -> None:
    tab: Tab = open_tab(reply("slow", gate("elsewhere"), "!"))
    with shared.rpc() as other:
        other.call("set_session_name", name="The slow one")
        other.call("prompt", message="go on")
        shared.mock.wait_gate("elsewhere")
        tab.press("Alt+w")
        section = tab.page.locator("#work section", has_text="The slow one")
        section.wait_for()
        # It says that it does not know for as long as that is so.
        tab.context.set_offline(True)
        tab.sees("#work [role=alert]", "Not connected")
        tab.context.set_offline(False)
        tab.connected()
        tab.hides("#work [role=alert]")
        tab.trouble.clear()  # the browser told of the network
        section.get_by_role("button", name="Stop").click()
        assert other.wait("agent_settled")["aborted"] is True
    shared.mock.release("elsewhere")
    assert tab.trouble == []


def test_what_another_server_goes_on_with_is_shown_as_it_is(browser: Any, tmp_path: Path) -> None:
    """The events go on by number: the call that ran is told of by its result alone, and the question by nothing."""
    env, options = {"SPINDLE_STORE": postgres.database(), "SPINDLE_LEASE_SECONDS": "1"}, ["--recover"]
    steps = [
        reply(call("bash", {"command": "echo begun; sleep 60"}), match="run it"),
        reply(call("write", {"path": "asked.txt", "content": "x"}), match="write it"),
    ]
    with (
        ServerProcess(steps, args=options, env=env, base=tmp_path) as first,
        Tab(browser, first) as running,
        Tab(browser, first) as asking,
    ):
        assert running.session != asking.session
        with first.rpc(f"?session={asking.session}") as other:
            assert other.call("set_approval", tools=True)["success"]
        running.say("run it")
        running.sees(".tool .output", "begun")
        asking.say("write it")
        asking.sees(".ask h3", "Allow write?")
        first.process.kill()
        first.process.wait()
        with ServerProcess([reply("gone on")], args=options, env=env, base=tmp_path, address=first.address) as second:
            for tab in (running, asking):
                tab.sees(".answer >> nth=-1", "gone on")
                tab.sees(".tool", "it may have taken effect")
                tab.counts(".tool[data-state=failed]", 1)
                tab.counts(".ask", 0)
            assert not (second.cwd / "asked.txt").exists()
