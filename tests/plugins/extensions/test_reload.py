"""Extensions that are loaded again."""

import pytest

from tests.support.mock_model import reply

from .helpers import BASH, answer, command, dialog, result, start, write

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
        assert command(agent, "/version") == "one"
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        write(tmp_path / "ext.py", RELOADING.format(version="two"))
        agent.prompt("/reload")
        # A question of code that is gone counts as refused.
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        agent.wait("agent_settled")
        assert result(agent)["content"][0]["text"] == "no"
        agent.wait(lambda f: f.get("statusText") == "two reload")
        assert command(agent, "/version") == "two"
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
        command(agent, "/version")
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


def test_settings_that_are_broken_now_leave_the_old_rules_in_force(tmp_path):
    settings = {"permissions": {"deny": ["Bash"]}}
    with start(tmp_path, RELOADING.format(version="one"), [BASH, reply("x")], settings=settings) as agent:
        command(agent, "/version")
        (agent.agent_dir / "settings.json").write_text('{"permissions": {')
        agent.prompt("/reload")
        told = agent.wait("extension_error")
        assert "Cannot use " in told["error"] and "settings.json" in told["error"]
        agent.prompt("go")
        answer(agent, dialog(agent, "confirm"), confirmed=True)
        agent.wait("agent_settled")
        assert not (agent.cwd / "made").exists()
