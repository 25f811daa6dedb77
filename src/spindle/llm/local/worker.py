"""The process that holds a model. `llama_server` runs this file by its path, so that nothing of ours is imported here.

It reads one line of JSON from stdin (what to load), loads it, writes one line to stdout (where it listens, what the
model is, or why it failed), and serves until stdin ends. So it cannot outlive the agent, however that ends, and the
loader, which holds the interpreter's lock all the time, does not stall the agent.
"""

import importlib
import json
import os
import sys
from typing import Any

_QUIET, _TALKATIVE = 1, 3


def main() -> None:
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints goes where its log goes
    try:
        _server, facts = _load(json.loads(sys.stdin.buffer.readline()))
    except Exception as error:  # the agent turns it into advice, with the help of the log
        facts = {"error": f"{type(error).__name__}: {error}"}
    answer.write(json.dumps(facts) + "\n")
    answer.close()
    if "error" in facts:
        return  # by the usual way out, on which the library writes the rest of its log
    sys.stdin.buffer.read()
    os._exit(0)  # nothing here is worth tidying up, and freeing gigabytes takes time


def _load(wanted: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = wanted["path"]
    params.model_alias = {wanted["name"]}
    params.n_ctx = wanted["context"]
    params.n_parallel = 2  # two prompts at once, and two prompts remembered
    params.kv_unified = True  # either may have the whole context
    params.cache_ram_mib = 256
    params.use_jinja = True
    params.warmup = False
    params.fit_params = False  # a wrong size is an error, not a reason for a smaller one
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = wanted["threads"]
        threads.poll = 0  # an idle model must cost nothing
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [wanted["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = _TALKATIVE if wanted["debug"] else _QUIET
    server = xllamacpp.Server(params)
    return server, _facts(server.listening_address, wanted["key"])


def _facts(url: str, key: str) -> dict[str, Any]:
    """Ask the server what it has loaded."""
    meta = _get(url, key, "/v1/models")["data"][0]["meta"]
    props = _get(url, key, "/props")
    template = str(props.get("chat_template", ""))
    able = props.get("chat_template_caps") or {}
    return {
        "url": url,
        "parameters": meta["n_params"],
        "context": meta["n_ctx"],
        "tools": bool(able.get("supports_tool_calls", "tools" in template)),
        "thinking": "enable_thinking" in template,
    }


def _get(url: str, key: str, path: str) -> Any:
    from http.client import HTTPConnection

    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
    return json.loads(connection.getresponse().read())


if __name__ == "__main__":
    main()
