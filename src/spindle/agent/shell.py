"""Shell commands that the user runs beside the agent: several at once, streamed, remembered for the model."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import HookChain
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Lifecycle
from spindle.base import limits
from spindle.resources.loader import Resources
from spindle.shapes.events import BashExecutionUpdate, SessionChanged
from spindle.shapes.messages import BashExecutionMessage
from spindle.tools.base import ToolError
from spindle.tools.user_bash import BashOutput, run_user_bash

if TYPE_CHECKING:
    from spindle.workspace.sandbox import Sandbox
    from spindle.workspace.unfenced import NoSandbox


class ShellPort(Protocol):
    """What the user's commands need of the engine."""

    conversation: Conversation
    hooks: HookChain
    hub: Hub
    lifecycle: Lifecycle
    resources: Resources
    owner: object
    sandbox: Callable[[], "Sandbox | NoSandbox"]


class Shell:
    def __init__(self, port: ShellPort) -> None:
        self._port = port
        self._running: set[asyncio.Task[BashOutput]] = set()

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    async def run(self, command: str, id: Any = msgspec.UNSET, *, exclude_from_context: bool = False) -> BashOutput:
        """Run a command to its end. Raises `AgentError`.

        Its result is added to the conversation, after the current run if there is one.
        """
        task = asyncio.create_task(self._run(command, id, exclude_from_context))
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:  # killed before it had begun
            return BashOutput(output="", cancelled=True, truncated=False)
        except ToolError as error:
            raise AgentError(str(error)) from None
        finally:
            self._running.discard(task)

    async def _run(self, command: str, id: Any, exclude_from_context: bool) -> BashOutput:
        result = await self._supplied(command, exclude_from_context)
        if result is None:
            result = await self._execute(command, id)
        self._remember(command, result, exclude_from_context)
        return result

    async def _supplied(self, command: str, exclude_from_context: bool) -> BashOutput | None:
        """Ask hooks for a result to use instead of running the command."""
        cwd = self._port.conversation.session.cwd
        value = await self._port.hooks.user_bash(command, exclude_from_context, cwd)
        return msgspec.convert(value, BashOutput) if value is not None else None

    async def _execute(self, command: str, id: Any) -> BashOutput:
        def tell(delta: str) -> None:
            self._port.hub.publish(BashExecutionUpdate(id=id, delta=delta))

        cwd = self._port.resources.workdir(self._port.conversation.session.cwd)
        settings = self._port.resources.tool_settings(self._port.owner, self._port.sandbox(), for_user=True)
        return await run_user_bash(command, cwd, settings, on_delta=tell, pace=self._port.hub)

    def _remember(self, command: str, result: BashOutput, exclude_from_context: bool) -> None:
        message = BashExecutionMessage(
            command=command,
            output=result.output,
            exit_code=result.exit_code,
            cancelled=result.cancelled,
            truncated=result.truncated,
            full_output_path=result.full_output_path,
            timestamp=int(time.time() * 1000),
            exclude_from_context=exclude_from_context,
        )
        if self._port.lifecycle.running:
            self._port.conversation.hold(message)
        else:
            self._port.conversation.append(message)
            self._port.hub.publish(SessionChanged(self._port.conversation.session.id, "bash"))

    def stop_all(self) -> None:
        """Kill every running command; each then returns the output that it has written so far."""
        for task in self._running:
            task.cancel()

    async def abort_all(self) -> None:
        """Kill every running command and wait until the results are in the conversation."""
        self.stop_all()
        if self._running:
            await asyncio.wait(self._running, timeout=limits.USER_BASH_END)
