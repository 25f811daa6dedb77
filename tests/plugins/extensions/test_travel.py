"""Commands that go to other sessions."""

from tests.support.mock_model import reply

from .helpers import command, dialog, start

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
        await ctx.fork(ctx.session.leaf_id, position="at", with_session=lambda fresh: fresh.ui.notify("copied"))

    @agent.command("switch")
    async def switch(args, ctx):
        await ctx.switch_session(args, with_session=lambda fresh: fresh.ui.notify("switched"))

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
        assert command(agent, "/new") == "fresh True"
        agent.wait("agent_settled")
        entries = agent.data("get_entries")["entries"]
        assert any(entry.get("customType") == "seed" for entry in entries)
        assert agent.data("get_messages")["messages"][0]["content"][0]["text"] == "from the other side"
        assert command(agent, f"/switch {old['sessionFile']}") == "switched"
        assert agent.data("get_state")["sessionId"] == old["sessionId"]
        assert command(agent, "/copy") == "copied"
        state = agent.data("get_state")
        assert state["sessionId"] != old["sessionId"] and state["messageCount"] == 2
        agent.prompt("/fork")
        assert dialog(agent, "set_editor_text")["text"] == "x"
        assert agent.data("get_state")["messageCount"] == 0
        assert [f for f in agent.frames if f["type"] == "extension_error"] == []
    assert b"StaleExtensionError" in agent.stderr
