"""The TypeScript client in a browser: a page of another site talks to a server that lets it in, by WebSocket and HTTP.

Needs `tsc` in SPINDLE_TEST_NODE_MODULES. `make clients` tries the same client in node.
"""

import os
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.mock_model import call, reply
from tests.wires.server.server import ServerProcess

from .pages import Pages

CLIENT = Path(__file__).parents[2] / "clients/typescript"
TSC = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nowhere")) / ".bin/tsc"
PAGE = """<!doctype html><title>A page</title><pre id="out"></pre><script type="module">
import { Client, HttpServer, connectSocket } from './index.js';
const out = document.getElementById('out');
const tell = text => (out.textContent += text + '\\n');
const address = location.hash.slice(1);
const tool = { name: 'page_title', description: 'The title of the page.', run: () => document.title };
const agent = await Client.connect(await connectSocket(`ws://${address}/rpc`), { tools: [tool] });
for await (const event of agent.run('Which page is this?'))
  if (event.type === 'tool_execution_end') tell(event.toolName + ': ' + event.result.content[0].text);
tell('socket: ' + (await agent.call('get_last_assistant_text')).text);
await agent.close();
const session = await new HttpServer(`http://${address}`).open({});
const stop = new AbortController();
let reason = '';
for await (const event of session.events(stop.signal)) {
  if (event.type === 'ready') session.ask('And here?').then(text => tell('http: ' + text));
  if (event.type === 'agent_settled') { reason = event.stopReason; stop.abort(); }
}
while (!out.textContent.includes('http: ')) await new Promise(again => setTimeout(again, 10));
tell(reason);
try { await session.call('set_model', { provider: 'no', modelId: 'such' }); } catch (error) { tell(error.name); }
tell('over');
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.mark.skipif(not TSC.exists(), reason="SPINDLE_TEST_NODE_MODULES has no tsc")
def test_a_page_of_another_site_uses_the_client(browser: Pages, tmp_path: Path) -> None:
    site = tmp_path / "site"
    options = ["--outDir", str(site), "--declaration", "false"]  # types of node may be missing: it is made nevertheless
    subprocess.run([TSC, "-p", CLIENT / "tsconfig.build.json", *options], capture_output=True, timeout=100)
    for_browsers = [site / f"{name}.js" for name in ("index", "client", "http", "transport", "protocol")]
    assert not any("node:" in file.read_text() for file in for_browsers)
    (site / "index.html").write_text(PAGE)
    steps = [reply(call("page_title", {})), reply("It is ", "a page."), reply("By HTTP.")]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        own = f"http://127.0.0.1:{web.server_port}"
        with ServerProcess(steps, base=tmp_path, args=["--remote-origin", own]) as server:
            address = server.address
            lease = browser.take(own, f"http://{address}", f"ws://{address}")
            lease.page.goto(f"{own}/index.html#{address}")
            try:
                lease.page.wait_for_function("out.textContent.includes('over')", timeout=30_000)
            finally:
                shown = lease.page.text_content("#out")
                trouble = [line for line in lease.trouble if "status of 4" not in line]
                web.shutdown()
            assert shown == "page_title: A page\nsocket: It is a page.\nhttp: By HTTP.\nend\nCommandFailed\nover\n"
            assert trouble == []
            browser.give_back(lease)
