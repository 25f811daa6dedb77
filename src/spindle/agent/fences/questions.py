"""Puts questions of approval to whoever can answer: the client of the request (`RunOptions.ask`), else the program that
holds the agent (`can_use_tool`), else the user, by an event and a dialog. The first answer counts.

What an answer means for the permissions is not known here: see `approval.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs, WireDialogs
from spindle.agent.fences.callback import CanUseTool, called
from spindle.agent.hooks import Blocked
from spindle.agent.hub import Hub
from spindle.agent.run.options import RunOptions
from spindle.base.errors import told
from spindle.shapes.approvals import (
    FOR_OWNER,
    Allow,
    Answer,
    By,
    Deny,
    PermissionAnswered,
    PermissionRequest,
    QuestionKind,
)
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import Notice
from spindle.tools.base import ToolError

ONCE: Final = "Allow once"
DENY: Final = "Deny"
SAVED: Final = "(in all sessions)"

Check = Callable[[Allow], Awaitable[Allow]]
"""Checks a yes: its rules, and its input if that is changed. Raises `AgentError`, `ToolError`."""
Choices = dict[str, Allow]
"""Options of a dialog besides `ONCE` and `DENY`."""
log = logging.getLogger("spindle.approval")


class GivenAnswer(Struct, frozen=True):
    answer: Answer
    """With a changed input, this is the checked one."""
    by: By
    error: str | None = None
    """Why whoever was asked has failed."""
    exception: BaseException | None = None


class NoSuchQuestion(AgentError):
    """The question is over, or there never was one."""


class _OpenQuestion(Struct):
    """A question that waits for an answer."""

    request: PermissionRequest
    check: Check
    answered: asyncio.Future[Answer]
    limit: asyncio.Timeout


class AskerPort(Protocol):
    """What questions need of the engine."""

    hub: Hub


class Asker:
    def __init__(self, port: AskerPort, dialogs: Dialogs, can_use_tool: CanUseTool | None) -> None:
        """Raises `AgentError` if the function does not take what it would be given."""
        self._port = port
        self._dialogs = dialogs
        self._program = None if can_use_tool is None else called(can_use_tool)
        self._open: dict[str, _OpenQuestion] = {}

    def reach_nobody(self, options: RunOptions) -> bool:
        """Say whether there is nobody to ask, so that nothing need be shown."""
        return options.ask is None and self._program is None and not self._dialogs.has_ui

    def open_requests(self) -> list[PermissionRequest]:
        """Return the questions that wait for an answer of the user, for a client that has just connected."""
        return [one.request for one in self._open.values()]

    def kind_of(self, id: str) -> QuestionKind | None:
        """Return the kind of an open question; None: it is not open."""
        return self._open[id].request.kind if id in self._open else None

    def of_run(self) -> list[str]:
        """Return the ids of open questions that a run has asked, rather than an extension or a server."""
        return [id for id, one in self._open.items() if one.request.kind in ("tool", "outside", "turns")]

    async def ask(
        self, request: PermissionRequest, options: RunOptions, check: Check, dialog: "Dialog | None"
    ) -> GivenAnswer:
        """Return the answer of whoever is asked. Raises `Blocked` if the client of the request refuses in its words.

        Without a dialog, clients that know only dialogs are not asked.
        """
        verdict = await self._asked(request, options, check, dialog)
        if verdict.error is not None:
            if verdict.exception is not None:  # of the program, which reads its log
                what = request.tool_name or request.kind
                log.error("The question about %s failed: %s", what, verdict.error, exc_info=verdict.exception)
            self._port.hub.publish(
                Notice(f"{request.summary}: no, because the question failed: {verdict.error}", "error")
            )
        return verdict

    async def _asked(
        self, request: PermissionRequest, options: RunOptions, check: Check, dialog: "Dialog | None"
    ) -> GivenAnswer:
        is_call = request.kind in ("tool", "outside")
        if options.ask is not None and (is_call or request.kind == "turns"):
            return await self._by_program(options.ask, request, check, "user")
        if self._program is not None and is_call:
            return await self._by_program(self._program, request, check, "program")
        if not self._dialogs.has_ui:
            return GivenAnswer(Deny(), "nobody")
        return await self._by_user(request, check, dialog)

    async def _by_program(
        self, ask: Callable[[PermissionRequest], Awaitable[Answer]], request: PermissionRequest, check: Check, by: By
    ) -> GivenAnswer:
        limit, is_late = asyncio.timeout(request.timeout and request.timeout / 1000), False
        try:
            async with limit:
                answer = await ask(request)
                if is_late := (when := limit.when()) is not None and asyncio.get_running_loop().time() >= when:
                    raise TimeoutError  # it held the loop, or went on after its cancellation
                return GivenAnswer(await check(answer) if isinstance(answer, Allow) else answer, by)
        except (Blocked, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # foreign code, as the failure of a test; what it says is not for the model
            if isinstance(error, asyncio.CancelledError):
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                error = RuntimeError("can_use_tool waited for something that was cancelled")
            if isinstance(error, TimeoutError) and (is_late or limit.expired()):
                text = f"can_use_tool gave no answer within {(request.timeout or 0) / 1000:g} s"
                return GivenAnswer(Deny(), "error", text, TimeoutError(text))
            return GivenAnswer(Deny(), "error", told(error), error)

    # -- the user --------------------------------------------------------------------------------

    async def _by_user(self, request: PermissionRequest, check: Check, dialog: "Dialog | None") -> GivenAnswer:
        question = _OpenQuestion(request, check, asyncio.get_running_loop().create_future(), asyncio.timeout(None))
        self._open[request.id] = question
        self._port.hub.publish(request)
        told = PermissionAnswered(id=request.id, tool_call_id=request.tool_call_id, behavior="withdrawn", by="nobody")
        replying = asyncio.ensure_future(self._replied(request, check, dialog))
        try:
            async with question.limit:
                both: list[asyncio.Future[Any]] = [replying, question.answered]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            verdict = GivenAnswer(question.answered.result(), "user") if question.answered.done() else replying.result()
            told = _told(request, verdict)
            return verdict
        except TimeoutError:
            verdict = GivenAnswer(Deny(), "nobody")
            told = _told(request, verdict)
            return verdict
        finally:
            del self._open[request.id]
            if not question.answered.done():
                question.answered.cancel()
            replying.cancel()
            await asyncio.wait([replying])
            self._port.hub.publish(told)

    async def _replied(self, request: PermissionRequest, check: Check, dialog: "Dialog | None") -> GivenAnswer:
        """Return what the reply to the dialog says."""
        try:
            if isinstance(self._dialogs, Approver):
                answer = await self._dialogs.approve(request)
                checked = await check(answer) if isinstance(answer, Allow) else answer
                return GivenAnswer(Deny(), "nobody") if checked is None else GivenAnswer(checked, "user")
            if isinstance(self._dialogs, WireDialogs) and self._dialogs.shared and dialog is not None:
                # A server wants its code for more, and a dialog has no room for it.
                dialog = None if request.kind in FOR_OWNER else dialog.of_session()
            if dialog is None:
                await asyncio.get_running_loop().create_future()  # it ends with the question
                raise AssertionError
            given = await self._dialogs.ask(dialog.of(request))
        except Exception as error:  # dialogs may be foreign code
            return GivenAnswer(Deny(), "error", told(error), error)
        if given is None:
            return GivenAnswer(Deny(), "nobody")
        if isinstance(failed := given.get("error"), str):
            return GivenAnswer(Deny(), "error", failed)
        return GivenAnswer(dialog.read(given), "user")

    async def answer(self, id: str, answer: Answer) -> None:
        """Take an answer of a client. Raises `AgentError` for one that makes no sense: then the question stays open."""
        question = self._open.get(id)
        if question is None or question.answered.done():
            raise NoSuchQuestion(f"No question {id} waits for an answer: it was answered, or withdrawn")
        try:
            checked = await question.check(answer) if isinstance(answer, Allow) else answer
        except ToolError as error:
            raise AgentError(str(error)) from None
        if question.answered.done():
            raise NoSuchQuestion(f"Another client has answered the question {id}")
        question.answered.set_result(checked)

    def give_up(self) -> None:
        """Answer open questions with no: there is no client to answer them."""
        for question in self._open.values():
            question.limit.reschedule(asyncio.get_running_loop().time())


class Dialog(Struct, frozen=True):
    """How a question looks to a client that knows only dialogs, and what its reply means."""

    title: str
    choices: Choices = {}
    """What may be chosen besides yes and no."""
    message: str | None = None
    """With it, the question is a yes-or-no one."""
    always: Sequence[str] = ()
    yes: Allow = field(default_factory=Allow)

    def of(self, request: PermissionRequest) -> ExtensionUIRequest:
        fields: dict[str, Any] = {"id": request.id, "timeout": request.timeout, "tool_call_id": request.tool_call_id}
        always = list(self.always) or None
        if self.message is not None:
            offers = [text for text, chosen in self.choices.items() if chosen.keep == "session"]
            return ExtensionUIRequest(
                method="confirm", title=self.title, message=self.message, always=always, offers=offers or None, **fields
            )
        options = [ONCE, *self.choices, DENY]
        return ExtensionUIRequest(method="select", title=self.title, options=options, always=always, **fields)

    def of_session(self) -> "Dialog":
        """Return the dialog without what would be kept for other sessions."""
        choices = {text: chosen for text, chosen in self.choices.items() if chosen.keep == "session"}
        return replace(self, choices=choices)

    def read(self, given: dict[str, Any]) -> Answer:
        reason = given.get("reason")
        no = Deny(reason.strip() if isinstance(reason, str) else "")
        if self.message is not None:
            if given.get("confirmed") is not True:
                return no
            always = given.get("always")
            chosen = next(iter(self.choices), None) if always is True else always
        else:
            chosen = given.get("value")
            if chosen != ONCE and chosen not in self.choices:
                return no
        return self.choices.get(chosen, self.yes) if isinstance(chosen, str) else self.yes


@runtime_checkable
class Approver(Protocol):
    """Dialogs that can show a whole question."""

    async def approve(self, request: PermissionRequest) -> Answer | None:
        """Return the answer; None: there is none."""


def _told(request: PermissionRequest, verdict: GivenAnswer) -> PermissionAnswered:
    answer = verdict.answer
    told = PermissionAnswered(id=request.id, tool_call_id=request.tool_call_id, behavior="deny", by=verdict.by)
    if isinstance(answer, Deny):
        told.reason, told.stop = answer.reason, answer.stop
        return told
    told.behavior, told.keep, told.rules = "allow", answer.keep, list(kept_rules(request, answer))
    if answer.input is not UNSET:
        told.input = answer.input
    return told


def kept_rules(request: PermissionRequest, answer: Allow) -> Sequence[str]:
    """Return the rules that an answer keeps."""
    if answer.keep is None:
        return ()
    return answer.rules or (request.suggestions[0].rules if request.suggestions else ())
