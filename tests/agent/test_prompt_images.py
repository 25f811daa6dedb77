"""Images of a prompt: what is none is refused before it is stored, and a URL is fetched when the prompt is taken."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.images import PIXEL

from .rig import Rig, run


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = {"/a.txt": base64.b64decode(PIXEL), "/text": b"<html>"}.get(self.path)
            if self.path == "/big":
                body = base64.b64decode(PIXEL) + bytes(21 << 20)
            self.send_response(200 if body else 404)
            self.end_headers()
            try:
                self.wfile.write(body or b"")
            except OSError:
                pass  # the client has seen enough

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ({"data": "%%%", "mimeType": "image/png"}, "not valid base64"),
        ({"data": "", "mimeType": "image/png"}, "its content is empty"),
        ({"data": base64.b64encode(b"hello").decode(), "mimeType": "image/png"}, "not an image that models take"),
        ({"data": base64.b64encode(b"%PDF-1.7").decode(), "mimeType": "image/jpeg"}, "not an image that models take"),
        ({"mimeType": "image/png"}, "must have data"),
        ("x", "must be an object"),
        ({"source": {"type": "file", "path": "/x"}}, "must be base64 or url"),
        ({"source": {"type": "url", "url": "file:///etc/passwd"}}, "only http, https and data URLs"),
        ({"source": {"type": "url", "url": "data:image/png;base64,!!"}}, "not valid base64"),
        ({"source": {"type": "url", "url": "http://127.0.0.1:1/x.png"}}, "cannot be fetched"),
    ],
)
@pytest.mark.parametrize("command", ["prompt", "steer"])
def test_what_is_no_image_is_refused(tmp_path, image, why, command):
    async def main():
        async with Rig(tmp_path) as rig:
            refused = await rig.call(command, message="look", images=[image])
            assert not refused["success"] and "images[0]" in refused["error"] and why in refused["error"]
            assert rig.roles() == [] and (await rig.data("get_state"))["pendingMessageCount"] == 0

    run(main())


def test_the_type_is_that_of_the_content(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            await rig.call("prompt", message="look", images=[{"data": PIXEL, "mimeType": "text/plain"}])
            await rig.until("agent_settled")
            (_, image) = (await rig.data("get_messages"))["messages"][0]["content"]
            assert image == {"type": "image", "data": PIXEL, "mimeType": "image/png"}

    run(main())


@pytest.mark.parametrize("kind", ["http", "data"])
def test_an_image_by_its_address(tmp_path, server, kind):
    url = f"{server}/a.txt" if kind == "http" else f"data:image/gif;base64,{PIXEL}"

    async def main():
        async with Rig(tmp_path) as rig:
            await rig.call("prompt", message="look", images=[{"type": "image", "source": {"type": "url", "url": url}}])
            await rig.until("agent_settled")
            assert (await rig.data("get_messages"))["messages"][0]["content"][1]["data"] == PIXEL

    run(main())


@pytest.mark.parametrize(("path", "why"), [("/no", "answered 404"), ("/text", "not an image"), ("/big", "larger than")])
def test_what_is_at_the_address_is_checked(tmp_path, server, path, why):
    async def main():
        async with Rig(tmp_path) as rig:
            image = {"source": {"type": "url", "url": server + path}}
            refused = await rig.call("prompt", message="look", images=[image])
            assert why in refused["error"] and rig.roles() == []

    run(main())
