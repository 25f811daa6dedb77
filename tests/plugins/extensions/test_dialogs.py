"""Dialogs and notices on the wire."""

from typing import Any

import pytest

from tests.support.mock_model import reply

from .helpers import answer, dialog, start

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
        dialog(agent, "notify")
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
        agent.wait(lambda f: f.get("message") == "e")
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
        agent.wait(lambda f: f.get("message") == "done")
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
        agent.wait(lambda f: f.get("message") == "e")
        assert [item["method"] for item in wire(agent.frames)].count("setTitle") == titles


def test_many_dialogs_at_once_answered_backwards(tmp_path):
    with start(tmp_path, ALL_UI) as agent:
        agent.prompt("/both")
        asked = [dialog(agent, "input") for _ in range(20)]
        for request in reversed(asked):
            answer(agent, request, value=request["title"])
        assert dialog(agent, "notify")["message"] == ",".join(f"Q{n}" for n in range(20))


def test_a_dialog_waits_while_everything_else_goes_on(tmp_path):
    with start(tmp_path, ALL_UI, [reply("x")]) as agent:
        agent.prompt("/ask")
        asked = dialog(agent, "select")
        agent.run("meanwhile")
        agent.data("get_state")
        assert agent.call("abort")["success"]
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        for method in ("confirm", "input", "editor"):
            answer(agent, dialog(agent, method), cancelled=True)
        assert dialog(agent, "notify")["message"] == '{"confirm": false}'
