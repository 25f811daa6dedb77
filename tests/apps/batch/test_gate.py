"""The door to a provider: closed for all, then one goes first."""

import asyncio
import time

from spindle.apps.batch.gate import ProviderGate


def test_one_goes_first_and_the_others_follow_if_it_is_served():
    async def work():
        told = []
        gate = ProviderGate(told.append)
        await gate.enter("a")
        await gate.enter("b")
        gate.answered("a", 429, {"retry-after": "0.2"})
        gate.answered("b", 429, {"retry-after": "0.1"})  # both were under way: one refusal
        entered: asyncio.Queue[str] = asyncio.Queue()

        async def call(name):
            await gate.enter(name)
            entered.put_nowait(name)

        tasks = [asyncio.create_task(call(name)) for name in "cdef"]
        began = time.monotonic()
        assert await asyncio.wait_for(entered.get(), 10) == "c"
        assert time.monotonic() - began > 0.9, "at least a second"
        tasks[1].cancel()  # one that waits may give up
        gate.answered("c", 429, {})
        began = time.monotonic()
        assert await asyncio.wait_for(entered.get(), 10) == "e"
        assert time.monotonic() - began > 1.9, "twice as long, then the next"
        await asyncio.sleep(0.05)
        assert entered.empty(), "one at a time"
        gate.leave("e")  # no answer came: the door stays as it is, and the next one goes
        assert await asyncio.wait_for(entered.get(), 10) == "f"
        gate.answered("f", 200, {})
        await asyncio.wait_for(gate.enter("g"), 5)
        assert len(told) == 2

    asyncio.run(work())


def test_what_counts_as_a_refusal():
    async def is_open(status, headers):
        gate = ProviderGate()
        gate.answered("a", status, headers)
        try:
            await asyncio.wait_for(gate.enter("b"), 0.05)
            return True
        except TimeoutError:
            return False

    for status, headers, wanted in (
        (200, {}, True),
        (500, {"retry-after": "5"}, True),
        (503, {}, True),
        (503, {"retry-after": "5"}, False),
        (429, {}, False),
        (529, {}, False),
    ):
        assert asyncio.run(is_open(status, headers)) is wanted, status


def test_requests_that_are_refused_together_are_told_once():
    told = []
    gate = ProviderGate(told.append)
    for who in range(8):
        gate.answered(who, 429, {"retry-after": "2"})
    assert len(told) == 1
    gate.answered(8, 429, {"retry-after": "30"})
    assert len(told) == 2, "that is much longer"
