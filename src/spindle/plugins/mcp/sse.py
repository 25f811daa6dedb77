"""A server behind the HTTP transport of 2024: one stream of events brings all of its messages.

The first event names the address that our messages are posted to. Many servers have never moved on.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from spindle.base.strangers import StrangerError
from spindle.llm import http
from spindle.plugins.mcp import McpError, Message, Unreachable
from spindle.plugins.mcp.streamable import BROKEN, HttpTransport, ServerEvents
from spindle.shapes.codec import encode


class SseTransport(HttpTransport):
    paired = False

    async def open(self) -> None:
        await super().open()
        self._target: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._listen(), "spindle-mcp-sse", report=False)
        await self._target

    def handshaken(self, version: str) -> None:
        """Do nothing: the stream is open already."""

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        try:
            async with self._request("POST", headers, encode(message), await self._target) as response:
                if not 200 <= response.status < 300:
                    raise await self._refusal(response)
        except StrangerError as error:
            raise McpError(f"it sent {error}") from None
        except BROKEN as error:
            raise Unreachable(str(error)) from None

    async def _listen(self) -> None:
        """Read the stream to its end, which is the end of the connection."""
        failure = McpError("its stream of events has ended")
        try:
            async with self._request("GET", {"accept": "text/event-stream"}, None) as response:
                await self._take_stream(response)
        except McpError as error:
            failure = error
        except StrangerError as error:
            failure = McpError(f"it sent {error}")
        except BROKEN as error:
            failure = Unreachable(str(error))
        if self._target.done():
            self.closed(str(failure))
        else:
            self._target.set_exception(failure)

    async def _take_stream(self, response: http.HttpResponse) -> None:
        if response.status != 200:
            raise await self._refusal(response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise McpError(f'it answered with {kind or "nothing"} instead of a stream: is its type "http"?')
        await self._take_events(response, ServerEvents(self._patience, self._found), None)

    def _found(self, address: str) -> None:
        """Take the address for messages. Messages hold secrets, so they go to no other origin."""
        target = urljoin(self._url, address)
        here, there = urlsplit(self._url), urlsplit(target)
        if self._target.done():
            return
        if (here.scheme, here.netloc) == (there.scheme, there.netloc):
            self._target.set_result(target)
        else:
            self._target.set_exception(
                McpError(f"it wants messages at another origin: {there.scheme}://{there.netloc}")
            )
