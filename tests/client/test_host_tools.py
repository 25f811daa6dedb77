"""Functions of the host as tools of the agent."""

import asyncio
import json
import threading
import time
from typing import Annotated, Any, Literal

import msgspec
import pytest

from spindle.client import RpcClient, Update
from spindle.client.callbacks import HostTool

from .test_client import both_ways, drive, sent


class Point(msgspec.Struct):
    x: int
    y: int = 0


def test_the_signature_is_the_schema() -> None:
    def move(
        name: Annotated[str, "Who moves"],
        to: Annotated[Point, msgspec.Meta(description="Where to")],
        update: Update,
        how: Literal["walk", "run"] = "walk",
        tags: list[str] | None = None,
    ) -> None:
        """Move somebody.

        Slowly.
        """

    definition = HostTool(move).definition
    assert definition["name"] == "move"
    assert definition["description"] == "Move somebody.\n\nSlowly."
    parameters = definition["parameters"]
    assert parameters["type"] == "object"
    assert parameters["required"] == ["name", "to"]
    assert parameters["additionalProperties"] is False
    assert list(parameters["properties"]) == ["name", "to", "how", "tags"]
    assert parameters["properties"]["name"] == {"description": "Who moves", "type": "string"}
    assert parameters["properties"]["to"]["description"] == "Where to"
    assert parameters["properties"]["to"]["required"] == ["x"]
    assert sorted(parameters["properties"]["how"]["enum"]) == ["run", "walk"]


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        """Tell the time."""
        return "noon"

    parameters = HostTool(now, name="clock", description="What time is it?").definition
    assert (parameters["name"], parameters["description"]) == ("clock", "What time is it?")
    assert parameters["parameters"] == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_a_schema_may_be_given_instead() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}

    async def scene(agent: RpcClient) -> None:
        @agent.tool(parameters=schema)
        def weather(place: dict[str, Any]) -> str:
            """Tell the weather."""
            return f"rain in {place['city']}"

        assert (await agent.prompt_and_wait('tool weather {"city": "Oslo"}')).text == "rain in Oslo"
        (declared,) = [frame for frame in await sent(agent) if frame["type"] == "set_host_tools"]
        assert declared["tools"][0]["parameters"] == schema

    drive(scene)


def with_tools(agent: RpcClient) -> None:
    @agent.tool
    def plain(a: int, b: int = 1) -> int:
        """Add."""
        assert threading.current_thread() is not threading.main_thread()
        return a + b

    @agent.tool(name="asyncly", description="Greets.")
    async def anything(who: str, update: Update) -> str:
        update(f"greeting {who}")
        update("nearly")
        return f"Hello {who}"

    @agent.tool
    def slow(update: Update) -> None:
        """Report from a thread."""
        update({"content": [{"type": "text", "text": "half"}]})

    @agent.tool
    def typed(point: Point) -> dict[str, Any]:
        """Get a real object."""
        return {"content": [{"type": "text", "text": f"{point.x}/{point.y}"}], "details": {"seen": True}}

    @agent.tool
    def broken() -> None:
        """Fail."""
        raise RuntimeError("out of paper")

    @agent.tool
    async def cancels() -> None:
        """Wait for something that is cancelled by somebody else."""
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        waiting.cancel()
        await waiting

    @agent.tool
    def odd() -> dict[str, Any]:
        """Return what is no JSON."""
        return {"content": [], "details": object()}


def run_tool(name: str, arguments: Any, way: str = "process") -> tuple[str, list[dict[str, Any]]]:
    """Let the agent call a tool; return what it made of the result, and the frames it got for the call."""
    outcome: list[Any] = []

    async def scene(agent: RpcClient) -> None:
        with_tools(agent)
        run = await agent.prompt_and_wait(f"tool {name} {json.dumps(arguments)}")
        outcome.append(run.text)
        outcome.append([frame for frame in await sent(agent) if frame.get("id") == "h1"])

    drive(scene, way=way)
    return outcome[0], outcome[1]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("plain", {"a": 2, "b": 3}, "5"),
        ("plain", {"a": 2}, "3"),
        ("asyncly", {"who": "you"}, "Hello you"),
        ("slow", {}, "done"),
        ("typed", {"point": {"x": 1}}, "1/0"),
        ("broken", {}, "error: out of paper"),
        ("cancels", {}, "error: CancelledError"),
    ],
)
def test_tools_are_called_and_answered(name: str, arguments: Any, text: str) -> None:
    assert run_tool(name, arguments)[0] == text


def test_arguments_are_checked_before_the_call() -> None:
    text, _ = run_tool("plain", {"a": "two"})
    assert text.startswith("error: Expected `int`, got `str`")
    text, _ = run_tool("plain", {"a": 1, "c": 1})
    assert text.startswith("error: Object contains unknown field `c`")


@both_ways
def test_progress_comes_before_the_result(way: str) -> None:
    for name, arguments, expected in (
        ("asyncly", {"who": "you"}, ["greeting you", "nearly"]),
        ("slow", {}, ["half"]),
    ):
        _, frames = run_tool(name, arguments, way)
        *updates, result = frames
        assert [frame["partialResult"]["content"][0]["text"] for frame in updates] == expected
        assert result["type"] == "host_tool_result"


def test_details_of_a_result_are_kept() -> None:
    _, frames = run_tool("typed", {"point": {"x": 1, "y": 2}})
    assert frames[-1]["result"]["details"] == {"seen": True}
    assert "isError" not in frames[-1]


def test_a_result_that_cannot_be_written_is_an_error_and_not_silence() -> None:
    text, _ = run_tool("odd", {})
    assert text.startswith("error: ") and "object" in text


def test_tools_are_declared_on_request_or_with_the_next_prompt() -> None:
    async def scene(agent: RpcClient) -> None:
        with_tools(agent)
        names = ["plain", "asyncly", "slow", "typed", "broken", "cancels", "odd"]
        assert await agent.publish_tools() == names
        await agent.prompt_and_wait("hi")

        @agent.tool
        def late() -> str:
            """Come late."""
            return "in time"

        assert (await agent.prompt_and_wait("tool late {}")).text == "in time"
        declared = [frame["tools"] for frame in await sent(agent) if frame["type"] == "set_host_tools"]
        assert [[tool["name"] for tool in tools] for tools in declared] == [names, [*names, "late"]]

    drive(scene)


@both_ways
def test_a_client_that_is_started_again_declares_its_tools_again(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        with_tools(agent)
        for _ in range(2):
            assert (await agent.prompt_and_wait('tool plain {"a": 1}')).text == "2"
            assert "set_host_tools" in [frame["type"] for frame in await sent(agent)]
            await agent.close()
            await agent.start()

    drive(scene, way=way)


def test_a_plain_function_can_see_that_its_call_was_cancelled() -> None:
    seen = threading.Event()

    async def scene(agent: RpcClient) -> None:
        @agent.tool
        def endless(update: Update) -> None:
            """Work until told otherwise."""
            update("begun")
            while not update.cancelled:
                time.sleep(0.01)
            seen.set()

        assert (await agent.prompt_and_wait("cancelled-tool endless")).text == "cancelled"
        assert await asyncio.to_thread(seen.wait, 50)

    drive(scene)


@both_ways
def test_a_cancelled_call_stops_and_says_nothing(way: str) -> None:
    stopped = []

    async def scene(agent: RpcClient) -> None:
        @agent.tool
        async def endless(update: Update) -> None:
            """Never end."""
            try:
                update("begun")
                await asyncio.Event().wait()
            finally:
                stopped.append(True)

        assert (await agent.prompt_and_wait("cancelled-tool endless")).text == "cancelled"
        frames = [frame["type"] for frame in await sent(agent) if frame.get("id") == "h1"]
        assert frames == ["host_tool_update"]
        assert stopped == [True]

    drive(scene, way=way)


def test_a_tool_declared_by_hand_is_answered_by_hand() -> None:
    async def scene(agent: RpcClient) -> None:
        def answer(event: dict[str, Any]) -> None:
            if event["type"] == "host_tool_call":
                agent.host_tool_update(event["id"], {"content": []})
                agent.host_tool_result(event["id"], {"content": [{"type": "text", "text": "mine"}]}, is_error=True)

        agent.subscribe(answer)
        assert (await agent.prompt_and_wait("tool manual {}")).text == "error: mine"

    drive(scene)
