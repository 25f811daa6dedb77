"""A session driven by the `xcsh_rpc` package. Prints what it saw as JSON."""

import json
import os
import threading

from xcsh_rpc import HostTool, RpcClient, message_text

begun, cancelled = threading.Event(), threading.Event()
seen = {}


def lend(arguments, context):
    if arguments["n"] == 3:
        begun.set()
        while not context.cancelled:
            cancelled.wait(0.01)
        cancelled.set()
        return "too late"
    context.send_update("half")
    if arguments["n"] == 2:
        raise ValueError("out of paper")
    return {"content": [{"type": "text", "text": f"lent {arguments['n']}"}], "details": {"n": arguments["n"]}}


schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
command = [os.environ["PI"], "--mode", "rpc", "--model", "mock/m1"]
tools = [HostTool("lend", "Lend something", schema, lend, label="Lend")]
with RpcClient(command=command, cwd=os.environ["WORK"], custom_tools=tools) as client:
    turn = client.prompt_and_wait("use the tool", timeout=60)
    results = [event for event in turn.events if event.type == "tool_execution_end"]
    seen["events"] = sorted({event.type for event in turn.events})
    seen["results"] = sorted([e.tool_call_id, e.is_error, e.result["content"][0]["text"]] for e in results)
    seen["last"] = client.prompt_and_wait("again", timeout=60).assistant_text
    seen["mode"] = client.get_state().interrupt_mode
    client.prompt("take long")
    begun.wait(60)
    client.abort()
    cancelled.wait(60)
    client.wait_for_idle(timeout=60)
    seen["after"] = client.prompt_and_wait("go on", timeout=60).assistant_text
    seen["messages"] = [message["role"] for message in client.get_messages()]
    seen["bash"] = client.bash("echo from bash").output
    seen["branch"] = client.branch(client.get_branch_messages()[1].entry_id).text
    seen["texts"] = [message_text(message) for message in client.get_messages() if message["role"] == "assistant"]
    phases = client.set_todos(["look", {"content": "act", "details": "soon"}])
    seen["todos"] = [[task.id, task.content, task.status] for task in phases[0].tasks]
    seen["kept"] = client.get_todos() == phases and client.clear_todos() == ()
    seen["tools"] = list(client.set_custom_tools([]))
print(json.dumps(seen))
