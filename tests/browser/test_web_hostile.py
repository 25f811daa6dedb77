"""Pages of other sites in the same browser: whatever they try, the agent does not get it."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import ServerProcess

from .conftest import CHROMIUM, FLAGS

pytestmark = pytest.mark.timeout(120)

REBOUND = "rebound.example"
"""A name of the attacker's that points at this machine."""
ATTACK = """
async host => {
  const results = {};
  const socket = (name, url, protocols) => new Promise(resolve => {
    const ws = new WebSocket(url, protocols);
    ws.onmessage = ({ data }) => { results[name] = `heard ${data}`; resolve(); };
    ws.onopen = () => { results[name] = 'open'; ws.send('{"type":"bash","command":"touch pwned"}'); };
    ws.onclose = () => { results[name] ??= 'refused'; resolve(); };
  });
  const attempt = async (name, action) => {
    try { results[name] = await action(); } catch { results[name] = 'refused'; }
  };
  await Promise.all([
    socket('rpc', `ws://${host}/rpc`),
    socket('chat', `ws://${host}/`),
    socket('named', `ws://${host}/rpc`, ['spindle']),
    attempt('read', async () => (await fetch(`http://${host}/healthz`)).text()),
    attempt('blind', async () => (await fetch(`http://${host}/page/chat/main.js`, { mode: 'no-cors' })).type),
    attempt('post', async () => (await fetch(`http://${host}/rpc`, {
      method: 'POST', mode: 'no-cors', body: '{"type":"bash","command":"touch pwned"}' })).type),
    attempt('import', async () => Object.keys(await import(`http://${host}/page/shared/format.js`)).join()),
    attempt('script', () => new Promise((resolve, reject) => {
      const script = document.createElement('script');
      script.src = `http://${host}/page/shared/theme.js`;
      script.onload = () => resolve('loaded');
      script.onerror = reject;
      document.head.append(script);
    })),
  ]);
  return results;
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve an empty page of another site."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>free games</title>")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_port
        site.shutdown()


@pytest.fixture(scope="module")
def rebinding() -> Iterator[Any]:
    """A browser in which the attacker's name leads to this machine."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path (or in SPINDLE_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        rules = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, rules])
        yield browser
        browser.close()


@pytest.mark.parametrize("site", ["127.0.0.1", "localhost", REBOUND])
@pytest.mark.parametrize("target", ["127.0.0.1", "localhost", REBOUND])
def test_a_page_of_another_site_gets_nothing(
    rebinding: Any, server: ServerProcess, port: int, site: str, target: str
) -> None:
    page = rebinding.new_page()
    page.goto(f"http://{site}:{port}/")
    results = page.evaluate(ATTACK, f"{target}:{server.port}")
    assert len(results) == 8 and set(results.values()) == {"refused"}, results
    assert not (server.cwd / "pwned").exists()
    page.close()


def test_a_name_that_was_rebound_gets_nothing(rebinding: Any, server: ServerProcess) -> None:
    # The attacker's page came from this very name and port, so for the browser it is our own site.
    page = rebinding.new_page()
    answer = page.goto(f"http://{REBOUND}:{server.port}/")
    assert answer.status == 403 and "Host not allowed" in answer.text()
    results = page.evaluate(ATTACK, f"{REBOUND}:{server.port}")
    assert {results[name] for name in ("rpc", "chat", "named", "import", "script")} == {"refused"}, results
    assert results["read"].startswith("Host not allowed: ") or results["read"] == "refused"
    assert not (server.cwd / "pwned").exists()
    page.close()


def test_our_page_cannot_be_framed(rebinding: Any, server: ServerProcess, port: int) -> None:
    page = rebinding.new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    frame = "url => new Promise(r => { const f = document.createElement('iframe'); f.src = url; f.onload = r;"
    page.evaluate(frame + " document.body.append(f) })", f"http://{server.address}/")
    assert page.frames[1].evaluate("document.getElementById('prompt')") is None
    page.close()
