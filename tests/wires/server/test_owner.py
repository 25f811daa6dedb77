"""What only the owner of a server may change, after showing its code: keys, settings, rules and MCP servers."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.support.mock_model import call, reply

from .server import RpcSocket, ServerProcess
from .test_team import Team

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("set_key", {"key": "sk-ant-api03-aaaaaaaaaaaaaaaa"}),
    ("remove_key", {"provider": "anthropic"}),
    ("take_keys", {}),
    ("login", {"providerId": "openrouter"}),
    ("pull_model", {"name": "smollm2"}),
    ("set_setting", {"key": "checkpoints", "value": False}),
    ("set_rule", {"behavior": "allow", "rule": "Bash(git *)"}),
    ("add_mcp_server", {"name": "one", "config": {"command": "true"}}),
    ("remove_mcp_server", {"name": "one"}),
    ("switch_mcp_server", {"name": "one", "on": False}),
    ("restart_mcp_server", {"name": "one"}),
    ("log_in_mcp_server", {"name": "one"}),
]
KEY = "sk-ant-api03-" + "Zq7" * 12


def code_of(server: ServerProcess) -> str:
    """Return the code that the server has printed last."""
    while not (found := re.findall(r"this code: (\w{4}-\w{4})", server.stderr)):
        server.drained.wait(0.05)
    return str(found[-1])


def unlocked(server: ServerProcess, query: str = "") -> RpcSocket:
    wire = server.rpc(query)
    assert wire.call("unlock", code=code_of(server))["data"]["permit"]
    return wire


@pytest.fixture(scope="module")
def server() -> Any:
    with ServerProcess([reply("hi")] * 8) as server:
        yield server


def test_without_the_code_nothing_is_changed(server: ServerProcess) -> None:
    before = sorted(path.name for path in server.agent_dir.iterdir())
    with server.rpc() as wire:
        for name, fields in CHANGES:
            answer = wire.call(name, **fields)
            assert answer["success"] is False and answer["code"] == "locked", name
            assert "code that the server printed" in answer["error"]
        other = wire.call("open_session")["data"]["id"]
        assert wire.call("set_key", sessionId=other, key=KEY)["code"] == "locked"
        assert wire.call("unlock", code="AAAA-AAAA")["code"] == "locked"
        assert wire.call("unlock", permit="made-up")["code"] == "locked"
        assert wire.call("unlock")["code"] == "locked"
    session = post(server, "/v1/sessions", "{}")[1]["id"]
    assert post(server, f"/v1/sessions/{session}/set_key", json.dumps({"key": KEY}))[0] == 403
    assert sorted(path.name for path in server.agent_dir.iterdir()) == before


def post(server: ServerProcess, path: str, body: str) -> tuple[int, Any]:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(f"http://{server.address}{path}", body.encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_an_answer_keeps_a_rule_for_other_sessions_only_with_the_code() -> None:
    steps = [reply(call("bash", {"command": f"python3 -c {number}"})) for number in range(2)]
    steps = [steps[0], reply("ok"), steps[1], reply("ok")]
    with ServerProcess(steps, args=["--permission-mode", "default"]) as server, server.rpc() as wire:
        settings = server.agent_dir / "settings.json"
        wire.call("prompt", message="go")
        asked, dialog = wire.wait("permission_request"), wire.wait("extension_ui_request")
        assert not [option for option in dialog["options"] if "all sessions" in option]
        answer = {"question": asked["id"], "behavior": "allow", "keep": "user", "rules": ["Bash", "Write"]}
        assert wire.call("answer_permission", **answer)["code"] == "locked"
        assert wire.call("answer_question", **answer)["code"] == "locked"
        assert post(server, f"/v1/sessions/{wire.ready['sessionId']}/answer_permission", json.dumps(answer))[0] == 403
        saved = f"{dialog['options'][1]} (in all sessions)"
        wire.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "value": saved}))
        wire.wait("agent_settled")
        assert "permissions" not in settings.read_text()
        assert wire.call("unlock", code=code_of(server))["success"]
        wire.call("prompt", message="go")
        answer["question"] = wire.wait("permission_request")["id"]
        assert wire.call("answer_permission", **answer)["success"]
        wire.wait("agent_settled")
        assert json.loads(settings.read_text())["permissions"]["allow"] == ["Bash", "Write"]


def test_a_project_is_trusted_with_the_code_only(tmp_path: Path) -> None:
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".pi" / "settings.json").write_text('{"checkpoints": false}')
    with (
        ServerProcess(base=tmp_path) as server,
        server.rpc() as wire,
        server.rpc(f"?session={wire.ready['sessionId']}") as other,
    ):
        asked = wire.wait("permission_request")
        assert asked["kind"] == "trust" and other.wait("permission_request")["id"] == asked["id"]
        answer = {"question": asked["id"], "behavior": "allow"}
        assert other.call("answer_permission", **answer)["code"] == "locked"
        assert other.call("answer_permission", **answer, keep="user")["code"] == "locked"
        assert other.call("answer_permission", question=asked["id"], behavior="deny", keep="user")["code"] == "locked"
        reply = {"type": "extension_ui_response", "id": asked["id"], "confirmed": True}
        other.write(json.dumps(reply))  # there is no dialog that could be answered
        assert wire.call("get_state")["data"]["untrustedResources"]
        assert wire.call("unlock", code=code_of(server))["success"]
        assert wire.call("answer_permission", **answer)["success"]
        assert other.wait("permission_answered")["behavior"] == "allow"
        while other.call("get_state")["data"].get("untrustedResources"):
            pass  # it is loaded again
    assert not (tmp_path / "agent" / "trust.json").exists()


def test_of_clients_that_show_a_code_at_the_same_moment_one_gets_a_permit(server: ServerProcess) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(server.rpc()) for _ in range(8)]
        code, together = code_of(server), Barrier(len(wires))

        def show(wire: RpcSocket) -> bool:
            together.wait(20)
            return bool(wire.call("unlock", code=code)["success"])

        with ThreadPoolExecutor(len(wires)) as threads:
            assert sum(threads.map(show, wires)) == 1
        assert wires[0].call("unlock", code="\ud800")["code"] == "locked", "half a character is a wrong code"


def test_a_code_counts_once_and_its_permit_from_then_on(server: ServerProcess) -> None:
    code = code_of(server)
    with server.rpc() as wire:
        permit = wire.call("unlock", code=code.lower().replace("-", " "))["data"]["permit"]
        assert wire.call("set_rule", behavior="deny", rule="Bash(rm *)")["success"]
        other = wire.call("open_session")["data"]["id"]
        assert wire.call("set_rule", sessionId=other, behavior="deny", rule="Bash(rm *)", remove=True)["success"]
    with server.rpc() as wire:
        assert wire.call("unlock", code=code)["code"] == "locked"
        assert wire.call("set_rule", behavior="deny", rule="Bash(rm *)")["code"] == "locked"
        assert wire.call("unlock", permit=permit)["data"] == {"permit": permit}
        assert wire.call("set_rule", behavior="deny", rule="Bash(dd *)")["success"]
    kept = (server.agent_dir / "browsers.json").read_text()
    assert permit not in kept and code not in kept
    assert (server.agent_dir / "browsers.json").stat().st_mode & 0o077 == 0
    assert code_of(server) != code


def test_wrong_codes_change_the_code(server: ServerProcess) -> None:
    code = code_of(server)
    with server.rpc() as wire:
        for _ in range(5):
            assert wire.call("unlock", code="ZZZZ-ZZZZ")["code"] == "locked"
        assert wire.call("unlock", code=code)["code"] == "locked", "it was guessed at too often"
        while code_of(server) == code:
            server.drained.wait(0.05)
        assert wire.call("unlock", code=code_of(server))["success"]


def test_a_key_is_kept_and_never_told(server: ServerProcess) -> None:
    with unlocked(server) as wire:
        assert wire.call("set_key", key=KEY)["data"] == {"provider": "anthropic"}
        keys = wire.call("get_keys")["data"]["keys"]
        assert {"provider": "anthropic", "source": "auth.json", "stored": "key"} in keys
        # The first letters of this one are those of three providers.
        data = wire.call("set_key", key="sk-" + "a" * 30)["data"]
        assert data == {"candidates": ["openai", "deepseek", "moonshotai"]}
        assert wire.call("set_key", key="sk-" + "a" * 30, provider="deepseek")["data"] == {"provider": "deepseek"}
        refused = wire.call("set_key", key="no key at all", provider="groq")
        assert "no blanks" in refused["error"] and "no key at all" not in refused["error"]
        assert "name its provider" in wire.call("set_key", key="0123456789abcdefghij")["error"]
        # From a client a key stands for nothing but itself: no command is run, no variable read.
        wire.call("set_key", key="!touch${IFS}pwned", provider="groq")
        assert wire.call("get_keys")["success"]
        assert json.loads((server.agent_dir / "auth.json").read_text())["groq"]["key"] == "$!touch$${IFS}pwned"
        told = json.dumps([wire.call(name) for name in ("get_keys", "get_settings", "get_state", "get_model_ways")])
        assert KEY not in told and KEY[14:] not in told
        for provider in ("anthropic", "deepseek", "groq"):
            assert wire.call("remove_key", provider=provider)["success"]
        assert "has no key of groq" in wire.call("remove_key", provider="groq")["error"]
    assert json.loads((server.agent_dir / "auth.json").read_text()) == {}
    assert not (server.cwd / "pwned").exists()


def test_settings_and_rules_hold_at_once(server: ServerProcess) -> None:
    with unlocked(server) as wire:
        found = {item["key"]: item for item in wire.call("get_settings")["data"]["settings"]}
        assert found["checkpoints"]["kind"] == "switch" and found["checkpoints"]["source"] == "default"
        assert found["defaultThinkingLevel"]["choices"][:2] == ["off", "minimal"]
        assert all(item["about"] for item in found.values())
        assert wire.call("set_setting", key="compaction.keepRecentTokens", value=777)["success"]
        found = {item["key"]: item for item in wire.call("get_settings")["data"]["settings"]}
        assert found["compaction.keepRecentTokens"]["value"] == 777
        assert found["compaction.keepRecentTokens"]["source"] == "user"
        for key, value, why in (
            ("compaction.keepRecentTokens", -1, ">= 0"),
            ("chekpoints", True, "Did you mean checkpoints"),
            ("permissions.defaultMode", "sometimes", "Unknown permission mode"),
            ("permissions.deny", ["Bash("], "Not a permission rule"),
        ):
            answer = wire.call("set_setting", key=key, value=value)
            assert answer["success"] is False and why in answer["error"], answer
        assert wire.call("set_setting", key="compaction.keepRecentTokens")["success"]
        assert "Not a permission rule" in wire.call("set_rule", behavior="deny", rule="Bash(")["error"]
        wire.call("set_rule", behavior="deny", rule="Bash(curl *)")
        judged = wire.call("get_permissions", tool="bash", arguments={"command": "curl x"})["data"]
        assert judged["decision"]["behavior"] == "deny", judged
        wire.call("set_rule", behavior="deny", rule="Bash(curl *)", remove=True)
        judged = wire.call("get_permissions", tool="bash", arguments={"command": "curl x"})["data"]
        assert judged["decision"]["behavior"] == "allow"
    assert (
        "compaction" not in (server.agent_dir / "settings.json").read_text()
        or "777" not in (server.agent_dir / "settings.json").read_text()
    )


def test_servers_folders_and_what_is_loaded(server: ServerProcess) -> None:
    skill = server.agent_dir / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text("---\nname: greet\ndescription: How to greet\n---\nSay hi.\n")
    (server.cwd / "one" / "two").mkdir(parents=True, exist_ok=True)
    program = Path(__file__).parents[2] / "plugins" / "mcp" / "fake_server.py"
    with unlocked(server) as wire:
        assert wire.call("reload")["success"]
        loaded = wire.call("get_loaded")["data"]
        assert [item["name"] for item in loaded["commands"]] == ["skill:greet"]
        folders = wire.call("list_folders")["data"]
        assert folders == {"path": str(server.cwd), "parent": str(server.cwd.parent), "folders": ["one"]}
        assert wire.call("list_folders", path="one")["data"]["folders"] == ["two"]
        assert "No such file" in wire.call("list_folders", path="three")["error"]
        wrong = wire.call("add_mcp_server", name="a b", config={"command": "x"})
        assert wrong["success"] is False
        config = {"command": sys.executable, "args": [str(program)], "env": {"SECRET": "hush-hush"}}
        states = wire.call("add_mcp_server", name="tools", config=config)["data"]["servers"]
        assert [state["name"] for state in states] == ["tools"]
        states = wire.call("restart_mcp_server", name="tools")["data"]["servers"]
        assert states[0]["state"] == "ready", states
        states = wire.call("switch_mcp_server", name="tools", on=False)["data"]["servers"]
        assert states[0]["state"] == "disabled"
        assert "switched on" in wire.call("restart_mcp_server", name="tools")["error"]
        assert "no server 'other'" in wire.call("switch_mcp_server", name="other", on=False)["error"]
        assert "hush-hush" not in json.dumps([wire.call("get_state"), wire.call("get_settings")])
        assert wire.call("remove_mcp_server", name="tools")["data"]["servers"] == []
    assert (server.agent_dir / "mcp.json").stat().st_mode & 0o077 == 0


# -- users -------------------------------------------------------------------------------------------


def test_users_of_a_server_are_not_asked_about_a_project(tmp_path: Path) -> None:
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".pi" / "settings.json").write_text("{}")
    with Team(tmp_path, {"anna": {"owner": True}}) as server, server.socket("anna") as anna:
        anna.call("prompt", message="hi")
        anna.wait("agent_settled")
        assert anna.call("get_state")["data"]["untrustedResources"]
        (live,) = anna.call("list_live_sessions")["data"]["sessions"]
        assert not live.get("waiting")


def test_users_see_their_own_account_and_change_nothing_of_the_server(tmp_path: Path) -> None:
    users = {"anna": {"runsPerDay": 5, "permissionMode": "acceptEdits", "models": ["mock/*"]}, "olga": {"owner": True}}
    with Team(tmp_path, users) as server:
        with server.socket("anna") as anna:
            anna.call("prompt", message="hi")
            anna.wait("agent_settled")
            account = anna.call("get_account")["data"]
            assert (account["name"], account["runs"], account["runsPerDay"]) == ("anna", 1, 5)
            assert (account["mode"], account["models"]) == ("acceptEdits", ["mock/*"])
            assert "owner" not in account or account["owner"] is False
            for name, fields in CHANGES:
                answer = anna.call(name, **fields)
                assert answer["success"] is False and "operator" in answer["error"], answer
            for name in ("get_keys", "get_settings", "get_model_ways", "unlock"):
                assert "operator" in anna.call(name)["error"], name
        with server.socket("olga") as olga:
            assert olga.call("get_account")["data"]["owner"] is True
            assert olga.call("set_key", key=KEY)["code"] == "locked"
            assert olga.call("unlock", code=code_of(server))["success"]
            assert olga.call("set_key", key=KEY)["data"] == {"provider": "anthropic"}
    assert KEY not in server.stderr
