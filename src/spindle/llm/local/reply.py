"""The reading of a constrained reply: `answer: …` becomes text, `tool {…}` becomes a call. No I/O.

However the reply is cut into pieces, the same message comes of it. Text is passed on as it arrives.
"""

from collections.abc import Iterable
from uuid import uuid4

from spindle.llm.live import LiveMessage
from spindle.llm.local.grammar import ANSWER, call_head
from spindle.shapes.events import StreamEvent

__all__ = ["ReplyReader"]


class ReplyReader:
    def __init__(self, live: LiveMessage, tools: Iterable[str]) -> None:
        self._live = live
        self._beginnings = {ANSWER: "", **{call_head(name): name for name in tools}}
        """How a reply may begin → the tool it calls; empty for an answer."""
        self._head: str | None = ""
        """What came so far, until it shows what kind of reply this is; None from then on."""
        self.is_call = False

    def feed(self, piece: str) -> list[StreamEvent]:
        """Take the next piece of the reply and return what it adds to the message."""
        out: list[StreamEvent] = []
        if self._head is not None:
            piece = self._recognise(self._head + piece, out)
        self._pass_on(piece, out)
        return out

    def close(self) -> list[StreamEvent]:
        """Take the end of the reply, wherever it comes."""
        out: list[StreamEvent] = []
        rest, self._head = self._head or "", None
        self._pass_on(rest, out)
        return [*out, *self._live.end_all()]

    def _recognise(self, head: str, out: list[StreamEvent]) -> str:
        """Look at the beginning of the reply and return what follows it, nothing as long as it is not clear."""
        self._head = None
        for beginning, tool in self._beginnings.items():
            if head.startswith(beginning):
                self.is_call = bool(tool)
                if tool:
                    out.append(self._live.start_tool_call(f"call_{uuid4().hex[:24]}", tool))
                return head[len(beginning) :]
        if any(beginning.startswith(head) for beginning in self._beginnings):
            self._head = head
            return ""
        return head  # the grammar was not obeyed: take it all as an answer

    def _pass_on(self, piece: str, out: list[StreamEvent]) -> None:
        if piece:
            if not self._live.blocks:
                out.append(self._live.start_text())
            out.append(self._live.append(0, piece))
