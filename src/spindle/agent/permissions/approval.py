"""Decides about the tool calls of a session, by its permissions or by asking the user, and counts refusals.

It also asks when a run gets long. A question goes to the client of the request (`RunOptions.ask`), else to the program
that holds the agent (`can_use_tool`), else to a dialog. A question that reaches no user counts as a no.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.permissions.fencing import Fencing
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import ApprovalRequest, Chain, RunOptions
from spindle.agent.toolbox import Toolbox
from spindle.base import trace
from spindle.base.limits import OUTSIDE_ANSWER
from spindle.base.settings import Permissions, Settings
from spindle.base.user_files import BadFile
from spindle.resources.loader import Resources
from spindle.shapes.builtin_tools import Effect
from spindle.shapes.codec import encode
from spindle.shapes.events import (
    Behavior,
    Decision,
    Denial,
    EntryAppended,
    Event,
    ExtensionError,
    ExtensionUIRequest,
    Notice,
    PermissionDenied,
)
from spindle.shapes.messages import AgentMessage, UserMessage, Wire
from spindle.shapes.sandbox import SandboxChoice, SandboxLevel, SandboxOptions
from spindle.tools.base import Tool

if TYPE_CHECKING:
    from spindle.agent.permissions.links import FarLinks
    from spindle.agent.permissions.rules import Policy, Rule
    from spindle.tools.sandbox import Sandbox, Wanted

ENTRY = "spindle.permissions"
"""Type of the custom entries with the rules of a session."""
SAME_DENIALS = 3
"""Equal refusals in a row that end the run."""
BEHAVIORS: tuple[Behavior, ...] = ("deny", "ask", "allow")
"""In the order in which rules are tried."""
ONCE, DENY = "Allow once", "Deny"
SAVED = "(in all sessions)"
OUTSIDE = "bash outside of the sandbox"
"""Stands for the tool in a question about a command that the sandbox has stopped."""
PLAN = (
    "<plan_mode>\nPlan mode is on: you may only read. Every other tool call is refused. Look around, then answer with "
    "a plan of what you would do; do not try to change anything.\n</plan_mode>"
)

CanUseTool = Callable[[str, Any], Awaitable[bool | str]]
"""Takes a tool's name and arguments. Returns true for yes; a text is a no with its reason."""


class PermissionOptions(Struct, frozen=True):
    """Permissions as a command line, a program or a client sets them."""

    mode: str | None = None
    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    can_use_tool: CanUseTool | None = None
    """Answers questions. With it the mode is `default` unless another one is set."""
    directories: Sequence[str] = ()
    """Folders that count as part of the working directory; the model is told of them."""
    sandbox: SandboxOptions = SandboxOptions()


class RuleInfo(Wire):
    behavior: str
    rule: str
    source: str


class PermissionState(Wire, kw_only=True):
    mode: str
    rules: list[RuleInfo]
    """By behavior, in the order in which they are tried."""
    decision: Decision | None = None
    """The decision about the call in the request."""


class ApprovalPort(Protocol):
    """What approval needs of the engine."""

    conversation: Conversation
    resources: Resources
    chain: Chain | None
    toolbox: Toolbox
    may_read: Callable[[str], bool]
    sandbox: Callable[[], "Sandbox | None"]

    @property
    def settings(self) -> Settings: ...

    def offered_tools(self) -> dict[str, Tool]: ...

    def publish(self, event: Event) -> None: ...


class Approval(Hooks):
    of_the_owner = True

    def __init__(self, port: ApprovalPort, dialogs: Dialogs, given: PermissionOptions) -> None:
        self._port = port
        self._dialogs = dialogs
        self._given = given
        self._client = PermissionOptions()
        """Permissions as a client has set them."""
        self._kept: list[str] = []
        """Rules that the user has agreed to in this session."""
        self._asking: set[asyncio.Timeout] = set()
        """Time limits of open questions."""
        self.tools = False
        """Whether to ask before every tool call."""
        self.max_turns: int | None = None
        """Model calls in a row after which to ask."""
        self._turns = 0
        """Model calls since the user last agreed, or sent a message."""
        self._told: set[str] = set()
        """Rules of which the user was told that they name no tool."""
        self._links: FarLinks | None = None
        """What the far side told when `grep` was decided about."""
        self.fencing = Fencing(given.sandbox)
        port.may_read, port.sandbox = self.may_read, self.sandbox
        self.rebuild()
        self.policy()
        self.sandbox()

    # -- setup -----------------------------------------------------------------------------------

    def rebuild(self) -> None:
        self._kept, self.fencing.agreed = [], []
        for entry in self._port.conversation.session.entries:
            if entry.type == "custom" and ENTRY.encode() in entry.raw:
                data = entry.value.get("data")
                if entry.value.get("customType") == ENTRY and isinstance(data, dict):
                    self._kept += [
                        rule for rule in data.get("allow") or () if isinstance(rule, str) and not rule.endswith("()")
                    ]
                    if not self._is_guest:
                        self.fencing.agreed += [rule for rule in data.get("outside") or () if isinstance(rule, str)]

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
        before, fenced = self._client, self.fencing.client
        set_now: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._client = msgspec.structs.replace(before, **set_now)
        try:
            self.policy()
            if sandbox is not None:
                self.fencing.configure(sandbox, self._port.conversation.session.cwd, check_place)
                self.sandbox()
        except AgentError:
            self._client = before
            self.fencing.forget(fenced)
            raise

    @property
    def _workdir(self) -> str:
        return self._port.resources.workdir(self._port.conversation.session.cwd)

    def sandbox(self) -> "Sandbox | None":
        """Return the sandbox of the session as it is now; None: it is off. Raises `AgentError` if there can be none."""
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        if resources.far is not None:
            self.check_far(resources.far.command, resources)
        if self.fencing.level(resources) == "off":
            return self.fencing.sandbox(resources, cwd, None)
        made = self.fencing.sandbox(resources, cwd, self.policy())
        if made is not None:
            made.is_outside, made.ask = self._is_outside, self._ask_outside
        return made

    def check_far(self, command: str, resources: Resources) -> None:
        """Raise `AgentError` if tools must not work at a far side, because there is to be a sandbox."""
        if (level := self.fencing.level(resources)) != "off":
            raise AgentError(
                f'The sandbox ("{level}") fences programs of this machine, and tools work at the far side of '
                f"`{command}`: fence them there, and set the sandbox to off"
            )

    def sandbox_for(self, level: SandboxLevel = "off") -> "Wanted | None":
        """Return the sandbox that another program of the session should have, of at least this level."""
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        if level == self.fencing.level(resources) == "off":
            return None
        return self.fencing.wanted(resources, cwd, self.policy(), level)

    def end_sandbox(self, owner: object) -> None:
        """Give the sandbox up, with a last look at files that processes of `owner` may have changed."""
        self.fencing.close(owner, lambda text: self._port.publish(Notice(text)))

    def _is_outside(self, command: str) -> bool:
        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        return self.fencing.has_outside_rules(resources) and self.fencing.outside(command, cwd, resources)[0]

    def policy(self, *, even_if_all_allowed: bool = False) -> "Policy | None":
        """Return the current policy; None: everything is allowed. Raises `AgentError` for invalid rules."""
        store, given, client = self._port.resources.store, self._given, self._client
        user, project = _settings(store.user, "user settings"), _settings(store.project, "project settings")
        sources: list[tuple[str, Permissions | PermissionOptions]] = [
            ("user settings", user),
            ("project settings", project),
            ("command line" if given.can_use_tool is None else "program", given),
            ("client", client),
        ]
        mode = client.mode or given.mode or project.default_mode or user.default_mode
        mode = mode or ("bypass" if given.can_use_tool is None else "default")
        no_rules = not self._kept and not any(s.allow or s.ask or s.deny for _, s in sources)
        if mode == "bypass" and no_rules and not even_if_all_allowed:
            return None
        from spindle.agent.permissions.rules import Policy, mode_named, rules_of  # most sessions need no rules

        try:
            rules = [
                rule
                for behavior in BEHAVIORS
                for name, source in sources
                for rule in rules_of(behavior, getattr(source, behavior), name)
            ]
            rules += rules_of("allow", self._kept, "this session")
            self._check_names(rules)
            return Policy(
                self._workdir,
                mode_named(mode),
                rules,
                [*user.additional_directories, *project.additional_directories, *client.directories],
                [str(skill.path.parent) for skill in self._port.resources.skills],
            )
        except ValueError as error:
            raise AgentError(str(error)) from None

    def _check_names(self, rules: "list[Rule]") -> None:
        """Raise `AgentError` for a rule whose tool is a slip of a built-in one: it would hold for nothing."""
        from spindle.agent.permissions.rules import misspelt

        for rule in rules:
            if (meant := misspelt(rule.tool)) and all(
                tool.name.lower() != rule.tool for tool in self._port.toolbox.all()
            ):
                raise AgentError(
                    f'Not a permission rule ({rule.source}): "{rule.text}": there is no such tool. Did you mean '
                    f"{meant.capitalize()}?"
                )

    def _tell_unknown(self) -> None:
        """Tell the user about rules that name no tool. Tools of hosts, extensions and servers are known by now."""
        policy = self.policy()
        if policy is None or not policy.rules:
            return
        from spindle.agent.permissions.rules import unknown_tools

        unknown = unknown_tools(policy.rules, (tool.name for tool in self._port.toolbox.all()))
        new = [text for text in dict.fromkeys(unknown) if text not in self._told]
        if new:
            self._told.update(new)
            self._port.publish(Notice(f"These permission rules hold for no tool that there is: {', '.join(new)}"))

    @property
    def mode(self) -> str:
        policy = self.policy()
        return "bypass" if policy is None else policy.mode

    def state(self, tool: str | None = None, arguments: Any = None, effect: Effect | None = None) -> PermissionState:
        """Return mode and rules, and the decision about a call if a tool is given."""
        policy = self.policy()
        decision = None if tool is None else self._decide(tool, arguments, effect)
        rules = [] if policy is None else [RuleInfo(rule.behavior, rule.text, rule.source) for rule in policy.rules]
        return PermissionState(mode=self.mode, rules=rules, decision=decision)

    # -- the hook's side -------------------------------------------------------------------------

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, UserMessage):
            self._turns = 0

    async def before_turn(self) -> bool:
        if self.max_turns is not None and self._turns >= self.max_turns:
            if not await self._confirm(ApprovalRequest(turns=self._turns)):
                return False
            self._turns = 0
        self._turns += 1
        self._tell_unknown()
        return True

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        policy = self.policy()
        if self._client.directories:
            system_prompt += f"\n\nAlso part of the workspace: {', '.join(self._client.directories)}"
        planning = policy is not None and policy.mode == "plan"
        return messages, f"{system_prompt}\n\n{PLAN}" if planning else system_prompt

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        chain = self._port.chain
        assert chain is not None
        if chain.structured is not None and tool is chain.structured.tool:
            return args  # the call hands in the result of the run
        decision = await self._decided(tool.name, args)
        if decision.behavior == "allow":
            return args
        try:
            refusal = await self._refusal(decision, call_id, tool, args)
        except Blocked as blocked:
            self._refused(chain.meter, call_id, Denial(tool.name, args, decision.rule, str(blocked)))
            raise
        if refusal is not None:
            self._refused(chain.meter, call_id, Denial(tool.name, args, decision.rule, refusal))
            raise Blocked(refusal)
        return args

    async def _decided(self, tool: str, arguments: Any) -> Decision:
        from spindle.agent.permissions.links import with_links

        decision, links = await with_links(self._port.resources.far, lambda: self._decide(tool, arguments))
        if tool == "grep":  # it asks again for each file that it finds
            self._links = links
        return decision

    def may_read(self, path: str) -> bool:
        policy = self.policy()
        if policy is None:
            return True
        from spindle.agent.permissions.rules import decide

        links = None if self._port.resources.far is None else self._links
        with links or nullcontext():
            return decide(policy, "read", {"path": path}).behavior != "deny"

    def _decide(self, tool: str, arguments: Any, effect: Effect | None = None) -> Decision:
        asked = self.tools or self._options.ask_before_tools
        policy = self.policy(even_if_all_allowed=asked)
        if policy is None:
            return Decision("allow")
        from spindle.agent.permissions.rules import decide

        found = self._port.offered_tools().get(tool)
        names = [(tool, effect if found is None else found.effect)]
        if found is not None and found.also is not None and (other := found.also(arguments)) is not None:
            names.append(other)
        decisions = [decide(policy, n, arguments, ask=asked, effect=e, agreed=self._kept) for n, e in names]
        return min(decisions, key=lambda decision: BEHAVIORS.index(decision.behavior))  # the strictest one

    def _refused(self, meter: Meter, call_id: str, denial: Denial) -> None:
        meter.denials.append(denial)
        said = (
            {"arguments": denial.arguments, "rule": denial.rule, "error_text": denial.reason} if trace.content else {}
        )
        trace.tell("denial", tool=denial.tool_name, call=call_id, **said)
        self._port.publish(PermissionDenied(call_id, denial.tool_name, denial.arguments, denial.rule, denial.reason))
        if meter.denials[-SAME_DENIALS:] == [denial] * SAME_DENIALS:
            meter.stopped = meter.stopped or "denied"

    # -- questions -------------------------------------------------------------------------------

    @property
    def _is_guest(self) -> bool:
        """Whether the settings are not those of the user who is asked."""
        return self._port.resources.options.user_folder is not None

    @property
    def _options(self) -> RunOptions:
        """Options of the current run, which may say whom to ask."""
        return RunOptions() if self._port.chain is None else self._port.chain.options

    async def _refusal(self, decision: Decision, call_id: str, tool: Tool, args: Any) -> str | None:
        """Return why the call must not run, as the model should read it; None: the user agreed. Raises `Blocked`."""
        why = f"rule {decision.rule} of the {decision.source}" if decision.rule else decision.reason
        if decision.behavior == "deny":
            return f"Permission denied: this call of {tool.name} is refused by {why}."
        no = f"The user did not allow this call of {tool.name} ({why})."
        question = ApprovalRequest(tool, args)
        if self._options.ask is not None:
            return None if await self._options.ask(question) else no
        if self._given.can_use_tool is not None:
            answer = await self._given.can_use_tool(tool.name, args)
            return None if answer is True else answer if answer and isinstance(answer, str) else no
        from spindle.agent.permissions.offers import offers  # most sessions ask nothing

        always, cwd = list(decision.always), self._workdir
        rules = {offer.text: offer.rules for offer in offers(always, cwd, tool.name, args)}
        about: dict[str, Any] = {"tool_call_id": call_id, "always": always or None}
        if self.tools or self._options.ask_before_tools:
            about |= {"title": _title(question), "message": _text(question), "offers": list(rules) or None}
            return await self._confirmed(await self._dialog(method="confirm", **about) or {}, rules, no)
        saved = {f"{next(iter(rules))} {SAVED}": always} if always and not self._is_guest else {}
        title = f"Allow {tool.name}{' (may destroy data)' if tool.effect == 'destroys' else ''}? {_text(question)}"
        options = [ONCE, *rules, *saved, DENY]
        given = await self._dialog(method="select", title=title, options=options, **about)
        if given is None:
            return f"Permission denied: this call of {tool.name} needs a yes ({why}), and there is no answer."
        return await self._chosen(given, rules, saved, no)

    async def _confirmed(self, given: dict[str, Any], rules: dict[str, list[str]], no: str) -> str | None:
        """Apply the reply to a yes-or-no question. Returns the refusal; None: the user agreed."""
        if given.get("confirmed") is not True:
            return _with_reason(no, given)
        always = given.get("always")
        chosen = next(iter(rules), None) if always is True else always
        if isinstance(chosen, str) and chosen in rules:
            await self._allow(rules[chosen], everywhere=False)
        return None

    async def _chosen(
        self, given: dict[str, Any], rules: dict[str, list[str]], saved: dict[str, list[str]], no: str
    ) -> str | None:
        """Apply the reply to a question with choices; those in `saved` are for all sessions. Returns the refusal."""
        chosen = given.get("value")
        if isinstance(chosen, str) and (agreed := rules.get(chosen) or saved.get(chosen)):
            await self._allow(agreed, everywhere=chosen in saved)
            return None
        return None if chosen == ONCE else _with_reason(no, given)

    async def _confirm(self, question: ApprovalRequest) -> bool:
        if self._options.ask is not None:
            return await self._options.ask(question)
        answer = await self._dialog(method="confirm", title=_title(question), message=_text(question))
        return answer is not None and answer.get("confirmed") is True

    async def _dialog(self, timeout: int | None = None, **fields: Any) -> dict[str, Any] | None:
        timeout = timeout or self._port.settings.permissions.ask_timeout_ms
        request = ExtensionUIRequest(id=str(uuid.uuid4()), timeout=timeout or None, **fields)
        limit = asyncio.timeout(None)
        self._asking.add(limit)
        try:
            async with limit:
                return await self._dialogs.ask(request)
        except TimeoutError:
            return None
        finally:
            self._asking.discard(limit)

    async def _ask_outside(self, command: str, reason: str) -> bool:
        """Ask whether a command that the sandbox has stopped may run again without it."""
        arguments = {"command": command, "stoppedBy": reason}
        if self.mode == "dontAsk" or self._is_guest:
            return False
        if self._options.ask is not None:
            found = self._port.offered_tools().get("bash")
            tool = None if found is None else msgspec.structs.replace(found, name=OUTSIDE)
            return await self._options.ask(ApprovalRequest(tool, arguments))
        if self._given.can_use_tool is not None:
            return await self._given.can_use_tool(OUTSIDE, arguments) is True
        from spindle.agent.permissions.offers import ALWAYS

        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        always = self.fencing.outside(command, cwd, resources)[1]
        words = f"{ALWAYS} {', '.join(always)} outside"
        offers = [words, f"{words} {SAVED}"] if always else []
        title = f"Run it outside of the sandbox? {command}\n({reason})"
        timeout = self._port.settings.permissions.ask_timeout_ms or int(OUTSIDE_ANSWER * 1000)
        given = await self._dialog(
            timeout, method="select", title=title, options=[ONCE, *offers, DENY], always=always or None
        )
        chosen = (given or {}).get("value")
        if chosen in offers:
            self.fencing.agreed += always
            await self._keep({"outside": always}, "sandbox.outside" if chosen in offers[1:] else None)
        return chosen == ONCE or chosen in offers

    def give_up(self) -> None:
        """Answer open questions with no: there is no client to answer them."""
        for limit in self._asking:
            limit.reschedule(asyncio.get_running_loop().time())

    async def _allow(self, rules: list[str], *, everywhere: bool) -> None:
        self._kept += rules
        await self._keep({"allow": rules}, "permissions.allow" if everywhere else None)

    async def _keep(self, agreed: dict[str, list[str]], setting: str | None) -> None:
        """Write rules that the user has agreed to into the session, and perhaps into a setting."""
        session = self._port.conversation.session
        if entry := session.entry(session.append_custom(ENTRY, agreed)):
            self._port.publish(EntryAppended(entry.value))
        if setting is not None:
            (rules,) = agreed.values()
            try:
                await asyncio.to_thread(self._port.resources.store.add, setting, rules)
            except (BadFile, OSError) as error:
                self._port.publish(ExtensionError("", "permissions", str(error)))


_NO_PERMISSIONS = Permissions()


def _settings(raw: dict[str, Any], source: str) -> Permissions:
    given = raw.get("permissions")
    if not given:
        return _NO_PERMISSIONS
    try:
        return msgspec.convert(given, Permissions)
    except msgspec.ValidationError as error:
        raise AgentError(f"permissions in the {source}: {error}") from None


def _with_reason(no: str, given: dict[str, Any]) -> str:
    """Add the user's reason, if there is one."""
    reason = given.get("reason")
    return f"{no} They said: {reason.strip()}" if isinstance(reason, str) and reason.strip() else no


def _title(question: ApprovalRequest) -> str:
    return "Go on?" if question.tool is None else f"Allow {question.tool.name}?"


def _text(question: ApprovalRequest) -> str:
    if question.tool is None:
        return f"The model has been called {question.turns} times in a row."
    if isinstance(question.arguments, dict) and len(question.arguments) == 1:
        (value,) = question.arguments.values()
        if isinstance(value, str):
            return value  # a lone text is shown as it is
    return encode(question.arguments).decode()
