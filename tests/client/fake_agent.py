"""A stand-in for an agent: answers every command, and plays a scene for each of a few prompts.

Run as a program: `fake_agent.py [old]`. `old` is an agent from before `agent_settled`.
"""

import json
import os
import sys
import time
from typing import Any

OLD = "old" in sys.argv
ANSWERS: dict[str, Any] = {
    "get_messages": {"messages": [{"role": "user"}]},
    "get_available_models": {"models": [{"id": "m1"}]},
    "get_commands": {"commands": [{"name": "fix"}]},
    "get_available_commands": {"commands": [{"name": "fix"}]},
    "abort_commands": {"commands": ["fix"]},
    "answer_question": {"disposition": "started"},
    "resume_run": {"disposition": "started"},
    "complete_command": {"completions": ["all"]},
    "get_fork_messages": {"messages": [{"entryId": "e1", "text": "hi"}]},
    "get_branch_messages": {"messages": [{"entryId": "e1", "text": "hi"}]},
    "get_available_thinking_levels": {"levels": ["off", "high"]},
    "get_last_assistant_text": {"text": "Hello"},
    "cycle_thinking_level": {"level": "high"},
    "cycle_model": None,
    "list_sessions": {"sessions": [{"id": "s1"}]},
    "list_live_sessions": {"sessions": [{"id": "s1"}]},
    "search_sessions": {"sessions": [{"id": "s1", "snippet": "a w"}]},
    "find_text": {"found": [{"entryId": "e1", "count": 2}]},
    "make_session_name": {"name": "wombats"},
    "delete_session": {"cancelled": False},
    "export_page": {"html": "<html>"},
    "upload_file": {"path": "/tmp/n"},
    "complete_path": {"paths": ["a.py"]},
    "find_files": {"paths": ["a.py"]},
    "get_links": {"links": []},
    "export_html": {"path": "/tmp/x.html"},
    "set_todos": {"todoPhases": [{"name": "p"}]},
    **{
        name: {"servers": [{"name": "s"}]}
        for name in (
            "set_mcp_servers",
            *(f"{verb}_mcp_server" for verb in ("add", "remove", "switch", "restart", "log_in")),
        )
    },
    "unlock": {"permit": "p"},
    "get_model_ways": {"ways": [{"kind": "key"}]},
    "get_keys": {"keys": [{"provider": "p"}]},
    "take_keys": {"providers": ["p"]},
    "pull_model": {"model": "m"},
    "get_settings": {"settings": [{"key": "k"}]},
}
received: list[dict[str, Any]] = []
tools: list[dict[str, Any]] = []
state = {"isStreaming": False, "isCompacting": False, "sessionId": "s1"}


def write(frame: Any) -> None:
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    frame: dict[str, Any] = json.loads(line)
    received.append(frame)
    return frame


def respond(frame: dict[str, Any], data: Any = None, error: str | None = None) -> None:
    answer = {"id": frame["id"], "type": "response", "command": frame["type"], "success": error is None}
    if error is not None:
        answer["error"] = error
    elif data is not None or frame["type"].startswith("cycle"):
        answer["data"] = data
    write(answer)


def message(text: str, stop_reason: str = "stop") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "stopReason": stop_reason, "errorMessage": "overloaded"}


def deltas(*pieces: str) -> None:
    for piece in pieces:
        write({"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "delta": piece}})


def end_run(text: str, stop_reason: str = "stop") -> None:
    write({"type": "message_end", "message": message(text, stop_reason)})
    write({"type": "agent_end", "messages": [message(text, stop_reason)]})


def settle(aborted: bool = False) -> None:
    if not OLD:
        write({"type": "agent_settled", "aborted": aborted})


def wait_for(kind: str, id: str) -> dict[str, Any]:
    while True:
        frame = read()
        if frame["type"] == kind and frame.get("id") == id:
            return frame
        serve(frame)


def call_tool(name: str, arguments: Any, cancel: bool = False) -> str:
    write({"type": "host_tool_call", "id": "h1", "toolCallId": "c1", "toolName": name, "arguments": arguments})
    if cancel:
        wait_for("host_tool_update", "h1")
        write({"type": "host_tool_cancel", "id": "x", "targetId": "h1"})
        return "cancelled"
    result = wait_for("host_tool_result", "h1")
    return ("error: " if result.get("isError") else "") + result["result"]["content"][0]["text"]


def ask(**request: Any) -> str:
    write({"type": "extension_ui_request", "id": "u1", **request})
    answer = wait_for("extension_ui_response", "u1")
    return json.dumps({key: value for key, value in answer.items() if key not in ("type", "id")})


def prompt(frame: dict[str, Any]) -> None:
    words = frame["message"].split(" ", 1)
    rest = words[1] if len(words) > 1 else ""
    if words[0] == "/handled":
        write({"type": "extension_ui_request", "id": "n1", "method": "notify", "message": "did it"})
        respond(frame, {"disposition": "handled"})
        return
    if words[0] == "refused":
        respond(frame, error="No API key found for mock.")
        return
    respond(frame)
    if words[0] == "late-refusal":
        respond(frame, error="Agent is already processing.")
        return
    write({"type": "agent_start"})
    if words[0] == "crash":
        print("Traceback: out of cheese", file=sys.stderr, flush=True)
        os._exit(3)
    text = "Hello"
    if words[0] == "noise":
        sys.stdout.write("plain words\n\n[1, 2]\nnull\n\xff\n")
        write({"type": "brand_new_event", "value": 1})
        write({"type": "host_tool_call", "toolName": ["odd"]})
        write({"type": "extension_ui_request", "method": 7})
    elif words[0] == "tool":
        name, arguments = rest.split(" ", 1)
        text = call_tool(name, json.loads(arguments))
    elif words[0] == "cancelled-tool":
        text = call_tool(rest, {}, cancel=True)
    elif words[0] == "dialog":
        text = ask(**json.loads(rest))
    elif "permission" in frame["message"]:
        text = ask(method="confirm", title="May I?")
    elif named := [tool["name"] for tool in tools if tool["name"] in frame["message"]]:
        text = call_tool(named[0], {})
    elif words[0] == "retry":
        end_run("", "error")
        write({"type": "auto_retry_start", "attempt": 1})
        serve(read()) if OLD else None
        write({"type": "agent_start"})
        write({"type": "auto_retry_end", "success": True})
    elif words[0] == "compact":
        state["isCompacting"] = True
        end_run("Hello")
        write({"type": "compaction_start"})
        serve(read()) if OLD else None
        state["isCompacting"] = False
        write({"type": "compaction_end"})
        settle()
        return
    elif words[0] == "settles-late":
        end_run("first")
        following = read()
        settle()
        serve(following)
        return
    elif words[0] == "abort":
        wait_for("abort", "req_2")
        end_run("Hel", "aborted")
        settle(True)
        respond(received[-1])
        return
    deltas(text[:2], text[2:])
    end_run(text)
    settle()


def serve(frame: dict[str, Any]) -> None:
    kind = frame["type"]
    if kind == "prompt":
        prompt(frame)
    elif kind == "received":
        respond(frame, {"frames": received[:-1]})
    elif kind == "silence":
        return
    elif kind == "nope":
        respond(frame, error="Unknown command: nope")
    elif kind == "nameless":
        write({"type": "response", "command": "nameless", "success": False, "error": "Unknown command: nameless"})
    elif kind == "get_state":
        respond(frame, state)
    elif kind == "set_host_tools":
        tools[:] = frame["tools"]
        respond(frame, {"toolNames": [tool["name"] for tool in frame["tools"]]})
    elif kind == "set_update_mode" and OLD:
        respond(frame, error="Unknown command: set_update_mode")
    elif kind == "linger":
        respond(frame)
        time.sleep(60)
    elif kind == "shutdown":
        respond(frame)
        sys.exit(0)
    elif "id" in frame and not kind.startswith("host_tool"):
        respond(frame, ANSWERS.get(kind, {"echo": kind}))


if __name__ == "__main__":
    write({"type": "ready", "version": "0"}) if not OLD else None
    while True:
        serve(read())
