"""Tool calls that a model writes into its text: which are run, and which stay text."""

import asyncio
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from spindle.agent import loop
from spindle.agent.lifecycle import AbortSignal
from spindle.shapes.messages import ToolCall, ToolResultMessage, text_of
from spindle.tools import bash, edit, write
from spindle.tools.base import text_result
from spindle.tools.bash import TOOL
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, reply
from tests.support.nursery import run

from .port import World, says, user

BASH = {"name": "bash", "arguments": {"command": "echo ran > proof"}}
ONE = json.dumps(BASH)

RUN = {
    "bare": ONE,
    "bare, indented": f"\n{json.dumps(BASH, indent=2)}\n",
    "fence": f"```json\n{ONE}\n```",
    "fence without a language, after words": f"I will run it now.\n\n```\n{ONE}\n```",
    "tags": f"<tool_call>\n{ONE}\n</tool_call>",
    "tags that are not closed": f"Let me see.\n<tool_call>{ONE}",
    "function tags": "<function=bash>\n<parameter=command>\necho ran > proof\n</parameter>\n</function>",
    "both kinds of tags": "<tool_call><function=bash><parameter=command>echo ran > proof</parameter></tool_call>",
    "function tags around JSON": '<function=bash>{"command": "echo ran > proof"}</function>',
    "tags in a fence": f"```xml\n<tool_call>\n{ONE}\n</tool_call>\n```",
    "tags opened twice": f"<tool_call>\n<tool_call>\n{ONE}\n</tool_call>",
    "a brace too many": f"```json\n{ONE}}}\n```",
    "a brace too many in a line of its own": f"{ONE}\n}}",
    "a brace too many inside": f"[{ONE}}}]",
    "as Anthropic's API": json.dumps({"type": "tool_use", "id": "1", "name": "bash", "input": BASH["arguments"]}),
    "doubled braces": f"<tool_call>\n{{{ONE}}}\n</tool_call>",
    "doubled braces, closed once": "{" + ONE,
    "array": f"[{ONE}]",
    "as OpenAI's API": json.dumps(
        [{"type": "function", "function": {**BASH, "arguments": json.dumps(BASH["arguments"])}}]
    ),
    "parameters": json.dumps({"name": "bash", "parameters": BASH["arguments"]}),
    "a fence of another language": f"```python\n{ONE}\n```",
    "a fence that was not opened": f"{ONE}\n```",
    "a fence that was not opened, and an invented result": f"{ONE}\n```\nobj['tool_response']\n```",
}
RUN["a backslash that is no escape"] = ONE.replace("echo", r"find / -maxdepth 0 \( -name x \) -exec true \;; echo")
LEFT = {
    "words around bare JSON": f"You could send {ONE} to the tool.",
    "an unknown tool": json.dumps({"name": "bosh", "arguments": BASH["arguments"]}),
    "arguments that do not fit": json.dumps({"name": "bash", "arguments": {"line": "echo ran > proof"}}),
    "one of two does not fit": f'[{ONE}, {{"name": "bash", "arguments": {{}}}}]',
    "another object": '{"name": "Ann", "age": 5}',
    "no JSON": '```json\n{"name": "bash", "arguments": {"command": "echo ran > proof"}\n```',
    "a shell fence": "```sh\necho ran > proof\n```",
    "bare JSON before words": f"{ONE}\nThis is how it is called.",
}


def answered(text):
    """Return the world after a model said `text`, and then that it is done."""
    world = World([says(text), says("done")], [TOOL])
    asyncio.run(loop.run([user("go")], world.chain, world, AbortSignal()))
    return world


@pytest.mark.parametrize("text", RUN.values(), ids=RUN.keys())
def test_a_call_is_run(text, tmp_path, monkeypatch):
    world = answered(text.replace("proof", str(tmp_path / "proof")))
    assert (tmp_path / "proof").read_text() == "ran\n"
    answer = world.messages[1]
    (made,) = [block for block in answer.content if isinstance(block, ToolCall)]
    assert made.as_text and made.name == "bash" and answer.stop_reason == "toolUse"
    assert "echo ran" not in text_of(answer.content)
    (result,) = [message for message in world.messages if isinstance(message, ToolResultMessage)]
    assert (result.tool_call_id, text_of(result.content)) == (made.id, "(no output)"), "no words of ours"


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT.keys())
def test_other_text_stays_text(text, tmp_path):
    world = answered(text.replace("proof", str(tmp_path / "proof")))
    assert not (tmp_path / "proof").exists()
    assert len(world.seen) == 1 and text_of(world.messages[1].content) == text.replace("proof", str(tmp_path / "proof"))


def test_answers_of_a_small_model_as_they_came():
    """Answers of Qwen2.5-Coder-1.5B in an evaluation; calls in them are run, all of them, and nothing else."""
    recorded = [json.loads(line) for line in Path(__file__).with_name("text_calls.jsonl").read_text().splitlines()]
    assert len(recorded) > 20
    for row in recorded:
        made = []

        async def take(call_id, arguments, context, name, made=made):
            made.append([name, arguments])
            return text_result("done")

        tools = [replace(one, execute=partial(take, name=one.name)) for one in (bash.TOOL, edit.TOOL, write.TOOL)]
        world = World([says(row["text"]), says("done")], tools)
        asyncio.run(loop.run([user("go")], world.chain, world, AbortSignal()))
        assert made == row["calls"]


def test_several_calls_are_run_in_their_order(tmp_path):
    calls = [{"name": "bash", "arguments": {"command": f"echo {n}"}} for n in (1, 2)]
    world = answered("First this.\n```json\n" + "\n".join(json.dumps(one) for one in calls) + "\n```\nThen more.")
    results = [text_of(message.content) for message in world.messages if isinstance(message, ToolResultMessage)]
    assert [text.split("\n")[0] for text in results] == ["1", "2"]
    assert text_of(world.messages[1].content) == "First this.\n\nThen more."


def test_a_cut_answer_is_not_read(tmp_path):
    world = World([says(ONE, stop="length")], [TOOL])
    asyncio.run(loop.run([user("go")], world.chain, world, AbortSignal()))
    assert not any(isinstance(message, ToolResultMessage) for message in world.messages)


def test_the_mark_is_on_the_wire_and_the_next_request_has_a_native_call():
    with AgentProcess([reply(f"```json\n{ONE}\n```"), reply("done")]) as agent:
        agent.run("go")
        assert (agent.cwd / "proof").read_text() == "ran\n"
        ended = [frame["message"] for frame in agent.frames if frame["type"] == "message_end"]
        (made,) = ended[1]["content"]
        assert made["asText"] is True and made["arguments"] == BASH["arguments"]
        sent = agent.mock.requests[1].body["messages"]
        assert sent[-2]["tool_calls"][0]["function"]["name"] == "bash" and sent[-1]["role"] == "tool"


def test_a_compat_flag_switches_it_off():
    class Plain(AgentProcess):
        def configure(self):
            write_models(self.agent_dir, self.mock.openai_url, compat={"textToolCalls": False})

    with Plain([reply(ONE), reply("done")]) as agent:
        agent.run("go")
        assert not (agent.cwd / "proof").exists() and len(agent.mock.requests) == 1


# -- calls that cannot be run --------------------------------------------------------------------

WRONG = json.dumps({"name": "average", "arguments": {"numbers": [1, 2]}})


def one_shot(tmp_path, *answers, compat=None):
    (tmp_path / "work").mkdir()
    with MockModel([reply(text) for text in answers]) as mock:
        write_models(tmp_path / "agent", mock.openai_url, **({"compat": compat} if compat else {}))
        done = run(
            [sys.executable, "-m", "spindle", "-p", "--model", "mock/m1", "--no-session", "go"],
            cwd=tmp_path / "work",
            env=agent_environment(tmp_path / "agent"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    return mock, done


def last_words(mock, request):
    content = mock.requests[request].body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (WRONG, "Tool average not found. The tools are: read, bash, edit, write, task"),
        (f"```json\n{LEFT['arguments that do not fit']}\n```", "must have required properties command"),
    ],
    ids=["unknown tool", "arguments"],
)
def test_without_a_person_the_model_is_told_why_its_call_was_not_run(tmp_path, wrong, why):
    mock, done = one_shot(tmp_path, wrong, ONE, "It is done.")
    told = last_words(mock, 1)
    assert told.startswith("Your last answer was taken for a tool call, which was not run. ") and why in told
    assert (tmp_path / "work/proof").read_text() == "ran\n"
    assert (done.returncode, done.stdout) == (0, "It is done.\n")


def test_the_model_is_told_once_then_the_run_has_failed(tmp_path):
    mock, done = one_shot(tmp_path, WRONG, WRONG)
    assert len(mock.requests) == 2 and done.returncode == 1
    assert "The model ended with a call that cannot be run" in done.stderr


@pytest.mark.parametrize(
    ("text", "compat"),
    [
        (f"You could send {WRONG}", None),
        (f"Like this:\n```json\n{WRONG}\n```", None),
        ('{"name": "Ann", "age": 5}', None),
        (WRONG, {"textToolCalls": False}),
    ],
)
def test_other_answers_are_the_answer(tmp_path, text, compat):
    mock, done = one_shot(tmp_path, text, compat=compat)
    assert len(mock.requests) == 1 and done.stdout.strip() == text


def test_a_client_sees_such_an_answer_and_decides():
    with AgentProcess([reply(WRONG)]) as agent:
        agent.run("go")
        assert len(agent.mock.requests) == 1
