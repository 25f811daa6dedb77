"""A change of session, as extensions see it: told of an end only if there is one, of a beginning always."""

import asyncio

import pytest

from spindle.base import limits
from tests.agent.rig import Rig

from .helpers import run


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))


def logger(log):
    """Return an extension that notes where sessions begin and end."""

    def extension(agent):
        for name in ("session_start", "session_shutdown"):
            agent.on(name, lambda event, ctx: log.append((event.type, event.reason)))

    return extension


def failing(kind):
    def plain(session):
        session.append_custom_entry("seed", 1)
        raise ValueError("no seed")

    async def later(session):
        await asyncio.sleep(0)
        plain(session)

    return {"def": plain, "async def": later}[kind]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_setup_that_raises_changes_nothing(tmp_path, kind):
    log = []

    def travelling(agent):
        @agent.command("new")
        async def new(args, ctx):
            try:
                await ctx.new_session(setup=failing(kind))
            except ValueError as error:
                ctx.ui.notify(f"{error} {ctx.session.id}")  # this context is not stale

    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True, extensions=[travelling, logger(log)]) as rig:
            await rig.run("hello")
            before = await rig.data("get_state"), await rig.data("get_entries")
            await rig.call("prompt", message="/new")
            told = await rig.until(lambda frame: frame.get("method") == "notify")
            assert told["message"] == f"no seed {before[0]['sessionId']}"
            assert (await rig.data("get_state"), await rig.data("get_entries")) == before
            assert rig.roles() == ["user", "assistant(stop)"]
            assert log == [("session_start", "startup")] and not rig.of("session_changed")
            await rig.run("again")
            assert len((await rig.data("get_messages"))["messages"]) == 4
            assert len(list((tmp_path / "agent" / "sessions").rglob("*.jsonl"))) == 1

    run(main())


def test_the_one_who_asked_may_be_gone_before_the_other_session_has_begun(tmp_path):
    log, loading, go = [], asyncio.Event(), asyncio.Event()

    async def slow(agent):
        if log:  # not at the start
            loading.set()
            await go.wait()

    async def main():
        async with Rig(tmp_path, ["one"], session=True, extensions=[logger(log), slow]) as rig:
            await rig.run("hello")
            asking = asyncio.create_task(rig.agent.new_session())
            await loading.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            go.set()
            await rig.until("session_changed")
            await rig.run("here")
            assert log == [("session_start", "startup"), ("session_shutdown", "new"), ("session_start", "new")]
            assert rig.roles() == ["user", "assistant(stop)"]

    run(main())


def hangs(agent):
    async def hang(event, ctx):
        await asyncio.Event().wait()

    agent.on("session_shutdown", hang)


def raises(agent):
    agent.on("session_shutdown", lambda event, ctx: 1 / 0)


def no_paths(agent):
    agent.on("resources_discover", lambda event, ctx: 1 / 0)


def no_answer(agent):
    agent.on("resources_discover", lambda event, ctx: {"promptPaths": 7})


def fails_later(agent):
    agent.on("session_shutdown", lambda event, ctx: setattr(fails_later, "left", True))
    if getattr(fails_later, "left", False):
        raise ValueError("not again")


@pytest.mark.parametrize(
    ("bad", "event", "error"),
    [
        (hangs, "session_shutdown", "took longer than"),
        (raises, "session_shutdown", "division by zero"),
        (no_paths, "resources_discover", "division by zero"),
        (no_answer, "resources_discover", "not iterable"),
        (fails_later, "load", "not again"),
    ],
)
@pytest.mark.parametrize("change", ["new_session", "fork", "reload"])
def test_what_breaks_during_a_change_is_told_and_the_agent_is_where_it_should_be(
    tmp_path, monkeypatch, bad, event, error, change
):
    monkeypatch.setattr(limits, "SESSION_SHUTDOWN", 0.05)
    monkeypatch.setattr(fails_later, "left", False, raising=False)
    log = []

    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True, extensions=[bad, logger(log)]) as rig:
            await rig.run("hello")
            before = await rig.data("get_state")
            start = len(rig.frames)
            if change == "reload":
                await rig.agent.reload()
            else:
                entry = (await rig.data("get_fork_messages"))["messages"][0]["entryId"]
                await rig.data(change, **({"entryId": entry} if change == "fork" else {}))
            told = await rig.until(lambda frame: frame["type"] == "extension_error", start)
            assert told["event"] == event and error in told["error"]
            after = await rig.data("get_state")
            assert (after["sessionId"] == before["sessionId"]) is (change == "reload")
            reason = {"new_session": "new"}.get(change, change)
            assert log[-2:] == [("session_shutdown", reason), ("session_start", reason)]
            await rig.run("here")
            assert len(rig.roles()) == (4 if change == "reload" else 2)

    run(main())


def test_a_session_that_is_left_before_it_has_begun_ends_after_its_beginning(tmp_path):
    """And what its extensions find is not for the session that comes after it."""
    log, asked = [], asyncio.Event()
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "only.md").write_text("Text")

    def extension(agent):
        @agent.on("session_start")
        async def begin(event, ctx):
            if event.reason == "startup":
                asked.set()
                await ctx.ui.confirm("Begin?")
            log.append(("begun", event.reason))

        agent.on("session_shutdown", lambda event, ctx: log.append(("ended", event.reason)))

        @agent.on("resources_discover")
        def discover(event, ctx):
            if len(log) == 1:
                return {"promptPaths": [str(tmp_path / "first")]}
            return None

    async def main():
        rig = Rig(tmp_path, ["one"], session=True, extensions=[extension])
        entering = asyncio.create_task(rig.__aenter__())
        await asked.wait()
        await rig.agent.new_session()
        await entering
        assert log == [("begun", "startup"), ("ended", "new"), ("begun", "new")]
        assert (await rig.data("get_commands"))["commands"] == []
        await rig.__aexit__(None)

    run(main())


def test_a_reload_brings_the_providers_of_today(tmp_path):
    versions = iter(["one", "two"])

    def extension(agent):
        version = next(versions)

        async def stream(model, request, options):
            yield version

        settings = {"api": "mine", "base_url": "http://127.0.0.1:1", "api_key": "k"}
        agent.provider("mine", stream=stream, models=[{"id": version}], **settings)

    async def main():
        async with Rig(tmp_path, session=True, extensions=[extension]) as rig:
            await rig.data("set_model", provider="mine", modelId="one")
            await rig.run("hello")
            assert (await rig.data("get_last_assistant_text")) == {"text": "one"}
            await rig.agent.reload()
            mine = [m["id"] for m in (await rig.data("get_available_models"))["models"] if m["provider"] == "mine"]
            assert mine == ["two"]
            await rig.data("set_model", provider="mine", modelId="two")
            await rig.run("hello")
            assert (await rig.data("get_last_assistant_text")) == {"text": "two"}

    run(main())


@pytest.mark.parametrize(("waits", "ends"), [(False, ["handled", "end"]), (True, ["end"])])
def test_an_input_handler_may_send_another_prompt_in_place_of_the_one_it_takes(tmp_path, waits, ends):
    def extension(agent):
        @agent.on("input")
        async def replace(event, ctx):
            if event.source == "extension":
                return None
            await agent.send_user_message(f"instead of {event.text}")
            while waits and not ctx.has_pending_messages:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            return agent.handled()

    async def main():
        async with Rig(tmp_path, ["one"], extensions=[extension]) as rig:
            await rig.run("hello")
            await rig.agent.finished()
            assert rig.roles() == ["user", "assistant(stop)"]
            assert rig.agent.conversation.user_messages()[0][1] == "instead of hello"
            assert [frame.get("stopReason") for frame in rig.of("agent_settled")] == ends
            assert not rig.of("extension_error")

    run(main())
