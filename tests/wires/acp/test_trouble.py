"""Editors that hang up, cancel at odd moments, answer twice or never, and sessions that are not as they should be."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.images import PIXEL
from tests.support.mock_model import call, gate, reply
from tests.wires.acp.editor_process import EditorProcess

ASK = ["--permission-mode", "default"]


def prompt(id: Any, session: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    content = list(blocks) or [{"type": "text", "text": "hi"}]
    return {"id": id, "method": "session/prompt", "params": {"sessionId": session, "prompt": content}}


def cancel(session: str) -> dict[str, Any]:
    return {"method": "session/cancel", "params": {"sessionId": session}}


def until(ready: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- cancel -----------------------------------------------------------------------------------------

BLOCKS = """
import asyncio

def extension(agent):
    @agent.command("dialog", help="Asks")
    async def dialog(args, ctx):
        ctx.ui.notify(f"said {await ctx.ui.confirm('Sure?')}")

    @agent.command("stuck", help="Never ends")
    async def stuck(args, ctx):
        await asyncio.Event().wait()
"""


def test_whenever_it_comes_a_cancel_ends_with_cancelled(tmp_path) -> None:
    file = tmp_path / "blocks.py"
    file.write_text(BLOCKS)
    steps = [reply(gate("first"), "x"), reply("y", gate("second")), reply("ok")]
    with EditorProcess(steps, base=tmp_path, args=["-e", str(file)]) as editor:
        session = editor.new()
        editor.at_once(cancel(session))  # there is nothing to cancel
        before_the_first_token = editor.say(session, "a")
        editor.mock.wait_gate("first")
        editor.at_once(cancel(session), cancel(session))
        assert editor.stop_reason(before_the_first_token) == "cancelled"
        twice = editor.say(session, "b")
        editor.mock.wait_gate("second")
        request = {"method": "$/cancel_request", "params": {"requestId": twice}}
        editor.at_once(request, request, cancel(session))
        assert editor.stop_reason(twice) == "cancelled"
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        editor.at_once(prompt("image", session, image), cancel(session))  # while the image is looked at
        assert editor.stop_reason("image") == "cancelled"
        dialog = editor.say(session, "/dialog")
        editor.request("session/request_permission")
        editor.at_once(cancel(session))
        assert editor.stop_reason(dialog) == "cancelled"
        editor.wait(lambda f: "said False" in json.dumps(f))
        stuck = editor.say(session, "/stuck")
        editor.at_once(cancel(session))
        assert editor.stop_reason(stuck) == "cancelled"
        assert editor.stop_reason(editor.say(session, "last")) == "end_turn"
        assert sum(frame.get("id") == twice for frame in editor.frames) == 1
        assert editor.close_stdin() == 0
    with EditorProcess([reply("ok")], base=tmp_path) as editor:
        editor.at_once(prompt("early", session), cancel(session))  # while it is looked up on disk
        assert editor.stop_reason("early") == "cancelled"
        assert editor.stop_reason(editor.say(session, "again")) == "end_turn"


def test_a_cancel_does_not_mean_what_is_sent_behind_it() -> None:
    with EditorProcess([reply(gate("never"), "x"), reply("ok"), reply("ok")]) as editor:
        session = editor.new()
        running = editor.say(session, "a")
        editor.mock.wait_gate("never")
        editor.at_once(cancel(session), prompt("behind", session))
        assert editor.stop_reason(running) == "cancelled" and editor.stop_reason("behind") == "end_turn"
        editor.at_once(prompt("one", session), cancel(session), prompt("two", session))
        assert editor.stop_reason("one") == "cancelled" and editor.stop_reason("two") == "end_turn"
        assert "Not delivered" not in json.dumps(editor.frames)


def test_a_prompt_waits_for_a_compaction() -> None:
    text = "lorem ipsum " * 200
    small = {"compaction": {"keepRecentTokens": 100, "reserveTokens": 500}}
    with EditorProcess([reply(text), reply(text), reply(gate("sum"), "short"), reply("ok")], settings=small) as editor:
        session = editor.new()
        for word in ("a ", "b "):
            assert editor.stop_reason(editor.say(session, word + text)) == "end_turn"
        compact = editor.ask("_spindle/compact", sessionId=session)
        editor.mock.wait_gate("sum")
        waiting = editor.say(session, "now")
        editor.ok("session/list")
        editor.mock.release("sum")
        assert editor.answer(compact)["result"]["summary"]
        assert editor.stop_reason(waiting) == "end_turn"
        assert "now" in json.dumps(editor.mock.requests[-1].body["messages"][-1])


def test_an_automatic_compaction_is_told_once() -> None:
    text = "lorem ipsum " * 400
    small = {"compaction": {"keepRecentTokens": 100, "reserveTokens": 500}}
    steps = [reply(text), reply(text, usage=(99_900, 5, 0)), reply("short"), reply("ok")]
    with EditorProcess(steps, settings=small) as editor:
        session = editor.new()
        for word in ("a ", "b ", "now "):
            assert editor.stop_reason(editor.say(session, word + text)) == "end_turn"
        assert json.dumps(editor.frames).count("Summarising the older part") == 1


# -- load -------------------------------------------------------------------------------------------


def test_a_session_is_loaded_in_mid_run_and_twice_at_once() -> None:
    steps = [reply("one ", gate("go"), "two", call("bash", {"command": "echo out"})), reply("three")]
    with EditorProcess(steps) as editor:
        session = editor.new()
        first = editor.say(session, "question")
        editor.mock.wait_gate("go")
        editor.update(session, "agent_message_chunk")
        start = len(editor.frames)
        where = {"sessionId": session, "cwd": str(editor.cwd), "mcpServers": []}
        loads = [editor.ask("session/load", **where) for _ in range(2)]
        assert all("modes" in editor.answer(load)["result"] for load in loads)
        told = [f["params"]["update"] for f in editor.frames[start:] if f.get("method") == "session/update"]
        texts = [u["content"]["text"] for u in told if u["sessionUpdate"].endswith("message_chunk")]
        assert texts == ["question", "one "] * 2
        editor.mock.release("go")
        assert editor.stop_reason(first) == "end_turn"  # it was not taken from the run
        live = {u["messageId"] for u in editor.updates(session, "agent_message_chunk")}
        start = len(editor.updates(session))
        editor.ok("session/load", **where)
        again = editor.updates(session)[start:]
        assert "".join(u["content"]["text"] for u in again if u["sessionUpdate"] == "agent_message_chunk") == (
            "one twothree"
        )
        assert {u["messageId"] for u in again if u["sessionUpdate"] == "agent_message_chunk"} == live
        assert [u["status"] for u in again if u["sessionUpdate"] == "tool_call_update"] == ["completed"]


def test_a_session_works_where_the_editor_wants_it_and_says_so(tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with EditorProcess([reply("ok")], base=tmp_path) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        editor.ok("session/load", sessionId=session, cwd=str(other), mcpServers=[])
        assert f"works in {editor.cwd}, not in {other}" in editor.text(session, "agent_thought")  # it is alive there
        editor.ok("session/close", sessionId=session)
        editor.ok("session/load", sessionId=session, cwd=str(other), mcpServers=[])
        assert f"works in {other}, not in {editor.cwd}" in editor.text(session, "agent_thought")
        assert editor.ok("_spindle/bash", sessionId=session, command="pwd")["output"].strip() == str(other)
        missing = str(tmp_path / "missing")
        editor.ok("session/close", sessionId=session)
        assert missing in editor.fails("session/load", sessionId=session, cwd=missing, mcpServers=[])[1]


def test_a_session_of_another_process_is_refused_and_a_damaged_one_shows_what_is_left(tmp_path) -> None:
    with EditorProcess([reply("answer")], base=tmp_path) as owner:
        session = owner.new()
        assert owner.stop_reason(owner.say(session, "question")) == "end_turn"
        (file,) = (tmp_path / "agent").rglob(f"*{session}.jsonl")
        with EditorProcess(base=tmp_path) as editor:
            where = {"sessionId": session, "cwd": str(editor.cwd), "mcpServers": []}
            code, text = editor.fails("session/load", **where)
            assert (code, "another" in text) == (-32603, True), text
            assert "another" in editor.fails("session/delete", sessionId=session)[1] and file.exists()
            owner.ok("session/close", sessionId=session)
            stored = file.read_bytes().splitlines()
            file.write_bytes(b"\n".join([*stored[:-1], b'{"type": rubbish', stored[-1], b'{"half', b""]))
            editor.ok("session/load", **where)
            assert editor.text(session, "user_message") == "question"
            assert editor.text(session) == "answer"
            assert "another" in owner.answer(owner.say(session, "mine?"))["error"]["message"]


def test_a_path_is_no_id(tmp_path) -> None:
    precious = tmp_path / "work/precious.jsonl"
    precious.parent.mkdir()
    precious.write_text("precious")
    with EditorProcess(base=tmp_path) as editor:
        for id in (str(precious), "./precious.jsonl", "precious.jsonl"):
            editor.ok("session/delete", sessionId=id)
            assert editor.fails("session/load", sessionId=id, cwd=str(editor.cwd), mcpServers=[])[0] == -32002
            assert editor.fails("session/prompt", sessionId=id, prompt=[])[0] == -32002
        assert precious.read_text() == "precious"


# -- sessions that leave memory ---------------------------------------------------------------------

QUICK = """
import spindle.base.limits
import spindle.protocol.pool as live
spindle.base.limits.EDITOR_FILE = 0.2
begin = live.SessionPool.__init__
live.SessionPool.__init__ = lambda pool, source, _: begin(pool, source, live.PoolBounds(keep_seconds=0.3))
"""


def test_what_an_editor_chose_holds_when_a_session_comes_back_to_memory(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(QUICK)
    bash = {"command": "touch made"}
    steps = [reply("ok"), reply(call("bash", bash)), reply("a"), reply(call("bash", bash)), reply("b")]
    outside = tmp_path / "outside"
    outside.mkdir()
    with EditorProcess(steps, base=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as editor:
        given = {"additionalDirectories": [str(outside)], "_meta": {"systemPrompt": "You are a poet."}}
        session = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[], **given)["sessionId"]
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        assert f"Also part of the workspace: {outside}" in json.dumps(editor.mock.requests[0].body)
        editor.ok("session/set_mode", sessionId=session, modeId="default")
        first = editor.say(session, "go")
        editor.choose("reject_always")
        assert editor.stop_reason(first) == "end_turn"
        lock = next((tmp_path / "agent").rglob(f"*{session}.jsonl"))
        until(lambda: not _is_locked(lock))  # it is, as long as the session is in memory
        assert editor.stop_reason(editor.say(session, "again")) == "end_turn"  # without a question
        assert editor.mock.requests[-1].body["messages"][0]["content"].startswith("You are a poet.")
        state = editor.ok(
            "_spindle/get_permissions", sessionId=session, tool="read", arguments={"path": f"{outside}/x"}
        )
        assert (state["mode"], state["decision"]["behavior"]) == ("default", "allow")
        assert not (editor.cwd / "made").exists()


def _is_locked(path: Path) -> bool:
    from spindle.sessions.entries import SessionError
    from spindle.sessions.lock import try_lock

    try:
        lock = try_lock(path)
    except SessionError:
        return True
    if lock is not None:
        lock.release()
    return False


# -- answers that come twice, late or never ---------------------------------------------------------

TWO = '''
def extension(agent):
    @agent.tool
    async def danger(name: str, *, ctx):
        """Ask first."""
        return str(await ctx.ui.confirm(f"Do {name}?"))
'''


def test_each_of_two_tools_asks_at_its_own_call_and_a_second_answer_is_ignored(tmp_path) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    calls = [call("danger", {"name": "a"}, id="c1"), call("danger", {"name": "b"}, id="c2")]
    with EditorProcess([reply(*calls), reply("ok")], base=tmp_path, args=["-e", str(file)]) as editor:
        session = editor.new()
        run = editor.say(session, "go")
        asked = {}
        for _ in range(2):
            request = editor.request("session/request_permission")
            asked[request["params"]["toolCall"]["toolCallId"]] = request
        assert {id: r["params"]["toolCall"]["title"] for id, r in asked.items()} == {"c1": "Do a?", "c2": "Do b?"}
        yes = {"outcome": {"outcome": "selected", "optionId": "Yes"}}
        no = {"outcome": {"outcome": "selected", "optionId": "No"}}
        editor.at_once({"id": asked["c2"]["id"], "result": yes}, {"id": asked["c2"]["id"], "result": no})
        editor.at_once({"id": asked["c1"]["id"], "result": "rubbish"}, {"id": 999, "result": yes})
        assert editor.stop_reason(run) == "end_turn"
        results = {
            m["tool_call_id"]: m["content"] for m in editor.mock.requests[1].body["messages"] if m["role"] == "tool"
        }
        assert results == {"c1": "False", "c2": "True"}


def test_an_editor_that_hangs_up_in_mid_question_or_mid_run_leaves_nothing_running(tmp_path) -> None:
    steps = [reply(call("bash", {"command": "touch made"}), match="ask"), reply("x", gate("never"))]
    with EditorProcess(steps, base=tmp_path, args=ASK) as editor:
        one, two = editor.new(), editor.new()
        editor.say(one, "ask")
        editor.request("session/request_permission")
        editor.say(two, "stream")
        editor.mock.wait_gate("never")
        bash = editor.ask("_spindle/bash", sessionId=two, command="echo $$ > pid; exec sleep 1000")
        until(lambda: (editor.cwd / "pid").exists() and (editor.cwd / "pid").read_text().strip())
        pid = (editor.cwd / "pid").read_text().strip()
        editor.ok("session/close", sessionId=two)
        assert editor.answer(bash)  # whatever became of it
        assert not os.path.exists(f"/proc/{pid}")
        assert editor.close_stdin() == 0
        assert not (editor.cwd / "made").exists()
        assert b"Traceback" not in editor.stderr


def test_what_cannot_be_used_of_a_request_does_not_cost_the_session(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with EditorProcess([reply(call("write", {"path": str(tmp_path / "pipe"), "content": "x"})), reply("ok")],
                       base=tmp_path, args=ASK) as editor:  # fmt: skip
        old = {"type": "pigeon", "name": "old one", "url": "http://127.0.0.1:9/", "headers": []}
        session = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[old])["sessionId"]
        editor.wait(lambda f: "MCP servers of the editor are not used" in json.dumps(f))
        wrong = {"type": "image", "data": "bm90IGFuIGltYWdl", "mimeType": "image/png"}
        assert "image" in editor.fails("session/prompt", sessionId=session, prompt=[wrong])[1].lower()
        assert editor.fails("session/prompt", sessionId=session) == (-32602, "prompt is required")
        relative = {"cwd": str(editor.cwd), "mcpServers": [], "additionalDirectories": ["x"]}
        assert editor.fails("session/new", **relative)[0] == -32602
        run = editor.say(session, "go")  # a look at a pipe would take for ever
        editor.choose("reject_once")
        assert editor.stop_reason(run) == "end_turn"


def test_many_sessions_at_once_and_a_flood(tmp_path) -> None:
    with EditorProcess([reply("ok")], base=tmp_path) as editor:
        count = 20
        params = {"cwd": str(editor.cwd), "mcpServers": []}
        editor.at_once(*({"id": f"n{n}", "method": "session/new", "params": params} for n in range(count)))
        sessions = [editor.answer(f"n{n}")["result"]["sessionId"] for n in range(count)]
        assert len(set(sessions)) == count
        editor.at_once(*(prompt(f"p{n}", id) for n, id in enumerate(sessions)))
        assert {editor.stop_reason(f"p{n}") for n in range(count)} == {"end_turn"}
        assert {editor.text(id) for id in sessions} == {"ok"}
        flood = ({"id": f"f{n}", "method": "session/set_mode", "params": {"sessionId": sessions[0], "modeId": "plan"}}
                 for n in range(1000))  # fmt: skip
        editor.at_once(*flood)
        assert editor.answer("f999")["result"] == {}


# -- sessions that move, end or never begin ---------------------------------------------------------


def test_a_session_that_goes_on_in_another_file_keeps_its_id_and_the_new_one_opens_it_too() -> None:
    with EditorProcess([reply("ok")]) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "old")) == "end_turn"
        editor.ok("_spindle/new_session", sessionId=session)
        assert editor.stop_reason(editor.say(session, "new")) == "end_turn"
        listed = {entry["title"]: entry["sessionId"] for entry in editor.ok("session/list")["sessions"]}
        assert listed["old"] == session
        moved = listed["new"]
        editor.ok("session/load", sessionId=moved, cwd=str(editor.cwd), mcpServers=[])
        assert (editor.text(moved, "user_message"), editor.text(moved)) == ("new", "ok")
        assert editor.stop_reason(editor.say(moved, "more")) == "end_turn"
        assert editor.text(moved) == "okok"
        editor.ok("session/close", sessionId=moved)
        assert editor.stop_reason(editor.say(moved, "back")) == "end_turn"
        assert editor.text(moved) == "okokok"


def test_a_live_session_is_deleted_in_mid_run(tmp_path) -> None:
    with EditorProcess([reply("x", gate("never"))], base=tmp_path) as editor:
        session = editor.new()
        run = editor.say(session, "hi")
        editor.mock.wait_gate("never")
        assert list((tmp_path / "agent").rglob(f"*{session}.jsonl"))
        editor.ok("session/delete", sessionId=session)
        assert editor.stop_reason(run) == "cancelled"
        assert not list((tmp_path / "agent").rglob(f"*{session}*"))
        assert editor.answer(editor.say(session, "hi"))["error"]["code"] == -32002


STUCK = """
import asyncio

def extension(agent):
    @agent.on("session_start")
    async def begin(event, ctx):
        await asyncio.Event().wait()
"""


def test_the_limits_of_the_process_hold_for_an_editor(tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    args = ["--root", str(tmp_path / "work"), "--limit", "sessions=2", "--limit", "modelCalls=1"]
    steps = [reply("slow ", gate("go"), "answer", match="slow"), reply("quick")]
    with EditorProcess(steps, base=tmp_path, args=args, env={}) as editor:
        assert "may not work in" in editor.fails("session/new", cwd=str(tmp_path / "elsewhere"), mcpServers=[])[1]
        one, two = editor.new(), editor.new()
        first = editor.say(one, "slow")
        editor.mock.wait_gate("go")
        second = editor.say(two, "hi")
        assert "2 sessions are open" in editor.fails("session/new", cwd=str(editor.cwd), mcpServers=[])[1]
        assert len(editor.mock.requests) == 1  # the other one waits for its turn
        editor.mock.release("go")
        assert editor.stop_reason(first) == editor.stop_reason(second) == "end_turn"


def test_an_extension_that_never_begins_holds_up_its_own_session_alone(tmp_path) -> None:
    file = tmp_path / "work/.pi/extensions/stuck.py"
    file.parent.mkdir(parents=True)
    file.write_text(STUCK)
    other = tmp_path / "other"
    other.mkdir()
    with EditorProcess([reply("ok")], base=tmp_path, args=["--approve"]) as editor:
        stuck, free = editor.new(), editor.new(other)
        waiting = editor.say(stuck, "hi")
        assert editor.stop_reason(editor.say(free, "hi")) == "end_turn"
        editor.at_once(cancel(stuck))
        assert editor.stop_reason(waiting) == "cancelled"
        editor.ok("session/close", sessionId=stuck)
        assert len(editor.mock.requests) == 1
        assert editor.close_stdin() == 0
