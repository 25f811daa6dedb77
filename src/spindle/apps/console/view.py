"""How events look: finished text goes to the scrollback, once; running work is drawn above the input."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from spindle.apps.console.look import Look, clean, fit, one_line, printed, rows, visible
from spindle.apps.console.markdown import Block, Blocks, render
from spindle.base.spelling import counted
from spindle.shapes.builtin_tools import TASK_TOOL

Json = dict[str, Any]

_OF_MESSAGE, _OF_DIFF, _OF_FAILURE, _OF_HISTORY = 30, 40, 6, 30
"""How many lines, or messages, are shown of each."""


def text_of(content: Any, read: Callable[[str], str] = clean) -> str:
    """Return the text in a message's or a result's content, which may come from a damaged file."""
    blocks = [{"text": content}] if isinstance(content, str) else content or ()
    return read("".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))).rstrip()


def money(stats: Json, model: Json | None) -> str:
    """Return the cost of a session: a lower bound if a part of it is not known, empty if there is nothing to tell."""
    cost = stats.get("cost") or 0
    if stats.get("costSource") != "unknown":
        return f"${cost:.4f}" if cost else ""
    has_price = model is not None and not model.get("costUnknown") and model["cost"].get("output")
    return f"at least ${cost:.4f}" if cost or has_price else ""


class View:
    def __init__(self, look: Look, write: Callable[[str], None]) -> None:
        self._look = look
        self._write = write
        self._blocks = Blocks()
        self._whole = False
        """Whether the current answer was seen from its beginning; otherwise it is printed at its end."""
        self._thinking = ""
        """The current thoughts of the model."""
        self._thought_of = -1
        """The block of the answer that these thoughts are."""
        self._told: int | None = None
        """The block that a line was printed about. Some models send more of it behind the first words of the answer."""
        self.folded = {"result": "", "thoughts": ""}
        """The last tool's whole result and the model's last thoughts."""
        self._calls: dict[str, str] = {}
        """Calls without a result, by id: a line about each."""
        self._running: dict[str, tuple[float, str]] = {}
        """Running calls: when each began, and its last line so far."""
        self._doing = "Working"
        self._streamed = False
        """Whether an unfinished line has been written, on a terminal without a cursor."""
        self._last = ""
        """The kind of the text that was printed last."""
        self.since: float | None = None
        """When the run began; None: nothing runs."""
        self.above = self.enough
        """Rows of the screen above the drawn lines, at least."""
        self.previewed: set[str] = set()
        """Ids of calls whose change a question has shown."""

    def say(self, text: str, *styles: str, kind: str = "note") -> None:
        """Print a text. An empty line sets different kinds apart; `more` belongs to the text that was printed last."""
        gap = kind != "more" and self._last and (kind != self._last or kind in ("text", "user"))
        self._last = self._last if kind == "more" else kind
        lines = text.split("\n")
        self.above = min(self.above + bool(gap) + len(lines), self.enough)
        painted = "\n".join(self._look.paint(line, *styles) for line in lines)
        self._write(self._look.signs("\n" * (bool(gap) + self._streamed) + painted) + "\n")
        self._streamed = False

    def note(self, text: str, level: str | None) -> None:
        self.say(clean(text), "yellow" if level in ("warning", "error") else "dim")

    def fail(self, text: str) -> None:
        self.say(clean(text).strip(), "red", kind="error")

    @property
    def width(self) -> int:
        """The greatest width of lines that are drawn again and again.

        A terminal that gets narrower wraps wide lines into more rows, at the cost of the rows above them. Room at the
        right prevents that while the user resizes the window.
        """
        return max(20, self._look.width * 4 // 5)

    @property
    def enough(self) -> int:
        """How many rows above the drawn lines are enough, whatever is drawn."""
        return self._look.size()[1] * 3 // 4

    def live(self, *, timed: bool = False) -> list[str]:
        """Return the lines to draw above the input: so few that the terminal may even shrink to a quarter at once.

        `timed`: there is no status line that shows how long the run takes.
        """
        most = max(1, min(10, self._look.size()[1] // 5, self.above // 4))
        thoughts = rows(self._thinking.strip(), self.width)[-min(3, most) :] if self._thinking else []
        lines = [self._look.paint(row, "dim") for row in thoughts]
        if text := self._blocks.open.strip("\n"):
            lines += rows(text, self.width)[-most:]
        for id, (since, last) in self._running.items():
            lines.append(self.going_on(fit(self._calls[id], self.width // 2), since, last and f"· {last}"))
        if not lines and self.since is not None:
            plain = self._look.paint(f"● {self._doing}", "cyan")
            lines.append(self.going_on(self._doing, self.since) if timed else plain)
        return lines

    def going_on(self, what: str, since: float, more: str = "") -> str:
        """Return a line about work that goes on."""
        return self._look.paint(fit(f"● {what} {time.monotonic() - since:.0f}s {more}".strip(), self.width), "cyan")

    # -- events ----------------------------------------------------------------------------------

    def show(self, event: Json) -> None:
        """Show an event, if there is anything to see."""
        match event["type"]:
            case "agent_start" | "compaction_start":
                self.since = self.since or time.monotonic()
                self._doing = "Compacting" if event["type"] == "compaction_start" else "Working"
            case "agent_settled":
                self._settled(event)
            case "message_start":
                self._message_start(event["message"])
            case "message_update":
                self._piece(event["assistantMessageEvent"])
            case "message_end":
                self._message_end(event["message"])
            case "tool_execution_start":
                self._calls[event["toolCallId"]] = _call(event["toolName"], event.get("args"))
                self._running[event["toolCallId"]] = time.monotonic(), ""
            case "tool_execution_update" if event["toolCallId"] in self._running:
                last = text_of(event["partialResult"].get("content"), printed).rpartition("\n")[2]
                self._running[event["toolCallId"]] = self._running[event["toolCallId"]][0], one_line(last)
            case "tool_execution_end":
                self._running.pop(event["toolCallId"], None)
                self._tool({**event, **event["result"]}, event.get("durationMs"))
            case "auto_retry_start" | "summarization_retry_scheduled":
                times = f"{event['attempt']} of {event['maxAttempts']}"
                self.say(f"Trying again in {event['delayMs'] / 1000:.0f} s ({times})", "yellow", kind="error")
                self._doing = "Waiting"
            case "compaction_end":
                self._compacted(event)
            case "background_start":
                self.say(f"{event['id']} runs in the background", "dim", kind="tool")
            case "background_end":
                self.say(f"{event['id']} exited with code {event['exitCode']}", "dim", kind="tool")
            case "notice":
                self.note(event["message"], event.get("level"))
            case "extension_error":
                self.fail(f"{event.get('extensionPath') or 'Error'}: {event['error']}")
            case "ttsr_triggered":
                self.say("The answer broke a rule and begins again", "yellow")

    def _settled(self, event: Json) -> None:
        self.since = None
        self._running.clear()
        reason = event.get("stopReason")
        if reason == "aborted" and self._last != "interrupted":  # between two answers
            self.say("Interrupted", "yellow", kind="interrupted")
        elif reason not in (None, "end", "error", "aborted"):
            self.say(event.get("errorMessage") or f"Stopped: {reason}", "yellow")

    def _compacted(self, event: Json) -> None:
        self._doing = "Working"
        asked_for = event["reason"] == "manual"  # then the answer to the command has the error
        self.since = None if asked_for else self.since
        if event.get("errorMessage") and not asked_for:
            self.fail(event["errorMessage"])
        elif event.get("result"):
            self.say(f"Compacted: {event['result']['tokensBefore']:,} tokens before", "dim")

    def _message_start(self, message: Json) -> None:
        role = message.get("role")
        if role == "assistant":
            self._whole, self._told = True, None
        elif role in ("user", "custom") and not self._look.plain:  # a plain terminal shows the line as typed
            self.message(message)

    def _message_end(self, message: Json) -> None:
        if message.get("role") != "assistant":
            return
        if self._whole:
            self._answer_end(message)
        else:
            self._blocks.flush()
            self.message(message)
        self._whole = False

    def _piece(self, piece: Json) -> None:
        if piece["type"] in ("text_delta", "toolcall_start") and self._whole:
            self._thought(self._thinking)  # some models end their thoughts only with the answer
        match piece["type"]:
            case "text_delta" if self._look.plain and self._whole:
                self._write(("" if self._streamed else "\n") + self._look.signs(clean(piece["delta"])))
                self._streamed, self._last = True, "text"
            case "text_delta":
                blocks = self._blocks.feed(clean(piece["delta"]))
                self._print(blocks if self._whole else ())
            case "text_end" if self._whole:
                self.flush()
            case "thinking_end" if self._whole:
                self._thought(self._thinking)
            case "thinking_delta" if piece["contentIndex"] == self._told:
                self.folded["thoughts"] += clean(piece["delta"])
            case "thinking_delta":
                self._thinking += clean(piece["delta"])
                self._thought_of = piece["contentIndex"]
            case "toolcall_start":
                self._doing = f"Writing a call of {one_line(str(piece.get('toolName') or 'a tool'))}"

    def _print(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.say(render(block, self._look), kind="text" if block.kind in ("text", "open") else "more")

    def _thought(self, text: str) -> None:
        if text.strip():
            self.folded["thoughts"] = text.lstrip()
            self.say(fit(f"∴ Thought: {one_line(text)}", self._look.width - 1), "dim", kind="tool")
            self._told = self._thought_of
        self._thinking = ""

    def flush(self) -> None:
        """Print the text received so far of a message, or of one part of it: no more will come."""
        self._thought(self._thinking)
        self._print(self._blocks.flush())
        if self._streamed:
            self._write("\n")
        self._streamed, self._doing = False, "Working"

    def _answer_end(self, message: Json) -> None:
        self.flush()
        match message.get("stopReason"):
            case "error":
                self.fail(message.get("errorMessage") or "The model has failed")
            case "aborted":
                self.say("Interrupted", "yellow", kind="interrupted")
            case "stop" if not any(block["type"] in ("text", "toolCall") for block in message["content"]):
                self.say("The answer is empty", "yellow")

    def _tool(self, result: Json, took: float | None = None) -> None:
        """Print the result of a call: one line, and the change it made or why it failed."""
        failed, width = result.get("isError"), self._look.width - 1
        id, content, changed = result["toolCallId"], result.get("content"), result.get("changedInput")
        if changed is not None:  # the last block says so in the words for the model
            content = (content or [])[:-1]
            self._calls[id] = f"{_call(result['toolName'], changed)} (changed)"
        self.folded["result"] = text = text_of(content, printed)
        lines = text.split("\n")
        ending = f" · {len(lines)} lines" if len(lines) > 1 else ""
        ending += _work(result.get("details")) if result["toolName"] == TASK_TOOL else ""
        ending += f" · {took / 1000:.1f}s" if took is not None else ""
        call = fit(self._calls.pop(id, one_line(result["toolName"])), max(20, width * 2 // 3 - len(ending)))
        tail = f" · {one_line(lines[-1])}" if text and not failed else ""
        line = self._look.paint(fit(call + tail, max(10, width - len(ending) - 2)) + ending, "dim")
        self.say(f"{self._look.paint('✗', 'red') if failed else self._look.paint('✓', 'green')} {line}", kind="tool")
        diff = clean((result.get("details") or {}).get("diff") or "")
        is_known = id in self.previewed and changed is None  # the question has shown it
        shown = diff.split("\n") if diff and not is_known else []
        if failed:
            shown = [line for line in lines if line][-_OF_FAILURE:]
        for line in shown[:_OF_DIFF]:
            colour = "dim" if failed else {"+": "green", "-": "red"}.get(line[:1], "dim")
            self.say(fit(f"  {line}", width), colour, kind="more")
        if len(shown) > _OF_DIFF:
            self.say(f"  … {len(shown) - _OF_DIFF} more lines", "dim", kind="more")

    # -- stored messages -------------------------------------------------------------------------

    def history(self, messages: Sequence[Json]) -> None:
        """Print the end of a conversation."""
        if len(messages) > _OF_HISTORY:
            self.say(f"… {counted(len(messages) - _OF_HISTORY, 'earlier message')}", "dim")
        for message in messages[-_OF_HISTORY:]:
            try:
                self.message(message)
            except (AttributeError, LookupError, TypeError):  # the file is damaged, or of another version
                self.say("(a message that cannot be shown)", "dim")

    def message(self, message: Json) -> None:
        """Print one message as a whole."""
        content = message.get("content")
        match message.get("role"):
            case "user":
                lines = text_of(content).split("\n")
                if len(lines) > _OF_MESSAGE:
                    lines[_OF_MESSAGE:] = [f"… {len(lines) - _OF_MESSAGE} more lines"]
                pictures = sum(block["type"] == "image" for block in content) if isinstance(content, list) else 0
                lines += [f"[{pictures} image{'s' if pictures > 1 else ''}]"] if pictures else []
                self.say("❯ " + "\n  ".join(lines), "bold", "cyan", kind="user")
            case "assistant":
                for block in content or ():
                    if block["type"] == "text":
                        self._print([*self._blocks.feed(clean(block["text"])), *self._blocks.flush()])
                    elif block["type"] == "thinking":
                        self._thought(clean(block["thinking"]))
                    elif block["type"] == "toolCall":
                        self._calls[block["id"]] = _call(block["name"], block.get("arguments"))
                self._answer_end(message)
            case "toolResult":
                self._tool(message)
            case "bashExecution":
                self.say(f"$ {one_line(message['command'])}", "bold", kind="bash")
                self.say(clean(message["output"]).rstrip(), kind="bash")
            case "custom" if message.get("display", True):
                self._print([Block("text", text_of(content))])
            case "compactionSummary" | "branchSummary":
                self.say(f"… {one_line(message['summary'])[:200]}", "dim")


def _work(report: Any) -> str:
    """Return what a subagent has done, for the end of a line."""
    if not isinstance(report, dict) or not isinstance(report.get("tokens"), dict):
        return ""
    calls = report.get("toolCalls", 0)
    return f" · {calls} call{'' if calls == 1 else 's'}, {report['tokens'].get('total', 0):,} tokens"


def _call(name: str, args: Any) -> str:
    """Name a tool and its first text argument, which is a command, a path or a pattern."""
    if name == TASK_TOOL and isinstance(args, dict):
        name, args = f"{name} {one_line(visible(str(args.get('agent') or 'general')))}:", {"prompt": args.get("prompt")}
    values = args.values() if isinstance(args, dict) else ()
    texts = (one_line(visible(value)) for value in values if isinstance(value, str) and value.strip())
    return f"{one_line(name)} {next(texts, '')}"
