"""Makes the agents of live sessions from the options of the command line, each for a directory of its own."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.session import AgentSession
from spindle.apps.cli import warn
from spindle.apps.cli.args import Options, UsageError, unknown_options
from spindle.apps.cli.assemble import agent_options, from_here, resource_options
from spindle.apps.cli.process_bounds import allowed_in
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import report
from spindle.protocol.registry import WantedSession
from spindle.recipe import make_agent
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions import open as sessions
from spindle.sessions.pages import Page
from spindle.sessions.session import Saving, Session
from spindle.sessions.shelf import FileShelf, Shelf, StoreShelf
from spindle.sessions.tally import SessionInfo
from spindle.shapes.sandbox import STRICTER

if TYPE_CHECKING:  # loaded only if there are users
    from spindle.server.account import Terms
    from spindle.server.users import User
    from spindle.sessions.store import SessionStore


class CommandLineAgents:
    """The `AgentSource` of a process."""

    def __init__(
        self,
        options: Options,
        mode: str,
        resources: ResourceOptions | None = None,
        *,
        roots: Sequence[str] = (),
        store: "SessionStore | None" = None,
    ) -> None:
        """`resources`: options that were read for an earlier agent.

        `roots`: sessions may work in these directories and below; none: anywhere. `store`: where sessions are, if they
        are not in files.
        """
        self.store = store
        self._cwd = os.getcwd()
        self.options = from_here(options)
        self._mode = mode
        self._roots = roots
        self._allowed = allowed_in(roots)
        self._resource_options = resources
        """Kept for all agents: a pipe among the options can be read only once."""
        self.unknown: str | None = None
        """The error about unknown options; set when the first agent is made, because extensions may add options."""
        self._is_first = True
        self._user: User | None = None
        """The user whose agents these are."""

    def for_user(
        self, name: str, user: "User", others: Callable[[], Sequence[str]] = tuple
    ) -> tuple["CommandLineAgents", "Terms"]:
        from spindle.server.account import Terms

        options, resources = self.options, self._resources(self._cwd)
        directory = os.path.join(self._directory(resources) or str(agent_dir() / "users"), name)
        mode = user.permission_mode or options.permission_mode or resources.settings.permissions.default_mode
        level = max(user.sandbox or "off", options.sandbox or "off", key=STRICTER.index)
        model = options.model if options.model is None or user.may_use(options.model) else None
        chosen = replace(
            options,
            session_dir=directory,
            permission_mode=mode,
            sandbox=None if level == "off" else level,
            models=list(user.models) or options.models,
            model=model,
            provider=options.provider if model is not None else None,
        )
        theirs_only = replace(resources.options, user_folder=directory, others=others)
        own = None if self.store is None else self.store.within(name)
        source = CommandLineAgents(chosen, self._mode, theirs_only, store=own)
        bounded = level == "off" or self._roots  # else a user with a sandbox could choose any folder to write to
        here, theirs = self._allowed, allowed_in(user.roots or (() if bounded else [self._cwd]))

        def allowed(cwd: str) -> None:
            here(cwd)
            theirs(cwd)
            if level != "off":
                _check_workspace(cwd, others())

        source._allowed, source._user, source._is_first = allowed, user, False
        source._cwd = user.roots[0] if user.roots else self._cwd
        return source, Terms(directory, mode, level)

    def find(self, session: str, cwd: str | None) -> str | None:
        place = cwd or self._cwd
        return None if self.options.no_session else self._shelf(place).find(session, place)

    def stored(
        self,
        cwd: str | None,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        fits: Callable[[SessionInfo], bool] | None = None,
    ) -> Page:
        """Return a page of the stored sessions of a directory, or of all that sessions may work in. Blocks.

        Raises `BadCursor`.
        """
        if self.options.no_session:
            return Page([])
        may_work_in = cache(self._may_work_in)

        def wanted(info: SessionInfo) -> bool:
            return may_work_in(info.cwd) and (fits is None or fits(info))

        return self._shelf(cwd or self._cwd).page(cwd, limit, cursor, wanted)

    def info(self, session: str) -> SessionInfo | None:
        """Return what a list shows of the stored session with this id; None if there is none. Blocks."""
        path = self.find(session, None)
        info = None if path is None else self._shelf(self._cwd).info(path)
        return info if info is not None and self._may_work_in(info.cwd) else None

    def interrupted(self) -> list[str]:
        """Return the stored sessions with a run that was cut off. Blocks."""
        shelf = self._shelf(self._cwd)
        found = ((name, shelf.info(name)) for name in shelf.cut_off())
        return [name for name, info in found if info is not None and self._may_work_in(info.cwd)]

    def load(self, path: str, *, read_only: bool = False) -> Session:
        """Open a stored session without an agent. Raises `SessionError`. Blocks."""
        return self._shelf(self._cwd).load(path, read_only=read_only)

    def _may_work_in(self, cwd: str) -> bool:
        try:
            self._allowed(cwd)
        except AgentError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove a session that no process writes to. Raises `SessionError`."""
        self._shelf(self._cwd).delete(path)

    async def make(self, wanted: WantedSession) -> AgentSession:
        try:
            options = agent_options(self.options, self._mode)
        except UsageError as error:
            raise AgentError(str(error)) from None
        if self._user is not None:
            options = replace(options, limits=self._user.limited(options.limits))
        if wanted.model is not None:
            options = replace(options, model=wanted.model, provider=None, api_key=None)
        if wanted.exec is not None:
            await asyncio.to_thread(self._check_exec, wanted.exec)
            options = replace(options, exec=wanted.exec, exec_cwd=wanted.exec_cwd)
        if wanted.interrupt_mode is not None:
            options = replace(options, interrupt_mode=wanted.interrupt_mode)
        # Files are read in a thread: a long session or a slow disk holds up no other session.
        session, resources = await asyncio.to_thread(self._prepare, wanted)
        report(resources.diagnostics, verbose=self.options.verbose)
        agent, extensions = await make_agent(session, options, resources)
        if self._is_first:
            self._is_first = False
            self.unknown = unknown_options(self.options, [flag.name for flag in extensions.flags()])
            if self.unknown and self._mode == "acp":  # too late to refuse the editor
                warn(self.unknown)
        agent.check_place = self._allowed
        if wanted.sandbox is not None:
            try:
                agent.set_permissions(sandbox=wanted.sandbox)
            except AgentError:
                await agent.close()
                raise
        if wanted.name is not None and wanted.name.strip():
            agent.set_name(wanted.name)
        return agent

    def _prepare(self, wanted: WantedSession) -> tuple[Session, Resources]:
        """Open or begin the session and load the resources of its directory. Raises `AgentError`, `SessionError`."""
        cwd = None if wanted.cwd is None else os.path.abspath(wanted.cwd)
        if cwd is not None or wanted.session is None:
            self._check(cwd or self._cwd)
        resources = self._resources(cwd or self._cwd)
        shelf = self._shelf_for(resources)
        saving: Saving = {"fsync": resources.settings.fsync, "on_write_error": warn}
        if self.options.no_session:
            return sessions.in_memory(cwd or self._cwd), resources
        if wanted.session is None:
            return shelf.begin(cwd or self._cwd, wanted.id, **saving), resources
        if wanted.copy:
            place = cwd or shelf.load(wanted.session, read_only=True).cwd
            self._check(place)
            return shelf.copy(wanted.session, place, **saving), resources.at(place)
        session = shelf.load(wanted.session, cwd, **saving)
        try:
            self._check(session.cwd)
        except AgentError:
            session.close()
            raise
        return session, resources.at(session.cwd)

    def _resources(self, cwd: str) -> Resources:
        options = self._resource_options or resource_options(self.options)
        resources = load_resources(cwd, options)
        self._resource_options = resources.options
        return resources

    def _shelf(self, cwd: str) -> Shelf:
        return StoreShelf(self.store) if self.store is not None else self._shelf_for(self._resources(cwd))

    def _shelf_for(self, resources: Resources) -> Shelf:
        if self.store is not None:
            return StoreShelf(self.store)
        return FileShelf(self._directory(resources), alone=self._user is not None)

    def _directory(self, resources: Resources) -> str | None:
        return sessions.wanted_directory(self.options.session_dir, resources.settings.session_dir)

    def _check_exec(self, command: str) -> None:
        """Raise `AgentError` if a client may not name this command: it runs a program on this machine."""
        from spindle.agent.features.place import known_commands

        own = self.options.exec
        if own is None:
            own = self._resources(self._cwd).settings.exec or ""
        if self._user is not None and command != own:
            raise AgentError(
                "Only the operator of the server chooses where tools work: with --exec, or in the settings"
            )
        if self._mode == "remote" and command not in (own, *known_commands()):
            raise AgentError(
                f"`{command}` was never used by the user of the server: start the server with --exec, or use the "
                "command once in a session of your own"
            )

    def _check(self, cwd: str) -> None:
        """Raise `AgentError` if no session may work there."""
        if not os.path.isdir(cwd):
            raise AgentError(f"There is no directory {cwd}")
        self._allowed(cwd)


def _check_workspace(cwd: str, others: Sequence[str]) -> None:
    """Raise `AgentError` for a directory with files of the server in it: a sandbox lets all files there be written."""
    place, ours = os.path.realpath(cwd), os.path.realpath(agent_dir())
    if os.path.commonpath([place, ours]) in (place, ours):
        raise AgentError(f"Sessions with a sandbox may not work in {cwd}: the agent directory lies there")
    if any(os.path.commonpath([place, other]) == other for other in others):
        raise AgentError(f"Sessions with a sandbox may not work in {cwd}: it is the root of another user")
