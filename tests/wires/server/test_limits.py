"""Limits and time-outs, each made small enough to be reached."""

import asyncio
import json

import pytest
from websockets.exceptions import InvalidStatus

from spindle.base import limits
from spindle.wires.agent_cli.reply import HIGH_CHARS, FrameQueue
from spindle.wires.network.options import RemoteOptions, changed
from spindle.wires.network.peer import Throttle

from .inside import held, run, tool, until
from .test_races import ASK, CALL, GATED, closed, noting

SLOW = {"text": "late", "delay": 30}
APPROVE = {"ToolConfirmationResponse": {"name": "slow", "arguments": {}, "approved": True}}


def error_type(frame):
    return json.loads(frame["error"])["type"]


def sleeper():
    async def slow(arguments):
        await asyncio.sleep(30)
        return "woke up"

    return tool("slow", slow)


# -- time-outs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_takes_too_long(tmp_path, stream):
    async def story(world):
        async with world.chat() as client:
            end = await client.ask("a", {"Text": "go"}, stream=stream)
            assert end["response"] == {"Text": ""} and error_type(end) == "timeout_error"
            if stream:
                assert (await client.read())["response"]["Complete"]["interrupted"] is False
            assert (await client.ask("b", {"Text": "again"}))["response"] == {"Text": "fine"}

    run(story, [SLOW, "fine"], tmp_path, request_timeout=1)


def test_waiting_for_another_client_counts_as_well(tmp_path):
    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await rpc.call("prompt", message="hi")
            assert error_type(await chat.ask("a", {"Text": "go"})) == "timeout_error"
            world.script.release("go")
            await rpc.wait("agent_settled")
            assert len(world.script.requests) == 1, "the other client's run was left alone"

    run(story, [GATED, "fine"], tmp_path, request_timeout=0.2)


def test_tools_that_take_too_long(tmp_path):
    async def story(world):
        async with world.chat() as client:
            assert error_type(await client.ask("a", {"Text": "go"})) == "timeout_error"
            assert (await client.ask("b", {"Text": "again"}))["response"] == {"Text": "fine"}

    run(story, [{"calls": [{"name": "slow"}]}, "fine"], tmp_path, tools=[sleeper()], tool_timeout=0.2)


def test_time_the_user_takes_does_not_count(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "go"}, config=ASK)
            await asyncio.sleep(1.2)
            deny = {"ToolConfirmationResponse": {"name": "slow", "arguments": {}, "approved": False}}
            end = await client.ask("c", deny)
            assert end["error"] is None and end["response"] == {
                "Text": "Tool 'slow' execution was not approved by user"
            }
            # But it goes on counting after an answer.
            await client.ask("b", {"Text": "go"})
            assert error_type(await client.ask("d", APPROVE)) == "timeout_error"

    step = {"calls": [{"name": "slow"}]}
    run(story, [step], tmp_path, tools=[sleeper()], request_timeout=1)


def test_a_confirmation_that_never_comes_is_a_refusal(tmp_path):
    done = []

    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "go"}, config={**ASK, "max_context_num": 1})
            end = await client.read()
            assert end["response"] == {"Text": "Tool 'note' execution was not approved by user"}
            assert error_type(end) == "timeout_error" and done == []
            await client.ask("b", {"Text": "more"})
            end = await client.read()
            assert end["response"] == {"Text": "对话已结束，未重置轮次。"} and error_type(end) == "timeout_error"

    run(story, [CALL, "fine"], tmp_path, tools=[noting(done)], confirm_timeout=0.1)


def test_a_client_that_does_not_answer_pings_is_let_go(tmp_path):
    async def story(world):
        host, port = world.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET / HTTP/1.1\r\nHost: {world.address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head
        assert await reader.readexactly(1) == b"\x89", "a ping"
        await reader.readuntil(b"\x03\xf3")  # 1011 in a close frame
        writer.close()
        await until(lambda: not world.server._peers)

    run(story, ["x"], tmp_path, ping_seconds=0.1)


def test_a_busy_model_is_no_reason_to_let_a_client_go(tmp_path):
    async def story(world):
        async with world.chat() as client:
            assert (await client.ask("a", {"Text": "go"}))["response"] == {"Text": "late"}

    run(story, [{"text": "late", "delay": 0.6}], tmp_path, ping_seconds=0.1)


# -- how much -------------------------------------------------------------------------------------------


def test_a_client_is_read_no_faster_than_allowed(tmp_path):
    async def story(world):
        async with world.chat() as client:
            begin = asyncio.get_running_loop().time()
            for number in range(120):
                await client.send(f"g{number}", "GetCommands")
            answered = [(await client.read())["request_id"] for _ in range(120)]
            assert answered == [f"g{number}" for number in range(120)], "late, but all of them"
            assert asyncio.get_running_loop().time() - begin >= 0.95

    run(story, ["x"], tmp_path, frames_per_second=20)


def test_the_throttle_allows_bursts_and_forgives_with_time():
    throttle = Throttle(10)
    assert [throttle.delay(0.0) for _ in range(50)] == [0.0] * 50
    assert throttle.delay(0.0) == pytest.approx(0.1) and throttle.delay(0.0) == pytest.approx(0.2)
    assert throttle.delay(1.0) == 0.0
    assert [throttle.delay(1000.0) for _ in range(50)] == [0.0] * 50 and throttle.delay(1000.0) > 0


def test_there_is_a_limit_to_connections(tmp_path):
    async def story(world):
        async with world.chat() as one, world.chat():
            await one.ask("a", "GetCommands")
            with pytest.raises(InvalidStatus) as refused:
                async with world.chat():
                    pass
            assert refused.value.response.status_code == 503
        await until(lambda: not world.server._peers)
        async with world.chat() as again:
            await again.ask("a", "GetCommands")

    run(story, ["x"], tmp_path, max_connections=2)


def test_connections_that_are_left_open_are_ended_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "NEXT_REQUEST", 0.3)

    async def story(world):
        kept, (host, _, port) = [], world.address.partition(":")
        for _ in range(8):  # four times as many as clients
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"}")
            kept.append((reader, writer))
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read() == b""
        writer.close()
        kept[0][1].write(b"GET /heal")  # and no more
        for reader, writer in kept:
            assert await reader.read() == b""
            writer.close()
        async with world.chat() as client:
            await client.ask("a", "GetCommands")

    run(story, ["x"], tmp_path, max_connections=2)


def test_a_reader_that_stops_is_let_go_and_the_agent_with_it(tmp_path):
    pieces = [f"{number:07d} " * 4096 for number in range(600)]  # 20 MB

    async def story(world):
        async with world.chat(close_timeout=0.1, max_queue=1) as stalled, world.chat() as other:
            stalled.socket.transport.pause_reading()
            await stalled.send("a", {"Text": "go"}, stream=True)
            await until(lambda: world.agents and held(world.agents[0]) > 0.9 * HIGH_CHARS)
            assert held(world.agents[0]) < HIGH_CHARS + len(pieces[0]), "the agent waits instead of filling the memory"
            assert (await other.ask("b", {"Text": "hi"}))["response"] == {"Text": "fine"}
            await until(lambda: not world.agents[0].busy)
            stalled.socket.transport.resume_reading()
            assert await closed(stalled) == 1013

    run(story, [{"text": pieces, "match": "go"}, "fine"], tmp_path, stall_timeout=0.3)


def test_a_reader_that_comes_back_in_time_misses_nothing(tmp_path):
    pieces = [f"{number:07d} " * 4096 for number in range(600)]  # 20 MB

    async def story(world):
        async with world.chat(max_size=None) as client:
            client.socket.transport.pause_reading()
            await client.send("a", {"Text": "go"}, stream=True)
            await until(lambda: world.agents and held(world.agents[0]) > 0.9 * HIGH_CHARS)
            client.socket.transport.resume_reading()
            text, frames = "", 0
            while "Stream" in (frame := await client.read())["response"]:
                text, frames = text + frame["response"]["Stream"], frames + 1
            assert text == "".join(pieces) and frames < len(pieces), "joined while they waited"

    run(story, [{"text": pieces}], tmp_path)


def test_a_client_that_only_writes_is_not_read_for_ever(tmp_path):
    async def flood(client):
        while True:
            await client.send("x" * 200, "GetCommands")

    async def story(world):
        async with world.chat(close_timeout=0.1, max_queue=1) as client:
            client.socket.transport.pause_reading()
            flooding = asyncio.create_task(flood(client))
            await until(lambda: world.server._peers)
            (peer,) = world.server._peers
            read = -1
            while peer.frames_in != read:
                read = peer.frames_in
                await asyncio.sleep(0.3)
            assert read > 1000 and not flooding.done(), "it still writes, but it is not read any more"
            flooding.cancel()
            client.socket.transport.abort()
        await until(lambda: not world.server._peers)

    run(story, ["x"], tmp_path, frames_per_second=100_000)


def test_the_queue_counts_joined_text_too():
    async def story():
        queue = FrameQueue()
        while not queue.full:
            queue.stream("a", "x" * 10_000)
        waiting = asyncio.create_task(queue.room())
        taken = 0
        while not waiting.done():
            taken += len(json.loads(await queue.take())["response"]["Stream"])
            await asyncio.sleep(0)
        assert HIGH_CHARS - taken <= HIGH_CHARS // 4 + 100_000
        queue.drop()
        queue.stream("a", "x")
        assert await queue.take() is None

    asyncio.run(story())


# -- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_thinking_is_sent_on_request(tmp_path, wanted):
    async def story(world):
        async with world.chat() as client:
            await client.send("a", {"Text": "go"}, stream=True)
            text = ""
            while "Stream" in (frame := await client.read())["response"]:
                text += frame["response"]["Stream"]
            assert text == ("[Reasoning: hm]yes" if wanted else "yes")

    run(story, [{"thinking": ["hm"], "text": ["yes"]}], tmp_path, reasoning=wanted)


def test_limits_are_changed_by_name():
    options = changed(RemoteOptions(), ["confirm_timeout=0", " reasoning = TRUE ", "max_queued=3"])
    assert (options.confirm_timeout, options.reasoning, options.max_queued) == (0, True, 3)
    for wrong in ("port=1", "token=x", "nonsense=1", "max_queued=-1", "max_connections=0", "reasoning=1", "max_kept"):
        with pytest.raises(ValueError, match="emote option"):
            changed(RemoteOptions(), [wrong])
