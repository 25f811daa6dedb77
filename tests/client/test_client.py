"""The client against a scripted agent: commands, runs, dialogs, trouble."""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from spindle.base.limits import CHILD_LINGER
from spindle.client import AgentCrashed, ClientClosed, CommandFailed, Event, RequestTimeout, RpcClient, image_file
from spindle.client.commands import Commands

FAKE = [sys.executable, str(Path(__file__).with_name("fake_agent.py"))]
OLD_FAKE = [*FAKE, "old"]
LATE_TO_LEAVE = ["sh", "-c", 'sleep 5 & exec "$@"', "sh", *FAKE]
"""It has a child that holds its pipes a while longer."""


both_ways = pytest.mark.parametrize("way", ["process", "websocket"])
"""The client does not differ between its transports."""


@asynccontextmanager
async def reachable(command: list[str], way: str) -> AsyncIterator[list[str] | str]:
    """Give what a client is made with: the command, or the URL of a server that runs it once per connection."""

    async def serve_one(socket: ServerConnection) -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert child.stdin is not None and child.stdout is not None

        async def forward(lines: asyncio.StreamReader) -> None:
            async for line in lines:
                await socket.send(line.decode().rstrip("\n"))
            await socket.close()

        forwarding = asyncio.create_task(forward(child.stdout))
        async for message in socket:
            assert isinstance(message, str)
            child.stdin.write(f"{message}\n".encode())
        child.stdin.close()
        await forwarding
        await child.wait()

    if way == "process":
        yield command
        return
    async with serve(serve_one, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/rpc"


def drive(
    scene: Callable[[RpcClient], Awaitable[None]], command: list[str] = FAKE, *, way: str = "process", **options: Any
) -> None:
    """Play `scene` with a running client."""

    async def play() -> None:
        async with asyncio.timeout(50), reachable(command, way) as target:
            direct = {} if way == "process" else {"proxy": None}
            async with RpcClient(target, **{"request_timeout": 40.0, **direct, **options}) as agent:
                await scene(agent)

    asyncio.run(play())


async def sent(agent: RpcClient) -> list[dict[str, Any]]:
    """Return every frame the agent has got so far."""
    frames: list[dict[str, Any]] = (await agent.request("received"))["frames"]
    return frames


# -- commands -------------------------------------------------------------------------------------

# method, arguments, fields on the wire, what the method returns
CALLS: list[tuple[str, list[Any], dict[str, Any], dict[str, Any], Any]] = [
    ("steer", ["m"], {"images": [{"type": "image"}]}, {"message": "m", "images": [{"type": "image"}]}, ...),
    ("follow_up", ["m"], {}, {"message": "m"}, ...),
    ("abort", [], {}, {}, None),
    ("abort_and_prompt", ["m"], {}, {"message": "m"}, ...),
    ("clear_queue", [], {}, {}, {"echo": "clear_queue"}),
    ("remove_queued", ["1"], {}, {"queuedId": "1"}, {"echo": "remove_queued"}),
    ("edit_queued", ["1", "m"], {}, {"queuedId": "1", "message": "m"}, None),
    ("send_queued", ["1"], {}, {"queuedId": "1"}, None),
    ("get_state", [], {}, {}, {"isStreaming": False, "isCompacting": False, "sessionId": "s1"}),
    ("get_messages", [], {}, {}, [{"role": "user"}]),
    ("get_last_assistant_text", [], {}, {}, "Hello"),
    ("get_run_result", [], {}, {}, None),
    ("get_session_stats", [], {}, {}, {"echo": "get_session_stats"}),
    ("get_commands", [], {}, {}, [{"name": "fix"}]),
    ("complete_command", ["fix", "a"], {}, {"name": "fix", "prefix": "a"}, ["all"]),
    ("get_entries", ["e1"], {}, {"since": "e1"}, {"echo": "get_entries"}),
    ("get_entries", [], {}, {}, {"echo": "get_entries"}),
    ("get_tree", [], {}, {"flat": True}, {"echo": "get_tree"}),
    ("get_available_models", [], {}, {}, [{"id": "m1"}]),
    ("get_available_commands", [], {}, {}, [{"name": "fix"}]),
    ("get_messages_page", [], {"cursor": "c"}, {"cursor": "c"}, {"echo": "get_messages_page"}),
    ("set_model", ["p", "m"], {}, {"provider": "p", "modelId": "m"}, {"echo": "set_model"}),
    ("cycle_model", [], {}, {}, None),
    ("set_thinking_level", ["high"], {}, {"level": "high"}, None),
    ("cycle_thinking_level", [], {}, {}, "high"),
    ("get_available_thinking_levels", [], {}, {}, ["off", "high"]),
    ("set_steering_mode", ["all"], {}, {"mode": "all"}, None),
    ("set_follow_up_mode", ["all"], {}, {"mode": "all"}, None),
    ("set_interrupt_mode", ["wait"], {}, {"mode": "wait"}, None),
    ("set_update_mode", ["delta"], {}, {"mode": "delta"}, None),
    ("set_auto_compaction", [False], {}, {"enabled": False}, None),
    ("set_auto_retry", [True], {}, {"enabled": True}, None),
    ("abort_retry", [], {}, {}, None),
    ("compact", ["be brief"], {}, {"customInstructions": "be brief"}, {"echo": "compact"}),
    ("bash", ["ls"], {"exclude_from_context": True}, {"command": "ls", "excludeFromContext": True}, {"echo": "bash"}),
    ("abort_bash", [], {}, {}, None),
    ("abort_commands", [], {}, {}, ["fix"]),
    (
        "get_background_output",
        ["b1"],
        {"from_byte": 7},
        {"backgroundId": "b1", "fromByte": 7},
        {"echo": "get_background_output"},
    ),
    ("kill_background", ["b1"], {}, {"backgroundId": "b1"}, None),
    ("get_account", [], {}, {}, {"echo": "get_account"}),
    (
        "answer_question",
        ["q", "allow"],
        {"input": {"n": 1}},
        {"question": "q", "behavior": "allow", "input": {"n": 1}},
        "started",
    ),
    ("resume_run", [], {}, {}, "started"),
    ("abandon_run", [], {}, {}, None),
    ("new_session", ["/p"], {}, {"parentSession": "/p"}, {"echo": "new_session"}),
    ("switch_session", [Path("/s")], {}, {"sessionPath": "/s"}, {"echo": "switch_session"}),
    ("fork", ["e1"], {}, {"entryId": "e1"}, {"echo": "fork"}),
    ("branch", ["e1"], {}, {"entryId": "e1"}, {"echo": "branch"}),
    ("clone", [], {}, {}, {"echo": "clone"}),
    ("get_fork_messages", [], {}, {}, [{"entryId": "e1", "text": "hi"}]),
    ("get_branch_messages", [], {}, {}, [{"entryId": "e1", "text": "hi"}]),
    ("list_sessions", [], {}, {}, [{"id": "s1"}]),
    ("list_sessions", [], {"everywhere": True}, {"everywhere": True}, [{"id": "s1"}]),
    ("list_live_sessions", [], {}, {}, [{"id": "s1"}]),
    ("close_session", [], {}, {}, None),
    ("search_sessions", ["w"], {}, {"query": "w"}, [{"id": "s1", "snippet": "a w"}]),
    ("find_text", ["w"], {}, {"text": "w"}, [{"entryId": "e1", "count": 2}]),
    ("make_session_name", [], {}, {}, "wombats"),
    ("delete_session", [], {}, {}, False),
    ("export_page", [], {}, {}, "<html>"),
    ("upload_file", ["n", "aGk="], {}, {"name": "n", "data": "aGk="}, "/tmp/n"),
    ("get_subagents", [], {}, {}, {"echo": "get_subagents"}),
    ("get_subagent_messages", [], {"subagent_id": "s"}, {"subagentId": "s"}, ...),
    ("stop_subagent", ["s"], {}, {"subagentId": "s"}, None),
    ("get_login_providers", [], {}, {}, {"echo": "get_login_providers"}),
    ("login", ["openai"], {}, {"providerId": "openai"}, {"echo": "login"}),
    ("handoff", [], {}, {}, {"echo": "handoff"}),
    ("complete_path", ["a"], {}, {"prefix": "a"}, ["a.py"]),
    ("navigate_tree", ["e1"], {"label": "l"}, {"entryId": "e1", "label": "l"}, ...),
    ("list_checkpoints", [], {}, {}, ...),
    ("get_changes", ["c1"], {"to": "c2"}, {"from": "c1", "to": "c2"}, ...),
    (
        "restore",
        ["c1", ["src"]],
        {"dry_run": True},
        {"checkpoint": "c1", "files": ["src"], "dryRun": True},
        ...,
    ),
    ("set_approval", [], {"tools": True, "max_turns": 3}, {"tools": True, "maxTurns": 3}, None),
    ("set_permissions", [], {"mode": "plan", "deny": ["Bash"]}, {"mode": "plan", "deny": ["Bash"]}, None),
    ("get_permissions", ["bash", {"command": "ls"}], {}, {"tool": "bash", "arguments": {"command": "ls"}}, ...),
    (
        "answer_permission",
        ["q", "deny"],
        {"reason": "No.", "stop": True},
        {"question": "q", "behavior": "deny", "reason": "No.", "stop": True},
        None,
    ),
    ("set_label", ["e1", "l"], {}, {"entryId": "e1", "label": "l"}, None),
    ("set_session_name", ["n"], {}, {"name": "n"}, None),
    ("export_html", ["/x"], {}, {"outputPath": "/x"}, "/tmp/x.html"),
    ("set_todos", [[{"name": "p"}]], {}, {"phases": [{"name": "p"}]}, [{"name": "p"}]),
    ("set_host_tools", [[{"name": "t"}]], {}, {"tools": [{"name": "t"}]}, ["t"]),
    ("unlock", ["c"], {"permit": "p"}, {"code": "c", "permit": "p"}, "p"),
    ("get_model_ways", [], {}, {}, [{"kind": "key"}]),
    ("get_keys", [], {}, {}, [{"provider": "p"}]),
    ("set_key", ["k", "p"], {}, {"key": "k", "provider": "p"}, {"echo": "set_key"}),
    ("remove_key", ["p"], {}, {"provider": "p"}, None),
    ("take_keys", [], {}, {}, ["p"]),
    ("pull_model", ["m"], {}, {"name": "m"}, "m"),
    ("get_settings", [], {}, {}, [{"key": "k"}]),
    ("set_setting", ["k", 1], {}, {"key": "k", "value": 1}, None),
    (
        "set_rule",
        ["deny", "Bash"],
        {"project": True},
        {"behavior": "deny", "rule": "Bash", "project": True},
        None,
    ),
    ("reload", [], {}, {}, None),
    ("add_mcp_server", ["s", {"command": "c"}], {}, {"name": "s", "config": {"command": "c"}}, [{"name": "s"}]),
    ("remove_mcp_server", ["s"], {}, {"name": "s"}, [{"name": "s"}]),
    ("switch_mcp_server", ["s", False], {}, {"name": "s", "on": False}, [{"name": "s"}]),
    ("restart_mcp_server", ["s"], {}, {"name": "s"}, [{"name": "s"}]),
    ("log_in_mcp_server", ["s"], {}, {"name": "s"}, [{"name": "s"}]),
    ("get_loaded", [], {}, {}, {"echo": "get_loaded"}),
    ("get_stored_entries", ["s1"], {"since": "e1"}, {"session": "s1", "since": "e1"}, {"echo": "get_stored_entries"}),
    ("list_files", ["src"], {}, {"path": "src"}, {"echo": "list_files"}),
    ("read_file", ["a.py"], {"line": 7}, {"path": "a.py", "line": 7}, {"echo": "read_file"}),
    ("find_files", [["a.py"]], {}, {"paths": ["a.py"]}, ["a.py"]),
    ("share_session", [], {}, {}, {"echo": "share_session"}),
    ("get_links", [], {}, {}, []),
    ("remove_link", ["a:b"], {}, {"link": "a:b"}, None),
    ("list_folders", ["/w"], {}, {"path": "/w"}, {"echo": "list_folders"}),
    ("set_mcp_servers", [{"s": {"command": "c"}}], {}, {"servers": {"s": {"command": "c"}}}, [{"name": "s"}]),
]
IN_OTHER_TESTS = {"request", "prompt", "shutdown"}


def test_every_command_is_called_below() -> None:
    methods = {name for name, _ in inspect.getmembers(Commands, inspect.isfunction) if not name.startswith("_")}
    assert methods == {call[0] for call in CALLS} | IN_OTHER_TESTS


def test_every_command_of_the_protocol_has_a_method() -> None:
    from spindle.protocol.commands import COMMANDS

    missing = [name for name in COMMANDS if not hasattr(RpcClient, name)]
    # Our client needs all events, and whole lines; it serves no addresses.
    others = ["negotiate_protocol", "set_event_filter", "set_host_uri_schemes", "set_subagent_subscription"]
    assert sorted(missing) == others


@both_ways
def test_methods_send_their_fields_and_unwrap_the_answer(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        results = [await getattr(agent, name)(*args, **options) for name, args, options, _, _ in CALLS]
        frames = await sent(agent)
        for (name, _, _, fields, expected), result, frame in zip(CALLS, results, frames, strict=True):
            assert {key: value for key, value in frame.items() if key != "id"} == {"type": name, **fields}
            if expected is not ...:
                assert result == expected, name

    drive(scene, way=way)


@both_ways
def test_answers_find_their_questions(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        names = [f"command_{number}" for number in range(50)]
        answers = await asyncio.gather(*(agent.request(name) for name in names))
        assert [answer["echo"] for answer in answers] == names

    drive(scene, way=way)


def test_a_refusal_is_an_exception() -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(CommandFailed, match="nope: Unknown command: nope") as failed:
            await agent.request("nope")
        assert (failed.value.command, failed.value.error) == ("nope", "Unknown command: nope")

    drive(scene)


def test_a_refusal_without_id_still_arrives() -> None:
    """Older agents leave the id out when they do not know a command."""

    async def scene(agent: RpcClient) -> None:
        with pytest.raises(CommandFailed, match="nameless"):
            await agent.request("nameless")

    drive(scene)


@both_ways
def test_silence_ends_in_a_timeout_and_harms_nobody(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(RequestTimeout, match=r"silence: no answer within 0\.05 s"):
            await agent.request("silence", timeout=0.05)
        assert (await agent.get_state())["sessionId"] == "s1"

    drive(scene, way=way)


def test_the_usual_timeout_is_the_clients() -> None:
    async def scene(agent: RpcClient) -> None:
        await agent.get_state(timeout=None)
        with pytest.raises(TimeoutError):
            await agent.request("silence")

    drive(scene, request_timeout=0.05)


def test_images_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "dot.gif").write_bytes(b"GIF")
    assert image_file(tmp_path / "dot.gif") == {"type": "image", "data": "R0lG", "mimeType": "image/gif"}


# -- runs and events ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [FAKE, OLD_FAKE], ids=["settles", "old"])
def test_a_prompt_is_waited_for(command: list[str]) -> None:
    async def scene(agent: RpcClient) -> None:
        seen: list[Event] = []
        for _ in range(2):
            run = await agent.prompt_and_wait("hi", on_event=seen.append)
            assert (run.text, run.error, run.aborted) == ("Hello", None, False)
        assert "".join(event.text_delta for event in seen) == "HelloHello"
        assert sum(event.type == "agent_end" for event in seen) == 2

    drive(scene, command)


@pytest.mark.parametrize("command", [FAKE, OLD_FAKE], ids=["settles", "old"])
@pytest.mark.parametrize("words", ["retry", "compact"])
def test_a_run_is_over_when_nothing_more_follows(command: list[str], words: str) -> None:
    async def scene(agent: RpcClient) -> None:
        seen: list[str] = []
        run = await agent.prompt_and_wait(words, on_event=lambda event: seen.append(event.type))
        assert run.text == "Hello"
        ends = [name for name in seen if name in ("agent_end", "compaction_end")]
        assert ends == (["agent_end"] * 2 if words == "retry" else ["agent_end", "compaction_end"])

    drive(scene, command)


def test_a_prompt_sent_at_the_end_of_a_run_gets_its_own_answer() -> None:
    """The agent settles the first run when the second prompt is already on its way."""

    async def scene(agent: RpcClient) -> None:
        async for event in agent.run("settles-late"):
            if event.type == "agent_end":
                break
        run = await agent.prompt_and_wait("hi")
        assert (run.text, len(run.messages)) == ("Hello", 1)

    drive(scene)


def test_a_failed_answer_tells_why() -> None:
    async def scene(agent: RpcClient) -> None:
        runs = []
        async for event in agent.run("retry"):
            if event.type == "agent_end":
                runs.append(event["messages"][0]["stopReason"])
        assert runs == ["error", "stop"]

    drive(scene)


@both_ways
def test_a_refused_prompt_raises(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(CommandFailed, match="No API key found"):
            await agent.prompt_and_wait("refused")
        with pytest.raises(CommandFailed, match="already processing"):
            await agent.prompt_and_wait("late-refusal")
        assert (await agent.prompt_and_wait("hi")).text == "Hello"

    drive(scene, way=way)


@both_ways
def test_a_prompt_that_an_extension_handled_is_over_at_once(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        events = agent.run("/handled")
        seen = [event.get("message") async for event in events]
        assert seen[-1] == "did it"
        result = await events.result()
        assert (result.status, result.stop_reason, result.text) == ("ok", "handled", "")

    drive(scene, way=way)


@both_ways
def test_abort_ends_a_run(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        running = asyncio.create_task(agent.prompt_and_wait("abort"))
        await asyncio.sleep(0)
        await agent.abort()
        run = await running
        assert (run.aborted, run.text) == (True, "Hel")

    drive(scene, way=way)


def test_a_run_may_have_a_time_limit() -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(RequestTimeout):
            await agent.prompt_and_wait("abort", timeout=0.1)

    drive(scene, exit_grace=0.2)


@both_ways
def test_noise_and_news_are_survived(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        seen: list[Event] = []
        assert (await agent.prompt_and_wait("noise", on_event=seen.append)).text == "Hello"
        assert Event(type="brand_new_event", value=1) in seen

    drive(scene, way=way)


@both_ways
def test_streams_and_listeners_hear_everything_from_their_start(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        heard: list[str] = []

        def careless(event: Event) -> None:
            raise ValueError("oops")

        agent.subscribe(careless)
        stop = agent.subscribe(lambda event: heard.append(event.type))
        stream = agent.events()
        await agent.prompt_and_wait("hi")
        stop()
        stop()
        await agent.prompt_and_wait("hi")
        collected = []
        async for event in stream:
            collected.append(event.type)
            if collected.count("agent_settled") == 2:
                break
        heard_once = [name for name in heard if name != "ready"]
        assert [name for name in collected if name != "ready"] == heard_once * 2

    drive(scene, way=way)


def test_delta_updates_are_asked_for_where_they_are_known() -> None:
    async def scene(agent: RpcClient) -> None:
        (first, *_) = await sent(agent)
        assert (first["type"], first["mode"]) == ("set_update_mode", "delta")

    drive(scene, FAKE, updates="delta")
    drive(scene, OLD_FAKE, updates="delta")


# -- dialogs --------------------------------------------------------------------------------------

CONFIRM = 'dialog {"method": "confirm", "title": "Sure?"}'
SELECT = 'dialog {"method": "select", "title": "Which?", "options": ["a", "b"]}'


@both_ways
@pytest.mark.parametrize(
    ("prompt", "answer", "reply"),
    [
        (CONFIRM, True, '{"confirmed": true}'),
        (CONFIRM, False, '{"confirmed": false}'),
        (CONFIRM, None, '{"cancelled": true}'),
        (SELECT, "b", '{"value": "b"}'),
        (SELECT, None, '{"cancelled": true}'),
    ],
)
def test_a_handler_answers_dialogs(prompt: str, answer: Any, reply: str, way: str) -> None:
    asked: list[Event] = []

    def plain(request: Event) -> Any:
        asked.append(request)
        return answer

    async def slow(request: Event) -> Any:
        await asyncio.sleep(0)
        return plain(request)

    async def scene(agent: RpcClient) -> None:
        assert (await agent.prompt_and_wait(prompt)).text == reply
        agent.on_ui_request = slow
        assert (await agent.prompt_and_wait(prompt)).text == reply

    drive(scene, way=way, on_ui_request=plain)
    assert [request["title"] for request in asked] in (["Sure?"] * 2, ["Which?"] * 2)


@both_ways
def test_without_a_handler_or_with_a_broken_one_dialogs_are_cancelled(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        assert (await agent.prompt_and_wait(CONFIRM)).text == '{"cancelled": true}'
        agent.on_ui_request = lambda request: 1 / 0
        assert (await agent.prompt_and_wait(CONFIRM)).text == '{"cancelled": true}'

    drive(scene, way=way)


# -- ends -----------------------------------------------------------------------------------------


def test_a_crash_reaches_everybody_who_waits() -> None:
    async def scene(agent: RpcClient) -> None:
        stream = agent.events()
        waiting = asyncio.create_task(agent.request("silence", timeout=None))
        with pytest.raises(AgentCrashed) as crash:
            await agent.prompt_and_wait("crash")
        assert crash.value.exit_code == 3
        assert "out of cheese" in crash.value.stderr
        assert "exit code 3" in str(crash.value)
        with pytest.raises(AgentCrashed):
            await waiting
        with pytest.raises(AgentCrashed):
            await agent.get_state()
        with pytest.raises(AgentCrashed):
            async for _ in stream:
                pass
        with pytest.raises(AgentCrashed):
            await anext(agent.events())

    drive(scene)


def test_a_crash_is_seen_although_a_child_holds_the_pipes() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '30']); sys.exit(4)"

    async def scene(agent: RpcClient) -> None:
        with pytest.raises(AgentCrashed) as crash:
            await agent.get_state()
        assert crash.value.exit_code == 4

    drive(scene, [sys.executable, "-c", script])


def test_a_killed_agent_names_the_signal() -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(AgentCrashed, match="killed by signal 9"):
            await agent.get_state()

    drive(scene, ["sh", "-c", "kill -9 $$"])


def test_a_program_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(RpcClient(["no-such-agent-anywhere"]).start())


def test_closing_ends_the_agent_and_everything_open() -> None:
    async def play() -> None:
        agent = RpcClient(FAKE)
        with pytest.raises(ClientClosed):
            await agent.get_state()
        await agent.start()
        await agent.start()
        stream = agent.events()
        assert (await agent.get_state())["sessionId"] == "s1"
        await agent.close()
        await agent.close()
        assert [event.type async for event in stream] == ["ready"]
        with pytest.raises(ClientClosed):
            await agent.get_state()

    asyncio.run(play())


def test_who_starts_it_twice_at_a_time_gets_one_agent(tmp_path: Path) -> None:
    async def play() -> None:
        agent = RpcClient(["sh", "-c", 'echo began >>began; exec "$@"', "sh", *FAKE], cwd=tmp_path)
        await asyncio.gather(agent.start(), agent.start())
        await agent.get_state()
        await agent.close()

    asyncio.run(play())
    assert (tmp_path / "began").read_text() == "began\n"


def test_a_crashed_agent_may_be_closed_and_started_again() -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(AgentCrashed):
            await agent.prompt_and_wait("crash")
        await agent.start()
        with pytest.raises(AgentCrashed):
            await agent.get_state()
        await agent.close()
        await agent.start()
        assert (await agent.prompt_and_wait("hello")).error is None

    drive(scene)


def test_an_agent_that_does_not_end_is_made_to() -> None:
    async def play() -> None:
        agent = RpcClient(FAKE, exit_grace=0.1)
        await agent.start()
        await agent.request("linger")
        async with asyncio.timeout(50):
            await agent.close()

    asyncio.run(play())


def test_a_close_that_is_cancelled_leaves_no_agent_behind() -> None:
    async def play() -> None:
        agent = RpcClient(FAKE, exit_grace=60)
        await agent.start()
        stream = agent.events()
        await agent.request("linger")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await agent.close()
        async with asyncio.timeout(50):
            assert [event.type async for event in stream] == ["ready"]

    asyncio.run(play())


def test_a_close_that_is_cancelled_early_does_not_wait_for_the_agent() -> None:
    question = '{"type": "extension_ui_request", "id": "1", "method": "confirm"}'
    script = f"import time; print('{question}', flush=True); time.sleep(120)"

    async def play() -> None:
        asked = asyncio.Event()

        async def slow_to_give_up(request: Event) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.Event().wait()

        agent = RpcClient([sys.executable, "-c", script], on_ui_request=slow_to_give_up, exit_grace=120)
        await agent.start()
        await asked.wait()
        closing = asyncio.create_task(agent.close())
        await asyncio.wait([closing], timeout=0.05)
        closing.cancel()
        await asyncio.wait([closing], timeout=50)
        assert closing.cancelled()

    asyncio.run(play())


def test_a_client_may_start_again_whatever_became_of_the_close() -> None:
    async def play() -> None:
        agent = RpcClient(LATE_TO_LEAVE, exit_grace=60)
        await agent.start()
        await agent.request("linger")
        asking = asyncio.create_task(agent.request("silence", timeout=None))
        closing = asyncio.create_task(agent.close())
        await asyncio.wait([closing], timeout=0.05)
        closing.cancel()
        await agent.start()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(asking, 50)
        assert (await agent.get_state())["sessionId"] == "s1"
        await agent.close()

    asyncio.run(play())


def test_a_close_that_is_cancelled_late_leaves_nobody_waiting() -> None:
    async def play() -> None:
        agent = RpcClient(LATE_TO_LEAVE, exit_grace=60)
        await agent.start()
        await agent.get_state()
        asking = asyncio.create_task(agent.request("silence", timeout=None))
        closing = asyncio.create_task(agent.close())
        await asyncio.wait([closing], timeout=CHILD_LINGER / 2)  # it is gone, but its last words may still come
        closing.cancel()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(asking, 50)

    asyncio.run(play())


@both_ways
def test_what_cannot_be_written_is_refused_and_leaves_nothing_behind(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(NotImplementedError, match="cannot be written as JSON"):
            await agent.request("bash", command=object())
        with pytest.raises(CommandFailed, match="nameless"):  # found, for it is the only one that waits
            await agent.request("nameless")

    drive(scene, way=way)


@both_ways
def test_shutdown_is_a_command(way: str) -> None:
    async def scene(agent: RpcClient) -> None:
        await agent.shutdown()

    drive(scene, way=way)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_turn": 1}, "run() got an unexpected keyword argument 'max_turn'. Did you mean max_turns?"),
        ({"schema": {"type": "strin"}}, "schema is no JSON Schema: there is no type 'strin'. Did you mean string?"),
        ({"message": None}, "A message must be a str, not None"),
    ],
)
def test_a_prompt_that_makes_no_sense_is_not_sent(options: dict[str, Any], text: str) -> None:
    async def scene(agent: RpcClient) -> None:
        with pytest.raises(TypeError) as caught:
            await agent.run(**{"message": "hi", **options})
        assert text in str(caught.value)
        with pytest.warns(RuntimeWarning, match="a prompt was not sent"):
            agent.run("hi")
        with pytest.raises(TypeError, match="A listener must be a plain function"):
            agent.subscribe(5)  # type: ignore[arg-type]

    drive(scene, way="process")


def test_a_client_is_not_made_of_nonsense() -> None:
    with pytest.raises(ValueError, match="The command line is empty"):
        RpcClient([])
    with pytest.raises(ValueError, match='updates must be "full" or "delta"'):
        RpcClient(["x"], updates="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_ui_request must be a function, not 5"):
        RpcClient(["x"], on_ui_request=5)  # type: ignore[arg-type]
