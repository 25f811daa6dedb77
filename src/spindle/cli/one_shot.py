"""What print and JSON mode share: gather the input, run the messages one after another, end cleanly."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from spindle.agent.session import AgentSession
from spindle.agent.toolbox import Toolbox
from spindle.cli.args import Options, UsageError
from spindle.cli.assemble import assemble
from spindle.cli.inputs import Inputs, gather, read_piped
from spindle.cli.tell import warn
from spindle.shapes.events import Event, ExtensionError

__all__ = ["ErrorTeller", "play", "read_inputs", "until_signal"]

_EXIT_CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}


def read_inputs(options: Options) -> Inputs:
    """Read piped text and files. Raises `BadInput`, and `UsageError` if there is nothing to do."""
    inputs = gather(options.messages, options.files, os.getcwd(), read_piped())
    if not inputs.messages:
        raise UsageError("Nothing to do: give a message, pipe text in, or use --mode rpc (see --help)")
    return inputs


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Return the exit code of the work; a signal cancels it and decides the code."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def stop(code: int) -> None:
        caught.append(code)
        task.cancel()

    for number, code in _EXIT_CODES.items():
        loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError:
        return caught[0] if caught else 1


async def play(
    options: Options, inputs: Inputs, mode: str, ready: Callable[[AgentSession], None] = lambda agent: None
) -> AgentSession:
    """Make the agent, tell `ready`, and run every message to its end. The agent is closed either way."""
    agent = await assemble(options, mode=mode)
    try:
        ready(agent)
        await agent.extensions.begin()
        _check_tools(options, agent.toolbox)
        images = inputs.images
        for message in inputs.messages:
            if agent.shutdown_requested.is_set():
                break
            await agent.submit(message, images, source=mode)
            images = []
            while agent.busy:  # again if an extension went on by itself when the agent had settled
                await agent.engine.wait_idle()
                await agent.hooks.caught_up()
    finally:
        await agent.close()
    return agent


def _check_tools(options: Options, toolbox: Toolbox) -> None:
    """Tell of tools that were named but are not there; extensions have added theirs by now."""
    for name in [*(options.tools or ()), *options.exclude_tools]:
        if name not in toolbox:
            warn(f'Unknown tool "{name}". There are: {", ".join(tool.name for tool in toolbox.all())}')


class ErrorTeller:
    """A listener that tells errors beside the run on stderr."""

    full = False

    def put(self, event: Event) -> None:
        # A session that cannot be saved has been told of by whoever opened it.
        if isinstance(event, ExtensionError) and event.event != "session_write":
            what = f"Extension error ({event.extension_path})" if event.extension_path else "Error"
            print(f"{what}: {event.error}", file=sys.stderr)

    async def room(self) -> None:
        """There is always room."""
