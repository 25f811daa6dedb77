"""A question about permissions waits for a client to come back, but not for ever."""

import asyncio
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.protocol.live_session import LiveSession
from spindle.protocol.seat import Seat
from tests.agent.rig import Rig, run
from tests.support.mock_model import call, reply

from .server import ServerProcess

CALL = {"calls": [{"name": "write", "arguments": {"path": "a", "content": "x"}}]}
SETTINGS = {"permissions": {"defaultMode": "default"}}


class Viewer(Seat):
    holds = True

    def session_ended(self, live, reason): ...


def test_without_a_client_the_answer_is_no_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_RETURN", 0.05)

    async def main():
        async with Rig(tmp_path, [CALL, "ok"], settings=SETTINGS, mode="remote") as rig:
            LiveSession(rig.agent)
            await rig.run("go")
            assert len(rig.of("permission_denied")) == 1 and not (rig.cwd / "a").exists()

    run(main())


def test_a_client_that_comes_back_may_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_RETURN", 0.05)

    async def main():
        async with Rig(tmp_path, [CALL, "ok"], settings=SETTINGS, mode="remote") as rig:
            live, client = LiveSession(rig.agent), Viewer()
            live.join(client)
            await rig.call("prompt", message="go")
            dialog = await rig.until("extension_ui_request")
            live.leave(client)
            live.join(client)
            await asyncio.sleep(0.1)  # longer than the session would wait without a client
            assert [request.id for request in rig.agent.dialogs.open_requests()] == [dialog["id"]]
            rig.dispatcher.receive_value({"type": "extension_ui_response", "id": dialog["id"], "value": "Allow once"})
            await rig.until("agent_settled")
            assert (rig.cwd / "a").exists()

    run(main())


def test_what_was_asked_about_is_asked_again_by_the_next_server(tmp_path: Path) -> None:
    """The mode was chosen by a client: the end of the server is no yes to what it had asked."""
    options = ["--on-question", "wait"]
    steps = [reply(call("write", {"path": "a", "content": "x"})), reply("done")]
    with ServerProcess(steps, args=options, base=tmp_path) as first, first.rpc() as client:
        session = client.call("get_state")["data"]["sessionId"]
        assert client.call("set_permissions", mode="default", deny=["Bash(rm *)"])["success"]
        client.call("prompt", message="go")
        asked = client.wait("permission_request")
        first.process.kill()
    with (
        ServerProcess([reply("done")], args=[*options, "--recover"], base=tmp_path) as second,
        second.rpc(f"?session={session}") as client,
    ):
        again = client.wait("permission_request")
        assert again["id"] == asked["id"] and not (second.cwd / "a").exists()
        permissions = client.call("get_permissions")["data"]
        assert permissions["mode"] == "default" and permissions["rules"][0]["rule"] == "Bash(rm *)"
        assert client.call("answer_permission", question=asked["id"], behavior="allow")["success"]
        client.wait("agent_settled")
        assert (second.cwd / "a").read_text() == "x"


def test_a_session_stays_as_strict_as_a_client_wanted_it(tmp_path: Path) -> None:
    with ServerProcess([reply("hello")], base=tmp_path) as first, first.rpc() as client:
        assert client.call("set_approval", tools=True, maxTurns=7)["success"]
        assert client.call("set_permissions", mode="acceptEdits", sandbox="read-only")["success"]
        client.call("prompt", message="go")
        client.wait("agent_settled")
        strict = client.call("get_state")["data"]
        client.call("new_session")
        client.call("prompt", message="go")
        client.wait("agent_settled")
        later = client.call("get_state")["data"]["sessionId"]
    for given, expected in (([], "acceptEdits"), (["--permission-mode", "plan"], "plan")):
        with ServerProcess([reply("hello")], args=given, base=tmp_path) as second:
            for id in (strict["sessionId"], later):
                with second.rpc(f"?session={id}") as client:
                    state = client.call("get_state")["data"]
                    assert (state["permissionMode"], state["sandbox"]["level"]) == (expected, "read-only")
                    assert state["approval"] == strict["approval"]
                    # What a client opens again stays open, until the server ends.
                    assert client.call("set_permissions", mode="bypass")["success"]


@pytest.mark.parametrize("waits", [False, True])
def test_a_server_that_is_told_to_end_loses_no_run(waits: bool, tmp_path: Path) -> None:
    """SIGTERM is no abort by the user: the run can be resumed, and a question that may wait waits."""
    options = ["--on-question", "wait"] if waits else []
    steps = [reply(call("write", {"path": "a", "content": "x"})), reply("done")]
    with ServerProcess(steps, args=options, base=tmp_path) as first, first.rpc() as client:
        session = client.call("get_state")["data"]["sessionId"]
        assert client.call("set_permissions", mode="default")["success"]
        client.call("prompt", message="go")
        asked = client.wait("permission_request")
        first.stop()
        settled = client.wait("agent_settled")
        assert settled["stopReason"] == ("waiting" if waits else "aborted")
    with (
        ServerProcess([reply("done")], args=options, base=tmp_path) as second,
        second.rpc(f"?session={session}") as client,
    ):
        left = client.call("get_state")["data"]["interruptedRun"]
        assert [question["id"] for question in left.get("questions", [])] == [asked["id"]] * waits
        assert client.call("resume_run")["success"]
        if waits:
            client.wait("permission_request")
            assert client.call("answer_permission", question=asked["id"], behavior="allow")["success"]
        assert client.wait("agent_settled")["stopReason"] == "end"
        assert (second.cwd / "a").exists() is waits
