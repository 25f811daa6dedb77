"""A session without a name gets a title beside the work, from the model that the user has set for it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import failure, gate, reply

TITLES = {"roles": {"titles": "mock/m2"}}


def asked(agent: AgentProcess) -> list[str]:
    return [request.body["model"] for request in agent.mock.requests]


def test_nothing_waits_for_a_title_and_it_is_kept(tmp_path: Path) -> None:
    steps = [reply("Hello."), reply(gate("title"), "**The port is taken**\nmore", usage=(70, 7, 0)), reply("two")]
    with AgentProcess([*steps, reply("three")], settings=TITLES, session=True, base=tmp_path) as agent:
        agent.run("hi")
        agent.mock.wait_gate("title")
        agent.run("more")
        agent.mock.release("title")
        assert agent.wait("session_info_changed")["name"] == "The port is taken"
        agent.run("third")
        assert asked(agent) == ["m1", "m2", "m1", "m1"]
        assert agent.data("get_session_stats")["tokens"]["output"] == 5 * 3 + 7
        (listed,) = agent.data("list_sessions")["sessions"]
        assert listed["name"] == agent.data("get_state")["sessionName"] == "The port is taken"
        file = Path(agent.data("get_state")["sessionFile"])
        assert '"type":"session_info"' in file.read_text()


def test_only_the_model_for_titles_is_asked_and_only_once(tmp_path: Path) -> None:
    steps = [reply("one"), failure(500, "down"), reply("two"), reply("three")]
    settings = {**TITLES, "retry": {"baseDelayMs": 1}}
    with AgentProcess(steps, settings=settings, session=True, base=tmp_path) as agent:
        agent.run("hi")
        assert "No title was made" in agent.wait("notice")["message"]
        agent.run("more")
        assert asked(agent) == ["m1", "m2", "m1"]
        assert agent.data("get_state").get("sessionName") is None


@pytest.mark.parametrize(
    ("settings", "args"),
    [({}, []), (TITLES, ["--name", "mine"])],
    ids=["no model for it", "a name is there"],
)
def test_otherwise_no_title_is_made(settings: dict[str, Any], args: list[str], tmp_path: Path) -> None:
    steps = [reply("one"), reply("two")]
    with AgentProcess(steps, settings=settings, args=args, session=True, base=tmp_path) as agent:
        agent.run("hi")
        agent.run("more")
        assert asked(agent) == ["m1", "m1"]


def test_a_one_shot_gets_none(tmp_path: Path) -> None:
    class OneShot(AgentProcess):
        mode = "json"

    with OneShot([reply("one")], settings=TITLES, session=True, base=tmp_path, args=["-p", "hi"]) as agent:
        assert agent.close_stdin() == 0
        assert asked(agent) == ["m1"]


def test_the_end_of_the_process_does_not_wait(tmp_path: Path) -> None:
    with AgentProcess([reply("one"), reply(gate("title"))], settings=TITLES, session=True, base=tmp_path) as agent:
        agent.run("hi")
        agent.mock.wait_gate("title")
        assert agent.close_stdin() == 0
        assert "Traceback" not in agent.stderr.decode()
        agent.mock.release("title")
