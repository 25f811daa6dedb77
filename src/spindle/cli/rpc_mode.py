"""`--mode rpc`: JSON lines on stdin and stdout."""

import os
import sys

from spindle.agent.session import AgentSession
from spindle.protocol.dialect import find_dialect
from spindle.protocol.render import Renderer
from spindle.rpc.server import serve
from spindle.rpc.stdio import StdioWire

from .args import Options
from .assemble import assemble
from .finish import run_and_exit

__all__ = ["run_rpc"]


def run_rpc(options: Options) -> int:
    """Serve one client on stdio. Returns the exit code."""
    if options.files:
        print("Error: @file arguments are not supported in RPC mode", file=sys.stderr)
        return 1
    run_and_exit(_serve(options))


async def _serve(options: Options) -> int:
    wire = StdioWire.claim()
    dialect = find_dialect(options.dialect or os.environ.get("SPINDLE_DIALECT") or "spindle", os.environ)
    renderer = Renderer(dialect, options.updates)

    async def make_agent() -> AgentSession:
        return await assemble(options, mode="rpc")

    return await serve(make_agent, wire, renderer)
