"""A model that is not in the catalogue is accepted everywhere alike, and stays accepted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import Step, reply

SONNET = "claude-sonnet-4-20250514"


class WithAnthropic(AgentProcess):
    """`models.json` has only an address for anthropic; the key is in the environment."""

    def __init__(self, base: Path, *steps: Step, key: bool = True, **more: Any) -> None:
        self._key = key
        env = {"ANTHROPIC_API_KEY": "k"} if key else {}
        super().__init__(steps, base=base, env=env, session=True, **more)

    def configure(self) -> None:
        path = self.agent_dir / "models.json"
        content = json.loads(path.read_text())
        if self._key:  # a server on this machine would need none
            content["providers"]["anthropic"] = {"baseUrl": self.mock.anthropic_url}
        content["providers"]["bare"] = {"baseUrl": self.mock.openai_url, "api": "openai-completions", "apiKey": "k"}
        path.write_text(json.dumps(content))

    def model(self) -> str:
        model = self.data("get_state")["model"]
        return f"{model['provider']}/{model['id']}"


def test_set_model_and_resume(tmp_path: Path) -> None:
    with WithAnthropic(tmp_path, reply("one")) as agent:
        model = agent.data("set_model", provider="anthropic", modelId=SONNET)
        # The nearest of its family, not the provider's default model.
        assert (model["contextWindow"], model["maxTokens"], model["reasoning"]) == (200_000, 64_000, True)
        agent.run("hi")
        assert agent.mock.requests[-1].body["model"] == SONNET
        first = agent.data("get_state")["sessionFile"]
        assert agent.close_stdin() == 0
    with WithAnthropic(tmp_path, reply("two"), reply("x"), reply("y"), model=None, args=["--continue"]) as agent:
        assert agent.model() == f"anthropic/{SONNET}"
        agent.run("again")
        assert agent.mock.requests[-1].body["model"] == SONNET
        agent.data("new_session")
        agent.data("set_model", provider="mock", modelId="m2")
        agent.run("elsewhere")
        agent.data("switch_session", sessionPath=first)
        assert agent.model() == f"anthropic/{SONNET}"
        entry = agent.data("get_fork_messages")["messages"][1]["entryId"]
        agent.data("fork", entryId=entry)
        assert agent.model() == f"anthropic/{SONNET}"
        agent.run("in the fork")
        assert agent.mock.requests[-1].body["model"] == SONNET
        assert not [frame for frame in agent.frames if frame["type"] == "notice"]
    assert agent.stderr == b""


def test_what_cannot_be_restored_is_told_on_the_wire(tmp_path: Path) -> None:
    with WithAnthropic(tmp_path, reply("one"), model=f"anthropic/{SONNET}") as agent:
        agent.run("hi")
        file = agent.data("get_state")["sessionFile"]
        assert agent.close_stdin() == 0
    lost = f"Could not restore model anthropic/{SONNET} (no auth configured). Using mock/"
    with WithAnthropic(tmp_path, model=None, key=False, args=["--continue"]) as agent:
        assert agent.wait("notice")["message"].startswith(lost)
        assert agent.close_stdin() == 0
    assert agent.stderr == b""
    with WithAnthropic(tmp_path, key=False) as agent:
        agent.data("switch_session", sessionPath=file)
        assert agent.wait("notice")["message"] == f"{lost}m1."
        assert agent.model() == "mock/m1"
        assert agent.close_stdin() == 0
    assert agent.stderr == b""


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        (f"anthropic/{SONNET}", True),
        ("bare/anything", True),  # the user gave an address and an API, and no list
        ("mock/m9", False),  # the user listed the models of this provider
        ("nobody/x", False),
    ],
)
def test_set_model_and_the_command_line_accept_the_same(tmp_path: Path, name: str, accepted: bool) -> None:
    provider, _, model_id = name.partition("/")
    with WithAnthropic(tmp_path) as agent:
        response = agent.call("set_model", provider=provider, modelId=model_id)
        opened = agent.call("open_session", model=name)
        assert (response["success"], opened["success"]) == (accepted, accepted), (response, opened)
        assert accepted or response["error"] == f"Model not found: {name}"
    with WithAnthropic(tmp_path, model=name) as agent:
        if accepted:
            assert agent.model() == name
        else:
            assert agent.process.wait(20) == 2


def test_settings_and_scope(tmp_path: Path) -> None:
    settings = {
        "defaultProvider": "anthropic",
        "defaultModel": SONNET,
        "enabledModels": [f"anthropic/{SONNET}:low", "mock/m1"],
    }
    with WithAnthropic(tmp_path, model=None, settings=settings) as agent:
        assert agent.model() == f"anthropic/{SONNET}"
        assert agent.data("cycle_model")["model"]["id"] == "m1"
        cycled = agent.data("cycle_model")
        assert (cycled["model"]["id"], cycled["thinkingLevel"], cycled["isScoped"]) == (SONNET, "low", True)
    assert agent.stderr == b""
