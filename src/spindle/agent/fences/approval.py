"""Decides about the tool calls of a session, by its permissions or by asking the user, and counts refusals.

It also asks when a run gets long. Who is asked, and how, is in `questions.py`; what a question shows, in `previews.py`.
A question that reaches no user counts as a no.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

import msgspec
from msgspec import UNSET, UnsetType, field

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.dialogs import Dialogs
from spindle.agent.fences.denials import tell_denial
from spindle.agent.fences.fencing import Fencing
from spindle.agent.fences.options import PermissionOptions, PermissionState, RuleInfo
from spindle.agent.fences.questions import Asker, Dialog, GivenAnswer
from spindle.agent.fences.rulebook import BEHAVIORS, Chosen, Rulebook
from spindle.agent.fences.waiting import Held, asked
from spindle.agent.fences.wording import (
    OUTSIDE,
    call_dialog,
    input_of,
    outside_question,
    plain_yes,
    refusal,
    require_offered,
    rules_to_keep,
    unchanged,
    why,
)
from spindle.agent.hooks import CALL, SUBAGENT, Blocked, Hooks
from spindle.agent.hub import Hub
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain, RunOptions
from spindle.agent.toolbox import Toolbox
from spindle.base.limits import OUTSIDE_ANSWER
from spindle.base.settings import Settings
from spindle.base.user_files import BadFile
from spindle.resources.loader import Resources
from spindle.sessions.facts import Fact, facts, keep
from spindle.shapes.approvals import (
    Allow,
    Answer,
    Decision,
    Denial,
    Deny,
    Keep,
    PermissionRequest,
    Preview,
    QuestionKind,
    Suggestion,
    TextPreview,
)
from spindle.shapes.builtin_tools import Effect
from spindle.shapes.events import EntryAppended, ExtensionError, Notice, StateChanged, ToolResult
from spindle.shapes.messages import AgentMessage, UserMessage
from spindle.shapes.sandbox import SandboxChoice, SandboxLevel
from spindle.tools.base import Tool, ToolContext, ToolError

if TYPE_CHECKING:
    from spindle.agent.fences.links import FarLinks
    from spindle.workspace.area import Wanted
    from spindle.workspace.sandbox import Sandbox
    from spindle.workspace.unfenced import NoSandbox

SAME_DENIALS = 3
"""Equal refusals in a row that end the run."""
STOPPED = "denied"
"""The stop reason of a run that ends because of refusals."""
OUTDATED = "; the file has changed since you were asked"
PLAN = (
    "<plan_mode>\nPlan mode is on: you may only read. Every other tool call is refused. Look around, then answer with "
    "a plan of what you would do; do not try to change anything.\n</plan_mode>"
)


class Agreed(Fact):
    """Rules that the user has agreed to in a session: calls, and commands outside of the sandbox."""

    entry_type: ClassVar[str] = "spindle.permissions"
    allow: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


class ApprovalPort(Protocol):
    """What approval needs of the engine."""

    conversation: Conversation
    hub: Hub
    resources: Resources
    chain: Chain | None
    toolbox: Toolbox
    may_read: Callable[[str], bool]
    sandbox: Callable[[], "Sandbox | NoSandbox"]

    @property
    def settings(self) -> Settings: ...

    def offered_tools(self) -> dict[str, Tool]: ...

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext: ...


class Approval(Hooks):
    of_the_owner = True

    def __init__(
        self, port: ApprovalPort, dialogs: Dialogs, given: PermissionOptions, *, of_server: bool = False
    ) -> None:
        """`of_server`: what is given is for all sessions."""
        self._port = port
        self._of_server = of_server
        self._dialogs = dialogs
        self._given = given
        self._rules = Rulebook(port, given)
        self.questions = Asker(port, dialogs, given.can_use_tool)
        self._stopped = ""
        """The chain that the user has stopped with a no."""
        self._changed: set[str] = set()
        """Ids of calls whose arguments were changed, until they run."""
        self.tools = False
        """Whether to ask before every tool call."""
        self.max_turns: int | None = None
        """Model calls in a row after which to ask."""
        self._turns = 0
        """Model calls since the user last agreed, or sent a message."""
        self._links: FarLinks | None = None
        """What the far side told when `grep` was decided about."""
        self.fencing = Fencing(given.sandbox)
        port.may_read, port.sandbox = self.may_read, self.sandbox
        self.rebuild()
        chooses = given.can_use_tool is not None and given.mode is not None
        if chooses and self._rules.never_asks and self.fencing.level(port.resources) == "off":
            raise AgentError(
                "can_use_tool is never called in the mode bypass: leave one of the two out, or choose the mode default"
            )
        self._rules.policy()
        self.sandbox()

    # -- setup -----------------------------------------------------------------------------------

    def rebuild(self) -> None:
        self._rules.kept, self.fencing.agreed = [], []
        for fact in facts(self._port.conversation.session.entries, Agreed):
            self._rules.kept += [rule for rule in fact.allow if not rule.endswith("()")]
            if not self._is_guest:
                self.fencing.agreed += fact.outside
        self._take_up(facts(self._port.conversation.session.entries, Chosen)[-1:])

    def _take_up(self, kept: list[Chosen]) -> None:
        """Be as strict as a client wanted this session to be, unless the user has said otherwise at the start."""
        rules, given, session = self._rules, self._given, self._port.conversation.session
        for one in kept:
            rules.restrict(one.mode if self._of_server or given.mode is None else None, one.ask, one.deny)
            if self._of_server or given.sandbox.level is None:
                self.fencing.restrict(one.sandbox, self._port.resources)
            self.tools, self.max_turns = self.tools or one.tools, self.max_turns or one.max_turns
        if not kept and all(entry.type != "message" for entry in session.entries):
            self._keep_choices()  # a new session of this agent

    def _keep_choices(self) -> None:
        """Write what clients have chosen into the session, if it is news."""
        session, client = self._port.conversation.session, self._rules.client
        chosen = Chosen(
            client.mode, [*client.ask], [*client.deny], self.fencing.client.level, self.tools, self.max_turns
        )
        if chosen != (facts(session.entries, Chosen) or [Chosen()])[-1]:
            self._port.hub.publish(EntryAppended(keep(session, chosen).value))

    def configure(
        self,
        *,
        sandbox: SandboxChoice | None = None,
        check_place: Callable[[str], None] = lambda path: None,
        **given: str | Sequence[str] | None,
    ) -> None:
        """Set a client's mode, lists and sandbox; None leaves a value as it is. Raises `AgentError`, changing nothing.

        `check_place` raises `AgentError` for a folder that no client may write.
        """
        rules, before, fenced = self._rules, self._rules.client, self.fencing.client
        set_now: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        rules.client = msgspec.structs.replace(before, **set_now)
        try:
            rules.policy()
            if sandbox is not None:
                self.fencing.configure(sandbox, self._port.conversation.session.cwd, check_place)
                self.sandbox()
        except AgentError:
            rules.client = before
            self.fencing.forget(fenced)
            raise
        self._keep_choices()

    def ask_about(self, *, tools: bool, max_turns: int | None) -> None:
        """Ask the user before every tool call, or after so many model calls, besides the questions of permissions."""
        self.tools, self.max_turns = tools, max_turns
        self._keep_choices()
        self._port.hub.publish(StateChanged())

    @property
    def _workdir(self) -> str:
        return self._port.resources.workdir(self._port.conversation.session.cwd)

    def sandbox(self) -> "Sandbox | NoSandbox":
        """Return the sandbox of the session as it is now. Raises `AgentError` if there can be none."""
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        if resources.far is not None:
            self.fencing.check_far(resources.far.command, resources)
        made = self.fencing.sandbox(resources, cwd, self._rules.policy)
        made.bind(self._is_outside, self._ask_outside)
        return made

    def sandbox_for(self, level: SandboxLevel = "off") -> "Wanted | None":
        """Return the sandbox that another program of the session should have, of at least this level."""
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        if level == self.fencing.level(resources) == "off":
            return None
        return self.fencing.wanted(resources, cwd, self._rules.policy(), level)

    def end_sandbox(self, owner: object) -> None:
        """Give the sandbox up, with a last look at files that processes of `owner` may have changed."""
        self.fencing.close(owner, lambda text: self._port.hub.publish(Notice(text)))

    def _is_outside(self, command: str) -> bool:
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        return self.fencing.has_outside_rules(resources) and self.fencing.outside(command, cwd, resources)[0]

    @property
    def mode(self) -> str:
        return self._rules.mode

    def state(self, tool: str | None = None, arguments: Any = None, effect: Effect | None = None) -> PermissionState:
        """Return mode and rules, and the decision about a call if a tool is given."""
        policy = self._rules.policy()
        decision = None if tool is None else self._decide(tool, arguments, effect)
        rules = [] if policy is None else [RuleInfo(rule.behavior, rule.text, rule.source) for rule in policy.rules]
        return PermissionState(mode=self.mode, rules=rules, decision=decision)

    # -- the hook's side -------------------------------------------------------------------------

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, UserMessage):
            self._turns = 0

    async def before_turn(self) -> bool:
        if self.max_turns is not None and self._turns >= self.max_turns:
            if not await self._confirm_turns():
                return False
            self._turns = 0
        self._turns += 1
        self._rules.tell_unknown()
        return True

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        policy = self._rules.policy()
        if directories := self._rules.client.directories:
            system_prompt += f"\n\nAlso part of the workspace: {', '.join(directories)}"
        planning = policy is not None and policy.mode == "plan"
        return messages, f"{system_prompt}\n\n{PLAN}" if planning else system_prompt

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        chain = self._port.chain
        assert chain is not None
        if chain.structured is not None and tool is chain.structured.tool:
            return args  # the call hands in the result of the run
        try:
            permitted = await self._permitted(chain, call_id, tool, args)
        except Blocked as blocked:
            self._used(chain, call_id, Deny(str(blocked)))
            raise
        self._used(chain, call_id, UNSET)
        return permitted

    def _used(self, chain: Chain, call_id: str, answer: Deny | UnsetType) -> None:
        """Note that the question about a call, if it is kept, is over: the call runs now, or is refused."""
        if (question := chain.questions.pop(call_id, None)) is not None:
            question.used(self._port.conversation.session, answer)

    async def _permitted(self, chain: Chain, call_id: str, tool: Tool, args: Any) -> Any:
        """Return the arguments that the call may run with. Raises `Blocked`, `Held`."""
        decision = await self._decided(tool.name, args)
        kept = chain.questions.get(call_id)
        is_answered = kept is not None and kept.answer is not UNSET
        if decision.behavior == "allow" and chain.id != self._stopped and not is_answered:
            return args
        denial = Denial(tool.name, args, decision.rule)
        if chain.id == self._stopped:
            denial.by, denial.reason = "user", f"This call of {tool.name} did not run: the user has stopped the run."
            return self._refused(chain.meter, call_id, denial, terminate=True)
        if decision.behavior == "deny":
            denial.by = "rule" if decision.rule else "mode"
            denial.reason = f"Permission denied: this call of {tool.name} is refused by {why(decision)}."
            return self._refused(chain.meter, call_id, denial)
        try:
            verdict = await self._verdict(decision, call_id, tool, args)
        except Blocked as blocked:
            denial.by, denial.reason = "user", str(blocked)
            return self._refused(chain.meter, call_id, denial, terminate=blocked.terminate)
        answer = verdict.answer
        if isinstance(answer, Deny):
            denial.by, denial.error = verdict.by, verdict.error
            denial.reason = refusal(tool.name, why(decision), verdict)
            if verdict.exception is not None and chain.run is not None:
                chain.run.exceptions.append(verdict.exception)
            if answer.stop:
                self._stop(chain)
            return self._refused(chain.meter, call_id, denial, terminate=answer.stop)
        if answer.keep is not None:
            await self._allow(list(answer.rules), answer.keep)
        if answer.input is UNSET:
            return args
        self._changed.add(call_id)
        return answer.input

    def _stop(self, chain: Chain) -> None:
        self._stopped, chain.meter.stopped = chain.id, chain.meter.stopped or STOPPED

    def was_changed(self, call_id: str) -> bool:
        if call_id not in self._changed:
            return False
        self._changed.remove(call_id)
        return True

    async def _decided(self, tool: str, arguments: Any) -> Decision:
        from spindle.agent.fences.links import with_links

        decision, links = await with_links(self._port.resources.far, lambda: self._decide(tool, arguments))
        if tool == "grep":  # it asks again for each file that it finds
            self._links = links
        return decision

    def may_read(self, path: str) -> bool:
        policy = self._rules.policy()
        if policy is None:
            return True
        from spindle.agent.fences.rules import decide

        links = None if self._port.resources.far is None else self._links
        with links or nullcontext():
            return decide(policy, "read", {"path": path}).behavior != "deny"

    async def unreadable(self, paths: Sequence[str]) -> set[str]:
        """Return those of some absolute paths that no call may read. Raises `ToolError` if the pipe breaks."""
        if (policy := self._rules.policy()) is None:
            return set()
        from spindle.agent.fences.links import with_links
        from spindle.agent.fences.rules import decide

        def decided() -> set[str]:
            return {path for path in paths if decide(policy, "read", {"path": path}).behavior == "deny"}

        return (await with_links(self._port.resources.far, decided))[0]

    def _decide(self, tool: str, arguments: Any, effect: Effect | None = None) -> Decision:
        asked = self.tools or self._options.ask_before_tools
        policy = self._rules.policy(even_if_all_allowed=asked)
        if policy is None:
            return Decision("allow")
        from spindle.agent.fences.rules import decide

        found = self._port.offered_tools().get(tool) or self._port.toolbox.hidden(tool)
        names = [(tool, effect if found is None else found.effect)]
        if found is not None and found.also is not None and (other := found.also(arguments)) is not None:
            names.append(other)
        decisions = [decide(policy, n, arguments, ask=asked, effect=e, agreed=self._rules.kept) for n, e in names]
        return min(decisions, key=lambda decision: BEHAVIORS.index(decision.behavior))  # the strictest one

    def _refused(self, meter: Meter, call_id: str, denial: Denial, *, terminate: bool = False) -> NoReturn:
        """Take note of a denial. Raises `Blocked`."""
        self._note(meter, call_id, denial)
        raise Blocked(denial.reason, terminate=terminate, by=None)

    def _note(self, meter: Meter, call_id: str, denial: Denial) -> None:
        meter.denials.append(denial)
        tell_denial(self._port.hub.publish, call_id, denial)
        if meter.denials[-SAME_DENIALS:] == [denial] * SAME_DENIALS:
            meter.stopped = meter.stopped or STOPPED

    # -- questions -------------------------------------------------------------------------------

    @property
    def _is_guest(self) -> bool:
        """Whether the settings are not those of the user who is asked."""
        return self._port.resources.options.user_folder is not None

    @property
    def _options(self) -> RunOptions:
        """Options of the current run, which may say whom to ask."""
        return RunOptions() if self._port.chain is None else self._port.chain.options

    async def _verdict(self, decision: Decision, call_id: str, tool: Tool, args: Any, news: str = "") -> GivenAnswer:
        """Ask whether the call may run. Raises `Blocked`."""
        chain = self._port.chain
        assert chain is not None
        question = chain.questions.get(call_id)
        if question is not None and question.answer is not UNSET:
            answer = question.answer
            if isinstance(answer, Allow):
                if await self._is_outdated(question.request, answer, decision, tool, args):
                    del chain.questions[call_id]
                    return await self._verdict(decision, call_id, tool, args, OUTDATED)
                answer = await self._checked(question.request, tool, args, answer)
            return GivenAnswer(answer, "user")
        waits = self._may_wait(chain)
        if not waits and self.questions.reach_nobody(self._options):
            return GivenAnswer(Deny(), "nobody")
        from spindle.agent.fences.offers import offers  # most sessions ask nothing
        from spindle.agent.fences.previews import copied, summary_of

        given, far = copied(args), self._far
        preview = await self._preview(decision, tool, given)
        found = offers(list(decision.always), self._workdir, tool.name, args)
        request = self._request(
            tool_call_id=call_id,
            tool_name=tool.name,
            arguments=given,
            summary=summary_of(tool, args, preview, far),
            preview=preview,
            reason=why(decision) + news,
            rule=decision.rule,
            source=decision.source,
            may_destroy=tool.effect == "destroys",
            suggestions=[Suggestion(offer.text, offer.rules) for offer in found],
            keeps=self._keeps,
            waits=waits,
        )
        if question is not None:
            request.id = question.request.id
        elif waits:
            chain.questions[call_id] = asked(self._port.conversation.session, call_id, request)
        if waits and self.questions.reach_nobody(self._options):
            raise Held
        dialog = call_dialog(request, list(decision.always), plain=self.tools or self._options.ask_before_tools)
        verdict = await self.questions.ask(request, self._options, partial(self._checked, request, tool, args), dialog)
        if waits and verdict.by == "nobody":
            raise Held
        if (
            verdict.by == "user"
            and isinstance(verdict.answer, Allow)
            and await self._is_outdated(request, verdict.answer, decision, tool, args)
        ):
            chain.questions.pop(call_id, None)
            return await self._verdict(decision, call_id, tool, args, OUTDATED)
        return verdict

    @property
    def _far(self) -> str | None:
        far = self._port.resources.far
        return None if far is None else far.command

    async def _preview(self, decision: Decision, tool: Tool, given: Any) -> Preview:
        """Return what a call would do. `given`: a copy of its arguments."""
        from spindle.agent.fences.previews import preview_of
        from spindle.agent.fences.rules import NO_RULE

        return await preview_of(
            tool,
            given,
            self._port.tool_context(lambda result: None),
            level=self.fencing.level(self._port.resources),
            unsure=decision.reason if decision.reason not in ("", NO_RULE) else None,
            far=self._far,
        )

    async def _is_outdated(
        self, request: PermissionRequest, answer: Allow, decision: Decision, tool: Tool, args: Any
    ) -> bool:
        """Whether the yes is to the replacement of a file that is another one by now. (An edit looks for its text.)"""
        from spindle.agent.fences.previews import copied

        replaces = tool.name == "write" and answer.keep is None
        return replaces and await self._preview(decision, tool, copied(args)) != request.preview

    def _may_wait(self, chain: Chain) -> bool:
        """Whether a question about a call may outlive the process. Those of subagents may not: their runs do not."""
        is_own = SUBAGENT.get() is None and chain.options.inside is None
        return self._given.on_question == "wait" and is_own and self._port.conversation.session.is_kept

    def _request(
        self, kind: QuestionKind = "tool", *, timeout: int | None = None, waits: bool = False, **fields: Any
    ) -> PermissionRequest:
        chain, session = self._port.chain, self._port.conversation.session
        return PermissionRequest(
            id=str(uuid.uuid4()),
            kind=kind,
            waits=waits,
            session=session.id,
            run=None if chain is None else chain.id,
            subagent=SUBAGENT.get(),
            mode=self.mode,
            timeout=timeout or self._port.settings.permissions.ask_timeout_ms or None,
            **fields,
        )

    @property
    def _keeps(self) -> list[Keep]:
        """Where rules may be kept."""
        if self._is_guest:
            return ["session"]
        return ["session", "project", "user"] if self._port.resources.trust.trusted else ["session", "user"]

    async def _checked(self, request: PermissionRequest, tool: Tool, args: Any, answer: Allow) -> Allow:
        """Check a yes by schema and rules; the sandbox checks what runs. Raises `AgentError`, `ToolError`."""
        from spindle.agent.fences.rules import rules_of

        rules = rules_to_keep(request, answer)
        if self._is_guest:
            require_offered(request, rules)
        try:
            self._rules.check_names(rules_of("allow", rules, "answer"))
        except ValueError as error:
            raise AgentError(str(error)) from None
        wanted = args if answer.input is UNSET else input_of(answer)
        if is_changed := wanted != args:
            from spindle.tools.validate import checked_arguments

            wanted = await checked_arguments(tool, wanted)
        decision = await self._decided(tool.name, wanted)  # rules may be other ones by now
        if decision.behavior == "deny":
            raise AgentError(f"The {'changed ' * is_changed}input of {tool.name} is refused by {why(decision)}")
        return Allow(wanted if is_changed else UNSET, answer.keep, rules)

    async def check_kept(self, request: PermissionRequest, answer: Allow) -> None:
        """Check a yes to a question that waits in the session. Raises `AgentError`."""
        name = request.tool_name or ""
        tool = self._port.offered_tools().get(name)
        if tool is None:
            raise AgentError(f"There is no tool {name} now, so the call cannot run: deny it, or bring the tool back")
        try:
            await self._checked(request, tool, request.arguments, answer)
        except ToolError as error:
            raise AgentError(str(error)) from None

    async def answer(self, id: str, answer: Answer) -> None:
        """Answer an open question. Raises `AgentError` for an answer that makes no sense; the question stays open."""
        await self.questions.answer(id, answer)

    async def confirm(self, kind: QuestionKind, title: str, message: str, **fields: Any) -> bool | None:
        """Ask a yes-or-no question that is not about a call. None: there is no answer."""
        preview = TextPreview(text=message) if message else None
        request = self._request(kind, summary=title, preview=preview, **{"tool_call_id": CALL.get(), **fields})
        dialog = Dialog(title, message=message)
        given = await self.questions.ask(request, self._options, partial(unchanged, request), dialog)
        return None if given.by in ("nobody", "error") else isinstance(given.answer, Allow)

    @property
    def reaches_nobody(self) -> bool:
        """Whether no user can be asked."""
        return not self._dialogs.has_ui

    async def ask_for_trust(self, title: str, message: str) -> Answer | None:
        """Ask whether the project is trusted. None: there is no answer.

        Nobody has asked for this question, so clients that know only dialogs do not get it.
        """
        keeps: list[Keep] = ["user"]
        request = self._request("trust", summary=title, preview=TextPreview(text=message), keeps=keeps)
        given = await self.questions.ask(request, RunOptions(), partial(plain_yes, request), None)
        return None if given.by in ("nobody", "error") else given.answer

    async def _confirm_turns(self) -> bool:
        message = f"The model has been called {self._turns} times in a row."
        fields = {"arguments": {"turns": self._turns}, "reason": message}
        return await self.confirm("turns", "Go on?", message, **fields) is True

    async def _ask_outside(self, command: str, reason: str) -> bool:
        """Ask whether a command that the sandbox has stopped may run again without it."""
        if self.mode == "dontAsk" or self._is_guest or self.questions.reach_nobody(self._options):
            return False
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        always = self.fencing.outside(command, cwd, resources)[1]
        fields, dialog = outside_question(command, reason, always, self._workdir, self.fencing.level(resources))
        timeout = self._port.settings.permissions.ask_timeout_ms or int(OUTSIDE_ANSWER * 1000)
        request = self._request(timeout=timeout, tool_call_id=CALL.get(), **fields)
        denial = Denial(OUTSIDE, {"command": command, "stoppedBy": reason}, by="user")
        try:
            verdict = await self.questions.ask(request, self._options, partial(unchanged, request), dialog)
        except Blocked as blocked:
            verdict = GivenAnswer(Deny(str(blocked), stop=blocked.terminate), "user")
        answer, chain = verdict.answer, self._port.chain
        if isinstance(answer, Allow):
            if answer.keep is not None:
                self.fencing.agreed += answer.rules
                setting = "sandbox.outside" if answer.keep == "user" else None
                await self._keep(Agreed(outside=list(answer.rules)), setting)
            return True
        if chain is not None:
            denial.by, denial.error = verdict.by, verdict.error
            denial.reason = refusal(OUTSIDE, request.reason, verdict)
            self._note(chain.meter, request.tool_call_id or "", denial)
            if answer.stop:
                self._stop(chain)
        return False

    def give_up(self) -> None:
        """Answer open questions with no: there is no client to answer them."""
        self.questions.give_up()

    async def _allow(self, rules: list[str], keep: Keep) -> None:
        self._rules.kept += rules
        setting = None if keep == "session" else "permissions.allow"
        await self._keep(Agreed(allow=rules), setting, project=keep == "project")

    async def _keep(self, agreed: Agreed, setting: str | None, *, project: bool = False) -> None:
        """Write rules that the user has agreed to into the session, and perhaps into a setting."""
        self._port.hub.publish(EntryAppended(keep(self._port.conversation.session, agreed).value))
        if setting is not None:
            rules = agreed.allow or agreed.outside
            try:
                await asyncio.to_thread(self._port.resources.store.add, setting, rules, project=project)
            except (BadFile, OSError) as error:
                self._port.hub.publish(ExtensionError("", "permissions", str(error)))
