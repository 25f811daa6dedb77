"""Words of other programs: every one does something here, or says what does."""

import json
import re

from spindle.apps.words import WORDS, in_the_chat

from ..cli.conftest import Place
from .conftest import Chat
from .test_chat import PROMPT

ELSEWHERE = (
    "bug changelog clone compact copy export fork hotkeys import llama login logout mcp model name new quit reload "
    "resume scoped-models session settings share thinking tree trust add-dir agents bashes clear config context cost "
    "doctor exit help hooks ide init install-github-app memory output-style permissions plan plugin pr-comments "
    "privacy-settings release-notes review rewind sandbox security-review skills stats status statusline tasks "
    "terminal-setup theme todos usage vim approvals btw debug diff effort experimental fast feedback mention "
    "personality prompts undo chat directory extensions restore unshare editor sessions themes tools"
)


def test_every_word_leads_somewhere(place: Place, chat: Chat) -> None:
    terminal = chat(columns=110)
    terminal.enter("/help")
    ours = re.findall(r"(?m)^/([\w-]+)", terminal.wait_for("Suspend, leave"))
    assert [word for word in ELSEWHERE.split() if word not in ours and in_the_chat(word) is None] == []
    for word in WORDS:
        meant = in_the_chat(word) or ""
        while meant.startswith("/"):
            name = meant[1:].partition(" ")[0]
            assert name != word
            meant = "" if name in ours else in_the_chat(name) or f"/{word} leads nowhere"
        assert "nowhere" not in meant and len(meant) < 110
    terminal.enter("/effort high")
    terminal.wait_for("Thinking: high")
    terminal.enter("/plan")
    terminal.wait_for("Permission mode: plan")
    terminal.enter("/vim")
    terminal.wait_for('"editingMode": "vi" in settings.json gives vi keys')


def test_settings_are_shown_changed_and_checked(place: Place, chat: Chat) -> None:
    terminal = chat(columns=110)
    terminal.enter("/settings checkpoints")
    terminal.wait_for("checkpoints is true. New value?")
    terminal.quiet(0.5)
    terminal.keys("false\r")
    terminal.wait_for("checkpoints: false (kept in ")
    terminal.enter("/settings retry.maxRetries")
    terminal.wait_for("retry.maxRetries? Empty: the default\n? 3")
    terminal.keys("x\r")
    terminal.wait_for("retry.maxRetries: Expected int, got str")
    held = json.loads((place.agent / "settings.json").read_text())
    assert held == {"retry": {"enabled": False}, "checkpoints": False}


def test_status_tells_what_is_loaded_and_reload_reads_it_again(place: Place, chat: Chat) -> None:
    context = place.write("project/AGENTS.md", "Be kind.")
    terminal = chat(columns=140)
    place.write("agent/prompts/fix.md", "Fix it.")
    terminal.enter("/reload")
    terminal.wait_for("Read again: ")
    terminal.enter("/context")
    text = terminal.wait_for("Prompts: ", "/fix", PROMPT)
    assert str(context) in text and re.search(r"Permissions: +mode bypass\nSandbox: +off", text)
    assert "None of:        MCP servers, Extensions, Stream rules, Skills\n" in text


def test_esc_esc_goes_back_and_takes_files_along(place: Place, chat: Chat) -> None:
    write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}
    terminal = chat(steps=["One.", write, "Two."])
    terminal.enter("first")
    terminal.wait_for("One.", PROMPT)
    terminal.enter("second")
    terminal.wait_for("Two.", PROMPT)
    assert (place.project / "a.txt").exists()
    terminal.quiet()  # the run has settled: before that, the first Esc would stop it
    terminal.keys("\x1b")
    terminal.quiet(0.3)
    terminal.keys("\x1b")
    terminal.wait_for("Before which message?", "second")
    terminal.quiet(0.5)
    terminal.keys("\r")
    terminal.wait_for("Take back what?", "Files only")
    terminal.quiet(0.5)
    terminal.keys("\r")
    terminal.wait_for("All since that message is taken back; files put back: a.txt", "❯ second")
    assert not (place.project / "a.txt").exists()


def test_clone_import_trust_logout_and_scoped_models(place: Place, chat: Chat) -> None:
    place.write("project/.pi/settings.json", {})
    place.write("agent/auth.json", {"groq": {"type": "api_key", "key": "k"}})
    terminal = chat("chat", "hello", columns=110, ready="do not ask again")
    terminal.wait_for("Fine.", "❯ No")
    terminal.quiet(0.5)
    terminal.keys("\r")
    terminal.wait_for("→ No", PROMPT)
    (first,) = place.agent.rglob("*.jsonl")
    terminal.enter("/clone")
    terminal.wait_for("Session ", "❯ hello\n\nFine.\n" + PROMPT)
    assert len(list(place.agent.rglob("*.jsonl"))) == 2
    other = place.write("project/s.jsonl", first.read_text().replace("hello", "from elsewhere"))
    place.write("project/none.txt", "none")
    terminal.enter("/import none.txt")
    terminal.wait_for("Not a session")
    terminal.enter("/import s.jsonl")
    terminal.wait_for("❯ from elsewhere\n\nFine.\n" + PROMPT)
    before = other.read_bytes()
    terminal.enter("more")  # goes into a copy among the other sessions, which keeps its id
    terminal.wait_for("❯ more\n\nFine.\n" + PROMPT)
    assert other.read_bytes() == before and '"more"' in (first.parent / "s.jsonl").read_text()
    terminal.enter("/import s.jsonl")
    terminal.wait_for("❯ more\n\nFine.\n" + PROMPT)
    terminal.enter("/import none.jsonl")
    terminal.wait_for("There is no file none.jsonl")
    terminal.enter("/trust")
    terminal.wait_for("brings: .pi/settings.json", "y  Yes")
    terminal.quiet(0.5)
    terminal.keys("y")
    terminal.wait_for("Trusted from now on: ")
    assert json.loads((place.agent / "trust.json").read_text()) == {str(place.project): True}
    terminal.enter("/scoped-models nothing-like-it")
    terminal.wait_for('No models match pattern "nothing-like-it"')
    terminal.enter("/logout groq")
    terminal.wait_for("Removed groq from ")
    assert json.loads((place.agent / "auth.json").read_text()) == {}
