"""MCP servers that an editor passes: a real process each, with its tools, prompts and questions."""

import json
from pathlib import Path
from typing import Any

from tests.plugins.mcp.helpers import entry, is_alive
from tests.plugins.mcp.test_process import until
from tests.plugins.mcp.test_reference_servers import npm
from tests.support.mock_model import call, reply

from .editor_process import EditorProcess

FORMS = {"elicitation": {"form": {}}}


def stdio(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return a server as the protocol writes it."""
    pairs = [{"name": key, "value": value} for key, value in given.get("env", {}).items()]
    return {"name": name, "command": given["command"], "args": given["args"], "env": pairs}


def results(editor: EditorProcess, session: str) -> dict[str, str]:
    """Return the texts of calls that have ended, by their ids."""
    ended = [u for u in editor.updates(session, "tool_call_update") if u.get("status") in ("completed", "failed")]
    return {u["toolCallId"]: u["content"][0]["content"]["text"] for u in ended}


def test_the_servers_of_an_editor_are_used_and_end_with_the_session(tmp_path: Path) -> None:
    steps = [
        reply(call("tool_search", {"query": "select:echo,environment,ask"}, id="s")),
        reply(
            call("mcp__my_server__echo", {"text": "hi"}, id="a"),
            call("mcp__my_server__environment", {}, id="b"),
            call("mcp__my_server__ask", {}, id="c"),
        ),
        reply("done"),
    ]
    with EditorProcess(steps, base=tmp_path, capabilities=FORMS) as editor:
        old = {"type": "sse", "name": "old", "url": "http://127.0.0.1:9/", "headers": []}
        mine = stdio("my server", entry(env={"GIVEN": "by the editor"}))
        session = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[old, mine])["sessionId"]
        editor.wait(lambda f: 'MCP server \\"old\\": Cannot reach 127.0.0.1:9' in json.dumps(f))
        run = editor.say(session, "go")
        editor.reply(editor.request("elicitation/create"), action="accept", content={"value": "Ada"})
        choice = editor.request("session/request_permission")
        assert choice["params"]["toolCall"]["toolCallId"] == "c"  # the call that asks, not another that runs
        editor.reply(choice, outcome={"outcome": "selected", "optionId": "small"})
        editor.reply(editor.request("elicitation/create"), action="accept", content={"value": "30"})
        editor.choose("allow_once")
        assert editor.stop_reason(run) == "end_turn"
        found = results(editor, session)
        assert found["a"] == "echo: hi" and json.loads(found["b"])["GIVEN"] == "by the editor"
        assert json.loads(found["c"])["content"] == {"name": "Ada", "size": "small", "age": 30, "sure": True}
        commands = [c["name"] for u in editor.updates(session, "available_commands") for c in u["availableCommands"]]
        assert "mcp__my_server__greet" in commands
        pid = int(json.loads(found["b"])["PID"])
        assert is_alive(pid)
        editor.ok("session/close", sessionId=session)
        until(lambda: not is_alive(pid))


def test_a_server_of_others(tmp_path: Path) -> None:
    everything = stdio("everything", npm("everything"))
    steps = [
        reply(call("tool_search", {"query": "select:echo"}, id="s")),
        reply(call("mcp__everything__echo", {"message": "hi"}, id="a")),
        reply("done"),
    ]
    with EditorProcess(steps, base=tmp_path) as editor:
        session = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[everything])["sessionId"]
        assert editor.stop_reason(editor.say(session, "go")) == "end_turn"
        assert results(editor, session)["a"] == "Echo: hi"
