"""How handlers are called: order, chaining, cancelling, replacing, and what happens when they misbehave."""

import asyncio
import contextlib
import sys
import threading

import pytest

from spindle.agent.hooks import Hooks, Start
from spindle.agent.lifecycle import Phase
from spindle.base import limits
from spindle.plugins.extensions.events import EVENTS
from spindle.plugins.extensions.generation import StaleExtensionError
from spindle.shapes.events import AgentStart, MessageUpdate, ToolResult, TurnEnd, TurnStart
from spindle.shapes.messages import AssistantMessage, CustomMessage, Image, Text, Usage, UserMessage
from spindle.shapes.pieces import TextDelta
from spindle.testing import load
from spindle.tools.base import builtin_tools

from .helpers import run

BASH = builtin_tools()["bash"]


def user(text: str) -> UserMessage:
    return UserMessage([Text(text)], 1)


def assistant(text: str) -> AssistantMessage:
    return AssistantMessage([Text(text)], "api", "p", "m", Usage(), "stop", 1)


# -- who listens --------------------------------------------------------------------------------------


def test_nothing_listens_before_the_first_handler_and_after_the_last():
    assert Hooks.listening == frozenset()

    async def check():
        removers = []
        agent = await load(lambda a: removers.append(a.on("message_update", print)))
        assert agent.hooks.listening == {"message_update"}
        removers[0]()
        assert agent.hooks.listening == frozenset()

    run(check())


def test_an_unknown_event_is_refused_by_name():
    with pytest.raises(RuntimeError, match='Unknown event "tool_cal"'):
        run(load(lambda a: a.on("tool_cal", print)))


def test_every_event_of_the_table_can_be_handled():
    async def check():
        agent = await load(lambda a: [a.on(name, lambda event, ctx: None) for name in EVENTS])
        assert set(EVENTS) <= agent.hooks.listening

    run(check())


# -- order and chaining -------------------------------------------------------------------------------


def test_handlers_run_in_load_order_then_registration_order_and_see_what_came_before():
    def add(*words):
        def extension(agent):
            for word in words:
                agent.on("input", lambda event, ctx, word=word: agent.transform(f"{event.text} {word}"))

        return extension

    async def check():
        agent = await load(add("a", "b"), add("c"))
        assert await agent.hooks.input("x", [], "rpc", None) == ("x a b c", [])

    run(check())


def test_input_handled_stops_the_rest():
    seen = []

    def extension(agent):
        agent.on("input", lambda event, ctx: agent.handled())
        agent.on("input", lambda event, ctx: seen.append(event.text))

    async def check():
        agent = await load(extension)
        assert await agent.hooks.input("x", [], "rpc", None) is None

    run(check())
    assert seen == []


def test_input_may_replace_images():
    picture = Image("aGk=", "image/png")

    async def check():
        agent = await load(lambda a: a.on("input", lambda e, ctx: a.transform("t", [picture])))
        assert await agent.hooks.input("x", [], "rpc", "steer") == ("t", [picture])

    run(check())


def test_before_agent_start_collects_messages_and_chains_the_prompt():
    def extension(agent):
        @agent.on("before_agent_start")
        def first(event, ctx):
            return {"message": {"customType": "a", "content": "one", "display": False}, "systemPrompt": "new"}

        @agent.on("before_agent_start")
        def second(event, ctx):
            return {
                "message": {"customType": "b", "content": event.prompt, "display": True},
                "systemPrompt": event.system_prompt + "!",
            }

    async def check():
        agent = await load(extension)
        start = Start("hi", [], "old", {})
        await agent.hooks.before_agent_start(start)
        assert [(m.custom_type, m.content, m.display) for m in start.messages] == [
            ("a", "one", False),
            ("b", "hi", True),
        ]
        assert start.system_prompt == "new!"

    run(check())


def test_context_is_a_copy_that_may_be_changed_in_place_or_replaced():
    messages = [user("one"), assistant("two")]

    def extension(agent):
        @agent.on("context")
        def cut(event, ctx):
            event.messages[0].content[0].text = "changed"

        @agent.on("context")
        def add(event, ctx):
            return {"messages": [*event.messages, {"role": "user", "content": "three", "timestamp": 1}]}

        @agent.on("context_with_system")
        def prompt(event, ctx):
            return {"systemPrompt": f"{event.system_prompt} ({len(event.messages)})"}

    async def check():
        agent = await load(extension)
        seen, prompt = await agent.hooks.context(messages, "system")
        assert [m.content for m in seen] == [[Text("changed")], [Text("two")], "three"]
        assert prompt == "system (3)"
        assert messages[0].content == [Text("one")]  # type: ignore[attr-defined]

    run(check())


def test_message_end_replaces_only_by_the_same_role():
    def extension(agent):
        agent.on("message_end", lambda e, ctx: {"message": user("other role")})
        agent.on("message_end", lambda e, ctx: {"message": assistant(e.message.content[0].text.upper())})

    async def check():
        agent = await load(extension)
        assert (await agent.hooks.message_end(assistant("hi"))).content == [Text("HI")]
        assert agent.errors == [("message_end", "A message can only be replaced by one of the same role")]

    run(check())


def test_tool_results_are_replaced_part_by_part():
    def extension(agent):
        agent.on("tool_result", lambda e, ctx: {"content": e.content[0].text + "1"}, tool="bash")
        agent.on("tool_result", lambda e, ctx: {"details": {"n": 1}, "isError": True})
        agent.on("tool_result", lambda e, ctx: {"content": "never"}, tool=["read", "ls"])

    async def check():
        agent = await load(extension)
        result, failed = await agent.hooks.tool_result("c", BASH, {}, ToolResult([Text("x")], None, True), False)
        assert (result.content, result.details, result.terminate, failed) == ([Text("x1")], {"n": 1}, True, True)

    run(check())


def test_provider_requests_and_headers():
    def extension(agent):
        agent.on("before_provider_request", lambda e, ctx: {**e.payload, "a": 1})
        agent.on("before_provider_request", lambda e, ctx: {**e.payload, "b": e.payload["a"]})

        @agent.on("before_provider_headers")
        def headers(event, ctx):
            event.headers["X-New"] = "1"
            event.headers["X-Old"] = None

    async def check():
        agent = await load(extension)
        assert await agent.hooks.before_provider_request({"model": "m"}) == {"model": "m", "a": 1, "b": 1}
        headers = {"X-Old": "x", "Kept": "y"}
        await agent.hooks.before_provider_headers(headers)
        assert headers == {"Kept": "y", "X-New": "1"}

    run(check())


def test_the_first_cancel_wins_and_answers_are_merged():
    asked = []

    def extension(agent):
        agent.on("session_before_fork", lambda e, ctx: asked.append(1) or agent.cancel())
        agent.on("session_before_fork", lambda e, ctx: asked.append(2))
        agent.on("session_before_tree", lambda e, ctx: {"label": "one"})
        agent.on("session_before_tree", lambda e, ctx: {"summary": {"summary": "s"}})

    async def check():
        agent = await load(extension)
        assert (await agent.hooks.ask("session_before_fork", lambda: {"entry_id": "e", "position": "before"}))["cancel"]
        assert asked == [1]
        answer = await agent.hooks.ask("session_before_tree", lambda: {"preparation": None})
        assert answer == {"label": "one", "summary": {"summary": "s"}}

    run(check())


def test_project_trust_takes_the_first_yes_or_no():
    def extension(agent):
        agent.on("project_trust", lambda e, ctx: {"trusted": "undecided"})
        agent.on("project_trust", lambda e, ctx: {"trusted": "yes", "remember": True})
        agent.on("project_trust", lambda e, ctx: {"trusted": "no"})

    async def check():
        loaded = await load(extension)
        assert await loaded.hooks.project_trust("/x") == (True, True)

    run(check())


def test_resources_of_all_handlers_are_collected():
    def extension(agent):
        agent.on("resources_discover", lambda e, ctx: {"skillPaths": ["a"], "promptPaths": ["b"]})
        agent.on("resources_discover", lambda e, ctx: {"skillPaths": ["c"]})

    async def check():
        loaded = await load(extension)
        assert await loaded.hooks.resources_discover("/x", "startup") == (["a", "c"], ["b"])

    run(check())


def test_before_settle_goes_on_only_if_told_to():
    seen = []

    def adds(agent):
        agent.on("agent_before_settle", lambda e, ctx: {"entries": [{"customType": "t", "content": e.outcome}]})

    def goes_on(agent):
        agent.on("agent_before_settle", lambda e, ctx: {"continue": True})

    def watches(agent):
        agent.on("agent_before_settle", lambda e, ctx: seen.append(e.raw))

    async def check():
        answer = assistant("x")
        loaded = await load(adds)
        assert await loaded.hooks.before_settle(answer, [answer]) is None
        agent = await load(adds, goes_on, watches)
        (message,) = await agent.hooks.before_settle(answer, [user("hi"), answer])
        assert isinstance(message, CustomMessage) and message.content == "stop"
        assert [item["role"] for item in seen[0]["context"]] == ["user", "assistant"]
        assert seen[0]["continue"] is True and seen[0]["entries"][0]["content"] == "stop"

    run(check())


def test_turns_are_counted_per_run():
    seen = []

    def extension(agent):
        agent.on("turn_end", lambda e, ctx: seen.append(e.turn_index))

    async def check():
        agent = await load(extension)
        for _ in range(2):
            await agent.hooks.observe(AgentStart())
            for _ in range(2):
                await agent.hooks.observe(TurnStart())
                await agent.hooks.observe(TurnEnd(assistant("x"), []))

    run(check())
    assert seen == [0, 1, 0, 1]


def test_events_speak_python_and_wire():
    seen = []

    async def check():
        agent = await load(lambda a: a.on("tool_call", lambda e, ctx: seen.append(e)))
        await agent.tool_call("bash", command="ls")

    run(check())
    (event,) = seen
    assert (event.type, event.tool_name, event.input) == ("tool_call", "bash", {"command": "ls"})
    assert event.raw == {
        "type": "tool_call",
        "toolName": "bash",
        "toolCallId": "call_1",
        "input": {"command": "ls"},
    }


def test_messages_blocks_and_pieces_say_what_they_are():
    seen = []

    def extension(agent):
        agent.on("message_end", lambda e, ctx: seen.extend([e.message.role, e.message.content[0].type]))
        agent.on("message_update", lambda e, ctx: seen.append(e.assistant_message_event.type))

    async def check():
        agent = await load(extension)
        await agent.hooks.observe(MessageUpdate(TextDelta(0, "hi"), assistant("hi")))
        await agent.hooks.message_end(assistant("hi"))

    run(check())
    assert seen == ["text_delta", "assistant", "text"]


# -- gates --------------------------------------------------------------------------------------------


def test_a_tool_call_may_be_changed_in_place():
    def extension(agent):
        @agent.on("tool_call")
        def change(event, ctx):
            event.input["command"] = f"nice {event.input['command']}"

    async def check():
        assert (await (await load(extension)).tool_call("bash", command="ls")).input == {"command": "nice ls"}

    run(check())


def test_the_first_block_wins():
    def extension(agent):
        agent.on("tool_call", lambda e, ctx: agent.block("one", terminate=True))
        agent.on("tool_call", lambda e, ctx: agent.block("two"))

    async def check():
        call = await (await load(extension)).tool_call("bash", command="ls")
        assert (call.blocked, call.terminate) == ("one", True)

    run(check())


def test_a_block_without_a_reason_still_says_something():
    async def check():
        agent = await load(lambda a: a.on("tool_call", lambda e, ctx: a.block()))
        assert (await agent.tool_call("bash")).blocked == "Tool execution was blocked"

    run(check())


def _raise(error):
    def handler(event, ctx):
        raise error

    return handler


def _async_raise(error):
    async def handler(event, ctx):
        raise error

    return handler


async def _waits_for_something_cancelled(event, ctx):
    work = asyncio.create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(work.cancel)
    await work


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda e, ctx: 1 / 0, "division by zero"),
        (lambda e, ctx: False, "A tool_call handler must return None or a dict, not bool"),
        (lambda e, ctx: sys.exit(0), "sys.exit(0) was called"),
        (_raise(KeyboardInterrupt("^C")), "KeyboardInterrupt was raised: ^C"),
        (_raise(asyncio.CancelledError()), "CancelledError was raised"),
        (_raise(StopIteration()), "StopIteration was raised"),
        (_waits_for_something_cancelled, "Something it waited for was cancelled"),
        (_async_raise(SystemExit(1)), "sys.exit(1) was called"),
        (_async_raise(KeyboardInterrupt()), "KeyboardInterrupt was raised"),
        (_async_raise(BaseException("odd")), "BaseException was raised: odd"),
    ],
)
def test_a_gate_that_fails_is_closed(handler, text):
    async def check():
        agent = await load(lambda a: a.on("tool_call", handler))
        call = await agent.tool_call("bash", command="ls")
        assert call.blocked is not None and text in call.blocked
        assert agent.errors == [("tool_call", call.blocked)]

    run(check())


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "thread"])
def test_a_gate_that_hangs_beyond_its_time_is_closed(blocking):
    go = threading.Event()

    async def hang(event, ctx):
        await asyncio.Event().wait()

    def block(event, ctx):
        go.wait(60)
        assert ctx.cancelled.is_set()

    async def check():
        agent = await load(lambda a: a.on("tool_call", block if blocking else hang, timeout=0.05))
        call = await agent.tool_call("bash", command="ls")
        assert call.blocked == "The tool_call handler took longer than 0.05 s"

    run(check())
    go.set()


def test_a_time_out_of_its_own_is_not_ours():
    async def check():
        async def fails(event, ctx):
            raise TimeoutError("the server did not answer")

        agent = await load(lambda a: a.on("tool_call", fails, timeout=5))
        assert (await agent.tool_call("bash")).blocked == "the server did not answer"

    run(check())


# -- walls --------------------------------------------------------------------------------------------


def test_a_failing_handler_is_reported_and_the_next_one_runs(capsys):
    seen = []

    def extension(agent):
        @agent.on("session_start")
        async def broken(event, ctx):
            raise ValueError("kaboom")

        agent.on("session_start", lambda e, ctx: seen.append(e.reason))

    async def check():
        agent = await load(extension)
        for _ in range(3):
            await agent.hooks.notify("session_start", reason="startup")
        assert agent.errors == [("session_start", "kaboom")] * 3

    run(check())
    assert seen == ["startup"] * 3
    # One traceback is help, three are noise.
    assert capsys.readouterr().err.count("Traceback") == 1


def test_nonsense_of_one_handler_does_not_undo_the_others():
    def extension(agent):
        agent.on("tool_result", lambda e, ctx: {"content": "good"})
        agent.on("tool_result", lambda e, ctx: {"content": 7})
        agent.on("tool_result", lambda e, ctx: {"details": object()})

    async def check():
        agent = await load(extension)
        result, _ = await agent.hooks.tool_result("c", BASH, {}, ToolResult([Text("x")]), False)
        assert (result.content, result.details) == ([Text("good")], None)
        assert [event for event, _ in agent.errors] == ["tool_result"] * 2

    run(check())


def test_user_bash_errors_come_out_and_a_result_is_used():
    async def check():
        agent = await load(lambda a: a.on("user_bash", lambda e, ctx: {"result": {"output": e.command}}))
        assert await agent.hooks.user_bash("ls", False, "/") == {"output": "ls"}
        broken = await load(lambda a: a.on("user_bash", lambda e, ctx: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            await broken.hooks.user_bash("ls", False, "/")

    run(check())


def test_shutdown_handlers_share_a_time_limit(monkeypatch):
    monkeypatch.setattr(limits, "SESSION_SHUTDOWN", 0.2)
    seen = []
    never = threading.Event()

    def extension(agent):
        agent.on("session_shutdown", lambda e, ctx: never.wait())
        agent.on("session_shutdown", lambda e, ctx: never.wait())

        @agent.on("session_shutdown")
        async def last(event, ctx):
            seen.append(event.reason)

    async def check():
        agent = await load(extension)
        await agent.hooks.notify("session_shutdown", reason="quit")
        assert seen == ["quit"]
        assert [event for event, _ in agent.errors] == ["session_shutdown"] * 2

    run(check())
    never.set()


def test_an_interrupt_ends_handlers_at_work_and_only_those():
    async def check():
        started = asyncio.Event()
        ended = []

        def extension(agent):
            @agent.on("turn_start")
            async def hang(event, ctx):
                started.set()
                await asyncio.Event().wait()

            agent.on("turn_start", lambda e, ctx: ended.append("next"))

        agent = await load(extension)
        watching = asyncio.create_task(agent.hooks.observe(TurnStart()))
        await started.wait()
        agent.hooks.interrupt()
        await watching
        assert ended == ["next"]
        assert agent.errors == [("turn_start", "The turn_start handler was stopped by an abort")]

    run(check())


def test_after_an_abort_no_handler_may_hang(monkeypatch):
    monkeypatch.setattr(limits, "HANDLER_AFTER_ABORT", 0.05)

    async def check():
        async def hang(event, ctx):
            await asyncio.Event().wait()

        agent = await load(lambda a: a.on("agent_end", hang))
        agent.agent.lifecycle.begin(Phase.PREPARING)
        agent.agent.stop()
        await agent.fire("agent_end", messages=[], will_retry=False)
        assert agent.errors == [("agent_end", "The agent_end handler took longer than 0.05 s")]

    run(check())


def test_a_plain_handler_does_not_hold_up_the_loop():
    go = threading.Event()

    async def check():
        agent = await load(lambda a: a.on("turn_start", lambda e, ctx: go.wait(60)))
        watching = asyncio.create_task(agent.hooks.observe(TurnStart()))
        await asyncio.sleep(0)  # the loop turns although the handler blocks
        assert not watching.done()
        go.set()
        await watching
        assert agent.errors == []

    run(check())


def test_a_cancelled_call_tells_its_thread():
    told = threading.Event()

    async def check():
        def wait(event, ctx):
            if ctx.cancelled.wait(60):
                told.set()

        agent = await load(lambda a: a.on("tool_call", wait))
        call = asyncio.create_task(agent.hooks.tool_call("c", BASH, {}))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(check())
    assert told.wait(60)


# -- life of objects ----------------------------------------------------------------------------------


def test_actions_while_loading_are_refused_with_the_words_of_the_protocol():
    with pytest.raises(RuntimeError, match="Extension runtime not initialized"):
        run(load(lambda a: a.append_entry("x", 1)))


def test_objects_of_a_retired_generation_are_stale():
    kept = {}

    async def check():
        def extension(agent):
            kept["agent"] = agent
            agent.on("session_start", lambda e, ctx: kept.update(ctx=ctx))

        agent = await load(extension)
        await agent.fire("session_start", reason="startup")
        kept["agent"].append_entry("x", 1)
        await agent.hooks.retire()
        for use in (
            lambda: kept["agent"].append_entry("x", 1),
            lambda: kept["agent"].active_tools,
            lambda: kept["ctx"].cwd,
            lambda: kept["ctx"].ui.notify("x"),
        ):
            with pytest.raises(StaleExtensionError):
                use()

    run(check())


def test_what_json_cannot_hold_is_refused_where_it_is_handed_over():
    async def check():
        kept = {}
        await load(lambda a: kept.update(agent=a))
        agent = kept["agent"]
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            agent.append_entry("x", object())
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            await agent.send_message("x", "text", details={1, object()})

    run(check())


def test_mistakes_are_told_where_they_are_made():
    async def check():
        kept = {}
        await load(lambda a: kept.update(agent=a))
        agent = kept["agent"]
        with pytest.raises(TypeError, match="A handler of tool_call must be a function, not int"):
            agent.on("tool_call", 5)
        with pytest.raises(TypeError, match=r"\['bash'\]"):
            agent.active_tools = "bash"
        with pytest.raises(TypeError, match=r"ctx\.models\.find"):
            await agent.set_model("mock/m2")
        with pytest.raises(TypeError, match=r"\['ls', '-l'\]"):
            await agent.exec("ls -l")
        with pytest.raises(ValueError, match="steer or followUp or nextTurn, not 'later'"):
            await agent.send_message("x", "text", deliver_as="later")
        with pytest.raises(ValueError, match="steer or followUp, not 'nextTurn'"):
            await agent.send_user_message("text", deliver_as="nextTurn")
        for name in ("two words", "x" * 65, "größe"):
            with pytest.raises(ValueError, match="cannot be the name of a tool"):
                agent.tool(lambda: "", name=name)
        assert (await agent.exec([])).code == 127

    run(check())


# -- between extensions -------------------------------------------------------------------------------


def test_the_bus_reaches_the_others_and_survives_their_errors(capsys):
    async def check():
        heard = asyncio.Queue()

        def sender(agent):
            agent.on("session_start", lambda e, ctx: agent.events.emit("news", 1))

        def receiver(agent):
            async def fail(data):
                raise ValueError("bad news")

            async def listen(data):
                heard.put_nowait(data)

            agent.events.on("news", fail)
            agent.events.on("news", listen)

        agent = await load(sender, receiver)
        await agent.fire("session_start", reason="startup")
        assert await heard.get() == 1
        await agent.hooks.retire()

    run(check())
    assert "bad news" in capsys.readouterr().err


def test_the_bus_works_while_extensions_load():
    async def check():
        heard = asyncio.Queue()

        async def listen(data):
            heard.put_nowait(data)

        await load(lambda a: a.events.on("news", listen), lambda a: a.events.emit("news", "early"))
        assert await asyncio.wait_for(heard.get(), 5) == "early"

    run(check())


def test_a_shutdown_handler_that_does_not_care_about_its_time_is_left_behind(monkeypatch):
    monkeypatch.setattr(limits, "SESSION_SHUTDOWN", 0.05)
    monkeypatch.setattr(limits, "HANDLER_END", 0.05)
    told = []

    async def check():
        enough = asyncio.Event()

        def extension(agent):
            @agent.on("session_shutdown")
            async def stubborn(event, ctx):
                while not enough.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await enough.wait()

            @agent.on("session_shutdown")
            async def after(event, ctx):
                told.append(event.reason)

        agent = await load(extension)
        await agent.hooks.notify("session_shutdown", reason="quit")
        assert agent.errors == [("session_shutdown", "The session_shutdown handler does not end")]
        enough.set()

    run(check())
    assert told == ["quit"]


def test_a_listener_may_be_taken_off_the_bus_after_the_end():
    async def check():
        stops = []
        agent = await load(lambda a: stops.append(a.events.on("news", print)))
        await agent.hooks.retire()
        stops[0]()
        stops[0]()

    run(check())


def test_commands_of_the_same_name_are_all_kept():
    ran = []

    def with_command(name):
        def extension(agent):
            agent.command("go", help=name)(lambda args, ctx: ran.append((name, args)))

        return extension

    async def check():
        agent = await load(with_command("a"), with_command("b"))
        assert [(item.name, item.description) for item in agent.hooks.commands()] == [
            ("go:1", "a"),
            ("go:2", "b"),
        ]
        assert not await agent.command("/go")
        assert await agent.command("/go:2 x  y ")

    run(check())
    assert ran == [("b", "x  y ")]


def test_a_command_that_fails_is_handled_and_reported():
    async def check():
        agent = await load(lambda a: a.command("boom")(lambda args, ctx: 1 / 0))
        assert await agent.command("/boom x")
        assert agent.errors == [("command", "division by zero")]

    run(check())


def test_commands_complete_their_arguments():
    async def check():
        def extension(agent):
            made = agent.command("go")(lambda args, ctx: None)
            made.complete(lambda prefix: [word for word in ("left", "right") if word.startswith(prefix)])

        agent = await load(extension)
        assert await agent.hooks.complete_command("go", "le") == ["left"]
        assert await agent.hooks.complete_command("nothing", "") == []

    run(check())


def test_flags_have_defaults_and_belong_to_one_extension():
    async def check():
        kept = {}

        def extension(agent):
            kept["agent"] = agent
            agent.flag("loud")
            agent.flag("size", type=str, default="10")
            agent.flag("shape", type=str, default="round")

        await load(extension, flags={"loud": True, "size": "20", "shape": True, "other": "x"})
        agent = kept["agent"]
        assert [agent.get_flag(name) for name in ("loud", "size", "shape")] == [True, "20", "round"]
        with pytest.raises(LookupError):
            agent.get_flag("other")

    run(check())


def test_programs_run_without_a_shell_and_never_raise(tmp_path):
    async def check():
        kept = {}
        await load(lambda a: kept.update(agent=a), cwd=tmp_path)
        execute = kept["agent"].exec
        done = await execute(
            [sys.executable, "-c", "import os, sys; print(os.getcwd()); print(input()); sys.exit(3)"], input="hi"
        )
        assert (done.stdout.split(), done.code, done.killed) == ([str(tmp_path.resolve()), "hi"], 3, False)
        missing = await execute(["/no/such/program"])
        assert missing.code == 127 and "/no/such/program" in missing.stderr
        slow = await execute([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.3)
        assert slow.killed and slow.code != 0

    run(check())
