"""Slash commands about files of this machine: settings, trust, logins. A chat with a server has none of them."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec import Struct

from spindle.apps.console.input import Question
from spindle.apps.console.keybindings import FILE
from spindle.apps.console.look import one_line
from spindle.apps.console.slash_command import SlashCommand, SlashOption
from spindle.base.agent_dir import agent_dir
from spindle.base.settings import Settings, SettingsStore, decode_settings
from spindle.base.spelling import counted
from spindle.base.user_files import BadFile
from spindle.models.credentials import AuthStore
from spindle.resources.trust import TrustStore
from spindle.sessions.entries import SessionError
from spindle.sessions.open import delete, load, wanted_directory
from spindle.sessions.transfer import put_among_files

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession
    from spindle.apps.console.talk import Talk

_MOST = 60
"""Letters that are shown of a value."""


class LocalCommands:
    def __init__(self, talk: "Talk", agent: "AgentSession") -> None:
        self._talk = talk
        self._agent = agent
        self._say = talk.view.say
        self.commands = {
            "settings": SlashCommand(
                self._change, "[KEY]", "What holds and from which file; change it", self._settings, "Which setting?"
            ),
            "scoped-models": SlashCommand(self._scope, "[PATTERNS]", "The models that Ctrl-P goes through"),
            "reload": SlashCommand(self._reload, "", "Read settings, skills, prompts and extensions again"),
            "import": SlashCommand(self._import, "FILE", "Go on with the session of a file, in a copy"),
            "trust": SlashCommand(self._trust, "", "Let this project bring its own settings and code"),
            "logout": SlashCommand(
                self._logout, "[PROVIDER]", "Forget a login or a key", self._logins, "Forget which one?"
            ),
        }

    def loaded(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what was read for this session, by kind."""
        resources = self._agent.resources
        yield "Context files", [str(file.path) for file in resources.context_files]
        yield "Extensions", [one.path for one in self._agent.extensions()]
        yield "Stream rules", [rule.name for rule in resources.rules]
        yield "Not trusted", [f"{path} is not loaded: /trust" for path in resources.trust.skipped]

    # -- stored sessions -------------------------------------------------------------------------

    def last_messages(self, path: str, most: int) -> list[str]:
        """Return the ends of a conversation, or why it cannot be read."""
        from spindle.shapes.messages import AssistantMessage, UserMessage, text_of

        try:
            held = load(path, read_only=True).context().messages
        except (SessionError, OSError) as error:
            return [str(error)]
        said = [one for one in held if isinstance(one, UserMessage | AssistantMessage)]
        who = {"user": "you", "assistant": "agent"}
        return [f"{who[one.role]}: {text_of(one.content, ' ')}" for one in said[-most:] if text_of(one.content, "")]

    def rename(self, path: str, name: str) -> None:
        from spindle.sessions.manager import SessionManager

        try:
            with SessionManager.open(path) as session:
                session.append_session_info(name)
        except (SessionError, OSError) as error:
            self._talk.view.fail(str(error))

    def delete(self, path: str) -> None:
        try:
            delete(Path(path))
        except (SessionError, OSError) as error:
            self._talk.view.fail(str(error))

    # -- settings --------------------------------------------------------------------------------

    async def _settings(self) -> list[SlashOption]:
        store = self._agent.resources.store
        rows = [(key, one_line(_written(value))[:_MOST], _origin(store, key)) for key, value in _flat(store.settings)]
        width = max(len(key) for key, _, _ in rows)
        return [SlashOption(key, f"{key:<{width}}  {value}  {origin}".rstrip()) for key, value, origin in rows]

    async def _change(self, key: str) -> None:
        store = self._agent.resources.store
        now = dict(_flat(store.settings))[key]
        if (choices := _choices(key)) is not None:
            at = await self._talk.editor.ask(Question(f"{key} is {_written(now)}. New value?", choices))
            text = None if at is None else choices[at]
        else:
            text = await self._talk.editor.ask(Question(f"{key}? Empty: the default", prefill=_written(now)))
        if text is None:
            return
        value = _read(str(text).strip())
        if problems := _problems(key, value):
            self._talk.view.fail(problems[0].removesuffix(", using the default"))
            return
        self._save(key, value)
        await self._agent.reload()
        held = dict(_flat(self._agent.resources.settings))[key]
        beaten = (
            f", and {_origin(store, key).strip('()')} says otherwise" if value is not None and held != value else ""
        )
        self._say(f"{key}: {_written(held)} (kept in {store.global_path}{beaten})", "dim")

    def _save(self, key: str, value: Any) -> None:
        try:
            self._agent.resources.store.save(key, value)
        except (BadFile, OSError) as error:
            self._talk.view.fail(f"Cannot change settings.json: {error}")

    async def _scope(self, given: str) -> None:
        from spindle.models.select import resolve_scope

        resources = self._agent.resources
        if not given:
            held = ", ".join(resources.settings.enabled_models or ())
            ask = Question("Models for Ctrl-P, as claude-*, gpt-5? Empty: all that are ready", prefill=held)
            if (given := await self._talk.editor.ask(ask)) is None:
                return
        patterns = [word.strip() for word in given.split(",") if word.strip()]
        found, warnings = resolve_scope(patterns, resources.registry)
        if patterns and not found:
            self._talk.view.fail(warnings[0] if warnings else "No model fits")
            return
        self._save("enabledModels", patterns or None)
        await self._agent.reload()
        through = counted(len(found), "model") if found else "all models"
        self._say(f"Ctrl-P goes through {through} from the next session on", "dim")

    async def _reload(self, _: str) -> None:
        await self._agent.reload()
        for problem in self._talk.editor.read_keys().problems:
            self._say(f"{FILE}: {problem}", "yellow")
        counts = [f"{kind.lower()}: {len(names)}" for kind, names in self.loaded() if names]
        self._say(f"Read again: settings, skills, prompts{''.join(f', {one}' for one in counts)}", "dim")

    # -- the rest --------------------------------------------------------------------------------

    async def _import(self, path: str) -> None:
        file = Path(path.strip("'\"")).expanduser()
        if not path or not file.is_file():
            self._talk.view.fail(f"There is no file {file}" if path else "Which file? /import FILE.jsonl")
            return
        resources = self._agent.resources
        folder = wanted_directory(resources.options.session_dir, resources.settings.session_dir)
        try:
            copy = await asyncio.to_thread(put_among_files, file.absolute(), folder)
        except SessionError as error:
            self._talk.view.fail(str(error))
            return
        await self._talk.client.switch_session(str(copy))

    async def _trust(self, _: str) -> None:
        from spindle.plugins.extensions.discover import agree_to_extensions
        from spindle.resources.trust import gated_paths

        cwd = Path(self._agent.cwd)
        brought = ", ".join(os.path.relpath(path, cwd) for path in gated_paths(cwd)) or "nothing yet"
        ask = Question(f"Trust {one_line(str(cwd))}? It brings: {one_line(brought)}", ["No", "Yes"], "ny")
        if (answer := await self._talk.editor.ask(ask)) is None:
            return
        try:
            TrustStore(agent_dir()).remember(cwd, bool(answer))
            if answer:
                agree_to_extensions(self._agent.resources)
        except (BadFile, OSError) as error:
            self._talk.view.fail(f"Cannot remember it: {error}")
            return
        await self._agent.reload()
        self._say(f"{'Trusted' if answer else 'Not trusted'} from now on: {one_line(str(cwd))}", "dim")

    async def _logins(self) -> list[SlashOption]:
        store = AuthStore(agent_dir())
        return [SlashOption(name, f"{name}  {entry.get('type')}") for name, entry in store.entries().items()]

    async def _logout(self, provider: str) -> None:
        store = AuthStore(agent_dir())
        try:
            await store.store(provider, None)
        except (BadFile, OSError) as error:
            self._talk.view.fail(f"Cannot change {store.path}: {error}")
        else:
            self._say(f"Removed {provider} from {store.path}. To void the login, go to its website", "dim")


def _flat(group: Struct, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting by its dotted name."""
    for item in msgspec.structs.fields(group):
        value = getattr(group, item.name)
        if isinstance(value, Struct):
            yield from _flat(value, f"{prefix}{item.encode_name}.")
        else:
            yield prefix + item.encode_name, value


def _origin(store: SettingsStore, key: str) -> str:
    for raw, path in ((store.project, store.project_path), (store.user, store.global_path)):
        inner: Any = raw
        for part in key.split("."):
            inner = inner.get(part) if isinstance(inner, dict) else None
        if inner is not None or key in raw:
            return f"({path})"
    return ""


def _choices(key: str) -> list[str] | None:
    """Return the possible values, if they are few."""
    kind: Any = Settings
    for part in key.split("."):
        kind = next(item.type for item in msgspec.structs.fields(kind) if item.encode_name == part)
    if kind is bool:
        return ["true", "false"]
    words = [word for one in (kind, *get_args(kind)) for word in get_args(one)]
    return words if words and all(isinstance(word, str) for word in words) else None


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read(text: str) -> Any:
    """Return what a typed text means: JSON, or itself; None if it is empty."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _problems(key: str, value: Any) -> list[str]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return decode_settings(value)[1]
