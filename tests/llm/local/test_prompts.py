"""What models of each size are told. The sizes themselves are facts of a running server, made up here."""

from typing import Any

from msgspec.structs import replace

from spindle.llm.local.llama_server import Facts
from spindle.llm.local.prompts import SMALL, TINY, make_plan
from spindle.llm.stream import ModelMessage, Request, ToolSpec
from spindle.shapes.builtin_tools import TODO_TOOL
from spindle.shapes.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, Usage, UserMessage, text_of
from spindle.tools.base import builtin_tools

LONG = "You are an agent with a very long prompt. " * 200
TOOLS = [
    ToolSpec(name, f"Does {name} things. And much more.\nOver lines.", {"type": "object", "properties": {"x": {}}})
    for name in ("read", "bash", "edit", "write", "deploy")
]
TINY_MODEL = Facts("http://x", "k", TINY - 1, 8192, False, False)
PLAIN_MODEL = replace(TINY_MODEL, parameters=SMALL - 1)
LARGE_MODEL = replace(TINY_MODEL, parameters=SMALL)


def called(command: str, id: str = "c") -> list[ModelMessage]:
    call = ToolCall(id, "bash", {"command": command})
    return [
        AssistantMessage([call], "local", "local", "m", Usage(), "toolUse", 0),
        ToolResultMessage(tool_call_id=id, tool_name="bash", content=[Text("a.txt\n")], is_error=False, timestamp=0),
    ]


def ask(facts: Facts, messages: list[ModelMessage], **changes: Any) -> Any:
    request = Request(LONG, messages, changes.get("tools", TOOLS))
    return make_plan(facts, request, 512)


def words(plan: Any) -> list[str]:
    return [text_of(message.content) for message in plan.request.messages]


HELLO: list[ModelMessage] = [UserMessage("List the files", 0)]


def test_the_smallest_get_a_short_prompt_examples_and_harmless_tools() -> None:
    plan = ask(TINY_MODEL, HELLO)
    assert plan.constrained and list(plan.calls) == ["bash", "deploy"]
    assert len(plan.request.system_prompt) < 200 and not plan.request.tools
    assert "bash: Does bash things\n" in plan.request.system_prompt
    assert words(plan)[-1] == "List the files"
    assert 'bash {"command":"ls"}' in words(plan)
    assert plan.body["temperature"] == 0 and plan.max_tokens == 256
    assert "write" not in plan.body["grammar"] and "rm" not in plan.body["grammar"]


def test_no_built_in_tool_that_changes_something_is_for_the_smallest() -> None:
    names = [*builtin_tools(), TODO_TOOL]
    plan = ask(TINY_MODEL, HELLO, tools=[ToolSpec(name, "", {}) for name in names if name != "bash"])
    assert set(plan.calls) == {"read", "grep", "find", "ls"}


def test_without_a_shell_the_smallest_may_read() -> None:
    plan = ask(TINY_MODEL, HELLO, tools=[tool for tool in TOOLS if tool.name != "bash"])
    assert list(plan.calls) == ["read", "deploy"]
    assert not any(word.startswith("bash {") for word in words(plan))


def test_after_a_call_the_smallest_tell_what_came_of_it() -> None:
    plan = ask(TINY_MODEL, [*HELLO, *called("ls")])
    assert not plan.constrained and plan.body["grammar"].startswith("root ::= [^\\n]")
    assert words(plan)[-1] == "List the files\n\nbash printed:\na.txt"


def test_a_new_question_may_call_again() -> None:
    told = AssistantMessage([Text("There is a.txt")], "local", "local", "m", Usage(), "stop", 0)
    plan = ask(TINY_MODEL, [*HELLO, *called("ls"), told, UserMessage("Show it", 0)])
    assert plan.constrained
    expected = ["List the files", 'bash {"command":"ls"}', "bash printed:\na.txt", "answer: There is a.txt", "Show it"]
    assert words(plan)[-5:] == expected


def test_others_without_tools_in_their_template_get_a_grammar_and_all_tools() -> None:
    plan = ask(PLAIN_MODEL, HELLO)
    assert plan.constrained and list(plan.calls) == [tool.name for tool in TOOLS]
    assert 'write {"x":…} (Does write things)' in plan.request.system_prompt
    assert LONG not in plan.request.system_prompt and LONG in ask(LARGE_MODEL, HELLO).request.system_prompt


def test_nobody_calls_for_ever() -> None:
    once, twice = called("ls", "1"), called("ls", "2")
    assert ask(PLAIN_MODEL, [*HELLO, *once]).calls
    assert not ask(PLAIN_MODEL, [*HELLO, *once, *twice]).calls  # the same again
    different = [message for number in range(8) for message in called(f"cat {number}", str(number))]
    assert ask(PLAIN_MODEL, [*HELLO, *different[:-2]]).calls
    assert not ask(PLAIN_MODEL, [*HELLO, *different]).calls
    assert ask(PLAIN_MODEL, [*HELLO, *different, UserMessage("Go on", 0)]).calls


def test_models_that_know_tools_use_their_own_way() -> None:
    plan = ask(replace(PLAIN_MODEL, tools=True), HELLO)
    assert not plan.constrained and not plan.body
    assert plan.request.tools[0].description == "Does read things"
    assert plan.request.tools[0].parameters == TOOLS[0].parameters and LONG not in plan.request.system_prompt
    large = ask(replace(LARGE_MODEL, tools=True, thinking=True), HELLO)
    assert large.request.tools == TOOLS and large.request.system_prompt == LONG
    assert large.body == {"chat_template_kwargs": {"enable_thinking": False}}


def test_a_request_without_tools_is_not_reworded() -> None:
    plan = ask(TINY_MODEL, HELLO, tools=[])
    assert (plan.request.system_prompt, plan.request.messages, plan.request.tools) == (LONG, HELLO, [])
    assert not plan.constrained and "grammar" not in plan.body


def test_the_oldest_is_left_out_of_what_does_not_fit() -> None:
    history: list[ModelMessage] = []
    for number in range(50):
        history += [UserMessage(f"{number}: " + "word " * 200, 0), *called("ls", str(number))]
    plan = ask(replace(PLAIN_MODEL, tools=True), history)
    kept = plan.request.messages
    assert 3 <= len(kept) < len(history) and kept == history[-len(kept) :]
    assert isinstance(kept[0], UserMessage)
    alone = ask(replace(PLAIN_MODEL, tools=True), [UserMessage("x" * 100_000, 0)])
    assert len(alone.request.messages) == 1
