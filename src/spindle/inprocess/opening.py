"""What `Agent.create` returns: an agent that is being made."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from spindle.agent.run.awaited import Later

if TYPE_CHECKING:
    from spindle.inprocess.agent import Agent


class Opening(Later["Agent"]):
    """An agent that is being made: `async with` gives it, and closes it at the end; `await` only gives it."""

    def __init__(self, work: Coroutine[Any, Any, "Agent"]) -> None:
        self._work = work
        self._agent: Agent | None = None

    def _begin(self) -> Coroutine[Any, Any, "Agent"]:
        assert self._work is not None
        return self._work

    if not TYPE_CHECKING:  # for those who have no type checker

        def __getattr__(self, name: str) -> Any:
            from spindle.inprocess.agent import Agent

            if hasattr(Agent, name):
                raise AttributeError(
                    f"The agent is not made yet: `async with Agent.create(…) as agent`, or await it, before .{name}"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __enter__(self) -> None:
            raise TypeError("Write `async with Agent.create(…)`; without asyncio it is `with Agent.sync(…)`")

        def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> "Agent":
        self._agent = await self
        return self._agent

    async def __aexit__(self, *_: object) -> None:
        if self._agent is not None:
            await self._agent.close()
