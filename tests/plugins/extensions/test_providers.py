"""Stream functions of extensions: easy to write, and unable to hurt more than their own answer."""

import asyncio

import pytest
from msgspec.structs import replace

from spindle import Agent
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Finished, Request, Started, StreamOptions
from spindle.plugins.extensions.providers import adapt_stream
from spindle.shapes.messages import Text, Thinking, ToolCall, Usage
from spindle.shapes.model import ModelCost
from spindle.shapes.pieces import TextDelta
from spindle.testing import Script
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, reply

from .helpers import run


def answer_of(function):
    """Return the answer of a model with this stream function."""

    async def ask():
        chunks = adapt_stream(function)(Script([{"text": ""}]).model(), Request("", [], []), StreamOptions())
        return [chunk async for chunk in chunks]

    last = run(ask())[-1]
    assert isinstance(last, Finished)
    return last.message


def test_tokens_are_priced():
    async def stream(model, request, options):
        yield "ok"
        yield Usage(input=10, output=3, total_tokens=13)

    async def ask(**price):
        model = replace(Script([{"text": ""}]).model(), **price)
        return [chunk async for chunk in adapt_stream(stream)(model, Request("", [], []), StreamOptions())][-1].message

    cost = run(ask(cost=ModelCost(1, 2, 0, 0))).usage.cost
    assert (cost.total, cost.source) == (pytest.approx(16 / 1e6), "computed")
    assert run(ask(cost_unknown=True)).usage.cost.source == "unknown"


@pytest.mark.parametrize("value", [TextDelta(0, object()), [TextDelta(0, "a"), TextDelta(0, None)]])
def test_a_piece_without_text_ends_the_answer(value):
    async def stream(model, request, options):
        live = LiveMessage(model)
        yield Started(live)
        yield [live.start_text(), live.append(0, "ok")]
        yield value

    assert "stream function of scripted yielded" in answer_of(stream).error_message


def test_values_become_blocks_in_their_order():
    async def stream(model, request, options):
        yield Thinking("hm")
        yield "Hello "
        yield Text("there.")
        yield ToolCall("1", "bash", {"command": "ls"})
        yield Usage(input=10, output=3, total_tokens=13)

    answer = answer_of(stream)
    assert [type(block) for block in answer.content] == [Thinking, Text, ToolCall]
    assert answer.content[1].text == "Hello there." and answer.content[2].arguments == {"command": "ls"}
    assert answer.stop_reason == "toolUse" and answer.usage.input == 10


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no server"), "no server"),
        (SystemExit(2), "sys.exit(2) was called"),
        (asyncio.CancelledError(), "Something it waited for was cancelled"),
        (KeyboardInterrupt(), "KeyboardInterrupt was raised"),
    ],
)
def test_whatever_it_raises_is_an_answer_that_failed(error, text):
    async def stream(model, request, options):
        yield "Well"
        raise error

    answer = answer_of(stream)
    assert answer.stop_reason == "error" and answer.error_message == text
    assert answer.content == [Text("Well")]


def test_a_stream_function_is_for_one_agent_and_one_provider(tmp_path, monkeypatch):
    """Not for other agents of the process, not for other providers of the same API, not after its end."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path))

    def extension(agent):
        async def stream(model, request, options):
            yield "from the extension"

        settings = {"api": "anthropic-messages", "base_url": "http://127.0.0.1:1", "api_key": "k"}
        agent.provider("mine", stream=stream, models=[{"id": "m"}], **settings)

    async def ask(model, extensions=()):
        async with await Agent.create(cwd=tmp_path, model=model, persist=False, extensions=extensions) as agent:
            return await agent.ask("hi")

    async def check():
        async with await Agent.create(cwd=tmp_path, model="mine/m", persist=False, extensions=[extension]) as one:
            assert await one.ask("hi") == "from the extension"
            assert await ask("mock/m1") == "from the server"
            assert await ask("mock/m1", [extension]) == "from the server"
            assert await one.ask("hi") == "from the extension"
        assert await ask("mock/m1") == "from the server"

    with MockModel([reply("from the server")] * 3) as mock:
        write_models(tmp_path, mock.anthropic_url, api="anthropic-messages")
        run(check())
