"""One driver per wire: start, prompt, answer what is asked, collect what is told, close."""

import json
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from spindle.server.users import add_user
from tests.matrix.task import ASK, NO_STASH, PRICE, PROMPT, TOOLS, Told, agrees, diff_of, script
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel
from tests.support.nursery import run
from tests.wires.acp.editor_process import EditorProcess
from tests.wires.server import test_acp, test_http
from tests.wires.server.server import ChatClient, ServerProcess

__all__ = ["AgentCli", "Batch", "Editor", "EditorSocket", "Http", "InProcess", "Stdio", "WebSocket", "Wire"]

ROOT = Path(__file__).parents[2]


class Wire:
    name: ClassVar[str]
    asks: ClassVar[bool] = True
    """Whether a user can be asked."""
    keeps_stash: ClassVar[bool] = False
    """Whether the stash of the user is out of reach, whatever the rules say."""

    def __init__(self, base: Path, features: frozenset[str]) -> None:
        self.base, self.features = base, features
        self.agent_dir, self.work, self.there = base / "agent", base / "work", base / "there"
        if "home" in features and "elsewhere" in features:
            self.there = base
        elif "home" in features:
            self.work = base
        self.steps = script("subagent" in features)
        self.questions: list[str] = []
        self.calls = 0
        """Calls of the model."""

    @property
    def place(self) -> Path:
        """Return the repository that the tools work in."""
        return self.there if "elsewhere" in self.features else self.work

    def arguments(self) -> list[str]:
        tools = f"{TOOLS},task" if "subagent" in self.features else TOOLS
        given = ["--tools", tools, "--ask", ASK]
        given += ["--deny", NO_STASH] if "rules" in self.features else []
        given += ["--sandbox", "workspace-write"] if "sandbox" in self.features else []
        given += ["--exec", self.far()] if "elsewhere" in self.features else []
        given += ["--cwd", str(self.work)] if self.work == self.base and self.name != "batch" else []
        return given

    def far(self) -> str:
        return f"env -C {shlex.quote(str(self.there))}"

    def answer(self, question: str) -> bool:
        self.questions.append(question)
        return agrees(question)

    def option(self, request: dict[str, Any]) -> str:
        """Choose the answer to a dialog."""
        wanted = ("Allow", "Run") if self.answer(request["title"]) else ("Deny", "No")
        return next(str(option) for option in request["options"] if str(option).startswith(wanted))

    def drive(self) -> Told:
        """Do the task; everything that was started has ended afterwards."""
        raise NotImplementedError


class Stdio(Wire):
    name = "stdio"

    def drive(self) -> Told:
        with _Priced(self.steps, base=self.base, session=True, args=self.arguments()) as agent:
            assert agent.prompt(PROMPT)["success"]
            while (frame := agent.wait(_asks_or_ends))["type"] != "agent_settled":
                answer = {"type": "extension_ui_response", "id": frame["id"], "value": self.option(frame)}
                agent.write(json.dumps(answer).encode() + b"\n")
            told = Told(agent.data("get_run_result")["result"], diff_of(agent.data("get_changes")), self.questions)
            assert agent.close_stdin() == 0
            self.calls = len(agent.mock.requests)
        return told


class Editor(Wire):
    name = "acp"

    def drive(self) -> Told:
        with _PricedEditor(self.steps, base=self.base, args=self.arguments()) as editor:
            session = editor.new(self.work)
            prompt = editor.say(session, PROMPT)
            while "method" in (frame := editor.wait(lambda f: _asks_editor(f) or f.get("id") == prompt)):
                about = frame["params"]["toolCall"]
                kind = "allow_once" if self.answer(str(about)) else "reject_once"
                option = next(o for o in frame["params"]["options"] if o["kind"] == kind)
                editor.reply(frame, outcome={"outcome": "selected", "optionId": option["optionId"]})
            assert frame["result"]["stopReason"] == "end_turn", frame
            result = editor.ok("_spindle/get_run_result", sessionId=session)["result"]
            told = Told(result, diff_of(editor.ok("_spindle/get_changes", sessionId=session)), self.questions)
            assert editor.close_stdin() == 0
            self.calls = len(editor.mock.requests)
        return told


class _Server(Wire):
    """A wire of a server; a user of it has a token."""

    token: str | None = None

    def drive(self) -> Told:
        args = self.arguments()
        if "user" in self.features:
            self.token = add_user(self.agent_dir / "tokens.json", "anna", {})
            args += ["--tokens"]
        with ServerProcess(self.steps, base=self.base, args=args, model=PRICE) as server:
            self.token = self.token or server.made_token
            with ExitStack() as stack:
                told = self.talk(server, stack)
            assert server.stop() == 0
            self.calls = len(server.mock.requests)
        return told

    def header(self) -> dict[str, Any]:
        return {"additional_headers": {"Authorization": f"Bearer {self.token}"}} if self.token else {}

    def talk(self, server: ServerProcess, stack: ExitStack) -> Told:
        raise NotImplementedError

    def ask_rest(self, client: Any) -> Told:
        """Collect what was told, over `/rpc`."""
        result = client.call("get_run_result")["data"]["result"]
        return Told(result, diff_of(client.call("get_changes")["data"]), self.questions)


class WebSocket(_Server):
    name = "websocket"

    def talk(self, server: ServerProcess, stack: ExitStack) -> Told:
        client = stack.enter_context(server.rpc(**self.header()))
        assert client.call("prompt", message=PROMPT)["success"]
        while (frame := client.wait(_asks_or_ends))["type"] != "agent_settled":
            answer = {"type": "extension_ui_response", "id": frame["id"], "value": self.option(frame)}
            client.write(json.dumps(answer))
        return self.ask_rest(client)


class Http(_Server):
    name = "http"

    def talk(self, server: ServerProcess, stack: ExitStack) -> Told:
        http = test_http.Http(server, self.token)
        id = http.open()
        events = http.events(id)
        stack.callback(events.close)
        assert http.post(f"/v1/sessions/{id}/prompt", {"message": PROMPT})[0] in (200, 204)
        while (frame := events.next()[1])["type"] != "agent_settled":
            if _asks_or_ends(frame):
                answered = http.post(f"/v1/sessions/{id}/answers/{frame['id']}", {"value": self.option(frame)})
                assert answered[0] in (200, 204), answered
        result = http.post(f"/v1/sessions/{id}/get_run_result", {})[2]["result"]
        return Told(result, diff_of(http.post(f"/v1/sessions/{id}/get_changes", {})[2]), self.questions)


class AgentCli(_Server):
    """Its questions are about tools; its result and changes are read by a second client of the same session."""

    name = "agent-cli"

    def talk(self, server: ServerProcess, stack: ExitStack) -> Told:
        other = stack.enter_context(server.rpc(**self.header()))
        query = f"?session={other.ready['sessionId']}"
        chat: ChatClient = stack.enter_context(server.chat(query, **self.header()))
        chat.send("p", {"Text": PROMPT}, stream=True, config={"ask_before_tool_execution": False})
        while "Complete" not in (response := chat.until_terminal()[-1]["response"]):
            if "Text" in response:  # a no ends the run
                continue
            asked = response["ToolConfirmationRequest"]
            answer = {"name": asked["name"], "arguments": {}, "approved": self.answer(str(asked["arguments"]))}
            chat.send("a", {"ToolConfirmationResponse": answer})
        return self.ask_rest(other)


class EditorSocket(_Server):
    """An editor that reaches a server; its result and changes are read by a second client of the same session."""

    name = "acp websocket"

    def talk(self, server: ServerProcess, stack: ExitStack) -> Told:
        editor = stack.enter_context(test_acp.Editor(server, **self.header()))
        editor.cwd = str(self.work)
        session = editor.begin()
        prompt = editor.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": PROMPT}])
        answer = editor.answer(prompt, lambda asked: self.answer(str(asked["toolCall"])))
        assert answer["result"]["stopReason"] == "end_turn", answer
        return self.ask_rest(stack.enter_context(server.rpc(f"?session={session}", **self.header())))


class InProcess(Wire):
    name = "in process"

    def drive(self) -> Told:
        options: dict[str, Any] = {
            "model": "mock/m1",
            "permission_mode": "bypass",
            "ask": [ASK],
            "tools": TOOLS.split(","),
        }
        options["tools"] += ["task"] if "subagent" in self.features else []
        options |= {"deny": [NO_STASH]} if "rules" in self.features else {}
        options |= {"sandbox": "workspace-write"} if "sandbox" in self.features else {}
        options |= {"exec": self.far()} if "elsewhere" in self.features else {}
        with MockModel(self.steps) as mock:
            write_models(self.agent_dir, mock.openai_url, **PRICE)
            env = agent_environment(self.agent_dir, PYTHONPATH=str(ROOT))
            command = [sys.executable, "-m", "tests.matrix.program", json.dumps(options)]
            done = subprocess.run(command, cwd=self.work, env=env, capture_output=True, text=True, timeout=60)
            self.calls = len(mock.requests)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return Told(told["result"], diff_of(told["changes"]), told["questions"])


class Batch(Wire):
    """A worktree of the user's repository, which stays as it is."""

    name = "batch"
    asks = False

    @property
    def keeps_stash(self) -> bool:  # type: ignore[override]
        return "elsewhere" not in self.features  # the place is the task's own

    def drive(self) -> Told:
        task = {"id": "one", "prompt": PROMPT}
        (self.base / "tasks.jsonl").write_text(json.dumps(task) + "\n")
        runs = self.base / "runs"
        command = [sys.executable, "-m", "spindle", "batch", str(self.base / "tasks.jsonl"), "-o", str(runs)]
        command += ["--model", "mock/m1", "--retries", "0", *self.arguments()]
        with MockModel(self.steps) as mock:
            write_models(self.agent_dir, mock.openai_url, **PRICE)
            env = agent_environment(self.agent_dir)
            run(command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            self.calls = len(mock.requests)
        whole = json.loads((runs / "one/result.json").read_text())
        return Told(whole["run"], (runs / "one/patch.diff").read_text())


class _Priced(AgentProcess):
    def configure(self) -> None:
        write_models(self.agent_dir, self.mock.openai_url, **PRICE)


class _PricedEditor(EditorProcess):
    def configure(self) -> None:
        write_models(self.agent_dir, self.mock.openai_url, **PRICE)


def _asks_or_ends(frame: dict[str, Any]) -> bool:
    asks = frame["type"] == "extension_ui_request" and frame["method"] == "select"
    return asks or frame["type"] == "agent_settled"


def _asks_editor(frame: dict[str, Any]) -> bool:
    return frame.get("method") == "session/request_permission"
