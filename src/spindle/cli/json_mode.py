"""`spindle --mode json`: the session's header, then every event, one JSON object a line."""

import os

from msgspec.structs import replace

from spindle.agent.session import AgentSession
from spindle.protocol.dialect import DIALECTS
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.rpc.stdio import StdioWire
from spindle.types.events import Event

from .args import Options
from .inputs import Inputs
from .one_shot import ErrorTeller, play, read_inputs, run_and_exit

__all__ = ["run_json"]

_DRAIN_S = 5.0


class SessionLine(Event, tag="session"):
    """The header of the session file."""

    version: int
    id: str
    timestamp: str
    cwd: str
    parent_session: str | None = None


def run_json(options: Options) -> int:
    inputs = read_inputs(options)
    run_and_exit(lambda: _stream(options, inputs))


async def _stream(options: Options, inputs: Inputs) -> int:
    wire = StdioWire.claim()
    dialect = DIALECTS[options.dialect or os.environ.get("SPINDLE_DIALECT") or "spindle"]
    # Errors of extensions go to stderr: here stdout is the run and nothing else.
    dialect = replace(dialect, events=dialect.events | {"extension_error"})
    outbox = Outbox(Renderer(dialect, options.updates or "delta"))
    wire.attach(outbox)

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
