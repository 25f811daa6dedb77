"""What a Python program may count on: results, limits, schemas, tools of its own, errors, cancelled tasks."""

import asyncio
import inspect
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import pytest

import spindle
from spindle import Agent, AgentError, LimitReached, ModelError, Refused, RunFailed, SchemaNotMet
from spindle.inprocess import CreateOptions, Limits
from spindle.programs import children
from spindle.testing import Pause, Script

from .rig import run, until_true

ROOT = Path(__file__).parents[2]


def hands_in(**value: Any) -> dict[str, Any]:
    return {"calls": [{"name": "final_result", "arguments": value}]}


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


class Person(msgspec.Struct):
    name: str
    age: int


@dataclass
class Place:
    city: str
    people: list[Person]


# -- one-liners, results ---------------------------------------------------------------------------


def test_one_question_with_an_agent_of_its_own(home):
    async def main():
        assert await spindle.ask("hi", cwd=home, model=Script(["hello"]).model(), persist=False) == "hello"

    run(main())


def test_the_events_of_one_prompt_with_their_shorthands(home):
    async def main():
        script = Script([{"thinking": "hm", "text": ["Hel", "lo"]}])
        seen = [event async for event in spindle.run("hi", cwd=home, model=script.model(), persist=False)]
        assert "".join(event.text_delta for event in seen) == "Hello"
        assert seen[-1].type == "agent_settled"

    run(main())


def test_a_loop_that_is_left_early_ends_its_agent(home):
    async def main():
        before = asyncio.all_tasks()
        script = Script([{"text": ["Hel", Pause(gate="go"), "lo"]}])
        async for event in spindle.run("hi", cwd=home, model=script.model()):
            if event.text_delta:
                break
        await until_true(lambda: asyncio.all_tasks() == before)

    run(main())


def test_the_result_of_a_run(home):
    async def main():
        script = Script(
            [calls("write", path="a.txt", content="a"), {"text": "done", "usage": {"input": 7, "output": 2}}]
        )
        async with await Agent.create(cwd=home, model=script.model()) as agent:
            result = await agent.run("write it")
            assert (result.status, result.stop_reason, result.text) == ("ok", "end", "done")
            assert (result.turns, result.tool_calls, result.files_changed) == (2, 1, ["a.txt"])
            assert result.session_file == str(agent.session.session.path)

    run(main())


def test_a_command_has_a_result_of_its_own(home):
    def extension(agent):
        @agent.command("quiet")
        async def quiet(*_):
            """Do nothing."""

    async def main():
        model = Script(["hello"]).model()
        async with await Agent.create(cwd=home, model=model, persist=False, extensions=[extension]) as agent:
            await agent.run("hi")
            result = await agent.run("/quiet")
            assert (result.status, result.stop_reason, result.text) == ("ok", "handled", "")
            with pytest.raises(SchemaNotMet):
                await agent.ask("/quiet", schema=Person)

    run(main())


def test_one_object_is_awaited_and_iterated(home):
    async def main():
        steps = ["one", {"text": ["x"] * 3000}, "three", "four", "five"]
        async with Agent.create(cwd=home, model=Script(steps).model(), persist=False) as agent:
            run = agent.prompt("hi")
            assert "".join([event.text_delta async for event in run]) == "one"
            assert (await run.result()).text == (await run).text == "one"
            assert len(agent.messages) == 2  # nothing was sent twice

            run = agent.run("hi")
            assert (await anext(run)).type == "agent_start"
            assert len((await run.result()).text) == 3000  # more events than the agent waits for a reader with
            rest = [event async for event in run]
            assert rest[-1].type == "agent_settled" and "".join(event.text_delta for event in rest) == "x" * 3000

            assert (await asyncio.create_task(agent.run("hi"))).text == "three"
            assert [result.text for result in await asyncio.gather(agent.run("hi"))] == ["four"]
            assert (await asyncio.wait_for(agent.prompt("hi"), 20)).text == "five"
        made = await asyncio.create_task(Agent.create(cwd=home, model=Script(["six"]).model(), persist=False))
        assert await made.ask("hi") == "six"
        await made.close()
        assert (await spindle.run("hi", cwd=home, model=Script(["seven"]).model(), persist=False)).text == "seven"
        with pytest.warns(RuntimeWarning, match="neither awaited nor iterated"):
            made.run("hi")

    run(main())


def test_leaving_the_block_closes_the_agent_and_a_refusal_is_told_each_time(home):
    async def main():
        async with Agent.create(cwd=home, model=Script(["one"]).model(), persist=False) as agent:
            pass
        refused = agent.run("hi")
        for way in (refused.result, refused.__anext__, refused.result):
            with pytest.raises(AgentError, match="The agent is closed"):
                await way()

    run(main())


def test_events_print_as_one_line(home):
    async def main():
        steps = [calls("bash", command="seq 2000"), {"thinking": "hm", "text": "y" * 5000}]
        lines = [repr(event) async for event in spindle.run("hi", cwd=home, model=Script(steps).model())]
        assert all(len(line) < 1000 and "\n" not in line and " object at 0x" not in line for line in lines)
        assert "MessageUpdate(assistant_message_event=ThinkingDelta(delta='hm'))" in lines
        assert lines[-1] == "AgentSettled(aborted=False, stop_reason='end')"

    run(main())


# -- only what the program names -------------------------------------------------------------------


def test_a_hermetic_agent_reads_nothing_of_the_user_and_the_project(home, tmp_path):
    """Everything that could change a request lies around; the request is that of an empty machine."""
    project, agent_dir = tmp_path / "project", tmp_path / "agent"
    server = {"mcpServers": {"far": {"command": "false"}}}
    for path, text in {
        agent_dir / "settings.json": json.dumps(
            {"defaultTools": ["read"], "permissions": {"deny": ["Bash"]}, "defaultProjectTrust": "always"}
        ),
        agent_dir / "SYSTEM.md": "marker-system",
        agent_dir / "APPEND_SYSTEM.md": "marker-append",
        agent_dir / "AGENTS.md": "marker-user",
        agent_dir / "mcp.json": json.dumps(server),
        agent_dir / "skills" / "s" / "SKILL.md": "---\nname: s\ndescription: marker-skill\n---\n",
        agent_dir / "extensions" / "e.py": "def extension(agent):\n    agent.command('marker')(lambda a, c: 0)\n",
        project / "AGENTS.md": "marker-project",
        project / ".mcp.json": json.dumps(server),
        project / ".pi" / "settings.json": '{"defaultTools": ["ls"]}',
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def main():
        script = Script(["one"])
        with pytest.warns(UserWarning, match="servers are new"):
            opening = await Agent.create(cwd=project, model=script.model(), persist=False)
        async with opening as agent:
            await agent.run("hi")
            assert "marker-system" in script.requests[0].system_prompt
            assert "marker" in [command.name for command in agent.session.commands()]
        script = Script([calls("bash", command="echo ran"), "done"])
        async with Agent.create(cwd=project, model=script.model(), persist=False, hermetic=True) as agent:
            result = await agent.run("hi")
            assert (result.text, result.denials) == ("done", [])
            assert agent.session.mcp_servers.states() == agent.session.commands() == []
            assert "bash" in [tool.name for tool in script.requests[0].tools]
            assert "marker" not in script.requests[0].system_prompt
        own = {"near": {"command": "false"}}
        async with Agent.create(
            cwd=project, model=script.model(), persist=False, hermetic=True, mcp_servers=own
        ) as agent:
            assert [state.name for state in agent.session.mcp_servers.states()] == ["near"]

    run(main())


# -- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        (Person, {"name": "Ada", "age": 36}, Person("Ada", 36)),
        (Place, {"city": "Rome", "people": [{"name": "Ada", "age": 36}]}, Place("Rome", [Person("Ada", 36)])),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 4}, {"n": 4}),
        (list[int], {"value": [1, 2]}, [1, 2]),
        (Person | None, {"value": {"name": "Ada", "age": 36}}, Person("Ada", 36)),
        (Person | None, {"value": None}, None),
    ],
)
def test_an_answer_in_a_type(home, schema, given, value):
    async def main():
        model = Script([hands_in(**given)]).model()
        assert await spindle.ask("who?", schema=schema, cwd=home, model=model, persist=False) == value

    run(main())


# -- how runs fail ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "options", "error", "stop_reason"),
    [
        ([{"error": "400 Bad request"}], {}, ModelError, "error"),
        ([calls("bash", command="ls"), "I may not"], {"deny": ["Bash"]}, Refused, "end"),
        ([calls("bash", command="true")], {"max_turns": 2}, LimitReached, "maxTurns"),
        ([{"text": ["a", Pause(gate="never")]}], {"max_time": 0.05}, LimitReached, "maxTime"),
        ([{**calls("bash", command="true"), "usage": {"input": 9, "output": 9}}], {"max_total_tokens": 20},
         LimitReached, "maxTotalTokens"),
        (["no", "no"], {"schema": Person}, SchemaNotMet, "schema"),
    ],
)  # fmt: skip
def test_the_exception_says_how_it_failed_and_carries_the_result(home, steps, options, error, stop_reason):
    async def main():
        with pytest.raises(error) as caught:
            await spindle.ask("go", cwd=home, model=Script(steps).model(), persist=False, **options)
        assert isinstance(caught.value, AgentError)
        assert caught.value.result.stop_reason == stop_reason  # type: ignore[attr-defined]

    run(main())


def test_limits_of_a_prompt_come_before_those_of_the_agent(home):
    async def main():
        script = Script([calls("bash", command="true")])
        async with await Agent.create(cwd=home, model=script.model(), persist=False, max_turns=3) as agent:
            assert (await agent.run("go")).turns == 3
            assert (await agent.run("go", max_turns=1)).turns == 1
            events = [event async for event in agent.prompt("go", max_turns=2)]
            assert sum(event.type == "turn_end" for event in events) == 2
            assert (await agent.run("go")).stop_reason == "maxTurns"

    run(main())


def test_an_aborted_run_is_a_failure_of_its_own(home):
    async def main():
        script = Script([{"text": ["a", Pause(gate="never")]}])
        async with await Agent.create(cwd=home, model=script.model(), persist=False) as agent:
            asking = asyncio.create_task(agent.ask("go"))
            await script.reached("never")
            await agent.abort()
            with pytest.raises(RunFailed) as caught:
                await asking
            assert caught.value.result.status == "aborted"

    run(main())


# -- functions as tools ----------------------------------------------------------------------------


def test_functions_are_tools(home):
    def plain(word: Annotated[str, "One word"]) -> dict[str, Any]:
        """Look a word up."""
        return {"word": word, "length": len(word)}

    async def slow(person: Person, *, update: Any) -> Person:
        """Make somebody older."""
        update("waiting")
        return Person(person.name, person.age + 1)

    def broken() -> object:
        """Fail."""
        return object()

    async def main():
        steps = [
            calls("plain", word="spindle"),
            calls("slow", person={"name": "Ada", "age": 36}),
            calls("broken"),
            "ok",
        ]
        script = Script(steps)
        tools = [plain, slow, broken, "read"]
        async with await Agent.create(cwd=home, model=script.model(), persist=False, tools=tools) as agent:
            assert await agent.ask("go") == "ok"
            results = [message.content for message in agent.messages if message.role == "toolResult"]
        told = {tool.name: tool for tool in script.requests[0].tools}
        assert list(told) == ["plain", "slow", "broken", "read"]
        assert told["plain"].description == "Look a word up."
        assert told["plain"].parameters["properties"]["word"]["description"] == "One word"
        assert list(told["slow"].parameters["properties"]) == ["person"]
        texts = [content[0].text for content in results]
        assert texts[:2] == ['{"word":"spindle","length":7}', '{"name":"Ada","age":37}']
        assert "cannot be written as JSON" in texts[2]

    run(main())


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cwd": "missing"}, "Not a directory: "),
        ({"cwd": __file__}, "Not a directory: "),
        ({"tools": ["read", "raed"]}, 'Unknown tool "raed". Did you mean read? There are: read, bash, '),
        ({"thinking": "hard"}, 'Invalid thinking level "hard". Valid values: off, minimal, '),
        ({"model": "no/such-model"}, "not found"),
        ({"max_turns": 0}, "max_turns must be a number above 0, not 0"),
        ({"max_cost": "1"}, "max_cost must be a number above 0, not '1'"),
        ({"allow": ["Bash("]}, "Bash"),
    ],
)
def test_arguments_are_checked_and_leave_no_lock(home, options, text):
    async def main():
        model = Script(["one", "two"]).model()
        async with await Agent.create(cwd=home, model=model) as agent:
            await agent.ask("hi")
            file = agent.session.session.path
        with pytest.raises(AgentError) as caught:
            await Agent.create(**{"cwd": home, "model": model, **options})
        assert text in str(caught.value)
        if "cwd" not in options:
            with pytest.raises(AgentError):
                await Agent.open(file, **{"model": model, **options})
        async with await Agent.open(file, model=model) as agent:
            assert await agent.ask("again") == "two"

    run(main())


def test_every_option_of_create_is_explained():
    text = inspect.getdoc(Agent.create) or ""
    options = get_type_hints(CreateOptions).keys() - get_type_hints(Limits).keys()
    assert [name for name in [*options, "Limits"] if f"`{name}" not in text] == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"tools": "bash"}, TypeError, "tools must be a list of .*, not 'bash'. Did you mean tools=\\['bash'\\]"),
        ({"tools": [5]}, TypeError, "tools must be a list of names, functions and Tools, but tools.0. is 5"),
        ({"tools": {"read": True}}, TypeError, "tools must be"),
        ({"allow": "Read"}, TypeError, "allow must be a list of permission rules, not 'Read'"),
        ({"extensions": print}, TypeError, "extensions must be a list"),
        ({"model": 5}, TypeError, "model must be a name or a Model, not 5"),
        ({"can_use_tool": True}, TypeError, "can_use_tool must be a function, not True"),
        ({"mcp_servers": "x"}, TypeError, "mcp_servers must be a dict of servers by name, or False, not 'x'"),
        ({"mcp_servers": {"x": "npx y"}}, TypeError, "mcp_servers\\['x'\\] must be a dict"),
        (
            {"mcp_servers": {"x": {"cmd": "y"}}},
            ValueError,
            """'x'\\]: there is no key "cmd", did you mean "command"\\? Keys are: """,
        ),
        ({"mcp_servers": {"x": {"command": "y", "arg": []}}}, ValueError, 'did you mean "args"'),
        ({"mcp_servers": {"x": {"command": "y", "args": "z"}}}, ValueError, "mcp_servers\\['x'\\]: .*args"),
        ({"mcp_servers": {"x": {"url": "y"}}}, ValueError, "mcp_servers\\['x'\\]: not an HTTP address: y"),
        ({"mcp_servers": {"x": {}}}, ValueError, "mcp_servers\\['x'\\]: an entry needs a command or a url"),
        ({"base_url": "localhost:80"}, ValueError, "base_url must be an address that begins with http"),
        ({"base_url": "http://x", "model": None}, ValueError, "base_url needs a model"),
    ],
)
def test_wrong_arguments_are_errors_in_the_words_of_python(home, options, error, text):
    async def main():
        with pytest.raises(error, match=text):
            await Agent.create(**{"cwd": home, "model": Script(["one"]).model(), "persist": False, **options})

    run(main())


def test_an_option_that_does_not_exist_is_a_type_error(home):
    async def main():
        model = Script(["one"]).model()
        async with await Agent.create(cwd=home, model=model) as agent:
            await agent.ask("hi")
            file = agent.session.session.path
        wrong: Any = {"modle": model}
        for refused in (Agent.create(**wrong), Agent.open(file, **wrong), spindle.ask("hi", **wrong)):
            with pytest.raises(TypeError, match="unexpected keyword argument 'modle'"):
                await refused
        async with await Agent.open(file, model=model) as agent:  # it is not locked
            assert len(agent.messages) == 2

    run(main())


# -- the end of an agent, and of tasks -------------------------------------------------------------


def test_a_closed_agent_refuses(home):
    async def main():
        agent = await Agent.create(cwd=home, model=Script(["hi"]).model(), persist=False)
        await agent.close()
        await agent.close()
        for work in (
            agent.ask("hi"),
            agent.run("hi"),
            anext(agent.prompt("hi")),
            agent.steer("hi"),
            agent.follow_up("hi"),
        ):
            with pytest.raises(AgentError, match="The agent is closed"):
                await work

    run(main())


@pytest.mark.parametrize("way", ["ask", "run", "prompt"])
def test_a_cancelled_task_aborts_its_run_and_the_agent_goes_on(home, way):
    async def main():
        script = Script([{"text": ["a", Pause(gate="never")]}, "next"])
        async with await Agent.create(cwd=home, model=script.model(), persist=False) as agent:

            async def work():
                if way != "prompt":
                    return await getattr(agent, way)("go")
                return [event async for event in agent.prompt("go")]

            task = asyncio.create_task(work())
            await script.reached("never")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert agent.session.last_result().status == "aborted"
            assert await agent.ask("again") == "next"

    run(main())


def test_a_prompt_that_waits_for_another_may_be_cancelled_without_harm_to_it(home):
    async def main():
        ending, go = asyncio.Event(), asyncio.Event()

        def extension(agent):
            async def hold(*_):
                ending.set()
                await go.wait()

            agent.on("agent_before_settle", hold)

        model = Script(["first", "second"]).model()
        async with await Agent.create(cwd=home, model=model, persist=False, extensions=[extension]) as agent:
            first = asyncio.create_task(agent.ask("one"))
            await ending.wait()
            second = asyncio.create_task(agent.ask("two"))
            await asyncio.sleep(0)
            second.cancel()
            go.set()
            assert await first == "first"
            assert (await agent.run("three")).text == "second"

    run(main())


def test_a_loop_that_is_left_early_does_not_stop_the_agent(home):
    async def main():
        script = Script([{"text": ["a", Pause(gate="go"), "b"]}])
        async with await Agent.create(cwd=home, model=script.model(), persist=False) as agent:
            async for event in agent.prompt("go"):
                if event.text_delta:
                    break
            await script.reached("go")
            script.release("go")
            await agent.session.finished()
            assert agent.session.last_result().text == "ab"

    run(main())


def test_fifty_agents_with_cancelled_tasks_leave_nothing(home):
    """Some are cancelled while a model answers, some while a program runs, some while they are made."""

    async def serve(number: int, started: asyncio.Event, files: list[Path]) -> str:
        steps = [{"text": ["a", Pause(gate="never")]}] if number % 2 else [calls("bash", command="sleep 100")]
        async with await Agent.create(cwd=home, model=Script([*steps, "ok"]).model()) as agent:
            async for event in agent.prompt("go"):
                if event.text_delta or event.type == "tool_execution_start":
                    files.append(agent.session.session.path)
                    started.set()
        return "not cancelled"

    async def main():
        before = asyncio.all_tasks()
        files: list[Path] = []
        begun = [asyncio.Event() for _ in range(40)]
        tasks = [asyncio.create_task(serve(number, event, files)) for number, event in enumerate(begun)]
        await asyncio.gather(*(event.wait() for event in begun))
        tasks += [asyncio.create_task(spindle.ask("go", cwd=home, model=Script(["ok"]).model())) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await until_true(lambda: asyncio.all_tasks() == before)
        assert not children._children
        for file in set(files):
            async with await Agent.open(file, model=Script(["ok"]).model()) as agent:
                assert await agent.ask("again") == "ok"

    run(main())


# -- names and types -------------------------------------------------------------------------------


def test_every_public_name_is_there_and_has_a_docstring():
    for name in spindle.__all__:
        value = getattr(spindle, name)
        assert name == "__version__" or inspect.getdoc(value), name
        if inspect.isclass(value):
            members = {key: item for key, item in vars(value).items() if not key.startswith("_")}
            functions = [
                key for key, item in members.items() if callable(item) or isinstance(item, property | classmethod)
            ]
            assert all(inspect.getdoc(members[key]) for key in functions), name
    with pytest.raises(AttributeError):
        _ = spindle.nothing
    code = "import spindle; print(sorted(set(spindle.__all__) - set(dir(spindle))))"  # before any of them is used
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


USER_PROGRAM = """
import asyncio
from dataclasses import dataclass

import spindle
from spindle import Agent, AgentError, LimitReached, RunResult
from spindle.client import RpcClient, SyncRpcClient


@dataclass
class Person:
    name: str


def shout(word: str) -> str:
    return word.upper()


async def main() -> None:
    text: str = await spindle.ask("Who?", model="a/b", max_turns=3)
    person: Person = await spindle.ask("Who?", schema=Person)
    async with await Agent.create(tools=["read", shout], max_cost=0.5) as agent:
        async for event in agent.prompt("go", max_time=3):
            print(event.type, event.text_delta)
    async with Agent.create(hermetic=True, base_url="http://127.0.0.1:1/v1", model="m") as agent:
        run = agent.run("go")
        async for event in run:
            print(event)
        print((await run.result()).text, (await agent.prompt("go")).text, (await spindle.run("go")).text)
        result: RunResult = await agent.run("go", schema={"type": "object"})
        print(result.cost, result.denials, person.name, text)
        try:
            people: list[Person] = await agent.ask("All?", schema=list[Person])
            print(people)
        except LimitReached as limit:
            print(limit.result.stop_reason)
        except AgentError as error:
            print(error)
    async with RpcClient(["spindle"]) as client:
        events = client.run("go", max_turns=2, schema=Person)
        async for piece in events:
            print(piece.text_delta)
        print(await events.result())
    with SyncRpcClient(["spindle"]) as sync:
        print(sync.run("go").result())


asyncio.run(main())
"""
WRONG = {
    "max_turns=3)\n    person": "max_turnz=3)\n    person",
    "person: Person =": "person: int =",
    'model="a/b"': "model=5",
    "max_time=3": 'max_time="3"',
}
TYPED_USER = ROOT / "tests" / "interop" / "clients" / "typed_user.py"
"""Asserts the types of what users are given; pyright reads it as well."""


@pytest.mark.timeout(280)
def test_a_program_of_a_user_is_checked(tmp_path):
    """mypy has nothing to say about right programs, and finds what is wrong in a wrong one."""
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(USER_PROGRAM)
    broken = USER_PROGRAM
    for old, new in WRONG.items():
        assert old in broken
        broken = broken.replace(old, new)
    wrong.write_text(broken)
    page = (ROOT / "docs" / "python.md").read_text()
    examples = re.findall(r"```python\n((?:import|from) .*?)```", page, re.S)
    assert len(examples) > 5
    for number, code in enumerate(examples):
        (tmp_path / f"page_{number}.py").write_text(code)
    files = [*map(str, tmp_path.glob("*.py")), str(TYPED_USER), str(ROOT / "examples" / "python" / "own_model.py")]
    command = [sys.executable, "-m", "mypy", "--strict", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=270)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert all("wrong.py" in line for line in errors), done.stdout
    for part in ("max_turnz", '"str", "int", "int"', 'incompatible type "type[Person]"', '"max_time" has'):
        assert any(part in line for line in errors), done.stdout
