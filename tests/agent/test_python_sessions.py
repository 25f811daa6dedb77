"""Sessions of a Python program: going on by id, lists, names, and errors that say which session was not found."""

from pathlib import Path

import pytest

import spindle
from spindle import Agent, AgentError, InvalidSession, SessionError, SessionLocked, SessionNotFound
from spindle.testing import Script

from .rig import run


def script(*answers: str) -> dict:
    return {"model": Script(answers or ["ok"]).model()}


async def told(home: Path, text: str = "remember 42", **options) -> str:
    """Return the id of a stored session with one message."""
    async with Agent.create(cwd=home, **script(), **options) as agent:
        await agent.ask(text)
        return agent.id


def test_an_id_is_known_at_once_and_goes_on(home, monkeypatch):
    async def main():
        async with Agent.create(cwd=home, **script()) as agent:
            first = agent.id
            assert (await agent.run("remember 42")).session_id == first
            file = agent.session_file
        for name in (first, first[:-3], str(file), file):
            async with Agent.open(name, **script()) as agent:
                assert (agent.id, agent.cwd, len(agent.messages)) == (first, str(home), 2)
        async with Agent.create(session=first, **script()) as agent:
            assert (agent.id, agent.cwd, len(agent.messages)) == (first, str(home), 2)
            await agent.ask("more")
        assert await spindle.ask("and more", session=first, **script("three")) == "three"
        async with Agent.open(first, **script()) as agent:
            assert len(agent.messages) == 6

    monkeypatch.chdir(home)
    run(main())


def test_what_is_not_there_is_said_with_near_names_and_writes_nothing(home, monkeypatch):
    async def main():
        known = await told(home)
        before = set(home.rglob("*"))
        wrong = known[:-1] + ("0" if known[-1] != "0" else "1")
        for name in (wrong, "README.md", "", "talk.jsonl", Path("README.md")):
            for opening in (Agent.open(name, **script()), Agent.create(session=name, **script())):
                with pytest.raises(SessionNotFound) as caught:
                    await opening
                assert isinstance(caught.value, AgentError)
                assert (f"Did you mean {known}?" in str(caught.value)) is (name == wrong)
        assert set(home.rglob("*")) == before
        (home / "README.md").write_text("# no session\n")
        with pytest.raises(InvalidSession) as invalid:
            await Agent.open(home / "README.md", **script())
        assert isinstance(invalid.value, AgentError)
        with pytest.raises(TypeError, match="session must be an id, the path of a file or a Session, not 5"):
            await Agent.create(session=5)

    monkeypatch.chdir(home)
    run(main())


def test_a_beginning_of_two_ids_and_a_session_in_use(home):
    async def main():
        known = [await told(home) for _ in range(2)]
        with pytest.raises(SessionError, match="Several sessions match '0'"):
            await Agent.create(session="0", cwd=home)
        async with Agent.open(known[0], **script()) as agent:
            with pytest.raises(SessionLocked) as caught:
                await Agent.open(agent.id, **script())
            assert isinstance(caught.value, AgentError)

    run(main())


def test_a_file_of_ones_own(home):
    async def main():
        file = home / "talks" / "anna.jsonl"
        for length in (2, 4):
            async with Agent.create(cwd=home, session_file=file, **script()) as agent:
                await agent.ask("hi")
                assert (agent.session_file, len(agent.messages)) == (file, length)
        with pytest.raises(AgentError, match="session and session_file exclude each other"):
            await Agent.create(session="x", session_file=file)

    run(main())


def test_lists_come_by_the_page(home, tmp_path):
    async def main():
        known = [await told(home, f"number {number} of many") for number in range(5)]
        seen, cursor = [], None
        while True:
            page = await Agent.list(home, limit=2, cursor=cursor)
            assert len(page.sessions) <= 2
            seen += [info.id for info in page.sessions]
            if (cursor := page.cursor) is None:
                break
        assert sorted(seen) == sorted(known) and len(seen) == 5
        assert [info.first_message for info in (await Agent.list(home, limit=5)).sessions][-1] == "number 0 of many"
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        assert (await Agent.list(elsewhere)).sessions == []
        assert len((await Agent.list(elsewhere, everywhere=True)).sessions) == 5
        for wrong in ({"limit": 0}, {"cursor": "nonsense"}):
            with pytest.raises(AgentError):
                await Agent.list(home, **wrong)
        found = await Agent.search("number MANY", home, limit=3)
        assert len(found.found) == 3 and "number" in found.found[0].snippet
        rest = await Agent.search("number MANY", home, cursor=found.cursor)
        assert (len(rest.found), rest.cursor) == (2, None)
        assert not (await Agent.search("nothing of the kind", home)).found

    run(main())


def test_a_stored_session_is_named_and_deleted(home):
    async def main():
        known = await told(home)
        await Agent.rename(known, "The answer", home)
        async with Agent.open(known, **script()) as agent:
            assert agent.name == "The answer"
            with pytest.raises(SessionLocked):
                await Agent.delete(known, home)
            agent.set_name("Another name")
        (info,) = (await Agent.list(home)).sessions
        assert info.name == "Another name"
        await Agent.delete(known[:-2], home)
        assert not (await Agent.list(home)).sessions
        for gone in (Agent.delete(known, home), Agent.rename(known, "x", home)):
            with pytest.raises(SessionNotFound):
                await gone

    run(main())


def test_a_repaired_copy_has_an_id_of_its_own(home):
    from spindle.sessions.repair import repair_copy

    async def main():
        known = await told(home)
        (info,) = (await Agent.list(home)).sessions
        repair_copy(Path(info.path), Path(info.path).with_suffix(".repaired.jsonl"), str(home))
        async with Agent.open(known, **script()) as agent:
            assert str(agent.session_file) == info.path
        assert len({item.id for item in (await Agent.list(home)).sessions}) == 2

    run(main())


def test_a_question_that_waits_is_answered_by_another_agent_and_the_run_goes_on(home):
    call = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "hello"}}]}
    options = {"permission_mode": "default", "on_question": "wait"}

    async def main():
        async with Agent.create(cwd=home, model=Script([call]).model(), **options) as agent:
            result = await agent.run("go")
            assert result.status == "waiting"
            known, question = agent.id, result.questions[0].id
        async with Agent.open(known, model=Script(["written"]).model(), **options) as agent:
            waiting = agent.interrupted_run
            assert waiting is not None and [one.id for one in waiting.questions] == [question]
            with pytest.raises(TypeError, match="answer must be Allow or Deny or bool or str, not None"):
                await agent.answer_question(question, None)
            assert await agent.answer_question(question, True)
            kinds = [event.type async for event in agent.resume_run()]
            assert kinds[-1] == "agent_settled" and (home / "a.txt").read_text() == "hello"
            assert agent.interrupted_run is None and agent.messages[-1].content[0].text == "written"
            for nothing in (agent.abandon_run, agent.resume_run):
                with pytest.raises(AgentError):
                    await nothing()

    run(main())


def test_an_agent_without_asyncio_goes_on_with_a_run_too(home):
    call = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "hello"}}]}
    options = {"cwd": home, "permission_mode": "default", "on_question": "wait"}
    with Agent.sync(model=Script([call]).model(), **options) as agent:
        result = agent.run("go").result()
    with Agent.sync(model=Script(["kept as it was"]).model(), session=agent.id, **options) as agent:
        assert agent.answer_question(result.questions[0].id, "not today")
        assert "not today" in agent.resume_run().result().denials[0].reason and not (home / "a.txt").exists()
        assert agent.mcp_servers == []
