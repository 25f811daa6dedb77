"""`--mode rpc`: JSON lines on stdin and stdout."""

import os
from typing import NoReturn

from spindle.agent.session import AgentSession
from spindle.protocol.dialect import find_dialect
from spindle.protocol.render import Renderer
from spindle.rpc.server import serve
from spindle.rpc.stdio import StdioWire

from .args import Options, UsageError
from .assemble import assemble
from .finish import run_and_exit

__all__ = ["run_rpc"]


def run_rpc(options: Options) -> NoReturn:
    """Serve one client on stdio, then end the process. Raises `UsageError`."""
    if options.files:
        raise UsageError("@file arguments are not supported in RPC mode")
    run_and_exit(_serve(options))


async def _serve(options: Options) -> int:
    wire = StdioWire.claim()
    dialect = find_dialect(options.dialect or os.environ.get("SPINDLE_DIALECT") or "spindle", os.environ)
    renderer = Renderer(dialect, options.updates)

    async def make_agent() -> AgentSession:
        return await assemble(options, mode="rpc")

    return await serve(make_agent, wire, renderer)
