"""Logins go back and forth between us and the real pi. `test_pi_sessions` says how pi is found."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.models.credentials import AuthStore

PI = os.environ.get("SPINDLE_TEST_PI", "")
pytestmark = [
    pytest.mark.skipif(not PI, reason="SPINDLE_TEST_PI does not name an installed pi"),
    pytest.mark.timeout(240),
]


def pi(path: Path, *arguments: str) -> Any:
    node = os.environ.get("SPINDLE_TEST_NODE", "node")
    driver = Path(__file__).with_name("pi_logins.mjs")
    finished = subprocess.run([node, driver, path, *arguments], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_logins_go_back_and_forth(tmp_path: Path) -> None:
    path, store = tmp_path / "auth.json", AuthStore(tmp_path)
    end = int(time.time() * 1000) + 3_600_000
    ours = {"type": "oauth", "access": "token-1", "refresh": "r1", "expires": end, "accountId": "acc-1"}
    asyncio.run(store.store("openai-codex", ours))
    found = pi(path)
    assert found == {"all": {"openai-codex": ours}, "key": "token-1"}

    theirs = {"type": "oauth", "access": "token-2", "refresh": "r2", "expires": end, "enterpriseUrl": "corp.ghe.com"}
    pi(path, "github-copilot", json.dumps(theirs))
    assert store.entries() == {"openai-codex": ours, "github-copilot": theirs}
    auth = asyncio.run(store.from_user("github-copilot", store.stored("github-copilot")))
    assert auth is not None
    assert (auth.api_key, auth.base_url) == ("token-2", "https://copilot-api.corp.ghe.com")
    asyncio.run(store.store("github-copilot", None))
    assert pi(path)["all"] == {"openai-codex": ours}
    assert path.stat().st_mode & 0o777 == 0o600
    assert not Path(f"{path}.lock").exists()
