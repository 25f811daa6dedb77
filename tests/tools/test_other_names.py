"""Options that models trained on other programs send: taken, refused with a way, or told; never dropped silently."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spindle.tools.base import ToolError, builtin_tools
from spindle.tools.validate import checked_arguments, unknown_options
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call as model_call
from tests.support.mock_model import reply

from .helpers import call, refusal, text_of

TAKEN = [
    ("read", {"filePath": "f"}, {"path": "f"}),
    ("read", {"absolute_path": "/f"}, {"path": "/f"}),
    ("read", {"file_path": "f", "filePath": "f"}, {"path": "f"}),
    ("write", {"file_path": "f", "file_text": "x"}, {"path": "f", "content": "x"}),
    ("bash", {"command": "ls", "timeout_ms": 1500}, {"command": "ls", "timeout": 1.5}),
    ("bash", {"command": ["bash", "-lc", "a && b"]}, {"command": "a && b"}),
    ("bash", {"command": ["echo", "a b"], "workdir": "."}, {"command": "echo 'a b'"}),
    ("grep", {"pattern": "x", "include": "*.py", "-i": True, "-A": 2, "-C": 1}, None),
    ("find", {"pattern": "*.py", "directory": "src", "max_results": 3}, {"pattern": "*.py", "path": "src", "limit": 3}),
    ("ls", {"dir_path": "src"}, {"path": "src"}),
]
TAKEN[7] = (*TAKEN[7][:2], {"pattern": "x", "glob": "*.py", "ignoreCase": True, "context": 2})


def checked(tool: str, sent: dict[str, Any]) -> tuple[Any, str]:
    known = builtin_tools()[tool]
    args = asyncio.run(checked_arguments(known, sent))
    return args, unknown_options(known, args)


@pytest.mark.parametrize(("tool", "sent", "got"), TAKEN)
def test_other_names_are_taken(tool: str, sent: dict[str, Any], got: dict[str, Any]) -> None:
    assert checked(tool, sent) == (got, "")


@pytest.mark.parametrize("name", ["replace_all", "replaceAll", "allow_multiple", "expected_replacements"])
def test_every_occurrence_is_replaced_if_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("a = 1\nb = a + a\n")
    value = 3 if name == "expected_replacements" else True
    done = call("edit", tmp_path, **{"file_path": "f", "old_string": "a", "new_string": "xa", name: value})
    assert (tmp_path / "f").read_text() == "xa = 1\nb = xa + xa\n" and "everywhere" in text_of(done)


def test_without_it_the_text_must_be_unique(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\na\n")
    assert "Found 2 occurrences" in refusal("edit", tmp_path, path="f", oldText="a", newText="b", replace_all=False)


@pytest.mark.parametrize("option", [{"append": True}, {"mode": "a"}])
def test_what_would_lose_the_old_content_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="nothing was written"):
        checked("write", {"path": "f", "content": "new\n", **option})


def test_what_a_command_did_not_get_is_told() -> None:
    assert (
        checked("bash", {"command": "cat", "stdin": "x"})[1] == "bash has no option stdin: the command ran without it."
    )


def test_another_folder_is_refused_with_the_way_to_do_it() -> None:
    with pytest.raises(ToolError, match="Begin the command with cd"):
        checked("bash", {"command": "make", "workdir": "/tmp"})


def test_other_options_are_told() -> None:
    _, told = checked("grep", {"pattern": "x", "output_mode": "count", "-n": True})
    assert told.startswith("grep has no option output_mode: the call was made without it. It has: pattern, path, glob")
    assert checked("bash", {"command": "ls", "description": "List files"})[1] == ""
    assert checked("bash", {"command": "ls", "foo": 1})[1] == "", "a conformance case has it so"


def test_a_timeout_in_milliseconds_is_told() -> None:
    assert checked("bash", {"command": "ls", "timeout": 120_000})[1] == (
        "The timeout of bash is in seconds: 120000 are 33.3 hours."
    )
    assert checked("bash", {"command": "ls", "timeout": 600})[1] == ""


def test_the_model_reads_it_after_the_results_and_not_in_them() -> None:
    calls = [model_call("bash", {"command": "echo hi", "timeout": 60_000, "sandboxed": True})]
    with AgentProcess([reply(*calls), reply("done")]) as agent:
        agent.run("go")
        result, remark = agent.mock.requests[1].body["messages"][-2:]
        assert (result["role"], result["content"]) == ("tool", "hi\n")
        assert "<remark>The timeout of bash is in seconds: 60000 are 16.7 hours.</remark>" in str(remark["content"])


def test_a_script_of_the_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "build.sh", tmp_path / "in" / "make.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("echo built\n")
    assert "run it as sh ./build.sh" in refusal("bash", tmp_path, command="build.sh --fast")
    assert "make.py is a file in in: run it as python3 ./make.py" in refusal(
        "bash", tmp_path, command="cd in && make.py"
    )
    (tmp_path / "build.sh").chmod(0o755)
    said = refusal("bash", tmp_path, command="build.sh --fast")
    assert "build.sh is a file in the working directory: run it as ./build.sh" in said
    assert said.endswith("Command exited with code 127")
    assert "run it as" not in refusal("bash", tmp_path, command="no-such-program")
