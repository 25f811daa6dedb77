"""A session driven by the `picable` package, which knows pi 0.74 and nothing newer. Prints what it saw as JSON."""

import json
import os

from picable import PiClient, PiClientOptions

options = PiClientOptions(
    executable=os.environ["PI"],
    provider="mock",
    model="m1",
    cwd=os.environ["WORK"],
    startup_timeout=60,
    extra_args=("--dialect", "pi-0.74"),
)


def run(client, message):
    events = client.subscribe_events(maxsize=1000)
    client.prompt(message)
    kinds = []
    while not kinds or kinds[-1] != "agent_end":
        kinds.append(events.get(timeout=60).type)
    return kinds


with PiClient(options) as client:
    kinds = run(client, "use a tool")
    run(client, "again")
    seen = {
        "kinds": sorted(set(kinds)),
        "last": client.get_last_assistant_text(),
        "messages": [message.role for message in client.get_messages()],
        "bash": client.bash("echo from bash").output,
        "models": len(client.get_available_models()),
        "fork": client.fork(client.get_fork_messages()[-1].entry_id).text,
        "state": client.get_state().session_id,
        "stats": client.get_session_stats().assistant_messages,
    }
print(json.dumps(seen))
