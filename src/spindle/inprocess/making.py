"""How an agent is made of options: its session, and what is checked once it is there."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spindle.agent import AgentError
from spindle.agent.run.meter import check_limits
from spindle.agent.session import AgentSession
from spindle.inprocess.declared import check_definitions, check_matchers
from spindle.inprocess.options import CreateOptions
from spindle.inprocess.stored import session_folder
from spindle.inprocess.words import in_python
from spindle.recipe import AgentOptions, check_tools
from spindle.sessions import SessionManager
from spindle.sessions import open as sessions
from spindle.sessions.entries import SessionNotFound
from spindle.sessions.named import named_file
from spindle.sessions.session import Session
from spindle.sessions.shelf import NO_LINES
from spindle.sessions.store import shared_store


class Warnings:
    """Problems that are no reason to stop: Python warns of them, once it is certain that there is an agent."""

    def __init__(self) -> None:
        self._held: list[str] | None = []

    def __call__(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
        else:
            warnings.warn(in_python(text), UserWarning, stacklevel=2)

    def release(self) -> None:
        """Tell what was held back; from now on nothing is."""
        held, self._held = self._held or (), None
        for text in held:
            self(text)


def wanted_session(options: CreateOptions) -> Session | None:
    """Take the session that `create` is to go on with from its options. Raises as `open` does."""
    session, file = options.pop("session", None), options.pop("session_file", None)
    if session is not None and file is not None:
        raise AgentError("session and session_file exclude each other: one is there already, the other may be new")
    directory = options.get("cwd")
    if file is not None:
        return sessions.load(file, None, directory)
    if session == "":
        raise SessionNotFound("session is empty: leave it out, or give None, for a new one")
    if isinstance(session, str | Path):
        place = Path(directory or ".").resolve()
        return sessions.load(named_file(session, place, session_folder(place)), None, directory)
    if isinstance(session, SessionManager):
        return session.session
    if not isinstance(session, Session | None):
        raise TypeError(f"session must be an id, the path of a file or a Session, not {session!r}")
    return session


def session_in_store(options: CreateOptions) -> Session:
    """Open the session of a store, or begin it. Raises `SessionError`."""
    given, id = options.pop("store"), options.pop("session", None)
    if options.get("session_file") is not None or not options.get("persist", True):
        raise AgentError("A session of a store is in no file, and is kept: leave session_file and persist out")
    if not isinstance(id, str | None):
        raise TypeError(f"session must be the id of a session in the store, not {id!r}")
    store = shared_store(given) if isinstance(given, str) else given
    assert store is not None
    cwd = options.get("cwd")
    if id is not None and store.load(id, NO_LINES) is not None:
        return sessions.loaded_from(store, id, cwd)
    return sessions.begun_in(store, Path(cwd or ".").resolve(), id=id)


async def begin(agent: AgentSession, wanted: AgentOptions, options: CreateOptions) -> None:
    """Let a new agent begin. Raises for what only the agent can tell: servers, names of tools, limits of a model."""
    if agent.model is not None:
        check_limits(wanted.limits, agent.model)
    _check_servers(agent, wanted.mcp_servers or ())
    await agent.begin()
    check_tools(agent, wanted.tools or ())
    check_definitions(agent, wanted.agents)
    check_matchers(agent, options.get("hooks") or {})


def _check_servers(agent: AgentSession, wanted: Iterable[Any]) -> None:
    """Raise `ValueError` for a server of the program that cannot be used as it is written."""
    names = [item["name"] if isinstance(item, dict) else item for item in wanted]
    for state in agent.mcp_servers.states() if names else ():
        if state.state == "invalid" and state.name in names:
            raise ValueError(f"mcp_servers[{state.name!r}]: {(state.error or '').removeprefix('client: ')}")
