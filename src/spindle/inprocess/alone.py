"""One-liners: they make an agent for a single prompt, and close it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar, Unpack, overload

from spindle.agent.run.awaited import AgentRun
from spindle.agent.run.handle import Run
from spindle.inprocess.agent import Agent
from spindle.inprocess.images import AnyImage
from spindle.inprocess.options import CreateOptions

T = TypeVar("T")


@overload
async def ask(
    text: str, images: Sequence[AnyImage] = (), *, schema: None = None, **options: Unpack[CreateOptions]
) -> str: ...


@overload
async def ask(
    text: str, images: Sequence[AnyImage] = (), *, schema: type[T], **options: Unpack[CreateOptions]
) -> T: ...


@overload
async def ask(
    text: str, images: Sequence[AnyImage] = (), *, schema: dict[str, Any], **options: Unpack[CreateOptions]
) -> Any: ...


async def ask(
    text: str, images: Sequence[AnyImage] = (), *, schema: Any = None, **options: Unpack[CreateOptions]
) -> Any:
    """Make an agent, ask it, close it: `Agent.ask` with the options of `Agent.create`."""
    async with Agent.create(**options) as agent:
        return await agent.ask(text, images, schema=schema)


def run(
    text: str, images: Sequence[AnyImage] = (), *, schema: Any = None, **options: Unpack[CreateOptions]
) -> AgentRun:
    """Make an agent, send it a message, close it: `Agent.run` with the options of `Agent.create`.

    Leaving the loop over its events ends the agent.
    """
    return AgentRun(_alone(text, images, schema, options))


async def _alone(
    text: str, images: Sequence[AnyImage], schema: Any, options: CreateOptions
) -> AsyncGenerator[Run, None]:
    async with Agent.create(**options) as own:
        async for run in own._handing_in(text, images, schema, {}):
            yield run
