"""The slash commands of the chat itself, and completion of the input.

Extensions, templates and skills bring other slash commands.
"""

import os
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prompt_toolkit.completion import CompleteEvent, Completion, DummyCompleter, PathCompleter
from prompt_toolkit.document import Document

from spindle.apps.console import clipboard
from spindle.apps.console.changes import Changes
from spindle.apps.console.input import Question, fitting
from spindle.apps.console.look import one_line
from spindle.apps.console.picker import SessionPicker, label_of
from spindle.apps.console.slash_command import SlashCommand, SlashOption
from spindle.apps.console.status import server_line, show_status
from spindle.apps.console.view import money, text_of
from spindle.client import RpcError
from spindle.shapes.permission_modes import PERMISSION_MODES

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

Json = dict[str, Any]

_KEYS = {
    "Enter": "Send; while the agent works: steer it",
    "Alt-Enter": "Send when the agent is done",
    "Ctrl-J, \\ Enter": "A new line",
    "Esc, Ctrl-C": "Interrupt",
    "Up": "Take queued messages back; older messages",
    "Ctrl-R": "Search older messages",
    "Ctrl-G": "Write in your editor",
    "Shift-Tab, Ctrl-P": "The next permission mode, the next model",
    "Ctrl-O, Ctrl-T": "The last result, the last thoughts",
    "Ctrl-V": "Add the picture in the clipboard",
    "@, !, !!": "A file; a shell command; one in private",
    "Ctrl-Z, Ctrl-D": "Suspend, leave",
}
_SHOWN = 30
"""How many completions are offered."""
_PAGES = PathCompleter(file_filter=lambda path: os.path.isdir(path) or path.endswith(".html"))


class Slash(DummyCompleter):
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client
        self._say = talk.view.say
        self._changes = Changes(talk)
        self.commands = {
            "model": SlashCommand(self._model, "[NAME]", "Choose the model", self._models, "Which model?"),
            "thinking": SlashCommand(self._think, "[LEVEL]", "How hard to think", self._levels, "How hard to think?"),
            "new": SlashCommand(lambda _: self._client.new_session(), "", "Begin an empty session"),
            "resume": SlashCommand(self._resume, "[WORDS]", "Go on with another session"),
            "tree": SlashCommand(
                self._go, "", "Go to another place in this session", self._places, "Go on from where?"
            ),
            "fork": SlashCommand(self._fork, "", "Go back in a new session", self._asked, "Fork before which message?"),
            "clone": SlashCommand(lambda _: self._client.clone(), "", "Go on in a copy of this session"),
            "rewind": SlashCommand(
                self._changes.rewind,
                "",
                "Go back to before a message, in files too",
                self._asked,
                "Before which message?",
            ),
            "compact": SlashCommand(
                lambda hints: self._client.compact(hints or None), "[HINTS]", "Put a summary for the older messages"
            ),
            "clear": SlashCommand(self._clear, "", "Begin an empty session on an empty screen"),
            "undo": SlashCommand(lambda _: self._changes.undo(), "", "Take back your last message, in files too"),
            "redo": SlashCommand(lambda _: self._changes.redo(), "", "Take back the undo"),
            "diff": SlashCommand(lambda _: self._changes.show(), "", "What has changed in files"),
            "copy": SlashCommand(self._copy, "", "Copy the last answer"),
            "cost": SlashCommand(self._cost, "", "Tokens and money so far"),
            "status": SlashCommand(lambda _: show_status(talk), "", "What this session is made of"),
            "name": SlashCommand(self._name, "[NAME]", "Name this session"),
            "export": SlashCommand(self._export, "[FILE]", "Write this session as an HTML page"),
            "permissions": SlashCommand(self._permissions, "[MODE]", "What may run", self._modes, "What may run?"),
            "login": SlashCommand(
                self._login, "[PROVIDER]", "Sign in, or enter a key", self._providers, "Which provider?"
            ),
            "background": SlashCommand(self._background, "", "Commands that run in the background"),
            "mcp": SlashCommand(self._mcp, "", "The MCP servers and their tools"),
            **(talk.local.commands if talk.local else {}),
            "help": SlashCommand(self._help, "", "Commands and keys"),
            "quit": SlashCommand(self._quit, "", "Leave"),
            "exit": SlashCommand(self._quit, "", "Leave"),
        }
        if talk.url is not None:
            del self.commands["login"]  # keys are on the server's machine
            self.commands["share-link"] = SlashCommand(self._share_link, "", "The address of this session's web page")

    async def run(self, name: str, argument: str) -> None:
        if name == "login":
            from spindle.models.ways import provider_of_word

            argument = provider_of_word(argument) or argument
        if (chosen := await self.choose(name, argument)) is not None:
            await self.commands[name].run(chosen)

    async def choose(self, name: str, argument: str = "") -> str | None:
        """Return the argument for a command. None: the user chose nothing, or there is nothing to choose."""
        command = self.commands[name]
        if command.options is None:
            return argument
        options = await command.options()
        exact = [option for option in options if f"/{option.value}".lower().endswith(f"/{argument}".lower())]
        fits = exact or _fitting(options, argument)
        if not fits:
            shown = "" if name == "login" else f" {argument}"  # it may be a key
            problem = f"Nothing fits /{name}{shown}" if argument else f"/{name} has nothing to choose from yet"
            self._say(problem, "yellow")
            return None
        at = max((at for at, option in enumerate(fits) if option.is_now), default=0)
        if not argument or len(fits) > 1:
            labels = [option.label or option.value for option in fits]
            at = await self._talk.editor.ask(Question(command.question, labels, chosen=at))
        return None if at is None else fits[at].value

    # -- completion ------------------------------------------------------------------------------

    async def get_completions_async(self, document: Document, event: CompleteEvent) -> AsyncGenerator[Completion, None]:
        with suppress(RpcError):  # the agent is gone, or has no ripgrep to look for files
            async for found in self._completions(document, event):
                yield found

    async def _completions(self, document: Document, event: CompleteEvent) -> AsyncGenerator[Completion, None]:
        text, word = document.text_before_cursor, document.get_word_before_cursor(WORD=True)
        name, space, argument = text[1:].partition(" ")
        if not text.startswith("/") or "\n" in text:
            for path in await self._client.complete_path(word[1:].lstrip('"')) if word.startswith("@") else ():
                yield Completion(f'"{path}"' if " " in path else path, 1 - len(word), display=path)
        elif not space:
            for command, about in sorted(self._talk.commands.items()):
                if command.startswith(name):
                    yield Completion(command, -len(name), display=f"/{command}", display_meta=about)
        elif name == "resume":
            for item in await self._client.list_sessions(limit=_SHOWN):
                if fitting([label_of(item, with_cwd=False)], argument):
                    yield Completion(item["id"], -len(argument), display_meta=label_of(item, with_cwd=False))
        elif name == "export" and self._talk.url is None:  # a server has files of its own
            for page in _PAGES.get_completions(Document(argument), event):
                yield page
        else:
            for option in (await self._arguments(name, argument))[:_SHOWN]:
                yield Completion(option.value, -len(argument), display_meta=option.label)

    async def _arguments(self, name: str, typed: str) -> list[SlashOption]:
        command = self.commands.get(name)
        if command is None:
            return [SlashOption(text) for text in await self._client.complete_command(name, typed)]
        return [] if command.options is None else _fitting(await command.options(), typed)

    # -- commands with a choice ------------------------------------------------------------------

    async def _models(self) -> list[SlashOption]:
        models, now = await self._client.get_available_models(), self._talk.state.get("model")
        return [SlashOption(f"{model['provider']}/{model['id']}", is_now=model == now) for model in models]

    async def _model(self, name: str) -> None:
        await self._client.set_model(*name.split("/", 1))
        self._say(f"Model: {name}", "dim")

    async def _levels(self) -> list[SlashOption]:
        levels, now = await self._client.get_available_thinking_levels(), self._talk.state["thinkingLevel"]
        return [SlashOption(level, is_now=level == now) for level in levels]

    async def _think(self, level: str) -> None:
        await self._client.set_thinking_level(level)
        self._say(f"Thinking: {level}", "dim")

    async def session(self, words: str = "") -> Json | None:
        """Return the session that the words name, or that is chosen from the list."""
        if words:
            items = await self._client.list_sessions(limit=500)
            exact = [item for item in items if item["id"] == words]
            found = exact or [items[at] for at in fitting([label_of(i, with_cwd=False) for i in items], words)]
            if len(found) == 1:
                return found[0]
            if not found:
                self._say(f"Nothing fits /resume {words}", "yellow")
                return None
        return await SessionPicker(self._talk).pick(words)

    async def _resume(self, words: str) -> None:
        if (item := await self.session(words)) is None:
            return
        live = await self._client.list_live_sessions() if self._talk.url is not None else ()
        if item["id"] in (one["currentId"] for one in live):  # other clients may hold it there
            self._talk.elsewhere = item["id"]
            self._talk.editor.close()
        else:
            await self._client.switch_session(item["path"])

    async def _asked(self) -> list[SlashOption]:
        messages = await self._client.get_fork_messages()
        return [SlashOption(message["entryId"], one_line(message["text"])[:200], is_now=True) for message in messages]

    async def _fork(self, id: str) -> None:
        self._talk.editor.put((await self._client.fork(id))["text"])

    async def _places(self) -> list[SlashOption]:
        answer = await self._client.request("get_tree", flat=True)
        return _tree(answer["tree"], answer["leafId"])

    async def _go(self, id: str) -> None:
        if id in [place.value for place in await self._places() if place.is_now][-1:]:
            return  # we are there
        how: int | None = 0
        if not self._talk.settings.branch_summary.skip_prompt:
            how = await self._talk.editor.ask(Question("Summarise the branch that you leave?", ["No", "Yes"], "ny"))
        if how is not None:
            done = await self._client.navigate_tree(id, summarize=how == 1)
            self._talk.editor.put(done.get("editorText") or "")

    async def _modes(self) -> list[SlashOption]:
        now = self._talk.state["permissionMode"]
        return [SlashOption(mode, f"{mode:<12} {words.help}", mode == now) for mode, words in PERMISSION_MODES.items()]

    async def _permissions(self, mode: str) -> None:
        await self._client.request("set_permissions", mode=mode)
        held = await self._client.request("get_permissions")
        self._say(f"Permission mode: {held['mode']}. {PERMISSION_MODES[held['mode']].help}")
        for rule in held["rules"]:
            self._say(f"  {rule['behavior']:<5} {one_line(rule['rule'])}  ({rule['source']})", "dim", kind="more")

    # -- the rest --------------------------------------------------------------------------------

    async def _cost(self, _: str) -> None:
        stats = await self._client.get_session_stats()
        names = {"input": "in", "output": "out", "cacheRead": "from cache", "cacheWrite": "into cache"}
        parts = [f"{stats['tokens'][key]:,} {name}" for key, name in names.items() if stats["tokens"].get(key)]
        messages = f"messages of yours: {stats['userMessages']}, answers: {stats['assistantMessages']}"
        nothing = "unknown cost" if stats["costSource"] == "unknown" else "$0.0000"
        self._say(f"{money(stats, self._talk.state.get('model')) or nothing} · {', '.join(parts) or 'no tokens'}")
        self._say(f"{messages}, tool calls: {stats['toolCalls']}", "dim", kind="more")

    async def _name(self, name: str) -> None:
        if name := name or await self._talk.editor.ask(Question("Name of this session?")) or "":
            await self._client.set_session_name(name)
            self._say(f"This session is called {one_line(name)}", "dim")

    async def _export(self, path: str) -> None:
        self._say(f"Written: {await self._client.export_html(path or None)}", "dim")

    async def _clear(self, _: str) -> None:
        if not (await self._client.new_session()).get("cancelled"):
            self._talk.editor.clear()

    async def _copy(self, _: str) -> None:
        text = await self._client.get_last_assistant_text()
        if not text:
            self._say("There is no answer to copy", "yellow")
        elif await clipboard.copy(text) or self._talk.editor.copy(text):
            self._say(f"Copied: {len(text):,} characters", "dim")
        else:
            self._say("There is nothing to copy with: wl-copy, xclip, xsel or pbcopy", "yellow")

    async def _providers(self) -> list[SlashOption]:
        from spindle.apps.console.login import offered

        return [SlashOption(name, f"{name:<24} {how}") for name, how in offered()]

    async def _login(self, provider: str) -> None:
        from spindle.apps.console.login import ChatLogin

        await ChatLogin(self._talk).run(provider)

    async def _background(self, _: str) -> None:
        running = (await self._client.get_state()).get("background") or []
        for command in running:
            self._say(f"{command['id']}: {one_line(command['command'])}")
            self._say(f"  pid {command['pid']} · {one_line(command['outputFile'])}", "dim", kind="more")
        if not running:
            self._say("Nothing runs in the background", "dim")

    async def _mcp(self, _: str) -> None:
        servers = (await self._client.get_state()).get("mcpServers") or []
        for server in servers:
            self._say(server_line(server))
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
        chosen = {", ".join(keys): id for id, keys in self._talk.editor.read_keys().written.items()}
        for group in ({**own, **others}, _KEYS, *([chosen] if chosen else [])):
            width = max(map(len, group))
            self._say("\n".join(f"{name:<{width}}  {about}".rstrip() for name, about in group.items()), kind="text")

    async def _quit(self, _: str) -> None:
        self._talk.editor.close()


def _fitting(options: list[SlashOption], typed: str) -> list[SlashOption]:
    return [options[at] for at in fitting((f"{option.value} {option.label}" for option in options), typed)]


def _tree(nodes: list[Json], leaf: str | None) -> list[SlashOption]:
    """Return the entries worth going to, branches indented; ● marks where we are and came from."""
    parents = {node["id"]: node["parentId"] for node in nodes}
    current: set[str | None] = set()
    while leaf in parents:
        current.add(leaf)
        leaf = parents[leaf]
    children: dict[str | None, list[Json]] = defaultdict(list)
    for node in nodes:
        children[node["parentId"]].append(node)
    found: list[SlashOption] = []
    waiting = [(node, 0) for node in reversed(children[None])]
    while waiting:
        node, depth = waiting.pop()
        if title := _title(node["entry"]):
            label = f" [{one_line(node['label'])}]" if node.get("label") else ""
            is_now = node["id"] in current
            found.append(SlashOption(node["id"], f"{'●' if is_now else ' '} {'  ' * depth}{title}{label}", is_now))
        below = children[node["id"]]
        waiting += [(child, depth + (len(below) > 1)) for child in reversed(below)]
    return found


def _title(entry: Json) -> str:
    """Return one line about an entry; empty if it is not worth going to."""
    if entry["type"] in ("compaction", "branch_summary"):
        return f"({entry['type'].replace('_', ' ')})"
    message = entry.get("message") or {}
    who = {"user": "you", "assistant": "agent"}.get(str(message.get("role")), "")
    text = one_line(text_of(message.get("content")))[:120] if who else ""
    return f"{who}: {text}" if text else ""
