"""Gates in the real process: whatever does not say yes means no."""

import signal

import pytest

from tests.support.mock_model import reply

from .helpers import BASH, GATE, answer, dialog, result, start


def test_a_gate_that_is_answered(tmp_path):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok"), BASH, reply("ok")]) as agent:
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        assert asked["message"] == "touch made && echo ran"
        answer(agent, asked, confirmed=False)
        agent.wait("agent_settled")
        assert result(agent)["isError"] and result(agent)["content"][0]["text"] == "The user said no"
        assert not (agent.cwd / "made").exists()
        agent.prompt("again")
        answer(agent, dialog(agent, "confirm"), confirmed=True)
        agent.wait("agent_settled")
        assert (agent.cwd / "made").exists()


@pytest.mark.parametrize(
    "source",
    [
        GATE.format(timeout="", limit=", timeout=0.1"),
        GATE.format(timeout=", timeout=0.1", limit=""),
        "def extension(agent):\n    agent.on('tool_call', lambda event, ctx: 1 / 0)",
        "import time\ndef extension(agent):\n"
        "    agent.on('tool_call', lambda event, ctx: time.sleep(600), timeout=0.1)",
    ],
    ids=["dialog-times-out", "handler-times-out", "handler-raises", "handler-blocks"],
)
def test_a_gate_that_does_not_say_yes_means_no(tmp_path, source):
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["isError"]
        assert not (agent.cwd / "made").exists()
        assert agent.close_stdin() == 0


@pytest.mark.parametrize("ending", ["stdin", "signal"])
def test_a_client_that_vanishes_during_a_dialog_means_no(tmp_path, ending):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok")], session=True) as agent:
        agent.prompt("go")
        dialog(agent, "confirm")
        code = agent.close_stdin() if ending == "stdin" else agent.kill(signal.SIGTERM)
        assert code == (0 if ending == "stdin" else 143)
        assert not (agent.cwd / "made").exists()


def test_abort_closes_the_dialog_and_blocks(tmp_path):
    with start(tmp_path, GATE.format(timeout="", limit=""), [BASH, reply("ok")]) as agent:
        agent.prompt("go")
        asked = dialog(agent, "confirm")
        assert agent.call("abort")["success"]
        assert dialog(agent, "cancel")["targetId"] == asked["id"]
        answer(agent, asked, confirmed=True)
        assert agent.data("get_state")["isStreaming"] is False
        assert result(agent)["isError"]
        assert not (agent.cwd / "made").exists()


def test_a_blocked_call_may_end_the_run(tmp_path):
    source = "def extension(agent):\n    agent.on('tool_call', lambda e, ctx: agent.block('enough', terminate=True))"
    with start(tmp_path, source, [BASH, reply("never asked")]) as agent:
        agent.run("go")
        assert len(agent.mock.requests) == 1


def test_arguments_may_be_changed_before_the_tool_runs(tmp_path):
    source = """
def extension(agent):
    @agent.on("tool_call", tool="bash")
    def tame(event, ctx):
        event.input["command"] = "echo tamed"
"""
    with start(tmp_path, source, [BASH, reply("ok")]) as agent:
        agent.run("go")
        assert result(agent)["content"][0]["text"] == "tamed\n"
        assert not (agent.cwd / "made").exists()
