"""Random commands at random moments, on a model that fails as often as it answers. Whatever happens, the rules hold:

one response per command, every start has its end in the right place, one `agent_settled` per accepted prompt, nothing
left over, and no answer that is a Python exception.
"""

import asyncio
import random
import re

import pytest

from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text, text_of
from spindle.tools.base import Tool

from .rig import Rig, run

HOOKS = [
    "input",
    "before_agent_start",
    "agent_start",
    "turn_start",
    "message_start",
    "message_end",
    "context",
    "tool_call",
    "tool_result",
    "tool_execution_end",
    "turn_end",
    "agent_end",
    "agent_before_settle",
    "agent_settled",
    "session_before_compact",
    "session_before_switch",
    "session_before_fork",
    "session_shutdown",
    "session_start",
]
COMMANDS = 50
SETTINGS = {
    "compaction": {"reserveTokens": 2000, "keepRecentTokens": 300},
    "retry": {"baseDelayMs": 3, "maxRetries": 2},
}


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sent: dict[str, str] = {}

    def moment(self, longest: float = 0.004) -> float:
        return self.rng.random() * longest

    # -- the world ------------------------------------------------------------------------------------

    def answer(self, request):
        rng = self.rng
        if text_of(request.messages[-1].content).startswith("<conversation>"):
            bad = rng.random() < 0.3
            return {"error": rng.choice(["503 down", "400 no"])} if bad else {"text": "SUMMARY", "delay": self.moment()}
        usage = {"input": rng.choice([10, 10, 99_000, 120_000]), "output": 5}
        kind = rng.random()
        if kind < 0.25:
            return {"error": rng.choice(["503 down", "prompt is too long", "400 no"]), "delay": self.moment()}
        if kind < 0.6:
            calls = [{"name": rng.choice(["slow", "alone", "bad", "unknown"])} for _ in range(rng.randrange(1, 4))]
            return {"text": "so", "calls": calls, "usage": usage, "stop": rng.choice(["toolUse", "toolUse", "length"])}
        return {"text": "lorem ipsum " * rng.choice([1, 100]), "usage": usage, "delay": self.moment()}

    def tools(self) -> list[Tool]:
        async def slow(call_id, args, ctx):
            ctx.update(ToolResult([Text("so far")]))
            await asyncio.sleep(self.moment(0.01))
            return ToolResult([Text("done " * self.rng.choice([1, 500]))])

        async def bad(call_id, args, ctx):
            await asyncio.sleep(self.moment())
            raise ValueError("no")

        nothing = {"type": "object", "properties": {}}
        return [
            Tool("slow", "slow", nothing, slow),
            Tool("alone", "alone", nothing, slow, sequential=True),
            Tool("bad", "bad", nothing, bad, interruptible=False),
        ]

    def extension(self, agent):
        async def handler(event, ctx):
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.moment(0.003))

        for name in HOOKS:
            agent.on(name, handler)

    # -- the client -----------------------------------------------------------------------------------

    def command(self, rig: Rig, number: int):
        """Return the next command and its fields."""
        rng = self.rng
        entries = [entry.id for entry in rig.agent.session.entries if entry.type == "message"]
        files = [str(path) for path in sorted(rig.home.glob("sessions/*.jsonl"))]
        some = rng.choice(entries) if entries else "none"
        behaviour = rng.choice([{}, {}, {"streamingBehavior": "steer"}, {"streamingBehavior": "followUp"}])
        options = [
            *[("prompt", {"message": f"p{number} " + "lorem " * rng.choice([1, 200]), **behaviour})] * 8,
            *[("abort", {})] * 2,
            ("steer", {"message": f"s{number}"}),
            ("follow_up", {"message": f"f{number}"}),
            ("abort_and_prompt", {"message": f"a{number}"}),
            ("clear_queue", {}),
            ("compact", {}),
            ("new_session", {}),
            ("clone", {}),
            ("fork", {"entryId": some}),
            ("navigate_tree", {"entryId": some, "summarize": rng.random() < 0.5}),
            ("switch_session", {"sessionPath": rng.choice([*files, str(rig.home / f"new{number}.jsonl")])}),
            ("set_auto_retry", {"enabled": rng.random() < 0.7}),
            ("abort_retry", {}),
            ("set_steering_mode", {"mode": rng.choice(["all", "one-at-a-time"])}),
            ("set_interrupt_mode", {"mode": rng.choice(["immediate", "wait"])}),
            ("bash", {"command": "echo hi"}),
            ("abort_bash", {}),
            ("get_state", {}),
            ("get_session_stats", {}),
            ("set_session_name", {"name": f"n{number}"}),
        ]
        return rng.choice(options)

    async def play(self, rig: Rig) -> None:
        loop = asyncio.get_running_loop()
        for number in range(COMMANDS):
            name, fields = self.command(rig, number)
            self.sent[rig.send(name, **fields)] = name
            if self.rng.random() < 0.1:
                rig.wire.stop_reading()
                loop.call_later(self.moment(0.01), rig.wire.read_on)
            if self.rng.random() < 0.7:
                await asyncio.sleep(self.moment(self.rng.choice([0.001, 0.01, 0.03])))
        rig.wire.read_on()
        for id in self.sent:
            await rig.response(id)
        await asyncio.wait_for(rig.agent.wait_idle(), 20)
        await asyncio.sleep(0.01)


def check(rig: Rig, sent: dict[str, str]) -> None:
    responses = rig.of("response")
    started = 0
    for id, name in sent.items():
        (response,) = [frame for frame in responses if frame["id"] == id]
        assert response["command"] == name
        assert not re.match(r"\w+(Error|Exception)\b", response.get("error", "")), response
        started += (response.get("data") or {}).get("disposition") == "started"
    assert len(rig.of("agent_settled")) >= started  # queued prompts may start runs of their own
    inside: list[str] = []
    compacting = attempt = 0
    for frame in rig.frames:
        kind, _, edge = frame["type"].rpartition("_")
        if kind in ("agent", "turn", "message") and edge == "start":
            assert inside == {"agent": [], "turn": ["agent"], "message": ["agent", "turn"]}[kind]
            inside.append(kind)
        elif kind in ("agent", "turn", "message") and edge == "end":
            assert inside.pop() == kind
        elif kind == "compaction" and edge == "start":  # one that is refused may come at any time
            compacting += 1
        elif kind == "compaction" and edge == "end":
            # Only this end comes without a start: it says that none will be made.
            compacting -= "after one compact-and-retry" not in (frame.get("errorMessage") or "")
        elif frame["type"] == "agent_settled":
            assert inside == []
        elif frame["type"] == "auto_retry_start":
            assert frame["attempt"] == attempt + 1
            attempt += 1
        elif frame["type"] == "auto_retry_end":
            assert attempt and frame["attempt"] == attempt
            attempt = 0
    assert inside == [] and compacting == attempt == 0
    begun, ended = (sorted(f["toolCallId"] for f in rig.of(f"tool_execution_{edge}")) for edge in ("start", "end"))
    assert begun == ended
    updates = rig.of("queue_update")
    if updates and not {"new_session", "switch_session", "fork", "clone"} & set(sent.values()):
        queues = rig.agent._engine.queues
        assert (updates[-1]["steering"], updates[-1]["followUp"]) == queues.texts()


@pytest.mark.parametrize("with_extension", [False, True], ids=["bare", "extension"])
@pytest.mark.parametrize("seed", range(4, 10))
def test_the_rules_hold_whatever_the_client_does(tmp_path, seed, with_extension):
    async def main():
        chaos = Chaos(seed)
        extensions = [chaos.extension] if with_extension else []
        async with Rig(
            tmp_path, [chaos.answer], settings=SETTINGS, tools=chaos.tools(), extensions=extensions, session=True
        ) as rig:
            await chaos.play(rig)
            check(rig, chaos.sent)

    run(main())
