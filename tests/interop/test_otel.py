"""OpenTelemetry: real processes send to a real collector (rotel), and what it passes on is decoded.

It runs when the packages of the extra are there: installed, or in the directory that `SPINDLE_TEST_OTEL` names
(`pip install --target DIR opentelemetry-sdk opentelemetry-exporter-otlp-proto-http rotel`). Without rotel, which is
not there for every system, Spindle sends to the decoder itself.
"""

import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import MockModel, call, failure, reply
from tests.wires.server.server import ServerProcess

PACKAGES = os.environ.get("SPINDLE_TEST_OTEL", "")
if PACKAGES:
    sys.path.append(PACKAGES)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="SPINDLE_TEST_OTEL names no OpenTelemetry")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes  # noqa: E402

from spindle import otel  # noqa: E402

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


ROTEL = Path(PACKAGES, "rotel", "rotel-agent")
MCP_SERVER = Path(__file__).parents[1] / "plugins" / "mcp" / "fake_server.py"


class Collector:
    """Takes what is exported over OTLP/HTTP, behind rotel if that is there."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.resources: list[dict[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                collector.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        port = self._server.server_port
        self._rotel: subprocess.Popen[bytes] | None = None
        if ROTEL.is_file():
            port = self._start_rotel(port)
        self.env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        if PACKAGES:
            self.env["PYTHONPATH"] = PACKAGES

    def _start_rotel(self, to: int) -> int:
        """Let rotel listen, and send on to us. Returns its port."""
        self._folder = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            http, grpc = one.getsockname()[1], two.getsockname()[1]
        options = f"--otlp-http-endpoint 127.0.0.1:{http} --otlp-grpc-endpoint 127.0.0.1:{grpc} --exporter otlp"
        options += f" --otlp-exporter-protocol http --otlp-exporter-endpoint http://127.0.0.1:{to}"
        options += f" --pid-file {self._folder.name}/pid --log-file {self._folder.name}/log"
        self._rotel = subprocess.Popen([str(ROTEL), "start", *options.split()], stdout=subprocess.DEVNULL)
        while self._rotel.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", http)) == 0:
                    return int(http)
        raise AssertionError("rotel has ended")

    def settle(self) -> None:
        """Wait until all that was sent has arrived: rotel passes the rest on when it ends."""
        if self._rotel is not None:
            self._rotel.terminate()
            self._rotel.wait(20)
            self._rotel = None
            self._folder.cleanup()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(resource.resource))
                for scope in resource.scope_spans:
                    assert scope.schema_url == otel.SCHEMA
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    def close(self) -> None:
        self.settle()
        self._server.shutdown()
        self._server.server_close()


def attributes(holder: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in holder.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def model_parent(mock: MockModel, number: int) -> str:
    return str(mock.requests[number].headers["traceparent"])


def test_names_are_those_of_the_conventions() -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    used = {*otel.ATTRIBUTES.values(), *(name for name, _ in otel.CONTENT.values()), *otel.LABELS, otel.TOKEN_TYPE}
    assert {name for name in used if name.startswith("gen_ai")} <= known


def test_a_run_of_a_server_is_part_of_the_clients_trace(collector: Collector) -> None:
    steps = [failure(503, "a secret"), reply(call("bash", {"command": "echo a secret; false"})), reply("a secret")]
    with ServerProcess(steps, env=collector.env) as server:
        url = f"http://{server.address}/v1/sessions"
        with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=20) as opened:
            id = json.load(opened)["id"]
        body, headers = json.dumps({"message": "a secret"}).encode(), {"traceparent": PARENT}
        asked = urllib.request.Request(f"{url}/{id}/prompt?wait=true", body, headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert json.load(answer)["status"] == "ok"
        assert server.stop() == 0
        collector.settle()
        parents = [model_parent(server.mock, number) for number in range(3)]
    by_name: dict[str, list[Any]] = {}
    for span in collector.spans:
        by_name.setdefault(span.name, []).append(span)
    assert {name: len(spans) for name, spans in by_name.items()} == {
        "invoke_agent spindle": 1,
        "chat m1": 3,
        "execute_tool bash": 1,
    }
    [run], [tool], chats = by_name["invoke_agent spindle"], by_name["execute_tool bash"], by_name["chat m1"]
    assert run.trace_id.hex() == PARENT[3:35] and run.parent_span_id.hex() == PARENT[36:52]
    assert {span.parent_span_id for span in (tool, *chats)} == {run.span_id}
    assert parents == [f"00-{PARENT[3:35]}-{span.span_id.hex()}-01" for span in chats], "the model's server is told"
    told = attributes(run)
    assert told["gen_ai.operation.name"] == "invoke_agent" and told["gen_ai.conversation.id"] == id
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (20, 10)
    assert (
        attributes(chats[0])["error.type"] == "StatusError" and attributes(chats[0])["http.response.status_code"] == 503
    )
    assert attributes(chats[1])["gen_ai.provider.name"] == "mock" and chats[1].status.code == 0
    named = attributes(tool)
    assert (named["gen_ai.agent.name"], named["gen_ai.tool.name"], named["gen_ai.tool.call.id"]) == (
        "spindle",
        "bash",
        "call_1",
    )
    assert tool.status.code == 2 and "secret" not in str(collector.spans)
    assert collector.resources[0]["service.name"] == "spindle"
    usage = {
        attributes(point)["gen_ai.token.type"] for point in collector.metrics[otel.TOKEN_USAGE].histogram.data_points
    }
    assert usage == {"input", "output"}
    for name in (*(names[3] for names in otel.KINDS.values()), otel.FIRST_CHUNK):
        assert collector.metrics[name].unit == "s", name


def test_a_prompt_on_stdio_names_its_trace(collector: Collector) -> None:
    with AgentProcess([reply("ok")], env=collector.env) as agent:
        agent.send(type="prompt", message="one", traceparent=PARENT)
        agent.wait("agent_settled")
        agent.send(type="prompt", message="two", traceparent="rubbish\n")
        agent.wait("agent_settled")
        assert agent.close_stdin() == 0
    collector.settle()
    runs = [span for span in collector.spans if span.name == "invoke_agent spindle"]
    assert [run.trace_id.hex() == PARENT[3:35] for run in runs] == [True, False] and not runs[1].parent_span_id


def test_a_socket_names_its_trace_and_mcp_servers_are_told(collector: Collector, tmp_path: Path) -> None:
    log, agent_dir = tmp_path / "log", tmp_path / "agent"
    agent_dir.mkdir()
    server = {"command": sys.executable, "args": [str(MCP_SERVER), "--log", str(log)]}
    (agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"fake": server}}))
    steps = [reply(call("mcp__fake__echo", {"text": "hi"})), reply("ok")]
    with ServerProcess(steps, env=collector.env, base=tmp_path) as one:
        with one.rpc(additional_headers={"traceparent": PARENT}) as client:
            client.call("prompt", message="go")
            client.wait("agent_settled")
        assert one.stop() == 0
    collector.settle()
    spans = {span.name: span for span in collector.spans}
    run, tool = spans["invoke_agent spindle"], spans["execute_tool mcp__fake__echo"]
    assert run.trace_id.hex() == PARENT[3:35] and run.parent_span_id.hex() == PARENT[36:52]
    [called] = [line for line in log.read_text().splitlines() if " tools/call " in line]
    told = json.loads(called.split(" ", 2)[2])["_meta"]["traceparent"]
    assert told == f"00-{PARENT[3:35]}-{tool.span_id.hex()}-01"


def test_a_program_has_its_own_span_around(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from spindle import Agent
    from spindle.testing import Script

    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path))
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    async def work() -> None:
        async with Agent.create(model=Script(["ok"]).model(), cwd=tmp_path, persist=False) as agent:
            with provider.get_tracer("mine").start_as_current_span("mine"):
                await agent.run("hi")

    stop = otel.listen(provider)
    try:
        asyncio.run(work())
    finally:
        stop()
    spans = {span.name: span for span in kept.get_finished_spans()}
    mine, run = spans["mine"], spans["invoke_agent spindle"]
    assert run.parent is not None and run.parent.span_id == mine.context.span_id
