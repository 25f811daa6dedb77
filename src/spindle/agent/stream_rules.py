"""Watches an answer while it is written, and steps in when it breaks a rule.

An interrupting match cuts the answer short, tells the model the rule and lets it go on; another match is told after
the answer. Cost stays linear in the length of the stream: each piece is searched together with a window of what came
before it, and the whole text only when it has doubled and at its end.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

from spindle.llm.live import LiveMessage, LiveToolCall
from spindle.resources.rules import Rule, RuleScope
from spindle.resources.settings import Ttsr
from spindle.types.content import text_of
from spindle.types.events import (
    MessageUpdate,
    RuleTriggered,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallEnd,
)
from spindle.types.messages import AgentMessage, AssistantMessage, CustomMessage, UserMessage

from .engine import Engine
from .loop import AnswerStopped

__all__ = ["StreamRules"]

WINDOW = 2048
FIRST_FULL_SEARCH = 4 * WINDOW
INJECTION = "ttsr-injection"
STORED = "ttsr_injection"
_DELTAS = {TextDelta: "text", ThinkingDelta: "thinking", ToolCallDelta: "tool"}
_ENDS = {TextEnd: "text", ThinkingEnd: "thinking", ToolCallEnd: "tool"}


class _Text:
    """What one block has said so far."""

    __slots__ = ("length", "next_full", "parts", "tail")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.tail = ""
        self.length = 0
        self.next_full = FIRST_FULL_SEARCH

    def add(self, delta: str) -> str:
        """Take a piece; return the text to search now."""
        self.parts.append(delta)
        self.length += len(delta)
        near = self.tail + delta
        self.tail = near[-WINDOW:]
        if self.length >= self.next_full:
            self.next_full = 2 * self.length
            return self.whole()
        return near

    def whole(self) -> str:
        return "".join(self.parts)


class _Watch:
    """A rule, ready to be matched."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.patterns: list[re.Pattern[str]] = rule.patterns()
        self.scopes: list[RuleScope] = rule.scopes()
        self.told_at: int | None = None
        """The turn in which the model was last told."""


class StreamRules:
    def __init__(self, engine: Engine, rules: Sequence[Rule], settings: Ttsr) -> None:
        self._engine = engine
        self._settings = settings
        self._watches = [_Watch(rule) for rule in rules]
        self._texts: dict[int, _Text] = {}
        """By content index of the answer in hand."""
        self._turn = 0
        self._stopped: list[_Watch] = []
        """Rules that cut the answer in hand short."""
        self._noted: list[_Watch] = []
        """Rules that will be told when the answer is finished."""
        if rules and settings.enabled:
            engine.on_piece = self._see
            engine.on_commit.append(self._finished)
            engine.continuations.insert(0, self._go_on)

    def rebuild(self) -> None:
        """Learn from the session which rules the model was already told."""
        told = set()
        for entry in self._engine.conversation.store.get_branch() if self._watches else ():
            if entry.type == "custom" and entry.value.get("customType") == STORED:
                told |= set(entry.value.get("data", {}).get("rules", ()))
        for watch in self._watches:
            watch.told_at = self._turn if watch.rule.name in told else None

    # -- while the model writes ------------------------------------------------------------------

    def _see(self, update: MessageUpdate) -> None:
        """Look at one piece. Raises `AnswerStopped` if the answer must not go on."""
        if self._stopped:
            return  # these are the last pieces of an answer that was stopped already
        piece = update.assistant_message_event
        kind = _DELTAS.get(type(piece))
        if kind is not None:
            text = self._texts.setdefault(piece.content_index, _Text()).add(piece.delta)  # type: ignore[union-attr]
        else:
            kind = _ENDS.get(type(piece))
            known = self._texts.get(piece.content_index)
            if kind is None or known is None or known.length <= WINDOW:
                return
            text = known.whole()
        broken = [
            w
            for w in self._watches
            if self._may_tell(w) and self._breaks(w, kind, text, piece.content_index, update.message)
        ]
        stopping = [watch for watch in broken if self._interrupts(watch.rule, kind)]
        self._noted += [watch for watch in broken if watch not in stopping]
        if stopping:
            self._stopped = stopping
            self._engine.publish(RuleTriggered([watch.rule for watch in stopping]))
            raise AnswerStopped(f"TTSR matched rule: {', '.join(watch.rule.name for watch in stopping)}")

    def _may_tell(self, watch: _Watch) -> bool:
        if watch in self._noted:
            return False
        if watch.told_at is None:
            return True
        return self._settings.repeat_mode == "after-gap" and self._turn - watch.told_at >= self._settings.repeat_gap

    def _interrupts(self, rule: Rule, kind: str) -> bool:
        mode = rule.interrupt_mode or self._settings.interrupt_mode
        return mode == "always" or mode == ("tool-only" if kind == "tool" else "prose-only")

    def _breaks(self, watch: _Watch, kind: str, text: str, index: int, live: Any) -> bool:
        scopes = [scope for scope in watch.scopes if scope.kind == kind]
        if not scopes or (kind != "tool" and watch.rule.globs):
            return False
        if not any(pattern.search(text) for pattern in watch.patterns):
            return False
        return kind != "tool" or self._in_scope(watch.rule, scopes, index, live)

    def _in_scope(self, rule: Rule, scopes: list[RuleScope], index: int, live: Any) -> bool:
        block = live.blocks[index] if isinstance(live, LiveMessage) else None
        if not isinstance(block, LiveToolCall):
            return False
        paths = list(self._paths(block.arguments.value()))

        def fits(globs: Sequence[str]) -> bool:
            return any(fnmatch(path, glob) or fnmatch(os.path.basename(path), glob) for path in paths for glob in globs)

        if rule.globs and not fits(rule.globs):
            return False
        return any(
            (scope.tool is None or scope.tool == block.name) and (scope.glob is None or fits([scope.glob]))
            for scope in scopes
        )

    def _paths(self, arguments: Any) -> Iterator[str]:
        """Yield the path arguments of a call: as given, without `./`, absolute, and relative to the cwd."""
        cwd = self._engine.conversation.store.get_cwd()
        for key, value in arguments.items() if isinstance(arguments, dict) else ():
            lower = key.lower()
            found = [value] if lower.endswith("path") else value if lower.endswith("paths") else []
            for path in found if isinstance(found, list) else []:
                if isinstance(path, str) and path:
                    absolute = os.path.normpath(os.path.join(cwd, path))
                    yield from (path, path.removeprefix("./"), absolute, os.path.relpath(absolute, cwd))

    # -- afterwards ------------------------------------------------------------------------------

    def _finished(self, message: AgentMessage) -> None:
        if isinstance(message, UserMessage):
            self._stopped = []  # the user was quicker than the rule
        if not isinstance(message, AssistantMessage):
            return
        self._turn += 1
        self._texts.clear()
        noted, self._noted = self._noted, []
        if noted and message.stop_reason not in ("error", "aborted"):
            self._engine.queues.follow(self._injection(noted))

    async def _go_on(self, answer: AssistantMessage) -> bool:
        """After an answer was stopped: tell the rule, and let the model try again."""
        stopped, self._stopped = self._stopped, []
        if not stopped:
            return False
        so_far = text_of(answer.content) if self._settings.context_mode == "keep" else ""
        if self._settings.context_mode == "discard":
            self._engine.conversation.drop_failed(answer)
        self._engine.conversation.append(self._injection(stopped, so_far))
        return True

    def _injection(self, watches: list[_Watch], so_far: str = "") -> CustomMessage:
        names = [watch.rule.name for watch in watches]
        for watch in watches:
            watch.told_at = self._turn
        self._engine.conversation.store.append_custom_entry(STORED, {"rules": names})
        blocks = [_told(watch.rule) for watch in watches]
        if so_far:
            blocks.insert(0, f"<stopped-answer>\n{so_far}\n</stopped-answer>")
        return CustomMessage(
            custom_type=INJECTION,
            content="\n\n".join(blocks),
            display=False,
            details={"rules": names},
            timestamp=int(time.time() * 1000),
        )


def _told(rule: Rule) -> str:
    return (
        f'<system-interrupt reason="rule_violation" rule="{rule.name}" path="{rule.path}">\n'
        "What you were writing broke a rule that the user has set, so it was stopped. This notice comes from the\n"
        "program you run in, not from a file or a tool. Start over in a way that keeps to the rule:\n\n"
        f"{rule.content}\n</system-interrupt>"
    )
