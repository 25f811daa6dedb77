"""Subagents: the tool `task` gives a task to another agent in this process, and returns its answer.

A subagent has a session of its own, whose file lies in a folder beside the file of the session that it works for. It
has no `task`. `agent/features/lending.py` has what it borrows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, TypeAlias
from weakref import proxy

from msgspec import UNSET
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.hooks import Blocked, Hooks, NeverFull
from spindle.agent.run.handle import Run
from spindle.agent.run.record import WorksFor
from spindle.agent.run.result import SubagentReport, report_of
from spindle.agent.session import AgentSession
from spindle.agent.toolbox import Toolbox
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks, Turnstile
from spindle.models.select import ModelChoice, as_level, parse_pattern
from spindle.resources.agent_files import AgentDefinition, load_agents
from spindle.resources.loader import Resources
from spindle.sessions import open as sessions
from spindle.sessions.entries import SessionError
from spindle.sessions.facts import keep
from spindle.sessions.session import Session
from spindle.shapes.builtin_tools import TASK_TOOL
from spindle.shapes.codec import encode, to_builtins
from spindle.shapes.events import Event, Notice, ToolExecutionStart, ToolResult, TurnStart
from spindle.shapes.model import Model
from spindle.shapes.run_result import RunResult
from spindle.shapes.tool_lists import bare, chosen, is_change, matches, may_match, over
from spindle.tools.base import Tool, ToolContext, ToolError, arguments, text_result
from spindle.tools.truncate import truncate_head

SUBAGENT = "subagent"
"""The mode of an agent that is one."""
_INHERIT = ("", "inherit", "default")
_WIDTH = 60
_ABOUT = (
    "Give a separate, large task to a subagent with its own context. Calls in one answer run side by side. "
    "Agents: general (your tools), explore (only reads)"
)

MakeAgent: TypeAlias = Callable[
    [Session, Resources, ModelChoice, Sequence[Tool], Sequence[str | Model] | None], Awaitable[AgentSession]
]
"""Makes a subagent, with the models that answer when its own cannot. Raises `AgentError`."""


class Subagents:
    """The `Plugins` of an agent that let it have subagents."""

    def __init__(
        self, toolbox: Toolbox, make: MakeAgent, warn: Callable[[str], None], given: Sequence[AgentDefinition] = ()
    ) -> None:
        self._toolbox: Toolbox = proxy(toolbox)  # whose tool holds this object
        self._make = make
        self._warn = warn
        self._given = {one.name: one for one in given}
        """Definitions of a program; they come before those of files."""
        self._agent: AgentSession | None = None
        """The agent that the subagents work for."""
        self._definitions: dict[str, AgentDefinition] = {}
        """By name."""
        self._told: set[str] = set()
        """Definitions whose unknown tools were told."""
        self._making = Turnstile(0.003)
        """There may be a hundred calls in one answer, and other clients wait."""
        self._places: AbstractAsyncContextManager[None] = nullcontext()
        """As many as may work at a time; further calls wait for their turn."""
        self._ending = Tasks()
        """Subagents that were stopped and come to their end."""

    # -- as plugins ------------------------------------------------------------------------------

    async def load(self, resources: Resources, builtin: Callable[[str], Tool | None], mode: str) -> None:
        if self._toolbox.wants(TASK_TOOL):
            self._definitions, problems = load_agents(
                resources.cwd, agent_dir(), project_trusted=resources.trust.trusted
            )
            for problem in problems:
                self._warn(str(problem))
            self._definitions |= self._given

    def bind(self, agent: AgentSession, reason: str = "startup", previous: str | None = None) -> None:
        self._agent = agent
        if most := agent.resources.settings.max_subagents:
            self._places = asyncio.Semaphore(most)
        if self._toolbox.wants(TASK_TOOL):  # otherwise a client may have a tool of this name
            self._toolbox.add(self._tool())

    async def begin(self) -> None: ...

    async def leave(self, reason: str, target: str | None = None) -> None: ...

    async def close(self) -> None:
        await self._ending.join(limits.RUN_END)

    def _tool(self) -> Tool:
        lines = [
            f"- {one.name}: {one.summary}" for one in self._definitions.values() if one.path is not None or one.given
        ]
        return Tool(
            TASK_TOOL,
            "\n".join([_ABOUT, *lines]),
            arguments(
                "prompt",
                agent="Default: general",
                prompt="All that it must know",
                schema=("object", "If it must answer in JSON: the JSON Schema"),
            ),
            self._execute,
            label=TASK_TOOL,
            prepare=_with_our_names,
            offered=self._is_offered,
        )

    def _is_offered(self) -> bool:
        model = None if self._agent is None else self._agent.model
        return model is None or not model.small or self._toolbox.only_named

    # -- one call --------------------------------------------------------------------------------

    async def _execute(self, call_id: str, args: dict[str, Any], context: ToolContext) -> ToolResult:
        agent = self._agent
        assert agent is not None
        definition = self._find(args.get("agent") or "general")
        async with self._places:
            return await self._work(agent, definition, call_id, args, context)

    async def _work(
        self, agent: AgentSession, definition: AgentDefinition, call_id: str, args: dict[str, Any], context: ToolContext
    ) -> ToolResult:
        await self._making.turn()
        choice = _model(definition, agent)
        try:
            fence = _Fence(definition, agent.resources, agent.workdir) if definition.has_patterns else None
            session = _session(agent, definition.name, call_id)
            tools = _tools(definition, self._toolbox)
            self._tell_unknown(definition, agent)
            if definition.tools and not tools:
                agent.publish(Notice(f'The subagent "{definition.name}" has no tools: its definition leaves none'))
            subagent = await self._make(session, _unattended(agent.resources), choice, tools, agent.models.fallback)
        except (AgentError, SessionError) as error:
            raise ToolError(f"The subagent could not be made: {error}") from None
        options = agent.lend(subagent, call_id, definition.name)
        options = replace(options, system_prompt=definition.prompt, schema=args.get("schema"), hooks=fence)
        subagent.subscribe(_SubagentProgress(definition.name, context.update))
        path = None if session.path is None else str(session.path)
        listed = agent.subagents.begin(
            session.id, definition.name, _source(definition, agent.cwd), call_id, args["prompt"], path
        )
        subagent.subscribe(listed)
        status = "failed"
        try:
            run = await subagent.submit(args["prompt"], source="sdk", expand=False, options=options)
            listed.stop = run.cancel
            result = await _end_of(run)
            status = result.status
        except AgentError as error:
            raise ToolError(f"The subagent could not begin: {error}") from None
        finally:
            listed.ended(status)
            await asyncio.shield(self._ending.spawn(subagent.close(), "spindle-subagent-end"))
        stopped = None if options.inside is None else options.inside.meter.stopped
        report = report_of(result, definition.name, choice.model.full_name, stopped)
        return _result(report, result.text)

    def _tell_unknown(self, definition: AgentDefinition, agent: AgentSession) -> None:
        """Tell, once for each definition, which of its tools are not here: one of them may be a slip in a fence."""
        if definition.name not in self._told:
            self._told.add(definition.name)
            entries = (*(definition.tools or ()), *definition.never)
            lost = self._toolbox.unmatched([entry.partition("(")[0].strip() for entry in entries])
            if lost := [entry for entry in lost if not may_match(entry, "mcp__")]:
                what = f'The subagent "{definition.name}" names tools that are not here'
                agent.publish(Notice(f"{what}: {', '.join(lost)}"))

    def _find(self, name: str) -> AgentDefinition:
        known = {one.casefold(): definition for one, definition in self._definitions.items()}
        if (found := self._definitions.get(name) or known.get(name.casefold())) is None:
            raise ToolError(f'There is no agent "{name}". There are: {", ".join(self._definitions)}')
        return found


# -- how a subagent is made ----------------------------------------------------------------------


def _session(agent: AgentSession, name: str, call_id: str) -> Session:
    session = sessions.of_subagent(agent.session, fsync=agent.resources.settings.fsync)
    keep(session, WorksFor(agent.session.id, call_id, name))
    return session


def _unattended(resources: Resources) -> Resources:
    """Return the resources of the agent as a subagent uses them: it gets its tools from the agent, extensions too."""
    return replace(resources, extension_sources=[], prompt=replace(resources.prompt, unattended=True, client=""))


def _source(definition: AgentDefinition, cwd: str) -> Literal["bundled", "user", "project"]:
    if definition.path is None:
        return "bundled"
    return "project" if definition.path.is_relative_to(cwd) else "user"


def _model(definition: AgentDefinition, agent: AgentSession) -> ModelChoice:
    """Return the model of a definition, or of the settings, if it can be asked, else the model of the agent."""
    own, level = agent.model, as_level(definition.thinking)
    assert own is not None
    pattern, found = definition.model or "", None
    if not pattern:
        pattern = agent.resources.settings.roles.get("subagents", "")
    if pattern.lower() not in _INHERIT:
        available = agent.models.available()
        near = [model for model in available if model.provider == own.provider]
        found = parse_pattern(pattern, near, lenient=True) or parse_pattern(pattern, available, lenient=True)
    if found is None:
        return ModelChoice(own, level or agent.thinking_level)
    return ModelChoice(found.model, level or found.level or agent.thinking_level)


def _tools(definition: AgentDefinition, toolbox: Toolbox) -> list[Tool]:
    lendable = {tool.name: tool for tool in toolbox.lendable()}
    entries = [name for name in lendable if name in toolbox.active]
    if definition.tools is not None:
        # What takes away only some calls of a tool leaves the tool.
        whole = [entry for entry in definition.tools if not (entry[:1] == "-" and "(" in entry)]
        entries = over(entries, [entry.partition("(")[0].strip() for entry in whole] or definition.tools)
    never = [entry for entry in definition.never if "(" not in entry]
    wanted = chosen(entries, lendable)
    return [lendable[name] for name in wanted if not any(matches(entry, name) for entry in never)]


class _Fence(Hooks):
    """Refuses calls that the patterns in a definition do not allow."""

    def __init__(self, definition: AgentDefinition, resources: Resources, cwd: str) -> None:
        """Raises `AgentError` for a pattern that makes no sense."""
        from spindle.agent.fences.rules import Policy, rules_of  # few definitions have patterns

        source = f"agent {definition.name}"
        try:
            entries = definition.tools or ()
            minus = [bare(entry) for entry in entries if entry[:1] == "-"]
            rules = rules_of("allow", [bare(entry) for entry in entries if entry[:1] != "-"], source)
            rules += rules_of("deny", [*definition.never, *minus], source)
        except ValueError as error:
            raise AgentError(str(error)) from None
        self._far = resources.far
        closed = definition.tools is not None and not is_change(entries)
        self._policy = Policy(cwd, "dontAsk" if closed else "bypass", rules)

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        from spindle.agent.fences.links import with_links
        from spindle.agent.fences.rules import decide

        decision, _ = await with_links(self._far, lambda: decide(self._policy, tool.name, args))
        if decision.behavior != "allow":
            raise Blocked(f"The definition of this agent does not allow this call of {tool.name}", by="definition")
        return args


def _with_our_names(given: Any) -> Any:
    """Understand the arguments that models know from Claude Code."""
    if isinstance(given, dict) and "subagent_type" in given and "agent" not in given:
        return {**given, "agent": given["subagent_type"]}
    return given


async def _end_of(run: Run) -> RunResult:
    """Return the result of a run. If the call is cancelled, stop the run, and return the result so far."""
    try:
        return await run.result()
    except asyncio.CancelledError:
        run.cancel()
        return await run.result()


# -- what is told of it --------------------------------------------------------------------------


class _SubagentProgress(NeverFull):
    """A listener that turns the work of a subagent into a line."""

    def __init__(self, name: str, update: Callable[[ToolResult], None]) -> None:
        self._name = name
        self._update = update
        self._calls = 0

    def put(self, event: Event) -> None:
        if isinstance(event, ToolExecutionStart):
            self._calls += 1
            values = event.args.values() if isinstance(event.args, dict) else ()
            about = next((" ".join(value.split()) for value in values if isinstance(value, str)), "")
            self._tell(f"{event.tool_name} {about}"[:_WIDTH].strip())
        elif isinstance(event, TurnStart):
            self._tell("thinking")

    def _tell(self, doing: str) -> None:
        calls = f"{self._calls} call{'' if self._calls == 1 else 's'}"
        self._update(text_result(f"{self._name}: {calls}, {doing}", {"agent": self._name, "toolCalls": self._calls}))


_WORDS = {
    "empty": "The subagent ended without an answer",
    "schema": "The subagent handed in no data that fits the schema",
    "aborted": "The subagent was stopped",
    "limit": "The subagent was stopped by a limit",
    "failed": "The subagent failed",
}


def _result(report: SubagentReport, text: str) -> ToolResult:
    """Return the result of the call. Raises `ToolError` unless the subagent ended well."""
    details = to_builtins(report)
    if report.status == "ok" and report.value is not UNSET:
        return text_result(encode(report.value).decode(), details)
    shown = truncate_head(text)
    answer = shown.content.strip()
    if shown.truncated:
        answer += f"\n\n[{shown.output_lines} of {shown.total_lines} lines; the whole answer: {report.session_file}]"
    if report.status == "ok":
        return text_result(answer, details)
    why = f": {report.error}" if report.error and report.status in ("failed", "limit") else ""
    raise ToolError("\n\n".join(part for part in (f"{_WORDS[report.status]}{why}", answer) if part), details)
