"""The documents that Spindle answers to, sample by sample: what they describe is run, and compared with `==`."""

import json
from pathlib import Path
from typing import Any

import pytest

from .rpc_rig import Rig
from .samples import ANY_OBJECT, bare, document, fenced, name_of, same

NOT_SENT = {"image": "what a client sends, or keeps for itself"}
Frame = dict[str, Any]


def differences(samples: list[Frame], frames: list[Frame]) -> list[str]:
    """Return a line for each sample that none of the frames equals."""
    found = []
    for sample in samples:
        kind = name_of(sample)
        candidates = [same(sample, frame) for frame in frames if name_of(frame) == kind]
        if sample not in candidates:
            near = max(candidates, key=lambda frame: _alike(sample, frame), default=None)
            found.append(f"{kind}\n  document: {json.dumps(sample)[:600]}\n  Spindle:  {json.dumps(near)[:600]}")
    return found


def _alike(sample: Frame, frame: Frame) -> int:
    return sum(frame.get(key) == value for key, value in sample.items()) - len(frame.keys() - sample.keys())


def pieces(frames: list[Frame]) -> list[Frame]:
    """Return the frames, and the messages and models in them: the documents show these alone, too."""
    found = []
    for frame in frames:
        data = frame.get("data") or {}
        if frame.get("command") == "get_messages" and frame["success"]:
            found += data["messages"]
        if frame.get("command") == "get_state" and data.get("model"):
            found.append(data["model"])
    return [*frames, *found]


@pytest.mark.parametrize("number", ["000", "003"])
def test_the_rpc_mode_of_pi(number: str, tmp_path: Path) -> None:
    samples = [sample for sample in fenced(document(number)) if name_of(sample) not in NOT_SENT]
    responses = [s for s in samples if s.get("type") == "extension_ui_response"]
    requests = [s for s in samples if "type" in s and _is_request(s)]
    refusable = [s for s in requests if s["type"] in ("new_session", "switch_session", "fork")]
    with Rig(tmp_path / "a", delay_ms=2000) as agent:
        refused = [answer for request in requests if not (answer := agent.ask(request))["success"]]
        assert not refused
        agent.ask({"type": "prompt", "message": "Say it with a space"})
        agent.ask({"type": "prompt", "message": "Hello!"})
        agent.data("get_messages")
        agent.show_dialogs(responses)
        agent.show_refusals(refusable)
        agent.show_faults()
        agent.show_compaction()
        agent.ask({"type": "prompt", "message": "list the files"})
        agent.show_retries(ends=False)
        frames = agent.frames
    with Rig(tmp_path / "b") as agent:
        agent.show_retries(ends=True)
        frames += agent.frames
    shown = [s for s in samples if s not in requests and s not in responses]
    assert not (found := differences(shown, pieces(frames))), "\n".join(found)


def test_the_rpc_mode_of_xcsh(tmp_path: Path) -> None:
    """Two of its samples are abridged, and say so ("typically"): their keys must be there."""
    samples = bare(document("004"))
    state, names = (next(s for s in samples if key in s) for key in ("todoPhases", "toolNames"))
    named = [s for s in samples if "type" in s]
    requests = [s for s in named if _is_request(s)]
    todos, tools = (next(s for s in requests if s["type"] == kind) for kind in ("set_todos", "set_host_tools"))
    lent = [s for s in named if s["type"] in ("host_tool_update", "host_tool_result")]
    replies = [s for s in named if s["type"] == "extension_ui_response"]
    with Rig(tmp_path, "--dialect", "xcsh") as agent:
        agent.show_faults()
        answers = [agent.ask(request) for request in requests]
        agent.show_dialogs(replies)
        agent.show_host_tools(tools, lent)
        agent.sent(todos | {"phases": state["todoPhases"]})
        agent.data("set_session_name", name="x")
        frames = agent.frames
        now = agent.data("get_state")
    abridged = ("message_update", "agent_end")
    shown = [s for s in named if s not in (*requests, *lent, *replies) and s["type"] not in abridged]
    assert not (found := differences(shown, frames)), "\n".join(found)
    for sample in (s for s in named if s["type"] in abridged):
        assert any(_has_keys(sample, frame) for frame in frames), sample
    state["model"] = ANY_OBJECT  # of which the document shows two keys
    assert same(state, now, "xcsh get_state") == state
    assert all(answer["success"] for answer in answers)
    assert answers[requests.index(tools)]["data"] == names
    assert answers[requests.index(todos)]["data"]["todoPhases"] == todos["phases"]


def _has_keys(sample: Any, frame: Any) -> bool:
    if isinstance(sample, dict):
        return isinstance(frame, dict) and all(k in frame and _has_keys(v, frame[k]) for k, v in sample.items())
    return type(sample) is type(frame)


def _is_request(sample: Frame) -> bool:
    from spindle.protocol.commands import COMMANDS

    return sample["type"] in COMMANDS
