"""Grammars (GBNF) that leave a model no other reply than a valid call of a tool or an answer.

A reply is `answer: ` and text, or a tool's name and its arguments: `bash {"command":"ls"}`. Small models write this
form more reliably than one JSON object around everything, and the text of an answer needs no unescaping. `ReplyReader`
reads it: `answer: …` becomes text, `tool {…}` becomes a call.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from spindle.llm.live import LiveMessage
from spindle.llm.stream import ToolSpec
from spindle.shapes.codec import encode
from spindle.shapes.pieces import StreamEvent

ANSWER = "answer: "
"""How an answer begins."""
ONE_LINE = "root ::= [^\\n]{1,400}\n"
"""For a model that begins to ramble on its second line."""

# Shell commands that only read. Nothing a small model makes up in this form can do harm.
_LOOKING = """\
look ::= "\\"" (alone | show " " path) "\\""
alone ::= "ls" (" -" [alhrt]{1,3})? (" " path)? | "pwd" | "date" | "git status" | "git log --oneline" | "git diff"
show ::= "cat" | "head" | "tail"
path ::= [^-/~\\x00-\\x20\\x7f"'\\\\`$&|;<>(){}!#*?] [^~\\x00-\\x20\\x7f"'\\\\`$&|;<>(){}!#*?]{0,80}
"""
# \\u is left out on purpose: a model can write any character itself, and half a surrogate pair cannot come up.
_JSON = """\
value ::= string | number | boolean | "null" | "[" (value ("," value)*)? "]" | "{" (member ("," member)*)? "}"
member ::= string ":" value
string ::= "\\"" ([^"\\\\\\x00-\\x1f\\x7f] | "\\\\" ["\\\\/bfnrt])* "\\""
number ::= integer ("." [0-9]{1,15})?
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
boolean ::= "true" | "false"
text ::= [^\\x00]+
"""


def call_head(name: str) -> str:
    """Return how a call of that tool begins; its arguments follow."""
    return f"{name} "


def reply_grammar(tools: Sequence[ToolSpec], *, only_looking: bool = False) -> str:
    """Return the grammar of a reply: an answer, or a call of one of the tools.

    With `only_looking` optional arguments are left out and shell commands are limited to a few that change nothing.
    """
    replies = [f"{_literal(ANSWER)} text"]
    for tool in tools:
        looking = only_looking and tool.name == "bash"
        arguments = '"{\\"command\\":" look "}"' if looking else _object(tool.parameters, required_only=only_looking)
        replies.append(f"{_literal(call_head(tool.name))} {arguments}")
    return f"root ::= {' | '.join(replies)}\n{_LOOKING if only_looking else ''}{_JSON}"


# -- from JSON Schema ----------------------------------------------------------------------------


def _rule(schema: Any) -> str:
    """Return an expression for the values a schema allows; for an unusual schema it allows more."""
    if not isinstance(schema, dict):
        return "value"
    if "const" in schema:
        return _constant(schema["const"])
    if isinstance(choices := schema.get("enum"), list) and choices:
        return f"({' | '.join(map(_constant, choices))})"
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list) and options:
            return f"({' | '.join(map(_rule, options))})"
    match schema.get("type"):
        case "string" | "number" | "integer" | "boolean" as kind:
            return str(kind)
        case "null":
            return '"null"'
        case "array":
            item = _rule(schema.get("items"))
            return f'"[" ({item} ("," {item})*)? "]"' if not schema.get("minItems") else f'"[" {item} ("," {item})* "]"'
        case "object" if schema.get("properties"):
            return _object(schema)
    return "value"


def _object(schema: dict[str, Any], *, required_only: bool = False) -> str:
    """Return an expression for an object: required keys in order, then optional ones in order."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    members = {key: f"{_constant(key, ':')} {_rule(value)}" for key, value in properties.items()}
    required = [key for key in properties if key in schema.get("required", ())]
    optional = [key for key in properties if key not in required and not required_only]
    if required:
        inside = ' "," '.join(members[key] for key in required) + _optional_tail(members, optional)
    else:
        # Any optional key may be the first, and the first has no comma before it.
        starts = [members[key] + _optional_tail(members, optional[index:]) for index, key in enumerate(optional, 1)]
        inside = f"({' | '.join(starts)})?" if starts else ""
    return f'"{{" {inside} "}}"'


def _optional_tail(members: dict[str, str], keys: Sequence[str]) -> str:
    return "".join(f' ("," {members[key]})?' for key in keys)


def _constant(value: Any, suffix: str = "") -> str:
    return _literal(encode(value).decode() + suffix)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


# -- reading a reply -----------------------------------------------------------------------------


class ReplyReader:
    """Folds a reply into a message. However the reply is cut into pieces, the message is the same. No I/O."""

    def __init__(self, live: LiveMessage, tools: Iterable[str]) -> None:
        self._live = live
        self._beginnings = {ANSWER: "", **{call_head(name): name for name in tools}}
        """How a reply may begin → the tool it calls; empty for an answer."""
        self._head: str | None = ""
        """The reply so far, until its kind is clear; None from then on."""
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
        """Recognise the beginning of the reply and return the text behind it; empty until the kind is clear."""
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
