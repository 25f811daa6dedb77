"""The exported page in a real browser: what it shows, and how one gets around in it."""

import json
import os
from pathlib import Path

import pytest

from tests.export.helpers import (
    answer,
    call,
    long_session,
    message,
    open_session,
    page_of,
    page_of_file,
    result,
    session_files,
    user,
)

from .conftest import Open, Visit

pytestmark = pytest.mark.timeout(180)
AXE = Path(os.environ.get("SPINDLE_AXE") or Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js")


def texts_of(name: str) -> list[str]:
    """Return the texts that a reader of the active branch must find."""
    found = []
    for entry in open_session(name).branch():
        content = (entry.value.get("message") or {}).get("content")
        if isinstance(content, list) and entry.value["message"].get("role") == "user":
            found += [block["text"] for block in content if block.get("type") == "text"]
    return found


# -- what is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", session_files())
def test_real_sessions_render(visit: Open, name: str) -> None:
    page = visit(page_of_file(name))
    assert page.trouble == []
    assert "cannot be shown" not in page.text()
    assert page.page.locator("#messages article").count() > 0
    assert page.rows()
    shown = "".join(page.text().split())
    for text in texts_of(name):
        if "**" not in text:
            assert "".join(text.split()) in shown


def test_every_kind_of_entry_and_landmarks_and_names(visit: Open) -> None:
    page = visit(page_of_file("real-everything"))
    for role in ("banner", "navigation", "main", "feed", "toolbar"):
        assert page.page.get_by_role(role).count() == 1, role
    page.expect("!document.querySelector('.tree-map').hidden")
    for name in ("Entries", "Map of the conversation"):
        assert page.page.get_by_role("tree", name=name).count() == 1, name
    nameless = (
        "Array.from(document.querySelectorAll('button, input, a'))"
        ".filter(node => !(node.innerText || node.ariaLabel || node.querySelector('img')?.alt)).length"
    )
    assert page.js(nameless) == 0
    row = page.page.locator("#tree [role=treeitem]").nth(7)
    assert [row.get_attribute(f"aria-{name}") for name in ("level", "posinset", "setsize")] == ["2", "1", "1"]
    # Each kind.
    text = page.text()
    assert "Thinking" in text
    assert "Compacted from 45,678 tokens" in text
    assert "CI passed" in text
    assert "not shown" not in text
    assert "Error: 503 overloaded" in text
    assert "Aborted" in text
    assert "exit 1" in text
    assert "Model: mock/mock-2" in text
    assert page.page.locator(".diff .add").inner_text().split() == ["2", "+", "TWO"]
    assert page.page.locator(".diff .del").inner_text().split() == ["2", "-", "two"]
    assert page.page.locator(".head .label").inner_text() == "start here"
    assert page.page.locator(".tool[data-state=failed]").count() == 4
    assert page.js("document.querySelector('.picture img').naturalWidth") == 10
    assert page.page.locator("th").all_inner_texts() == ["a", "b"]
    assert page.page.locator(".code .t-word").first.inner_text() == "def"
    page.page.locator(".picture").click()
    assert page.page.locator("#viewer").is_visible()


def test_cleared_labels_do_not_show(visit: Open) -> None:
    page = visit(page_of_file("real-labels-custom-info"))
    page.page.click("[data-filter=all]")
    assert page.page.locator("#tree .label").all_inner_texts() == ["start-renamed"]
    page.page.click("[data-filter=labeled]")
    assert any("Start work" in row for row in page.rows())


def test_tool_output_opens_and_closes(visit: Open) -> None:
    output = "\n".join(f"line {number}" for number in range(40))
    page = visit(page_of([answer("a", None, call("c", "bash", command="seq")), result("b", "a", "c", "bash", output)]))
    assert "line 39" in page.text()
    assert "line 3\n" not in page.text()
    page.page.click("text=Show 34 earlier lines")
    assert "line 3\n" in page.text()
    page.page.click("text=Show less")
    assert "line 3\n" not in page.text()


def test_a_card_says_everything_once_and_stays_as_it_was_left(visit: Open) -> None:
    calls = [
        call("c", "grep", pattern="x", path="src", ignoreCase=True),
        call("d", "edit", path="a.py", edits=[{"oldText": "a", "newText": "\n".join(f"b{n}" for n in range(60))}]),
    ]
    page = visit(page_of([answer("a", None, *calls), result("b", "a", "c", "grep", "found")]))
    assert page.text("[data-tool=grep] summary").split() == ["grep", "x", "in", "src"]
    assert page.text("[data-tool=grep] .arguments").split() == ["{", '"ignoreCase":', "true", "}"]
    assert page.page.locator("[data-tool=edit] .mark").get_attribute("title") == "no result"
    assert page.page.locator(".diff > div").count() == 40
    page.page.click("[data-tool=grep] summary")
    page.page.click("text=Show 21 more lines")
    assert page.page.locator(".diff > div").count() == 61
    assert not page.page.locator("[data-tool=grep][open]").count()


def test_one_endless_line_is_cut(visit: Open) -> None:
    page = visit(page_of([result("b", "", "c", "bash", "x" * 300_000)]))
    assert len(page.text()) < 10_000
    page.page.click("text=Show 295,000 more characters")
    assert len(page.text()) > 300_000


def test_a_message_without_end_begins_to_show_at_once(visit: Open) -> None:
    """Ten megabytes in one message: the beginning is there, all of it on demand, and a search goes into it."""
    page = visit(page_of([user("a", None, "x" * 10_000_000), answer("b", "a", "word " * 400_000 + "needle")]))
    assert len(page.text()) < 60_000
    page.page.click("text=Show all 10,000,000 characters")
    assert page.js("document.querySelector('article.user').textContent.length") > 10_000_000
    page.page.press("text=Show less", "Enter")  # a pointer may miss it: heights are measured while it comes into view
    page.expect("document.querySelectorAll('.piece').length === 0")
    page.page.fill("#search", "needle")
    page.expect("document.querySelectorAll('#tree .row').length === 1")
    page.expect("document.querySelector('#messages').textContent.includes('needle')")


def test_a_script_given_to_the_shell_is_cut(visit: Open) -> None:
    script = "\n".join(f"step {number}" for number in range(40))
    command = {"role": "bashExecution", "command": script, "output": "ok", "exitCode": 0}
    calls = answer("a", None, call("c", "bash", command=script), call("d", "bash", command="ls -la\npwd"))
    page = visit(page_of([calls, message("b", "a", **command)]))
    assert page.page.locator("pre.command").all_inner_texts()[1] == "ls -la\npwd"
    assert "step 9" in page.text()
    assert "step 39" not in page.text()
    page.page.click("text=Show 30 more lines >> nth=0")
    assert page.text().count("step 39") == 1
    page.page.keyboard.press("o")
    assert page.text().count("step 39") == 2


def test_text_runs_in_its_own_direction(visit: Open) -> None:
    page = visit(page_of([user("a", None, "שלום עולם"), answer("b", "a", "- بند أول\n- بند ثان\n\nplain text")]))
    # Text begins at the right, and so do the marks of its list; what is written from the left stays there.
    where = (
        "selector => { const node = document.querySelector(selector); const range = new Range();"
        " range.selectNodeContents(node);"
        " const text = range.getBoundingClientRect(), box = node.getBoundingClientRect();"
        " return text.left - box.left > box.right - text.right }"
    )
    assert page.js(where, ".user p") is True
    assert page.js(where, ".assistant li") is True
    assert page.js("getComputedStyle(document.querySelector('.assistant ul')).direction") == "rtl"
    assert page.js(where, ".assistant .md > p") is False


def test_the_date_shows_when_the_day_is_another(visit: Open) -> None:
    later = {**user("b", "a", "later"), "timestamp": "2026-03-05T12:00:00.000Z"}
    page = visit(page_of([user("a", None, "now"), later]), timezone_id="UTC", locale="en-US")
    assert page.page.locator("#messages time").all_inner_texts() == ["12:00 AM", "Mar 5, 2026, 12:00 PM"]


def test_the_beginning_of_the_system_prompt_shows(visit: Open) -> None:
    page = visit(page_of([user("a", None, "hi")], system_prompt="\n".join(f"rule {number}" for number in range(30))))
    page.page.click("text=About this session")
    assert "rule 9" in page.text(".card")
    assert "rule 10" not in page.text(".card")
    page.page.click("text=System prompt")
    assert "rule 29" in page.text(".card")
    assert page.text(".card").count("rule 9") == 1


STORY = [
    user("a", None, "Let the sum start at two"),
    answer("b", "a", "I look.", call("c1", "edit", path="src/f.py", edits=[{"oldText": "1", "newText": "2"}])),
    result("c", "b", "c1", "edit", "ok", details={"diff": " 1 def f():\n-2     return 1\n+2     return <2>"}),
    answer("d", "c", call("c2", "bash", command="pytest")),
    result("e", "d", "c2", "bash", "\n".join(f"test {number}" for number in range(40))),
    answer("f", "e", "Done: it starts at two."),
]


def test_the_first_screen_tells_the_story(visit: Open) -> None:
    late = {**STORY[-1], "timestamp": "2026-01-01T00:02:00.000Z"}
    page = visit(page_of([*STORY[:-1], late]), timezone_id="Asia/Tokyo", locale="en-GB")
    card = page.text(".card")
    for part in ("Let the sum start at two", "Done: it starts at two.", "src/f.py", "2 min", "$1.50"):
        assert part in card
    assert "test-session" not in card, "what it was made with is folded"
    page.page.click("text=About this session")
    assert "09:00" in page.text(".card"), "in the reader's own time"
    # Paper cannot be opened: everything is there.
    assert "test 3\n" not in page.text()
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert "test 3\n" in page.text()
    page.js("dispatchEvent(new Event('afterprint'))")
    assert "test 3\n" not in page.text()
    assert page.trouble == []


def test_the_outcome_is_the_last_whole_answer(visit: Open) -> None:
    entries = [
        user("a", None, "Say **hello**"),
        answer("b", "a", "I will look", call("c", "bash", command="ls"), stopReason="toolUse"),
        result("c", "b", "c", "bash", "x"),
        answer("d", "c", "## Hello\n\nIt is `done`."),
        user("e", "d", "go on"),
        answer("f", "e", "Well,", stopReason="error", errorMessage="overloaded"),
    ]
    page = visit(page_of(entries))
    assert page.text("h1") == "Say hello"
    rows = [row.split("\n") for row in page.page.locator(".story > dd").all_inner_texts()]
    assert rows[0] == ["Say hello"]
    assert [line for line in rows[1] if line] == ["Hello", "It is done."]
    assert rows[2] == ["Error: overloaded"]
    assert page.rows()[:1] == ["user: Say hello"]
    assert "assistant: Hello It is done." in page.rows()


def test_work_beside_the_conversation_is_closed_with_a_line(visit: Open) -> None:
    background = {"details": {"backgroundId": "bg1"}}
    running = "[bg1 is running. Its output: /tmp/o.log. You will be told when it ends.]"
    work = {"agent": "explore", "status": "ok", "toolCalls": 3, "tokens": {"total": 1200}, "cost": 0.02}
    ended = "bg1 exited with code 2 after 3.5 s: make\nIts output: /tmp/o.log"
    entries = [
        user("a", None, "go"),
        answer(
            "b", "a", call("c1", "bash", command="make", background=True), call("c2", "task", prompt="Look **here**")
        ),
        result("c", "b", "c1", "bash", f"cc a.c\n\n{running}", **background),
        result("d", "c", "c2", "task", "# Found\n\nall of *it*", details=work),
        answer("e", "d", "It builds."),
        message("f", "e", role="custom", customType="spindle.background", display=True, content=ended),
        answer("g", "f", call("c3", "bash", command="sleep 9", background=True)),
        result("h", "g", "c3", "bash", running.replace("bg1", "bg2"), details={"backgroundId": "bg2"}),
    ]
    page = visit(page_of(entries))
    cards = page.page.locator("details.tool")
    assert [card.get_attribute("open") for card in cards.all()] == [None] * 3
    assert cards.locator(".gist").all_inner_texts() == ["make", "general: Look here", "sleep 9"]
    lines = ["bg1 exited with code 2 after 3.5 s", "3 calls · 1,200 tokens · $0.02", "bg2 is running"]
    assert cards.locator(".size").all_inner_texts() == lines
    cards.nth(0).locator("summary").click()
    assert cards.nth(0).locator(".output").inner_text() == "cc a.c"
    cards.nth(1).locator("summary").click()
    assert cards.nth(1).locator(".tool-output h3").inner_text() == "Found"
    assert cards.nth(1).locator(".tool-input b, .tool-input strong").inner_text() == "here"
    told = page.page.locator("article.custom")
    assert told.locator("h2").inner_text() == "Background command"
    assert told.locator("summary").inner_text() == "bg1 exited with code 2 after 3.5 s: make"
    assert page.rows()[-2] == "[background]: bg1 exited with code 2 after 3.5 s: make Its output: /tmp/o.log"
    assert page.trouble == []


def test_changes_show_without_scripts(visit: Open) -> None:
    page = visit(page_of(STORY), ready=False, java_script_enabled=False)
    assert page.page.locator(".diff .add").all_inner_texts() == ["+2     return <2>"]
    assert page.page.locator(".diff .del").count() == 1


def test_skills_are_folded(visit: Open) -> None:
    skill = (
        '<skill name="review" location="/s/SKILL.md">\nReferences are relative to /s.\n\nBODY\n</skill>\n\nlook at x.py'
    )
    page = visit(page_of([user("a", None, skill)]))
    assert "Skill: review" in page.text()
    assert "BODY" not in page.text()
    assert "look at x.py" in page.text()
    assert page.rows() == ["user: skill: review"]


def test_what_belongs_to_no_call_is_shown_too(visit: Open) -> None:
    page = visit(
        page_of([result("a", "", "gone", "bash", "an orphan"), message("b", "a", role="new-role", content="?")])
    )
    assert "an orphan" in page.text()
    assert "new-role" in page.text()


MARKDOWN = [
    ("**a** *b* ~~c~~ `d`", "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d</code></p>"),
    ("snake_case_name and 2*3*4", "<p>snake_case_name and 2<em>3</em>4</p>"),
    ("***both***", "<p><em><strong>both</strong></em></p>"),
    ("one\ntwo", "<p>one<br>two</p>"),
    ("# H", '<h3 class="md-h1">H</h3>'),
    ("H\n===", '<h3 class="md-h1">H</h3>'),
    ("- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("> q\n> r", "<blockquote><p>q<br>r</p></blockquote>"),
    ("---", "<hr>"),
    ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
    ("a &lt; b &amp; c", "<p>a &lt; b &amp; c</p>"),
    (
        "[t](https://e.org/a_b)",
        '<p><a href="https://e.org/a_b" target="_blank" rel="noopener noreferrer">t</a></p>',
    ),
    ("[t](javascript:alert(1))", '<p><span>t<span class="muted"> (javascript:alert(1))</span></span></p>'),
    ("[t](src/x.py)", '<p><span>t<span class="muted"> (src/x.py)</span></span></p>'),
    (
        "see https://e.org/x.",
        '<p>see <a href="https://e.org/x" target="_blank" rel="noopener noreferrer">https://e.org/x</a>.</p>',
    ),
    ("`a <b> **c**`", "<p><code>a &lt;b&gt; **c**</code></p>"),
    ("\\*not\\*", "<p>*not*</p>"),
    ("*unclosed", "<p>*unclosed</p>"),
    (
        "|a|b|\n|-|:-:|\n|1|`x\\|y`|",
        '<div class="table" tabindex="0"><table><thead><tr><th>a</th><th class="center">b</th></tr></thead>'
        '<tbody><tr><td>1</td><td class="center"><code>x|y</code></td></tr></tbody></table></div>',
    ),
]


def test_markdown(visit: Open) -> None:
    entries = []
    for number, (source, _) in enumerate(MARKDOWN):
        entries.append(answer(f"e{number}", f"e{number - 1}" if number else None, source))
    page = visit(page_of(entries))
    found = page.js("Array.from(document.querySelectorAll('#messages .md'), node => node.innerHTML)")
    assert found == [expected for _, expected in MARKDOWN]


def test_code_blocks_keep_their_text(visit: Open) -> None:
    code = {
        "python": "@dec\ndef f(x: int) -> str:\n    return f'{x}'  # why\n'''a\nb'''",
        "html": '<a href="x">&amp;</a> <!-- c --> <',
        "diff": "--- a\n+++ b\n-x\n+y",
        "sh": 'echo "$HOME" # c\nfor i in *; do :; done',
        "json": '{"a": [1, true, null, "x\\"y"]}',
        "js": "const s = `a${1}\n`; // end\\",
        "nosuch": "as <it> is",
    }
    text = "\n\n".join(f"```{language}\n{source}\n```" for language, source in code.items())
    page = visit(page_of([answer("a", None, text)]))
    assert page.js("Array.from(document.querySelectorAll('#messages .code pre'), node => node.textContent)") == list(
        code.values()
    )


# -- branches, search, addresses -----------------------------------------------------------------


def test_branches_switch_by_pointer_by_keys_and_in_the_address(visit: Open) -> None:
    page = visit(page_of_file("real-everything"))
    assert "Alternative done." not in page.text()
    page.page.click("#tree >> text=Alternative branch")
    assert "Alternative done." in page.text()
    assert "Final reply." not in page.text()
    assert "Branch 2 of 2" in page.text()
    page.page.click("[aria-label='Next branch']")
    assert "Final reply." in page.text()
    page.page.click("#tree >> text=Alternative branch")
    page.page.keyboard.press("Escape")
    assert "Final reply." in page.text()
    # By keys.
    page.page.focus("#tree")

    def active() -> str:
        return str(page.js("document.getElementById(tree.getAttribute('aria-activedescendant')).innerText"))

    page.page.keyboard.press("Home")
    assert active().startswith("start here\nuser: Please TOOLS")
    page.page.keyboard.press("ArrowDown")
    assert active() == "assistant: Calling tools."
    page.page.keyboard.press("End")
    assert active() == "assistant: Alternative done."
    page.page.keyboard.press("ArrowLeft")
    assert active().startswith("[branch summary]")
    page.page.keyboard.press("ArrowLeft")
    assert active() == "assistant: Tools done (#5)."
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    assert active().startswith("[branch summary]")
    page.page.keyboard.press("Enter")
    assert "Alternative done." in page.text()
    assert page.js("document.activeElement.id") == "tree"
    # What is chosen is in the address.
    page.page.keyboard.press("Escape")
    assert "Final reply." in page.text()
    page.page.click("#tree >> text=Alternative branch")
    assert page.page.url.endswith("#leaf=4b672924&target=56112159")
    page.page.reload()
    page.page.wait_for_selector("html.ready", state="attached")
    assert "Alternative done." in page.text()


def test_filters_keys_and_search(visit: Open) -> None:
    page = visit(page_of_file("real-everything"))
    assert page.text("#status") == "27 / 36 entries"
    expected = {"no-tools": (False, True), "user": (False, True), "labeled": (False, True), "all": (True, True)}
    for name, (with_tools, with_leaf) in expected.items():
        page.page.click(f"[data-filter={name}]")
        rows = page.rows()
        assert any(row.startswith("[read: notes.txt]") for row in rows) == with_tools, name
        assert any("Final reply." in row for row in rows) == with_leaf, name
    assert page.text("#status") == "36 / 36 entries"
    assert "[name: Export demo]" in page.rows()
    page.page.click("[data-filter=default]")
    assert page.text("#status") == "27 / 36 entries"
    # Keys.
    keys = page.page.keyboard
    assert "Planning the explanation." not in page.text()
    keys.press("t")
    assert "Planning the explanation." in page.text()
    keys.press("t")
    assert "Planning the explanation." not in page.text()
    assert "file0" not in page.text()
    keys.press("o")
    assert "file0" in page.text()
    keys.press("o")
    assert "file0" not in page.text()
    keys.press("?")
    assert page.page.locator("#help").is_visible()
    for key in ("T", "O", "Esc", "/", "↑", "Enter"):
        assert key in page.text("#help")
    keys.press("Escape")
    assert not page.page.locator("#help").is_visible()
    keys.press("/")
    assert page.js("document.activeElement.id") == "search"
    keys.type("to")
    assert page.page.input_value("#search") == "to"
    keys.press("Escape")
    # A search finds what stands in bodies.
    page.page.fill("#search", "FILE17")
    page.expect("document.querySelectorAll('#tree .row').length === 1")
    assert page.rows() == ["[bash]: ls -la"]
    # Found in output that was folded, so it is unfolded and marked.
    assert "file17" in page.text()
    assert page.js("CSS.highlights.get('found').size") >= 1
    assert page.text("#hits") == "1 of 1 on this branch"
    page.page.keyboard.press("Enter")
    page.expect("document.querySelector('#hits').textContent.startsWith('1 of 1')")
    assert page.in_view(".command")
    page.page.keyboard.press("Escape")
    page.expect("document.querySelectorAll('#tree .row').length === 27")
    assert page.page.input_value("#search") == ""


def test_search_takes_every_character(visit: Open) -> None:
    entries = [user("a", None, 'a quote "x" and <tag>'), answer("b", "a", "back\\slash"), user("c", "b", "äpfel")]
    page = visit(page_of(entries))
    for query, row in (
        ('quote "x"', 'user: a quote "x" and <tag>'),
        ("back\\slash", "assistant: back\\slash"),
        ("<tag>", 'user: a quote "x" and <tag>'),
        ("ÄPFEL", "user: äpfel"),
        ("nothing of it", None),
        ("äpfel user", "user: äpfel"),
    ):
        page.page.fill("#search", query)
        found = "[...document.querySelectorAll('#tree .row-text')].map(row => row.innerText)"
        page.expect(f"JSON.stringify({found}) === {json.dumps(json.dumps([row] if row else [], ensure_ascii=False))}")


def test_search_does_not_find_the_format(visit: Open) -> None:
    page = visit(page_of_file("real-branched"))
    page.page.fill("#search", "parentId")
    page.expect("document.querySelectorAll('#tree .row').length === 0")


@pytest.mark.parametrize("address", ["#leaf=4b672924&target=56112159", "?leafId=4b672924&targetId=56112159"])
def test_addresses(visit: Open, address: str) -> None:
    page = visit(page_of_file("real-everything"), address)
    assert "Alternative done." in page.text()
    assert page.page.locator("[role=treeitem][aria-selected=true]").inner_text() == "user: Alternative branch"


def test_an_address_of_nothing_shows_the_session(visit: Open) -> None:
    page = visit(page_of_file("real-everything"), "#leaf=%3Cscript%3E&target=constructor")
    assert "Final reply." in page.text()
    assert page.trouble == []


def test_download_is_the_session(visit: Open) -> None:
    for name in ("real-everything", "edge-string-encodings"):
        page = visit(page_of_file(name))
        with page.page.expect_download() as waiting:
            page.page.click("#download-button")
        lines = Path(waiting.value.path()).read_text("utf-8", "surrogatepass").split("\n")
        assert lines.pop() == ""
        store = open_session(name)
        assert [json.loads(line) for line in lines] == [
            store.header.value,
            *(entry.value for entry in store.entries),
        ]


def test_copying(visit: Open) -> None:
    page = visit(page_of([answer("a", None, "some **text**\n\n```\ncode\n```")]))
    page.js("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    page.page.hover("article")
    page.page.click("[aria-label='Copy text']")
    assert page.js("copied") == "some **text**\n\n```\ncode\n```"
    page.page.click("[aria-label='Copy code']")
    assert page.js("copied") == "code"
    page.page.click("[aria-label='Copy link']")
    assert page.js("copied") == page.path.as_uri() + "#leaf=a&target=a"
    share = "https://share.example/s?gist=1"
    page.js(
        "url => document.head.insertAdjacentElement('beforeend', Object.assign(document.createElement('meta'),"
        " { name: 'pi-share-base-url', content: url }))",
        share,
    )
    page.page.click("[aria-label='Copy link']")
    assert page.js("copied") == f"{share}&leafId=a&targetId=a"
    page.js("() => { navigator.clipboard.writeText = async () => { throw new Error('no') } }")
    page.page.click("[aria-label='Copy text']")
    page.expect("document.querySelector('#announcer').textContent === 'Copied'")


# -- keys, looks, reach --------------------------------------------------------------------------


def test_the_map_shows_where_the_session_divides(visit: Open) -> None:
    entries = [user("a", None, "first"), answer("b", "a", "one"), user("c", "b", "second"), answer("d", "c", "two")]
    page = visit(page_of([*entries, user("e", "b", "differently"), answer("f", "e", "three")]))
    page.expect("!document.querySelector('.tree-map').hidden")
    assert page.text(".map-at") == "assistant: three"
    page.page.locator(".tree-map").focus()
    page.page.keyboard.press("ArrowRight")
    assert page.text(".map-at") == "assistant: two"
    page.page.keyboard.press("Enter")
    page.expect("document.getElementById('messages').innerText.includes('two')")
    page.expect("document.querySelector('.map-at').innerText === 'assistant: two'")
    assert "three" not in page.text()
    # Without branches there is nothing to show.
    assert visit(page_of(entries)).js("document.querySelector('.tree-map').hidden")


def test_from_message_to_message(visit: Open) -> None:
    page = visit(page_of(long_session(400)))
    seen = []
    for key in ("j", "j", "j", "j", "k"):
        page.page.keyboard.press(key)
        seen.append(page.js("Number(document.activeElement.dataset.item)"))
    assert seen == [0, 1, 2, 3, 2]


def test_light_and_dark(visit: Open) -> None:
    def brightness(page: Visit) -> int:
        return int(page.js("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"))

    light = visit(page_of_file("real-branched"), color_scheme="light")
    dark = visit(page_of_file("real-branched"), color_scheme="dark")
    assert brightness(light) > 200 > 60 > brightness(dark)
    dark.page.click("#theme-button")
    assert brightness(dark) > 200
    dark.page.reload()
    dark.page.wait_for_selector("html.ready", state="attached")
    assert brightness(dark) > 200


def test_on_a_phone(visit: Open) -> None:
    page = visit(
        page_of_file("real-everything"), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    assert page.js("document.documentElement.scrollWidth") <= 390
    assert not page.page.locator("#sidebar").is_visible()
    page.page.tap("#menu")
    page.page.wait_for_selector("#tree .row")
    page.page.tap("#tree >> text=Alternative branch")
    assert "Alternative done." in page.text()
    page.page.wait_for_selector("#sidebar", state="hidden")
    page.page.tap("#menu")
    page.page.wait_for_selector("#search")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#sidebar", state="hidden")


def test_the_sidebar_can_be_widened(visit: Open) -> None:
    page = visit(page_of_file("real-branched"))
    page.page.mouse.move(360, 500)
    page.page.mouse.down()
    page.page.mouse.move(2000, 500)
    page.page.mouse.up()
    assert page.js("sidebar.getBoundingClientRect().width") == 720
    page.page.reload()
    page.page.wait_for_selector("html.ready", state="attached")
    assert page.js("sidebar.getBoundingClientRect().width") == 720
    page.page.dblclick("#grip")
    assert page.js("sidebar.getBoundingClientRect().width") == 360


def test_paper_gets_everything(visit: Open) -> None:
    page = visit(page_of(long_session(1200)))
    page.js("scrollTo(0, 40000)")
    page.expect("document.querySelector('#messages article').dataset.item > 9")
    assert page.page.locator("#messages article").count() < 100
    place = page.js("scrollY")
    page.page.emulate_media(media="print")
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.page.locator("#messages article").count() == 900
    assert page.page.locator(".missing").count() == 0
    assert not page.page.locator("#sidebar").is_visible()
    page.page.emulate_media(media="screen")
    page.js("dispatchEvent(new Event('afterprint'))")
    assert page.page.locator("#messages article").count() < 100
    assert abs(page.js("scrollY") - place) < 600


def test_without_scripts(visit: Open) -> None:
    page = visit(page_of_file("real-everything"), ready=False, java_script_enabled=False)
    text = page.text("main")
    assert "Scripts are off" in text
    assert "Explain with **markdown**" in text
    assert "$ echo hi; exit 3" in text
    assert "Cost" in text
    assert not page.page.locator("#sidebar").is_visible()
    assert not page.page.locator("#theme-button").is_visible()
    assert page.page.locator("main").bounding_box()["width"] > 1200


def everything() -> bytes:
    """Return a page with each thing it can show, for the rules of accessibility."""
    code = "```python\ndef f(x): return 'a'  # why\n```\n```diff\n+a\n-b\n@@ c\n```\n```html\n<a b='c'><!-- d -->\n```"
    entries = [json.loads(json.dumps(entry.value)) for entry in open_session("real-everything").entries]
    entries.append(
        answer(
            "m1", entries[-1]["id"], f"### Deep\n\n##### Deeper\n\n- [ ] a\n- [x] [b](https://e.org)\n\n> c\n\n{code}"
        )
    )
    script = "\n".join(["a very long command"] * 60)
    calls = [call("c", "bash", command=script), call("d", "write", path="a.py", content="x=1")]
    calls += [call("e", "edit", path="a.py", edits=[]), call("f", "task", prompt="**Look**")]
    entries.append(answer("m2", "m1", *calls))
    colours = "\n".join(
        f"\x1b[{n}mon\x1b[0m \x1b[{n + 10}mat\x1b[0m \x1b[2;{n}mdim\x1b[0m" for n in (*range(30, 38), *range(90, 98))
    )
    diff = "-1 x = 'a'  # one\n+1 x = \"b\"  # two\n-2 def f(): return None\n+2 def f(): return True"
    entries.append(result("r1", "m2", "c", "bash", colours))
    entries.append(result("r2", "r1", "e", "edit", "ok", details={"diff": diff}))
    entries.append(
        result("r3", "r2", "f", "task", "# Found\n\n```py\nx = 1  # c\n```", details={"status": "limit"}, isError=True)
    )
    entries.append(user("m3", "r3", "word " * 50_000))
    tools = [{"name": "x", "description": "Do it.", "parameters": {"type": "object"}}]
    prompt = "Be kind.\n" * 60
    return page_of(entries, name="x", system_prompt=prompt, tools=tools, damage_notes=["line 4"], redact=True)


def find_violations(page: Visit, state: str) -> list[str]:
    run = "axe.run(document).then(result => result.violations)"
    return [f"{state}: {rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in page.js(run)]


@pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not installed (npm install axe-core, its file in SPINDLE_AXE)"
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("dark", 390)])
def test_accessibility_rules(visit: Open, scheme: str, width: int) -> None:
    viewport = {"width": width, "height": 900}
    page = visit(everything(), color_scheme=scheme, viewport=viewport, reduced_motion="reduce", bypass_csp=True)
    page.js(AXE.read_text())
    found = find_violations(page, "as it opens")
    page.page.keyboard.press("?")
    page.expect("document.querySelector('dialog[open]') !== null")
    found += find_violations(page, "keys")
    page.page.keyboard.press("Escape")
    page.page.locator(".picture").click()
    page.expect("document.querySelector('dialog[open] img') !== null")
    found += find_violations(page, "an image")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("/")
    page.page.fill("#search", "tools")
    page.expect("document.querySelector('#hits').textContent !== ''")
    page.page.keyboard.press("ArrowDown")
    found += find_violations(page, "search")
    page.go()
    page.js(AXE.read_text())
    page.js("document.querySelectorAll('main details').forEach(node => { node.open = true })")
    page.js("document.querySelector('[data-filter=all]').click()")
    page.page.keyboard.press("o")
    found += find_violations(page, "all open")
    assert found == []
