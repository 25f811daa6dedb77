"""One session of an editor: it comes and goes, sends prompts and commands, and has wishes of its own."""

import asyncio
import os
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from spindle.agent import AgentError
from spindle.agent.prompting import NotReady
from spindle.agent.run.handle import Run
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.protocol.commands import COMMANDS
from spindle.protocol.dispatch import carry_out
from spindle.protocol.live_session import LiveSession
from spindle.protocol.registry import REPLIES, Call
from spindle.protocol.seat import Seat
from spindle.resources.loader import ClientPrompt
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.run_result import RunResult
from spindle.shapes.sandbox import SandboxLevel
from spindle.wires.acp import updates
from spindle.wires.acp.json_rpc import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError, RpcConnection
from spindle.wires.acp.lent import EditorFiles, EditorTerminals
from spindle.wires.acp.options import choose, options
from spindle.wires.acp.questions import client_rules
from spindle.wires.acp.view import EditorAbilities, EditorView

_ENDS = {
    "maxTurns": "max_turn_requests",
    "maxTotalTokens": "max_tokens",
    "length": "max_tokens",
    "aborted": "cancelled",
}
_LIMITS = (*(limit.wire_name for limit in RUN_LIMITS), "repeated")
_REFUSED = ("refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT", "RECITATION")


class EditorChoices(msgspec.Struct):
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
        connection: RpcConnection,
        can: EditorAbilities,
        on_left: Callable[["EditorSeat"], None],
    ) -> None:
        """`id`: the editor's name for the session. `on_left` is called when the session leaves memory."""
        self.id = id
        self.live = live
        self._wishes = EditorChoices(live.agent.cwd)
        self._on_left = on_left
        self._connection = connection
        self._can = can
        self._in_hand = 0
        """How many requests are not answered yet."""
        self._tasks = Tasks()
        self._view = EditorView(id, live.agent, connection, can, self._tasks)
        self.tell, self.remark = self._view.tell, self._view.remark
        self._accepted: set[asyncio.Future[str | None]] = set()
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
        self._view.begin()
        files = EditorFiles(self.id, self._connection) if self._can.files else None
        terminals = EditorTerminals(self.id, self._connection, self._view.show_terminal)
        self.agent.use_editor(files, terminals if self._can.terminals and not self._can.output_key else None)
        self._tasks.spawn(self._introduce(), "acp begin")

    async def _introduce(self) -> None:
        await self.agent.begin()
        await self._view.introduce()

    def tell_again(self) -> None:
        """Send the whole conversation, with the answer so far if one is being written."""
        self._view.replay()
        self._tasks.spawn(self._introduce(), "acp again")

    async def use(self, wishes: EditorChoices) -> None:
        """Apply the editor's wishes for this session. A remark tells of folders and servers that cannot be used."""
        agent, before = self.agent, self._wishes
        wishes = msgspec.structs.replace(wishes, directories=self._allowed(wishes.directories))
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
            except JsonRpcError as error:
                problems = [str(error)]
            if problems:
                text = f"MCP servers of the editor are not used: {'; '.join(problems)}"
                self._tasks.spawn(self._remark_soon(text), "acp")

    def _allowed(self, directories: list[str]) -> list[str]:
        """Return the directories that sessions may work in; a remark tells of the others."""
        allowed: list[str] = []
        for path in directories:
            try:
                self.agent.check_place(path)
            except AgentError as error:
                text = f"An additional directory is not used: {error}"
                self._tasks.spawn(self._remark_soon(text), "acp")
            else:
                allowed.append(path)
        return allowed

    def tell_place(self, wanted: str) -> None:
        """Say where the session works, if it began elsewhere or the editor wants another directory."""
        cwd, began = self.agent.cwd, self.agent.session.header.cwd
        if other := next((path for path in (wanted, began) if os.path.realpath(path) != os.path.realpath(cwd)), None):
            self.remark(f"This session works in {cwd}, not in {other}", "warning")

    async def _remark_soon(self, text: str) -> None:
        """Remark on something once the editor knows the session."""
        self.remark(text, "warning")

    def wishes(self) -> EditorChoices:
        rules = client_rules(self.agent)
        return msgspec.structs.replace(
            self._wishes, cwd=self.agent.cwd, mode=self.agent.approval.state().mode, rules=rules
        )

    async def end(self) -> None:
        """Send no more updates, and cancel open questions."""
        self._view.end()
        self.agent.use_editor(None, None)
        await self._tasks.end(TASKS_END, asyncio.current_task())

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self._on_left(self)
        self._tasks.spawn(self.end(), "acp end")

    # -- prompts ---------------------------------------------------------------------------------

    async def prompt(self, content: list[dict[str, Any]], behavior: str) -> dict[str, Any]:
        """Send a message and return how its run ended, new or joined. Raises `JsonRpcError`."""
        text, images = _read_content(content)
        self._in_hand += 1
        try:
            resumes = text.strip() == updates.RESUME and self.agent.interrupted_run is not None
            submitting = (
                self.agent.resume_run()
                if resumes
                else self.agent.submit(text, images, behavior, source="acp", wait=True)
            )
            run = await self.account.counted(self.agent, submitting)
            self._view.own_prompts += run.disposition == "started"
            result = await run.result()
            answer: dict[str, Any] = {"stopReason": self._stop_reason(result)}
            # A prompt that joined a run shares its tokens: editors add up what they get.
            return answer | ({"usage": _usage(result)} if run.disposition == "started" and result.turns else {})
        except NotReady as error:
            raise JsonRpcError(AUTH_REQUIRED, str(error)) from None
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
        answer = self.agent.conversation.last_assistant() if result.turns else None
        reason = _ENDS.get(result.stop_reason)
        if reason is not None:
            return reason
        if answer is not None and answer.raw_stop_reason in _REFUSED:
            return "refusal"
        if result.stop_reason in ("error", "stalled", "schema"):
            text = result.error or f"The run ended with {result.stop_reason}"
            raise JsonRpcError(AUTH_REQUIRED if _needs_key(text) else INTERNAL_ERROR, text)
        return "max_turn_requests" if result.stop_reason in _LIMITS else "end_turn"

    async def choose(self, option: str, value: Any) -> list[dict[str, Any]]:
        """Set an option and return all of them. Raises `JsonRpcError`."""
        await choose(self.agent, option, value, self.account)
        if option == "sandbox":
            self._wishes = msgspec.structs.replace(self._wishes, sandbox=value)
        return options(self.agent)

    # -- our own commands ------------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        self._accepted.add(run.kept)
        run.kept.add_done_callback(self._accepted.discard)

    async def command(self, name: str, params: dict[str, Any]) -> Any:
        """Carry out a command of the RPC protocol. Raises `JsonRpcError`."""
        if name in REPLIES:
            self.agent.replies.receive({**params, "type": name})
            return {}
        frame = {**params, "type": name}
        self._in_hand += 1
        try:
            data = await carry_out(Call(self.agent, self, str(uuid.uuid4())), frame, COMMANDS.get(name))
            if self._accepted:
                done, _ = await asyncio.wait(self._accepted)  # a prompt is kept before the editor is told of it
                if failures := [failure for one in done if (failure := one.result()) is not None]:
                    raise JsonRpcError(INTERNAL_ERROR, failures[0])
        finally:
            self._in_hand -= 1
        return {} if data is msgspec.UNSET else data


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


def _read_content(content: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the images of a prompt. Raises `JsonRpcError`."""
    if not content:
        raise JsonRpcError(INVALID_PARAMS, "prompt is required")
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
            raise JsonRpcError(INVALID_PARAMS, f"prompt[{index}]: a block of type {kind} cannot be taken")
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
