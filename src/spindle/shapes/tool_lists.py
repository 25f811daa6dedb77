"""Lists of tools as people write them, in settings, options, requests and definitions of subagents.

An entry is a name or a pattern, in which `*` stands for any text; `mcp__NAME` is every tool of that server, and
`mcp__*` whatever MCP servers bring. Entries without a sign form the selection, then `+entry` and `-entry` add and
remove, in order. A list in which every entry has a sign changes the selection that held before; any other list replaces
it.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

_EVERY_SERVER: Final = "mcp__*"
NEIGHBOURS_TOOLS: Final = frozenset(
    [
        "codemode",
        "powershell",
        "tool_search",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "ask",
        "ast_edit",
        "ast_grep",
        "browser",
        "checkpoint",
        "computer",
        "context_notes",
        "debug",
        "eval",
        "fetch",
        "generate_image",
        "github",
        "glob",
        "goal",
        "ida",
        "inspect_image",
        "learn",
        "lsp",
        "manage_skill",
        "memory_edit",
        "new_context",
        "notebook",
        "recall",
        "reflect",
        "render_mermaid",
        "resolve",
        "retain",
        "rewind",
        "search_tool_bm25",
        "security_scan",
        "ssh",
        "think",
        "todo",
        "wait",
        "web_search",
        "yield",
        _EVERY_SERVER,
    ]
)
"""Tools of pi 1.5 and oh-my-pi 18.3 that are not here, or only beside an MCP server: their files may name them."""


_OF_SERVERS: Final = frozenset(
    ["tool_search", "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]
)
"""Tools that are there because of MCP servers."""


def is_change(entries: Sequence[str]) -> bool:
    """Say whether a list changes a selection; otherwise it replaces it, as an empty list does."""
    return bool(entries) and all(entry[:1] in ("+", "-") for entry in entries)


def over(base: Sequence[str], entries: Sequence[str]) -> list[str]:
    """Return the list that means `entries` where `base` held before."""
    return [*base, *entries] if is_change(entries) else list(entries)


def bare(entry: str) -> str:
    """Return the name or pattern of an entry."""
    return entry[1:] if entry[:1] in ("+", "-") else entry


def matches(entry: str, tool: str) -> bool:
    """Say whether the name or pattern of an entry is for a tool; its sign does not count."""
    name = bare(entry)
    if name == tool or (name == _EVERY_SERVER and tool in _OF_SERVERS):
        return True
    return ("*" in name and fnmatchcase(tool, name)) or (name.startswith("mcp__") and tool.startswith(f"{name}__"))


def may_match(entry: str, beginning: str) -> bool:
    """Say whether an entry may be for a tool whose name begins so."""
    head, star, _ = bare(entry).partition("*")
    return head.startswith(beginning) or beginning == f"{head}__" or bool(star and beginning.startswith(head))


def verdict(entries: Iterable[str], tool: str) -> bool | None:
    """Say whether a list wants a tool; None: no entry is for it."""
    found = [entry for entry in entries if matches(entry, tool)]
    signs = [entry[0] for entry in found if entry[:1] in ("+", "-")]
    return signs[-1] == "+" if signs else True if found else None


def chosen(entries: Sequence[str], tools: Iterable[str]) -> list[str]:
    """Return the tools that a list wants, in the order of its entries."""
    names = list(tools)
    plain_first = sorted(entries, key=lambda entry: entry[:1] in ("+", "-"))
    found = dict.fromkeys(name for entry in plain_first for name in names if matches(entry, name))
    return [name for name in found if verdict(entries, name)]


def unmatched(entries: Iterable[str], tools: Iterable[str]) -> list[str]:
    """Return the entries that are for none of these tools."""
    names = list(tools)
    return [entry for entry in dict.fromkeys(entries) if not any(matches(entry, name) for name in names)]
