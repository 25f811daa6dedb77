"""In without a terminal: a fresh home and a browser are enough, and the server's code guards what is changed."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import MockModel, call, reply
from tests.wires.server.server import ServerProcess
from tests.wires.server.test_owner import code_of

pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from .web_page import Tab

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def give_code() -> Any:
    def give(tab: Tab) -> None:
        tab.shows("#confirm .code-field")
        tab.page.fill("#confirm .code-field", code_of(tab.server).lower())
        tab.page.press("#confirm .code-field", "Enter")

    return give


@pytest.fixture
def setup_tab(open_tab: Any) -> Any:
    def go(section: str, *steps: Any) -> Tab:
        tab: Tab = open_tab(*steps)
        tab.press("Alt+o")
        tab.click(f"#setup-tab-{section}")
        return tab

    return go


def test_settings_are_changed_after_the_code(setup_tab: Any, give_code: Any, shared: Any) -> None:
    tab = setup_tab("settings", reply("hi"))
    tab.page.fill("[aria-label='Find a setting']", "checkpoints state")
    tab.counts(".setting:visible", 1)
    tab.page.get_by_label("checkpoints", exact=True).uncheck()
    tab.shows("#confirm .code-field")
    tab.page.fill("#confirm .code-field", "AAAA-AAAA")
    tab.page.press("#confirm .code-field", "Enter")
    tab.sees("#confirm .wrong", "not the code")
    give_code(tab)
    tab.sees(".setup-told", "checkpoints is kept")
    settings = json.loads((shared.agent_dir / "settings.json").read_text())
    assert settings["checkpoints"] is False
    tab.page.get_by_label("Back to the default of checkpoints").click()
    tab.counts("[aria-label='Back to the default of checkpoints']", 0)
    assert "checkpoints" not in json.loads((shared.agent_dir / "settings.json").read_text())
    # What makes no sense is refused, and said.
    tab.page.fill("[aria-label='Find a setting']", "keepRecentTokens")
    tab.page.get_by_label("compaction.keepRecentTokens").fill("-5")
    tab.press("Tab")
    tab.sees(".setup-told .wrong", ">= 0")
    # The code is asked for once: another tab of this browser needs none.
    tab.press("Escape")
    tab.page.reload()
    tab.connected()
    tab.press("Alt+o")
    tab.click("#setup-tab-rules")
    tab.page.fill("[aria-label=Rule]", "Bash(sudo *)")
    tab.page.select_option("[aria-label='What happens']", "deny")
    tab.page.get_by_role("button", name="Add", exact=True).click()
    tab.sees("#setup-body .plain-list", "Bash(sudo *)")
    tab.page.get_by_label("Remove Bash(sudo *)").click()
    tab.sees("#setup-body", "There are no rules")
    assert tab.trouble == []


def test_servers_folders_and_skills(setup_tab: Any, give_code: Any, shared: Any) -> None:
    (shared.cwd / "deep" / "deeper").mkdir(parents=True, exist_ok=True)
    program = Path(__file__).parents[1] / "plugins" / "mcp" / "fake_server.py"
    tab = setup_tab("servers", reply("hi"))
    tab.page.fill("[aria-label=Name]", "fake")
    tab.page.fill("[aria-label='Address or command']", f"{sys.executable} '{program}'")
    tab.page.fill("[aria-label='Variables or headers']", "SECRET=hush-hush")
    tab.page.get_by_role("button", name="Add", exact=True).click()
    give_code(tab)
    tab.sees("#setup-body .plain-list", "fake")
    kept = json.loads((shared.agent_dir / "mcp.json").read_text())["mcpServers"]["fake"]
    assert kept == {"command": sys.executable, "args": [str(program)], "env": {"SECRET": "hush-hush"}}
    tab.page.get_by_role("button", name="Restart").click()
    tab.sees("#setup-body .plain-list", "ready · stdio")
    tab.page.get_by_role("button", name="Switch off").click()
    tab.sees("#setup-body .plain-list", "switched off")
    assert "hush-hush" not in tab.page.content()
    tab.page.get_by_role("button", name="Remove").click()
    tab.page.get_by_role("button", name="Remove it").click()
    tab.sees("#setup-body", "There are none")
    tab.click("#setup-tab-loaded")
    tab.sees("#setup-body", "0 extensions")
    tab.click("#setup-tab-folder")
    tab.page.get_by_role("button", name="deep").click()
    tab.sees(".folders", "deeper")
    tab.page.get_by_role("button", name="Work here").click()
    tab.hides("#setup")
    tab.sees("#place", "deep")
    assert tab.trouble == []


def test_from_nothing_to_a_finished_edit(browser: Any, tmp_path: Path, give_code: Any) -> None:
    """A fresh home, a browser and a model server on this machine: no terminal but to read the code."""
    began = time.monotonic()
    edit = reply(call("write", {"path": "hello.txt", "content": "made in the browser\n"}))
    with MockModel([edit, reply("Done")] * 2) as ollama, _fresh(tmp_path, ollama) as server:
        with Tab(browser, server, ready=False, locale="en-IE") as tab:
            tab.sees("#no-model", "No model yet")
            tab.click("#connect-model")
            tab.page.get_by_role("button", name=re.compile("of Ollama here")).first.click()
            tab.sees(".setup-told", "answers in this conversation")
            tab.page.get_by_role("button", name="Use it in new ones, too").click()
            give_code(tab)
            tab.sees(".setup-told", "in new conversations")
            tab.page.get_by_role("button", name="Close and write a message").click()
            tab.say("write hello.txt")
            tab.sees(".answer >> nth=-1", "Done")
            assert (server.cwd / "hello.txt").read_text() == "made in the browser\n"
            # A new conversation has the model, too.
            tab.page.goto("about:blank")
            tab.page.goto(f"http://{server.address}/")
            tab.page.wait_for_selector("body[data-connection=open].blank")
            tab.sees("#model", "here-1")
            tab.hides("#no-model")
            # A key that is pasted is told by its letters, and is nowhere to be read.
            tab.press("Alt+o")
            tab.click("#setup-tab-model")
            key = "sk-ant-api03-" + "Xy4" * 12
            tab.page.fill("[aria-label='API key']", key)
            tab.page.get_by_role("button", name="Keep the key").click()
            tab.sees(".setup-told", "The key of anthropic is kept")
            assert key not in tab.page.content() and tab.js("document.querySelector('.key-form input').value") == ""
            assert tab.trouble == []
        assert json.loads((server.agent_dir / "auth.json").read_text())["anthropic"]["key"] == key
    assert time.monotonic() - began < 120


def test_a_key_set_in_a_terminal_lets_open_tabs_send(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    with MockModel([reply("hello from the key")]) as model:
        models = {"providers": {"anthropic": {"baseUrl": model.anthropic_url}}}
        (tmp_path / "agent" / "models.json").write_text(json.dumps(models))
        with _fresh(tmp_path, model, ollama=False) as server, Tab(browser, server, ready=False, locale="en-NZ") as tab:
            tab.sees("#no-model", "No model yet")
            (server.agent_dir / "auth.json").write_text(json.dumps({"anthropic": {"type": "api_key", "key": "k"}}))
            tab.hides("#no-model")
            tab.sees("#model", re.compile("Claude"))
            tab.say("hello")
            tab.sees(".answer >> nth=-1", "hello from the key")


def _fresh(base: Path, model: MockModel, *, ollama: bool = True) -> ServerProcess:
    """Start a server on an agent directory with nothing in it; the model answers where Ollama would."""
    model.lists = ["here-1"]
    host = model.openai_url.removesuffix("/v1") if ollama else "http://127.0.0.1:9"
    return ServerProcess(base=base, env={"OLLAMA_HOST": host}, fresh=True)
