"""Sessions on the web page: going back and forking, coming back after a reload, a broken network, a new server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions.file import encode_cwd
from spindle.sessions.open import create
from spindle.shapes.messages import UserMessage
from tests.support.mock_model import call, gate, reply, think

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

from tests.wires.server.server import TOKEN, ServerProcess

from .web_page import Tab, png, user_texts

pytestmark = pytest.mark.timeout(120)


# -- going back ----------------------------------------------------------------------------------


def test_the_tree_leads_back_and_forks(browser: Any) -> None:
    steps = [reply("answer one"), reply("answer two"), reply("another two"), reply("in the fork")]
    with ServerProcess(steps) as server, Tab(browser, server) as tab:
        tab.ask("first")
        tab.ask("second")
        original = tab.session
        tab.press("Alt+t")
        tab.counts("#tree .node", 4)
        tab.click("#tree .line", 1)  # the first answer
        tab.counts(".user", 1)
        tab.ask("second, differently")
        tab.counts("#tree .node", 6)
        tab.counts("#tree .node.path", 4)
        assert user_texts(server)[-1] == ["first", "second, differently"]
        # A message of the user: what came before it is kept, its text can be changed.
        tab.page.get_by_title("second", exact=True).click()
        tab.holds("#prompt", "second")
        tab.counts(".user", 1)
        tab.type("")
        tab.page.locator("#tree .node", has_text="second, differently").get_by_label("Fork").click()
        tab.holds("#prompt", "second, differently")
        assert tab.session != original
        tab.ask("elsewhere")
        tab.sees(".answer >> nth=-1", "in the fork")
        assert user_texts(server)[-1] == ["first", "elsewhere"]
        tab.click("#tab-sessions")
        tab.counts(".session", 2)
        assert tab.trouble == []


def test_the_tree_shows_where_a_message_stands(open_tab: Any) -> None:
    look = call("bash", {"command": "echo looking"})
    steps = [reply("Let me see", look), reply("long\n\n" * 40), reply("tall\n\n" * 40)]
    tab = open_tab(*steps)
    tab.ask("first")
    tab.ask("second")
    tab.hides(".tool")
    tab.press("Alt+t")
    tab.page.locator("#tree .node", has_text="Let me see").get_by_label("Show it").click()
    tab.shows(".tool")  # its turn was folded
    inside = (
        "(box => box.top >= 0 && box.bottom < innerHeight)(document.querySelector('.tool').getBoundingClientRect())"
    )
    assert tab.js(inside)
    tab.counts(".user", 2)
    assert tab.trouble == []


def test_editing_and_regenerating(open_tab: Any) -> None:
    steps = [reply("one"), reply("two"), reply("two again"), reply("other")]
    tab = open_tab(*steps)
    tab.ask("same")
    tab.bring("paste", png())
    tab.counts("#attachments img", 1)
    tab.ask("same")
    tab.press("Alt+r")
    tab.sees(".answer >> nth=-1", "two again")
    tab.settled()
    assert tab.page.locator(".answer .md").all_inner_texts() == ["one", "two again"]
    first, second = tab.server.mock.requests[1].body["messages"], tab.server.mock.requests[2].body["messages"]
    assert [m for m in first if m["role"] != "system"] == [m for m in second if m["role"] != "system"]
    tab.edit("changed")
    tab.page.get_by_role("button", name="Save").click()
    tab.sees(".answer >> nth=-1", "other")
    assert user_texts(tab.server)[-1] == ["changed"]


def test_a_new_conversation_and_the_list(browser: Any) -> None:
    with ServerProcess([reply("ok")]) as server, Tab(browser, server) as tab:
        tab.ask("about parsers")
        first = tab.session
        tab.click("#title")
        tab.page.fill(".rename", "Parsers <b>&amp;</b>")
        tab.press("Enter")
        tab.sees("#title", "Parsers <b>&amp;</b>")
        tab.press("Alt+c")
        tab.shows("#welcome")
        tab.ask("about lexers")
        assert tab.session != first
        tab.press("Alt+f")
        tab.counts(".session", 2)
        tab.page.keyboard.type("parsers")
        tab.counts(".session", 1)
        tab.click(".session")
        tab.sees(".bubble", "about parsers")
        tab.sees("#title", "Parsers <b>&amp;</b>")
        assert tab.session == first
        tab.page.go_back()
        tab.sees(".bubble", "about lexers")
        # A click on a line counts, though the list has changed while the button was down.
        tab.page.fill("#session-search", "")
        tab.counts(".session", 2)
        tab.page.locator(".session", has_text="Parsers").hover()
        tab.page.mouse.down()
        with server.rpc(f"?session={tab.session}") as other:
            assert other.call("set_session_name", name="Lexers")["success"]
        tab.sees("#title", "Lexers")
        tab.page.wait_for_timeout(300)  # for the list to be asked for
        tab.page.mouse.up()
        tab.sees(".bubble", "about parsers")
        tab.sees(".session", "Lexers")
        # So does the focus.
        tab.page.locator(".session", has_text="Parsers").focus()
        with server.rpc(f"?session={first}") as other:
            assert other.call("set_session_name", name="Scanners")["success"]
        tab.page.locator(".session", has_text="Scanners").wait_for()
        assert "Scanners" in tab.page.evaluate("document.activeElement.closest('.session')?.textContent || ''")
        assert tab.trouble == []


def test_conversations_of_other_directories(browser: Any, tmp_path: Path) -> None:
    steps = [reply("here"), reply(call("bash", {"command": "pwd"})), reply("there", gate("go"), "!"), reply("new")]
    other = tmp_path / "elsewhere" / "project"
    other.mkdir(parents=True)
    with ServerProcess(base=tmp_path) as server:
        kept = create(other, server.agent_dir / "sessions" / encode_cwd(str(other)))
        kept.append_message(UserMessage(content="about the other project", timestamp=1))
        kept.close()
        server.mock.script(*steps)
        with Tab(browser, server) as tab:
            tab.ask("about this one")
            tab.sees(".place", "project")
            assert not tab.page.locator(".place .session").is_visible()
            # Looking into what was said finds it, too.
            tab.page.fill("#session-search", "other project")
            tab.counts(".session:visible", 1)
            tab.page.fill("#session-search", "")
            # With the keys: to the directory, open it, to the conversation, go there.
            tab.page.locator(".session").first.focus()
            for key in ("ArrowDown", "Enter", "ArrowDown", "Enter"):
                tab.press(key)
            tab.sees(".bubble", "about the other project")
            assert tab.session == kept.id
            tab.sees("#place", "project")
            tab.say("where are you?")
            server.mock.wait_gate("go")
            tab.sees(".tool .output", str(other))
            tab.sees(".place", "work")
            # A new one beside what runs is begun in the same directory.
            tab.click("#new")
            tab.shows("#welcome")
            tab.sees("#welcome-place", "project")
            tab.connected()
            tab.shows(f".session-row:has([href='#{kept.id}']) .live.runs")
            server.mock.release("go")
            assert tab.trouble == []


def test_work_goes_on_while_another_conversation_is_begun(open_tab: Any) -> None:
    steps = [reply("slow", gate("slow"), " but done"), reply("quick")]
    tab = open_tab(*steps)
    hangups = tab.server.mock.hangups
    tab.say("long task")
    tab.server.mock.wait_gate("slow")
    busy = tab.session
    tab.click("#new")
    tab.shows("#welcome")
    tab.connected()
    tab.ask("something else")
    tab.server.mock.release("slow")
    tab.click(f".session[href='#{busy}']")
    tab.sees(".answer", "slow but done")
    assert tab.server.mock.hangups == hangups


def test_a_command_of_the_user_stays_behind_in_its_conversation(open_tab: Any) -> None:
    tab = open_tab(reply("OK"))
    tab.say("!echo begun; sleep 60")
    tab.sees(".tool[data-state=running] .output", "begun")
    first = tab.session
    tab.click("#new")
    tab.page.wait_for_url(lambda url: not url.endswith(first))
    tab.shows("#welcome")
    tab.connected()
    tab.holds("#prompt", "")
    # Here nothing runs, until something does.
    tab.hides("#stop")
    tab.say("!echo here; sleep 60")
    tab.sees(".tool[data-state=running] .output", "here")
    tab.shows("#stop")
    tab.press("Escape")
    tab.sees(".tool .time", "interrupted")
    tab.hides("#stop")
    tab.counts(".tool", 1)
    # It has ended with the connection, and what it said is kept.
    tab.click(f".session[href='#{first}']")
    tab.sees(".tool .output", "begun")
    tab.sees(".tool .time", "interrupted")
    assert tab.trouble == []


# -- coming back ---------------------------------------------------------------------------------


def test_a_reload_finds_the_session_the_draft_and_what_is_being_answered(open_tab: Any) -> None:
    growing = reply("The beginning, ", gate("reload a"), "the middle", gate("reload b"), " and the end.")
    tab = open_tab(reply(think("hm"), "intro", call("bash", {"command": "echo out"})), reply("the end"), growing)
    tab.ask("remember me")
    tab.type("half a thought")
    before, session = tab.text(), tab.session
    tab.page.reload()
    tab.connected()
    tab.sees(".answer >> nth=-1", "the end")
    assert tab.session == session
    after = re.sub(r", [\d.]+ m?s\n", "\n", tab.text())
    assert after == re.sub(r"(, |\n)[\d.]+ m?s\n", "\n", re.sub("Thought for .*", "Thoughts", before))
    tab.sees("[data-tool=bash][data-state=done]", "out")
    tab.holds("#prompt", "half a thought")
    # In mid answer.
    tab.say("go")
    tab.sees(".answer >> nth=-1", "The beginning")
    tab.page.reload()
    tab.connected()
    tab.shows("#stop")
    tab.server.mock.release("reload a")
    tab.sees(".answer >> nth=-1", "The beginning, the middle")
    tab.server.mock.release("reload b")
    tab.settled()
    tab.sees(".answer .md >> nth=-1", re.compile("^The beginning, the middle and the end.$"))


def test_a_broken_connection_is_made_good(open_tab: Any) -> None:
    steps = [reply("one ", gate("broken a"), "two ", gate("broken b"), "three"), reply("next")]
    tab = open_tab(*steps)
    tab.say("count")
    tab.sees(".answer", "one")
    tab.context.set_offline(True)
    tab.sees("#banner", "Connection lost")
    tab.server.mock.release("broken a")
    tab.server.mock.wait_gate("broken b")
    tab.context.set_offline(False)
    tab.hides("#banner")
    tab.sees(".answer .md", "one two")
    tab.server.mock.release("broken b")
    tab.settled()
    assert tab.text(".answer .md") == "one two three"
    tab.counts(".user", 1)
    tab.ask("more")
    tab.sees(".answer >> nth=-1", "next")


def test_a_server_that_was_started_again_is_found(browser: Any, tmp_path: Path) -> None:
    with ServerProcess([reply("before")], base=tmp_path) as server, Tab(browser, server) as tab:
        tab.ask("hello")
        session = tab.session
        server.stop()
        tab.shows("#banner")
        address = f"127.0.0.1:{server.port}"
        with ServerProcess([reply("after")], base=tmp_path, args=["--remote", address]) as again:
            tab.hides("#banner")
            tab.sees(".answer", "before")
            tab.ask("still there?")
            tab.sees(".answer >> nth=-1", "after")
            assert user_texts(again) == [["hello", "still there?"]]
            assert tab.session == session


def test_a_server_that_died_in_mid_answer(browser: Any, tmp_path: Path) -> None:
    steps = [reply("first"), reply("half of an ", gate("half"), "answer")]
    with ServerProcess(steps, base=tmp_path) as server, Tab(browser, server) as tab:
        tab.ask("one")
        tab.say("two")
        server.mock.wait_gate("half")
        tab.sees(".answer >> nth=-1", "half of an")
        tab.type("for later", "Alt+Enter")
        tab.counts(".queued", 1)
        tab.type("being typed")
        server.process.kill()
        tab.shows("#banner")
        with ServerProcess([reply("a whole answer"), reply("k")], base=tmp_path, address=server.address) as again:
            tab.hides("#banner")
            tab.sees(".notice", "This run was interrupted")
            tab.sees(".queue-head", "did not go out")
            tab.holds("#prompt", "being typed")
            tab.settled()
            tab.page.get_by_role("button", name="Drop").click()
            tab.hides("#queue")
            tab.page.get_by_role("button", name="Go on").click()
            tab.sees(".answer >> nth=-1", "a whole answer")
            tab.counts(".notice", 0)
            assert user_texts(again) == [["one", "two"]]
            assert tab.page.input_value("#prompt") == "being typed"


def test_the_list_marks_a_run_that_a_dead_server_has_left(browser: Any, tmp_path: Path) -> None:
    steps = [reply("half of an ", gate("half"), "answer")]
    with ServerProcess(steps, base=tmp_path) as server, Tab(browser, server) as tab:
        tab.say("one")
        server.mock.wait_gate("half")
        server.process.kill()
    with ServerProcess([reply("a whole answer")], base=tmp_path) as again, Tab(browser, again) as tab:
        tab.press("Alt+f")
        tab.counts(".session", 1)
        tab.page.get_by_role("img", name="can be gone on with").wait_for()
        tab.click(".session")
        tab.sees(".notice", "This run was interrupted")
        tab.counts(".live.left", 0)


def test_two_tabs_agree_on_everything(browser: Any) -> None:
    steps = [reply("for both"), reply(call("bash", {"command": "echo 1"})), reply("done"), reply("again"), reply("new")]
    with (
        ServerProcess(steps) as server,
        Tab(browser, server) as one,
        Tab(browser, server, session=one.session) as two,
    ):
        one.ask("who is there?")
        two.sees(".bubble", "who is there?")
        two.sees(".answer", "for both")
        two.settled()
        one.press("Alt+a")
        two.shows("#approval[aria-pressed=true]")
        one.say("go")
        two.sees(".ask h3", "Allow bash?")
        one.click("[data-answer=yes]")
        two.counts(".ask", 0)
        two.sees(".answer >> nth=-1", "done")
        two.click("#model")
        two.page.get_by_role("option", name="Mock Two").click()
        one.sees("#model", "Mock Two")
        one.say("!echo from one")
        two.sees(".tool >> nth=-1", "from one")
        # One goes back, the other goes with it.
        one.press("Alt+t")
        one.click("#tree .line")
        two.counts(".user", 0)
        one.counts(".user", 0)
        one.ask("differently")
        two.sees(".answer >> nth=-1", "again")
        first = one.session
        one.press("Alt+c")
        one.shows("#welcome")
        two.shows("#welcome")
        assert one.session == two.session != first
        # A command of the user ends after the other tab has changed the page.
        one.ask("first")
        one.say("!echo begun; sleep 60")
        one.sees(".tool[data-state=running] .output", "begun")
        two.counts(".user", 1)
        two.press("Alt+t")
        two.click("#tree .line")
        one.counts(".user", 0)
        one.press("Escape")
        for tab in (one, two):
            tab.sees(".tool .time", "interrupted")
            tab.counts(".tool", 1)
        one.hides("#stop")
        assert one.trouble == two.trouble == []


ENTRIES = """
async () => {
  const { Entries } = await import('/page/chat/entries.js');
  const answers = [];
  const session = { id: 'one', call: () => new Promise(resolve => answers.push(resolve)) };
  const answer = (...ids) => {
    const entries = ids.map((id, i) => ({ id, parentId: ids[i - 1], type: 'custom' })).slice(1);
    answers.shift()({ entries, leafId: ids.at(-1) });
  };
  const entries = new Entries(session);
  const all = [entries.refresh()];
  answer('-', 'a');
  await all[0];
  all.push(entries.refresh(), entries.refresh());
  answer('a', 'b');
  answer('a', 'b', 'c');
  await Promise.all(all);
  const tree = entries.path().map(({ id, children }) => id + children.length);
  const late = entries.refresh();
  session.id = 'two';
  const next = entries.refresh();
  answer('-', 'late');
  answer('-', 'x');
  await Promise.all([late, next]);
  return [tree, entries.roots.map(({ id }) => id), entries.leafId];
}
"""


def test_entries_that_are_asked_for_twice_come_once_and_labels_are_set_and_taken_away(open_tab: Any) -> None:
    tab = open_tab(reply("an answer"))
    assert tab.js(ENTRIES) == [["a1", "b1", "c0"], ["x"], "x"]
    tab.ask("first")
    tab.press("Alt+t")
    tab.counts("#tree .node", 2)
    tab.page.locator("#tree .node").nth(1).hover()
    tab.click("#tree [aria-label=Label]", 1)
    tab.page.keyboard.type("a <b>good</b> place")
    tab.press("Enter")
    tab.sees("#tree .node:nth-child(2) .tag", "a <b>good</b> place")
    tab.page.locator("#tree .node").nth(1).hover()
    tab.click("#tree [aria-label=Label]", 1)
    tab.holds("#tree .rename", "a <b>good</b> place")
    tab.page.fill("#tree .rename", "")
    tab.press("Enter")
    tab.counts("#tree .tag", 0)
    tab.counts("#tree .node", 2)
    assert tab.trouble == []


def test_names_and_labels_can_be_written_while_it_works(open_tab: Any) -> None:
    tab = open_tab(reply("an ", gate("label"), "answer"), reply("more"))
    tab.press("Alt+t")
    tab.say("first")
    tab.server.mock.wait_gate("label")
    tab.click("#title")
    tab.page.keyboard.type("half a na")
    tab.server.mock.release("label")
    tab.sees(".answer", "an answer")
    tab.settled()
    tab.page.keyboard.type("me")
    tab.press("Enter")
    tab.sees("#title", "half a name")
    tab.counts("#tree .node", 2)
    tab.page.locator("#tree .node").first.hover()
    tab.click("#tree [aria-label=Label]")
    tab.page.keyboard.type("half a la")
    open_tab(session=tab.session).ask("second")
    tab.sees(".answer >> nth=-1", "more")
    tab.settled()
    tab.page.keyboard.type("bel")
    tab.press("Enter")
    tab.sees("#tree .node:nth-child(1) .tag", "half a label")
    tab.counts("#tree .node", 4)
    # What is given up changes nothing, and what happened meanwhile is shown.
    tab.page.locator("#tree .node").first.hover()
    tab.click("#tree [aria-label=Label]")
    tab.page.keyboard.type("no")
    tab.press("Escape")
    tab.sees("#tree .node:nth-child(1) .tag", "half a label")
    assert tab.trouble == []


def test_a_reload_finds_what_waits_and_what_is_asked_about(open_tab: Any) -> None:
    tab = open_tab(reply("working", gate("waits")))
    tab.press("Alt+a")
    tab.shows("#approval[aria-pressed=true]")
    tab.say("start")
    tab.server.mock.wait_gate("waits")
    tab.type("rather this", "Enter")
    tab.type("afterwards", "Alt+Enter")
    tab.counts(".queued", 2)
    # Another browser, which has never heard of any of it.
    other = open_tab(session=tab.session)
    other.sees("#queue", "rather this")
    other.sees("#queue", "afterwards")
    other.shows("#approval[aria-pressed=true]")
    other.click("#queue .link")
    other.holds("#prompt", "rather this\n\nafterwards")
    tab.hides("#queue")


def test_a_goodbye_of_the_agent_is_final_until_the_user_wants_it_back(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "bye.py").write_text(
        "def extension(agent):\n    @agent.command('bye')\n    def bye(args, ctx):\n        ctx.shutdown()\n"
    )
    args = ["-e", str(tmp_path / "bye.py")]
    with ServerProcess([reply("hello")], args=args) as server, Tab(browser, server) as tab:
        tab.ask("hi")
        tab.say("/bye ")
        tab.sees("#banner", "an extension ended the session")
        tab.sees("#connection", "Closed")
        tab.click("#banner .link")
        tab.connected()
        tab.hides("#banner")
        tab.sees(".answer", "hello")


def test_an_address_that_is_no_address(open_tab: Any) -> None:
    tab = open_tab(reply("OK"), session="%")
    tab.ask("hi")
    tab.sees(".answer", "OK")
    assert tab.trouble == []


def test_an_unknown_session_is_told(open_tab: Any) -> None:
    tab = open_tab(reply("OK"), session="no-such-session")
    tab.sees(".toast", "not here any more")
    assert tab.session != "no-such-session"
    tab.ask("hi")


def test_a_browser_is_signed_in_once(browser: Any) -> None:
    with ServerProcess(env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server, Tab(browser, server, ready=False) as tab:
        tab.sees("#sign-in", "once in this browser")
        tab.page.fill("#sign-in input", "wrong")
        tab.press("Enter")
        tab.sees("#sign-in", "That token is wrong")
        tab.page.fill("#sign-in input", TOKEN)
        tab.press("Enter")
        tab.connected()
        tab.ask("hi")
        tab.page.reload()
        tab.connected()
        tab.sees(".answer", "OK")
        kept = tab.js(
            "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, document.body.innerHTML])"
        )
        assert TOKEN not in kept and json.loads(kept)[0] == ""
        # Another tab is signed in; a tab without the cookie, and one without the key, are not.
        other = tab.context.new_page()
        other.goto(f"http://{server.address}/")
        other.wait_for_selector("body[data-connection=open]")
        tab.page.click("#more")
        tab.page.get_by_role("option", name="Open on a phone").click()
        tab.sees("#share code", "#token=:")
        address = tab.text("#share code")
        tab.press("Escape")
        # Signing out ends it in all tabs, and the address for another device goes on counting, once.
        tab.page.click("#more")
        tab.page.get_by_role("option", name="Sign out").click()
        tab.sees("#sign-in", "once in this browser")
        other.wait_for_selector("#sign-in[open]")
        other.goto("about:blank")
        other.goto(address)
        other.wait_for_selector("body[data-connection=open]")
        assert other.url.partition("#")[2].startswith("token") is False
        tab.connected()  # it has heard of the other tab
        other.close()


def test_an_address_does_not_sign_one_in_as_somebody_else(browser: Any, tmp_path: Path) -> None:
    from tests.wires.server.test_team import Team

    with Team(tmp_path, {"anna": {}, "bob": {}}) as server, Tab(browser, server, ready=False) as tab:
        tab.page.goto("about:blank")
        tab.page.goto(f"http://{server.address}/#token={server.tokens['bob']}")
        tab.sees("#sign-in", "if it is a link of your own")
        assert tab.js("localStorage.length === 0") and "token" not in tab.page.url


def test_a_link_shows_a_conversation_to_others(browser: Any, tmp_path: Path) -> None:
    from tests.wires.server.test_team import Team

    def sign_in(tab: Tab, name: str) -> None:
        tab.page.fill("#sign-in input", team.tokens[name])
        tab.page.press("#sign-in input", "Enter")
        tab.page.wait_for_selector("body[data-connection=open]")

    steps = [reply("The answer"), reply("Firstpart ", gate("go"), "secondpart")]
    with Team(tmp_path, {"anna": {}, "bob": {}}, steps) as team, Tab(browser, team, ready=False) as anna:
        sign_in(anna, "anna")
        anna.ask("A question")
        anna.page.click("#more")
        anna.page.get_by_role("option", name="Share with others of this server").click()
        anna.page.get_by_role("button", name="Make a link").click()
        link = anna.text("#links code").partition("#")[2]
        anna.press("Escape")
        anna.page.click("#more")
        anna.page.get_by_role("option", name="Sign out").click()
        anna.page.wait_for_selector("#sign-in[open]")
        sign_in(anna, "anna")
        anna.sees("#feed", "The answer")
        with Tab(browser, team, session=link, ready=False, locale="en-IE") as bob:
            sign_in(bob, "bob")
            bob.sees("#viewing", "anna shows you this conversation")
            bob.sees("#feed", "The answer")
            for gone in ("#composer", "#sidebar", "#more", "#open-panel", ".user .actions"):
                bob.hides(gone)
            anna.say("Go on")
            team.mock.wait_gate("go")
            bob.sees("#feed", "Firstpart")
            for key in ("Alt+c", "Alt+i", "Alt+d", "Alt+o", "Control+k", "Escape"):
                bob.press(key)
            assert bob.page.locator("dialog[open], :popover-open, .toast, .pane:not([hidden])").count() == 0
            assert bob.session == link
            team.mock.release("go")
            bob.sees("#feed", "secondpart")
            anna.page.click("#more")
            anna.page.get_by_role("option", name="Share with others of this server").click()
            anna.page.get_by_role("button", name="Remove").click()
            bob.sees(".toast", "leads nowhere any more")
            bob.shows("#composer")
            bob.hides("#viewing")
            bob.sees("#welcome", "What shall we work on")


def test_a_long_conversation_stays_quick_and_in_place(browser: Any, tmp_path: Path) -> None:
    from tests.export.helpers import long_session

    count = 2000
    with ServerProcess([reply("first")], base=tmp_path) as server:
        with Tab(browser, server) as tab:
            tab.ask("make a file")
            session = tab.session
        server.stop()
    (file,) = (tmp_path / "agent" / "sessions").rglob("*.jsonl")
    header = json.loads(file.read_text().partition("\n")[0])
    file.write_text("\n".join(json.dumps(line) for line in [header, *long_session(count)]) + "\n")
    steps = [reply(*["word "] * 200, gate("go"), "end")]
    with ServerProcess(steps, base=tmp_path) as server, Tab(browser, server, session=session) as tab:
        tab.sees(".answer >> nth=-1", f"Answer {count - 1}")
        assert tab.page.locator("#feed > *").count() < 80
        at_end = "(s => s.scrollHeight - s.scrollTop - s.clientHeight < 2)(document.getElementById('scroller'))"
        assert tab.js(at_end)
        tab.say("and now?")
        server.mock.wait_gate("go")
        tab.sees(".answer >> nth=-1", "word")
        assert tab.js(at_end)
        # A reader further up stays there.
        tab.page.mouse.move(700, 400)
        tab.page.mouse.wheel(0, -3000)
        tab.shows("#latest")
        before = tab.js("document.getElementById('scroller').scrollTop")
        server.mock.release("go")
        tab.settled()
        assert tab.js("document.getElementById('scroller').scrollTop") == pytest.approx(before, abs=2)
        tab.click("#latest")
        tab.hides("#latest")
        assert tab.js(at_end)


def test_a_conversation_that_another_program_holds_does_not_lock_the_page(browser: Any) -> None:
    with ServerProcess([reply("in the copy"), reply("in the new one")]) as server:
        folder = server.agent_dir / "sessions" / encode_cwd(str(server.cwd))
        held = create(server.cwd, folder)
        held.append_message(UserMessage("said elsewhere", 1))
        held.save()
        with Tab(browser, server, session=held.id, ready=False) as tab:
            for _ in range(2):
                tab.sees("#viewing", "Another program on this machine holds this conversation. You can read it.")
                for detail in (str(server.base), "process ", held.id):
                    assert detail not in tab.text("#viewing")
                tab.sees(".user", "said elsewhere")
                assert tab.session == held.id and not tab.page.locator("#composer").is_visible()
                tab.counts(".session", 1)  # History works
                tab.press("Alt+r")  # what would write does nothing
                tab.page.reload()
            tab.page.get_by_role("button", name="Try again").click()
            tab.sees(".user", "said elsewhere")
            held.append_message(UserMessage("and more", 2))
            held.sync()
            tab.sees("#feed", "and more")
            tab.press("Alt+c")  # and so does a new conversation
            tab.shows("#welcome")
            tab.connected()
            tab.ask("a new one")
            tab.sees(".answer >> nth=-1", "in the copy")
            tab.click(".session:has-text('said elsewhere')")
            tab.page.get_by_role("button", name="Continue in a copy").click()
            tab.connected()
            tab.sees(".user", "said elsewhere")
            assert tab.session != held.id
            tab.ask("go on")
            tab.sees(".answer >> nth=-1", "in the new one")
            assert user_texts(server)[-1] == ["said elsewhere", "and more", "go on"]
            assert len(held.entries) == 2 and held.path is not None
            assert "go on" not in held.path.read_text()
            held.close()
            assert tab.trouble == []


def test_many_conversations_come_by_the_hundred(browser: Any, tmp_path: Path) -> None:
    with ServerProcess(base=tmp_path) as server:
        server.mock.script(reply("fine"))
        folder = server.agent_dir / "sessions" / encode_cwd(str(server.cwd))
        for number in range(130):
            with create(server.cwd, folder, fsync="never") as kept:
                kept.append_message(UserMessage(content=f"question {number}", timestamp=1_700_000_000_000 + number))
        with Tab(browser, server) as tab:
            tab.counts(".session", 100)
            tab.page.fill("#session-search", "question 3")
            tab.sees(".session >> nth=-1", "question 3")  # it is on no page that was shown
            tab.page.fill("#session-search", "question")
            tab.counts(".session", 100)  # those that are listed; more of those that were found come by the page
            tab.sees(".more", "Show more")
            press = "() => { const more = document.querySelector('.more'); more?.click(); return !more; }"
            tab.page.wait_for_function(press, polling=100)
            tab.counts(".session", 130)
            tab.page.fill("#session-search", "")
            tab.ask("one more")
            tab.sees(".session", "one more")
            tab.counts(".session", 101)
            tab.page.get_by_text("Show more").click()
            tab.counts(".session", 131)
            assert not tab.page.get_by_text("Show more").is_visible()
            assert tab.trouble == []
