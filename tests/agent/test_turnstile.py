"""Many runs that begin at once leave room for others in between."""

import asyncio

from spindle.flow import Turnstile
from tests.agent.rig import run


def test_so_many_pass_in_each_turn_and_others_are_served_in_between():
    async def main():
        gate, seen = Turnstile(2), []

        async def enter(number):
            await gate.turn()
            seen.append(number)

        async def others():
            for _ in range(4):
                await asyncio.sleep(0)
                seen.append("other")

        await asyncio.gather(*(enter(number) for number in range(6)), others())
        assert [item for item in seen if item != "other"] == list(range(6))
        assert seen.index("other") < seen.index(4)
        await gate.turn()

    run(main())


def test_one_that_gives_up_holds_up_nobody():
    async def main():
        gate = Turnstile(1)
        waiting = [asyncio.create_task(gate.turn()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert not waiting[2].cancelled()
        await gate.turn()

    run(main())
