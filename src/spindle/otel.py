"""OpenTelemetry: spans and metrics of runs, model calls and tool calls, by the conventions for generative AI.

A listener of the trace, for programs that have OpenTelemetry set up (`listen`), and for the command line, which sets it
up if the environment names a collector (`from_environment`). It needs the extra `otel`.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry import context, metrics
from opentelemetry import trace as otel
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spindle.base import trace
from spindle.base.version import __version__

CONVENTIONS: Final = "1.41.0"
"""The version of the semantic conventions that the names below are from; all of them are still in development.

It is the last one that was published. Durations of runs and tool calls are from the repository that the conventions
have moved to, `semantic-conventions-genai`, which has no release yet.
"""
SCHEMA: Final = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
AGENT: Final = "spindle"

OPERATION, PROVIDER, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
TOKEN_TYPE, ERROR = "gen_ai.token.type", "error.type"
KINDS: Final = {
    "run": ("invoke_agent", "agent", SpanKind.INTERNAL, "gen_ai.invoke_agent.duration"),
    "chat": ("chat", "model", SpanKind.CLIENT, "gen_ai.client.operation.duration"),
    "tool": ("execute_tool", "tool", SpanKind.INTERNAL, "gen_ai.execute_tool.duration"),
}
"""Kind of the trace → operation, what ends the name of the span, kind of the span, metric of its duration."""
ATTRIBUTES: Final = {
    "session": "gen_ai.conversation.id",
    "agent": "gen_ai.agent.name",
    "tool": "gen_ai.tool.name",
    "call": "gen_ai.tool.call.id",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "first_piece": "gen_ai.response.time_to_first_chunk",
    "status": "http.response.status_code",
    "user": "user.name",
    "cost": "spindle.cost_usd",
    "stop_reason": "spindle.stop_reason",
    "turns": "spindle.turns",
    "tool_calls": "spindle.tool_calls",
    "denials": "spindle.denials",
    "limit": "spindle.limit",
}
"""Attribute of the trace → name. The rest is made in `_facts`."""
CONTENT: Final = {
    "prompt": ("gen_ai.input.messages", "user"),
    "answer": ("gen_ai.output.messages", "assistant"),
    "arguments": ("gen_ai.tool.call.arguments", ""),
    "result": ("gen_ai.tool.call.result", ""),
    "error_text": ("error.message", ""),
}
"""What was said, which the trace has only with `trace.content`: name, and the role of a message."""
PROVIDERS: Final = {
    "amazon-bedrock": "aws.bedrock",
    "azure-openai-responses": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Providers that the conventions call by another name."""
LABELS: Final = (OPERATION, PROVIDER, MODEL, ATTRIBUTES["tool"], ERROR)
"""Attributes of metrics."""
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
_TOKEN_BUCKETS: Final = [4**power for power in range(14)]
_SECONDS: Final = [0.01 * 2**power for power in range(14)]
_W3C: Final = TraceContextTextMapPropagator()


def listen(
    tracer_provider: otel.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
) -> Callable[[], None]:
    """Tell OpenTelemetry of everything from now on. Returns a function that stops it.

    None: the providers that the program has set. What is said is told only if `spindle.base.trace.content` is set.
    """
    listener = _Listener(
        otel.get_tracer(AGENT, __version__, tracer_provider, SCHEMA),
        metrics.get_meter(AGENT, __version__, meter_provider, SCHEMA),
    )
    stop = trace.listen(listener.take)
    trace.outgoing = listener.outgoing

    def end() -> None:
        stop()
        trace.outgoing = dict

    return end


def from_environment() -> Callable[[], None]:
    """Send to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`. Returns a function that sends the rest and ends it."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": AGENT}
    resource = Resource.create({**name, "service.version": __version__})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    stop = listen(tracers, meters)

    def end() -> None:
        stop()
        tracers.shutdown()
        meters.shutdown()

    return end


class _Listener:
    def __init__(self, tracer: otel.Tracer, meter: metrics.Meter) -> None:
        self._tracer = tracer
        self._open: dict[int, otel.Span] = {}
        """Id of a span of ours → the span of OpenTelemetry."""
        seconds = {"unit": "s", "explicit_bucket_boundaries_advisory": _SECONDS}
        self._durations = {kind: meter.create_histogram(names[3], **seconds) for kind, names in KINDS.items()}
        self._first = meter.create_histogram(FIRST_CHUNK, **seconds)
        self._tokens = meter.create_histogram(
            TOKEN_USAGE, unit="{token}", explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS
        )

    def take(self, moment: trace.Moment, span: trace.Span) -> None:
        if moment == "told":
            if (around := self._around(span)) is not None:
                around.add_event(f"spindle.{span.kind}", _facts(span))
        elif span.kind in KINDS:
            (self._start if moment == "started" else self._end)(span)

    def outgoing(self) -> dict[str, str]:
        """Return the headers that tell others which span they work for."""
        carrier: dict[str, str] = {}
        current = trace.current()
        open_span = None if current is None else self._open.get(current.id) or self._around(current)
        if open_span is not None:
            _W3C.inject(carrier, otel.set_span_in_context(open_span))
        return carrier

    def _around(self, span: trace.Span) -> otel.Span | None:
        """Return the nearest span around one of ours."""
        parent = span.parent
        while parent is not None and parent.id not in self._open:
            parent = parent.parent
        return None if parent is None else self._open[parent.id]

    def _start(self, span: trace.Span) -> None:
        operation, named, kind, _ = KINDS[span.kind]
        facts = _facts(span)
        if (around := self._around(span)) is not None:
            parent = otel.set_span_in_context(around)
        elif (given := span.find("traceparent")) is not None:
            parent = _W3C.extract({"traceparent": given})
        else:
            parent = context.get_current()
        name = AGENT if named == "agent" else facts.get(MODEL if named == "model" else ATTRIBUTES[named], "")
        self._open[span.id] = self._tracer.start_span(f"{operation} {name}".strip(), parent, kind, facts)

    def _end(self, span: trace.Span) -> None:
        if (told := self._open.pop(span.id, None)) is None:
            return
        facts = _facts(span)
        told.set_attributes(facts)
        if span.error is not None:
            told.set_status(Status(StatusCode.ERROR))
        told.end()
        labels = {name: facts[name] for name in LABELS if name in facts}
        self._durations[span.kind].record(span.seconds, labels)
        if span.kind == "chat":
            for kind in ("input", "output"):
                if (number := facts.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                    self._tokens.record(number, {**labels, TOKEN_TYPE: kind})
            if (first := span.attributes.get("first_piece")) is not None:
                self._first.record(first, labels)


def _facts(span: trace.Span) -> dict[str, Any]:
    """Return the attributes of a span by the names of the conventions."""
    known = span.attributes
    facts: dict[str, Any] = {new: known[old] for old, new in ATTRIBUTES.items() if known.get(old) is not None}
    for name in ("session", "user"):
        if (found := span.find(name)) is not None:
            facts[ATTRIBUTES[name]] = found
    if span.kind in KINDS:
        facts |= {OPERATION: KINDS[span.kind][0], ATTRIBUTES["agent"]: AGENT}
    if span.kind == "tool":
        facts["gen_ai.tool.type"] = "function"
    elif (model := known.get("model")) is not None:
        provider, _, id = model.partition("/")
        facts |= {PROVIDER: PROVIDERS.get(provider, provider), MODEL: id}
    if "input_tokens" in known:  # the convention counts cached tokens as input
        cached = known.get("cache_read_tokens", 0) + known.get("cache_write_tokens", 0)
        facts["gen_ai.usage.input_tokens"] = known["input_tokens"] + cached
    if span.kind == "chat" and "stop_reason" in known:
        facts["gen_ai.response.finish_reasons"] = [known["stop_reason"]]
    if span.error is not None:
        facts[ERROR] = span.error
    return facts | _said(known)


def _said(known: Mapping[str, Any]) -> dict[str, str]:
    said: dict[str, str] = {}
    for old, (new, role) in CONTENT.items():
        if (value := known.get(old)) is not None:
            parts = [{"role": role, "parts": [{"type": "text", "content": value}]}] if role else value
            said[new] = parts if isinstance(parts, str) else json.dumps(parts, ensure_ascii=False, default=str)
    return said
