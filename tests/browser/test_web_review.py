"""Reviewing what was changed: comments on lines, the truth after commands and other programs, a commit."""

import subprocess
from typing import Any

import pytest

from tests.support.mock_model import call, reply

from .web_page import Tab, user_texts

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def changed(open_tab: Any, shared: Any) -> Tab:
    """A conversation that has changed a file, with the changes open."""
    git = ["git", "-C", str(shared.cwd), "-c", "user.name=a", "-c", "user.email=a@b"]
    if not (shared.cwd / ".git").exists():
        subprocess.run([*git, "init", "-q"], check=True)
        for key, value in (("user.name", "a"), ("user.email", "a@b")):
            subprocess.run([*git, "config", key, value], check=True)
    (shared.cwd / "main.py").write_text("one\ntwo\nthree\n")
    edit = call("edit", {"path": "main.py", "edits": [{"oldText": "two", "newText": "second"}]})
    tab: Tab = open_tab(reply(edit), reply("done"), reply("thanks"))
    tab.ask("go")
    tab.press("Alt+d")
    tab.sees(".changed-row", "main.py")
    return tab


def test_comments_go_along_with_the_next_message(changed: Tab) -> None:
    tab = changed
    tab.page.locator(".hunk .diff .add", has_text="second").click()
    tab.page.fill(".comment-form textarea", "say 2nd")
    tab.press("Enter")
    tab.sees("#comments", "1 comment on the changes")
    tab.sees(".hunk .comment", "say 2nd")
    tab.page.locator(".hunk").first.hover()
    tab.page.get_by_role("button", name="Comment on these lines, from 2").click()
    tab.page.fill(".comment-form textarea", "why?")
    tab.page.get_by_role("button", name="Keep for the next message").click()
    tab.sees("#comments", "2 comments")
    tab.page.reload()
    tab.connected()
    tab.sees("#comments", "2 comments")
    tab.page.get_by_label("Remove the comment").nth(1).click()
    tab.say("please")
    tab.sees(".answer >> nth=-1", "thanks")
    said = user_texts(tab.server)[-1][-1]
    assert said == "please\n\nComments on the changes:\n\nmain.py:2\n> second\nsay 2nd"
    tab.hides("#comments")
    tab.counts(".hunk .comment", 0)
    assert tab.trouble == []


def test_on_a_phone_the_pane_makes_room_for_the_command(open_tab: Any, shared: Any) -> None:
    write = call("write", {"path": "small.txt", "content": "x\n"})
    tab: Tab = open_tab(reply(write), reply("done"), viewport={"width": 390, "height": 800}, has_touch=True)
    tab.page.fill("#prompt", "go")
    tab.page.tap("#send")
    tab.page.tap("#open-changes")
    tab.page.get_by_role("button", name="Commit…").tap()
    tab.hides("#changes")
    assert "git commit" in tab.page.input_value("#prompt")
    assert (
        tab.js("document.elementFromPoint(195, document.getElementById('prompt').getBoundingClientRect().y + 5).id")
        == "prompt"
    )
    (shared.cwd / "small.txt").unlink()
    assert tab.trouble == []


def test_the_changes_are_true_after_commands_and_other_programs(changed: Tab) -> None:
    tab = changed
    tab.say("!echo shell > by-shell.txt")
    tab.sees("#changes", "by-shell.txt")
    (tab.server.cwd / "outside.txt").write_text("from elsewhere\n")
    tab.sees("#changes", "outside.txt")  # while it is open, it looks again by itself
    (tab.server.cwd / "main.py").write_text("one\ntwo\nthree\n")
    tab.counts(".changed-row", 2)
    assert "main.py" not in tab.text("#changes")
    for name in ("by-shell.txt", "outside.txt"):
        (tab.server.cwd / name).unlink()
    assert tab.trouble == []


def test_a_command_as_the_very_first_thing_is_among_the_changes(open_tab: Any, shared: Any) -> None:
    tab: Tab = open_tab(reply("hello"))
    tab.say("!echo first > very-first.txt")
    tab.sees("#open-changes", "1")
    tab.press("Alt+d")
    tab.sees(".changed-row", "very-first.txt")
    tab.press("Alt+b")
    tab.click("#tab-checkpoints")
    tab.sees("#folder", "Before your first command")
    (shared.cwd / "very-first.txt").unlink()
    assert tab.trouble == []


def test_a_commit_of_what_was_reviewed_is_offered(changed: Tab) -> None:
    tab = changed
    (tab.server.cwd / "it's new.txt").write_text("x\n")
    tab.sees("#changes", "it's new.txt")
    tab.page.get_by_role("button", name="Commit…").click()
    tab.holds(
        "#prompt", "!git add -A -- 'it'\\''s new.txt' main.py && git commit -m \"\" -- 'it'\\''s new.txt' main.py"
    )
    tab.type("")
    tab.page.locator(".changed-row", has_text="main.py").get_by_label("Reviewed").check()
    tab.page.get_by_role("button", name="Commit…").click()
    tab.page.keyboard.type("Say second")  # the cursor stands between the quotes
    tab.press("Enter")
    tab.sees("#feed", "Say second")
    tab.page.wait_for_selector("body:not(.running)")
    log = ["git", "-C", str(tab.server.cwd), "log", "--name-only", "--format=%s"]
    tab.sees("#feed", "1 file changed")
    assert subprocess.run(log, capture_output=True, text=True).stdout.split() == ["Say", "second", "main.py"]
    assert tab.trouble == []
