"""Editors: prompts, steering, permissions, stored sessions, options, over a real process on pipes."""

import json

import pytest

from tests.support.images import PIXEL
from tests.support.mock_model import call, failure, gate, reply, think
from tests.wires.acp.editor_process import EditorProcess

# -- prompts ----------------------------------------------------------------------------------------


def test_a_prompt_shows_text_thinking_calls_and_diffs_and_ends() -> None:
    calls = [
        call("bash", {"command": "echo one; exit 3"}, id="c1"),
        call("write", {"path": "new.txt", "content": "hello\n"}, id="c2"),
        call("edit", {"path": "old.txt", "edits": [{"oldText": "b", "newText": "B"}]}, id="c3"),
    ]
    with EditorProcess([reply(think("hm"), "Let me", " see.", *calls), reply("Done.")]) as editor:
        (editor.cwd / "old.txt").write_text("a\nb\n")
        session = editor.new()
        commands = editor.update(session, "available_commands_update")
        assert commands["availableCommands"] == []
        assert editor.stop_reason(editor.say(session, "do it")) == "end_turn"
        assert editor.text(session, "agent_thought") == "hm"
        assert editor.text(session) == "Let me see.Done."
        assert editor.text(session, "user_message") == ""  # the editor shows it already
        begun = {u["toolCallId"]: u for u in editor.updates(session, "tool_call") if u["sessionUpdate"] == "tool_call"}
        assert [(u["status"], u["kind"]) for u in begun.values()] == [
            ("pending", "execute"), ("pending", "edit"), ("pending", "edit")
        ]  # fmt: skip
        ends = {u["toolCallId"]: u for u in editor.updates(session, "tool_call_update") if "rawOutput" in u}
        assert [ends[id]["status"] for id in ("c1", "c2", "c3")] == ["failed", "completed", "completed"]
        assert "one" in ends["c1"]["content"][0]["content"]["text"]
        new, old = str(editor.cwd / "new.txt"), str(editor.cwd / "old.txt")
        assert ends["c2"]["content"] == [{"type": "diff", "path": new, "oldText": None, "newText": "hello\n"}]
        assert ends["c3"]["content"] == [{"type": "diff", "path": old, "oldText": "a\nb\n", "newText": "a\nB\n"}]
        running = [u for u in editor.updates(session, "tool_call_update") if u["status"] == "in_progress"]
        assert {"path": old} in [place for u in running for place in u.get("locations", ())]
        usage = editor.updates(session, "usage_update")[-1]
        assert usage["used"] > 0 and usage["size"] == 100_000
        assert editor.close_stdin() == 0


def test_a_prompt_in_mid_run_steers_and_is_shown_when_it_is_delivered() -> None:
    steps = [reply("one", gate("go"), call("bash", {"command": "true"})), reply("two")]
    with EditorProcess(steps) as editor:
        session = editor.new()
        first = editor.say(session, "begin")
        editor.mock.wait_gate("go")
        second = editor.say(session, "faster")
        third = editor.say(session, "and then stop", _meta={"spindle": {"behavior": "follow_up"}})
        state = editor.ok("_spindle/get_state", sessionId=session)
        assert state["queue"] == {"steering": ["faster"], "followUp": ["and then stop"]}
        editor.mock.release("go")
        assert [editor.stop_reason(id) for id in (first, second, third)] == ["end_turn"] * 3
        assert editor.text(session, "user_message") == "fasterand then stop"
        assert len(editor.mock.requests) == 3


def test_a_cancelled_run_ends_with_cancelled_and_says_what_was_not_delivered() -> None:
    with EditorProcess([reply("one", gate("never")), reply("two"), reply("three", gate("x")), reply("four")]) as editor:
        session = editor.new()
        first = editor.say(session, "begin")
        editor.mock.wait_gate("never")
        second = editor.say(session, "more")
        editor.ok("_spindle/get_state", sessionId=session)
        editor.frame(method="session/cancel", params={"sessionId": session})
        assert [editor.stop_reason(id) for id in (first, second)] == ["cancelled", "cancelled"]
        assert "Not delivered: more" in editor.text(session, "agent_thought")
        assert editor.stop_reason(editor.say(session, "again")) == "end_turn"
        third = editor.say(session, "once more")
        editor.mock.wait_gate("x")
        editor.frame(method="$/cancel_request", params={"requestId": third})
        assert editor.stop_reason(third) == "cancelled"
        assert editor.stop_reason(editor.say(session, "last")) == "end_turn"


def test_what_is_in_a_prompt_reaches_the_model() -> None:
    with EditorProcess([reply("ok")]) as editor:
        session = editor.new()
        blocks = [
            {"type": "text", "text": "Look at "},
            {"type": "resource_link", "name": "a", "uri": "file:///tmp/a%20b.py"},
            {"type": "resource_link", "name": "none", "uri": " file://[x"},
            {"type": "resource", "resource": {"uri": "file:///tmp/c.py", "text": "c = 1"}},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        ]
        assert editor.ok("session/prompt", sessionId=session, prompt=blocks) == {"stopReason": "end_turn"}
        content = editor.mock.requests[0].body["messages"][-1]["content"]
        assert content[0]["text"] == "Look at @/tmp/a b.py file://[x\n@/tmp/c.py\n```\nc = 1\n```\n"
        assert PIXEL in content[1]["image_url"]["url"]
        audio = [{"type": "audio", "data": "", "mimeType": "audio/wav"}]
        code, text = editor.fails("session/prompt", sessionId=session, prompt=audio)
        assert (code, "audio" in text) == (-32602, True)


def test_ends_of_a_run_have_the_words_of_the_protocol() -> None:
    steps = [reply("cut", finish="length"), failure(400, "bad request"), reply(call("bash", {"command": "true"}))]
    with EditorProcess(steps, args=["--max-turns", "2"]) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "a")) == "max_tokens"
        error = editor.answer(editor.say(session, "b"))["error"]
        assert error["code"] == -32603 and "bad request" in error["message"]
        assert editor.stop_reason(editor.say(session, "c")) == "max_turn_requests"


def test_without_a_model_the_editor_is_told_to_sign_in() -> None:
    with EditorProcess(model=None, initialize=False) as editor:
        (editor.agent_dir / "models.json").unlink()
        answer = editor.ok("initialize", protocolVersion=1, clientCapabilities={"auth": {"terminal": True}})
        assert [method["id"] for method in answer["authMethods"]][:2] == ["login", "env:ANTHROPIC_API_KEY"]
        session = editor.new()
        code, text = editor.fails("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hi"}])
        assert (code, "model" in text.lower()) == (-32000, True)
        assert editor.fails("authenticate", methodId="env:ANTHROPIC_API_KEY")[0] == -32000


# -- permissions and questions ----------------------------------------------------------------------


def test_permissions_are_asked_at_their_call_and_always_holds() -> None:
    command = {"command": "touch made"}
    steps = [reply(call("bash", command)), reply("a"), reply(call("bash", command)), reply("b")]
    with EditorProcess([*steps, reply(call("bash", command))]) as editor:
        session = editor.new()
        assert editor.ok("session/set_mode", sessionId=session, modeId="default") == {}
        assert editor.update(session, "current_mode_update")["currentModeId"] == "default"
        first = editor.say(session, "go")
        request = editor.choose("allow_always")
        assert request["params"]["toolCall"]["toolCallId"] == "call_1"
        assert request["params"]["toolCall"]["rawInput"] == command
        kinds = [option["kind"] for option in request["params"]["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"], "an editor has a key for each"
        assert editor.stop_reason(first) == "end_turn"
        assert (editor.cwd / "made").exists()
        assert editor.stop_reason(editor.say(session, "again")) == "end_turn"  # without a question
        other = editor.new()
        editor.ok("session/set_mode", sessionId=other, modeId="default")
        editor.say(other, "go")
        editor.choose("reject_once")


@pytest.mark.parametrize("kind", ["reject_once", "reject_always"])
def test_a_refused_call_does_not_run(kind: str) -> None:
    command = {"command": "touch made"}
    steps = [reply(call("bash", command)), reply("a"), reply(call("bash", command)), reply("b")]
    with EditorProcess(steps, args=["--permission-mode", "default"]) as editor:
        session = editor.new()
        first = editor.say(session, "go")
        editor.choose(kind)
        assert editor.stop_reason(first) == "end_turn"
        second = editor.say(session, "again")
        if kind == "reject_once":
            editor.choose(kind)
        assert editor.stop_reason(second) == "end_turn"
        assert not (editor.cwd / "made").exists()


def test_a_cancel_refuses_the_question_that_is_open() -> None:
    with EditorProcess(
        [reply(call("write", {"path": "x", "content": "y"}))], args=["--permission-mode", "default"]
    ) as editor:
        session = editor.new()
        first = editor.say(session, "go")
        request = editor.request("session/request_permission")
        assert request["params"]["toolCall"]["content"][0]["newText"] == "y"
        editor.frame(method="session/cancel", params={"sessionId": session})
        assert editor.wait(lambda f: f.get("method") == "$/cancel_request")["params"]["requestId"] == request["id"]
        assert editor.stop_reason(first) == "cancelled"
        assert not (editor.cwd / "x").exists()


EXTENSION = """
def extension(agent):
    @agent.command("ask", help="Asks")
    async def ask(args, ctx):
        said = [await ctx.ui.confirm("Sure?", "really"), await ctx.ui.select("Which?", ["a", "b"])]
        ctx.ui.notify(repr([*said, await ctx.ui.input("Name?")]))
"""


def test_dialogs_of_an_extension_are_forms_or_refused(tmp_path) -> None:
    file = tmp_path / "asks.py"
    file.write_text(EXTENSION)
    forms = {"elicitation": {"form": {}}}
    with EditorProcess(args=["-e", str(file)], capabilities=forms) as editor:
        session = editor.new()
        commands = editor.update(session, "available_commands_update")["availableCommands"]
        assert [(c["name"], c["description"]) for c in commands] == [("ask", "Asks")]
        asked = editor.say(session, "/ask")
        for value in (True, "b", "Ann"):
            editor.reply(editor.request("elicitation/create"), action="accept", content={"value": value})
        assert editor.stop_reason(asked) == "end_turn"
        assert "[True, 'b', 'Ann']" in editor.text(session, "agent_thought")
    with EditorProcess(args=["-e", str(file)]) as editor:
        session = editor.new()
        asked = editor.say(session, "/ask")
        editor.choose("allow_once")
        request = editor.request("session/request_permission")
        editor.reply(request, outcome={"outcome": "selected", "optionId": "b"})
        assert editor.stop_reason(asked) == "end_turn"
        assert "[True, 'b', None]" in editor.text(session, "agent_thought")


# -- stored sessions --------------------------------------------------------------------------------


def test_a_session_of_an_earlier_process_is_replayed_listed_and_deleted(tmp_path) -> None:
    steps = [reply(think("hm"), "Look:", call("bash", {"command": "echo out"})), reply("Done.")]
    with EditorProcess(steps, base=tmp_path) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "a  question")) == "end_turn"
        assert editor.close_stdin() == 0
    with EditorProcess([reply("more")], base=tmp_path) as editor:
        listed = editor.ok("session/list", cwd=str(editor.cwd))
        assert [(s["sessionId"], s["title"]) for s in listed["sessions"]] == [(session, "a question")]
        assert editor.ok("session/list", cwd=str(tmp_path))["sessions"] == []
        load = editor.ask("session/load", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        assert "configOptions" in editor.answer(load)["result"]
        before = next(index for index, frame in enumerate(editor.frames) if frame.get("id") == load)
        told = [f["params"]["update"] for f in editor.frames[:before] if f.get("method") == "session/update"]
        kinds = [update["sessionUpdate"] for update in told]
        assert kinds == ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call",
                         "tool_call_update", "agent_message_chunk"]  # fmt: skip
        assert told[4]["status"] == "completed" and "out" in told[4]["content"][0]["content"]["text"]
        assert editor.stop_reason(editor.say(session, "go on")) == "end_turn"
        assert len(editor.mock.requests[0].body["messages"]) == 6  # with the system prompt
        editor.ok("session/close", sessionId=session)
        editor.ok("session/delete", sessionId=session)
        assert editor.ok("session/list")["sessions"] == []
        code, text = editor.fails("session/load", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        assert (code, session in text) == (-32002, True)


SAYS = """
def extension(agent):
    @agent.command("say", help="Says something")
    async def say(args, ctx):
        await agent.send_message("said", f"the extension says {args}")
"""


def test_messages_have_the_ids_of_their_entries(tmp_path) -> None:
    file = tmp_path / "says.py"
    file.write_text(SAYS)
    steps = [reply("one ", gate("go"), call("ls", {"path": "."})), reply("two")]
    with EditorProcess(steps, base=tmp_path, args=["-e", str(file)]) as editor:
        session = editor.new()
        first = editor.say(session, "hi")
        editor.mock.wait_gate("go")
        second = editor.say(session, "and this")
        editor.mock.release("go")
        assert editor.stop_reason(first) == editor.stop_reason(second) == "end_turn"
        assert editor.stop_reason(editor.say(session, "/say hello")) == "end_turn"
        entries = editor.ok("_spindle/get_entries", sessionId=session)["entries"]
        stored = [
            entry["id"]
            for entry in entries
            if entry["type"] == "custom_message" or entry.get("message", {}).get("role") in ("user", "assistant")
        ]
        live = list(dict.fromkeys(u["messageId"] for u in editor.updates(session) if "messageId" in u))
        assert live == stored[1:]  # the editor shows the first prompt itself
        assert editor.text(session).endswith("twothe extension says hello")
        told = len(editor.updates(session))
        editor.ok("session/load", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        again = [update["messageId"] for update in editor.updates(session)[told:] if "messageId" in update]
        assert list(dict.fromkeys(again)) == stored


def test_an_id_that_is_not_live_is_looked_up_by_any_call(tmp_path) -> None:
    with EditorProcess([reply("one")], base=tmp_path) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        editor.kill()
    with EditorProcess([reply("two")], base=tmp_path) as editor:
        assert editor.stop_reason(editor.say(session, "again")) == "end_turn"
        assert len(editor.mock.requests[0].body["messages"]) == 4
        assert editor.text(session) == "two"
        assert editor.ok("session/resume", sessionId=session, cwd=str(editor.cwd), mcpServers=[])["modes"]
        assert editor.text(session, "user_message") == ""  # nothing is replayed


def test_sessions_do_not_wait_for_each_other(tmp_path) -> None:
    steps = [reply("slow", gate("go"), match="slow"), reply("quick")]
    with EditorProcess(steps, base=tmp_path) as editor:
        other = tmp_path / "other"
        other.mkdir()
        one, two = editor.new(), editor.new(other)
        slow = editor.say(one, "slow")
        editor.mock.wait_gate("go")
        assert editor.stop_reason(editor.say(two, "quick")) == "end_turn"
        assert (editor.text(one), editor.text(two)) == ("slow", "quick")
        assert editor.ok("_spindle/bash", sessionId=two, command="pwd")["output"].strip() == str(other)
        editor.mock.release("go")
        assert editor.stop_reason(slow) == "end_turn"
        assert "none" in editor.fails("session/new", cwd=str(tmp_path / "none"), mcpServers=[])[1]
        assert editor.fails("session/new", cwd="relative", mcpServers=[])[0] == -32602


# -- what can be chosen, files of the editor, our own commands ---------------------------------------


def test_modes_models_and_thinking_are_options() -> None:
    with EditorProcess([reply("ok")]) as editor:
        answer = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[])
        session = answer["sessionId"]
        assert answer["modes"]["currentModeId"] == "bypass"
        options = {option["id"]: option for option in answer["configOptions"]}
        assert [option["category"] for option in options.values()] == ["mode", "model", "thought_level", "_sandbox"]
        assert options["sandbox"]["currentValue"] == "off"
        assert options["model"]["currentValue"] == "mock/m1"
        assert {"mock/m1", "mock/m2"} <= {choice["value"] for choice in options["model"]["options"]}

        def choose(option: str, value: str) -> dict[str, str]:
            chosen = editor.ok("session/set_config_option", sessionId=session, configId=option, value=value)
            return {one["id"]: one["currentValue"] for one in chosen["configOptions"]}

        assert choose("thinking", "high")["thinking"] == "high"
        chosen = choose("model", "mock/m2")
        assert chosen == {"mode": "bypass", "model": "mock/m2", "thinking": "off", "sandbox": "off"}
        assert choose("mode", "plan")["mode"] == "plan"
        assert editor.update(session, "config_option_update")
        wrong = {"sessionId": session, "configId": "mode", "value": "bogus"}
        assert editor.fails("session/set_config_option", **wrong)[0] == -32602
        assert editor.fails("session/set_config_option", **wrong | {"configId": "bogus"})[0] == -32602
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        assert editor.mock.requests[0].body["model"] == "m2"


def test_the_read_tool_sees_what_is_not_saved_yet() -> None:
    read = reply(call("read", {"path": "a.txt"}, id="c1"), call("read", {"path": "b.txt"}, id="c2"))
    with EditorProcess([read, reply("ok")], capabilities={"fs": {"readTextFile": True}}) as editor:
        (editor.cwd / "a.txt").write_text("old")
        (editor.cwd / "b.txt").write_text("from disk")
        session = editor.new()
        prompt = editor.say(session, "read")
        for _ in range(2):
            request = editor.request("fs/read_text_file")
            if request["params"]["path"].endswith("a.txt"):
                editor.reply(request, content="not saved yet")
            else:
                editor.frame(id=request["id"], error={"code": -32002, "message": "no"})
        assert editor.stop_reason(prompt) == "end_turn"
        results = [m["content"] for m in editor.mock.requests[1].body["messages"] if m["role"] == "tool"]
        assert results == ["not saved yet", "from disk"]


def test_the_plan_of_the_agent_is_shown() -> None:
    with EditorProcess([reply("ok")]) as editor:
        session = editor.new()
        tasks = [{"content": "look", "status": "completed"}, {"content": "mend", "status": "in_progress"}]
        editor.ok("_spindle/set_todos", sessionId=session, phases=[{"name": "work", "tasks": tasks}])
        plan = editor.update(session, "plan")
        assert [(e["content"], e["status"]) for e in plan["entries"]] == [
            ("look", "completed"), ("mend", "in_progress")
        ]  # fmt: skip


def test_commands_in_the_background_are_told_of() -> None:
    bash = call("bash", {"command": "until [ -e now ]; do sleep 0.05; done", "background": True})
    with EditorProcess([reply(bash), reply("I wait."), reply("Seen.")]) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "build it")) == "end_turn"
        (running,) = editor.ok("_spindle/get_state", sessionId=session)["background"]
        assert running["id"] == "bg1"
        (editor.cwd / "now").touch()
        while editor.update(session, "agent_message_chunk")["content"]["text"] != "Seen.":
            pass  # the answer of a run that no prompt has started
        told = editor.text(session, "agent_thought")
        assert told.startswith("bg1 runs in the background: until [ -e now ]; do sleep 0.05; done\nbg1 exited with ")


def test_our_own_events_are_sent_to_those_who_ask_for_them() -> None:
    with EditorProcess([reply("ok")], initialize=False) as editor:
        editor.ok("initialize", protocolVersion=1, _meta={"spindle": {"events": True}})
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        editor.ok("_spindle/set_session_name", sessionId=session, name="Named")
        assert editor.update(session, "session_info_update")["title"] == "Named"
        events = [f["params"]["event"]["type"] for f in editor.frames if f.get("method") == "_spindle/event"]
        assert {"agent_start", "agent_settled", "message_end"} <= set(events)
        code, text = editor.fails("_spindle/set_model", sessionId=session, provider="mock", modelId="none")
        assert (code, "Model not found" in text) == (-32603, True)


# -- rubbish ----------------------------------------------------------------------------------------


def test_rubbish_is_answered_and_harms_nothing() -> None:
    with EditorProcess([reply("ok")], initialize=False) as editor:
        assert editor.fails("session/new", cwd="/", mcpServers=[])[0] == -32600  # before initialize
        assert editor.fails("initialize")[0] == -32602
        editor.ok("initialize", protocolVersion=7)
        session = editor.new()
        for line, code in [
            (b"{", -32700),
            (b"[]", -32600),
            (b'"x"', -32600),
            (b'{"jsonrpc":"2.0","id":9}', -32600),
            (b'{"jsonrpc":"2.0","id":true,"method":"session/list","params":{}}', -32600),
        ]:  # would be taken for 1
            editor.write(line + b"\n")
            assert editor.wait(lambda f: "error" in f)["error"]["code"] == code
        editor.write(b"\n\n" + json.dumps({"jsonrpc": "2.0", "id": 77, "result": {}}).encode() + b"\n")
        assert editor.fails("session/nonsense", sessionId=session)[0] == -32601
        assert editor.fails("session/prompt", sessionId="no-such", prompt=[])[0] == -32002
        assert editor.fails("session/prompt", prompt=[])[0] == -32602
        assert editor.fails("session/prompt", sessionId=session, prompt="text")[0] == -32602
        assert editor.fails("session/list", cursor="!!")[0] == -32602
        editor.frame(method="session/cancel", params={"sessionId": "no-such"})
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
