"""Files beside the talk: a tree, a viewer, paths that are links, and the states of files, compared and restored."""

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import Step, call, gate, reply

from .web_page import Tab, png

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

pytestmark = pytest.mark.timeout(120)

CODE = "".join(f"def f{n}():\n    return {n}\n" for n in range(200))
FOCUSED = "document.activeElement.querySelector('bdi')?.textContent ?? document.activeElement.innerText"
AT_MARK = """
async wanted => {
  let found = 'no mark';
  for (let n = 0; n < 200 && found !== wanted; n++) {
    await new Promise(requestAnimationFrame);
    const mark = document.querySelector('.file-mark:not([hidden])');
    if (!mark) continue;
    const [at, box] = [mark, mark.closest('.file-body')].map(one => one.getBoundingClientRect());
    found = 'out of sight';
    if (at.top < box.top || at.bottom > box.bottom) continue;
    const numbers = document.querySelector('.numbers').getBoundingClientRect();
    const { offsetNode, offset } = document.caretPositionFromPoint(numbers.right - 14, at.top + 10);
    if (!offsetNode.data) continue; // it is not laid out yet
    const from = offsetNode.data.lastIndexOf('\\n', offset - 1) + 1;
    found = offsetNode.data.slice(from, offsetNode.data.indexOf('\\n', from));
  }
  return found;
}
"""


def bash(command: str, id: str) -> Step:
    return reply(call("bash", {"command": command}, id=id))


def entry(tab: Tab, name: str) -> Any:
    return tab.page.locator(".entry").filter(has=tab.page.locator("bdi", has_text=re.compile(f"^{re.escape(name)}$")))


def at_line(tab: Tab, number: str) -> None:
    """Wait until the line is marked and in view."""
    assert tab.js(AT_MARK, number) == number


def test_the_tree_and_the_viewer_are_gone_through_with_keys(open_tab: Any, shared: Any) -> None:
    folder: Path = shared.cwd / "look"
    (folder / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "deep" / "code.py").write_text(CODE)
    (folder / ".env").write_text("KEY=hush")
    (folder / "alpha\u202etxt.exe").write_bytes(b"\0" * 2000)
    (folder / "shot.bin").write_bytes(base64.b64decode(png(40, 30)))
    (folder / "huge.log").write_text("".join(f"line {n} of a log\n" for n in range(1, 150_001)))
    (folder / "wide.json").write_text("[" + ",".join(["12345678"] * 90_000) + "]")
    os.mkfifo(folder / "pipe")
    tab: Tab = open_tab(viewport={"width": 1440, "height": 900})
    with shared.rpc(f"?session={tab.session}") as wire:
        assert wire.call("set_permissions", deny=["Read(.env)"])["success"]
    tab.press("Alt+b")
    tab.shows("#folder .entry:focus")
    # Each folder is listed when it is opened; one line is a stop of the Tab key.
    tab.press("l")  # the name is typed
    assert tab.js(FOCUSED) == "look"
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        tab.press(key)
        tab.page.wait_for_selector("[role=tree]:not([aria-busy=true])")
        entry(tab, "deep").wait_for()
    assert tab.js(FOCUSED) == "empty"
    tab.press("Enter")
    tab.sees(".folder-tree", "Nothing in it")
    tab.press("Home")
    assert tab.js("document.querySelectorAll('.entry[tabindex=\"0\"]').length") == 1
    entry(tab, "deep").click()
    entry(tab, "code.py").focus()
    tab.press("Enter")
    tab.sees(".file-view header", "look/deep/code.py")
    tab.sees(".file-view .t-word", "def")
    assert tab.js(FOCUSED) == "code.py", "who goes through the tree stays there"
    assert entry(tab, "code.py").get_attribute("aria-level") == "3"
    tab.press("ArrowLeft")
    assert tab.js(FOCUSED) == "deep"
    # A line is gone to, and marked.
    tab.page.focus(".file-body")
    tab.press("g")
    tab.page.keyboard.type("300")
    tab.press("Enter")
    at_line(tab, "300")
    # What is no text, what is too much at once, and what cannot be opened.
    entry(tab, "shot.bin").click()
    tab.shows(".file-image img")
    entry(tab, "alpha\ufffdtxt.exe").click()
    tab.sees(".file-body", "no text: 2.0 KB")
    entry(tab, "huge.log").click()
    tab.sees(".file-body > p", "Show more: 2.0 MB")
    tab.page.fill(".file-view input", "140000")
    tab.press("Enter")
    tab.sees(".file-body > p", "From the beginning")
    at_line(tab, "140000")
    tab.page.get_by_role("button", name="From the beginning").click()
    tab.sees(".file-lines .chunk", "1\n2\n3")
    more = tab.page.get_by_role("button", name="Show more")
    for left in ("942 KB", ""):
        more.click()
        tab.sees(".file-body > p", left) if left else more.wait_for(state="hidden")
    tab.page.fill(".file-view input", "150000")
    tab.press("Enter")
    at_line(tab, "150000")
    entry(tab, "wide.json").click()
    tab.shows(".file-lines.long")
    assert tab.js("(body => body.scrollWidth <= body.clientWidth)(document.querySelector('.file-body'))")
    for name, why in ((".env", "the agent may not read it"), ("pipe", "neither a file nor a folder")):
        assert entry(tab, name).get_attribute("aria-disabled") == "true"
        tab.sees(".folder-tree", why)
        entry(tab, name).click(force=True)
    tab.sees(".file-view header", "wide.json")
    # What changes is shown anew, in its place.
    entry(tab, "code.py").click()
    tab.sees(".file-view .t-word", "def")
    tab.say("!echo '# the end' >> look/deep/code.py; rm look/pipe")
    tab.sees(".file-view .t-comment", "the end")
    entry(tab, "pipe").wait_for(state="detached")
    tab.page.focus(".file-body")
    tab.press("Escape")
    tab.hides("#folder")
    assert tab.trouble == []


def test_paths_are_links_where_there_is_such_a_file(open_tab: Any, shared: Any) -> None:
    folder: Path = shared.cwd / "linked"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text(CODE)
    (folder / "my_own_file.py").write_text(CODE)
    (folder / "My notes.md").write_text("# Notes\n")
    (folder / "Makefile").write_text("all:\n")
    said = (
        "`linked/src/app.py:120-130` and linked/src/app.py(7), **linked/src/app.py#L9**. See `linked/My notes.md`, "
        f"({folder}/Makefile), linked/later.txt, linked/src, no/such.py, https://example.com/linked/Makefile, e.g. 1.5 "
        "and/or [this](linked/Makefile), linked/my_own_file.py.\n\n```\nlinked/Makefile\n```\n"
    )
    tab: Tab = open_tab(
        reply(call("read", {"path": "linked/src/app.py", "offset": 50, "limit": 2}, "r1")),
        bash("grep -n 'def f30' linked/src/app.py; echo linked/src/app.py:61", "b1"),
        reply(said),
        bash("touch linked/later.txt", "b2"),
        reply("It is there."),
        viewport={"width": 1440, "height": 900},
    )
    found = "[...document.querySelectorAll('.md .path-link')].map(one => `${one.dataset.path}|${one.dataset.line}`)"
    tab.ask("look")
    tab.counts(".md .path-link", 7)
    app, note, make = "linked/src/app.py", "linked/My notes.md", "linked/Makefile"
    expected = [
        f"{app}|120",
        f"{app}|7",
        f"{app}|9",
        f"{note}|0",
        f"{folder}/Makefile|0",
        f"{make}|0",
        "linked/my_own_file.py|0",
    ]
    assert tab.js(found) == expected
    tab.page.locator(".path-link", has_text="#L9").click()
    tab.sees(".file-view header", app)
    at_line(tab, "9")
    assert entry(tab, "app.py").get_attribute("aria-selected") == "true", "the tree has opened the folders to it"
    tab.press("Escape")
    tab.hides("#folder")
    # The line of a call leads to the file, and the card stays as it is; so does its output, and the keys.
    card = tab.page.locator("[data-call=r1]")
    was = card.get_attribute("open")
    card.locator(".gist .path-link").click()
    at_line(tab, "50")
    assert card.get_attribute("open") == was
    tab.page.locator("[data-call=b1] pre.output .path-link").click()
    at_line(tab, "61")
    tab.press("Escape")
    # A file that is made later becomes a link then.
    tab.ask("make it")
    tab.counts(".md .path-link", 8)
    assert "linked/later.txt|0" in tab.js(found)
    assert tab.trouble == []


def test_states_are_compared_and_restored_on_a_phone(open_tab: Any, shared: Any) -> None:
    folder: Path = shared.cwd / "states"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    tab: Tab = open_tab(
        bash("echo two > states/a.txt; echo new > states/b.txt", "c1"),
        reply("first"),
        bash("echo three > states/a.txt", "c2"),
        reply("second"),
        viewport={"width": 390, "height": 844},
    )
    tab.ask("change it")
    tab.ask("change it again")
    tab.page.locator("#more").click()
    tab.page.get_by_role("option", name="Checkpoints").click()
    tab.sees(".time-line li", "Before “change it again”", 1)
    tab.sees(".time-line li", "Before “change it”", 2)
    # Two states that are both past, whichever is chosen first.
    tab.page.get_by_role("radio", name=re.compile("Compare from: Before “change it again”")).check()
    tab.page.get_by_role("radio", name=re.compile("Compare to: Before “change it”")).check()
    tab.page.locator(".see").click()
    tab.counts(".compared", 2)
    tab.page.locator(".compared summary", has_text="a.txt").click()
    tab.sees(".compared[open] .diff .add", "two")
    tab.page.locator("#folder .back").click()
    # What somebody else has done is named before it is lost, and comes back.
    (folder / "a.txt").write_text("mine\n")
    tab.page.get_by_role("button", name=re.compile("^Restore… Before “change it”")).click()
    tab.sees("#confirm", "Changed by others, which would be lost")
    tab.sees("#confirm", "states/a.txt")
    tab.page.locator("#confirm .primary").click()
    tab.sees(".toast", "The files are as of")
    assert (folder / "a.txt").read_text() == "one\n" and not (folder / "b.txt").exists()
    tab.sees(".time-line li", "Before going back to: Before “change it”", 1)
    tab.page.get_by_role("button", name="Take that back").click()
    tab.sees("#confirm", "Take that back?")
    tab.page.locator("#confirm .primary").click()
    tab.sees(".toast", "It was taken back")
    assert (folder / "a.txt").read_text() == "mine\n" and (folder / "b.txt").read_text() == "new\n"
    # One file alone.
    tab.page.get_by_role("radio", name=re.compile("Compare from: Before “change it”")).check()
    tab.page.get_by_role("radio", name="Compare to: Now").check()
    tab.page.locator(".see").click()
    tab.page.locator(".compared summary", has_text="b.txt").click()
    tab.page.get_by_role("button", name="Restore… states/b.txt").click()
    tab.page.locator("#confirm .primary").click()
    tab.sees(".toast", "states/b.txt is as of")
    assert (folder / "a.txt").read_text() == "mine\n" and not (folder / "b.txt").exists()
    assert tab.trouble == []


def test_what_is_taken_back_can_be_taken_back(open_tab: Any, shared: Any) -> None:
    folder: Path = shared.cwd / "back"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    tab: Tab = open_tab(
        reply("I have looked."),
        bash("echo two > back/a.txt", "c1"),
        reply("changed"),
        reply("slow", gate("theirs"), " end"),
    )
    tab.ask("look")
    tab.ask("change it")
    # A message that wrote nothing itself: what came after it is undone, files and conversation, and both come back.
    tab.page.locator(".user").first.hover()
    tab.click(".user [aria-label^=Undo]")
    tab.click("#confirm .primary")
    tab.holds("#prompt", "look")
    tab.shows("#welcome")
    assert (folder / "a.txt").read_text() == "one\n"
    tab.page.get_by_role("button", name="Take that back").click()
    # What changes while the question stands is asked about again.
    tab.sees("#confirm[open]", "Take that back?")
    tab.sees("#confirm[open]", "back/a.txt")
    (folder / "a.txt").write_text("mine\n")
    tab.click("#confirm .primary")
    tab.sees("#confirm", "Something has changed since you were asked.")
    tab.sees("#confirm", "Changed by others")
    assert (folder / "a.txt").read_text() == "mine\n"
    tab.click("#confirm .primary")
    tab.sees(".answer >> nth=-1", "changed")
    tab.counts(".user", 2)
    assert (folder / "a.txt").read_text() == "two\n"
    # A run that another client begins ends the offer, too.
    offer = tab.page.get_by_role("button", name="Take that back")
    offer.wait_for()
    with shared.rpc(f"?session={tab.session}") as other:
        other.call("prompt", message="go on")
        shared.mock.wait_gate("theirs")
        offer.wait_for(state="detached")
        shared.mock.release("theirs")
        other.wait("agent_settled")
    tab.settled()
    assert tab.trouble == []
