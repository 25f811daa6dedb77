"""Chains of models whose servers fail in every way, in random order, with limits and aborts in every gap.

What must come of a prompt is told beforehand from the table of causes. No text comes twice, no tool runs twice.
"""

import json
import random
import socketserver
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.soak.attack import Attack, SoakAgent, check_session
from tests.support.causes import TABLE, TRIES
from tests.support.mock_model import MockModel, Step, call, reply

CHAIN = 3
"""Models in the longest chain."""
PROMPTS = 20
ROUNDS = 100
OUT_OF_REACH = {"nobody-listens": "http://127.0.0.1:9/v1", "no-tls": "https://127.0.0.1:{port}/v1"}
GAPS = [
    *("agent_start", "turn_start", "message_start", "message_update", "message_end", "turn_end", "auto_retry_start"),
    *("retry_fallback_applied", "notice", "tool_execution_start", "tool_execution_end", "retry_fallback_succeeded"),
]


class SpeaksNoTls(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class ChainAgent(SoakAgent):
    """Has so many models that each prompt has some of its own: one that failed rests for minutes."""

    no_tls: int
    """Port of a server that speaks no TLS."""

    def configure(self) -> None:
        super().configure()
        path = self.agent_dir / "models.json"
        models = json.loads(path.read_text())
        mock = models["providers"]["mock"]
        window = {"contextWindow": 100_000, "maxTokens": 4096}
        mock["models"] = [
            {"id": f"m{at}", **window, "contextWindow": 100_000 + at} for at in range(ROUNDS * PROMPTS * CHAIN)
        ]
        for name, url in OUT_OF_REACH.items():
            url = url.format(port=self.no_tls)
            models["providers"][name] = {**mock, "baseUrl": url}
        path.write_text(json.dumps(models))


@dataclass
class Fate:
    """What one model of a chain does, and what comes of it."""

    name: str
    steps: list[Step] = field(default_factory=list)
    asked: int = 1
    """How often its last step is asked for, if another model is left."""
    alone: int = 1
    """The same, if none is left."""
    cause: str | None = None
    works: bool = False
    """Whether it first calls a tool."""
    provider: str = "mock"

    @classmethod
    def at_random(cls, chance: random.Random, number: int, good: float) -> "Fate":
        if chance.random() < good:
            fate = cls("good", [reply("answer ", f"{number}")])
        elif chance.random() < 0.1:
            name = chance.choice(sorted(OUT_OF_REACH))
            return cls(name, [], 1, TRIES, "connection", provider=name)
        else:
            name, step, asked, cause = chance.choice(TABLE)
            fate = cls(name, [step], asked, TRIES if cause == "connection" else asked, cause)
        if chance.random() < 0.3:
            token = json.dumps({"command": f"echo {number} >> log"})
            fate.works, fate.steps = True, [reply(call("bash", [token], id=f"c{number}")), *fate.steps]
        return fate


class Failovers(Attack):
    name = "failovers"
    share = 1.5
    enough = ROUNDS

    def start(self) -> None:
        server = self.stack.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), SpeaksNoTls))
        self.stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ChainAgent.no_tls = server.server_address[1]
        self.agent = self.stack.enter_context(ChainAgent(args=["--updates", "delta"], session=True, model="mock/m0"))

    @property
    def mock(self) -> MockModel:
        return self.agent.mock

    def round(self, chance: random.Random) -> None:
        self.agent.data("new_session")
        for prompt in range(PROMPTS):
            self.prompt(chance, (self.number % ROUNDS) * PROMPTS + prompt)
        path = self.agent.data("get_state")["sessionFile"]
        before = self.agent.data("get_messages")["messages"]
        self.agent.data("new_session")
        self.agent.data("switch_session", sessionPath=path)
        after = self.agent.data("get_messages")["messages"]
        told, kept = (as_kept(one) for one in (before, after))
        self.must("What was told is in the session", told == kept, path)
        check_session(path)
        self.must("No error of ours reaches stderr", b"Traceback" not in self.agent.stderr, self.agent.stderr[-1500:])

    def prompt(self, chance: random.Random, number: int) -> None:
        agent, first = self.agent, number * CHAIN
        fates = [Fate.at_random(chance, number, good=0.2 + 0.2 * at) for at in range(chance.randrange(1, CHAIN + 1))]
        names = [f"{fate.provider}/m{first + at}" for at, fate in enumerate(fates)]
        for at, fate in enumerate(fates):
            self.mock.script_for(f"m{first + at}", *fate.steps)
        limit = chance.choice([None, None, None, 1, 2, 3, 5])
        gap = chance.choice(GAPS) if chance.random() < 0.25 else None
        agent.data("set_model", provider=fates[0].provider, modelId=f"m{first}")
        agent.forget()
        self.mock.requests.clear()
        limits = {} if limit is None else {"maxTurns": limit}
        agent.data("prompt", message=f"prompt {number}", fallback=names[1:], **limits)
        if gap is not None:
            kind = agent.wait(lambda frame: frame["type"] in (gap, "agent_settled"))["type"]
            if kind != "agent_settled":
                agent.call("abort")
                agent.wait("agent_settled")
        else:
            agent.wait("agent_settled")
        about = (self.number, number, [fate.name for fate in fates], [fate.works for fate in fates], limit, gap)
        self.judge(number, fates, names, limit, gap, about)
        self.figures["prompts"] += 1

    def asked(self, names: list[str]) -> int:
        """Return how many requests came for these models: one of a prompt before, which was aborted, may come late."""
        ids = [name.rpartition("/")[2] for name in names]
        return sum(request.body["model"] in ids for request in self.mock.requests)

    def judge(
        self, number: int, fates: list[Fate], names: list[str], limit: int | None, gap: str | None, about: Any
    ) -> None:
        agent = self.agent
        frames = list(agent.frames)
        settled = [frame for frame in frames if frame["type"] == "agent_settled"]
        self.must("Every run ends once", len(settled) == 1, about)
        asked, switches, tools, end = expected(fates, names, limit)
        requests = self.asked(names)
        messages = agent.data("get_messages")["messages"]
        own = messages[max(at for at, message in enumerate(messages) if said(message) == f"prompt {number}") :]
        answers = [message for message in own if said(message) == f"answer {number}"]
        self.must("No text comes twice", len(answers) <= 1, (about, own))
        log = (agent.cwd / "log").read_text().split() if (agent.cwd / "log").exists() else []
        self.must("No tool runs twice", log.count(str(number)) <= tools, about)
        results = [m["toolCallId"] for m in own if m["role"] == "toolResult"]
        whole = [m for m in own if m["role"] == "assistant" and m["stopReason"] not in ("error", "aborted")]
        calls = [block["id"] for m in whole for block in m["content"] if "arguments" in block]
        self.must("Every call has its result", sorted(results) == sorted(calls), (about, own))
        broken = [m for m in own if m.get("stopReason") == "error" and m is not own[-1]]
        self.must("A failed answer is not part of the conversation", not broken, (about, own))
        told = [(f["from"], f["to"], f["cause"]) for f in frames if f["type"] == "retry_fallback_applied"]
        if gap is not None and end != settled[0]["stopReason"]:
            self.must("After an abort nothing is asked", requests <= asked + CHAIN, (about, requests))
            self.must("Switches are told", told == switches[: len(told)], (about, told))
            self.figures["aborts"] += 1
        else:
            # A kept connection that the server closes is no answer: the request is made again on another one.
            again = sum(fate.name == "hung up" for fate in fates[: len(told) + 1])
            self.must("Each model is asked so often", asked <= requests <= asked + again, (about, requests, asked))
            self.must("Switches are told", told == switches, (about, told, switches))
            self.must("The end is told", settled[0]["stopReason"] == end, (about, settled, end))
            self.must("Tools run", gap is not None or log.count(str(number)) == tools, about)
            self.figures[f"ends as {end}"] += 1
        self.figures["switches"] += len(told)
        succeeded = [f["model"] for f in frames if f["type"] == "retry_fallback_succeeded"]
        self.must("Success is told of models that were switched to", set(succeeded) <= {t[1] for t in told}, about)
        state = agent.data("get_state")
        chosen = f"{state['model']['provider']}/{state['model']['id']}"
        self.must("The model of the session stays", chosen == names[0], (about, chosen))
        # A request that was on its way at an abort arrives late.
        late = self.asked(names) - requests
        self.must("Nothing is asked after the end", late <= (gap is not None), (about, late))


def expected(
    fates: list[Fate], names: list[str], limit: int | None
) -> tuple[int, list[tuple[str, str, str]], int, str]:
    """Return how many requests arrive, the switches, how many calls are run, and why the run ends."""
    requests = turns = tools = 0
    switches: list[tuple[str, str, str]] = []
    for at, fate in enumerate(fates):
        is_last = at + 1 == len(fates)
        for turn in range(fate.works + (fate.alone if is_last else fate.asked)):
            if limit is not None and turns >= limit:
                return requests, switches, tools, "maxTurns"
            turns += 1
            requests += fate.provider == "mock"
            tools += fate.works and turn == 0
        if fate.name == "good":
            return requests, switches, tools, "end"
        goes_on = fate.name == "overflow" or (fate.cause is not None and not is_last)  # a compaction may make room
        if goes_on and limit is not None and turns >= limit:
            return requests, switches, tools, "maxTurns"
        if is_last or fate.cause is None:
            return requests, switches, tools, "length" if fate.name == "length" else "error"
        switches.append((names[at], names[at + 1], fate.cause))
    raise AssertionError("a chain has an end")


def as_kept(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is the same when a session is opened again: no failed answers, no time of our own messages."""
    kept = [message for message in messages if message.get("stopReason") != "error"]
    return [{**message, "timestamp": 0} if message["role"] == "custom" else message for message in kept]


def said(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
