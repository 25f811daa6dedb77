"""Broken input at every door: lines of RPC, frames of WebSocket, session files, model streams, tool arguments.

Each round takes inputs of the corpus and changes them. What is asked is the same at each door: the process lives, and
each input has exactly one outcome (an answer, a refusal, a closed connection, a settled run).
"""

import json
import os
import random
import re
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

from websockets.exceptions import ConnectionClosed

from spindle.protocol.registry import REPLIES
from tests.soak.attack import APIS, OPEN, Attack, SoakAgent, until
from tests.soak.corpus import keep, kept, mutated, mutated_json
from tests.support.mock_model import call, raw, reply
from tests.wires.server.server import RpcSocket, ServerProcess

LIVES = "The process lives"
ONCE = "Every line gets exactly one answer"
ENDS = "Every run ends"
COMPLETE = "No tool runs on incomplete arguments"
QUIET = "No error of ours reaches stderr"
LEFT_OUT = b"shutdown"
NOVELTIES = int(os.environ.get("SOAK_KEEP", "0"))
"""How many inputs of a run that were answered as none before are kept."""


class Fuzz(Attack):
    """Takes inputs from a corpus: first as they are, the found ones before the others, then changed."""

    batch = 40
    """Inputs of one round."""

    def start(self) -> None:
        self.corpus = kept(self.name)
        self.shapes: set[str] = set()
        self.current = b""
        """What the process was given last."""

    def inputs(self, chance: random.Random) -> list[bytes]:
        same = self.corpus[self.number * self.batch :][: self.batch]
        return same or [self.change(chance.choice(self.corpus), chance) for _ in range(self.batch)]

    def change(self, data: bytes, chance: random.Random) -> bytes:
        return mutated(data, chance)

    def novel(self, data: bytes, answer: str) -> None:
        """Note how an input was answered; keep it if none was answered like that before, and that is asked for."""
        shape = " ".join(re.findall("[A-Za-z]+", answer)[:4])
        if shape not in self.shapes:
            self.shapes.add(shape)
            self.figures["kinds of answers"] += 1
            if self.figures["kinds of answers"] <= NOVELTIES and len(data) < 1000:
                keep(self.name, data)

    def must(self, promise: str, holds: bool, detail: object = "") -> None:
        if not holds and promise not in OPEN:
            keep(self.name, self.current)
        super().must(promise, holds, detail)

    def lives(self, agent: SoakAgent) -> None:
        self.must(LIVES, agent.process.poll() is None, agent.stderr[-500:])
        self.must(QUIET, b"Traceback" not in agent.stderr, agent.stderr[-1500:])


class Lines(Fuzz):
    """Lines of RPC, but for `shutdown`, which ends the process. Replies get an answer only if broken."""

    name = "lines"
    share = 2.0

    def start(self) -> None:
        super().start()
        self.agent = self.stack.enter_context(SoakAgent([reply("x")], session=True))
        self.agent.wait("ready")

    def change(self, data: bytes, chance: random.Random) -> bytes:
        if chance.random() < 0.05:
            return chance.randbytes(chance.randrange(1, 300))
        if chance.random() < 0.6:
            with suppress(ValueError):  # what is kept of a round that broke may be no JSON
                data = json.dumps(mutated_json(json.loads(data), chance)).encode()
        return mutated(data, chance) if chance.random() < 0.5 else data

    def inputs(self, chance: random.Random) -> list[bytes]:
        lines = [line.replace(b"\n", b" ") for line in super().inputs(chance)]
        return [line for line in lines if line.strip() and LEFT_OUT not in line]

    def round(self, chance: random.Random) -> None:
        given = self.inputs(chance)
        self.current = b"\n".join(given)
        lines = [line for line in given if not is_reply(line)]
        self.reply([line for line in given if is_reply(line)])
        self.agent.write(b"\n".join(lines) + b"\n")
        until(lambda: len(self.agent.responses()) >= len(lines) or self.agent.process.poll() is not None, 20)
        self.lives(self.agent)
        answers = self.agent.responses()
        self.must(ONCE, len(answers) == len(lines), f"{len(lines)} lines, {len(answers)} answers")
        for line, answer in zip(lines, answers, strict=False):
            self.novel(line, answer.get("error", ""))
        self.figures["lines"] += len(lines)
        self.agent.settle()
        if chance.random() < 0.2:  # the conversation grows with every prompt that was taken
            self.agent.data("new_session")
            self.agent.forget()

    def reply(self, lines: list[bytes]) -> None:
        """Send replies to questions that nobody asked: they get no answer, or one that says what is wrong with them."""
        self.agent.write(b"".join(line + b"\n" for line in lines))
        self.agent.data("get_state")
        answers = [answer for answer in self.agent.responses() if answer["command"] != "get_state"]
        self.must("A reply gets at most one answer", len(answers) <= len(lines), answers)
        self.figures["replies"] += len(lines)
        self.agent.forget()


def is_reply(line: bytes) -> bool:
    """Say whether a line is what a client answers to a request of the agent."""
    try:
        value = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("type") in REPLIES


class Frames(Fuzz):
    """Frames of WebSocket: well-formed ones with broken JSON in them, and broken ones."""

    name = "frames"

    def start(self) -> None:
        super().start()
        self.server = self.stack.enter_context(ServerProcess([reply("x")]))

    def round(self, chance: random.Random) -> None:
        for path in ("/", "/rpc"):
            frames = self.inputs(chance)
            self.current = b"\n".join(frames)
            connection = self.server.chat() if path == "/" else self.server.rpc()
            with connection:
                try:
                    for frame in frames:
                        if chance.random() < 0.1:
                            connection.socket.socket.sendall(broken_frame(frame, chance))
                        else:
                            connection.write(frame if chance.random() < 0.2 else frame.decode(errors="replace"))
                        self.figures["frames"] += 1
                except (ConnectionClosed, OSError):
                    self.figures["connections it closed"] += 1
        self.must(LIVES, self.server.process.poll() is None, self.server.stderr[-500:])
        self.must(QUIET, "Traceback" not in self.server.stderr, self.server.stderr[-1500:])
        with self.server.rpc() as client:
            self.must("A new client is served", self.served(client))

    def served(self, client: RpcSocket) -> bool:
        return bool(client.call("get_state")["success"])


def broken_frame(data: bytes, chance: random.Random) -> bytes:
    """Make a frame with any flags, opcode and length, that may lie about all of them."""
    flags, masked = chance.randrange(256), chance.choice([0, 0x80])
    length = chance.choice([len(data), chance.randrange(126), 2**40])
    head = bytes([flags, masked | length]) if length < 126 else struct.pack("!BBQ", flags, masked | 127, length)
    return head + chance.randbytes(4) + data


class Files(Fuzz):
    """Session files: each is opened by a process, looked at and written to."""

    name = "files"
    batch = 10

    def start(self) -> None:
        super().start()
        self.place = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.agent = self.stack.enter_context(SoakAgent([reply("x")], session=True))

    def change(self, data: bytes, chance: random.Random) -> bytes:
        lines = data.splitlines()
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(lines))
            match chance.randrange(4):
                case 0:
                    lines[at] = mutated(lines[at], chance)
                case 1:
                    lines.insert(chance.randrange(len(lines)), lines[at])
                case 2:
                    del lines[at]
                case _:
                    try:
                        lines[at] = json.dumps(mutated_json(json.loads(lines[at]), chance)).encode()
                    except ValueError:
                        pass
            lines = lines or [b""]
        whole = b"\n".join(lines) + b"\n"
        return mutated(whole, chance) if chance.random() < 0.2 else whole

    def round(self, chance: random.Random) -> None:
        for number, data in enumerate(self.inputs(chance)):
            path = self.place / f"{number}.jsonl"
            path.write_bytes(data)
            self.current = data
            answer = self.agent.call("switch_session", sessionPath=str(path))
            self.novel(data, answer.get("error", ""))
            if answer["success"]:
                self.figures["files opened"] += 1
                for command in ("get_messages", "get_entries", "get_tree", "get_state", "get_session_stats"):
                    answer = self.agent.call(command)
                    self.must("What was opened can be shown", answer["success"], answer)
                self.agent.run("go on")
                self.must("A session that was opened goes on", b'"go on"' in path.read_bytes(), data[:300])
            self.lives(self.agent)
            self.agent.data("new_session")
            self.agent.forget()
            path.unlink()
            self.figures["files"] += 1


class Streams(Fuzz):
    """Bytes of the model's answer, in all four APIs. The run must end, and the next one must work."""

    name = "streams"
    share = 1.5
    batch = 10

    def start(self) -> None:
        super().start()
        self.agent = self.stack.enter_context(SoakAgent())

    def round(self, chance: random.Random) -> None:
        for data in self.inputs(chance):
            api, _, stream = data.partition(b"\n")
            if api.decode(errors="replace") not in APIS:
                continue
            self.agent.data("set_model", provider=api.decode(), modelId="m1")
            self.current = data
            cut = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.randrange(4)))
            pieces = [stream[a:b] for a, b in zip([0, *cut], [*cut, len(stream)], strict=True) if a < b]
            self.agent.mock.script(raw(*pieces), reply("after a tool"), raw(b"data: [DONE]\n\n"))
            frames = self.agent.run("go")
            self.must(ENDS, frames[-1]["type"] == "agent_settled", frames[-1])
            self.lives(self.agent)
            answers = [frame["message"] for frame in frames if frame["type"] == "message_end"]
            self.novel(data, next((m.get("errorMessage", m["stopReason"]) for m in answers if "stopReason" in m), ""))
            self.agent.forget()
            self.figures["streams"] += 1
        self.agent.data("new_session")


class Arguments(Fuzz):
    """Arguments of tool calls: odd values in whole JSON, and JSON that was cut, which must not be run."""

    name = "arguments"
    batch = 10

    def start(self) -> None:
        super().start()
        tools = ["--tools", "read,write,edit,bash,grep,find,ls"]
        self.agent = self.stack.enter_context(SoakAgent(args=tools))

    def change(self, data: bytes, chance: random.Random) -> bytes:
        name, _, text = data.decode().partition("\n")
        value = mutated_json(json.loads(text), chance) if is_json(text) else text
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.3:
            text = text[: chance.randrange(1, max(2, len(text)))]
        return f"{name}\n{text}".encode("utf-8", "replace")

    def round(self, chance: random.Random) -> None:
        steps, cut = [], set()
        for data in self.inputs(chance):
            self.current = data
            name, _, text = data.decode().partition("\n")
            id, half = f"call-{chance.getrandbits(40):x}", chance.randrange(len(text) + 1)
            cut |= set() if is_json(text) else {id}
            steps.append(reply(call(name, [text[:half], text[half:]], id=id)))
        self.agent.mock.script(*steps, reply("done"))
        frames = self.agent.run("go")
        self.lives(self.agent)
        ends = {frame["toolCallId"]: frame for frame in frames if frame["type"] == "tool_execution_end"}
        self.must("Every tool call has one end", len(ends) == len(steps), sorted(ends))
        for id in cut:
            self.must(COMPLETE, ends[id]["isError"], ends[id])
        self.agent.data("new_session")
        self.agent.forget()
        self.figures["calls"] += len(steps)
        self.figures["cut calls"] += len(cut)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


DOORS: list[type[Fuzz]] = [Lines, Frames, Files, Streams, Arguments]
