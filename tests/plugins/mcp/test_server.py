"""One server on stdio, of both eras, well-behaved and not."""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spindle.plugins.mcp import McpError, Message
from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.shared_server import Server, leave, server_for

from .helpers import FAKE, entry, is_alive, running, text_of, until

ERAS = [(), ("--modern",)]


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 50))


@pytest.mark.parametrize("era", ERAS)
def test_a_call(era: tuple[str, ...]) -> None:
    async def work() -> None:
        async with running(*era) as server:
            assert server.state == "idle" and server.pid is None
            assert text_of(await server.call("echo", {"text": "hi"})) == "echo: hi"
            assert server.state == "ready" and server.pid is not None
            assert server.version == ("2026-07-28" if era else "2025-11-25")
            assert server.listing is not None and server.listing.tools[0].read_only
            assert server.listing.tools[1].destructive and server.listing.resources
            pid = server.pid
        assert not is_alive(pid)

    run(work())


@pytest.mark.parametrize("option", ["--die-at-probe", "--noise", "--delay 0.3"])
def test_servers_with_a_way_of_their_own(option: str) -> None:
    async def work() -> None:
        async with running(*option.split()) as server:
            assert text_of(await server.call("echo", {"text": "hi"})) == "echo: hi"

    run(work())


def test_a_server_that_ignores_the_newer_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_PROBE", 0.2)

    async def work() -> None:
        async with running("--ignore-probe") as server:
            assert text_of(await server.call("echo", {"text": "hi"})) == "echo: hi"

    run(work())


def test_progress_keeps_the_clock_from_running_out() -> None:
    async def work() -> None:
        async with running(timeout=0.5) as server:
            seen: list[Message] = []
            assert text_of(await server.call("steps", {}, seen.append)) == "all steps"
            assert [item["progress"] for item in seen] == [1, 2, 3, 4, 5]

    run(work())


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_hangs_ends_and_the_server_goes_on(era: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        async with running(*era, "--log", str(log), timeout=0.3) as server:
            with pytest.raises(McpError, match=r'MCP server "fake": no answer to tools/call within 0\.3 s'):
                await server.call("hang", {})
            assert text_of(await server.call("echo", {"text": "still here"})) == "echo: still here"
            hanging = asyncio.create_task(server.call("hang", {}))
            await until(lambda: log.read_text().count('"hang"') == 2)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            assert text_of(await server.call("echo", {"text": "again"})) == "echo: again"
        assert log.read_text().count("notifications/cancelled") == 2

    run(work())


def test_a_crash_tells_the_last_words_and_the_server_is_started_again_once() -> None:
    async def work() -> None:
        async with running() as server:
            left = int(text_of(await server.call("child", {})))
            first = server.pid
            with pytest.raises(McpError, match=r"(?s)it ended with exit code 7.*last words.*I fall over now"):
                await server.call("crash", {})
            assert server.state == "stopped" and "I fall over now" in (server.error or "")
            await until(lambda: not is_alive(left))  # what it had started is gone as well
            with pytest.raises(McpError, match="I fall over now"):
                await server.call("crash", {})  # it runs again, and falls again
            assert server.state == "failed"
            with pytest.raises(McpError, match=r"(?s)Not tried: it failed 2 times .* 60 s\. .*I fall over now"):
                await server.call("echo", {})  # not a third time
            server.forgive()
            assert text_of(await server.call("echo", {"text": "back"})) == "echo: back"
            assert server.pid != first

    run(work())


def test_a_server_that_hangs_up_but_lives_on_holds_no_call() -> None:
    async def work() -> None:
        async with running() as server:
            for pipe in ("stdout", "stdin"):
                await server.connected()
                pid = server.pid or 0
                with pytest.raises(McpError, match="it closed its stdin or stdout"):
                    await server.call("hang_up", {"text": pipe})  # closing stdin is noticed when we write
                    await server.call("echo", {})
                await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
                server.forgive()

    run(work())


def test_a_call_is_not_repeated_but_reading_is(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        async with running("--log", str(log)) as server:
            with pytest.raises(McpError, match="it ended with exit code 0"):
                await server.call("quit_silently", {})
            assert log.read_text().count("quit_silently") == 1
            await server.call("echo", {})
            connection = await server.connected()
            os.kill(server.pid or 0, 9)
            answer = await server.get("resources/read", {"uri": "test://x"})
            assert answer["contents"][0]["text"] == "content of test://x"
            assert connection.ended is not None

    run(work())


def test_a_program_that_is_not_there_or_ends_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        for command, args, words in (
            (f"{tmp_path}/x", [], f"cannot be started: No such file or directory: {tmp_path}/x"),
            ("sh", ["-c", "echo no luck >&2; exit 3"], "exit code 3\nIts last words:\nno luck"),
        ):
            async with running(command=command, args=args) as server:
                with pytest.raises(McpError) as raised:
                    await server.connected()
                assert words in str(raised.value) and server.state == "failed"

    run(work())


def test_changed_tools_are_asked_for_again() -> None:
    async def work(*era: str) -> None:
        async with running(*era) as server:
            await server.call("change", {})
            await until(lambda: has_added(server))

    run(work())
    run(work("--modern"))


def has_added(server: Server) -> bool:
    return server.listing is not None and any(tool.name == "added" for tool in server.listing.tools)


def test_a_server_that_does_not_tell_of_changes_is_asked_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running() as server:
            await server.call("change", {"text": "silently"})
            await server.call("echo", {})
            assert not has_added(server)
            monkeypatch.setattr("spindle.base.limits.MCP_REFRESH", 0.0)
            await server.call("echo", {})
            await until(lambda: has_added(server))

    run(work())


def test_a_server_is_not_there_before_it_has_said_what_it_has() -> None:
    async def work() -> None:
        async with running("--slow-list", "0.3") as server:
            server.start_soon()
            await until(lambda: server.version is not None)  # it is asked for its list
            await server.start_soon()
            assert server.listing is not None

    run(work())


def test_lies_about_schemas_do_no_harm() -> None:
    async def work() -> None:
        async with running("--plain", "--lie") as server:
            await server.connected()
            assert server.listing is not None
            tools = {tool.name: tool for tool in server.listing.tools}
            assert "huge" not in tools and len([name for name in tools if name == "echo"]) == 1
            assert tools["no_schema"].schema == tools["text_schema"].schema == {"type": "object", "properties": {}}
            assert tools["half_\ufffd"].description == "half \ufffd of a character"
            assert tools["wrong_root"].schema == {"type": "object", "properties": {"b": {"type": "string"}}}

    run(work())


@pytest.mark.parametrize("era", ERAS)
def test_what_a_server_may_ask(era: tuple[str, ...], tmp_path: Path) -> None:
    asked: list[Message] = []

    async def ask(params: Message) -> Message:
        asked.append(params)
        return {"action": "accept", "content": {"name": "Ada"}}

    async def work() -> None:
        async with running(*era, cwd=str(tmp_path)) as server:
            answer = json.loads(text_of(await server.call("ask", {}, ask=ask)))
            assert answer == {"action": "accept", "content": {"name": "Ada"}} and asked[0]["message"] == "Who are you?"
            assert json.loads(text_of(await server.call("ask", {}))) == {"action": "decline"}
            roots = json.loads(text_of(await server.call("roots", {})))["roots"]
            assert roots == [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]
            if era:
                with pytest.raises(McpError, match="Sampling is not offered"):
                    await server.call("sample", {})
            else:
                assert json.loads(text_of(await server.call("sample", {})))["code"] == -32601

    run(work())


def test_the_user_may_take_time_to_answer() -> None:
    async def ask(params: Message) -> Message:
        await asyncio.sleep(0.6)
        return {"action": "accept", "content": {}}

    async def work(*era: str) -> None:
        async with running(*era, timeout=0.3) as server:
            assert json.loads(text_of(await server.call("ask", {}, ask=ask)))["action"] == "accept"

    run(work())
    run(work("--modern"))


def test_a_question_ends_with_the_call_it_is_for() -> None:
    asked = []

    async def ask(params: Message) -> Message:
        asked.append("open")
        try:
            await asyncio.sleep(40)
        finally:
            asked.append("closed")
        raise AssertionError

    async def work() -> None:
        async with running(timeout=0.4) as server:
            call = asyncio.create_task(server.call("ask", {}, ask=ask))
            await until(lambda: bool(asked))
            call.cancel()
            await until(lambda: asked == ["open", "closed"])
            assert text_of(await server.call("echo", {"text": "hi"})) == "echo: hi"  # it got an answer, too
            with pytest.raises(McpError, match=r"no answer to tools/call within 0\.4 s"):
                await server.call("hang", {})
            asked.clear()
            call = asyncio.create_task(server.call("ask_and_withdraw", {}, ask=ask))
            assert json.loads(text_of(await call)) == {"action": "cancel"} and asked == ["open", "closed"]

    run(work())


def test_the_user_is_not_flooded_with_questions() -> None:
    asked = 0

    async def ask(params: Message) -> Message:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.1)
        return {"action": "accept", "content": {}}

    async def work() -> None:
        async with running() as server:
            answers = json.loads(text_of(await server.call("ask_often", {}, ask=ask)))
            assert asked == 5 and [answer["action"] for answer in answers].count("decline") == 95

    run(work())


def test_questions_that_nobody_is_asked_take_no_time_from_the_clock() -> None:
    async def decline(params: Message) -> Message:
        return {"action": "decline"}

    async def work() -> None:
        async with running(timeout=0.5) as server:
            with pytest.raises(McpError, match=r"no answer to tools/call within 0\.5 s"):
                await server.call("ask_for_ever", {}, ask=decline)

    run(work())


def test_secrets_of_ours_are_kept_from_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hidden")
    monkeypatch.setenv("WANTED", "here")

    async def work() -> None:
        values = {"GIVEN": "${WANTED} and ${MISSING:-fallback}", "MADE": "!echo made"}
        async with running(withheld=frozenset({"ANTHROPIC_API_KEY"}), env=values) as server:
            seen = json.loads(text_of(await server.call("environment", {})))
        assert "ANTHROPIC_API_KEY" not in seen and seen["WANTED"] == "here"
        assert seen["GIVEN"] == "here and fallback" and seen["MADE"] == "made"
        async with running(env={"GIVEN": "${NOT_SET}"}) as server:
            with pytest.raises(McpError, match="the environment variable NOT_SET is not set"):
                await server.connected()

    run(work())


def test_a_stubborn_server_is_killed_with_all_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_STDIN_CLOSED", 0.1)
    monkeypatch.setattr("spindle.base.limits.MCP_TERMINATED", 0.1)

    async def work() -> None:
        async with running("--stubborn") as server:
            child = int(text_of(await server.call("child", {})))
            pid = server.pid
            assert pid is not None and is_alive(pid) and is_alive(child)
        await until(lambda: not is_alive(pid) and not is_alive(child))
        async with running() as server:  # one that ends by itself leaves nothing either
            child = int(text_of(await server.call("child", {})))
        await until(lambda: not is_alive(child))

    run(work())


def test_rubbish_in_the_place_of_an_answer_is_said_at_once() -> None:
    async def work() -> None:
        async with running(timeout=40) as server:
            with pytest.raises(McpError, match='MCP server "fake": it sent something that is not JSON'):
                await server.call("rubbish", {"text": "nan"})
            for harmless in ("space", "bom"):
                assert await server.call("rubbish", {"text": harmless}) == {}

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_flood_is_the_end_of_a_server() -> None:
    async def work() -> None:
        async with running(command="sh", args=["-c", "tr '\\0' '{' < /dev/zero & exec cat > /dev/null"]) as server:
            with pytest.raises(McpError, match="a message of more than 64 MB"):
                await server.connected()
        async with running(command="yes", args=[]) as server:
            with pytest.raises(McpError, match="a flood of messages that nobody waits for"):
                await server.connected()

    run(work())


def test_a_server_that_asks_on_without_reading_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.plugins.mcp.pipe._MOST_UNSENT", 1 << 16)

    async def work() -> None:
        async with running() as server:
            await server.connected()
            pid = server.pid
            with pytest.raises(McpError, match="it does not read what it is sent"):
                await server.call("deaf", {})
            await until(lambda: not is_alive(pid or 0))
            assert text_of(await server.call("echo", {"text": "new"})) == "echo: new"

    run(work())


def test_sessions_of_the_same_configuration_share_a_server(tmp_path: Path) -> None:
    found = Servers()
    found.add({"fake": entry()}, "test")
    found.add({"project": entry()}, "test", trusted=False)
    config = found.configs["fake"]
    elsewhere = Servers()
    elsewhere.add({"fake": entry()}, "another file")
    elsewhere.add({"patient": entry(timeout=5)}, "another file")

    async def work() -> None:
        one, two = object(), object()
        a = server_for(one, config, "/", frozenset)
        assert server_for(two, elsewhere.configs["fake"], "/", frozenset) is a
        assert server_for(two, elsewhere.configs["patient"], "/", frozenset) is not a
        assert server_for(one, config, str(tmp_path), frozenset) is not a  # its working directory is another
        assert server_for(one, found.configs["project"], "/", frozenset) is not a
        await a.connected()
        pid = a.pid
        await leave(one, [a])
        assert is_alive(pid or 0)
        await leave(two, [a])
        assert not is_alive(pid or 0)
        assert server_for(two, config, "/", frozenset) is not a

    run(work())


def test_what_a_server_has_is_known_without_starting_it(agent: Path) -> None:
    async def work() -> None:
        async with running() as server:
            await server.connected()
        async with running() as again:
            assert again.listing is not None and again.listing.tools[0].name == "echo" and again.state == "idle"
            assert not again.is_stale()
            again.listing.at = Path(FAKE).stat().st_mtime - 1  # the program was changed since
            assert again.is_stale()
        async with running("--tools", "1") as other:
            assert other.listing is None
        kept = next((agent / "mcp-cache").iterdir())
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.write_text("rubbish")
        async with running() as again:
            assert again.listing is None

    run(work())


def test_the_era_of_the_protocol_can_be_chosen() -> None:
    async def work() -> None:
        for version in ("2025-11-25", "2025-06-18"):
            async with running("--modern", protocol=version) as server:
                with suppress(McpError):  # this server knows only the newer era
                    await server.connected()
                assert server.state == "failed"
        async with running(protocol="2026-07-28") as server:
            with pytest.raises(McpError, match="does not speak version 2026-07-28"):
                await server.connected()
        async with running("--die-at-probe", protocol="2025-06-18") as server:
            await server.connected()
            assert server.version == "2025-06-18"

    run(work())
