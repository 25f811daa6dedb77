"""kill -9 at any moment of a run with tools, then the same session again.

What the process had told (an accepted prompt, the end of a message, the end of a tool) and what the model had been
sent must be in the file, in whole lines that `sessions check` calls sound.
"""

import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.soak.attack import Attack, SoakAgent, as_stored, check_session, is_cut, processes_of, until, whole_lines
from tests.support.mock_model import Step, call, pause, reply, think

RESUMES = 10
"""Kills for one session file."""
LONGEST_S = 0.2
MOMENTS = ["response", "message_update", "message_end", "tool_execution_start", "tool_execution_end", "turn_end"]
DIES_S = 1.0
"""How long the commands of a killed agent may take to end."""
TOLD = "What was told is saved"
ACCEPTED = "No accepted prompt is lost"
WAITING = "An accepted message that still waits survives a kill"
OUTLIVED = "No process outlives the agent"


class Kills(Attack):
    name = "kills"
    share = 3.0

    def start(self) -> None:
        self.kills_left = 0

    def round(self, chance: random.Random) -> None:
        if not self.kills_left:
            self.kills_left = RESUMES
            self.base = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
            self.path = self.base / "session.jsonl"
        self.kills_left -= 1
        tag = f"{chance.getrandbits(40):x}"
        with SoakAgent(script(chance, tag), base=self.base, session=True, args=["--session", str(self.path)]) as agent:
            self.resume(agent)
            self.talk(agent, chance, tag)
            agent.kill()
            agent.drain()
            self.judge(agent)
        if is_cut(self.path):
            self.figures["lines that the kernel had written half"] += 1
            self.kills_left = 0
        else:
            check_session(self.path)

    def resume(self, agent: SoakAgent) -> None:
        """What the file holds is what a client gets."""
        stored = [canonical(entry["message"]) for entry in whole_lines(self.path) if entry["type"] == "message"]
        shown = {canonical(message) for message in agent.data("get_messages")["messages"]}
        self.must(TOLD, shown.issuperset(stored), "a resumed session shows less than its file holds")

    def talk(self, agent: SoakAgent, chance: random.Random, tag: str) -> None:
        """Prompt, go on until something random has happened, and a random moment further."""
        agent.send("prompt", id=f"{tag} first", message=f"{tag} first")
        for number in range(chance.randrange(4)):
            text = f"{tag} waits {number}"
            agent.send(chance.choice(["steer", "follow_up"]), id=text, message=text)
        moment = chance.choice(MOMENTS)
        for _ in range(chance.randint(1, 3)):
            if agent.wait(lambda frame: frame["type"] in (moment, "agent_settled"))["type"] == "agent_settled":
                break
        time.sleep(chance.random() * chance.choice([0.002, 0.02, LONGEST_S]))

    def judge(self, agent: SoakAgent) -> None:
        entries = whole_lines(self.path)
        messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        remarks = {entry["content"] for entry in entries if entry["type"] == "custom_message"}
        stored = {canonical(message) for message in messages}
        texts = {text for message in messages if message["role"] == "user" for text in texts_of(message)}
        results = {message["toolCallId"] for message in messages if message["role"] == "toolResult"}
        for frame in agent.frames:
            match frame:
                case {"type": "message_end", "message": {"role": "custom", "content": text}}:
                    self.must(TOLD, text in remarks, text)
                case {"type": "message_end", "message": message}:
                    self.figures["messages told"] += 1
                    self.must(TOLD, canonical(message) in stored, message)
                case {"type": "tool_execution_end", "toolCallId": id}:
                    self.figures["tool ends told"] += 1
                    self.must(TOLD, id in results, frame)
                case {"type": "response", "command": "prompt", "success": True, "id": text}:
                    self.figures["prompts accepted"] += 1
                    self.must(ACCEPTED, text in texts or self.beside(text), text)
                case {"type": "response", "command": "steer" | "follow_up", "success": True, "id": text}:
                    self.figures["queued messages accepted"] += 1
                    self.must(WAITING, text in texts or self.beside(text), text)
        for request in agent.mock.requests:
            users = [message for message in request.body["messages"] if message["role"] == "user"]
            sent = [text for message in users for text in texts_of(message)]
            self.must("The model is sent nothing that is not saved", (texts | remarks).issuperset(sent), sent)
        until(lambda: not any(processes_of(agent.agent_dir)), DIES_S)
        left = list(processes_of(agent.agent_dir))
        self.must(OUTLIVED, not left, left)
        for pid in left:
            self.figures["processes that outlived a kill"] += 1
            os.kill(pid, signal.SIGKILL)
        self.figures["kills"] += 1

    def beside(self, text: str) -> bool:
        """Whether a text is kept in the session's file or in one beside it."""
        return any(text.encode() in path.read_bytes() for path in self.base.glob("session*") if path.is_file())


def script(chance: random.Random, tag: str) -> list[Step]:
    """Make a conversation of answers with thinking, text in pieces, and tools that take a moment."""
    steps = []
    for number in range(6):
        pieces = [item for _ in range(chance.randrange(5)) for item in (f"{tag} text ", pause(chance.random() * 0.02))]
        calls = []
        for index in range(chance.randrange(4)):
            command = {"command": f"echo {number} {index}; sleep {chance.choice([0, 0.01, 0.05, 0.2])}; echo done"}
            file = {"path": f"file{index}.txt", "content": tag * 50}
            name, arguments = chance.choice([("bash", command), ("bash", command), ("write", file)])
            calls.append(call(name, arguments, id=f"{tag}-{number}-{index}"))
        steps.append(reply(think("hm "), *pieces, *calls))
    return [*steps, reply("at the end")]


def canonical(message: dict[str, Any]) -> str:
    return json.dumps(as_stored(message), sort_keys=True)


def texts_of(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]
