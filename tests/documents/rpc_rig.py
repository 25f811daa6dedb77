"""Runs what the documents of pi's RPC mode describe, on a real process, and keeps every frame that it sends."""

import json
import time
from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL
from tests.support.mock_model import Step, call, failure, gate, reply, think

MODEL = "claude-sonnet-4-20250514"
SUMMARY = reply("Summary of conversation...", match="(?s)(summary|summarize|checkpoint)")
EXTENSION = '''
"""Asks, tells, refuses and fails as the documents show it."""
from pathlib import Path

def extension(agent):
    def refuses(event, ctx):
        return {"cancel": True} if Path("refuse").exists() else None

    agent.on("session_before_switch")(refuses)
    agent.on("session_before_fork")(refuses)

    @agent.on("tool_call")
    async def fails(event, ctx):
        if Path("fail").exists():
            raise RuntimeError("Error message...")

    @agent.command("session-name")
    async def name(arguments, ctx):
        'Set or clear session name'
        ctx.ui.notify("Command blocked by user", "warning")
        ctx.ui.set_status("my-ext", "Turn 3 running...")
        ctx.ui.set_widget("my-ext", ["--- My Widget ---", "Line 1", "Line 2"], placement="aboveEditor")
        ctx.ui.set_title("pi - my project")
        ctx.ui.set_editor_text("prefilled text for the user")
        await ctx.ui.select("Allow dangerous command?", ["Allow", "Block"], timeout=10)
        await ctx.ui.confirm("Clear session?", "All messages will be lost.", timeout=5)
        await ctx.ui.input("Enter a value", "type something...")
        await ctx.ui.editor("Edit some text", "Line 1\\nLine 2\\nLine 3")
        await ctx.ui.confirm("Confirm", "Continue?", timeout=30)
        await ctx.ui.input("Branch name", "feature/...")
'''
USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def answer(*blocks: Any, cost: float = 0.0, **usage: int) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    kind = {"api": "anthropic-messages", "provider": "anthropic", "model": MODEL, "stopReason": "stop", "timestamp": 1}
    return {
        "role": "assistant",
        "content": content,
        **kind,
        "usage": {**USAGE, **usage, "cost": {**COST, "total": cost}},
    }


def called(number: int) -> dict[str, Any]:
    return {"type": "toolCall", "id": f"t{number}", "name": "bash", "arguments": {"command": "ls"}}


def result(number: int) -> dict[str, Any]:
    text = [{"type": "text", "text": "x"}]
    return {
        "role": "toolResult",
        "toolCallId": f"t{number}",
        "toolName": "bash",
        "content": text,
        "isError": False,
        "timestamp": 1,
    }


def counted() -> list[dict[str, Any]]:
    """Return the messages that the sample of `get_session_stats` counts."""
    numbers = iter(range(12))
    messages = []
    for turn in range(5):
        mine = [next(numbers) for _ in range(2 + (turn < 2))]
        usage = {"input": 10_000, "output": 2_000, "cacheRead": 8_000, "cacheWrite": 1_000, "totalTokens": 21_000}
        said = answer(*map(called, mine), cost=0.0 if turn else 0.45, **usage)
        messages += [user(f"q{turn}"), said, *map(result, mine)]
    return messages


SESSIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "get_state": [(f"m{n}", user(f"q{n}") if n % 2 == 0 else answer(f"a{n}")) for n in range(5)],
    "get_session_stats": [(f"m{n}", message) for n, message in enumerate(counted())],
    "compact": [
        ("m1", user("long ago " * 200)),
        ("m2", answer("then")),
        ("abc123", user("now " * 200)),
        ("m4", answer("yes", input=149_000, output=1_000, totalTokens=150_000)),
    ],
    "fork": [("abc123", user("The original prompt text...")), ("m2", answer("done"))],
    "get_fork_messages": [
        ("abc123", user("First prompt...")),
        ("m2", answer("a")),
        ("def456", user("Second prompt...")),
        ("m4", answer("The assistant's response...")),
    ],
}
SESSIONS["get_last_assistant_text"] = SESSIONS["get_fork_messages"]


class Rig(AgentProcess):
    def __init__(self, base: Path, *args: str, delay_ms: int = 20) -> None:
        steps: list[Step] = [
            SUMMARY,
            reply("Hello", " world", match="Hello, world!"),
            reply("Hello ", "you", match="with a space"),
            reply(call("bash", {"command": "ls -la"}, id="call_abc123"), match="list the files"),
            reply(
                "Hello! How can I help?",
                think("User is greeting me..."),
                call("bash", {"command": "ls"}, id="call_123"),
                match="^Hello!$",
                usage=(100, 50, 0),
            ),
            reply(call("echo_host", {"message": "hello"}, id="toolu_123"), match="echo it"),
            *[reply("held", gate(f"hold {n}"), match=f"hold {n}$") for n in range(8)],
            reply("OK"),
        ]
        self._delay_ms, self._held = delay_ms, 0
        super().__init__(
            steps,
            args=["-e", "shown.py", "--approve", *args],
            session=True,
            base=base,
            model=f"anthropic/{MODEL}",
            api="anthropic-messages",
            settings={
                "retry": {"baseDelayMs": delay_ms},
                "compaction": {"keepRecentTokens": 150, "reserveTokens": 60_000},
            },
            env={"PATH": f"{base / 'bin'}:/usr/bin:/bin", "PI_RPC_EMIT_TITLE": "1"},
        )

    def configure(self) -> None:
        providers = {"anthropic": {"baseUrl": self.mock.anthropic_url, "apiKey": "test-key"}}
        (self.agent_dir / "models.json").write_text(json.dumps({"providers": providers}))
        (self.cwd / "shown.py").write_text(EXTENSION)
        programs = self.base / "bin"
        programs.mkdir()
        (programs / "ls").write_text("#!/bin/sh\nprintf 'total 48\\ndrwxr-xr-x ...'\n")
        (programs / "ls").chmod(0o755)
        prompts, skill = self.cwd / ".pi" / "prompts", self.agent_dir / "skills" / "brave-search"
        prompts.mkdir(parents=True)
        skill.mkdir(parents=True)
        (prompts / "fix-tests.md").write_text("---\ndescription: Fix failing tests\n---\nFix them")
        head = "---\nname: brave-search\ndescription: Web search via Brave API\n---\n"
        (skill / "SKILL.md").write_text(head + "Search.")

    def stored(self, name: str) -> str:
        """Return the path of a new session file with the messages that the sample of this command needs."""
        path = self.base / f"{name}.jsonl"
        head = {"type": "session", "version": 3, "id": f"s-{name}", "timestamp": "2026-01-01T00:00:00.000Z"}
        lines, parent = [{**head, "cwd": str(self.cwd)}], None
        for id, message in SESSIONS[name]:
            time = {"timestamp": "2026-01-01T00:00:00.000Z"}
            lines.append({"type": "message", "id": id, "parentId": parent, **time, "message": message})
            parent = id
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    def filled(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Put real paths and a real image in the places of those of the document."""
        text = json.dumps(sample).replace("base64-encoded-data", PIXEL).replace('"data": "..."', f'"data": "{PIXEL}"')
        text = text.replace("/path/to/parent-session.jsonl", self.stored("fork")).replace("/tmp/", f"{self.base}/")
        return dict(json.loads(text.replace("/path/to/session.jsonl", self.stored("get_state"))))

    def ask(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Send the request of a sample where it makes sense, and return the response."""
        kind = sample["type"]
        if kind in SESSIONS:
            self.data("switch_session", sessionPath=self.stored(kind))
        if kind == "get_state":
            self.data("set_steering_mode", mode="all")
            self.data("set_thinking_level", level="medium")
            self.sent({"type": "get_state"})
            self.data("set_session_name", name="my-feature-work")
        ended = self.ended
        running = kind in ("steer", "follow_up") or "streamingBehavior" in sample
        if running:
            self._held += 1
            self.prompt(f"hold {self._held}")
            self.mock.wait_gate(f"hold {self._held}")
        response = self.sent(self.filled(sample))
        if running:
            self.mock.release(f"hold {self._held}")
        if running or kind == "prompt":
            self.settle(ended)
        if kind == "get_state":
            self.data("set_steering_mode", mode="one-at-a-time")
        if kind == "set_thinking_level":
            self.data("set_thinking_level", level="medium")
        if kind == "bash":
            self.sent({"type": "get_messages"})
            self.sent({"type": "bash", "command": "seq 100000"})
        return response

    def sent(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Send a frame as it is, and return its response."""
        self.write(json.dumps(frame).encode() + b"\n")
        wanted = (frame["type"], frame.get("id"))
        return self.wait(lambda f: f["type"] == "response" and (f["command"], f.get("id")) == wanted)

    @property
    def ended(self) -> int:
        """The number of runs that have ended."""
        return sum(frame["type"] == "agent_end" for frame in list(self.frames))

    def settle(self, ended: int) -> None:
        """Wait until one more run than `ended` has ended, and nothing follows. Not every dialect tells that."""
        while self.ended <= ended or self.data("get_state")["isStreaming"]:
            time.sleep(0.005)

    # -- what the documents show without a request -----------------------------------------------

    def show_dialogs(self, replies: list[dict[str, Any]]) -> None:
        """Run the command of the extension, and answer its dialogs with these frames, the rest with `cancelled`."""
        self.send("prompt", message="/session-name")
        left = iter(replies)
        for method in ("select", "confirm", "input", "editor", "confirm", "input"):
            asked = self.wait(lambda f, m=method: f["type"] == "extension_ui_request" and f["method"] == m)
            reply = next(left, None) or {"type": "extension_ui_response", "cancelled": True}
            self.write(json.dumps({**reply, "id": asked["id"]}).encode() + b"\n")
        self.data("get_state")

    def show_refusals(self, requests: list[dict[str, Any]]) -> None:
        """Send requests while an extension refuses them."""
        for request in requests:
            if request["type"] in SESSIONS:
                self.data("switch_session", sessionPath=self.stored(request["type"]))
            (self.cwd / "refuse").touch()
            self.sent(self.filled(request))
            (self.cwd / "refuse").unlink()

    def show_faults(self) -> None:
        self.sent({"type": "set_model", "provider": "invalid", "modelId": "model"})
        self.sent({"id": "req_2", "type": "set_model", "provider": "provider", "modelId": "model"})
        self.write(b"Unexpected\n")
        self.wait(lambda f: f.get("command") == "parse")
        (self.cwd / "fail").touch()
        self.ask({"type": "prompt", "message": "list the files"})
        (self.cwd / "fail").unlink()

    def show_compaction(self) -> None:
        self.data("switch_session", sessionPath=self.stored("compact"))
        self.ask({"type": "prompt", "message": "go on"})

    def show_retries(self, *, ends: bool) -> None:
        """Let the model be overloaded: until the client ends the wait, or two times and then for good."""
        failed = failure(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
        for steps in ([failed, failed, reply("OK")], [failed]) if ends else ([failed],):
            self.mock.script(*steps)
            self.prompt("try")
            if not ends:
                self.wait("auto_retry_start")
                self.data("abort_retry")
            self.wait("agent_settled")

    def show_host_tools(self, request: dict[str, Any], frames: list[dict[str, Any]]) -> None:
        """Lend tools, answer one call with these frames, and stop another."""
        self.sent(request)
        ended = self.ended
        self.prompt("echo it")
        asked = self.wait("host_tool_call")
        for frame in frames:
            self.write(json.dumps({**frame, "id": asked["id"]}).encode() + b"\n")
        self.settle(ended)
        self.prompt("echo it")
        self.wait("host_tool_call")
        self.sent({"type": "abort"})
        self.settle(ended + 1)
