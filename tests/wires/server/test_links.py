"""A link lets another user of the server look at a conversation: live, and without any way to do something in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from spindle.protocol.commands import COMMANDS
from spindle.protocol.viewing import viewer_commands
from tests.support.mock_model import call, gate, reply

from .server import RpcSocket, ServerProcess
from .test_every_command import forms_of
from .test_team import Team

MAY = ["get_available_thinking_levels", "get_entries", "get_session_stats", "get_state", "set_update_mode"]
SECRET = "what no viewer may see"


def shared(team: Team, owner: str, session: str = "") -> tuple[RpcSocket, str]:
    """Begin a conversation of a user, say something in it, and make a link to it."""
    wire = team.socket(owner, f"?session={session}" if session else "")
    wire.call("prompt", message="hi")
    wire.wait("agent_settled")
    return wire, wire.call("share_session")["data"]["link"]


def closed(wire: RpcSocket) -> int:
    with pytest.raises(ConnectionClosed) as told:
        wire.wait(lambda frame: False)
    assert told.value.rcvd is not None
    return int(told.value.rcvd.code)


def refused(team: Team, who: str, link: str) -> int:
    """Open a link that leads nowhere. Returns the code that the socket is closed with."""
    with pytest.raises(ConnectionClosed) as told:
        team.socket(who, f"?shared={link}")
    assert told.value.rcvd is not None
    return int(told.value.rcvd.code)


def test_a_viewer_sees_the_conversation_live_and_can_do_nothing(tmp_path: Path) -> None:
    steps = [
        reply("hello"),
        reply("one", gate("g"), "two"),
        reply(call("bash", {"command": "echo made > it"})),
        reply("ok"),
    ]
    with Team(tmp_path, {"anna": {}, "bob": {"runsPerDay": 1}}, steps) as team:
        anna, link = shared(team, "anna")
        (team.cwd / "secret.txt").write_text(SECRET)
        with anna, team.socket("bob", f"?shared={link}") as bob:
            assert bob.ready["sessionId"] == f"shared={link}" and bob.ready["commands"] == viewer_commands() == MAY
            assert "hello" in json.dumps(bob.call("get_entries")["data"])
            bob.call("set_update_mode", mode="delta")

            # Every command of the registry, with all its fields: those that are not declared are refused.
            def files() -> list[Path]:  # the state of the files may still be looked at
                return [path for path in sorted(team.base.rglob("*")) if "checkpoints" not in path.parts]

            before = anna.call("get_state")["data"], files()
            entry = anna.call("get_entries")["data"]["leafId"]
            for name, spec in COMMANDS.items():
                for fields in forms_of(name, entry):
                    answer = bob.call(name, **fields)
                    assert answer["success"] is spec.viewer or name in MAY, name
                    if not spec.viewer:
                        assert answer["code"] == "read_only", name
                    told = json.dumps(answer)
                    assert SECRET not in told and "sessionFile" not in told and str(team.agent_dir) not in told
            assert (anna.call("get_state")["data"], files()) == before
            # A frame that names another session is about this one, too.
            assert bob.call("abort", sessionId=anna.ready["sessionId"])["code"] == "read_only"
            assert bob.call("get_entries", sessionId="x")["success"]
            # What the owner does is seen as it happens.
            anna.call("prompt", message="go on")
            team.mock.wait_gate("g")
            bob.wait(lambda frame: frame["type"] == "message_update" and "one" in json.dumps(frame))
            assert bob.call("get_state")["data"]["isStreaming"] is True
            for frame in ({"type": "abort"}, {"type": "prompt", "message": "x", "streamingBehavior": "steer"}):
                assert bob.call(**frame)["code"] == "read_only"
            team.mock.release("g")
            assert bob.wait("agent_settled")["aborted"] is False
            account = team.socket("bob").call("get_account")["data"]
            assert account.get("runs", 0) == 0, "looking costs nothing"


def test_a_viewer_answers_no_question_and_holds_none_open(tmp_path: Path) -> None:
    steps = [reply("hello"), reply(call("bash", {"command": "touch made"})), reply("done")]
    with Team(tmp_path, {"anna": {}, "bob": {}}, steps) as team:
        anna, link = shared(team, "anna")
        anna.call("set_approval", tools=True)
        bob = team.socket("bob", f"?shared={link}")
        anna.call("prompt", message="make it")
        asked = anna.wait(lambda frame: frame["type"] == "extension_ui_request" and frame["method"] == "confirm")
        for kind in ("extension_ui_response", "host_tool_result"):
            bob.write(json.dumps({"type": kind, "id": asked["id"], "confirmed": True}))
        assert bob.call("answer_permission", requestId=asked["id"], behavior="allow")["code"] == "read_only"
        # The owner goes away and comes back: the question is as open as it would be without a viewer.
        anna.__exit__()
        with team.socket("anna", f"?session={anna.ready['sessionId']}") as anna:
            again = anna.wait(lambda frame: frame["type"] == "extension_ui_request")
            assert again["id"] == asked["id"] and not (team.cwd / "made").exists()
            anna.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "confirmed": False}))
            anna.wait("agent_settled")
        bob.wait("agent_settled")
        seen = json.dumps(bob._waiting)
        assert "extension_ui_request" not in seen and "permission_request" not in seen
        assert not (team.cwd / "made").exists()


def test_a_link_shows_one_conversation_and_no_other(tmp_path: Path) -> None:
    steps = [reply("hello"), reply(SECRET), reply("again")]
    with Team(tmp_path, {"anna": {}, "bob": {}}, steps) as team:
        anna, link = shared(team, "anna")
        with anna, team.socket("bob", f"?shared={link}") as bob:
            # The owner's tab goes on with another conversation: the viewer does not.
            anna.call("new_session")
            assert closed(bob) == 4004
            anna.call("prompt", message=SECRET)
            anna.wait("agent_settled")
            assert SECRET not in json.dumps(bob._waiting)
            with team.socket("bob", f"?shared={link}") as bob:
                assert SECRET not in json.dumps(bob.call("get_entries")) and "hello" in json.dumps(
                    bob.call("get_entries")
                )
            # Neither the words of the link alone nor another user's name with them lead anywhere.
            word = link.partition(":")[2]
            for wrong in (word, f":{word}", f"bob:{word}", f"anna:{word[:-1]}", "anna:", "../anna:x", f"nobody:{word}"):
                assert refused(team, "bob", wrong) == 4004
            with pytest.raises(InvalidStatus):
                team.rpc(f"?shared={link}")
            assert not team.socket("bob", "").call("remove_link", link=link)["success"]
            assert team.socket("bob", "").call("get_links")["data"] == {"links": []}


def test_a_link_is_removed_in_mid_stream(tmp_path: Path) -> None:
    with Team(tmp_path, {"anna": {}, "bob": {}}, [reply("hello"), reply("one", gate("g"), SECRET)]) as team:
        anna, link = shared(team, "anna")
        with anna, team.socket("bob", f"?shared={link}") as bob:
            assert [one["link"] for one in anna.call("get_links")["data"]["links"]] == [link]
            assert anna.call("share_session")["data"]["link"] == link, "a conversation has one"
            anna.call("prompt", message="go on")
            team.mock.wait_gate("g")
            bob.wait(lambda frame: frame["type"] == "message_update")
            assert anna.call("remove_link", link=link)["success"]
            assert closed(bob) == 4003
            team.mock.release("g")
            anna.wait("agent_settled")
            assert SECRET not in json.dumps(bob._waiting)
            assert refused(team, "bob", link) == 4004
            assert anna.call("share_session")["data"]["link"] != link


def test_looking_keeps_nothing_in_memory_and_takes_no_lock(tmp_path: Path) -> None:
    with Team(
        tmp_path, {"anna": {}, "bob": {}}, [reply("hello")] * 3, args=["--remote-option", "keep_seconds=1"]
    ) as team:
        anna, link = shared(team, "anna")
        anna.__exit__()
        count = 'spindle_sessions{user="anna"}'
        while f"{count} 0" not in metrics(team):
            pass
        # Opened to be looked at, and let go with the last viewer: another program may have the file then.
        with team.socket("bob", f"?shared={link}") as bob:
            assert "hello" in json.dumps(bob.call("get_entries"))
            assert f"{count} 1" in metrics(team)
        while f"{count} 0" not in metrics(team):
            pass
        # A viewer who stays does not keep it.
        with team.socket("bob", f"?shared={link}") as bob:
            assert closed(bob) == 1000


def metrics(team: Team) -> str:
    from urllib.request import Request, urlopen

    if "root" not in team.tokens:
        from spindle.server.users import add_user

        team.tokens["root"] = add_user(team.file, "root", {"admin": True})
    from urllib.error import HTTPError

    while True:
        try:
            with urlopen(Request(f"http://{team.address}/metrics", headers=team.header("root"))) as answer:
                return str(answer.read().decode())
        except HTTPError as error:  # the file is read every second
            assert error.code == 401


def test_links_are_for_users_and_for_what_was_said(tmp_path: Path) -> None:
    with ServerProcess([reply("hello")]) as server, server.rpc() as wire:
        assert "users of a server" in wire.call("share_session")["error"]
    with Team(tmp_path, {"anna": {}, "bob": {}}) as team, team.socket("anna") as anna:
        assert "Nothing was said" in anna.call("share_session")["error"]


def test_a_user_who_goes_takes_links_and_views_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spindle.apps.cli.tokens_command import run as tokens

    with Team(tmp_path, {"anna": {}, "bob": {}, "eve": {}}, [reply("hello")]) as team:
        monkeypatch.setenv("SPINDLE_DIR", str(team.agent_dir))
        anna, link = shared(team, "anna")
        with anna, team.socket("bob", f"?shared={link}") as bob, team.socket("eve", f"?shared={link}") as eve:
            assert tokens(["revoke", "bob"]) == 0
            with pytest.raises(ConnectionClosed):
                bob.wait(lambda frame: False)
            assert eve.call("get_state")["success"]
            assert tokens(["remove", "anna", "--with-data"]) == 0
            with pytest.raises(ConnectionClosed):
                eve.wait(lambda frame: False)
        assert refused(team, "eve", link) == 4004
        assert not (team.agent_dir / "links" / "anna.json").exists()


def test_hidden_parts_of_a_session_stay_hidden() -> None:
    from spindle.protocol.viewing import VIEWER

    def sent(**entry: Any) -> dict[str, Any]:
        given = {"id": "1", "parentId": None, "timestamp": "t", **entry}
        found: dict[str, Any] = json.loads(VIEWER.entry(json.dumps(given).encode()))
        assert found["id"] == "1" and found["type"] == entry["type"]
        return found

    assert "data" not in sent(type="custom", customType="spindle.exec", data={"command": SECRET})
    assert "content" not in sent(type="custom_message", customType="x", content=SECRET, display=False)
    assert "message" not in sent(type="message", message={"role": "custom", "content": SECRET, "display": False})
    assert sent(type="custom_message", customType="x", content="shown", display=True)["content"] == "shown"
    assert sent(type="tomorrow", what=SECRET).keys() == {"type", "id", "parentId", "timestamp", "customType"}


def test_a_sign_in_and_a_link_hold_on_every_node(tmp_path: Path) -> None:
    from spindle.server.users import add_user

    from .test_nodes import Cluster
    from .test_sign_in import Browser

    tokens, site = tmp_path / "tokens.json", "https://agent.example"
    token = {name: add_user(tokens, name, {}) for name in ("anna", "bob")}
    cluster = Cluster(tmp_path)
    with cluster.stack:
        args = ["--tokens", str(tokens), "--root", str(tmp_path), "--remote-origin", site]
        a, b = (
            cluster.node(steps, *args, base=tmp_path / name)[0]
            for name, steps in (("a", [reply("hello"), reply("one", gate("g"), "two")]), ("b", []))
        )
        anna, bob = Browser(a, site), Browser(a, site)
        anna.sign_in(token["anna"])
        bob.sign_in(token["bob"])
        bob.server = b  # the next request goes to another node
        with anna.socket() as owner:
            owner.call("prompt", message="hi")
            owner.wait("agent_settled")
            link = owner.call("share_session")["data"]["link"]
            with bob.socket(f"?shared={link}") as viewer:
                assert viewer.ready["commands"] == MAY and "hello" in json.dumps(viewer.call("get_entries"))
                owner.call("prompt", message="more")
                a.mock.wait_gate("g")
                viewer.wait(lambda frame: frame["type"] == "message_update" and "one" in json.dumps(frame))
                assert viewer.call("abort")["code"] == "read_only"
                assert bob.socket().call("open_session", session=link)["success"] is False
                a.mock.release("g")
                viewer.wait("agent_settled")
                assert owner.call("remove_link", link=link)["success"]
                assert closed(viewer) == 4003
            # Signed out at one node, and gone from the other.
            with bob.socket() as elsewhere:
                bob.server = a
                assert bob.post("/signout")[0] == 200
                assert closed(elsewhere) == 4003
