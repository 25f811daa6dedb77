"""How a message gets to the model: hooks and templates look at it, then it starts a run or waits in a queue."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from spindle.agent.engine import ABORTED_EARLY
from spindle.agent.errors import AgentError
from spindle.agent.images import read_images
from spindle.agent.session_changes import SessionChanges
from spindle.models.credentials import MissingCredentials
from spindle.shapes.content import Image, Text
from spindle.shapes.events import ExtensionError
from spindle.shapes.messages import CustomMessage, UserMessage

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

__all__ = ["Disposition", "Prompting"]

Disposition = Literal["started", "queued", "handled"]
Ordered = Sequence[Text | Image]


class Prompting:
    def __init__(self, session: "AgentSession", changes: SessionChanges) -> None:
        self._session = session
        self._changes = changes
        self._refusals = 0
        """How often everybody who waited was sent away."""

    async def submit(
        self, text: str, images: Sequence[Any], behavior: str | None, source: str, expand: bool, ordered: Ordered | None
    ) -> Disposition:
        session, engine = self._session, self._session.engine
        pictures = read_images(images)
        if source != "extension":  # those may be what the beginning, or the change of the session, waits for
            await self._until_begun()
        if expand and text.startswith("/") and await session.hooks.run_command(text):
            return "handled"
        if behavior and engine.lifecycle.running:
            ready = await self._ready(text, pictures, source, behavior, expand)
            if ready is None:
                return "handled"
            if engine.lifecycle.running:
                self._put(behavior, _user_message(*ready))
                return "queued"
            with engine.claimed():  # the run has ended while hooks looked at the message
                await self._launch(*ready)
            return "started"
        if source != "extension":  # the end may wait for those, too
            await engine.wait_ended()
        with engine.claimed():
            ready = await self._ready(text, pictures, source, None, expand)
            if ready is None:
                return "handled"
            await self._launch(*ready, ordered=ordered if ready == (text, pictures) else None)
        return "started"

    def refuse_waiting(self) -> None:
        """Send away the prompts that wait for the session to begin: the user does not want them any more."""
        self._refusals += 1

    async def submit_message(self, message: CustomMessage) -> None:
        engine = self._session.engine
        with engine.claimed():
            self._require_model()
            await engine.make_room()
            engine.signal.check()
            engine.start([message])

    async def queue(self, text: str, images: Sequence[Any], source: str, behavior: str) -> Disposition:
        pictures = read_images(images)
        if source != "extension":
            await self._changes.wait()
        name = text[1:].split(" ", 1)[0] if text.startswith("/") else ""
        if name and self._session.hooks.has_command(name):
            raise AgentError(
                f'Extension command "/{name}" cannot be queued. Use prompt() or execute the command when not streaming.'
            )
        ready = await self._ready(text, pictures, source, behavior)
        if ready is None:
            return "handled"
        self._put(behavior, _user_message(*ready))
        return "queued"

    async def regenerate(self) -> None:
        session = self._session
        with session.engine.claimed():
            branch = reversed(session.store.get_branch())
            entry = next((entry for entry in branch if session.conversation.user_entry(entry.id)), None)
            if entry is None:
                raise AgentError("Nothing to regenerate")
            self._require_model()
            session.store.branch(entry.id)
            session.rebuild()
            session.tell_change("regenerate")
            session.engine.start([])

    # -- on the way ------------------------------------------------------------------------------

    async def _until_begun(self) -> None:
        """Wait while the session changes and extensions hear of it. Raises `AgentError` if that was aborted."""
        refusals = self._refusals
        begun = False
        while not begun:
            await self._changes.wait()
            await self._session.extensions.begin()
            begun = not self._changes.under_way  # another one may have come meanwhile
        if self._refusals != refusals:
            raise AgentError(ABORTED_EARLY)

    async def _ready(
        self, text: str, images: list[Image], source: str, behavior: str | None, expand: bool = True
    ) -> tuple[str, list[Image]] | None:
        """Let hooks look at the input, then expand skills and templates. None: somebody dealt with it."""
        session = self._session
        if "input" in session.hooks.listening:
            changed = await session.hooks.input(text, images, source, behavior)
            if changed is None:
                return None
            text, images = changed
        return session.resources.expand(text, self._tell_bad_skill) if expand else text, images

    def _tell_bad_skill(self, error: str) -> None:
        self._session.publish(ExtensionError("", "skill_expansion", error))

    def _put(self, behavior: str, message: UserMessage) -> None:
        queues = self._session.engine.queues
        if behavior == "followUp":
            queues.follow(message)
        else:
            queues.steer(message)

    async def _launch(self, text: str, images: list[Image], ordered: Ordered | None = None) -> None:
        """Start the run of a claimed agent. Raises `AgentError`, `Aborted`."""
        session, engine = self._session, self._session.engine
        session.conversation.release_held()
        self._require_model()
        await engine.make_room()
        prompt: list[Any] = [_user_message(text, images, ordered), *engine.next_turn]
        system_prompt = None
        if "before_agent_start" in session.hooks.listening:
            # What the system prompt was made of, for extensions that make their own.
            made_of = {"cwd": session.cwd, "selectedTools": list(session.toolbox.active)}
            extra, system_prompt = await session.hooks.before_agent_start(text, images, engine.system_prompt, made_of)
            prompt += extra
        engine.signal.check()
        engine.next_turn.clear()
        # Nobody awaits anything from here on: the caller's answer must go out before the run's first event.
        engine.start(prompt, system_prompt)

    def _require_model(self) -> None:
        choice = self._session.choice
        if choice.model is None:
            raise AgentError(choice.registry.no_model_text())
        try:
            choice.registry.require_credentials(choice.model)
        except MissingCredentials as error:
            raise AgentError(str(error)) from None


def _user_message(text: str, images: list[Image], ordered: Ordered | None = None) -> UserMessage:
    return UserMessage(content=list(ordered or (Text(text), *images)), timestamp=int(time.time() * 1000))
