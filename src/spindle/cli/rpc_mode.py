"""`--mode rpc`: JSON lines on stdin and stdout."""

import os
from typing import NoReturn

from spindle.agent.session import AgentSession
from spindle.cli.args import Options, UsageError
from spindle.cli.assemble import assemble
from spindle.cli.finish import run_and_exit
from spindle.protocol.dialect import DIALECTS, Dialect, find_dialect
from spindle.protocol.render import Renderer
from spindle.rpc.server import serve
from spindle.rpc.stdio import StdioWire

__all__ = ["chosen_dialect", "run_rpc"]


def run_rpc(options: Options) -> NoReturn:
    """Serve one client on stdio, then end the process. Raises `UsageError`."""
    if options.files:
        raise UsageError("@file arguments are not supported in RPC mode")
    run_and_exit(_serve(options, chosen_dialect(options)))


def chosen_dialect(options: Options) -> Dialect:
    """Return what the client gets to see. Raises `UsageError`."""
    name = options.dialect or os.environ.get("SPINDLE_DIALECT") or "spindle"
    if name not in DIALECTS:
        raise UsageError(f'SPINDLE_DIALECT must be one of {", ".join(DIALECTS)}, not "{name}"')
    return find_dialect(name, os.environ)


async def _serve(options: Options, dialect: Dialect) -> int:
    wire = StdioWire.claim()
    renderer = Renderer(dialect, options.updates)

    async def make_agent() -> AgentSession:
        return await assemble(options, mode="rpc")

    return await serve(make_agent, wire, renderer)
