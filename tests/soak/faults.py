"""A model server that cuts, stalls, refuses, babbles and lies, in two APIs. Every run ends, and the next one works."""

import random
import time
from collections.abc import Callable

from tests.soak.attack import Attack, SoakAgent, Vitals
from tests.support.mock_model import (
    NOTHING,
    Step,
    call,
    cut,
    dropped,
    error,
    failure,
    gate,
    pause,
    raw,
    reply,
    silent,
    sse,
    stall,
    think,
)

LIMIT_MIB = 400
"""For a process that was sent answers of up to 10 MB."""
ABORT_S = 5.0
STATUS = [400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 507, 520, 522, 529]
BODIES = [
    "no",
    "",
    b"<html>gone</html>",
    b"\xff\xfe",
    b"{",
    {"error": "text"},
    {"error": {"code": 5}},
    {"type": "error"},
]

Fault = Callable[[random.Random], Step]

# Each of these ends by itself.
FAULTS: dict[str, Fault] = {
    "cut in text": lambda chance: reply(*["piece "] * chance.randrange(50), cut()),
    "cut in thinking": lambda chance: reply(think("hm"), cut()),
    "cut in a call": lambda chance: reply(call("bash", ['{"command": "ec']), cut()),
    "no end": lambda chance: reply("text", finish=NOTHING),
    "ended by length": lambda chance: reply("text", finish="length"),
    "unknown end": lambda chance: reply("text", finish="surprise"),
    "dropped": lambda chance: dropped(),
    "status": lambda chance: failure(chance.choice(STATUS), chance.choice(BODIES)),
    "retry-after": lambda chance: failure(
        429, "slow down", {"retry-after": chance.choice(["0", "0.01", "-1", "x", ""])}
    ),
    "error in the stream": lambda chance: reply("text", error({"type": "overloaded_error", "message": "busy"})),
    "garbage": lambda chance: raw(chance.randbytes(chance.randrange(1, 5000))),
    "garbage events": lambda chance: reply("a", sse(b"data: " + chance.randbytes(50).hex().encode() + b"\n\n"), "b"),
    "not a stream": lambda chance: raw(b"<html>hello</html>", content_type="text/html"),
    "nothing": lambda chance: raw(b""),
    "only comments": lambda chance: raw(*[b": ping\n\n"] * 100),
    "slow": lambda chance: reply(*[item for _ in range(20) for item in ("bit ", pause(0.01))]),
    "byte by byte": lambda chance: raw(*(bytes([b]) for b in b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')),
    "huge": lambda chance: reply(*["x" * 50_000] * chance.choice([20, 200])),
    "huge line": lambda chance: reply("x" * chance.choice([1_000_000, 5_000_000])),
    "many calls": lambda chance: reply(*(call("ls", {"path": "."}, id=f"c{n}") for n in range(50))),
    "same ids": lambda chance: reply(call("ls", {"path": "."}, id="c"), call("ls", {"path": "."}, id="c")),
    "unknown tool": lambda chance: reply(call("launch", {"x": 1}, id="c")),
}
# These end when the user says so.
ENDLESS: dict[str, Fault] = {
    "silent": lambda chance: silent(),
    "stalled": lambda chance: reply("text", stall()),
    "a byte a second": lambda chance: raw(*[item for _ in range(60) for item in (b"d", pause(1.0))]),
    "endless text": lambda chance: reply(*["more "] * 200_000),
    "endless pings": lambda chance: raw(*[item for _ in range(6000) for item in (b": ping\n\n", pause(0.01))]),
    "stalled call": lambda chance: reply(call("bash", ['{"command": "'], id="c"), gate("never")),
}


class Faults(Attack):
    name = "faults"
    share = 1.5

    def start(self) -> None:
        self.agent = self.stack.enter_context(SoakAgent(args=["--updates", "delta"]))

    def round(self, chance: random.Random) -> None:
        agent = self.agent
        agent.data("new_session")
        agent.data("set_model", provider=chance.choice(["mock", "anthropic-messages"]), modelId="m1")
        for name in chance.sample(sorted(FAULTS), 5):
            agent.mock.script(*[FAULTS[name](chance)] * chance.choice([1, 3]), reply("mended"))
            self.run(name)
        name = chance.choice(sorted(ENDLESS))
        agent.mock.script(ENDLESS[name](chance))
        agent.prompt("endless")
        agent.mock.wait_requests(1)
        time.sleep(chance.random() * 0.1)
        began = time.monotonic()
        agent.call("abort")
        self.must("An abort ends a run", time.monotonic() - began < ABORT_S, name)
        agent.mock.script(reply("fine"))
        agent.forget()
        answer = [frame["message"] for frame in self.run("after") if frame["type"] == "message_end"][-1]
        self.must("The run after a fault works", answer["stopReason"] == "stop", answer)
        self.must("No error of ours reaches stderr", b"Traceback" not in agent.stderr, agent.stderr[-1500:])
        rss = Vitals.of(agent.process.pid).rss_mib
        self.must("Memory stays bounded", rss < LIMIT_MIB, f"{rss:.0f} MiB after {name}")
        self.figures["faults"] += 6

    def run(self, name: str) -> list[dict]:
        frames = self.agent.run(f"with {name}")
        self.must("Every run ends", frames[-1]["type"] == "agent_settled", name)
        self.agent.forget()
        return frames
