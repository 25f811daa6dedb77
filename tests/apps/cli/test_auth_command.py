"""`spindle auth check`: a status on stdout and in the exit code, as pi has it."""

import json
from typing import Any

import pytest

from .conftest import Place

LOGIN = {"type": "oauth", "access": "a-token", "refresh": "r", "expires": 9e15}
READY = {"status": "ready", "provider": "groq", "authType": "api_key"}


def checked(place: Place, *arguments: str, **env: str) -> tuple[int, Any]:
    done = place.run("auth", "check", "--json", *arguments, env=env)
    assert "sk-" not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_status_of_a_provider(place: Place) -> None:
    assert checked(place, "--provider", "groq", GROQ_API_KEY="sk-1") == (0, READY)
    place.write("agent/auth.json", {"openai-codex": LOGIN, "mistral": {"type": "api_key", "key": "!exit 3"}})
    login = {"status": "ready", "provider": "openai-codex", "authType": "oauth"}
    assert checked(place, "--provider", "openai-codex") == (0, login)
    lacking = {"status": "not_ready", "provider": "groq", "reason": "credentials_not_configured"}
    assert checked(place, "--provider", "groq") == (1, lacking)
    unknown = {"status": "not_ready", "provider": "nobody", "reason": "provider_not_found"}
    assert checked(place, "--provider", "nobody") == (1, unknown)
    unusable = {"status": "not_ready", "provider": "mistral", "reason": "credentials_not_usable"}
    assert checked(place, "--provider", "mistral") == (1, unusable)
    assert checked(place, "--provider", "mistral", "--no-refresh")[0] == 0
    assert checked(place, "--model", "groq/llama-3.3-70b-versatile", GROQ_API_KEY="sk-1") == (0, READY)
    assert place.run("auth", "check", "--provider", "groq", env={"GROQ_API_KEY": "sk-1"}).stdout == "ready\n"


def test_files_that_cannot_be_read(place: Place) -> None:
    (place.agent / "auth.json").write_text("{")
    assert checked(place, "--provider", "groq", GROQ_API_KEY="sk-1")[0] == 2


@pytest.mark.parametrize(
    "arguments", [[], ["check"], ["print-api-key", "--provider", "groq"], ["check", "--model", "x/y"]]
)
def test_what_makes_no_sense(place: Place, arguments: list[str]) -> None:
    done = place.run("auth", *arguments, env={"GROQ_API_KEY": "sk-1"})
    assert done.returncode == 2 and done.stderr.startswith("Error: ") and not done.stdout
