"""Drives a server with a client that openapi-python-client made. Arguments: the folder it is in, address, token."""

import importlib
import inspect
import json
import pkgutil
import sys
import typing

folder, address, token = sys.argv[1:]
sys.path.insert(0, folder)
api = importlib.import_module("made.api")
places = {
    module.name.rpartition(".")[2]: module.name
    for module in pkgutil.walk_packages(api.__path__, "made.api.")
    if module.name.count(".") == 3
}
models = importlib.import_module("made.models")
kinds = importlib.import_module("made.types")
client = importlib.import_module("made.client").AuthenticatedClient(base_url=address, token=token, timeout=30)


def call(name, *path, **fields):
    """Call an operation; return its status and what the client makes of the answer."""
    module = importlib.import_module(places[name])
    found = module.sync_detailed(*path, client=client, **fields)
    return found.status_code, found.parsed


def body_of(name):
    """Return the class of an operation's body, if it can be made without fields."""
    module = importlib.import_module(places[name])
    wanted = typing.get_type_hints(module.sync_detailed).get("body")
    for kind in typing.get_args(wanted) or (wanted,):
        if inspect.isclass(kind) and kind is not kinds.Unset:
            required = [
                parameter
                for parameter in list(inspect.signature(kind).parameters.values())
                if parameter.default is inspect.Parameter.empty
            ]
            return None if required else kind
    return None


status, session = call("create_session", body=models.WantedSession(name="made"))
assert status == 201 and session.name == "made", (status, session)
id = session.id
status, accepted = call("prompt", id, body=models.Prompt(message="hi"))
assert status == 200 and accepted.disposition.value in ("started", "queued"), accepted
status, result = call("prompt", id, body=models.Prompt(message="again", streaming_behavior="followUp"), wait=True)
assert status == 200 and result.status == "ok" and result.text == "quick", result
status, told = call("get_messages", id, body=models.GetMessages())
assert [one.role for one in told.messages] == ["user", "assistant"] * 2, told
status, put = call("put_session", "mine", body=models.SessionPut(name="x"))
assert (status, put.id) == (200, "mine"), (status, put)
status, alive = call("list_sessions_alive")
assert {one.id for one in alive.sessions} == {id, "mine"}, alive
status, refused = call("get_state", "nothing", body=models.GetState())
assert status == 404 and "nothing" in refused.error, refused

names = sorted(places)
seen = {}
for name in names:
    if name in ("answer_question", "answer_kept_question", "create_session", "close_session"):
        continue
    kind = body_of(name)
    if kind is not None:
        status, parsed = call(name, id, body=kind())
        seen[name] = int(status)
        assert status in (200, 204, 400, 403, 409), (name, status, parsed)
        assert status != 200 or parsed is not None or name.startswith("cycle_"), name
assert call("end_session", id)[0] == 204
print(json.dumps({"operations": len(names), "called": seen}))
