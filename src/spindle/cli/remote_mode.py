"""`--remote ADDR`: serve clients over WebSocket."""

import os
from dataclasses import replace
from pathlib import Path

from spindle.agent.session import AgentSession
from spindle.sessions.manager import SessionManager

from .args import Options, UsageError
from .assemble import assemble
from .finish import run_and_exit

__all__ = ["run_remote"]


def run_remote(options: Options) -> int:
    """Serve until a signal comes. Raises `UsageError`."""
    try:
        from spindle.remote.access import parse_address
        from spindle.remote.live import UnknownSession
        from spindle.remote.server import RemoteOptions, RemoteServer
    except ImportError as error:
        raise UsageError(f"--remote needs the remote extra ({error}): pip install 'spindle[remote]'") from None

    async def make_agent(session_id: str | None) -> AgentSession:
        if session_id is None:
            return await assemble(options, mode="remote")
        path = SessionManager.find_by_id(os.getcwd(), session_id, options.session_dir)
        if path is None:
            raise UnknownSession(f"No session {session_id} in this directory")
        return await assemble(replace(options, session=path), mode="remote")

    try:
        host, port = parse_address(options.remote or "")
        settings = RemoteOptions(
            host=host,
            port=port,
            token=_token(options),
            origins=frozenset(options.remote_origins),
            insecure=options.remote_insecure,
            tls=_tls(options),
        )
        server = RemoteServer(settings, make_agent)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        run_and_exit(server.run())
    except OSError as error:
        raise UsageError(f"Cannot listen on {options.remote}: {error.strerror or error}") from None


def _token(options: Options) -> str | None:
    """Take the token from a file or the environment; never from the command line, where everybody sees it."""
    if options.remote_token_file is not None:
        try:
            token = Path(options.remote_token_file).read_text().strip()
        except OSError as error:
            raise UsageError(f"Cannot read the token file: {error.strerror or error}") from None
    else:
        token = os.environ.get("SPINDLE_REMOTE_TOKEN", "").strip()
    if token and len(token) < 16:
        raise UsageError("The remote token must have at least 16 characters")
    return token or None


def _tls(options: Options) -> tuple[str, str] | None:
    if (options.remote_cert is None) != (options.remote_key is None):
        raise UsageError("--remote-cert and --remote-key go together")
    if options.remote_cert is None or options.remote_key is None:
        return None
    return options.remote_cert, options.remote_key
