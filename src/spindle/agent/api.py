"""Spindle in process: an agent as an object of a Python program.

from spindle import Agent

async with await Agent.create(cwd="project", model="anthropic/claude-sonnet-4-5") as agent:
    async for event in agent.prompt("What is in this directory?"):
        print(event)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.agent.create import AgentOptions, create_session
from spindle.agent import AgentError
from spindle.agent.extension_loading import ExtensionOptions
from spindle.agent.session import AgentSession
from spindle.resources.loader import ResourceOptions, load_resources
from spindle.sessions.manager import SessionManager
from spindle.shapes.content import Image, text_of
from spindle.shapes.events import AgentSettled, Event, MessageEnd
from spindle.shapes.messages import AgentMessage, AssistantMessage
from spindle.shapes.models import Model
from spindle.tools.base import Tool

if TYPE_CHECKING:
    from spindle.extensions.runtime import Front

__all__ = ["Agent"]


class _Inbox:
    """A listener that keeps events until they are read; the agent pauses when too many wait."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._waiting: list[Event] = []
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, event: Event) -> None:
        self._waiting.append(event)
        self._arrived.set()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.LIMIT

    async def room(self) -> None:
        while self.full:
            self._taken.clear()
            await self._taken.wait()

    async def take(self) -> list[Event]:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        taken, self._waiting = self._waiting, []
        self._taken.set()
        return taken

    def forget_earlier_run(self) -> None:
        """Drop what belongs to a run that settled while a prompt was on its way."""
        settled = [number for number, event in enumerate(self._waiting, 1) if isinstance(event, AgentSettled)]
        del self._waiting[: settled[-1] if settled else 0]

    def close(self) -> None:
        """Let go of the agent if it waits: nobody reads any more."""
        self._waiting.clear()
        self._taken.set()


class _Callback:
    """A listener that is a plain function."""

    full = False

    def __init__(self, function: Callable[[Event], None]) -> None:
        self.put = function

    async def room(self) -> None:
        """There is always room."""


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
        session: SessionManager | None = None,
        extensions: Sequence[str | Callable[[Any], Any]] = (),
        ui: "Front | None" = None,
    ) -> "Agent":
        """Start an agent on a new session (or on `session`). `persist=False` keeps it in memory.

        `extensions` are paths, or functions that take `agent`; `ui` is where their dialogs are shown.
        Raises `AgentError` for an unknown model, and for an extension that cannot be loaded.
        """
        directory = str(Path(cwd).resolve())
        if session is None:
            session = SessionManager.create(directory) if persist else SessionManager.in_memory(directory)
        paths = [item for item in extensions if isinstance(item, str)]
        options = AgentOptions(
            model=model,
            thinking=thinking,
            tools=tools,
            api_key=api_key,
            mode="sdk",
            extensions=ExtensionOptions([item for item in extensions if not isinstance(item, str)], front=ui),
        )
        found = load_resources(directory, ResourceOptions(system_prompt=system_prompt, extensions=paths))
        agent = cls(await create_session(session, options, found))
        await agent.session.extensions.begin()
        return agent

    @classmethod
    async def open(cls, path: str | Path, **options: Any) -> "Agent":
        """Go on with a session file. Takes the options of `create`."""
        store = SessionManager.open(str(path))
        return await cls.create(cwd=store.get_cwd(), session=store, **options)

    async def prompt(self, text: str, images: Sequence[Image] = ()) -> AsyncIterator[Event]:
        """Send a message and yield every event until the agent is settled. Raises `AgentError` if refused."""
        inbox = _Inbox()
        self.session.subscribe(inbox)
        try:
            if await self.session.submit(text, images, source="sdk") != "started":
                return
            inbox.forget_earlier_run()
            while True:
                for event in await inbox.take():
                    yield event
                    if isinstance(event, AgentSettled):
                        return
        finally:
            self.session.unsubscribe(inbox)
            inbox.close()

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
        """Call `function` with every event. Returns the way to stop that."""
        listener = _Callback(function)
        self.session.subscribe(listener)
        return lambda: self.session.unsubscribe(listener)

    @property
    def messages(self) -> list[AgentMessage]:
        return list(self.session.conversation.messages)

    async def close(self) -> None:
        await self.session.close()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
