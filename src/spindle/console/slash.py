"""The commands behind a slash that the chat itself knows. Extensions, templates and skills bring the others."""

import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from spindle.console.look import one_line
from spindle.console.question import Question
from spindle.console.view import text_of

if TYPE_CHECKING:
    from spindle.console.talk import Talk

Json = dict[str, Any]
Found = list[tuple[str, str]]
"""What an argument may become, and what is said about each."""

_MODES = ("bypass", "default", "acceptEdits", "plan", "dontAsk")
_KEYS = {
    "Enter": "Send; while the agent works: steer it",
    "Alt-Enter": "Send when the agent is done",
    "Ctrl-J, \\ Enter": "A new line",
    "Esc, Ctrl-C": "Interrupt",
    "Up": "Take queued messages back; older messages",
    "Ctrl-R": "Search older messages",
    "Ctrl-G": "Write in your editor",
    "Ctrl-O, Ctrl-T": "The last result, the last thoughts",
    "Ctrl-V": "Add the picture in the clipboard",
    "@, !, !!": "A file; a shell command; one in private",
    "Ctrl-Z, Ctrl-D": "Suspend, leave",
}


class Command(NamedTuple):
    run: Callable[[str], Awaitable[Any]]
    usage: str
    about: str
    complete: Callable[[str], Awaitable[Found]] | None = None


class Slash:
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client
        self._say = talk.view.say
        self.commands = {
            "model": Command(self._model, "[NAME]", "Choose the model", self._models),
            "thinking": Command(self._thinking, "[LEVEL]", "How hard the model thinks", self._levels),
            "new": Command(self._new, "", "Begin an empty session"),
            "resume": Command(self.resume, "[ID]", "Go on with another session", self._sessions),
            "tree": Command(self._tree, "", "Go to another place in this session"),
            "fork": Command(self._fork, "", "Begin a session before one of your messages"),
            "compact": Command(self._compact, "[HINTS]", "Replace the older part of the context by a summary"),
            "cost": Command(self._cost, "", "Tokens and money so far"),
            "name": Command(self._name, "[NAME]", "Name this session"),
            "export": Command(self._export, "[FILE]", "Write this session as an HTML page", self._pages),
            "permissions": Command(self._permissions, "[MODE]", "What may run", self._permission_modes),
            "mcp": Command(self._mcp, "", "The MCP servers and their tools"),
            "help": Command(self._help, "", "Commands and keys"),
            "quit": Command(self._quit, "", "Leave"),
        }
        if talk.url is not None:
            self.commands["share-link"] = Command(self._share_link, "", "The address of this session's web page")

    async def arguments(self, name: str, typed: str) -> Found:
        """Return what the argument of a command may become."""
        command = self.commands.get(name)
        if command is None:
            return [(text, "") for text in await self._client.complete_command(name, typed)]
        found = [] if command.complete is None else await command.complete(typed)
        words = typed.lower().split()
        return [item for item in found if all(word in " ".join(item).lower() for word in words)]

    async def _choose(self, title: str, labels: list[str], at: int | str = 0, *, at_once: bool = False) -> int | None:
        """Let the user pick one of a list, beginning `at` one; `at_once` not if it is alone. Return its number."""
        if at_once and len(labels) == 1:
            return 0
        if isinstance(at, str):
            at = labels.index(at) if at in labels else 0
        width = len(str(len(labels)))
        options = [f"{number:>{width}}  {label}" for number, label in enumerate(labels, 1)]
        chosen = await self._talk.editor.ask(Question(title, options, chosen=at))
        return None if chosen is None else options.index(chosen)

    # -- model -----------------------------------------------------------------------------------

    async def _models(self, _: str = "") -> Found:
        models = await self._client.get_available_models()
        return [(f"{model['provider']}/{model['id']}", one_line(model["name"])) for model in models]

    async def _model(self, wanted: str) -> None:
        names = [name for name, _ in await self._models()]
        words = wanted.lower().split()
        exact = [name for name in names if wanted.lower() in (name.lower(), name.lower().partition("/")[2])]
        fitting = exact or [name for name in names if all(word in name.lower() for word in words)]
        if not fitting:
            like = f'No model is like "{wanted}"' if wanted else "No other model is ready"
            self._talk.view.fail(f"{like}; spindle doctor says what is missing")
            return
        now = self._talk.state.get("model") or {"provider": "", "id": ""}
        at = f"{now['provider']}/{now['id']}"
        if (number := await self._choose("Which model?", fitting, at, at_once=bool(words))) is not None:
            await self._client.set_model(*fitting[number].split("/", 1))
            self._say(f"Model: {fitting[number]}", "dim")

    async def _levels(self, _: str = "") -> Found:
        return [(level, "") for level in await self._client.get_available_thinking_levels()]

    async def _thinking(self, level: str) -> None:
        levels = [name for name, _ in await self._levels()]
        now = str(self._talk.state.get("thinkingLevel"))
        number = None if level else await self._choose("How hard to think?", levels, now)
        if level or number is not None:
            await self._client.set_thinking_level(level or levels[number or 0])
            await self._talk.learn()
            self._say(f"Thinking: {self._talk.state['thinkingLevel']}", "dim")

    # -- sessions --------------------------------------------------------------------------------

    async def _new(self, _: str) -> None:
        await self._client.new_session()

    async def _sessions(self, _: str) -> Found:
        return [(item["id"][:13], _session_label(item)) for item in await self._client.list_sessions()]

    async def resume(self, wanted: str = "", *, newest: bool = False) -> bool:
        """Let the user choose a session, unless one is named; return whether there is one now."""
        found = [item for item in await self._client.list_sessions() if item["id"].startswith(wanted)]
        if not found:
            self._say(f'No session begins with "{wanted}"' if wanted else "No sessions here yet", "yellow")
            return False
        labels = [_session_label(item) for item in (found[:1] if newest else found)]
        number = await self._choose("Which session?", labels, at_once=newest or bool(wanted))
        if number is None:
            return False
        await self._client.switch_session(found[number]["path"])
        return True

    async def _fork(self, _: str) -> None:
        messages = await self._client.get_fork_messages()
        labels = [one_line(item["text"])[:200] for item in messages]
        if not labels:
            self._say("There is nothing to fork yet", "yellow")
        elif (number := await self._choose("Fork before which message?", labels, at=len(labels) - 1)) is not None:
            self._talk.editor.put((await self._client.fork(messages[number]["entryId"]))["text"])

    async def _tree(self, _: str) -> None:
        answer = await self._client.request("get_tree", flat=True)
        places = _places(answer["tree"], answer["leafId"])
        if not places:
            self._say("There is nothing in this session yet", "yellow")
            return
        here = max((number for number, (_, label) in enumerate(places) if "●" in label), default=0)
        number = await self._choose("Go on from where?", [label for _, label in places], at=here)
        if number is None or (number == here and places[here][0] == answer["leafId"]):
            return
        ways = ["No", "Yes"]
        how = await self._talk.editor.ask(Question("Summarise the branch that you leave?", ways, {"n": 0, "y": 1}))
        if how is not None:
            done = await self._client.navigate_tree(places[number][0], summarize=how == "Yes")
            self._talk.editor.put(done.get("editorText") or "")

    async def _name(self, name: str) -> None:
        if not name:
            name = await self._talk.editor.ask(Question("Name of this session?")) or ""
        if name.strip():
            await self._client.set_session_name(name.strip())
            self._say(f"This session is called {one_line(name)}", "dim")

    # -- the rest --------------------------------------------------------------------------------

    async def _compact(self, hints: str) -> None:
        await self._client.compact(hints or None)

    async def _cost(self, _: str) -> None:
        stats = await self._client.get_session_stats()
        tokens = stats["tokens"]
        names = {"input": "in", "output": "out", "cacheRead": "from cache", "cacheWrite": "into cache"}
        parts = [f"{tokens[key]:,} {name}" for key, name in names.items() if tokens.get(key)]
        messages = f"{stats['userMessages']} messages of yours, {stats['assistantMessages']} answers"
        self._say(f"${stats['cost']:.4f} · {', '.join(parts) or 'no tokens'}", kind="note")
        self._say(f"{messages}, {stats['toolCalls']} tool calls", "dim", kind="more")

    async def _pages(self, typed: str) -> Found:
        """Return folders, and pages to write over, here; a server has files of its own."""
        folder, name = os.path.split(typed)
        try:
            found = [] if self._talk.url else list(os.scandir(os.path.expanduser(folder) or "."))
        except OSError:
            return []
        fitting = [item for item in found if item.name.startswith(name) and (name or item.name[0] != ".")]
        paths = [os.path.join(folder, item.name) + "/" * item.is_dir() for item in fitting]
        return [(path, "") for path in sorted(paths) if path.endswith(("/", ".html"))]

    async def _export(self, path: str) -> None:
        self._say(f"Written: {await self._client.export_html(path or None)}", "dim")

    async def _permission_modes(self, _: str) -> Found:
        return [(mode, "") for mode in _MODES]

    async def _permissions(self, mode: str) -> None:
        if mode:
            await self._client.request("set_permissions", mode=mode)
        held = await self._client.request("get_permissions")
        self._say(f"Permission mode: {held['mode']}")
        for rule in held["rules"]:
            self._say(f"  {rule['behavior']:<5} {one_line(rule['rule'])}  ({rule['source']})", "dim", kind="more")

    async def _mcp(self, _: str) -> None:
        await self._talk.learn()
        servers = self._talk.state.get("mcpServers") or []
        for server in servers:
            tools = f" · {server['tools']} tools" if server.get("tools") is not None else ""
            self._say(one_line(f"{server['name']}: {server['state']}{tools} · {server.get('source') or ''}"))
            if server.get("error"):
                self._say(f"  {one_line(server['error'])}", "red", kind="more")
        if not servers:
            self._say("No MCP servers", "dim")

    async def _share_link(self, _: str) -> None:
        parts = urlsplit(str(self._talk.url))
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        self._say(urlunsplit((scheme, parts.netloc, "/", "", self._talk.state["sessionId"])), "cyan")
        self._say("Whoever opens it needs to be let in: the same user, or the server's token.", "dim", kind="more")

    async def _help(self, _: str) -> None:
        own = {f"/{name} {command.usage}".strip(): command.about for name, command in self.commands.items()}
        others = {f"/{name}": about for name, about in self._talk.commands.items() if name not in self.commands}
        for group in ({**own, **others}, _KEYS):
            width = max(map(len, group))
            self._say("\n".join(f"{name:<{width}}  {about}".rstrip() for name, about in group.items()), kind="text")

    async def _quit(self, _: str) -> None:
        self._talk.editor.close()


def _session_label(item: Json) -> str:
    when = datetime.fromisoformat(item["modified"]).astimezone()
    day = "" if time.time() - when.timestamp() < 43_200 else when.strftime("%Y-%m-%d ")
    title = one_line(item.get("name") or item["firstMessage"])[:80]
    return f"{day}{when:%H:%M}  {title} ({item['messageCount']} messages)"


def _places(nodes: list[Json], leaf: str | None) -> list[tuple[str, str]]:
    """Return ids and labels of the entries worth going to, branches indented; ● marks where we are and came from."""
    by_id = {node["id"]: node for node in nodes}
    current: set[str] = set()
    while leaf is not None and leaf in by_id:
        current.add(leaf)
        leaf = by_id[leaf]["parentId"]
    children: dict[str | None, list[str]] = {}
    shown_above: dict[str | None, str | None] = {None: None}
    """The nearest entry at or above each that is shown."""
    for node in nodes:  # parents come first
        above = shown_above.get(node["parentId"])
        shown_above[node["id"]] = node["id"] if _title(node["entry"]) else above
        if _title(node["entry"]):
            children.setdefault(above, []).append(node["id"])
    found: list[tuple[str, str]] = []
    waiting = [(id, 0) for id in reversed(children.get(None, []))]
    while waiting:
        id, depth = waiting.pop()
        label = f" [{one_line(by_id[id]['label'])}]" if by_id[id].get("label") else ""
        mark = "●" if id in current else " "
        found.append((id, f"{mark} {'  ' * depth}{_title(by_id[id]['entry'])}{label}"))
        below = children.get(id, [])
        waiting += [(child, depth + (len(below) > 1)) for child in reversed(below)]
    return found


def _title(entry: Json) -> str:
    """Return one line about an entry; empty if it is not one to go to."""
    if entry["type"] in ("compaction", "branch_summary"):
        return f"({entry['type'].replace('_', ' ')})"
    message = entry.get("message") or {}
    text = one_line(text_of(message.get("content")))[:120] if message.get("role") in ("user", "assistant") else ""
    return f"{'you' if message['role'] == 'user' else 'agent'}: {text}" if text else ""
