"""A real `spindle acp` process, and an editor that drives it. Every frame it writes is checked against the schema."""

import json
import os
from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess

_NODE = os.environ.get("SPINDLE_TEST_NODE_MODULES")
SCHEMA = Path(_NODE, "@agentclientprotocol/sdk/schema/v1/schema.json") if _NODE else None
RESULTS = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/prompt": "PromptResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
PARAMS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/kill": "KillTerminalRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "$/cancel_request": "CancelRequestNotification",
}
Frame = dict[str, Any]


class EditorProcess(AgentProcess):
    mode = "acp"

    def __init__(self, *args: Any, capabilities: Frame | None = None, initialize: bool = True, **options: Any) -> None:
        super().__init__(*args, **{"session": True, **options})
        self._asked: dict[Any, str] = {}
        if initialize:
            self.ok("initialize", protocolVersion=1, clientCapabilities=capabilities or {})

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; returns its id."""
        self._count += 1
        self._asked[self._count] = method
        self.frame(id=self._count, method=method, params=params)
        return self._count

    def frame(self, **fields: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n")

    def at_once(self, *frames: Frame) -> None:
        """Send frames in one piece."""
        self._asked |= {frame["id"]: frame["method"] for frame in frames if "id" in frame and "method" in frame}
        self.write(b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames))

    def answer(self, id: Any) -> Frame:
        return self.wait(lambda frame: frame.get("id") == id and "method" not in frame)

    def ok(self, method: str, **params: Any) -> Any:
        response = self.answer(self.ask(method, **params))
        assert "result" in response, response
        return response["result"]

    def fails(self, method: str, **params: Any) -> tuple[int, str]:
        error = self.answer(self.ask(method, **params))["error"]
        return error["code"], error["message"]

    def new(self, cwd: Path | None = None) -> str:
        return str(self.ok("session/new", cwd=str(cwd or self.cwd), mcpServers=[])["sessionId"])

    def say(self, session: str, text: str, **params: Any) -> int:
        """Send a prompt; returns its id."""
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}], **params)

    def stop_reason(self, id: int) -> str:
        return str(self.answer(id)["result"]["stopReason"])

    def request(self, method: str) -> Frame:
        """Return the next request of the agent."""
        return self.wait(lambda frame: frame.get("method") == method and "id" in frame)

    def reply(self, request: Frame, **result: Any) -> None:
        self.frame(id=request["id"], result=result)

    def choose(self, kind: str) -> Frame:
        """Answer the next permission request with the first option of this kind; returns the request."""
        request = self.request("session/request_permission")
        option = next(o for o in request["params"]["options"] if o["kind"] == kind)
        self.reply(request, outcome={"outcome": "selected", "optionId": option["optionId"]})
        return request

    def updates(self, session: str, kind: str = "") -> list[Frame]:
        """Return what the session has told so far."""
        told = [frame["params"] for frame in list(self.frames) if frame.get("method") == "session/update"]
        return [
            one["update"]
            for one in told
            if one["sessionId"] == session and one["update"]["sessionUpdate"].startswith(kind)
        ]

    def update(self, session: str, kind: str) -> Frame:
        """Return the next update of this kind."""
        found = self.wait(
            lambda f: (
                f.get("method") == "session/update"
                and f["params"]["sessionId"] == session
                and f["params"]["update"]["sessionUpdate"] == kind
            )
        )
        return dict(found["params"]["update"])

    def text(self, session: str, kind: str = "agent_message") -> str:
        return "".join(u["content"].get("text", "") for u in self.updates(session, f"{kind}_chunk"))

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None:
            self._check_frames()

    def _check_frames(self) -> None:
        for frame in self.frames:
            assert frame["jsonrpc"] == "2.0"
        if SCHEMA is None or not SCHEMA.exists():
            return
        from jsonschema import Draft202012Validator

        definitions = json.loads(SCHEMA.read_text())["$defs"]
        checks: dict[str, Draft202012Validator] = {}
        for frame in self.frames:
            name = PARAMS.get(frame.get("method", ""), "")
            value = frame.get("params")
            if "result" in frame:
                name, value = RESULTS.get(self._asked[frame["id"]], ""), frame["result"]
            elif "error" in frame:
                name, value = "Error", frame["error"]
            if name:
                if name not in checks:
                    checks[name] = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
                problem = next(checks[name].iter_errors(value), None)
                assert problem is None, f"{name}: {problem.message}\n{frame}"
