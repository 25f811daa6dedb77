"""Virtual models: a function of a program or an extension says for each request which model answers it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from spindle.base.errors import AgentError
from spindle.models.model_registry import VIRTUAL, ModelRegistry
from spindle.models.select import ModelNotFound, resolve_model
from spindle.shapes.model import Model

if TYPE_CHECKING:
    from spindle.llm.stream import Chunk, Request, StreamOptions


class Router:
    """The stream function of a virtual model, which is never called: the model that it names is asked instead."""

    def __init__(self, name: str, route: "Callable[[Request], Awaitable[Any]]") -> None:
        self._name = name
        self._route = route

    async def target(self, request: "Request", registry: ModelRegistry) -> Model:
        """Return the model that answers a request. Raises `AgentError`."""
        try:
            named = await self._route(request)
        except Exception as error:  # a function of somebody else
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise AgentError(f'The route of the model "{self._name}" failed: {why}') from error
        if isinstance(named, Model):
            found = named
        elif isinstance(named, str):
            try:
                found = (await asyncio.to_thread(resolve_model, registry, named)).model
            except ModelNotFound as error:
                raise AgentError(f'The route of the model "{self._name}" gave no model: {error}') from None
        else:
            raise AgentError(
                f'The route of the model "{self._name}" gave {named!r}; it should give the name of a model'
            )
        if found.api == VIRTUAL:
            raise AgentError(f'The route of the model "{self._name}" gave "{found.id}", which is virtual, too')
        return found

    def __call__(self, model: Model, request: "Request", options: "StreamOptions") -> "AsyncGenerator[Chunk, None]":
        raise AssertionError("a virtual model is not asked itself")
