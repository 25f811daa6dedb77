"""Commands that make the agent work or stop: prompts and queues, compaction, shell commands, the end."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar, Unpack

from spindle.agent import AgentError
from spindle.agent.run.handle import Disposition, Run
from spindle.agent.run.options import RunOptions
from spindle.agent.state import Queued
from spindle.base import trace
from spindle.protocol.commands.setup import answer_of
from spindle.protocol.registry import Call, command
from spindle.shapes.approvals import Keep
from spindle.shapes.events import CompactionResult
from spindle.shapes.messages import Image, ImageOnWire, Wire, text_of
from spindle.shapes.run_limits import LimitArguments, RunLimits
from spindle.tools.user_bash import BashOutput

T = TypeVar("T")
IDLE_ABORT_S = 0.01


@command("prompt", key="disposition")
async def prompt(
    call: Call,
    message: str,
    images: Sequence[ImageOnWire] = (),
    streaming_behavior: Literal["steer", "followUp"] | None = None,
    json_schema: dict[str, Any] | None = None,
    enabled_tools: Sequence[str] | None = None,
    fallback: Sequence[str] | None = None,
    traceparent: str | None = None,
    **limits: Unpack[LimitArguments],
) -> Disposition:
    """Send a message. The response comes once it is accepted, queued or handled; the run's events follow.

    Limits (model calls, US dollars, seconds, tokens), the JSON Schema of the result, the list `enabledTools` (see
    cli.md) and `fallback`, the models that answer if the model cannot (see providers.md; an empty list: none), hold for
    the run it starts. `traceparent` (W3C) makes the run part of a trace of the client's.
    """
    trace.follow(traceparent)
    wanted = RunLimits(**limits)
    limited = call.client.account.limited(wanted)
    options = RunOptions(limits=limited, schema=json_schema, tools=enabled_tools, fallback=fallback)
    return await _accepted(call, call.agent.submit(message, images, streaming_behavior, options=options))


async def _accepted(call: Call, submitting: Coroutine[Any, Any, Run]) -> Disposition:
    run = await _counted(call, submitting)
    call.client.accepted(run)
    call.client.follow(run, call.id)
    return run.disposition


async def _counted(call: Call, submitting: Coroutine[Any, Any, T]) -> T:
    """Hand in what leads to a run. It counts as a run of the user if it is not refused."""
    return await call.client.account.counted(call.agent, submitting)


@command("steer", key="disposition")
async def steer(call: Call, message: str, images: Sequence[ImageOnWire] = ()) -> Disposition:
    """Queue a message that the model gets before its next call in this run, or with the next run."""
    return await call.agent.steer(message, images)


@command("follow_up", key="disposition")
async def follow_up(call: Call, message: str, images: Sequence[ImageOnWire] = ()) -> Disposition:
    """Queue a message that the model gets when the run would otherwise end."""
    return await _counted(call, call.agent.follow_up(message, images))


@command("abort")
async def abort(call: Call) -> None:
    """Stop the run, a retry or a compaction. The response comes when the agent is idle; queues are kept.

    A client need not wait for it before it sends a prompt: the prompt is answered after the abort, and runs then.
    """
    idle = not call.agent.busy
    await call.agent.abort()
    if idle:
        # As in pi, commands sent together with an abort of an idle agent are seen before its response.
        await asyncio.sleep(IDLE_ABORT_S)


@command("abort_and_prompt", key="disposition")
async def abort_and_prompt(call: Call, message: str, images: Sequence[ImageOnWire] = ()) -> Disposition:
    """Stop as `abort` does, then send a message."""
    return await _accepted(call, call.agent.abort_and_submit(message, images))


@command("resume_run", key="disposition")
async def resume_run(call: Call) -> Disposition:
    """Go on with a run that the end of its process cut off (`interruptedRun` in `get_state`); its events follow.

    Limits hold on. Open calls of tools that only read are made again; the model is told of the others.
    """
    return await _accepted(call, call.agent.resume_run())


@command("answer_question", key="disposition")
async def answer_question(
    call: Call,
    question: str,
    behavior: Literal["allow", "deny"],
    input: Any = None,
    keep: Keep | None = None,
    rules: list[str] | None = None,
    reason: str | None = None,
    stop: bool = False,
) -> Literal["started", "answered"]:
    """Answer a question as `answer_permission` does, also one whose run waits in the session (`interruptedRun`).

    `started`: no other question waits, and the run goes on with the answer; its events follow. `answered`: the run goes
    on anyway, or waits for the answer to another question.
    """
    answer = answer_of(call, question, behavior, input, keep, rules, reason, stop)
    if await call.agent.answer_question(question, answer):
        await _accepted(call, call.agent.resume_run())
        return "started"
    return "answered"


@command("abandon_run")
async def abandon_run(call: Call) -> None:
    """Give up a run that the end of its process cut off; another prompt does the same. The conversation stays."""
    await call.agent.abandon_run()


@command("abort_commands", key="commands")
def abort_commands(call: Call) -> list[str]:
    """Stop running slash commands of extensions, and return their names."""
    return call.agent.prompting.stop_commands()


@command("clear_queue")
def clear_queue(call: Call) -> Queued:
    """Empty both queues and return the messages that were in them."""
    return Queued(*call.agent.queues.clear())


class RemovedMessage(Wire):
    kind: str
    """`steer` or `followUp`."""
    text: str
    images: list[Image]


@command("remove_queued")
async def remove_queued(call: Call, queued_id: str) -> RemovedMessage:
    """Take one message out of its queue and return it. The ids are in `queue_update`."""
    kind, message = call.agent.queues.remove(queued_id)
    content = message.content if isinstance(message.content, list) else []
    return RemovedMessage(kind, text_of(message.content), [block for block in content if isinstance(block, Image)])


@command("edit_queued")
async def edit_queued(call: Call, queued_id: str, message: str) -> None:
    """Replace the text of a queued message; its place and its images stay."""
    call.agent.queues.change(queued_id, message)


@command("send_queued")
async def send_queued(call: Call, queued_id: str) -> None:
    """Deliver a queued message before all others: before the next model call, or at once if nothing runs."""

    async def send() -> None:
        call.agent.prompting.send_queued(queued_id)

    await (send() if call.agent.busy else _counted(call, send()))


@command("abort_retry")
async def abort_retry(call: Call) -> None:
    """End the wait for a retry; the run is over then."""
    await call.agent.abort_retry()


class HandedOff(Wire):
    pass


@command("handoff")
async def handoff(call: Call, custom_instructions: str | None = None) -> HandedOff:
    """Go on from a summary of the conversation, as `compact`; refused while a run goes on. A command of oh-my-pi."""
    if call.agent.state().is_streaming:
        raise AgentError("Cannot hand off while a response is in progress")
    await call.agent.compact(custom_instructions)
    return HandedOff()


@command("compact")
async def compact(call: Call, custom_instructions: str | None = None) -> CompactionResult:
    """Replace the older part of the context by a summary."""
    return await call.agent.compact(custom_instructions)


@command("bash")
async def bash(call: Call, command: str, exclude_from_context: bool = False) -> BashOutput:
    """Run a shell command as the user; the model sees it with the next prompt."""
    return await call.agent.shell.run(command, call.id, exclude_from_context=exclude_from_context)


@command("abort_bash")
def abort_bash(call: Call) -> None:
    """Kill every running `bash` command."""
    call.agent.shell.stop_all()


@command("shutdown")
def shutdown(call: Call) -> None:
    """Answer, then end the process with code 0."""
    call.client.request_shutdown()
