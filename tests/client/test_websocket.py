"""The client and `spindle serve`: the same object as on stdio, and what only a network has."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from websockets.asyncio.server import serve

from spindle.client import ConnectionFailed, ConnectionLost, Event, RequestTimeout, RpcClient, SyncRpcClient
from tests.support.mock_model import call, reply, stall
from tests.wires.server.server import TOKEN, ServerProcess


def with_client(server: ServerProcess, story: Any, url: str = "ws://{}/rpc", **options: Any) -> None:
    """Run a story with a connected client."""

    async def told() -> None:
        target = url.format(server.address)
        async with asyncio.timeout(50), RpcClient(target, proxy=None, request_timeout=40, **options) as agent:
            await story(agent)

    asyncio.run(told())


@pytest.mark.parametrize("url", ["ws://{}/rpc", "ws://{}", "http://{}/"])
def test_a_conversation(url: str) -> None:
    async def story(agent: RpcClient) -> None:
        pieces: list[str] = []
        run = await agent.prompt_and_wait("hi", on_event=lambda event: pieces.append(event.text_delta))
        assert (run.text, run.error, run.aborted) == ("Hello", None, False)
        assert "".join(pieces) == "Hello"
        assert len(await agent.get_messages()) == 2

    with ServerProcess([reply("Hel", "lo")]) as server:
        with_client(server, story, url, updates="delta")


def test_tools_and_questions() -> None:
    asked: list[str] = []

    def allow(request: Event) -> bool:
        asked.append(request["title"])
        return True

    async def story(agent: RpcClient) -> None:
        @agent.tool
        def weather(city: str) -> str:
            """Tell the weather."""
            return f"rain in {city}"

        await agent.set_approval(tools=True)
        assert (await agent.prompt_and_wait("weather?")).text == "It rains."

    with ServerProcess([reply(call("weather", {"city": "Oslo"})), reply("It rains.")]) as server:
        with_client(server, story, on_ui_request=allow)
        assert server.mock.requests[1].body["messages"][-1]["content"] == "rain in Oslo"
    assert len(asked) == 1


def test_abort_and_shutdown() -> None:
    async def story(agent: RpcClient) -> None:
        async for event in agent.run("story"):
            if event.text_delta:
                aborting = asyncio.create_task(agent.abort())
            if event.type == "agent_settled":
                assert event["aborted"]
        await aborting
        await agent.shutdown()
        with pytest.raises(ConnectionLost) as lost:
            while True:
                await agent.get_state()
        assert lost.value.code == 1000

    with ServerProcess([reply("Once ", stall())]) as server:
        with_client(server, story)


def test_a_session_is_gone_on_with() -> None:
    ids: list[str] = []

    async def first(agent: RpcClient) -> None:
        await agent.prompt_and_wait("remember me")
        ids.append((await agent.get_state())["sessionId"])

    async def second(agent: RpcClient) -> None:
        assert "remember me" in str(await agent.get_messages())

    with ServerProcess([reply("ok")]) as server:
        with_client(server, first)
        with_client(server, second, f"ws://{{}}?session={ids[0]}")
        with pytest.raises(ConnectionFailed, match="No session nowhere") as failed:
            with_client(server, second, "ws://{}/rpc?session=nowhere")
        assert failed.value.status == 4004


def test_a_server_that_stops_ends_everything_open() -> None:
    async def story(agent: RpcClient) -> None:
        stream = agent.events()
        await asyncio.to_thread(server.stop)
        with pytest.raises(ConnectionLost) as lost:
            async for _ in stream:
                pass
        assert lost.value.code == 1001
        with pytest.raises(ConnectionLost):
            await agent.get_state()
        await agent.close()
        with pytest.raises(ConnectionFailed, match="Cannot connect to ws://127"):
            await agent.start()

    with ServerProcess() as server:
        with_client(server, story)


def test_tokens() -> None:
    async def story(agent: RpcClient) -> None:
        assert (await agent.prompt_and_wait("hi")).text == "in"

    with ServerProcess([reply("in")], env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        with_client(server, story, token=TOKEN)
        with pytest.raises(ConnectionFailed, match="401 A valid token is required") as failed:
            with_client(server, story, token="wrong")
        assert failed.value.status == 401


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def play() -> None:
        async with serve(lambda socket: socket.wait_closed(), "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            agent = RpcClient(f"ws://127.0.0.1:{port}", proxy=None, request_timeout=0.1)
            with pytest.raises(RequestTimeout, match="ready"):
                await agent.start()

    asyncio.run(asyncio.wait_for(play(), 50))


def test_a_long_prompt_and_what_was_posted_arrive_before_the_end() -> None:
    """Many frames are on their way when the client says goodbye; none of them is lost."""

    async def play() -> list[int]:
        got: list[int] = []

        async def slow(socket: Any) -> None:
            await socket.send('{"type": "ready"}')
            async for message in socket:
                got.append(len(message))

        async with serve(slow, "127.0.0.1", 0, max_size=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with RpcClient(f"ws://127.0.0.1:{port}", proxy=None) as agent:
                for number in range(50):
                    agent.host_tool_result(str(number), {"content": [], "details": "x" * 100_000})
                await asyncio.sleep(0)
        return got

    assert len(asyncio.run(asyncio.wait_for(play(), 50))) == 50


def test_without_asyncio() -> None:
    with (
        ServerProcess([reply("Hel", "lo")]) as server,
        SyncRpcClient(f"http://{server.address}", updates="delta", proxy=None) as agent,
    ):
        assert "".join(event.text_delta for event in agent.run("hi")) == "Hello"


def test_what_belongs_to_the_other_transport_is_refused() -> None:
    with pytest.raises(ValueError, match='"spindle --mode rpc" is not a URL'):
        RpcClient("spindle --mode rpc")
    with pytest.raises(TypeError, match="does not take token"):
        RpcClient(["spindle"], token="x")
    with pytest.raises(TypeError, match="does not take exit_grase"):
        RpcClient(["spindle"], exit_grase=1)


def test_the_client_needs_nothing_of_the_agent() -> None:
    """A program that drives an agent loads only the low layers, and websockets when it connects."""
    code = """if True:
        import sys, spindle.client, spindle.client.agent_cli
        low = {"client", "shapes", "base"}
        ours = {name.split(".")[1] for name in sys.modules if name.startswith("spindle.")}
        assert ours <= low, ours
        assert "websockets" not in sys.modules
    """
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 0
