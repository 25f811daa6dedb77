"""Commands that make the agent act: prompts and queues, stopping, compaction, shell commands."""

import asyncio
from typing import Any

import msgspec

from spindle.agent.prompting import Disposition
from spindle.agent.session import Queued
from spindle.protocol.registry import Call, Fields, NoFields, command
from spindle.shapes.events import CompactionResult
from spindle.shapes.messages import Wire
from spindle.tools.user_bash import BashResult

IDLE_ABORT_S = 0.01


class Accepted(Wire):
    disposition: Disposition


class MessageFields(Fields):
    message: str
    images: list[Any] = msgspec.field(default_factory=list)


class PromptFields(MessageFields):
    streaming_behavior: str | None = None
    """`steer` or `followUp`: what to do if the agent is at work."""


@command("prompt", fields=PromptFields, data=Accepted)
async def prompt(call: Call, f: PromptFields) -> Accepted:
    """Send a message. Answered once it is accepted, queued or handled; the run's events follow."""
    return Accepted(await call.agent.submit(f.message, f.images, f.streaming_behavior))


@command("steer", fields=MessageFields, data=Accepted)
async def steer(call: Call, f: MessageFields) -> Accepted:
    """Queue a message for before the next model call of this run, or for the next run."""
    return Accepted(await call.agent.steer(f.message, f.images))


@command("follow_up", fields=MessageFields, data=Accepted)
async def follow_up(call: Call, f: MessageFields) -> Accepted:
    """Queue a message for when the run would end."""
    return Accepted(await call.agent.follow_up(f.message, f.images))


@command("abort")
async def abort(call: Call, f: NoFields) -> None:
    """Stop the run, a retry or a compaction. Answered when the agent is idle; queues are kept."""
    idle = not call.agent.busy
    await call.agent.abort()
    if idle:
        # As in pi, commands that were sent along with an idle abort are seen before its answer.
        await asyncio.sleep(IDLE_ABORT_S)


@command("abort_and_prompt", fields=MessageFields, data=Accepted)
async def abort_and_prompt(call: Call, f: MessageFields) -> Accepted:
    """Stop what runs, then send a message."""
    return Accepted(await call.agent.abort_and_submit(f.message, f.images))


@command("clear_queue", data=Queued)
async def clear_queue(call: Call, f: NoFields) -> Queued:
    """Empty both queues and return what was waiting."""
    return call.agent.clear_queue()


@command("abort_retry")
async def abort_retry(call: Call, f: NoFields) -> None:
    """End the wait for a retry; the run is over then."""
    await call.agent.abort_retry()


class CompactFields(Fields):
    custom_instructions: str | None = None


@command("compact", fields=CompactFields, data=CompactionResult)
async def compact(call: Call, f: CompactFields) -> CompactionResult:
    """Replace the older part of the context by a summary."""
    return await call.agent.compact(f.custom_instructions)


# -- bash -----------------------------------------------------------------------------------------


class BashFields(Fields):
    command: str
    exclude_from_context: bool = False


@command("bash", fields=BashFields, data=BashResult)
async def bash(call: Call, f: BashFields) -> BashResult:
    """Run a shell command as the user; the model sees it with the next prompt."""
    return await call.agent.run_bash(f.command, call.id, exclude_from_context=f.exclude_from_context)


@command("abort_bash")
async def abort_bash(call: Call, f: NoFields) -> None:
    """Kill every running `bash` command."""
    call.agent.abort_bash()


@command("shutdown")
async def shutdown(call: Call, f: NoFields) -> None:
    """Answer, then end the process with code 0."""
    call.client.request_shutdown()
