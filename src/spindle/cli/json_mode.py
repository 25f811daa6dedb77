"""`spindle --mode json`: the session's header, then every event, one JSON object a line."""

import asyncio
from typing import NoReturn

from msgspec.structs import replace

from spindle.agent.session import AgentSession
from spindle.cli.args import Options
from spindle.cli.finish import run_and_exit
from spindle.cli.inputs import Inputs
from spindle.cli.one_shot import ErrorTeller, play, read_inputs, until_signal
from spindle.cli.rpc_mode import chosen_dialect
from spindle.cli.tell import tell
from spindle.protocol.dialect import Dialect
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.rpc.stdio import StdioWire
from spindle.shapes.events import Event

__all__ = ["run_json"]

_DRAIN_S = 5.0


class SessionLine(Event, tag="session"):
    """The header of the session file."""

    version: int
    id: str
    timestamp: str
    cwd: str
    parent_session: str | None = None


def run_json(options: Options) -> NoReturn:
    """Run the messages, then end the process. Raises `BadInput`, `UsageError`."""
    dialect = chosen_dialect(options)
    inputs = read_inputs(options)
    run_and_exit(until_signal(_stream(options, inputs, dialect)))


async def _stream(options: Options, inputs: Inputs, dialect: Dialect) -> int:
    wire = StdioWire.claim()
    # Errors of extensions go to stderr: here stdout is the run and nothing else.
    dialect = replace(dialect, events=dialect.events | {"extension_error"})
    outbox = Outbox(Renderer(dialect, options.updates or "delta"))
    work = asyncio.current_task()
    assert work is not None

    def give_up() -> None:
        tell("Error", "Cannot write to stdout any more")
        work.cancel()

    wire.attach(outbox, on_broken=give_up)

    def ready(agent: AgentSession) -> None:
        header = agent.store.get_header()
        outbox.put(
            SessionLine(int(header.version), str(header.id), header.timestamp, header.cwd, header.parent_session)
        )
        agent.subscribe(outbox)
        agent.subscribe(ErrorTeller())

    try:
        await play(options, inputs, "json", ready)
    finally:
        await wire.drain(_DRAIN_S)
        wire.close()
    return 0
