"""A server on loopback that plays the part of every login server.

If SPINDLE_TEST_LOGIN_SERVER names this server, requests for `https://host/path` come as `/host/path`. Each address
answers with its next step, and repeats the last one. A step is `(status, body)`; a callable body is called with the
request.

    with LoginServer({"github.com/login/device/code": [(200, {...})]}) as server:
        ...
        assert server.asked("github.com/login/device/code")[0].form["client_id"] == "..."
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    where: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class LoginServer:
    def __init__(self, steps: Mapping[str, Sequence[tuple[int, Any]]], delay: float = 0) -> None:
        self.steps = {where: list(answers) for where, answers in steps.items()}
        self.requests: list[Asked] = []
        self.arrived = threading.Event()
        """Set by the first request."""
        self._delay = delay
        """Seconds before every answer."""
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "LoginServer":
        threading.Thread(target=lambda: self._server.serve_forever(0.02), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, where: str) -> list[Asked]:
        return [request for request in self.requests if request.where == where]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        where = urlsplit(handler.path).path.lstrip("/")
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Asked(handler.command, where, headers, body)
        with self._lock:
            self.requests.append(request)
            self.arrived.set()
            answers = self.steps.get(where) or [(404, {"message": f"nothing at {where}"})]
            status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        time.sleep(self._delay)
        if callable(answer):
            answer = answer(request)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
