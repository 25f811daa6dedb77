"""Which model does which job: the conversation, subagents, summaries, titles, questions of extensions."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spindle.inprocess import Agent
from spindle.shapes.codec import decode, encode
from tests.support.mock_model import MockModel, Step, call, failure, reply

from .rig import run

JOBS = ("main", "subagents", "summaries", "titles", "questions")


class Servers:
    """A model server for each job."""

    def __init__(self, home: Path, stack: ExitStack, steps: dict[str, list[Step]], **settings: Any) -> None:
        self.mocks = {job: stack.enter_context(MockModel(steps.get(job, [reply(f"by {job}")]))) for job in JOBS}
        providers = {
            job: {
                "baseUrl": mock.openai_url,
                "api": "openai-completions",
                "apiKey": "k",
                "models": [{"id": "m", "cost": {"input": 1e6, "output": 0, "cacheRead": 0, "cacheWrite": 0}}],
            }
            for job, mock in self.mocks.items()
        }
        (home / "agent").mkdir(exist_ok=True)
        (home / "agent/models.json").write_text(json.dumps({"providers": providers}))
        settings = {"retry": {"baseDelayMs": 1, "maxRetries": 0}, "compaction": {"keepRecentTokens": 1}, **settings}
        (home / "agent/settings.json").write_text(json.dumps(settings))

    def asked(self) -> dict[str, int]:
        return {job: len(mock.requests) for job, mock in self.mocks.items() if mock.requests}


def ask_extension(agent: Any) -> None:
    @agent.command("question")
    async def question(args: str, ctx: Any) -> None:
        await ctx.model.complete("how?")


TASK = call("task", {"prompt": "look", "agent": "explore"}, id="t1")
ROLES = {job: f"{job}/m" for job in JOBS if job != "main"}


async def all_jobs(home: Path, **options: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    async with Agent.create(cwd=home, model="main/m", extensions=[ask_extension], **options) as agent:
        agent.subscribe(lambda event: events.append(decode(encode(event))))
        await agent.ask("go")
        await agent.ask("/question")
        await agent.session.make_name()
        await agent.session.compact()
    return events


@pytest.mark.parametrize("roles", [{}, ROLES], ids=["none", "each its own"])
def test_each_job_is_done_by_its_model(home, roles):
    async def main() -> None:
        with ExitStack() as stack:
            servers = Servers(home, stack, {"main": [reply(TASK), reply("done")]}, roles=roles)
            await all_jobs(home, tools=["task", "read"])
            wanted = {"main": 2, "subagents": 1, "summaries": 1, "titles": 1, "questions": 1}
            asked = servers.asked()
            if roles:
                asked["summaries"] = min(asked["summaries"], 1)  # two if the last turn is split
                assert asked == wanted
            else:
                assert list(asked) == ["main"] and asked["main"] >= 6

    run(main())


def test_a_job_whose_model_fails_goes_to_its_chain_and_at_last_to_the_model_of_the_session(home):
    async def main() -> None:
        for chain, answers in (({"titles": ["questions/m"]}, "questions"), ({}, "main")):
            with ExitStack() as stack:
                steps = {"titles": [failure(500, "down")]}
                servers = Servers(home, stack, steps, roles={"titles": "titles/m"}, fallback=chain)
                events: list[dict[str, Any]] = []
                async with Agent.create(cwd=home, model="main/m") as agent:
                    await agent.ask("go")
                    agent.subscribe(lambda event, events=events: events.append(decode(encode(event))))  # type: ignore[misc]
                    assert await agent.session.make_name() == f"by {answers}"
                    (applied,) = [event for event in events if event["type"] == "retry_fallback_applied"]
                    assert (applied["from"], applied["to"]) == ("titles/m", f"{answers}/m")
                    assert (applied["role"], applied["cause"]) == ("titles", "server")
                    assert agent.session.session.model() == ("main", "m")
                assert servers.asked()["titles"] == 1

    run(main())


def test_a_job_whose_model_is_unknown_is_done_by_the_model_of_the_session(home):
    async def main() -> None:
        with ExitStack() as stack:
            servers = Servers(home, stack, {}, roles={"titles": "nowhere/nothing-9000"})
            events: list[dict[str, Any]] = []
            async with Agent.create(cwd=home, model="main/m") as agent:
                await agent.ask("go")
                agent.subscribe(lambda event: events.append(decode(encode(event))))
                await agent.session.make_name()
                (notice,) = [event["message"] for event in events if event["type"] == "notice"]
                assert notice.startswith("The model for titles cannot be used: ") and "nothing-9000" in notice
            assert list(servers.asked()) == ["main"]

    run(main())


def test_one_budget_is_over_all_jobs(home):
    async def main() -> None:
        with ExitStack() as stack:
            steps = {"main": [reply(TASK, usage=(1, 1, 0)), reply("done")], "subagents": [reply("x", usage=(9, 1, 0))]}
            Servers(home, stack, steps, roles=ROLES)
            async with Agent.create(cwd=home, model="main/m", tools=["task", "read"]) as agent:
                result = await agent.run("go", max_cost=5).result()
                assert (result.status, result.stop_reason, result.cost) == ("limit", "maxCost", 10)

    run(main())
