"""The server: one port with the remote protocol, RPC, ACP for editors, plain HTTP, the page and a health check."""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from aiohttp import web
from msgspec.structs import replace

from spindle.base import limits, trace
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks
from spindle.protocol.dialect import DIALECTS, SPINDLE, dialect_named
from spindle.protocol.live_session import LiveSession
from spindle.protocol.pool import AgentSource, PoolBounds, SessionPool, UnknownSession
from spindle.protocol.registry import WantedSession
from spindle.server.account import Account, NotAllowed
from spindle.server.day_book import DayBook, StoreBook
from spindle.server.links import Links
from spindle.server.nodes import PASSED, Nodes
from spindle.server.permit import Permit
from spindle.server.records import Records
from spindle.server.sign_ins import SignIns
from spindle.server.users import User, UsersFile
from spindle.sessions.entries import SessionError
from spindle.sessions.lock import SessionLocked
from spindle.sessions.store import SessionHeld
from spindle.shapes.sandbox import Network
from spindle.wires.agent_cli.seat import ChatSeat, OneAtATime
from spindle.wires.http.api import API_PATHS, event_number
from spindle.wires.network.access import Access, Refusal, Slowdown, can_tell, is_loopback
from spindle.wires.network.answers import AHEAD, SAFETY, SHARED, bytes_answer, failed, json_answer, page_file, plain
from spindle.wires.network.disk_figures import DiskFigures
from spindle.wires.network.listener import HttpConnection, HttpServer
from spindle.wires.network.metrics import CONTENT_TYPE, Metrics
from spindle.wires.network.options import RemoteOptions
from spindle.wires.network.peer import FAILED, GOING_AWAY, IN_USE, NO_SUCH_SESSION, NOT_ALLOWED, TRY_AGAIN_LATER, Peer
from spindle.wires.network.requests import LINK, SIGNED_IN, WHO, by, deciding, is_own, split
from spindle.wires.network.sign_in import SIGN_IN_PATHS, SignInDesk
from spindle.wires.tenant import Tenant
from spindle.wires.viewer import GONE, ViewerSeat
from spindle.wires.websocket import RpcSeat

if TYPE_CHECKING:
    import ssl

__all__ = ["RemoteOptions", "RemoteServer"]

SUBPROTOCOL = "spindle"
CHAT_PATHS = ("/", "/ws")
RPC_PATH, ACP_PATH = "/rpc", "/acp"
SOCKET_PATHS = (*CHAT_PATHS, RPC_PATH, ACP_PATH)
METRICS_PATH = "/metrics"
TAKE_OVER_LOOK = 2.0
"""Seconds between two looks for runs that the end of a node cut off, if there is no news."""
PASSES = 3
"""How often a request looks for the node that has its session, if that changes meanwhile."""
LOOK_AT_USERS = 1.0
"""Seconds between two looks at the file of the users."""

WRONG = Refusal(401, "That token is wrong, or does not count any more", "token", guessed=True)
LOOK_AT_SIGN_INS = 5.0
"""Seconds between two looks whether what lets open connections in still holds, if there is no news."""

log = logging.getLogger("spindle.remote")


class RemoteServer:
    def __init__(self, options: RemoteOptions, source: AgentSource) -> None:
        """Prepare a server. Raises `ValueError` if it would be open to every machine, or if it has no users."""
        if options.token is not None and options.users is not None:
            raise ValueError("Users have tokens of their own: use --tokens, or one token for all, not both")
        has_token = options.token is not None or options.users is not None
        if not is_loopback(options.host) and not has_token and not options.insecure:
            raise ValueError(
                f"Refusing to listen on {options.host} without a token: whoever reaches it could run commands here. "
                "Set SPINDLE_REMOTE_TOKEN or --remote-token-file (or --remote-insecure if you know better)."
            )
        self._options = options
        self._source = source
        self._users = None if options.users is None else UsersFile(options.users)
        self._tenants: dict[str | None, Tenant] = {}
        self._pools: list[SessionPool] = []
        self._chats: WeakKeyDictionary[LiveSession, OneAtATime] = WeakKeyDictionary()
        self._listener: HttpServer | None = None
        secure = options.tls is not None
        self._access = Access(options.host, options.port, options.token, options.origins, self._users, secure)
        self._slowdown = Slowdown()
        store, folder = source.store, agent_dir()
        self._sign_ins = SignIns(Records("signed-in", folder, store), lambda user: self._access.hash_of(user))
        self._news = asyncio.Event()
        """Set when a sign-in has ended, or a link was removed."""
        self._desk = SignInDesk(self._sign_ins, self._news.set)
        self._links = Links(Records("links", folder, store))
        self._links.on_removed = self._news.set
        self.permit = Permit(agent_dir() / "browsers.json")
        self._peers: dict[Peer, asyncio.Task[None] | None] = {}
        """Every connection and the task that serves it."""
        self._numbers = itertools.count(1)
        self._metrics = Metrics()
        self._disk = DiskFigures()
        self._nodes = None if source.store is None else Nodes(source.store)
        """The other servers on the same store, if there is one."""
        self.recovers = False
        """Whether runs go on that the end of another node cut off."""
        self._draining = False
        self._tasks = Tasks()

    # -- users -----------------------------------------------------------------------------------

    def _tenant(self, name: str | None) -> Tenant:
        """Return what is kept for a user, who is in the file."""
        if (tenant := self._tenants.get(name)) is None:
            options, source, account = self._options, self._source, Account()
            if name is not None and self._users is not None:
                user = self._users.users[name]
                source, terms = self._source.for_user(name, user, partial(self._users.roots_of_others, name))
                store = source.store
                account = Account(
                    name, user, DayBook(agent_dir() / "usage" / name) if store is None else StoreBook(store)
                )
                account.terms, account.links = terms, self._links
            account.closing, account.permit = self._draining, self.permit
            kept = PoolBounds(
                max_sessions=options.max_sessions, keep_seconds=options.keep_seconds, max_kept=options.max_kept
            )
            pool = SessionPool(
                source,
                kept,
                numbered=True,
                account=account,
                beside=self._pools,
                recovers=self.recovers and source.store is not None,
            )
            tenant = self._tenants[name] = Tenant(account, source, pool, options, self._nodes)
        return tenant

    def _whose(self, request: web.BaseRequest, query: dict[str, str]) -> str | None:
        """Return whose sessions a request is about: the user's own, or those an admin asks for. Raises `NotAllowed`."""
        name = request[WHO]
        assert isinstance(request.protocol, HttpConnection)
        request.protocol.user = name
        wanted = query.get("user", name)
        if wanted != name:
            users = self.users()
            if name is None or not users[name].admin:
                raise NotAllowed("Only an admin may use the sessions of other users")
            if wanted not in users:
                raise NotAllowed(f"There is no user {wanted}")
        return wanted

    async def _watch_users(self, users: UsersFile) -> None:
        """Read the file again when it changes. What a user may no longer do ends at once."""
        while True:
            await asyncio.sleep(LOOK_AT_USERS)
            if not users.refresh():
                continue
            for name, tenant in list(self._tenants.items()):
                user, before = users.users.get(name or ""), tenant.account.user
                if user is not None and before is not None and user.same_sessions(before):
                    tenant.account.user = user
                else:
                    self._tasks.spawn(self._dismiss(name, tenant), "spindle-dismiss")

    async def _watch_grounds(self) -> None:
        """Disconnect clients once what let them in has ended."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AT_SIGN_INS):
                    await self._news.wait()
            self._news.clear()
            for peer in [peer for peer in self._peers if peer.grounds]:
                with suppress(SessionError):  # the store does not answer: it is looked at again
                    if not all([await asyncio.to_thread(ground) for ground in peer.grounds]):
                        peer.leave(NOT_ALLOWED, "signed out, or not shared any more")

    async def _dismiss(self, name: str | None, tenant: Tenant) -> None:
        """End all that a user has here: the token was revoked, or allows something else now."""
        del self._tenants[name]
        tenant.account.closing = True
        for peer in [peer for peer in self._peers if name in peer.users]:
            peer.leave(NOT_ALLOWED, "the token was revoked or changed")
        await tenant.pool.close()
        self._pools.remove(tenant.pool)
        assert self._listener is not None
        for connection in list(self._listener.connections):  # streams of events, and requests that wait
            if isinstance(connection, HttpConnection) and connection.user == name:
                connection.force_close()

    def _book(self, moment: trace.Moment, span: trace.Span) -> None:
        """Write down what the model calls of a user cost."""
        if span.kind == "chat" and moment != "started" and (tenant := self._tenants.get(span.find("user"))) is not None:
            tenant.account.spend(span.attributes.get("cost") or 0)

    # -- life ------------------------------------------------------------------------------------

    async def start(self, reach: Network = "off") -> str:
        """Begin to listen. Return the address of the page, with the token if one was made. Raises `OSError`.

        `reach`: the network that fenced commands have. They are processes of the user, too, so a token keeps them out.
        """
        options = self._options
        made_token = ""
        is_reached = reach == "on" or (reach != "off" and (options.port in reach or not options.port))
        if self._access.only_owner and (is_reached or not await asyncio.to_thread(can_tell)):
            made_token = secrets.token_urlsafe(32)
            self._access = replace(self._access, token=made_token)
        context = self.tls()
        if self._users is not None:
            self._stop_booking = trace.listen(self._book)
            self._tasks.spawn(self._watch_users(self._users), "spindle-users")
        if self._access.needs_token:
            self._tasks.spawn(self._watch_grounds(), "spindle-grounds")
        self._listener = HttpServer(self._answer, options)
        port = await self._listener.listen(context)
        self._access = replace(self._access, port=port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        scheme = "https" if context else "http"
        page = f"{scheme}://{host}:{port}/"
        if self._nodes is not None:
            own = None if options.host in ("0.0.0.0", "::", "") else page.rstrip("/")
            await self._nodes.begin(options.node_address or own, port, scheme)
            self._tasks.spawn(self._nodes.watch(lambda: itertools.chain(*self._pools)), "spindle-leases")
        # After a #: browsers do not send that part, so the token is in no log.
        return f"{page}#token={made_token}" if made_token else page

    def tls(self) -> "ssl.SSLContext | None":
        """Return what makes connections secure; None: they are plain. Raises `OSError`."""
        if self._options.tls is None:
            return None
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._options.tls)
        return context

    def users(self) -> dict[str, User]:
        """Return the users as the file says now; none if there is no file."""
        return {} if self._users is None else self._users.users

    @property
    def has_owner(self) -> bool:
        """Whether a client may change keys and settings, with the code."""
        return self._users is None or any(user.owner for user in self._users.users.values())

    @property
    def is_open(self) -> bool:
        """Whether clients need no token."""
        return self._users is None and self._access.token is None

    def who(self) -> str:
        """Return who may connect, in words."""
        if self._users is not None:
            return f"for {len(self._users.users)} users"
        if self._access.token is not None:
            return "for clients with the token"
        return "for this user only" if self._access.only_owner else "for everyone who reaches it"

    async def recover(self) -> int:
        """Go on with all runs that the end of an earlier server cut off. Returns how many there are."""
        names: list[str | None] = [None] if self._users is None else [*self._users.users]
        return sum([await self._tenant(name).pool.recover() for name in names])

    def take_over(self) -> None:
        """From now on, look for runs that the end of another node cuts off."""
        if self._nodes is not None:
            self._tasks.spawn(self._take_over(self._nodes), "spindle-take-over")

    async def _take_over(self, nodes: Nodes) -> None:
        news = asyncio.Event()
        nodes.on_news(news.set)
        while not self._draining:
            with suppress(TimeoutError):
                async with asyncio.timeout(TAKE_OVER_LOOK):
                    await news.wait()
            news.clear()
            try:
                if count := await self.recover():
                    log.info("Going on with %d runs of another node", count)
            except SessionError as error:
                log.warning("no look for runs of other nodes: %s", error)

    async def drain(self, seconds: float) -> None:
        """Take no new runs, and wait for those that are under way, for so many seconds at most.

        In a store they are handed over: another node, or a later server, goes on with them.
        """
        self._draining = True
        for tenant in self._tenants.values():
            tenant.account.closing = True
        if self._nodes is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for pool in self._pools:
                    for live in pool:
                        await live.agent.wait_idle()

    async def stop(self) -> None:
        """Stop accepting, end every run, close every connection. Every wait has a time limit, whatever clients do."""
        if self._listener is None:
            return
        self._listener.close()
        if self._nodes is None:
            await asyncio.gather(*(pool.interrupt() for pool in self._pools))
        for peer in self._peers:
            peer.leave(GOING_AWAY, "the server is shutting down")
        serving = [task for task in self._peers.values() if task is not None]
        if serving:
            await asyncio.wait(serving, timeout=limits.GOODBYE)
        await asyncio.gather(*(pool.close() for pool in self._pools))
        await self._listener.end()
        await self._tasks.end(limits.TASKS_END)
        self._metrics.stop()
        if self._nodes is not None:
            await self._nodes.end()
        if self._users is not None:
            self._stop_booking()

    # -- requests --------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a plain request, refuse a bad one, or serve a WebSocket to its end."""
        request[SHARED] = shared = self._access.shared(request.headers)
        answer = await self._own_answer(request)
        if not answer.prepared:
            answer.headers.update(shared)
        return answer

    async def _own_answer(self, request: web.BaseRequest) -> web.StreamResponse:
        trace.incoming.set(None)
        trace.follow(request.headers.get("traceparent"))
        path, query = split(request.path_qs)
        upgrade = "websocket" in ",".join(request.headers.getall("Upgrade", [])).lower()
        asks_ahead = request.method == "OPTIONS" and path.startswith(API_PATHS) and bool(request[SHARED])
        needs_token = not asks_ahead and (upgrade or path.startswith((*API_PATHS, METRICS_PATH)))
        refusal = await self._refusal(request, needs_token=needs_token, may_be_signed_in=upgrade)
        if refusal is not None:
            refuse = failed if path.startswith((*API_PATHS, *SIGN_IN_PATHS)) and not upgrade else plain
            return refuse(refusal.status, refusal.reason)
        if asks_ahead:
            return web.Response(status=204, headers={**SAFETY, **AHEAD})
        if not upgrade:
            return await self._plain_answer(request, path, query)
        if path not in SOCKET_PATHS:
            return plain(404, "No such path")
        if len(self._peers) >= self._options.max_connections:
            trace.tell("refusal", status=503, reason="connections", client=request.remote)
            return plain(503, self._too_many())
        if path == RPC_PATH and query.get("dialect", SPINDLE.name) not in DIALECTS:
            return plain(400, f"Unknown dialect {query['dialect']!r}; there are {', '.join(DIALECTS)}")
        if path == RPC_PATH and query.get("deltas", "all") not in ("all", "gathered"):
            return plain(400, f"Unknown form of deltas {query['deltas']!r}; there are all and gathered")
        try:
            tenant = self._tenant(self._whose(request, query))
        except NotAllowed as error:
            return self._forbidden(request, error)
        try:
            tenant, session = await self._wanted(request, query, tenant)
        except SessionError as error:
            return plain(503, str(error))
        if session and (passed := await self._passed_on(request, tenant, session, socket=True)) is not None:
            return passed
        return await self._serve(request, path, query, tenant)

    async def _wanted(
        self, request: web.BaseRequest, query: dict[str, str], tenant: Tenant
    ) -> tuple[Tenant, str | None]:
        """Return whose session a WebSocket is about, and which; None: a new one, or a copy. Raises `SessionError`."""
        if (shared := query.get("shared")) is None:
            return tenant, None if query.get("copy") == "true" else query.get("session")
        link = request[LINK] = await asyncio.to_thread(self._links.find, shared, self.users())
        return (tenant, None) if link is None else (self._tenant(link.owner), link.session)

    async def _passed_on(
        self, request: web.BaseRequest, tenant: Tenant, session: str, *, socket: bool = False
    ) -> web.StreamResponse | None:
        """Let the node answer that has this session; None if it is ours, or free."""
        store = tenant.source.store
        if self._nodes is None or store is None:
            return None
        live = tenant.pool.find(session)
        if live is not None and live.is_here:
            return None
        try:
            return await self._nodes.pass_on(request, store, session, socket=socket)
        except SessionError as error:
            return (plain if socket else failed)(503, str(error))

    def _forbidden(self, request: web.BaseRequest, error: NotAllowed) -> web.Response:
        trace.tell(
            "refusal",
            status=403,
            reason="user",
            why=str(error),
            client=request.remote,
            user=request[WHO],
        )
        return failed(403, str(error))

    def _too_many(self) -> str:
        most = self._options.max_connections
        return f"Too many connections: {most} are allowed; --remote-option max_connections=N changes that"

    async def _refusal(self, request: web.BaseRequest, *, needs_token: bool, may_be_signed_in: bool) -> Refusal | None:
        """Return why a request is refused; if it is not, it has a sender from now on.

        A sign-in counts for WebSockets, and for what other nodes ask on behalf of one: nothing else needs it.
        """
        headers = deciding(request)
        refusal, signed = self._access.check(headers, needs_token=False), None
        if refusal is None and needs_token and (may_be_signed_in or PASSED in request.headers):
            signed = await self._desk.signed_in(request)
        if refusal is None and signed is None:
            refusal = self._access.check(headers, needs_token=needs_token)
        request[SIGNED_IN], request[WHO] = signed, self._access.user(headers) if signed is None else signed.user
        if refusal is None and self._access.only_owner and not await is_own(request):
            refusal = Refusal(
                403,
                "Only the user who started this server may connect; --remote-token-file FILE lets others in",
                "owner",
            )
        if refusal is not None:
            await self._tell(request, refusal)
        return refusal

    async def _tell(self, request: web.BaseRequest, refusal: Refusal) -> None:
        """Report a refusal, and let a client that guesses wait."""
        trace.tell("refusal", status=refusal.status, reason=refusal.kind, why=refusal.reason, client=request.remote)
        if refusal.guessed and request.remote:
            await asyncio.sleep(self._slowdown.delay(request.remote))

    async def _plain_answer(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        if path.startswith(API_PATHS):
            return await self._api_answer(request, path, query)
        if path in SIGN_IN_PATHS:
            return await self._desk_answer(request, path)
        if request.method not in ("GET", "HEAD"):
            return plain(405, "Only GET is allowed here")
        if path == "/healthz":
            node = {} if self._nodes is None else {"node": self._nodes.name}
            users = {} if self._users is None else {"users": True}
            return json_answer({"status": "ok", "auth": self._access.needs_token, **users, **node})
        if path == "/readyz":
            cut = self._nodes is not None and not await asyncio.to_thread(self._nodes.is_alive)
            state = "draining" if self._draining else "without its store" if cut else "ready"
            return json_answer({"status": state}, 200 if state == "ready" else 503)
        if path == METRICS_PATH:
            name = request[WHO]
            if self._users is not None and (name is None or not self._users.users[name].admin):
                return self._forbidden(request, NotAllowed("Only an admin may read the metrics"))
            await self._disk.look([tenant.account.terms for tenant in self._tenants.values()])
            return bytes_answer(200, self._metrics.page(self._gauges()), CONTENT_TYPE)
        if (file := page_file(path, request.headers)) is not None:
            return file
        return plain(426, "This is a WebSocket") if path in SOCKET_PATHS else plain(404, "No such page")

    async def _desk_answer(self, request: web.BaseRequest, path: str) -> web.Response:
        """Sign a browser in or out."""
        if (answer := await self._desk.answer(request, path, self._access)) is None:
            await self._tell(request, WRONG)
            answer = failed(WRONG.status, WRONG.reason)
        return answer

    async def _api_answer(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        try:
            name = self._whose(request, query)
            tenant = self._tenant(name)
        except NotAllowed as error:
            return self._forbidden(request, error)
        ids = {"method": request.method, "path": path, "client": request.remote, "user": name, **by(request, name)}
        with trace.span("request", wire="http", **ids) as span:
            answer = await self._answered(request, path, query, tenant)
            span.set(status=answer.status)
            return answer

    async def _answered(
        self, request: web.BaseRequest, path: str, query: dict[str, str], tenant: Tenant
    ) -> web.StreamResponse:
        """Answer a request of plain HTTP, here or at the node that has its session."""
        session = await tenant.api.session_of(request, path) if self._nodes is not None else None
        for _ in range(PASSES):
            if session is not None and (passed := await self._passed_on(request, tenant, session)) is not None:
                return passed
            try:
                return await tenant.api.answer(request, path, query)
            except SessionHeld as error:  # another node was quicker
                held = error
                if session is None or PASSED in request.headers:
                    break
        return failed(409, str(held))

    def _gauges(self) -> Iterator[tuple[str, tuple[str | None, ...], float]]:
        """Yield the figures that nothing counts."""
        for name, tenant in self._tenants.items():
            yield "sessions", (name,), len(tenant.pool)
            yield "queued_messages", (name,), sum(len(live.agent.queues) for live in tenant.pool)
        yield "connections", ("sse",), sum(tenant.api.viewers for tenant in self._tenants.values())
        yield "draining", (), self._draining
        yield from self._disk.figures

    # -- WebSockets ------------------------------------------------------------------------------

    async def _serve(
        self, request: web.BaseRequest, path: str, query: dict[str, str], tenant: Tenant
    ) -> web.StreamResponse:
        options = self._options
        socket: web.WebSocketResponse[Any] = web.WebSocketResponse(
            timeout=limits.CLOSE_FRAME,
            protocols=(SUBPROTOCOL,),  # never required; a token that came as a subprotocol must not be echoed
            autoping=False,
            compress=False,
            # Twice the bound: the library hangs up without a reason, while `Peer` tells the client why.
            max_msg_size=2 * options.max_message_bytes,
            writer_limit=0,
        )
        await socket.prepare(request)
        number = next(self._numbers)
        wire = {RPC_PATH: "websocket", ACP_PATH: "acp"}.get(path, "chat")
        stall = options.stall_timeout if wire == "chat" else options.viewer_stall_timeout
        peer = Peer(socket, request, options, stall_timeout=stall)
        assert isinstance(request.protocol, HttpConnection)
        name = tenant.account.name
        peer.users = {name, request.protocol.user}
        if (signed := request[SIGNED_IN]) is not None:
            peer.grounds.append(partial(self._sign_ins.holds, signed))
        self._peers[peer] = asyncio.current_task()
        ids = {"number": number, "path": path, "client": request.remote, "user": name, **by(request, name)}
        with trace.span("connection", wire=wire, **ids) as span:
            try:
                if len(self._peers) > options.max_connections:  # several may have come in at the same moment
                    peer.leave(TRY_AGAIN_LATER, self._too_many())
                elif path == ACP_PATH:
                    from spindle.wires.acp.socket import EditorSocket

                    await peer.run(EditorSocket(tenant.source, tenant.pool, tenant.passage(request)))
                else:
                    await self._attach(peer, request, path, query, tenant)
                await peer.close()
            except Exception as error:  # a bug
                log.exception("connection %d failed", number)
                span.fail(type(error).__name__)
                peer.leave(FAILED, "internal error")
                await peer.close()
            finally:
                del self._peers[peer]
                span.set(code=socket.close_code, frames_in=peer.frames_in, frames_out=peer.frames_out)
        return socket

    async def _attach(
        self, peer: Peer, request: web.BaseRequest, path: str, query: dict[str, str], tenant: Tenant
    ) -> None:
        is_rpc, pool, link = path == RPC_PATH, tenant.pool, request.get(LINK)
        if "shared" in query and (link is None or not is_rpc):
            peer.leave(NO_SUCH_SESSION, GONE)
            return
        dialect = dialect_named(query.get("dialect", SPINDLE.name)) if is_rpc else SPINDLE
        gathers = query.get("deltas") == "gathered"
        seat = (
            RpcSeat(peer, pool, dialect, gathers=gathers, passage=tenant.passage(request))
            if is_rpc
            else ChatSeat(peer, self._options, tenant.account)
        )
        copy = query.get("copy") == "true"
        wanted = WantedSession(session=query.get("session"), copy=copy, interrupt_mode=dialect.interrupt_mode)
        if link is not None:
            seat = ViewerSeat(peer, pool, self._tenant(request[WHO]).account, link, gathers=gathers)
            wanted = WantedSession(session=link.session)
            peer.grounds.append(partial(self._links.holds, link))
        try:
            live = await pool.open(wanted, seat)
        except UnknownSession as error:
            peer.leave(NO_SUCH_SESSION, str(error))
            return
        except SessionLocked as error:  # which process it is, is no business of a user
            peer.leave(IN_USE, f"{error.who} holds this conversation")
            return
        except Exception as error:  # whatever keeps the agent from starting, the client is told
            log.warning("no agent for a client: %s", error)
            why = str(error) or type(error).__name__
            peer.leave(FAILED, "the conversation cannot be opened now" if seat.watches else why)
            return
        try:
            if isinstance(seat, RpcSeat):
                seat.begin(live, event_number(query.get("since", "")))
                await peer.run(seat)
            else:
                async with self._chats.setdefault(live, OneAtATime()).take(peer):
                    seat.begin(live)
                    await peer.run(seat)
        finally:
            pool.leave(seat, live)
