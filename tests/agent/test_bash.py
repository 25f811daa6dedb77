"""The user's own shell commands: beside runs, several at once, killed, flooding."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from spindle.shapes.messages import text_of
from spindle.testing import Pause

from .rig import Rig, kinds, run, until_true


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_killed_in_the_moment_it_is_asked_for(tmp_path):
    """The command has not even begun; it is answered all the same."""

    async def main():
        async with Rig(tmp_path) as rig:
            bash, kill = rig.send("bash", command="sleep 60"), rig.send("abort_bash")
            await rig.response(kill)
            assert (await rig.response(bash))["data"]["cancelled"] is True
            assert (await rig.call("abort_bash"))["success"]

    run(main())


def test_several_at_once_are_told_apart_and_killed_together(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            ids = [rig.send("bash", command=f"echo {n}; sleep 60") for n in range(4)]
            quick = await rig.call("bash", command="echo quick; exit 3")
            counts = {"totalLines": 1, "totalBytes": 6, "outputLines": 1, "outputBytes": 6}
            ended = {"exitCode": 3, "cancelled": False, "truncated": False}
            assert quick["data"] == {"output": "quick\n", **ended, **counts}
            await until_true(lambda: len(rig.of("bash_execution_update")) == 5)
            await asyncio.gather(rig.call("abort_bash"), rig.call("abort_bash"))
            for n, id in enumerate(ids):
                data = (await rig.response(id))["data"]
                assert (data["output"], data["cancelled"], data["truncated"]) == (f"{n}\n", True, False)
                assert "exitCode" not in data
                assert [f["delta"] for f in rig.of("bash_execution_update") if f["id"] == id] == [f"{n}\n"]
            assert rig.roles() == ["bashExecution"] * 5

    run(main())


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_grandchildren_die_with_it(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            bash = rig.send("bash", command="sleep 60 & echo $!; (sleep 61 & echo $!; wait); wait")
            await until_true(lambda: sum(f["delta"].count("\n") for f in rig.of("bash_execution_update")) == 2)
            pids = [int(n) for f in rig.of("bash_execution_update") for n in f["delta"].split()]
            assert all(map(alive, pids))
            await rig.call("abort_bash")
            await rig.response(bash)
            await until_true(lambda: not any(map(alive, pids)))

    run(main())


def test_during_a_run_the_result_waits_for_its_end(tmp_path):
    async def main():
        steps = [{"calls": [{"name": "read", "arguments": {"path": "x"}}]}, {"text": ["x", Pause(gate="go")]}, "ok"]
        async with Rig(tmp_path, steps) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            await rig.call("bash", command="echo seen")
            await rig.call("bash", command="echo secret", excludeFromContext=True)
            assert "bashExecution" not in rig.roles()
            rig.script.release("go")
            await rig.until("agent_settled")
            assert rig.roles()[-2:] == ["bashExecution", "bashExecution"]
            await rig.run("again")
            sent = "\n".join(text_of(m.content) for m in rig.script.requests[-1].messages)
            assert "echo seen" in sent and "secret" not in sent

    run(main())


def test_a_directory_that_is_gone_is_told(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            shutil.rmtree(rig.cwd)
            refused = await rig.call("bash", command="true")
            assert refused["error"].startswith("Working directory does not exist")
            assert rig.roles() == []

    run(main())


def test_an_abort_of_the_run_leaves_the_command_alone(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="never")]}]) as rig:
            await rig.call("prompt", message="hi")
            bash = rig.send("bash", command="read line < go; echo $line")
            os.mkfifo(rig.cwd / "go")
            await rig.script.reached("never")
            await rig.call("abort")
            await asyncio.to_thread((rig.cwd / "go").write_text, "done\n")
            assert (await rig.response(bash))["data"]["output"] == "done\n"

    run(main())


def test_a_flood_waits_until_the_client_reads_on(tmp_path):
    """Nothing is lost and nothing piles up: the command itself is held up."""

    async def main():
        async with Rig(tmp_path) as rig:
            rig.wire.stop_reading()
            bash = rig.send("bash", command="head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo end >&2; echo > done")
            await until_true(lambda: bool(rig.of("bash_execution_update")))
            for _ in range(20):
                await asyncio.sleep(0.01)
            held = sum(len(f["delta"]) for f in rig.of("bash_execution_update"))
            assert held <= 2 * 64 * 1024 and not (rig.cwd / "done").exists()
            assert (await rig.data("get_state"))["isStreaming"] is False
            rig.wire.read_on()
            data = (await rig.response(bash))["data"]
            assert data["truncated"] and data["output"].endswith("end")
            assert sum(len(f["delta"]) for f in rig.of("bash_execution_update")) == 3_000_005
            assert kinds(rig.frames)[-1] == "response"
            Path(data["fullOutputPath"]).unlink()

    run(main())


def test_a_flood_that_is_held_up_can_be_killed(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            rig.wire.stop_reading()
            bash = rig.send("bash", command="yes")
            await until_true(lambda: bool(rig.of("bash_execution_update")))
            await rig.call("abort_bash")
            data = (await rig.response(bash))["data"]
            assert data["cancelled"] is True
            if "fullOutputPath" in data:
                Path(data["fullOutputPath"]).unlink()

    run(main())
