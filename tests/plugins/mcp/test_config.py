"""What the files of people mean."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle.base.agent_dir import agent_dir
from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.server_config import ServerConfig, Servers, load_servers, resolve
from spindle.resources.trust import TrustDecision, TrustStore


def read(entries: Any, **options: Any) -> Servers:
    servers = Servers()
    servers.add(entries, "here", **options)
    return servers


def one(entry: Any) -> ServerConfig:
    servers = read({"one": entry})
    assert not servers.problems, servers.problems
    return servers.configs["one"]


def problem(entry: Any) -> str:
    return read({"one": entry}).problems["one"]


def test_the_forms_that_programs_share() -> None:
    assert one({"command": "npx", "args": ["-y", "x"], "env": {"A": "b", "N": 5}}).env == {"A": "b", "N": "5"}
    assert one({"command": ["npx", "-y"], "args": ["x"]}).args == ["-y", "x"]
    assert one({"type": "stdio", "command": "x", "url": "ignored"}).transport == "stdio"
    for kind in ("http", "streamable-http", "streamableHttp", "streamable_http"):
        config = one({"type": kind, "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${T}"}, "timeout": 5})
        assert config.transport == "http" and config.timeout == 5
    assert one({"url": "http://x"}).transport == "http"
    assert not one({"command": "x", "disabled": True}).enabled
    assert one({"command": ["x"], "args": None, "env": None, "cwd": None, "timeout": None}) == one({"command": "x"})
    config = one({"command": "x", "alwaysAllow": [], "exposure": "deferred", "toolExposure": {"a": "hidden"}})
    assert config.exposure == "deferred" and config.tool_exposure == {"a": "hidden"}
    config = one({"url": "http://x", "oauth": {"clientId": "c", "callbackPort": 8000}})
    assert config.oauth is not None and config.oauth.client_id == "c"
    for old in ({"type": "sse", "url": "http://x"}, {"url": "http://x/sse"}, {"url": "http://x/sse/?a=b"}):
        assert one(old).transport == "sse"
    assert one({"type": "http", "url": "http://x/sse"}).transport == "http"
    acp = [{"type": "http", "name": "n", "url": "http://x", "headers": [{"name": "A", "value": "b"}]}]
    assert read(acp).configs["n"].headers == {"A": "b"}


def test_files_of_pi_lose_no_server() -> None:
    """Code mode is noted once for all servers; a word that nobody knows is a note, too."""
    servers = read(
        {
            "a": {"command": "x", "exposure": "codemode"},
            "b": {
                "command": "x",
                "exposure": "codemode-deferred",
                "toolExposure": {"get_*": "codemode", "d": "hidden"},
            },
            "c": {"command": "x", "exposure": "loud", "toolExposure": {"t": ["direct"], "u": "direct"}},
        }
    )
    assert not servers.problems
    a, b, c = servers.configs.values()
    assert (a.exposure, b.exposure, c.exposure) == ("deferred", "deferred", None)
    assert b.tool_exposure == {"get_*": "deferred", "d": "hidden"} and c.tool_exposure == {"u": "direct"}
    assert servers.notes == [
        'MCP servers with "exposure": "codemode" are read as "deferred", as there is no code mode: a, b',
        'here: c: exposure: "loud" is none of direct, deferred, hidden',
        'here: c: toolExposure of t: ["direct"] is none of direct, deferred, hidden',
    ]
    servers.add({"a": {"exposure": "codemode", "enabled": False}}, "project")
    assert (servers.configs["a"].exposure, servers.configs["a"].enabled) == ("deferred", False)


def test_what_makes_no_sense_is_said() -> None:
    assert 'unknown type "pigeon"' in problem({"type": "pigeon", "url": "http://x"})
    assert 'unknown type "ws"' in problem({"type": "ws", "url": "http://x"})
    assert "Invalid enum value" in problem({"command": "x", "protocol": "2020-01-01"})
    assert "the transport sse has no protocol" in problem({"type": "sse", "url": "http://x", "protocol": "2026-07-28"})
    assert "unknown type" in problem({"type": ["stdio"], "command": "x"})
    assert "env must be an object, or a list" in problem({"command": "x", "env": [{"name": "A"}]})
    assert problem({"command": ["x", "y"], "args": 5})
    assert "needs a command or a url" in problem({})
    assert "needs a url" in problem({"type": "http", "command": "x"})
    assert "must be an object" in problem("npx")
    for url in ("ftp://x", "http://[x", "http://"):
        assert f"not an HTTP address: {url}" in problem({"url": url})
    assert "timeout" in problem({"command": "x", "timeout": 0}) and "timeout" in problem(
        {"command": "x", "timeout": "5"}
    )
    assert "args" in problem({"command": "x", "args": "y"}) and "args" in problem({"command": ["x"], "args": "y"})
    assert "unknown type" in problem({"type": ["http"], "url": "http://x"})
    for pairs in ([{"name": "A"}], ["A=b"], [1]):
        assert 'env must be an object, or a list of objects with "name" and "value"' in problem(
            {"command": "x", "env": pairs}
        )
    assert "letters, digits" in read({"a.b": {"command": "x"}}).problems["a.b"]


def test_files_are_merged_by_name(write: Callable[[str, Any], Path], project: Path) -> None:
    write("agent/mcp.json", '{"mcpServers": {"a": {"command": "user"}, "b": {"command": "user"},},} // mine')
    write("project/.mcp.json", {"mcpServers": {"b": {"command": "shared"}, "c": {"command": "shared"}}})
    write("project/.pi/mcp.json", {"mcpServers": {"a": {"enabled": False}, "c": {"exposure": "hidden"}, "d": {}}})
    write("project/more.json", {"servers": {"e": {"command": "code"}}})
    found = load_servers(project, TrustDecision(False, "", project))
    assert {name: config.command for name, config in found.configs.items()} == {"a": "user", "b": "user"}
    trusted = TrustDecision(True, "", project)
    TrustStore(agent_dir()).remember(project, True)
    found = load_servers(project, trusted, ["more.json", "none.json"])
    commands = {name: config.command for name, config in found.configs.items()}
    assert commands == {"a": "user", "b": "shared", "c": "shared", "e": "code"}
    assert [config.name for config in found.enabled()] == ["b", "c", "e"] and found.configs["c"].exposure == "hidden"
    assert found.configs["a"].trusted and not found.configs["b"].trusted
    assert set(found.problems) == {"d", str(project / "none.json")}
    write("agent/mcp.json", "{ not json")
    write("project/.mcp.json", {"servers": []})
    TrustStore(agent_dir()).remember(project, True)
    found = load_servers(project, trusted)
    assert "line 1" in found.problems[str(project.parent / "agent" / "mcp.json")]
    assert 'no object "mcpServers"' in found.problems[str(project / ".mcp.json")]


def test_values_stand_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    monkeypatch.setenv("DEBUG", "no")
    config = one(
        {"url": "https://${HOST:-x}/mcp", "headers": {"A": "Bearer ${TOKEN}", "B": "!printf made", "C": "DEBUG"}}
    )
    made = asyncio.run(resolve(config))
    assert made.url == "https://x/mcp" and made.headers == {"A": "Bearer t", "B": "made", "C": "DEBUG"}
    for headers, words in (({"A": "${NONE}"}, "NONE is not set"), ({"A": "!exit 3"}, "shell command: exit 3")):
        with pytest.raises(McpError, match=words):
            asyncio.run(resolve(one({"url": "http://x", "headers": headers})))


def test_a_name_for_what_a_server_is_started_with() -> None:
    first = one({"command": "x", "args": ["1"]})
    assert first.key() == one({"command": "x", "args": ["1"], "timeout": 5, "exposure": "hidden"}).key()
    assert first.key() != one({"command": "x", "args": ["2"]}).key()
    assert first.key() != read({"one": {"command": "x", "args": ["1"]}}, trusted=False).configs["one"].key()
