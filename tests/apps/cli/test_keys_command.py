"""`spindle keys`, and the one text that is told when there is no model."""

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spindle.apps.cli.models_command import SMALL
from spindle.models.model_registry import NO_MODEL
from tests.support.mock_model import MockModel, reply

from .conftest import Place

PAGE = Path(__file__).parents[3] / "src/spindle/web/chat/index.html"


def stored(place: Place) -> Any:
    path = place.agent / "auth.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [name for name in os.listdir(place.agent) if "auth.json" in name] == ["auth.json"]
    return json.loads(path.read_text())


def test_a_key_is_stored_listed_used_and_removed(place: Place) -> None:
    login = {"type": "oauth", "access": "a-token", "refresh": "r", "expires": 9e15}
    place.write("agent/auth.json", {"openai-codex": login})
    with MockModel([reply("Fine.")]) as mock:
        models = [{"id": "m1", "name": "M1"}]
        spec = {"baseUrl": mock.openai_url, "api": "openai-completions", "apiKey": "$NOT_SET", "models": models}
        place.write("agent/models.json", {"providers": {"Mine": spec}})
        done = place.run("keys", "set", "Mine", stdin="  sk-1$x\n")
        assert (done.returncode, done.stderr) == (0, "") and "sk-1" not in done.stdout
        assert stored(place) == {"openai-codex": login, "Mine": {"type": "api_key", "key": "sk-1$$x"}}
        assert place.run("--model", "Mine/m1", "-p", "hello").stdout == "Fine.\n"
        assert mock.requests[0].headers["authorization"] == "Bearer sk-1$x"
    listed = place.run("keys", "list", env={"GROQ_API_KEY": "sk-2"}).stdout
    assert re.findall(r"^(\S+) +(.*)$", listed, re.M) == [
        ("groq", "GROQ_API_KEY"),
        ("openai-codex", "auth.json (login)"),
        ("Mine", "auth.json"),
    ]
    assert place.run("keys", "remove", "Mine").returncode == 0
    assert stored(place) == {"openai-codex": login}


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["set", "anthropic", "sk-secret"], "", "A key is no argument"),
        (["sk-secret"], "", "A key is no argument"),
        (["set", "--key=sk-secret", "anthropic"], "", "A key is no argument"),
        (["set", "sk-secret"], "x", "There is no provider of that name"),
        (["set", "antropic"], "sk-secret", "Did you mean anthropic?"),
        (["set", "gemini"], "sk-secret", "Did you mean google?"),
        (["set", "anthropic"], "", "No key was given"),
        (["set", "anthropic"], "sk-secret and more", "That is no key"),
        (["set", "anthropic"], "sk-secretß", "That is no key"),
        (["remove", "anthropic"], "", "has no key of anthropic"),
    ],
)
def test_a_refusal_repeats_no_key(place: Place, arguments: list[str], stdin: str, told: str) -> None:
    done = place.run("keys", *arguments, stdin=stdin)
    assert done.returncode in (1, 2) and done.stdout == "" and "Traceback" not in done.stderr
    assert told in done.stderr and "secret" not in done.stderr
    assert not (place.agent / "auth.json").exists()


def test_a_file_that_cannot_be_read_stays_as_it_is(place: Place) -> None:
    path = place.write("agent/auth.json", '{"anthropic": {"type": "api_key", "key": "sk-old"},}')
    done = place.run("keys", "set", "anthropic", stdin="sk-new")
    assert done.returncode == 1 and "auth.json" in done.stderr and "sk-" not in done.stderr
    assert "sk-old" in path.read_text()


def test_many_at_once(place: Place) -> None:
    names = ["anthropic", "openai", "google", "groq", "xai", "mistral"]
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda name: place.run("keys", "set", name, stdin=f"sk-{name}"), names))
    assert [one.returncode for one in done] == [0] * 6
    assert stored(place).keys() == set(names)


def test_no_model_is_one_text_everywhere(place: Place) -> None:
    assert NO_MODEL.count("\n") == 2 and max(map(len, NO_MODEL.splitlines())) <= 80
    assert f"({SMALL.download / 1_000_000:.0f} MB)" in NO_MODEL
    assert place.run("-p", "hello").stderr == f"Error: {NO_MODEL}\n"
    assert place.run("models").stdout == f"{NO_MODEL}\n"
    ways = place.run("doctor").stdout.partition("none yet. Ways to one:\n")[2].splitlines()
    assert ways[0] == "    Sign in: GitHub Copilot: spindle login github-copilot"
    assert ways[4] == "    Get a small model that runs right here (93 MB): spindle models pull smollm2"
    refused = place.run("--mode", "rpc", stdin='{"type":"prompt","message":"hello"}\n').stdout
    assert json.dumps(NO_MODEL, ensure_ascii=False)[1:-1] in refused
    # On the page there is a button in its place, which leads to the same list.
    assert re.search(r'<p id="no-model".*id="connect-model".*spindle keys set PROVIDER', PAGE.read_text())
