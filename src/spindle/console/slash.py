"""The commands behind a slash that the chat itself knows, and what may be written next.

Extensions, templates and skills bring other commands.
"""

import os
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from prompt_toolkit.completion import CompleteEvent, Completion, DummyCompleter, PathCompleter
from prompt_toolkit.document import Document

from spindle.agent.permissions import MODES
from spindle.client import CommandFailed
from spindle.console.input import Question, fitting
from spindle.console.look import one_line
from spindle.console.view import text_of

if TYPE_CHECKING:
    from spindle.console.talk import Talk

Json = dict[str, Any]
Found = list[tuple[str, str]]
"""What an argument may become, and what is said about each."""

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
_SHOWN = 30
"""So many of what may be written next are offered."""
_PAGES = PathCompleter(file_filter=lambda path: os.path.isdir(path) or path.endswith(".html"))


class Command(NamedTuple):
    run: Callable[[str], Awaitable[Any]]
    usage: str
    about: str
    complete: Callable[[], Awaitable[Found]] | None = None


class Slash(DummyCompleter):
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client
        self._say = talk.view.say
        self.commands = {
            "model": Command(self._model, "[NAME]", "Choose the model", self._models),
            "thinking": Command(self._thinking, "[LEVEL]", "How hard the model thinks", self._levels),
            "new": Command(lambda _: self._client.new_session(), "", "Begin an empty session"),
            "resume": Command(self.resume, "[ID]", "Go on with another session", self._sessions),
            "tree": Command(self._tree, "", "Go to another place in this session"),
            "fork": Command(self._fork, "", "Begin a session before one of your messages"),
            "compact": Command(self._compact, "[HINTS]", "Replace the older part of the context by a summary"),
            "cost": Command(self._cost, "", "Tokens and money so far"),
            "name": Command(self._name, "[NAME]", "Name this session"),
            "export": Command(self._export, "[FILE]", "Write this session as an HTML page"),
            "permissions": Command(self._permissions, "[MODE]", "What may run", self._modes),
            "mcp": Command(self._mcp, "", "The MCP servers and their tools"),
            "help": Command(self._help, "", "Commands and keys"),
            "quit": Command(self._quit, "", "Leave"),
        }
        if talk.url is not None:
            self.commands["share-link"] = Command(self._share_link, "", "The address of this session's web page")

    # -- what may be written next ----------------------------------------------------------------

    async def get_completions_async(self, document: Document, event: CompleteEvent) -> AsyncGenerator[Completion, None]:
        text, word = document.text_before_cursor, document.get_word_before_cursor(WORD=True)
        name, space, argument = text[1:].partition(" ")
        if not text.startswith("/") or "\n" in text:
            for path in await self._files(word[1:]) if word.startswith("@") else ():
                yield Completion(f'"{path}"' if " " in path else path, 1 - len(word), display=path)
        elif not space:
            for command, about in sorted(self._talk.commands.items()):
                if command.startswith(name):
                    yield Completion(command, -len(name), display=f"/{command}", display_meta=about)
        elif name == "export" and self._talk.url is None:  # a server has files of its own
            for page in _PAGES.get_completions(Document(argument), event):
                yield page
        else:
            for value, about in (await self._arguments(name, argument))[:_SHOWN]:
                yield Completion(value, -len(argument), display_meta=about)

    async def _files(self, typed: str) -> list[str]:
        with suppress(CommandFailed):  # there are none without ripgrep
            return await self._client.complete_path(typed)
        return []

    async def _arguments(self, name: str, typed: str) -> Found:
        command = self.commands.get(name)
        if command is None:
            return [(text, "") for text in await self._client.complete_command(name, typed)]
        found = [] if command.complete is None else await command.complete()
        return [found[at] for at in fitting((" ".join(item) for item in found), typed)]

    async def _pick(self, title: str, options: Found, now: str = "", *, is_named: object = False) -> str | None:
        """Let the user choose, beginning with `now`, unless the only one is named; return what stands before it."""
        values = [value for value, _ in options]
        at = values.index(now) if now in values else 0
        if not (is_named and len(values) == 1):
            at = await self._talk.editor.ask(Question(title, [label for _, label in options], chosen=at))
        return None if at is None else values[at]

    # -- model -----------------------------------------------------------------------------------

    async def _models(self) -> Found:
        models = await self._client.get_available_models()
        return [(f"{model['provider']}/{model['id']}", one_line(model["name"])) for model in models]

    async def _model(self, wanted: str) -> None:
        names = [name for name, _ in await self._models()]
        exact = [name for name in names if wanted.lower() in (name.lower(), name.lower().partition("/")[2])]
        names = exact or [names[at] for at in fitting(names, wanted)]
        if not names:
            like = f'No model is like "{wanted}"' if wanted else "No other model is ready"
            self._talk.view.fail(f"{like}; spindle doctor says what is missing")
            return
        model = self._talk.state.get("model") or {"provider": "", "id": ""}
        options = [(name, name) for name in names]
        name = await self._pick("Which model?", options, f"{model['provider']}/{model['id']}", is_named=wanted)
        if name is not None:
            await self._client.set_model(*name.split("/", 1))
            self._say(f"Model: {name}", "dim")

    async def _levels(self) -> Found:
        return [(level, level) for level in await self._client.get_available_thinking_levels()]

    async def _thinking(self, level: str) -> None:
        now = self._talk.state["thinkingLevel"]
        if wanted := level or await self._pick("How hard to think?", await self._levels(), now):
            await self._client.set_thinking_level(wanted)
            await self._talk.learn()
            self._say(f"Thinking: {self._talk.state['thinkingLevel']}", "dim")

    # -- sessions --------------------------------------------------------------------------------

    async def _sessions(self) -> Found:
        return [(item["id"][:13], _session_label(item)) for item in await self._client.list_sessions()]

    async def resume(self, wanted: str = "", *, newest: bool = False) -> bool:
        """Let the user choose a session, unless one is named; return whether there is one now."""
        found = [item for item in await self._client.list_sessions() if item["id"].startswith(wanted)]
        if not found:
            self._say(f'No session begins with "{wanted}"' if wanted else "No sessions here yet", "yellow")
            return False
        options = [(item["path"], _session_label(item)) for item in found[: 1 if newest else None]]
        path = await self._pick("Which session?", options, is_named=wanted or newest)
        if path is not None:
            await self._client.switch_session(path)
        return path is not None

    async def _fork(self, _: str) -> None:
        messages = [(item["entryId"], one_line(item["text"])[:200]) for item in await self._client.get_fork_messages()]
        if not messages:
            self._say("There is nothing to fork yet", "yellow")
        elif id := await self._pick("Fork before which message?", messages, now=messages[-1][0]):
            self._talk.editor.put((await self._client.fork(id))["text"])

    async def _tree(self, _: str) -> None:
        answer = await self._client.request("get_tree", flat=True)
        places = _places(answer["tree"], answer["leafId"])
        if not places:
            self._say("There is nothing in this session yet", "yellow")
            return
        now = [id for id, label in places if label.startswith("●")][-1:]
        place = await self._pick("Go on from where?", places, *now)
        if place is None or place == answer["leafId"]:
            return
        how = await self._talk.editor.ask(Question("Summarise the branch that you leave?", ["No", "Yes"], "ny"))
        if how is not None:
            done = await self._client.navigate_tree(place, summarize=how == 1)
            self._talk.editor.put(done.get("editorText") or "")

    async def _compact(self, hints: str) -> None:
        await self._client.compact(hints or None)

    async def _name(self, name: str) -> None:
        name = name or await self._talk.editor.ask(Question("Name of this session?")) or ""
        if name.strip():
            await self._client.set_session_name(name.strip())
            self._say(f"This session is called {one_line(name)}", "dim")

    async def _export(self, path: str) -> None:
        self._say(f"Written: {await self._client.export_html(path or None)}", "dim")

    # -- the rest --------------------------------------------------------------------------------

    async def _cost(self, _: str) -> None:
        stats = await self._client.get_session_stats()
        names = {"input": "in", "output": "out", "cacheRead": "from cache", "cacheWrite": "into cache"}
        parts = [f"{stats['tokens'][key]:,} {name}" for key, name in names.items() if stats["tokens"].get(key)]
        money = f"${stats['cost']:.4f}" if stats.get("cost") is not None else "unknown cost"
        messages = f"{stats['userMessages']} messages of yours, {stats['assistantMessages']} answers"
        self._say(f"{money} · {', '.join(parts) or 'no tokens'}")
        self._say(f"{messages}, {stats['toolCalls']} tool calls", "dim", kind="more")

    async def _modes(self) -> Found:
        return [(mode, "") for mode in MODES]

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
        address = urlsplit(str(self._talk.url))
        scheme = "https" if address.scheme in ("wss", "https") else "http"
        self._say(f"{scheme}://{address.netloc}/#{self._talk.state['sessionId']}", "cyan")
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


def _places(nodes: list[Json], leaf: str | None) -> Found:
    """Return ids and labels of the entries worth going to, branches indented; ● marks where we are and came from."""
    parents = {node["id"]: node["parentId"] for node in nodes}
    current: set[str | None] = set()
    while leaf in parents:
        current.add(leaf)
        leaf = parents[leaf]
    children: dict[str | None, list[Json]] = defaultdict(list)
    for node in nodes:
        children[node["parentId"]].append(node)
    found: Found = []
    waiting = [(node, 0) for node in reversed(children[None])]
    while waiting:
        node, depth = waiting.pop()
        if title := _title(node["entry"]):
            label = f" [{one_line(node['label'])}]" if node.get("label") else ""
            found.append((node["id"], f"{'●' if node['id'] in current else ' '} {'  ' * depth}{title}{label}"))
        below = children[node["id"]]
        waiting += [(child, depth + (len(below) > 1)) for child in reversed(below)]
    return found


def _title(entry: Json) -> str:
    """Return one line about an entry; empty if it is not one to go to."""
    if entry["type"] in ("compaction", "branch_summary"):
        return f"({entry['type'].replace('_', ' ')})"
    message = entry.get("message") or {}
    who = {"user": "you", "assistant": "agent"}.get(str(message.get("role")), "")
    text = one_line(text_of(message.get("content")))[:120] if who else ""
    return f"{who}: {text}" if text else ""
