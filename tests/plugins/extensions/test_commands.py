"""Slash commands of extensions."""

from tests.support.mock_model import gate, reply

from .helpers import command, start

COMMANDS = """
def extension(agent):
    agent.command("fire")(lambda args, ctx: ctx.ui.notify("fired"))

    @agent.command("boom")
    async def boom(args, ctx):
        raise ValueError("kaboom")
"""


def test_a_command_runs_at_once_while_the_model_writes(tmp_path):
    with start(tmp_path, COMMANDS, [reply("a", gate("go"), "b")]) as agent:
        agent.prompt("go")
        agent.wait_delta("a")
        assert command(agent, "/fire") == "fired"
        refused = agent.call("steer", message="/fire now")
        assert refused["error"] == (
            'Extension command "/fire" cannot be queued. Use prompt() or execute the command when not streaming.'
        )
        assert not agent.call("follow_up", message="/fire")["success"]
        agent.mock.release("go")
        agent.wait("agent_settled")
        assert len(agent.mock.requests) == 1


def test_a_failing_command_is_a_success_with_an_error_after_it(tmp_path):
    with start(tmp_path, COMMANDS) as agent:
        assert agent.data("prompt", message="/boom x") == {"disposition": "handled"}
        error = agent.wait("extension_error")
        assert 'raise ValueError("kaboom")' in error.pop("traceback")
        assert error == {
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


def test_a_client_asks_what_arguments_may_become(tmp_path):
    source = """
def extension(agent):
    @agent.command("go")
    def go(args, ctx): ...

    @go.complete
    def complete(prefix):
        return [word for word in ("left", "right") if word.startswith(prefix)]

    agent.command("plain")(print)
    agent.command("broken", complete=lambda prefix: 1 / 0)(print)
"""
    with start(tmp_path, source) as agent:
        assert agent.data("complete_command", name="go", prefix="le") == {"completions": ["left"]}
        assert agent.data("complete_command", name="go") == {"completions": ["left", "right"]}
        assert agent.data("complete_command", name="plain", prefix="x") == {"completions": []}
        assert agent.data("complete_command", name="nothing") == {"completions": []}
        assert agent.data("complete_command", name="broken") == {"completions": []}
        assert agent.wait("extension_error")["extensionPath"] == "command:broken"
        assert not agent.call("complete_command")["success"]


def test_a_client_stops_commands_that_take_long(tmp_path):
    source = (
        "import asyncio\n"
        "def extension(agent):\n"
        "    @agent.command('wait')\n"
        "    async def wait(args, ctx):\n"
        "        try:\n"
        "            await ctx.ui.confirm('Go on?')\n"
        "        except asyncio.CancelledError:\n"
        "            ctx.ui.notify('stopped')\n"
        "            raise\n"
    )
    with start(tmp_path, source) as agent:
        assert agent.data("abort_commands") == {"commands": []}
        agent.call("prompt", message="/wait")
        question = agent.wait("extension_ui_request")
        assert question["method"] == "confirm"
        assert agent.data("abort_commands") == {"commands": ["wait"]}
        told = [agent.wait("extension_ui_request") for _ in range(2)]  # the question is withdrawn, too
        assert {(item["method"], item.get("message") or item.get("targetId")) for item in told} == {
            ("cancel", question["id"]),
            ("notify", "stopped"),
        }
        while agent.data("abort_commands") != {"commands": []}:  # its end comes a moment after its last words
            pass
