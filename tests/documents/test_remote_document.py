"""The document of agent-cli's remote module: its requests are sent as they stand, its responses compared with `==`.

The document lost a word: the key of streams is empty in it. A stream is told as `Stream`, as in its version history.
"""

import json
import re
from pathlib import Path
from typing import Any

from tests.support.images import PIXEL
from tests.support.mock_model import call, reply
from tests.wires.server.server import ServerProcess

from .samples import document, fenced

Frame = dict[str, Any]
# Response → the values that a program that runs now cannot repeat, and why.
VARIES = {
    "commands_001": {"token_usage": "no model was asked"},
    "error_001": {"error": "the words of the JSON reader", "request_id": "an unreadable request has none"},
}


def samples() -> list[Frame]:
    text = re.sub(r"(?m)(?<=[\s{\[,])//[^\n]*$", "", document("001"))
    text = text.replace('"arguments": {\n        \n      }', '"arguments": {...}')
    return [sample for sample in fenced(text) if isinstance(sample, dict)]


def named(kind: str, id: str, found: list[Frame]) -> list[Frame]:
    return [sample for sample in found if kind in sample and sample.get("request_id") == id]


def equal(sample: Frame, frame: Frame) -> bool:
    varying = VARIES.get(sample["request_id"], {})
    return sample.keys() == frame.keys() and all(frame[k] == v for k, v in sample.items() if k not in varying)


def test_the_conversations(tmp_path: Path) -> None:
    found = samples()
    (asked,), (told,) = named("input", "chat_001", found), named("response", "chat_001", found)
    (streamed,), (pieces, complete) = named("input", "_001", found), named("response", "_001", found)
    (configured,) = named("input", "config_001", found)
    (listing,), (listed,) = named("input", "commands_001", found), named("response", "commands_001", found)
    (broken,) = named("response", "error_001", found)
    words = pieces["response"][""]
    steps = [
        reply(told["response"]["Text"], usage=(25, 120, 0)),
        reply(*words, usage=(15, 45, 0)),
        reply("done"),
    ]
    with ServerProcess(steps, base=tmp_path) as server, server.chat() as client:

        def say(request: Frame) -> Frame:
            client.write(json.dumps(request))
            return client.read()

        assert equal(told, say(asked))
        frame, text = say(streamed), ""
        while "Stream" in frame["response"]:
            text += frame["response"]["Stream"]
            assert frame == pieces | {"response": {"Stream": frame["response"]["Stream"]}}
            frame = client.read()
        assert (text, frame) == ("".join(words), complete)
        assert not server.mock.requests[1].body.get("tools")
        assert say(configured)["response"] == {"Text": "done"}
        body = server.mock.requests[2].body
        assert body["messages"][0]["content"].startswith(configured["config"]["prompt"])
        assert body["max_tokens"] == configured["config"]["max_tokens"]
        assert equal(listed, say(listing))
        client.write("")
        assert equal(broken, client.read())


def test_every_kind_of_input(tmp_path: Path) -> None:
    kinds = [sample for sample in samples() if len(sample) == 1 and "request_id" not in sample]
    inputs = [
        k for k in kinds if next(iter(k)) in ("Text", "Image", "Instruction", "File", "Multi") or None in k.values()
    ]
    real = {"base64编码的图像数据": PIXEL, "base64编码的文件内容": "aGk=", "指令名称": "help"}
    with ServerProcess([reply("Good")], base=tmp_path) as server, server.chat() as client:
        for number, kind in enumerate(inputs):
            text = json.dumps(kind, ensure_ascii=False)
            for word, value in real.items():
                text = text.replace(word, value)
            value = json.loads(text)
            if value == {"Multi": []}:  # "several objects of InputType": one of each
                value = {"Multi": [{"Text": "a"}, {"Instruction": {"command": "help"}}, "GetCommands"]}
            frame = client.ask(str(number), value)
            assert frame["request_id"] == str(number)
            expected = "No active model output to interrupt" if "Interrupt" in value else None
            assert frame["error"] == expected, (value, frame)
            if "Multi" in value:
                first, second, last = frame["response"]["Multi"]
                assert first["Text"].startswith("help") and json.loads(second["Text"])["count"] == 7
                assert last == {"Text": "Good"}


def test_confirmations(tmp_path: Path) -> None:
    found = samples()
    question, failed = (s for s in named("response", "string", found) if "Turn" not in json.dumps(s))
    yes = next(s for s in named("input", "string", found) if "ToolConfirmationResponse" in s["input"])
    steps = [reply(call("bash", {"command": "exit 3"})), reply("so")]
    with ServerProcess(steps, base=tmp_path) as server, server.chat() as client:
        asked = client.ask("string", {"Text": "run"}, config={"ask_before_tool_execution": True})
        assert _keys(question) == _keys(asked)
        wanted = asked["response"]["ToolConfirmationRequest"]
        answer = yes["input"]["ToolConfirmationResponse"] | {k: wanted[k] for k in ("name", "arguments")}
        client.write(json.dumps(yes | {"input": {"ToolConfirmationResponse": answer}}))
        told = client.read()
        sample, error = json.loads(failed["error"]), json.loads(told["error"])
        assert _keys(sample) == _keys(error)
        assert (error["type"], error["message"]) == (sample["type"], sample["message"].replace("tool_name", "bash"))


def test_calls_and_results_in_a_stream(tmp_path: Path) -> None:
    """Their arguments and results are any objects."""
    kinds = {next(iter(s)): s for s in samples() if len(s) == 1 and next(iter(s)) in ("ToolCall", "ToolResult")}
    assert len(kinds) == 2
    steps = [reply("Let me see.", call("bash", {"command": "echo hi"})), reply("So.")]
    with ServerProcess(steps, base=tmp_path) as server, server.chat() as client:
        client.write(json.dumps({"request_id": "1", "input": {"Text": "go"}, "": True, "use_tools": True}))
        frames = [client.read()]
        while "Complete" not in frames[-1]["response"]:
            frames.append(client.read())
    told = [frame["response"] for frame in frames]
    for kind, sample in kinds.items():
        frame = next(one for one in told if kind in one)
        assert sample[kind].keys() == frame[kind].keys() and frame[kind]["name"] == "bash"
        assert {type(value) for value in frame[kind].values()} == {str, dict}
    order = [next(iter(one)) for one in told]
    assert order == ["Stream", "ToolCall", "ToolResult", "Stream", "Complete"], order


def test_turns(tmp_path: Path) -> None:
    found = samples()
    question, more, refusal = named("response", "chat_123", found)
    yes, no = named("input", "confirm_456", found)
    text = more["response"]["Stream"]
    for answer, expected in ((yes, more), (no, refusal)):
        steps = [*[reply("x")] * 10, reply(text)]
        base = tmp_path / answer["input"]["TurnConfirmationResponse"]["reason"]
        with ServerProcess(steps, base=base) as server, server.chat() as client:
            for number in range(10):
                client.ask(str(number), {"Text": "go"}, config={"max_context_num": 10})
            assert client.ask("chat_123", {"Text": "more"}, stream=answer is yes) == question
            client.write(json.dumps(answer))
            assert client.read() == expected


def _keys(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys, those of a tool's arguments aside."""
    if not isinstance(value, dict) or path.endswith("arguments."):
        return set()
    return {path + key for key in value} | {p for key in value for p in _keys(value[key], f"{path}{key}.")}
