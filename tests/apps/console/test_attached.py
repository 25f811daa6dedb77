"""The chat as a client of a server."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.apps.cli.conftest import Place

from .conftest import Chat
from .terminal import PROMPT, Terminal


@contextmanager
def serving(
    place: Place, *steps: object, arguments: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server and its address."""
    server = place.start("--remote", "127.0.0.1:0", "--model", place.script(*steps), *arguments)
    assert server.stderr is not None and server.stdout is not None
    try:
        heard = server.stderr.readline().decode()
        address = re.search(r"http://([\d.:]+)/", heard)
        assert address, heard
        yield server, address[1]
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
        server.stdout.close()


def test_attached_to_a_server(place: Place) -> None:
    def attached(*arguments: str) -> Terminal:
        return Terminal(["--attach", f"ws://{address}", *arguments], env=place.environment(), cwd=place.project)

    with serving(place, {"match": "slow", "text": ["First.\n\nBe", {"wait": 30}]}, "Fine.") as (server, address):
        with attached() as terminal:
            terminal.wait_for(f"Spindle at ws://{address}", "0% of 1")
            terminal.enter("hello")
            terminal.wait_for("❯ hello\n\nFine.", PROMPT)
            terminal.enter("/share-link")
            link = re.search(rf"http://{address}/#(\S+)", terminal.wait_for("the server's token"))
            assert link
            with attached("--session", link[1]) as other:
                other.wait_for("❯ hello\n\nFine.", PROMPT)
                other.enter("slow")
                terminal.wait_for("❯ slow\n\nFirst.\n\nBe\n❯\n")  # both see it
                with attached("--session", link[1]) as late:
                    late.wait_for("❯ slow\n", "Working")
                    terminal.keys("\x1b")
                    other.wait_for("Be\n\nInterrupted")
                    late.wait_for("❯ slow\n\nFirst.\n\nBe\n\nInterrupted\n")  # all of what had begun before it came
            terminal.keys("half a message")
            terminal.wait_for("❯ half a message")
            server.kill()
            assert terminal.wait_exit() == 1
            assert terminal.is_restored() and "The connection was lost" in terminal.text
            assert "+half a message" in (place.agent / "chat_history").read_text()
        with attached() as terminal:
            terminal.wait_for("Error: --attach: Cannot connect")
            assert terminal.wait_exit() == 1


def test_the_end_of_a_server_is_told_once(place: Place) -> None:
    with (
        serving(place, {"text": ["Be", {"wait": 30}]}) as (server, address),
        Terminal(["--attach", f"ws://{address}"], env=place.environment(), cwd=place.project) as terminal,
    ):
        terminal.wait_for("0% of 1")
        terminal.enter("go")
        terminal.wait_for("Be\n❯\n")
        server.terminate()
        assert terminal.wait_exit() == 1
        assert terminal.text.endswith("\nError: The connection was lost: the server is shutting down"), terminal.text
        assert terminal.text.count("connection was lost") == 1, terminal.text


def test_what_was_typed_before_a_question_outlives_the_server(place: Place) -> None:
    call = {"delay": 1, "calls": [{"name": "bash", "arguments": {"command": "touch a"}}]}
    with (
        serving(place, call, arguments=["--permission-mode", "default"]) as (server, address),
        Terminal(["--attach", f"ws://{address}"], env=place.environment(), cwd=place.project) as terminal,
    ):
        terminal.wait_for("0% of 1")
        terminal.enter("go")
        terminal.wait_for("Working")
        terminal.keys("half a message")
        terminal.wait_for("Allow bash? touch a", "n  Deny\n?", without="half a message")
        server.kill()
        assert terminal.wait_exit() == 1
    assert "+half a message" in (place.agent / "chat_history").read_text()


def test_a_question_finds_those_who_come_later(place: Place, chat: Chat) -> None:
    call = {"match": "go", "calls": [{"name": "bash", "arguments": {"command": "touch a"}}]}
    mode = ["--permission-mode", "default"]
    with serving(place, call, {"match": "go", "text": "Done."}, "Hi.", arguments=mode) as (_, address):
        attach = ["--attach", f"ws://{address}"]
        with Terminal(attach, env=place.environment(), cwd=place.project) as terminal:
            terminal.wait_for("0% of 1")
            terminal.enter("go")
            terminal.wait_for("Allow bash? touch a", "n  Deny\n?")
            with Terminal([*attach, "-r"], env=place.environment(), cwd=place.project) as other:
                other.wait_for("Which session?")
                other.quiet()
                other.keys("\r")
                other.wait_for("❯ go\n\nAllow bash? touch a", "n  Deny\n?")
            with Terminal(attach, env=place.environment(), cwd=place.project) as other:
                other.wait_for("0% of 1")
                other.enter("/resume go")
                other.wait_for("❯ go\n\nAllow bash? touch a", "n  Deny\n?")
            with Terminal([*attach, "-c", "and hello"], env=place.environment(), cwd=place.project) as other:
                other.wait_for("❯ go\n\nAllow bash? touch a", "n  Deny\n?")
                terminal.wait_for("1 queued")
                other.quiet()
                other.keys("y")
                other.wait_for("Done.", "❯ and hello\n\nHi.")
            terminal.wait_for("Done.", "❯ and hello\n\nHi.", PROMPT)
            chat("my own").wait_for("Fine.")
            terminal.enter("/resume own")  # another process holds it
            terminal.wait_for("Session is in use by process", PROMPT)
    assert (place.project / "a").exists()
