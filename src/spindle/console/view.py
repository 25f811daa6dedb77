"""What events look like: finished things go to the scrollback, once; what goes on is drawn above the input."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from spindle.console.blocks import Block, Blocks
from spindle.console.look import Look, clean, fit, one_line, rows

Json = dict[str, Any]

_SHOWN_OF_MESSAGE = 30
_SHOWN_OF_DIFF = 40
_SHOWN_OF_FAILURE = 6
_HISTORY = 30
"""So many messages are printed when a session is opened."""
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def text_of(content: Any) -> str:
    """Return the text in a message's or a result's content."""
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", "")) for block in content or () if isinstance(block, dict))


def images_of(content: Any) -> int:
    return sum(block.get("type") == "image" for block in content) if isinstance(content, list) else 0


def seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f}s" if milliseconds < 60_000 else f"{milliseconds / 60_000:.0f}m"


class View:
    def __init__(self, look: Look, write: Callable[[str], None]) -> None:
        self._look = look
        self._write = write
        self._blocks = Blocks()
        self._thinking = ""
        """What the model is thinking now."""
        self.thoughts = ""
        """What it has thought last, to be unfolded."""
        self._thinking_since = 0.0
        self.result = ""
        """The last tool's whole result, to be unfolded."""
        self._tools: dict[str, tuple[str, Any, str, float]] = {}
        """Calls that run, by id: name, arguments, the last line so far, since when."""
        self._calls: dict[str, Any] = {}
        """Arguments of calls in stored messages, by id."""
        self._waiting = ""
        """What is being waited for, if not the model's text."""
        self._streamed = False
        """The middle of a line has been written, on a terminal without a cursor."""
        self._last = ""
        """Which kind of thing was printed last."""
        self.since: float | None = None
        """When the run began; None: nothing runs."""

    # -- printing --------------------------------------------------------------------------------

    def say(self, text: str, *styles: str, kind: str = "note") -> None:
        """Print something; different kinds of things are set apart by an empty line."""
        if self._streamed:
            self._write("\n")
            self._streamed = False
        gap = "\n" if self._last and (kind != self._last or kind in ("text", "user")) and kind != "more" else ""
        self._last = self._last if kind == "more" else kind
        painted = "\n".join(self._look.paint(line, *styles) for line in text.split("\n"))
        self._write(self._look.signs(gap + painted) + "\n")

    def fail(self, text: str) -> None:
        self.say(clean(text).strip(), "red", kind="error")

    def _blocks_out(self, blocks: Sequence[Block]) -> None:
        for kind, text, language, before in blocks:
            if kind == "text":
                self.say(self._look.markdown(text), kind="text")
            elif kind == "code":
                self.say(self._look.code(before, text.split("\n"), language), kind="more")
            else:
                self.say(text, "dim", kind="text" if kind == "open" else "more")

    # -- what goes on ----------------------------------------------------------------------------

    def live(self) -> list[str]:
        """Return the lines to draw above the input, not longer than the terminal is wide."""
        look, width, lines = self._look, self._look.width - 1, list[str]()
        if self._thinking:
            lines += [look.paint(row, "dim") for row in rows(self._thinking.strip(), width)[-3:]]
        if text := self._blocks.open.strip("\n"):
            lines += rows(text, width)[-max(3, look.height // 3) :]
        now = time.monotonic()
        for name, args, last, since in self._tools.values():
            took = f" {now - since:.0f}s" if now - since >= 1 else ""
            line = f"{self.spinner()} {name} {_subject(args)}{took}" + (f" · {last}" if last else "")
            lines.append(look.paint(fit(line, width), "cyan"))
        if not lines and self.since is not None:
            took = f" {now - self.since:.0f}s" if now - self.since >= 1 else ""
            lines.append(look.paint(fit(f"{self.spinner()} {self._waiting or 'Working'}{took}", width), "dim"))
        return [look.signs(line) for line in lines]

    def spinner(self) -> str:
        return _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)] if self._look.unicode else "*"

    # -- events ----------------------------------------------------------------------------------

    def show(self, event: Json) -> None:
        """Show an event, if there is anything to see."""
        match event["type"]:
            case "agent_start":
                self.since, self._waiting = self.since or time.monotonic(), ""
            case "agent_settled":
                self.since = None
                self._tools.clear()
                if event.get("stopReason") not in (None, "end", "error", "aborted"):
                    self.say(event.get("errorMessage") or f"Stopped: {event['stopReason']}", "yellow")
            case "message_start" if event["message"].get("role") in ("user", "custom"):
                self.message(event["message"])
            case "message_update":
                self._piece(event["assistantMessageEvent"])
            case "message_end" if event["message"].get("role") == "assistant":
                self._answer_end(event["message"])
            case "tool_execution_start":
                self._tools[event["toolCallId"]] = event["toolName"], event.get("args"), "", time.monotonic()
            case "tool_execution_update":
                if (running := self._tools.get(event["toolCallId"])) is not None:
                    lines = text_of((event.get("partialResult") or {}).get("content")).rstrip().rsplit("\n", 1)
                    self._tools[event["toolCallId"]] = (*running[:2], one_line(lines[-1]), running[3])
            case "tool_execution_end":
                _, args, _, _ = self._tools.pop(event["toolCallId"], ("", event.get("args"), "", 0.0))
                self._tool(
                    event["toolName"], args, event["result"], bool(event.get("isError")), event.get("durationMs")
                )
            case "auto_retry_start" | "summarization_retry_scheduled":
                again = f"again in {event['delayMs'] / 1000:.0f} s ({event['attempt']} of {event['maxAttempts']})"
                self.say(f"Trying {again}", "yellow", kind="error")
            case "compaction_start":
                self.since, self._waiting = self.since or time.monotonic(), "Compacting"
            case "compaction_end":
                self._waiting = ""
                if (result := event.get("result")) is not None:
                    self.say(f"Compacted: {result['tokensBefore']} tokens before", "dim")
                elif event.get("errorMessage"):
                    self.fail(event["errorMessage"])
            case "permission_denied":
                self.say(fit(f"✗ {event['toolName']} {_subject(event.get('arguments'))}: not allowed", 200), "yellow")
            case "notice":
                self.say(clean(event["message"]), "yellow" if event.get("level") in ("warning", "error") else "dim")
            case "extension_error":
                self.fail(f"{event.get('extensionPath') or 'Error'}: {event['error']}")
            case "ttsr_triggered":
                self.say("The answer broke a rule and begins again", "yellow")
            case "todo_reminder":
                self.say("Open todos: the model is told to go on", "dim")

    def _piece(self, piece: Json) -> None:
        match piece["type"]:
            case "text_delta" if self._look.plain:
                self._write(("" if self._streamed else "\n") + self._look.signs(clean(piece["delta"])))
                self._streamed, self._last = True, "text"
            case "text_delta":
                self._end_thinking()
                self._blocks_out(self._blocks.feed(clean(piece["delta"])))
            case "text_end":
                self._blocks_out(self._blocks.flush())
            case "thinking_delta":
                self._thinking_since = self._thinking_since or time.monotonic()
                self._thinking += clean(piece["delta"])
            case "thinking_end":
                self._end_thinking()
            case "toolcall_start":
                self._waiting = f"Writing a call of {one_line(str(piece.get('toolName') or 'a tool'))}"

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thought(self._thinking, (time.monotonic() - self._thinking_since) * 1000)
        self._thinking, self._thinking_since = "", 0.0

    def _thought(self, text: str, took: float | None = None) -> None:
        self.thoughts = text.strip()
        if self.thoughts:
            head = "∴ Thought" + (f" for {seconds(took)}" if took else "")
            self.say(fit(f"{head}: {one_line(self.thoughts)}", self._look.width - 1), "dim", kind="tool")

    def _answer_end(self, message: Json) -> None:
        self._end_thinking()
        self._blocks_out(self._blocks.flush())
        if self._streamed:
            self._write("\n")
            self._streamed = False
        self._waiting = ""
        if message.get("stopReason") == "error":
            self.fail(message.get("errorMessage") or "The model has failed")
        elif message.get("stopReason") == "aborted":
            self.say("Interrupted", "yellow")
        elif message.get("stopReason") == "length":
            self.say("The answer is cut off: it reached the model's limit", "yellow")

    def _tool(self, name: str, args: Any, result: Any, failed: bool, took: float | None) -> None:
        result = result if isinstance(result, dict) else {}
        text = clean(text_of(result.get("content"))).rstrip()
        self.result = text
        lines = text.split("\n") if text else []
        tail = "" if failed or not lines else f" · {one_line(lines[-1])}"
        more = f" · {len(lines)} lines" if len(lines) > 1 and not failed else ""
        ending = more + (f" · {seconds(took)}" if took is not None else "")
        width = self._look.width - 1
        head = fit(f"{'✗' if failed else '✓'} {name} {_subject(args)}", max(20, width * 2 // 3 - len(ending)))
        line = fit(head + tail, max(10, width - len(ending))) + ending
        self.say(line, "red" if failed else "green", kind="tool")
        if failed:
            self.say("\n".join(fit("  " + row, width) for row in lines[-_SHOWN_OF_FAILURE:]), "dim", kind="more")
        details = result.get("details")
        if isinstance(details, dict) and isinstance(details.get("diff"), str) and not failed:
            self._diff(clean(details["diff"]).split("\n"))

    def _diff(self, lines: list[str]) -> None:
        colours = {"+": "green", "-": "red"}
        for line in lines[:_SHOWN_OF_DIFF]:
            self.say(fit("  " + line, self._look.width - 1), colours.get(line[:1], "dim"), kind="more")
        if len(lines) > _SHOWN_OF_DIFF:
            self.say(f"  … {len(lines) - _SHOWN_OF_DIFF} more lines", "dim", kind="more")

    # -- stored messages -------------------------------------------------------------------------

    def history(self, messages: Sequence[Json]) -> None:
        """Print the end of a conversation."""
        if len(messages) > _HISTORY:
            self.say(f"… {len(messages) - _HISTORY} earlier messages", "dim")
        for message in messages[-_HISTORY:]:
            self.message(message)

    def message(self, message: Json) -> None:
        """Print one message as a whole."""
        content = message.get("content")
        match message.get("role"):
            case "user":
                lines = clean(text_of(content)).split("\n")
                more = [f"… {len(lines) - _SHOWN_OF_MESSAGE} more lines"] if len(lines) > _SHOWN_OF_MESSAGE else []
                pictures = [f"[{count} image{'s' if count > 1 else ''}]"] if (count := images_of(content)) else []
                shown = "\n  ".join([*lines[:_SHOWN_OF_MESSAGE], *more, *pictures])
                self.say(f"❯ {shown}", "bold", "cyan", kind="user")
            case "assistant":
                for block in content or ():
                    self._stored(block)
                self._answer_end(message)
            case "toolResult":
                args = self._calls.pop(message.get("toolCallId", ""), None)
                self._tool(message.get("toolName", ""), args, message, bool(message.get("isError")), None)
            case "bashExecution":
                self.say(f"$ {one_line(message.get('command', ''))}", "bold", kind="bash")
                self.say(clean(message.get("output", "")).rstrip(), "dim", kind="more")
            case "custom" if message.get("display", True):
                self.say(self._look.markdown(clean(text_of(content))), kind="text")
            case "compactionSummary" | "branchSummary":
                self.say(f"… {one_line(message.get('summary', ''))[:200]}", "dim")

    def _stored(self, block: Json) -> None:
        match block.get("type"):
            case "text":
                self._blocks_out(self._blocks.feed(clean(block["text"])) + self._blocks.flush())
            case "thinking":
                self._thought(clean(block.get("thinking", "")))
            case "toolCall":
                self._calls[block.get("id", "")] = block.get("arguments")


def _subject(args: Any) -> str:
    """Return what a call is about: its first text, which is a command, a path or a pattern."""
    if not isinstance(args, dict):
        return ""
    return next((one_line(value) for value in args.values() if isinstance(value, str) and value.strip()), "")
