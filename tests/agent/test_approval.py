"""Questions before tools and after many turns."""

from spindle import Agent
from spindle.shapes.messages import text_of
from spindle.testing import Script

from .rig import Rig, run, slow_tool


def answer(rig: Rig, dialog: dict, confirmed: bool) -> None:
    rig.dispatcher.receive_value({"type": "extension_ui_response", "id": dialog["id"], "confirmed": confirmed})


async def question(rig: Rig) -> dict:
    return await rig.until("extension_ui_request")


def test_a_long_run_asks_again_but_a_new_message_is_an_answer(tmp_path):
    async def main():
        call = {"calls": [{"name": "slow"}]}
        steps = [call, call, call, "done", "next"]
        async with Rig(tmp_path, steps, tools=[slow_tool(seconds=0)]) as rig:
            await rig.call("set_approval", maxTurns=2)
            await rig.call("prompt", message="go")
            dialog = await question(rig)
            assert dialog["message"] == "The model has been called 2 times in a row."
            answer(rig, dialog, True)
            await rig.until("agent_settled")
            assert len(rig.script.requests) == 4
            await rig.run("more")
            assert len(rig.of("extension_ui_request")) == 1

    run(main())


def test_a_refused_tool_is_told_to_the_model(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"calls": [{"name": "slow"}]}, "ok"], tools=[slow_tool()]) as rig:
            await rig.call("set_approval", tools=True)
            await rig.call("prompt", message="go")
            answer(rig, await question(rig), False)
            await rig.until("agent_settled")
            (end,) = rig.of("tool_execution_end")
            assert end["isError"] and "did not allow" in end["result"]["content"][0]["text"]

    run(main())


def test_an_abort_ends_the_question(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"calls": [{"name": "slow"}]}, "ok"], tools=[slow_tool()]) as rig:
            await rig.call("set_approval", tools=True)
            await rig.call("prompt", message="go")
            await question(rig)
            await rig.call("abort")
            assert rig.roles()[-1] == "assistant(aborted)"
            await rig.call("set_approval")
            await rig.run("again")

    run(main())


def test_a_program_answers_for_itself(tmp_path):
    asked = []

    async def can_use_tool(name, arguments):
        asked.append((name, arguments["path"]))
        return {"a": True, "b": False, "c": "Not c."}[arguments["path"]]

    async def main():
        calls = [{"calls": [{"name": "write", "arguments": {"path": path, "content": "x"}}]} for path in "abc"]
        script = Script([*calls, "done"])
        options = {"cwd": tmp_path, "persist": False, "model": script.model(), "can_use_tool": can_use_tool}
        async with await Agent.create(**options) as agent:
            assert (await agent.run("go")).text == "done"
            texts = [text_of(m.content) for m in agent.messages if m.role == "toolResult"]
        assert texts[1].startswith("The user did not allow this call of write") and texts[2] == "Not c."
        assert asked == [("write", "a"), ("write", "b"), ("write", "c")]
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a"]

    run(main())


def test_a_program_that_a_rule_asks_is_not_told_that_it_is_not_asked(tmp_path, caplog):
    async def main():
        script = Script([{"calls": [{"name": "bash", "arguments": {"command": "touch a"}}]}, "done"])
        options = {"permission_mode": "bypass", "ask": ["Bash(touch *)"], "can_use_tool": lambda name, arguments: False}
        async with Agent.create(cwd=tmp_path, persist=False, model=script.model(), **options) as agent:
            assert (await agent.run("go")).status == "denied"

    run(main())
    assert "is not asked" not in caplog.text


def test_no_one_to_ask_is_a_no(tmp_path):
    async def main():
        call = {"calls": [{"name": "write", "arguments": {"path": "a", "content": "x"}}]}
        async with Rig(
            tmp_path, [call, "ok"], settings={"permissions": {"defaultMode": "default"}}, mode="print"
        ) as rig:
            await rig.run("go")
            (denied,) = rig.of("permission_denied")
            assert "there is no answer" in denied["reason"] and not (rig.cwd / "a").exists()

    run(main())


def test_questions_are_given_up_when_no_client_is_there(tmp_path):
    async def main():
        call = {"calls": [{"name": "write", "arguments": {"path": "a", "content": "x"}}]}
        async with Rig(tmp_path, [call, "ok"], settings={"permissions": {"defaultMode": "default"}}) as rig:
            await rig.call("prompt", message="go")
            dialog = await question(rig)
            rig.agent.approval.give_up()
            await rig.until("agent_settled")
            assert rig.of("extension_ui_request")[-1]["targetId"] == dialog["id"]
            assert len(rig.of("permission_denied")) == 1

    run(main())
