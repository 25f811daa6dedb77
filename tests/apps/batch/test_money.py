"""What tasks cost, and what they may cost."""

from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, call, gate, reply

from .conftest import Tasks

DOLLAR = reply(call("bash", {"command": "true"}), usage=(10, 0, 0))
"""A model call that costs a dollar, and after which another follows."""


def test_money_of_a_task_and_of_all(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("", usage=(10, 0, 0)))
    tasks.write({"id": "dear", "prompt": "p", "max_cost": 0.5, "tools": ["read"]})
    mock.script(*[reply("hm", usage=(10, 0, 0))])
    assert tasks.run().returncode == 0, "a limit is checked before a call; there was only one"
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(6)))
    done = tasks.run("--total-cost", "3", "-j", "1")
    assert done.returncode == 4, done.stdout
    assert sorted(tasks.statuses()) == ["dear", "t0", "t1"], "what was spent before counts"
    assert "4 not begun" in done.stdout
    assert tasks.run("--total-cost", "30").returncode == 0


def test_money_is_looked_at_before_each_call(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(DOLLAR)
    tasks.write({"id": "own", "prompt": "p", "max_cost": 2}, {"id": "turns", "prompt": "p", "max_turns": 3})
    assert tasks.run("-j", "1", "--workspace", "none").returncode == 1
    lines = {line["id"]: line for line in tasks.lines()}
    assert {name: (line["status"], line["stopReason"], line["turns"]) for name, line in lines.items()} == {
        "own": ("budget", "maxCost", 2),
        "turns": ("budget", "maxTurns", 3),
    }
    tasks.write({"id": "x", "prompt": "p"}, {"id": "y", "prompt": "p"})
    assert tasks.run("--total-cost", "11", "--workspace", "copy").returncode == 4
    running = [line for line in tasks.lines() if line["id"] in "xy"]
    assert [(line["status"], line["stopReason"]) for line in running] == [("budget", "totalCost")] * 2
    assert 11 <= sum(line["cost"] for line in tasks.lines()) <= 12, "one call of each may be under way"


def test_money_needs_prices(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    write_models(tasks.place.agent, mock.openai_url)
    tasks.write("p")
    done = tasks.run("--total-cost", "1")
    assert done.returncode == 1
    assert "the price of mock/m1 is unknown" in done.stderr


def test_one_task_that_spends_the_money_of_all_is_done_again_with_more(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(DOLLAR)
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--total-cost", "2").returncode == 4
    assert [(line["status"], line["stopReason"], line["turns"]) for line in tasks.lines()] == [
        ("budget", "totalCost", 2)
    ]
    mock.script(reply("done", usage=(10, 0, 0)))
    assert tasks.run("--total-cost", "9").returncode == 0


def test_summaries_cost_money_too(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    tasks.place.write("agent/settings.json", {"compaction": {"keepRecentTokens": 1}})
    mock.script(
        reply(call("bash", {"command": "true"}), usage=(10, 0, 0)),
        reply("long", usage=(99_000, 0, 0)),
        reply("a summary", usage=(50_000, 0, 0)),
    )
    tasks.write({"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p"})
    done = tasks.run("--total-cost", "12000", "-j", "1", "--workspace", "none")
    assert (done.returncode, sorted(tasks.statuses())) == (4, ["a"]), done.stdout
    assert tasks.lines()[0]["cost"] == 1 + 9900 + 5000


def test_what_a_killed_attempt_has_cost_counts(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    tasks.write({"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p"})
    for never in ("1", "2"):
        mock.script(DOLLAR, reply("a", gate(never)))
        process = tasks.place.start(*tasks.arguments("-j", "1", "--workspace", "copy"))
        mock.wait_gate(never)
        process.kill()
        process.communicate()
    mock.script(DOLLAR)
    assert tasks.run("--total-cost", "4", "-j", "1", "--workspace", "copy").returncode == 4
    told = [(line["id"], line["attempt"], line["stopReason"], line["cost"]) for line in tasks.lines()]
    assert told == [("a", 1, "killed", 1), ("a", 2, "killed", 1), ("a", 3, "totalCost", 2)]
    assert tasks.lines()[2]["error"] == "The money of the whole batch is spent"
    mock.script(reply("done", usage=(10, 0, 0)))
    assert tasks.run("-j", "1", "--workspace", "copy").returncode == 0
    assert len(tasks.lines()) == 5, "what is recorded is not counted again"
    assert tasks.run("--redo", "all").returncode == 0
    assert sum(line["cost"] for line in tasks.lines()) == 4 + 2 + 2


def test_subagents_spend_the_money_of_all(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    cheap = (1, 0, 0)
    task, ended = reply(call("task", {"prompt": "p"}), usage=cheap), reply("ok", usage=cheap)
    mock.script(*[task, reply("found", usage=(10, 0, 0)), ended] * 4)
    tasks.write(*({"id": name, "prompt": "p"} for name in "abcd"))
    assert tasks.run("--total-cost", "1.5", "-j", "1", "--workspace", "none").returncode == 4
    assert len(mock.requests) == 5, "the dollar of a subagent counts; the call before the limit was under way"
