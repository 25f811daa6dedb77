"""Extensions in the real RPC process: events in order, gates, dialogs, commands, hostile code, reloads."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.extensions.generation import NOT_YET
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, gate, reply, stall

from .helpers import answer, write


def start(tmp_path: Path, source: str, steps=(), *, args=(), **options: Any) -> AgentProcess:
    """Start an agent with an extension of this source."""
    file = write(tmp_path / "ext.py", source)
    return AgentProcess(list(steps), args=["-e", str(file), *args], **options)


def result(agent: AgentProcess, call_id: str = "call_1") -> dict[str, Any]:
    """Return the result message of a tool call."""
    found = [
        f["message"] for f in agent.frames if f["type"] == "message_end" and f["message"].get("toolCallId") == call_id
    ]
    return found[-1]


def dialog(agent: AgentProcess, method: str) -> dict[str, Any]:
    return agent.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == method)


def notices(agent: AgentProcess) -> list[str]:
    return [f["message"] for f in agent.frames if f["type"] == "extension_ui_request" and f["method"] == "notify"]


BASH = reply(call("bash", {"command": "touch made && echo ran"}), finish="toolUse")

GATE = """
def extension(agent):
    @agent.on("tool_call", tool="bash"{timeout})
    async def gate(event, ctx):
        if not await ctx.ui.confirm("Run?", event.input["command"]{limit}):
            return agent.block("The user said no")
"""


# -- events -------------------------------------------------------------------------------------------

LOGGER = """
from spindle.extensions.events import EVENTS

def extension(agent):
    def log(event, ctx):
        with open({log!r}, "a") as file:
            extra = getattr(event, "reason", None) or getattr(event, "turn_index", None)
            if event.type in ("message_start", "message_end"):
                extra = event.raw["message"]["role"]
            if event.type == "message_update":
                extra = event.assistant_message_event.__class__.__name__
            file.write(event.type + ("" if extra is None else f" {{extra}}") + "\\n")
    for name in EVENTS:
        agent.on(name, log)
"""


def log_of(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines()


def test_one_prompt_with_one_tool_call_event_by_event(tmp_path):
    steps = [reply("Hi", call("bash", {"command": "echo one"}), finish="toolUse"), reply("done")]
    with start(tmp_path, LOGGER.format(log=str(tmp_path / "log")), steps) as agent:
        agent.run("go")
        assert agent.close_stdin() == 0
    told = [line for line in log_of(tmp_path) if not line.startswith(("message_update", "tool_execution_update"))]
    assert told == [
        "session_start startup",
        "resources_discover startup",
        "input",
        "before_agent_start",
        "agent_start",
        "turn_start 0",
        "message_start user",
        "message_end user",
        "context",
        "context_with_system",
        "before_provider_headers",
        "before_provider_request",
        "after_provider_response",
        "message_start assistant",
        "message_end assistant",
        "tool_execution_start",
        "tool_call",
        "tool_result",
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "turn_end 0",
        "turn_start 1",
        "context",
        "context_with_system",
        "before_provider_headers",
        "before_provider_request",
        "after_provider_response",
        "message_start assistant",
        "message_end assistant",
        "turn_end 1",
        "agent_end",
        "agent_before_settle",
        "agent_settled",
        "session_shutdown quit",
    ]
    assert {line.split()[1] for line in log_of(tmp_path) if line.startswith("message_update")} >= {
        "TextStart",
        "TextDelta",
        "TextEnd",
        "ToolCallStart",
        "ToolCallEnd",
    }


def test_sessions_models_and_thinking_event_by_event(tmp_path):
    with start(tmp_path, LOGGER.format(log=str(tmp_path / "log")), [reply("x")], session=True) as agent:
        agent.run("go")
        agent.data("set_model", provider="mock", modelId="m2")
        agent.data("set_session_name", name="n")
        agent.data("new_session")
        agent.data("bash", command="true")
        assert agent.data("get_fork_messages")["messages"] == []
        agent.run("again")
        entry = agent.data("get_fork_messages")["messages"][0]["entryId"]
        agent.data("fork", entryId=entry)
        lines = log_of(tmp_path)
    settled = [index for index, line in enumerate(lines) if line == "agent_settled"]
    assert lines[settled[0] + 1 : settled[0] + 10] == [
        "thinking_level_select",
        "model_select",
        "session_info_changed",
        "session_before_switch new",
        "session_shutdown new",
        "session_start new",
        "resources_discover startup",
        "user_bash",
        "input",
    ]
    assert lines[settled[1] + 1 :] == [
        "session_before_fork",
        "session_shutdown fork",
        "session_start fork",
        "resources_discover startup",
    ]


def test_a_stored_session_brings_its_model_and_level_back(tmp_path):
    source = """
def extension(agent):
    agent.on("session_start", lambda event, ctx: ctx.ui.notify(event.reason))
    agent.on("model_select", lambda event, ctx: ctx.ui.notify(
        f"{event.source} {event.model.id} after {event.previous_model.id}"))
    agent.on("thinking_level_select", lambda event, ctx: ctx.ui.notify(f"{event.level} after {event.previous_level}"))
"""
    with start(tmp_path, source, [reply("x")], session=True, args=["--thinking", "high"]) as agent:
        agent.run("go")
        first = agent.data("get_state")["sessionFile"]
        agent.data("new_session")
        agent.data("set_model", provider="mock", modelId="m2")
        del agent.frames[:]
        agent.data("switch_session", sessionPath=first)
        assert notices(agent) == ["resume", "restore m1 after m2", "high after off"]


def test_a_veto_is_an_answer_not_an_error(tmp_path):
    source = """
def extension(agent):
    agent.on("session_before_switch", lambda event, ctx: agent.cancel())
    agent.on("session_before_fork", lambda event, ctx: {"cancel": event.entry_id != ""})
"""
    with start(tmp_path, source, [reply("x")]) as agent:
        agent.run("hi")
        before = agent.data("get_state")["sessionId"]
        assert agent.data("new_session") == {"cancelled": True}
        assert agent.data("switch_session", sessionPath=str(tmp_path / "s.jsonl")) == {"cancelled": True}
        entry = agent.data("get_fork_messages")["messages"][0]["entryId"]
        assert agent.data("fork", entryId=entry) == {"text": "hi", "cancelled": True}
        assert agent.data("clone") == {"cancelled": True}
        assert agent.data("get_state")["sessionId"] == before


def test_hooks_change_what_the_model_gets_and_what_is_kept(tmp_path):
    source = """
def extension(agent):
    agent.on("input", lambda event, ctx: agent.transform(event.text + "!"))
    agent.on("before_agent_start", lambda event, ctx: {
        "systemPrompt": "Be brief. " + str(event.system_prompt_options["selectedTools"]),
        "message": {"customType": "note", "content": "remember", "display": False}})
    agent.on("context", lambda event, ctx: {"messages": event.messages[-1:]})
    agent.on("before_provider_request", lambda event, ctx: {**event.payload, "seed": 7})

    @agent.on("before_provider_headers")
    def headers(event, ctx):
        event.headers["x-extension"] = "yes"

    @agent.on("after_provider_response")
    def answered(event, ctx):
        ctx.ui.set_status("http", str(event.status))

    @agent.on("message_end")
    def shout(event, ctx):
        message = event.message
        if event.raw["message"]["role"] == "assistant":
            message.content[0].text = message.content[0].text.upper()
            return {"message": message}
"""
    with start(tmp_path, source, [reply("quiet")]) as agent:
        agent.run("hello")
        (sent,) = agent.mock.requests
        assert sent.headers["x-extension"] == "yes"
        assert sent.body["seed"] == 7
        system, last = sent.body["messages"]
        assert system["content"] == "Be brief. ['read', 'bash', 'edit', 'write']"
        assert "remember" in json.dumps(last)
        kept = agent.data("get_messages")["messages"]
        assert [m["role"] for m in kept] == ["user", "custom", "assistant"]
        assert kept[0]["content"][0]["text"] == "hello!"
        assert kept[2]["content"][0]["text"] == "QUIET"
        assert dialog(agent, "setStatus")["statusText"] == "200"


def test_input_may_be_dealt_with_by_an_extension(tmp_path):
    source = """
def extension(agent):
    @agent.on("input")
    def ping(event, ctx):
        if event.text == "ping":
            ctx.ui.notify(f"pong {event.source} {event.streaming_behavior}")
            return agent.handled()
"""
    with start(tmp_path, source, [reply("a", gate("go"), "b")]) as agent:
        assert agent.data("prompt", message="ping") == {"disposition": "handled"}
        agent.prompt("go")
        agent.wait_delta("a")
        assert agent.data("steer", message="ping") == {"disposition": "handled"}
        assert agent.data("prompt", message="ping", streamingBehavior="followUp") == {"disposition": "handled"}
        agent.mock.release("go")
        agent.wait("agent_settled")
        assert notices(agent) == ["pong rpc None", "pong rpc steer", "pong rpc followUp"]
        assert len(agent.mock.requests) == 1


def test_a_tool_result_may_be_rewritten(tmp_path):
    source = """
def extension(agent):
    agent.on("tool_result", lambda event, ctx: {"content": "redacted", "isError": True, "details": {"by": "me"}})
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        message = result(agent)
        assert message["content"] == [{"type": "text", "text": "redacted"}]
        assert (message["isError"], message["details"]) == (True, {"by": "me"})
        assert "redacted" in json.dumps(agent.mock.requests[1].body)


def test_an_extension_may_send_the_agent_on_before_it_settles(tmp_path):
    source = """
def extension(agent):
    asked = []

    @agent.on("agent_before_settle")
    def more(event, ctx):
        if not asked:
            asked.append(1)
            return {"continue": True, "entries": [{"customType": "nudge", "content": "and now?"}]}
"""
    with start(tmp_path, source, [reply("one"), reply("two")]) as agent:
        agent.run("go")
        assert [f["type"] for f in agent.frames].count("agent_settled") == 1
        assert "and now?" in json.dumps(agent.mock.requests[1].body["messages"][-1])
        assert agent.data("get_last_assistant_text") == {"text": "two"}


def test_user_bash_may_be_answered_by_an_extension(tmp_path):
    source = """
def extension(agent):
    @agent.on("user_bash")
    def fake(event, ctx):
        if event.command == "secret":
            return {"result": {"output": "from afar", "exitCode": 0, "cancelled": False, "truncated": False}}
        if event.command == "broken":
            raise ValueError("no backend")
"""
    with start(tmp_path, source) as agent:
        assert agent.data("bash", command="secret")["output"] == "from afar"
        assert agent.data("bash", command="echo here")["output"] == "here\n"
        refused = agent.call("bash", command="broken")
        assert not refused["success"] and "no backend" in refused["error"]


def test_compaction_can_be_watched_replaced_and_forbidden(tmp_path):
    source = """
def extension(agent):
    @agent.on("session_before_compact")
    def before(event, ctx):
        if event.custom_instructions == "no":
            return agent.cancel()
        return {"compaction": {"summary": "mine", "details": {"n": len(event.preparation.messages_to_summarize)}}}

    agent.on("session_compact", lambda event, ctx: ctx.ui.notify(
        f"{event.compaction_entry['summary']} {event.from_extension} {event.reason}"))
    agent.on("session_compact_failed", lambda event, ctx: ctx.ui.notify(f"failed {event.aborted}"))
"""
    settings = {"compaction": {"keepRecentTokens": 1}}
    with start(tmp_path, source, [reply("one two three")], settings=settings) as agent:
        agent.run("hello")
        agent.run("again")
        refused = agent.call("compact", customInstructions="no")
        assert not refused["success"] and refused["error"] == "Compaction cancelled"
        assert agent.data("compact")["summary"] == "mine"
        assert notices(agent) == ["failed True", "mine True manual"]
        assert len(agent.mock.requests) == 2


def test_a_session_may_begin_with_a_question_and_a_prompt(tmp_path):
    source = """
def extension(agent):
    @agent.on("session_start")
    async def begin(event, ctx):
        if await ctx.ui.confirm("Begin?"):
            await agent.send_user_message("from the extension")
"""
    with start(tmp_path, source, [reply("one"), reply("two")]) as agent:
        asked = dialog(agent, "confirm")
        waiting = agent.send("prompt", message="from the client", streamingBehavior="followUp")
        agent.data("get_state")
        answer(agent, asked, confirmed=True)
        assert agent.wait(lambda f: f.get("id") == waiting)["success"]
        agent.wait("agent_settled")
        agent.mock.wait_requests(2)
        texts = [m["content"][0]["text"] for m in agent.data("get_messages")["messages"] if m["role"] == "user"]
        assert texts == ["from the extension", "from the client"]


def test_a_hanging_beginning_ends_with_an_abort(tmp_path):
    source = """
import time
def extension(agent):
    agent.on("session_start", lambda event, ctx: time.sleep(3600))
"""
    with start(tmp_path, source, [reply("one")]) as agent:
        waiting = agent.send("prompt", message="hi")
        agent.data("get_state")
        agent.call("abort")
        refused = agent.wait(lambda f: f.get("id") == waiting)
        assert refused["error"] == "The prompt was aborted before the run began"
        agent.run("hi again")


def test_a_settled_agent_may_be_sent_on_by_an_extension(tmp_path):
    source = """
def extension(agent):
    sent = []

    @agent.on("agent_settled")
    async def again(event, ctx):
        if not sent:
            sent.append(1)
            await agent.send_user_message("once more")
"""
    with start(tmp_path, source, [reply("one"), reply("two")]) as agent:
        agent.run("hi")
        agent.wait("agent_settled")
        assert agent.data("get_last_assistant_text") == {"text": "two"}


@pytest.mark.parametrize("kind", ["async def stop(event, ctx):", "def stop(event, ctx):"])
def test_a_handler_may_abort_the_run_it_is_part_of(tmp_path, kind):
    source = f"""
def extension(agent):
    {kind}
        ctx.abort()
        ctx.ui.notify("stopped it")
    agent.on("turn_start", stop)
"""
    with start(tmp_path, source, [reply("never", stall())]) as agent:
        agent.prompt("hi")
        assert agent.wait("agent_settled")["aborted"]
        assert notices(agent) == ["stopped it"]
        assert not [f for f in agent.frames if f["type"] == "extension_error"]


# -- gates --------------------------------------------------------------------------------------------


def test_a_gate_that_is_answered(tmp_path):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok"), BASH, reply("ok")]) as agent:
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        assert asked["message"] == "touch made && echo ran"
        answer(agent, asked, confirmed=False)
        agent.wait("agent_settled")
        assert result(agent)["isError"] and result(agent)["content"][0]["text"] == "The user said no"
        assert not (agent.cwd / "made").exists()
        agent.prompt("again")
        answer(agent, dialog(agent, "confirm"), confirmed=True)
        agent.wait("agent_settled")
        assert (agent.cwd / "made").exists()


@pytest.mark.parametrize(
    "source",
    [
        GATE.format(timeout="", limit=", timeout=0.1"),
        GATE.format(timeout=", timeout=0.1", limit=""),
        "def extension(agent):\n    agent.on('tool_call', lambda event, ctx: 1 / 0)",
        "import time\ndef extension(agent):\n"
        "    agent.on('tool_call', lambda event, ctx: time.sleep(600), timeout=0.1)",
    ],
    ids=["dialog-times-out", "handler-times-out", "handler-raises", "handler-blocks"],
)
def test_a_gate_that_does_not_say_yes_means_no(tmp_path, source):
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["isError"]
        assert not (agent.cwd / "made").exists()
        assert agent.close_stdin() == 0


@pytest.mark.parametrize("ending", ["stdin", "signal"])
def test_a_client_that_vanishes_during_a_dialog_means_no(tmp_path, ending):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok")], session=True) as agent:
        agent.prompt("go")
        dialog(agent, "confirm")
        code = agent.close_stdin() if ending == "stdin" else agent.kill(signal.SIGTERM)
        assert code == (0 if ending == "stdin" else 143)
        assert not (agent.cwd / "made").exists()


def test_abort_closes_the_dialog_and_blocks(tmp_path):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok")]) as agent:
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        assert agent.call("abort")["success"]
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        answer(agent, asked, confirmed=True)
        assert agent.data("get_state")["isStreaming"] is False
        assert result(agent)["isError"]
        assert not (agent.cwd / "made").exists()


def test_a_blocked_call_may_end_the_run(tmp_path):
    source = "def extension(agent):\n    agent.on('tool_call', lambda e, ctx: agent.block('enough', terminate=True))"
    with start(tmp_path, source, [BASH, reply("never asked")]) as agent:
        agent.run("go")
        assert len(agent.mock.requests) == 1


def test_arguments_may_be_changed_before_the_tool_runs(tmp_path):
    source = """
def extension(agent):
    @agent.on("tool_call", tool="bash")
    def tame(event, ctx):
        event.input["command"] = "echo tamed"
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["content"][0]["text"] == "tamed\n"
        assert not (agent.cwd / "made").exists()


# -- dialogs ------------------------------------------------------------------------------------------

ALL_UI = """
import json

def extension(agent):
    @agent.command("ask")
    async def ask(args, ctx):
        got = {}
        got["select"] = await ctx.ui.select("Pick", ["A", "B"])
        got["confirm"] = await ctx.ui.confirm("Sure?", "really")
        got["input"] = await ctx.ui.input("Name", "ph")
        got["editor"] = await ctx.ui.editor("Edit", "pre\\nfill")
        ctx.ui.notify(json.dumps({k: v for k, v in got.items() if v is not None}), "warning")

    @agent.command("tmo")
    async def tmo(args, ctx):
        await ctx.ui.select("Pick", ["A"], timeout=0.2)
        await ctx.ui.confirm("Sure?", "really", timeout=0.2)
        await ctx.ui.input("Name", timeout=0.2)
        ctx.ui.notify("done")

    @agent.command("fire")
    def fire(args, ctx):
        ctx.ui.set_status("k", "txt")
        ctx.ui.set_status("k")
        ctx.ui.set_widget("w", ["l1", "l2"])
        ctx.ui.set_widget("w", ["b"], placement="belowEditor")
        ctx.ui.set_widget("w")
        ctx.ui.set_title("ttl")
        ctx.ui.set_editor_text("etxt")
        ctx.ui.paste_to_editor("paste")
        ctx.ui.notify("n")
        ctx.ui.notify("e", "error")

    @agent.command("boom")
    async def boom(args, ctx):
        raise ValueError("kaboom")

    @agent.command("both")
    async def both(args, ctx):
        import asyncio
        answers = await asyncio.gather(*(ctx.ui.input(f"Q{n}") for n in range(20)))
        ctx.ui.notify(",".join(answers))
"""


def wire(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the requests to the user without their ids, in order, keys included."""
    return [
        {key: value for key, value in frame.items() if key not in ("type", "id")}
        for frame in frames
        if frame["type"] == "extension_ui_request"
    ]


def test_every_dialog_on_the_wire(tmp_path):
    with start(tmp_path, ALL_UI) as agent:
        agent.send("prompt", id="a1", message="/ask")
        asked = dialog(agent, "select")
        agent.send("extension_ui_response", id="wrong", value="Z")
        answer(agent, asked, value="B")
        answer(agent, dialog(agent, "confirm"), confirmed=True)
        answer(agent, dialog(agent, "input"), cancelled=True)
        answer(agent, dialog(agent, "editor"), value="edited")
        assert agent.wait("response")["id"] == "a1"
        assert wire(agent.frames) == [
            {"method": "select", "title": "Pick", "options": ["A", "B"]},
            {"method": "confirm", "title": "Sure?", "message": "really"},
            {"method": "input", "title": "Name", "placeholder": "ph"},
            {"method": "editor", "title": "Edit", "prefill": "pre\nfill"},
            {
                "method": "notify",
                "message": '{"select": "B", "confirm": true, "editor": "edited"}',
                "notifyType": "warning",
            },
        ]
        # An answer is never answered itself.
        assert [f["id"] for f in agent.frames if f["type"] == "response"] == ["a1"]


def test_every_notice_on_the_wire_and_time_outs(tmp_path):
    with start(tmp_path, ALL_UI) as agent:
        assert agent.prompt("/fire")["success"]
        assert wire(agent.frames) == [
            {"method": "setStatus", "statusKey": "k", "statusText": "txt"},
            {"method": "setStatus", "statusKey": "k"},
            {"method": "setWidget", "widgetKey": "w", "widgetLines": ["l1", "l2"]},
            {"method": "setWidget", "widgetKey": "w", "widgetLines": ["b"], "widgetPlacement": "belowEditor"},
            {"method": "setWidget", "widgetKey": "w"},
            {"method": "setTitle", "title": "ttl"},
            {"method": "set_editor_text", "text": "etxt"},
            {"method": "set_editor_text", "text": "paste"},
            {"method": "notify", "message": "n", "notifyType": "info"},
            {"method": "notify", "message": "e", "notifyType": "error"},
        ]
        start_of = len(agent.frames)
        assert agent.prompt("/tmo")["success"]
        assert wire(agent.frames[start_of:]) == [
            {"method": "select", "title": "Pick", "options": ["A"], "timeout": 200},
            {"method": "confirm", "title": "Sure?", "message": "really", "timeout": 200},
            {"method": "input", "title": "Name", "timeout": 200},
            {"method": "notify", "message": "done", "notifyType": "info"},
        ]


@pytest.mark.parametrize(
    ("dialect", "env", "titles"),
    [("spindle", "", 1), ("pi-0.74", "", 1), ("xcsh", "", 0), ("xcsh", " YES ", 1)],
)
def test_titles_go_out_as_the_dialect_has_it(tmp_path, dialect, env, titles):
    with start(tmp_path, ALL_UI, args=["--dialect", dialect], env={"PI_RPC_EMIT_TITLE": env}) as agent:
        agent.prompt("/fire")
        assert [item["method"] for item in wire(agent.frames)].count("setTitle") == titles


def test_many_dialogs_at_once_answered_backwards(tmp_path):
    with start(tmp_path, ALL_UI) as agent:
        id = agent.send("prompt", message="/both")
        asked = [dialog(agent, "input") for _ in range(20)]
        for request in reversed(asked):
            answer(agent, request, value=request["title"])
        agent.wait(lambda f: f.get("id") == id)
        assert notices(agent) == [",".join(f"Q{n}" for n in range(20))]


def test_a_dialog_waits_while_everything_else_goes_on(tmp_path):
    with start(tmp_path, ALL_UI, [reply("x")]) as agent:
        waiting = agent.send("prompt", message="/ask")
        asked = dialog(agent, "select")
        agent.run("meanwhile")
        agent.data("get_state")
        assert agent.call("abort")["success"]
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        for method in ("confirm", "input", "editor"):
            answer(agent, dialog(agent, method), cancelled=True)
        assert agent.wait(lambda f: f.get("id") == waiting)["success"]


# -- commands -----------------------------------------------------------------------------------------


def test_a_command_runs_at_once_while_the_model_writes(tmp_path):
    with start(tmp_path, ALL_UI, [reply("a", gate("go"), "b")]) as agent:
        agent.prompt("go")
        agent.wait_delta("a")
        assert agent.data("prompt", message="/fire") == {"disposition": "handled"}
        refused = agent.call("steer", message="/fire now")
        assert refused["error"] == (
            'Extension command "/fire" cannot be queued. Use prompt() or execute the command when not streaming.'
        )
        assert not agent.call("follow_up", message="/fire")["success"]
        agent.mock.release("go")
        agent.wait("agent_settled")
        assert len(agent.mock.requests) == 1


def test_a_failing_command_is_a_success_with_an_error_before_it(tmp_path):
    with start(tmp_path, ALL_UI) as agent:
        agent.send("prompt", id="r4", message="/boom x")
        assert agent.wait("response")["success"]
        kinds = [f["type"] for f in agent.frames[1:]]
        assert kinds == ["extension_error", "response"]
        assert agent.frames[1] == {
            "type": "extension_error",
            "extensionPath": "command:boom",
            "event": "command",
            "error": "kaboom",
        }


def test_commands_are_listed_in_both_notations(tmp_path):
    with start(tmp_path, "def extension(agent):\n    agent.command('go', help='Go on')(print)") as agent:
        path = str(tmp_path / "ext.py")
        assert agent.data("get_commands")["commands"] == [
            {
                "name": "go",
                "description": "Go on",
                "source": "extension",
                "sourceInfo": {"path": path, "source": "cli", "scope": "temporary", "origin": "top-level"},
                "location": "path",
                "path": path,
            }
        ]


# -- what extensions do -------------------------------------------------------------------------------


def test_messages_with_every_delivery(tmp_path):
    source = """
def extension(agent):
    @agent.command("say")
    async def say(args, ctx):
        how, _, text = args.partition(" ")
        options = {"silent": {}, "run": {"trigger_turn": True}}.get(how, {"deliver_as": how})
        await agent.send_message("note", text, **options)

    @agent.command("prompt")
    async def prompt(args, ctx):
        await agent.send_user_message(args)
"""
    with start(tmp_path, source, [reply("a", gate("go"), "b"), reply("c")]) as agent:
        agent.prompt("/say silent quiet")
        assert [f["type"] for f in agent.frames[1:]] == ["message_start", "message_end", "response"]
        agent.prompt("/say nextTurn later")
        agent.prompt("/prompt /say is just text")
        agent.wait_delta("a")
        agent.prompt("/say steer now")
        agent.prompt("/say followUp then")
        agent.prompt("/prompt not now")
        error = agent.wait("extension_error")
        assert error["error"].startswith("Agent is already processing")
        agent.mock.release("go")
        agent.wait("agent_settled")
        agent.prompt("/say run go")
        agent.wait("agent_settled")
        texts = [
            m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]
            for m in agent.data("get_messages")["messages"]
            if m["role"] in ("user", "custom")
        ]
        assert texts == ["quiet", "/say is just text", "later", "now", "then", "go"]


def test_entries_labels_names_and_the_view_of_the_session(tmp_path):
    source = """
import json

def extension(agent):
    @agent.command("keep")
    async def keep(args, ctx):
        first = agent.append_entry("mine", {"n": args})
        agent.set_label(first, "here")
        agent.session_name = "Named"
        kept = [e["data"] for e in ctx.session.branch() if e.get("customType") == "mine"]
        ctx.ui.notify(json.dumps([kept, ctx.session.label(first), agent.session_name, ctx.mode, ctx.has_ui,
            str(ctx.cwd), ctx.is_idle, ctx.model.id, ctx.session.file is not None, ctx.project_trusted,
            len(ctx.session.entries()) > 2, ctx.session.entry(first)["customType"], ctx.context_usage()["percent"]]))
"""
    with start(tmp_path, source, session=True) as agent:
        agent.prompt("/keep 1")
        seen = json.loads(notices(agent)[0])
        assert seen == [
            [{"n": "1"}], "here", "Named", "rpc", True, str(agent.cwd), True, "m1", True, False, True, "mine", 0.0,
        ]  # fmt: skip
        assert agent.data("get_state")["sessionName"] == "Named"
        assert agent.data("get_messages")["messages"] == []


def test_models_thinking_and_tools_can_be_changed(tmp_path):
    source = """
def extension(agent):
    @agent.command("set")
    async def change(args, ctx):
        agent.thinking_level = "low"
        assert agent.thinking_level == "low"
        agent.active_tools = ["read", "late", "nonsense"]

        @agent.tool
        def late(n: int):
            "Come later"
            return str(n)

        assert "late" in agent.active_tools
        assert {tool.name for tool in agent.all_tools()} >= {"bash", "late"}
        assert await agent.set_model(ctx.models.find("mock", "m2"))
        assert not await agent.set_model(next(m for m in ctx.models.all() if m.provider == "anthropic"))
"""
    with start(tmp_path, source, [reply(call("late", {"n": "3"}), finish="toolUse"), reply("ok")]) as agent:
        agent.prompt("/set")
        assert [f for f in agent.frames if f["type"] == "extension_error"] == []
        state = agent.data("get_state")
        assert (state["model"]["id"], state["thinkingLevel"]) == ("m2", "off")
        assert [tool["name"] for tool in state["dumpTools"]] == ["read", "late"]
        agent.run("go")
        assert result(agent)["content"][0]["text"] == "3"


def test_a_tool_replaces_a_built_in_until_it_is_gone(tmp_path):
    source = """
def extension(agent):
    @agent.tool(name="bash", snippet="Pretend to run a command")
    def pretend(command: str):
        "Pretend."
        return f"pretended {command}"
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["content"][0]["text"] == "pretended touch made && echo ran"


STUBBORN = """
import pathlib, time

def extension(agent):
    @agent.tool
    def polite(*, ctx, update):
        "Look up now and then."
        update("working")
        while True:
            time.sleep(0.01)
            if ctx.cancelled.is_set():
                pathlib.Path("stopped").touch()
            ctx.raise_if_aborted()

    @agent.tool
    def deaf(*, update):
        "Never look up."
        update("working")
        time.sleep(3600)
"""


@pytest.mark.parametrize("tool", ["polite", "deaf"])
def test_an_abort_ends_a_tool_in_a_thread(tmp_path, tool):
    with start(tmp_path, STUBBORN, [reply(call(tool, {}), finish="toolUse"), reply("ok")]) as agent:
        agent.prompt("go")
        agent.wait("tool_execution_update")
        assert agent.call("abort")["success"]
        assert result(agent)["content"][0]["text"] == "Operation aborted"
        if tool == "polite":
            end = time.monotonic() + 60
            while not (agent.cwd / "stopped").exists() and time.monotonic() < end:
                time.sleep(0.01)
            assert (agent.cwd / "stopped").exists()
        assert agent.close_stdin() == 0


@pytest.mark.parametrize(
    ("args", "active"),
    [
        ([], ["read", "bash", "edit", "write", "mine"]),
        (["--tools", "read"], ["read"]),
        (["--tools", "read,mine"], ["read", "mine"]),
        (["--no-tools"], []),
        (["--no-builtin-tools"], ["mine"]),
        (["--exclude-tools", "mine,bash"], ["read", "edit", "write"]),
    ],
)
def test_the_command_line_decides_about_tools_of_extensions(tmp_path, args, active):
    with start(tmp_path, "def extension(agent):\n    @agent.tool\n    def mine():\n        'x'", args=args) as agent:
        assert [tool["name"] for tool in agent.data("get_state")["dumpTools"]] == active


def test_a_provider_with_a_stream_function_of_its_own(tmp_path):
    source = """
from spindle.ext import Thinking, ToolCall, Usage

def extension(agent):
    async def stream(model, request, options):
        last = request.messages[-1]
        if type(last).__name__ == "ToolResultMessage":
            yield "It said "
            yield last.content[0].text
            return
        yield Thinking("hm")
        yield "Let me look."
        yield ToolCall("c1", "bash", {"command": "echo hi"})
        yield Usage(input=3, output=4, total_tokens=7)

    agent.provider("home", api="home-made", base_url="http://localhost:1", api_key="none", stream=stream,
        models=[{"id": "tiny", "name": "Tiny", "contextWindow": 1000, "maxTokens": 100}])
"""
    with start(tmp_path, source, model="home/tiny") as agent:
        agent.run("go")
        first, _, last = agent.data("get_messages")["messages"][1:]
        assert [block["type"] for block in first["content"]] == ["thinking", "text", "toolCall"]
        assert (first["stopReason"], first["usage"]["totalTokens"]) == ("toolUse", 7)
        assert last["content"] == [{"type": "text", "text": "It said hi\n"}]


def test_an_extension_ends_the_process_when_the_agent_is_idle(tmp_path):
    source = "def extension(agent):\n    agent.command('bye')(lambda args, ctx: ctx.shutdown())"
    with start(tmp_path, source, [reply("a", gate("go"), "b")]) as agent:
        agent.prompt("go")
        agent.wait_delta("a")
        assert agent.prompt("/bye")["success"]
        agent.mock.release("go")
        agent.wait("agent_settled")
        assert agent.process.wait(60) == 0


def test_an_extension_may_abort_and_compact(tmp_path):
    source = """
def extension(agent):
    agent.command("stop")(lambda args, ctx: ctx.abort())

    @agent.command("shrink")
    async def shrink(args, ctx):
        try:
            await ctx.compact("short")
        except Exception as error:
            ctx.ui.notify(str(error))
"""
    with start(tmp_path, source, [reply("a", stall())]) as agent:
        agent.prompt("go")
        agent.wait_delta("a")
        agent.prompt("/stop")
        assert agent.wait("agent_settled")["aborted"]
        agent.prompt("/shrink")
        assert notices(agent) == ["Nothing to compact (session too small)"]


# -- sessions -----------------------------------------------------------------------------------------

TRAVEL = """
def extension(agent):
    @agent.command("new")
    async def new(args, ctx):
        async def go_on(fresh):
            fresh.ui.notify(f"fresh {fresh.session.id != old}")
            await fresh.agent.send_user_message("from the other side")
        old = ctx.session.id
        made = await ctx.new_session(setup=lambda s: s.append_custom_entry("seed", 1) and None, with_session=go_on)
        try:
            ctx.cwd
        except Exception as error:
            print(type(error).__name__)
        assert not made.cancelled

    @agent.command("fork")
    async def fork(args, ctx):
        entry = next(e for e in ctx.session.entries() if e.get("message", {}).get("role") == "user")
        forked = await ctx.fork(entry["id"], with_session=lambda fresh: fresh.ui.set_editor_text("x"))

    @agent.command("copy")
    async def copy(args, ctx):
        await ctx.fork(ctx.session.leaf_id, position="at")

    @agent.command("switch")
    async def switch(args, ctx):
        await ctx.switch_session(args)

    @agent.command("stumble")
    async def stumble(args, ctx):
        await ctx.new_session()
        await agent.send_user_message("too late")
"""


def test_an_error_after_a_change_of_session_is_still_told(tmp_path):
    with start(tmp_path, TRAVEL) as agent:
        assert agent.prompt("/stumble")["success"]
        error = agent.wait("extension_error")
        assert error["extensionPath"] == "command:stumble" and "with_session" in error["error"]


def test_a_command_goes_to_another_session_and_on_from_there(tmp_path):
    with start(tmp_path, TRAVEL, [reply("x")], session=True) as agent:
        agent.run("hello")
        old = agent.data("get_state")
        assert agent.prompt("/new")["success"]
        agent.wait("agent_settled")
        assert notices(agent) == ["fresh True"]
        entries = agent.data("get_entries")["entries"]
        assert any(entry.get("customType") == "seed" for entry in entries)
        assert agent.data("get_messages")["messages"][0]["content"][0]["text"] == "from the other side"
        agent.prompt(f"/switch {old['sessionFile']}")
        assert agent.data("get_state")["sessionId"] == old["sessionId"]
        agent.prompt("/copy")
        state = agent.data("get_state")
        assert state["sessionId"] != old["sessionId"] and state["messageCount"] == 2
        agent.prompt("/fork")
        assert dialog(agent, "set_editor_text")["text"] == "x"
        assert agent.data("get_state")["messageCount"] == 0
        assert [f for f in agent.frames if f["type"] == "extension_error"] == []
    assert b"StaleExtensionError" in agent.stderr


# -- hostile code -------------------------------------------------------------------------------------


def test_what_extensions_print_does_not_reach_the_wire(tmp_path):
    source = """
import os, subprocess, sys
print("import")
os.write(1, b"raw import\\n")

def extension(agent):
    print("factory")
    def loud(event, ctx):
        print("handler", flush=True)
        sys.stdout.write("not json\\n")
        sys.__stdout__.write("old stdout\\n")
        sys.__stdout__.flush()
        os.write(1, b"{}\\n")
        subprocess.run(["echo", "child"])
    agent.on("turn_start", loud)
"""
    with start(tmp_path, source, [reply("x")]) as agent:
        agent.run("go")
        assert agent.close_stdin() == 0
        assert all("type" in frame for frame in agent.frames)
    for word in (b"raw import", b"factory", b"handler", b"not json", b"child"):
        assert word in agent.stderr


HANGING = {
    "async": "import asyncio\nasync def hang(event, ctx):\n    await asyncio.sleep(3600)\n",
    "blocking": "import time\ndef hang(event, ctx):\n    time.sleep(3600)\n",
}


@pytest.mark.parametrize("kind", HANGING)
@pytest.mark.parametrize("event", ["input", "before_agent_start", "turn_start", "context", "tool_call", "message_end"])
def test_a_hanging_handler_holds_up_neither_control_commands_nor_an_abort(tmp_path, kind, event):
    source = HANGING[kind] + f"def extension(agent):\n    agent.on({event!r}, hang)\n"
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.send("prompt", message="go")
        if event == "tool_call":
            agent.wait("tool_execution_start")
        elif event == "context":
            agent.wait("turn_start")
        agent.data("get_state")
        assert agent.call("abort")["success"]
        assert agent.data("get_state")["isStreaming"] is False
        assert not (agent.cwd / "made").exists()
        assert agent.close_stdin() == 0


@pytest.mark.parametrize("kind", HANGING)
def test_a_hanging_shutdown_handler_ends_after_its_time(tmp_path, kind):
    source = HANGING[kind] + "def extension(agent):\n    agent.on('session_shutdown', hang, timeout=0.2)\n"
    with start(tmp_path, source) as agent:
        agent.data("get_state")
        assert agent.close_stdin() == 0
        assert agent.wait("extension_error")["error"] == "The session_shutdown handler took longer than 0.2 s"


def test_handlers_that_raise_everywhere_do_not_stop_a_run(tmp_path):
    source = """
from spindle.extensions.events import EVENTS

def extension(agent):
    def fail(event, ctx):
        raise ValueError("x" * 10)
    for name in EVENTS:
        if name != "tool_call":
            agent.on(name, fail)
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert agent.data("get_last_assistant_text") == {"text": "ok"}
        errors = [f for f in agent.frames if f["type"] == "extension_error"]
        assert {f["error"] for f in errors} == {"x" * 10}
        assert {f["event"] for f in errors} >= {"session_start", "input", "turn_start", "message_update", "tool_result"}
        assert errors[0]["extensionPath"] == str(tmp_path / "ext.py")
        # It comes before the event during which it happened.
        kinds = [f["type"] if f["type"] != "extension_error" else f["event"] for f in agent.frames]
        assert kinds.index("turn_start") < len(kinds) and kinds[kinds.index("turn_start") + 1] == "turn_start"


# -- loading ------------------------------------------------------------------------------------------


def test_a_named_extension_that_does_not_load_ends_the_start(tmp_path):
    with start(tmp_path, "def extension(agent):\n    raise ValueError('no')") as agent:
        assert agent.process.wait(60) == 1
    path = tmp_path / "ext.py"
    assert (
        agent.stderr.decode().splitlines()[-1] == f'Error: Failed to load extension "{path}": ValueError: no (line 2)'
    )
    assert agent.frames == []


def test_a_found_extension_that_does_not_load_is_told_and_the_rest_works(tmp_path):
    folder = tmp_path / "agent" / "extensions"
    write(folder / "broken.py", "def extension(agent): oops")
    write(folder / "good.py", "def extension(agent):\n    agent.command('good')(print)")
    write(folder / "gate.ts", "export default function () {}")
    with AgentProcess([], base=tmp_path) as agent:
        error = agent.wait("extension_error")
        assert (error["extensionPath"], error["event"]) == (str(folder / "broken.py"), "load")
        (command,) = agent.data("get_commands")["commands"]
        assert (command["name"], command["location"], command["sourceInfo"]["source"]) == ("good", "user", "auto")
        agent.close_stdin()
    told = agent.stderr.decode()
    assert told.count("gate.ts") == 1 and "TypeScript" in told
    assert 'Failed to load extension "' in told


def test_extensions_are_loaded_in_order_and_only_from_trusted_projects(tmp_path):
    command = "def extension(agent):\n    agent.command({!r})(print)\n"
    named = write(tmp_path / "named.py", command.format("named"))
    write(tmp_path / "work" / ".pi" / "extensions" / "project.py", command.format("project"))
    write(tmp_path / "agent" / "own.py", command.format("settings"))
    write(tmp_path / "agent" / "extensions" / "user.py", command.format("user"))
    options = {"base": tmp_path, "settings": {"extensions": ["own.py"]}}

    def commands(*args):
        with AgentProcess([], args=["-e", str(named), *args], **options) as agent:
            return [item["name"] for item in agent.data("get_commands")["commands"]]

    assert commands() == ["named", "settings", "user"]
    assert commands("--approve") == ["named", "project", "settings", "user"]
    assert commands("--approve", "-ne") == ["named"]


def test_an_extension_of_the_user_may_decide_about_trust(tmp_path):
    write(
        tmp_path / "work" / ".pi" / "extensions" / "project.py", "def extension(agent):\n    agent.command('p')(print)"
    )
    source = f"""
def extension(agent):
    @agent.on("project_trust")
    def decide(event, ctx):
        agent.provider("late", base_url="http://127.0.0.1", headers={{}})
        try:
            ctx.session
        except RuntimeError as error:
            with open({str(tmp_path / "said")!r}, "w") as file:
                print(ctx.mode, ctx.has_ui, ctx.cwd.name, error, file=file, end="")
        return {{"trusted": "yes", "remember": True}}
"""
    write(tmp_path / "agent" / "extensions" / "truster.py", source)
    with AgentProcess([], base=tmp_path) as agent:
        assert [item["name"] for item in agent.data("get_commands")["commands"]] == ["p"]
    # There is no agent yet, only where it will be.
    assert (tmp_path / "said").read_text() == f"rpc False work {NOT_YET}"
    assert json.loads((tmp_path / "agent" / "trust.json").read_text()) == {str((tmp_path / "work").resolve()): True}


def test_flags_of_extensions_are_options_of_the_command_line(tmp_path):
    source = """
def extension(agent):
    agent.flag("shape", type=str, default="round")
    agent.command("show")(lambda args, ctx: ctx.ui.notify(str(agent.get_flag("shape"))))
"""
    with start(tmp_path, source, args=["--shape", "square"]) as agent:
        agent.prompt("/show")
        assert notices(agent) == ["square"]
    with start(tmp_path, source, args=["--shapee", "square"]) as agent:
        assert agent.process.wait(60) == 1
    assert "Unknown option: --shapee" in agent.stderr.decode()


def test_resources_of_an_extension_can_be_used(tmp_path):
    write(tmp_path / "more" / "greet.md", "Say hello to $1")
    source = f"""
def extension(agent):
    agent.on("resources_discover", lambda event, ctx: {{"promptPaths": [{str(tmp_path / "more")!r}]}})
"""
    with start(tmp_path, source, [reply("hello")]) as agent:
        agent.run("/greet Ada")
        assert "Say hello to Ada" in json.dumps(agent.mock.requests[0].body)


RELOADING = """
def extension(agent):
    @agent.command("version")
    async def version(args, ctx):
        ctx.ui.notify("{version}")

    @agent.command("reload")
    async def reload(args, ctx):
        await ctx.reload()

    agent.on("session_start", lambda event, ctx: ctx.ui.set_status("start", "{version} " + event.reason))
    agent.on("session_shutdown", lambda event, ctx: ctx.ui.set_status("end", "{version} " + event.reason))

    @agent.on("tool_call", tool="bash")
    async def gate(event, ctx):
        if not await ctx.ui.confirm("{version}", "?"):
            return agent.block("no")
"""


def test_reload_in_mid_session(tmp_path):
    with start(tmp_path, RELOADING.format(version="one"), [BASH, reply("ok"), BASH, reply("ok")]) as agent:
        agent.prompt("/version")
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        write(tmp_path / "ext.py", RELOADING.format(version="two"))
        agent.prompt("/reload")
        # A question of code that is gone counts as refused.
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        agent.wait("agent_settled")
        assert result(agent)["content"][0]["text"] == "no"
        agent.prompt("/version")
        assert notices(agent) == ["one", "two"]
        told = [f["statusText"] for f in agent.frames if f.get("method") == "setStatus"]
        assert told == ["one startup", "one reload", "two reload"]
        agent.prompt("go")
        again = dialog(agent, "confirm")
        assert again["title"] == "two"
        answer(agent, again, confirmed=True)
        agent.wait("agent_settled")
        assert (agent.cwd / "made").exists()


@pytest.mark.parametrize("change", ["reload", "new_session"])
def test_a_gate_whose_file_is_broken_now_stays_closed(tmp_path, change):
    with start(tmp_path, RELOADING.format(version="one"), [BASH, reply("x")]) as agent:
        agent.prompt("/version")
        write(tmp_path / "ext.py", "def extension(agent): oops")
        if change == "reload":
            agent.prompt("/reload")
        else:
            agent.data("new_session")
        told = agent.wait("extension_error")
        assert told["event"] == "load" and "NameError" in told["error"] and "stays in force" in told["error"]
        agent.prompt("go")
        answer(agent, dialog(agent, "confirm"), confirmed=False)
        agent.wait("agent_settled")
        assert not (agent.cwd / "made").exists()


def test_fifty_extensions(tmp_path):
    for number in range(50):
        write(
            tmp_path / "agent" / "extensions" / f"x{number:02}.py",
            f"def extension(agent):\n    agent.on('turn_start', lambda e, ctx: None)\n"
            f"    agent.command('c{number}')(print)\n",
        )
    with AgentProcess([reply("x")], base=tmp_path) as agent:
        assert len(agent.data("get_commands")["commands"]) == 50
        agent.run("go")
