"""The chat itself: input of the user becomes commands of the protocol, and events become text on the screen."""

import asyncio
import re
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.apps.console.editor import LineEditor
from spindle.apps.console.input import LineInput, Question
from spindle.apps.console.local import LocalCommands
from spindle.apps.console.look import Look, clean, fit, one_line, rows
from spindle.apps.console.permissions import PermissionQuestions
from spindle.apps.console.slash import Slash
from spindle.apps.console.view import View, money
from spindle.apps.words import in_the_chat
from spindle.base.flow import Tasks
from spindle.base.limits import COMMANDS_END
from spindle.base.settings import Settings
from spindle.base.spelling import did_you_mean
from spindle.client import CommandFailed, Event, RequestTimeout, RpcClient, RpcError
from spindle.shapes.permission_modes import PERMISSION_MODES

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

Json = dict[str, Any]

_WORDS = {"exit": "quit", "quit": "quit", "help": "help"}
"""Words that alone mean a command, as in other programs."""
_LEARN_AFTER = frozenset(
    {
        "agent_settled",
        "background_end",
        "turn_end",
        "compaction_end",
        "state_changed",
        "session_info_changed",
        "thinking_level_changed",
    }
)


class Talk:
    def __init__(
        self,
        client: RpcClient,
        *,
        history: Path,
        url: str | None = None,
        agent: "AgentSession | None" = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
    ) -> None:
        """Prepare a chat before its client starts, because the agent may ask at once.

        `url`: the client's server; `agent`: the one of this process.
        """
        self.client = client
        self.url = url
        self.state: Json = {}
        """As `get_state` gave it last."""
        self.commands: dict[str, str] = {}
        """Every slash command, and what it does."""
        self.elsewhere: str | None = None
        """The session that the user left this chat for."""
        self.remark = ""
        """A text for behind the conversation when that is shown again."""
        self.queue: list[str] = []
        self._stats: Json = {}
        self._branch = ""
        self._statuses: dict[str, str] = {}
        """Lines of extensions for the status, by their keys; `_widgets` has their lines above the input."""
        self._widgets: dict[str, list[str]] = {}
        self._shell: list[tuple[str, float]] = []
        """Running shell commands of the user, and when each began."""
        self._shell_line = ""
        """The unfinished last line of their output."""
        self.resumes = False
        """Whether to go on with a run that was interrupted, without asking."""
        self._interrupted: Json | None = None
        """A run that can be gone on with."""
        self._told_run = ""
        self._tasks = Tasks()
        self._look = look = Look()
        self.view = View(look, lambda text: self.editor.write(text))
        self.local = None if agent is None else LocalCommands(self, agent)
        self.settings = settings
        self._slash = Slash(self)
        self.editor = LineInput(look, self) if look.plain else LineEditor(look, self, self._slash, history)
        client.on_ui_request = self._ui_request
        client.on_permission_request = PermissionQuestions(self).ask

    async def run(self, messages: Sequence[str] = (), images: Sequence[Json] = (), *, resume: bool = False) -> int:
        """Talk until the user leaves; return the exit code. `resume`: only choose a session, see `elsewhere`."""
        events = self.client.events()
        await self.learn()
        if not resume:
            await self._head()
        self.view.history(await self.client.get_messages())
        self._receive(Event(self.state["queue"], type="queue_update"))  # of a killed process, perhaps
        self._tell_interrupted(self.state.get("interruptedRun"))
        if self.state["isStreaming"]:
            self.view.show({"type": "agent_start"})
        editing = asyncio.create_task(self.editor.run())
        watching = asyncio.create_task(self._watch(events))
        self.do(self._open(messages, images, resume=resume))
        self.do(self._tick())
        try:
            await asyncio.wait([editing, watching], return_when=asyncio.FIRST_COMPLETED)
        finally:  # whatever happened, the terminal is given back first
            self.view.flush()
            self.editor.close()
            await asyncio.wait([editing])
            watching.cancel()
            await asyncio.wait([watching])
            await self._tasks.end(COMMANDS_END)
        for part in (editing, watching):
            if not part.cancelled() and (error := part.exception()) is not None:
                if not isinstance(error, RpcError):
                    raise error  # a bug of ours
                print(f"Error: {error}")
                return 1
        return 0

    async def _head(self) -> None:
        """Say where the agent works, with which model, and what may run unasked."""
        folder = str(Path.cwd())
        if self.url:
            live = await self.client.list_live_sessions()
            folder = next((item["cwd"] for item in live if item["currentId"] == self.state["sessionId"]), "")
        elif folder.startswith(home := str(Path.home())):
            folder = f"~{folder.removeprefix(home)}"
        place, rest = f"Spindle{f' at {self.url}' if self.url else ''}", f" · {self._model} · /help"
        room = max(15, min(self._look.width, 80) - 1 - len(place) - len(rest) - 3)
        folder = one_line(folder)
        if len(folder) > room:  # its end says most
            folder = f"…{folder[1 - room :]}"
        self.view.say(f"{place}{f' · {folder}' if folder else ''}{rest}", "dim")
        held = await self.client.request("get_permissions")
        barred = sum(rule["behavior"] != "allow" for rule in held["rules"])
        text = f"{PERMISSION_MODES[held['mode']].help} (mode {held['mode']})"
        if held["mode"] == "bypass":
            but = f", but for {barred} rule{'s' if barred > 1 else ''}" if barred else ""
            keys = "/permissions" if self.is_plain else "Shift-Tab or /permissions"
            text = f"Everything runs unasked{but} (mode bypass): {keys} to choose"
        self.view.say("\n".join(row.rstrip() for row in rows(text, self._look.width - 1)), "dim")

    @property
    def is_plain(self) -> bool:
        """Whether this terminal cannot move its cursor, nor hide what is typed."""
        return self._look.plain

    @property
    def _model(self) -> str:
        """The model's name without the folders or the makers before it."""
        return str((self.state.get("model") or {}).get("id", "no model")).rpartition("/")[2]

    # -- input of the user -----------------------------------------------------------------------

    async def _open(self, messages: Sequence[str], images: Sequence[Json], *, resume: bool) -> None:
        if resume:
            item = await self._slash.session()
            self.elsewhere = None if item is None else str(item["id" if self.url else "path"])
            self.editor.close()
        if self.resumes:
            await self.go_on()
        for message in messages:
            self.do(self.enter(message, images, later=True))
            images = ()

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin work without waiting for it."""
        self._tasks.spawn(self._done(work), "chat")

    async def _done(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for work that the agent was asked for. An error is only shown."""
        try:
            await work
        except CommandFailed as failed:
            self.view.fail(failed.error)
        except RequestTimeout as late:
            self.view.fail(str(late))
        except RpcError:
            pass  # `run` tells the end of the agent, once
        self.editor.refresh()

    async def enter(self, text: str, images: Sequence[Json] = (), *, later: bool = False) -> None:
        """Do what the user has entered. `later`: a message for when the run is over."""
        name, _, argument = text[1:].partition(" ")
        is_name = text.startswith("/") and name not in self.commands and re.fullmatch(r"[\w:-]*", name)
        near = did_you_mean(name, self.commands, "/") if is_name else ""
        if text.startswith("!") and not (command := text.lstrip("!").strip()):
            self.view.fail("A command of the shell comes after it, as in !ls")
        elif text.startswith("!"):
            await self._run_shell(command, secret=text.startswith("!!"))
        elif (word := _WORDS.get(text.lower())) is not None and not later:
            await self._slash.run(word, "")
        elif text.startswith("/") and name in self._slash.commands:
            await self._slash.run(name, argument.strip())
        elif is_name and (meant := in_the_chat(name)) is not None:
            await self._other_word(meant, argument.strip())
        elif is_name and (near or not argument):
            self.view.fail(f"There is no command /{name}.{near or ' See /help'}")
        else:
            await self._prompt(text, images, "followUp" if later else "steer")

    async def _other_word(self, meant: str, argument: str) -> None:
        """Do what a word of another program means here, or say what to do."""
        while meant.startswith("/"):
            name, _, own = meant[1:].partition(" ")
            if name in self._slash.commands:
                await self._slash.run(name, own or argument)
                return
            meant = in_the_chat(name) or f"There is no command /{name} here"
        self.view.say(meant, "yellow")

    def _tell_interrupted(self, run: Json | None) -> None:
        """Say once that a run was cut off, and how to go on with it."""
        self._interrupted = run
        if run is not None and run["id"] != self._told_run and not self.resumes:
            self._told_run = run["id"]
            calls = ", ".join(call["name"] for call in run["openCalls"])
            where = f" in {calls}" if calls else ""
            what = "waits for your answer" if run.get("questions") else f"was interrupted{where}"
            self.view.say(f"A run {what}: Enter goes on with it, a message gives it up", "yellow")

    async def go_on(self) -> None:
        """Go on with a run that was interrupted, if there is one."""
        run, self._interrupted = self._interrupted, None
        if run is not None:
            await self.client.resume_run()
            self.view.show({"type": "agent_start"})

    async def _prompt(self, text: str, images: Sequence[Json], behavior: Any) -> None:
        try:
            given = await self.client.prompt(text, images=images or None, streaming_behavior=behavior)
        except CommandFailed:
            if not self._look.plain:
                self.editor.put(text)  # to be changed and sent again
            raise
        if given.get("disposition") == "started":
            self.view.show({"type": "agent_start"})

    async def _run_shell(self, command: str, *, secret: bool) -> None:
        line = f"$ {one_line(command)}"
        self.view.say(line, "bold", kind="bash")
        self._shell.append(running := (line, time.monotonic()))
        try:
            done = await self.client.request("bash", timeout=None, command=command, excludeFromContext=secret)
        finally:
            self._shell.remove(running)
        if self._shell_line:
            self.view.say(self._shell_line, kind="bash")
            self._shell_line = ""
        if done.get("cancelled") or done.get("exitCode"):
            how = "interrupted" if done.get("cancelled") else f"exit code {done['exitCode']}"
            self.view.say(f"({how})", "yellow", kind="bash")

    async def _tick(self) -> None:
        """Draw the elapsed time every second."""
        while True:
            await asyncio.sleep(1)
            if self.busy:
                self.editor.refresh()

    # -- called by the input ---------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self.view.since is not None or bool(self._shell)

    def above(self) -> list[str]:
        """Return the lines to draw above the input: running work, lines of extensions, the queue."""
        most = max(2, self._look.size()[1] // 5)
        queue = [f"  queued: {one_line(text)}" for text in self.queue[:most]]
        queue += [f"  … {len(self.queue) - most} more"] if len(self.queue) > most else []
        return [
            *self.view.live(),
            *(self.view.going_on(fit(line, self.view.width // 2), since) for line, since in self._shell),
            *(fit(line, self.view.width) for lines in self._widgets.values() for line in lines),
            *(self._look.paint(fit(line, self.view.width), "yellow") for line in queue),
        ]

    def status(self) -> str:
        """Return the line below the input."""
        usage = self._stats.get("contextUsage") or {}
        level = self.state.get("thinkingLevel")
        percent, window = usage.get("percent"), usage.get("contextWindow")
        parts = [
            self._model + (f" ({level})" if level and level != "off" else ""),
            f"{time.monotonic() - self.view.since:.0f}s" if self.view.since is not None else "",
            f"{percent:.0f}% of {window // 1000}K" if percent is not None and window else "",
            money(self._stats, self.state.get("model")),
            str(self.state.get("permissionMode", "")),
            self._branch,
            f"{len(self.queue)} queued" if self.queue else "",
            f"{len(running)} in background" if (running := self.state.get("background")) else "",
            *self._statuses.values(),
            one_line(self.state.get("sessionName") or ""),
        ]
        text = " · ".join(part for part in parts if part)
        return self._look.paint(self._look.signs(fit(text, self.view.width)), "dim")

    async def interrupt(self) -> None:
        """Stop the run and commands of the shell; if there are none, commands of extensions."""
        shell, run = bool(self._shell), self.view.since is not None
        if shell:
            await self.client.abort_bash()
        if run:
            await self.client.abort()
            await self.take_back()  # the user decides again what comes next
        if not shell and not run:
            for name in await self.client.abort_commands():
                self.view.say(f"Interrupted: /{name}", "yellow")

    async def take_back(self) -> None:
        """Put queued messages into the input."""
        waiting = await self.client.clear_queue()
        if texts := [*waiting["steering"], *waiting["followUp"]]:
            self.editor.put("\n\n".join(texts))

    async def next_mode(self) -> None:
        """Set the next permission mode; the status shows it."""
        modes, now = [*PERMISSION_MODES], self.state["permissionMode"]
        after = modes[(modes.index(now) + 1) % len(modes)] if now in modes else modes[0]
        await self.client.request("set_permissions", mode=after)
        await self.learn()

    async def go_back(self) -> None:
        """Do what Esc Esc stands for."""
        if (command := self.settings.double_escape_action) in self._slash.commands:
            await self._slash.run(command, "")

    async def next_thinking(self) -> None:
        """Think harder, or not at all after the hardest; the status shows it."""
        await self.client.cycle_thinking_level()
        await self.learn()

    async def next_model(self) -> None:
        """Use the next model; the status shows it."""
        if await self.client.cycle_model() is None:
            self.view.say("There is no other model. /model lists them, /login adds some", "dim")
        await self.learn()

    def unfold(self, what: str) -> None:
        self.view.say(self.view.folded[what].rstrip() or "There is nothing to show", "dim", kind="unfolded")

    # -- events of the agent ---------------------------------------------------------------------

    async def _watch(self, events: Any) -> None:
        async for event in events:
            self._receive(event)
            if not self._look.plain:
                self.editor.refresh()

    def _receive(self, event: Event) -> None:
        self.view.show(event)
        match event.type:
            case "run_interrupted":
                self._tell_interrupted(event["run"])
            case "agent_start":
                self._interrupted = None
            case "queue_update":
                self.queue = [*event["steering"], *event["followUp"]]
            case "bash_execution_update" if self._shell:
                *lines, self._shell_line = (self._shell_line + clean(event["delta"])).split("\n")
                if lines:
                    self.view.say("\n".join(lines), kind="bash")
            case "session_changed" if event["reason"] != "bash":
                self.do(self._changed())
        if event.type in _LEARN_AFTER:
            self.do(self.learn())

    async def _changed(self) -> None:
        """Show the conversation, after a change to another session or another place in this one."""
        await self.learn()
        messages = await self.client.get_messages()
        name = one_line(self.state.get("sessionName") or self.state["sessionId"][:13])
        self.view.say(f"Session {name}" + ("" if messages else " (empty)"), "dim", kind="session")
        self.view.history(messages)
        self._tell_interrupted(self.state.get("interruptedRun"))
        if self.remark:
            self.view.say(self.remark, "dim")
            self.remark = ""

    async def learn(self) -> None:
        """Ask the agent for its state, figures and commands."""
        self.state = await self.client.get_state()
        self._stats = await self.client.get_session_stats()
        own = {name: command.about for name, command in self._slash.commands.items()}
        found = {item["name"]: one_line(item.get("description") or "") for item in await self.client.get_commands()}
        self.commands = found | own
        self._branch = "" if self.url else _git_branch(Path.cwd())

    async def _ui_request(self, request: Event) -> Any:
        match request["method"]:
            case "select" | "confirm" | "input" | "editor":
                return await self._ask(request)
            case "notify":
                self.view.note(request.get("message") or "", request.get("notifyType"))
            case "setStatus":
                self._statuses[request["statusKey"]] = one_line(request.get("statusText") or "")
            case "setWidget":
                self._widgets[request["widgetKey"]] = [one_line(line) for line in request.get("widgetLines") or ()]
            case "set_editor_text":
                self.editor.put(clean(request.get("text") or ""))
        return None

    async def _ask(self, request: Event) -> Any:
        """Ask in place of the input, print a line with the answer, and return it in the form that the request wants."""
        question, limit = Question.of(request), request.get("timeout")
        try:
            async with asyncio.timeout(limit and limit / 1000):
                answer = await self.editor.ask(question)
            if answer is None and self.view.since is not None:
                await self.interrupt()  # before the answer, or the run would go on for a moment
        except TimeoutError:
            answer = None
        words = "no answer" if answer is None else question.options[answer] if question.options else answer
        told = fit(one_line(words), self._look.width // 2)
        asked = fit(one_line(question.title), self._look.width - len(told) - 4)
        self.view.say(f"{asked} → {told}", "dim", kind="tool")
        if answer is None or not question.options:
            return answer
        return answer == 0 if request["method"] == "confirm" else request["options"][answer]


def _git_branch(folder: Path) -> str:
    """Return the branch that is checked out, read from git's own files; empty if there is none."""
    for place in (folder, *folder.parents):
        head = place / ".git"
        try:
            if head.is_file():  # a worktree or a submodule: the file says where
                head = place / head.read_text().removeprefix("gitdir:").strip()
            text = (head / "HEAD").read_text().strip()
        except OSError:
            continue
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref:") else text[:8]
    return ""
