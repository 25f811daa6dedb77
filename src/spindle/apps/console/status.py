"""`/status`: what this session is made of."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spindle.apps.console.look import one_line
from spindle.base.spelling import counted

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

_KINDS = {"extension": "Their commands", "prompt": "Prompts", "skill": "Skills"}
_SELDOM = ("Works at", "Not trusted", "Their commands")
"""What need not be told if there is none."""


async def show_status(talk: "Talk") -> None:
    """Print model, session, rules, fences, servers, and everything that was loaded."""
    state = await talk.client.get_state()
    held = await talk.client.request("get_permissions")
    rules = [f"{rule['behavior']} {rule['rule']} ({rule['source']})" for rule in held["rules"]]
    facts: list[tuple[str, list[str]]] = [
        *_model(state),
        ("Session", [state.get("sessionFile") or f"{state['sessionId']}, in memory only"]),
        ("Permissions", [f"mode {held['mode']}", *rules]),
        ("Sandbox", [state["sandbox"]["level"]]),
        ("Works at", [str(state["exec"]["command"])] if state.get("exec") else []),
        ("Tools", [", ".join(str(tool["name"]) for tool in state["dumpTools"]) or "none"]),
        ("MCP servers", [server_line(server) for server in state.get("mcpServers") or ()]),
        *((kind, names) for kind, names in (talk.local.loaded() if talk.local else ())),
    ]
    found = (await talk.client.request("get_commands"))["commands"]
    facts += [(title, [f"/{c['name']}" for c in found if c["source"] == kind]) for kind, title in _KINDS.items()]
    _show_table(talk, facts)


def _show_table(talk: "Talk", facts: list[tuple[str, list[str]]]) -> None:
    missing = [title for title, lines in facts if not lines and title not in _SELDOM]
    facts = [*facts, ("None of", [", ".join(missing)] if missing else [])]
    rows = [(title if at == 0 else "", line) for title, lines in facts for at, line in enumerate(lines)]
    for at, (title, line) in enumerate(rows):
        talk.view.say(f"{title and f'{title}:':<15} {one_line(line)}", kind="more" if at else "text")


def _model(state: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the model, and how full its window is."""
    model, usage = state.get("model"), state.get("contextUsage") or {}
    yield "Model", [f"{model['provider']}/{model['id']}, thinking {state['thinkingLevel']}" if model else "none"]
    if usage.get("percent") is not None:
        yield "Context", [f"{usage['percent']:.0f}% of {usage['contextWindow']:,} tokens"]


def server_line(server: dict[str, Any]) -> str:
    tools = "" if (count := server.get("tools")) is None else f" · {counted(count, 'tool')}"
    return one_line(f"{server['name']}: {server['state']}{tools} · {server.get('source') or ''}").removesuffix(" ·")
