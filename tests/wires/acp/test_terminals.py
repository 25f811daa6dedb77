"""Commands in terminals of the editor: run by the editor, on a real pseudo-terminal, or only shown by it."""

import os
import pty
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import call, reply
from tests.wires.acp.editor_process import EditorProcess

RUNS = {"terminal": True}
SHOWS = {"terminal": True, "_meta": {"terminal_output": True}}


class Terminals:
    """Runs commands as an editor does, until the prompt is answered."""

    def __init__(self, editor: EditorProcess, refuse: str = "") -> None:
        self.editor, self.refuse = editor, refuse
        self.created: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self._open: dict[str, tuple[subprocess.Popen[bytes], int, bytearray, threading.Thread]] = {}

    def serve(self, prompt: int, cancel_at_create: str = "") -> str:
        editor = self.editor
        while True:
            frame = editor.wait(lambda f: f.get("id") == prompt or str(f.get("method")).startswith("terminal/"))
            if "method" not in frame:
                assert not [p for p, *_ in self._open.values() if p.poll() is None], "a command still runs"
                return str(frame["result"]["stopReason"])
            method = frame["method"].removeprefix("terminal/")
            self.asked.append(method)
            if method == self.refuse:
                editor.frame(id=frame["id"], error={"code": -32603, "message": "no", "data": {"details": "not here"}})
                continue
            getattr(self, method)(frame, frame["params"])
            if method == "create" and cancel_at_create:
                editor.frame(method="session/cancel", params={"sessionId": cancel_at_create})

    def create(self, frame: dict[str, Any], params: dict[str, Any]) -> None:
        self.created.append(params)
        master, slave = pty.openpty()
        env = os.environ | {"MISTRAL_API_KEY": "of-the-editor"} | {v["name"]: v["value"] for v in params["env"]}
        process = subprocess.Popen(
            [params["command"], *params["args"]],
            cwd=params["cwd"],
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        output = bytearray()
        reader = threading.Thread(target=self._read, args=(master, output), daemon=True)
        reader.start()
        id = f"t{len(self.created)}"
        self._open[id] = process, master, output, reader
        self.editor.reply(frame, terminalId=id)

    def _read(self, master: int, output: bytearray) -> None:
        try:
            while data := os.read(master, 65536):
                output += data
        except OSError:
            pass  # the last process has closed it
        os.close(master)

    def wait_for_exit(self, frame: dict[str, Any], params: dict[str, Any]) -> None:
        process, _, _, reader = self._open[params["terminalId"]]

        def answer() -> None:
            code = process.wait()
            reader.join()
            self.editor.reply(frame, **({"exitCode": code} if code >= 0 else {"signal": "SIGKILL"}))

        threading.Thread(target=answer, daemon=True).start()

    def output(self, frame: dict[str, Any], params: dict[str, Any]) -> None:
        self.editor.reply(frame, output=self._open[params["terminalId"]][2].decode(), truncated=False)

    def kill(self, frame: dict[str, Any], params: dict[str, Any]) -> None:
        self._end(params["terminalId"])
        self.editor.reply(frame)

    def release(self, frame: dict[str, Any], params: dict[str, Any]) -> None:
        self._end(params["terminalId"])
        self.editor.reply(frame)

    def _end(self, id: str) -> None:
        process, _, _, reader = self._open[id]
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.wait()
        reader.join()


def results(editor: EditorProcess) -> list[str]:
    return [m["content"] for m in editor.mock.requests[-1].body["messages"] if m["role"] == "tool"]


def bash(id: str, command: str, **arguments: Any) -> Any:
    return reply(call("bash", {"command": command, **arguments}, id=id))


def test_bash_runs_in_a_terminal_of_the_editor() -> None:
    steps = [
        bash("c1", "test -t 1 && printf '\\033[31mred\\033[0m\\n'; pwd; echo $PI_CODING_AGENT"),
        bash("c2", "echo no; exit 3"),
        bash("c3", "echo begun; sleep 60", timeout=0.5),
        bash("c4", "env; cat /proc/$$/environ"),
        reply("ok"),
    ]
    with EditorProcess(steps, capabilities=RUNS, env={"GROQ_API_KEY": "of-the-agent"}) as editor:
        terminals = Terminals(editor)
        session = editor.new()
        assert terminals.serve(editor.say(session, "go")) == "end_turn"
        assert (terminals.asked.count("create"), terminals.asked.count("release")) == (4, 4)
        done, failed, late, secrets = results(editor)
        assert done == f"red\n{Path(editor.cwd).resolve()}\ntrue\n"
        assert failed == "no\n\n\nCommand exited with code 3"
        assert late == "begun\n\n\nCommand timed out after 0.5 seconds"
        assert "PI_SESSION_ID" in secrets and "of-the-" not in secrets
        shown = editor.updates(session, "tool_call_update")
        content = [u["content"] for u in shown if u["toolCallId"] == "c2" and u.get("content")]
        assert content == [[{"type": "terminal", "terminalId": "t2"}]] * 2
        assert [u["status"] for u in shown if u["toolCallId"] == "c2"][-1] == "failed"
        assert "no" in next(u["rawOutput"]["output"] for u in shown if u["toolCallId"] == "c2" and "rawOutput" in u)


def test_a_cancelled_prompt_ends_the_command_in_the_terminal() -> None:
    with EditorProcess([bash("c1", "sleep 60"), reply("no")], capabilities=RUNS) as editor:
        terminals = Terminals(editor)
        session = editor.new()
        assert terminals.serve(editor.say(session, "go"), cancel_at_create=session) == "cancelled"
        assert terminals.asked[0] == "create" and terminals.asked[-1] == "release"


@pytest.mark.parametrize("refuse", ["create", "wait_for_exit", "output"])
def test_a_command_that_the_editor_refuses_does_not_run_elsewhere(refuse) -> None:
    with EditorProcess([bash("c1", "touch ran"), reply("ok")], capabilities=RUNS) as editor:
        terminals = Terminals(editor, refuse=refuse)
        assert terminals.serve(editor.say(editor.new(), "go")) == "end_turn"
        assert results(editor) == [f"The editor refused terminal/{refuse}: no: not here"]
        assert terminals.created or not (editor.cwd / "ran").exists()


def test_permissions_and_the_sandbox_hold_before_a_terminal_is_opened() -> None:
    steps = [bash("c1", "rm x"), reply("ok"), bash("c2", "touch ../outside; echo here"), reply("ok")]
    with EditorProcess(steps, capabilities=RUNS, args=["--deny", "Bash(rm *)"]) as editor:
        terminals = Terminals(editor)
        session = editor.new()
        assert terminals.serve(editor.say(session, "go")) == "end_turn"
        editor.ok("session/set_config_option", sessionId=session, configId="sandbox", value="workspace-write")
        assert terminals.serve(editor.say(session, "go on")) == "end_turn"
        assert terminals.asked == []
        assert "here" in results(editor)[-1] and not (editor.cwd.parent / "outside").exists()


@pytest.mark.parametrize("key", ["terminal_output", "terminal_output_delta"])
def test_an_editor_that_shows_output_as_a_terminal_does_not_run_the_command(key) -> None:
    steps = [
        bash("c1", "echo one; sleep 0.3; printf 'two\\n'; exit 2"),
        bash("c2", "for i in $(seq 12000); do echo line $i; done"),
        bash("c3", "rm x"),
        reply("ok"),
    ]
    offered = {"terminal": True, "_meta": {key: True}}
    with EditorProcess(steps, capabilities=offered, args=["--deny", "Bash(rm *)"]) as editor:
        session = editor.new()
        assert editor.stop_reason(editor.say(session, "go")) == "end_turn"
        begun = {u["toolCallId"]: u for u in editor.updates(session, "tool_call") if u["sessionUpdate"] == "tool_call"}
        assert begun["c1"]["content"] == [{"type": "terminal", "terminalId": "c1"}]
        assert begun["c1"]["_meta"] == {"terminal_info": {"terminal_id": "c1", "cwd": str(editor.cwd)}}
        told = editor.updates(session, "tool_call_update")
        pieces = [u["_meta"][key] for u in told if key in u.get("_meta", {})]
        assert "".join(p["data"] for p in pieces if p["terminal_id"] == "c1") == "one\ntwo\n"
        long = "".join(p["data"] for p in pieces if p["terminal_id"] == "c2").splitlines()
        kept = [int(line.removeprefix("line ")) for line in long if line.startswith("line ")]
        assert kept[-1] == 12000 and kept == sorted(set(kept))
        ends = {u["toolCallId"]: u for u in told if u.get("status") in ("completed", "failed")}
        assert ends["c1"]["_meta"]["terminal_exit"] == {"terminal_id": "c1", "exit_code": 2, "signal": None}
        assert ends["c2"]["_meta"]["terminal_exit"]["exit_code"] == 0
        assert ends["c2"]["content"] == [{"type": "terminal", "terminalId": "c2"}]
        assert ends["c3"]["content"][0]["type"] == "content" and "_meta" not in ends["c3"]  # it did not run
