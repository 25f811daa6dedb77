"""An MCP server on stdio that behaves as it is told: by options, and by the tools that are called.

Options: `--modern` (the era of 2026; else the handshake), `--tools N` (so many more), `--lie`, `--noise`,
`--ignore-probe`, `--die-at-probe`, `--stubborn` (ends neither with its input nor at SIGTERM), `--delay S`,
`--log FILE` (the methods it was sent), `--plain` (only echo), `--no-resources` (though it says that it has some),
`--slow-list S`.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

OPTIONS = sys.argv[1:]
MODERN = "--modern" in OPTIONS
META = "io.modelcontextprotocol/"
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name"},
            "size": {"type": "string", "enum": ["small", "large"]},
            "age": {"type": "integer", "default": 7},
            "sure": {"type": "boolean"},
        },
        "required": ["name"],
    },
}
changed = False


def option(name: str) -> str | None:
    return OPTIONS[OPTIONS.index(name) + 1] if name in OPTIONS else None


def send(message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive() -> Any:
    line = sys.stdin.readline()
    if not line:
        if "--stubborn" in OPTIONS:
            time.sleep(600)
        sys.exit(0)
    message = json.loads(line)
    if path := option("--log"):
        with open(path, "a") as log:
            log.write(f"{os.getpid()} {message.get('method', 'answer')} {json.dumps(message.get('params'))}\n")
    return message


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def tools() -> list[Any]:
    one = {"type": "object", "properties": {"text": {"type": "string"}}}
    names = (
        ["echo"]
        if "--plain" in OPTIONS
        else [
            "echo",
            "crash",
            "hang",
            "steps",
            "long",
            "image",
            "fail",
            "ask",
            "visit",
            "change",
            "environment",
            "roots",
            "sample",
            "child",
            "structured",
            "quit_silently",
        ]
    )
    listed: list[Any] = [{"name": name, "description": f"Does {name}.", "inputSchema": one} for name in names]
    listed[0]["annotations"] = {"readOnlyHint": True}
    if len(listed) > 1:
        listed[1]["annotations"] = {"destructiveHint": True}
    listed += [
        {"name": f"extra_{n}", "description": f"Extra number {n}.", "inputSchema": one}
        for n in range(int(option("--tools") or 0))
    ]
    if changed:
        listed.append({"name": "added", "description": "Came later.", "inputSchema": one})
    if "--lie" in OPTIONS:
        listed += [
            {"name": "no_schema"},
            {"name": "text_schema", "inputSchema": "object"},
            {
                "name": "wrong_root",
                "inputSchema": {"type": "string", "required": "x", "properties": {"a": 5, "b": {"type": "string"}}},
            },
            {
                "name": "dots.and spaces/and-a-name-that-is-much-longer-than-any-model-server-will-take",
                "inputSchema": one,
            },
            {"name": "huge", "inputSchema": {"type": "object", "properties": {"x": {"description": "y" * 200_000}}}},
            {"name": "half_\ud800", "description": "half \ud83d of a character", "inputSchema": one},
            {"description": "no name"},
            "no tool",
            {"name": "echo", "description": "twice", "inputSchema": one},
        ]
    return listed


def call(id: Any, params: Any) -> Any:
    """Return the result of a call."""
    global changed
    name, given = params["name"], params.get("arguments") or {}
    if name == "echo":
        return text(f"echo: {given.get('text')}")
    if name == "crash":
        print("I fall over now", file=sys.stderr, flush=True)
        os._exit(7)
    if name == "rubbish":
        begin = f'{{"jsonrpc": "2.0", "id": {id}, "result": '
        print({"nan": begin + '{"x": NaN}}', "space": f"  {begin}{{}}}}", "bom": f"\ufeff{begin}{{}}}}"}[given["text"]])
        sys.stdout.flush()
        return None
    if name == "deaf":
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
        while True:
            sys.stdout.write(ping * 100)
    if name == "quit_silently":
        os._exit(0)
    if name == "hang_up":  # and live on
        os.close({"stdin": 0, "stdout": 1}[given["text"]])
        if given["text"] == "stdin":
            send({"id": id, "result": text("deaf now")})
        time.sleep(600)
    if name == "hang":
        while (message := receive()).get("method") != "notifications/cancelled":
            if message.get("method") == "ping":
                send({"id": message["id"], "result": {}})
        return None
    if name == "steps":
        token = params["_meta"]["progressToken"]
        for step in range(1, 6):
            time.sleep(0.15)
            send(
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": 5, "message": "step"},
                }
            )
        return text("all steps")
    if name == "long":
        return text("A" * 30_000 + "MIDDLE" + "Z" * 30_000)
    if name == "image":
        return {
            "content": [
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "audio", "data": "", "mimeType": "audio/wav"},
            ]
        }
    if name == "fail":
        return text("it went wrong", isError=True)
    if name == "structured":
        return {"content": [], "structuredContent": {"n": 5}}
    if name in ("ask", "visit", "roots", "sample"):
        asked = {
            "ask": ("elicitation/create", FORM),
            "visit": (
                "elicitation/create",
                {"mode": "url", "message": "Go", "url": "https://example.org/x", "elicitationId": "e"},
            ),
            "roots": ("roots/list", {}),
            "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
        }[name]
        return question(params, *asked)
    if name == "ask_and_withdraw":
        send({"id": "mine-2", "method": "elicitation/create", "params": FORM})
        time.sleep(0.2)
        send({"method": "notifications/cancelled", "params": {"requestId": "mine-2"}})
        return text(json.dumps(answers_to(["mine-2"])[0]))
    if name == "ask_for_ever":
        while True:
            send({"id": "mine-3", "method": "elicitation/create", "params": FORM})
            answers_to(["mine-3"])
    if name == "ask_often":
        ids = [f"often-{n}" for n in range(100)]
        for id in ids:
            send({"id": id, "method": "elicitation/create", "params": FORM})
        return text(json.dumps(answers_to(ids)))
    if name == "change":
        changed = True
        if given.get("text") != "silently":
            send({"method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "environment":
        return text(json.dumps({**os.environ, "PID": str(os.getpid())}))
    if name == "child":
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 300 & wait"], start_new_session=True)
        return text(str(child.pid))
    return text(f"called {name}")


def answers_to(ids: list[str]) -> list[Any]:
    found: dict[str, Any] = {}
    while len(found) < len(ids):
        message = receive()
        if message.get("id") in ids:
            found[message["id"]] = message.get("result") or message.get("error")
    return [found[id] for id in ids]


def question(params: Any, method: str, asked: Any) -> Any:
    if MODERN:
        if "inputResponses" in params:
            assert params["requestState"] == "where I was"
            return text(json.dumps(params["inputResponses"]["q"]))
        return {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": method, "params": asked}},
            "requestState": "where I was",
        }
    send({"id": "mine-1", "method": method, "params": asked})
    while (message := receive()).get("id") != "mine-1":
        pass
    return text(json.dumps(message.get("result") or message.get("error")))


def answer(message: Any) -> Any:
    method, params = message["method"], message.get("params") or {}
    if method == "tools/list":
        time.sleep(float(option("--slow-list") or 0))
        return {"tools": tools()}
    if method == "prompts/list":
        return {
            "prompts": [
                {
                    "name": "greet",
                    "description": "Say hello.",
                    "arguments": [{"name": "who", "required": True}, {"name": "how"}],
                },
                {"name": "say good bye", "arguments": [{"name": "who"}]},
            ]
        }
    if method == "prompts/get":
        given = params.get("arguments", {})
        return {
            "messages": [
                {
                    "role": "user",
                    "content": {
                        "type": "text",
                        "text": f"/skill:none Greet {given['who']} {given.get('how', 'warmly')}",
                    },
                }
            ]
        }
    if method.startswith("resources/") and "--no-resources" in OPTIONS:
        raise LookupError(method)
    if method == "resources/list":
        return {"resources": [{"uri": "test://one", "name": "one"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "test://{n}", "name": "any"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "content of " + params["uri"]}]}
    if method == "tools/call":
        return call(message["id"], params)
    if method == "ping":
        return {}
    raise LookupError(method)


def main() -> None:
    if "--stubborn" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--noise" in OPTIONS:
        print("Welcome to my server!\n{not json\n[1, 2]\n", flush=True)
    print("fake server starts", file=sys.stderr, flush=True)
    time.sleep(float(option("--delay") or 0))
    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
    while True:
        message = receive()
        id, method = message.get("id"), message.get("method")
        if method is None or id is None:
            continue
        if method == "server/discover" and "--die-at-probe" in OPTIONS:
            sys.exit(1)
        if method == "server/discover" and "--ignore-probe" in OPTIONS:
            continue
        if method == "server/discover" and MODERN:
            send(
                {
                    "id": id,
                    "result": {
                        "resultType": "complete",
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": capabilities,
                    },
                }
            )
            continue
        if method == "subscriptions/listen" and MODERN:
            send(
                {
                    "method": "notifications/subscriptions/acknowledged",
                    "params": {"_meta": {META + "subscriptionId": id}, "notifications": {"toolsListChanged": True}},
                }
            )
            continue
        if method == "initialize" and not MODERN:
            send(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": capabilities,
                        "serverInfo": {"name": "fake", "version": "1"},
                    },
                }
            )
            continue
        if MODERN and META + "protocolVersion" not in (message.get("params") or {}).get("_meta", {}):
            send({"id": id, "error": {"code": -32602, "message": "no version"}})
            continue
        try:
            result = answer(message)
        except LookupError:
            send({"id": id, "error": {"code": -32601, "message": f"Method not found: {method}"}})
            continue
        if result is not None:
            send({"id": id, "result": {"resultType": "complete", **result} if MODERN else result})


if __name__ == "__main__":
    main()
