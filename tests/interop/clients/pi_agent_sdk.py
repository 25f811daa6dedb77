"""A session driven by the `pi-agent-python-sdk` package. Prints what it saw as JSON."""

import json
import os

from pi_agent import PiClient

with PiClient(executable=os.environ["PI"], provider="mock", model="m1", cwd=os.environ["WORK"]) as pi:
    first = pi.run("use a tool")
    seen = {"version": pi.pi_version, "first": first.text}
    seen["second"] = pi.run("again").text
    seen["bash"] = pi.bash("echo from bash")["output"]
    pi.set_session_name("interop")
    seen["models"] = len(pi.get_available_models())
    seen["levels"] = list(pi.get_available_thinking_levels())
    seen["entries"] = len(pi.get_entries()["entries"]) > 4
    seen["tree"] = bool(pi.get_tree()["tree"])
    fork = pi.fork(pi.get_fork_messages()[-1]["entryId"])
    seen["fork"] = fork["text"]
    seen["stats"] = pi.get_session_stats()["assistantMessages"]
    seen["cleared"] = list(pi.clear_queue()["steering"])
    seen["last"] = pi.get_last_assistant_text()
print(json.dumps(seen))
