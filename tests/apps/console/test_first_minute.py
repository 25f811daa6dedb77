"""The first minute of a person without a model: a list to choose from, and no key on the screen."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spindle.models.ways import may_be_shown, provider_of_word, providers_of_key

from ..cli.conftest import Place
from .terminal import Terminal

WHICH = "There is no model yet. Which one?"
KEY = "sk-ant-api03-" + "secretsecret" * 3


def auth(place: Place) -> object:
    path = place.agent / "auth.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def ollama() -> Iterator[str]:
    """A server with two models."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps({"data": [{"id": "qwen3:8b"}, {"id": "llama4"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("answer", ["\x1b", "\x03", "\x04"])
def test_it_can_be_left(place: Place, answer: str) -> None:
    with Terminal([], env=place.environment(), cwd=place.project, columns=80) as terminal:
        terminal.wait_for(WHICH, "Esc leaves\n?")
        terminal.keys(answer)
        assert terminal.wait_exit() == 0
        assert "No model was chosen" in terminal.text
    assert auth(place) is None


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_a_key_may_be_pasted_at_the_list(place: Place, size: tuple[int, int]) -> None:
    columns, lines = size
    with Terminal([], env=place.environment(), cwd=place.project, columns=columns, lines=lines) as terminal:
        terminal.wait_for("Esc" if columns > 60 else "or past", "\n?")
        terminal.keys(KEY)
        terminal.wait_for("? ****")
        terminal.keys("\r")
        terminal.wait_for("❯", "claude")
        assert b"secret" not in terminal.output
    assert auth(place) == {"anthropic": {"type": "api_key", "key": KEY}}


def test_a_word_for_a_product_asks_for_the_key_of_its_maker(place: Place) -> None:
    with Terminal([], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for(WHICH, "\n?")
        terminal.keys("claude")
        terminal.wait_for("? claude")
        terminal.keys("\r")
        terminal.wait_for("Key of anthropic (it is not shown)")
        terminal.keys("short-secret\n")
        terminal.wait_for("❯", "claude")
        assert b"secret" not in terminal.output
    assert auth(place) == {"anthropic": {"type": "api_key", "key": "short-secret"}}


def test_a_key_at_the_question_of_another_provider_goes_to_its_own(place: Place) -> None:
    with Terminal([], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for(WHICH, "\n?")
        terminal.keys("gpt\r")
        terminal.wait_for("Key of openai (it is not shown)")
        terminal.keys(f"{KEY}\n")
        terminal.wait_for("The key of anthropic is kept", "❯", "claude")
        assert b"secret" not in terminal.output
    assert auth(place) == {"anthropic": {"type": "api_key", "key": KEY}}


def test_a_wrong_word_is_no_end_and_is_not_repeated(place: Place) -> None:
    with Terminal([], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for(WHICH, "\n?")
        terminal.keys("unknown-secret-of-somebody\r")
        terminal.wait_for("not of whom: name its provider first. It was not kept", WHICH)
        assert b"secret" not in terminal.output
        terminal.keys("4\r")
        terminal.wait_for("A key of which provider?", "1. anthropic")
        terminal.keys("gsk_secretsecretsecretsecret\r")
        terminal.wait_for("The key of groq is kept in", "❯")
        assert b"secret" not in terminal.output


def test_a_server_on_this_machine_is_chosen_with_arrows(place: Place, ollama: str) -> None:
    env = place.environment({"OLLAMA_HOST": ollama})
    with Terminal(["-p", "hi"], env=env, cwd=place.project) as terminal:
        terminal.wait_for("> 1. qwen3:8b, of Ollama here\n  2. llama4, of Ollama here")
        terminal.keys("\x1b[B")
        terminal.wait_for("> 2. llama4, of Ollama here")
        terminal.keys("\r")
        terminal.wait_for("404")
        assert terminal.wait_exit() == 1
    with Terminal([], env=env, cwd=place.project) as terminal:
        terminal.wait_for("❯\nllama4")  # it is not asked again


def test_keys_over_a_slow_line_come_in_pieces_and_together(place: Place, ollama: str) -> None:
    with Terminal([], env=place.environment({"OLLAMA_HOST": ollama}), cwd=place.project) as terminal:
        terminal.wait_for("> 1. qwen3:8b", "\n?")
        terminal.keys("\x1b[B\x1b[B\x1b[A\x1b")
        terminal.keys("[")
        terminal.keys("B")
        terminal.wait_for("> 3. Sign in")
        terminal.keys("no such thing\r")
        terminal.wait_for("There is no provider of that name. Choose from the list", "> 1. qwen3:8b")
        terminal.keys("qwen\r")  # what is here comes before the providers that have it, too
        terminal.wait_for("New sessions begin with ollama/qwen3:8b", "❯\nqwen3:8b")


def test_a_dumb_terminal_gets_numbers(place: Place, ollama: str) -> None:
    env = place.environment({"OLLAMA_HOST": ollama, "TERM": "dumb"})
    with Terminal([], env=env, cwd=place.project) as terminal:
        terminal.wait_for("  2. llama4, of Ollama here", "Number, or a key (it is not shown; Enter leaves):")
        terminal.keys("2\n")
        terminal.wait_for("Spindle · ", "llama4")
        assert b"\x1b" not in terminal.output


def test_keys_of_pi_in_its_own_folder_are_offered(place: Place) -> None:
    place.write("home/.pi/agent/auth.json", {"groq": {"type": "api_key", "key": "gsk_secret"}, "x": {"type": "oauth"}})
    with Terminal([], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for("> 1. Use the keys of pi: groq\n", "\n?")
        terminal.keys("\r")
        terminal.wait_for("Kept in", "❯")
        assert b"secret" not in terminal.output
    assert auth(place) == {"groq": {"type": "api_key", "key": "gsk_secret"}}


def test_keys_and_words_are_recognised() -> None:
    long = "x" * 30
    assert providers_of_key(f"sk-ant-{long}") == ("anthropic",)
    assert providers_of_key(f"sk-or-v1-{long}") == ("openrouter",)
    assert providers_of_key(f"sk-{long}")[0] == "openai"
    assert providers_of_key(f"AIza{long}") == ("google",)
    assert providers_of_key("sk-ant-") == providers_of_key("gpt") == providers_of_key(f"sk-ant {long}") == ()
    words = {"Claude": "anthropic", "gpt-5": "openai", "gemini": "google", "groq": "groq", "nothing": None}
    assert {word: provider_of_word(word) for word in words} == words
    assert may_be_shown("cla") and not may_be_shown("sk-ant")


def test_login_in_the_chat_hides_a_key_at_the_wrong_question(place: Place) -> None:
    with Terminal(["--model", place.script("Fine.")], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for("0% of 1")
        terminal.enter("/login")
        terminal.wait_for("Which provider?")
        terminal.keys(KEY)
        terminal.wait_for("? *****", "(nothing fits)")
        terminal.keys("\x1b")
        terminal.wait_for("❯\n")
        terminal.enter("/login claude")
        terminal.wait_for("The API key of anthropic? It is not shown")
        assert b"secret" not in terminal.output
