"""One prompt, one answer, beside codex, Claude Code, opencode and pi, where they are installed; then the first prompt
of those that can be held as servers (`first_prompts.py`).

`python -m benchmarks.peers [--rounds 5] [--bin FOLDER] [--report docs/benchmarks.md]` starts each program in turns with
a home of its own, against a mock model, in a network that has nothing but loopback (`unshare`, Linux), so that nothing
but the model is asked. `--bin` is the folder with the programs of others, such as `node_modules/.bin`.
"""

import argparse
import fcntl
import json
import os
import resource
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.marks import put

from benchmarks.first_prompts import first_prompt
from benchmarks.plot import bars

ROOT = Path(__file__).resolve().parent.parent
ANSWER = "The answer is 42."
PROMPT = "What is the answer?"
LIMIT_S = 90
INSIDE = "SPINDLE_BENCH_NETWORK"
"""Set in the process that has the network of its own."""


# -- the model -----------------------------------------------------------------------------------


def _chat() -> list[tuple[str, Any]]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    choices = [
        {"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    chunks = [{**head, "choices": [choice]} for choice in choices]
    return [("", chunk) for chunk in [*chunks, {**head, "choices": [], "usage": usage}]] + [("", "[DONE]")]


def _messages() -> list[tuple[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "bench", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events]


def _responses() -> list[tuple[str, Any]]:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5, "total_tokens": 15}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    item = {"type": "message", "id": "i1", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": "r1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    place = {"item_id": "i1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": ANSWER},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return [(event["type"], event) for event in events]


STREAMS: dict[str, Callable[[], list[tuple[str, Any]]]] = {
    "/chat/completions": _chat,
    "/messages": _messages,
    "/responses": _responses,
}


def _event(name: str, value: Any) -> str:
    data = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {name}\n" if name else "") + f"data: {data}\n\n"


class Model:
    """Answers every request, in whichever of three APIs, at once; knows the length of the largest request."""

    def __init__(self) -> None:
        self.largest = 0
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(b'{"data":[],"models":[]}', "application/json")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                path = self.path.partition("?")[0]
                made = next((make for end, make in STREAMS.items() if path.endswith(end)), None)
                if made is None:
                    self._send(b'{"input_tokens":10}', "application/json")
                    return
                model.largest = max(model.largest, len(body))
                lines = [
                    (f"event: {name}\n" if name else "")
                    + f"data: {value if value == '[DONE]' else json.dumps(value)}\n\n"
                    for name, value in made()
                ]
                self._send("".join(lines).encode(), "text/event-stream")

            def _send(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *details: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


# -- the programs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    name: str
    title: str
    argv: list[str]
    environment: dict[str, str]
    cwd: Path


def _spindle(_: str, home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "none"}
    models = [{"id": "bench", "contextWindow": 200_000, "maxTokens": 8192}]
    (home / "agent").mkdir()
    (home / "agent/models.json").write_text(json.dumps({"providers": {"bench": {**provider, "models": models}}}))
    argv = [str(Path(sys.executable).with_name("spindle")), "-p", "--model", "bench/bench", PROMPT]
    return argv, {"SPINDLE_DIR": str(home / "agent"), "PI_OFFLINE": "1"}


def _pi(program: str, home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    _spindle(program, home, url)  # it reads the same files
    quiet = {"PI_CODING_AGENT_DIR": str(home / "agent"), "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}
    return [program, "-p", "--provider", "bench", "--model", "bench", PROMPT], {**quiet, "PI_TELEMETRY": "0"}


def _codex(program: str, home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    (home / "config.toml").write_text(
        'model = "bench"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
        f'[model_providers.bench]\nname = "bench"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    )
    return [program, "exec", "--skip-git-repo-check", PROMPT], {"CODEX_HOME": str(home)}


def _claude(program: str, home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
    own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CONFIG_DIR": str(home / "claude")}
    return [program, "-p", "--model", "bench", PROMPT], {**own, **quiet, "DISABLE_ERROR_REPORTING": "1"}


def _opencode(program: str, home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "bench", "options": options, "models": {"bench": {}}}
    own = {"autoupdate": False, "share": "disabled", "provider": {"bench": provider}, "model": "bench/bench"}
    (home / "opencode.json").write_text(json.dumps({**own, "small_model": "bench/bench"}))
    quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return [program, "run", PROMPT], {"OPENCODE_CONFIG": str(home / "opencode.json"), **quiet}


OTHERS = {"codex": _codex, "claude": _claude, "opencode": _opencode, "pi": _pi}


def contenders(folder: Path | None, place: Path, url: str) -> list[Contender]:
    """Return this checkout and the programs of others that are installed."""
    path = os.pathsep.join([str(folder), os.environ["PATH"]]) if folder else os.environ["PATH"]
    found = []
    for name, configure in {"spindle": _spindle, **OTHERS}.items():
        program = name if name == "spindle" else shutil.which(name, path=path)
        if program is None:
            print(f"{name} is not installed, and is left out", file=sys.stderr)
            continue
        home = place / name
        (home / "work").mkdir(parents=True)
        argv, own = configure(program, home, url)
        usual = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": str(place)}
        environment = {**usual, **own}
        version = subprocess.run(
            [argv[0], "--version"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        ).stdout
        number = next((word for word in version.split() if word[:1].isdigit()), "")
        title = f"{'Claude Code' if name == 'claude' else name.replace('s', 'S', name == 'spindle')} {number}".strip()
        found.append(Contender(name, title, argv, environment, home / "work"))
    return found


def measured(contender: Contender, model: Model) -> dict[str, float]:
    """Run it once. Raises RuntimeError if the answer does not come out."""
    model.largest = 0
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            contender.argv,
            cwd=contender.cwd,
            env=contender.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        guard = threading.Timer(LIMIT_S, child.kill)
        guard.start()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        guard.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode("utf-8", "replace")
    if child.returncode or ANSWER not in said:
        raise RuntimeError(f"{contender.title} gave no answer ({child.returncode}): {said[-300:].strip()}")
    return {
        "wall (s)": seconds,
        "CPU, children included (s)": used.ru_utime + used.ru_stime,
        "peak memory of its largest process (MiB)": used.ru_maxrss / 1024,
        "its largest request (kB)": model.largest / 1000,
        **first_prompt(contender.name, contender.argv[0], contender.environment, contender.cwd),
    }


# -- the table -------------------------------------------------------------------------------------


def table(samples: dict[str, list[dict[str, float]]], failed: dict[str, str]) -> tuple[str, dict[str, float]]:
    """Return the part of the page, and how many times better than each of the others we are in each figure."""
    ours, *others = samples
    ratios: dict[str, float] = {}
    rows = []
    for figure in samples[ours][0]:
        medians = {
            title: statistics.median(sample[figure] for sample in runs)
            for title, runs in samples.items()
            if figure in runs[0]
        }
        cells = [f"{medians[ours]:.3g}"]
        for title in others:
            if title not in medians:
                cells.append("–")
                continue
            ratio = medians[title] / medians[ours]
            ratios[f"{title}: {figure.partition(' (')[0].partition(',')[0]}"] = ratio
            cells.append(f"{medians[title]:.3g} ({ratio:.2g})")
        rows.append(f"| {figure} | {' | '.join(cells)} |")
    worse = [f"* {name}: {ratio:.2f} of ours." for name, ratio in ratios.items() if ratio < 1]
    notes = [f"* {title} could not be measured: {why}" for title, why in failed.items()]
    runs = len(next(iter(samples.values())))
    day, load = time.strftime("%Y-%m-%d", time.gmtime()), os.getloadavg()[0]
    text = [
        f"Written by `python -m benchmarks.peers` on {day}: {runs} runs of each in turns, {os.cpu_count()} cores, load",
        f"average {load:.1f}. Medians, and in brackets how many times ours that is.",
        "",
        f"| what | {' | '.join(samples)} |",
        "|---|" + "---|" * len(samples),
        *rows,
        "",
        "Where the others are better:",
        "",
        *(worse or ["* In nothing that was measured."]),
        *notes,
    ]
    return "\n".join(text), ratios


def in_own_network() -> None:
    """Start this program again in a network that has nothing but loopback. Returns in that process."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        own = ["unshare", "--net", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
        os.execvp("unshare", [*own, sys.executable, "-m", "benchmarks.peers", *sys.argv[1:]])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # loopback is down in a new network
        get, put_flags, up = 0x8913, 0x8914, 1
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, get, request))
        fcntl.ioctl(any_socket, put_flags, struct.pack("16sh14x", b"lo", flags | up))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", type=Path, help="where the programs of others are, besides PATH")
    parser.add_argument("--report", type=Path, help="a page with the part `others`: write it, and a picture")
    options = parser.parse_args()
    in_own_network()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    samples: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        model = Model()
        all_of_them = contenders(options.bin.resolve() if options.bin else None, Path(name), model.url)
        for number in range(options.rounds + 1):  # the first one fills caches
            for one in all_of_them[:: 1 if number % 2 else -1]:
                if one.title in failed:
                    continue
                try:
                    sample = measured(one, model)
                except RuntimeError as error:
                    failed[one.title] = " ".join(str(error).split())
                    continue
                if number:
                    samples.setdefault(one.title, []).append(sample)
                print(f"{number} {one.title} {sample}", file=sys.stderr, flush=True)
    samples = {one.title: samples[one.title] for one in all_of_them if one.title in samples}
    text, ratios = table(samples, failed)
    print(text)
    if options.report:
        options.report.write_text(put(options.report.read_text(), "others", text))
        picture = options.report.parent / "pictures" / "one-shots.svg"
        title = "A one-shot beside others: how many times better (a logarithmic scale)"
        picture.write_text(bars(title, "as Spindle", ratios))
    return 0
