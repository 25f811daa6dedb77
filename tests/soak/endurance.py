"""Thousands of turns in one process: after a warm-up, memory, descriptors and children stay as they are."""

import random
import statistics

from tests.soak.attack import Attack, SoakAgent, Vitals
from tests.support.mock_model import Step, call, failure, gate, reply, think

TURNS = 25
"""Model calls of one round, about; each round is a session of its own."""
GROWTH_MIB = 8.0
"""How much the last third of the rounds may have over the first, after the warm-up."""
LEAK_MIB = 32.0
"""A growth that the collector's slowness does not explain."""
FLAT = "Memory, descriptors and children stay flat"


class Endurance(Attack):
    name = "endurance"
    share = 4.0
    enough = 400
    """10,000 turns."""

    def start(self) -> None:
        self.agent = self.stack.enter_context(SoakAgent(session=True))
        self.vitals: list[Vitals] = []

    def round(self, chance: random.Random) -> None:
        agent, prompts = self.agent, 0
        agent.mock.script(*(step for number in range(TURNS) for step in turn(chance, number)), reply("late"))
        while len(agent.mock.requests) < TURNS:
            agent.run(f"prompt {prompts} " + "lorem " * chance.choice([1, 200]))
            prompts += 1
        agent.mock.script(reply("so far", gate("never")))
        agent.prompt("to be aborted")
        agent.wait_delta("so far")
        agent.call("steer", message="steered")
        agent.call("abort")
        agent.data("bash", command="echo user")
        for command in ("get_messages", "get_tree", "get_session_stats", "list_sessions"):
            agent.data(command)
        agent.data("new_session")
        agent.forget()
        self.figures["turns"] += TURNS + 1
        self.vitals.append(Vitals.of(agent.process.pid))

    def finish(self) -> None:
        seen = self.vitals[max(4, len(self.vitals) // 4) :]
        if not seen:
            return  # too few rounds to judge, as when one is struck again
        third = max(1, len(seen) // 3)
        first, last = (statistics.median(one.rss_mib for one in part) for part in (seen[:third], seen[-third:]))
        self.notes.append(f"RSS {first:.1f} MiB early, {last:.1f} MiB late, {seen[-1].descriptors} descriptors")
        grown = f"RSS grew from {first:.1f} to {last:.1f} MiB"
        self.must("A session that has ended is freed", last - first <= GROWTH_MIB, grown)
        self.must(FLAT, last - first <= LEAK_MIB, grown)
        for name in ("descriptors", "children"):  # one that is open for a moment, as a checkpoint's, is no leak
            early, late = ([getattr(one, name) for one in part] for part in (seen[:third], seen[-third:]))
            self.must(FLAT, min(late) <= max(early), f"{name}: {early} early, {late} late")


def turn(chance: random.Random, number: int) -> list[Step]:
    """Return the model's answer of one turn, sometimes after a failure."""
    failed = [failure(503, "busy")] if chance.random() < 0.05 else []
    command = {"command": f"echo {number}; head -c {chance.choice([10, 100_000])} /dev/zero | tr '\\0' x"}
    calls = [
        call("bash", command, id=f"b{number}"),
        call("write", {"path": "f.txt", "content": "x" * 999}, id=f"w{number}"),
    ]
    words = ["lorem ipsum "] * chance.choice([1, 10, 300])
    return [*failed, reply(think("hm"), *words, *calls[: chance.choice([0, 0, 0, 1, 2])])]
