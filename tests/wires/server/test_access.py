"""Who gets in on loopback: processes of the same user, and those with a token."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import pytest
from websockets.exceptions import InvalidStatus

from spindle.wires.network import access, requests
from spindle.wires.network.access import LONGEST_DELAY_S, REMEMBERED_ADDRESSES, Slowdown, can_tell, find_owner, owner
from tests.support.mock_model import reply

from .inside import run
from .server import TOKEN, ServerProcess
from .test_hostile import UPGRADE

PATHS = ["/", "/ws", "/rpc", "/healthz", "/page/chat/main.js", "/nothing"]
OTHER_USER = 65534
# Becomes a user, asks for each path, plainly and as a WebSocket, and prints the status lines.
ASK = """
import encodings.idna, os, socket, sys  # what is needed later, as long as it can be read
user, port, upgrade, *paths = sys.argv[1:]
if int(user) != os.geteuid():
    os.setuid(int(user))
for path in paths:
    for more in ("", upgrade):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as one:
            one.sendall(f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n{more}\\r\\n".encode())
            print(one.recv(12).decode().split()[1])
"""


def ask(port, extra="", *, user=None):
    """Return the status of every path, asked plainly and as a WebSocket, from a process of its own."""
    user = os.geteuid() if user is None else user
    command = [sys.executable, "-I", "-c", ASK, str(user), str(port), UPGRADE + extra, *PATHS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# -- other users ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0"])
def test_another_user_gets_nothing_whatever_the_path(address):
    with ServerProcess([reply("mine")], address=address) as server:
        assert set(ask(server.port, user=OTHER_USER)) == {"403"}
        assert ask(server.port) == ["200", "101", "426", "101", "426", "101", "200", "404", "200", "404", "404", "404"]
        with server.chat() as own:
            assert own.ask("a", {"Text": "hi"})["response"] == {"Text": "mine"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
def test_a_token_lets_any_user_in():
    with ServerProcess([reply("x")], env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        header = f"Authorization: Bearer {TOKEN}\r\n"
        assert ask(server.port, header, user=OTHER_USER)[1:6:2] == ["101"] * 3
        assert ask(server.port, user=OTHER_USER)[1:6:2] == ["401"] * 3
        assert ask(server.port)[1:6:2] == ["401"] * 3, "the same user, too: it may be a proxy for others"


def test_a_client_that_has_hung_up_is_not_taken_for_root():
    """Its socket is still listed, with the owner 0."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        theirs, ours = one.getsockname(), listening.getsockname()
        assert owner(theirs, ours) == os.geteuid()
        one.close()
        assert owner(theirs, ours) is None


@pytest.mark.parametrize(
    "listens, connects", [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1"), ("::1", "::1")]
)
def test_the_owner_of_any_kind_of_socket(listens, connects):
    family = socket.AF_INET6 if ":" in connects else socket.AF_INET
    kind = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(socket.create_server((listens, 0), family=kind))
            one = stack.enter_context(socket.socket(family))
        except OSError:
            pytest.skip("no IPv6 here")
        one.connect((connects, listening.getsockname()[1]))
        there, _ = listening.accept()
        with there:
            assert owner(there.getpeername()[:2], there.getsockname()[:2]) == os.geteuid()


# -- the table ------------------------------------------------------------------------------------

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local, remote, state="01", user=1000, inode=77):
    rest = f"00000000:00000000 00:00000000 00000000 {user:5d} 0 {inode} 1 0 20 4 30 10 -1"
    return f"   1: {local} {remote} {state} {rest}\n".encode()


THEIRS, OURS = ("127.0.0.1", 0xD2A4), ("127.0.0.1", 0x1F90)
if sys.byteorder == "little":
    WORD, MAPPED = "0100007F", "0000000000000000FFFF00000100007F"
else:
    WORD, MAPPED = "7F000001", "00000000000000000000FFFF7F000001"


@pytest.mark.parametrize(
    "rows, found",
    [
        ([], None),
        ([row(f"{WORD}:D2A4", f"{WORD}:1F90")], 1000),
        ([row(f"{MAPPED}:D2A4", f"{MAPPED}:1F90", user=5)], 5),
        ([row(f"{WORD}:1F90", f"{WORD}:D2A4", user=1), row(f"{WORD}:D2A4", f"{WORD}:1F90", user=2)], 2),  # our own end
        ([row(f"{WORD}:1F90", f"{WORD}:D2A4")], None),
        ([row(f"{WORD}:D2A5", f"{WORD}:1F90")], None),
        ([row(f"{WORD}:D2A4", f"{WORD}:1F90", inode=0, user=0)], None),
        ([row(f"{WORD}:D2A4", f"{WORD}:1F90", state="06")], None),
        ([row(f"{WORD}:D2A4", f"{WORD}:1F90", state="05")], None),
        ([row(f"{WORD}:D2A4", f"{WORD}:1F90")[:60]], None),  # cut
    ],
)
def test_reading_the_table(rows, found):
    assert find_owner(HEAD + b"".join(rows), THEIRS, OURS) == found


def test_a_long_table_is_searched_quickly():
    table = HEAD + b"".join(row(f"{WORD}:{n % 65536:04X}", f"0200007F:{n % 60000:04X}") for n in range(200_000))
    table += row(f"{WORD}:D2A4", f"{WORD}:1F90")
    begin = time.thread_time()
    assert find_owner(table, THEIRS, OURS) == 1000
    assert time.thread_time() - begin < 0.5


# -- where the system cannot tell -----------------------------------------------------------------


def test_where_owners_cannot_be_found_a_token_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "TABLES", ("/nowhere",))
    assert not can_tell()

    async def story(world):
        address, _, token = world.address.partition("/#token=")
        world.address = address
        assert len(token) > 40
        for path in ("/", "/rpc"):
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                with pytest.raises(InvalidStatus) as refused:
                    async with world.chat(path.removeprefix("/"), additional_headers=headers):
                        pass
                assert refused.value.response.status_code == 401
        async with world.chat(additional_headers={"Authorization": f"Bearer {token}"}) as client:
            assert (await client.ask("a", {"Text": "hi"}))["response"] == {"Text": "yes"}

    run(story, ["yes"], tmp_path)


def test_a_connection_whose_owner_is_not_found_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "owner", lambda theirs, ours: None)

    async def story(world):
        with pytest.raises(InvalidStatus) as refused:
            async with world.chat():
                pass
        assert refused.value.response.status_code == 403

    run(story, ["yes"], tmp_path)


# -- wrong tokens ---------------------------------------------------------------------------------


def test_wrong_tokens_wait_longer_each_time_and_a_right_one_never(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "FIRST_DELAY_S", 0.05)

    async def story(world):
        loop = asyncio.get_running_loop()

        async def try_token(token):
            begin = loop.time()
            with contextlib.suppress(InvalidStatus):
                async with world.chat(additional_headers={"Authorization": f"Bearer {token}"}):
                    pass
            return loop.time() - begin

        took = [await try_token("wrong") for _ in range(4)]
        assert all(time > 0.05 * 2**number for number, time in enumerate(took)), took
        right, wrong = await asyncio.gather(try_token(TOKEN), try_token("wrong"))
        assert right < 0.8 < wrong

    run(story, ["yes"], tmp_path, token=TOKEN)


def test_delays_and_what_is_remembered_of_them_are_bounded():
    slowdown = Slowdown()
    for _ in range(2000):
        longest = slowdown.delay("10.0.0.1")
    assert longest == LONGEST_DELAY_S
    assert slowdown.delay("2001:db8::1") < slowdown.delay("2001:db8::2"), "one machine has many such addresses"
    for number in range(3 * REMEMBERED_ADDRESSES):
        slowdown.delay(f"10.1.{number >> 8}.{number & 255}")
    assert len(slowdown._wrong) == REMEMBERED_ADDRESSES


# -- questions ------------------------------------------------------------------------------------


def test_the_first_of_two_answers_counts(tmp_path):
    answers = []

    def extension(api):
        @api.on("before_agent_start")
        async def ask_user(event, ctx):
            answers.append(await ctx.ui.confirm("Go on?", "really"))

    async def story(world):
        async with world.rpc() as one, world.rpc(f"?session={one.ready['sessionId']}") as two:
            await one.socket.send(json.dumps({"type": "prompt", "message": "hi"}))
            asked = await one.wait("extension_ui_request")
            for client, choice in ((one, True), (two, False)):
                answer = {"type": "extension_ui_response", "id": asked["id"], "confirmed": choice}
                await client.socket.send(json.dumps(answer))
            for client in (one, two):
                over = await client.wait(lambda frame: frame.get("method") == "cancel")
                assert over["targetId"] == asked["id"]
                await client.wait("agent_settled")
        assert answers == [True]

    run(story, ["yes"], tmp_path, extension=extension)
