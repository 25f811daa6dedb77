"""Networks that break, servers that stop, and clients that come back."""

import asyncio
import json
import signal
import socket

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.mock_model import reply, stall

from .inside import run, until
from .server import ServerProcess
from .test_hostile import UPGRADE
from .test_races import GATED


class Network:
    """A relay between client and server that can go silent, as a phone in a tunnel does, or break."""

    def __init__(self, address):
        self._target = address.split(":")
        self._pipes = []
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.silence()
        self.cut()
        self._server.close()

    async def _relay(self, reader, writer):
        there, back = await asyncio.open_connection(self._target[0], int(self._target[1]))
        self._writers += [writer, back]
        self._pipes += [asyncio.create_task(self._pipe(*way)) for way in ((reader, back), (there, writer))]

    async def _pipe(self, reader, writer):
        while data := await reader.read(65536):
            writer.write(data)

    def silence(self):
        """Carry nothing any more, and tell nobody."""
        for pipe in self._pipes:
            pipe.cancel()

    def cut(self):
        for writer in self._writers:
            writer.transport.abort()


def through(network):
    """Return options that lead a connection through the relay; the address it asks for stays the server's."""
    return {"host": "127.0.0.1", "port": network.port, "close_timeout": 0.1}


@pytest.mark.parametrize("how", ["silence", "cut"])
def test_the_network_dies_in_mid_stream_and_the_session_goes_on(tmp_path, how):
    async def story(world):
        async with Network(world.address) as network, world.chat(**through(network)) as lost:
            id = await lost.session_id()
            await lost.ask("a", {"Text": "a long story"}, stream=True)
            getattr(network, how)()
            begin = asyncio.get_running_loop().time()
            async with world.chat(f"?session={id}") as back:
                answer = await back.ask("b", {"Text": "go on"})
                assert answer["response"] == {"Text": "and then"}
                assert asyncio.get_running_loop().time() - begin < 5, "nobody waits for the dead"
                history = await back.ask("h", {"Instruction": {"command": "history"}})
                assert history["response"]["Text"].splitlines()[:2] == ["[user] a long story", "[assistant] one "]

    run(story, [GATED, "and then"], tmp_path)


def test_an_rpc_client_gets_what_it_missed(tmp_path):
    def text(frames):
        pieces = [frame["assistantMessageEvent"] for frame in frames if frame["type"] == "message_update"]
        return "".join(piece["delta"] for piece in pieces if piece["type"] == "text_delta")

    async def story(world):
        async with Network(world.address) as network, world.rpc(**through(network)) as lost:
            await lost.call("set_update_mode", mode="delta")
            seen, count = [], lost.ready["eventCount"]
            await lost.socket.send(json.dumps({"type": "prompt", "message": "hi"}))
            while text(seen) != "one ":
                seen.append(await lost.read())
            count += sum(frame["type"] != "response" for frame in seen)
            network.silence()
            world.script.release("go")
            query = f"?session={lost.ready['sessionId']}&since={count}"
            async with world.rpc(query) as back:
                assert back.ready["replay"] is True and back.ready["eventCount"] == count
                while seen[-1]["type"] != "agent_settled":
                    seen.append(await back.read())
                assert text(seen) == "one two"

    run(story, [GATED], tmp_path)


def test_numbers_of_a_former_life_of_a_session_mean_nothing(tmp_path):
    async def story(world):
        async with world.rpc() as client:
            await client.call("prompt", message="hi")
            await client.wait("agent_settled")
            id = client.ready["sessionId"]
        await until(lambda: not world.pool._live and not world.pool._closing)
        async with world.rpc(f"?session={id}") as later:
            await later.call("prompt", message="again")
            await later.wait("agent_settled")
            async with world.rpc(f"?session={id}&since=3") as from_then:
                assert from_then.ready["replay"] is False
            last = later.ready["eventCount"]
            async with world.rpc(f"?session={id}&since={last}") as from_now:
                assert from_now.ready["replay"] is True and from_now.ready["eventCount"] == last

    run(story, ["yes"], tmp_path, keep_seconds=0)


def test_a_client_of_a_dialect_cannot_count_and_is_told_so(tmp_path):
    async def story(world):
        async with world.rpc("?dialect=pi-0.74") as client:
            query = f"?dialect=pi-0.74&since=0&session={client.ready['sessionId']}"
            async with world.rpc(query) as again:
                assert again.ready["replay"] is False

    run(story, ["yes"], tmp_path)


def test_a_server_that_stops_ends_what_runs_first():
    with ServerProcess([reply("once ", stall())]) as server:
        with server.chat() as chat, server.rpc() as rpc:
            assert chat.ask("a", {"Text": "go"}, stream=True)["response"] == {"Stream": "once "}
            rpc.call("prompt", message="go")
            rpc.wait("message_update")
            assert server.stop() == 0
            assert chat.read()["response"] == {"Complete": {"token_usage": None, "interrupted": True}}
            with pytest.raises(ConnectionClosed) as closed:
                chat.read()
            assert closed.value.rcvd.code == 1001
            assert rpc.wait("agent_settled")["aborted"] is True
        assert "Traceback" not in server.stderr


@pytest.mark.parametrize("impatient", [False, True])
def test_a_server_stops_in_time_whatever_clients_do(impatient):
    with ServerProcess() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as deaf:
        deaf.sendall(f"GET / HTTP/1.1\r\nHost: {server.address}\r\n{UPGRADE}\r\n".encode())
        assert b" 101 " in deaf.recv(1000)
        if impatient:
            server.process.send_signal(signal.SIGTERM)
            assert deaf.recv(100).startswith(b"\x88"), "a goodbye, which is never answered"
        assert server.stop() == (1 if impatient else 0)
