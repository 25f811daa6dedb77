"""Runs without a person: a last answer that is no end of the work is asked about once, then the run has failed."""

import json
import subprocess
import sys

import pytest

from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply
from tests.support.nursery import run

ANNOUNCED = "The bug is in stats.py.\n\nI will now fix the division and run the tests."
WRITE = reply(call("write", {"path": "proof", "content": "done"}))
MISSED = reply(call("edit", {"path": "f.py", "oldText": "nowhere in it", "newText": "x"}))
RECITED = "Here is the corrected file:\n\n```python\ndef f():\n    a = 1\n    b = 2\n    return a + b\n```\nDone."


def one_shot(tmp_path, *steps, mode="json", asked="go"):
    (tmp_path / "work").mkdir(parents=True)
    (tmp_path / "work/f.py").write_text("def f():\n    return 2\n")
    with MockModel(list(steps)) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        done = run(
            [sys.executable, "-m", "spindle", "--mode", mode, "--model", "mock/m1", "--no-session", asked],
            cwd=tmp_path / "work",
            env=agent_environment(tmp_path / "agent"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=40,
        )
    return mock, done


def result(done):
    return next(frame for line in done.stdout.splitlines() if (frame := json.loads(line))["type"] == "agent_settled")


@pytest.mark.parametrize(
    "text",
    [
        ANNOUNCED,
        "Let me look at the file first:",
        "First, I'll create the file.",
        "Now I’m going to run the tests",
        "Next, let's start by reading the code.",
    ],
)
def test_an_announcement_is_asked_about_and_the_work_goes_on(tmp_path, text):
    mock, done = one_shot(tmp_path, reply(text), WRITE, reply("It is done."))
    assert "says what you are going to do" in str(mock.requests[1].body["messages"][-1])
    assert (tmp_path / "work/proof").read_text() == "done" and done.returncode == 0


def test_announced_twice_is_a_failure_with_a_reason_of_its_own(tmp_path):
    mock, done = one_shot(tmp_path, reply(ANNOUNCED), reply(ANNOUNCED))
    assert len(mock.requests) == 2 and done.returncode == 1
    settled = result(done)
    assert settled["stopReason"] == "unfinished" and "with an announcement" in settled["errorMessage"]


def test_a_file_that_is_only_recited_after_a_missed_edit(tmp_path):
    mock, done = one_shot(tmp_path, MISSED, reply(RECITED), reply(RECITED))
    assert "Your last edit changed nothing" in str(mock.requests[2].body["messages"][-1])
    assert done.returncode == 1 and result(done)["stopReason"] == "unfinished"


def test_a_claim_where_every_change_failed(tmp_path):
    mock, done = one_shot(tmp_path, MISSED, reply("I have changed f.py."), WRITE, reply("I have changed f.py."))
    assert "No file was changed" in str(mock.requests[2].body["messages"][-1])
    assert (tmp_path / "work/proof").exists() and done.returncode == 0
    mock, done = one_shot(tmp_path / "again", MISSED, reply("Done."), reply("Done."))
    assert len(mock.requests) == 3 and done.returncode == 1 and result(done)["stopReason"] == "unfinished"


def test_a_failure_that_is_only_repeated(tmp_path):
    same = reply(call("edit", {"path": "f.py", "oldText": "return 2", "newText": "return 2"}))
    said = "The replacement produced identical content."
    mock, done = one_shot(tmp_path, same, reply(said), WRITE, reply("It is done."))
    assert "repeats the result of your last call, which failed" in str(mock.requests[2].body["messages"][-1])
    assert done.returncode == 0
    mock, done = one_shot(tmp_path / "other", same, reply("Nothing was to change: f.py returns 2."))
    assert len(mock.requests) == 2 and done.returncode == 0


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (MISSED, "f.py already returns 2."),
        (MISSED, "I couldn’t find that text in f.py."),
        (MISSED, "f.py returns 2, just as you want it."),
        (MISSED, "Die Datei konnte ich nicht ändern: der Text kommt dort nicht vor."),
        (MISSED, "无法修改 f.py：文件中没有这段文字。"),
        (
            MISSED,
            f"The text is absent, so the edit failed. The file has:{RECITED.partition(':')[2].removesuffix('Done.')}",
        ),
        (reply(call("read", {"path": "f.py"})), "It returns 2."),
        (
            reply(
                call("bash", {"command": "sed -i s/2/3/ f.py; false"}),
                call("edit", {"path": "f.py", "oldText": "z", "newText": "x"}),
            ),
            "It returns 3.",
        ),
    ],
)
def test_what_is_no_false_claim(tmp_path, first, text):
    mock, done = one_shot(tmp_path, first, reply(text))
    assert len(mock.requests) == 2 and done.returncode == 0


def test_after_a_change_a_recited_file_is_an_answer(tmp_path):
    mock, done = one_shot(tmp_path, MISSED, WRITE, reply(RECITED))
    assert len(mock.requests) == 3 and done.returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        RECITED,
        "I fixed the division. Let me know if you want more tests.",
        "I will not change the file: it is right as it is.",
        "Should I fix it? I will run the tests if you say so?",
        "The function was renamed; the tests pass.",
        "You will need to run the tests: they take long.",
        "I ran the tests. They pass. The file reads the settings, then let users change them.",
    ],
)
def test_other_answers_are_the_end(tmp_path, text):
    mock, done = one_shot(tmp_path, reply(text))
    assert len(mock.requests) == 1 and done.returncode == 0


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("Make a plan; change nothing.", "I will read stats.py, then I will fix the division."),
        ("Translate: Lass uns die Tests starten.", "Let's run the tests."),
        ("Show an example call of get_weather as JSON.", '{"name": "get_weather", "arguments": {"city": "Bonn"}}'),
    ],
)
def test_what_the_user_wanted_to_read_is_the_end(tmp_path, asked, text):
    mock, done = one_shot(tmp_path, reply(text), asked=asked)
    assert len(mock.requests) == 1 and done.returncode == 0


def test_an_attended_client_is_never_asked():
    with AgentProcess([reply(ANNOUNCED)]) as agent:
        agent.run("go")
        assert len(agent.mock.requests) == 1


def test_a_subagent_is_asked_too_and_then_it_has_failed(tmp_path):
    work = reply(call("task", {"description": "fix", "prompt": "Fix the bug."}))
    mock, done = one_shot(tmp_path, work, reply(ANNOUNCED), reply(ANNOUNCED), reply("It could not be done."))
    asked = str(mock.requests[2].body["messages"])
    assert "Fix the bug." in asked and "says what you are going to do" in asked
    told = next(one["content"] for one in mock.requests[3].body["messages"] if one["role"] == "tool")
    assert "The subagent failed: The model ended with a call that cannot be run, with an announcement" in str(told)
    assert done.returncode == 0, "its owner has ended well"
