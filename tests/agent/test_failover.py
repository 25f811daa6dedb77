"""Other models that answer when one cannot: causes and outcomes, on two model servers of our own."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spindle.agent.failover import CAUSES
from spindle.base import limits
from spindle.inprocess import Agent
from spindle.models.models_file import open_model
from spindle.sessions import open as sessions
from spindle.shapes.codec import decode, encode
from spindle.shapes.model import Model
from tests.support.causes import LONG, TABLE, TRIES
from tests.support.mock_model import (
    MockModel,
    call,
    cut,
    dropped,
    failure,
    gate,
    reply,
)

from .rig import run

CLOSED = "http://127.0.0.1:9"
"""Nobody listens there."""


@pytest.fixture
def spare():
    with MockModel([reply("from the spare")]) as mock:
        yield mock


@pytest.fixture(autouse=True)
def quick(home: Path):
    settings(home)


def settings(home: Path, **values: Any) -> None:
    (home / "agent").mkdir(exist_ok=True)
    retry = {"baseDelayMs": 1, "maxRetries": 2}
    (home / "agent/settings.json").write_text(json.dumps({"retry": retry, **values}))


def model(name: str, url: str, **changed: Any) -> Model:
    made = open_model("main" if name == "first" else "other", name, "openai-completions", url)
    for key, value in changed.items():
        setattr(made, key, value)
    return made


async def answered(
    home: Path, first: Model, *chain: Model | str, prompts: Sequence[str] = ("go",), **options: Any
) -> tuple[list[Any], list[dict[str, Any]], Agent]:
    """Send prompts. Returns their results, the events but for updates, and the closed agent."""
    events: list[dict[str, Any]] = []
    agent = await Agent.create(cwd=home, model=first, fallback=chain or None, **options)
    async with agent:
        agent.subscribe(lambda event: events.append(decode(encode(event))))
        results = [await agent.run(prompt).result() for prompt in prompts]
    return results, [event for event in events if event["type"] != "message_update"], agent


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


@pytest.mark.parametrize(("step", "asked", "cause"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_causes_and_outcomes(home, spare, step, asked, cause):
    async def main() -> None:
        with MockModel([step]) as first:
            other = model("second", spare.openai_url, context_window=900_000)
            (result,), events, agent = await answered(home, model("first", first.openai_url), other)
            assert len(first.requests) == asked
            applied = of(events, "retry_fallback_applied")
            if cause is None:
                assert result.status == "error" and not spare.requests and not applied
                return
            assert (result.status, result.text) == ("ok", "from the spare") and len(spare.requests) == 1
            names = {"from": "main/first", "to": "other/second"}
            assert applied == [{"type": "retry_fallback_applied", **names, "role": "main", "cause": cause}]
            done = {"type": "retry_fallback_succeeded", "model": "other/second", "role": "main"}
            assert of(events, "retry_fallback_succeeded") == [done]
            assert any(CAUSES[cause] in event["message"] for event in of(events, "notice"))
            assert [(one.before, one.after, one.cause) for one in result.fallbacks] == [(*names.values(), cause)]
            assert len(of(events, "agent_start")) == len(of(events, "agent_end")) == 1
            told = [message["role"] for message in of(events, "agent_end")[0]["messages"]]
            assert told == ["user"] + ["assistant"] * (asked + 1)
            # What the other model gets, and what the conversation is afterwards, has the answer once.
            assert [m["role"] for m in spare.requests[0].body["messages"]] == ["system", "user"]
            assert [message.role for message in agent.messages] == ["user", "assistant"]
            assert not (home / "hit").exists()

    run(main())


NO_TLS = "a server without TLS"


@pytest.mark.parametrize("first", [CLOSED, "http://no-such-host.invalid/v1", "https://127.0.0.1:9/v1", NO_TLS])
def test_a_server_that_cannot_be_reached_is_not_waited_for(home, spare, first):
    async def main() -> None:
        nonlocal first
        settings(home, retry={"baseDelayMs": 60_000})
        if first == NO_TLS:
            first = spare.openai_url.replace("http:", "https:")
        (result,), events, _ = await answered(home, model("first", first), model("second", spare.openai_url))
        assert result.text == "from the spare" and not of(events, "auto_retry_start")

    run(main())


def test_the_session_has_the_failed_answers_on_a_side_branch_and_goes_back_to_the_first_model(home, spare):
    async def main() -> None:
        with MockModel([reply("half of ", cut())]) as first:
            chosen = model("first", first.openai_url)
            (result,), events, _ = await answered(home, chosen, model("second", spare.openai_url))
        with_text = [e for e in of(events, "message_end") if e["message"]["role"] == "assistant"]
        assert [e["message"]["model"] for e in with_text] == ["first"] * TRIES + ["second"]
        store = sessions.load(result.session_file)
        try:
            answers = [
                e.value for e in store.entries if e.type == "message" and e.value["message"]["role"] == "assistant"
            ]
            assert len(answers) == TRIES + 1
            branch = [e.value for e in store.branch()]
            kinds = [e.get("customType") or e.get("message", e).get("role", e["type"]) for e in branch]
            assert kinds[-3:] == ["user", "spindle.fallback", "assistant"] or kinds[-2:] == ["assistant", "spindle.run"]
            assert [e["message"]["model"] for e in branch if e["type"] == "message" and "model" in e["message"]] == [
                "second"
            ]
            (fact,) = [e["data"] for e in branch if e.get("customType") == "spindle.fallback"]
            assert fact["chosen"] == fact["from"] == "main/first" and fact["to"] == "other/second"
            assert fact["cause"] == "broken" and fact["role"] == "main"
            assert store.model() == ("main", "first")
            assert [e["type"] for e in branch].count("model_change") == 1
        finally:
            store.close()

    run(main())


def test_the_first_model_rests_and_returns(home, spare, monkeypatch):
    async def main() -> None:
        with MockModel([failure(401, "no"), reply("first again")]) as first:
            models = model("first", first.openai_url), model("second", spare.openai_url)
            async with Agent.create(cwd=home, model=models[0], fallback=models[1:]) as agent:
                result = await agent.run("one").result()
                assert result.text == "from the spare"
                result = await agent.run("two").result()
                assert result.text == "from the spare" and [one.cause for one in result.fallbacks] == ["resting"]
                assert agent.session.model.id == "first" and len(first.requests) == 1
                agent.session.resources.registry._resting.clear()  # its time is over
                result = await agent.run("three").result()
                assert result.text == "first again" and result.fallbacks == []
                assert agent.session.session.model() == ("main", "first")

    run(main())


def test_a_resting_model_is_asked_before_a_run_fails(home, spare):
    """The first one was refused a short while ago; now the other one fails, and nothing else is left."""

    async def main() -> None:
        steps = [failure(429, "slow down", {"retry-after": "600"}), reply("first again")]
        with MockModel(steps) as first, MockModel([reply("second"), failure(402, "pay")]) as second:
            models = model("first", first.openai_url), model("second", second.openai_url)
            results, events, _ = await answered(home, models[0], models[1], prompts=["one", "two"])
            assert [one.text for one in results] == ["second", "first again"]
            told = [(e["from"], e["to"], e["cause"]) for e in of(events, "retry_fallback_applied")]
            there, back = ("main/first", "other/second"), ("other/second", "main/first")
            assert told == [(*there, "rate_limit"), (*there, "resting"), (*back, "quota")]
            assert len(first.requests) == len(second.requests) == 2

    run(main())


def test_a_long_run_goes_back_to_a_model_whose_rest_is_over(home, monkeypatch):
    async def main() -> None:
        steps = [failure(402, "pay"), reply("first again")]
        with MockModel(steps) as first, MockModel([failure(402, "pay")]) as second:
            models = model("first", first.openai_url), model("second", second.openai_url)
            (result,), _, _ = await answered(home, *models)
            assert result.status == "error" and len(first.requests) == len(second.requests) == 1
            first.script(*steps)
            monkeypatch.setattr(limits, "MODEL_RESTS", 0.0)
            (result,), _, _ = await answered(home, *models)
            assert result.text == "first again" and len(second.requests) == 2

    run(main())


def test_a_server_is_tried_again_if_no_other_model_can_be_asked(home):
    """Its chain is of no use: it must not be worse than none."""

    async def main() -> None:
        with MockModel([dropped(), reply("fine")]) as first:
            (result,), events, _ = await answered(home, model("first", first.openai_url), "anthropic/claude-opus-4-5")
            assert result.text == "fine" and len(of(events, "auto_retry_start")) == 1

    run(main())


def test_models_of_the_chain_that_cannot_be_asked_are_passed_over(home, spare):
    async def main() -> None:
        with MockModel([failure(500, "oh")]) as first, MockModel([failure(429, "no")]) as second:
            chain = [
                "anthropic/claude-opus-4-5",  # no key
                model("second", second.openai_url),
                model("third", spare.openai_url),
            ]
            (result,), events, _ = await answered(home, model("first", first.openai_url), *chain)
            assert result.text == "from the spare"
            told = [(e["to"], e["cause"]) for e in of(events, "retry_fallback_applied")]
            assert told == [("other/second", "server"), ("other/third", "rate_limit")]
            assert [e["model"] for e in of(events, "retry_fallback_succeeded")] == ["other/third"]

    run(main())


def test_without_another_model_the_error_is_that_of_the_last(home):
    async def main() -> None:
        with MockModel([failure(401, "bad key")]) as first, MockModel([failure(403, "not yours")]) as second:
            chain = [model("first", first.openai_url), model("second", second.openai_url)]
            (result,), events, _ = await answered(home, *chain)
            assert result.status == "error" and "not yours" in result.error
            assert len(of(events, "retry_fallback_applied")) == 1 and not of(events, "retry_fallback_succeeded")

    run(main())


def test_a_context_that_is_too_long_after_compaction(home, spare):
    """The first model makes the summary, and the conversation is too long for it all the same."""

    async def main() -> None:
        settings(home, compaction={"keepRecentTokens": 1})
        summary = reply("a summary", match="Markdown headings|transcript")  # two of them: the last turn is split
        steps = [summary, reply("one"), reply("two"), failure(400, LONG)]
        with MockModel(steps) as first:
            other = model("second", spare.openai_url, context_window=900_000)
            prompts = ["1", "2", "3"]
            results, events, _ = await answered(home, model("first", first.openai_url), other, prompts=prompts)
            assert [one.text for one in results] == ["one", "two", "from the spare"]
            assert len(first.requests) == 6
            assert [e["result"] is None for e in of(events, "compaction_end")] == [False, True]
            assert [e["cause"] for e in of(events, "retry_fallback_applied")] == ["context"]
            asked = json.dumps(spare.requests[0].body["messages"])
            assert "a summary" in asked and len(spare.requests) == 1

    run(main())


def test_tools_are_not_run_twice(home, spare):
    async def main() -> None:
        calls = call("bash", {"command": "echo once >> log"}, id="c1")
        with MockModel([reply(calls), failure(402, "pay")]) as first:
            (result,), _, _ = await answered(
                home, model("first", first.openai_url), model("second", spare.openai_url), tools=["bash"]
            )
            assert result.text == "from the spare" and result.tool_calls == 1
            assert (home / "log").read_text() == "once\n"
            assert [m["role"] for m in spare.requests[0].body["messages"]][1:] == ["user", "assistant", "tool"]

    run(main())


def test_limits_hold(home, spare):
    async def main() -> None:
        with MockModel([failure(402, "pay")]) as first:
            chain = [model("first", first.openai_url), model("second", spare.openai_url)]
            (result,), events, _ = await answered(home, *chain, max_turns=1)
            assert (result.status, result.stop_reason) == ("limit", "maxTurns") and not spare.requests
            assert not of(events, "retry_fallback_succeeded")

    run(main())


@pytest.mark.parametrize("at", ["retry_fallback_applied", "notice", "turn_start", "message_start"])
def test_an_abort_works_in_every_gap(home, at):
    async def main() -> None:
        with MockModel([failure(402, "pay")]) as first, MockModel([reply(gate("never"), "no")]) as second:
            chain = [model("second", second.openai_url)]
            async with Agent.create(cwd=home, model=model("first", first.openai_url), fallback=chain) as agent:
                seen: list[str] = []

                def look(event: Any) -> None:
                    kind = decode(encode(event))["type"]
                    seen.append(kind)
                    switched = "retry_fallback_applied" in seen
                    if kind == at and switched and "stopped" not in seen:
                        seen.append("stopped")
                        asyncio.get_running_loop().create_task(agent.abort())

                agent.subscribe(look)
                result = await agent.run("go").result()
                assert result.status == "aborted" and "stopped" in seen
                agent.session.resources.registry._resting.clear()
                second.release("never")

    run(main())


def test_settings_have_chains_by_model_and_by_job(home, spare):
    async def main() -> None:
        providers = {
            "main": {"baseUrl": f"{CLOSED}/v1", "api": "openai-completions", "models": [{"id": "first"}]},
            "other": {"baseUrl": spare.openai_url, "api": "openai-completions", "models": [{"id": "second"}]},
        }
        (home / "agent/models.json").write_text(json.dumps({"providers": providers}))
        for chains in ({"main/*": ["other/second"]}, {"main": ["other/second"]}, {"*": ["other/second"]}):
            settings(home, fallback=chains)
            async with Agent.create(cwd=home, model="main/first") as agent:
                assert await agent.ask("go") == "from the spare"
        settings(home, fallback={"nothing/*": ["other/second"]}, retry={"maxRetries": 0})
        async with Agent.create(cwd=home, model="main/first") as agent:
            assert (await agent.run("go").result()).status == "error"

    run(main())


def test_an_unknown_model_in_a_chain_is_an_error_in_words(home):
    async def main() -> None:
        with pytest.raises(Exception, match='fallback: Model "nonsense-9000" not found'):
            await Agent.create(cwd=home, model="scripted/x.json", fallback=["nonsense-9000"])

    run(main())
