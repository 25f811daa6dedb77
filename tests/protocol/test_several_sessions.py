"""Several sessions on one wire, with the real program: on stdio, and over a WebSocket."""

import asyncio
import base64
import json
import re
import sys

import pytest

from spindle.client import CommandFailed, ConnectionLost, RpcClient, SyncRpcClient
from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, gate, reply
from tests.wires.server.server import ServerProcess


def of(id, kind="agent_settled"):
    return lambda frame: frame.get("sessionId") == id and frame["type"] == kind


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "other").mkdir()
    steps = [
        reply("slow ", gate("go"), "answer", match="slow"),
        reply(call("bash", {"command": "pwd"}), match="where"),
        reply("quick"),
    ]
    with AgentProcess(steps, session=True, base=tmp_path) as agent:
        yield agent


def test_sessions_of_their_own_on_one_pipe(agent, tmp_path):
    opened = agent.data("open_session", cwd=str(tmp_path / "other"), name="bee")
    id = opened["id"]
    assert opened["cwd"] == str(tmp_path / "other") and opened["name"] == "bee" and opened["phase"] == "idle"
    assert agent.call("prompt", message="slow")["success"]
    agent.mock.wait_gate("go")
    answer = agent.call("prompt", message="hi", sessionId=id)  # while the first one streams
    assert answer["sessionId"] == id
    agent.wait(of(id))
    agent.call("bash", command="pwd > here", sessionId=id)
    assert (tmp_path / "other" / "here").read_text().strip() == str(tmp_path / "other")
    listed = agent.data("list_live_sessions")["sessions"]
    assert [(one["cwd"], one["phase"]) for one in listed] == [
        (str(tmp_path / "work"), "streaming"),
        (str(tmp_path / "other"), "idle"),
    ]
    assert "cost" not in listed[1]  # the model has no price
    assert listed[1]["queue"] == listed[1]["questions"] == 0
    agent.mock.release("go")
    agent.wait(lambda frame: frame["type"] == "agent_settled" and "sessionId" not in frame)
    assert agent.data("get_last_assistant_text")["text"] == "slow answer"
    assert agent.data("get_last_assistant_text", sessionId=id)["text"] == "quick"
    tagged = [frame for frame in agent.frames if "sessionId" in frame]
    assert {frame["sessionId"] for frame in tagged} == {id}
    assert agent.close_stdin() == 0


def test_without_the_field_nothing_is_different(tmp_path):
    """The same conversation, alone and beside two others, gives the same bytes."""

    def told(others):
        with AgentProcess([reply("Hello")], args=["--updates", "delta"]) as agent:
            ids = [agent.data("open_session")["id"] for _ in range(others)]
            for id in ids:
                agent.call("prompt", message="hi", sessionId=id)
                agent.wait(of(id))
            agent.run("hi")
            agent.call("get_last_assistant_text")
            frames = [frame for frame in agent.frames if "sessionId" not in frame]
            frames = [frame for frame in frames if frame.get("command") != "open_session"]
            for frame in frames:
                if frame["type"] == "message_update":  # it says how much was used when it leaves
                    del frame["usage"]
            text = json.dumps(frames)
            for id in {frame.get("id") for frame in frames} - {None}:
                text = text.replace(f'"{id}"', '"ID"')

            text = re.sub(
                r'("(?:timestamp|id|entryId|responseId|firstTokenMs|durationMs)": )("[^"]*"|[\d.]+)', r"\1null", text
            )
            return re.sub(r"127\.0\.0\.1:\d+", "HOST", text)

    assert told(0) == told(2)


def test_a_handle_stays_and_an_id_opens_what_is_stored(agent, tmp_path):
    id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
    agent.call("prompt", message="remember me", sessionId=id)
    agent.wait(of(id))
    assert agent.data("new_session", sessionId=id) == {"cancelled": False}
    agent.call("prompt", message="and me", sessionId=id)
    agent.wait(of(id))
    current = next(one for one in agent.data("list_live_sessions")["sessions"] if one["id"] == id)["currentId"]
    assert current != id
    assert agent.call("close_session", sessionId=id)["success"]
    assert agent.wait(of(id, "session_closed"))["reason"] == "closed"
    assert "not open" in agent.call("close_session", sessionId=id)["error"]
    # The handle leads to where the conversation was; the ids of files to what is in them.
    assert "and me" in str(agent.data("get_messages", sessionId=id))
    assert agent.data("get_state", sessionId=current)["sessionId"] == current
    opened = agent.data("open_session", session=id)
    assert opened["currentId"] == id and opened["id"] != id
    assert "remember me" in str(agent.data("get_messages", sessionId=opened["id"]))


def test_an_id_means_its_conversation_also_if_a_session_was_there_when_it_was_last_used(agent):
    handle = agent.data("open_session")["id"]
    agent.data("new_session", sessionId=handle)
    second = agent.data("get_state", sessionId=handle)["sessionId"]
    agent.call("prompt", message="in the second", sessionId=second)
    agent.wait(of(handle))
    agent.data("new_session", sessionId=handle)
    assert agent.data("get_state", sessionId=second)["sessionId"] == second
    assert agent.data("get_state", sessionId=handle)["sessionId"] not in (handle, second)


def test_commands_sent_before_a_stored_session_is_there_are_answered_in_order(agent, tmp_path):
    id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
    agent.call("prompt", message="hi", sessionId=id)
    agent.wait(of(id))
    agent.call("close_session", sessionId=id)
    for number in range(20):
        agent.send("set_session_name", name=f"n{number}", sessionId=id)
    assert agent.data("get_state", sessionId=id)["sessionName"] == "n19"
    assert "No session nothing" in agent.call("get_state", sessionId="nothing")["error"]
    assert "expected string" in agent.call("get_state", sessionId=["x"])["error"]
    agent.send("extension_ui_response", sessionId="nothing", confirmed=True)  # for no one, and no error
    assert agent.call("get_state")["success"]


def test_the_first_session_is_reached_under_any_of_its_names(agent, tmp_path):
    agent.run("hi")
    state = agent.data("get_state")
    link = tmp_path / "link.jsonl"
    link.symlink_to(state["sessionFile"])
    for name in (state["sessionId"], state["sessionFile"], str(link)):
        answer = agent.call("get_state", sessionId=name)
        assert answer["data"]["sessionId"] == state["sessionId"] and "sessionId" not in answer


def test_no_command_leads_out_of_the_allowed_directories(agent, tmp_path):
    id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
    agent.call("prompt", message="hi", sessionId=id)
    agent.wait(of(id))
    stored = agent.data("get_state", sessionId=id)["sessionFile"]
    assert agent.close_stdin() == 0
    with AgentProcess([], session=True, base=tmp_path, args=["--root", str(tmp_path / "work")]) as bounded:
        id = bounded.data("open_session", cwd=str(tmp_path / "work"))["id"]
        for fields in ({}, {"sessionId": id}):
            refused = bounded.call("switch_session", sessionPath=stored, **fields)
            assert "may not work in" in refused["error"]
            assert bounded.data("bash", command="pwd", **fields)["output"].strip() == str(tmp_path / "work")
        assert "may not work in" in bounded.call("open_session", session=stored)["error"]


def test_questions_and_host_tools_belong_to_their_session(tmp_path):
    steps = [reply(call("mine", {})), reply("done"), reply(call("bash", {"command": "touch x"})), reply("done")]
    with AgentProcess(steps, base=tmp_path) as agent:
        id = agent.data("open_session")["id"]
        tool = {"name": "mine", "description": "d", "parameters": {"type": "object", "properties": {}}}
        assert agent.call("set_host_tools", tools=[tool], sessionId=id)["success"]
        assert "mine" not in json.dumps(agent.data("get_state")["dumpTools"])
        agent.call("prompt", message="go", sessionId=id)
        asked = agent.wait(of(id, "host_tool_call"))
        result = {"content": [{"type": "text", "text": "here"}]}
        agent.send("host_tool_result", id=asked["id"], sessionId=id, result=result)
        agent.wait(of(id))
        agent.call("set_permissions", mode="default", sessionId=id)
        agent.call("prompt", message="ask", sessionId=id)
        question = agent.wait(of(id, "extension_ui_request"))
        assert agent.data("list_live_sessions")["sessions"][1]["questions"] == 1
        agent.send("extension_ui_response", id=question["id"], sessionId=id, value="Allow once")
        agent.wait(of(id))
        assert not [frame for frame in agent.frames if frame["type"] == "permission_denied"]


def test_one_that_breaks_harms_no_other(agent, tmp_path):
    folder = tmp_path / "other" / ".pi" / "extensions"
    folder.mkdir(parents=True)
    (folder / "bad.py").write_text(
        "def extension(agent):\n"
        "    @agent.on('input')\n"
        "    async def f(event, ctx):\n"
        "        raise SystemError('broken')\n"
        "    @agent.command('leave')\n"
        "    async def leave(args, ctx):\n"
        "        ctx.shutdown()\n"
    )
    refused = agent.call("open_session", cwd=str(tmp_path / "missing"))
    assert not refused["success"] and "no directory" in refused["error"]
    assert not agent.call("open_session", model="no/such")["success"]
    environment = agent_environment(tmp_path / "agent")
    nursery.run([*nursery.SPINDLE, "trust"], cwd=tmp_path / "other", env=environment, timeout=30)
    id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
    agent.call("prompt", message="hi", sessionId=id)
    assert "broken" in agent.wait(of(id, "extension_error"))["error"]
    agent.wait(of(id, "agent_settled"))
    agent.run("hi")
    agent.call("prompt", message="/leave", sessionId=id)
    assert "extension" in agent.wait(of(id, "session_closed"))["reason"]
    agent.run("hi")
    assert len(agent.data("list_live_sessions")["sessions"]) == 1


def test_a_session_that_ends_costs_no_command_its_answer(agent):
    """Whatever is in hand in a session is answered when it is closed, and lists leave it out."""
    ids = [agent.data("open_session")["id"] for _ in range(20)]
    for id in ids:
        agent.call("prompt", message="hi", sessionId=id)
        agent.wait(of(id))
    kinds = ("clone", "new_session", "compact", "get_state", "close_session", "list_live_sessions")
    sent = {f"{kind} {id}": {"type": kind, "sessionId": id} for kind in kinds for id in ids}
    agent.write(b"".join(json.dumps({"id": name, **frame}).encode() + b"\n" for name, frame in sent.items()))
    for name, frame in sent.items():
        answer = agent.wait(lambda frame, name=name: frame["type"] == "response" and frame.get("id") == name)
        assert answer["sessionId"] == frame["sessionId"], answer
        if not answer["success"]:
            assert answer["error"] in ("The session has ended", "Nothing to compact (session too small)"), answer
    assert agent.close_stdin() == 0
    assert "Traceback" not in agent.stderr.decode() and "never awaited" not in agent.stderr.decode()


def test_the_python_client_opens_sessions(tmp_path):
    spindle = [sys.executable, "-m", "spindle", "--mode", "rpc", "--model", "mock/m1"]
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()

    async def scene(mock):
        async with RpcClient(spindle, cwd=tmp_path / "work", env=agent_environment(tmp_path / "agent")) as client:
            async with await client.open_session(cwd=tmp_path / "other", name="bee") as one:
                two = await client.open_session()

                @one.tool
                def where() -> str:
                    """Say where."""
                    return "in the client"

                seen = []
                one.subscribe(seen.append)
                answers = await asyncio.gather(
                    one.prompt_and_wait("tool"), two.prompt_and_wait("two"), client.prompt_and_wait("first")
                )
                assert [answer.text for answer in answers] == ["for one", "for two", "for the first"]
                assert "in the client" in str(answers[0].messages)
                assert {event["sessionId"] for event in seen} == {one.id}
                listed = await client.list_live_sessions()
                assert [info["name"] for info in listed if "name" in info] == ["bee"]
                result = await one.run("two").result()
                assert (result.text, result.session_id) == ("for two", one.id)
                with pytest.raises(CommandFailed, match="no directory"):
                    await client.open_session(cwd=tmp_path / "nowhere")
                streaming = one.run("hang")
                await anext(streaming)
                await one.close_session()
                with pytest.raises(ConnectionLost, match="closed"):
                    await streaming.result()
            assert len(await client.list_live_sessions()) == 2

    steps = [
        reply("for two", match="two"),
        reply("for the first", match="first"),
        reply("x", gate("never"), match="hang"),
        reply(call("where", {})),
        reply("for one"),
    ]
    with MockModel(steps) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        asyncio.run(asyncio.wait_for(scene(mock), 50))
        with SyncRpcClient(spindle, cwd=tmp_path / "work", env=agent_environment(tmp_path / "agent")) as client:
            with client.open_session(cwd=tmp_path / "other") as session:
                assert session.prompt_and_wait("two").text == "for two"
                assert [event.type for event in session.run("two")][-1] == "agent_settled"
            assert client.prompt_and_wait("first").text == "for the first"


def test_over_a_websocket_and_shared_with_other_clients(tmp_path):
    (tmp_path / "other").mkdir()
    steps = [reply("a", gate("go"), "b", match="slow"), reply("quick")]
    with ServerProcess(steps, base=tmp_path) as server, server.rpc() as one, server.rpc() as two:
        opened = one.call("open_session", cwd=str(tmp_path / "other"))["data"]
        id = opened["id"]
        assert one.call("prompt", message="slow", sessionId=id)["success"]
        server.mock.wait_gate("go")
        listed = {item["id"]: item for item in two.call("list_live_sessions")["data"]["sessions"]}
        assert len(listed) == 3 and listed[id]["phase"] == "streaming" and listed[id]["clients"] == 1
        assert two.call("get_state", sessionId=id)["data"]["isStreaming"]  # joins it
        with server.rpc(f"?session={id}") as three:
            assert three.ready["sessionId"] == id
            server.mock.release("go")
            assert "sessionId" not in three.wait("agent_settled")
            assert one.wait("agent_settled")["sessionId"] == two.wait("agent_settled")["sessionId"] == id
        assert two.call("close_session", sessionId=id)["success"]
        assert one.wait("session_closed")["sessionId"] == id
        assert one.call("get_state")["success"]
        assert "ends with it" in one.call("close_session")["error"]


def test_the_sessions_of_a_client_go_on_without_it(tmp_path):
    with ServerProcess([reply("a", gate("go"), "b"), reply("c")], base=tmp_path) as server:
        with server.rpc() as one:
            id = one.call("open_session")["data"]["id"]
            one.call("prompt", message="hi", sessionId=id)
            server.mock.wait_gate("go")
        with server.rpc() as two:
            assert two.call("get_state", sessionId=id)["data"]["isStreaming"]
            server.mock.release("go")
            assert two.wait("agent_settled")["sessionId"] == id


def test_many_prompts_at_once_hold_up_no_other_session_and_what_was_sent_behind_them_stays_behind(agent):
    """A hundred prompts, each with a question behind it, an abort, and one for the first session, in one write."""
    ids = [agent.data("open_session")["id"] for _ in range(100)]
    lines = [{"id": f"p{id}", "type": "prompt", "message": "slow", "sessionId": id} for id in ids]
    lines += [{"id": f"s{id}", "type": "get_state", "sessionId": id} for id in ids]
    lines += [{"id": f"a{id}", "type": "abort", "sessionId": id} for id in ids]
    lines += [{"id": "first", "type": "get_state"}]
    agent.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    for id in ids:
        agent.wait(lambda frame, id=id: frame.get("id") == f"a{id}")  # the end of the run is told before it
    answers = [frame for frame in agent.frames if frame["type"] == "response" and frame["id"][1:] in ids]
    for id in ids:
        started, state, aborted = (frame for frame in answers if frame["sessionId"] == id)
        assert started["id"] == f"p{id}" and started["data"] == {"disposition": "started"}
        assert state["id"] == f"s{id}" and state["data"]["isStreaming"]
        assert aborted["id"] == f"a{id}" and aborted["success"]
    order = [frame.get("id") for frame in agent.frames]
    assert order.index("first") < order.index(f"p{ids[-1]}")


def test_all_that_was_sent_before_the_end_of_the_input_is_answered(agent):
    ids = [agent.data("open_session")["id"] for _ in range(100)]
    lines = [{"id": f"p{id}", "type": "prompt", "message": "hi", "sessionId": id} for id in ids]
    agent.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert agent.close_stdin() == 0
    assert {frame["id"] for frame in agent.frames if frame.get("command") == "prompt"} == {f"p{id}" for id in ids}


# -- what a client has asked for holds in all of its sessions -----------------------------------------


@pytest.mark.parametrize("when", ["before", "after", "inside"])
def test_a_filter_holds_for_every_session(agent, tmp_path, when):
    if when == "before":
        agent.data("set_event_filter", events=["turn_end"])
    id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
    if when != "before":
        agent.data("set_event_filter", events=["turn_end"], **({"sessionId": id} if when == "inside" else {}))
    start = len(agent.frames)
    agent.prompt("hi", sessionId=id)
    agent.wait(of(id, "turn_end"))
    agent.prompt("hi")
    agent.wait(lambda frame: frame["type"] == "turn_end" and "sessionId" not in frame)
    assert {frame["type"] for frame in agent.frames[start:]} == {"response", "turn_end"}


@pytest.mark.parametrize("when", ["before", "after", "inside"])
def test_version_2_holds_for_every_session(tmp_path, when):
    (tmp_path / "other").mkdir()
    text = "x" * (1 << 20)
    with AgentProcess([reply(text)], base=tmp_path, args=["--updates", "delta"]) as agent:
        if when == "before":
            agent.data("negotiate_protocol", protocolVersion=2)
        id = agent.data("open_session", cwd=str(tmp_path / "other"))["id"]
        if when != "before":
            agent.data("negotiate_protocol", protocolVersion=2, **({"sessionId": id} if when == "inside" else {}))
        sent = agent.send("prompt", message="hi", sessionId=id)
        result = agent.wait("prompt_result")
        assert (result["id"], result["sessionId"], result["status"]) == (sent, id, "completed")
        assert agent.wait("session_settled")["sessionId"] == id
        pieces: dict[str, bytes] = {}
        for frame in agent.frames:
            if frame["type"] == "rpc_chunk":
                pieces[frame["chunkId"]] = pieces.get(frame["chunkId"], b"") + base64.b64decode(frame["data"])
        whole = [json.loads(data) for data in pieces.values()]
        assert "message_end" in {frame["type"] for frame in whole} and {frame["sessionId"] for frame in whole} == {id}
        assert all(len(line) <= 1 << 20 for line in agent.lines)
