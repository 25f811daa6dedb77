"""What extensions do to the agent: messages, entries, models, tools, its end."""

import json
import time

import pytest

from tests.support.mock_model import call, gate, reply, stall

from .helpers import BASH, command, result, start


def test_messages_with_every_delivery(tmp_path):
    source = """
def extension(agent):
    @agent.command("say")
    async def say(args, ctx):
        how, _, text = args.partition(" ")
        options = {"silent": {}, "run": {"trigger_turn": True}}.get(how, {"deliver_as": how})
        await agent.send_message("note", text, **options)
        ctx.ui.notify("said")

    @agent.command("prompt")
    async def prompt(args, ctx):
        await agent.send_user_message(args)
"""
    with start(tmp_path, source, [reply("a", gate("go"), "b"), reply("c")]) as agent:
        command(agent, "/say silent quiet")
        assert [f["type"] for f in agent.frames[1:4]] == ["response", "message_start", "message_end"]
        command(agent, "/say nextTurn later")
        agent.prompt("/prompt /say is just text")
        agent.wait_delta("a")
        command(agent, "/say steer now")
        command(agent, "/say followUp then")
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
        seen = json.loads(command(agent, "/keep 1"))
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
        ctx.ui.notify("set")
"""
    with start(tmp_path, source, [reply(call("late", {"n": "3"}), finish="toolUse"), reply("ok")]) as agent:
        command(agent, "/set")
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
        assert command(agent, "/shrink") == "Nothing to compact (session too small)"
