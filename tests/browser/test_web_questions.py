"""Questions about tool calls on the page: the change is seen before the yes, and the input can be changed."""

from typing import Any

import pytest

from tests.support.mock_model import call, reply
from tests.wires.server.test_owner import code_of

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

OLD = "".join(f"line {number}\n" for number in range(1, 101))
NEW = "".join(f"{'changed' if 20 < number <= 80 else 'line'} {number}\n" for number in range(1, 101))


def asking(tab: Any, mode: str = "default") -> None:
    with tab.server.rpc(f"?session={tab.session}") as other:
        assert other.call("set_permissions", mode=mode)["success"]


def test_a_change_is_seen_before_it_is_made(open_tab: Any, tmp_path: Any) -> None:
    edits = [{"oldText": OLD[OLD.index("line 21\n") : OLD.index("line 81\n")], "newText": "changed\n" * 60}]
    tab = open_tab(reply(call("edit", {"path": "main.py", "edits": edits})), reply("done"))
    file = tab.server.cwd / "main.py"
    file.write_text(OLD)
    asking(tab)
    tab.say("go")
    tab.sees(".tool[data-state=asking] .ask h3", "Allow edit?")
    tab.sees(".ask .place", "+60 −60")
    rows = tab.page.locator(".ask .question .diff > div")
    assert rows.count() >= 128 and file.read_text() == OLD
    assert tab.js("(n => n.scrollHeight > n.clientHeight)(document.querySelector('.ask .question'))"), "it scrolls"
    tab.page.screenshot(path=tmp_path / "edit.png")
    tab.page.get_by_role("button", name="Edit…").click()
    field = tab.page.get_by_label("New text")
    tab.page.screenshot(path=tmp_path / "input.png")
    field.fill("other\n")
    tab.page.get_by_role("button", name="Allow with this input").click()
    tab.sees(".answer >> nth=-1", "done")
    assert "line 20\nother\nline 81\n" in file.read_text() and "changed" not in file.read_text()
    assert tab.trouble == []


def test_a_command_says_where_it_runs_and_a_no_may_stop_the_run(open_tab: Any, tmp_path: Any) -> None:
    tab = open_tab(reply(call("bash", {"command": "cd sub && $x > out | tee log"})), reply("never"))
    asking(tab)
    tab.say("go")
    tab.sees(".ask h3", "Allow bash?")
    tab.sees(".ask .about", f"in {tab.server.cwd} · no sandbox · the command cannot be checked")
    tab.page.screenshot(path=tmp_path / "command.png")
    tab.page.fill(".reason", "not in sub")
    tab.page.get_by_role("button", name="Deny and stop").click()
    tab.settled()
    assert len(tab.server.mock.requests) == 1
    assert tab.trouble == []


def test_a_rule_for_all_sessions_wants_the_code(open_tab: Any) -> None:
    tab = open_tab(reply(call("bash", {"command": "touch a"})), reply("done"))
    asking(tab)
    tab.say("go")
    tab.page.get_by_role("button", name="(in all sessions)").first.click()
    tab.shows("#confirm .code-field")
    tab.page.keyboard.press("Escape")
    tab.sees(".ask [role=alert]", "Nothing was changed")
    tab.page.get_by_role("button", name="(in all sessions)").first.click()
    tab.page.fill("#confirm .code-field", code_of(tab.server))
    tab.page.press("#confirm .code-field", "Enter")
    tab.sees(".answer >> nth=-1", "done")
    assert '"Bash(touch' in (tab.server.agent_dir / "settings.json").read_text()
    assert tab.trouble == []


def test_the_input_of_other_tools_is_edited_as_json(open_tab: Any) -> None:
    tab = open_tab(reply(call("read", {"path": "a"})), reply("done"))
    (tab.server.cwd / "b").write_text("of b")
    asking(tab)
    with tab.server.rpc(f"?session={tab.session}") as other:
        assert other.call("set_approval", tools=True)["success"]
    tab.say("go")
    tab.page.get_by_role("button", name="Edit…").click()
    field = tab.page.get_by_label("Input of the call")
    field.fill("{")
    tab.page.get_by_role("button", name="Allow with this input").click()
    tab.sees(".ask [role=alert]", "This is no JSON")
    field.fill('{"path": "b"}')
    tab.page.get_by_role("button", name="Allow with this input").click()
    tab.sees(".answer >> nth=-1", "done")
    assert "of b" in str(tab.server.mock.requests[-1].body)
    assert tab.trouble == []


def test_another_client_may_be_quicker(open_tab: Any) -> None:
    tab = open_tab(reply(call("write", {"path": "a", "content": "x"})), reply("done"))
    asking(tab)
    with tab.server.rpc(f"?session={tab.session}") as other:
        tab.say("go")
        tab.sees(".ask h3", "Allow write?")
        question = other.wait("permission_request")
        assert other.call("answer_permission", question=question["id"], behavior="allow")["success"]
        tab.sees(".answer >> nth=-1", "done")
        tab.counts(".ask", 0)
    assert tab.trouble == []


def test_a_change_is_allowed_part_by_part(open_tab: Any) -> None:
    edits = [{"oldText": f"line {n}\n", "newText": f"part {n}\n"} for n in (3, 40, 90)]
    tab = open_tab(reply(call("edit", {"path": "parts.py", "edits": edits})), reply("done"))
    file = tab.server.cwd / "parts.py"
    file.write_text(OLD)
    asking(tab)
    tab.say("go")
    tab.counts(".ask .part", 3)
    for number in (1, 2, 3):
        tab.page.get_by_label(f"Part {number} of 3").uncheck()
    assert tab.page.locator(".ask .primary").first.is_disabled()
    tab.page.get_by_label("Part 2 of 3").check()
    tab.sees(".ask .primary", "Allow 1 of 3 parts")
    tab.press("Alt+y")
    tab.sees(".answer >> nth=-1", "done")
    assert file.read_text() == OLD.replace("line 40\n", "part 40\n")
    assert tab.trouble == []


def test_a_card_shows_what_was_written_not_what_was_asked_for(open_tab: Any) -> None:
    asked = OLD.replace("line 3\n", "third\n").replace("line 90\n", "ninetieth\n")
    tab = open_tab(reply(call("write", {"path": "some.py", "content": asked})), reply("done"))
    file = tab.server.cwd / "some.py"
    file.write_text(OLD)
    asking(tab)
    tab.say("go")
    tab.sees(".ask .place", "some.py")
    assert str(tab.server.cwd) not in tab.text(".ask .place")
    tab.page.get_by_label("Part 1 of 2").uncheck()
    tab.press("Alt+y")
    tab.sees(".answer >> nth=-1", "done")
    for _ in range(2):  # as it ran, and as it is stored
        tab.sees(".tool[data-tool=write]", "The input was changed when the call was allowed")
        assert (
            file.read_text().splitlines() == tab.js("document.querySelector('.tool .content').textContent").splitlines()
        )
        assert "[The user changed" not in tab.text()
        tab.page.reload()
        tab.connected()
    assert file.read_text() == OLD.replace("line 90\n", "ninetieth\n")
    assert tab.trouble == []


def test_what_is_written_can_be_edited_as_a_text(open_tab: Any) -> None:
    tab = open_tab(reply(call("write", {"path": "plain.py", "content": 'print("a")\n'})), reply("done"))
    asking(tab)
    tab.say("go")
    tab.page.get_by_role("button", name="Edit…").click()
    field = tab.page.get_by_label("What is written")
    assert field.input_value() == 'print("a")\n'
    field.fill('print("b")\n')
    tab.page.get_by_role("button", name="Allow with this input").click()
    tab.sees(".answer >> nth=-1", "done")
    assert (tab.server.cwd / "plain.py").read_text() == 'print("b")\n'
    assert tab.trouble == []


def test_each_question_of_an_answer_is_in_view_and_names_are_straight(open_tab: Any) -> None:
    """Calls below a question do not push it out of sight; a name that turns round its letters is not shown so."""
    names = [f"file {number}" for number in range(6)] + ["turned\u202etxt.sh"]
    calls = [call("write", {"path": name, "content": "x\n" * 9}, f"c{i}") for i, name in enumerate(names)]
    tab = open_tab(reply(*calls), reply("done"))
    (tab.server.cwd / names[0]).write_text("x\n" * 9)
    asking(tab)
    tab.say("go")
    tab.sees(".ask .place", "nothing would change")
    for name in names:
        tab.sees(".ask .place", name.replace("\u202e", "\ufffd"))
        tab.page.wait_for_function(
            "() => { const [title, yes, dock] = ['.ask h3', '.ask .primary', '#dock']"
            ".map(one => document.querySelector(one).getBoundingClientRect().top);"
            " return title > 48 && yes < dock }"
        )
        assert "\u202e" not in tab.text(".tool[data-state=asking]")
        tab.press("Alt+y")
    tab.sees(".answer >> nth=-1", "done")
    tab.page.wait_for_function(
        "() => { const { scrollHeight, scrollTop, clientHeight } = document.getElementById('scroller');"
        " return scrollHeight - scrollTop - clientHeight < 48 }"
    )
    assert tab.trouble == []
