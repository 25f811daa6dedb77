"""The pool of live sessions, with agents as the command line makes them."""

import asyncio
import gc
import json
import threading
import weakref

import pytest

from spindle.agent import AgentError
from spindle.apps.cli.agent_source import CommandLineAgents
from spindle.apps.cli.args import parse
from spindle.base import limits as times
from spindle.protocol.pool import PoolBounds, SessionPool, TooManySessions, UnknownSession
from spindle.protocol.registry import WantedSession
from tests.agent.rig import run, until_true


class Viewer:
    answers = True
    busy = False
    watches = False

    def __init__(self, *, holds=True):
        self.holds = holds
        self.ended = []

    def session_ended(self, live, reason):
        self.ended.append((live.handle, reason))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project that the process was started in, beside two others; the model says what it is told to."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    for name in ("here", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "script.json").write_text(json.dumps([{"text": "first"}, {"text": "second"}]))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def pool_of(place, *args, roots=(), **limits):
    options = parse(["--model", f"scripted/{place}/script.json", *args])
    return SessionPool(CommandLineAgents(options, "rpc", roots=roots), PoolBounds(**limits))


async def say(live, text="hi"):
    await live.agent.submit(text)
    await live.agent.wait_idle()


def test_each_session_has_its_own_directory_settings_and_extensions(place):
    (place / "one" / ".pi" / "extensions").mkdir(parents=True)
    (place / "one" / ".pi" / "settings.json").write_text('{"steeringMode": "all"}')
    (place / "one" / ".pi" / "extensions" / "hello.py").write_text(
        "def extension(agent):\n    @agent.command('hello')\n    async def hello(args, ctx): ...\n"
    )

    async def main():
        pool = pool_of(place, "--approve")
        one = await pool.open(WantedSession(cwd=str(place / "one"), name="the first"))
        two = await pool.open(WantedSession(cwd=str(place / "two")))
        assert [live.agent.cwd for live in pool] == [str(place / "one"), str(place / "two")]
        assert [live.agent.state().steering_mode for live in pool] == ["all", "one-at-a-time"]
        assert "hello" in [item.name for item in one.agent.commands()]
        assert "hello" not in [item.name for item in two.agent.commands()]
        one.agent.host_tools.declare([{"name": "mine", "description": "d", "parameters": {"type": "object"}}])
        assert "mine" not in [tool.name for tool in two.agent.toolbox.all()]
        assert (await one.info()).name == "the first"
        await pool.close()
        assert len(pool) == 0

    run(main())


def test_a_stored_session_is_found_by_id_from_any_directory_and_by_path(place):
    async def main():
        pool = pool_of(place)
        live = await pool.open(WantedSession(cwd=str(place / "one")))
        await say(live)
        id, path = live.session_id, str(live.agent.session.path)
        await pool.close_session(live)
        assert len(pool) == 0
        again = await pool.get(id)
        assert again.agent.cwd == str(place / "one") and again.handle == id
        assert await pool.open(WantedSession(session=path)) is again
        assert await pool.open(WantedSession(session=id, cwd=str(place / "two"))) is again
        with pytest.raises(UnknownSession, match="No session nothing"):
            await pool.get("nothing")
        await pool.close()

    run(main())


def test_a_handle_stays_when_the_conversation_goes_on_in_another_file(place):
    async def main():
        pool = pool_of(place)
        live = await pool.open(WantedSession())
        await say(live)
        handle = live.handle
        await live.agent.new_session()
        await say(live)
        assert live.handle == handle != live.session_id
        assert await pool.get(handle) is live and await pool.get(live.session_id) is live
        older = await pool.open(WantedSession(session=handle))  # the conversation of that id is another one by now
        assert older is not live and older.session_id == handle and older.handle != handle
        await pool.close_session(older)
        second = live.session_id
        await pool.close_session(live)
        assert (await pool.get(handle)).session_id == second
        assert [live.handle for live in pool] == [handle]
        await pool.close()

    run(main())


async def moved(pool):
    """Return the handle of a session that was closed in another conversation than it began with, and both ids."""
    live = await pool.open(WantedSession())
    await say(live)
    first = live.session_id
    await live.agent.new_session()
    await say(live)
    await pool.close_session(live)
    return live.handle, first, live.session_id


def test_a_closed_handle_is_kept_for_its_conversation_however_it_is_opened(place):
    """In the same moment, one after the other, and whichever comes first."""

    async def main():
        pool = pool_of(place)
        handle, first, second = await moved(pool)
        older, again, direct = await asyncio.gather(
            pool.open(WantedSession(session=first)), pool.get(handle), pool.open(WantedSession(session=second))
        )
        assert (again.handle, again.session_id) == (handle, second) and direct is again
        assert older.session_id == first and older.handle != handle
        await pool.close_session(again)
        assert (await pool.get(handle)).session_id == second  # while the other one is alive under its id
        await pool.close()

    run(main())


def test_a_handle_whose_session_went_back_to_where_it_began(place):
    async def main():
        pool = pool_of(place)
        handle, first, second = await moved(pool)
        path = str((await pool.open(WantedSession(session=first))).agent.session.path)
        for live in pool:
            await pool.close_session(live)
        live = await pool.get(handle)
        assert live.session_id == second
        await live.agent.switch_session(path)
        await pool.close_session(live)
        assert (await pool.get(handle)).session_id == first
        await pool.close()

    run(main())


def test_an_id_that_another_client_has_opened_and_left_meanwhile(place, monkeypatch):
    """A handle means what it names, also if that is opened while it is looked up."""

    async def main():
        pool = pool_of(place)
        live = await pool.open(WantedSession())
        await say(live)
        id = live.session_id
        await pool.close_session(live)
        here, go, find = asyncio.Event(), threading.Event(), CommandLineAgents.find
        loop = asyncio.get_running_loop()

        def slow(self, *given):
            loop.call_soon_threadsafe(here.set)
            go.wait(10)
            return find(self, *given)

        monkeypatch.setattr(CommandLineAgents, "find", slow)
        late = asyncio.create_task(pool.get(id))
        await here.wait()
        monkeypatch.setattr(CommandLineAgents, "find", find)
        quick = await pool.get(id)
        await quick.agent.new_session()
        go.set()
        assert await late is quick and quick.handle == id
        await pool.close()

    run(main())


def test_one_that_cannot_be_opened_harms_no_other(place):
    (place / "two" / "broken.jsonl").write_text('{"not": "a session"}\n')

    async def main():
        pool = pool_of(place, roots=[str(place)])
        live = await pool.open(WantedSession())
        bad = [
            WantedSession(cwd=str(place / "missing")),
            WantedSession(cwd="/"),
            WantedSession(session=str(place / "two" / "broken.jsonl")),
            WantedSession(model="no/such-model"),
        ]
        failed = await asyncio.gather(*(pool.open(wanted) for wanted in bad), return_exceptions=True)
        assert all(isinstance(error, Exception) for error in failed)
        assert "no directory" in str(failed[0]) and f"allowed: {place}" in str(failed[1])
        await say(live)
        assert live.agent.conversation.last_assistant_text() == "first" and list(pool) == [live]
        await pool.close()

    run(main())


def test_sessions_do_not_wait_for_each_other(place):
    (place / "one" / ".pi" / "extensions").mkdir(parents=True)
    (place / "one" / ".pi" / "extensions" / "slow.py").write_text(
        "import asyncio\n\nasync def extension(agent):\n    await asyncio.sleep(60)\n"
    )

    async def main():
        pool = pool_of(place, "--approve")
        slow = asyncio.create_task(pool.open(WantedSession(cwd=str(place / "one"))))
        await asyncio.sleep(0)
        live = await pool.open(WantedSession(cwd=str(place / "two")))
        await say(live)
        assert not slow.done()
        slow.cancel()
        await pool.close()

    run(main())


def test_two_clients_open_one_file_together(place):
    async def main():
        pool = pool_of(place)
        live = await pool.open(WantedSession())
        await say(live)
        id, path = live.session_id, str(live.agent.session.path)
        await pool.close_session(live)
        one, two = await asyncio.gather(pool.get(id), pool.open(WantedSession(session=path)))
        assert one is two
        await pool.close()

    run(main())


def test_a_session_that_is_not_used_leaves_memory_and_its_id_still_works(place):
    async def main():
        pool, viewer = pool_of(place, keep_seconds=0.05), Viewer(holds=False)
        used = await pool.open(WantedSession(), Viewer())
        live = await pool.open(WantedSession(), viewer)
        unsaved = await pool.open(WantedSession(), viewer)
        await say(live, "remember me")
        await until_true(lambda: len(pool) == 2)
        assert viewer.ended == [(live.handle, "idle")]
        assert list(pool) == [used, unsaved]  # the one is held, the other is nowhere else
        again = await pool.get(live.handle, viewer)
        assert "remember me" in str(again.agent.messages)
        await pool.close()

    run(main())


def test_the_id_of_a_session_that_left_memory_before_anything_was_said_still_works(place):
    async def main():
        pool, viewer = pool_of(place, keep_seconds=0.01), Viewer()
        handle = (await pool.open(WantedSession(cwd=str(place / "one"), name="thinking"))).handle
        await until_true(lambda: not len(pool))
        live, same, too = await asyncio.gather(
            pool.get(handle, viewer), pool.get(handle, viewer), pool.open(WantedSession(id=handle), viewer)
        )
        assert live is same is too and live.handle == live.session_id == handle
        assert live.agent.cwd == str(place / "one") and live.agent.session.name == "thinking"
        await say(live)
        await live.agent.new_session()
        empty = live.session_id
        pool.leave(viewer, live)
        await until_true(lambda: not len(pool))
        live = await pool.get(handle, viewer)  # it was left in an empty conversation
        assert (live.handle, live.session_id) == (handle, empty)
        await pool.close_session(live)
        with pytest.raises(UnknownSession):  # ended by a client, there is nothing of it
            await pool.get(empty)
        await pool.close()

    run(main())


def test_a_session_that_a_client_ended_in_an_empty_conversation_is_opened_where_it_began(place):
    async def main():
        pool = pool_of(place)
        for text in ("", "said"):  # first there is no file with its id, then there is
            live = await pool.open(WantedSession(id="mine"))
            if text:
                await say(live)
            await live.agent.new_session()
            await pool.close_session(live)
            again = await asyncio.gather(*(pool.open(WantedSession(id="mine")) for _ in range(3)))
            assert [live.handle for live in pool] == ["mine"] and again[0].session_id == "mine"
            assert len(again[0].agent.messages) == (2 if text else 0)
            await pool.close_session(again[0])
        await pool.close()

    run(main())


def test_a_session_at_work_stays_without_clients(place):
    (place / "script.json").write_text(json.dumps([{"text": "slow", "delay": 30}]))

    async def main():
        pool = pool_of(place, keep_seconds=0.05)
        live = await pool.open(WantedSession())
        await live.agent.submit("go")
        await asyncio.sleep(0.2)
        assert list(pool) == [live]
        await pool.close()

    run(main())


def test_there_are_no_more_sessions_than_allowed(place):
    async def main():
        pool = pool_of(place, max_sessions=2)
        held = await pool.open(WantedSession(), Viewer())
        await pool.open(WantedSession())
        third = await pool.open(WantedSession(), Viewer())  # the second makes way
        assert list(pool) == [held, third]
        with pytest.raises(TooManySessions, match="2 sessions are open"):
            await pool.open(WantedSession())
        await pool.close()

    run(main())


def test_a_client_that_goes_away_while_its_session_is_opened_is_not_counted(place):
    async def main():
        pool, viewer = pool_of(place, keep_seconds=0.05), Viewer()
        opening = asyncio.create_task(pool.open(WantedSession(), viewer))
        await asyncio.sleep(0)
        opening.cancel()
        await until_true(lambda: len(pool) == 1)
        await asyncio.sleep(0)
        assert not next(iter(pool)).clients
        await until_true(lambda: not len(pool))
        await pool.close()

    run(main())


def test_a_client_that_leaves_a_session_that_has_ended(place, monkeypatch):
    """Nothing of it is used any more once it is taken apart."""
    monkeypatch.setattr(times, "CLIENT_RETURN", 0.01)

    async def main():
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        pool, viewer = pool_of(place), Viewer()
        live = await pool.open(WantedSession(), viewer)
        await pool.close_session(live)
        pool.leave(viewer, live)
        await asyncio.sleep(0.05)
        assert not complaints
        await pool.close()

    run(main())


def test_an_extension_that_breaks_at_the_end_does_not_keep_the_file(place, caplog):
    (place / "one" / ".pi" / "extensions").mkdir(parents=True)
    (place / "one" / ".pi" / "extensions" / "stops.py").write_text(
        "import asyncio\n\ndef extension(agent):\n    @agent.on('agent_start')\n"
        "    async def stop(event, ctx):\n        asyncio.get_running_loop().stop()\n"
    )

    async def main():
        pool = pool_of(place, "--approve")
        live = await pool.open(WantedSession(cwd=str(place / "one")))
        await say(live)
        await pool.close_session(live)
        assert not caplog.records
        broken = await pool.open(WantedSession(session=live.session_id))
        broken.agent.plugins.close = lambda: asyncio.to_thread(int, "no number")
        await pool.close_session(broken)
        assert "did not end cleanly" in caplog.text
        assert (await pool.get(live.handle)).agent.messages
        await pool.close()

    run(main())


def test_an_extension_ends_its_own_session_only(place):
    async def main():
        pool, viewer = pool_of(place), Viewer()
        one, two = await pool.open(WantedSession(), viewer), await pool.open(WantedSession())
        one.agent.shutdown_requested.set()
        await until_true(lambda: len(pool) == 1)
        assert viewer.ended == [(one.handle, "an extension ended the session")] and list(pool) == [two]
        with pytest.raises(AgentError):
            await pool.get(one.handle)
        await pool.close()

    run(main())


def test_an_ended_session_is_freed_at_once(place):
    """Not when the garbage collector gets to its oldest objects."""

    async def main():
        pool, ended = pool_of(place), []
        gc.collect()
        gc.disable()
        for _ in range(5):
            live = await pool.open(WantedSession(), viewer := Viewer())
            await say(live)
            agent = live.agent
            ended += map(weakref.ref, (live, agent, agent._engine, agent.conversation, agent.session))
            pool.leave(viewer, live)
            await pool.close_session(live)
        del live, agent
        await until_true(lambda: not any(item() for item in ended))
        await pool.close()

    try:
        run(main())
    finally:
        gc.enable()
