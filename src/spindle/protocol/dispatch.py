"""From a line to an answer: decode, find the command, check its fields, run it, put the response in the outbox.

Commands begin in input order. One that has to wait is a task of its own, so the others answer whatever it does.
"""

import re
import sys
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, get_args

import msgspec

from spindle.agent import AgentError
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks, dues
from spindle.base.limits import COMMANDS_END
from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import Call, Client, CommandSpec
from spindle.protocol.render import Response
from spindle.sessions.entries import SessionError
from spindle.sessions.lock import SessionLocked
from spindle.shapes.codec import DecodeError, decode, encode


class InvalidFields(AgentError):
    """A command has fields that make no sense."""


class Output(Protocol):
    def put(self, item: Any) -> None: ...

    def hold(self) -> None: ...


class Dispatcher:
    def __init__(
        self,
        agent: AgentSession,
        client: Client,
        output: Output,
        route: Callable[[dict[str, Any]], bool] = lambda frame: False,
    ) -> None:
        """`route` is shown frames with a `sessionId`; it returns whether it has taken them to that session."""
        self._agent = agent
        self._route = route
        self._client = client
        self._output = output
        self._tasks = Tasks()
        self._unbegun = 0
        """Tasks that have not had their first turn."""
        self._late: deque[dict[str, Any]] = deque()
        """A prompt that came with many others and waits for its turn, and what the client sent behind it."""

    def receive(self, line: bytes) -> None:
        """Take one line. Never raises: what is wrong with it becomes a response."""
        try:
            value = decode(line)
        except DecodeError as error:
            self.refuse_line(str(error), _id_of(line) if re.search(_UNREADABLE, str(error)) else msgspec.UNSET)
        else:
            self.receive_value(value)

    def receive_value(self, value: Any) -> None:
        frame = value if isinstance(value, dict) else {}
        if frame.get("sessionId") is not None and self._route(frame):
            return
        if self._late or (frame.get("type") == "prompt" and not dues.may_grow):
            self._late.append(frame)
            if len(self._late) == 1:
                dues.when_it_may(self._catch_up)
        else:
            self._take(frame)

    def _catch_up(self) -> None:
        try:
            while self._late:
                self._take(self._late.popleft())
                if self._late and self._late[0].get("type") == "prompt":
                    break
        finally:
            if self._late:
                dues.when_it_may(self._catch_up)

    def _take(self, frame: dict[str, Any]) -> None:
        # Answers to dialogs and host tools go to those who wait for them and get no response.
        if self._agent.receive_reply(frame):
            return
        kind = frame.get("type")
        spec = COMMANDS.get(kind) if isinstance(kind, str) else None
        self._unbegun += 1
        work = self._run(frame, spec)
        if self._unbegun > 1 or self._agent.aborting or (spec is not None and spec.may_wait(frame)):
            self._tasks.spawn(work, "command")
        else:
            with suppress(StopIteration):  # it never waits, so this is all of it
                work.send(None)

    def refuse_line(self, reason: str, id: Any = msgspec.UNSET) -> None:
        """Answer a line that could not even be read."""
        self._refuse(id, "parse", f"Failed to parse command: {reason}")

    @property
    def busy(self) -> bool:
        """Whether a command is not answered yet."""
        return bool(self._late) or len(self._tasks) > 0

    async def begun(self) -> None:
        """Wait until no command waits for its turn any more."""
        while self._late:
            await dues.turn()

    async def finish(self, timeout: float | None = None) -> None:
        """Wait until all commands are answered, or for `timeout` seconds after they have begun."""
        await self.begun()
        await self._tasks.join(timeout)

    async def close(self) -> None:
        self._late.clear()
        await self._tasks.end(COMMANDS_END)

    async def _run(self, frame: dict[str, Any], spec: CommandSpec | None) -> None:
        self._unbegun -= 1
        id = frame.get("id", msgspec.UNSET)
        kind = frame.get("type")
        name = "parse" if kind is None else kind if isinstance(kind, str) else encode(kind).decode()
        try:
            if spec is None:
                raise AgentError("type is required" if kind is None else f"Unknown command: {name}")
            data = await spec.run(Call(self._agent, self._client, id), read_fields(frame, spec.fields))
        except SessionLocked as error:
            advice = "Begin another with new_session, or start an agent that goes on in a copy: --fork and this path"
            self._refuse(id, name, f"{error.what}. {advice}")
        except (AgentError, SessionError) as error:
            self._refuse(id, name, str(error))
        except Exception as error:  # a bug must not cost the client its answer, nor the others the process
            self._refuse(id, name, f"{type(error).__name__}: {error}")
            traceback.print_exception(error, file=sys.stderr)
        else:
            if name == "prompt" or name == "abort_and_prompt":
                self._output.hold()  # until what was accepted is kept
            self._output.put(Response(id=id, command=name, success=True, data=data))

    def _refuse(self, id: Any, command: Any, error: str) -> None:
        self._output.put(Response(id=id, command=command, success=False, error=error))


# Patterns are compiled when they are needed: by then something is wrong.
_UNREADABLE = "out of range|nested too deeply"
"""What is wrong with a line that is JSON, but more than can be held."""
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)'
_ID = rf'\s*\{{(?:\s*"(?:[^"\\]|\\.)*"\s*:\s*{_SCALAR}\s*,)*?\s*"id"\s*:\s*({_SCALAR})'


def _id_of(line: bytes) -> Any:
    """Return the id of a frame that cannot be read as a whole, if it stands before what cannot be read."""
    found = re.match(_ID, line.decode("utf-8", "replace"))
    try:
        return decode(found[1]) if found else msgspec.UNSET
    except DecodeError:
        return msgspec.UNSET


def read_fields(frame: dict[str, Any], shape: type[msgspec.Struct]) -> msgspec.Struct:
    """Check the fields of a command. Raises `InvalidFields`."""
    # Many clients write null for what they leave out.
    given = {name: frame[name] for name in shape.__struct_encode_fields__ if frame.get(name) is not None}
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise InvalidFields(_explain(str(error), shape)) from None
    except UnicodeError:  # msgspec cannot even compare such a text with those that are allowed
        raise InvalidFields("Invalid text: it holds half of a surrogate pair") from None


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
        return f"Invalid {field}: {what.removeprefix('Invalid enum value ')} is none of {_choices(field, shape)}"
    return f"Invalid {field}: {what}"


_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}
_JSON_KINDS = rf"\b({'|'.join(_JSON_WORDS)})\b"


def _choices(field: str, shape: type[msgspec.Struct]) -> str:
    kind = next(item.type for item in msgspec.structs.fields(shape) if item.encode_name == field)
    values = [value for part in get_args(kind) for value in get_args(part) or (part,)]
    return ", ".join(str(value) for value in values if value is not type(None))
