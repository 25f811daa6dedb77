"""What surrounds the conversation on the web page: changed files, the list of conversations, files, the palette."""

import json
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.tools.replace import Edit, Lines, display_diff, find_changes, replace_texts
from tests.support.mock_model import call, gate, reply

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .test_web_panel import server_state
from .web_page import Tab, user_texts

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


def test_commands_in_the_background_are_listed(browser: Any, shared: ServerProcess) -> None:
    bash = call("bash", {"command": "until [ -e now ]; do sleep 0.05; done", "background": True})
    shared.mock.script(reply(bash), reply("I wait."), reply("It is done."))
    with Tab(browser, shared) as tab:
        tab.ask("build it")
        tab.sees("#background summary", "1")
        tab.click("#background summary")
        tab.sees("#background li", "bg1 until [ -e now ]")
        tab.sees(".tool[data-state=running] .size", "bg1 is running")
        (shared.cwd / "now").touch()
        tab.hides("#background")
        tab.sees(".tool[data-state=done] .size", re.compile(r"^bg1 exited with code 0 after [\d.]+ s$"))
        tab.sees("#feed", "It is done.")
        assert tab.trouble == []


def test_the_card_of_a_command_in_the_background_says_how_it_ended(browser: Any) -> None:
    start = [call("bash", {"command": "sleep 60", "background": True}, id=id) for id in ("a", "b")]
    with ServerProcess([reply(*start), reply(call("bash_kill", {"id": "bg1"}, id="k")), reply("ok")]) as server:
        with Tab(browser, server) as tab:
            tab.ask("run them")
            tab.sees("[data-call=a][data-state=failed] .size", re.compile(r"^bg1 was ended after [\d.]+ s$"))
            tab.sees("[data-call=b][data-state=running] .size", "bg2 is running")
            session = tab.session
            # Of one that is killed from outside, the signal is told until the model gets to know of it.
            server.mock.script(reply("noted"))
            os.killpg(server_state(server, session)["background"][0]["pid"], signal.SIGKILL)
            tab.sees(
                "[data-call=b][data-state=failed] .size",
                re.compile("^bg2 (was killed by signal 9|exited with code 137)"),
            )
            tab.sees("#feed", "noted")
            server.mock.script(reply(call("bash", {"command": "sleep 60", "background": True}, id="c")), reply("ok"))
            tab.ask("one more")
            tab.sees("[data-call=c][data-state=running] .size", "bg3 is running")
        server.process.kill()
        server.process.wait()
        with ServerProcess(base=server.base) as again, Tab(browser, again, session=session) as tab:
            tab.sees("[data-call=c][data-state=failed] .size", "bg3 has ended")
            assert tab.trouble == []


def test_changed_files_stand_together_and_turns_fold(browser: Any, shared: ServerProcess) -> None:
    edits = [{"oldText": "    return 1\n", "newText": "    return 2\n    # more\n"}]
    shared.mock.script(
        reply("First.", call("edit", {"path": "f.py", "edits": edits})),
        reply("Then.", call("write", {"path": "new/note.md", "content": "one\ntwo\n"}, id="c2")),
        reply("Both done."),
        reply("next"),
    )
    (shared.cwd / "f.py").write_text("def f():\n    return 1\n")
    with Tab(browser, shared) as tab:
        tab.ask("go")
        tab.sees("#open-changes", "2")
        tab.press("Alt+d")
        tab.sees("#changes header", "+4 −1")
        files = tab.page.locator(".changed")
        assert [one.split("\n")[0] for one in files.all_inner_texts()] == ["f.py", "new/note.md"]
        tab.sees(".changed .add mark, .changed .add .t-number", "2")
        numbers = "row => [...row.querySelectorAll('i')].map(i => i.textContent)"
        gutters = tab.js(f"[...document.querySelector('.changed .diff').children].map({numbers})")
        assert gutters == [["1", "1"], ["2", ""], ["", "2"], ["", "3"]]
        tab.press("Alt+d")
        tab.hides("#changes")
        # The newest turn is open; the one before is a line.
        tab.sees(".turn", "2 tools, 2 files")
        tab.counts(".tool", 2)
        tab.ask("and now")
        tab.counts(".tool", 0)
        tab.sees("#feed", "Both done.")
        tab.click(".turn")
        tab.counts(".tool", 2)
        tab.click(".turn")
        tab.counts(".tool", 0)
        assert tab.trouble == []
    touch: dict[str, Any] = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True}
    with Tab(browser, shared, session=tab.session, **touch) as phone:
        phone.sees(".turn", "2 tools, 2 files")
        # What a pointer would bring up by hovering is there without one.
        seen = "selector => getComputedStyle(document.querySelector(selector)).opacity"
        phone.page.tap("#open-sidebar")
        phone.shows("#sidebar")
        assert phone.js(seen, ".session-row > .quiet") == "1"
        phone.page.tap(".session-row > .quiet")
        phone.page.get_by_role("option", name="Rename").wait_for()
        phone.press("Escape")
        phone.page.tap("#close-sidebar")
        phone.hides("#sidebar")
        phone.click("#open-changes")
        phone.shows(".changed .diff")
        assert phone.js(seen, ".changed .copy") == "1"
        assert phone.js("document.documentElement.scrollWidth") == 390
        phone.press("Escape")
        phone.hides("#changes")


MERGE = """
async diffs => {
  const { MergedChanges, patchOf } = await import('/page/chat/merged-changes.js');
  const { rowsOfDiff } = await import('/page/shared/diff.js');
  const changes = new MergedChanges();
  const fits = diffs.map(diff => changes.edit(rowsOfDiff(diff), ''));
  return [fits, changes.rows(), patchOf('f', changes)];
}
"""


def test_changes_to_one_file_are_one_difference(browser: Any, shared: ServerProcess) -> None:
    """Whatever is done line by line: taking the difference from the first text gives the last."""
    chance = random.Random(5)
    with Tab(browser, shared) as tab:
        for _ in range(25):
            first = text = "".join(f"line {n}\n" for n in range(40))
            diffs = []
            for step in range(6):
                line = chance.choice(text.splitlines(keepends=True))
                new = "".join(f"new {step} {n}\n" for n in range(chance.randrange(3)))
                new = chance.choice([new, line + new, new + line, new + first.splitlines(keepends=True)[step]])
                replaced = replace_texts(text, [Edit(line, new)], "f") if new != line else None
                if replaced is None or len(set(replaced.text.splitlines())) < len(replaced.text.splitlines()):
                    continue
                lines = Lines(replaced.text)
                diffs.append(
                    display_diff(replaced.old_lines, lines, find_changes(replaced.old_lines, replaced.regions))
                )
                text = replaced.text
            fits, rows, patch = tab.js(MERGE, diffs)
            assert all(fits)
            before, after = first.splitlines(), text.splitlines()
            kept = iter([one for n, one in enumerate(before, 1) if n not in _numbers(rows, "-", "before")])
            come = _numbers(rows, "+", "after")
            assert [come[n] if n in come else next(kept) for n in range(1, len(after) + 1)] == after
            for row in rows:
                assert row["before"] in ("", 0) or before[row["before"] - 1] == row["text"]
                assert row["after"] in ("", 0) or after[row["after"] - 1] == row["text"]
            assert _patched(before, patch) == after


def _numbers(rows: list[dict[str, Any]], sign: str, key: str) -> dict[int, str]:
    return {row[key]: row["text"] for row in rows if row["sign"] == sign}


def _patched(lines: list[str], patch: str) -> list[str]:
    """Do to the lines what a unified diff says."""
    made, at = [], 0
    for line in patch.splitlines()[2:]:
        if hunk := re.match(r"@@ -(\d+),(\d+) ", line):
            start = int(hunk[1]) - (hunk[2] != "0")
            made += lines[at:start]
            at = start
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert lines[at] == line[1:]
            made += lines[at : at + 1] if line[0] == " " else []
            at += 1
    return made + lines[at:]


def test_a_file_that_was_changed_often_is_shown_once(browser: Any, shared: ServerProcess) -> None:
    def edit(old: str, new: str, id: str, path: str = "often.py") -> Any:
        return call("edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}, id=id)

    shared.mock.script(
        reply(call("write", {"path": "fresh.py", "content": "a = 1\nb = 2\n"}, id="w1")),
        reply(edit("b = 2", "b = 3", "w2", "./fresh.py")),
        reply(edit("two", "2", "e1")),
        reply(edit("six", "6", "e2", str(shared.cwd / "often.py"))),
        reply(edit("2", "zwei", "e3")),
        reply(call("bash", {"command": "printf 'all is\nother\n' > often.py"}, id="e4")),
        reply(edit("other", "different", "e5")),
        reply("done"),
    )
    (shared.cwd / "often.py").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    with Tab(browser, shared) as tab:
        tab.ask("go")
        tab.sees("#open-changes", "2")
        tab.press("Alt+d")
        tab.sees("#changes header", "+4 −7")
        tab.sees("#changes", "different")  # the counts were the same before the last edit
        signs = "[...document.querySelectorAll('.changed .diff > div')].filter(row => row.className)"
        assert tab.js(f"{signs}.map(row => row.querySelector('b').textContent + row.lastChild.textContent)") == [
            "+a = 1", "+b = 3", *(f"-{word}" for word in ["one", "two", "three", "four", "five", "six", "seven"]),
            "+all is", "+different",
        ]  # fmt: skip
        assert tab.page.locator(".changed .aside:visible").all_inner_texts() == ["added"]


def test_conversations_are_found_renamed_pinned_and_deleted(browser: Any, shared: ServerProcess) -> None:
    shared.mock.script(reply("The answer mentions a wombat."), reply("plain"), reply("busy", gate("live"), "!"))
    with Tab(browser, shared) as tab:
        tab.ask("about animals")
        first = tab.session
        tab.press("Alt+c")
        tab.shows("#welcome")
        tab.ask("about plants")
        second = tab.session
        tab.press("Alt+f")
        tab.page.keyboard.type("wombat")
        tab.counts(".session", 1)
        tab.sees(".session small", "mentions a wombat")
        tab.page.fill("#session-search", "")

        def pick(session: str, action: str) -> None:
            row = tab.page.locator(".session-row", has=tab.page.locator(f"[href='#{session}']"))
            row.hover()
            row.locator("button").click()
            tab.page.get_by_role("option", name=action, exact=True).click()

        pick(first, "Rename")
        tab.page.fill("#sessions .rename", "Beasts <b>")
        tab.press("Enter")
        tab.sees(f".session[href='#{first}']", "Beasts <b>")
        pick(first, "Pin")
        tab.sees("#sessions h2", "Pinned")
        assert tab.page.locator(".session").first.get_attribute("href") == f"#{first}"
        # From the keyboard.
        tab.page.focus(f".session[href='#{first}']")
        tab.press("ArrowDown")
        assert tab.js("document.activeElement.className") == "session"
        assert tab.js("document.activeElement.getAttribute('href')") != f"#{first}"
        pick(first, "Delete")
        tab.sees("#confirm", "gone for good")
        tab.page.get_by_role("button", name="Delete", exact=True).click()
        tab.counts(f".session[href='#{first}']", 0)
        assert not [file for file in (shared.base / "agent" / "sessions").rglob("*.jsonl") if first in file.name]
        assert tab.session == second
        # What runs is marked.
        tab.say("work")
        shared.mock.wait_gate("live")
        tab.shows(f".session-row:has([href='#{second}']) .live.runs")
        shared.mock.release("live")
        tab.settled()
        tab.hides(f".session-row:has([href='#{second}']) .live.runs")
        pick(second, "Delete")
        tab.page.get_by_role("button", name="Delete", exact=True).click()
        tab.shows("#welcome")
        assert tab.session != second
        assert tab.trouble == []


def test_a_key_takes_what_fits_though_the_list_is_of_a_moment_ago(browser: Any, shared: ServerProcess) -> None:
    for name in ("quay.md", "quill.md"):
        (shared.cwd / name).write_text("x")
    with Tab(browser, shared) as tab:
        tab.page.locator("#prompt").press_sequentially("look at @qu")
        tab.sees("#completions", "quay.md")
        tab.sees("#completions", "quill.md")
        tab.js(
            "() => { const { send } = WebSocket.prototype; WebSocket.prototype.send = function (data) {"
            " if (!String(data).includes('complete_path')) send.call(this, data); } }"
        )
        for typed, taken in (("il", "quill.md "), (" @qua", "@qua")):
            tab.page.locator("#prompt").press_sequentially(typed)
            tab.press("Tab")
            assert tab.page.locator("#prompt").input_value().endswith(taken)


def test_files_come_along_and_are_completed(browser: Any, shared: ServerProcess, tmp_path: Path) -> None:
    shared.mock.script(reply("seen"))
    (shared.cwd / "docs").mkdir(exist_ok=True)
    (shared.cwd / "docs" / "guide to.md").write_text("x")
    (shared.cwd / "docs" / "manual.md").write_text("x")
    (tmp_path / "../data;rm.bin").resolve().write_bytes(b"\0\1\2")
    with Tab(browser, shared) as tab:
        tab.page.set_input_files("#files", [str((tmp_path / "../data;rm.bin").resolve())])
        tab.sees("#attachments .file", "data;rm.bin")
        tab.page.locator("#prompt").press_sequentially("look at @manu")
        tab.sees("#completions", "docs/manual.md")
        assert tab.js("document.getElementById('prompt').getAttribute('aria-activedescendant')") == "completion-0"
        tab.press("Tab")
        tab.holds("#prompt", "look at @docs/manual.md ")
        tab.press("Enter")
        tab.sees(".answer", "seen")
        said = user_texts(shared)[-1][-1]
        assert said.startswith("look at @docs/manual.md")
        path = Path(said.partition("Attached file: ")[2].strip())
        assert path.read_bytes() == b"\0\1\2" and path.name == "data_rm.bin"
        # What was said is there again, step by step.
        tab.settled()
        tab.ask("second")
        tab.press("ArrowUp")
        tab.holds("#prompt", "second")
        tab.press("ArrowUp")
        assert str(tab.page.input_value("#prompt")).startswith("look at")
        tab.press("ArrowDown")
        tab.press("ArrowDown")
        tab.holds("#prompt", "")
        assert tab.trouble == []


def test_the_palette_the_phone_and_the_clipboard(browser: Any, shared: ServerProcess) -> None:
    shared.mock.script(reply("**bold** answer"))
    with Tab(browser, shared, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.ask("a question")
        tab.press("Control+k")
        tab.page.keyboard.type("markdown")
        tab.press("Enter")
        tab.sees(".toast", "on the clipboard")
        text = tab.js("navigator.clipboard.readText()")
        assert text == "## User\n\na question\n\n## Assistant\n\n**bold** answer"
        tab.press("Control+k")
        tab.page.keyboard.type("phone")
        tab.press("Enter")
        tab.shows("#share .qr path")
        tab.sees("#share code", f"http://{shared.address}/")
        tab.press("Escape")
        manifest = tab.js("fetch(document.querySelector('[rel=manifest]').href).then(r => r.json())")
        assert manifest["start_url"] == "../../../"
        assert tab.trouble == []


def test_the_second_visit_loads_nothing(browser: Any, shared: ServerProcess) -> None:
    with Tab(browser, shared) as tab:
        loaded = "performance.getEntriesByType('resource').map(one => [one.name, one.transferSize])"
        first = tab.js(loaded)
        assert len(first) > 10, "in a checkout they are modules"
        assert sum(size for _, size in first) < 110_000 + 300 * len(first), "compressed; 300 bytes are headers"
        assert not [name for name, _ in first if name.endswith(("setup.js", "work.js", "find.js"))], "not wanted yet"
        tab.page.goto("about:blank")
        tab.page.goto(f"http://{shared.address}/")
        tab.connected()
        assert [name for name, size in tab.js(loaded) if size and "/healthz" not in name] == []


def test_marks_in_the_title_and_notices_of_the_system(browser: Any, shared: ServerProcess) -> None:
    shared.mock.script(reply("busy", gate("title"), " and done"))
    with Tab(browser, shared, permissions=["notifications"]) as tab:
        tab.js(
            "() => { window.told = []; window.Notification = class { static permission = 'granted';"
            " static requestPermission() { return Promise.resolve('granted'); }"
            " constructor(title, { body }) { told.push([title, body]); } };"
            " Object.defineProperty(document, 'hidden', { get: () => window.away === true }); }"
        )
        tab.click("#more")
        tab.page.get_by_role("option", name="Notify me").click()
        tab.say("go")
        shared.mock.wait_gate("title")
        tab.titled("● ")
        tab.js("() => { window.away = true }")
        shared.mock.release("title")
        tab.settled()
        tab.titled("✓ ")
        assert [json.dumps(one) for one in tab.js("told")] == ['["Done \\u2013 Spindle", "busy and done"]']
        tab.js("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')) }")
        tab.titled("go ")


def test_a_subagent_is_a_closed_card_with_a_line(browser: Any, shared: ServerProcess) -> None:
    shared.mock.script(
        reply(call("task", {"agent": "explore", "prompt": "look at\na.txt"}, id="t1")),
        reply(call("read", {"path": "a.txt"}, id="r1")),
        reply(gate("subagent"), "It is **short**."),
        reply("All done."),
    )
    (shared.cwd / "a.txt").write_text("one")
    with Tab(browser, shared) as tab:
        tab.say("go")
        tab.sees(".tool summary", "explore: look at a.txt")
        tab.sees(".tool summary .size", "explore: 1 call, thinking")
        shared.mock.release("subagent")
        tab.sees("#feed", "All done.")
        tab.sees(".tool summary .size", "1 call · ")
        assert not tab.js("document.querySelector('.tool').open")
        tab.counts(".tool", 1)
        tab.click(".tool summary")
        tab.sees(".tool-output", "It is short.")
