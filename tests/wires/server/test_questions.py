"""A question about permissions waits for a client to come back, but not for ever."""

import asyncio

from spindle.base import limits
from spindle.protocol.live_session import LiveSession
from spindle.protocol.seat import Seat
from tests.agent.rig import Rig, run

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
