"""Shell commands that the model runs in the background: the tools for them, and the message at the end of each.

The message waits like a follow-up. If the agent is idle it starts a run, within the limits of the run that started the
command; after an abort or an error it goes out with the next prompt. The session file has an entry for each command,
so that the model is told if the command is gone when the conversation goes on in another process.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks, Start
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Lifecycle
from spindle.agent.queues import Queues
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain, RunOptions
from spindle.agent.toolbox import Toolbox
from spindle.base.flow import Tasks
from spindle.base.settings import Settings
from spindle.sessions.facts import Fact, facts, keep
from spindle.shapes.builtin_tools import KILL_TOOL, OUTPUT_TOOL
from spindle.shapes.events import BackgroundEnd, BackgroundStart, EntryAppended, ToolResult
from spindle.shapes.messages import AgentMessage, CustomMessage, Wire, custom_message
from spindle.shapes.run_result import RunResult
from spindle.tools.base import StartBackground, Tool, ToolContext, ToolError, arguments, text_result

if TYPE_CHECKING:  # loaded with the first command
    from spindle.tools.background import BackgroundCommand

MESSAGE = "spindle.background"
"""Type of the messages."""
_LONGEST_WAIT = 600.0
_USUAL_WAIT = 60.0
"""Seconds that a pattern is waited for, if the model does not say."""
ENDING_MODES = ("print", "json", "batch")
"""In these modes commands end when the work is done, and no run begins by itself."""


class CommandFact(Fact):
    """The start of a command, or its end once the model knows of it."""

    entry_type: ClassVar[str] = "spindle.background"
    id: str
    command: str = ""
    output_file: str | None = None
    pid: int | None = None
    kept: bool = False
    """Whether it goes on after the session."""
    ended: bool = False


class RunningCommand(Wire):
    """A command in the background, as clients see it."""

    id: str
    command: str
    output_file: str
    pid: int


class BackgroundOutput(Wire, kw_only=True):
    """Output of a command in the background."""

    output: str
    next_byte: int
    """`fromByte` for what comes after this."""
    status: str
    """How it stands, in words."""
    running: bool


class _Started(Struct):
    """A command of this session, with the run that started it."""

    command: "BackgroundCommand"
    meter: Meter
    options: RunOptions
    is_known: bool = False
    """Whether the model has its id."""
    message: CustomMessage | None = None
    """The message about its end, once that waits."""
    waking: bool = False
    """Whether it has ended just now, and the message is not on its way yet."""
    told: bool = False
    """Whether the model knows that it has ended."""


class BackgroundPort(Protocol):
    """What background commands need of the engine."""

    conversation: Conversation
    hub: Hub
    toolbox: Toolbox
    queues: Queues
    lifecycle: Lifecycle
    chain: Chain | None
    last_result: RunResult | None
    start_background: StartBackground | None
    count_background: Callable[[], int]

    @property
    def settings(self) -> Settings: ...


class Background(Hooks):
    def __init__(self, port: BackgroundPort, mode: str) -> None:
        self._port = port
        self._mode = mode
        self.start_run: Callable[[CustomMessage, RunOptions, Meter], None] | None = None
        """Lets the model answer a message, on an idle agent, within what a meter has left. Raises `AgentError`."""
        self._commands: dict[str, _Started] = {}
        self._gone: dict[str, CommandFact] = {}
        """Commands that an earlier process started, and of whose end nothing is known."""
        self._last = 0
        """Number of the last command."""
        self._starting = 0
        """Number of commands that are being started."""
        self._waking = Tasks()
        port.start_background, port.count_background = self._start, self._count
        port.toolbox.exchange((), [(tool, False) for tool in self._tools()])

    def running(self) -> list[RunningCommand]:
        commands = (item.command for item in self._commands.values())
        return [RunningCommand(one.id, one.command, one.path, one.pid) for one in commands if one.running]

    def _count(self) -> int:
        """Count the commands whose end may still start a run."""
        return sum(item.command.running or item.waking for item in self._commands.values())

    # -- the session -----------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Learn from the session which commands were started in it."""
        self._gone, self._last = {}, 0
        for fact in facts(self._port.conversation.session.entries, CommandFact):
            number = fact.id[2:11]
            self._last = max(self._last, int(number) if number.isdecimal() else 0)
            if fact.ended:
                self._gone.pop(fact.id, None)
            else:
                self._gone[fact.id] = fact

    def _write(self, fact: CommandFact) -> None:
        self._port.hub.publish(EntryAppended(keep(self._port.conversation.session, fact).value))

    def leave(self) -> None:
        """End all commands, except those that are kept, because the session is left."""
        self._waking.cancel()
        for item in self._commands.values():
            item.command.leave()
        self._commands.clear()
        self.rebuild()  # the session goes on if the change fails

    # -- hooks -----------------------------------------------------------------------------------

    async def before_agent_start(self, start: Start) -> None:
        """Tell the model which commands are gone, and which have ended without a run to tell it."""
        for fact in self._gone.values():
            start.messages.append(_message(fact.id, _gone(fact)))
        for item in self._commands.values():
            if item.message is not None and not item.told:
                self._port.queues.take_back(item.message)
                start.messages.append(item.message)

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, CustomMessage) and message.custom_type == MESSAGE and isinstance(message.details, dict):
            self._tell_end(message.details.get("id"))

    def compacted(self) -> None:
        """Remind the model of its commands, which the summary may lack."""
        if running := self.running():
            lines = (f"- {one.id}: {_short(one.command)} (output: {one.output_file})" for one in running)
            text = "\n".join(["Commands that run in the background:", *lines])
            self._port.conversation.append(custom_message(MESSAGE, text))

    def _tell_end(self, id: Any) -> None:
        """Note that the model knows of the end of a command."""
        if self._gone.pop(id, None) is None:
            item = self._commands.get(id)
            if item is None or item.told:
                return
            item.told = True
            if item.message is not None:
                self._port.queues.take_back(item.message)
        self._write(CommandFact(id, ended=True))

    # -- the end of a command --------------------------------------------------------------------

    def _ended(self, id: str) -> None:
        item = self._commands[id]
        item.waking = True
        self._port.hub.publish(BackgroundEnd(id, item.command.exit_code or 0))
        self._waking.spawn(self._wake(item), "spindle-wake")

    async def _wake(self, item: _Started) -> None:
        """Tell the model of the end of a command, unless it knows by then."""
        port = self._port
        await asyncio.sleep(0)  # a call that waits for the end tells of it
        if not port.lifecycle.running:
            await port.lifecycle.wait_free()
        command, again = item.command, None
        if item.is_known and not port.lifecycle.closed and await command.may_run_outside():
            again = await self._begin(command.command, None, command.outside(), item.meter, item.options)
        tail = await command.tail()  # from the far side, maybe: a call may tell of the end meanwhile
        item.waking = False
        if port.lifecycle.closed or (item.told and again is None):
            return
        text = f"{command.status()}: {_short(command.command)}\nIts output: {command.path}"
        if again is not None:
            text += f"\nThe user lets it run outside of the sandbox: it runs again as {again.id} ({again.path})"
        if tail:
            text += f"\nIts last lines:\n```\n{tail}\n```"
        item.message = _message(command.id, text, exitCode=command.exit_code)
        if port.lifecycle.running:
            port.queues.put(item.message, "followUp")
        elif self._may_wake(item) and self.start_run is not None:
            with suppress(AgentError):  # there is no model now
                self.start_run(item.message, item.options, item.meter)

    def _may_wake(self, item: _Started) -> bool:
        """Say whether a run may begin: not after an abort or an error. Then the next prompt brings the message."""
        last = self._port.last_result
        went_well = last is None or last.status in ("ok", "denied")
        return self._mode not in ENDING_MODES and went_well and item.meter.reached() is None

    # -- the model's side ------------------------------------------------------------------------

    async def _begin(
        self, line: str, timeout: float | None, ctx: ToolContext, meter: Meter, options: RunOptions
    ) -> "BackgroundCommand":
        from spindle.tools.background import BackgroundCommand

        self._last += 1
        id = f"bg{self._last}"
        command = BackgroundCommand(id, line, ctx, partial(self._ended, id))
        self._starting += 1
        try:
            await command.start(timeout)
        finally:
            self._starting -= 1
        self._commands[id] = _Started(command, meter, options)
        self._write(CommandFact(id, line, command.path, command.pid, ctx.settings.keep_background_processes))
        self._port.hub.publish(BackgroundStart(id, line, command.path))
        return command

    async def _start(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        from spindle.tools.bash import check_timeout

        chain = self._port.chain
        if chain is None:
            raise ToolError("Commands in the background can be started only by the model, in a run")
        most = self._port.settings.max_background_commands
        if most and len(running := self.running()) + self._starting >= most:
            ids = ", ".join(one.id for one in running)
            raise ToolError(
                f"{most} commands run in the background, more are not allowed at a time ({ids}). "
                f"End one with {KILL_TOOL}, or wait for the end of one with {OUTPUT_TOOL}"
            )
        of_request = chain.options.hooks
        inner = of_request.within() if of_request is not None else None  # a run that follows is inside of this one
        options = replace(chain.options, hooks=inner, ask=None, schema=None)
        command = await self._begin(args["command"], check_timeout(args.get("timeout")), ctx, chain.meter, options)
        try:
            output = await command.first_lines()
            if not command.running and await command.may_run_outside():
                self._tell_end(command.id)
                return await self._start(args, command.outside())
        except asyncio.CancelledError:  # the call was aborted, so the model will not know the id
            command.give_up("was aborted")
            self._tell_end(command.id)
            raise
        details = {"truncation": None, "fullOutputPath": command.path, "backgroundId": command.id}
        if not command.running:
            return self._report(command, output, details)
        self._commands[command.id].is_known = True
        if ctx.settings.keep_background_processes:
            then = "It goes on after this session."
        elif self._mode in ENDING_MODES:
            then = f"It ends with your last answer: wait for it with {OUTPUT_TOOL} if you need its result."
        else:
            then = "You will be told when it ends."
        return text_result(
            f"{output.rstrip()}\n\n[{command.status()}. Its output: {command.path}. {then}]".lstrip(), details
        )

    def _report(self, command: "BackgroundCommand", output: str, details: Any = None) -> ToolResult:
        """Return new output and the state of a command."""
        text = f"{output.rstrip() or '(no new output)'}\n\n[{command.status()}]"
        if not command.running:
            self._tell_end(command.id)
        return text_result(text, details)

    def _tools(self) -> list[Tool]:
        # Small models call them in vain, and most sessions have no use for them.
        def offered() -> bool:
            return self._last > 0

        return [
            Tool(
                name=OUTPUT_TOOL,
                description="New output of a background command",
                parameters=arguments(
                    "id",
                    id={"type": "string"},
                    wait=("number", "Seconds to wait for its end"),
                    pattern="Regex that ends the wait",
                ),
                execute=self._output,
                prepare=_with_our_names,
                needs="bash",
                offered=offered,
            ),
            Tool(
                name=KILL_TOOL,
                description="End a background command",
                parameters=arguments("id", id={"type": "string"}),
                execute=self._kill,
                prepare=_with_our_names,
                needs="bash",
                offered=offered,
            ),
        ]

    async def _output(self, call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        command, pattern = self._find(args["id"]), args.get("pattern") or None
        wait = args.get("wait", _USUAL_WAIT if pattern is not None else 0)
        found = await command.wait(min(wait, _LONGEST_WAIT), pattern)
        output = await command.read()
        if pattern is not None and not found:
            output = f"{output}\n\n[No line matches {pattern}]".lstrip()
        return self._report(command, output)

    async def _kill(self, call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        command = self._find(args["id"])
        await command.stop()
        return self._report(command, await command.read())

    async def output(self, id: str, byte: int) -> "BackgroundOutput":
        """Return the output of a command from a byte on, for a client. Raises `AgentError`."""
        try:
            command = self._find(id)
            text, following = await command.since(byte)
        except ToolError as error:
            raise AgentError(str(error)) from None
        return BackgroundOutput(output=text, next_byte=following, status=command.status(), running=command.running)

    async def kill(self, id: str) -> None:
        """End a command for a client; the model is told, as of every end. Raises `AgentError`."""
        try:
            await self._find(id).stop()
        except ToolError as error:
            raise AgentError(str(error)) from None

    def _find(self, id: str) -> "BackgroundCommand":
        if id in self._commands:
            return self._commands[id].command
        if id in self._gone:
            raise ToolError(_gone(self._gone[id]))
        known = ", ".join(one.id for one in self.running()) or "none"
        raise ToolError(f"There is no background command {id}. Running: {known}")


def _message(id: str, text: str, **details: Any) -> CustomMessage:
    return custom_message(MESSAGE, text, display=True, details={"id": id, **details})


def _gone(fact: CommandFact) -> str:
    what = f"{fact.id} ({_short(fact.command)})"
    if fact.kept:
        end = f"was left running with pid {fact.pid}, and this session does not watch it any more"
    else:
        end = "is gone: it ended with the process that had started it"
    return f"{what} {end}. Its output: {fact.output_file}"


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 200 else f"{line[:200]}…"


def _with_our_names(args: Any) -> Any:
    """Take the arguments that models know from elsewhere, and `wait: true`."""
    if not isinstance(args, dict):
        return args
    others = {"bash_id": "id", "shell_id": "id", "task_id": "id", "filter": "pattern"}
    named = {others.get(name, name): value for name, value in args.items()}
    return named | ({"wait": _LONGEST_WAIT if named["wait"] else 0} if isinstance(named.get("wait"), bool) else {})
