"""What an extension asks of the agent: an answer of the model, a call of a tool, a server, the settings."""

import json
import sys
from typing import Any

import pytest

from tests.plugins.mcp.helpers import FAKE
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, reply

ASKS = """
async def asks(arguments, ctx):
    try:
        text = await ctx.model.complete("Which colour?", system="One word.", max_tokens=7)
        ctx.ui.notify(f"{ctx.model.id}: {text}")
    except Exception as error:
        ctx.ui.notify(f"{type(error).__name__}: {error}")

def extension(agent):
    agent.command("ask")(asks)

    @agent.tool(annotations={"readOnlyHint": True})
    async def calls(name: str, value: str, *, ctx):
        "Call another tool"
        return await ctx.execute_tool(name, {"command": value} if name == "bash" else {"n": int(value)})

    @agent.command("now")
    async def now(arguments, ctx):
        try:
            await ctx.execute_tool("bash", {"command": "true"})
        except Exception as error:
            ctx.ui.notify(str(error))

    @agent.command("tools")
    async def tools(arguments, ctx):
        ctx.ui.notify(" ".join(sorted(agent.active_tools)) + " " + str(ctx.settings["retry"]["baseDelayMs"]))

    @agent.tool(annotations={"readOnlyHint": True}, exposure="hidden", output_schema=%s)
    def double(n: int):
        "Double a number"
        return {"content": [{"type": "text", "text": str(2 * n)}], "details": {"twice": 2 * n if n < 5 else "much"}}

    @agent.on("session_start")
    async def begin(event, ctx):
        await agent.register_mcp_server("fake", command=%r, args=[%r, "--plain"], exposure="direct")

    @agent.on("mcp_servers_change")
    def changed(event, ctx):
        ctx.ui.notify("servers: " + ", ".join(event.servers))
"""
SCHEMA = {"type": "object", "properties": {"twice": {"type": "integer"}}, "required": ["twice"]}


class Agent(AgentProcess):
    def configure(self) -> None:
        (self.cwd / "asks.py").write_text(ASKS % (json.dumps(SCHEMA), sys.executable, FAKE))

    def told(self, text: str) -> str:
        """Run a slash command and return what it has told."""
        self.prompt(text)
        frame = self.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == "notify")
        return str(frame["message"])


def begun(steps: list[Any], *args: str, **options: Any) -> Agent:
    agent = Agent(steps, args=["-e", "asks.py", *args], session=True, **options)
    agent.__enter__()
    assert agent.wait(lambda f: f.get("method") == "notify")["message"] == "servers: fake"
    return agent


def test_the_model_is_asked_and_it_counts() -> None:
    agent = begun([reply("Blue", usage=(100, 5, 0)), failure(400, "no"), reply("hi")])
    try:
        assert agent.told("/ask") == "m1: Blue"
        body = agent.mock.requests[0].body
        assert [
            m["content"] if isinstance(m["content"], str) else m["content"][0]["text"] for m in body["messages"]
        ] == [
            "One word.",
            "Which colour?",
        ]
        assert body["max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"] == 7
        assert not body.get("tools")
        assert agent.told("/ask").startswith("AgentError: The model gave no answer: ")
        stats = agent.data("get_session_stats")
        assert stats["tokens"]["input"] == 100 and stats["assistantMessages"] == 0
        agent.run("hello")
        assert "colour" not in json.dumps(agent.mock.requests[-1].body), "it is not part of the conversation"
        kinds = [entry["kind"] for entry in agent.data("get_entries")["entries"] if entry["type"] == "usage"]
        assert kinds == ["extension"]
    finally:
        agent.__exit__(None, None, None)


@pytest.mark.parametrize(("mode", "made"), [("bypassPermissions", "made"), ("plan", "refused")])
def test_a_tool_is_called_as_the_model_would(mode: str, made: str) -> None:
    """Rules hold, and a tool that only reads is allowed where others are not."""
    wanted = [("bash", "echo made"), ("double", "4"), ("double", "6"), ("nothing", "1")]
    calls = [call("calls", {"name": name, "value": value}, id=f"c{n}") for n, (name, value) in enumerate(wanted)]
    agent = begun([reply(*calls), reply("done")], "--permission-mode", mode)
    try:
        agent.run("go")
        results = [m for m in agent.data("get_messages")["messages"] if m["role"] == "toolResult"]
        texts = [result["content"][0]["text"].strip() for result in results]
        assert made in texts[0] and results[0]["isError"] is (mode == "plan")
        assert texts[1] == "8"
        assert "twice" in texts[2], "the result does not fit its schema"
        assert texts[3] == "There is no active tool nothing"
        assert agent.told("/now").startswith("Tools can be called while a run goes on")
    finally:
        agent.__exit__(None, None, None)


def test_the_model_sees_the_server_and_not_what_is_hidden() -> None:
    agent = begun([reply(call("mcp__fake__echo", {"text": "hi"})), reply("done")])
    try:
        agent.run("go")
        names = {tool["function"]["name"] for tool in agent.mock.requests[-1].body["tools"]}
        assert "mcp__fake__echo" in names and "double" not in names
        assert agent.told("/tools").endswith(" 20")
    finally:
        agent.__exit__(None, None, None)
