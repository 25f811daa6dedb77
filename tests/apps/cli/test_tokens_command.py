"""`spindle tokens`: what is named changes, and nothing else."""

import hashlib
import json
from typing import Any

import pytest

from tests.apps.cli.conftest import Place

EVERY = [
    *("--runs-per-day", "7", "--cost-per-day", "2.5", "--max-turns", "9", "--max-cost", "1.5", "--max-time", "60"),
    *("--max-total-tokens", "5000", "--model", "anthropic/*", "--permission-mode", "dontAsk"),
    *("--sandbox", "workspace-write", "--admin"),
]
"""Every option but `--root`, which is a folder of the test."""
FIELDS = {
    "runsPerDay": ("--runs-per-day", "8", 8),
    "costPerDay": ("--cost-per-day", "3", 3.0),
    "maxTurns": ("--max-turns", "3", 3),
    "maxCost": ("--max-cost", "0.5", 0.5),
    "maxTime": ("--max-time", "5", 5.0),
    "maxTotalTokens": ("--max-total-tokens", "10", 10),
    "models": ("--model", "openai/*", ["openai/*"]),
    "permissionMode": ("--permission-mode", "plan", "plan"),
    "sandbox": ("--sandbox", "read-only", "read-only"),
    "roots": ("--root", "/", ["/"]),
    "admin": ("--admin", None, True),
}


def users(place: Place) -> dict[str, Any]:
    return json.loads((place.agent / "tokens.json").read_text())["users"]


def anna(place: Place) -> tuple[str, dict[str, Any]]:
    """Add a user with every leash, and return the token and what the file says."""
    done = place.run("tokens", "add", "anna", *EVERY, "--root", str(place.project))
    assert done.returncode == 0, done.stderr
    assert users(place)["anna"].keys() == {"token", "created", *FIELDS}
    return done.stdout.strip(), users(place)["anna"]


def hashed(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def test_a_known_user_is_not_added_again(place: Place) -> None:
    _, before = anna(place)
    done = place.run("tokens", "add", "anna")
    assert done.returncode == 1 and "has a user anna already" in done.stderr and "tokens rotate anna" in done.stderr
    assert not done.stdout and users(place)["anna"] == before


def test_another_token_keeps_the_leash(place: Place) -> None:
    old, before = anna(place)
    done = place.run("tokens", "rotate", "anna")
    new = done.stdout.strip()
    assert done.returncode == 0 and new != old and new not in (place.agent / "tokens.json").read_text()
    assert users(place)["anna"] == {**before, "token": hashed(new)}


@pytest.mark.parametrize("field", FIELDS)
def test_one_field_changes_alone(place: Place, field: str) -> None:
    _, before = anna(place)
    option, value, expected = FIELDS[field]
    done = place.run("tokens", "set", "anna", option, *([value] if value else []))
    assert done.returncode == 0, done.stderr
    assert users(place)["anna"] == {**before, field: expected}
    done = place.run("tokens", "set", "anna", "--clear", option.removeprefix("--"))
    assert done.returncode == 0, done.stderr
    assert users(place)["anna"] == {key: item for key, item in before.items() if key != field}


def test_what_is_wrong_changes_nothing(place: Place) -> None:
    _, before = anna(place)
    for words, text in (
        (["set", "anna"], "Name what to change"),
        (["set", "anna", "--max-cost", "0"], "maxCost must be above 0"),
        (["set", "bob", "--max-cost", "1"], "has no user bob"),
        (["rotate", "bob"], "has no user bob"),
        (["set", "anna", "--clear", "cost"], 'unknown: "cost"'),
        (["add", "bob", "--max-cost", "0"], "maxCost must be above 0"),
    ):
        done = place.run("tokens", *words)
        assert done.returncode and text in done.stderr, (words, done.stderr)
    assert users(place) == {"anna": before}
