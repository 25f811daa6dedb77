"""Options of the command line together with what extensions and clients bring."""

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

from .helpers import command, result, start, write

TOOLS = """
def extension(agent):
    @agent.tool
    def mine():
        "Mine."
        return "ran"

    @agent.command("activate")
    def activate(args, ctx):
        agent.active_tools = args.split(",")
        ctx.ui.notify(",".join(agent.active_tools))

    @agent.command("late")
    def late(args, ctx):
        @agent.tool(name=args)
        def made():
            "Made later."
        ctx.ui.notify(",".join(agent.active_tools))
"""
HOST_TOOL = {"name": "host", "description": "Of the client", "parameters": {"type": "object", "properties": {}}}
TODOS = [{"name": "Plan", "tasks": [{"content": "one"}]}]


def offered(agent: AgentProcess) -> list[str]:
    return [tool["name"] for tool in agent.data("get_state")["dumpTools"]]


def test_an_excluded_tool_is_not_switched_on_by_an_extension(tmp_path):
    steps = [reply(call("bash", {"command": "touch made"}), finish="toolUse"), reply("ok")]
    with start(tmp_path, TOOLS, steps, args=["--exclude-tools", "bash,mine,later"]) as agent:
        assert offered(agent) == ["read", "edit", "write"]
        assert command(agent, "/activate read,bash,mine") == "read"
        assert command(agent, "/late later") == "read"
        assert command(agent, "/late other") == "read,other"
        assert offered(agent) == ["read", "other"]
        agent.run("go")
        assert result(agent)["isError"] and not (agent.cwd / "made").exists()


def test_an_excluded_todo_write_is_not_switched_on_by_a_list(tmp_path):
    with start(tmp_path, TOOLS, args=["--exclude-tools", "todo_write"]) as agent:
        before = offered(agent)
        assert agent.data("set_todos", phases=TODOS)["todoPhases"]
        assert offered(agent) == before and "todo_write" not in before
        assert command(agent, "/activate read,todo_write") == "read"
    with start(tmp_path, TOOLS) as agent:
        agent.data("set_todos", phases=TODOS)
        assert "todo_write" in offered(agent)


def test_an_excluded_tool_of_the_client_is_not_offered(tmp_path):
    with start(tmp_path, TOOLS, args=["--exclude-tools", "host,mine"]) as agent:
        assert agent.data("set_host_tools", tools=[HOST_TOOL, {**HOST_TOOL, "name": "other"}])
        assert offered(agent) == ["read", "bash", "edit", "write", "other"]
        refused = agent.call("set_host_tools", tools=[{**HOST_TOOL, "name": "mine"}])
        assert refused["error"] == 'RPC host tool "mine" conflicts with an existing tool'


def test_no_tools_means_none_until_one_is_asked_for(tmp_path):
    with start(tmp_path, TOOLS, args=["--no-tools"]) as agent:
        assert offered(agent) == []
        assert command(agent, "/late later") == ""
        # What the client lends, and what an extension switches on, was chosen.
        agent.data("set_host_tools", tools=[HOST_TOOL])
        assert offered(agent) == ["host"]
        assert command(agent, "/activate mine,read") == "mine,read"


def test_it_holds_in_every_session(tmp_path):
    with start(tmp_path, TOOLS, args=["--exclude-tools", "bash,mine"]) as agent:
        agent.data("new_session")
        assert offered(agent) == ["read", "edit", "write"]
        assert command(agent, "/activate mine,bash,write") == "write"


@pytest.mark.parametrize(
    ("args", "commands"),
    [
        ([], ["found"]),
        (["-ne"], []),
        (["-e", "{named}"], ["named", "found"]),
        (["-ne", "-e", "{named}"], ["named"]),
        (["-e", "{named}", "-ne"], ["named"]),
        (["-ne", "-e", "{named}", "-e", "{found}"], ["named", "found"]),
    ],
)
def test_no_extensions_leaves_those_that_are_named(tmp_path, args, commands):
    source = "def extension(agent):\n    agent.command({!r})(print)\n"
    paths = {
        "named": write(tmp_path / "named.py", source.format("named")),
        "found": write(tmp_path / "agent" / "extensions" / "found.py", source.format("found")),
    }
    with AgentProcess([], base=tmp_path, args=[arg.format(**paths) for arg in args]) as agent:
        assert [item["name"] for item in agent.data("get_commands")["commands"]] == commands
        agent.data("new_session")
        assert [item["name"] for item in agent.data("get_commands")["commands"]] == commands
