"""JSON-RPC 2.0 in both directions: either side sends requests and notifications, one object a frame."""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from spindle.agent import AgentError
from spindle.base import trace
from spindle.base.flow import Tasks
from spindle.base.limits import COMMANDS_END
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.sessions.entries import SessionError
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.wires.pipe.framing import LineTooLong

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32800, -32000, -32002

Handler = Callable[[str, dict[str, Any], Any], Awaitable[Any]]
"""Takes method, params and the request's id (None for a notification); returns the result. Raises `JsonRpcError`."""


class JsonRpcError(Exception):
    """An error answer to a request, ours or that of the other side."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RpcConnection:
    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self.outbox = Outbox(Renderer())
        self._tasks = Tasks()
        self._answering: dict[Any, asyncio.Task[None]] = {}
        """Requests of the other side that are being answered, by their id."""
        self._numbers = itertools.count(1)
        self._asked: dict[Any, asyncio.Future[Any]] = {}
        """Our requests that are not answered yet."""

    # -- out -------------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def _send(self, frame: dict[str, Any]) -> None:
        self.outbox.put_line(encode({"jsonrpc": "2.0", **frame}) + b"\n")

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request; a cancelled one is cancelled at the other side. Raises `JsonRpcError`."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        try:
            return await answer
        except asyncio.CancelledError:
            self.notify("$/cancel_request", {"requestId": number})
            raise
        finally:
            del self._asked[number]

    def fail(self, reason: str) -> None:
        """Let our requests fail: the other side is gone."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(JsonRpcError(INTERNAL_ERROR, reason))

    # -- in --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Cancel our requests, and the answers that are not finished."""
        for answer in self._asked.values():
            answer.cancel()
        await self._tasks.end(COMMANDS_END)

    def cancel(self, id: Any) -> None:
        """Cancel the answer to a request; only the first call counts, as the answer may take a while to end."""
        if isinstance(id, str | int | float) and (task := self._answering.pop(id, None)) is not None:
            task.cancel()

    def receive(self, line: bytes | LineTooLong) -> None:
        """Take a frame. Never raises: a frame with a fault gets an error."""
        if isinstance(line, LineTooLong):
            self._refuse(None, PARSE_ERROR, str(line))
            return
        if not line.strip():
            return
        try:
            frame = decode(line)
        except DecodeError as error:
            self._refuse(None, PARSE_ERROR, str(error))
            return
        id = frame.get("id") if isinstance(frame, dict) else None
        if not isinstance(frame, dict) or not isinstance(id, str | int | float | None) or isinstance(id, bool):
            self._refuse(None, INVALID_REQUEST, "A frame is an object, and its id a string or a number")
        elif isinstance(method := frame.get("method"), str):
            params = frame.get("params")
            if params is not None and not isinstance(params, dict):
                self._refuse(id, INVALID_PARAMS, "params must be an object")
                return
            task = self._tasks.spawn(self._answer(method, params or {}, id, is_request="id" in frame), f"acp {method}")
            if id is not None:
                self._answering[id] = task
                task.add_done_callback(lambda task: self._forget(id, task))
        elif (answer := self._asked.get(id)) is not None and not answer.done():
            if isinstance(refusal := frame.get("error"), dict):
                answer.set_exception(JsonRpcError(refusal.get("code", INTERNAL_ERROR), _reason(refusal)))
            else:
                answer.set_result(frame.get("result"))
        elif "result" not in frame and "error" not in frame:
            self._refuse(id, INVALID_REQUEST, "method is required")

    def _forget(self, id: Any, task: asyncio.Task[None]) -> None:
        if self._answering.get(id) is task:  # not that of a later request with the same id
            del self._answering[id]

    async def _answer(self, method: str, params: dict[str, Any], id: Any, *, is_request: bool) -> None:
        data: Any = None
        try:
            result = await self._handle(method, params, id)
        except JsonRpcError as error:
            code, text, data = error.code, str(error), error.data
        except (AgentError, SessionError) as error:
            code, text = INTERNAL_ERROR, str(error)
        except msgspec.ValidationError as error:
            code, text = INVALID_PARAMS, str(error).replace("`", "")
        except asyncio.CancelledError:
            if is_request:
                self._refuse(id, CANCELLED, "The request was cancelled")
            raise
        except Exception as error:  # a bug: the editor gets an answer, and the bug is printed
            trace.bug(error)
            code, text = INTERNAL_ERROR, f"{type(error).__name__}: {error}"
        else:
            if is_request:
                self._send({"id": id, "result": result})
            return
        if is_request:
            self._refuse(id, code, text, data)
        else:
            print(f"{method}: {text}", file=sys.stderr)

    def _refuse(self, id: Any, code: int, text: str, data: Any = None) -> None:
        more = {} if data is None else {"data": data}
        self._send({"id": id, "error": {"code": code, "message": text, **more}})


def _reason(refusal: dict[str, Any]) -> str:
    """Return the words of an error; SDKs say `Internal error` and put the reason into `data.details`."""
    text, data = str(refusal.get("message", "")), refusal.get("data")
    details = data.get("details") if isinstance(data, dict) else None
    return f"{text}: {details}" if isinstance(details, str) else text
