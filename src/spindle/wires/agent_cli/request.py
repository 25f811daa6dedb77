"""One chat request on its way through the agent, from its start to the frame that ends it.

The agent gets the options of the request, its hooks and the way to ask its client as `RunOptions`. `ChatReply` makes
the frames that the client gets.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from spindle.agent import AgentError
from spindle.agent.fences.previews import in_words
from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.agent.run.handle import Run
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import why
from spindle.agent.session import AgentSession
from spindle.base.weakly import weakly
from spindle.protocol.seat import NoAccount
from spindle.server.account import Account
from spindle.shapes.approvals import Allow, Answer, Deny, PermissionRequest
from spindle.shapes.events import AgentSettled, Event, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from spindle.shapes.messages import AssistantMessage
from spindle.tools.base import Tool
from spindle.wires.agent_cli.protocol import ChatRequest, Config, Parts, structured_error
from spindle.wires.agent_cli.reply import ChatReply, FrameQueue
from spindle.wires.network.options import RemoteOptions

TURNS_REFUSED = "对话已结束，未重置轮次。"
NOTHING_TO_REGENERATE = "Nothing to regenerate"

log = logging.getLogger("spindle.remote")


class ChatState(Struct):
    """The configuration of a connection, which stays from one request to the next."""

    max_turns: int | None = None
    """Requests before the client is asked whether to go on; None: never."""
    turns: int = 0
    """Requests since the client last agreed to go on."""
    ask_before_tools: bool = False
    prompt: str | None = None
    """Takes the place of the built-in system prompt."""
    max_tokens: int | None = None
    """The most tokens of an answer, unless the request has its own number."""

    def apply(self, config: Config) -> None:
        """Make the lasting changes of a request; `max_tokens` is for the request only."""
        if config.max_turns is not None:
            self.max_turns = config.max_turns
        if config.ask_before_tools is not None:
            self.ask_before_tools = config.ask_before_tools
        if config.prompt is not None:
            self.prompt = config.prompt or None


class Consent(Struct, frozen=True):
    agreed: bool
    reason: str | None = None


class Confirmation(Struct, frozen=True):
    """A question to the client that is not answered yet."""

    tool: str | None
    """None: the question is about more turns."""
    arguments: Any
    answered: asyncio.Future[Consent]


class _Inside(Hooks):
    """Looks at the calls of subagents. The client is told of the call that started them only."""

    def __init__(self, request: "ChatRun") -> None:
        self._request = request

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if self._request.refused:
            raise Blocked(_refusal(tool.name), terminate=True, by="user")
        return args


class ChatRun(Hooks):
    """Listens to the agent while it works on the request, and is a hook of that run."""

    def __init__(
        self,
        request: ChatRequest,
        agent: AgentSession,
        state: ChatState,
        frames: FrameQueue,
        options: RemoteOptions,
        account: Account | NoAccount,
    ) -> None:
        self._account = account
        self.request = request
        self.question: Confirmation | None = None
        """The question that the client has not answered yet."""
        self.ended = asyncio.Event()
        """Set when the last frame of the request is in the queue."""
        self._agent = agent
        self._state = state
        self._frames = frames
        self._reply = ChatReply(request.id, request.stream, frames, options, request.told)
        self._confirm_timeout = options.confirm_timeout or None
        self._request_time = _Countdown(options.request_timeout, weakly(self._time_out), "The request took too long")
        self._tool_time = _Countdown(options.tool_timeout, weakly(self._time_out), "The tools took too long")
        self._waiting = AbortSignal()
        """Ends the request while it waits for the agent."""
        self._run: Run | None = None
        """Set once the agent has taken the request."""

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        self._state.apply(self.request.config)
        self._request_time.go_on()
        try:
            with self._waiting:
                if await self._may_take_turn():
                    self._run = await self._submit()
            if self._run is not None and self._run.disposition != "handled":
                result = await self._run.result()
                if result.status == "limit" or result.stop_reason == "length":
                    self._reply.limited(why(result))
        except Aborted:
            pass
        except AgentError as error:
            text = str(error)
            self._reply.fail(text if text == NOTHING_TO_REGENERATE else structured_error("processing_error", text))
        except Exception as error:  # a bug, or foreign code: the client must be told, and the connection goes on
            log.exception("request %s failed", self.request.id)
            self._reply.fail(structured_error("processing_error", f"{type(error).__name__}: {error}"))
        finally:
            self._request_time.pause()
            self._tool_time.pause()
            self._agent.unsubscribe(self)
            self._reply.finish()
            self.ended.set()

    def stop(self) -> None:
        """Interrupt the request; `ended` is set when that is done. If its run is over already, do nothing."""
        if self._run is not None and self._run.over:
            return
        self._reply.interrupted = True
        self.question = None
        self._stop()

    def answer(self, answer: Consent) -> None:
        """Answer the open question, if there is one."""
        question, self.question = self.question, None
        if question is not None and not question.answered.done():
            question.answered.set_result(answer)

    async def _may_take_turn(self) -> bool:
        """Say whether the request may begin; ask the client if its turns are used up."""
        state = self._state
        if state.max_turns is None or state.turns < state.max_turns:
            return True
        if await self._ask_for_turns(state.turns, state.max_turns):
            state.turns = 0
            return True
        return False

    async def _submit(self) -> Run:
        """Give the request to the agent when the agent is free. Raises `AgentError`."""
        options = RunOptions(
            max_tokens=self.request.config.max_tokens or self._state.max_tokens,
            system_prompt=self._state.prompt,
            tools=None if self.request.use_tools else (),
            hooks=self,
            ask=self._ask_user,
            ask_before_tools=self._state.ask_before_tools,
        )
        if isinstance(parts := self.request.input, Parts):
            submitting = self._agent.submit(
                parts.text, parts.images, source="remote", ordered=parts.content, options=options, wait=True
            )
        else:
            submitting = self._agent.regenerate(options, wait=True)
        run = await self._account.counted(self._agent, submitting)
        self._state.turns += 1
        self._agent.subscribe(self)
        return run

    def _stop(self) -> None:
        if self._run is not None:
            self._run.cancel()
        else:
            self._waiting.abort()

    def _time_out(self, why: str) -> None:
        self._reply.fail(structured_error("timeout_error", why))
        self._stop()

    # -- the listener's side ---------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self._frames.full

    async def room(self) -> None:
        await self._frames.room()

    def put(self, event: Event) -> None:
        reply = self._reply
        if type(event) is MessageUpdate:
            reply.update(event)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            reply.answered(event.message)
        elif isinstance(event, ToolExecutionStart):
            reply.tool_started(event)
        elif isinstance(event, ToolExecutionEnd):
            reply.tool_ended(event, silent=self._agent.aborting)
            if not reply.calls_running:
                self._tool_time.pause()
        elif isinstance(event, AgentSettled):
            self._settle(event)

    def _settle(self, event: AgentSettled) -> None:
        self._agent.unsubscribe(self)  # later events belong to another request
        reply = self._reply
        if event.aborted and reply.refusal is None and reply.error is None:
            reply.interrupted = True  # by this client, another client, or a change of session
        elif event.stop_reason == "error":
            reply.fail(structured_error("processing_error", event.error_message or "The request failed"))

    # -- the hook's side -------------------------------------------------------------------------

    async def before_turn(self) -> bool:
        self._tool_time.reset()
        return self._reply.refusal is None  # after a refusal the run ends; calls that were approved before have run

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if self.refused:
            raise Blocked(_refusal(tool.name), terminate=True, by="user")
        self._reply.tool_allowed(tool.name, args)
        self._tool_time.go_on()
        return args

    def within(self) -> Hooks:
        return _Inside(self)

    @property
    def refused(self) -> bool:
        """Whether the user has refused something: then no more tools run."""
        return self._reply.refusal is not None

    async def _ask_user(self, wanted: PermissionRequest) -> Answer:
        """Ask the client for an approval. Raises `Blocked` for a tool that the user refused."""
        if wanted.kind == "turns":
            turns = int(wanted.arguments["turns"])
            agreed = self._reply.refusal is None and await self._ask_for_turns(turns, turns)
            return Allow() if agreed else Deny()
        name, answer = wanted.tool_name or "", Consent(False)
        if self._reply.refusal is None:  # after one refusal there are no more questions
            described = "\n".join(filter(None, (wanted.summary, in_words(wanted.preview))))
            asked = {"name": name, "arguments": wanted.arguments, "description": described}
            answer = await self._ask({"ToolConfirmationRequest": asked}, name, wanted.arguments)
        if not answer.agreed:
            self._reply.refusal = self._reply.refusal or _refusal(name)
            raise Blocked(f"{_refusal(name)}: {answer.reason}" if answer.reason else _refusal(name), terminate=True)
        return Allow()

    async def _ask_for_turns(self, turns: int, limit: int) -> bool:
        reason = f"已达到最大对话轮次限制 ({limit} 轮)。是否重置对话轮次以继续对话？"
        asked = {"current_turns": turns, "max_turns": limit, "reason": reason}
        answer = await self._ask({"TurnConfirmationRequest": asked})
        if answer.agreed:
            self._reply.continued = True
        else:
            self._reply.refusal = TURNS_REFUSED
        return answer.agreed

    async def _ask(self, content: dict[str, Any], tool: str | None = None, arguments: Any = None) -> Consent:
        question = self.question = Confirmation(tool, arguments, asyncio.get_running_loop().create_future())
        self._reply.ask(content)
        self._request_time.pause()
        self._tool_time.pause()
        try:
            async with asyncio.timeout(self._confirm_timeout):
                return await question.answered
        except TimeoutError:
            self._reply.fail(structured_error("timeout_error", "The confirmation was not answered in time"))
            return Consent(False)
        finally:
            self.question = None
            self._request_time.go_on()


class _Countdown:
    """A time limit that can be paused. It calls back once when its seconds are used up."""

    def __init__(self, seconds: float, callback: Callable[[str], None], why: str) -> None:
        """`why` is given to the callback. With 0 seconds it is never called."""
        self._seconds = self._left = seconds
        self._callback = callback
        self._why = f"{why} (limit: {seconds:g} s)"
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        if self._timer is None and self._seconds:
            self._timer = asyncio.get_running_loop().call_later(self._left, self._callback, self._why)

    def pause(self) -> None:
        if self._timer is not None:
            self._left = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Pause, and start again from all seconds."""
        self.pause()
        self._left = self._seconds


def _refusal(name: str) -> str:
    return f"Tool '{name}' execution was not approved by user"
