"""Several clients of one session: what one of them does, the others get to know."""

import asyncio
import json

import pytest

from spindle.tools.base import builtin_tools

from .inside import run, until
from .test_races import CALL, GATED, closed, noting


def question(frame):
    return frame.get("method") == "confirm"


def test_a_dialog_that_one_client_answers_is_closed_at_the_others(tmp_path):
    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            await one.call("set_approval", tools=True)
            await one.call("prompt", message="go")
            asked = await other.wait(question)
            await one.wait(question)
            answer = {"type": "extension_ui_response", "id": asked["id"], "confirmed": True}
            await one.socket.send(json.dumps(answer))
            over = await other.wait("extension_ui_request")
            assert over["method"] == "cancel" and over["targetId"] == asked["id"]
            await other.wait("agent_settled")

    run(story, [CALL, "done"], tmp_path, tools=[noting([])])


def test_everybody_hears_that_the_conversation_is_another_one(tmp_path):
    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            first = one.ready["sessionId"]

            async def told():
                event = await other.wait("session_changed")
                return event["reason"], event["sessionId"]

            await one.call("prompt", message="hi")
            await one.wait("agent_settled")
            file = (await one.call("get_state"))["data"]["sessionFile"]
            (entry,) = (await one.call("get_fork_messages"))["data"]["messages"]
            await one.call("navigate_tree", entryId=entry["entryId"])
            assert await told() == ("tree", first)
            await one.call("bash", command="true")
            assert await told() == ("bash", first)
            await one.call("fork", entryId=entry["entryId"])
            reason, forked = await told()
            assert reason == "fork" and forked != first
            await one.call("new_session")
            reason, fresh = await told()
            assert reason == "new" and fresh not in (first, forked)
            await one.call("switch_session", sessionPath=file)
            assert await told() == ("resume", first)
            assert (await other.call("get_state"))["data"]["sessionId"] == first
            async with world.chat(f"?session={first}") as chat:
                await chat.ask("c", "ClearContext")
                assert await told() == ("clear", first)
                await chat.ask("t", {"Text": "hi"})
                await chat.ask("r", "Regenerate")
                assert await told() == ("regenerate", first)

    run(story, ["an answer"], tmp_path)


def test_the_state_has_what_a_client_that_comes_late_must_know(tmp_path):
    async def story(world):
        async with world.rpc() as one:
            await one.call("set_approval", tools=True, maxTurns=7)
            await one.call("prompt", message="go")
            await one.call("steer", message="rather this")
            await one.call("follow_up", message="and then that")
            async with world.rpc(f"?session={one.ready['sessionId']}") as late:
                assert late.ready["cwd"] == str(tmp_path)
                state = (await late.call("get_state"))["data"]
                assert state["queue"] == {"steering": ["rather this"], "followUp": ["and then that"]}
                assert state["approval"] == {"tools": True, "maxTurns": 7}
                await one.call("set_approval")
                await late.wait("state_changed")
                assert (await late.call("get_state"))["data"]["approval"] == {"tools": False}

    run(story, [GATED], tmp_path)


HOST_TOOL = {"name": "there", "description": "d", "parameters": {"type": "object", "properties": {}}}
TODO = {"name": "Now", "tasks": [{"content": "this", "status": "pending"}]}


@pytest.mark.parametrize(
    "command, fields, key, value",
    [
        ("set_steering_mode", {"mode": "all"}, "steeringMode", "all"),
        ("set_follow_up_mode", {"mode": "all"}, "followUpMode", "all"),
        ("set_interrupt_mode", {"mode": "wait"}, "interruptMode", "wait"),
        ("set_auto_compaction", {"enabled": False}, "autoCompactionEnabled", False),
        ("set_auto_retry", {"enabled": False}, "autoRetryEnabled", False),
        ("set_approval", {"tools": True}, "approval", {"tools": True}),
        ("set_todos", {"phases": [TODO]}, "todoPhases", None),
        ("set_host_tools", {"tools": [HOST_TOOL]}, "dumpTools", None),
    ],
)
def test_the_others_are_told_what_one_client_changes(tmp_path, command, fields, key, value):
    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            before = (await other.call("get_state"))["data"][key]
            assert (await one.call(command, **fields))["success"]
            await other.wait("state_changed")
            after = (await other.call("get_state"))["data"][key]
            assert after != before and (value is None or after == value)

    run(story, ["unused"], tmp_path)


def test_a_client_that_hangs_up_in_the_middle_of_a_change(tmp_path):
    loads, loading, go_on = [], asyncio.Event(), asyncio.Event()

    async def extension(agent):
        loads.append(agent)
        if len(loads) > 1:
            loading.set()
            await go_on.wait()
        agent.on("session_start", lambda event, ctx: ctx.ui.notify(f"started: {event.reason}"))

    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            await one.wait(lambda frame: frame.get("message") == "started: startup")
            await one.socket.send(json.dumps({"type": "new_session"}))
            await loading.wait()
            one.socket.transport.abort()
            await until(lambda: len(world.server._peers) == 1)
            go_on.set()
            changed = await other.wait("session_changed")
            assert changed["reason"] == "new" and changed["sessionId"] != one.ready["sessionId"]
            await other.wait(lambda frame: frame.get("message") == "started: new")
            assert (await other.call("get_state"))["data"]["sessionId"] == changed["sessionId"]
            await other.call("prompt", message="hi")
            assert (await other.wait("agent_settled"))["aborted"] is False

    run(story, ["an answer"], tmp_path, extension=extension)


def test_a_no_at_the_turn_limit_is_an_abort(tmp_path):
    async def story(world):
        async with world.rpc() as client:
            await client.call("set_approval", maxTurns=1)
            await client.call("prompt", message="go")
            asked = await client.wait(question)
            answer = {"type": "extension_ui_response", "id": asked["id"], "confirmed": False}
            await client.socket.send(json.dumps(answer))
            end = await client.wait("agent_end")
            assert end["messages"][-1]["stopReason"] == "aborted"
            settled = await client.wait("agent_settled")
            assert (settled["aborted"], settled["stopReason"]) == (True, "aborted")
            assert len(world.script.requests) == 1

    run(story, [CALL, "never"], tmp_path, tools=[noting([])])


def test_labels(tmp_path):
    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            await one.call("prompt", message="hi")
            await one.wait("agent_settled")
            (entry,) = (await one.call("get_fork_messages"))["data"]["messages"]
            assert (await one.call("set_label", entryId=entry["entryId"], label="here"))["success"]
            await other.wait("state_changed")
            labels = [e for e in (await other.call("get_entries"))["data"]["entries"] if e["type"] == "label"]
            assert [(e["targetId"], e["label"]) for e in labels] == [(entry["entryId"], "here")]
            refused = await one.call("set_label", entryId="nowhere", label="x")
            assert refused["error"] == "Entry nowhere not found"

    run(story, ["an answer"], tmp_path)


@pytest.mark.parametrize("wire", ["chat", "rpc"])
def test_an_extension_may_end_its_session_and_no_other(tmp_path, wire):
    def extension(agent):
        @agent.command("bye")
        def bye(arguments, ctx):
            ctx.shutdown()

        @agent.on("agent_end")
        def end(event, ctx):
            if "the end" in str(event.messages):
                ctx.shutdown()

    async def story(world):
        async with world.chat() as bystander:
            if wire == "chat":
                async with world.chat() as client:
                    id = await client.session_id()
                    assert (await client.ask("a", {"Text": "the end"}))["response"] == {"Text": "an answer"}
                    assert await closed(client) == 1000
            else:
                async with world.rpc() as client, world.rpc(f"?session={client.ready['sessionId']}") as other:
                    id = client.ready["sessionId"]
                    await client.call("prompt", message="hi")
                    await client.wait("agent_settled")
                    await client.call("prompt", message="/bye")
                    assert await closed(client) == await closed(other) == 1000
            assert (await bystander.ask("b", {"Text": "still there?"}))["response"] == {"Text": "an answer"}
            async with world.chat(f"?session={id}") as again:
                assert (
                    "an answer" in (await again.ask("h", {"Instruction": {"command": "history"}}))["response"]["Text"]
                )
        assert len(world.agents) == 3, "the session had ended, and was opened again"

    run(story, ["an answer"], tmp_path, extension=extension)


def test_a_prompt_behind_a_restore_waits_for_its_end(tmp_path):
    write = {"calls": [{"name": "bash", "arguments": {"command": "echo new > n"}}]}

    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as other:
            await one.call("prompt", message="go")
            await one.wait("agent_settled")
            [checkpoint] = (await one.call("list_checkpoints"))["data"]["checkpoints"]
            frames = [{"id": "r", "type": "restore", "checkpoint": checkpoint["id"]}, {"id": "p", "type": "prompt"}]
            for frame in frames:
                await one.socket.send(json.dumps({"message": "again", **frame}))
            assert not (await other.call("restore", checkpoint=checkpoint["id"]))["success"]
            answers = {}
            while len(answers) < 2:
                answer = await one.wait("response")
                answers[answer["id"]] = answer
            assert answers["r"]["success"], answers
            assert answers["p"]["data"]["disposition"] == "queued"
            await one.wait("agent_settled")

    run(story, [write, "done", "again"], tmp_path, tools=[builtin_tools()["bash"]])
