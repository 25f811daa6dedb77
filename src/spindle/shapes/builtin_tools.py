"""The tools that come with the agent. A tool is declared here, and `tools/<name>.py` has it as `TOOL`.

Permissions, editors, batches, the web page and the manual use this table, so that no tool has to be loaded to know what
it does.
"""

from typing import Final, Literal

from msgspec import Struct

Effect = Literal["reads", "destroys"]
"""`reads`: the tool changes nothing. `destroys`: its changes cannot be undone."""
ToolKind = Literal["read", "search", "edit", "execute", "think", "other"]
"""As in the Agent Client Protocol. `read`, `search` and `edit` work on the file or folder in their argument `path`: the
permission rule `Read(…)` covers the first two, `Edit(…)` the third. Tools that are not ours are `other`."""


class BuiltinTool(Struct, frozen=True):
    kind: ToolKind
    effect: Effect | None = None
    default: bool = False
    """Active unless the user says otherwise."""
    not_in: tuple[str, ...] = ()
    """Modes in which it is active only if the user says so."""
    of_session: bool = False
    """A feature of the session makes it; it has no module."""


TODO_TOOL: Final = "todo_write"
TASK_TOOL: Final = "task"
OUTPUT_TOOL: Final = "bash_output"
KILL_TOOL: Final = "bash_kill"
_FOR_PROGRAMS: Final = ("rpc", "sdk")
"""In these modes a program sees the tools, which may know only those of pi."""
TOOLS: Final[dict[str, BuiltinTool]] = {
    "read": BuiltinTool("read", "reads", default=True),
    "bash": BuiltinTool("execute", default=True),
    "edit": BuiltinTool("edit", default=True),
    "write": BuiltinTool("edit", default=True),
    "grep": BuiltinTool("search", "reads"),
    "find": BuiltinTool("search", "reads"),
    "ls": BuiltinTool("search", "reads"),
    TODO_TOOL: BuiltinTool("think", "reads", of_session=True),
    OUTPUT_TOOL: BuiltinTool("think", "reads", default=True, not_in=_FOR_PROGRAMS, of_session=True),
    # It ends only commands that the session was allowed to start.
    KILL_TOOL: BuiltinTool("think", "reads", default=True, not_in=_FOR_PROGRAMS, of_session=True),
    # The permissions decide about each call that a subagent makes.
    TASK_TOOL: BuiltinTool("think", "reads", default=True, not_in=_FOR_PROGRAMS, of_session=True),
}
"""In the order in which the model gets them."""
BUILTIN_TOOLS: Final = tuple(name for name, tool in TOOLS.items() if not tool.of_session)
"""Tools of the client may not have these names."""
OTHER_NAMES: Final = {"BashOutput": OUTPUT_TOOL, "KillShell": KILL_TOOL, "KillBash": KILL_TOOL, "Task": TASK_TOOL}
"""Names that models know from elsewhere."""


def default_tools(mode: str) -> tuple[str, ...]:
    return tuple(name for name, tool in TOOLS.items() if tool.default and mode not in tool.not_in)


def kind_of(name: str) -> ToolKind:
    return TOOLS[name].kind if name in TOOLS else "other"


def of_kind(*kinds: ToolKind) -> tuple[str, ...]:
    return tuple(name for name, tool in TOOLS.items() if tool.kind in kinds)


def only_reads(name: str) -> bool:
    return name in TOOLS and TOOLS[name].effect == "reads"
