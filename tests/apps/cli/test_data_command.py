"""What is stored: shown, deleted by age, and deleted with its user."""

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import pytest

from spindle import Agent
from spindle.apps.cli import tokens_command
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.data_command import run
from spindle.apps.cli.tokens_command import run as tokens
from spindle.resources.loader import ResourceOptions, load_settings
from spindle.sessions.open import begun_in, branched, create, delete, load
from spindle.sessions.pages import list_page
from spindle.sessions.store import open_store
from spindle.shapes.messages import UserMessage
from spindle.testing import Script

DAY = 86400


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    monkeypatch.delenv("PI_CODING_AGENT_SESSION_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "agent"


def stored(folder: Path, id: str, days: int, *, text: str = "hello") -> Path:
    with create("/work", folder, id=id) as session:
        session.append_message(UserMessage(content=text, timestamp=1))
    assert session.path is not None
    return aged(session.path, days)


def aged(path: Path, days: int) -> Path:
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))
    return path


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, int]]:
    capsys.readouterr()
    assert run(["--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {one["kind"]: (one["count"], one["bytes"]) for one in found}


def test_what_is_stored_is_shown_and_pruned_by_age(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "sessions/--work--"
    files = [stored(folder, f"s{number}", number * 10) for number in range(5)]
    upload = files[4].with_suffix(".uploads") / "abc/file.txt"
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"x" * 1000)
    (home / "usage/anna").mkdir(parents=True)
    aged_usage = home / "usage/anna/2020-01-01.jsonl"
    aged_usage.write_text("{}\n")
    aged(aged_usage, 100)
    assert {name: count for name, (count, _) in shown(capsys).items()} == {
        "sessions": 5,
        "uploads": 1,
        "outputs": 0,
        "checkpoints": 0,
        "usage": 1,
        "caches": 0,
    }
    assert shown(capsys)["uploads"] == (1, 1000)

    assert run(["prune", "--older-than", "25d", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert str(files[3]) in out and str(files[4]) in out and str(files[2]) not in out
    assert all(file.exists() for file in files), "nothing happens in a dry run"
    assert run(["prune", "sessions", "--older-than", "25d", "--keep-last", "4"]) == 0
    assert [file.exists() for file in files] == [True, True, True, True, False]
    assert not upload.exists() and aged_usage.exists()
    assert run(["prune", "--older-than", "25d"]) == 0
    assert [file.exists() for file in files] == [True, True, True, False, False]
    assert not aged_usage.exists()


def test_what_is_in_use_is_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "sessions/--work--"
    session = create("/work", folder)
    session.append_message(UserMessage(content="still writing", timestamp=1))
    assert session.path is not None
    other = folder / "notes.jsonl"
    other.write_text('{"note": "no session"}\n')
    for path in (session.path, other):
        aged(path, 100)
    assert run(["prune", "--older-than", "90d"]) == 0
    told = capsys.readouterr().err
    assert "Session is in use by process" in told and "notes.jsonl: it is no session" in told
    assert session.path.exists() and other.exists()
    session.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["prune"], "needs --older-than, as 90d, or --keep-last, as 50"),
        (["prune", "--older-than", "90"], "a number and a unit"),
        (["prune", "socks", "--older-than", "9d"], "There is no kind 'socks' of data; there are sessions, uploads"),
        (["prune", "--keep-last", "-1"], "must not be below 0"),
    ],
)
def test_what_is_wrong_is_said(home: Path, words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(words)


def test_a_user_goes_with_all_that_is_stored(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = home / "users"
    for name in ("anna", "bob"):
        assert tokens(["add", name]) == 0
        (home / "usage" / name).mkdir(parents=True)
        (home / "usage" / name / "2026-01-01.jsonl").write_text('{"runs":1}\n')
        stored(users / name, f"of-{name}", 1, text=f"rhododendron of {name}")
        assert list_page(None, users / name).sessions
    held = create("/work", users / "anna", id="held")
    held.append_message(UserMessage(content="a rhododendron", timestamp=1))
    with monkeypatch.context() as now:
        now.setattr(tokens_command, "_SERVER_ENDS", 0.0)
        assert tokens(["remove", "anna", "--with-data"]) == 1
    assert "run this again" in capsys.readouterr().err
    threading.Timer(0.3, held.close).start()  # as a server does: it is waited for
    assert tokens(["remove", "anna", "--with-data"]) == 0
    left = [file for file in home.rglob("*") if file.is_file() and b"rhododendron" in file.read_bytes()]
    assert {file.parent.name for file in left} == {"bob", "agent"}
    assert all(b"of anna" not in file.read_bytes() and b"a rhodo" not in file.read_bytes() for file in left)
    assert not (users / "anna").exists() and not (home / "usage/anna").exists()
    assert (home / "usage/bob").exists() and "anna" not in (home / "tokens.json").read_text()
    with pytest.raises(UsageError, match="has no user 'anna', and nothing is stored"):
        tokens(["remove", "anna", "--with-data"])
    with pytest.raises(UsageError, match="is no name of a user"):
        tokens(["remove", "..", "--with-data"])


def test_what_a_fork_has_from_its_parent_stays_with_the_parent(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "tmp/spindle-bash-0123456789abcdef.log"
    stranger = tmp_path / "tmp/precious.log"
    for path in (output, stranger):
        path.write_text("much")
    with create("/work", home / "sessions/--work--") as session:
        for path in (output, stranger):
            ran = {"command": "make", "output": "…", "exitCode": 0, "cancelled": False, "truncated": True}
            session.append_message({"role": "bashExecution", **ran, "fullOutputPath": str(path), "timestamp": 1})
        assert session.leaf_id is not None
        fork = branched(session, session.leaf_id)
        fork.close()
    assert fork.path is not None and session.path is not None
    delete(fork.path)
    assert output.exists()
    delete(session.path)
    assert not output.exists()
    assert stranger.exists(), "a session file may name anything"


# -- retention -------------------------------------------------------------------------------------


def settings(home: Path, **retention: object) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"retention": retention}))


def test_prune_does_what_the_settings_say(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "sessions/--work--"
    files = [stored(folder, f"s{number}", number * 50) for number in range(4)]  # 0, 50, 100, 150 days old
    with pytest.raises(UsageError, match="what the setting retention says"):
        run(["prune"])
    settings(home, sessions="90d", keepLast=3)
    assert run(["prune"]) == 0
    assert "1 deleted" in capsys.readouterr().out
    assert [file.exists() for file in files] == [True, True, True, False]
    settings(home, sessions="90d")
    run(["prune"])
    assert [file.exists() for file in files] == [True, True, False, False]


def test_old_sessions_end_once_a_day_when_a_session_ends(home: Path) -> None:
    """Not those in use, none elsewhere, and none at all unless the user wants it."""
    folder = home / "sessions/--work--"
    old, held = stored(folder, "old", 100), stored(folder, "held", 100)
    users = stored(home / "users/anna", "of-anna", 100)
    elsewhere = stored(home.parent / "mine", "mine", 100)

    def a_session_ends(**options: object) -> None:
        async def scene() -> None:
            script = Script(["ok"])
            async with Agent.create(cwd=home.parent, model=script.model(), **options) as agent:
                await agent.ask("hi")

        asyncio.run(scene())

    a_session_ends()
    assert old.exists()
    settings(home, sessions="90d")
    with load(held):
        aged(held, 100)
        a_session_ends(session_file=elsewhere.with_name("another.jsonl"))
    assert [path.exists() for path in (old, users, held, elsewhere)] == [False, False, True, True]
    again = stored(folder, "again", 100)
    a_session_ends()
    assert again.exists()  # tomorrow
    aged(home / "spindle-data-kept", 1)
    a_session_ends()
    assert not again.exists() and not held.exists()


def test_a_project_cannot_say_how_long_data_is_kept(home: Path) -> None:
    (home.parent / ".pi").mkdir()
    (home.parent / ".pi/settings.json").write_text(json.dumps({"retention": {"sessions": "1h"}}))
    home.mkdir()
    (home / "settings.json").write_text(json.dumps({"defaultProjectTrust": "always"}))
    store, trust, _ = load_settings(home.parent, ResourceOptions())
    assert trust.trusted and store.settings.retention.sessions == "forever"
    settings(home, sessions="soon")
    store, _, problems = load_settings(home.parent, ResourceOptions())
    assert store.settings.retention.sessions == "forever" and "retention.sessions" in problems[0].message


def test_a_user_of_a_store_goes_with_all_that_is_in_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of a directory stands for a database: it is the same interface."""
    monkeypatch.setattr(tokens_command, "_DAYS_OF_USAGE", 3)
    address = str(home.parent / "store")
    store = open_store(address)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for name in ("anna", "bob"):
        assert tokens(["add", name]) == 0
        with begun_in(store.within(name), "/work", id=f"of-{name}") as session:
            session.append_message(UserMessage(content=f"rhododendron of {name}", timestamp=1))
        store.within(name).put("usage", today, b"{}", 0)
    store.close()
    assert tokens(["remove", "anna", "--with-data", "--store", address]) == 0
    again = open_store(address)
    assert again.within("anna").page().cards == [] and again.within("anna").get("usage", today) is None
    assert len(again.within("bob").page().cards) == 1 and again.within("bob").get("usage", today) is not None
