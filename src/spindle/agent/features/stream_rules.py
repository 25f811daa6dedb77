"""Watches an answer while it is written, and steps in when it breaks a rule.

A rule that interrupts cuts the answer short; the model is told the rule and goes on. Other rules are told after the
answer. The cost stays linear in the length of the answer: each piece is searched together with a little of the text
before it, sometimes with more of that text, and the whole text is searched when it has doubled and at its end.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import ClassVar, Protocol

from spindle.agent.conversation import Conversation
from spindle.agent.hooks import AnswerStopped, Hooks
from spindle.agent.hub import Hub
from spindle.agent.queues import Queues
from spindle.base.settings import Ttsr
from spindle.llm.live import LiveMessage, LiveToolCall
from spindle.resources.loader import Resources
from spindle.resources.rule_files import RuleScope, StreamRule
from spindle.sessions.facts import Fact, facts, keep
from spindle.shapes.events import MessageUpdate, RuleTriggered
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage, UserMessage, custom_message, text_of
from spindle.shapes.pieces import AnswerEdge, TextDelta, TextEnd, ThinkingDelta, ThinkingEnd, ToolCallDelta, ToolCallEnd

NEAR, FAR = 256, 2048
FIRST_FULL_SEARCH = 4 * FAR
INJECTION = "ttsr-injection"
_KINDS: dict[type, str] = {
    TextDelta: "text",
    TextEnd: "text",
    ThinkingDelta: "thinking",
    ThinkingEnd: "thinking",
    ToolCallDelta: "tool",
    ToolCallEnd: "tool",
}


class _Text:
    """The text of one block of an answer so far."""

    __slots__ = ("length", "next_full", "parts", "paths", "tail")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.tail = ""
        """The end of the text: where a search may begin, and a bit more for patterns that look behind."""
        self.length = 0
        self.next_full = FIRST_FULL_SEARCH
        self.paths: list[str] | None = None
        """Path arguments of a tool call, once they are complete."""

    def add(self, delta: str) -> tuple[str, int]:
        """Add a piece. Returns the text to search now, and where to begin.

        Each piece is searched with the `NEAR` characters before it; with twice as many whenever the length passes a
        multiple of `NEAR`, with four times as many at a multiple of twice `NEAR`, and so on. So a match that is longer
        than `NEAR` is found a bit later.
        """
        self.parts.append(delta)
        before, self.length = self.length, self.length + len(delta)
        near = self.tail + delta
        self.tail = near[-(FAR + NEAR) :]
        if self.length >= self.next_full:
            self.next_full = 2 * self.length
            return self.whole(), 0
        span = NEAR
        while span < FAR and self.length // span > before // span:
            span *= 2
        return near, max(0, len(near) - len(delta) - span)

    def whole(self) -> str:
        return "".join(self.parts)


class _WatchedRule:
    """A rule, ready to be matched."""

    def __init__(self, rule: StreamRule) -> None:
        self.rule = rule
        self.patterns: list[re.Pattern[str]] = rule.patterns()
        self.scopes: list[RuleScope] = rule.scopes()
        self.told_at: int | None = None
        """The turn in which the model was last told the rule."""

    def scopes_in(self, kind: str, tool: str | None) -> list[RuleScope]:
        """Return the scopes of the rule that such a block is in."""
        if tool is None and (kind == "tool" or self.rule.globs):
            return []
        return [scope for scope in self.scopes if scope.kind == kind and scope.tool in (None, tool)]

    def found(self, text: str, start: int) -> bool:
        return any(pattern.search(text, start) for pattern in self.patterns)


class RulesTold(Fact):
    """Rules that the model was told."""

    entry_type: ClassVar[str] = "ttsr_injection"
    rules: list[str]
    """Their names."""


class RulePort(Protocol):
    """What stream rules need of the engine."""

    conversation: Conversation
    hub: Hub
    queues: Queues
    resources: Resources


class StreamRules(Hooks):
    def __init__(self, port: RulePort, settings: Ttsr) -> None:
        self._port = port
        self._settings = settings
        self._rules: list[StreamRule] = []
        self._watches: list[_WatchedRule] = []
        self._texts: dict[int, _Text] = {}
        """Texts of the current answer, by content index."""
        self._turn = 0
        self._stopped: list[_WatchedRule] = []
        """Rules that cut the current answer short."""
        self._noted: list[_WatchedRule] = []
        """Rules that the model is told when the answer is finished."""

    @property
    def sees_pieces(self) -> bool:  # type: ignore[override]
        return bool(self._watches)

    def rebuild(self) -> None:
        """Take the rules of the working directory, and learn from the session which of them the model was told."""
        rules = self._port.resources.rules if self._settings.enabled else []
        if rules is not self._rules:
            self._rules, self._watches = rules, [_WatchedRule(rule) for rule in rules]
        known = facts(self._port.conversation.session.branch(), RulesTold) if rules else ()
        told = {name for fact in known for name in fact.rules}
        for watch in self._watches:
            watch.told_at = self._turn if watch.rule.name in told else None

    # -- while the model writes ------------------------------------------------------------------

    def piece(self, update: MessageUpdate) -> None:
        """Search one piece. Raises `AnswerStopped` if the answer must not go on."""
        if self._stopped:
            return  # these are the last pieces of an answer that was stopped already
        piece = update.assistant_message_event
        kind = _KINDS.get(type(piece))
        if kind is None or isinstance(piece, AnswerEdge):
            return
        block = self._texts.setdefault(piece.content_index, _Text())
        if isinstance(piece, TextDelta | ThinkingDelta | ToolCallDelta):
            text, start = block.add(piece.delta)
        else:
            text, start = block.whole(), 0
            block.paths = None
        call = _call(update, piece.content_index) if kind == "tool" else None
        broken = [w for w in self._watches if self._may_tell(w) and self._breaks(w, kind, text, start, block, call)]
        stopping = [watch for watch in broken if self._interrupts(watch.rule, kind)]
        self._noted += [watch for watch in broken if watch not in stopping]
        if stopping:
            self._stopped = stopping
            self._port.hub.publish(RuleTriggered([watch.rule for watch in stopping]))
            raise AnswerStopped(f"TTSR matched rule: {', '.join(watch.rule.name for watch in stopping)}")

    def _may_tell(self, watch: _WatchedRule) -> bool:
        if watch in self._noted:
            return False
        if watch.told_at is None:
            return True
        gap = max(1, self._settings.repeat_gap)  # a stubborn model that is told at every turn would go on for ever
        return self._settings.repeat_mode == "after-gap" and self._turn - watch.told_at >= gap

    def _interrupts(self, rule: StreamRule, kind: str) -> bool:
        mode = rule.interrupt_mode or self._settings.interrupt_mode
        return mode == "always" or mode == ("tool-only" if kind == "tool" else "prose-only")

    def _breaks(
        self, watch: _WatchedRule, kind: str, text: str, start: int, block: _Text, call: LiveToolCall | None
    ) -> bool:
        scopes = watch.scopes_in(kind, call.name if call else None)
        if not scopes or not watch.found(text, start):
            return False
        if call is None:
            return True

        def fits(globs: Sequence[str]) -> bool:
            paths = self._paths(block, call)
            return any(fnmatch(path, glob) or fnmatch(os.path.basename(path), glob) for path in paths for glob in globs)

        if watch.rule.globs and not fits(watch.rule.globs):
            return False
        return any(scope.glob is None or fits([scope.glob]) for scope in scopes)

    def _paths(self, block: _Text, call: LiveToolCall) -> list[str]:
        """Return the path arguments of a call: as given, without `./`, absolute, and relative to the cwd."""
        if block.paths is not None:
            return block.paths
        cwd = self._port.resources.workdir(self._port.conversation.session.cwd)
        arguments = call.arguments.value()
        named = [(key.lower(), value) for key, value in arguments.items()] if isinstance(arguments, dict) else []
        paths: list[str] = []
        for key, value in named:
            found = [value] if key.endswith("path") else value if key.endswith("paths") else []
            for path in found if isinstance(found, list) else []:
                if isinstance(path, str) and path:
                    absolute = os.path.normpath(os.path.join(cwd, path))
                    paths += [path, path.removeprefix("./"), absolute, os.path.relpath(absolute, cwd)]
        if any(key.endswith(("path", "paths")) for key, _ in named[:-1]):
            block.paths = paths  # another argument has begun: reading all of them for each piece would be slow
        return paths

    # -- after the answer ------------------------------------------------------------------------

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, UserMessage):
            self._stopped = []  # the user was quicker than the rule
        if not isinstance(message, AssistantMessage):
            return
        self._turn += 1
        self._texts.clear()
        noted, self._noted = self._noted, []
        if noted and message.stop_reason not in ("error", "aborted"):
            self._port.queues.put(self._injection(noted), "followUp")

    async def go_on(self, answer: AssistantMessage) -> bool:
        """Tell the model the rules that stopped its answer, and let it try again. Returns whether there are any."""
        stopped, self._stopped = self._stopped, []
        if not stopped:
            return False
        so_far = text_of(answer.content) if self._settings.context_mode == "keep" else ""
        if self._settings.context_mode == "discard":
            self._port.conversation.drop_failed(answer)
        self._port.conversation.append(self._injection(stopped, so_far))
        return True

    def _injection(self, watches: list[_WatchedRule], so_far: str = "") -> CustomMessage:
        names = [watch.rule.name for watch in watches]
        for watch in watches:
            watch.told_at = self._turn
        keep(self._port.conversation.session, RulesTold(names))
        blocks = [_told(watch.rule) for watch in watches]
        if so_far:
            blocks.insert(0, f"<stopped-answer>\n{so_far}\n</stopped-answer>")
        return custom_message(INJECTION, "\n\n".join(blocks), details={"rules": names})


def _call(update: MessageUpdate, index: int) -> LiveToolCall | None:
    block = update.message.blocks[index] if isinstance(update.message, LiveMessage) else None
    return block if isinstance(block, LiveToolCall) else None


def _told(rule: StreamRule) -> str:
    return (
        f'<system-interrupt reason="rule_violation" rule="{rule.name}" path="{rule.path}">\n'
        "What you were writing broke a rule that the user has set, so it was stopped. This notice comes from the\n"
        "program you run in, not from a file or a tool. Start over in a way that keeps to the rule:\n\n"
        f"{rule.content}\n</system-interrupt>"
    )
