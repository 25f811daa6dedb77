"""What the trace tells of an agent: every span, its parent, its end, and nothing that was said."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.base import trace
from spindle.testing import Pause
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, failure, reply

from .rig import Rig, run, slow_tool

SECRET = "the-words-of-the-user"


@dataclass
class Told:
    """A line of the trace, as it was when it was told."""

    moment: str
    kind: str
    id: int
    parent: int | None
    error: str | None
    known: dict[str, Any]


class Book:
    def __init__(self) -> None:
        self.lines: list[Told] = []

    def __call__(self, moment: trace.Moment, span: trace.Span) -> None:
        parent = span.parent.id if span.parent else None
        self.lines.append(Told(moment, span.kind, span.id, parent, span.error, dict(span.attributes)))
        if moment != "started":
            assert 0 <= span.seconds < 50

    def moments(self, kind: str) -> list[str]:
        return [line.moment for line in self.lines if line.kind == kind]

    def ends(self, kind: str) -> list[Told]:
        return [line for line in self.lines if line.kind == kind and line.moment != "started"]

    def check(self) -> None:
        """Every start has one end, and what is inside something ends before it does."""
        open_spans: list[int] = []
        for line in self.lines:
            if line.moment == "started":
                assert line.parent is None or line.parent in open_spans
                open_spans.append(line.id)
            else:
                open_spans.remove(line.id)
        assert not open_spans
        assert SECRET not in repr(self.lines)


@pytest.fixture
def book() -> Iterator[Book]:
    book = Book()
    stop = trace.listen(book)
    yield book
    stop()
    assert not trace.listeners


def test_a_prompt_with_two_tool_calls(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "here").write_text(SECRET)
        calls = [{"name": "read", "arguments": {"path": path}} for path in ("here", f"{SECRET}.txt")]
        async with Rig(tmp_path, [{"text": SECRET, "calls": calls}, SECRET], session=True) as rig:
            await rig.run(SECRET)
            session = rig.agent.session.id
        [ended] = book.ends("run")
        assert (ended.moment, ended.parent, ended.error) == ("ended", None, None)
        assert ended.known["session"] == session and ended.known["model"] == "scripted/script"
        assert (ended.known["stop_reason"], ended.known["turns"], ended.known["tool_calls"]) == ("end", 2, 2)
        assert ended.known["cost"] == 0
        chats = book.ends("chat")
        assert [(line.known["stop_reason"], line.parent) for line in chats] == [
            ("toolUse", ended.id),
            ("stop", ended.id),
        ]
        assert sum(line.known["output_tokens"] for line in chats) == ended.known["output_tokens"]
        tools = book.ends("tool")
        assert {(line.moment, line.error) for line in tools} == {("ended", None), ("failed", "ToolError")}
        assert {line.known["tool"] for line in tools} == {"read"} and {line.parent for line in tools} == {ended.id}
        assert len({line.known["call"] for line in tools}) == 2
        book.check()

    run(main())


def test_a_model_that_fails_and_is_asked_again(tmp_path: Path, book: Book) -> None:
    """Over HTTP, so that the classes of the errors are those of a real server."""

    async def main(mock: MockModel) -> None:
        async with await Agent.create(cwd=tmp_path, model="mock/m1", persist=False) as agent:
            assert await agent.ask("go") == "ok"
            result = await agent.run("again")
            assert result.status == "error"

    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "settings.json").write_text('{"retry": {"baseDelayMs": 1}}')
    steps = [failure(503, SECRET), reply("ok", usage=(10, 5, 2)), failure(400, SECRET)]
    with MockModel(steps) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        run(main(mock))
    first, second = book.ends("run")
    failed, ended, refused = book.ends("chat")
    assert [failed.parent, ended.parent, refused.parent] == [first.id, first.id, second.id]
    assert (failed.moment, failed.error, failed.known["status"]) == ("failed", "StatusError", 503)
    assert (ended.moment, ended.known["input_tokens"], ended.known["output_tokens"]) == ("ended", 8, 5)
    assert (refused.error, refused.known["status"]) == ("StatusError", 400)
    assert (first.moment, second.moment, second.error) == ("ended", "failed", "StatusError")
    assert second.known["stop_reason"] == "error"
    book.check()


def test_a_model_that_cannot_be_asked_at_all(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        async with Rig(tmp_path) as rig:
            rig.agent.resources.registry.auth_for = None  # type: ignore[method-assign, assignment]
            await rig.run("go")
        assert [(line.kind, line.error) for line in (*book.ends("chat"), *book.ends("run"))] == [
            ("chat", "TypeError"),
            ("run", "TypeError"),
        ]
        book.check()

    run(main())


def test_an_abort_ends_what_is_open(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        steps = [{"text": ["a", Pause(gate="never")]}, {"calls": [{"name": "slow", "arguments": {}}]}]
        async with Rig(tmp_path, steps, tools=[slow_tool()]) as rig:
            await rig.call("prompt", message="one")
            await rig.script.reached("never")
            await rig.call("abort")
            await rig.call("prompt", message="two")
            await rig.until("tool_execution_start")
            await rig.call("abort")
        assert [(line.error, line.known["stop_reason"]) for line in book.ends("run")] == [("Aborted", "aborted")] * 2
        assert [line.error for line in book.ends("chat")] == ["CancelledError", None]
        assert [line.error for line in book.ends("tool")] == ["CancelledError"]
        book.check()

    run(main())


def test_an_answer_that_a_hook_stops(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        (tmp_path / "work" / ".spindle" / "rules").mkdir(parents=True)
        rule = "---\ncondition: forbidden\n---\nDo not say that."
        (tmp_path / "agent").mkdir()
        (tmp_path / "agent" / "rules").mkdir()
        (tmp_path / "agent" / "rules" / "r.md").write_text(rule)
        async with Rig(tmp_path, [{"text": ["a forbidden ", "word"]}, "fine"]) as rig:
            await rig.run("go")
            assert rig.roles()[-1] == "assistant(stop)"
        assert [line.error for line in book.ends("chat")] == ["CancelledError", None]
        [ended] = book.ends("run")
        assert ended.moment == "ended"
        book.check()

    run(main())


def test_changes_of_session(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        async with Rig(tmp_path, session=True) as rig:
            await rig.run("one")
            first = rig.agent.session.id
            file = str(rig.agent.session.path)
            await rig.data("new_session")
            second = rig.agent.session.id
            await rig.data("switch_session", sessionPath=file)
            await rig.agent.reload()
            assert not (await rig.call("fork", entryId="nothing"))["success"]
        changes = book.ends("change")
        assert [(line.known["change"], line.known["session"], line.known.get("to")) for line in changes] == [
            ("new", first, second),
            ("switch", second, first),
            ("reload", first, None),
            ("fork", first, None),
        ]
        assert [line.error for line in changes] == [None, None, None, "AgentError"]
        book.check()

    run(main())


def test_a_compaction_and_its_call(tmp_path: Path, book: Book) -> None:
    async def main() -> None:
        async with Rig(
            tmp_path, ["x" * 40_000, "y" * 40_000, SECRET], settings={"compaction": {"keepRecentTokens": 1}}
        ) as rig:
            await rig.run("one")
            await rig.run("two")
            await rig.data("compact")
        [compaction] = book.ends("compaction")
        assert (compaction.moment, compaction.parent, compaction.known["reason"]) == ("ended", None, "manual")
        assert book.ends("chat")[-1].parent == compaction.id
        book.check()

    run(main())


def test_a_run_that_follows_another_stands_beside_it(tmp_path: Path, book: Book) -> None:
    """A prompt behind an abort is begun by the task of the run before it."""

    async def main() -> None:
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="never")]}, "ok"]) as rig:
            with trace.span("connection", wire="test"):
                await rig.call("prompt", message="one")
                await rig.script.reached("never")
                rig.send("abort")
                await rig.call("prompt", message="two")
                await rig.until(lambda frame: frame["type"] == "agent_settled" and not frame["aborted"])
                await rig.agent.wait_idle()
        [connection] = book.ends("connection")
        assert [(line.error, line.parent) for line in book.ends("run")] == [
            ("Aborted", connection.id),
            (None, connection.id),
        ]
        book.check()

    run(main())


def test_each_task_has_its_own_parent_and_a_listener_that_breaks_breaks_nothing(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(moment: trace.Moment, span: trace.Span) -> None:
        raise ValueError("of the listener")

    async def work(name: str) -> None:
        with trace.span("connection", wire=name) as span:
            await asyncio.sleep(0)
            with trace.span("tool", tool=name) as inner:
                await asyncio.sleep(0)
                assert inner.parent is span and inner.find("wire") == name and inner.find("nothing") is None

    async def main() -> None:
        await asyncio.gather(work("a"), work("b"))

    stop = trace.listen(broken)
    run(main())
    stop()
    book.check()
    assert book.moments("connection") == ["started", "started", "ended", "ended"]
    assert caplog.text.count("ValueError: of the listener") == 8


def test_a_listener_is_told_of_no_end_whose_start_it_did_not_see() -> None:
    book = Book()
    with trace.span("change"):
        stop = trace.listen(book)
    with trace.span("change"):
        stop()
    assert book.moments("change") == ["started", "ended"]
    with trace.span("change") as nothing:
        nothing.set(x=1)
        nothing.fail("Error")
    assert nothing is trace.NO_SPAN and not nothing.attributes and nothing.error is None
