"""The chat as a person sees it, in a terminal emulator of another maker (pyte)."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.cli.conftest import Place
from tests.support.images import PIXEL

from .conftest import Chat
from .terminal import PROMPT, Terminal

_COMMANDS = [
    "model",
    "thinking",
    "new",
    "resume",
    "tree",
    "fork",
    "clone",
    "rewind",
    "compact",
    "clear",
    "undo",
    "redo",
    "diff",
    "copy",
]
_COMMANDS += ["cost", "status", "name", "export", "permissions", "login", "background", "mcp"]
_COMMANDS += ["settings", "scoped-models", "reload", "import", "trust", "logout", "help", "quit", "exit"]
LONG_WAY = ["/usr/bin/env", sys.executable, "-m", "spindle"]
"""As a user starts it: not a fork of what the tests have imported."""


def sessions(place: Place) -> str:
    return "".join(path.read_text() for path in place.agent.rglob("*.jsonl"))


def test_a_conversation(place: Place, chat: Chat) -> None:
    place.write("project/a.txt", "one\ntwo\nthree\n")
    place.write("project/.git/HEAD", "ref: refs/heads/topic\n")
    edit = {"name": "edit", "arguments": {"path": "a.txt", "edits": [{"oldText": "two", "newText": "zwei"}]}}
    markdown = (
        "# Plan\n\nSome **bold** text.\n\n- one\n- two\n\n| n | size |\n|---|--:|\n| a | 1 |\n\n```python\nx = 1\n```\n"
    )
    usage = {"input": 12_800, "output": 10}
    steps = [
        {"thinking": "First\nthis.", "text": markdown, "usage": usage},
        {"calls": [{"name": "bash", "arguments": {"command": "echo start; echo the end"}}, edit]},
        "All done.",
        {"error": "500 the model has crashed"},
    ]
    terminal = chat(steps=steps)
    terminal.enter("hello there")
    text = terminal.wait_for("10% of 128K", "x = 1\n```\n" + PROMPT)
    assert (
        "❯ hello there\n\n∴ Thought" in text
        and ": First this.\n\n# Plan\n\nSome bold text.\n\n • one\n • two\n\n" in text
    )
    assert " n  size\n ───────\n a     1\n\n```python\nx = 1\n```\n\n❯\nscript.json" in text
    assert "· topic" in text  # the branch of git
    terminal.enter("do it")
    text = terminal.wait_for("All done.", PROMPT)
    assert re.search(r"\n✓ bash echo start; echo the end · the end · 2 lines · \d\.\ds\n", text)
    assert re.search(r"\n✓ edit a\.txt · Successfully .* · \d\.\ds\n", text)
    assert "\n   1 one\n  -2 two\n  +2 zwei\n   3 three\n" in text
    colours = {cell.data + cell.fg for line in terminal.screen.buffer.values() for cell in line.values()}
    assert {"-red", "+green", "✓green"} <= colours
    terminal.keys("\x0f")  # Ctrl-O shows the whole result of the last tool
    terminal.keys("\x14")  # and Ctrl-T the thoughts
    terminal.wait_for("\nFirst\nthis.\n")
    terminal.enter("crash")
    terminal.wait_for("500 the model has crashed\n" + PROMPT)
    assert terminal.text.count("❯ do it") == 1  # nothing was drawn twice
    terminal.enter("/quit")
    assert terminal.wait_exit() == 0
    assert terminal.is_restored()
    assert "❯\n" not in terminal.text.rstrip().rsplit("crashed", 1)[1]  # the prompt is gone


def test_interrupt_steer_queue_and_take_back(place: Place, chat: Chat) -> None:
    slow = {"match": "slow", "text": ["A beginning", {"wait": 30}, "never"]}
    terminal = chat(steps=[slow, {"match": "turn", "text": "Turned."}, "Fine."])
    terminal.enter("slow one")
    terminal.wait_for("A beginning\n❯")
    terminal.enter("steer it")
    terminal.wait_for("  queued: steer it\n")
    terminal.keys("and later\x1b\r")
    terminal.wait_for("  queued: steer it\n  queued: and later\n❯\n", "2 queued")
    terminal.resize(100, 8)
    terminal.enter("and a third")  # of many only the first are shown
    terminal.wait_for("  queued: steer it\n  queued: and a third\n  … 1 more\n❯\n", "3 queued")
    terminal.resize(100, 30)
    terminal.paste("pasted\n" * 5000)
    terminal.keys("\x1b\r")
    terminal.wait_for("  queued: pasted pasted", "4 queued")
    terminal.keys("\x1b[A")  # up
    terminal.wait_for("❯ steer it\n\n  and a third\n\n  and later\n\n  [paste 1: 5000 lines]\n", without="queued:")
    terminal.keys("\x15\x7f\x7f\x15\x7f\x7f\x15\x7f\x7f\x15")  # Ctrl-U: what stands before the cursor
    terminal.keys("\x1b")
    terminal.wait_for("A beginning\n\nInterrupted\n")
    terminal.keys("\x03\x03")
    assert "never" not in sessions(place)


def test_what_a_killed_chat_leaves_waiting_is_seen(chat: Chat) -> None:
    terminal = chat(steps=[{"text": ["A beginning", {"wait": 30}]}])
    terminal.enter("go")
    terminal.wait_for("A beginning\n❯", "script.json (medium) · 1s · ")  # it goes on, also if nothing moves
    terminal.enter("and this")
    terminal.wait_for("  queued: and this\n")
    terminal.__exit__()
    another = chat("-c")
    another.wait_for("❯ go\n", "  queued: and this\n❯\n", "1 queued")
    another.keys("\x1b[A")
    another.wait_for("❯ and this\nscript", without="queued")


def test_typing_steers_a_run(place: Place, chat: Chat) -> None:
    calls = [{"name": "bash", "arguments": {"command": "sleep 2"}}]
    terminal = chat(steps=[{"match": "work", "calls": calls}, {"match": "other way", "text": "Turned."}])
    terminal.enter("work")
    terminal.wait_for("bash sleep 2 ")
    terminal.enter("the other way")
    text = terminal.wait_for("Turned.", PROMPT)
    assert re.search("(?s)✓ bash sleep 2.*❯ the other way.*Turned", text), text


def test_interrupting_while_it_waits_to_try_again(place: Place, chat: Chat) -> None:
    place.write("agent/settings.json", {"retry": {"baseDelayMs": 60_000}})
    terminal = chat(steps=[{"error": "429 Too many requests"}])
    terminal.enter("go")
    terminal.wait_for("429 Too many requests\nTrying again in 60 s (1 of 3)\n", "● Waiting\n")
    terminal.keys("\x1b")
    terminal.wait_for("Trying again in 60 s (1 of 3)\n\nInterrupted\n" + PROMPT)


def test_a_long_command_leaves_room_for_what_it_writes(chat: Chat) -> None:
    command = "echo a line of it; sleep 30 # " + "x" * 200
    terminal = chat(steps=[{"calls": [{"name": "bash", "arguments": {"command": command}}]}])
    terminal.enter("go")
    terminal.wait_for("s · a line of it\n❯\n")


def test_what_goes_on_is_not_drawn_before_what_is_finished(chat: Chat) -> None:
    calls = [{"name": "bash", "arguments": {"command": "true"}}]
    terminal = chat(steps=[{"match": "work", "calls": calls}, {"match": "work", "text": ["Turned", {"wait": 30}]}])
    terminal.enter("work")
    terminal.wait_for("Turned\n❯\n")
    assert terminal.output.index("✓".encode()) < terminal.output.index(b"Turned")


def test_the_prompt_is_never_gone(chat: Chat) -> None:
    terminal = chat(steps=[{"text": [f"Paragraph {number}.\n\n" for number in range(40)], "pace": 0.03}])
    terminal.enter("go")
    while "Paragraph 39" not in terminal.text:
        terminal.read_once()
        if not terminal.has_prompt:
            terminal.read_once(0.1)  # the rest of a drawing that was read in two parts
        assert terminal.has_prompt, terminal.text


def test_keys_are_taken_while_an_answer_is_printed(chat: Chat) -> None:
    terminal = chat(steps=[{"text": ["Some words.\n\n"] * 4000, "pace": 0.01}])
    terminal.enter("go")
    terminal.wait_for("Some words.\n\nSome words.")
    for _ in range(200):
        terminal.keys("q")
        terminal.read_for(0.01)
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted", "q" * 98 + "\n  " + "q" * 98)
    assert terminal.quiet(0.5).count("q") == 200  # the terminal did not echo any


def test_questions_are_asked_in_place(place: Place, chat: Chat) -> None:
    place.write("wait.sh", "until [ -e ../now ]; do sleep 0.05; done")
    commands = ["sh ../wait.sh", *(f"touch {name}" for name in "abcd")]
    calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
    steps = [{"match": "go", "calls": [call]} for call in calls] + [{"match": "go", "text": "Done."}]
    terminal = chat("--permission-mode", "default", "--allow", "Bash(sh ../wait.sh)", steps=steps)
    terminal.enter("go")
    terminal.keys("half a message")  # these were meant for the text, "a" is no answer
    terminal.wait_for("\n❯ half a message\n", "bash sh ../wait.sh")
    place.write("now", "")
    terminal.wait_for("Allow bash? touch a\n❯ y  Allow once\n  a  Always allow Bash(touch a *)\n", "  n  Deny\n?")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("Allow bash? touch b\n❯ y")
    terminal.quiet()
    terminal.keys("n")
    terminal.wait_for("Why not? The model reads it; Enter: no reason\n?")
    terminal.keys("Never b.\r")
    terminal.wait_for("→ Deny: Never b.", "✗ bash touch b", "They said: Never b.", "Allow bash? touch c\n❯ y")
    terminal.quiet()
    terminal.keys("a")
    terminal.wait_for("Allow bash? touch d\n❯ y")
    terminal.quiet()
    terminal.keys("\x1b[B\x1b[B\x1b[B\x1b[B\r")  # arrows and Enter do as well
    terminal.wait_for("Why not?")
    terminal.keys("\r")
    terminal.wait_for("Allow bash? touch d → Deny", "Done.", "\n❯ half a message\n")
    assert sorted(path.name for path in place.project.iterdir()) == ["a", "c"]
    terminal.quiet()  # the run has ended
    terminal.keys("\x03")
    terminal.enter("/permissions")
    terminal.wait_for("What may run?\n  bypass       Every tool call is allowed\n❯ default")
    terminal.quiet()
    terminal.keys("\r")
    terminal.wait_for("Permission mode: default. Reading is free", "\n  allow Bash(touch c *)  (this session)\n")
    terminal.enter("/permissions plan")
    terminal.wait_for("Permission mode: plan.")


@pytest.mark.parametrize("key", ["\x1b", "\x03"], ids=["Esc", "Ctrl-C"])
def test_an_interrupt_at_a_question_lets_nothing_go_on(place: Place, chat: Chat, key: str) -> None:
    call = {"match": "go", "calls": [{"name": "bash", "arguments": {"command": "touch a"}}]}
    terminal = chat("--permission-mode", "default", steps=[call, {"match": "go", "text": "Went on."}])
    terminal.enter("go")
    terminal.wait_for("Allow bash? touch a\n❯ y")
    terminal.keys(key)
    terminal.wait_for("Interrupted", PROMPT)
    assert "Went" not in sessions(place) and "Went" not in terminal.text


def test_a_question_hides_nothing(place: Place, chat: Chat) -> None:
    hidden = "echo ok \x1b];touch hidden #\x07\n# a comment\ntouch seen"
    long = "\n".join(f"echo {number}" for number in range(1, 31))
    steps = [{"match": "go", "calls": [{"name": "bash", "arguments": {"command": text}}]} for text in (hidden, long)]
    terminal = chat("--permission-mode", "default", steps=[*steps, {"match": "go", "text": "Went on."}], lines=30)
    terminal.enter("go")
    text = terminal.wait_for(
        "Allow bash? echo ok \\x1b];touch hidden #\\x07\n# a comment\ntouch seen\n❯ y", "n  Deny\n?"
    )
    whole = re.sub("\n *", " ", text)
    assert "A  Always in all sessions: Bash(" in whole and "Bash(touch seen *) e  Edit" in whole  # not cut
    terminal.quiet()
    terminal.keys("n")
    terminal.wait_for("Why not?")
    terminal.keys("\r")
    terminal.wait_for(f"Allow bash? {long}\n", "\n… (all of it stands above)\n❯ y")
    terminal.quiet()
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted\n" + PROMPT)  # Esc is no answer that the model could go on with


EDITS = [{"oldText": "two = 2", "newText": "two = 3"}]


def test_a_change_is_shown_in_full_and_can_be_edited(place: Place, chat: Chat) -> None:
    old = "".join(f"line {number}\n" for number in range(1, 61))
    (place.project / "main.py").write_text(old)
    edits = [{"oldText": old, "newText": old.replace("line", "changed")}]
    steps = [{"calls": [{"name": "edit", "arguments": {"path": "main.py", "edits": edits}}]}, "Done."]
    place.write("editor.sh", "sed -i s/changed/edited/g $1\n")
    env = {"VISUAL": f"sh {place.project.parent}/editor.sh"}
    terminal = chat("--permission-mode", "default", steps=steps, env=env, lines=30)
    terminal.enter("go")
    terminal.wait_for(
        "-60 line 60", "+60 changed 60", "Allow edit? Change main.py (+60 −60)\n❯ y  Allow once", "e  Edit the input"
    )
    assert "+ 1 changed 1" in terminal.text and "{" not in terminal.text  # all of it, and no JSON
    assert b"\x1b[32m  +60 changed 60" in terminal.output and b"\x1b[31m  -60 line 60" in terminal.output
    assert (place.project / "main.py").read_text() == old
    terminal.quiet()
    terminal.keys("e")
    terminal.wait_for("→ Allow, with another input", "Done.", PROMPT)
    assert (place.project / "main.py").read_text() == old.replace("line", "edited")
    assert "✓ edit main.py (changed) · Successfully" in terminal.text


def test_a_project_is_trusted_where_the_chat_begins(place: Place, chat: Chat) -> None:
    place.write("project/.pi/prompts/greet.md", "Say hello.")
    terminal = chat(steps=[{"match": "Say hello.", "text": "Hello."}, "What?"], ready="do not ask again", lines=30)
    terminal.wait_for("Trust", ".pi/prompts", "❯ No", "Yes, from now on")
    terminal.keys("yes, a message that was typed ahead")  # it is no answer
    terminal.wait_for("(nothing fits)")
    terminal.keys("\r\x15from now")
    terminal.wait_for("❯ Yes, from now on")
    assert not (place.agent / "trust.json").exists()
    terminal.quiet()
    terminal.keys("\r")
    terminal.wait_for("→ Yes, from now on")
    terminal.wait_for(PROMPT)
    while "/greet" not in terminal.text:  # until the prompts of the project are there
        terminal.keys("\x15/gre")
        terminal.quiet()
    terminal.keys("et\r")
    terminal.wait_for("Hello.")
    (place.agent / "trust.json").unlink()
    terminal = chat(steps=["Hello."], ready="do not ask again", lines=30)
    terminal.quiet()
    terminal.keys("do not ask\r")
    terminal.wait_for("→ No, and do not ask again", PROMPT)


def test_a_change_that_was_agreed_to_is_not_shown_twice(place: Place, chat: Chat) -> None:
    steps = [{"calls": [{"name": "edit", "arguments": {"path": "a.py", "edits": EDITS}}]}, "Done."]
    (place.project / "a.py").write_text("one = 1\ntwo = 2\n")
    place.write("editor.sh", 'case $1 in *.py) cat "$1" >seen; printf "two = 4\\n" >"$1";; esac\n')
    env = {"VISUAL": f"sh {place.project.parent}/editor.sh"}
    terminal = chat("--permission-mode", "default", steps=[*steps, *steps], env=env)
    terminal.enter("go")
    terminal.wait_for("  +2 two = 3\n", "n  Deny")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("✓ edit a.py", "Done.", PROMPT)
    assert terminal.text.count("+2 two = 3") == 1
    (place.project / "a.py").write_text("one = 1\ntwo = 2\n")
    terminal.enter("again")
    terminal.wait_for("n  Deny")
    terminal.quiet()
    terminal.keys("e")  # only the new text is edited, in a file that the editor knows
    terminal.wait_for("✓ edit a.py (changed)", "Done.", PROMPT)
    assert (place.project / "seen").read_text() == "two = 3" and terminal.text.count("+2 two = 4") == 1
    assert (place.project / "a.py").read_text() == "one = 1\ntwo = 4\n"


def test_every_answer_is_seen_in_a_small_window(place: Place, chat: Chat) -> None:
    call = {"calls": [{"name": "bash", "arguments": {"command": "touch " + "long-name/" * 8}}]}
    terminal = chat("--permission-mode", "default", steps=[call, "Done."], columns=60, lines=9)
    terminal.enter("go")
    terminal.wait_for("Always in all sessions: Bash(touch *)\nEdit the input\nDeny\n", "n  Deny\n?")
    terminal.quiet()
    shown = [line[:8].rstrip() for line in terminal.screen.display]
    assert shown[1:] == ["Allow ba", "❯ y  All", "  a  Alw", "  A  Alw", "  e  Edi", "  n  Den", "?", "script.j"]


def test_escape_at_a_list_of_the_chat_stops_nothing(chat: Chat) -> None:
    terminal = chat(steps=[{"text": ["A beginning", {"wait": 30}]}])
    terminal.enter("go")
    terminal.wait_for("A beginning\n❯")
    for key in ("\x1b", "\x03"):
        terminal.enter("/thinking")
        terminal.wait_for("How hard to think?")
        terminal.keys(key)
        terminal.wait_for("A beginning\n❯\n", without="How hard")
    terminal.enter("!")
    terminal.wait_for("A command of the shell comes after it")
    assert "Interrupted" not in terminal.quiet(0.3)


def test_a_text_for_the_input_is_no_answer_to_a_question(place: Place, chat: Chat) -> None:
    place.write(
        "agent/extensions/both.py",
        "import asyncio\n"
        "def extension(agent):\n"
        "    @agent.command('both')\n"
        "    async def both(args, ctx):\n"
        "        answer = asyncio.ensure_future(ctx.ui.input('Name?'))\n"
        "        await asyncio.sleep(0.2)\n"
        "        ctx.ui.set_editor_text('for later')\n"
        "        ctx.ui.notify(f'{await answer} it is')\n",
    )
    terminal = chat()
    terminal.enter("/both")
    terminal.wait_for("Name?\n?")
    terminal.quiet()
    terminal.enter("Ada")
    terminal.wait_for("Ada it is\n\n❯ for later\nscript")


def test_dialogs_of_extensions(place: Place, chat: Chat) -> None:
    place.write(
        "agent/extensions/ask.py",
        "def extension(agent):\n"
        "    @agent.command('ask')\n"
        "    async def ask(args, ctx):\n"
        "        '''Ask things'''\n"
        "        a = await ctx.ui.confirm('Sure?', 'Really and truly')\n"
        "        b = await ctx.ui.select('Which?', ['red', 'green', 'blue'])\n"
        "        c = await ctx.ui.input('Name?', 'a name')\n"
        "        ctx.ui.notify(f'{a} {b} {c}')\n"
        "        print('stray\\x1b[2J print')\n"
        "        raise RuntimeError('bo\\x1b[2Jom')\n"
        "    @agent.command('long')\n"
        "    async def long(args, ctx):\n"
        "        '''Take long'''\n"
        "        import asyncio\n"
        "        ctx.ui.notify('begun')\n"
        "        await asyncio.sleep(60)\n",
    )
    terminal = chat()
    terminal.enter("/ask")
    terminal.wait_for("Sure?\nReally and truly\n❯ y  Yes\n  n  No\n?")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("Which?\n❯ red\n  green\n  blue\n?")
    terminal.quiet()
    terminal.keys("lu")
    terminal.wait_for("Which?\n❯ blue\n? lu\n")
    terminal.keys("\r")
    terminal.wait_for("Name? (a name)\n?")
    terminal.enter("Ada")
    terminal.wait_for("True blue Ada", "\nstray print\n", "command:ask: boom\n")
    assert b"\x1b[2J" not in terminal.output
    terminal.enter("/long")
    terminal.wait_for("\nbegun\n", PROMPT)
    terminal.keys("\x1b")
    terminal.wait_for("Interrupted: /long")
    terminal.keys("\x1b")
    assert terminal.quiet(0.3).count("Interrupted: /long") == 1
    terminal.enter("/ask")
    terminal.wait_for("Sure?\nReally and truly\n❯ y  Yes\n  n  No\n?")
    terminal.quiet()
    terminal.keys("\x1b")  # leaves the question, and the extension goes on
    terminal.wait_for("Which?\n❯ red")


def test_pasting(place: Place, chat: Chat) -> None:
    place.write("bin/xclip", f"#!/bin/sh\necho {PIXEL} | base64 -d\n").chmod(0o755)
    path = f"{place.root}/bin:{place.env['PATH']}"
    terminal = chat(steps=[{"match": "line 5000", "text": "All of it."}, "Fine."], env={"PATH": path})
    terminal.keys("look: ")
    terminal.paste("".join(f"line {number}\n" for number in range(1, 5001)))
    terminal.wait_for("\n❯ look: [paste 1: 5000 lines]\n")
    terminal.keys("\r")
    text = terminal.wait_for("All of it.", PROMPT)
    assert "❯ look: line 1\n  line 2\n" in text and "  line 30\n  … 4970 more lines\n" in text
    terminal.paste("two\rlines")
    terminal.wait_for("\n❯ two\n  lines\n")
    terminal.enter(" and\\")  # a backslash at the end
    terminal.keys("three")
    terminal.wait_for("\n❯ two\n  lines and\n  three\n")
    terminal.keys("\r")
    terminal.wait_for("❯ two\n  lines and\n  three\n\nFine.", PROMPT)
    picture = place.root / "a picture.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    terminal.paste(f"'{picture}'")
    terminal.wait_for("❯ [image 1: a picture.png]\n")
    terminal.keys("\r")
    terminal.wait_for("❯ [image 1: a picture.png]\n  [1 image]\n\nFine.")
    terminal.keys("\x16")  # Ctrl-V
    terminal.wait_for("❯ [image 2: clipboard]\n")
    terminal.keys("\r")
    terminal.wait_for("❯ [image 2: clipboard]\n  [1 image]\n\nFine.")
    (place.project / "a pixel.png").write_bytes(base64.b64decode(PIXEL))
    terminal.keys("@apix")
    terminal.wait_for(" a pixel.png\n")
    terminal.keys("\t")
    terminal.wait_for('❯ @"a pixel.png"\n')
    terminal.keys("\r\r")
    terminal.wait_for('❯ @"a pixel.png"\n  [1 image]\n\nFine.')
    assert sessions(place).count('"mimeType":"image/png"') == 3
    assert "two\n+lines and\n+three" in (place.agent / "chat_history").read_text()
    assert (place.agent / "chat_history").stat().st_mode & 0o777 == 0o600


def test_pasting_into_a_terminal_that_does_not_say_so(chat: Chat) -> None:
    terminal = chat(steps=[{"match": "line 5000", "text": "All of it."}, "Fine."])
    terminal.keys("one\rtwo\r\r\tthree\r")
    terminal.wait_for("\n❯ one\n  two\n\n  ^Ithree\n")
    terminal.quiet(0.1)
    terminal.keys("\r")
    terminal.wait_for("❯ one\n  two\n\n      three\n\nFine.", PROMPT)
    data = b"".join(b"line %d\r" % number for number in range(1, 5001))
    while data:
        data = data[terminal.write(data[:1000]) :]
        terminal.read_once(0)
    terminal.wait_for("\n❯ [paste 1: 5000 lines]\n")
    terminal.keys("\r")
    terminal.wait_for("All of it.", PROMPT)
    terminal.keys("at once\r")  # a line with its Enter, as a program sends it, is none
    terminal.wait_for("❯ at once\n\nFine.", PROMPT)


def test_messages_are_sent_if_they_cannot_be_remembered(place: Place, chat: Chat) -> None:
    (place.agent / "chat_history").mkdir()
    terminal = chat()
    terminal.enter("hello")
    assert "Error" not in terminal.wait_for("choose\n\n❯ hello\n\nFine.", PROMPT)
    terminal.keys("\x1b[A")
    terminal.wait_for("\n❯ hello\nscript.json")


def test_a_message_that_cannot_be_sent_stays(place: Place, chat: Chat) -> None:
    place.write("project/none.png", "no picture")
    (place.project / "broken.png").symlink_to("/proc/self/mem")
    terminal = chat()
    terminal.enter("look at @none.png")
    terminal.wait_for("not an image that models take", "\n❯ look at @none.png\nscript")
    terminal.keys("\x15")
    terminal.enter("look at @broken.png")
    terminal.wait_for("Input/output error", "\n❯ look at @broken.png\nscript")
    terminal.keys("\x15")
    terminal.paste(str(place.project / "broken.png"))
    terminal.wait_for("broken.png\nscript")
    terminal.keys("\x15")
    terminal.keys("one\\ two")
    terminal.keys("\x1b[D" * 4 + "\r")  # a backslash before the cursor is a new line, too
    terminal.wait_for("❯ one\n   two\n")


def test_resizing_leaves_one_prompt(chat: Chat) -> None:
    story = "The quick brown fox jumps over the lazy dog and runs on. " * 6
    terminal = chat(steps=[{"text": [story, {"wait": 30}]}])
    terminal.enter("go")
    terminal.wait_for("runs on.\n❯\n")
    for columns in (60, 40, 120, 30, 90):
        terminal.resize(columns, 30)
        terminal.quiet(0.4)
        text = terminal.wait_for(".\n❯\n")
        assert len(re.findall(r"(?m)^❯$", text)) == 1, text
        assert text.replace("\n", "").count("fox jumps") <= 6, text
    assert (
        b"\x1b[?7l" not in terminal.output
    )  # rows that come late to a narrower terminal are broken as it breaks others


def test_suspending_and_going_on(place: Place) -> None:
    shell = ["/bin/bash", "--norc", "-i"]
    with Terminal([], env=place.environment({"PS1": "$ "}), cwd=place.project, program=shell) as terminal:
        terminal.wait_for("$")
        terminal.keys(f"stty -a > before; {sys.executable} -m spindle --model {place.script('Fine.')}\n")
        terminal.wait_for("0% of 1")
        terminal.keys("half a mess")
        terminal.wait_for("❯ half a mess")
        terminal.keys("\x1a")
        terminal.wait_for("Stopped")
        terminal.keys("stty -a | diff - before && echo the same\n")
        terminal.wait_for("\nthe same\n$")
        terminal.keys("fg\n")
        terminal.wait_for("❯ half a mess\nscript.json")
        terminal.enter("age")
        assert terminal.wait_for("❯ half a message\n\nFine.", PROMPT).count("half a") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(chat: Chat, number: signal.Signals) -> None:
    terminal = chat(steps=[{"text": ["Begun", {"wait": 30}]}])
    terminal.enter("go")
    terminal.wait_for("Begun\n❯")
    os.kill(terminal.pid, number)
    assert terminal.wait_exit() == 128 + number
    assert terminal.is_restored()
    assert terminal.text.endswith("❯ go\n\nBegun")  # what has come stays
    assert terminal.output.rindex(b"\x1b[?2004l") > terminal.output.rindex(b"\x1b[?2004h")


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_closed_terminal_ends_it_in_silence(place: Place, kind: str) -> None:
    program = ["/bin/sh", "-c", 'exec "$0" "$@" 2>errors', sys.executable, "-m", "spindle"]
    model = place.script({"text": ["Some words.\n\n"] * 300, "pace": 0.01})
    env = place.environment({"TERM": kind})
    with Terminal(["--model", model], env=env, cwd=place.project, program=program) as terminal:
        terminal.wait_for("\n>" if kind == "dumb" else "0% of 1")
        terminal.keys("go")
        terminal.quiet(0.3)
        terminal.keys("\r")
        terminal.wait_for("Some words.")
        assert terminal.hang_up() == 128 + signal.SIGHUP
    assert (place.project / "errors").read_text() == ""
    assert "Some words." in sessions(place)


def test_ctrl_c_leaves_a_search_not_the_chat(chat: Chat) -> None:
    terminal = chat()
    terminal.enter("hello")
    terminal.wait_for("Fine.", PROMPT)
    terminal.keys("\x03")
    terminal.wait_for("Ctrl-C again")
    terminal.keys("\x12hel")
    terminal.wait_for("I-search backward: hel")
    terminal.keys("\x03")
    terminal.wait_for(PROMPT, without="I-search")
    terminal.enter("again")
    terminal.wait_for("❯ again\n\nFine.")


def test_sessions_the_tree_and_forks(place: Place, chat: Chat) -> None:
    answers = ["First.", "Second.", "Third.", "Fourth."]
    first = chat("question one", steps=answers)
    first.wait_for("❯ question one\n\nFirst.", PROMPT)
    first.enter("question two")
    first.wait_for("Second.", PROMPT)
    first.enter("/name The talk")
    first.wait_for("This session is called The talk")
    first.enter("/tree")
    first.wait_for("Go on from where?\n  ● you: question one\n  ● agent: First.\n", "❯ ● agent: Second.\n?")
    first.quiet()
    first.keys("\x1b[A\x1b[A\r")
    first.wait_for("Summarise the branch that you leave?\n❯ n  No\n")
    first.quiet()
    first.keys("n")
    first.wait_for("Session The talk\n\n❯ question one\n\nFirst.\n" + PROMPT)
    first.enter("question three")
    first.wait_for("Third.", PROMPT)
    first.enter("/tree")
    first.wait_for("  ● agent: First.\n      you: question two\n      agent: Second.\n  ●   you: question three\n")
    first.quiet()
    first.keys("\r")  # where it is: nothing happens, nothing is asked
    first.wait_for(PROMPT, without="Go on from where?")
    assert "Summarise" not in first.quiet(0.3)
    first.enter("/fork")
    first.wait_for("Fork before which message?", "  question one\n")
    first.quiet()
    first.keys("one\r")
    first.wait_for("\n❯ question one\nscript.json")  # to be changed and sent
    first.keys("\x03\x04")
    assert first.wait_exit() == 0

    place.write("agent/settings.json", {"branchSummary": {"skipPrompt": True}})
    model = f"scripted/{place.write('other.json', answers)}"
    second = chat("-r", "--model", model, "--thinking", "low", ready="Which session?")
    second.wait_for("The talk (")
    second.quiet()
    second.keys("talk\r")
    second.wait_for("choose\n\n❯ question one\n\nFirst.\n\n❯ question three\n\nThird.\n" + PROMPT)
    second.wait_for("\n❯\nother.json (low)")  # the command line is stronger than the session
    second.enter("/new")
    second.wait_for("(empty)\n" + PROMPT)
    second.enter("/fork")
    second.wait_for("/fork has nothing to choose from yet")
    second.keys("/resume talk\r")  # only one has this in its name
    second.wait_for("nothing to choose from yet\n\nSession The talk\n\n❯ question one\n")
    second.enter("/tree")
    second.wait_for("Go on from where?")
    second.quiet()
    second.keys("\x1b[A\r")
    second.wait_for("❯ question three\nscript.json", without="Go on from where?")  # and nothing was asked
    second.keys("\x15")
    second.enter("/quit")
    assert second.wait_exit() == 0

    third = chat("--continue", "and more", steps=answers)
    third.wait_for("Third.\n\n❯ and more\n\nFirst.")
    fourth = chat("--session", "nonsense", steps=answers, ready="No session found matching 'nonsense'")
    assert fourth.wait_exit() == 2


def test_a_message_for_a_session_goes_to_no_other(place: Place, chat: Chat) -> None:
    terminal = chat()
    terminal.enter("first")
    terminal.wait_for("Fine.", PROMPT)
    another = chat("-r", "for that one", ready="Which session?")
    another.quiet()
    another.keys("\r")
    another.wait_for("Session is in use by process")
    assert another.wait_exit() == 1
    third = chat("-r", "for that one", ready="Which session?")
    third.keys("\x1b")
    assert third.wait_exit() == 0
    assert "for that one" not in sessions(place)


def test_a_damaged_session_can_be_looked_at(place: Place, chat: Chat) -> None:
    first = chat("hello there")
    first.wait_for("Fine.", PROMPT)
    first.keys("\x04")
    assert first.wait_exit() == 0
    (path,) = place.agent.rglob("*.jsonl")
    parent = json.loads(path.read_text().splitlines()[-1])["id"]
    with path.open("a") as file:
        for number, message in enumerate(
            [
                {"role": "strange", "content": "x"},
                {"role": "assistant"},
                {"role": "assistant", "content": [{"type": "text"}, 7]},
                {"role": "toolResult", "content": [3]},
                {"role": "bashExecution"},
                {"role": "user", "content": [{"type": "text", "text": "the last one"}]},
            ]
        ):
            entry = {"type": "message", "id": f"odd{number}", "parentId": parent, "message": message}
            file.write(json.dumps(entry | {"timestamp": "2026-01-01T00:00:00.000Z"}) + "\n")
            parent = f"odd{number}"
    second = chat("-c")
    assert "Traceback" not in second.wait_for(
        "❯ hello there\n\nFine.", "(a message that cannot be shown)", "❯ the last one"
    )
    second.enter("/tree")
    second.wait_for("Go on from where?", "you: the last one\n?")


def test_commands_complete_their_arguments(place: Place, chat: Chat) -> None:
    place.write("agent/models.json", _models("m1", "m2"))
    place.write("project/some/notes.txt", "x")
    terminal = chat()
    terminal.enter("hello")
    terminal.wait_for("Fine.", PROMPT)
    terminal.keys("/thinking\r")
    terminal.wait_for("How hard to think?", "❯ medium")  # where it is
    terminal.resize(100, 8)
    terminal.keys("\x1b[B")
    terminal.wait_for("❯ high\n  … 2 more: arrows, or type to search\n?")  # what is chosen is seen
    terminal.resize(100, 30)
    terminal.quiet()
    terminal.keys("\x1b")
    terminal.wait_for(PROMPT, without="How hard")
    terminal.keys("/mo")
    terminal.wait_for("\n /model  Choose the model")
    terminal.keys("del ")
    terminal.wait_for("\n here/m1\n here/m2\n")
    terminal.keys("m2\t\r\r")
    terminal.wait_for("Model: here/m2", "\nm2 ·")
    terminal.keys("/model here\r")  # several fit
    terminal.wait_for("Which model?\n  here/m1\n❯ here/m2\n?")
    terminal.quiet()
    terminal.keys("\x1b[A\r")
    terminal.wait_for("Model: here/m1", "\nm1 ·")
    terminal.keys("/model M2\r")  # a name without its provider
    terminal.wait_for("\nm2 ·")
    terminal.keys("/model none\r")
    terminal.wait_for("Nothing fits /model none")
    terminal.keys("/thinking hi\r")
    terminal.wait_for("Nothing fits /thinking hi")
    place.write("project/pages/old.html", "x")
    place.write("project/pages/other.txt", "x")
    terminal.keys("/export pa")
    terminal.wait_for("❯ /export pa\n pages/\n")
    terminal.keys("\t/o")
    terminal.wait_for("❯ /export pages/o\n old.html\nm2 ")
    terminal.keys("\x1b\x03")
    place.write("project/some/" + "a" * 200, "x")
    terminal.keys("see @nots")
    terminal.wait_for(" some/notes.txt\n")
    terminal.keys("\t")
    terminal.wait_for("❯ see @some/notes.txt")
    terminal.keys(" and @aaaaaaaaaaaaz")  # is not looked for in every possible way
    terminal.wait_for("❯ see @some/notes.txt and @aaaaaaaaaaaaz\nm2 ")
    terminal.keys("\x1b\x03")
    terminal.wait_for("❯\nm2 ")
    terminal.quiet(0.5)  # prompt_toolkit asks for nothing else while it waits for an answer
    terminal.keys("see @./so")
    terminal.wait_for("\n ./some/\n")
    terminal.keys("\t")
    terminal.wait_for("❯ see @./some/\n")
    terminal.keys("no")
    terminal.wait_for("\n ./some/notes.txt\n")
    terminal.keys("\x1b\x03/help\r")
    text = terminal.wait_for("/permissions [MODE]", "Suspend, leave")
    names = re.findall(r"(?m)^/([\w-]+)", text)
    assert names == _COMMANDS
    assert "/share-link" not in text
    for line, answer in {
        "/cost": "messages of yours: 1, answers: 1,",
        "/": "There is no command /. See /help",
        "/mcp": "No MCP servers",
        "/export page.html": "Written: ",
        "/compact": "Nothing to compact",
        "/nonsense": "There is no command /nonsense",
        "/nmae it": "There is no command /nmae. Did you mean /name?",
    }.items():
        terminal.enter(line)
        terminal.wait_for(answer)
    assert (place.project / "page.html").exists()


def _models(*names: str) -> dict[str, object]:
    models = [{"id": name, "name": name.upper(), "reasoning": False} for name in names]
    server = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "x", "models": models}
    return {"providers": {"here": server}}


def test_commands_in_the_background_are_listed_and_wake_the_chat(place: Place, chat: Chat) -> None:
    bash = {"command": "until [ -e now ]; do sleep 0.05; done; exit 3", "background": True}
    terminal = chat(steps=[{"calls": [{"name": "bash", "arguments": bash}]}, "I wait.", "It failed."])
    terminal.enter("build it")
    terminal.wait_for("bg1 runs in the background", "I wait.", "1 in background", PROMPT)
    terminal.enter("/background")
    terminal.wait_for("bg1: until [ -e now ]; do sleep 0.05; done; exit 3\n  pid ")
    place.write("project/now", "")
    text = terminal.wait_for("bg1 exited with code 3", "It failed.", PROMPT)
    assert "in background" not in text.splitlines()[-1]


def test_shell_commands_and_the_editor(place: Place, chat: Chat) -> None:
    editor = place.write("edit.sh", '#!/bin/sh\necho "from the editor" > "$1"\n')
    editor.chmod(0o755)
    terminal = chat(env={"EDITOR": str(editor)})
    terminal.enter("!echo to the shell; exit 3")
    terminal.wait_for("$ echo to the shell; exit 3\nto the shell\n(exit code 3)\n")
    terminal.enter("!until [ -e now ]; do sleep 0.05; done; echo later")
    terminal.enter("hello")
    terminal.wait_for("Fine.\n")
    place.write("project/now", "")
    terminal.wait_for("Fine.\n\nlater\n")  # apart from what was printed meanwhile
    terminal.enter("!sleep 30")
    terminal.wait_for("$ sleep 30\n\n")
    terminal.quiet(0.3)
    terminal.keys("\x03")
    terminal.wait_for("(interrupted)")
    for keys in ("\x07", "\x18\x05"):  # Ctrl-G; Ctrl-X Ctrl-E
        terminal.keys(keys)
        terminal.wait_for("\n❯ from the editor\nscript")
        terminal.keys("\r")
        terminal.wait_for("❯ from the editor\n\nFine.", PROMPT)
    assert '"command":"echo to the shell; exit 3"' in sessions(place)


def test_resizing_leaves_the_screen_to_the_editor(place: Place, chat: Chat) -> None:
    lines = ["#!/bin/sh", "printf '\\n\\nEDITING\\033[2A\\r'", "until [ -e done ]; do sleep 0.1; done", "echo x > $1"]
    editor = place.write("edit.sh", "\n".join(lines))
    editor.chmod(0o755)
    terminal = chat(env={"EDITOR": str(editor)})
    terminal.keys("\x07")
    terminal.wait_for("EDITING")
    terminal.resize(90, 30)
    assert "EDITING" in terminal.quiet(0.8)
    place.write("project/done", "")
    terminal.wait_for("❯ x\n")


def test_vi_keys(place: Place, chat: Chat) -> None:
    place.write("agent/settings.json", {"editingMode": "vi"})
    terminal = chat()
    terminal.keys("hello world\x1b")
    terminal.quiet(0.15)  # so soon after Esc a key is not Alt and that key
    terminal.wait_for("❮ hello world")
    terminal.keys("bcwthere")
    terminal.wait_for("❯ hello there")
    terminal.keys("\x1b")
    terminal.wait_for("❮ hello there")
    terminal.quiet(0.15)
    terminal.keys("\r")
    terminal.wait_for("❯ hello there\n\nFine.")


def test_vi_keys_do_not_stand_in_the_way_of_an_answer(place: Place, chat: Chat) -> None:
    place.write("agent/settings.json", {"editingMode": "vi"})
    calls = [{"name": "bash", "arguments": {"command": "touch a"}}]
    steps = [{"match": "go", "calls": calls}, {"match": "go", "text": "Done."}, "Fine."]
    terminal = chat("--permission-mode", "default", steps=steps)
    terminal.keys("go\x1b")
    terminal.quiet(0.15)
    terminal.keys("\r")  # sent in normal mode
    terminal.wait_for("Allow bash? touch a", "n  Deny\n?")
    terminal.quiet()
    terminal.keys("y")
    terminal.wait_for("Done.", PROMPT)
    terminal.enter("hello")  # as every line, the next begins in insert mode
    terminal.wait_for("❯ hello\n\nFine.")


def test_what_a_model_writes_is_only_text(chat: Chat) -> None:
    evil = "before\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b5A\x07 after\rline \u202eturned"
    call = {"name": "bash", "arguments": {"command": "printf '\\033[2Jclear\\007 10%%\\r\\033[K20%%\\r30%%\\r'"}}
    terminal = chat(steps=[{"text": evil, "calls": [call]}, "Fine."])
    terminal.enter("go")
    text = terminal.wait_for("beforered afterline turned", " · 30% · ", "Fine.")
    assert "/help" in text
    assert b"\x1b[2J" not in terminal.output and b"title" not in terminal.output
    assert "\u202e".encode() not in terminal.output


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"NO_COLOR": "1"}, {}], ids=["C locale", "no colour", "60 columns"])
def test_small_and_simple_terminals(chat: Chat, env: dict[str, str]) -> None:
    paragraph = "A paragraph — “quoted” – that is long enough to be wrapped somewhere near its end."
    markdown = f"# Über\n\n{paragraph}\n\n- item\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 'y'\n```\n"
    call = {"name": "bash", "arguments": {"command": "echo a very long command line that does not fit at all here"}}
    terminal = chat(steps=[{"thinking": "Hmm. " * 30, "text": markdown, "calls": [call]}, "Done."], env=env, columns=60)
    terminal.enter("go")
    text = terminal.wait_for("Done.", "0% of 128K")
    assert max(map(len, text.split("\n"))) <= 60
    assert len(re.findall("(?m)^[❯>] go$", text)) == 1
    if "LC_ALL" in env:
        assert terminal.output.isascii()
        assert "# ?ber" in text and '- "quoted" -' in text and "\n * item\n" in text and "\n+ bash" in text
    if "NO_COLOR" in env:
        assert not re.search(rb"\x1b\[[\d;]*\b(3[0-7]|4[0-7]|9\d)[;m]", terminal.output)
        assert b"\x1b[" in terminal.output


def test_a_dumb_terminal(place: Place, chat: Chat) -> None:
    calls = [{"name": "bash", "arguments": {"command": "touch a"}}]
    steps = [
        {"match": "go", "calls": calls},
        {"match": "go", "text": "Done."},
        {"match": "slow", "text": ["Be", {"wait": 30}]},
    ]
    terminal = chat("--permission-mode", "default", steps=[*steps, "**Fine.**"], env={"TERM": "dumb"}, ready="\n>")
    terminal.keys("hello\n")
    terminal.wait_for("> hello\n\n**Fine.**\n>")
    terminal.keys("go\n")
    terminal.wait_for("  1. Allow once\n", "? [y/a/A/e/n]")
    terminal.keys("y\n")
    terminal.wait_for("Done.\n>")
    assert (place.project / "a").exists()
    terminal.keys("/thinking\n")
    terminal.wait_for("How hard to think?\n  1. off\n", "? [number]")
    terminal.keys("1\n")
    terminal.wait_for("Thinking: off\n>")
    terminal.keys("several\nlines\n")  # are one message
    terminal.wait_for("> several\nlines\n\n**Fine.**\n>")
    assert '"several\\nlines"' in sessions(place)
    terminal.keys("slow\n")
    terminal.wait_for("\nBe")
    terminal.keys("\x03")
    terminal.wait_for("Interrupted\n>")
    terminal.keys("\x04")
    assert terminal.wait_exit() == 0
    assert b"\x1b" not in terminal.output


@pytest.mark.parametrize("word", ["hello", "doctor"])
def test_a_word_after_chat_is_a_message(chat: Chat, word: str) -> None:
    chat("chat", word).wait_for(f"❯ {word}\n\nFine.")


def test_without_a_terminal_there_is_no_chat(place: Place) -> None:
    done = place.run("chat")
    assert (done.returncode, done.stdout) == (2, "") and "needs a terminal" in done.stderr


def test_an_address_that_is_none(place: Place) -> None:
    with Terminal(["--attach", "nonsense"], env=place.environment(), cwd=place.project) as terminal:
        terminal.wait_for("--attach needs the address of a server")
        assert terminal.wait_exit() == 2


@pytest.mark.parametrize("arguments", [["--help"], ["--mode", "rpc"], ["--no-session", "-p", "hello"]])
def test_other_modes_import_none_of_it(place: Place, arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "spindle", "--model", place.script("hi"), *arguments]
    done = subprocess.run(
        command,
        cwd=place.project,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    modules = set(re.findall(r"^import time:.*\|\s*(\S+)$", done.stderr, re.MULTILINE))
    assert "spindle.apps.cli.main" in modules
    assert not [
        name for name in modules if name.split(".")[0] in ("prompt_toolkit", "rich") or "spindle.apps.console" in name
    ]


def cpu_seconds(terminal: Terminal) -> float:
    fields = Path(f"/proc/{terminal.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_starting_costs_little(chat: Chat) -> None:
    chat(ready="❯", program=LONG_WAY)  # compiles what was not compiled yet
    assert cpu_seconds(chat(ready="❯", program=LONG_WAY)) < 1.0  # about 0.3 on a quiet machine; the limit is 0.5


def test_drawing_costs_little(chat: Chat) -> None:
    terminal = chat(steps=[{"text": [*["Some words. "] * 120, {"wait": 30}], "pace": 0.02}])
    before = cpu_seconds(terminal)
    terminal.enter("go")
    terminal.wait_for("1s · ", "words.\n❯\n")
    terminal.read_for(2)
    assert cpu_seconds(terminal) - before < 0.8  # about 0.4 on a quiet machine


def test_a_subagent_is_one_line(place: Place, chat: Chat) -> None:
    place.write("project/a.txt", "one\n")
    look = {"name": "read", "arguments": {"path": "a.txt"}}
    steps = [
        {"match": "^go$", "calls": [{"name": "task", "arguments": {"agent": "explore", "prompt": "look at\na.txt"}}]},
        {"match": "^go$", "text": "All done."},
        {"match": "^look", "calls": [look], "usage": {"input": 1000, "output": 200}},
        {"match": "^look", "text": [{"wait": 1.5}, "It is short.\n\nThat is all."]},
    ]
    terminal = chat(steps=steps)
    terminal.enter("go")
    terminal.wait_for("● task explore: look at a.txt", "· explore: 1 call, thinking")
    text = terminal.wait_for("All done.", PROMPT)
    assert re.search(r"\n✓ task explore: look.* · That is all\. · 3 lines · 1 call, 1,200 tokens · \d", text)
    assert "It is short." not in text
