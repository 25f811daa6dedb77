"""Dialogs and notices of extensions: `ctx.ui`.

Time limits are measured here; the client need not know them. Without an answer (cancelled, late, aborted, no client)
a dialog gives None, and `confirm` gives False.
"""

import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar

from spindle.plugins.extensions.generation import Binding
from spindle.shapes.client_requests import ExtensionUIRequest

PromptHook = Callable[[str, str, str | None], Awaitable[None]]
P = ParamSpec("P")
T = TypeVar("T")


class Asking(Coroutine[Any, Any, T]):
    """A dialog that must be awaited: a handler that forgets `await` must not take the coroutine for a yes."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def _refuse(self, *_: object) -> NoReturn:
        self.close()
        raise TypeError("A dialog must be awaited, in an `async def`: await ctx.ui.confirm(…)")

    __bool__ = __eq__ = _refuse
    __hash__ = object.__hash__


def _dialog(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Asking[T]]:
    @functools.wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> Asking[T]:
        return Asking(function(*args, **kwargs))

    return ask


class UI:
    """Ask and tell the user. All dialogs take `timeout` in seconds."""

    __slots__ = ("_binding", "_on_prompt")

    def __init__(self, binding: Binding, on_prompt: PromptHook) -> None:
        self._binding = binding
        self._on_prompt = on_prompt
        """Called when a dialog opens and when it has closed."""

    # -- dialogs ---------------------------------------------------------------------------------

    @_dialog
    async def select(self, title: str, options: Sequence[str], *, timeout: float | None = None) -> str | None:
        """Let the user choose one of `options`."""
        return _text(await self._ask("select", timeout, title=title, options=options))

    @_dialog
    async def confirm(self, title: str, message: str = "", *, timeout: float | None = None) -> bool:
        """Ask a yes-or-no question. Anything but a clear yes is False."""
        asked = _request("confirm", title=title, message=message)

        async def ask() -> bool | None:
            return await self._binding.here.confirm("confirm", title, message, timeout=_limit(timeout))

        return await self._prompted(ask, asked) is True

    @_dialog
    async def input(self, title: str, placeholder: str | None = None, *, timeout: float | None = None) -> str | None:
        """Ask for a line of text."""
        return _text(await self._ask("input", timeout, title=title, placeholder=placeholder))

    @_dialog
    async def editor(self, title: str, prefill: str | None = None) -> str | None:
        """Let the user edit a longer text."""
        return _text(await self._ask("editor", None, title=title, prefill=prefill))

    # -- notices ---------------------------------------------------------------------------------

    def notify(self, message: str, kind: Literal["info", "warning", "error"] = "info") -> None:
        if kind not in ("info", "warning", "error"):
            raise ValueError(f"ui.notify: kind must be info, warning or error, not {kind!r}")
        self._tell("notify", message=message, notify_type=kind)

    def set_status(self, key: str, text: str | None = None) -> None:
        """Show a short text under `key`; None removes it."""
        self._tell("setStatus", status_key=key, status_text=text)

    def set_widget(
        self,
        key: str,
        lines: Sequence[str] | None = None,
        *,
        placement: Literal["aboveEditor", "belowEditor"] | None = None,
    ) -> None:
        """Show some lines under `key`; None removes them."""
        self._tell("setWidget", widget_key=key, widget_lines=lines, widget_placement=placement)

    def set_title(self, title: str) -> None:
        self._tell("setTitle", title=title)

    def set_editor_text(self, text: str) -> None:
        """Put a text into the user's input field."""
        self._tell("set_editor_text", text=text)

    paste_to_editor = set_editor_text

    # -- inside ----------------------------------------------------------------------------------

    async def _ask(self, method: str, timeout: float | None, **fields: Any) -> dict[str, Any] | None:
        dialogs, request = self._binding.here.dialogs, _request(method, timeout=_limit(timeout), **fields)
        return await self._prompted(lambda: dialogs.ask(request), request)

    async def _prompted(self, ask: Callable[[], Awaitable[T]], request: ExtensionUIRequest) -> T:
        """Ask, and tell extensions that a dialog is open."""

        async def told() -> T:
            await self._on_prompt("ui_prompt_start", request.method, request.title)
            try:
                return await ask()
            finally:
                await self._on_prompt("ui_prompt_end", request.method, request.title)

        return await self._binding.await_on_loop(told)

    def _tell(self, method: str, **fields: Any) -> None:
        dialogs, request = self._binding.here.dialogs, _request(method, **fields)
        self._binding.on_loop(lambda: dialogs.tell(request))


_LISTS = ("options", "widget_lines")
_REQUIRED = ("title", "message", "status_key", "widget_key", "text")


def _request(method: str, **fields: Any) -> ExtensionUIRequest:
    for name, value in fields.items():
        if name in _LISTS and value is not None:
            if isinstance(value, str) or any(not isinstance(item, str) for item in value):
                raise TypeError(f"ui.{method}: {name} must be a list of str")
            fields[name] = list(value)
        elif name != "timeout" and not isinstance(value, str) and (value is not None or name in _REQUIRED):
            raise TypeError(f"ui.{method}: {name} must be a str, not {type(value).__name__}")
    return ExtensionUIRequest(id=str(uuid.uuid4()), method=method, **fields)


def _limit(timeout: float | None) -> int | None:
    return None if timeout is None else max(1, round(timeout * 1000))


def _text(answer: dict[str, Any] | None) -> str | None:
    value = None if answer is None else answer.get("value")
    return value if isinstance(value, str) else None
