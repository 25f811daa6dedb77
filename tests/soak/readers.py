"""Clients that read slowly, not at all, or vanish, on pipes and on WebSockets.

An agent whose client does not read waits and stays small, and loses nothing when it is read on. A client that is gone
ends the process (pipes) or only itself (server), where everyone else is served all the time.
"""

import json
import random
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.soak.attack import Attack, SoakAgent, Vitals, until
from tests.support.mock_model import reply
from tests.wires.server.server import ServerProcess

LIMIT_MIB = 200
ENDED_MIB = 120
"""When all sessions but one have ended."""
PIECES = [f"{number:06d} " * 60 for number in range(1500)]
SMALL = "A client that does not read costs no memory"
RESET = struct.pack("ii", 1, 0)


class Pipes(Attack):
    name = "pipes"
    share = 0.7

    def round(self, chance: random.Random) -> None:
        with SoakAgent([reply(*PIECES)], read=False, args=["--updates", chance.choice(["full", "delta"])]) as agent:
            agent.write(b'{"id":"p","type":"prompt","message":"go"}\n')
            if chance.random() < 0.3:
                self.vanish(agent, chance)
            else:
                self.read_slowly(agent, chance)

    def read_slowly(self, agent: SoakAgent, chance: random.Random) -> None:
        out, text, settled = agent.process.stdout, "", False
        assert out is not None
        until(lambda: Vitals.of(agent.process.pid).rss_mib > LIMIT_MIB, chance.random())
        for number, line in enumerate(out):
            if number % 20 == 0:
                time.sleep(chance.choice([0, 0, 0.002, 0.02]))
                rss = Vitals.of(agent.process.pid).rss_mib
                self.must(SMALL, rss < LIMIT_MIB, f"{rss:.0f} MiB")
            frame = json.loads(line)
            if frame["type"] == "message_update" and frame["assistantMessageEvent"]["type"] == "text_delta":
                text += frame["assistantMessageEvent"]["delta"]
            settled = frame["type"] == "agent_settled"
            if settled:
                break
        self.must("A slow reader loses nothing", settled and text == "".join(PIECES), f"{len(text)} characters")
        self.figures["slow readers"] += 1

    def vanish(self, agent: SoakAgent, chance: random.Random) -> None:
        out = agent.process.stdout
        assert out is not None
        for _ in range(chance.randrange(1, 20)):
            out.readline()
        out.close()
        with suppress(BrokenPipeError):  # it may have ended already
            agent.write(b'{"type":"get_state"}\n')
        self.must("A process without a reader ends", until(lambda: agent.process.poll() is not None, 10))
        self.figures["vanished readers"] += 1


class Sockets(Attack):
    name = "sockets"
    share = 0.7

    def start(self) -> None:
        options = ["--remote-option", "keep_seconds=1", "--remote-option", "viewer_stall_timeout=1"]
        self.server = self.stack.enter_context(ServerProcess([reply(*PIECES)], args=[*options, "--no-session"]))
        self.witness = self.stack.enter_context(self.server.rpc())

    def round(self, chance: random.Random) -> None:
        clients = [self.client(chance) for _ in range(chance.randrange(1, 8))]
        began = time.monotonic()
        self.must("Others are served", self.witness.call("get_state")["success"])
        self.must("Others are served at once", time.monotonic() - began < 5, time.monotonic() - began)
        for client in clients:
            self.leave(client, chance)
        if self.number % 10 == 3:
            until(lambda: len(self.witness.call("list_live_sessions")["data"]["sessions"]) == 1, 20)
            until(lambda: self.rss() < ENDED_MIB, 10)
            self.must("A session that has ended is freed", self.rss() < ENDED_MIB, f"{self.rss():.0f} MiB")
        self.must("No error of ours reaches stderr", "Traceback" not in self.server.stderr, self.server.stderr[-1500:])
        self.server.mock.requests.clear()

    def rss(self) -> float:
        return Vitals.of(self.server.process.pid).rss_mib

    def client(self, chance: random.Random) -> Any:
        """Connect, ask for a long answer, and do not read it."""
        if chance.random() < 0.5:
            client = self.server.chat(max_queue=1, close_timeout=0.2)
            client.send("r", {"Text": "go"}, stream=True)
        else:
            client = self.server.rpc(max_queue=1, close_timeout=0.2)
            client.write(json.dumps({"id": "p", "type": "prompt", "message": "go"}))
        self.figures["connections"] += 1
        return client

    def leave(self, client: Any, chance: random.Random) -> None:
        """Go: with a goodbye, with a reset, or in the middle of a frame. The server may have closed it before."""
        wire, way = client.socket.socket, chance.choice(["goodbyes", "resets", "half frames"])
        self.figures[way] += 1
        with suppress(OSError):
            if way == "resets":
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                wire.shutdown(socket.SHUT_RD)
                wire.close()
            elif way == "half frames":
                wire.sendall(b"\x81\xfe\xff")
                wire.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            client.socket.close()

    def finish(self) -> None:
        """Without clients, the server holds no more connections than it began with."""
        few = Vitals.of(self.server.process.pid).children
        self.must("No child is left", few <= 1, few)  # a supervisor waits for the next git of a checkpoint
        gone = until(lambda: connections(self.server) <= 1, 20)
        self.must("A connection that ended is let go", gone, connections(self.server))
        self.notes.append(f"RSS {Vitals.of(self.server.process.pid).rss_mib:.0f} MiB at the end")


def connections(server: ServerProcess) -> int:
    """Count the server's open connections to clients, by the kernel's table."""
    port = f":{server.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)
