"""The results file: whatever happens to it, whole lines stay."""

import asyncio
import json
import os
import resource
import signal

import pytest

from spindle.apps.batch.ledger import Attempt, Ledger, LedgerError
from spindle.apps.batch.tasks import read_jobs


def line(name="a", **fields):
    return Attempt(**{"id": name, "attempt": 1, "status": "ok", "stop_reason": "end", **fields})


def append(folder, *attempts):
    async def work():
        ledger = Ledger(folder)
        try:
            await asyncio.gather(*(ledger.append(attempt) for attempt in attempts))
        finally:
            ledger.close()

    asyncio.run(work())


def test_a_file_that_ends_anywhere_is_sound_again(tmp_path):
    file = tmp_path / "results.jsonl"
    append(tmp_path, line("a", text="ü\n \ud800"), line("b", value={"x": 1}), line("c"))
    data = file.read_bytes()
    for size in range(len(data) + 1):
        file.unlink()
        file.write_bytes(data[:size])
        ledger = Ledger(tmp_path)
        ledger.close()
        whole = "abc"[: data[:size].count(b"\n")]
        assert list(ledger.attempts) == list(whole)
        if size % 50 == 0:
            append(tmp_path, line("z"))
            assert [json.loads(one)["id"] for one in file.read_bytes().splitlines()] == [*whole, "z"]


def test_two_batches_do_not_write_to_one_file(tmp_path):
    first = Ledger(tmp_path)
    with pytest.raises(LedgerError, match="Another batch"):
        Ledger(tmp_path)
    first.close()
    Ledger(tmp_path).close()


def test_a_line_that_is_none_is_named(tmp_path):
    (tmp_path / "results.jsonl").write_text('{"id": 3}\n')
    with pytest.raises(LedgerError, match=r"results.jsonl:1 is not a result"):
        Ledger(tmp_path)


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(tmp_path):
    append(tmp_path, line("a"))
    before = (tmp_path / "results.jsonl").read_bytes()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100,) * 2)
            with pytest.raises(LedgerError, match="Cannot write to"):
                append(tmp_path, line("b", text="x" * 1000))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_a_line_is_written_though_every_task_is_cancelled(tmp_path):
    async def body() -> None:
        ledger = Ledger(tmp_path)
        first = asyncio.create_task(ledger.append(line("a")))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([first])
        await asyncio.wait_for(ledger.append(line("b")), 20)
        ledger.close()

    asyncio.run(body())
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(text)["id"] for text in lines] == ["a", "b"]


def test_what_counts_as_done(tmp_path):
    (job,) = read_jobs([{"id": "a", "prompt": "x"}])

    def is_done(*attempts, retries=2, redo=None):
        (tmp_path / "results.jsonl").unlink(missing_ok=True)
        append(tmp_path, *(line(task_hash=job.hash, **fields) for fields in attempts))
        ledger = Ledger(tmp_path)
        ledger.close()
        return ledger.done(job, retries, redo) is not None

    ok, failed, slow = {"status": "ok"}, {"status": "failed"}, {"status": "timeout"}
    assert not is_done()
    assert is_done(ok) and is_done(failed) and is_done({"status": "denied"})
    assert not is_done({"status": "error"}) and not is_done({"status": "cancelled"})
    assert is_done({"status": "budget", "stop_reason": "maxCost"})
    assert not is_done({"status": "budget", "stop_reason": "totalCost"})
    assert not is_done(slow, slow) and is_done(slow, slow, slow) and is_done(slow, retries=0)
    assert is_done({"status": "error"}, ok)
    assert not is_done(failed, redo="failed") and is_done(ok, redo="failed") and not is_done(ok, redo="all")
