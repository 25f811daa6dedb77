"""Questions of extensions, answered by a function of the program that drives the agent."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from spindle.client.events import Event

__all__ = ["Dialogs", "UiHandler"]

UiHandler: TypeAlias = Callable[[Event], Any]
"""Gets the request; returns (or is a coroutine that returns) a text, a bool for `confirm`, or None to cancel."""

QUESTIONS = frozenset({"select", "confirm", "input", "editor"})

log = logging.getLogger(__name__)


class Dialogs:
    def __init__(self, post: Callable[[dict[str, Any]], None], handler: UiHandler | None) -> None:
        self.handler = handler
        self._post = post
        self._open: dict[str, asyncio.Task[None]] = {}

    def receive(self, request: Event) -> None:
        """Take an `extension_ui_request`. Without a handler a question is cancelled: nobody may wait for ever."""
        id = str(request.get("id"))
        if request.get("method") == "cancel":
            withdrawn = self._open.get(str(request.get("targetId")))
            if withdrawn is not None:
                withdrawn.cancel()
            return
        self._open[id] = task = asyncio.create_task(self._ask(request))
        task.add_done_callback(lambda _: self._open.pop(id, None))

    async def close(self) -> None:
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, request: Event) -> None:
        answer: Any = None
        if self.handler is not None:
            try:
                answer = self.handler(request)
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception:  # a bug in the handler must not leave the agent waiting
                log.exception("the handler of %s requests failed", request.get("method"))
                answer = None
        if request.get("method") not in QUESTIONS:
            return
        reply: dict[str, Any] = {"type": "extension_ui_response", "id": request["id"]}
        if answer is None:
            reply["cancelled"] = True
        elif request["method"] == "confirm":
            reply["confirmed"] = bool(answer)
        else:
            reply["value"] = str(answer)
        self._post(reply)
