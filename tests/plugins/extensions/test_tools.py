"""Functions as tools: results, progress, errors, threads, built-ins wrapped."""

import asyncio
import threading

import pytest

from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Image, Text
from spindle.testing import load
from spindle.tools.base import ToolError

from .helpers import run


def tool_of(function, **options):
    return lambda agent: agent.tool(function, **options) if not options else agent.tool(**options)(function)


def outcome(function, /, **arguments):
    async def check():
        agent = await load(tool_of(function))
        return await agent.run_tool(function.__name__, **arguments)

    return run(check())


def test_name_and_description_come_from_the_function():
    def count_words(text: str):
        """Count words.

        All of them.
        """
        return str(len(text.split()))

    async def check():
        agent = await load(tool_of(count_words))
        tool = agent.tools["count_words"]
        assert tool.description == "Count words.\n\nAll of them."
        assert (await agent.run_tool("count_words", text="a b")).content == [Text("2")]

    run(check())


def test_options_of_a_tool_arrive():
    async def check():
        agent = await load(
            tool_of(
                lambda n: str(n),
                name="echo",
                label="Echo",
                description="Say it",
                snippet="say",
                guidelines=["Use it"],
                parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
                sequential=True,
                interruptible=False,
                prepare=lambda args: {"n": args.get("number", 0)},
            )
        )
        tool = agent.tools["echo"]
        assert (tool.label, tool.snippet, tool.guidelines) == ("Echo", "say", ("Use it",))
        assert (tool.sequential, tool.interruptible) == (True, False)
        assert (await agent.run_tool("echo", number="7")).content == [Text("7")]

    run(check())


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("text", [Text("text")]),
        (None, []),
        ({"content": "text"}, [Text("text")]),
        ({"content": [{"type": "text", "text": "a"}]}, [Text("a")]),
        (ToolResult([Image("aGk=", "image/png")]), [Image("aGk=", "image/png")]),
    ],
)
def test_what_a_tool_may_return(returned, content):
    def give():
        return returned

    assert outcome(give).content == content


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (7, "7"),
        (False, "false"),
        ([], "[]"),
        ({"text": "x"}, '{"text":"x"}'),
        ({"content": 5}, '{"content":5}'),
        ({"content": "a page", "url": "u"}, '{"content":"a page","url":"u"}'),
    ],
)
def test_any_json_value_is_a_result(returned, text):
    def give():
        return returned

    assert outcome(give).content == [Text(text)]


@pytest.mark.parametrize("returned", [object(), {1j: 1}, {"content": "x", "details": object()}])
def test_what_it_may_not(returned):
    def give():
        return returned

    with pytest.raises(TypeError):
        outcome(give)


def test_result_helper():
    async def check():
        kept = {}
        await load(lambda a: kept.update(agent=a))
        made = kept["agent"].result("x", images=[Image("aGk=", "image/png")], details={"n": 1}, terminate=True)
        assert made == ToolResult([Text("x"), Image("aGk=", "image/png")], {"n": 1}, True)

    run(check())


def test_errors_of_a_tool_come_out():
    def refuse():
        raise ToolError("not today")

    with pytest.raises(ToolError, match="not today"):
        outcome(refuse)


def test_plain_functions_run_beside_the_loop_and_may_tell_their_progress():
    threads = []

    def work(*, update, ctx, call_id):
        threads.append(threading.current_thread())
        for step in ("one", "two"):
            update(f"{step} {call_id}")
        ctx.ui.set_status("work", "busy")
        return str(ctx.cwd)

    async def check():
        agent = await load(tool_of(work))
        seen = []
        result = await agent.run_tool("work", on_update=seen.append)
        assert [text for partial in seen for text in partial.content] == [Text("one call_1"), Text("two call_1")]
        assert agent.ui == [{"method": "setStatus", "statusKey": "work", "statusText": "busy"}]
        assert result.content[0].text

    run(check())
    assert threads[0] is not threading.main_thread()


def test_an_abort_reaches_a_thread_and_the_loop_does_not_wait_for_it():
    started, left = threading.Event(), threading.Event()

    def stubborn(*, ctx):
        started.set()
        ctx.cancelled.wait(60)
        try:
            ctx.raise_if_aborted()
        except ToolError:
            left.set()

    async def check():
        agent = await load(tool_of(stubborn))
        running = asyncio.create_task(agent.run_tool("stubborn"))
        await asyncio.to_thread(started.wait, 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(check())
    assert left.wait(60)


def test_async_tools_run_on_the_loop():
    async def where():
        return threading.current_thread().name

    async def check():
        agent = await load(tool_of(where))
        assert (await agent.run_tool("where")).content == [Text(threading.current_thread().name)]

    run(check())


def test_a_built_in_can_be_wrapped(tmp_path):
    (tmp_path / "secret.txt").write_text("the password is swordfish")

    def extension(agent):
        read = agent.builtin("read")

        @agent.tool(name="read", description=read.description, parameters=read.parameters)
        async def discreet(args, *, update):
            result = await read.run(args, update=update)
            return agent.result(result.content[0].text.replace("swordfish", "***"))

    async def check():
        agent = await load(extension, cwd=tmp_path)
        result = await agent.run_tool("read", path="secret.txt")
        assert "the password is ***" in result.content[0].text

    run(check())


def test_a_built_in_that_does_not_exist():
    with pytest.raises(RuntimeError, match='no built-in tool "teleport"'):
        run(load(lambda agent: agent.builtin("teleport")))


def test_a_context_that_would_be_asked_of_the_model_is_refused() -> None:
    def look_up(word, ctx):
        """Look up."""

    with pytest.raises(RuntimeError, match=r"def look_up\(…, \*, ctx\)"):
        run(load(tool_of(look_up)))
