"""`-p` as a CI job sees it: the exit code, and one object that tells what came of the run."""

import json

import pytest

from .conftest import Place

CALL = {"calls": [{"name": "bash", "arguments": {"command": "true"}}]}
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def run(place: Place, steps, *args: str):
    model = place.script(*steps)
    return place.run("--no-session", "--model", model, "-p", "go", *args)


def test_the_result_object(place: Place) -> None:
    write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}
    done = run(place, [write, "fine"], "--output", "json")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert (result["status"], result["stopReason"], result["text"]) == ("ok", "end", "fine")
    assert (result["turns"], result["toolCalls"], result["filesChanged"]) == (2, 1, ["a.txt"])
    assert result["denials"] == [] and result["sessionFile"] is None and result["sessionId"]


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(
    ("steps", "args", "code", "status"),
    [
        (["fine"], [], 0, "ok"),
        ([{"error": "400 no"}], [], 1, "error"),
        ([CALL] * 9, ["--max-turns", "2"], 4, "limit"),
        (["no", "no"], ["--json-schema", SCHEMA], 5, "schema"),
    ],
)
def test_exit_codes(place: Place, steps, args, code, status, output) -> None:
    done = run(place, steps, *args, "--output", output)
    assert done.returncode == code
    assert (code == 0) == (done.stderr == "")
    if output == "json":
        assert json.loads(done.stdout)["status"] == status


@pytest.mark.parametrize(("steps", "code"), [(["fine"], 0), ([{"error": "400 no"}], 1)])
def test_json_mode_obeys_the_same_table(place: Place, steps, code) -> None:
    assert place.run("--no-session", "--model", place.script(*steps), "--mode", "json", "go").returncode == code


def test_the_first_run_that_failed_decides(place: Place) -> None:
    model = place.script({"error": "400 no"}, "fine")
    assert place.run("--no-session", "--model", model, "-p", "one", "two").returncode == 1


@pytest.mark.parametrize("schema", [SCHEMA, "schema.json"])
def test_a_structured_result(place: Place, schema) -> None:
    place.write("project/schema.json", json.loads(SCHEMA))
    step = {"calls": [{"name": "final_result", "arguments": {"n": 4}}]}
    assert json.loads(run(place, [step], "--json-schema", schema).stdout) == {"n": 4}
    assert json.loads(run(place, [step], "--json-schema", schema, "--output", "json").stdout)["value"] == {"n": 4}


@pytest.mark.parametrize(
    "args",
    [("--max-turns", "0"), ("--max-turns", "x"), ("--max-cost", "-1"), ("--max-time", "nan"), ("--max-time", "inf")],
)
def test_a_limit_must_be_a_number(place: Place, args) -> None:
    done = run(place, ["fine"], *args)
    number = "whole number" if args[0] == "--max-turns" else "number"
    assert done.returncode == 2 and f"{args[0]} must be a {number} above 0" in done.stderr


@pytest.mark.parametrize("schema", ["[]", "{", "missing.json"])
def test_a_schema_must_be_one(place: Place, schema) -> None:
    done = run(place, ["fine"], "--json-schema", schema)
    assert done.returncode != 0 and "--json-schema" in done.stderr


RM = {"calls": [{"name": "bash", "arguments": {"command": "rm kept.txt"}}]}


@pytest.mark.parametrize(
    ("steps", "stop_reason", "count"),
    [([RM, "I could not"], "end", 1), ([RM] * 9, "denied", 3)],
    ids=["the model gives in", "the model insists"],
)
def test_a_denied_call(place: Place, steps, stop_reason, count) -> None:
    kept = place.write("project/kept.txt", "x")
    done = run(place, steps, "--deny", "Bash(rm *)", "--output", "json")
    result = json.loads(done.stdout)
    reason = "Permission denied: this call of bash is refused by rule Bash(rm *) of the command line."
    assert done.returncode == 3 and kept.exists()
    assert (result["status"], result["stopReason"]) == ("denied", stop_reason)
    assert (
        result["denials"]
        == [{"toolName": "bash", "arguments": {"command": "rm kept.txt"}, "rule": "Bash(rm *)", "reason": reason}]
        * count
    )
    assert done.stderr == f"{reason}\n"


@pytest.mark.parametrize(
    "args", [("--permission-mode", "plan"), ("--permission-mode", "dontAsk"), ("--deny", "final_result")]
)
def test_a_structured_result_needs_no_permission(place: Place, args) -> None:
    step = {"calls": [{"name": "final_result", "arguments": {"n": 4}}]}
    done = run(place, [step], "--json-schema", SCHEMA, *args)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"n": 4})


@pytest.mark.parametrize("args", [("--deny", "Bash("), ("--permission-mode", "yolo")])
def test_a_bad_rule_is_a_usage_error(place: Place, args) -> None:
    done = run(place, ["fine"], *args)
    usage = place.run("--no-such-option", "-p", "go")
    assert done.returncode == usage.returncode != 0 and done.stdout == "" and args[1] in done.stderr
