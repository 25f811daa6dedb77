"""Todos of a session: set by the client or the model's tool, and brought up when the model stops early."""

import asyncio
from typing import Any, Protocol

import msgspec

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks, Start
from spindle.agent.hub import Hub
from spindle.agent.queues import Queues
from spindle.agent.toolbox import Toolbox
from spindle.base.settings import Todo
from spindle.shapes.builtin_tools import TODO_TOOL
from spindle.shapes.events import StateChanged, TodoAutoClear, TodoReminder, ToolResult
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    custom_message,
)
from spindle.tools import todo
from spindle.tools.base import Tool, ToolContext, text_result


class TodoPort(Protocol):
    """What todos need of the engine."""

    conversation: Conversation
    hub: Hub
    queues: Queues
    toolbox: Toolbox


class Todos(Hooks):
    def __init__(self, port: TodoPort, settings: Todo, clear_delay: float) -> None:
        self._port = port
        self._settings = settings
        self._clear_delay = clear_delay
        """Seconds after which finished tasks vanish; negative: never."""
        self.phases: list[todo.TodoPhase] = []
        self._reminders = 0
        """Reminders sent since the last user message."""
        self._progress = True
        """Whether a tool ran since the last reminder; if not, another reminder would be useless."""
        self._untold = False
        """Whether the client has set a list that the model was not told of."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """Finished tasks that will vanish, by task id."""
        if settings.enabled:
            port.toolbox.add(self._tool(), active=False)

    # -- the client's side -----------------------------------------------------------------------

    def set(self, phases: Any) -> list[todo.TodoPhase]:
        """Replace the list, and tell clients. Raises `AgentError`, changing nothing."""
        try:
            made = todo.normalise(phases)
        except ValueError as error:
            raise AgentError(str(error)) from None
        self._adopt(made)
        self._offer_tool()
        self._untold = True
        self._port.hub.publish(StateChanged())
        return self.phases

    def _offer_tool(self) -> None:
        """Let the model use the tool as soon as there is a list."""
        toolbox = self._port.toolbox
        if self.phases and TODO_TOOL in toolbox and TODO_TOOL not in toolbox.active:
            toolbox.activate([*toolbox.active, TODO_TOOL])

    def rebuild(self) -> None:
        """Begin with the list of the current branch."""
        self.compacted()
        self._reminders, self._progress = 0, True

    def compacted(self) -> None:
        """Take the list from the newest result of the tool on the current branch."""
        self._adopt(todo.remaining(self._last_written() or []))
        self._offer_tool()

    def _last_written(self) -> list[todo.TodoPhase] | None:
        conversation = self._port.conversation
        results = (message for message in reversed(conversation.messages) if type(message) is ToolResultMessage)
        for message in results:
            if (phases := _phases_of(message)) is not None:
                return phases
        for entry in reversed(conversation.session.branch()) if conversation.compacted else ():
            # Most entries can be ruled out without being decoded.
            is_about_todos = entry.type == "message" and TODO_TOOL.encode() in entry.raw
            if is_about_todos and (phases := _phases_of(entry.message)) is not None:
                return phases
        return None

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # -- the model's side ------------------------------------------------------------------------

    def _tool(self) -> Tool:
        return Tool(
            name=TODO_TOOL,
            label="Todos",
            description=(
                "Keep the plan of a longer task as phases with tasks. `ops` run in order: replace the whole list, "
                "add_phase, add_task (to a phase id), update (a task id: status, content, notes, details), "
                "remove_task. Keep one task in_progress, mark it completed as soon as it is done."
            ),
            parameters=todo.todo_parameters(),
            execute=self._write,
            snippet="Keep a list of phases and tasks for longer work",
            sequential=True,
            interruptible=False,
        )

    async def _write(self, call_id: str, args: Any, ctx: ToolContext) -> ToolResult:
        try:
            phases, errors = todo.apply_ops(self.phases, args["ops"])
        except ValueError as error:
            phases, errors = self.phases, [str(error)]
        storage = "session" if self._port.conversation.session.is_kept else "memory"
        return text_result(todo.render(phases, errors), {"phases": msgspec.to_builtins(phases), "storage": storage})

    def committed(self, message: AgentMessage) -> None:
        """Adopt the list that the tool wrote, and note progress."""
        if isinstance(message, UserMessage):
            self._reminders, self._progress = 0, True
        elif isinstance(message, ToolResultMessage):
            self._progress = True
            phases = _phases_of(message)
            if phases is not None:
                self._adopt([_without_details(phase) for phase in phases])
            elif message.tool_name == TODO_TOOL and message.is_error:
                text = "The last todo update failed. Correct its arguments and try again."
                self._port.queues.with_next_prompt.append(custom_message("todo-write-error-reminder", text))

    async def before_agent_start(self, start: Start) -> None:
        if self._untold and self.phases:
            plan = todo.render(self.phases, [])
            start.messages.append(custom_message("todo-plan", f"The plan for this work:\n\n{plan}"))
        self._untold = False

    # -- reminders -------------------------------------------------------------------------------

    async def go_on(self, answer: AssistantMessage) -> bool:
        """Tell a model that stopped with open tasks to go on. Returns whether it was told."""
        waiting = todo.open_items(self.phases)
        if not waiting:
            self._reminders = 0
            return False
        stopped = answer.stop_reason == "stop" and not any(isinstance(b, ToolCall) for b in answer.content)
        if not (stopped and self._settings.reminders and self._progress):
            return False
        limit = self._settings.reminders_max
        if self._reminders >= limit:
            return False
        self._reminders, self._progress = self._reminders + 1, False
        shown = [{"id": task.id, "content": task.content, "status": task.status} for task in waiting]
        await self._port.hub.emit(TodoReminder(shown, self._reminders, limit))
        text = _reminder_text(self.phases, len(waiting), self._reminders, limit)
        self._port.conversation.append(custom_message("todo-reminder", text))
        return True

    # -- finished tasks go away ------------------------------------------------------------------

    def _adopt(self, phases: list[todo.TodoPhase]) -> None:
        self.phases = phases
        finished = {task.id for phase in phases for task in phase.tasks if not task.open}
        for id in [id for id in self._timers if id not in finished]:
            self._timers.pop(id).cancel()
        if self._clear_delay < 0:
            return
        for id in finished - self._timers.keys():
            self._timers[id] = asyncio.get_running_loop().call_later(self._clear_delay, self._clear, id)

    def _clear(self, id: str) -> None:
        self._timers.pop(id, None)
        for phase in self.phases:
            phase.tasks = [task for task in phase.tasks if task.id != id]
        self.phases = [phase for phase in self.phases if phase.tasks]
        self._port.hub.publish(TodoAutoClear())


def _phases_of(message: AgentMessage) -> list[todo.TodoPhase] | None:
    if not isinstance(message, ToolResultMessage) or message.tool_name != TODO_TOOL or message.is_error:
        return None
    try:
        return msgspec.convert(message.details["phases"], list[todo.TodoPhase])
    except (msgspec.ValidationError, TypeError, KeyError):
        return None


def _without_details(phase: todo.TodoPhase) -> todo.TodoPhase:
    return todo.TodoPhase(
        phase.id, phase.name, [todo.TodoItem(t.id, t.content, t.status, t.notes) for t in phase.tasks]
    )


def _reminder_text(phases: list[todo.TodoPhase], count: int, attempt: int, limit: int) -> str:
    lines = []
    for phase in phases:
        tasks = [f"  - {task.content}" for task in phase.tasks if task.open]
        lines += [f"- {phase.name}", *tasks] if tasks else []
    return (
        f"<system-reminder>\nYou stopped with {count} incomplete todo item(s):\n" + "\n".join(lines) + "\n\n"
        "Please continue working on these tasks or mark them complete if finished.\n"
        f"(Reminder {attempt}/{limit})\n</system-reminder>"
    )
