"""Modes that serve clients: `--mode rpc` one on stdin and stdout, `--remote` many over WebSocket."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from spindle.apps.cli import warn
from spindle.apps.cli.args import TOKENS, Options, UsageError
from spindle.apps.cli.assemble import (
    assemble,
    number_of,
    resource_options,
    resources_here,
    run_and_exit,
    tell_slips,
    tell_unfenced,
)
from spindle.apps.cli.process_bounds import allowed_in, apply, chosen_bounds, sessions_with_files
from spindle.apps.cli.session_choice import choosing_options
from spindle.apps.cli.subcommands import REMOTE
from spindle.base.agent_dir import agent_dir
from spindle.base.limits import PROCESS_END
from spindle.programs.children import kill_all
from spindle.programs.stop_signals import on_stop
from spindle.protocol.dialect import DIALECTS, Dialect, find_dialect
from spindle.sessions.entries import SessionError

if TYPE_CHECKING:  # loaded only if there are several sessions, or clients come over the network
    from spindle.apps.cli.agent_source import CommandLineAgents
    from spindle.base.settings import Bounds
    from spindle.protocol.pool import PoolBounds, SessionPool
    from spindle.server.users import User
    from spindle.sessions.store import SessionStore
    from spindle.shapes.sandbox import Network
    from spindle.wires.server import RemoteServer

FOR_EVER = 1e9


def run_rpc(options: Options) -> NoReturn:
    """Serve one client on stdio, then end the process. Raises `UsageError`."""
    if options.files:
        raise UsageError("@file arguments are not supported in RPC mode", 1)  # as with pi
    dialect = chosen_dialect(options)
    run_and_exit(_serve(replace(options, interrupt_mode=dialect.interrupt_mode), dialect))


def chosen_dialect(options: Options) -> Dialect:
    """Return the dialect of the client. Raises `UsageError`."""
    name = options.dialect or os.environ.get("SPINDLE_DIALECT") or "spindle"
    if name not in DIALECTS:
        raise UsageError(f'SPINDLE_DIALECT must be one of {", ".join(DIALECTS)}, not "{name}"')
    return find_dialect(name, os.environ)


async def _serve(options: Options, dialect: Dialect) -> int:
    from spindle.protocol.render import Renderer
    from spindle.wires.pipe.stdio import StdioWire
    from spindle.wires.stdio import StdioSeat

    wire = StdioWire.claim()
    agent = await assemble(options, mode="rpc")
    bounds = chosen_bounds(options, agent.resources.settings)
    apply(bounds)
    agent.check_place = allowed_in(bounds.roots)

    def make_pool() -> "SessionPool":
        from spindle.apps.cli.agent_source import CommandLineAgents
        from spindle.protocol.pool import SessionPool

        source = CommandLineAgents(options, "rpc", agent.resources.options, roots=bounds.roots)
        return SessionPool(source, _pool_bounds(bounds))

    return await StdioSeat(agent, wire, Renderer(dialect, options.updates), make_pool).run()


def _pool_bounds(bounds: "Bounds") -> "PoolBounds":
    from spindle.protocol.pool import PoolBounds

    return PoolBounds(max_sessions=sessions_with_files(bounds.sessions), keep_seconds=bounds.idle_seconds or FOR_EVER)


def run_acp(options: Options) -> NoReturn:
    """Serve an editor on stdio, then end the process. Raises `UsageError`."""
    for name in choosing_options(options):
        if name != "--no-session":
            raise UsageError(f"{name} does not go with ACP: the editor chooses")
    if options.files:
        raise UsageError("@file arguments do not go with ACP: the editor sends files")
    run_and_exit(_serve_editor(options))


async def _serve_editor(options: Options) -> int:
    from spindle.apps.cli import end_of_start
    from spindle.apps.cli.agent_source import CommandLineAgents
    from spindle.wires.acp.process import EditorProcess
    from spindle.wires.pipe.stdio import StdioWire

    wire = StdioWire.claim()
    resources = resources_here(resource_options(options))
    bounds = chosen_bounds(options, resources.settings)
    apply(bounds)
    source = CommandLineAgents(options, "acp", resources.options, roots=bounds.roots)
    end_of_start()
    return await EditorProcess(wire, source, _pool_bounds(bounds)).run()


def run_web(options: Options) -> int:
    """Serve, and open the page in the browser. Raises `UsageError`."""
    from spindle.apps.cli.login_command import open_page

    return run_remote(options, open_page)


def run_remote(options: Options, on_start: Callable[[str], None] = lambda address: None) -> int:
    """Serve until a signal comes; `on_start` gets the address of the page. Raises `UsageError`."""
    from spindle.apps.cli.agent_source import CommandLineAgents
    from spindle.apps.cli.server_log import begin_log
    from spindle.wires.network.access import parse_address
    from spindle.wires.network.options import RemoteOptions, changed
    from spindle.wires.server import RemoteServer

    if options.config is not None:
        from spindle.apps.cli.server_config import configured

        options = configured(options, Path(options.config))
        if options.offline:
            os.environ["PI_OFFLINE"] = "1"
    for name in choosing_options(options):
        if name != "--no-session":
            raise UsageError(f"{name} does not go with a server: clients choose with ?session=ID")
    if options.files:
        raise UsageError("@file arguments do not go with a server: clients send files")
    if options.keep_sessions not in (None, "forever"):
        from spindle.sessions.retention import seconds

        if seconds(options.keep_sessions or "") is None:
            raise UsageError(
                f"--keep-sessions takes an age as 12h, 90d or 1y, or forever, not {options.keep_sessions!r}"
            )

    address = options.remote or (options.messages[0] if options.messages else REMOTE)
    try:
        host, port = parse_address(address)
        resources = resources_here(resource_options(options))
        bounds = chosen_bounds(options, resources.settings)
        apply(bounds)
        settings = RemoteOptions(
            max_sessions=sessions_with_files(bounds.sessions),
            keep_seconds=bounds.idle_seconds or FOR_EVER,
            host=host,
            port=port,
            token=remote_token(options),
            users=None if options.tokens is None else tokens_file(options.tokens),
            origins=frozenset(options.remote_origins),
            insecure=options.remote_insecure,
            node_address=None if options.node_address is None else _node_address(options.node_address),
            tls=_tls(options),
        )
        source = CommandLineAgents(
            options, "remote", resources.options, roots=bounds.roots, store=opened_store(options.store)
        )
        server = RemoteServer(changed(settings, options.remote_options), source)
    except ValueError as error:
        raise UsageError(str(error)) from None
    drain = number_of("drain", options.drain or "0", float, 0)
    if options.check:
        run_and_exit(_check(server, source, address))
    begin_log(options)
    try:
        run_and_exit(_serve_clients(server, source, on_start, drain, recover=options.recover))
    except OSError as error:
        raise UsageError(f"Cannot listen on {address}: {error.strerror or error}") from None


async def _serve_clients(
    server: "RemoteServer",
    source: "CommandLineAgents",
    on_start: Callable[[str], None],
    drain: float,
    *,
    recover: bool,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, let runs end for `drain` seconds, then say goodbye.

    Raises `OSError`, `UsageError`.
    """
    reach = await _try_agent(source)
    ended = asyncio.Event()

    def end(number: int) -> None:
        if ended.is_set():  # it is ending already, too slowly for the user
            kill_all()
            os._exit(1)
        ended.set()
        _say(f"Stopping: {signal.Signals(number).name}")

    on_stop((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), end, seconds=drain + PROCESS_END)
    server.recovers = recover
    try:
        address, began = await server.start(reach), time.monotonic()
    except SessionError as error:  # of the store
        raise UsageError(str(error)) from None
    if reach == "on" and server.is_open:
        _say(
            "Warning: commands in the sandbox can use this server as you do, and so reach around the sandbox. "
            "Give it a token (--remote-token-file), or the sandbox no network"
        )
    page, _, token = address.partition("#token=")
    if token and reach != "off":
        _say("Commands in the sandbox could connect to this server, so clients need the token in its address")
    _say(f"Listening on {address}")
    # A browser would have the token in its command line, where commands can read it.
    address = address if reach == "off" else page
    if server.has_owner:
        server.permit.tell = _say_code
        _say_code(server.permit.code)
    on_start(address)
    if recover and (count := await server.recover()):
        _say(f"Going on with {count} interrupted run{'s' * (count > 1)}")
    if recover:
        server.take_over()
    await ended.wait()
    await server.drain(drain)
    await server.stop()
    _say(f"Stopped after {time.monotonic() - began:.0f} s")
    return 0


async def _check(server: "RemoteServer", source: "CommandLineAgents", address: str) -> int:
    """Say whether a server could start. Raises `UsageError`."""
    try:
        server.tls()
    except OSError as error:
        raise UsageError(f"The certificate or its key cannot be used: {error.strerror or error}") from None
    await _try_agent(source)
    for name, user in server.users().items():
        await _try_user(source, name, user)
    print(f"Sound: it would listen on {address}, {server.who()}", flush=True)
    return 0


async def _try_agent(source: "CommandLineAgents") -> "Network":
    """Make an agent like those of the clients, to find errors at the start. Raises `UsageError`.

    Return the network of its commands, if they are fenced; else `off`.
    """
    from spindle.models.credentials import MissingCredentials
    from spindle.protocol.registry import WantedSession

    try:
        agent = await source.make(WantedSession())
    except Exception as error:
        raise UsageError(str(error) or type(error).__name__) from None
    try:
        if source.unknown:
            raise UsageError(source.unknown)
        tell_slips(source.options, agent)
        tell_unfenced(agent)
        if agent.model is None:
            warn(agent.resources.registry.no_model_text())
        else:
            agent.resources.registry.require_credentials(agent.model)
        sandbox = agent.approval.sandbox_for()
        return "off" if sandbox is None else sandbox.network
    except MissingCredentials as error:
        raise UsageError(str(error)) from None
    finally:
        await agent.close()


async def _try_user(source: "CommandLineAgents", name: str, user: "User") -> None:
    """Make an agent of a user: there must be a root, a model and the sandbox. Raises `UsageError`."""
    from spindle.protocol.registry import WantedSession

    try:
        agent = await source.for_user(name, user)[0].make(WantedSession())
    except Exception as error:
        raise UsageError(f"Sessions of {name} could not start: {error}") from None
    await agent.close()


def _say_code(code: str) -> None:
    _say(f"To change keys and settings in a browser, it asks once for this code: {code}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def opened_store(given: str | None) -> "SessionStore | None":
    """Open the store that the user wants; None: sessions are in files. Raises `UsageError`."""
    address = given or os.environ.get("SPINDLE_STORE")
    if not address:
        return None
    from spindle.sessions.store import StoreError, open_store

    try:
        return open_store(address)
    except StoreError as error:
        raise UsageError(str(error)) from None


def _node_address(given: str) -> str:
    """Raises `UsageError`."""
    if not given.startswith(("http://", "https://")):
        raise UsageError(f"--node-address is a URL, as http://10.0.0.5:3838, not {given}")
    return given.rstrip("/")


def tokens_file(given: str) -> Path:
    """Return the path of the file of the users."""
    return agent_dir() / TOKENS if given == TOKENS else Path(given).absolute()


def remote_token(options: Options) -> str | None:
    """Take the token from a file or the environment; never from the command line, where other users see it."""
    if options.remote_token_file is not None:
        file = Path(options.remote_token_file)
        try:
            token = file.read_text().strip()
            if os.name == "posix" and file.stat().st_mode & 0o077:
                warn(f"Other users of this machine can read the token: chmod 600 {file}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"Cannot read the token file: {error}") from None
        if not token:
            raise UsageError(f"The token file {file} is empty")
    else:
        token = os.environ.get("SPINDLE_REMOTE_TOKEN", "").strip()
    if token and len(token) < 16:
        raise UsageError("The remote token must have at least 16 characters")
    return token or None


def _tls(options: Options) -> tuple[str, str] | None:
    match options.remote_cert, options.remote_key:
        case None, None:
            return None
        case str(cert), str(key):
            return cert, key
    raise UsageError("--remote-cert and --remote-key go together")
