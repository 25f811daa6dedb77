"""A dialect leaves things out and changes nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spindle.protocol.commands import COMMANDS
from spindle.protocol.dialect import (
    DIALECTS,
    SPINDLE,
    Shape,
    dialect_named,
    find_dialect,
    shape,
    shaped,
)
from spindle.protocol.neighbours import NEIGHBOURS
from spindle.protocol.render import Ready, Renderer, Response
from spindle.shapes import approvals, client_requests, codec, events
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import (
    AutoCompactionEnd,
    CompactionEnd,
    CompactionResult,
    Event,
    SessionChanged,
    StateChanged,
)
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, reply

KNOWN_EVENTS = {
    str(shape.__struct_config__.tag)
    for module in (events, approvals, client_requests)
    for shape in vars(module).values()
    if isinstance(shape, type) and issubclass(shape, Event) and shape is not Event
} | {str(Ready.__struct_config__.tag)}

# Sent by parts that stand outside `types/events`.
ELSEWHERE = {"session", "entry"}
"""Not events of a session: the first frame, and the shape of entries in responses."""

values = st.recursive(
    st.none() | st.integers() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
shapes_of_keys = st.recursive(
    st.none(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(Shape),
    max_leaves=6,
)


def fits(value: Any, wanted: Shape | None) -> bool:
    if isinstance(value, list):
        return all(fits(item, wanted) for item in value)
    if wanted is None or not isinstance(value, dict):
        return True
    return all(key in wanted.keys and fits(item, wanted.keys[key]) for key, item in value.items())


@given(values, shapes_of_keys)
def test_only_the_named_keys_are_sent(value: Any, wanted: Shape | None) -> None:
    once = shaped(codec.encode(value), wanted)
    assert fits(json.loads(once), wanted)
    assert shaped(once, wanted) == once
    assert not fits(value, wanted) or json.loads(once) == value, "and all of them"


def test_keys_of_others_are_carried() -> None:
    wanted = shape("a b?", ours=frozenset({"a", "b", "c"}))
    assert json.loads(shaped(b'{"a": null, "b": null, "c": 1, "mood": {"c": 2}}', wanted)) == {
        "a": None,
        "mood": {"c": 2},
    }


def test_text_that_is_no_unicode_passes() -> None:
    """A lone surrogate, as in a file or from a model."""
    response = Response(command="get_messages", success=True, data={"messages": [{"content": "\ud83d"}]})
    for name in DIALECTS:
        line = Renderer(dialect_named(name)).render(response)
        assert json.loads(line)["data"]["messages"] == [{"content": "\ud83d"}]


def test_the_superset_leaves_nothing_out() -> None:
    assert SPINDLE.rows is None and not SPINDLE.silent


NEW = "of_tomorrow"


class OfTomorrow(Event, tag=NEW):
    text: str = "new"


class NoticeOfTomorrow(events.Notice, tag="notice"):
    since: str = "tomorrow"


def test_an_event_added_tomorrow_reaches_no_neighbour_unless_its_row_says_so() -> None:
    assert json.loads(Renderer().render(OfTomorrow("x"))) == {"type": NEW, "text": "x"}
    for name, dialect in NEIGHBOURS.items():
        assert Renderer(dialect).render(OfTomorrow("x")) == b"", name
        told = Renderer(replace(dialect, rows={**(dialect.rows or {}), NEW: shape("type text")})).render(
            OfTomorrow("x")
        )
        assert json.loads(told) == {"type": NEW, "text": "x"}


def test_a_key_added_tomorrow_reaches_no_neighbour() -> None:
    assert b"since" in Renderer().render(NoticeOfTomorrow("m", since="now"))
    for name in ("xcsh", "omp"):
        line = Renderer(NEIGHBOURS[name]).render(NoticeOfTomorrow("m", level="info", since="now"))
        assert json.loads(line) == {"type": "notice", "message": "m", "level": "info"}
    tool = ExtensionUIRequest(id="1", method="confirm", title="t", message="m", tool_call_id="c", offers=["x"])
    for dialect in NEIGHBOURS.values():
        assert sorted(json.loads(Renderer(dialect).render(tool))) == ["id", "message", "method", "title", "type"]


def test_keys_of_ours_reach_no_neighbour() -> None:
    usage = {"input": 1, "output": 1, "cost": {"total": 0, "unknown": True}}
    answer = {"role": "assistant", "content": [{"type": "toolCall", "id": "1", "asText": True}], "usage": usage}
    model = {"id": "m", "cost": {"input": 0}, "costUnknown": True}
    for name, dialect in NEIGHBOURS.items():
        for command, data in (
            ("get_state", {"model": model, "exec": {"command": "ssh"}, "sandbox": {}, "thinkingLevel": "off"}),
            ("get_available_models", {"models": [model]}),
            ("get_messages", {"messages": [answer]}),
        ):
            line = Renderer(dialect).render(Response(command=command, success=True, data=data))
            for key in ("costUnknown", "unknown", "exec", "sandbox", "asText"):
                assert f'"{key}"'.encode() not in line, (name, command)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_rows_are_of_events_and_commands_that_exist(name: str) -> None:
    dialect = NEIGHBOURS[name]
    assert dialect.name == name
    rows = {key for key in dialect.rows or () if not key.startswith("response ")}
    assert {key.split(" ")[0] for key in rows} <= KNOWN_EVENTS | ELSEWHERE
    commands = {key.removeprefix("response ") for key in dialect.rows or () if key.startswith("response ")}
    assert commands <= set(COMMANDS)


def test_every_name_is_that_of_a_dialect() -> None:
    assert ("spindle", *NEIGHBOURS) == DIALECTS


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_what_a_client_asked_for_always_goes_out(name: str) -> None:
    methods = ("select", "confirm", "input", "editor", "notify", "setStatus", "setWidget", "set_editor_text")
    dialogs = {f"extension_ui_request {method}" for method in methods}
    asked_for = {"host_tool_call", "host_tool_cancel", "session_closed", "prompt_result", "session_settled"}
    assert dialogs | asked_for | {"extension_error", "agent_end", "session"} <= set(NEIGHBOURS[name].rows or ())


def compactions() -> list[Event]:
    result = CompactionResult("s", "e1", 10, estimated_tokens_after=3)
    return [
        AutoCompactionEnd("overflow", result, False, True),
        CompactionEnd("overflow", result, False, True),
    ]


def test_each_neighbour_sees_an_automatic_compaction_once() -> None:
    seen = {
        name: [json.loads(frame) for frame in map(Renderer(dialect).render, compactions()) if frame]
        for name, dialect in {"spindle": SPINDLE, **NEIGHBOURS}.items()
    }
    types = {name: [frame["type"] for frame in frames] for name, frames in seen.items()}
    assert types == {
        "spindle": ["auto_compaction_end", "compaction_end"],
        "pi-0.74": ["compaction_end"],
        "pi-0.87": ["compaction_end"],
        "pi-1.5": ["compaction_end"],
        "xcsh": ["auto_compaction_end"],
        "omp": ["auto_compaction_end"],
    }
    assert "estimatedTokensAfter" in seen["pi-0.87"][0]["result"]
    assert seen["pi-0.74"][0] == {
        "type": "compaction_end",
        "reason": "overflow",
        "result": {"summary": "s", "firstKeptEntryId": "e1", "tokensBefore": 10},
        "aborted": False,
        "willRetry": True,
    }
    assert "reason" not in seen["xcsh"][0]


def test_old_clients_get_no_data_where_there_was_none() -> None:
    response = Response(id="r1", command="prompt", success=True, data={"disposition": "started"})
    bare = {"id": "r1", "type": "response", "command": "prompt", "success": True}
    assert json.loads(Renderer(NEIGHBOURS["pi-0.74"]).render(response)) == bare
    assert json.loads(Renderer().render(response)) == {**bare, "data": {"disposition": "started"}}


def test_commands_lose_the_keys_of_the_other_version() -> None:
    item = {"name": "x", "source": "prompt", "location": "user", "path": "/p", "sourceInfo": {"path": "/p"}}
    response = Response(command="get_commands", success=True, data={"commands": [item, item]})
    left = json.loads(Renderer(NEIGHBOURS["pi-0.87"]).render(response))["data"]["commands"]
    assert left == [{"name": "x", "source": "prompt", "sourceInfo": {"path": "/p"}}] * 2


@pytest.mark.parametrize("name", DIALECTS)
def test_a_client_that_is_alone_is_not_told_what_it_did(name: str) -> None:
    alone = Renderer(find_dialect(name, {}))
    for event in (SessionChanged("s", "new"), StateChanged()):
        assert alone.render(event) == b""
    assert Renderer().render(StateChanged()) == b'{"type":"state_changed"}\n'


@pytest.mark.parametrize("name", ["pi-0.74", "pi-0.87", "pi-1.5"])
def test_pi_leaves_out_what_is_null(name: str) -> None:
    renderer = Renderer(dialect_named(name))

    def data(command: str, **fields: Any) -> Any:
        return json.loads(renderer.render(Response(id=1, command=command, success=True, data=fields)))["data"]

    assert data("get_last_assistant_text", text=None) == {}
    assert data("get_last_assistant_text", text="") == {"text": ""}
    assert data("get_state", model=None, messageCount=0) == {"messageCount": 0}
    assert data("get_state", model={"id": "m"}) == {"model": {"id": "m"}}
    uncut = {"role": "toolResult", "details": {"truncation": None, "fullOutputPath": None, "other": None}}
    assert data("get_messages", messages=[uncut]) == {"messages": [{"role": "toolResult", "details": {"other": None}}]}
    cut = {"role": "toolResult", "details": {"truncation": {"by": "lines"}, "fullOutputPath": "/o"}}
    assert data("get_messages", messages=[cut]) == {"messages": [cut]}
    failed = json.loads(renderer.render(CompactionEnd("manual", None, False, False, "no")))
    assert "result" not in failed and failed["errorMessage"] == "no"


@pytest.mark.parametrize("name", DIALECTS)
def test_the_first_update_of_bash_has_a_block_where_a_document_shows_one(name: str) -> None:
    with AgentProcess(
        [reply(call("bash", {"command": "sleep 0.2; echo out"})), reply("ok")], args=["--dialect", name]
    ) as agent:
        agent.prompt("go")
        first, second = (agent.wait("tool_execution_update")["partialResult"] for _ in range(2))
    assert second["content"] == [{"type": "text", "text": "out\n"}]
    if name.startswith("pi-"):
        assert first == {"content": [], "details": {}}
    else:
        assert first == {
            "content": [{"type": "text", "text": ""}],
            "details": {"truncation": None, "fullOutputPath": None},
        }


# -- xcsh, as its document has it --------------------------------------------------------------------


def refused(agent: AgentProcess, **frame: Any) -> dict[str, Any]:
    agent.write(json.dumps(frame).encode() + b"\n")
    response = agent.wait("response")
    assert response.pop("success") is False and response.pop("type") == "response"
    return response


def test_xcsh_has_the_error_shapes_of_its_document() -> None:
    with AgentProcess(args=["--dialect", "xcsh"]) as agent:
        assert refused(agent, id="a", type="zork") == {"command": "zork", "error": "Unknown command: zork"}
        wrong = {"command": "parse", "error": "Failed to parse command: message is required"}
        assert refused(agent, id="b", type="prompt") == wrong
        assert refused(agent, id="c")["command"] == "parse"
        model = {"id": "d", "command": "set_model", "error": "Model not found: p/m"}
        assert refused(agent, id="d", type="set_model", provider="p", modelId="m") == model
        agent.write(b'{"id": "e", oops\n')
        assert sorted(agent.wait("response")) == ["command", "error", "success", "type"]
    with AgentProcess() as agent:
        assert refused(agent, id="a", type="zork")["id"] == "a"
        assert refused(agent, id="b", type="prompt") == {"id": "b", "command": "prompt", "error": "message is required"}


@pytest.mark.parametrize(
    ("dialect", "settings", "mode"),
    [("xcsh", {}, "wait"), ("xcsh", {"interruptMode": "immediate"}, "immediate"), ("spindle", {}, "immediate")],
)
def test_xcsh_waits_for_tools_unless_the_settings_say_otherwise(dialect: str, settings: Any, mode: str) -> None:
    with AgentProcess(args=["--dialect", dialect], settings=settings) as agent:
        assert agent.data("get_state")["interruptMode"] == mode
        agent.call("new_session")
        assert agent.data("get_state")["interruptMode"] == mode
        other = agent.data("open_session")["id"]
        assert agent.data("get_state", sessionId=other)["interruptMode"] == mode


# -- a run that is tried again -----------------------------------------------------------------------

RUN = ("agent_start", "agent_end", "turn_start", "turn_end", "auto_retry_start", "auto_retry_end", "agent_settled")
TURN = ["turn_start", "turn_end"]


def told(agent: AgentProcess) -> list[str]:
    return [frame["type"] for frame in agent.frames if frame["type"] in RUN]


def stop_reasons(agent: AgentProcess) -> list[list[str]]:
    ends = [frame["messages"] for frame in agent.frames if frame["type"] == "agent_end"]
    return [[message.get("stopReason", message["role"]) for message in messages] for messages in ends]


RETRIED = ["auto_retry_start", "turn_start", "auto_retry_end", "turn_end"]


@pytest.mark.parametrize("dialect", ["spindle", "pi-0.74", "xcsh"])
def test_tries_are_one_run(dialect: str) -> None:
    steps = [failure(529, "Overloaded"), reply("fine")]
    with AgentProcess(steps, args=["--dialect", dialect]) as agent:
        agent.prompt("go")
        agent.wait("agent_end")
        agent.data("get_state")
        kinds = [kind for kind in told(agent) if kind != "agent_settled"]
        assert kinds == ["agent_start", *TURN, *RETRIED, "agent_end"]
        assert stop_reasons(agent) == [["user", "error", "stop"]]


def test_pi_087_has_a_run_for_each_try() -> None:
    """As pi 0.87.1 tells it."""
    with AgentProcess(
        [failure(503, "down")], args=["--dialect", "pi-0.87"], settings={"retry": {"baseDelayMs": 1, "maxRetries": 1}}
    ) as agent:
        agent.run("go")
        one = ["agent_start", *TURN, "agent_end"]
        assert told(agent) == [*one, "auto_retry_start", *one, "auto_retry_end", "agent_settled"]
        assert stop_reasons(agent) == [["user", "error"], ["error"]]
        assert [frame["willRetry"] for frame in agent.frames if frame["type"] == "agent_end"] == [True, False]
    with AgentProcess(
        [failure(503, "down")], args=["--dialect", "pi-0.87"], settings={"retry": {"baseDelayMs": 60_000}}
    ) as agent:
        agent.prompt("go")
        agent.wait("auto_retry_start")
        agent.call("abort")
        assert told(agent) == [*one, "auto_retry_start", "auto_retry_end", "agent_settled"]


@pytest.mark.parametrize(("dialect", "runs"), [("spindle", 1), ("pi-0.74", 1), ("xcsh", 1), ("pi-0.87", 2)])
def test_an_overflow_is_inside_the_run(dialect: str, runs: int) -> None:
    long = "word " * 400
    steps = [
        reply(long),
        reply(long),
        failure(400, "prompt is too long: 213462 tokens > 200000 maximum"),
        reply("summary"),
    ]
    settings = {"compaction": {"keepRecentTokens": 100, "reserveTokens": 100}}
    with AgentProcess([*steps, reply("fine")], args=["--dialect", dialect], settings=settings) as agent:
        for _ in range(2):
            agent.prompt(long)
            agent.wait("agent_end")
            agent.data("get_state")
        before = len(agent.frames)
        agent.prompt("go")
        for _ in range(runs):
            agent.wait("agent_end")
        kinds = [frame["type"].removeprefix("auto_") for frame in agent.frames[before:]]
        kinds = [kind for kind in dict.fromkeys(kinds) if kind in (*RUN, "compaction_start", "compaction_end")]
        parts = ["compaction_start", "compaction_end"]
        start = ["agent_start", *TURN]
        kinds = [kind for kind in kinds if kind != "agent_settled"]
        assert kinds == ([*start, *parts, "agent_end"] if runs == 1 else [*start, "agent_end", *parts])
        assert stop_reasons(agent)[2:] == ([["user", "error", "stop"]] if runs == 1 else [["user", "error"], ["stop"]])


@pytest.mark.parametrize("ending", ["EOF", "limit"])
def test_a_run_that_ends_in_its_backoff_has_an_end(ending: str) -> None:
    with AgentProcess([failure(503, "down")], settings={"retry": {"baseDelayMs": 60_000}}) as agent:
        agent.prompt("go", **({"maxTime": 1} if ending == "limit" else {}))
        agent.wait("auto_retry_start")
        if ending == "EOF":
            assert agent.close_stdin() == 0
        else:
            assert agent.wait("agent_settled")["stopReason"] == "maxTime"
        assert told(agent) == ["agent_start", *TURN, "auto_retry_start", "auto_retry_end", "agent_end", "agent_settled"]
        assert stop_reasons(agent) == [["user", "error"]]
