"""A result that fits a schema, handed in by the model; and the object that tells what came of a run."""

import pytest

from spindle.agent.run.options import RunOptions

from .rig import Rig, run, slow_tool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}


def hands_in(**arguments) -> dict:
    return {"calls": [{"name": "final_result", "arguments": arguments}]}


async def result_of(rig: Rig, schema=SCHEMA):
    await rig.agent.submit("count", options=RunOptions(schema=schema))
    await rig.until("agent_settled")
    return rig.agent.last_result()


@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        ([hands_in(n=3)], 1),
        (["three", hands_in(n=3)], 2),
        ([hands_in(n="x"), hands_in(n=3)], 2),
        ([{"calls": [{"name": "slow"}, {"name": "final_result", "arguments": {"n": 3}}]}], 1),
    ],
    ids=["at once", "after a reminder", "after a mistake", "beside another call"],
)
def test_the_model_hands_in_its_result(tmp_path, steps, calls):
    async def main():
        async with Rig(tmp_path, [*steps, "too many"], tools=[slow_tool(seconds=0)]) as rig:
            result = await result_of(rig)
            assert (result.status, result.stop_reason, result.value) == ("ok", "end", {"n": 3})
            assert len(rig.script.requests) == result.turns == calls
            assert "final_result" not in [tool["name"] for tool in (await rig.data("get_state"))["dumpTools"]]

    run(main())


def test_a_value_that_is_no_object(tmp_path):
    async def main():
        async with Rig(tmp_path, [hands_in(value=[1, 2])]) as rig:
            assert (await result_of(rig, {"type": "array", "items": {"type": "integer"}})).value == [1, 2]

    run(main())


@pytest.mark.parametrize(
    "steps", [["three", "really three"], [hands_in(n=-1), hands_in(n=-2)], ["three", hands_in(n=-1)]]
)
def test_one_repair_then_failure(tmp_path, steps):
    async def main():
        async with Rig(tmp_path, [*steps, "more", "more"]) as rig:
            result = await result_of(rig)
            assert (result.status, result.stop_reason) == ("schema", "schema")
            assert len(rig.script.requests) == 2
            await rig.run("and on")

    run(main())


def test_what_came_of_a_run(tmp_path):
    async def main():
        write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}
        steps = [{**write, "usage": {"input": 10, "output": 5}}, {"text": "done", "usage": {"input": 20, "output": 1}}]
        async with Rig(tmp_path, steps, session=True) as rig:
            await rig.run("go")
            result = rig.agent.last_result()
            assert (result.status, result.text, result.turns, result.tool_calls) == ("ok", "done", 2, 1)
            assert (result.tokens.input, result.tokens.output, result.tokens.total) == (30, 6, 36)
            assert (
                result.files_changed == ["a.txt"]
                and result.session_file == (await rig.data("get_state"))["sessionFile"]
            )

    run(main())
