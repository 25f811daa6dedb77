"""Commands about what works for the agent beside its run: subagents, and commands in the background."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from spindle.agent.features.background import BackgroundOutput
from spindle.agent.features.subagent_list import SubagentInfo
from spindle.protocol.registry import Call, command
from spindle.shapes.messages import Wire

Level = Literal["off", "progress", "events"]


@command("get_subagents", key="subagents")
def get_subagents(call: Call) -> list[SubagentInfo]:
    """Return the subagents that are at work."""
    return call.agent.subagents.all()


class SubagentMessages(Wire, omit_defaults=False):
    session_file: str
    from_byte: int
    next_byte: int
    """`fromByte` for what comes after this."""
    reset: bool
    """Whether the file is shorter than `fromByte`, so that this is its beginning."""
    entries: list[Any]
    messages: list[Any]
    """Those of the entries."""


@command("get_subagent_messages", data=SubagentMessages)
async def get_subagent_messages(
    call: Call,
    subagent_id: str | None = None,
    session_file: str | None = None,
    from_byte: Annotated[int, msgspec.Meta(ge=0)] = 0,
) -> Any:
    """Return what is in the session file of a subagent, at work or not, from a byte on; 8 MiB at most.

    The subagent is named by its id or by its session file.
    """
    from spindle.protocol.negotiated import read_transcript

    return await asyncio.to_thread(
        read_transcript, call.agent.subagents.session_file(subagent_id, session_file), from_byte
    )


@command("set_subagent_subscription", key="level")
def set_subagent_subscription(call: Call, level: Level) -> Level:
    """Tell of subagents in oh-my-pi's form, for clients that have negotiated version 2, in all sessions.

    `progress`: `subagent_lifecycle` and `subagent_progress`; `events`: also `subagent_event`, with a `payload`.
    """
    call.client.set_subagent_subscription(level)
    return level


@command("stop_subagent")
def stop_subagent(call: Call, subagent_id: str) -> None:
    """Stop a subagent. The call that it works for ends with what it has said so far."""
    call.agent.subagents.stop(subagent_id)


@command("get_background_output")
async def get_background_output(
    call: Call, background_id: str, from_byte: Annotated[int, msgspec.Meta(ge=0)] = 0
) -> BackgroundOutput:
    """Return the output of a command in the background from a byte on. The model still gets all of it."""
    return await call.agent.background.output(background_id, from_byte)


@command("kill_background")
async def kill_background(call: Call, background_id: str) -> None:
    """End a command in the background. The model is told, as of every end."""
    await call.agent.background.kill(background_id)
