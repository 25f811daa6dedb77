"""The remote client against the real server, and against servers with other habits."""

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import serve

from spindle.client import (
    Answer,
    ClientClosed,
    Completion,
    ConnectionFailed,
    ConnectionLost,
    RemoteClient,
    RequestFailed,
    RequestTimeout,
    TextPiece,
    TokenUsage,
    ToolCallPiece,
    ToolConfirmation,
    ToolResultPiece,
    TurnConfirmation,
    file_input,
    image_input,
)
from tests.support.images import PIXEL
from tests.support.mock_model import call, failure, gate, reply, stall
from tests.wires.server.server import TOKEN, ServerProcess

USAGE = TokenUsage(10, 5, 15)
ASK = {"ask_before_tool_execution": True}
LIST = reply(call("bash", {"command": "echo a.txt"}))


def with_client(server: ServerProcess, story: Any, **options: Any) -> None:
    """Run a story with a connected client."""

    async def told() -> None:
        async with asyncio.timeout(50), RemoteClient(f"ws://{server.address}", proxy=None, **options) as agent:
            await story(agent)

    asyncio.run(told())


async def pieces_of(stream: Any) -> list[Any]:
    return [piece async for piece in stream]


# -- chatting -------------------------------------------------------------------------------------------


def test_questions_and_answers() -> None:
    async def story(agent: RemoteClient) -> None:
        assert await agent.ask("hi") == Answer("Hello!", USAGE)
        assert [name.name for name in await agent.get_commands()][:3] == ["help", "clear", "exit"]
        assert await agent.instruct("history") == "[user] hi\n[assistant] Hello!"
        assert (await agent.regenerate()).text == "Hello again!"
        assert (await pieces_of(agent.regenerate_stream()))[0] == TextPiece("once more")
        await agent.clear_context()
        assert await agent.instruct("/history") == ""
        with pytest.raises(RequestFailed, match="Nothing to regenerate"):
            await agent.regenerate()
        with pytest.raises(RequestFailed, match="Unknown command: nonsense"):
            await agent.instruct("nonsense")

    with ServerProcess([reply("Hello!"), reply("Hello again!"), reply("once more")]) as server:
        with_client(server, story)


def test_a_stream_of_pieces() -> None:
    async def story(agent: RemoteClient) -> None:
        pieces = await pieces_of(agent.stream("list"))
        assert pieces == [
            ToolCallPiece("bash", {"command": "echo a.txt"}),
            ToolResultPiece("bash", {"content": "a.txt\n", "is_error": False}),
            TextPiece("There is a.txt"),
            Completion(TokenUsage(20, 10, 30)),
        ]
        assert pieces[1].text == "a.txt\n" and not pieces[1].is_error

    with ServerProcess([LIST, reply("There is a.txt")]) as server:
        with_client(server, story)


def test_several_requests_on_their_way() -> None:
    async def story(agent: RemoteClient) -> None:
        answers = await asyncio.gather(*(agent.ask(f"question {n}") for n in range(5)))
        assert [answer.text for answer in answers] == [str(n) for n in range(5)]

    with ServerProcess([reply(str(n)) for n in range(5)]) as server:
        with_client(server, story)


def test_pictures_and_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("grüß")
    pixel = base64.b64decode(PIXEL)

    async def story(agent: RemoteClient) -> None:
        await agent.ask("look", image_input(pixel, "image/png"), file_input(tmp_path / "notes.txt"))

    with ServerProcess([reply("seen")]) as server:
        with_client(server, story)
        text, picture, file = server.mock.requests[0].body["messages"][-1]["content"]
        assert text["text"] == "look" and picture["type"] == "image_url"
        assert file["text"] == '<file name="notes.txt">\ngrüß\n</file>\n'


def test_configuration() -> None:
    async def story(agent: RemoteClient) -> None:
        await agent.ask("hi", use_tools=False)
        await agent.ask("hi", config={"prompt": "Be brief.", "max_tokens": 9})

    with ServerProcess([reply("x")]) as server:
        with_client(server, story, config={"prompt": "Be kind."})
        first, second = (request.body for request in server.mock.requests)
    assert first["messages"][0]["content"].startswith("Be kind.") and not first.get("tools")
    assert second["messages"][0]["content"].startswith("Be brief.") and second["tools"]
    assert 9 in (second.get("max_tokens"), second.get("max_completion_tokens"))


def test_failures() -> None:
    async def story(agent: RemoteClient) -> None:
        with pytest.raises(RequestFailed, match="bad thing") as failed:
            await agent.ask("x")
        assert failed.value.kind == "processing_error"
        answer = await agent.ask("x")
        assert answer.text == "sorry" and answer.tool_failure is not None
        assert answer.tool_failure.details["arguments"] == {"command": "exit 3"}
        with pytest.raises(RequestTimeout):
            await agent.ask("x", timeout=0.2)
        assert await agent.interrupt() is True and await agent.interrupt() is False
        assert (await agent.ask("x")).text == "fine"

    steps = [failure(400, "bad thing"), reply(call("bash", {"command": "exit 3"})), reply("sorry"), reply(stall())]
    with ServerProcess([*steps, reply("fine")]) as server:
        with_client(server, story)


def test_interrupting() -> None:
    async def story(agent: RemoteClient) -> None:
        seen: list[Any] = []
        async for piece in agent.stream("story"):
            seen.append(piece)
            if isinstance(piece, TextPiece):
                assert await agent.interrupt() is True
        assert seen == [TextPiece("Once "), Completion(None, interrupted=True)]

    with ServerProcess([reply("Once ", stall())]) as server:
        with_client(server, story)


def test_leaving_a_stream_early_stops_it() -> None:
    async def story(agent: RemoteClient) -> None:
        async for piece in agent.stream("story"):
            assert piece == TextPiece("Once ")
            break
        assert (await agent.ask("and now?")).text == "fine"

    with ServerProcess([reply("Once ", stall()), reply("fine")]) as server:
        with_client(server, story)


# -- confirmations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
def test_a_confirmation_is_answered_where_it_is_seen(approved: bool) -> None:
    async def story(agent: RemoteClient) -> None:
        kinds = []
        async for piece in agent.stream("list", config=ASK):
            kinds.append(type(piece))
            if isinstance(piece, ToolConfirmation):
                assert (piece.name, piece.arguments) == ("bash", {"command": "echo a.txt"}) and piece.description
                await piece.answer(approved, "because")
        rest = [ToolCallPiece, ToolResultPiece, TextPiece] if approved else [TextPiece]
        assert kinds == [ToolConfirmation, *rest, Completion]

    with ServerProcess([LIST, reply("ok")]) as server:
        with_client(server, story)


def test_handlers_answer_confirmations() -> None:
    asked: list[Any] = []

    def on_tool(question: ToolConfirmation) -> bool:
        asked.append(question.arguments["command"])
        return "rm" not in asked[-1]

    async def on_turns(question: TurnConfirmation) -> bool:
        asked.append((question.current_turns, question.max_turns))
        return True

    async def story(agent: RemoteClient) -> None:
        assert (await agent.ask("list")).text == "done"
        assert "not approved" in (await agent.ask("delete")).text
        assert asked == ["echo a.txt", (1, 1), "rm it"]

    steps = [LIST, reply("done"), reply(call("bash", {"command": "rm it"}))]
    with ServerProcess(steps) as server:
        with_client(server, story, config={**ASK, "max_context_num": 1}, on_tool=on_tool, on_turns=on_turns)


def test_without_anybody_to_ask_the_answer_is_no() -> None:
    def broken(question: ToolConfirmation) -> bool:
        raise RuntimeError("oops")

    async def story(agent: RemoteClient) -> None:
        assert "not approved" in (await agent.ask("list", config=ASK)).text
        agent.on_tool = broken
        assert "not approved" in (await agent.ask("list")).text

    with ServerProcess([LIST]) as server:
        with_client(server, story)


# -- connections ----------------------------------------------------------------------------------------


def test_a_lost_connection_is_made_again_with_the_same_session() -> None:
    async def story(agent: RemoteClient) -> None:
        await agent.ask("remember me")
        session = agent.session_id
        stream = agent.stream("a long story")
        assert await anext(stream) == TextPiece("Once ")
        agent._transport._socket._conn.transport.abort()  # type: ignore[union-attr]
        with pytest.raises(ConnectionLost):
            await anext(stream)
        answer = await agent.ask("are you there?")
        assert answer.text == "yes" and agent.session_id == session
        assert "remember me" in await agent.instruct("history")

    with ServerProcess([reply("ok"), reply("Once ", stall()), reply("yes")]) as server:
        with_client(server, story)


@pytest.mark.parametrize("spoken", [True, False])
def test_a_server_that_restarts_is_waited_for(tmp_path: Path, spoken: bool) -> None:
    async def story() -> None:
        with ServerProcess([reply("ok")], base=tmp_path) as server:
            agent = RemoteClient(f"ws://{server.address}", proxy=None, reconnect=50)
            await agent.connect()
            if spoken:
                await agent.ask("remember me")
            assert await asyncio.to_thread(server.stop) == 0
        asking = asyncio.create_task(agent.ask("still there?"))
        await asyncio.sleep(0)

        def start() -> ServerProcess:
            return ServerProcess([reply("yes")], base=tmp_path, address=server.address)

        with await asyncio.to_thread(start) as again:
            assert (await asking).text == "yes"
            assert ("remember me" in json.dumps(again.mock.requests[0].body)) is spoken
            await agent.close()

    asyncio.run(asyncio.wait_for(story(), 55))


def test_a_session_is_named() -> None:
    ids: list[Any] = []

    async def first(agent: RemoteClient) -> None:
        await agent.ask("remember me")
        ids.append(agent.session_id)

    async def second(agent: RemoteClient) -> None:
        assert "remember me" in await agent.instruct("history")

    with ServerProcess([reply("ok")]) as server:
        with_client(server, first)
        with_client(server, second, session=ids[0])
        with pytest.raises(ConnectionFailed, match="No session nowhere") as failed:
            with_client(server, second, session="nowhere")
        assert failed.value.status == 4004


def test_a_session_that_was_taken_over_is_not_taken_back() -> None:
    async def story(agent: RemoteClient) -> None:
        await agent.ask("hi")
        async with RemoteClient(agent.url, session=agent.session_id, proxy=None) as other:
            with pytest.raises(ConnectionLost) as lost:
                while True:
                    await agent.get_commands()
            assert lost.value.code == 4001
            assert (await other.ask("hi")).text == "ok"
        await agent.connect()  # on purpose it may
        assert (await agent.ask("hi")).text == "ok"

    with ServerProcess([reply("ok")]) as server:
        with_client(server, story)


def test_tokens() -> None:
    async def story(agent: RemoteClient) -> None:
        assert (await agent.ask("hi")).text == "in"

    with ServerProcess([reply("in")], env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        with_client(server, story, token=TOKEN)
        for token in (None, "wrong"):
            with pytest.raises(ConnectionFailed, match="401 A valid token is required") as failed:
                with_client(server, story, token=token)
            assert failed.value.status == 401


def test_nobody_there() -> None:
    async def story() -> None:
        agent = RemoteClient("ws://127.0.0.1:1", proxy=None)
        with pytest.raises(ClientClosed):
            await agent.ask("hi")
        with pytest.raises(ConnectionFailed, match="Cannot connect to ws://127"):
            await agent.connect()

    asyncio.run(story())


def test_a_closed_client() -> None:
    async def story(agent: RemoteClient) -> None:
        asking = asyncio.create_task(agent.ask("hi"))
        await asyncio.to_thread(server.mock.wait_requests, 1)
        await agent.close()
        with pytest.raises(ClientClosed):
            await asking
        with pytest.raises(ClientClosed):
            await agent.ask("hi")

    with ServerProcess([reply("x", gate("never"))]) as server:
        with_client(server, story)


def test_importing_the_clients_does_not_load_websockets() -> None:
    code = "import sys, spindle.client as c; assert 'websockets' not in sys.modules; c.RemoteClient; c.TextPiece; "
    code += "assert 'websockets' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 0


# -- other servers --------------------------------------------------------------------------------------


def with_answers(contents: list[Any], story: Any) -> None:
    """Run a story against a server that answers every chat request with these contents."""

    async def answer(socket: Any) -> None:
        async for message in socket:
            request = json.loads(message)
            known = "Instruction" not in request["input"]
            for content in contents if known else [{"Text": ""}]:
                error = None if known else "Unknown command: config"
                frame = {"request_id": request["request_id"], "response": content, "error": error}
                await socket.send("nonsense")
                await socket.send(json.dumps({**frame, "token_usage": None, "extra": 1}))

    async def told() -> None:
        async with serve(answer, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with RemoteClient(f"ws://127.0.0.1:{port}", proxy=None) as agent:
                await story(agent)

    asyncio.run(asyncio.wait_for(told(), 20))


COMPLETE = {"token_usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}, "interrupted": False}


@pytest.mark.parametrize(
    "contents",
    [
        [{"Stream": ["a", "b"]}, {"Complete": COMPLETE}],
        [{"Stream": "a"}, {"Stream": "b"}, {"StreamComplete": COMPLETE}],
        [{"": ["a", "b"]}, {"Complete": COMPLETE}],
        [{"Multi": [{"Stream": "a"}, {"Multi": [{"Stream": "b"}]}, {"Complete": COMPLETE}]}],
        [{"Novelty": 1}, {"Stream": "ab"}, {"Complete": COMPLETE}],
    ],
)
def test_other_ways_to_write_a_stream(contents: list[Any]) -> None:
    async def story(agent: RemoteClient) -> None:
        assert agent.session_id is None
        pieces = await pieces_of(agent.stream("x"))
        assert "".join(piece.text for piece in pieces[:-1]) == "ab"
        assert pieces[-1] == Completion(TokenUsage(1, 2, 3))
        assert await agent.ask("a server that always streams") == Answer("ab", TokenUsage(1, 2, 3))

    with_answers(contents, story)


def test_an_answer_in_several_texts() -> None:
    async def story(agent: RemoteClient) -> None:
        assert (await agent.ask("x")).text == "one two"

    with_answers([{"Multi": [{"Text": "one "}, {"Text": "two"}]}], story)
