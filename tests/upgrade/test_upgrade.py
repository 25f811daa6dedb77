"""What older versions wrote is read and gone on with; what a newer one wrote is carried. `write.py` makes the files."""

import json
import shutil
from pathlib import Path

import pytest

from spindle.base.version import __version__
from spindle.server.users import read_users
from spindle.sessions.open import load
from spindle.sessions.pages import list_page
from spindle.shapes.codec import encode
from spindle.shapes.messages import UserMessage
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import reply

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if list(path.glob("*.jsonl")))


@pytest.fixture(params=VERSIONS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the files of a version."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / "written"))


def test_there_are_files_of_this_release_and_they_are_small() -> None:
    assert {"3760b6d", "7c3d7c0b", __version__} <= set(VERSIONS), "python -m tests.upgrade.write, for a release"
    assert sum(file.stat().st_size for name in VERSIONS for file in (HERE / name).iterdir()) <= 200_000


def test_sessions_are_read_and_gone_on_with(written: Path) -> None:
    first, second = sorted(written.glob("*.jsonl"))
    with load(first, cwd=written) as session:
        assert (session.damage, session.name) == ([], "Notes")
        said = encode(session.context().stored).decode()
        for words in ("Make notes, ünïcode too", "I look first.", "rhododendron", "three", "by the user"):
            assert words in said
    before = second.read_bytes()
    with load(second, cwd=written) as session:
        roles = [message.role for message in session.context().messages]
        assert roles[0] == "user" and "assistant" in roles
        session.append_message(UserMessage(content="today", timestamp=1))
    assert second.read_bytes().startswith(before), "what was there stays as it is"
    listed = list_page(None, written).sessions
    assert {(info.name, info.message_count > 1) for info in listed} == {("Notes", True), (None, True)}


def test_an_agent_of_today_goes_on(written: Path, tmp_path: Path) -> None:
    session = sorted(written.glob("*.jsonl"))[0]
    lines = session.read_bytes().splitlines()
    header = json.loads(lines[0]) | {"cwd": str(tmp_path)}
    session.write_bytes(b"\n".join([json.dumps(header).encode(), *lines[1:], b""]))
    with AgentProcess([reply("still here")], session=True, args=["--session", str(session)]) as agent:
        assert agent.call("get_state")["data"]["sessionName"] == "Notes"
        assert agent.call("list_checkpoints")["success"]
        agent.call("prompt", message="and today?")
        agent.wait("agent_settled")
        assert agent.call("get_last_assistant_text")["data"]["text"] == "still here"
        sent = json.dumps(agent.mock.requests[-1].body)
        assert "rhododendron" in sent and "and today?" in sent
    assert session.read_bytes().splitlines()[1 : len(lines)] == lines[1:]


@pytest.mark.parametrize("version", [name for name in VERSIONS if name != "3760b6d"])  # that one had no users yet
def test_users_keep_their_tokens_and_limits(version: str) -> None:
    users = read_users(HERE / version / "tokens.json")
    assert users["anna"].cost_per_day == 5 and users["anna"].token.startswith("sha256:")


def test_what_a_newer_version_wrote_is_carried(written: Path) -> None:
    session = sorted(written.glob("*.jsonl"))[0]
    newer = {"type": "hologram", "id": "ffffffff", "parentId": None, "depth": 3}
    with open(session, "ab") as file:
        file.write(json.dumps(newer).encode() + b"\n")
    before = session.read_bytes()
    with load(session, cwd=written) as again:
        again.append_name("Renamed")
    assert session.read_bytes().startswith(before)
    with load(session, cwd=written, read_only=True) as again:
        assert again.name == "Renamed" and "hologram" in [entry.type for entry in again.entries]
