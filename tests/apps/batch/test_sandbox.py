"""The sandbox of a batch: of the whole, and of single tasks; commands of the user obey it too."""

import pytest

from spindle.programs import fence

from .conftest import Tasks

pytestmark = pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")


def test_tasks_setup_and_verify_are_fenced(tasks: Tasks) -> None:
    outside = tasks.place.project / "outside"
    outside.mkdir()
    command = f"touch {outside}/$SPINDLE_TASK_ID"
    tasks.script("Done.")
    tasks.write(
        {"id": "whole", "prompt": "x", "verify": f"{command} || touch inside; test -e inside"},
        {"id": "free", "prompt": "x", "verify": command, "sandbox": "off"},
        {
            "id": "more",
            "prompt": "x",
            "verify": command,
            "sandbox": {"level": "workspace-write", "writable": [str(outside)]},
        },
        {"id": "read", "prompt": "x", "verify": "touch inside", "sandbox": "read-only"},
        {"id": "setup", "prompt": "x", "setup": command},
    )
    done = tasks.place.run(
        *("batch", "tasks.jsonl", "-o", "runs", "--model", tasks.model, "--retries", "0"),
        *("--workspace", "copy", "--sandbox", "workspace-write"),
    )
    assert tasks.statuses() == {"whole": "ok", "free": "ok", "more": "ok", "read": "failed", "setup": "error"}
    assert sorted(path.name for path in outside.iterdir()) == ["free", "more"]
    assert "Note:" not in done.stderr
    log = (tasks.runs / "read/log").read_text()
    assert "The sandbox (read-only) stopped this command: it may not write" in log


def test_a_batch_without_a_sandbox_says_which_would_work(tasks: Tasks) -> None:
    tasks.script("Done.")
    tasks.write("x")
    done = tasks.place.run("batch", "tasks.jsonl", "-o", "runs", "--model", tasks.model)
    assert done.stderr.startswith(
        "Note: Commands run without a sandbox. A level would fence them: --sandbox workspace-"
    )
    assert done.stderr.count("\n") == 1


def test_a_task_with_a_slip_stops_the_batch(tasks: Tasks) -> None:
    tasks.write({"prompt": "x", "sandbox": "readonly"})
    done = tasks.run()
    assert done.returncode == 2
    assert "sandbox" in done.stderr
