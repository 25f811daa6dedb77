"""Much work that begins at once leaves room for others in between."""

import asyncio
import time

from spindle.base.flow import Turnstile
from tests.agent.rig import run


def test_when_its_time_is_up_others_are_served_first():
    async def main():
        gate, seen = Turnstile(0.01), []

        async def enter(number):
            await gate.turn()
            seen.append(number)
            time.sleep(0.006)  # noqa: ASYNC251 - work

        async def others():
            for _ in range(4):
                await asyncio.sleep(0)
                seen.append("other")

        await asyncio.gather(*(enter(number) for number in range(6)), others())
        assert [item for item in seen if item != "other"] == list(range(6))
        assert seen.index("other") < seen.index(4) and seen.count("other") == 4

    run(main())


def test_quick_work_passes_in_one_turn():
    async def main():
        gate, turns = Turnstile(10), []
        await asyncio.gather(*(gate.turn() for _ in range(50)), asyncio.sleep(0))
        asyncio.get_running_loop().call_soon(turns.append, 1)
        await gate.turn()
        assert not turns

    run(main())


def test_one_that_gives_up_holds_up_nobody():
    async def main():
        gate = Turnstile(0.01)
        await gate.turn()
        time.sleep(0.02)  # noqa: ASYNC251 - work
        waiting = [asyncio.create_task(gate.turn()) for _ in range(3)]
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert not waiting[2].cancelled()

    run(main())
