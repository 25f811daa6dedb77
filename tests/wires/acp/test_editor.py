"""Editors: prompts, steering, permissions, stored sessions, options, over a real process on pipes."""

import base64
import json
from pathlib import Path

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
        assert editor.ok("session/prompt", sessionId=session, prompt=blocks)["stopReason"] == "end_turn"
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


def test_a_project_is_trusted_in_the_editor(tmp_path: Path) -> None:
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".pi" / "settings.json").write_text("{}")
    with EditorProcess([reply("hi")], base=tmp_path) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "go")) == "end_turn"  # nothing waits for the answer
        asked = editor.choose("allow_always")["params"]
        assert asked["toolCall"]["title"] == f"Trust {editor.cwd}?"
        assert "settings.json" in asked["toolCall"]["content"][0]["content"]["text"]
        kinds = [option["kind"] for option in asked["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
        while editor.ok("_spindle/get_state", sessionId=session).get("untrustedResources"):
            pass  # it is loaded again
    assert "true" in (tmp_path / "agent" / "trust.json").read_text()


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


FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


class Buffers:
    """Answers the agent's requests for files as an editor with open buffers does, until a prompt is over."""

    def __init__(self, editor: EditorProcess, texts: dict[str, str], saves: bool = False) -> None:
        self.editor, self.texts, self.saves = editor, texts, saves
        self.asked: list[str] = []

    def serve(self, prompt: int) -> str:
        editor = self.editor
        while True:
            frame = editor.wait(lambda f: f.get("id") == prompt or str(f.get("method")).startswith("fs/"))
            if "method" not in frame:
                return str(frame["result"]["stopReason"])
            params = frame["params"]
            name = Path(params["path"]).name
            self.asked.append(f"{frame['method'].split('/')[1].split('_')[0]} {name}")
            if name.startswith("foreign") or (frame["method"] == "fs/read_text_file" and name not in self.texts):
                editor.frame(id=frame["id"], error={"code": -32002, "message": "no such buffer"})
            elif frame["method"] == "fs/read_text_file":
                editor.reply(frame, content=self.texts[name])
            else:
                self.texts[name] = params["content"]
                if self.saves:
                    Path(params["path"]).write_text(params["content"])
                editor.reply(frame)


def results(editor: EditorProcess, request: int = -1) -> list[str]:
    return [m["content"] for m in editor.mock.requests[request].body["messages"] if m["role"] == "tool"]


def test_read_edit_and_write_see_one_text() -> None:
    edit = {"path": "a.txt", "edits": [{"oldText": "not saved", "newText": "changed"}]}
    steps = [
        reply(call("read", {"path": "a.txt"}, id="c1")),
        reply(call("edit", edit, id="c2")),
        reply(call("write", {"path": "new/b.txt", "content": "b"}, id="c3")),
        reply(call("read", {"path": "foreign.txt"}, id="c4")),
        reply(call("write", {"path": "foreign.txt", "content": "c"}, id="c5")),
        reply(call("read", {"path": "a.txt"}, id="c6")),
        reply("ok"),
    ]
    with EditorProcess(steps, capabilities=FILES) as editor:
        (editor.cwd / "a.txt").write_text("old")
        (editor.cwd / "foreign.txt").write_text("from disk")
        buffers = Buffers(editor, {"a.txt": "not saved yet\n"})
        session = editor.new()
        assert buffers.serve(editor.say(session, "go")) == "end_turn"
        first, edited, written, foreign, outside, last = results(editor)
        assert "not saved yet" in first and "The file on disk differs" in first
        assert "in the editor; it is not on disk yet" in edited
        assert "in the editor; it is not on disk yet" in written
        assert (foreign, "editor" in outside) == ("from disk", False)
        assert "changed yet" in last
        assert buffers.texts == {"a.txt": "changed yet\n", "b.txt": "b"}
        assert (editor.cwd / "a.txt").read_text() == "old"
        assert not (editor.cwd / "new").exists()
        assert (editor.cwd / "foreign.txt").read_text() == "c"
        shown = [u for u in editor.updates(session, "tool_call_update") if u["status"] == "completed"]
        assert {"type": "diff", "path": str(editor.cwd / "a.txt"), "oldText": "not saved", "newText": "changed"} in [
            part for update in shown for part in update["content"]
        ]


def test_a_question_shows_the_change_of_a_buffer_that_is_not_saved() -> None:
    edit = {"path": "a.txt", "edits": [{"oldText": "not saved", "newText": "changed"}]}
    steps = [reply(call("edit", edit, id="c1")), reply("ok")]
    with EditorProcess(steps, args=["--permission-mode", "default"], capabilities=FILES) as editor:
        (editor.cwd / "a.txt").write_text("old")
        buffers = Buffers(editor, {"a.txt": "not saved yet\n"})
        prompt = editor.say(editor.new(), "go")
        asked = editor.request("fs/read_text_file")
        editor.reply(asked, content=buffers.texts["a.txt"])
        question = editor.request("session/request_permission")
        (diff,) = question["params"]["toolCall"]["content"]
        path = str(editor.cwd / "a.txt")
        assert diff == {"type": "diff", "path": path, "oldText": "not saved yet\n", "newText": "changed yet\n"}
        assert question["params"]["toolCall"]["title"] == "Change a.txt (+1 −1)"
        assert buffers.texts["a.txt"] == "not saved yet\n"
        editor.reply(question, outcome={"outcome": "selected", "optionId": "Allow once"})
        assert buffers.serve(prompt) == "end_turn" and buffers.texts["a.txt"] == "changed yet\n"


def test_an_editor_that_cannot_ask_has_not_said_no_in_silence() -> None:
    steps = [reply(call("write", {"path": "a.txt", "content": "x"}, id="c1")), reply("ok")]
    with EditorProcess(steps, args=["--permission-mode", "default"]) as editor:
        session = editor.new()
        prompt = editor.say(session, "go")
        question = editor.request("session/request_permission")
        editor.frame(id=question["id"], error={"code": -32000, "message": "no window"})
        assert editor.stop_reason(prompt) == "end_turn"
        assert "the editor could not ask: no window" in json.dumps(editor.frames)
        assert "could not be answered" in results(editor)[0] and "no window" not in results(editor)[0]


def test_permissions_hold_before_the_editor_is_asked() -> None:
    steps = [
        reply(call("read", {"path": "secret.txt"}, id="c1")),
        reply(call("write", {"path": "secret.txt", "content": "x"}, id="c2")),
        reply(call("read", {"path": "/proc/self/environ"}, id="c3")),
        reply(call("read", {"path": "dot"}, id="c4")),
        reply("ok"),
    ]
    options = ["--deny", "Read(secret.txt)", "--deny", "Edit(secret.txt)"]
    with EditorProcess(steps, args=options, capabilities=FILES) as editor:
        (editor.cwd / "secret.txt").write_text("s")
        (editor.cwd / "dot").write_bytes(base64.b64decode(PIXEL))
        buffers = Buffers(editor, {"secret.txt": "s", "environ": "E", "dot": "no text"})
        assert buffers.serve(editor.say(editor.new(), "go")) == "end_turn"
        assert buffers.asked == []
        assert "Read image file" in results(editor)[3]  # although its name does not say that it is one


def test_an_editor_that_cannot_write_is_not_asked_for_files() -> None:
    steps = [reply(call("read", {"path": "a.txt"}, id="c1")), reply("ok")]
    with EditorProcess(steps, capabilities={"fs": {"readTextFile": True}}) as editor:
        (editor.cwd / "a.txt").write_text("old")
        buffers = Buffers(editor, {"a.txt": "not saved"})
        assert buffers.serve(editor.say(editor.new(), "go")) == "end_turn"
        assert (buffers.asked, results(editor)) == ([], ["old"])


def test_the_far_side_wins_over_the_editor(tmp_path: Path) -> None:
    steps = [
        reply(call("read", {"path": "a.txt"}, id="c1")),
        reply(call("write", {"path": "b.txt", "content": "b"}, id="c2")),
        reply(call("bash", {"command": "pwd"}, id="c3")),
        reply("ok"),
    ]
    (tmp_path / "a.txt").write_text("at the far side")
    options = ["--exec", "env", "--exec-cwd", str(tmp_path)]
    with EditorProcess(steps, args=options, capabilities={**FILES, "terminal": True}) as editor:
        buffers = Buffers(editor, {"a.txt": "not saved"})
        assert buffers.serve(editor.say(editor.new(), "go")) == "end_turn"
        read, _, where = results(editor)
        assert (buffers.asked, read, where) == ([], "at the far side", f"{tmp_path}\n")
        assert (tmp_path / "b.txt").read_text() == "b" and not (editor.cwd / "b.txt").exists()
        assert not [frame for frame in editor.frames if str(frame.get("method")).startswith("terminal/")]


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


# -- what clients use of the unstable schema --------------------------------------------------------


def test_the_answer_of_a_prompt_has_its_tokens() -> None:
    steps = [reply(call("ls", {}), usage=(100, 5, 40)), reply("ok", usage=(130, 7, 100)), reply("b", usage=(10, 1, 0))]
    with EditorProcess(steps) as editor:
        session = editor.new()
        usage = editor.answer(editor.say(session, "go"))["result"]["usage"]
        assert usage == {
            "totalTokens": 242, "inputTokens": 90, "outputTokens": 12, "cachedReadTokens": 140, "cachedWriteTokens": 0
        }  # fmt: skip
        assert editor.answer(editor.say(session, "more"))["result"]["usage"]["totalTokens"] == 11


def test_the_use_of_the_context_is_told_after_every_turn() -> None:
    with EditorProcess([reply("a", usage=(10, 1, 0)), reply("b", usage=(10, 1, 0))]) as editor:
        session = editor.new()
        for text in ("one", "two"):
            prompt = editor.say(session, text)
            told = editor.wait(
                lambda f: f.get("method") == "session/update" and f["params"]["update"].get("used") == 11
            )
            assert told["params"]["update"]["size"] == 100_000
            assert editor.stop_reason(prompt) == "end_turn"


def test_a_session_has_a_title_and_a_status(tmp_path) -> None:
    with EditorProcess([reply("ok")], base=tmp_path) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        assert editor.ok("session/set_title", sessionId=session, title="  The \n plan ") == {"title": "The plan"}
        assert editor.update(session, "session_info_update")["title"] == "The plan"
        assert editor.fails("session/set_title", sessionId=session, title=" ")[0] == -32602
        assert editor.ok("session/status", sessionId=session) == {"status": "open"}
    with EditorProcess([], base=tmp_path) as editor:
        assert editor.ok("session/status", sessionId=session) == {"status": "saved"}
        assert editor.ok("session/status", sessionId=session) == {"status": "saved"}  # asking does not load it
        listed = editor.ok("session/list")["sessions"]
        assert [(s["sessionId"], s["title"]) for s in listed] == [(session, "The plan")]
        missing = editor.answer(editor.ask("session/status", sessionId="none"))["error"]
        assert (missing["code"], missing["data"]) == (-32002, {"sessionId": "none"})
        assert editor.ok("session/set_title", sessionId=session, title="Another") == {"title": "Another"}
        assert editor.ok("session/list")["sessions"][0]["title"] == "Another"


def test_a_fork_goes_its_own_way_while_the_session_runs() -> None:
    steps = [
        reply("Noted."),
        reply("Long ", gate("go"), "work.", match="work"),
        reply("It is 7.", match="aside"),
        reply("Still here.", match="later"),
    ]
    with EditorProcess(steps) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "remember 7")) == "end_turn"
        running = editor.say(session, "work")
        editor.mock.wait_gate("go")
        fork = editor.ok("session/fork", sessionId=session, cwd=str(editor.cwd), mcpServers=[])
        assert fork["sessionId"] != session
        assert {option["id"] for option in fork["configOptions"]} >= {"mode", "model"}
        assert editor.stop_reason(editor.say(fork["sessionId"], "aside: what was it?")) == "end_turn"
        assert editor.text(fork["sessionId"]) == "It is 7."
        sent = json.dumps(editor.mock.requests[-1].body["messages"])
        assert "remember 7" in sent and "Noted." in sent
        editor.ok("session/close", sessionId=fork["sessionId"])
        editor.mock.release("go")
        assert editor.stop_reason(running) == "end_turn"
        assert editor.stop_reason(editor.say(session, "later")) == "end_turn"
        assert "aside" not in json.dumps(editor.mock.requests[-1].body["messages"])
        empty = editor.ok("session/fork", sessionId=editor.new(), cwd=str(editor.cwd), mcpServers=[])
        assert empty["sessionId"]
        assert editor.fails("session/fork", sessionId="none", cwd=str(editor.cwd))[0] == -32002


def test_an_editor_gives_a_system_prompt() -> None:
    waiting = call("bash", {"command": "until [ -e now ]; do sleep 0.05; done", "background": True})
    steps = [reply(call("task", {"prompt": "look"})), reply("Nothing."), reply(waiting), *[reply("ok")] * 7]
    added = {"mode": "append", "content": [{"type": "text", "text": "Answer"}, {"type": "text", "text": "in rhyme."}]}
    new = "You are a poet."
    replaced = {"mode": "override", "content": [{"type": "text", "text": new}]}
    built_in = "You are a coding agent."

    with EditorProcess(steps, args=["--append-system-prompt", "Be kind."], initialize=False) as editor:
        told = editor.ok("initialize", protocolVersion=1)["agentCapabilities"]["sessionCapabilities"]
        assert told["systemPrompt"] == {"mode": {"override": {}}}
        here = {"cwd": str(editor.cwd), "mcpServers": []}
        (editor.cwd / new).write_text("A file of that name is not meant.")

        def prompt_of(session: str) -> str:
            assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
            return system(-1)

        def system(request: int) -> str:
            return str(editor.mock.requests[request].body["messages"][0]["content"])

        session = editor.ok("session/new", **here, systemPrompt=added)["sessionId"]
        assert editor.stop_reason(editor.say(session, "begin")) == "end_turn"
        (editor.cwd / "now").touch()
        while len(editor.mock.requests) < 5:
            editor.update(session, "agent_message_chunk")  # of the run that the end of the command starts
        text = "Be kind.\n\nAnswer\n\nin rhyme.\n</addendum>"
        assert [text in system(one) for one in range(5)] == [True, False, True, True, True]
        assert built_in in system(0) and "Be kind." in system(1)

        fork = editor.ok("session/fork", **here, sessionId=session)["sessionId"]
        assert text in prompt_of(fork)
        editor.ok("session/load", **here, sessionId=session)
        assert text in prompt_of(session)
        editor.ok("session/resume", **here, sessionId=session, systemPrompt=replaced)
        sent = prompt_of(session)
        assert sent.startswith(f"{new}\n\n<addendum>\nBe kind.\n</addendum>") and built_in not in sent

        sent = prompt_of(editor.ok("session/new", **here, _meta={"systemPrompt": new})["sessionId"])
        assert sent.startswith(new) and built_in not in sent
        sent = prompt_of(editor.ok("session/new", **here, _meta={"systemPrompt": {"append": "In rhyme."}})["sessionId"])
        assert built_in in sent and "In rhyme.\n</addendum>" in sent

        before = editor.ok("session/list")["sessions"]
        for wrong, about in [
            ({"mode": "prepend", "content": added["content"]}, "append or override, not 'prepend'"),
            ({"mode": "append", "content": []}, "one or more blocks"),
            ({"mode": "append", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]}, "type text"),
            ({"content": added["content"]}, "mode"),
        ]:
            for method in ("session/new", "session/load", "session/fork"):
                code, message = editor.fails(method, **here, sessionId=session, systemPrompt=wrong)
                assert code == -32602 and about in message, message
        assert editor.ok("session/list")["sessions"] == before


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_an_authentication_error_and_is_not_tried_again(status) -> None:
    with EditorProcess([failure(status, {"error": {"message": "no"}}), reply("ok")]) as editor:
        session = editor.new()
        error = editor.answer(editor.say(session, "hi"))["error"]
        assert error["code"] == -32000
        assert str(status) in error["message"]
        assert len(editor.mock.requests) == 1
        assert editor.stop_reason(editor.say(session, "with another key")) == "end_turn"


def test_a_model_has_a_short_name() -> None:
    with EditorProcess([reply("ok")]) as editor:
        session = editor.new()
        options = editor.ok("session/set_config_option", sessionId=session, configId="model", value="m2")
        assert next(o["currentValue"] for o in options["configOptions"] if o["id"] == "model") == "mock/m2"
        editor.ok("session/set_model", sessionId=session, modelId="m1")
        assert editor.stop_reason(editor.say(session, "hi")) == "end_turn"
        assert editor.mock.requests[0].body["model"] == "m1"
        wrong = {"sessionId": session, "configId": "model"}
        code, text = editor.fails("session/set_config_option", **wrong, value="no-such-model")
        assert (code, "mock/m2" in text) == (-32602, True)
