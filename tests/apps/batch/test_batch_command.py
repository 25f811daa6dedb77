"""`spindle batch` from outside: what is done, what is done again, and how it ends."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins.mcp.helpers import entry
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, call, failure, gate, reply, silent

from .conftest import EXTENSION, Tasks, make_repo

TOUCH = {"calls": [{"name": "bash", "arguments": {"command": "pwd > here.txt"}}]}
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def test_files_of_a_task_and_its_line(tasks: Tasks) -> None:
    tasks.script(TOUCH, "done")
    tasks.write({"id": "one", "prompt": "do", "meta": {"group": 7}}, {"id": "two", "prompt": "do"})
    done = tasks.run("--workspace", "copy")
    assert (done.returncode, done.stderr) == (0, "")
    one = next(line for line in tasks.lines() if line["id"] == "one")
    expected = {"attempt": 1, "status": "ok", "stopReason": "end", "turns": 2, "toolCalls": 1, "text": "done"}
    assert expected.items() <= one.items()
    assert (one["meta"], one["error"], one["exit"]) == ({"group": 7}, None, None)
    folder = tasks.runs / "one"
    assert sorted(path.name for path in folder.iterdir()) == ["log", "patch.diff", "result.json", "session.jsonl"]
    patch = (folder / "patch.diff").read_text()
    assert f"+{folder / 'work'}\n" in patch and len(patch) == one["patchBytes"]
    result = json.loads((folder / "result.json").read_text())
    assert result["run"]["status"] == "ok" and result["id"] == "one"
    assert done.stdout.splitlines()[-1].startswith("2 tasks: 2 ok; $0.0000")


def test_running_it_again_is_resuming(tasks: Tasks) -> None:
    tasks.script("yes")
    tasks.write({"id": "a", "prompt": "1"}, {"id": "b", "prompt": "2"})
    tasks.run()
    again = tasks.run()
    assert again.stdout.startswith("2 of 2 tasks are done already")
    assert len(tasks.lines()) == 2
    tasks.write(
        {"id": "a", "prompt": "1, changed"}, {"id": "b", "prompt": "2", "meta": "new"}, {"id": "c", "prompt": "3"}
    )
    tasks.run()
    assert [(line["id"], line["attempt"]) for line in tasks.lines()[2:]] == [("a", 2), ("c", 1)]
    assert sorted(path.name for path in (tasks.runs / "a").iterdir() if path.is_dir()) == ["before-1"]
    assert tasks.run("--redo", "all", "--filter", "^b$").returncode == 0
    assert [line["id"] for line in tasks.lines()[4:]] == ["b"]


def test_tasks_from_stdin_and_from_a_folder(tasks: Tasks) -> None:
    tasks.script("yes")
    done = tasks.place.run("batch", "-", "-o", "runs", "--model", tasks.model, stdin='{"id": "x", "prompt": "p"}\n')
    assert done.returncode == 0
    tasks.place.write("project/todo/first.md", "do this")
    assert tasks.place.run("batch", "todo", "-o", "runs", "-j4", "--model", tasks.model).returncode == 0
    assert tasks.statuses() == {"x": "ok", "first": "ok"}


def test_verify_decides(tasks: Tasks) -> None:
    tasks.script(TOUCH, "done")
    tasks.write(
        {"id": "good", "prompt": "p"},
        {"id": "bad", "prompt": "p", "verify": "echo seen; exit 3"},
        {"id": "dir", "prompt": "p", "verify": 'test -s "$SPINDLE_TASK_DIR/patch.diff" && test $SPINDLE_TASK_ID = dir'},
    )
    done = tasks.run("--workspace", "copy", "--verify", "test -s here.txt")
    assert done.returncode == 1
    assert tasks.statuses() == {"good": "ok", "bad": "failed", "dir": "ok"}
    bad = next(line for line in tasks.lines() if line["id"] == "bad")
    assert (bad["exit"], bad["attempt"]) == (3, 1), "a wrong answer is an answer, not tried again"
    assert "seen" in (tasks.runs / "bad/log").read_text()
    assert (tasks.runs / "bad/work/here.txt").exists(), "kept on failure"
    assert not (tasks.runs / "good/work").exists()
    tasks.run("--workspace", "copy", "--redo", "failed")
    assert [line["id"] for line in tasks.lines()[3:]] == ["bad"]


def test_results_fit_a_schema(tasks: Tasks) -> None:
    tasks.place.write(
        "script.json",
        [
            {"match": "^good", "calls": [{"name": "final_result", "arguments": {"n": 4}}]},
            {"match": "^bad", "text": "four"},
            {"match": "ended without", "text": "still four"},
        ],
    )
    tasks.model = f"scripted/{tasks.place.root / 'script.json'}"
    tasks.write({"id": "good", "prompt": "good"}, {"id": "bad", "prompt": "bad"})
    assert tasks.run("--json-schema", SCHEMA).returncode == 1
    lines = {line["id"]: line for line in tasks.lines()}
    assert lines["good"]["value"] == {"n": 4}
    assert (lines["bad"]["status"], lines["bad"]["stopReason"]) == ("failed", "schema")


def test_an_answer_that_was_cut_has_failed(tasks: Tasks) -> None:
    tasks.script({"text": "half", "stop": "length"})
    tasks.write({"id": "long", "prompt": "go"})
    assert tasks.run().returncode == 1
    (line,) = tasks.lines()
    assert (line["status"], line["stopReason"], line["text"]) == ("failed", "length", "half")
    assert "was cut at the limit" in line["error"]


def test_an_exclusion_that_matches_nothing_is_an_error(tasks: Tasks) -> None:
    tasks.script("done")
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--exclude-tools", "q*").returncode == 1
    assert 'Unknown tool "q*"' in tasks.lines()[0]["error"]


def test_denied_calls(tasks: Tasks) -> None:
    tasks.script(TOUCH, "could not")
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--deny", "Bash", "--workspace", "copy").returncode == 1
    assert tasks.statuses() == {"a": "denied"}


def test_a_price_that_is_not_known_is_no_zero(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    write_models(tasks.place.agent, mock.openai_url)  # without a price
    mock.script(reply("done"))
    tasks.write({"id": "a", "prompt": "p"})
    line, summary = tasks.run().stdout.splitlines()
    assert "a  1 turn  " in line and summary.startswith("1 task: 1 ok; unknown cost, ")


def test_only_infrastructure_is_tried_again(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(*[failure(500, "down")] * 3, reply("back"))
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run().returncode == 0
    assert [(line["status"], line["attempt"]) for line in tasks.lines()] == [("error", 1), ("ok", 2)]
    mock.script(failure(401, "no such key"))
    tasks.write({"id": "b", "prompt": "p"})
    assert tasks.run().returncode == 1
    assert [line["id"] for line in tasks.lines()[2:]] == ["b"]
    assert "no such key" in tasks.lines()[2]["error"]
    mock.script(reply("now"))
    assert tasks.run().returncode == 0, "an error is no answer: it is done again"


def test_a_provider_that_refuses_is_left_alone_by_all(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(*[failure(429, "slow down", headers={"retry-after": "2"})] * 2, reply("at last"))
    tasks.write(*({"id": f"t{number}", "prompt": f"p{number}"} for number in range(4)))
    began = time.monotonic()
    done = tasks.run("--timeout", "3.5", "--tools", "read", "-j", "1", "--retries", "1")
    assert done.returncode == 0, done.stdout
    assert time.monotonic() - began > 4, "twice as long as asked for; which is not counted as time of the task"
    assert "mock takes no more requests: all its tasks wait 2 s" in done.stdout
    assert [line["status"] for line in tasks.lines()] == ["error", "ok", "ok", "ok", "ok"]
    assert len(mock.requests) == 2 + 4


def test_a_refusal_of_a_subagent_holds_all(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    refused = failure(429, "slow down", headers={"retry-after": "1"})
    mock.script(reply(call("task", {"prompt": "look"})), refused, reply("looked"), reply("done"))
    tasks.write({"id": "a", "prompt": "p"})
    done = tasks.run("-j", "1")
    assert done.returncode == 0, done.stdout
    assert "mock takes no more requests: all its tasks wait 1 s" in done.stdout
    assert [line["status"] for line in tasks.lines()] == ["ok"] and len(mock.requests) == 4


def test_a_task_that_takes_too_long(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(silent())
    tasks.write({"id": "a", "prompt": "p"})
    done = tasks.run("--timeout", "0.3", "--retries", "1")
    assert done.returncode == 1
    assert [(line["status"], line["attempt"]) for line in tasks.lines()] == [("timeout", 1), ("timeout", 2)]
    assert "1 of 1 task is done already" in tasks.run("--timeout", "0.3", "--retries", "1").stdout


def wait_for(process: subprocess.Popen[Any], text: str) -> str:
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"{text!r} was not printed: {process.stderr.read()}")


def test_one_interrupt_lets_running_tasks_end(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("a", gate("go"), "b"))
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(4)))
    process = tasks.place.start(*tasks.arguments("-j", "2", "--workspace", "copy"), text=True)
    mock.wait_requests(2)
    mock.wait_gate("go")
    process.send_signal(signal.SIGINT)
    wait_for(process, "Running tasks may end")
    mock.release("go")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert sorted(tasks.statuses().values()) == ["ok", "ok"]
    assert "2 not begun" in out
    assert tasks.run("-j", "2", "--workspace", "copy").returncode == 0
    assert len(tasks.lines()) == 4


def test_an_interrupt_ends_the_wait_for_a_turn(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("a", gate("go"), "b"), reply("too late"))
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(4)))
    process = tasks.place.start(*tasks.arguments("--workspace", "none"), text=True)
    mock.wait_gate("go")
    process.send_signal(signal.SIGINT)
    wait_for(process, "Running tasks may end")
    mock.release("go")
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert sorted(tasks.statuses().values()) == ["cancelled", "cancelled", "cancelled", "ok"]
    assert len(mock.requests) == 1
    assert tasks.run().returncode == 0


def test_two_interrupts_stop_them(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("a", gate("never")))
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(3)))
    process = tasks.place.start(*tasks.arguments("-j", "2", "--workspace", "copy"), text=True)
    mock.wait_requests(2)
    process.send_signal(signal.SIGINT)
    wait_for(process, "Running tasks may end")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert sorted(tasks.statuses().values()) == ["cancelled", "cancelled"]
    mock.script(reply("now"))
    assert tasks.run().returncode == 0
    assert tasks.statuses() == {"t0": "ok", "t1": "ok", "t2": "ok"}


def test_lines_are_counted_and_waiting_is_not_their_time(tasks: Tasks) -> None:
    tasks.script({"text": "yes", "delay": 0.3})
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(5)))
    done = tasks.run("--workspace", "none")
    assert [line.split()[0] for line in done.stdout.splitlines()[:5]] == [f"[{n}/5]" for n in range(1, 6)]
    whole = float(done.stdout.split(" s;")[0].split()[-1])
    assert tasks.lines()[-1]["durationMs"] < 750 * whole, "it waited for four others"
    shutil.rmtree(tasks.runs)
    done = tasks.run("--workspace", "copy", "-j", "5")
    assert [line.split()[0] for line in done.stdout.splitlines()[:5]] == [f"[{n}/5]" for n in range(1, 6)]


def test_events_as_json(tasks: Tasks) -> None:
    tasks.script(TOUCH, "done")
    tasks.write({"id": "a", "prompt": "p"})
    done = tasks.run("--json", "--workspace", "copy")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [events[0]["type"], events[1]["type"], events[-2]["type"], events[-1]["type"]] == [
        "batch_start",
        "task_start",
        "task_end",
        "batch_end",
    ]
    assert events[-2]["status"] == "ok" and events[-1]["counts"] == {"ok": 1}
    assert any(event["type"] == "task_progress" and event["tool"] == "bash" for event in events)


def test_a_table_on_a_terminal(tasks: Tasks) -> None:
    tasks.script({**TOUCH, "delay": 0.4}, "done")
    tasks.write({"id": "good\x1b[2J", "prompt": "p"}, {"id": "bad", "prompt": "p", "verify": "false"})
    tasks.place.env |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
    terminal, theirs = os.openpty()
    process = tasks.place.start(*tasks.arguments("--workspace", "copy"), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:  # all ends of it are closed
        pass
    os.close(terminal)
    assert process.wait(20) == 1
    for wanted in (b"turn", b"0 of 2 done, 0 failed, 2 running, $0.0000", b"failed    bad  2 turns", b"1 ok, 1 failed"):
        assert wanted in shown
    assert b"good\x1b[2J" not in shown


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "127.0.0.1:1", "ray://no-such-host.invalid", "ray://[::1"])
def test_a_cluster_that_cannot_be_reached_is_said_at_once(tasks: Tasks, address: str) -> None:
    tasks.write({"id": "a", "prompt": "x"})
    began = time.monotonic()
    done = tasks.run("--on", address)
    assert done.returncode in (1, 2)
    assert re.match(rf"Error: .*{re.escape(address)}", done.stderr), done.stderr
    assert time.monotonic() - began < 30


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is here")
def test_ray_is_not_needed_until_it_is_asked_for(tasks: Tasks) -> None:
    tasks.write("p")
    done = tasks.run("--on", "ray")
    assert done.returncode == 1
    assert re.fullmatch(r"Error: Ray is not installed: .* install .*'ray\[client\]>=.*'\n", done.stderr)


def test_that_no_one_reads_is_no_reason_to_stop(tasks: Tasks) -> None:
    tasks.script({"text": "yes", "delay": 0.05})
    tasks.write(*({"id": f"t{number}", "prompt": "p"} for number in range(6)))
    process = tasks.place.start(*tasks.arguments("-j", "2", "--tools", "read"), text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(20) == 0
    assert len(tasks.lines()) == 6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tasks.jsonl"], "where results go"),
        (["gone.jsonl", "-o", "runs"], "Cannot read the tasks in gone.jsonl"),
        (["tasks.jsonl", "-o", "runs", "--jobs", "0"], "--jobs must be a whole number from 1 on"),
        (["tasks.jsonl", "-o", "runs", "--timeout", "soon"], "--timeout must be a number above 0"),
        (["tasks.jsonl", "-o", "runs", "--workspace", "tmp"], "--workspace must be one of"),
        (["tasks.jsonl", "-o", "runs", "--on", "mars"], 'not on "mars"'),
        (["tasks.jsonl", "-o", "runs", "--filter", "("], "not a regular expression"),
        (["tasks.jsonl", "-o", "runs", "--filter", "nosuch"], "No task has an id with 'nosuch' in it"),
        (["tasks.jsonl", "-o", "runs", "--continue"], "--continue means nothing"),
        (["tasks.jsonl", "-o", "runs", "--retires", "2"], "--retires means nothing"),
        (["--retires", "tasks.jsonl", "-o", "runs"], "--retires means nothing"),
        (["tasks.jsonl", "-o", "tasks.jsonl"], "Cannot make"),
    ],
)
def test_wrong_command_lines(tasks: Tasks, arguments: list[str], text: str) -> None:
    tasks.write("p")
    done = tasks.place.run("batch", *arguments)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr and done.stderr.count("\n") == 1
    assert not (tasks.place.project / "runs/results.jsonl").exists()


def test_what_is_wrong_with_all_tasks_is_said_once(tasks: Tasks) -> None:
    tasks.write("a", "b")
    tasks.model = "nowhere/nothing"
    done = tasks.run()
    assert done.returncode == 1
    assert "nowhere/nothing" in done.stderr
    assert tasks.lines() == []


def test_killed_at_random_nothing_is_lost(tasks: Tasks) -> None:
    """Every attempt that was recorded stays recorded, and in the end every task is done exactly once."""
    dice = random.Random(7)
    tasks.script({**TOUCH, "delay": 0.02}, "done")
    tasks.write(*({"id": f"t{number:02}", "prompt": f"p{number}"} for number in range(24)))
    kills, before = 0, b""
    while True:
        process = tasks.place.start(*tasks.arguments("--workspace", "copy", "-j", "4"), text=True)
        assert process.stdout is not None
        for _ in range(dice.randrange(1, 7)):
            process.stdout.readline()
        if process.poll() is None and kills < 4:
            process.kill()
            kills += 1
        process.communicate(timeout=30)
        data = (tasks.runs / "results.jsonl").read_bytes()
        assert data.startswith(before)
        before = data[: data.rfind(b"\n") + 1]
        if process.returncode == 0:
            break
    lines = tasks.lines()
    assert kills == 4
    assert sorted(line["id"] for line in lines) == [f"t{number:02}" for number in range(24)]
    assert {line["status"] for line in lines} == {"ok"}


def limited(tasks: Tasks, what: str, most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a batch in a process that may have only so much of something; -B, so that no cut off bytecode is left."""
    words = f"import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.{what}, ({most}, 5000)); from spindle.apps.cli import main; sys.exit(main())"
    return tasks.place.program(sys.executable, "-B", "-c", words, *tasks.arguments(*arguments))


def test_a_full_disk_stops_the_batch_and_harms_nothing(tasks: Tasks) -> None:
    tasks.script("yes")
    tasks.write(*({"id": f"t{number:02}", "prompt": "p"} for number in range(20)))
    done = limited(tasks, "RLIMIT_FSIZE", 4000, "-j", "1")
    assert done.returncode == 1
    assert "Cannot write to" in done.stderr and "results.jsonl: File too large" in done.stderr
    assert 3 < len(tasks.lines()) < 20
    assert tasks.run().returncode == 0
    assert sorted(line["id"] for line in tasks.lines() if line["status"] == "ok") == [f"t{n:02}" for n in range(20)]


def test_no_money_for_what_cannot_be_kept(tasks: Tasks) -> None:
    tasks.script(*[{"calls": [{"name": "bash", "arguments": {"command": "head -c 900 /dev/zero"}}]}] * 20, "end")
    tasks.write({"id": "a", "prompt": "p"})
    assert limited(tasks, "RLIMIT_FSIZE", 4000, "--workspace", "copy").returncode == 1
    (line,) = tasks.lines()
    assert line["status"] == "error" and line["error"].startswith("The session cannot be kept")
    assert line["turns"] < 10


def test_nothing_begins_on_a_full_disk(tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from spindle.apps.batch.ledger import LedgerError
    from spindle.batch import AgentOptions, Plan, run
    from spindle.testing import Script

    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    plan = Plan(agent=AgentOptions(model=Script(["yes"]).model()))

    async def work() -> None:
        async for _ in run(["a", "b"], tmp_path / "runs", plan):
            pass

    with pytest.raises(LedgerError, match="No space left"):
        asyncio.run(work())
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == []


def test_many_at_a_time_need_many_files(tasks: Tasks) -> None:
    tasks.script({"calls": [{"name": "bash", "arguments": {"command": "sleep 0.1"}}]}, "yes")
    tasks.write(*({"id": f"t{number:02}", "prompt": "p"} for number in range(40)))
    done = limited(tasks, "RLIMIT_NOFILE", 64, "-j", "40", "--workspace", "copy", "--retries", "0")
    assert done.returncode == 0, done.stdout


def test_as_an_iterator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from spindle.batch import AgentOptions, Plan, Task, run
    from spindle.testing import Script

    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    monkeypatch.chdir(tmp_path)
    script = Script([{"match": "^one", "text": "1"}, {"match": ".", "text": "2"}])
    plan = Plan(jobs=2, agent=AgentOptions(model=script.model(), tools=[]))

    async def work(*tasks: Any) -> dict[str, Any]:
        return {attempt.id: attempt.text async for attempt in run(tasks, tmp_path / "runs", plan)}

    assert asyncio.run(work(Task(id="a", prompt="one"), {"id": "b", "prompt": "two"})) == {"a": "1", "b": "2"}
    assert asyncio.run(work({"id": "b", "prompt": "two"}, {"id": "c", "prompt": "one"})) == {"c": "1"}

    async def leave() -> None:
        tasks = [{"id": f"t{number}", "prompt": "x"} for number in range(20)]
        async for _ in run(tasks, tmp_path / "runs", plan):
            break

    asyncio.run(leave())
    assert len((tmp_path / "runs/results.jsonl").read_text().splitlines()) < 3 + 20
    assert os.getcwd() == str(tmp_path)


# -- how agents are: extensions and MCP servers ----------------------------------------------------


def test_paths_and_options_of_extensions_hold_in_every_workspace(served: tuple[Tasks, MockModel]) -> None:
    tasks, mock = served
    make_repo(tasks.place.project / "repo")
    tasks.place.write("project/painter.py", EXTENSION)
    tasks.place.write("project/servers.json", {"mcpServers": {"fake": entry("--plain")}})
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    done = tasks.run("-e", "painter.py", "--colour=red", "--mcp-config", "servers.json", "--workspace", "worktree")
    assert (done.returncode, done.stderr) == (0, "")
    names = {tool["function"]["name"] for tool in mock.requests[0].body["tools"]}
    assert {"paint_red", "tool_search"} <= names, "what the server has is not known yet"


def test_an_option_that_no_extension_has_is_refused(tasks: Tasks) -> None:
    tasks.write("p")
    tasks.place.write("project/painter.py", EXTENSION)
    done = tasks.run("-e", "painter.py", "--colour=red", "--color=red")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --color means nothing to spindle batch (see spindle batch --help)\n"
    assert not tasks.runs.exists()


def test_what_is_wrong_with_servers_is_told_at_the_start(tasks: Tasks) -> None:
    tasks.script("yes")
    tasks.write("p", "q")
    tasks.place.write("project/servers.json", {"mcpServers": {"odd": {"args": ["x"]}}})
    done = tasks.run("--mcp-config", "servers.json", "--mcp-config", "missing.json")
    assert done.returncode == 0
    assert done.stderr.count('MCP server "odd" is left out') == done.stderr.count("missing.json: no such file") == 1
    log = next(tasks.runs.glob("*/log")).read_text()
    assert 'MCP server "odd" is left out' in log
    assert tasks.run("--mcp-config", "servers.json", "--no-mcp", "--redo", "all").stderr == ""


def test_tasks_that_ended_on_a_limit_are_named_when_it_is_raised(tasks: Tasks) -> None:
    tasks.script(TOUCH, "done")
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--workspace", "none", "--max-turns", "1").returncode == 1
    again = tasks.run("--workspace", "none", "--max-turns", "9")
    assert "1 task had ended on a limit: a (maxTurns). --redo failed does them again" in again.stdout
    assert tasks.run("--workspace", "none", "--max-turns", "9", "--redo", "failed").returncode == 0


# -- names -----------------------------------------------------------------------------------------

FORMER = {
    "stop_reason",
    "tool_calls",
    "cost_usd",
    "session",
    "session_id",
    "patch_bytes",
    "task_hash",
    "seconds",
    "output",
}
NEW = {"stopReason", "toolCalls", "cost", "sessionFile", "sessionId", "patchBytes", "taskHash", "durationMs", "text"}


def test_a_line_has_the_names_of_a_result(tasks: Tasks) -> None:
    tasks.script("fine")
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--workspace", "none").returncode == 0
    result = json.loads(tasks.place.run("--model", tasks.model, "--output", "json", "-p", "p").stdout)
    (line,) = tasks.lines()
    of_one_run = {"denials", "costSource", "filesChanged", "fallbacks"}
    assert result.keys() - line.keys() == of_one_run and result["tokens"].keys() <= line["tokens"].keys()
    same = {"status", "stopReason", "text", "error", "turns", "toolCalls", "cost"}
    assert {name: line[name] for name in same} == {name: result[name] for name in same}
    assert not FORMER.intersection(line)


def test_results_with_the_names_of_before_are_gone_on_with(tasks: Tasks) -> None:
    tasks.script("fine")
    tasks.write({"id": "a", "prompt": "p"})
    assert tasks.run("--workspace", "none").returncode == 0
    (line,) = tasks.lines()
    assert line.keys() > NEW
    tokens = {name: number for name, number in line["tokens"].items() if not name.startswith("cacheR")}
    old = {name: value for name, value in line.items() if name not in NEW} | {"tokens": tokens, "cost_usd": 2.5}
    old |= {"stop_reason": "end", "task_hash": line["taskHash"], "seconds": 1.5, "output": "fine"}
    (tasks.runs / "results.jsonl").write_text(json.dumps(old) + "\n")
    done = tasks.run("--workspace", "none", "--total-cost", "9")
    assert done.returncode == 0 and "$2.5" in done.stdout and len(tasks.lines()) == 1
