"""From a line to a response: decode, find the command, check its fields, run it, put the response in the outbox.

Commands begin in input order. A command that has to wait is a task of its own, so it does not delay the others.
"""

import re
from collections.abc import Callable
from typing import Any, Protocol, get_args
from weakref import proxy

import msgspec

from spindle.agent import AgentError
from spindle.agent.session import AgentSession
from spindle.base import trace
from spindle.base.flow import Tasks
from spindle.base.limits import COMMANDS_END
from spindle.protocol.commands import command_named
from spindle.protocol.registry import REPLIES, Call, CommandSpec
from spindle.protocol.render import Misread, Misused, Response
from spindle.protocol.seat import Seat
from spindle.sessions.entries import SessionError
from spindle.sessions.lock import SessionLocked
from spindle.shapes.codec import DecodeError, decode, encode


class InvalidFields(AgentError):
    """A command has fields that make no sense."""


class UnknownCommand(AgentError):
    """There is no command of that name."""


class ReadOnly(AgentError):
    """A viewer may not use this command."""

    code = "read_only"


class Output(Protocol):
    def put(self, item: Any) -> None: ...


class Dispatcher:
    """Carries out the commands of one client in one session."""

    def __init__(
        self,
        agent: AgentSession,
        seat: Seat,
        output: Output,
        route: Callable[[dict[str, Any]], bool] = lambda frame: False,
    ) -> None:
        """Serve `seat`, which the dispatcher does not keep alive.

        `route` is called with each frame that has a `sessionId`; it returns whether it has passed the frame on.
        """
        self._agent = agent
        self._route = route
        self._seat: Seat = proxy(seat)
        self._output = output
        self._tasks = Tasks()
        self._unbegun = 0
        """Number of tasks that have not begun to run."""

    def receive(self, line: bytes) -> None:
        """Take one line. Never raises: a line with a fault gets a response that names the fault, a blank line none."""
        if not line.strip():
            return
        try:
            value = decode(line)
        except DecodeError as error:
            is_json = any(why in str(error) for why in _UNREADABLE)
            self.refuse_line(str(error), _id_of(line) if is_json else msgspec.UNSET)
        else:
            self.receive_value(value)

    def receive_value(self, value: Any) -> None:
        frame = value if isinstance(value, dict) else {}
        if frame.get("sessionId") is not None and self._route(frame):
            return
        if self._seat.watches and frame.get("type") in REPLIES:
            return  # they get no response, and a viewer has no say
        # Replies to dialogs and host tool calls go to the code that waits for them, and get no response.
        if self._agent.replies.receive(frame):
            return
        kind = frame.get("type")
        spec = command_named(kind) if isinstance(kind, str) else None
        if self._unbegun or (spec is not None and spec.waits):
            self._unbegun += 1
            self._tasks.spawn(self._answer_later(frame, spec), "command")
            return
        id = frame.get("id", msgspec.UNSET)
        try:
            data = begin(Call(self._agent, self._seat, id), frame, spec)
        except Exception as error:
            self._refuse(id, kind, error)
        else:
            self._output.put(Response(id=id, command=kind, success=True, data=data))

    async def _answer_later(self, frame: dict[str, Any], spec: CommandSpec | None) -> None:
        self._unbegun -= 1
        id, kind = frame.get("id", msgspec.UNSET), frame.get("type")
        try:
            data = await carry_out(Call(self._agent, self._seat, id), frame, spec)
        except Exception as error:
            self._refuse(id, kind, error)
        else:
            self._output.put(Response(id=id, command=kind, success=True, data=data))

    def refuse_line(self, reason: str, id: Any = msgspec.UNSET) -> None:
        """Answer a line that could not be read."""
        text = f"Failed to parse command: {reason}"
        self._output.put(Misread(id=id, command="parse", success=False, error=text))

    @property
    def busy(self) -> bool:
        """Whether a command is not answered yet."""
        return len(self._tasks) > 0

    async def finish(self, timeout: float | None = None) -> None:
        """Wait until all commands are answered, or for `timeout` seconds."""
        await self._tasks.join(timeout)

    async def close(self) -> None:
        await self._tasks.end(COMMANDS_END)

    def _refuse(self, id: Any, kind: Any, error: Exception) -> None:
        form: type[Response] = Response
        if isinstance(error, UnknownCommand):
            form = Misread
        elif isinstance(error, InvalidFields) or not isinstance(error, AgentError | SessionError):
            form = Misused
        code = getattr(error, "code", msgspec.UNSET)
        self._output.put(form(id=id, command=_shown(kind), success=False, error=_explained(error), code=code))


def find_command(frame: dict[str, Any]) -> CommandSpec:
    """Return the command that a frame names, and check its fields. Raises `UnknownCommand`, `InvalidFields`."""
    if (spec := command_named(frame["type"])) is None:
        raise _unknown(frame["type"])
    read_fields(frame, spec.fields)
    return spec


def begin(call: Call, frame: dict[str, Any], spec: CommandSpec | None) -> Any:
    """Call the handler of a command. Returns `data` of the response, or the coroutine of a handler that waits.

    Raises `UnknownCommand`, `InvalidFields`, and the errors of the handler.
    """
    if spec is None:
        raise _unknown(frame.get("type"))
    if call.client.watches and not spec.viewer:
        raise ReadOnly("You may look at this conversation; only its owner may do something in it")
    fields = msgspec.structs.asdict(read_fields(frame, spec.fields))
    call.client.account.check(spec.shape_name, fields, call.agent)
    if spec.owner:
        call.client.check_owner()
    result = spec.handler(call, **fields)
    return result if spec.waits else spec.data_of(result)


async def carry_out(call: Call, frame: dict[str, Any], spec: CommandSpec | None) -> Any:
    """Carry out a command and return `data` of its response; unset if there is none. Raises as `begin` does."""
    data = begin(call, frame, spec)
    return spec.data_of(await data) if spec is not None and spec.waits else data


def _unknown(kind: Any) -> UnknownCommand:
    if kind is None:
        return UnknownCommand("type is required")
    if kind in ("host_tool_result", "host_tool_update"):
        key = "result" if kind == "host_tool_result" else "partialResult"
        return UnknownCommand(f"Invalid {kind}: expected the id of a host_tool_call, and {key} with a list `content`")
    why = " (a command of oh-my-pi: no model here has a fast mode)" if kind == "set_fast_mode" else ""
    return UnknownCommand(f"Unknown command: {_shown(kind)}{why}")


def _explained(error: Exception) -> str:
    if isinstance(error, SessionLocked):
        return f"{error.what}. {_LOCKED_ADVICE}"
    if isinstance(error, AgentError | SessionError):
        return str(error)
    # After a bug the client must still get a response, and the process must go on for the others.
    trace.bug(error)
    return f"{type(error).__name__}: {error}"


_LOCKED_ADVICE = "Begin another with new_session, or start an agent that goes on in a copy: --fork and this path"


def _shown(kind: Any) -> str:
    """Return the name of a command for the response."""
    if kind is None:
        return "parse"
    return kind if isinstance(kind, str) else encode(kind).decode()


_UNREADABLE = ("out of range", "nested too deeply")
"""Errors for lines of correct JSON that cannot be decoded: a number is too large, or the nesting too deep."""
_BEGINNING = 4096
"""Bytes of a frame that is nested too deeply in which its id is looked for."""


class _Head(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()


def _id_of(line: bytes) -> Any:
    """Return the id of a frame that cannot be decoded, if it can be found; unset if not."""
    try:
        return decode(bytes(msgspec.json.decode(line, type=_Head).id))  # other keys are passed over, not decoded
    except RecursionError:
        return _id_at_the_beginning(line[:_BEGINNING].decode("utf-8", "replace"))
    except DecodeError:
        return msgspec.UNSET


def _id_at_the_beginning(text: str) -> Any:
    from json import JSONDecoder

    read = JSONDecoder().raw_decode
    try:
        at = _next(text, 0)
        while text[at] in "{,":
            key, at = read(text, _next(text, at + 1))
            value, at = read(text, _next(text, _next(text, at) + 1))
            if key == "id":
                return value
            at = _next(text, at)
    except (ValueError, IndexError, RecursionError):  # here the nesting begins, or the text ends
        pass
    return msgspec.UNSET


def _next(text: str, at: int) -> int:
    """Return where the next character stands that is no space."""
    while text[at].isspace():
        at += 1
    return at


def read_fields(frame: dict[str, Any], shape: type[msgspec.Struct]) -> msgspec.Struct:
    """Check the fields of a command. Raises `InvalidFields`."""
    # Many clients write null for fields that they do not set.
    given = {name: frame[name] for name in shape.__struct_encode_fields__ if frame.get(name) is not None}
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise InvalidFields(_explain(str(error), shape)) from None
    except UnicodeError:  # msgspec cannot compare such a text with the values that are allowed
        raise InvalidFields("Invalid text: it holds half of a surrogate pair") from None


# Patterns are compiled when they are needed, which is only if something is wrong.
_MISSING = r"Object missing required field `(\w+)`"
_AT = r"^(.*) - at `\$\.(.+)`$"


def _explain(problem: str, shape: type[msgspec.Struct]) -> str:
    """Turn a validation error into a sentence that names the field first."""
    missing = re.match(_MISSING, problem)
    if missing:
        return f"{missing[1]} is required"
    placed = re.match(_AT, problem)
    if placed is None:
        return problem.replace("`", "")
    what, field = placed[1].replace("`", "").replace("Expected", "expected", 1), placed[2]
    what = re.sub(_JSON_KINDS, lambda kind: _JSON_WORDS[kind[0]], what)
    if what.startswith("Invalid enum value "):
        wrong, choices = what.removeprefix("Invalid enum value "), _choices(field, shape)
        return f"Invalid {field}: {wrong} is none of {choices}" if choices else f"Invalid {field}: {wrong}"
    return f"Invalid {field}: {what}"


_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}
_JSON_KINDS = rf"\b({'|'.join(_JSON_WORDS)})\b"


def _choices(field: str, shape: type[msgspec.Struct]) -> str:
    """Return the words that a field of the command may have; empty for a field inside another."""
    kind = next((item.type for item in msgspec.structs.fields(shape) if item.encode_name == field), None)
    values = [value for part in get_args(kind) for value in get_args(part) or (part,)]
    return ", ".join(str(value) for value in values if value is not type(None))
