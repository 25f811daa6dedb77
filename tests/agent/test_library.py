"""Commands of clients around a session: messages that wait, sessions on disk, files, and the ids of entries."""

import base64
from pathlib import Path
from types import SimpleNamespace

from spindle.agent import AgentError, library
from spindle.sessions.open import create, in_memory
from spindle.shapes.messages import UserMessage

from .rig import Rig, run, slow_tool


def test_messages_say_where_they_are_stored(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"calls": [{"name": "slow"}]}, "k"], tools=[slow_tool(seconds=0)]) as rig:
            frames = await rig.run("hi")
            told = [(f["message"]["role"], f["entryId"]) for f in frames if f["type"] == "message_end"]
            entries = (await rig.data("get_entries"))["entries"]
            assert told == [(e["message"]["role"], e["id"]) for e in entries if e["type"] == "message"]

    run(main())


def test_messages_that_wait_are_changed_by_id(tmp_path):
    async def main():
        async with Rig(tmp_path, ["one", "two", "three"], session=True) as rig:
            for text in ("a", "b", "c"):
                await rig.call("follow_up", message=text)
            items = (await rig.data("get_state"))["queueItems"]
            assert [(item["kind"], item["text"]) for item in items] == [("followUp", text) for text in "abc"]
            first, second, third = (item["id"] for item in items)
            assert await rig.data("remove_queued", queuedId=first) == {"kind": "followUp", "text": "a", "images": []}
            await rig.call("edit_queued", queuedId=second, message="b, changed")
            gone = await rig.call("edit_queued", queuedId=first, message="x")
            assert (gone["success"], gone["error"]) == (False, "This message does not wait any more")
            await rig.call("send_queued", queuedId=third)  # nothing runs: it begins, and the other follows
            await rig.until("agent_settled")
            said = [
                m["content"][0]["text"] for m in (await rig.data("get_messages"))["messages"] if m["role"] == "user"
            ]
            assert said == ["c", "b, changed"]
            assert not (await rig.call("send_queued", queuedId=third))["success"]

    run(main())


def test_sessions_are_searched_and_deleted(tmp_path):
    async def main():
        async with Rig(tmp_path, ["It was a Wombat, they say.", "k"], session=True) as rig:
            await rig.run("what was it?")
            first = rig.agent.session
            path = Path(first.path)
            found = (await rig.data("search_sessions", query="wombat was"))["sessions"]
            (hit,) = found
            assert hit["session"] == (await rig.data("list_sessions"))["sessions"][0]
            assert (hit["id"], hit["snippet"]) == (first.id, "It was a Wombat, they say.")
            assert hit["entryId"] == first.branch()[-2].id
            await rig.call("set_session_name", name="Marsupials of note")
            (named,) = (await rig.data("search_sessions", query="note marsupials"))["sessions"]
            assert (named["snippet"], named["entryId"]) == ("Marsupials of note", None)
            assert (await rig.data("search_sessions", query="wombat koala"))["sessions"] == []
            assert await rig.data("delete_session") == {"cancelled": False}
            assert not path.exists() and rig.agent.session.id != first.id
            assert (await rig.data("search_sessions", query="wombat"))["sessions"] == []

    run(main())


def test_text_is_found_in_all_that_the_branch_says(tmp_path):
    async def main():
        steps = [{"calls": [{"name": "slow", "arguments": {"note": ['Ärger mit "a\\b"']}}]}, "Ärger, Ärger", "other"]
        async with Rig(tmp_path, steps, tools=[slow_tool(seconds=0)]) as rig:
            await rig.run("Kein ärger")
            entries = (await rig.data("get_entries"))["entries"]
            counts = [("user", 1), ("assistant", 1), ("assistant", 2)]

            async def find(text):
                found = (await rig.data("find_text", text=text))["found"]
                roles = {entry["id"]: entry["message"]["role"] for entry in entries if "message" in entry}
                return [(roles[one["entryId"]], one["count"]) for one in found]

            assert await find(" ÄRGER ") == counts
            assert await find('"A\\B"') == [("assistant", 1)]
            assert await find("note") == []  # a key is not shown as text
            assert await find("  ") == []
            first = next(entry["id"] for entry in entries if entry["type"] == "message")
            await rig.call("navigate_tree", entryId=first)
            await rig.run("something else")
            assert await find("ärger") == []  # on another branch

    run(main())


def test_the_model_names_a_session(tmp_path):
    async def main():
        title = {"text": ' \n**"Feeding the wombat."**\n', "usage": {"input": 7, "output": 5}}
        async with Rig(tmp_path, ["Fine.", title, "x"], session=True) as rig:
            assert "no conversation" in (await rig.call("make_session_name"))["error"]
            await rig.run("feed the wombat")
            assert await rig.data("make_session_name") == {"name": "Feeding the wombat"}
            assert (await rig.data("get_state"))["sessionName"] == "Feeding the wombat"
            stats = await rig.data("get_session_stats")
            assert (stats["tokens"]["total"], stats["totalMessages"]) == (12, 2)
            await rig.call("prompt", message="go")
            assert "nothing runs" in (await rig.call("make_session_name"))["error"]
            await rig.until("agent_settled")

    run(main())


def test_lists_and_searches_come_by_the_page(tmp_path):
    async def main():
        async with Rig(tmp_path, ["One.", "Two.", "Three."], session=True) as rig:
            for text in ("first wombat", "second wombat", "a koala"):
                await rig.call("new_session")
                await rig.run(text)
            page = await rig.data("list_sessions", limit=2)
            rest = await rig.data("list_sessions", limit=2, cursor=page["nextCursor"])
            said = [one["firstMessage"] for one in (*page["sessions"], *rest["sessions"])]
            assert said == ["a koala", "second wombat", "first wombat"]
            assert "nextCursor" not in rest
            changed = await rig.data("list_sessions", changedSince=page["asOf"])
            assert [one["firstMessage"] for one in changed["sessions"]] == ["a koala"]
            found = await rig.data("search_sessions", query="wombat", limit=1)
            more = await rig.data("search_sessions", query="wombat", limit=1, cursor=found["nextCursor"])
            assert [one["snippet"] for one in (*found["sessions"], *more["sessions"])] == said[1:]
            assert "cursor that came with" in (await rig.call("list_sessions", cursor="x"))["error"]
            assert "at least 1" in (await rig.call("search_sessions", query="wombat", limit=0))["error"]

    run(main())


def test_sessions_of_other_directories_are_listed_where_sessions_may_work(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    places = [tmp_path / name for name in ("here", "there", "forbidden", "gone")]
    for place in places:
        place.mkdir()
        kept = create(place)
        kept.append_message(UserMessage(content=f"from {place.name}, about wombats", timestamp=1))
        kept.close()
    places[3].rmdir()
    agent = SimpleNamespace(cwd=str(places[0]), session=create(places[0]))

    def refuse(cwd):
        if cwd == str(places[2]):
            raise AgentError("not there")

    agent.check_place = refuse

    async def main():
        own = (await library.stored_sessions(agent)).sessions
        assert [info.first_message for info in own] == ["from here, about wombats"]
        found = (await library.stored_sessions(agent, everywhere=True)).sessions
        assert {info.cwd for info in found} == {str(places[0]), str(places[1])}
        assert len((await library.search_sessions(agent, "wombats there"))[0]) == 0
        assert len((await library.search_sessions(agent, "wombats there", everywhere=True))[0]) == 1
        agent.session = in_memory(places[0])
        for everywhere in (False, True):
            assert (await library.stored_sessions(agent, everywhere)).sessions == []

    run(main())


def test_files_are_kept_and_completed(tmp_path):
    async def main():
        async with Rig(tmp_path, session=True) as rig:
            path = (await rig.data("upload_file", name="../../a b;c.txt", data=base64.b64encode(b"hi").decode()))[
                "path"
            ]
            assert Path(path).read_bytes() == b"hi" and Path(path).name == "a b_c.txt"
            assert Path(path).is_relative_to(rig.home)
            bad = await rig.call("upload_file", name="x", data="*")
            assert (bad["success"], bad["error"]) == (False, "The file is not base64")
            (rig.cwd / "src").mkdir()
            for name in ("src/parser.py", "src/lexer.py", "parse.md"):
                (rig.cwd / name).write_text("")
            assert (await rig.data("complete_path", prefix="pars"))["paths"] == ["parse.md", "src/parser.py"]
            assert (await rig.data("complete_path", prefix="slex"))["paths"] == ["src/lexer.py"]
            (rig.cwd / "src" / "sub").mkdir()
            for typed, found in {
                "./s": ["./src/"],
                "./src/": ["./src/lexer.py", "./src/parser.py", "./src/sub/"],
                f"{rig.cwd}/pa": [f"{rig.cwd}/parse.md"],
                f"../{rig.cwd.name}/pa": [f"../{rig.cwd.name}/parse.md"],
                "/nowhere/": [],
            }.items():
                assert (await rig.data("complete_path", prefix=typed))["paths"] == found

    run(main())
