"""`readBeforeWrite`: a file that the conversation has not seen is not replaced as a whole."""

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

OLD = "".join(f"line {n}\n" for n in range(8))


def written(*steps, on=True, text=OLD):
    """Let the model take steps, then write the file `f`; return the result of the write, and the file."""
    wanted = [reply(call(name, args)) for name, args in (*steps, ("write", {"path": "f", "content": "new"}))]
    with AgentProcess([*wanted, reply("done")], settings={"readBeforeWrite": on}) as agent:
        if text is not None:
            (agent.cwd / "f").write_text(text)
        agent.run("go")
        end = [frame for frame in agent.frames if frame["type"] == "tool_execution_end"][-1]
        return end["result"]["content"][0]["text"], (agent.cwd / "f").read_text()


def test_the_refusal_shows_size_and_first_lines():
    said, kept = written()
    assert kept == OLD
    assert "f was not written: it exists (56B, 8 lines) and was not read in this conversation. It begins:" in said
    assert "\nline 4\n…\n" in said and "line 5" not in said and "edit" in said


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([("read", {"path": "f"})], OLD),
        ([("read", {"path": "./f", "limit": 1})], OLD),
        ([("bash", {"command": "cat f"})], OLD),
        ([("bash", {"command": "echo x > f"})], None),
        ([("write", {"path": "f", "content": "first"})], None),
        ([], ""),
        ([], None),
    ],
    ids=["read", "read in part", "cat", "made by a command", "made by write", "empty", "new"],
)
def test_a_file_that_was_seen_or_made_is_replaced(steps, text):
    assert written(*steps, text=text)[1] == "new"


def test_an_edit_shows_only_the_words_that_it_replaces():
    said, kept = written(("edit", {"path": "f", "oldText": "line 3", "newText": "three"}))
    assert "was not read" in said and kept == OLD.replace("line 3", "three")


@pytest.mark.parametrize("step", [("read", {"path": "other"}), ("bash", {"command": "cat f; false"})])
def test_other_calls_and_failed_ones_do_not_count(step):
    assert written(step)[1] == OLD


def test_it_is_off_by_default_without_a_word():
    assert written(on=False) == ("Successfully wrote to f", "new")
