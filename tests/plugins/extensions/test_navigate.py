"""Jumps in the session tree, as commands of extensions make them."""

import json
from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, reply, stall

from .helpers import write

JUMP = """
import json
import msgspec

def extension(agent):
    @agent.command("jump")
    async def jump(args, ctx):
        options = json.loads(args)
        try:
            made = await ctx.navigate_tree(options.pop("to"), **options)
        except Exception as error:
            ctx.ui.notify(f"error {error}")
        else:
            ctx.ui.notify(json.dumps(msgspec.to_builtins(made)))

    @agent.command("state")
    def state(args, ctx):
        ctx.ui.notify(json.dumps([ctx.session.leaf_id, [ctx.session.label(e["id"]) for e in ctx.session.entries()]]))
"""


def start(tmp_path: Path, steps, extra: str = "") -> AgentProcess:
    file = write(tmp_path / "ext.py", JUMP + extra)
    return AgentProcess(steps, args=["-e", str(file)], session=True)


def notice(agent: AgentProcess) -> Any:
    text = agent.wait(lambda f: f.get("method") == "notify")["message"]
    return text if text.startswith("error ") else json.loads(text)


def jump(agent: AgentProcess, to: str, **options: Any) -> Any:
    assert agent.prompt(f"/jump {json.dumps({'to': to, **options})}")["success"]
    return notice(agent)


def entries(agent: AgentProcess) -> list[dict[str, Any]]:
    return agent.data("get_entries")["entries"]


def message_ids(agent: AgentProcess, role: str) -> list[str]:
    return [e["id"] for e in entries(agent) if e["type"] == "message" and e["message"]["role"] == role]


def texts(agent: AgentProcess) -> list[str]:
    """Return what the model would see now."""
    found = []
    for message in agent.data("get_messages")["messages"]:
        content = message.get("summary") or message["content"]
        found.append(content if isinstance(content, str) else content[0].get("text", ""))
    return found


def test_a_jump_to_a_user_message_gives_its_text_back(tmp_path):
    with start(tmp_path, [reply("one"), reply("two")]) as agent:
        agent.run("first")
        agent.run("second")
        target = message_ids(agent, "user")[1]
        assert jump(agent, target) == {"cancelled": False, "editorText": "second"}
        assert texts(agent) == ["first", "one"]
        agent.run("other")
        assert texts(agent) == ["first", "one", "other", "two"]
        # The other branch is still in the file.
        assert len(message_ids(agent, "user")) == 3


def test_a_jump_to_an_answer_goes_on_after_it(tmp_path):
    with start(tmp_path, [reply("one"), reply("two")]) as agent:
        agent.run("first")
        agent.run("second")
        assert jump(agent, message_ids(agent, "assistant")[0], label="fork here") == {"cancelled": False}
        assert texts(agent) == ["first", "one"]
        agent.prompt("/state")
        assert "fork here" in notice(agent)[1]


def test_a_jump_to_where_we_are_or_nowhere(tmp_path):
    with start(tmp_path, [reply("one")]) as agent:
        agent.run("first")
        before = len(entries(agent))
        leaf = agent.data("get_entries")["leafId"]
        assert jump(agent, leaf) == {"cancelled": False}
        assert jump(agent, "nowhere!") == "error Entry nowhere! not found"
        assert len(entries(agent)) == before


def test_notes_on_the_branch_that_is_left(tmp_path):
    steps = [
        reply("one"),
        reply(call("read", {"path": "notes.txt"}), finish="toolUse"),
        reply("two"),
        reply("## Goal\nLearned much"),
        reply("three"),
    ]
    with start(tmp_path, steps) as agent:
        (agent.cwd / "notes.txt").write_text("secret contents")
        agent.run("first")
        agent.run("second")
        old_leaf = agent.data("get_entries")["leafId"]
        target = message_ids(agent, "assistant")[0]
        made = jump(agent, target, summarize=True, custom_instructions="the colours", label="left")
        entry = made["summaryEntry"]
        assert (entry["type"], entry["parentId"], entry["fromId"]) == ("branch_summary", target, old_leaf)
        preamble, _, rest = entry["summary"].partition("\n\n")
        assert len(preamble.splitlines()) == 2
        assert rest == "## Goal\nLearned much\n\n<read-files>\nnotes.txt\n</read-files>"
        assert entry["details"] == {"readFiles": ["notes.txt"], "modifiedFiles": []}
        asked = agent.mock.requests[3].body
        text = json.dumps(asked["messages"])
        assert "second" in text and "two" in text and "the colours" in text
        assert "first" not in text and "secret contents" not in text
        assert asked.get("max_tokens", asked.get("max_completion_tokens")) == 2048
        agent.run("third")
        assert texts(agent)[2].startswith(preamble)
        assert "Learned much" in json.dumps(agent.mock.requests[4].body["messages"])


def test_instructions_may_replace_ours(tmp_path):
    with start(tmp_path, [reply("one"), reply("two"), reply("notes")]) as agent:
        agent.run("first")
        agent.run("second")
        target = message_ids(agent, "assistant")[0]
        jump(agent, target, summarize=True, custom_instructions="Only a haiku", replace_instructions=True)
        asked = json.dumps(agent.mock.requests[2].body["messages"])
        assert "Only a haiku" in asked and "Key Decisions" not in asked


def test_a_summary_that_fails_leaves_everything_as_it_was(tmp_path):
    with start(tmp_path, [reply("one"), reply("two"), failure(400, "no")]) as agent:
        agent.run("first")
        agent.run("second")
        before = agent.data("get_entries")
        error = jump(agent, message_ids(agent, "assistant")[0], summarize=True)
        assert error.startswith("error Branch summarization failed")
        assert agent.data("get_entries") == before
        assert texts(agent) == ["first", "one", "second", "two"]
        assert agent.data("get_state")["isCompacting"] is False


def test_an_abort_during_the_summary(tmp_path):
    with start(tmp_path, [reply("one"), reply("two"), reply("a", stall())]) as agent:
        agent.run("first")
        agent.run("second")
        before = agent.data("get_entries")
        target = message_ids(agent, "assistant")[0]
        agent.send("prompt", message=f"/jump {json.dumps({'to': target, 'summarize': True})}")
        agent.mock.wait_requests(3)
        assert agent.data("get_state")["isCompacting"] is True
        assert agent.call("abort")["success"]
        assert notice(agent) == {"cancelled": True, "aborted": True}
        assert agent.data("get_entries") == before


def test_extensions_may_forbid_it_or_write_the_notes(tmp_path):
    extra = """
    @agent.on("session_before_tree")
    def before(event, ctx):
        plan = event.preparation
        if plan.custom_instructions == "forbid":
            return agent.cancel()
        if plan.user_wants_summary:
            left = [entry for entry in plan.entries_to_summarize if entry["type"] == "message"]
            return {"summary": {"summary": f"{len(left)} left", "details": {"by": "me"}}}
        return {"label": "marked"}

    @agent.on("session_tree")
    def after(event, ctx):
        ctx.ui.set_status("tree", f"{event.new_leaf_id == ctx.session.leaf_id} {event.from_extension}")
"""
    with start(tmp_path, [reply("one"), reply("two")], extra) as agent:
        agent.run("first")
        agent.run("second")
        target = message_ids(agent, "assistant")[0]
        assert jump(agent, target, custom_instructions="forbid") == {"cancelled": True}
        made = jump(agent, target, summarize=True)
        assert made["summaryEntry"]["summary"] == "2 left"
        assert made["summaryEntry"]["fromHook"] is True
        assert agent.wait(lambda f: f.get("method") == "setStatus")["statusText"] == "True True"
        assert len(agent.mock.requests) == 2
        jump(agent, message_ids(agent, "user")[0])
        agent.prompt("/state")
        assert "marked" in notice(agent)[1]
