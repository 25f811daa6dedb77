"""What a model call is made of: settings, images, names, the tools and the prompt of the moment."""

import pytest

from spindle.llm.live import LiveMessage
from spindle.llm.stream import Finished, Started
from spindle.shapes.messages import Image, Text
from tests.support import images

from .rig import Rig, run, slow_tool

PIXEL = {"type": "image", "data": images.PIXEL, "mimeType": "image/png"}


@pytest.fixture
def calls(monkeypatch):
    """Every (model, request, options) that reaches the model API."""
    seen = []

    async def stream(model, request, options):
        seen.append((model, request, options))
        live = LiveMessage(model)
        yield Started(live)
        yield live.start_text()
        yield live.append(0, "ok")
        yield live.end(0)
        yield Finished(live.finish("stop"))

    monkeypatch.setattr("spindle.llm.scripted.stream", stream)
    return seen


def test_settings_reach_the_provider(tmp_path, calls):
    async def main():
        settings = {
            "thinkingBudgets": {"low": 77},
            "httpProxy": "http://127.0.0.1:9",
            "httpIdleTimeoutMs": 1500,
        }
        async with Rig(tmp_path, settings=settings) as rig:
            await rig.call("set_thinking_level", level="low")
            await rig.run("hi")
            (_, _, options) = calls[0]
            assert options.thinking_budgets == {"low": 77}
            assert (options.proxy, options.idle_timeout, options.reasoning) == ("http://127.0.0.1:9", 1.5, "low")
            assert options.session_id == (await rig.data("get_state"))["sessionId"]

    run(main())


def test_the_provider_may_know_the_session_by_another_name(tmp_path, calls):
    async def main():
        async with Rig(tmp_path, provider_session_id="kept") as rig:
            await rig.run("hi")
            await rig.call("new_session")
            await rig.run("hi")
            assert [options.session_id for _, _, options in calls] == ["kept", "kept"]

    run(main())


@pytest.mark.parametrize("blocked", [False, True])
def test_images_can_be_kept_from_the_model(tmp_path, calls, blocked):
    async def main():
        async with Rig(tmp_path, settings={"images": {"blockImages": blocked}}) as rig:
            await rig.call("prompt", message="look", images=[PIXEL, PIXEL])
            await rig.until("agent_settled")
            content = calls[0][1].messages[0].content
            if blocked:
                assert content == [Text("look"), Text("Image reading is disabled.")]
            else:
                assert content == [Text("look"), Image(images.PIXEL, "image/png"), Image(images.PIXEL, "image/png")]
            kept = (await rig.data("get_messages"))["messages"][0]["content"]
            assert [block["type"] for block in kept] == ["text", "image", "image"]

    run(main())


@pytest.mark.parametrize("mode", ["rpc", "json"])
def test_over_rpc_the_client_decides_about_todos(tmp_path, mode):
    """A user who switched them off in another program must not break a client that relies on them."""

    async def main():
        async with Rig(tmp_path, settings={"todo": {"enabled": False, "reminders": False}}, mode=mode) as rig:
            await rig.data("set_todos", phases=[{"name": "P", "tasks": [{"content": "look"}]}])
            frames = await rig.run("go")
            reminded = any(frame["type"] == "todo_reminder" for frame in frames)
            offered = "todo_write" in [tool["name"] for tool in (await rig.data("get_state"))["dumpTools"]]
            assert (reminded, offered) == ((True, True) if mode == "rpc" else (False, False))

    run(main())


def test_a_model_chosen_in_mid_run_answers_the_next_turn(tmp_path, calls):
    async def main():
        async with Rig(tmp_path, tools=[slow_tool()]) as rig:
            await rig.run("one")
            other = rig.script.model(id="other", reasoning=False)
            await rig.agent.models.use(other, None, "set")
            await rig.run("two")
            assert [model.id for model, _, _ in calls] == ["script", "other"]
            assert rig.of("thinking_level_changed") == [{"type": "thinking_level_changed", "level": "off"}]

    run(main())
