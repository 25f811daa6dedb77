"""Figures of a server for Prometheus: a listener of the trace counts, and `/metrics` shows what it has counted.

The format is the text format 0.0.4. Names and labels are in one table, which the manual shows.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from spindle.base import trace

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES: Final = 2000
"""Combinations of labels that one metric counts apart: clients choose some of them. More are counted as `other`."""
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the buckets of histograms."""
_TOKENS: Final = ("input", "output", "cache_read", "cache_write")
_OF_RUN: Final = ("model", "user")

METRICS: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "sessions": ("gauge", ("user",), "Sessions in memory."),
    "connections": ("gauge", ("wire",), "Open connections; sse: readers of events over HTTP."),
    "runs_active": ("gauge", ("user",), "Runs under way."),
    "model_calls_active": ("gauge", ("model",), "Calls of models under way."),
    "queued_messages": ("gauge", ("user",), "Messages that wait in the queues of sessions."),
    "disk_bytes": ("gauge", ("kind",), "Stored data by kind, as `spindle data` shows it; looked at once a minute."),
    "disk_free_bytes": ("gauge", (), "Room on the disk of the agent directory."),
    "draining": ("gauge", (), "1 while the server ends and takes no new runs."),
    "runs_total": ("counter", (*_OF_RUN, "stop_reason"), "Runs that have ended."),
    "turns_total": ("counter", _OF_RUN, "Answers of models in these runs."),
    "tokens_total": ("counter", (*_OF_RUN, "type"), "Tokens, summaries included."),
    "cost_dollars_total": ("counter", _OF_RUN, "Cost as far as prices are known, in US dollars."),
    "errors_total": ("counter", ("kind", "error", "status"), "Failures by kind of work, class, and HTTP status."),
    "tool_calls_total": ("counter", ("tool", "failed"), "Tool calls that ran."),
    "denials_total": ("counter", ("tool", "user"), "Tool calls that were not allowed."),
    "limits_total": ("counter", ("limit", "user"), "Limits and quotas that stopped or refused a run."),
    "refusals_total": ("counter", ("reason", "user"), "Requests, connections and commands that were refused."),
    "requests_total": ("counter", ("method", "status"), "HTTP requests under /v1."),
    "run_seconds": ("histogram", (), "Duration of runs."),
    "first_piece_seconds": ("histogram", ("model",), "From the call of a model to the first piece of its answer."),
    "model_call_seconds": ("histogram", ("model",), "Duration of calls of models."),
    "tool_seconds": ("histogram", (), "Duration of tool calls."),
    "request_seconds": ("histogram", (), "Duration of HTTP requests under /v1, streams of events included."),
}
"""By name, without the prefix `spindle_`: type, labels, help."""
Labels = tuple[str, ...]


class _Histogram:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        """By bucket, not added up; the last is for all that is slower."""
        self.sum = 0.0

    def take(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds


class Metrics:
    def __init__(self) -> None:
        self._numbers: dict[str, dict[Labels, float]] = {name: {} for name, (kind, *_) in METRICS.items()}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {
            name: {} for name, (kind, *_) in METRICS.items() if kind == "histogram"
        }
        self.stop = trace.listen(self.take)

    # -- counting --------------------------------------------------------------------------------

    def take(self, moment: trace.Moment, span: trace.Span) -> None:
        """Count what the trace tells."""
        if span.kind in _ACTIVE:
            name, label = _ACTIVE[span.kind]
            self._add(name, [span.find(label)], 1 if moment == "started" else -1)
        if moment == "started":
            return
        if moment == "failed":
            self._add("errors_total", [span.kind, span.error, span.attributes.get("status")])
        if (count := _COUNTING.get(span.kind)) is not None:
            count(self, span)

    def _add(self, name: str, labels: Iterable[Any], amount: float = 1) -> None:
        known = self._numbers[name]
        key = _key(labels, known)
        known[key] = known.get(key, 0) + amount

    def _measure(self, name: str, seconds: float, *labels: Any) -> None:
        known = self._histograms[name]
        key = _key(labels, known)
        if key not in known:
            known[key] = _Histogram()
        known[key].take(seconds)

    def _run(self, span: trace.Span) -> None:
        of = [span.find(name) for name in _OF_RUN]
        self._add("runs_total", [*of, span.attributes.get("stop_reason")])
        self._add("turns_total", of, span.attributes.get("turns", 0))
        self._measure("run_seconds", span.seconds)

    def _chat(self, span: trace.Span) -> None:
        of, known = [span.find(name) for name in _OF_RUN], span.attributes
        for kind in _TOKENS:
            self._add("tokens_total", [*of, kind], known.get(f"{kind}_tokens", 0))
        self._add("cost_dollars_total", of, known.get("cost") or 0)
        if "first_piece" in known:
            self._measure("first_piece_seconds", known["first_piece"], of[0])
        self._measure("model_call_seconds", span.seconds, of[0])

    def _tool(self, span: trace.Span) -> None:
        self._add("tool_calls_total", [span.attributes["tool"], "true" if span.error else "false"])
        self._measure("tool_seconds", span.seconds)

    def _request(self, span: trace.Span) -> None:
        self._add("requests_total", [span.attributes["method"], span.attributes.get("status")])
        self._measure("request_seconds", span.seconds)

    def _denial(self, span: trace.Span) -> None:
        self._add("denials_total", [span.attributes["tool"], span.find("user")])

    def _limit(self, span: trace.Span) -> None:
        self._add("limits_total", [span.attributes["limit"], span.find("user")])

    def _refusal(self, span: trace.Span) -> None:
        self._add("refusals_total", [span.attributes["reason"], span.find("user")])

    # -- showing ---------------------------------------------------------------------------------

    def page(self, gauges: Iterable[tuple[str, Sequence[Any], float]]) -> bytes:
        """Return all metrics; `gauges` are read at this moment: name, labels, value."""
        numbers = dict(self._numbers)
        for name, labels, value in gauges:
            key = tuple(map(_text, labels))
            numbers[name] = numbers[name] | {key: numbers[name].get(key, 0) + value}
        lines: list[str] = []
        for name, (kind, labels, text) in METRICS.items():
            full = f"spindle_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
            if kind == "histogram":
                for key, histogram in self._histograms[name].items():
                    lines += _buckets(full, labels, key, histogram)
            else:
                lines += [f"{full}{_braces(labels, key)} {value:.10g}" for key, value in numbers[name].items()]
        return "\n".join([*lines, *_process(), ""]).encode()


_ACTIVE: Final = {
    "connection": ("connections", "wire"),
    "run": ("runs_active", "user"),
    "chat": ("model_calls_active", "model"),
}
_COUNTING: Final[dict[str, Callable[[Metrics, trace.Span], None]]] = {
    "run": Metrics._run,
    "chat": Metrics._chat,
    "tool": Metrics._tool,
    "request": Metrics._request,
    "denial": Metrics._denial,
    "limit": Metrics._limit,
    "refusal": Metrics._refusal,
}


def _key(labels: Iterable[Any], known: dict[Labels, Any]) -> Labels:
    key = tuple(map(_text, labels))
    return key if key in known or len(known) < MOST_SERIES else ("other",) * len(key)


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:200].encode("utf-8", "replace").decode()


def _braces(names: Sequence[str], key: Labels, **more: str) -> str:
    pairs = [*zip(names, key, strict=True), *more.items()]
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _buckets(name: str, labels: Sequence[str], key: Labels, histogram: _Histogram) -> list[str]:
    lines, total = [], 0
    for bound, count in zip((*map("{:g}".format, SECONDS), "+Inf"), histogram.counts, strict=True):
        total += count
        lines.append(f"{name}_bucket{_braces(labels, key, le=bound)} {total}")
    shown = _braces(labels, key)
    return [*lines, f"{name}_sum{shown} {histogram.sum:.10g}", f"{name}_count{shown} {total}"]


def _process() -> list[str]:
    """Return what Prometheus' own libraries tell of a process: its CPU time, and on Linux its memory."""
    lines = [
        "# HELP process_cpu_seconds_total CPU time of the process itself.",
        "# TYPE process_cpu_seconds_total counter",
        f"process_cpu_seconds_total {time.process_time():.2f}",
    ]
    try:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return lines
    return [
        *lines,
        "# HELP process_resident_memory_bytes Memory of the process itself.",
        "# TYPE process_resident_memory_bytes gauge",
        f"process_resident_memory_bytes {resident}",
    ]
