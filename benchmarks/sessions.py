"""Open, append and list sessions, ours against pi's in the same run.

    python benchmarks/sessions.py [--sizes 1000,10000,100000] [--rounds 5] [--pi DIR [--node NODE]]...

`--pi` names the directory of an installed `pi-coding-agent` package and may be given more than once. Every figure
is the median of fresh processes; CPU time counts, since a shared machine makes wall time mean little.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OURS = """
import json, resource, sys, time
from spindle.sessions import SessionManager
from spindle.shapes.messages import message_from_value

def cpu_ms():
    return time.process_time() * 1000

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6

what, *arguments = sys.argv[1:]
start = cpu_ms()
if what == "open":
    manager = SessionManager.open(arguments[0], read_only=True)
    opened = cpu_ms()
    count = len(manager.build_session_context().messages)
    result = {"open": opened - start, "context": cpu_ms() - opened, "rss": resident_mb(), "count": count}
    opened = cpu_ms()
    manager.get_tree()
    result["tree"] = cpu_ms() - opened
elif what == "append":
    message = message_from_value(json.loads(arguments[2]))
    manager = SessionManager.open(arguments[0], fsync="never")
    start = cpu_ms()
    for _ in range(int(arguments[1])):
        manager.append_message(message)
    result = {"append": int(arguments[1]) / (cpu_ms() - start) * 1000}
else:
    result = {"count": len(SessionManager.list("/srv/demo", arguments[0])), "list": cpu_ms() - start}
print(json.dumps(result))
"""

PIS = """
const [what, ...args] = process.argv.slice(1);
const { SessionManager } = await import(`file://${process.env.PI}/dist/index.js`);
const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1000; };
let start = cpu();
let result;
if (what === "open") {
  const manager = SessionManager.open(args[0]);
  const opened = cpu();
  const count = manager.buildSessionContext().messages.length;
  result = { open: opened - start, context: cpu() - opened, rss: process.memoryUsage().rss / 1e6, count };
  const built = cpu();
  manager.getTree();
  result.tree = cpu() - built;
} else if (what === "append") {
  const message = JSON.parse(args[2]);
  const manager = SessionManager.open(args[0]);
  start = cpu();
  for (let i = 0; i < Number(args[1]); i++) manager.appendMessage(message);
  result = { append: (Number(args[1]) / (cpu() - start)) * 1000 };
} else {
  result = { count: (await SessionManager.list("/srv/demo", args[0])).length, list: cpu() - start };
}
console.log(JSON.stringify(result));
"""

APPENDS = 5000
USAGE = {
    "input": 1234,
    "output": 567,
    "cacheRead": 890,
    "cacheWrite": 0,
    "totalTokens": 2691,
    "cost": {"input": 0.001234, "output": 0.001134, "cacheRead": 8.9e-05, "cacheWrite": 0, "total": 0.002457},
}
WORDS = 'the quick brown fox jumps over the lazy dog and "quotes" a line\n'


def messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield a typical conversation: a question, a tool call, its result (sometimes long), an answer."""
    by_model = {"api": "openai-completions", "provider": "mock", "model": "mock-1", "usage": USAGE}
    for number in range(count):
        text = {"type": "text", "text": f"{number} " + WORDS * 6}
        time = 1735689600000 + number
        match number % 4:
            case 0:
                yield {"role": "user", "content": [text], "timestamp": time}
            case 1:
                call = {"type": "toolCall", "id": f"call_{number}", "name": "read", "arguments": {"path": "src/a.py"}}
                yield {
                    "role": "assistant",
                    "content": [text, call],
                    **by_model,
                    "stopReason": "toolUse",
                    "timestamp": time,
                }
            case 2:
                long = {"type": "text", "text": WORDS * (120 if number % 40 == 2 else 6)}
                result = {"toolCallId": f"call_{number - 1}", "toolName": "read", "content": [long], "isError": False}
                yield {"role": "toolResult", **result, "timestamp": time}
            case _:
                yield {"role": "assistant", "content": [text], **by_model, "stopReason": "stop", "timestamp": time}


def short_messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield messages so short that only the work that every message needs takes time."""
    for number in range(count):
        yield {"role": "user", "content": f"message {number}", "timestamp": 1735689600000 + number}


def write_session(
    path: Path, said: Iterable[dict[str, Any]], session_id: str = "benchmark", cwd: str = "/srv/demo"
) -> Path:
    stamp = "2025-01-01T00:00:00.000Z"
    header = {"type": "session", "version": 3, "id": session_id, "timestamp": stamp, "cwd": cwd}
    with path.open("w") as file:
        file.write(json.dumps(header, separators=(",", ":")) + "\n")
        for number, message in enumerate(said):
            parent = f"{number - 1:08x}" if number else None
            entry = {
                "type": "message",
                "id": f"{number:08x}",
                "parentId": parent,
                "timestamp": stamp,
                "message": message,
            }
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
    return path


class Runner:
    def __init__(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._command = command
        self._environment = environment

    def once(self, *arguments: object) -> dict[str, float]:
        command = [*self._command, *map(str, arguments)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def measure(peers: list[Runner], rounds: int, *arguments: object) -> list[dict[str, float]]:
    """Return the medians of each peer. They take turns, so that a busy moment of the machine hits all of them."""
    found = [[peer.once(*arguments) for peer in peers] for _ in range(rounds)]
    return [{key: statistics.median(one[key] for one in ones) for key in ones[0]} for ones in zip(*found, strict=True)]


def runners(options: argparse.Namespace) -> list[Runner]:
    found = [Runner("spindle", [sys.executable, "-c", OURS])]
    for number, directory in enumerate(options.pi):
        version = json.loads((Path(directory) / "package.json").read_text())["version"]
        node = options.node[number] if number < len(options.node) else "node"
        command = [node, "--input-type=module", "-e", PIS, "--"]
        found.append(
            Runner(f"pi {version}", command, {"PI": directory, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pi", action="append", default=[])
    parser.add_argument("--node", action="append", default=[], help="the node for each --pi, in order")
    options = parser.parse_args()
    peers = runners(options)
    answer = json.dumps(next(message for message in messages(4) if message["role"] == "assistant"))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        print("| who | entries | MB | open ms | context ms | tree ms | RSS MB | list ms | appends/s |")
        print("|---" * 9 + "|")
        for size in map(int, options.sizes.split(",")):
            path = write_session(place / "s.jsonl", messages(size))
            megabytes = path.stat().st_size / 1e6
            opened = measure(peers, options.rounds, "open", path)
            listed = measure(peers, options.rounds, "list", place)
            appended = measure(peers, options.rounds, "append", path, APPENDS, answer)
            for peer, a, b, c in zip(peers, opened, listed, appended, strict=True):
                assert (a["count"], b["count"]) == (size, 1)
                figures = f"{a['open']:.0f} | {a['context']:.0f} | {a['tree']:.0f} | {a['rss']:.0f} | {b['list']:.0f}"
                print(f"| {peer.name} | {size:,} | {megabytes:.1f} | {figures} | {c['append']:,.0f} |", flush=True)
        many = place / "many"
        many.mkdir()
        for number in range(500):
            write_session(many / f"{number}.jsonl", messages(60), f"session-{number}")
        print("\n| who | list of 500 sessions, CPU ms |\n|---|---|")
        for peer, got in zip(peers, measure(peers, options.rounds, "list", many), strict=True):
            assert got["count"] == 500
            print(f"| {peer.name} | {got['list']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
