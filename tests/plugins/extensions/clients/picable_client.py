"""Answers the permission gate with the `picable` package, which knows pi 0.74. Prints what it saw as JSON."""

import json
import os

from picable import PiClient, PiClientOptions

options = PiClientOptions(
    executable=os.environ["PI"],
    provider="mock",
    model="m1",
    cwd=os.environ["WORK"],
    startup_timeout=60,
    extra_args=("--dialect", "pi-0.74", "-e", os.environ["EXTENSION"]),
)
asked = []


def run(client, message, allow):
    events = client.subscribe_events(maxsize=1000)
    client.prompt(message)
    while True:
        event = events.get(timeout=60)
        if event.type == "extension_ui_request" and event.request.method == "confirm":
            asked.append([event.request.method, event.request.title, event.request.message])
            client.respond_extension_ui_confirmed(event.request.id, confirmed=allow)
        if event.type == "agent_end":
            return os.path.exists(os.path.join(os.environ["WORK"], "precious"))


with PiClient(options) as client:
    refused = run(client, "refuse this", False)
    allowed = not run(client, "allow this", True)
print(json.dumps({"asked": asked, "refused": refused, "allowed": allowed}))
