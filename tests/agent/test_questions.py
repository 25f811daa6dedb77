"""Questions about tool calls: what they show, who answers them, and what an answer does."""

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from spindle import Agent, AgentError, Allow, Deny, Refused
from spindle.agent.hooks import Hooks
from spindle.agent.run.options import RunOptions
from spindle.base.errors import error_text
from spindle.shapes.messages import text_of
from spindle.testing import Script
from spindle.tools.base import ToolError

from .rig import Rig, run

ASK = {"permissions": {"defaultMode": "default"}}
LONG = "".join(f"line {number}\n" for number in range(100))


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def write(path="a", content="x\n"):
    return call("write", path=path, content=content)


async def asked(rig: Rig) -> dict:
    await rig.call("prompt", message="go")
    return await rig.until("permission_request")


def texts(agent: Agent) -> list[str]:
    return [text_of(message.content) for message in agent.messages if message.role == "toolResult"]


def options(tmp_path, script, **more):
    return {"cwd": tmp_path, "persist": False, "model": script.model(), **more}


# -- what a question shows -----------------------------------------------------------------------


def test_a_write_over_a_file_shows_the_change_and_touches_nothing(tmp_path):
    async def main():
        async with Rig(tmp_path, [write("a", LONG.replace("line 50\n", "changed\n")), "ok"], settings=ASK) as rig:
            file = rig.cwd / "a"
            file.write_text(LONG)
            before = file.stat()
            question = await asked(rig)
            preview = question["preview"]
            assert preview["kind"] == "diff" and (preview["added"], preview["removed"]) == (1, 1)
            assert preview["patch"].startswith("--- a\n+++ a\n@@ "), "a path as it was given, as in that of an edit"
            assert "-line 50\n+changed\n" in preview["patch"] and "line 20" not in preview["patch"]
            assert (file.read_text(), file.stat().st_mtime_ns) == (LONG, before.st_mtime_ns)
            dialog = await rig.until("extension_ui_request")
            assert dialog["id"] == question["id"]
            assert dialog["title"] == "Allow write? Replace a (+1 −1)"
            assert question["suggestions"][0]["rules"] == ["Edit(./a)"]
            await rig.call("answer_permission", question=question["id"], behavior="allow")
            await rig.until("agent_settled")
            assert "changed" in file.read_text()
            over = rig.of("extension_ui_request")[-1]
            assert (over["method"], over["targetId"]) == ("cancel", dialog["id"])
            (answered,) = rig.of("permission_answered")
            assert (answered["behavior"], answered["id"]) == ("allow", question["id"])

    run(main())


def test_a_call_that_would_fail_says_so_before(tmp_path):
    async def main():
        script = Script([call("edit", path="a", edits=[{"oldText": "no", "newText": "yes"}]), "ok"])
        seen = []
        (tmp_path / "a").write_text("something\n")

        def can_use_tool(request):
            seen.append(request.preview)
            return False

        async with Agent.create(**options(tmp_path, script, can_use_tool=can_use_tool)) as agent:
            await agent.run("go")
        assert "Could not find the exact text in a" in seen[0].reason

    run(main())


def test_a_command_shows_where_it_runs_and_what_is_not_certain(tmp_path):
    async def main():
        script = Script([call("bash", command="cd sub && $x | tee out"), call("bash", command="make"), "ok"])
        seen = []
        async with Agent.create(
            **options(tmp_path, script, can_use_tool=lambda request: seen.append(request))
        ) as agent:
            await agent.run("go")
        request, plain = seen
        assert plain.preview.unsure is None and plain.reason == "no rule allows it"
        assert request.preview.directory == str(tmp_path) and request.preview.sandbox == "off"
        assert "cannot be checked" in request.preview.unsure
        assert request.session and request.run and request.tool_call_id and request.mode == "default"

    run(main())


def test_a_yes_to_a_replacement_is_for_the_file_that_was_shown(tmp_path):
    """Somebody has changed the file since: it is asked again, with what would be lost now."""

    async def main():
        settings = {"permissions": {"defaultMode": "default"}}
        async with Rig(tmp_path, [write("a", "mine\n"), "ok"], settings=settings) as rig:
            file = rig.cwd / "a"
            file.write_text("old\n")
            await rig.call("prompt", message="go")
            first = await rig.until("permission_request")
            file.write_text("old\nof the user\n")
            await rig.call("answer_permission", question=first["id"], behavior="allow")
            again = await rig.until(lambda frame: frame["type"] == "permission_request" and frame["id"] != first["id"])
            assert "of the user" in again["preview"]["diff"]
            assert again["reason"].endswith("the file has changed since you were asked")
            assert file.read_text() == "old\nof the user\n"
            await rig.call("answer_permission", question=again["id"], behavior="allow")
            await rig.until("agent_settled")
            assert file.read_text() == "mine\n"
            assert len(rig.of("permission_request")) == 2

    run(main())


def test_a_yes_does_not_pass_a_rule_that_came_meanwhile(tmp_path):
    async def main():
        settings = {"permissions": {"defaultMode": "default"}}
        async with Rig(tmp_path, [write("a", "x"), "ok"], settings=settings) as rig:
            await rig.call("prompt", message="go")
            question = await rig.until("permission_request")
            await rig.call("set_permissions", deny=["Edit(./a)"])
            told = await rig.call("answer_permission", question=question["id"], behavior="allow")
            assert told["error"] == "The input of write is refused by rule Edit(./a) of the client"
            await rig.call("answer_permission", question=question["id"], behavior="deny")
            await rig.until("agent_settled")
            assert not (rig.cwd / "a").exists()

    run(main())


def test_no_preview_is_made_where_nobody_is_asked(tmp_path, monkeypatch):
    from spindle.agent.fences import previews

    async def fail(*_, **__):
        raise AssertionError("a preview was made")

    monkeypatch.setattr(previews, "preview_of", fail)

    async def main():
        async with Rig(tmp_path, [write(), "ok"], settings=ASK, mode="print") as rig:
            await rig.run("go")
            (denied,) = rig.of("permission_denied")
            assert denied["by"] == "nobody"
        async with Rig(tmp_path, [write(), "ok"]) as rig:
            await rig.run("go")
            assert (rig.cwd / "a").exists()

    run(main())


# -- answers of clients --------------------------------------------------------------------------


def test_a_changed_input_is_checked_and_recorded(tmp_path):
    async def main():
        settings = {"permissions": {"defaultMode": "default", "deny": ["Edit(secret)"]}}
        async with Rig(tmp_path, [write("a", "x"), "ok"], settings=settings, session=True) as rig:
            question = await asked(rig)

            async def answer(input):
                return await rig.call("answer_permission", question=question["id"], behavior="allow", input=input)

            for wrong, words in (
                ({"path": "secret", "content": "x"}, "refused by rule Edit(secret)"),
                ({"path": "a"}, "Validation failed"),
                ([1], "Validation failed"),
            ):
                response = await answer(wrong)
                assert not response["success"] and words in response["error"]
            assert (await answer({"path": "b", "content": "y"}))["success"]
            await rig.until("agent_settled")
            assert (rig.cwd / "b").read_text() == "y" and not (rig.cwd / "a").exists()
            (end,) = rig.of("tool_execution_end")
            assert end["changedInput"] == {"path": "b", "content": "y"}
            assert rig.of("permission_answered")[0]["input"] == {"path": "b", "content": "y"}
            lines = map(json.loads, rig.agent.session.path.read_text().splitlines())
            results = [line["message"] for line in lines if line.get("message", {}).get("role") == "toolResult"]
            assert results[0]["changedInput"] == {"path": "b", "content": "y"}
            assert "The user changed the input" in results[0]["content"][-1]["text"]
            late = await rig.call("answer_permission", question=question["id"], behavior="deny")
            assert "was answered, or withdrawn" in late["error"]

    run(main())


def test_a_rule_is_kept_where_the_answer_says(tmp_path):
    async def main():
        steps = [write("a"), write("b"), "ok"]
        async with Rig(tmp_path, steps, settings=ASK) as rig:
            question = await asked(rig)
            wide = question["suggestions"][-1]["rules"]
            given = {"question": question["id"], "behavior": "allow", "keep": "user"}
            wrong = await rig.call("answer_permission", **given, rules=["Wrte"])
            assert "Did you mean Write" in wrong["error"]
            assert (await rig.call("answer_permission", **given, rules=wide))["success"]
            await rig.until("agent_settled")
            assert len(rig.of("permission_request")) == 1
            kept = json.loads((rig.home / "settings.json").read_text())["permissions"]["allow"]
            assert kept == wide

    run(main())


def test_a_no_may_stop_the_run_and_is_told_with_its_reason(tmp_path):
    async def main():
        two = {"calls": [{"name": "write", "arguments": {"path": path, "content": "x"}} for path in "ab"]}
        async with Rig(tmp_path, [two, "never"], settings=ASK) as rig:
            question = await asked(rig)
            await rig.call("answer_permission", question=question["id"], behavior="deny", reason="Not now.", stop=True)
            settled = await rig.until("agent_settled")
            assert settled["stopReason"] == "denied" and len(rig.script.requests) == 1
            first, second = rig.of("permission_denied")
            assert first["by"] == "user" and first["reason"].endswith("They said: Not now.")
            assert "stopped the run" in second["reason"] and len(rig.of("permission_request")) == 1

    run(main())


def test_an_abort_withdraws_the_question(tmp_path):
    async def main():
        async with Rig(tmp_path, [write(), "ok"], settings=ASK) as rig:
            await asked(rig)
            await rig.call("abort")
            (answered,) = rig.of("permission_answered")
            assert answered["behavior"] == "withdrawn"

    run(main())


def test_an_answer_of_the_wrong_form_is_an_error_in_words(tmp_path):
    async def main():
        async with Rig(tmp_path, [write(), "ok"], settings=ASK) as rig:
            id = (await asked(rig))["id"]
            for given, words in (
                ({"behavior": "maybe"}, "behavior"),
                ({"behavior": "deny", "keep": "user"}, 'go with the behavior "allow"'),
                ({"behavior": "allow", "reason": "x"}, 'go with the behavior "deny"'),
                ({"behavior": "allow", "keep": "project"}, "Possible: "),
            ):
                response = await rig.call("answer_permission", question=id, **given)
                assert not response["success"] and words in response["error"], response
            assert (await rig.call("answer_permission", question=id, behavior="deny"))["success"]
            await rig.until("agent_settled")

    run(main())


@pytest.mark.parametrize("answer", [True, False])
def test_a_question_of_an_extension_is_a_request_and_a_dialog(tmp_path, answer):
    def asking(agent):
        @agent.command("sure")
        async def sure(args, ctx):
            ctx.ui.notify(f"{await ctx.ui.confirm('Sure?', 'Really?', timeout=60)}")

    async def main():
        async with Rig(tmp_path, settings=ASK, extensions=[asking]) as rig:
            await rig.call("prompt", message="/sure")
            question = await rig.until("permission_request")
            dialog = await rig.until("extension_ui_request")
            assert (question["kind"], question["summary"], question["timeout"]) == ("confirm", "Sure?", 60_000)
            assert question["preview"] == {"kind": "text", "text": "Really?"}
            assert (dialog["id"], dialog["method"], dialog["message"]) == (question["id"], "confirm", "Really?")
            if answer:
                await rig.call("answer_permission", question=question["id"], behavior="allow")
            else:
                rig.dispatcher.receive_value({"type": "extension_ui_response", "id": dialog["id"], "confirmed": False})
            said = await rig.until(lambda frame: frame.get("method") == "notify")
            assert said["message"] == str(answer)

    run(main())


# -- a program -----------------------------------------------------------------------------------


def test_a_program_gets_a_request_and_may_change_the_input(tmp_path):
    seen = []

    async def can_use_tool(request):
        seen.append(request)
        request.arguments["path"] = "in place"
        return Allow({"path": "changed", "content": "y"}) if len(seen) == 1 else Deny("No.", stop=True)

    async def main():
        script = Script([write(), write(), "never"])
        async with Agent.create(**options(tmp_path, script, can_use_tool=can_use_tool)) as agent:
            result = await agent.run("go")
            assert (tmp_path / "changed").exists() and not (tmp_path / "a").exists()
            assert not (tmp_path / "in place").exists()
            assert (result.status, result.stop_reason) == ("denied", "denied")
            assert (result.denials[0].by, result.denials[0].reason) == ("program", "No.")
            assert seen[0].preview.new_file and seen[0].summary == "Make the file a (1 line)"
            assert texts(agent)[1] == "No."

    run(main())


def test_a_callback_that_fails_is_told_to_the_program_only(tmp_path, caplog, monkeypatch):
    (tmp_path / "settings.json").write_text('{"permissions": {"askTimeoutMs": 100}}')
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path))

    def raises(request):
        raise ValueError("the secret reason")

    async def nothing(request):
        return None

    def fails_a_test(request):
        pytest.fail("wrong tool")

    async def cancelled(request):
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other

    async def slow(request):
        await asyncio.Event().wait()

    async def stubborn(request):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return True

    def blocks(request):
        time.sleep(0.12)
        return True

    class Mute(Exception):
        def __str__(self):
            raise ZeroDivisionError

    def mute(request):
        raise Mute

    async def main():
        for function, kind, words in (
            (raises, ValueError, "the secret reason"),
            (nothing, TypeError, "returned None"),
            (lambda request: 1, TypeError, "returned 1"),
            (lambda request: {"behavior": "allow"}, TypeError, "it must return Allow"),
            (lambda request: Allow({"path": 7}), ToolError, "Validation failed"),
            (lambda request: Allow(keep="session", rules=["Bsh"]), AgentError, "no such tool"),
            (lambda request: Allow(keep="session", rules="Write"), TypeError, "Expected `array`"),
            (lambda request: Allow({"path": "a", "content": "x", "more": Path()}), AgentError, "as JSON"),
            (lambda request: Deny(None), TypeError, "Expected `str`"),
            (fails_a_test, pytest.fail.Exception, "wrong tool"),
            (cancelled, RuntimeError, "was cancelled"),
            (slow, TimeoutError, "no answer within"),
            (stubborn, TimeoutError, "no answer within"),
            (blocks, TimeoutError, "no answer within"),
            (mute, Mute, ""),
        ):
            caplog.clear()
            script = Script([write(), "done"])
            async with Agent.create(**options(tmp_path, script, can_use_tool=function)) as agent:
                with caplog.at_level(logging.ERROR, "spindle.approval"), pytest.raises(Refused) as raised:
                    await agent.ask("go")
                cause = raised.value.__cause__
                assert isinstance(cause, kind) and words in error_text(cause)
                (denial,) = raised.value.result.denials
                assert denial.by == "error" and words in denial.error
                assert not (words and words in texts(agent)[0]) and "could not be answered" in texts(agent)[0]
                assert words in caplog.text

    run(main())


def test_the_form_of_a_callback_is_found_when_the_agent_is_made(tmp_path):
    seen = []

    class Old:
        def __call__(self, name, arguments):
            seen.append(name)
            return True

    async def main():
        for function, expected in (
            (Old(), "write"),
            (lambda *args: bool(seen.append(args[0].tool_name)) or True, "write"),
            (lambda request, more=None: bool(seen.append(request.kind)) or True, "tool"),
        ):
            script = Script([write(), "ok"])
            async with Agent.create(**options(tmp_path, script, can_use_tool=function)) as agent:
                await agent.run("go")
            assert seen.pop() == expected
        for wrong in (lambda: True, lambda a, b, c: True):
            with pytest.raises(AgentError, match="must take one argument"):
                await Agent.create(**options(tmp_path, Script(["ok"]), can_use_tool=wrong))

    run(main())


def test_a_callback_that_cannot_be_called_is_an_error_or_a_warning(tmp_path, caplog, monkeypatch):
    async def main():
        function = {"can_use_tool": lambda request: True}
        with pytest.raises(AgentError, match="never called in the mode bypass"):
            await Agent.create(**options(tmp_path, Script(["ok"]), **function, permission_mode="bypassPermissions"))
        home = tmp_path / "home"
        home.mkdir()
        (home / "settings.json").write_text('{"permissions": {"defaultMode": "bypass"}}')
        monkeypatch.setenv("SPINDLE_DIR", str(home))
        async with Agent.create(**options(tmp_path, Script(["ok"]), **function)) as agent:
            await agent.run("go")
        assert "can_use_tool is not asked" in caplog.text

    run(main())


def test_the_trace_and_the_export_tell_that_an_input_was_changed(tmp_path, monkeypatch):
    from spindle.agent.library import export_html
    from spindle.base import trace

    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    spans = []

    async def main():
        script = Script([write("a", "x"), "ok"])
        changed = {"path": "b", "content": "y"}
        given = {"cwd": tmp_path, "model": script.model(), "can_use_tool": lambda request: Allow(changed)}
        forget = trace.listen(lambda moment, span: spans.append((moment, span)))
        try:
            async with Agent.create(**given) as agent:
                result = await agent.run("go")
                page = await export_html(agent.session, str(tmp_path / "page.html"))
        finally:
            forget()
        assert "The user changed the input of this call" in Path(page).read_text()
        (tool,) = [span for moment, span in spans if moment == "ended" and span.kind == "tool"]
        assert tool.attributes["changed"] is True
        assert (result.status, result.files_changed) == ("ok", ["b"])

    run(main())


# -- who refused ---------------------------------------------------------------------------------


def test_a_block_by_an_extension_is_a_denial(tmp_path):
    def gate(agent):
        @agent.on("tool_call")
        def look(event, ctx):
            if event.input.get("path") == "broken":
                raise RuntimeError("the gate is broken")
            return {"block": True, "reason": "not this file"} if event.input.get("path") == "x" else None

    async def main():
        told = []
        script = Script([{"calls": [write("x")["calls"][0], write("broken")["calls"][0]]}, "then not"])
        async with Agent.create(**options(tmp_path, script, extensions=[gate])) as agent:
            agent.subscribe(lambda event: told.append(event) if event.raw["type"] == "permission_denied" else None)
            await agent.prompt("go")
            result = agent.session.last_result()
        assert result is not None and result.status == "denied"
        denials = result.denials
        assert [(one.tool_name, one.by, one.reason) for one in denials] == [
            ("write", "extension", "not this file"),
            ("write", "error", "the gate is broken"),
        ]
        assert [event.reason for event in told] == ["not this file", "the gate is broken"]

    run(main())


def test_a_hook_of_a_request_that_fails_is_a_denial(tmp_path):
    class Broken(Hooks):
        async def tool_call(self, call_id, tool, args):
            raise ValueError("the secret reason")

    async def main():
        script = Script([write(), "then not"])
        async with Agent.create(**options(tmp_path, script)) as agent:
            sent = await agent.session.submit("go", options=RunOptions(hooks=Broken()))
            result = await sent.result()
            (denial,) = result.denials
            assert (result.status, denial.by, denial.error) == ("denied", "error", "ValueError: the secret reason")
            assert "secret" not in texts(agent)[0] and isinstance(sent.exceptions[0], ValueError)

    run(main())


def test_a_question_is_put_where_its_preview_fails(tmp_path):
    async def main():
        script = Script([write("a\0b"), "ok"])
        asked = []
        async with Agent.create(
            **options(tmp_path, script, can_use_tool=lambda request: asked.append(request) or "not there")
        ) as agent:
            result = await agent.run("go")
        assert asked[0].preview.reason and [one.by for one in result.denials] == ["program"]

    run(main())


def test_whoever_comes_next_is_asked_about_the_project_that_nobody_answered_for(tmp_path):
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".pi" / "settings.json").write_text("{}")

    async def main():
        async with Rig(tmp_path, ["ok"]) as rig:
            assert rig.cwd == tmp_path / "work"
            first = await rig.until("permission_request")
            await rig.agent.begin()
            rig.agent.approval.give_up()  # the last client has left
            assert (await rig.until("permission_answered"))["by"] == "nobody"
            await rig.agent.begin()
            second = await rig.until(lambda frame: frame["type"] == "permission_request" and frame["id"] != first["id"])
            await rig.call("answer_permission", question=second["id"], behavior="deny")
            await rig.agent.begin()
            assert len(rig.of("permission_request")) == 2

    run(main())
