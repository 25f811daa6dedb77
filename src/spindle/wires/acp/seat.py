"""One session of an editor: its prompts, the updates that the editor gets, and the options that it can choose."""

import asyncio
import os
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from spindle.agent.prompting import NotReady
from spindle.agent.run.handle import Run
from spindle.agent.run.result import RunResult
from spindle.agent.session import AgentSession
from spindle.agent.tool_batch import CALL
from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.protocol.commands import COMMANDS
from spindle.protocol.dispatch import carry_out
from spindle.protocol.live_session import LiveSession
from spindle.protocol.registry import REPLIES, Call
from spindle.protocol.seat import Seat
from spindle.resources.loader import ClientPrompt
from spindle.sessions.tree import entry_message
from spindle.shapes import events
from spindle.shapes.builtin_tools import TODO_TOOL
from spindle.shapes.codec import to_builtins
from spindle.shapes.messages import AssistantMessage, CustomMessage, UserMessage
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SANDBOX_LEVELS, SandboxLevel
from spindle.wires.acp import updates
from spindle.wires.acp.files import EditorFiles
from spindle.wires.acp.json_rpc import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_PARAMS, Connection, RpcError
from spindle.wires.acp.questions import Questions, client_rules
from spindle.wires.acp.terminals import EditorTerminals, ShownCommand

_LEVELS = [{"value": id, "name": words.title, "description": words.help} for id, words in SANDBOX_LEVELS.items()]
_MODES = {id: {"name": words.title, "description": words.help} for id, words in PERMISSION_MODES.items()}
_ENDS = {"maxTurns": "max_turn_requests", "maxTotalTokens": "max_tokens", "aborted": "cancelled"}
_LIMITS = (*(limit.wire_name for limit in RUN_LIMITS), "repeated")
_REFUSED = ("refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT", "RECITATION")


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


class Wishes(msgspec.Struct):
    """Choices of an editor that are not in the session's file: they are applied again when the session is loaded."""

    cwd: str
    servers: list[dict[str, Any]] = []
    """MCP servers."""
    directories: list[str] = []
    mode: str | None = None
    sandbox: SandboxLevel | None = None
    rules: dict[str, list[str]] = {}
    prompt: ClientPrompt | None = None


class EditorSeat(Seat):
    def __init__(
        self,
        id: str,
        live: LiveSession,
        connection: Connection,
        can: EditorAbilities,
        on_left: Callable[["EditorSeat"], None],
    ) -> None:
        """`id`: the editor's name for the session. `on_left` is called when the session leaves memory."""
        self.id = id
        self.live = live
        self._wishes = Wishes(live.agent.cwd)
        self._on_left = on_left
        self._connection = connection
        self._can = can
        self._in_hand = 0
        """How many requests are not answered yet."""
        self._own = 0
        """How many messages that start a run came from the editor, which shows them already."""
        self._calls: dict[str, updates.CallView] = {}
        self._writing: Any = None
        """The answer that is being written."""
        self._message_id = self._compaction_id = ""
        self._plan: updates.Update = {"sessionUpdate": "plan", "entries": []}
        self._options: list[dict[str, Any]] = []
        self._usage: updates.Update = {}
        self._shown_commands: list[dict[str, Any]] | None = None
        self._questions = Questions(connection, self.agent, id, forms=can.forms)
        self._tasks = Tasks()
        self._accepted: set[asyncio.Future[None]] = set()
        """Prompts that the editor sent as commands and that are not in a file yet."""

    @property
    def agent(self) -> AgentSession:
        return self.live.agent

    @property
    def busy(self) -> bool:
        return self._in_hand > 0

    # -- life ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send updates about the session from now on."""
        self._options = self.options()
        self.agent.subscribe(self)
        files = EditorFiles(self.id, self._connection) if self._can.files else None
        terminals = EditorTerminals(self.id, self._connection, self._show_terminal)
        self.agent.use_editor(files, terminals if self._can.terminals and not self._can.output_key else None)
        self._tasks.spawn(self._introduce(), "acp begin")

    async def _introduce(self) -> None:
        await self.agent.begin()
        self._show_commands()
        self._show_plan()
        await self._show_usage()

    def tell_again(self) -> None:
        """Send the whole conversation, with the answer so far if one is being written."""
        agent = self.agent
        stored = [(entry.id, entry_message(entry)) for entry in agent.session.branch()]
        messages = [(id, message) for id, message in stored if message is not None]
        for update in updates.replay(messages, agent.workdir, running=agent.busy):
            self.tell(update)
        if self._writing is not None:
            for update in updates.answer_chunks(self._writing.snapshot(), self._message_id, self._call):
                self.tell(update)
        self._plan, self._usage, self._shown_commands = {"sessionUpdate": "plan", "entries": []}, {}, None
        self._tasks.spawn(self._introduce(), "acp again")

    async def use(self, wishes: Wishes) -> None:
        """Apply the editor's wishes for this session. A remark tells of servers that cannot be used."""
        agent, before = self.agent, self._wishes
        self._wishes = msgspec.structs.replace(wishes, prompt=wishes.prompt or before.prompt)
        if wishes.prompt is not None:
            agent.use_client_prompt(wishes.prompt)
        if wishes.mode or wishes.rules or wishes.sandbox or wishes.directories != before.directories:
            agent.set_permissions(
                mode=wishes.mode, sandbox=wishes.sandbox, directories=wishes.directories, **wishes.rules
            )
        if wishes.servers != before.servers:
            servers, problems = _usable(wishes.servers)
            try:
                await self.command("set_mcp_servers", {"servers": servers})
            except RpcError as error:
                problems = [str(error)]
            if problems:
                text = f"MCP servers of the editor are not used: {'; '.join(problems)}"
                self._tasks.spawn(self._remark_soon(text), "acp")

    def tell_place(self, wanted: str) -> None:
        """Say where the session works, if it began elsewhere or the editor wants another directory."""
        cwd, began = self.agent.cwd, self.agent.session.header.cwd
        if other := next((path for path in (wanted, began) if os.path.realpath(path) != os.path.realpath(cwd)), None):
            self.remark(f"This session works in {cwd}, not in {other}", "warning")

    async def _remark_soon(self, text: str) -> None:
        """Remark on something once the editor knows the session."""
        self.remark(text, "warning")

    def wishes(self) -> Wishes:
        rules = client_rules(self.agent)
        return msgspec.structs.replace(
            self._wishes, cwd=self.agent.cwd, mode=self.agent.permissions().mode, rules=rules
        )

    async def end(self) -> None:
        """Send no more updates, and cancel open questions."""
        self.agent.unsubscribe(self)
        self.agent.use_editor(None, None)
        self._questions.close()
        await self._tasks.end(TASKS_END, asyncio.current_task())

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self._on_left(self)
        self._tasks.spawn(self.end(), "acp end")

    # -- prompts ---------------------------------------------------------------------------------

    async def prompt(self, content: list[dict[str, Any]], behavior: str) -> dict[str, Any]:
        """Send a message and return how its run ended, new or joined. Raises `RpcError`."""
        text, images = _read_content(content)
        self._in_hand += 1
        try:
            run = await self.agent.submit(text, images, behavior, source="acp", wait=True)
            self._own += run.disposition == "started"
            result = await run.result()
            answer: dict[str, Any] = {"stopReason": self._stop_reason(result)}
            # A prompt that joined a run shares its tokens: editors add up what they get.
            return answer | ({"usage": _usage(result)} if run.disposition == "started" and result.turns else {})
        except NotReady as error:
            raise RpcError(AUTH_REQUIRED, str(error)) from None
        finally:
            self._in_hand -= 1

    async def cancel(self) -> None:
        """Stop the run and wait for its end. Messages in the queues are dropped, and the editor is told so."""
        steering, follow_up = self.agent.queues.clear()
        for text in (*steering, *follow_up):
            self.tell(updates.line(f"Not delivered: {text}"))
        self.agent.stop()
        self.agent.dialogs.withdraw()  # those of slash commands, which are no runs
        await self.agent.wait_idle()

    def _stop_reason(self, result: RunResult) -> str:
        answer = self.agent.last_answer() if result.turns else None
        reason = _ENDS.get(result.stop_reason)
        if reason is not None:
            return reason
        if answer is not None and answer.raw_stop_reason in _REFUSED:
            return "refusal"
        if result.stop_reason in ("error", "stalled", "schema"):
            text = result.error or f"The run ended with {result.stop_reason}"
            raise RpcError(AUTH_REQUIRED if _needs_key(text) else INTERNAL_ERROR, text)
        if result.stop_reason in _LIMITS:
            return "max_turn_requests"
        cut = result.stop_reason == "end" and answer is not None and answer.stop_reason == "length"
        return "max_tokens" if cut else "end_turn"

    # -- options ---------------------------------------------------------------------------------

    def modes(self) -> dict[str, Any]:
        known = [{"id": id, **told} for id, told in _MODES.items()]
        return {"currentModeId": self.agent.permissions().mode, "availableModes": known}

    @property
    def _level(self) -> SandboxLevel:
        wanted = self.agent.sandbox_for()
        return "off" if wanted is None else wanted.level

    def options(self) -> list[dict[str, Any]]:
        agent, model = self.agent, self.agent.model
        modes = [{"value": id, **told} for id, told in _MODES.items()]
        options = [_select("mode", "Permissions", "mode", agent.permissions().mode, modes)]
        models = {f"{one.provider}/{one.id}": one for one in [*agent.models.available(), *([model] if model else [])]}
        if model is not None:
            choices = [
                {"value": id, "name": one.name or one.id, "description": one.provider} for id, one in models.items()
            ]
            options.append(_select("model", "Model", "model", f"{model.provider}/{model.id}", choices))
            levels = [{"value": level, "name": level.capitalize()} for level in agent.models.levels()]
            options.append(_select("thinking", "Thinking", "thought_level", agent.thinking_level, levels))
        return [*options, _select("sandbox", "Sandbox", "_sandbox", self._level, _LEVELS)]

    async def choose(self, option: str, value: Any) -> list[dict[str, Any]]:
        """Set an option and return all of them. Raises `RpcError`."""
        known = {entry["id"]: [choice["value"] for choice in entry["options"]] for entry in self.options()}
        if option not in known:
            raise RpcError(INVALID_PARAMS, f"There is no option {option}; there are {', '.join(known)}")
        if option == "model" and value not in known[option]:
            value = self._model_named(str(value)) or value
        if value not in known[option]:
            raise RpcError(INVALID_PARAMS, f"{value} is none of {', '.join(known[option])}")
        if option == "mode":
            self.agent.set_permissions(mode=value)
        elif option == "sandbox":
            self.agent.set_permissions(sandbox=value)
            self._wishes = msgspec.structs.replace(self._wishes, sandbox=value)
        elif option == "model":
            provider, _, id = str(value).partition("/")
            await self.agent.models.set(provider, id)
        else:
            await self.agent.models.set_level(value)
        return self.options()

    def _model_named(self, name: str) -> str | None:
        """Return the value of the model that a short name or a pattern stands for."""
        from spindle.models.select import match_model

        models, current = self.agent.models.available(), self.agent.model
        same = [model for model in models if model.id == name]
        if current is not None and len(same) > 1:  # of several providers: the present one, if it has the model
            same.sort(key=lambda model: model.provider != current.provider)
        found = same[0] if same else match_model(name, models)
        return f"{found.provider}/{found.id}" if found is not None else None

    # -- our own commands ------------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        self._accepted.add(run.kept)
        run.kept.add_done_callback(self._accepted.discard)

    async def command(self, name: str, params: dict[str, Any]) -> Any:
        """Carry out a command of the RPC protocol. Raises `RpcError`."""
        if name in REPLIES:
            self.agent.receive_reply({**params, "type": name})
            return {}
        frame = {**params, "type": name}
        self._in_hand += 1
        try:
            data = await carry_out(Call(self.agent, self, str(uuid.uuid4())), frame, COMMANDS.get(name))
            if self._accepted:
                await asyncio.wait(self._accepted)  # a prompt is in a file before the editor is told of it
        finally:
            self._in_hand -= 1
        return {} if data is msgspec.UNSET else data

    # -- events ----------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self._connection.outbox.full

    async def room(self) -> None:
        await self._connection.outbox.room()

    def tell(self, update: updates.Update) -> None:
        self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    def put(self, event: events.Event) -> None:
        inner = event.event if isinstance(event, events.SubagentEvent) else event
        if self._can.events and not isinstance(inner, events.MessageUpdate):
            self._connection.notify("_spindle/event", {"sessionId": self.id, "event": to_builtins(event)})
        match event:
            case events.MessageUpdate(assistant_message_event=piece):
                self._put_piece(piece)
            case events.MessageEnd(message=UserMessage() as message):
                if self._own:
                    self._own -= 1
                else:
                    for update in updates.user_chunks(message, event.entry_id):
                        self.tell(update)
            case events.MessageEnd(message=CustomMessage(display=True) as message):
                self.tell(updates.custom_chunk(message, event.entry_id))
            case events.MessageStart(message=events.LiveSource() as message):
                self._writing, self._message_id = message, self.agent.name_answer()
            case events.MessageEnd(message=AssistantMessage()):
                self._writing = None
            case events.ToolExecutionStart():
                self.tell(self._call(event.tool_call_id, event.tool_name).begin(event.args, running=True))
            case events.ToolExecutionUpdate():
                view = self._call(event.tool_call_id, event.tool_name)
                if (tail := view.progress(event.partial_result.content)) is not None:
                    self.tell(tail)
            case events.ToolExecutionEnd():
                self._end_call(event)
            case events.SubagentEvent(event=events.ToolExecutionStart() as call):
                self._call(call.tool_call_id, call.tool_name).begin(call.args)  # not shown, but it may be asked about
            case events.TurnEnd():
                self._calls.clear()
                self._usage = {}  # told after every turn: editors wait for it
                self._tasks.spawn(self._show_usage(), "acp usage")
            case events.AgentSettled():
                self._calls.clear()
                self._writing = None
                self._own = 0
            case events.ExtensionUIRequest():
                self._put_request(event)
            case events.StateChanged() | events.ThinkingLevelChanged() | events.SessionChanged():
                self._show_options()
                if self._shown_commands is not None:
                    self._show_commands()
                self._show_plan()
                self._tasks.spawn(self._show_usage(), "acp usage")
            case events.SessionInfoChanged():
                self.tell({"sessionUpdate": "session_info_update", "title": event.name})
            case events.TodoAutoClear():
                self._show_plan()
            case events.CompactionStart() | events.CompactionEnd():
                self._put_compaction(event)
            case events.AutoRetryStart():
                seconds = event.delay_ms / 1000
                text = f"Trying again in {seconds:g} s ({event.attempt} of {event.max_attempts}): {event.error_message}"
                self.remark(text)
            case events.BackgroundStart() | events.BackgroundEnd():
                self.remark(updates.background_line(event))
            case events.Notice():
                self.remark(event.message, event.level)
            case events.ExtensionError():
                self.remark(f"{event.extension_path or 'Spindle'}: {event.error}", "error")

    def remark(self, text: str, level: str = "info") -> None:
        """Send a text that is not part of the answer."""
        notice = {"sessionUpdate": "notice", "severity": level, "title": text}
        self.tell(notice if self._can.notices else updates.line(text))

    def _put_piece(self, piece: Any) -> None:
        if isinstance(piece, events.TextDelta):
            self.tell(updates.chunk("agent_message", updates.text_block(piece.delta), self._message_id))
        elif isinstance(piece, events.ThinkingDelta):
            self.tell(updates.chunk("agent_thought", updates.text_block(piece.delta), self._message_id))
        elif isinstance(piece, events.ToolCallStart):
            self.tell(self._call(piece.id, piece.tool_name).begin())
        elif isinstance(piece, events.ToolCallEnd):
            call = piece.tool_call
            self.tell(self._call(call.id, call.name).begin(call.arguments))

    def _call(self, id: str, name: str) -> updates.CallView:
        if id not in self._calls:
            cwd, key = self.agent.workdir, self._can.output_key
            shown = ShownCommand(id, cwd, key) if key and name == "bash" else None
            self._calls[id] = shown or updates.CallView(id, name, cwd, saved=not self._can.files)
        return self._calls[id]

    def _show_terminal(self, call_id: str, terminal_id: str) -> None:
        self.tell(self._call(call_id, "bash").run_in(terminal_id))

    def _end_call(self, event: events.ToolExecutionEnd) -> None:
        result = event.result
        view = self._call(event.tool_call_id, event.tool_name)
        self.tell(view.end(result.content, event.is_error, result.details))
        if event.tool_name == TODO_TOOL:
            self._show_plan()

    def _put_request(self, request: events.ExtensionUIRequest) -> None:
        match request.method:
            case "select" | "confirm" | "input" | "editor":
                self._questions.ask(request, self._about(request))
            case "cancel":
                self._questions.withdraw(request.target_id)
            case "notify":
                self.remark(request.message or "", request.notify_type or "info")
            case "setTitle":
                self.tell({"sessionUpdate": "session_info_update", "title": request.title})

    def _about(self, request: events.ExtensionUIRequest) -> updates.Update | None:
        """Return the tool call of a question: the call it names, else the call whose tool or hook asks."""
        id = request.tool_call_id or CALL.get()
        if id is None:
            return None
        view = self._calls.get(id)
        name, arguments = (view.name, view.arguments) if view is not None else ("", None)
        about: updates.Update = {
            "toolCallId": id,
            **updates.describe(name, arguments, self.agent.workdir),
            "status": "pending",
        }
        if arguments is not None:
            about["rawInput"] = arguments
        here = self.agent.resources.far is None
        if here and (diff := updates.planned_diff(name, arguments, self.agent.cwd)):
            about["content"] = diff
        if request.tool_call_id is None:
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
            self._tasks.spawn(self._show_usage(), "acp usage")

    # -- state that changes by itself ------------------------------------------------------------

    def _show_options(self) -> None:
        options = self.options()
        if options == self._options:
            return
        before, self._options = self._options, options
        self.tell({"sessionUpdate": "config_option_update", "configOptions": options})
        if options[0]["currentValue"] != before[0]["currentValue"]:
            self.tell({"sessionUpdate": "current_mode_update", "currentModeId": options[0]["currentValue"]})

    def _show_commands(self) -> None:
        commands = []
        for command in map(to_builtins, self.agent.commands()):
            shown = {"name": command["name"], "description": command.get("description") or command["name"]}
            commands.append({**shown, "input": {"hint": "arguments"}})
        if commands != self._shown_commands:
            self._shown_commands = commands
            self.tell({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def _show_plan(self) -> None:
        shown = updates.plan(self.agent.state().todo_phases)
        if shown != self._plan:
            self._plan = shown
            self.tell(shown)

    async def _show_usage(self) -> None:
        usage, stats = self.agent.context_usage(), await self.agent.stats()
        if usage is None or usage.tokens is None:
            return
        update: updates.Update = {"sessionUpdate": "usage_update", "used": usage.tokens, "size": usage.context_window}
        if stats.cost_source != "unknown":
            update["cost"] = {"amount": stats.cost, "currency": "USD"}
        if update != self._usage:
            self._usage = update
            self.tell(update)


def _usage(result: RunResult) -> dict[str, int]:
    tokens = result.tokens
    return {
        "totalTokens": tokens.total,
        "inputTokens": tokens.input,
        "outputTokens": tokens.output,
        "cachedReadTokens": tokens.cache_read,
        "cachedWriteTokens": tokens.cache_write,
    }


def _needs_key(text: str) -> bool:
    from spindle.llm.errors import is_refused_key

    return is_refused_key(text)


def _select(id: str, name: str, category: str, value: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": id, "name": name, "category": category, "type": "select", "currentValue": value, "options": options
    }  # fmt: skip


def _read_content(content: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the images of a prompt. Raises `RpcError`."""
    if not content:
        raise RpcError(INVALID_PARAMS, "prompt is required")
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    for index, block in enumerate(content):
        kind = block.get("type")
        resource = block.get("resource")
        if kind == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif kind == "image":
            images.append({"type": "image", "data": block.get("data"), "mimeType": block.get("mimeType")})
        elif kind == "resource_link" and isinstance(block.get("uri"), str):
            texts.append(_mention(block["uri"]))
        elif kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
            texts.append(f"\n{_mention(str(resource.get('uri', '')))}\n```\n{resource['text']}\n```\n")
        elif kind == "resource" and isinstance(resource, dict) and str(resource.get("mimeType")).startswith("image/"):
            images.append({"type": "image", "data": resource.get("blob"), "mimeType": resource["mimeType"]})
        else:
            raise RpcError(INVALID_PARAMS, f"prompt[{index}]: a block of type {kind} cannot be taken")
    return "".join(texts), images


def _mention(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:  # no URI
        return uri
    return f"@{unquote(parts.path)}" if parts.scheme == "file" else uri


def _usable(servers: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the MCP servers that can be used, with names that we allow, and the problems of the others."""
    if not servers:
        return [], []
    from spindle.plugins.mcp.server_config import Servers

    found = Servers()
    named = [{**server, "name": re.sub("[^A-Za-z0-9_-]", "_", str(server.get("name")))} for server in servers]
    found.add(named, "client")
    problems = [f'"{name}": {text.removeprefix("client: ")}' for name, text in found.problems.items()]
    return [server for server in named if server["name"] in found.configs], problems
