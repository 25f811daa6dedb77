"""A session is written by strangers: whatever it holds, nothing of it runs in the exported page."""

from typing import Any

import pytest

from tests.export.helpers import HEADER, PNG, TIME, page_of, user

from .conftest import Open, Visit

pytestmark = pytest.mark.timeout(180)

RUN = "window.__pwned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<!--<script>{RUN}//-->",
    f'"><img src=x onerror={RUN}>',
    f"'><svg onload={RUN}>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"[link](javascript:{RUN})",
    f"[link](  JaVaScRiPt:{RUN})",
    f"[link](java\tscript:{RUN})",
    f"[link](&#106;avascript:{RUN})",
    f"[link](data:text/html,<script>{RUN}</script>)",
    f"<javascript:{RUN}>",
    f"![image](https://example.invalid/x.png) ![i](javascript:{RUN})",
    f"[ref]\n\n[ref]: javascript:{RUN}",
    f"```html\n<img src=x onerror={RUN}>\n```",
    f'```"><img src=x onerror={RUN}>\nx\n```',
    f"|<img src=x onerror={RUN}>|b|\n|-|-|\n|[x](javascript:{RUN})|<script>{RUN}</script>|",
    f"\u2028{RUN}\u2029`${{{RUN}}}`",
    "__proto__",
    "constructor",
    "data",
]


def hostile_session() -> list[dict[str, Any]]:
    """Return every kind of entry with a payload in every field that is not needed to get there."""
    entries: list[dict[str, Any]] = []

    def add(kind: str, **fields: Any) -> None:
        parent = entries[-1]["id"] if entries else None
        entry_id = f"{fields.get('payload', '')}{len(entries)}"
        entries.append(
            {"type": kind, "id": entry_id, "parentId": parent, "timestamp": fields.pop("time", TIME), **fields}
        )

    for p in PAYLOADS:
        blocks = [{"type": "text", "text": p}, {"type": "image", "data": p, "mimeType": p}, {"type": p, "text": p}]
        image = {"type": "image", "data": f'{PNG}" onerror="{RUN}', "mimeType": "image/png"}
        vector = {"type": "image", "data": PNG, "mimeType": "image/svg+xml"}
        older = {"type": "image", "source": {"type": "base64", "mediaType": f"image/png;{p}", "data": p}}
        args = {
            "path": p,
            "command": p,
            "pattern": p,
            "content": p,
            "offset": p,
            "edits": [{"oldText": p, "newText": p}],
            p: p,
        }
        add("message", payload=p, time=p, message={"role": "user", "content": [*blocks, image, vector, older]})
        for tool in ("bash", "read", "write", "edit", "ls", "grep", p):
            calls = [
                {"type": "thinking", "thinking": p},
                {"type": "toolCall", "id": p + tool, "name": tool, "arguments": args},
            ]
            fields = {"provider": p, "model": p, "stopReason": "error", "errorMessage": p, "usage": {"input": p}}
            add("message", message={"role": "assistant", "content": [*calls, *blocks], **fields})
            outcome = {"toolCallId": p + tool, "toolName": tool, "content": [*blocks, image], "details": {"diff": p}}
            add("message", message={"role": "toolResult", **outcome})
        add(
            "message",
            message={
                "role": "bashExecution",
                "command": p,
                "output": p,
                "exitCode": p,
                "fullOutputPath": p,
                "truncated": True,
            },
        )
        add("message", message={"role": p, "content": p})
        add("custom_message", customType=p, content=p, display=True, details={p: p})
        add("custom", customType=p, data={p: p})
        add("compaction", summary=p, tokensBefore=p, firstKeptEntryId=p)
        add("branch_summary", summary=p, fromId=p)
        add("model_change", provider=p, modelId=p)
        add("thinking_level_change", thinkingLevel=p)
        add("session_info", name=p)
        add("label", targetId=entries[0]["id"], label=p)
        add(p, value=p)
    return entries


@pytest.fixture(scope="module")
def hostile_page() -> bytes:
    p = PAYLOADS[1]
    tools = [{"name": p, "description": p, "parameters": {p: p}}]
    header = {**HEADER, p: p, "id": p, "cwd": p, "timestamp": p, "parentSession": p}
    return page_of(hostile_session(), header=header, name=p, system_prompt=p, tools=tools, damage_notes=PAYLOADS)


def assert_harmless(page: Visit) -> None:
    assert page.js("typeof window.__pwned") == "undefined"
    assert page.trouble == []
    links = page.js("Array.from(document.querySelectorAll('a[href]'), node => node.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:", "file:"}
    sources = page.js("Array.from(document.querySelectorAll('[src]'), node => node.getAttribute('src').slice(0, 11))")
    assert set(sources) <= {"data:,", "data:image/"}
    inline = (
        "Array.from(document.querySelectorAll('*'))"
        ".some(node => node.getAttributeNames().some(name => name.startsWith('on')))"
    )
    assert page.js(inline) is False
    assert page.page.locator("iframe, object, embed, svg script, main script").count() == 0


def test_nothing_of_a_hostile_session_runs(visit: Open, hostile_page: bytes) -> None:
    page = visit(hostile_page)
    assert "cannot be shown" not in page.text()
    page.page.click("[data-filter=all]")
    page.page.keyboard.press("o")
    # Everything is drawn once, also what is far from the window.
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.page.locator("#messages article").count() > 250
    assert_harmless(page)
    opened = (
        "() => Array.from(document.querySelectorAll('main summary'))"
        ".filter(node => node.checkVisibility()).map(node => node.click()).length"
    )
    assert page.js(opened) > 12
    page.js("dispatchEvent(new Event('afterprint'))")
    page.page.fill("#search", "script")
    page.expect("document.querySelector('#hits').textContent !== ''")
    for _ in range(5):
        page.page.keyboard.press("Enter")
    assert_harmless(page)


def test_nothing_of_a_hostile_session_runs_without_the_script(visit: Open, hostile_page: bytes) -> None:
    page = visit(hostile_page, ready=False, java_script_enabled=False)
    assert_harmless(page)


def test_the_policy_stops_what_would_get_through(visit: Open) -> None:
    """Should an escape ever be forgotten, the browser itself refuses: scripts, handlers, styles, strings as HTML."""
    hole = f"<main><script>{RUN}</script><img src=x onerror={RUN}><p style='color:red' id=p onclick={RUN}>click</p>"
    page = visit(page_of([user("a", None, "hello")]).replace(b"<main>", hole.encode()))
    page.page.click("#p")
    assert page.js("typeof window.__pwned") == "undefined"
    assert page.js("getComputedStyle(p).color") != "rgb(255, 0, 0)"
    assert len([line for line in page.trouble if "Content Security Policy" in line]) >= 4
    for attempt in ("document.body.innerHTML = '<b>x</b>'", "p.setAttribute('onclick', 'x')", "document.write('x')"):
        assert page.js(f"() => {{ try {{ {attempt}; return false }} catch {{ return true }} }}"), attempt
