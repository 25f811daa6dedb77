"""The change to another session: alone, complete, and harmless if it fails."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.sessions import open as sessions
from spindle.sessions.manager import SessionManager
from spindle.sessions.session import Session
from spindle.shapes.messages import text_of
from spindle.testing import Pause

from .rig import Rig, kinds, run, until_true

PLAN = [{"name": "P", "tasks": [{"content": "look"}, {"content": "act"}]}]


def lines(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def slow_extension(*names: str):
    """An extension whose handlers of these events take their time."""

    def extension(agent):
        async def handler(event, ctx):
            await asyncio.sleep(0.02)

        for name in names:
            agent.on(name, handler)

    return extension


async def state(rig: Rig) -> dict:
    return await rig.data("get_state")


def test_a_prompt_sent_along_with_a_change_runs_in_the_new_session(tmp_path):
    async def main():
        slow = slow_extension("session_shutdown", "session_start")
        async with Rig(tmp_path, ["ok"], session=True, extensions=[slow]) as rig:
            await rig.run("in the first")
            first = (await state(rig))["sessionFile"]
            change = rig.send("new_session")
            prompt = rig.send("prompt", message="in the second")
            assert (await rig.response(change))["success"] and (await rig.response(prompt))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            second = (await state(rig))["sessionFile"]
            assert first != second
            assert "in the second" not in Path(first).read_text()
            assert "in the second" in Path(second).read_text()

    run(main())


def test_a_prompt_between_two_changes_is_not_refused(tmp_path):
    async def main():
        slow = slow_extension("session_shutdown", "session_start")
        async with Rig(tmp_path, ["ok"], session=True, extensions=[slow]) as rig:
            await rig.run("first")
            sent = [rig.send("clone"), rig.send("prompt", message="second"), rig.send("clone")]
            assert [(await rig.response(id)).get("error") for id in sent] == [None, None, None]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert "second" in Path((await state(rig))["sessionFile"]).read_text()

    run(main())


def test_changes_at_the_same_time_come_one_after_the_other(tmp_path):
    async def main():
        slow = slow_extension("session_before_switch", "session_shutdown", "session_start")
        async with Rig(tmp_path, ["ok"], session=True, extensions=[slow]) as rig:
            await rig.run("hi")
            ids = [rig.send("new_session") for _ in range(3)]
            ids.append(rig.send("switch_session", sessionPath=str(tmp_path / "named.jsonl")))
            for id in ids:
                assert (await rig.response(id))["success"]
            await rig.run("again")
            where = (await state(rig))["sessionFile"]
            assert "again" in Path(where).read_text()
            assert len(list(tmp_path.rglob("*.lock"))) == 1, "every session that was left is unlocked"

    run(main())


def test_a_session_that_cannot_be_opened_leaves_the_current_one_running(tmp_path):
    async def main():
        bad = tmp_path / "bad.jsonl"
        bad.write_text("this is not a session\n")
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="go"), "y"]}], session=True) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            refused = await rig.call("switch_session", sessionPath=str(bad))
            assert refused["success"] is False and "not a valid pi session" in refused["error"]
            rig.script.release("go")
            await rig.until("agent_settled")
            assert rig.roles() == ["user", "assistant(stop)"]
            assert bad.read_text() == "this is not a session\n"

    run(main())


def test_a_session_that_somebody_else_writes_is_refused(tmp_path):
    async def main():
        taken = SessionManager.create(tmp_path, tmp_path / "theirs")
        taken.append_message({"role": "user", "content": "theirs", "timestamp": 1})
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            await rig.run("mine")
            before = await state(rig)
            refused = await rig.call("switch_session", sessionPath=taken.get_session_file())
            assert refused["success"] is False and "in use" in refused["error"]
            assert (await state(rig))["sessionFile"] == before["sessionFile"]
            taken.close()
            assert (await rig.call("switch_session", sessionPath=taken.get_session_file()))["success"]

    run(main())


def test_a_relative_path_is_relative_to_the_session(tmp_path, monkeypatch):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            monkeypatch.chdir("/")
            await rig.call("switch_session", sessionPath="here.jsonl")
            await rig.run("hi")
            assert (rig.cwd / "here.jsonl").exists()
            assert (await rig.call("switch_session", sessionPath="here.jsonl"))["success"]
            assert rig.roles() == ["user", "assistant(stop)"]

    run(main())


def test_switching_to_the_own_file_reads_it_again(tmp_path):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            await rig.run("hi")
            file = (await state(rig))["sessionFile"]
            os.symlink(file, tmp_path / "link.jsonl")
            for path in (file, str(tmp_path / "link.jsonl")):
                assert (await rig.call("switch_session", sessionPath=path))["success"]
                assert rig.roles() == ["user", "assistant(stop)"]
            await rig.run("more")
            texts = [json.dumps(line) for line in lines(file)]
            assert sum('"more"' in text for text in texts) == 1

    run(main())


@pytest.mark.parametrize(("entry", "level"), [(None, "medium"), ("bogus", "medium"), ("low", "low")])
def test_the_thinking_level_of_a_session_is_used_if_it_tells_one(tmp_path, entry, level):
    async def main():
        other = tmp_path / "other.jsonl"
        entries = [
            {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": str(tmp_path)},
            {
                "type": "message",
                "id": "aaaaaaaa",
                "parentId": None,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "message": {"role": "user", "content": "hi", "timestamp": 1},
            },
        ]
        if entry:
            entries.append(
                {
                    "type": "thinking_level_change",
                    "id": "bbbbbbbb",
                    "parentId": "aaaaaaaa",
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "thinkingLevel": entry,
                }
            )
        other.write_text("".join(json.dumps(line) + "\n" for line in entries))
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            await rig.call("set_thinking_level", level="high")
            assert (await rig.call("switch_session", sessionPath=str(other)))["success"]
            assert (await state(rig))["thinkingLevel"] == level

    run(main())


def test_a_missing_directory_of_a_session_is_told(tmp_path):
    async def main():
        gone = tmp_path / "gone"
        gone.mkdir()
        store = SessionManager.create(gone, tmp_path / "s")
        store.append_message({"role": "user", "content": "hi", "timestamp": 1})
        store.close()
        gone.rmdir()
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            refused = await rig.call("switch_session", sessionPath=store.get_session_file())
            assert "working directory does not exist" in refused["error"]
            assert not Path(store.get_session_file() + ".lock").exists()

    run(main())


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
def test_fork_and_clone(tmp_path, stored):
    async def main():
        async with Rig(tmp_path, ["one", "two", "three"], session=stored) as rig:
            await rig.run("first")
            await rig.run("second")
            before = await state(rig)
            (first, _), (second, _) = rig.agent.conversation.user_messages()
            assert await rig.data("clone") == {"cancelled": False}
            cloned = await state(rig)
            assert cloned["messageCount"] == 4 and cloned["sessionId"] != before["sessionId"]
            second = rig.agent.conversation.user_messages()[1][0]
            assert await rig.data("fork", entryId=second) == {"text": "second", "cancelled": False}
            assert rig.roles() == ["user", "assistant(stop)"]
            first = rig.agent.conversation.user_messages()[0][0]
            assert await rig.data("branch", entryId=first) == {"text": "first", "cancelled": False}
            assert rig.roles() == []
            assert ("sessionFile" in await state(rig)) is stored
            await rig.run("other")
            assert rig.roles() == ["user", "assistant(stop)"]
            if stored:
                header = lines((await state(rig))["sessionFile"])[0]
                assert Path(header["parentSession"]).exists() or "parentSession" in header

    run(main())


def test_queues_and_held_messages_belong_to_their_session(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="never")]}, "ok"], session=True) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("never")
            await rig.call("follow_up", message="never delivered")
            await rig.call("bash", command="echo held")
            first = (await state(rig))["sessionFile"]
            await rig.call("new_session")
            assert (await state(rig))["pendingMessageCount"] == 0
            frames = await rig.run("fresh")
            assert kinds(frames).count("turn_start") == 1
            assert rig.roles() == ["user", "assistant(stop)"]
            assert "echo held" in Path(first).read_text()

    run(main())


def test_a_shell_command_ends_with_its_session_and_is_remembered_there(tmp_path):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            await rig.run("hi")
            first = (await state(rig))["sessionFile"]
            bash = rig.send("bash", command="echo begun; sleep 60")
            await rig.until("bash_execution_update")
            await rig.call("new_session")
            assert (await rig.response(bash))["data"]["cancelled"] is True
            assert rig.roles() == []
            assert '"bashExecution"' in Path(first).read_text()

    run(main())


def test_todos_are_there_from_the_start_and_survive_a_compaction(tmp_path):
    async def main():
        long = "lorem ipsum dolor " * 100
        steps = [
            {"match": "<conversation>", "text": "SUMMARY"},
            {"calls": [{"name": "todo_write", "arguments": {"ops": [{"op": "replace", "phases": PLAN}]}}]},
            {"text": long},
        ]
        settings = {"compaction": {"reserveTokens": 2000, "keepRecentTokens": 300}}
        async with Rig(tmp_path, steps, session=True, settings=settings) as rig:
            rig.agent.set_active_tools(["read", "todo_write"])
            await rig.run("go " + long)
            await rig.run("more " + long)
            assert (await rig.call("compact"))["success"]
            assert "toolResult" not in rig.roles()
            (phase,) = (await state(rig))["todoPhases"]
            assert [task["content"] for task in phase["tasks"]] == ["look", "act"]
            file = (await state(rig))["sessionFile"]
        async with Rig(tmp_path, steps, session=True, open=file) as resumed:
            (phase,) = (await state(resumed))["todoPhases"]
            assert [task["content"] for task in phase["tasks"]] == ["look", "act"]
            assert "todo_write" in [tool["name"] for tool in (await state(resumed))["dumpTools"]]

    run(main())


def test_todos_of_the_client_are_lost_with_a_compaction(tmp_path):
    async def main():
        async with Rig(tmp_path, ["ok"]) as rig:
            await rig.data("set_todos", phases=PLAN)
            rig.agent.hooks.compacted()
            assert (await state(rig))["todoPhases"] == []

    run(main())


# -- the file -----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_is_told_once_and_again_after_a_switch(tmp_path):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            folder = tmp_path / "agent" / "sessions"
            folder.write_text("a file is in the way")
            await rig.run("one")
            await rig.run("two")
            (told,) = rig.of("extension_error")
            assert told["event"] == "session_write" and "cannot be saved" in told["error"]
            assert rig.roles() == ["user", "assistant(stop)"] * 2
            target = tmp_path / "elsewhere" / "s.jsonl"
            await rig.call("switch_session", sessionPath=str(target))
            assert not target.parent.exists()  # nothing is made before there is something to keep
            target.parent.write_text("in the way too")
            await rig.run("three")
            assert len(rig.of("extension_error")) == 2

    run(main())


def test_a_name_is_cleaned_and_never_empty(tmp_path):
    async def main():
        async with Rig(tmp_path, ["ok"]) as rig:
            assert (await rig.call("set_session_name", name=" \n "))["error"] == "Session name cannot be empty"
            await rig.data("set_session_name", name=" two\nlines ")
            assert (await state(rig))["sessionName"] == "two lines"
            assert rig.of("session_info_changed") == [{"type": "session_info_changed", "name": "two lines"}]

    run(main())


def stalled_disk(monkeypatch):
    """Let the disk stand still. Returns events: set to let it go on, and set when it is asked for something."""
    disk, asked = threading.Event(), threading.Event()

    def fsync(descriptor: int) -> None:
        asked.set()
        assert disk.wait(30)

    monkeypatch.setattr(os, "fsync", fsync)
    return disk, asked


async def closes_with(disk: threading.Event, rig: Rig) -> None:
    """The end of the process waits for the disk."""
    closing = asyncio.create_task(rig.agent.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    disk.set()
    await closing


def test_a_slow_disk_holds_up_nobody_but_the_end_of_the_process(tmp_path, monkeypatch):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            disk, asked = stalled_disk(monkeypatch)
            monkeypatch.setattr(limits, "DISK_SYNC", 0.2)
            await rig.run("hi")
            await rig.run("at once")
            await until_true(asked.is_set)
            monkeypatch.undo()
            await closes_with(disk, rig)

    run(main())


def test_an_abort_gives_up_the_wait_of_its_run_for_the_disk_and_not_that_of_the_end_of_the_process(
    tmp_path, monkeypatch
):
    async def main():
        async with Rig(tmp_path, ["ok"], session=True) as rig:
            disk, asked = stalled_disk(monkeypatch)
            going = asyncio.create_task(rig.run("hi"))
            await until_true(lambda: asked.is_set() and len(rig.script.requests) == 1)
            await asyncio.sleep(0.05)  # the run waits for the disk, with the first piece of its answer
            monkeypatch.undo()
            await rig.agent.abort()
            await going
            await closes_with(disk, rig)

    run(main())


def test_the_end_of_a_run_reaches_the_disk_with_the_next_message_or_soon(tmp_path, monkeypatch):
    async def main():
        synced = []

        def fsync(descriptor: int) -> None:
            if os.path.samestat(os.fstat(descriptor), os.stat(rig.agent.session.path)):
                synced.append(len(lines(rig.agent.session.path)))

        async with Rig(tmp_path, ["ok", "ok"], session=True) as rig:
            monkeypatch.setattr(os, "fsync", fsync)
            monkeypatch.setattr(limits, "SYNC_LATER", 0.6)
            await rig.run("one")
            await rig.run("two")
            all_lines = len(lines(rig.agent.session.path))
            assert len(synced) == 2 and all_lines not in synced  # only what the user said
            await until_true(lambda: synced[-1] == all_lines)
            assert len(synced) == 3
            monkeypatch.undo()

    run(main())


def test_a_disk_that_fails_is_told(tmp_path, monkeypatch):
    async def main():
        def fsync(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        async with Rig(tmp_path, ["ok"], session=True) as rig:
            monkeypatch.setattr(os, "fsync", fsync)
            await rig.run("hi")
            assert "Input/output error" in (await rig.until("extension_error"))["error"]
            monkeypatch.undo()

    run(main())


class SlowOpening:
    """Files that take until `go` to be read."""

    def __init__(self, monkeypatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.done: list[Session] = []
        really_open = sessions.load

        def slow_open(*args, **options):
            self.begun.set()
            assert self.go.wait(10)
            self.done.append(really_open(*args, **options))
            return self.done[-1]

        monkeypatch.setattr(sessions, "load", slow_open)


def test_a_file_is_read_beside_the_loop_and_what_is_sent_meanwhile_waits(tmp_path, monkeypatch):
    """A long session takes seconds to read; the control lane does not wait for it, a prompt for that session does."""

    async def main():
        target = str(tmp_path / "other.jsonl")
        async with Rig(tmp_path, ["one", "two", "three"], session=True) as rig:
            await rig.run("here")
            slow = SlowOpening(monkeypatch)
            change = rig.send("switch_session", sessionPath=target)
            await until_true(slow.begun.is_set)
            assert (await rig.call("abort"))["success"]
            prompt, steering = rig.send("prompt", message="there"), rig.send("steer", message="also there")
            assert (await state(rig))["isStreaming"] is True
            slow.go.set()
            for sent in (change, prompt, steering):
                assert (await rig.response(sent))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert rig.roles() == ["user", "user", "assistant(stop)"]
            assert '"also there"' in Path(target).read_text()

    run(main())


@pytest.mark.parametrize("command", ["abort", "abort_and_prompt"])
def test_after_an_abort_a_prompt_that_waits_for_a_change_only_waits(tmp_path, monkeypatch, command):
    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True) as rig:
            slow = SlowOpening(monkeypatch)
            change = rig.send("switch_session", sessionPath=str(tmp_path / "other.jsonl"))
            prompt = rig.send("prompt", message="not any more")
            await until_true(slow.begun.is_set)
            stop = rig.send(command, message="instead")
            await state(rig)  # commands begin in the order in which they come
            slow.go.set()
            assert (await rig.response(change))["success"] and (await rig.response(stop))["success"]
            assert (await rig.response(prompt))["data"] == {"disposition": "queued"}
            await rig.agent.finished()
            said = [text_of(m.content) for m in rig.agent.messages]
            assert said == ([] if command == "abort" else ["instead", "one", "not any more", "two"])
            assert (await state(rig))["queue"]["followUp"] == (["not any more"] if command == "abort" else [])
            assert rig.of("agent_settled")[0]["stopReason"] == "aborted"  # who waits for what comes of it is told

    run(main())


def test_a_prompt_behind_a_change_runs_in_the_other_session_also_if_the_change_ends_a_run(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": [Pause(gate="never")], "match": "first"}, "one"]) as rig:
            rig.send("prompt", message="first")
            await rig.script.reached("never")
            change, prompt = rig.send("new_session"), rig.send("prompt", message="second")
            assert (await rig.response(change))["success"]
            assert (await rig.response(prompt))["data"] == {"disposition": "queued"}
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert [text_of(m.content) for m in rig.agent.messages] == ["second", "one"]

    run(main())


def test_what_is_in_hand_when_the_agent_goes_away_is_answered_and_nothing_begins_any_more(tmp_path, monkeypatch):
    async def main():
        file = tmp_path / "other.jsonl"
        file.write_text(json.dumps({"type": "session", "version": 3, "id": "a", "timestamp": "", "cwd": "/"}) + "\n")
        ran = []

        def extension(agent):
            agent.command("late", help="Too late")(lambda args, ctx: ran.append(args))

        async with Rig(tmp_path, ["one"], session=True, extensions=[extension]) as rig:
            await rig.run("hi")
            slow = SlowOpening(monkeypatch)
            sent = [rig.send("switch_session", sessionPath=str(file)), rig.send("new_session")]
            prompt = rig.send("prompt", message="for later")
            await until_true(slow.begun.is_set)
            before = len(rig.frames)
            await rig.agent.close()
            slow.go.set()
            assert [(await rig.response(id))["error"] for id in sent] == 2 * ["The session has ended"]
            assert (await rig.response(prompt))["data"] == {"disposition": "queued"}
            assert (await rig.until("agent_settled", before))["errorMessage"] == "The session has ended"
            for command in ("new_session", "compact"):
                rig.send(command)
            for text in ("too late", "/late"):
                assert (await rig.call("prompt", message=text))["error"] == "The session has ended"
            assert not ran and len(rig.script.requests) == 1
            kept = next(tmp_path.rglob("*.queue")).read_text()
            assert "for later" in kept and "too late" not in kept

    run(main())


def test_a_prompt_waits_until_extensions_know_the_new_session(tmp_path):
    log = []

    def extension(agent):
        @agent.on("session_start")
        async def started(event, ctx):
            await asyncio.sleep(0.02)
            log.append(event.reason)

        agent.on("input", lambda event, ctx: log.append("input"))

    async def main():
        async with Rig(tmp_path, ["one"], extensions=[extension]) as rig:
            change, prompt = rig.send("new_session"), rig.send("prompt", message="hi")
            assert (await rig.response(change))["success"] and (await rig.response(prompt))["success"]
            await rig.until("agent_settled")
            assert log == ["startup", "new", "input"]

    run(main())


def test_a_session_that_extensions_never_finish_to_begin_can_be_left(tmp_path):
    begun = []

    def extension(agent):
        @agent.on("session_start")
        async def started(event, ctx):
            begun.append(event.reason)
            if len(begun) == 2:
                await asyncio.Event().wait()

    async def main():
        async with Rig(tmp_path, ["one"], extensions=[extension]) as rig:
            first = rig.send("new_session")
            await until_true(lambda: len(begun) == 2)
            prompt, second = rig.send("prompt", message="hi"), rig.send("new_session")
            for sent in (first, second, prompt):
                assert (await rig.response(sent))["success"]
            await rig.until("agent_settled")
            assert begun == ["startup", "new", "new"]

    run(main())


def test_a_change_goes_on_without_the_one_who_asked_for_it(tmp_path, monkeypatch):
    async def main():
        file = tmp_path / "other.jsonl"
        file.write_text(json.dumps({"type": "session", "version": 3, "id": "a", "timestamp": "", "cwd": "/"}) + "\n")
        async with Rig(tmp_path, session=True) as rig:
            slow = SlowOpening(monkeypatch)
            change = asyncio.create_task(rig.agent.switch_session(str(file)))
            await until_true(slow.begun.is_set)
            change.cancel()
            await asyncio.wait([change])
            assert change.cancelled()
            slow.go.set()
            await rig.until("session_changed")  # the change goes on without the one who asked for it
            assert (await state(rig))["sessionFile"] == str(file)
            assert (await rig.call("new_session"))["success"]
            assert not os.path.exists(f"{file}.lock")

    run(main())


def test_what_is_asked_of_a_session_that_is_being_left_is_not_done_in_it(tmp_path):
    leaving, go = asyncio.Event(), asyncio.Event()

    def extension(agent):
        async def hold(event, ctx):
            leaving.set()
            await go.wait()

        agent.on("session_shutdown", hold)

    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True, extensions=[extension]) as rig:
            await rig.run("first")
            await rig.run("second")
            old = Path((await state(rig))["sessionFile"])
            before = old.read_text()
            entry = (await rig.data("get_fork_messages"))["messages"][1]["entryId"]
            change = rig.send("switch_session", sessionPath=str(tmp_path / "other.jsonl"))
            await leaving.wait()
            jump = rig.send("navigate_tree", entryId=entry, label="here")
            fork, clone = rig.send("fork", entryId=entry), rig.send("clone")
            go.set()
            assert (await rig.response(change))["success"]
            assert (await rig.response(jump))["error"] == f"Entry {entry} not found"
            assert (await rig.response(fork))["error"] == "Invalid entry ID for forking"
            assert (await rig.response(clone))["success"]
            assert (await state(rig))["messageCount"] == 0
            assert old.read_text() == before

    run(main())


def test_the_settings_of_another_directory_hold_there(tmp_path):
    """They are read anew with the directory; whoever works by the old ones would not notice."""

    async def main():
        other = tmp_path / "elsewhere"
        other.mkdir()
        file = tmp_path / "other.jsonl"
        header = {"type": "session", "version": 3, "id": "a", "timestamp": "", "cwd": str(other)}
        file.write_text(json.dumps(header) + "\n")
        async with Rig(tmp_path, ["one"], session=True) as rig:
            await rig.run("here")
            changed = {"shellCommandPrefix": "echo prefix", "retry": {"maxRetries": 9}}
            (rig.home / "settings.json").write_text(json.dumps(changed))
            assert (await rig.data("bash", command="pwd"))["output"] == f"{rig.cwd}\n"
            await rig.data("switch_session", sessionPath=str(file))
            assert (await rig.data("bash", command="pwd"))["output"] == f"prefix\n{other}\n"
            assert rig.agent._engine.retry.max_retries == 9
            assert str(other) in (await state(rig))["systemPrompt"]

    run(main())


def test_what_an_extension_puts_away_is_told(tmp_path):
    async def main():
        def extension(agent):
            agent.command("keep")(lambda args, ctx: agent.append_entry("note", {"text": args}))

        async with Rig(tmp_path, extensions=[extension]) as rig:
            assert await rig.data("prompt", message="/keep this") == {"disposition": "handled"}
            told = await rig.until("entry_appended")
            entries = (await rig.data("get_entries"))["entries"]
            assert told["entry"] == entries[-1]
            assert told["entry"]["customType"] == "note" and told["entry"]["data"] == {"text": "this"}

    run(main())


def test_a_long_session_is_counted_once_whoever_asks(tmp_path):
    async def main():
        file = tmp_path / "long.jsonl"
        with SessionManager.open(file, cwd=tmp_path) as store:
            for number in range(3000):
                store.append_message({"role": "user", "content": f"{number}", "timestamp": 1})
        async with Rig(tmp_path, session=True) as rig:
            await rig.data("switch_session", sessionPath=str(file))
            asked = [rig.send("get_session_stats") for _ in range(3)]
            assert [(await rig.response(id))["data"]["userMessages"] for id in asked] == [3000] * 3
            await rig.run("one more")
            assert (await rig.data("get_session_stats"))["userMessages"] == 3001

    run(main())


def test_a_change_is_answered_before_the_prompt_behind_it_begins(tmp_path):
    """Also if extensions have something to do in the new session first."""

    async def main():
        def extension(agent):
            @agent.on("session_start")
            async def begun(event, ctx):
                await asyncio.sleep(0.01)

        async with Rig(tmp_path, ["one", "two"], session=True, extensions=[extension]) as rig:
            await rig.run("hi")
            entry = (await rig.data("get_fork_messages"))["messages"][0]["entryId"]
            for command, fields in (("clone", {}), ("fork", {"entryId": entry}), ("new_session", {})):
                start = len(rig.frames)
                change, prompt = rig.send(command, **fields), rig.send("prompt", message="go")
                assert (await rig.response(change))["success"] and (await rig.response(prompt))["success"]
                await rig.until("agent_settled", start)
                order = [frame.get("id", frame["type"]) for frame in rig.frames[start:]]
                assert order.index(change) < order.index("agent_start")

    run(main())


def test_a_prompt_that_is_kept_when_the_agent_goes_away_ends_after_the_run(tmp_path, monkeypatch):
    async def main():
        async with Rig(tmp_path, [{"text": [Pause(gate="never")]}], session=True) as rig:
            rig.send("prompt", message="first")
            await rig.script.reached("never")
            slow = SlowOpening(monkeypatch)
            rig.send("switch_session", sessionPath=str(tmp_path / "other.jsonl"))
            rig.send("prompt", message="second")
            await until_true(slow.begun.is_set)
            slow.go.set()
            await rig.agent.close()
            told = [kind for kind in kinds(rig.frames) if kind in ("agent_start", "agent_end", "agent_settled")]
            assert told == ["agent_start", "agent_end", "agent_settled", "agent_settled"]

    run(main())


def test_a_command_behind_a_change_is_none_of_the_messages(tmp_path, monkeypatch):
    """It runs beside the prompt before it. After an abort it is refused, which ends no run."""

    async def main():
        ran = []

        def extension(agent):
            agent.command("note", help="Note")(lambda args, ctx: ran.append(args))

        gated = {"text": [Pause(gate="go"), "done"]}
        async with Rig(tmp_path, [gated], session=True, extensions=[extension]) as rig:
            slow = SlowOpening(monkeypatch)
            rig.send("switch_session", sessionPath=str(tmp_path / "other.jsonl"))
            rig.send("prompt", message="first"), rig.send("prompt", message="/note it")
            await until_true(slow.begun.is_set)
            slow.go.set()
            await rig.script.reached("go")
            await until_true(lambda: ran == ["it"])
            assert len(rig.agent.queues) == 0
            slow = SlowOpening(monkeypatch)
            rig.send("switch_session", sessionPath=str(tmp_path / "third.jsonl"))
            kept, stop = rig.send("prompt", message="/note that"), rig.send("abort")
            prompt = rig.send("prompt", message="again")
            await until_true(slow.begun.is_set)
            slow.go.set()
            assert all([(await rig.response(id))["success"] for id in (kept, stop, prompt)])
            assert "cannot be queued" in (await rig.until("notice"))["message"]
            rig.script.release("go")
            await rig.agent.finished()
            assert ran == ["it"] and rig.of("agent_settled")[-1]["stopReason"] == "end"

    run(main())
