"""The changed files on the web page: made when they are looked at, steady while the agent works, and taken back."""

import subprocess
from typing import Any

import pytest

from tests.support.mock_model import Step, call, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .test_web_long import store
from .web_page import Tab

pytestmark = pytest.mark.timeout(120)
LINES = "".join(f"line {n}\n" for n in range(60))


def bash(command: str, id: str) -> Step:
    return reply(call("bash", {"command": command}, id=id))


def test_files_and_parts_of_them_are_taken_back(browser: Any, shared: ServerProcess) -> None:
    folder = shared.cwd / "taken"
    folder.mkdir()
    (folder / "a.txt").write_text(LINES)
    subprocess.run(["git", "init", "-q"], cwd=shared.cwd, check=True)
    change = "sed -i 's/line 5$/LINE 5/; s/line 50$/LINE 50/' taken/a.txt; echo new > taken/b.txt"
    shared.mock.script(bash(change, "c1"), reply("done"), reply("again"))
    with Tab(browser, shared, viewport={"width": 1920, "height": 900}) as tab:
        tab.ask("change it")
        tab.sees("#open-changes", "2")
        tab.press("Alt+d")
        tab.counts(".changed", 2)
        # There is room for two columns.
        tab.counts(".changed .diff.split", 3)
        assert tab.js("getComputedStyle(document.querySelector('.diff')).fontVariantLigatures") == "none"
        pair = "row => [...row.querySelectorAll('.half')].map(half => half.innerText.replace(/\\s+/g, ' '))"
        rows = tab.js(f"[...document.querySelector('.diff.split').children].map({pair})")
        assert ["6 line 5", "6 LINE 5"] in rows
        # The second part is taken back, the first stays.
        tab.page.locator(".hunk").nth(1).hover()
        tab.page.get_by_role("button", name="Revert these lines").nth(1).click()
        tab.sees("#confirm", "taken/a.txt")
        tab.click("#confirm .primary")
        tab.sees(".toast", "as before")
        assert (folder / "a.txt").read_text() == LINES.replace("line 5\n", "LINE 5\n")
        tab.counts(".changed .diff.split", 2)
        take_back(tab)
        tab.counts(".changed .diff.split", 3)
        assert "LINE 50" in (folder / "a.txt").read_text()
        # A whole file, and a question that is not agreed to.
        tab.page.get_by_role("button", name="Revert file").nth(1).click()
        tab.page.get_by_role("button", name="Cancel").click()
        assert (folder / "b.txt").exists()
        tab.page.get_by_role("button", name="Revert file").nth(1).click()
        tab.click("#confirm .primary")
        tab.counts(".changed", 1)
        assert not (folder / "b.txt").exists()
        # What somebody else has changed meanwhile is named before it is lost; the message goes, too.
        (folder / "a.txt").write_text("mine\n")
        tab.page.locator(".user").hover()
        tab.click(".user [aria-label^=Undo]")
        tab.sees("#confirm", "Changed by others")
        tab.click("#confirm .primary")
        tab.holds("#prompt", "change it")
        tab.shows("#welcome")
        assert (folder / "a.txt").read_text() == LINES
        take_back(tab)
        tab.sees(".answer >> nth=-1", "done")
        assert (folder / "a.txt").read_text() == "mine\n"
        assert tab.trouble == []


def take_back(tab: Tab) -> None:
    """Take the offered way back; what it would overwrite is asked first."""
    tab.page.get_by_role("button", name="Take that back").click()
    tab.sees("#confirm", "Take that back?")
    tab.click("#confirm .primary")


def test_a_way_back_ends_with_the_next_run_and_stays_in_its_conversation(browser: Any, shared: ServerProcess) -> None:
    (shared.cwd / "stale.txt").write_text(LINES)
    change = "sed -i 's/line 5$/LINE 5/' stale.txt"
    later = bash("echo newer > stale.txt", "c2")
    shared.mock.script(bash(change, "c1"), reply("done"), later, reply("newer"))
    with Tab(browser, shared, viewport={"width": 1400, "height": 900}) as tab:
        tab.ask("change it")
        tab.sees("#open-changes", "1")
        offer = tab.page.get_by_role("button", name="Take that back")

        def revert() -> None:
            tab.page.get_by_role("button", name="Revert file").first.click()
            tab.click("#confirm .primary")
            offer.wait_for()

        tab.press("Alt+d")
        revert()
        tab.ask("go on")
        tab.sees("#feed", "newer")
        assert offer.count() == 0, "newer work was overwritten by a stale offer"
        revert()
        tab.press("Alt+c")
        tab.shows("#welcome")
        assert offer.count() == 0, "it followed into another conversation"
        assert tab.trouble == []


def test_a_phone_shows_how_it_went_and_the_way_back(browser: Any, shared: ServerProcess) -> None:
    (shared.cwd / "phone.txt").write_text(LINES)
    command = {"command": "sleep 1.2; sed -i 's/line 5$/LINE 5/' phone.txt; exit 3", "background": True}
    shared.mock.script(reply(call("bash", command, id="c1")), reply("I wait."), reply("It failed."))
    with Tab(browser, shared, viewport={"width": 390, "height": 844}) as tab:
        tab.ask("change it")
        tab.sees("#feed", "It failed.")
        tab.sees("[data-call=c1] .size", "bg1 exited with code 3")
        # The mark at the end of the line is in view, and so is a part of the command.
        assert tab.js(
            "(line => line.scrollWidth <= line.clientWidth)(document.querySelector('[data-call=c1] summary'))"
        )
        assert tab.js("document.querySelector('[data-call=c1] .gist').clientWidth") > 30
        tab.sees(".summary summary", "bg1 exited with code 3")
        # What is said about a revert stands over the pane that covers all else.
        tab.click("#open-changes")
        tab.page.get_by_role("button", name="Revert file").click()
        tab.click("#confirm .primary")
        take_back(tab)
        tab.counts(".hunk", 1)
        assert "LINE 5" in (shared.cwd / "phone.txt").read_text()
        assert tab.trouble == []


def test_selection_and_focus_stay_while_the_agent_edits(browser: Any, shared: ServerProcess) -> None:
    (shared.cwd / "kept.txt").write_text(LINES)
    more = "sed -i 's/line 30$/LINE 30/' kept.txt; rm other.txt"
    shared.mock.script(
        bash("sed -i 's/line 5$/LINE 5/' kept.txt", "c1"),
        bash("sed -i 's/line 50$/LINE 50/' kept.txt; echo more > other.txt", "c2"),
        reply("so far ", gate("end"), call("bash", {"command": more}, id="c3")),
        reply("done"),
    )
    select = """
    () => {
      const row = [...document.querySelectorAll('.changed .add')].find(row => row.innerText.includes('LINE 5'));
      getSelection().selectAllChildren(row.lastChild);
      document.querySelector('.changed summary').focus();
      window.row = row;
    }
    """
    with Tab(browser, shared) as tab:
        tab.say("go")
        shared.mock.wait_gate("end")
        tab.sees("#open-changes", "2")
        tab.press("Alt+d")
        tab.counts(".hunk", 3)
        tab.js(select)
        shared.mock.release("end")
        tab.counts(".changed", 1)
        tab.counts(".hunk", 3)
        tab.settled()
        assert tab.js("getSelection().toString()") == "LINE 5"
        assert tab.js("row.isConnected && document.activeElement === document.querySelector('.changed summary')")


def test_many_changes_are_made_when_they_are_looked_at(browser: Any, shared: ServerProcess) -> None:
    """Without checkpoints the pane has what the tools told: of a long session that is much."""
    messages: list[dict[str, Any]] = []
    for n in range(1200):
        path = f"src/file{n % 300}.py"
        args = {"path": path, "edits": [{"oldText": "a", "newText": "b"}]}
        edit = {"type": "toolCall", "id": f"c{n}", "name": "edit", "arguments": args}
        result = {"toolCallId": f"c{n}", "toolName": "edit", "isError": False, "content": []}
        at = 20_000 + n
        diff = f" {at} def f():\n-{at + 1} old {n}\n+{at + 1} new {n}\n {at + 2} end"
        messages += [
            {"role": "user", "content": f"Edit {n}"},
            {"role": "assistant", "content": [edit], "stopReason": "toolUse"},
            {"role": "toolResult", **result, "details": {"diff": diff}},
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}], "stopReason": "stop"},
        ]
    store(shared, "many", messages)
    with Tab(browser, shared, session="many") as tab:
        tab.sees("#open-changes", "300")
        tab.press("Alt+d")
        tab.sees("#changes header", "+1200 −1200")
        assert tab.js("document.querySelectorAll('.changed').length") < 80
        tab.counts(".hunk", 0)
        tab.click(".changed summary")
        tab.sees(".changed[open] .hunk", "new 0")
        # Long numbers of lines have room: the texts stand below each other.
        starts = "[...document.querySelectorAll('.hunk .diff > div > span')].map(one => one.getBoundingClientRect().x)"
        assert len({round(x) for x in tab.js(starts)}) == 1
        tab.js("document.querySelector('.changed-files').scrollTop = 1e6")
        tab.sees(".changed >> nth=-1", "file299.py")
        assert tab.trouble == []
