"""Spindle in process: an agent as an object of a Python program.

from spindle import Agent

async with await Agent.create(cwd="project", model="anthropic/claude-sonnet-4-5") as agent:
    async for event in agent.prompt("What is in this directory?"):
        print(event)
"""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from spindle.agent import AgentError
from spindle.agent.approval import CanUseTool, PermissionOptions
from spindle.agent.create import AgentOptions, create_session
from spindle.agent.dialogs import Dialogs
from spindle.agent.session import AgentSession
from spindle.extensions.host import ExtensionHost, ExtensionOptions
from spindle.flow import Mailbox
from spindle.resources.loader import ResourceOptions, load_resources
from spindle.sessions import SessionManager
from spindle.sessions import open as sessions
from spindle.sessions.session import Session
from spindle.shapes.events import AgentSettled, Event, MessageEnd
from spindle.shapes.messages import AgentMessage, AssistantMessage, Image, text_of
from spindle.shapes.model import Model
from spindle.tools.base import Tool

EVENTS_WAITING = 1000
"""So many events that were not read make the agent pause."""


class _Callback:
    """A listener that is a plain function."""

    full = False

    def __init__(self, function: Callable[[Event], None]) -> None:
        self.put = function

    async def room(self) -> None:
        """There is always room."""


def _forget_earlier_run(events: Mailbox[Event]) -> None:
    """Drop what belongs to a run that settled while a prompt was on its way."""
    settled = [number for number, event in enumerate(events.waiting, 1) if isinstance(event, AgentSettled)]
    for _ in range(settled[-1] if settled else 0):
        events.pop()


class Agent:
    """One agent with its session. Make it with `create` or `open`; close it when done."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        """Everything a wire can ask for; the methods here are the everyday ones."""

    @classmethod
    async def create(
        cls,
        *,
        cwd: str | Path = ".",
        model: str | Model | None = None,
        thinking: str | None = None,
        tools: Sequence[str | Tool] | None = None,
        system_prompt: str | None = None,
        api_key: str | None = None,
        persist: bool = True,
        session: Session | SessionManager | None = None,
        extensions: Sequence[str | Callable[[Any], Any]] = (),
        ui: Dialogs | None = None,
        permission_mode: str | None = None,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        can_use_tool: CanUseTool | None = None,
    ) -> "Agent":
        """Start an agent on a new session (or on `session`). `persist=False` keeps it in memory.

        `extensions` are paths, or functions that take `agent`; `ui` is where their dialogs are shown.
        `allow`, `ask` and `deny` are permission rules; `can_use_tool(name, arguments)` answers what they ask: True,
        or False, or a text that says why not. With it the mode is `default` unless another one is set.
        Raises `AgentError` for an unknown model, and for an extension that cannot be loaded.
        """
        directory = str(Path(cwd).resolve())
        paths = [item for item in extensions if isinstance(item, str)]
        found = load_resources(directory, ResourceOptions(system_prompt=system_prompt, extensions=paths))
        if isinstance(session, SessionManager):
            session = session.session
        if session is None and persist:
            folder = sessions.wanted_directory(None, found.settings.session_dir)
            session = sessions.create(directory, folder, fsync=found.settings.fsync)
        options = AgentOptions(
            model=model,
            thinking=thinking,
            tools=tools,
            api_key=api_key,
            mode="sdk",
            dialogs=ui,
            permissions=PermissionOptions(permission_mode, allow, ask, deny, can_use_tool),
        )
        factories = [item for item in extensions if not isinstance(item, str)]
        made = await create_session(
            session or sessions.in_memory(directory),
            options,
            found,
            ExtensionHost(ExtensionOptions(factories, dialogs=ui)),
        )
        await made.begin()
        return cls(made)

    @classmethod
    async def open(cls, path: str | Path, **options: Any) -> "Agent":
        """Go on with a session file. Takes the options of `create`."""
        session = sessions.load(path)
        return await cls.create(cwd=session.cwd, session=session, **options)

    async def prompt(self, text: str, images: Sequence[Image] = ()) -> AsyncIterator[Event]:
        """Send a message and yield every event until the agent is settled. Raises `AgentError` if refused."""
        events: Mailbox[Event] = Mailbox(EVENTS_WAITING)
        self.session.subscribe(events)
        try:
            while self.session.winding_up:  # so that every prompt has an end of its own
                await self.session.wait_idle()
            if await self.session.submit(text, images, source="sdk") == "handled":
                await self.session.finished()
                return
            _forget_earlier_run(events)
            async for event in events:
                yield event
                if isinstance(event, AgentSettled):
                    return
        finally:
            self.session.unsubscribe(events)
            events.drop()

    async def ask(self, text: str, images: Sequence[Image] = ()) -> str:
        """Send a message, wait, and return the text of its last answer: empty if no model was needed for it.

        Raises `AgentError` if the model failed.
        """
        answer = None
        async for event in self.prompt(text, images):
            if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
                answer = event.message
        if answer is None:
            return ""
        if answer.stop_reason in ("error", "aborted"):
            raise AgentError(answer.error_message or f"Request {answer.stop_reason}")
        return text_of(answer.content).strip()

    async def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        await self.session.steer(text, images, source="sdk")

    async def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        await self.session.follow_up(text, images, source="sdk")

    async def abort(self) -> None:
        await self.session.abort()

    async def fork(self, entry_id: str) -> str:
        """Go on in a new session that ends before that user message. Returns the message's text."""
        text, _ = await self.session.fork(entry_id)
        return text

    def subscribe(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with every event. Returns a function that stops it."""
        listener = _Callback(function)
        self.session.subscribe(listener)
        return lambda: self.session.unsubscribe(listener)

    @property
    def messages(self) -> list[AgentMessage]:
        return list(self.session.messages)

    async def close(self) -> None:
        await self.session.close()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
