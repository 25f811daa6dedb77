"""What all APIs over HTTP share: hooks, headers, secrets, silence, abort, and that nothing is ever raised."""

import asyncio
import socket

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.stream import Finished, StreamOptions, builtin_stream
from spindle.shapes.pieces import TextDelta, TextStart
from tests.support.mock_model import MockModel, dropped, failure, gate, raw, reply, silent, stall

from .helpers import answer_of, collect, make_model, make_request, one_by_one, shape

APIS = ["openai-completions", "anthropic-messages"]


@pytest.fixture(params=APIS)
def api(request):
    return request.param


def model_of(mock: MockModel, api: str, **fields):
    return make_model(
        api=api, base_url=mock.openai_url if api == "openai-completions" else mock.anthropic_url, **fields
    )


def test_headers_are_laid_over_each_other(api):
    with MockModel() as mock:
        model = model_of(mock, api, headers={"X-One": "model", "X-Two": "model"})
        collect(model, api_key="key-12345", headers={"x-two": "options", "User-Agent": "mine"})
        headers = mock.requests[0].headers
    assert (headers["x-one"], headers["x-two"], headers["user-agent"]) == ("model", "options", "mine")


def test_hooks_see_and_change_the_request(api):
    seen = []

    async def on_payload(body):
        seen.append(body["model"])
        return {**body, "extra": 1}

    async def on_headers(headers):
        headers["x-extra"] = "2"

    async def on_response(status, headers):
        seen.append((status, headers["content-type"]))

    with MockModel() as mock:
        collect(model_of(mock, api), on_payload=on_payload, on_headers=on_headers, on_response=on_response)
        (request,) = mock.requests
    assert (request.body["extra"], request.headers["x-extra"]) == (1, "2")
    assert seen == ["m1", (200, "text/event-stream")]


def test_a_hook_that_returns_nothing_changes_nothing(api):
    async def on_payload(body):
        return None

    with MockModel() as mock:
        assert answer_of(collect(model_of(mock, api), on_payload=on_payload)).stop_reason == "stop"


def test_a_hook_that_breaks_ends_the_answer(api):
    async def on_payload(body):
        raise RuntimeError("no")

    answer = answer_of(collect(make_model(api=api), on_payload=on_payload))
    assert (answer.stop_reason, answer.error_message) == ("error", "RuntimeError: no")


@pytest.mark.parametrize(
    "step", [failure(401, b"bad key sk-secret-1234, Bearer other-secret"), raw(b"<sk-secret-1234>")]
)
def test_secrets_never_show_up(api, step):
    with MockModel([step]) as mock:
        headers = {"Authorization": "Bearer other-secret"}
        answer = answer_of(collect(model_of(mock, api), api_key="sk-secret-1234", headers=headers))
    assert "[hidden]" in answer.error_message
    assert "secret" not in answer.error_message


def test_a_dead_server(api):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        answer = answer_of(collect(make_model(api=api, base_url=f"http://{address}")))
    assert answer.error_message == f"Connection error. Cannot reach {address}: Connection refused"
    assert is_retryable(answer.error_message)


def test_a_server_that_hangs_up(api):
    with MockModel([dropped()]) as mock:
        answer = answer_of(collect(model_of(mock, api)))
        assert len(mock.requests) == 1
    assert answer.error_message.startswith("Connection error.")


@pytest.mark.parametrize("step", [silent(), reply("part", stall())], ids=["silent", "stalled"])
def test_a_server_that_falls_silent(api, step):
    with MockModel([step]) as mock:
        answer = answer_of(collect(model_of(mock, api), idle_timeout=0.1))
        mock.wait_hangups(1)
    assert answer.error_message == "Request timed out: no data for 0.1 s"
    assert is_retryable(answer.error_message)
    assert shape(answer) == ([] if step.silent else [("text", "part")])


def test_a_server_killed_in_mid_stream(api):
    with MockModel([reply("part", gate("held"))]) as mock:

        async def run():
            chunks = []
            async for chunk in one_by_one(builtin_stream(api)(model_of(mock, api), make_request(), StreamOptions())):
                chunks.append(chunk)
                if len(chunks) == 3:
                    await asyncio.to_thread(mock.wait_gate, "held")
                    await asyncio.to_thread(mock.close)
            return chunks

        answer = answer_of(asyncio.run(run()))
    assert (answer.stop_reason, shape(answer)) == ("error", [("text", "part")])
    assert answer.error_message.startswith("Stream ended ")


@pytest.mark.parametrize("how", ["cancel", "aclose"])
def test_abort_closes_the_socket_at_once(api, how):
    async def run(mock: MockModel) -> None:
        stream = one_by_one(builtin_stream(api)(model_of(mock, api), make_request(), StreamOptions()))
        live = (await anext(stream)).live
        assert [type(await anext(stream)) for _ in range(2)] == [TextStart, TextDelta]
        if how == "cancel":
            task = asyncio.create_task(anext(stream))
            await asyncio.to_thread(mock.wait_gate, "held")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await stream.aclose()
        await asyncio.to_thread(mock.wait_hangups, 1)
        assert shape(live.finish("aborted")) == [("text", "part")]

    with MockModel([reply("part", gate("held"))]) as mock:
        asyncio.run(run(mock))


def test_abort_before_the_answer_closes_the_socket(api):
    async def run(mock: MockModel) -> None:
        stream = builtin_stream(api)(model_of(mock, api), make_request(), StreamOptions())
        task = asyncio.create_task(anext(stream))
        await asyncio.to_thread(mock.wait_requests, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(mock.wait_hangups, 1)

    with MockModel([silent()]) as mock:
        asyncio.run(run(mock))


def test_turns_share_a_connection(api):
    async def run(mock: MockModel) -> None:
        for _ in range(3):
            async for _ in builtin_stream(api)(model_of(mock, api), make_request(), StreamOptions()):
                pass

    with MockModel([reply("a")]) as mock:
        asyncio.run(run(mock))
        assert [request.connection for request in mock.requests] == [1, 1, 1]


def test_a_burst_leaves_room_for_others(api):
    async def run(mock: MockModel) -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        async for chunk in builtin_stream(api)(model_of(mock, api), make_request(), StreamOptions()):
            if isinstance(chunk, Finished):
                assert len(chunk.message.content[0].text) == 5 * 20_000
        ticker.cancel()
        return ticks

    with MockModel([reply(*["word "] * 20_000)]) as mock:
        assert asyncio.run(run(mock)) > 20


@pytest.mark.parametrize(("wish", "kept"), [(None, None), ("long", "1h"), ("forever", None)])
def test_prompts_are_kept_as_long_as_the_environment_says(wish, kept, monkeypatch):
    if wish:
        monkeypatch.setenv("PI_CACHE_RETENTION", wish)
    with MockModel([reply("hi")]) as mock:
        collect(model_of(mock, "anthropic-messages"))
        (block,) = mock.requests[0].body["messages"][-1]["content"]
    assert block["cache_control"].get("ttl") == kept


def test_an_unknown_api_is_refused_with_those_there_are():
    with pytest.raises(LookupError, match=r"Unknown model API 'nonsense'.*anthropic-messages"):
        builtin_stream("nonsense")
