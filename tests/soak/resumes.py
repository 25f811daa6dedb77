"""kill -9 at random moments of one run, which another process goes on with, until it ends.

The run marks in a file every time that one of its commands begins. However often its process is killed, no command
begins twice, nothing that was accepted is lost or doubled, the limit holds, and the run ends.
"""

import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak.attack import Attack, SoakAgent, check_session, is_cut, whole_lines
from tests.support.mock_model import Step, call, pause, reply

TURNS = 6
"""Answers with calls, before the last answer."""
MOST_KILLS = 12
"""Of one run; then it is let go on to its end."""
MOMENTS = ["response", "agent_start", "message_update", "message_end", "tool_execution_start", "tool_execution_end"]
ONCE = "No command that has an effect is begun twice"
LOST = "No accepted message is lost, none is doubled"
ENDS = "A run that was cut off goes on and ends"
LIMIT = "No limit is passed by more than one call for each kill"


class Resumes(Attack):
    name = "resumes"
    share = 2.0

    def round(self, chance: random.Random) -> None:
        base = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        path, tag, kills, asked = base / "session.jsonl", f"{chance.getrandbits(40):x}", 0, 0
        limit = chance.choice([None, TURNS + MOST_KILLS])
        prompted, queued = f"{tag} go", f"{tag} later"
        while True:
            done = sum(entry["message"]["role"] == "assistant" for entry in messages(path))
            steps = script(chance, tag, done)
            with SoakAgent(steps, base=base, session=True, args=["--session", str(path)]) as agent:
                left = agent.data("get_state").get("interruptedRun")
                if not path.exists() or not messages(path):
                    agent.send("prompt", id=prompted, message=prompted, **({"maxTurns": limit} if limit else {}))
                    agent.send("follow_up", id=queued, message=queued)
                elif left is not None:
                    self.figures["runs gone on with"] += 1
                    agent.send("resume_run")
                else:
                    break
                last = kills >= MOST_KILLS
                if not last:
                    moment = chance.choice(MOMENTS)
                    for _ in range(chance.randint(1, 3)):
                        frame = agent.wait(lambda frame, moment=moment: frame["type"] in (moment, "agent_settled"))
                        if frame["type"] == "agent_settled":
                            break
                    time.sleep(chance.random() * chance.choice([0.002, 0.02, 0.1]))
                else:
                    agent.wait("agent_settled")
                    self.must(ENDS, agent.data("get_state").get("interruptedRun") is None, "still open")
                agent.kill()
                agent.drain()
                asked += len(agent.mock.requests)
            kills += 1
            self.figures["kills"] += 1
            if is_cut(path):
                self.figures["lines that the kernel had written half"] += 1
                return
            if last:
                break
        self.judge(base, path, prompted, queued, limit, asked, kills)

    def judge(
        self, base: Path, path: Path, prompted: str, queued: str, limit: int | None, asked: int, kills: int
    ) -> None:
        marks = base / "work" / "marks"
        counted = Counter(marks.read_text().split() if marks.exists() else [])
        self.figures["commands begun"] += len(counted)
        self.must(ONCE, not counted or max(counted.values()) == 1, counted)
        texts = Counter(text_of(entry["message"]) for entry in messages(path) if entry["message"]["role"] == "user")
        self.must(LOST, texts[prompted] == 1 and texts[queued] <= 1, texts)
        kept = texts[queued] or any(queued.encode() in one.read_bytes() for one in base.glob("session*"))
        self.must(LOST, bool(kept), "the queued message is gone")
        records = [entry["data"] for entry in whole_lines(path) if entry.get("customType") == "spindle.run"]
        states = [record["state"] for record in records]
        self.must(ENDS, states.count("begun") == 1 or "ended" in states, states)
        self.must(LIMIT, limit is None or asked <= limit + kills, (asked, limit, kills))
        self.figures["runs ended"] += states.count("ended")
        check_session(path)


def script(chance: random.Random, tag: str, done: int) -> list[Step]:
    """Make the answers that are still to come: each call has an id of its own, and marks that it began."""
    steps: list[Step] = []
    for number in range(done, max(TURNS, done)):
        one = f"{tag}-{number}-{chance.getrandbits(24):x}"
        slow = {"command": f"echo {one} >> marks; sleep {chance.choice([0, 0.02, 0.1])}"}
        calls = [call("bash", slow, id=one), call("ls", {}, id=f"{one}-ls")]
        steps.append(reply(f"{tag} text ", pause(chance.random() * 0.02), *calls))
    return [*steps, *[reply("at the end") for _ in range(MOST_KILLS)]]


def messages(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [entry for entry in whole_lines(path) if entry["type"] == "message"] if path.exists() else []


def text_of(message: dict) -> str:  # type: ignore[type-arg]
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
