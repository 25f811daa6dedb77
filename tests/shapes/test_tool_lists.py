"""Lists of tools with names, patterns and signs."""

import pytest

from spindle.shapes.tool_lists import chosen, over, unmatched

TOOLS = ["read", "bash", "edit", "write", "grep", "mcp__docs__find", "mcp__docs__get"]
DEFAULT = ["read", "bash", "edit", "write"]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        (["+codemode"], DEFAULT),
        (["+grep"], [*DEFAULT, "grep"]),
        (["-bash", "+grep"], ["read", "edit", "write", "grep"]),
        (["-*", "+read"], ["read"]),
        (["+grep", "-grep"], DEFAULT),
        (["-grep", "+grep"], [*DEFAULT, "grep"]),
        (["read", "+grep"], ["read", "grep"]),
        (["*", "-mcp__*"], [*DEFAULT, "grep"]),
        (["*", "-mcp__docs"], [*DEFAULT, "grep"]),
        (["mcp__docs"], ["mcp__docs__find", "mcp__docs__get"]),
        (["w*"], ["write"]),
        (["nothing"], []),
        ([], []),
    ],
)
def test_what_a_list_means_over_the_default(entries, wanted):
    assert chosen(over(DEFAULT, entries), TOOLS) == wanted


def test_entries_for_no_tool_are_found():
    assert unmatched(["read", "+codemode", "-w*", "-q*", "mcp__docs"], TOOLS) == ["+codemode", "-q*"]
