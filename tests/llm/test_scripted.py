"""The scripted model: what a script may say, and what comes of it."""

import asyncio
import json

import pytest

from spindle.llm.stream import Started, StreamOptions, builtin_stream
from spindle.shapes.messages import AssistantMessage, Text, Usage, UserMessage
from spindle.testing import Call, Pause, Script, ScriptError, Step, load_script

from .helpers import answer_of, collect, events_of, make_model, make_request, shape


def play(script: Script, *texts: str) -> list[AssistantMessage]:
    return [answer_of(collect(script.model(), make_request(text))) for text in texts]


def test_a_text_is_streamed_word_by_word():
    chunks = collect(Script(["Good  morning, you"]).model())
    assert events_of(chunks) == [
        ("text_start", 0),
        ("text_delta", 0, "Good  "),
        ("text_delta", 0, "morning, "),
        ("text_delta", 0, "you"),
        ("text_end", 0, "Good  morning, you"),
    ]
    assert answer_of(chunks).stop_reason == "stop"


def test_everything_in_one_answer():
    step = {
        "thinking": ["h", "m"],
        "text": ["a", "b"],
        "calls": [{"name": "bash", "arguments": {"command": "ls"}, "id": "c1"}, {"name": "read"}],
        "usage": {"input": 3, "output": 4, "cacheRead": 5, "cacheWrite": 6},
    }
    answer = answer_of(collect(Script([step]).model()))
    *blocks, last = shape(answer)
    assert blocks == [("thinking", "hm", None), ("text", "ab"), ("call", "c1", "bash", {"command": "ls"})]
    assert (last[0], last[2:]) == ("call", ("read", {}))
    assert last[1].startswith("call_")
    assert answer.stop_reason == "toolUse"
    assert answer.usage.total_tokens == 18


def test_arguments_bit_by_bit_and_cut_short():
    chunks = collect(Script([Step(calls=[Call("bash", ['{"command": "ec', "ho"], "c1")], stop="length")]).model())
    assert [event[2] for event in events_of(chunks) if event[0] == "toolcall_delta"] == ['{"command": "ec', "ho"]
    assert shape(answer_of(chunks)) == [("call", "c1", "bash", {"command": "echo"})]
    assert answer_of(chunks).stop_reason == "length"


def test_steps_come_in_order_and_the_last_repeats():
    assert [shape(answer)[0][1] for answer in play(Script(["a", "b"]), "x", "x", "x")] == ["a", "b", "b"]


def test_matching_steps_come_first_and_follow_the_turn():
    script = Script(
        [
            {"match": "list", "calls": [{"name": "ls", "id": "c1"}]},
            {"match": "list", "text": "done"},
            "other",
        ]
    )
    first, other = play(script, "please list", "hello")
    assert (shape(first)[0][0], shape(other)) == ("call", [("text", "other")])
    second = answer_of(collect(script.model(), make_request("please list", first)))
    assert shape(second) == [("text", "done")]
    assert shape(play(script, "list again")[0])[0][0] == "call"


def test_a_script_that_fits_nothing_says_so():
    (answer,) = play(Script([{"match": "x", "text": "y"}]), "hello")
    assert (answer.stop_reason, answer.error_message) == ("error", "No step of the script fits the message 'hello'")


def test_a_step_may_be_a_function_of_the_request():
    script = Script([lambda request: {"text": [f"you said {request.messages[-1].content}"]}])
    assert shape(play(script, "hi")[0]) == [("text", "you said hi")]
    assert script.requests[0].messages == [UserMessage("hi", 1)]


def test_an_error_alone_refuses_the_request():
    chunks = collect(Script([{"error": "429 slow down"}]).model())
    assert len(chunks) == 1
    assert answer_of(chunks).error_message == "429 slow down"


@pytest.mark.parametrize(
    ("ending", "message"),
    [({"error": "529 Overloaded"}, "529 Overloaded"), ({"cut": True}, "Stream ended without finish_reason")],
)
def test_an_answer_that_breaks_off(ending, message):
    chunks = collect(Script([{"text": ["par", "t"], **ending}]).model())
    assert isinstance(chunks[0], Started)
    answer = answer_of(chunks)
    assert (shape(answer), answer.stop_reason, answer.error_message) == ([("text", "part")], "error", message)


def test_gates_hold_an_answer():
    async def run() -> list[str]:
        script = Script([{"text": ["a", Pause(gate="go"), {"wait": 0.001}, "b"]}])
        seen: list[str] = []

        async def read() -> None:
            async for chunk in builtin_stream("scripted")(script.model(), make_request(), StreamOptions()):
                seen.append(type(chunk).__name__)

        task = asyncio.create_task(read())
        await script.reached("go")
        assert seen[-1] == "TextDelta"
        held = len(seen)
        script.release("go")
        await task
        return seen[held:]

    assert asyncio.run(run()) == ["TextDelta", "TextEnd", "Finished"]


def test_a_held_answer_can_be_cancelled():
    async def run() -> None:
        script = Script([{"text": [Pause(gate="never")]}, {"delay": 1000, "text": "late"}])
        for _ in range(2):
            stream = builtin_stream("scripted")(script.model(), make_request(), StreamOptions())
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()

    asyncio.run(run())


def test_a_file_is_a_model(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"steps": ["one", {"text": "two"}]}))
    model = make_model(api="scripted", provider="scripted", base_url=str(path))
    assert [shape(answer_of(collect(model)))[0][1] for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Bad script FILE: "),
        ("{}", "expected a list of steps"),
        ("[]", "at least one step"),
        ('[{"txt": "a"}]', "unknown field `txt`"),
        ('[{"text": 5}]', "got `int`"),
        ('[{"match": "("}]', "unterminated subpattern"),
        ('[{"calls": [{"arguments": {}}]}]', "missing required field `name`"),
        ('[{"calls": [{"name": "x", "arguments": [5]}]}]', "got `int`"),
    ],
)
def test_a_bad_file_gives_one_clear_line(tmp_path, content, reason):
    path = tmp_path / "script.json"
    path.write_text(content)
    with pytest.raises(ScriptError) as caught:
        load_script(str(path))
    text = str(caught.value).replace(str(path), "FILE")
    assert text.startswith("Bad script FILE: ")
    assert reason in text
    assert "\n" not in text
    chunks = collect(make_model(api="scripted", base_url=str(path)))
    assert answer_of(chunks).error_message == str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    path = str(tmp_path / "none.json")
    chunks = collect(make_model(api="scripted", base_url=path))
    assert answer_of(chunks).error_message == f"Cannot read the script {path}: No such file or directory"


def test_the_history_may_hold_anything():
    script = Script(["ok"])
    history = [AssistantMessage([Text("a")], "x", "y", "z", Usage(), "stop", 0)]
    assert answer_of(collect(script.model(), make_request(*history))).stop_reason == "stop"
