"""A process that owns its stdio, driven by words on stdin. Run by `test_stdio`."""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from spindle.llm.live import LiveMessage
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer, Response
from spindle.shapes.events import MessageUpdate
from spindle.shapes.model import Model, ModelCost
from spindle.wires.pipe import descriptors
from spindle.wires.pipe.framing import LineReader, LineTooLong
from spindle.wires.pipe.stdio import StdioWire

MODEL = Model("m", "M", "scripted", "mock", "http://127.0.0.1", False, ["text"], ModelCost(0, 0, 0, 0), 1000, 100)


def say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


async def stream(outbox: Outbox, count: int) -> None:
    live = LiveMessage(MODEL)
    live.start_text()
    for number in range(count):
        await outbox.room()
        outbox.put(MessageUpdate(live.append(0, f"{number % 10000:04d} "), live))
        if number % 100 == 0:
            await asyncio.sleep(0)
    outbox.put(Response(id="streamed", command="stream", success=True))
    say("streamed")


def stray(word: str) -> None:
    """Write to stdout in every way a careless library would."""
    print(f"{word} print")
    print(f"{word} dunder", file=sys.__stdout__, flush=True)
    os.write(1, f"{word} descriptor\n".encode())
    subprocess.run(["sh", "-c", f"echo {word} child"], check=True)


async def main(wire: StdioWire) -> int:
    outbox = Outbox(Renderer())
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def broken(error: OSError) -> None:
        say("broken")
        ended.set_result(7)

    wire.attach(outbox, broken)
    tasks = []

    async def read() -> None:
        reader = LineReader()
        async for chunk in wire.chunks():
            for line in reader.receive(chunk):
                assert not isinstance(line, LineTooLong)
                verb, _, rest = line.decode().partition(" ")
                if verb == "put":
                    outbox.put(Response(id=rest, command="put", success=True))
                elif verb == "size":
                    outbox.put(Response(command="size", success=True, data=len(rest)))
                elif verb == "stray":
                    stray(rest)
                elif verb == "stream":
                    tasks.append(asyncio.create_task(stream(outbox, int(rest))))
                elif verb == "ping":
                    say("pong")
                elif verb == "flags":
                    say(f"nonblocking {bool(fcntl.fcntl(2, fcntl.F_GETFL) & os.O_NONBLOCK)}")
                elif verb == "peak":
                    # Not getrusage, which remembers what the parent was before it became us.
                    status = Path("/proc/self/status").read_text()
                    say(f"peak {status.partition('VmHWM:')[2].split()[0]}")
                elif verb == "input":
                    say(f"stdin has {len(sys.stdin.read())}")
        if last := reader.close():
            outbox.put(Response(id=last.decode(), command="last", success=True))
        if not ended.done():
            ended.set_result(0)

    reading = asyncio.create_task(read())
    code = await ended
    reading.cancel()
    drained = await wire.drain(0.3 if code == 0 else 0)
    say(f"drained {drained}")
    wire.close()
    return code


if __name__ == "__main__":
    if "threads" in sys.argv:
        descriptors._open_end = lambda *unused: None
    if "early" in sys.argv:
        print("early print, never flushed")
    sys.exit(asyncio.run(main(StdioWire.claim())))
