"""A session as an editor shows it: the events of the agent become updates of the editor.

The updates themselves are made in `updates`; this is what has to be remembered between two of them.
"""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from spindle.agent.hooks import CALL
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.sessions.tree import entry_message
from spindle.shapes import events
from spindle.shapes.approvals import PermissionRequest, RunInterrupted
from spindle.shapes.builtin_tools import TODO_TOOL
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.codec import to_builtins
from spindle.shapes.messages import AssistantMessage, CustomMessage, UserMessage
from spindle.shapes.pieces import LiveSource, TextDelta, ThinkingDelta, ToolCallEnd, ToolCallStart
from spindle.wires.acp import updates
from spindle.wires.acp.json_rpc import RpcConnection
from spindle.wires.acp.lent import ShownCommand
from spindle.wires.acp.options import options
from spindle.wires.acp.questions import Questions


class EditorAbilities(msgspec.Struct, frozen=True):
    """Abilities that the editor declared."""

    forms: bool = False
    notices: bool = False
    compactions: bool = False
    files: bool = False
    """It can read and write files, with changes that are not saved."""
    terminals: bool = False
    """It can run commands."""
    output_key: str = ""
    """The field of `_meta` in which it takes the output of a command, to show it as a terminal; "": it does not."""
    events: bool = False
    """It wants our own events too."""


class EditorView:
    """A listener of the agent."""

    def __init__(
        self, id: str, agent: AgentSession, connection: RpcConnection, can: EditorAbilities, tasks: Tasks
    ) -> None:
        """`id`: the editor's name for the session. Tasks that the view needs are spawned in `tasks`."""
        self._id = id
        self._agent = agent
        self._connection = connection
        self._can = can
        self._tasks = tasks
        self.own_prompts = 0
        """How many messages that start a run came from the editor, which shows them already."""
        self._calls: dict[str, updates.CallView] = {}
        self._writing: Any = None
        """The answer that is being written."""
        self._message_id = self._compaction_id = ""
        self._plan: updates.Update = {"sessionUpdate": "plan", "entries": []}
        self._options: list[dict[str, Any]] = []
        self._usage: updates.Update = {}
        self._shown_commands: list[dict[str, Any]] | None = None
        self._questions = Questions(connection, agent, id, forms=can.forms)

    def begin(self) -> None:
        """Show events from now on."""
        self._options = options(self._agent)
        self._agent.subscribe(self)

    def end(self) -> None:
        """Show no more events, and cancel open questions."""
        self._agent.unsubscribe(self)
        self._questions.close()

    async def introduce(self) -> None:
        """Show the state that an editor cannot know."""
        self._show_commands()
        self._show_plan()
        await self._show_usage()

    def replay(self) -> None:
        """Send the whole conversation, with the answer so far if one is being written."""
        agent = self._agent
        stored = [(entry.id, entry_message(entry)) for entry in agent.session.branch()]
        messages = [(id, message) for id, message in stored if message is not None]
        for update in updates.replay(messages, agent.workdir, running=agent.busy):
            self.tell(update)
        if self._writing is not None:
            for update in updates.answer_chunks(self._writing.so_far(), self._message_id, self._call):
                self.tell(update)
        self._plan, self._usage, self._shown_commands = {"sessionUpdate": "plan", "entries": []}, {}, None

    def show_terminal(self, call_id: str, terminal_id: str) -> None:
        """Show the terminal in which the editor runs a command."""
        self.tell(self._call(call_id, "bash").run_in(terminal_id))

    # -- events ----------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self._connection.outbox.full

    async def room(self) -> None:
        await self._connection.outbox.room()

    def tell(self, update: updates.Update) -> None:
        self._connection.notify("session/update", {"sessionId": self._id, "update": update})

    def put(self, event: events.Event) -> None:
        inner = event.event if isinstance(event, events.SubagentEvent) else event
        if self._can.events and not isinstance(inner, events.MessageUpdate):
            self._connection.notify("_spindle/event", {"sessionId": self._id, "event": to_builtins(event)})
        if (show := _SHOWN.get(type(event))) is not None:
            show(self, event)

    def _put_update(self, event: events.MessageUpdate) -> None:
        piece: Any = event.assistant_message_event
        if isinstance(piece, TextDelta):
            self.tell(updates.chunk("agent_message", updates.text_block(piece.delta), self._message_id))
        elif isinstance(piece, ThinkingDelta):
            self.tell(updates.chunk("agent_thought", updates.text_block(piece.delta), self._message_id))
        elif isinstance(piece, ToolCallStart):
            self.tell(self._call(piece.id, piece.tool_name).begin())
        elif isinstance(piece, ToolCallEnd):
            call = piece.tool_call
            self.tell(self._call(call.id, call.name).begin(call.arguments))

    def _begin_message(self, event: events.MessageStart) -> None:
        if isinstance(event.message, LiveSource):
            self._writing, self._message_id = event.message, self._agent.conversation.name_answer()

    def _end_message(self, event: events.MessageEnd) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            self._writing = None
        elif isinstance(message, CustomMessage) and message.display:
            self.tell(updates.custom_chunk(message, event.entry_id))
        elif isinstance(message, UserMessage):
            if self.own_prompts:
                self.own_prompts -= 1
            else:
                for update in updates.user_chunks(message, event.entry_id):
                    self.tell(update)

    def _begin_call(self, event: events.ToolExecutionStart) -> None:
        self.tell(self._call(event.tool_call_id, event.tool_name).begin(event.args, running=True))

    def _show_progress(self, event: events.ToolExecutionUpdate) -> None:
        view = self._call(event.tool_call_id, event.tool_name)
        if (tail := view.progress(event.partial_result.content)) is not None:
            self.tell(tail)

    def _put_of_subagent(self, event: events.SubagentEvent) -> None:
        if isinstance(call := event.event, events.ToolExecutionStart):
            self._call(call.tool_call_id, call.tool_name).begin(call.args)  # not shown, but it may be asked about

    def _end_turn(self, _: events.TurnEnd) -> None:
        self._calls.clear()
        self._usage = {}  # told after every turn: editors wait for it
        self._show_usage_soon()

    def _settle(self, _: events.AgentSettled) -> None:
        self._calls.clear()
        self._writing = None
        self.own_prompts = 0

    def _show_state(self, _: events.Event) -> None:
        self._show_options()
        if self._shown_commands is not None:
            self._show_commands()
        self._show_plan()
        self._show_usage_soon()

    def _put_retry(self, event: events.AutoRetryStart) -> None:
        seconds = event.delay_ms / 1000
        text = f"Trying again in {seconds:g} s ({event.attempt} of {event.max_attempts}): {event.error_message}"
        self.remark(text)

    def remark(self, text: str, level: str = "info") -> None:
        """Send a text that is not part of the answer."""
        notice = {"sessionUpdate": "notice", "severity": level, "title": text}
        self.tell(notice if self._can.notices else updates.line(text))

    def _call(self, id: str, name: str) -> updates.CallView:
        if id not in self._calls:
            cwd, key = self._agent.workdir, self._can.output_key
            shown = ShownCommand(id, cwd, key) if key and name == "bash" else None
            self._calls[id] = shown or updates.CallView(id, name, cwd, saved=not self._can.files)
        return self._calls[id]

    def _end_call(self, event: events.ToolExecutionEnd) -> None:
        result = event.result
        view = self._call(event.tool_call_id, event.tool_name)
        self.tell(view.end(result.content, event.is_error, result.details, event.changed_input))
        if event.tool_name == TODO_TOOL:
            self._show_plan()

    def _put_request(self, request: ExtensionUIRequest) -> None:
        match request.method:
            case "select" | "confirm" | "input" | "editor":
                self._questions.ask(request, self._about(request))
            case "cancel":
                self._questions.withdraw(request.target_id)
            case "notify":
                self.remark(request.message or "", request.notify_type or "info")
            case "setTitle":
                self._show_title(request.title)

    def _put_question(self, request: PermissionRequest) -> None:
        # Others are put as the dialog that follows. On a server a yes about a project wants its code, and editors have
        # no way to show it.
        is_about_project = request.kind == "trust" and bool(request.keeps) and self._agent.mode == "acp"
        if request.tool_name is not None or is_about_project:
            self._questions.ask_about(request, updates.asked(request, self._agent.workdir))

    def _about(self, request: ExtensionUIRequest) -> updates.Update | None:
        """Return the tool call whose tool or hook asks."""
        id = request.tool_call_id or CALL.get()
        if id is None:
            return None
        view = self._calls.get(id)
        name, arguments = (view.name, view.arguments) if view is not None else ("", None)
        about: updates.Update = {
            "toolCallId": id,
            **updates.describe(name, arguments, self._agent.workdir),
            "status": "pending",
        }
        if arguments is not None:
            about["rawInput"] = arguments
        about["title"] = request.title or about["title"]
        return about

    def _put_compaction(self, event: events.CompactionStart | events.CompactionEnd) -> None:
        if self._can.compactions:
            if isinstance(event, events.CompactionStart):
                self._compaction_id = str(uuid.uuid4())
            update: updates.Update = {"sessionUpdate": "compaction_update", "compactionId": self._compaction_id}
            if isinstance(event, events.CompactionStart):
                update["status"] = "in_progress"
            elif event.result is not None:
                update |= {"status": "completed", "summary": [updates.text_block(event.result.summary)]}
            else:
                update |= {"status": "cancelled" if event.aborted else "failed", "error": event.error_message}
            self.tell(update)
        elif isinstance(event, events.CompactionStart):
            self.remark("Summarising the older part of the conversation")
        elif event.result is None:
            self.remark(event.error_message or "The conversation was not summarised", "warning")
        if isinstance(event, events.CompactionEnd):
            self._show_usage_soon()

    # -- state that changes by itself ------------------------------------------------------------

    def _show_options(self) -> None:
        shown = options(self._agent)
        if shown == self._options:
            return
        before, self._options = self._options, shown
        self.tell({"sessionUpdate": "config_option_update", "configOptions": shown})
        if shown[0]["currentValue"] != before[0]["currentValue"]:
            self.tell({"sessionUpdate": "current_mode_update", "currentModeId": shown[0]["currentValue"]})

    def _show_commands(self) -> None:
        commands = []
        for command in map(to_builtins, self._agent.commands()):
            shown = {"name": command["name"], "description": command.get("description") or command["name"]}
            commands.append({**shown, "input": {"hint": "arguments"}})
        if self._agent.interrupted_run is not None:
            commands.append({"name": updates.RESUME[1:], "description": "Go on with the interrupted run"})
        if commands != self._shown_commands:
            self._shown_commands = commands
            self.tell({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def _show_title(self, title: str | None) -> None:
        self.tell({"sessionUpdate": "session_info_update", "title": title})

    def _show_plan(self) -> None:
        shown = updates.plan(self._agent.state().todo_phases)
        if shown != self._plan:
            self._plan = shown
            self.tell(shown)

    def _show_usage_soon(self) -> None:
        self._tasks.spawn(self._show_usage(), "acp usage")

    async def _show_usage(self) -> None:
        usage, stats = self._agent.context_usage(), await self._agent.stats()
        if usage is None or usage.tokens is None:
            return
        update: updates.Update = {"sessionUpdate": "usage_update", "used": usage.tokens, "size": usage.context_window}
        if stats.cost_source != "unknown":
            update["cost"] = {"amount": stats.cost, "currency": "USD"}
        if update != self._usage:
            self._usage = update
            self.tell(update)


_SHOWN: dict[type, Callable[[EditorView, Any], None]] = {
    events.MessageUpdate: EditorView._put_update,
    events.MessageStart: EditorView._begin_message,
    events.MessageEnd: EditorView._end_message,
    events.ToolExecutionStart: EditorView._begin_call,
    events.ToolExecutionUpdate: EditorView._show_progress,
    events.ToolExecutionEnd: EditorView._end_call,
    events.SubagentEvent: EditorView._put_of_subagent,
    events.TurnEnd: EditorView._end_turn,
    events.AgentSettled: EditorView._settle,
    ExtensionUIRequest: EditorView._put_request,
    PermissionRequest: EditorView._put_question,
    events.StateChanged: EditorView._show_state,
    events.ThinkingLevelChanged: EditorView._show_state,
    events.SessionChanged: EditorView._show_state,
    events.SessionInfoChanged: lambda view, event: view._show_title(event.name),
    events.TodoAutoClear: lambda view, _: view._show_plan(),
    events.CompactionStart: EditorView._put_compaction,
    events.CompactionEnd: EditorView._put_compaction,
    events.AutoRetryStart: EditorView._put_retry,
    events.SummarizationRetryScheduled: EditorView._put_retry,
    events.BackgroundStart: lambda view, event: view.remark(updates.background_line(event)),
    events.BackgroundEnd: lambda view, event: view.remark(updates.background_line(event)),
    RunInterrupted: lambda view, event: view.remark(
        f"A run was interrupted: {updates.RESUME} goes on with it, another message gives it up", "warning"
    ),
    events.Notice: lambda view, event: view.remark(event.message, event.level),
    events.ExtensionError: lambda view, event: view.remark(
        f"{event.extension_path or 'Spindle'}: {event.error}", "error"
    ),
}
"""What is done at each event; the others are not shown."""
