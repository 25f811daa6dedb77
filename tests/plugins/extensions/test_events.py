"""What extensions are told of a real agent, and what they make of it."""

import json
from pathlib import Path

import pytest

from tests.support.mock_model import call, gate, reply, stall

from .helpers import BASH, answer, dialog, notices, result, start

LOGGER = """
from spindle.plugins.extensions.events import EVENTS

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
        # It is answered before handlers look at it; then the end tells what became of it.
        assert agent.data("prompt", message="ping") == {"disposition": "started"}
        assert agent.wait("agent_settled") == {"type": "agent_settled", "aborted": False, "stopReason": "handled"}
        agent.prompt("go")
        agent.wait_delta("a")
        assert agent.data("steer", message="ping") == {"disposition": "queued"}
        assert agent.data("prompt", message="ping", streamingBehavior="followUp") == {"disposition": "queued"}
        for _ in range(3):
            dialog(agent, "notify")
        agent.mock.release("go")
        agent.wait("agent_settled")
        assert notices(agent) == ["pong rpc None", "pong rpc steer", "pong rpc followUp"]
        assert len(agent.mock.requests) == 1
        assert [f["type"] for f in agent.frames].count("agent_settled") == 2
        assert [f["type"] for f in agent.frames].count("response") == 4


def test_a_prompt_is_answered_before_handlers_have_looked_at_it(tmp_path):
    source = """
def extension(agent):
    @agent.on("input")
    async def ask(event, ctx):
        if not await ctx.ui.confirm(event.text):
            return agent.handled()
"""
    with start(tmp_path, source, [reply("hi")]) as agent:
        for allowed in (False, True):
            assert agent.data("prompt", message="hello") == {"disposition": "started"}
            asked = dialog(agent, "confirm")
            assert agent.data("get_state")["isStreaming"] is True
            refused = agent.call("prompt", message="another")
            assert refused["error"].startswith("Agent is already processing")
            answer(agent, asked, confirmed=allowed)
            settled = agent.wait("agent_settled")
            assert settled["stopReason"] == ("end" if allowed else "handled")
        assert [f["type"] for f in agent.frames].count("agent_settled") == 2
        assert agent.data("get_state")["messageCount"] == 2


def test_a_prompt_that_cannot_start_any_more_settles_with_its_error(tmp_path):
    source = """
def extension(agent):
    async def stream(model, request, options):
        yield "never"

    agent.provider("gone", api="gone", base_url="http://127.0.0.1:1", api_key="k", stream=stream, models=[{"id": "m"}])

    @agent.on("input")
    def remove(event, ctx):
        agent.remove_provider("gone")
"""
    with start(tmp_path, source, model="gone/m") as agent:
        assert agent.data("prompt", message="hello") == {"disposition": "started"}
        settled = agent.wait("agent_settled")
        assert (settled["aborted"], settled["stopReason"]) == (False, "error")
        assert "gone" in settled["errorMessage"]
        assert [f["type"] for f in agent.frames] == ["ready", "response", "agent_settled"]
        assert agent.data("get_state")["messageCount"] == 0
        refused = agent.call("prompt", message="again")
        assert not refused["success"]


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
        assert texts == ["from the client", "from the extension"]
        assert [f["type"] for f in agent.frames].count("agent_settled") == 1


def test_a_hanging_beginning_ends_with_an_abort(tmp_path):
    source = """
import time
def extension(agent):
    agent.on("session_start", lambda event, ctx: time.sleep(3600))
"""
    with start(tmp_path, source, [reply("one")]) as agent:
        assert agent.data("prompt", message="hi") == {"disposition": "started"}
        agent.call("abort")
        assert agent.wait("agent_settled") == {"type": "agent_settled", "aborted": True, "stopReason": "aborted"}
        agent.run("hi again")
        assert len(agent.mock.requests) == 1


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
