"""Agents whose sessions are in PostgreSQL: in Python, on the command line, and as files for pi."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.sessions import SessionManager
from spindle.sessions.store import SessionHeld, open_store
from spindle.testing import Script
from tests.support import postgres

NO_NODES = ["--exclude-table-data=spindle_nodes"]
"""Leases end with their nodes: in a copy of the database nobody has any."""


def in_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def scripted(*texts: str) -> Any:
    return {"model": Script([{"text": text} for text in texts]).model(), "hermetic": True}


@in_loop
async def test_an_agent_goes_on_in_another_process_with_its_id(tmp_path: Path) -> None:
    address = postgres.database()
    async with Agent.create(store=address, session="talk", cwd=tmp_path, **scripted("one")) as agent:
        assert await agent.ask("first") == "one"
        assert agent.session_file is None
        with pytest.raises(SessionHeld, match="in use"):
            await Agent.create(store=address, session="talk", cwd=tmp_path, **scripted("none"))
    async with Agent.create(store=address, session="talk", **scripted("two")) as agent:
        assert agent.cwd == str(tmp_path)
        assert await agent.ask("second") == "two"
    found = open_store(address).load("talk")
    assert found is not None
    said = [json.loads(line) for line in found.lines]
    assert [one["message"]["role"] for one in said if one["type"] == "message"] == ["user", "assistant"] * 2
    states = [one["data"]["state"] for one in said if one.get("customType") == "spindle.run"]
    assert states == ["begun", "ended"] * 2
    assert list(tmp_path.iterdir()) == []


@in_loop
async def test_a_store_that_comes_back_gets_everything(tmp_path: Path) -> None:
    """Connections that the server cuts are told of and repaired; no line is lost or doubled."""
    server, address = postgres.server(), postgres.database()
    script = Script([{"text": f"answer {number}"} for number in range(12)])
    async with Agent.create(store=address, session="cut", model=script.model(), cwd=tmp_path, hermetic=True) as agent:
        for number in range(12):
            if number % 3 == 1:
                server.sql(
                    address, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )  # fmt: skip
            assert await agent.ask(f"prompt {number}") == f"answer {number}"
    found = open_store(address).load("cut")
    assert found is not None
    ids = [json.loads(line)["id"] for line in found.lines]
    assert len(ids) == len(set(ids))
    texts = [line for line in found.lines if b'"role":"user"' in line]
    assert len(texts) == 12


@in_loop
async def test_a_run_stops_when_its_lease_is_lost(tmp_path: Path) -> None:
    """Another node took the session while a tool ran: no further call is made, and nothing is added."""
    server, address = postgres.server(), postgres.database()
    marks = tmp_path / "marks"
    step = {"text": "", "calls": [{"name": "bash", "arguments": {"command": f"echo x >> {marks}; sleep 0.5"}}]}
    script = Script([step, step, step, {"text": "end"}])
    async with Agent.create(
        store=address, session="lost", model=script.model(), cwd=tmp_path, hermetic=True, permission_mode="bypass"
    ) as agent:
        run = await agent.start("go")
        await until(marks.exists)
        server.sql(address, "UPDATE spindle_sessions SET lease = lease + 1, node = 'another'")
        result = await run
        assert result.status in ("error", "aborted")
        assert "elsewhere" in str(agent.session.session.write_error)
        before = open_store(address).load("lost")
    assert marks.read_text() == "x\n"
    after = open_store(address).load("lost")
    assert before is not None and after is not None
    assert before.lines == after.lines


def spindle(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "spindle", *args], capture_output=True, text=True, cwd=cwd, timeout=60)


def test_files_go_into_a_store_and_out_again_byte_for_byte(tmp_path: Path) -> None:
    address = postgres.database()
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    with SessionManager.create(str(tmp_path), str(source)) as session:
        session.append_message({"role": "user", "content": "hello \ud83d there", "timestamp": 1})
        session.append_message({"role": "user", "content": "more", "timestamp": 2})
        file, id = Path(str(session.get_session_file())), session.get_session_id()
    done = spindle("sessions", "import", "--store", address, str(source), cwd=tmp_path)
    assert id in done.stdout, done
    again = spindle("sessions", "import", "--store", address, str(file), cwd=tmp_path)
    assert again.returncode == 1 and "already" in again.stderr
    listed = spindle("sessions", "--store", address, "--json", cwd=tmp_path)
    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [id], listed
    shown = spindle("sessions", "show", "--store", address, id[:12], cwd=tmp_path)
    assert "more" in shown.stdout, shown
    assert spindle("sessions", "copy", "--store", address, "--all", "--to", str(out), cwd=tmp_path).returncode == 0
    assert (out / file.name).read_bytes() == file.read_bytes()
    exported = spindle("sessions", "export", "--store", address, id, str(tmp_path / "one.jsonl"), cwd=tmp_path)
    assert exported.returncode == 0 and (tmp_path / "one.jsonl").exists(), exported
    renamed = spindle("sessions", "rename", "--store", address, id, "A name", cwd=tmp_path)
    assert "A name" in renamed.stdout, renamed
    assert spindle("sessions", "delete", "--store", address, id, "--yes", cwd=tmp_path).returncode == 0
    assert spindle("sessions", "list", "--store", address, "--all", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("postgresql://spindle:secret-word@127.0.0.1:9/none", "does not answer"),
        ("postgresql://spindle:wrong@{host}/{db}", "does not let us in"),
        ("postgresql://spindle:secret-word@{host}/missing", "no such database"),
        ("postgresql://%zz", "is no address"),
        ("redis://localhost", "postgresql://… or a directory"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_in_words(wrong: str, words: str, tmp_path: Path) -> None:
    address = postgres.database()
    host, _, db = address.rpartition("@")[2].partition("/")
    done = spindle("sessions", "list", "--store", wrong.format(host=host, db=db), cwd=tmp_path)
    assert done.returncode == 1, done
    assert words in done.stderr and "Traceback" not in done.stderr and "secret-word" not in done.stderr, done.stderr


def test_schema_versions_go_forward_only(tmp_path: Path) -> None:
    server, address = postgres.server(), postgres.database()
    open_store(address).close()
    server.sql(address, "UPDATE spindle_schema SET version = 99")
    done = spindle("sessions", "list", "--store", address, cwd=tmp_path)
    assert done.returncode == 1 and "newer Spindle" in done.stderr, done
    readonly = postgres.database()
    server.sql(readonly, "ALTER DATABASE " + readonly.rpartition("/")[2] + " SET default_transaction_read_only = on")
    done = spindle("sessions", "list", "--store", readonly, cwd=tmp_path)
    assert done.returncode == 1 and "read-only" in done.stderr, done


def test_pi_opens_what_comes_out(tmp_path: Path) -> None:
    pi = os.environ.get("SPINDLE_TEST_PI")
    if not pi or not shutil.which("node"):
        pytest.skip("SPINDLE_TEST_PI names no pi")
    address = postgres.database()
    model = Script([{"text": "from the store"}]).model()

    async def talk() -> None:
        async with Agent.create(store=address, session="for-pi", model=model, cwd=tmp_path, hermetic=True) as agent:
            await agent.ask("hello pi")

    asyncio.run(talk())
    assert (
        spindle("sessions", "copy", "--store", address, "for-pi", "--to", str(tmp_path), cwd=tmp_path).returncode == 0
    )
    (file,) = tmp_path.glob("*.jsonl")
    read = (
        f"import {{ SessionManager }} from '{pi}/dist/index.js';"
        f"console.log(JSON.stringify(SessionManager.open('{file}').buildSessionContext().messages))"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", read], capture_output=True, text=True, timeout=60)
    assert [message["role"] for message in json.loads(done.stdout)] == ["user", "assistant"], done.stderr


@in_loop
async def test_a_dump_is_restored_and_goes_on(tmp_path: Path) -> None:
    server, address = postgres.server(), postgres.database()
    async with Agent.create(store=address, session="kept", cwd=tmp_path, **scripted("one")) as agent:
        await agent.ask("first")
        server.call("pg_dump", address, "--format=custom", "--file=spindle.dump", "--table=spindle_*", *NO_NODES)
    other = postgres.database()
    server.call("pg_restore", f"--dbname={other}", "--no-owner", "spindle.dump")
    async with Agent.create(store=other, session="kept", **scripted("two")) as agent:
        assert await agent.ask("second") == "two"
    before, after = open_store(address).load("kept"), open_store(other).load("kept")
    assert before is not None and after is not None
    assert after.lines[: len(before.lines)] == before.lines
    assert len(after.lines) > len(before.lines)
