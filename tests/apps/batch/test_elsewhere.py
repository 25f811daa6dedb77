"""Tasks that work at the far side of a pipe: started, verified, compared and stopped, one by one."""

import shlex
import shutil
from pathlib import Path

from .conftest import Tasks, make_repo


def far(folder: Path) -> dict[str, str]:
    """Return the fields of a task that works in a folder of its own, which stands in for a container.

    The shell there warns of a locale that it does not know.
    """
    enter = f'cd {shlex.quote(str(folder))}/{{id}} && exec env -i LC_ALL=xx_YY.UTF-8 PATH=/usr/bin:/bin "$@"'
    return {
        "start": f"cp -r {folder}/repo {folder}/$SPINDLE_TASK_ID",
        "exec": f"sh -c {shlex.quote(enter)} enter",
        "stop": f"touch {folder}/$SPINDLE_TASK_ID.stopped",
    }


def test_setup_agent_verify_and_patch_are_there(tasks: Tasks) -> None:
    there = tasks.place.project.parent / "there"
    make_repo(there / "repo")
    bash = {"name": "bash", "arguments": {"command": "pwd; env; echo more >> a.py"}}
    write = {"name": "write", "arguments": {"path": "new", "content": "x"}}
    tasks.script({"calls": [bash, write]}, "Done.")
    tasks.write(
        {"id": "good", "prompt": "x", "setup": "touch set-up", "verify": "test -e set-up && test -e new", **far(there)},
        {"id": "bad", "prompt": "x", "verify": "pwd; exit 3", **far(there)},
        {"id": "none", "prompt": "x", **far(there), "start": "echo no image; exit 125"},
        {"id": "alone", "prompt": "x", "start": "true"},
        {"id": "fenced", "prompt": "x", **far(there), "sandbox": "read-only"},
    )
    tasks.run("--jobs", "1", "--retries", "0")
    assert tasks.statuses() == {"good": "ok", "bad": "failed", "none": "error", "alone": "error", "fenced": "error"}
    patch = (tasks.runs / "good/patch.diff").read_text()
    assert "+more" in patch and "b/new" in patch and "set-up" not in patch
    log = (tasks.runs / "bad/log").read_text()
    assert "verify ended with 3: pwd; exit 3\n" in log and f"\n{there}/bad\n" in log
    assert patch.startswith("diff --git ")
    assert "no image" in (tasks.runs / "none/log").read_text()
    assert "start and stop are for tasks that work elsewhere" in (tasks.runs / "alone/log").read_text()
    assert "fence them there" in (tasks.runs / "fenced/log").read_text() and not (there / "fenced").exists()
    assert sorted(path.stem for path in there.glob("*.stopped")) == ["bad", "good", "none"]
    assert not (tasks.runs / "good/work").exists()
    shutil.rmtree(there)


def test_a_place_is_stopped_before_the_next_task_starts_it(tasks: Tasks) -> None:
    there = tasks.place.project.parent / "there"
    there.mkdir()
    tasks.script("Done.")
    steps = {"start": f"mkdir {there}/up", "exec": f"env -C {there}", "stop": f"sleep 0.3; rmdir {there}/up"}
    tasks.write(*({"id": id, "prompt": "x", **steps} for id in ("one", "two")))
    tasks.run("--jobs", "2", "--retries", "0")
    assert tasks.statuses() == {"one": "ok", "two": "ok"}


def test_a_container_is_run_for_each_task_and_removed(tasks: Tasks) -> None:
    """A program named docker stands in for the real one: its containers are folders."""
    there = tasks.place.project.parent / "there"
    make_repo(there / "image")
    tasks.place.env["PATH"] = f"{there}/bin:/usr/bin:/bin"
    docker = there / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(
        f"""#!/bin/sh
cd {there} && echo "$*" >>said
case $* in
"run -d --rm --init --name spindle-"*" app:1 sleep infinity") cp -r image "$6" ;;
"exec -i spindle-"*" sh") cd "$3" && exec env -i PATH=/usr/bin:/bin sh ;;
"rm -f spindle-"*) rm -r "$3" ;;
*) echo "no such command: $*" >&2; exit 125 ;;
esac
"""
    )
    docker.chmod(0o755)
    tasks.script({"calls": [{"name": "write", "arguments": {"path": "new", "content": "x"}}]}, "Done.")
    tasks.write(
        {"id": "good", "prompt": "x", "container": "app:1", "verify": "test -e new"},
        {"id": "bad", "prompt": "x", "container": "app:1", "verify": "exit 3"},
        {"id": "none", "prompt": "x", "container": "missing"},
        {"id": "both", "prompt": "x", "container": "app:1", "exec": "ssh host"},
    )
    tasks.run("--jobs", "2", "--retries", "0")
    assert tasks.statuses() == {"good": "ok", "bad": "failed", "none": "error", "both": "error"}
    assert "b/new" in (tasks.runs / "good/patch.diff").read_text()
    assert "no such command" in (tasks.runs / "none/log").read_text()
    assert "not both" in (tasks.runs / "both/log").read_text()
    assert not list(there.glob("spindle-*")), "removed, after a failure too"
