"""Sandboxes on a server: the level of a user that nothing loosens, and the option over HTTP within `--root`."""

import json
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.programs import fence
from spindle.server.users import add_user
from tests.support.mock_model import call, reply

from .server import TOKEN, ServerProcess
from .test_http import Http
from .test_team import Team

pytestmark = pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")

KEY = {"ANTHROPIC_API_KEY": "sk-of-the-operator"}


def output(client: Any, command: str) -> str:
    return str(client.call("bash", command=command)["data"]["output"])


def test_the_level_of_a_user_holds_whatever_the_user_does(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "own").mkdir(parents=True)
    (work / ".git").mkdir()  # a repository around the folders of several users
    (tmp_path / "elsewhere").mkdir()
    steps = [reply(call("bash", {"command": f"touch {tmp_path}/elsewhere/by-model; cat /proc/$PPID/environ"}))]
    anna = {"sandbox": "workspace-write", "roots": [str(work / "own")]}
    users = {"anna": anna, "bob": {}, "carl": {"sandbox": "read-only", "roots": [str(work)]}}
    with Team(tmp_path, users, [*steps, reply("ok")], env=KEY) as server, server.socket("anna") as client:
        assert client.call("get_state")["data"]["sandbox"]["level"] == "workspace-write"
        for command, fields in (
            ("set_permissions", {"sandbox": "off"}),
            ("set_permissions", {"sandbox": {"writable": [str(work / "own")]}}),
            ("open_session", {"sandbox": "off"}),
            ("open_session", {"cwd": str(tmp_path)}),
            ("set_mcp_servers", {"servers": {"x": {"command": "sh", "env": {"A": f"!touch {tmp_path}/elsewhere/m"}}}}),
            ("open_session", {"exec": "sh"}),
            ("export_html", {}),
        ):
            refused = client.call(command, **fields)
            assert not refused["success"], (command, fields)
        client.call("prompt", message="go")
        settled = client.wait("agent_settled")
        assert settled["stopReason"] == "end", "nobody was asked whether it may run outside"
        assert "may not write" in output(client, f"touch {tmp_path}/elsewhere/by-user")
        assert not list((tmp_path / "elsewhere").iterdir())
        output(client, "touch inside")
        (work / "of-bob").write_text("a private thing")
        changed = client.call("get_changes")["data"]["files"]
        assert [change["path"] for change in changed] == ["inside"], "not what others do in the same repository"
        with server.socket("bob") as bob:
            bob.call("prompt", message="a private thing")
            bob.wait("agent_settled")
            theirs = Path(bob.call("get_state")["data"]["sessionFile"])
        refused = output(client, f"cat {theirs}")
        assert f"{theirs} is a secret" in refused and "private" not in refused
        said = output(
            client, f"cat {tmp_path}/agent/users/*/*.jsonl; env; cat /proc/$PPID/environ /proc/[0-9]*/environ"
        )
        assert "private" not in said, "what is the agent's own is hidden as a whole"
        assert fence.support().bwrap is None or theirs.stem[-12:] not in said, "Landlock does not hide names"
        assert KEY["ANTHROPIC_API_KEY"] not in said
        for name in ("models.json", "tokens.json"):
            assert "is a secret" in output(client, f"cat {tmp_path}/agent/{name}"), name
        assert any(file.is_file() for file in (tmp_path / "agent" / "checkpoints").rglob("*"))
        read = output(client, f"find {tmp_path}/agent/checkpoints -type f -exec cat {{}} + 2>/dev/null | wc -c")
        assert read.strip() == "0"
        assert client.call("set_permissions", sandbox="read-only")["success"], "stricter"
        assert "may not write" in output(client, "touch more")

        with server.socket("carl") as carl:
            assert carl.call("get_state")["data"]["sandbox"]["level"] == "read-only"
            for command, fields in (
                ("set_permissions", {"sandbox": "workspace-write"}),
                ("export_html", {"outputPath": "x.html"}),
                ("restore", {"checkpoint": "x"}),
            ):
                assert "read-only" in carl.call(command, **fields)["error"], command
            assert "may not write" in output(carl, "touch carls")
    assert not (work / "carls").exists()


@pytest.mark.parametrize("level", ["workspace-write", "read-only"])
def test_the_root_of_another_user_is_not_readable(tmp_path: Path, level: str) -> None:
    for name in ("anna", "bob"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "secret.txt").write_text(f"of {name}")
    users = {name: {"sandbox": level, "roots": [str(tmp_path / "work" / name)]} for name in ("anna", "bob")}
    steps = [reply(call("read", {"path": "../bob/secret.txt"})), reply("ok")]
    with Team(tmp_path, {**users, "carl": {"sandbox": level}}, steps) as server, server.socket("anna") as client:
        assert "of anna" in output(client, "cat secret.txt")
        assert "of bob" not in output(client, "cat ../bob/secret.txt; ls ../bob; grep -r of ../bob")
        client.call("prompt", message="go")
        client.wait("agent_settled")
        told = str(server.mock.requests[-1].body["messages"][-1])
        assert "is a secret" in told and "of bob" not in told
        add_user(server.file, "dora", {"roots": [str(tmp_path / "work" / "dora")]})
        (tmp_path / "work" / "dora").mkdir()
        (tmp_path / "work" / "dora" / "secret.txt").write_text("of dora")
        end = time.monotonic() + 20
        while "of dora" in output(client, "cat ../dora/secret.txt"):  # the file of the users is read again
            assert time.monotonic() < end
        if level == "workspace-write" and fence.support().bwrap is None:
            status, refused = server.http("carl", "POST", "/v1/sessions", {})
            assert status == 409 and "Files of another user" in refused and "bob" not in refused
            return
        with server.socket("carl") as carl:
            assert "of bob" not in output(carl, f"cat {tmp_path}/work/bob/secret.txt")
            refused = carl.call("open_session", cwd=str(tmp_path / "work" / "bob"))
            assert "the root of another user" in refused["error"]


def test_files_of_the_server_are_no_models_of_users(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["played"]')
    (tmp_path / "bad.json").write_text("{")
    users = {"anna": {}, "bob": {"models": ["*"]}, "carl": {"models": ["scripted/*", "mock/*"]}}
    with Team(tmp_path, users) as server:
        for name in ("anna", "bob"):
            with server.socket(name) as client:
                told = {
                    client.call("set_model", provider=provider, modelId=str(path))["error"].replace(str(path), "PATH")
                    for provider, path in (
                        ("scripted", script),
                        ("scripted", tmp_path / "bad.json"),
                        ("scripted", tmp_path / "none"),
                        ("scripted", "script.json"),
                    )
                }
                assert all("You may not use scripted/" in text for text in told), told
                assert "may not use" in client.call("set_model", provider="local", modelId="/etc/passwd")["error"]
        with server.socket("carl") as client:
            assert client.call("set_model", provider="scripted", modelId=str(script))["success"]


def test_what_the_server_says_holds_for_users_who_have_nothing_else(tmp_path: Path) -> None:
    """Mode and level of the command line are those of each user, and an answer of one user is no setting of all."""
    steps = [reply(call("bash", {"command": "touch made"}))]
    args = ["--permission-mode", "default", "--sandbox", "workspace-write"]
    with Team(tmp_path, {"anna": {}}, [*steps, reply("ok")], args=args) as server, server.socket("anna") as client:
        for fields in ({"mode": "bypass"}, {"allow": ["Bash"]}, {"sandbox": "off"}):
            assert not client.call("set_permissions", **fields)["success"], fields
        for cwd in (tmp_path, tmp_path / "agent", "/"):
            assert not client.call("open_session", cwd=str(cwd))["success"], cwd
        client.call("prompt", message="go")
        dialog = client.wait("extension_ui_request")
        assert [option.partition(" ")[0] for option in dialog["options"]] == ["Allow", "Always", "Deny"]
        client.write(json.dumps({"type": "extension_ui_response", "id": dialog["id"], "value": dialog["options"][1]}))
        client.wait("agent_settled")
        assert (tmp_path / "work" / "made").exists()
        assert "Bash" not in (tmp_path / "agent" / "settings.json").read_text()


@pytest.mark.parametrize(
    ("args", "env", "is_made"),
    [
        ([], {}, True),
        ([], {"SPINDLE_REMOTE_TOKEN": TOKEN}, False),
        (["--sandbox-network", "off"], {}, False),
        (["--sandbox-network", "65000", "--remote", "127.0.0.1:{port}"], {}, False),
        (["--sandbox-network", "{port}", "--remote", "127.0.0.1:{port}"], {}, True),
        (["--sandbox", "off"], {}, False),
    ],
    ids=["network", "token", "no network", "other port", "its port", "no sandbox"],
)
def test_a_server_that_its_own_commands_could_use_makes_a_token(
    tmp_path: Path, args: list[str], env: dict[str, str], is_made: bool
) -> None:
    """Else a command behind the fence could open a session without one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reach = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], b'{}').status)"
    line = f"exec {sys.executable} -c {shlex.quote(reach)} http://127.0.0.1:$(cat port)/v1/sessions"
    args = ["--sandbox", "workspace-write", *(word.format(port=port) for word in args)]
    with ServerProcess([reply("ok")], base=tmp_path, args=args, env=env) as server:
        assert (server.made_token is not None) is is_made
        assert ("clients need the token in its address" in server.stderr) is is_made
        (server.cwd / "port").write_text(str(server.port))
        http = Http(server, server.made_token or env.get("SPINDLE_REMOTE_TOKEN"))
        told = http.post(f"/v1/sessions/{http.open()}/bash", {"command": line})[2]
        assert (told["exitCode"] == 0) is ("off" in args[2:] and "--sandbox-network" not in args), told
        assert not is_made or "401" in told["output"]
        assert not is_made or Http(server).post("/v1/sessions", {})[0] == 401


def test_a_client_of_http_chooses_a_sandbox_within_the_roots(tmp_path: Path) -> None:
    (tmp_path / "work" / "cache").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    with ServerProcess([reply("ok")], base=tmp_path, args=["--root", str(tmp_path / "work")]) as server:
        http = Http(server)
        (tmp_path / "work" / "project").mkdir()
        wanted = {"level": "workspace-write", "writable": [str(tmp_path / "work" / "cache")], "network": "off"}
        id = http.open(cwd=str(tmp_path / "work" / "project"), sandbox=wanted)
        state = http.post(f"/v1/sessions/{id}/get_state")[2]["sandbox"]
        assert (state["level"], state["network"]) == ("workspace-write", "off")
        for place, may in (("project", True), ("cache", True), ("", False), ("../elsewhere", False)):
            path = (tmp_path / "work" / place / "made").resolve()
            told = http.post(f"/v1/sessions/{id}/bash", {"command": f"touch {path}"})[2]
            assert (told["exitCode"] == 0) == path.exists() == may, told
        for sandbox, said in (
            ({"level": "workspace-write", "writable": [str(tmp_path / "elsewhere")]}, "may not work in"),
            ("strict", "sandbox"),
            ({"level": "workspace-write", "network": [0]}, "Ports"),
        ):
            status, _, refused = http.post("/v1/sessions", {"sandbox": sandbox})
            assert status in (400, 409) and said in refused["error"], refused
            assert http.post(f"/v1/sessions/{id}/set_permissions", {"sandbox": sandbox})[0] in (400, 409)
        assert http.post(f"/v1/sessions/{id}/set_permissions", {"sandbox": "read-only"})[0] == 204
        assert http.post(f"/v1/sessions/{id}/bash", {"command": "touch more"})[2]["exitCode"] != 0
