"""Lists of tools in settings, options and requests: what they mean, and what is told."""

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import reply

from .conftest import Place


def said(place: Place, *arguments: str) -> tuple[int, str]:
    done = place.run("--no-session", "--model", place.script("ok"), *arguments, "-p", "hi")
    return done.returncode, done.stderr


def test_a_list_of_changes_leaves_the_other_tools(place: Place) -> None:
    place.write("agent/settings.json", {"defaultTools": ["+codemode"]})
    told = "Warning: There are no tools for these entries of tool lists: +codemode\n"
    assert said(place) == (0, told)
    report = place.run("doctor").stdout
    assert "  read, bash, edit, write, " in report and "has to bring them: +codemode" in report


def test_an_exclusion_that_matches_nothing_is_an_error(place: Place) -> None:
    code, told = said(place, "--exclude-tools", "q*")
    assert code == 2 and told.startswith('Error: Unknown tool "q*".')
    assert said(place, "--exclude-tools", "w*") == (0, "")
    assert said(place, "--exclude-tools", "mcp__*") == (0, "")
    code, told = said(place, "--exclude-tools", "codemode")  # a tool of pi: harmless
    assert code == 0 and told.endswith("tool lists: codemode\n")


def test_an_agent_without_tools_says_so(place: Place) -> None:
    assert said(place, "--exclude-tools", "*") == (0, "Warning: The model has no tools: the tool lists leave none\n")
    assert said(place, "--no-tools") == (0, "")
    assert said(place, "--tools", "") == (0, "Warning: --tools is empty: the model has no tools\n")
    for argument in ("--tools=-*", "--no-builtin-tools"):
        assert said(place, argument) == (0, "Warning: The model has no tools: the tool lists leave none\n")
    place.write("agent/settings.json", {"defaultTools": []})
    assert said(place) == (0, "Warning: The model has no tools: the tool lists leave none\n")


def test_a_fence_of_a_subagent_that_matches_nothing_is_told_once(place: Place) -> None:
    head = "name: rev\ndescription: Reviews\ntools: +grep, -wat\ndisallowedTools: bsh, mcp__a__b"
    place.write("agent/agents/rev.md", f"---\n{head}\n---\nYou review.")
    task = {"calls": [{"name": "task", "arguments": {"agent": "rev", "prompt": "look"}}] * 2}
    model = place.script({"match": "look", "text": "seen"}, {"match": "hi", **task}, {"match": "hi", "text": "so"})
    done = place.run("--no-session", "--model", model, "-p", "hi")
    told = 'Warning: The subagent "rev" names tools that are not here: -wat, bsh\n'
    assert (done.stdout, done.stderr) == ("so\n", told)


@pytest.mark.parametrize(
    ("arguments", "settings", "tools"),
    [
        (["-xt", "w*"], {}, ["read", "bash", "edit"]),
        (["--tools", "-bash,+ls"], {}, ["read", "edit", "write", "ls"]),
        (["--tools", "+ls"], {"defaultTools": ["read"]}, ["read", "ls"]),
        ([], {"defaultTools": ["-write", "+codemode"]}, ["read", "bash", "edit"]),
        (["--tools", "e*,read"], {"defaultTools": ["+ls"]}, ["edit", "read"]),
    ],
)
def test_what_the_model_gets(arguments, settings, tools) -> None:
    with AgentProcess(args=arguments, settings=settings) as agent:
        assert [tool["name"] for tool in agent.data("get_state")["dumpTools"]] == tools


def test_a_request_has_its_own_tools() -> None:
    with AgentProcess([reply("ok")], args=["-xt", "write"]) as agent:

        def sent(*entries: str) -> list[str]:
            assert agent.prompt("go", enabledTools=list(entries))["success"]
            agent.wait("agent_settled")
            return [tool["function"]["name"] for tool in agent.mock.requests[-1].body.get("tools", ())]

        assert sent("-bash", "+ls") == ["read", "edit", "ls"]
        assert sent("r*", "write") == ["read"]
        assert sent("nothing") == []
        told = [frame["message"] for frame in agent.frames if frame["type"] == "notice"]
        assert [text.partition(":")[0] for text in told] == [
            "There are no tools for these entries of tool lists",
            "The model has no tools",
        ]
