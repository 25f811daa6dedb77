"""A home as the documents of pi 1.5 have it: what its settings mean here, and what is told."""

import json
import sys

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import failure, reply, silent

from .conftest import Place

INTERFACE = {
    "$schema": "https://pi.dev/schemas/settings.schema.json",
    "lastChangelogVersion": "1.5.0",
    "extensionChangelogVersions": {},
    "sessionShareDestination": "gist",
    "showCacheMissNotices": True,
    "externalEditor": "vim",
    "doubleEscapeAction": "fork",
    "treeFilterMode": "no-tools",
    "theme": "system",
    "quietStartup": "header",
    "tuiMode": "regular",
    "fullscreenExitOutput": "resume-hint",
    "fullscreenScrollbar": "always",
    "fullscreenCopyOnSelect": False,
    "fullscreenWheelScrollLines": 3,
    "editorPaddingX": 1,
    "outputPad": 0,
    "autocompleteMaxVisible": 7,
    "showHardwareCursor": True,
    "terminal": {"showImages": False, "hyperlinks": "auto", "images": "kitty"},
    "markdown": {"codeBlockIndent": "", "mermaid": "off"},
    "selfUpdateCommand": ["x"],
    "npmCommand": ["npm"],
    "collapseChangelog": True,
    "enableInstallTelemetry": False,
    "trackingId": "x",
    "deviceId": "y",
    "warnings": {"anthropicExtraUsage": False},
    "hideThinkingBlock": True,
}
AGENT = {
    "modelThinkingLevels": {"scripted/x": "high"},
    "compaction": {"modelOverrides": {"a/b": {"reserveTokens": 100}}},
    "branchSummary": {"skipPrompt": True},
    "httpIdleTimeoutMs": "disabled",
    "retry": {"maxAgentDelayMs": 100, "provider": {"timeoutMs": 1000, "maxRetries": 2, "maxRetryDelayMs": 0}},
    "transport": "websocket-cached",
    "websocketConnectTimeoutMs": "disabled",
    "cacheWarming": "idle",
    "codemode": {"mode": "only"},
}


def test_what_changes_the_agent_and_has_no_effect_is_told_once_by_name(place: Place) -> None:
    file = place.write("agent/settings.json", {**INTERFACE, **AGENT})
    done = place.run("--no-session", "--model", place.script("ok"), "-p", "hi")
    names = "transport, websocketConnectTimeoutMs, cacheWarming, codemode, retry.provider.maxRetries"
    assert (done.stdout, done.stderr) == (
        "ok\n",
        f"Warning: Settings of pi that have no effect here: {names} ({file})\n",
    )
    plain = {"transport": "sse", "cacheWarming": "off", "retry": {"provider": {"maxRetries": 0}}}
    place.write("agent/settings.json", INTERFACE | plain)
    assert place.run("--no-session", "--model", place.script("ok"), "-p", "hi").stderr == ""


def test_a_part_of_pi_is_no_extension(place: Place) -> None:
    done = place.run("--no-session", "--model", place.script("ok"), "-ne", "-e", "builtin:mcp", "-p", "hi")
    assert (done.stdout, done.stderr) == ("ok\n", "Note: -e builtin:mcp names a part of pi and is ignored\n")


def test_skills_are_no_commands_if_the_user_says_so(tmp_path) -> None:
    skill = tmp_path / "agent" / "skills" / "dance" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: dance\ndescription: Dance\n---\nDance.")
    with AgentProcess([reply("ok")], base=tmp_path, settings={"enableSkillCommands": False}) as agent:
        assert agent.data("get_commands") == {"commands": []}
        agent.prompt("/skill:dance")
        agent.wait("agent_settled")
        said = agent.mock.requests[0].body["messages"]
        assert said[-1]["content"][0]["text"] == "/skill:dance" and "Dance" in said[0]["content"]


@pytest.mark.parametrize(("longest", "waits"), [(100, False), (0, True), (5000, True)])
def test_the_longest_wait_that_a_server_may_ask_for(longest: int, waits: bool) -> None:
    settings = {"retry": {"baseDelayMs": 1, "maxAgentDelayMs": 10, "provider": {"maxRetryDelayMs": longest}}}
    steps = [failure(429, "slow down", headers={"retry-after": "1"}), reply("ok")]
    with AgentProcess(steps, settings=settings) as agent:
        agent.prompt("hi")
        assert (agent.wait("agent_settled")["stopReason"] == "end") is waits


class WithLevels(AgentProcess):
    def configure(self) -> None:
        file = self.agent_dir / "models.json"
        content = json.loads(file.read_text())
        more = {"low": {"temperature": 0.1}, "high": {"top_p": 0.9, "seed": None}}
        content["providers"]["mock"]["models"][0] |= {
            "samplingParams": {"temperature": 0.5, "seed": 7},
            "samplingParamsByThinkingLevel": more,
        }
        file.write_text(json.dumps(content))


def test_parameters_of_a_thinking_level() -> None:
    with WithLevels([reply("ok")]) as agent:
        for level, wanted in (("low", (0.1, None, 7)), ("medium", (0.5, None, 7)), ("high", (0.5, 0.9, None))):
            agent.data("set_thinking_level", level=level)
            agent.prompt("hi")
            agent.wait("agent_settled")
            body = agent.mock.requests[-1].body
            assert tuple(body.get(key) for key in ("temperature", "top_p", "seed")) == wanted


def test_the_timeout_of_a_request() -> None:
    settings = {"httpIdleTimeoutMs": "disabled", "retry": {"enabled": False, "provider": {"timeoutMs": 200}}}
    with AgentProcess([silent()], settings=settings) as agent:
        agent.prompt("hi")
        assert "0.2" in agent.wait("agent_settled")["errorMessage"]


def test_the_version_that_adapters_check(place: Place) -> None:
    program = place.write("pi", f"#!{sys.executable}\nfrom spindle.apps.cli import main\nraise SystemExit(main())\n")

    def said(*words: str, **env: str) -> str:
        return str(place.program(sys.executable, str(program), *words, env=env).stdout).strip()

    assert said("--version") == "1.5.0"
    assert said("--version", SPINDLE_DIALECT="pi-0.87") == said("--dialect", "pi-0.87", "--version") == "0.87.1"
