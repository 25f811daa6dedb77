"""Dialogs without a process: answers, time-outs, cancellation, the terminal."""

import asyncio
import io

import pytest

from spindle.agent.dialogs import NoDialogs, WireDialogs
from spindle.apps.cli.terminal import TerminalDialogs
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.testing import load

from .helpers import run


def request(method: str = "select", **fields) -> ExtensionUIRequest:
    return ExtensionUIRequest(id="d1", method=method, title="T", **fields)


async def open_dialog(dialogs: WireDialogs, **fields) -> "asyncio.Task[object]":
    asking = asyncio.create_task(dialogs.ask(request(**fields)))
    await asyncio.sleep(0)
    return asking


def test_an_answer_reaches_the_dialog_with_its_id_and_no_other():
    async def check():
        sent = []
        dialogs = WireDialogs(sent.append)
        asking = await open_dialog(dialogs)
        for frame in ({"id": "other", "value": "x"}, {"value": "x"}, {"id": 7, "value": "x"}):
            assert dialogs.receive(frame)
        assert not asking.done()
        dialogs.receive({"id": "d1", "value": "first"})
        dialogs.receive({"id": "d1", "value": "second"})
        assert (await asking)["value"] == "first"
        dialogs.receive({"id": "d1", "value": "late"})
        assert [frame.method for frame in sent] == ["select"]

    run(check())


def test_a_time_out_is_measured_here_and_says_nothing_more():
    async def check():
        sent = []
        assert await WireDialogs(sent.append).ask(request(timeout=20)) is None
        assert [(frame.method, frame.timeout) for frame in sent] == [("select", 20)]

    run(check())


@pytest.mark.parametrize("how", ["cancelled", "withdrawn"])
def test_a_dialog_that_is_no_longer_wanted_is_taken_back(how):
    async def check():
        sent = []
        dialogs = WireDialogs(sent.append)
        asking = await open_dialog(dialogs)
        if how == "cancelled":
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            dialogs.withdraw()
            assert await asking is None
        assert [(frame.method, frame.target_id) for frame in sent] == [("select", None), ("cancel", "d1")]

    run(check())


@pytest.mark.parametrize(
    ("method", "answer", "result"),
    [
        ("select", {"value": "anything"}, "anything"),
        ("select", {"value": 7}, None),
        ("select", {"confirmed": True}, None),
        ("select", {"cancelled": True}, None),
        ("confirm", {"confirmed": True}, True),
        ("confirm", {"confirmed": "no"}, False),
        ("confirm", {"value": "yes"}, False),
        ("confirm", {"cancelled": True}, False),
        ("input", {"value": ""}, ""),
        ("editor", {"cancelled": True, "timedOut": True}, None),
    ],
)
def test_what_answers_mean(method, answer, result):
    async def check():
        kept = {}
        agent = await load(lambda a: a.on("session_start", lambda e, ctx: kept.update(ctx=ctx)))
        await agent.fire("session_start", reason="startup")

        async def reply(request):
            return answer

        agent.agent.dialogs.ask = reply
        ask = getattr(kept["ctx"].ui, method)
        assert await (ask("T", ["a"]) if method == "select" else ask("T")) == result

    run(check())


def test_nobody_there_means_no():
    async def check():
        kept = {}
        agent = await load(lambda a: a.on("session_start", lambda e, ctx: kept.update(ctx=ctx)))
        await agent.fire("session_start", reason="startup")
        agent.agent.dialogs = NoDialogs()
        ctx = kept["ctx"]
        assert not ctx.has_ui
        assert await ctx.ui.confirm("T", "m") is False
        assert [await ctx.ui.select("T", ["a"]), await ctx.ui.input("T"), await ctx.ui.editor("T")] == [None] * 3
        ctx.ui.notify("nobody hears this")

    run(check())


def test_rubbish_is_refused_before_it_reaches_the_wire():
    async def check():
        kept = {}
        agent = await load(lambda a: a.on("session_start", lambda e, ctx: kept.update(ctx=ctx)))
        await agent.fire("session_start", reason="startup")
        ui = kept["ctx"].ui
        for call in (lambda: ui.notify(7), lambda: ui.set_widget("w", [1]), lambda: ui.set_widget("w", "text")):
            with pytest.raises(TypeError):
                call()
        with pytest.raises(ValueError, match="info, warning or error"):
            ui.notify("m", "panic")
        for options in ([1, 2], "yes"):
            with pytest.raises(TypeError, match="options must be a list of str"):
                await ui.select("T", options)
        with pytest.raises(TypeError, match="title must be a str"):
            await ui.input(None)
        assert agent.ui == []

    run(check())


def test_a_gate_that_forgets_to_await_stays_closed():
    def asks(event, ctx):
        return None if ctx.ui.confirm("Sure?") else {"block": True}

    async def compares(event, ctx):
        return {"block": True} if ctx.ui.select("Sure?", ["yes", "no"]) == "no" else None

    async def check():
        for handler in (asks, compares):
            agent = await load(lambda a, handler=handler: a.on("tool_call", handler))
            agent.answer(confirm=True, select="yes")
            assert "must be awaited" in (await agent.tool_call("bash")).blocked

    run(check())


def test_dialogs_are_coroutines_like_others():
    async def check():
        kept = {}
        agent = await load(lambda a: a.on("session_start", lambda e, ctx: kept.update(ui=ctx.ui)))
        await agent.fire("session_start", reason="startup")
        agent.answer(confirm=True, input="text")
        ui = kept["ui"]
        asked = asyncio.create_task(ui.confirm("A?"))
        assert await asyncio.gather(asked, ui.input("B"), asyncio.wait_for(ui.confirm("C?"), 60)) == [
            True,
            "text",
            True,
        ]

    run(check())


def test_extensions_hear_of_dialogs():
    async def check():
        seen = []

        def extension(agent):
            for name in ("ui_prompt_start", "ui_prompt_end"):
                agent.on(name, lambda e, ctx: seen.append((e.type, e.kind, e.title)))

            @agent.command("ask")
            async def ask(args, ctx):
                await ctx.ui.confirm("Sure?", "really")

        agent = await load(extension)
        await agent.command("/ask")
        assert seen == [("ui_prompt_start", "confirm", "Sure?"), ("ui_prompt_end", "confirm", "Sure?")]

    run(check())


# -- the terminal -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "typed", "answer"),
    [
        ({"method": "confirm", "message": "really"}, "y\n", {"confirmed": True}),
        ({"method": "confirm"}, "\n", {"confirmed": False}),
        ({"method": "confirm"}, "", None),
        ({"method": "select", "options": ["a", "b"]}, "2\n", {"value": "b"}),
        ({"method": "select", "options": ["a", "b"]}, "a\n", {"value": "a"}),
        ({"method": "select", "options": ["a", "b"]}, "7\n", None),
        ({"method": "input", "placeholder": "name"}, "Ada\n", {"value": "Ada"}),
        ({"method": "editor", "prefill": "old"}, "new\nlines\n.\n", {"value": "new\nlines\n"}),
    ],
)
def test_dialogs_on_a_terminal(fields, typed, answer, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert run(_ask(request(**fields))) == answer
    out, err = capsys.readouterr()
    assert out == "" and "T" in err


async def _ask(asked: ExtensionUIRequest) -> object:
    return await TerminalDialogs().ask(asked)


def test_an_unanswered_question_leaves_the_line_to_the_next(monkeypatch, capsys):
    lines: asyncio.Queue[str] = asyncio.Queue()

    async def check():
        loop = asyncio.get_running_loop()

        class Slow:
            def isatty(self):
                return False

            def readline(self):
                return asyncio.run_coroutine_threadsafe(lines.get(), loop).result()

        monkeypatch.setattr("sys.stdin", Slow())
        dialogs = TerminalDialogs()
        assert await dialogs.ask(request("confirm", timeout=20)) is None
        second = asyncio.create_task(dialogs.ask(request("confirm")))
        lines.put_nowait("yes\n")
        assert await second == {"confirmed": True}

    run(check())
