"""A run that was cut off, as an editor sees it and goes on with it."""

from pathlib import Path

from tests.support.mock_model import call, reply

from .editor_process import EditorProcess


def test_an_editor_goes_on_with_a_run_that_was_cut_off(tmp_path: Path) -> None:
    slow = call("bash", {"command": "echo ran >> marker; sleep 60"}, id="slow")
    with EditorProcess([reply(slow)], base=tmp_path) as editor:
        session = editor.new()
        editor.say(session, "do it")
        while not (editor.cwd / "marker").exists():
            editor.ok("session/list")
        editor.kill()
    with EditorProcess([reply("I looked: it ran")], base=tmp_path) as editor:
        editor.ok("session/load", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        offered = editor.update(session, "available_commands_update")["availableCommands"]
        assert "resume-run" in [command["name"] for command in offered]
        assert editor.stop_reason(editor.say(session, "/resume-run")) == "end_turn"
        assert editor.text(session).endswith("I looked: it ran")
        [result] = [m["content"] for m in editor.mock.requests[0].body["messages"] if m["role"] == "tool"]
        assert "may have taken effect" in result
    assert (tmp_path / "work" / "marker").read_text() == "ran\n"


def test_an_editor_is_asked_again_and_the_turn_says_that_it_waits(tmp_path: Path) -> None:
    wait = ["--on-question", "wait", "--ask", "Bash"]
    quick = call("bash", {"command": "echo ran >> marker"}, id="quick")
    with EditorProcess([reply(quick)], base=tmp_path, args=wait) as editor:
        session = editor.new()
        editor.say(session, "do it")
        editor.request("session/request_permission")
        editor.kill()
    with EditorProcess([reply("it ran")], base=tmp_path, args=wait) as editor:
        editor.ok("session/load", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        going_on = editor.say(session, "/resume-run")
        editor.choose("allow_once")
        assert editor.stop_reason(going_on) == "end_turn"
    assert (tmp_path / "work" / "marker").read_text() == "ran\n"
