"""The tools, resources and prompts of servers in a whole agent with a scripted model."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.agent.dialogs import NoDialogs
from spindle.base.agent_dir import agent_dir
from spindle.plugins.mcp.content import cut
from spindle.plugins.mcp.exposure import ServerTools
from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.tool_names import tool_name
from spindle.resources.trust import TrustStore
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import Notice, ToolExecutionEnd, ToolExecutionUpdate
from spindle.shapes.messages import Image, Text, ToolResultMessage
from spindle.testing import Script

from .helpers import entry, is_alive, running, until


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 50))


async def known(*options: str, **more: Any) -> None:
    """Let what the fake server has be known, as after an earlier session."""
    async with running(*options, **more) as server:
        await server.connected()


def calling(*calls: tuple[str, Any]) -> list[Any]:
    """Return the steps of a model that makes these calls one after the other."""
    return [*({"calls": [{"name": name, "arguments": given}]} for name, given in calls), {"text": "done"}]


async def results(steps: Sequence[Any], servers: Any, **options: Any) -> list[ToolResultMessage]:
    script = Script(list(steps))
    async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers, **options) as agent:
        await agent.run("go")
        return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def text(message: ToolResultMessage) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, Text))


def test_few_tools_are_direct_and_a_call_works() -> None:
    async def work() -> None:
        await known()
        script = Script(calling(("mcp__fake__echo", {"text": "hi"})))
        async with await Agent.create(model=script.model(), persist=False, mcp_servers={"fake": entry()}) as agent:
            assert agent.session.mcp_servers.states()[0].state == "idle"  # known, so there was no need to start it
            await agent.run("go")
            names = [tool.name for tool in script.requests[0].tools]
            assert "mcp__fake__echo" in names and "tool_search" not in names
            assert names[4:7] == ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]
            assert agent.messages[-2].content[0].text == "echo: hi"
            assert agent.session.mcp_servers.states()[0].state == "ready"

    run(work())


RESOURCES = ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]


@pytest.mark.parametrize(
    ("tools", "wanted"),
    [
        (["read", "mcp__fake__echo"], ["read", "mcp__fake__echo"]),  # else there would be no way to it
        (["read", "mcp__fake__echo", "tool_search"], ["read", "tool_search"]),
        (["read", "mcp__*"], ["read", "tool_search", *RESOURCES]),
        (["read"], ["read"]),
        (["-mcp__*", "-bash"], ["read", "edit", "write"]),
        (["-mcp__fake", "-bash"], ["read", "edit", "write"]),
        (["-mcp__fake__echo", "-bash"], ["read", "edit", "write", "tool_search", *RESOURCES]),
    ],
)
def test_lists_of_tools_hold_for_servers_whose_tools_are_searched(tools: list[str], wanted: list[str]) -> None:
    async def work() -> None:
        await known()
        script = Script(calling(("tool_search", {"query": "select:mcp__fake__echo"})))
        servers = {"fake": entry(exposure="deferred")}
        async with await Agent.create(model=script.model(), persist=False, tools=tools, mcp_servers=servers) as agent:
            await agent.run("go")
            assert [tool.name for tool in script.requests[0].tools] == wanted
            if "-mcp__fake__echo" in tools:
                assert "No tool was found" in text(agent.messages[-2])

    run(work())


def test_a_question_shows_the_fields_of_a_call() -> None:
    async def work() -> None:
        await known()
        seen: list[Any] = []
        script = Script(calling(("mcp__fake__echo", {"text": "hi"})))
        options: dict[str, Any] = {"can_use_tool": lambda request: bool(seen.append(request)), "ask": ["mcp__fake"]}
        async with await Agent.create(
            model=script.model(), persist=False, mcp_servers={"fake": entry()}, **options
        ) as agent:
            await agent.run("go")
        (request,) = seen
        assert request.summary == "Call echo of the MCP server fake"
        assert [(one.name, one.value) for one in request.preview.fields] == [("text", "hi")]

    run(work())


def test_results() -> None:
    async def work() -> None:
        await known()
        tools = ("long", "image", "fail", "structured", "crash", "echo")
        found = await results(calling(*((f"mcp__fake__{name}", {}) for name in tools)), {"fake": entry()})
        long, image, fail, structured, crash, echo = found
        whole = text(long)
        assert len(whole) < 21_000 and whole.startswith("AAA") and whole.endswith("ZZZ") and "MIDDLE" not in whole
        kept = Path(whole.partition("The whole text: ")[2].partition(" ")[0])
        assert "MIDDLE" in kept.read_text() and kept.stat().st_mode & 0o777 == 0o600
        kept.unlink()
        assert [type(block) for block in image.content] == [Image, Text] and "audio/wav" in text(image)
        assert fail.is_error and text(fail) == "it went wrong"
        assert text(structured) == '{"n":5}' and structured.details == {"structuredContent": {"n": 5}}
        assert crash.is_error and "I fall over now" in text(crash)
        assert text(echo) == "echo: None"

    run(work())


def test_many_tools_wait_behind_a_search() -> None:
    async def work() -> None:
        await known("--tools", "40")
        steps = calling(
            ("tool_search", {"query": "number 17"}),
            ("mcp__fake__extra_17", {}),
            ("tool_search", {"query": "select:mcp__fake__echo,extra_3"}),
            ("tool_search", {"query": "nothing like it"}),
            ("tool_search", {"query": "select:" + ",".join(f"extra_{n}" for n in range(20, 28))}),
        )
        script = Script(steps)
        servers = {"fake": entry("--tools", "40", description="all kinds of things")}
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers) as agent:
            await agent.run("go")
            before, after, *_ = [[tool.name for tool in request.tools] for request in script.requests]
            assert [name for name in before if "fake" in name] == [] and before[4] == "tool_search"
            assert "- fake: all kinds of things" in script.requests[0].tools[4].description
            assert after[: len(before)] == before and "mcp__fake__extra_17" in after[len(before) :]
            found = [text(message) for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert "mcp__fake__extra_17: Extra number 17." in found[0] and found[1] == "called extra_17"
            assert "mcp__fake__echo" in found[2] and "mcp__fake__extra_3:" in found[2]
            assert found[3].startswith("No tool was found")
            assert all(f"mcp__fake__extra_{n}:" in found[4] for n in range(20, 28))  # who names tools gets them all

    run(work())


def test_a_server_that_is_not_known_yet_holds_no_prompt() -> None:
    async def work() -> None:
        slow = entry("--delay", "0.5")
        script = Script(calling(("tool_search", {"query": "echo"}), ("mcp__slow__echo", {"text": "late"})))
        broken = {"command": "sh", "args": ["-c", "echo cannot >&2; exit 1"]}
        servers = {"slow": slow, "broken": broken}
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers) as agent:
            notices: list[str] = []
            agent.subscribe(lambda event: notices.append(event.message) if isinstance(event, Notice) else None)
            begun = asyncio.get_running_loop().time()
            task = asyncio.create_task(agent.run("go"))
            await until(lambda: len(script.requests) > 0)
            assert asyncio.get_running_loop().time() - begun < 0.4
            await until(lambda: agent.session.mcp_servers.states()[0].state == "starting")
            await task
            found = [text(message) for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert "mcp__slow__echo" in found[0] and "- broken: MCP server" in found[0] and found[1] == "echo: late"
            assert [text for text in notices if "broken" in text and "cannot" in text]

    run(work())


def test_exposure_is_as_configured() -> None:
    async def work() -> None:
        await known("--plain", "--tools", "2")
        script = Script([{"text": "done"}])
        servers = {
            "fake": entry(
                "--plain", "--tools", "2", exposure="deferred", toolExposure={"ech*": "direct", "extra_0": "hidden"}
            ),
            "off": entry(enabled=False),
            "gone": entry("--plain", exposure="hidden"),
        }
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers) as agent:
            await agent.run("go")
            names = [tool.name for tool in script.requests[0].tools]
            assert [name for name in names if name.startswith("mcp__")] == [
                "mcp__fake__echo"
            ] and "tool_search" in names
            assert "gone" not in script.requests[0].tools[4].description
            assert [state.state for state in agent.session.mcp_servers.states()] == ["idle", "idle", "disabled"]

    run(work())


def test_resources_and_prompts() -> None:
    async def work() -> None:
        await known()
        steps = calling(
            ("list_mcp_resources", {}),
            ("list_mcp_resource_templates", {"server": "fake"}),
            ("read_mcp_resource", {"server": "fake", "uri": "test://one"}),
            ("read_mcp_resource", {"server": "none", "uri": "test://one"}),
        )
        script = Script(steps)
        async with await Agent.create(model=script.model(), persist=False, mcp_servers={"fake": entry()}) as agent:
            await agent.run('/mcp__fake__greet Ada how="very loudly"')
            said = agent.messages[0].content[0].text
            assert said == 'Prompt "greet" of the MCP server "fake":\n\n/skill:none Greet Ada very loudly'
            found = [text(message) for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert json.loads(found[0]) == {"resources": [{"server": "fake", "uri": "test://one", "name": "one"}]}
            assert json.loads(found[1])["resourceTemplates"][0]["uriTemplate"] == "test://{n}"
            assert found[2] == "content of test://one" and 'no MCP server "none"' in found[3]
            command = next(item for item in agent.session.commands() if item.name == "mcp__fake__greet")
            assert command.description == "Say hello. <who> [how]"
            outcome = await agent.run("/mcp__fake__greet")
            assert outcome.stop_reason == "error" and "needs who" in (outcome.error or "")
            await agent.run("/mcp__fake__say_good_bye\nAda")  # a name with spaces, and a line of its own
            assert "Greet Ada warmly" in agent.messages[-2].content[0].text

    run(work())


READS = calling(
    ("list_mcp_resources", {}),
    ("list_mcp_resources", {"server": "evil"}),
    ("list_mcp_resource_templates", {"server": "evil"}),
    ("read_mcp_resource", {"server": "evil", "uri": "test://one"}),
    ("read_mcp_resource", {"server": "fake", "uri": "test://one"}),
)


@pytest.mark.parametrize("rule", ["mcp__evil", "mcp__evil__*", "mcp__e*"])
def test_rules_for_a_server_hold_for_its_resources_and_prompts(rule: str) -> None:
    async def work() -> None:
        await known()
        script = Script(READS)
        servers = {"fake": entry(), "evil": entry(env={"A": "b"})}
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers, deny=[rule]) as agent:
            await agent.run("go")
            found = [text(message) for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert json.loads(found[0]) == {"resources": [{"server": "fake", "uri": "test://one", "name": "one"}]}
            for refused in found[1:4]:
                assert f"refused by rule {rule}" in refused
            assert found[4] == "content of test://one"
            await until(lambda: any(item.name == "mcp__evil__greet" for item in agent.session.commands()))
            outcome = await agent.run("/mcp__evil__greet Ada")
            assert outcome.stop_reason == "error" and f"refused by rule {rule}" in (outcome.error or "")
            assert (await agent.run("/mcp__fake__greet Ada")).stop_reason == "end"
        asked = []

        async def answer(name: str, arguments: Any) -> bool:
            asked.append(arguments["server"])
            return False

        found = await results(READS[3:], servers, ask=[rule], can_use_tool=answer)
        assert asked == ["evil"] and "did not allow" in text(found[0]) and text(found[1]) == "content of test://one"

    run(work())


def test_plan_mode_reads_nothing_from_a_server_of_a_project(project: Path, write: Any) -> None:
    """It could do anything when it is asked for a resource or a prompt; a server of the user is believed."""

    async def work() -> None:
        await known()
        write("project/.mcp.json", {"mcpServers": {"evil": entry(env={"A": "b"})}})
        TrustStore(agent_dir()).remember(project, True)
        script = Script(READS)
        servers = {"fake": entry()}
        options = {"mcp_servers": servers, "permission_mode": "plan", "cwd": project}
        async with await Agent.create(model=script.model(), persist=False, **options) as agent:
            await agent.run("go")
            found = [text(message) for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert '"server":"evil"' not in found[0] and '"server":"fake"' in found[0]
            assert all("plan mode" in refused for refused in found[1:4])
            assert found[4] == "content of test://one"
            await until(lambda: any(item.name == "mcp__evil__greet" for item in agent.session.commands()))
            outcome = await agent.run("/mcp__evil__greet Ada")
            assert outcome.stop_reason == "error" and "plan mode" in (outcome.error or "")

    run(work())


def test_problems_with_resources_name_their_server() -> None:
    async def work() -> None:
        await known()
        servers = {"fake": entry(), "poor": entry("--no-resources"), "broken": {"command": "false"}}
        steps = calling(("list_mcp_resources", {}), ("list_mcp_resources", {"server": "poor"}))
        some, none = await results(steps, servers)
        assert '"server":"fake"' in text(some) and 'MCP server "poor": Method not found: resources/list' in text(some)
        assert 'MCP server "broken": it ended with exit code 1' in text(some) and not some.is_error
        assert none.is_error and text(none) == 'MCP server "poor": Method not found: resources/list'

    run(work())


def test_texts_and_images_stay_in_their_order() -> None:
    blocks = [Text("a cat:"), Image("AAAA", "image/png"), Text("the image above is a cat")]
    assert cut(blocks) == blocks


def test_more_images_than_a_model_can_use() -> None:
    shown = cut([Text("here"), *[Image("AAAA", "image/png")] * 25])
    assert len([block for block in shown if isinstance(block, Image)]) == 20
    assert [block.text for block in shown if isinstance(block, Text)] == ["here", "[5 more images are left out.]"]


class User(NoDialogs):
    """Answers dialogs from a list."""

    has_ui = True

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[ExtensionUIRequest] = []

    async def ask(self, request: ExtensionUIRequest) -> Any:
        self.seen.append(request)
        return self.answers.pop(0)


def test_a_server_asks_the_user() -> None:
    async def work() -> None:
        await known()
        servers, step = {"fake": entry()}, calling(("mcp__fake__ask", {}))
        user = User({"value": "Ada"}, {"value": "large"}, {"value": ""}, {"confirmed": True})
        [answer] = await results(step, servers, ui=user)
        content = {"name": "Ada", "size": "large", "age": 7, "sure": True}
        assert json.loads(text(answer)) == {"action": "accept", "content": content}
        assert [request.method for request in user.seen] == ["input", "select", "input", "confirm"]
        assert user.seen[0].title == 'MCP server "fake": Who are you?\nName' and user.seen[2].prefill == "7"
        [answer] = await results(step, servers, ui=User(None))
        assert json.loads(text(answer)) == {"action": "decline"}
        [answer] = await results(step, servers)  # no one is there
        assert json.loads(text(answer)) == {"action": "decline"}
        user = User({"confirmed": True})
        [answer] = await results(calling(("mcp__fake__visit", {})), servers, ui=user)
        assert json.loads(text(answer)) == {"action": "accept"} and "https://example.org/x" in (
            user.seen[0].message or ""
        )

    run(work())


def test_progress_is_shown() -> None:
    async def work() -> None:
        await known()
        script = Script(calling(("mcp__fake__steps", {})))
        async with await Agent.create(model=script.model(), persist=False, mcp_servers={"fake": entry()}) as agent:
            events = [event async for event in agent.prompt("go")]
            updates = [event.partial_result for event in events if isinstance(event, ToolExecutionUpdate)]
            assert updates[0].content[0].text == "1/5 step"
            assert any(isinstance(event, ToolExecutionEnd) and not event.is_error for event in events)

    run(work())


def test_tools_that_change_in_the_middle(tmp_path: Path) -> None:
    async def work() -> None:
        await known()
        seen = tmp_path / "seen"
        gate = {"name": "bash", "arguments": {"command": f"while [ ! -e {seen} ]; do sleep 0.02; done"}}
        steps = [{"calls": [{"name": "mcp__fake__change", "arguments": {}}, gate]}, *calling(("mcp__fake__added", {}))]
        script = Script(steps)
        async with await Agent.create(model=script.model(), persist=False, mcp_servers={"fake": entry()}) as agent:
            work = asyncio.create_task(agent.run("go"))
            await until(lambda: any(tool.name == "mcp__fake__added" for tool in agent.session.toolbox.all()))
            seen.touch()
            await work
            assert "mcp__fake__added" not in [tool.name for tool in script.requests[0].tools]
            assert "mcp__fake__added" in [tool.name for tool in script.requests[1].tools]
            assert text(agent.messages[-2]) == "called added"  # type: ignore[arg-type]

    run(work())


def test_permissions_know_what_a_tool_says_of_itself() -> None:
    async def work() -> None:
        await known()
        asked = []

        async def can_use(name: str, arguments: Any) -> bool:
            asked.append(name)
            return False

        steps = calling(("mcp__fake__echo", {}), ("mcp__fake__crash", {}), ("mcp__fake__long", {}))
        servers = {"fake": entry()}
        found = await results(steps, servers, can_use_tool=can_use)
        assert asked == ["mcp__fake__crash", "mcp__fake__long"]  # reading is free
        assert [message.is_error for message in found] == [False, True, True]
        found = await results(steps, servers, permission_mode="plan")
        assert [message.is_error for message in found] == [False, True, True]
        found = await results(steps, servers, permission_mode="dontAsk", allow=["mcp__fake"], deny=["mcp__fake__crash"])
        assert [message.is_error for message in found] == [False, True, False]
        async with await Agent.create(persist=False, mcp_servers=servers, permission_mode="default") as agent:
            decision = agent.session.approval.state("mcp__fake__crash", {}).decision
            assert decision is not None and "may destroy data" in (decision.reason or "")

    run(work())


def test_names_that_models_take() -> None:
    assert tool_name("fake", "echo") == "mcp__fake__echo"
    odd = tool_name("fake", "dots.and spaces")
    assert odd.startswith("mcp__fake__dots_and_spaces_") and odd != tool_name("fake", "dots.and_spaces")
    for other in ("fake__more", "fake_", "fake__", "_fake"):  # a rule for fake is not for these
        name = tool_name(other, "echo")
        assert not name.startswith("mcp__fake__") and re.fullmatch("mcp__[a-z_]+-[0-9a-f]{8}__echo", name)
    assert tool_name("fake", "_echo") != tool_name("fake_", "echo")
    long = tool_name("fake", "x" * 100)
    assert len(long) == 64 and long != tool_name("fake", "x" * 101)


def test_servers_that_make_no_sense() -> None:
    async def work() -> None:
        script = Script([{"text": "done"}])
        async with await Agent.create(model=script.model(), persist=False) as agent:
            for servers, words in (
                ({"a": {"type": "pigeon", "url": "http://x"}}, 'unknown type "pigeon"'),
                ({"a b": {"command": "x"}}, "cannot be the name of a server"),
                ({"a": {}}, "needs a command or a url"),
                ([{"command": "x"}], 'with a "name"'),
            ):
                with pytest.raises(AgentError, match=words):
                    await agent.session.mcp_servers.set(servers)
            assert agent.session.mcp_servers.states() == []
            acp = [
                {
                    "name": "fake",
                    "command": entry()["command"],
                    "args": entry()["args"],
                    "env": [{"name": "A", "value": "b"}],
                }
            ]
            assert [state.name for state in await agent.session.mcp_servers.set(acp)] == ["fake"]
            assert await agent.session.mcp_servers.set({}) == []
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=False) as agent:
            with pytest.raises(AgentError, match="MCP is off"):
                await agent.session.mcp_servers.set({})

    run(work())


def test_what_was_loaded_is_there_again_after_a_resume(tmp_path: Path) -> None:
    async def work() -> None:
        await known("--tools", "40")
        servers = {"fake": entry("--tools", "40")}
        script = Script(calling(("tool_search", {"query": "number 17", "limit": 1})))
        async with await Agent.create(model=script.model(), cwd=tmp_path, mcp_servers=servers) as agent:
            await agent.run("go")
            path = agent.session.session.path
        assert path is not None and path.read_text().count(f'"{ServerTools.entry_type}"') == 2
        again = Script([{"text": "done"}])
        async with await Agent.open(path, model=again.model(), mcp_servers=servers) as agent:
            await agent.run("more")
        sent, resent = script.requests[-1], again.requests[0]
        assert resent.tools == sent.tools and resent.system_prompt == sent.system_prompt
        assert resent.messages[: len(sent.messages)] == sent.messages
        assert resent.tools[-1].name == "mcp__fake__extra_17"

    run(work())


def test_two_sessions_have_one_server() -> None:
    async def work() -> None:
        await known()
        steps = calling(("mcp__fake__echo", {"text": "hi"}))
        pids = []
        one = await Agent.create(model=Script(steps).model(), persist=False, mcp_servers={"fake": entry()})
        two = await Agent.create(model=Script(steps).model(), persist=False, mcp_servers={"fake": entry()})
        for agent in (one, two):
            await agent.run("go")
            pids.append(agent.session.mcp_servers.states()[0].pid or 0)
        assert pids[0] == pids[1] and is_alive(pids[0])
        await one.close()
        assert is_alive(pids[0]) and two.session.mcp_servers.states()[0].state == "ready"
        await two.close()
        assert not is_alive(pids[0])

    run(work())


def test_twenty_servers_that_are_known_stay_idle() -> None:
    async def work() -> None:
        await known("--tools", "5")
        names = [f"s{number}" for number in range(20)]
        for name in names:  # as if each had been asked before
            kept = next((agent_dir() / "mcp-cache").iterdir())
            servers = Servers()
            servers.add({name: entry("--tools", "5")}, "test")
            kept.with_name(f"{servers.configs[name].key()}.json").write_bytes(kept.read_bytes())
        script = Script([{"text": "done"}])
        servers = {name: entry("--tools", "5") for name in names}
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers) as agent:
            await agent.run("go")
            shown = agent.session.mcp_servers.states()
            assert [(state.state, state.tools, state.pid) for state in shown] == [("idle", 21, None)] * 20
            seen = [tool.name for tool in script.requests[0].tools]
            assert "tool_search" in seen and not [name for name in seen if name.startswith("mcp__")]

    run(work())
