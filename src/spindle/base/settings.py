"""Settings as typed values, and the two files that they come from: the user's, then the project's on top.

Values are decoded key by key: a wrong value gives one diagnostic and is replaced by its default. Old keys are
understood on reading (`migrate`). Keys of other programs are not listed here and survive every write. A file that
cannot be parsed is reported, counts as empty, and is never overwritten.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from spindle.base.spelling import nearest
from spindle.base.user_files import BadFile, Diagnostic, edit_json, read_object
from spindle.shapes import tool_lists
from spindle.shapes.model import ThinkingLevel
from spindle.shapes.sandbox import Network, SandboxLevel

_DOTTED = ("todo", "tasks", "ttsr", "hostTools")
"""Groups that may be written flat: `"todo.enabled"`."""
_GLOBAL_ONLY = ("defaultProjectTrust", "keepVariables", "limits", "retention", "sandbox")
"""Only the user's own file may set these: a project must not decide about its own trust or fence, or get keys."""
_WITHOUT_EFFECT = {
    "transport": ("auto", "sse"),
    "websocketConnectTimeoutMs": (),
    "cacheWarming": ("off",),
    "codemode": (),
    "retry.provider.maxRetries": (0,),
}
"""Settings of pi that change what its agent does, and nothing here, unless they have one of these values."""
Count = Annotated[int, Meta(ge=0)]
QueueMode = Literal["one-at-a-time", "all"]


class SettingsGroup(Struct, rename="camel", frozen=True):
    """A JSON object of settings."""


class Compaction(SettingsGroup, frozen=True):
    """A context that gets too long is replaced by a summary of its older part."""

    enabled: bool = True
    """Whether compaction happens by itself; the command `compact` always works."""
    reserve_tokens: Count = 16384
    """Compact when fewer tokens than this are free in the context window."""
    keep_recent_tokens: Count = 20000
    """Tokens of the newest messages, which stay as they are."""
    prune: bool = True
    """Whether old results of tools are left out of requests before anything is summarised."""
    model_overrides: dict[str, dict[str, Any]] = {}
    """`provider/id` → values that replace the ones above for that model."""

    def for_model(self, name: str) -> "Compaction":
        """Return the values for the model `provider/id`; invalid overrides do not count."""
        if not (changed := self.model_overrides.get(name)):
            return self
        try:
            return msgspec.convert({**msgspec.to_builtins(self), **changed}, Compaction)
        except msgspec.ValidationError:
            return self


class BranchSummary(SettingsGroup, frozen=True):
    """Summaries of a branch that is left in the session tree."""

    reserve_tokens: Count = 16384
    """Room for the summary in the context window."""
    skip_prompt: bool = False
    """Whether the chat leaves a branch without asking for a summary of it."""


class ProviderRetry(SettingsGroup, frozen=True):
    """What holds for single requests."""

    timeout_ms: Count | None = None
    """How long a model server may send nothing, in place of `httpIdleTimeoutMs`."""
    max_retry_delay_ms: Count | None = None
    """The longest wait that a server may ask for, in place of `retry.maxAgentDelayMs`; 0: any."""


class RetrySettings(SettingsGroup, frozen=True):
    """A request that fails for a reason that may pass (overload, rate limit, broken connection) is repeated."""

    enabled: bool = True
    """Whether failed requests are repeated."""
    max_retries: Count = 3
    """How often a request is repeated."""
    base_delay_ms: Count = 2000
    """The first wait; each further one is twice as long."""
    max_agent_delay_ms: Count = 60000
    """The longest wait; a server that asks for a longer one is not waited for."""
    provider: ProviderRetry = ProviderRetry()

    @property
    def longest_asked_ms(self) -> float:
        """The longest wait that a server may ask for."""
        asked = self.provider.max_retry_delay_ms
        return self.max_agent_delay_ms if asked is None else asked or math.inf


class Images(SettingsGroup, frozen=True):
    """Images in prompts and tool results."""

    auto_resize: bool = True
    """Make large images smaller before they are sent (needs the extra `images`)."""
    block_images: bool = False
    """Send no images to models."""


class Todo(SettingsGroup, frozen=True):
    """The todo list of the agent."""

    enabled: bool = True
    """Whether the tool is offered."""
    reminders: bool = True
    """Remind the model of open todos when it would end."""
    reminders_max: Count = 3
    """Written as `todo.reminders.max`."""


class TaskSettings(SettingsGroup, frozen=True):
    """How long todos are shown."""

    todo_clear_delay: int = 60
    """Seconds after which finished todos vanish; negative: never."""


class Ttsr(SettingsGroup, frozen=True):
    """Stream rules: text patterns that stop an answer and add a reminder."""

    enabled: bool = True
    """Whether rules are checked."""
    context_mode: Literal["discard", "keep"] = "discard"
    """What happens to an answer that was stopped."""
    repeat_mode: Literal["once", "after-gap"] = "once"
    """How often one rule may act in a session."""
    repeat_gap: Count = 10
    """Turns before a rule may act again, with `after-gap`."""
    interrupt_mode: Literal["never", "prose-only", "tool-only", "always"] = "always"
    """Where a match stops the answer at once: in text, in arguments of tools, in both, or nowhere."""


class HostToolSettings(SettingsGroup, frozen=True):
    """Tools that run in the client."""

    timeout_ms: Count | None = None
    """How long a call may take; without it, as long as any tool."""


class Permissions(SettingsGroup, frozen=True):
    """Which tool calls may run. The lists of the user's file and of the project's add up."""

    default_mode: str | None = None
    """One of the [modes](permissions.md#modes)."""
    allow: list[str] = []
    """Rules of calls that run without a question: `Bash(git *)`."""
    ask: list[str] = []
    """Rules of calls that are asked about."""
    deny: list[str] = []
    """Rules of calls that never run; they come first."""
    additional_directories: list[str] = []
    """Directories that count like the working directory."""
    ask_timeout_ms: Count | None = None
    """A question that is not answered in this time is answered with no; None: it waits."""


class SandboxSettings(SettingsGroup, frozen=True):
    """What the kernel lets commands do ([The sandbox](sandbox.md)). Only in the user's file."""

    level: SandboxLevel = "off"
    """`off`, `read-only` or `workspace-write`."""
    writable: list[str] = []
    """Folders and files that commands may write too: `~/.cache`."""
    network: Network = "on"
    """`on`, `off`, or a list of TCP ports."""
    outside: list[str] = []
    """Rules of commands that run without the sandbox: `Bash(docker *)`."""


class LocalSettings(SettingsGroup, frozen=True):
    """Models that run on this machine."""

    context_size: Annotated[int, Meta(ge=512)] | None = None
    """Tokens; None: as many as the model was made for, within reason."""
    threads: Annotated[int, Meta(ge=1)] | None = None
    """None: all cores but one."""


class Runaway(SettingsGroup, frozen=True):
    """When a run that would not end by itself is stopped."""

    max_model_calls: Annotated[int, Meta(ge=1)] = 1000
    """Model calls in one run."""
    max_repeated_failures: Annotated[int, Meta(ge=1)] = 5
    """Failures of the same tool call in a row."""
    stall_seconds: Annotated[float, Meta(gt=0)] = 300.0
    """Seconds that a stream may make no progress."""
    tool_seconds: Annotated[float, Meta(gt=0)] = 3600.0
    """Seconds that one tool call may take."""
    max_answer_chars: Annotated[int, Meta(ge=1000)] = 8_000_000
    """Characters of one answer."""


class Bounds(SettingsGroup, frozen=True):
    """Bounds for all sessions of a process together; 0: no bound."""

    sessions: Count = 2000
    """How many live sessions there may be."""
    idle_seconds: Count = 600
    """How long an unused session stays in memory. Its file stays."""
    model_calls: Count = 0
    """Model calls at a time, for each provider."""
    children: Count = 0
    """Programs that one session runs at a time."""
    roots: list[str] = []
    """Directories in and below which sessions may work; empty: anywhere."""


Age = Annotated[str, Meta(pattern=r"^([0-9]{1,5}[hdwmy]|forever)$")]


class Retention(SettingsGroup, frozen=True):
    """How long data is kept: an age as `90d` (`h`, `d`, `w`, `m` or `y`), or `forever` ([data](data.md))."""

    sessions: Age = "forever"
    """Sessions that nobody has written to for so long are deleted, with all that belongs to them."""
    usage: Age = "forever"
    """What users of a server have used up, by day."""
    keep_last: Count = 0
    """So many of the newest sessions stay, however old they are."""


Role: TypeAlias = Literal["subagents", "summaries", "titles", "questions"]


class Settings(SettingsGroup, frozen=True):
    default_provider: str | None = None
    """Provider of the model that a new session begins with."""
    default_model: str | None = None
    """Id of that model. Without both, the default of the first provider that has a key."""
    default_thinking_level: ThinkingLevel = "medium"
    """How hard models think; a level that a model does not have becomes the nearest that it has."""
    model_thinking_levels: dict[str, ThinkingLevel] = {}
    """`provider/id` → level, for single models."""
    thinking_budgets: dict[str, Count] = field(
        default_factory=lambda: {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
    )
    """Tokens for each level, with models that take a number."""
    fallback: dict[str, list[str]] = {}
    """Models that answer when one cannot: by job (`main`, `subagents`, `summaries`, `titles`, `questions`) or by a
    pattern of the model (`anthropic/*`, `*`); see [providers](providers.md#other-models-when-one-fails)."""
    roles: dict[Role, str] = {}
    """Models of other jobs than the main one; without it they are done by the model of the session."""
    enabled_models: list[str] | None = None
    """Patterns of the models that `cycle_model` goes through; none: every available model."""
    default_tools: list[str] | None = None
    """Tools of a new session; without it those of the table in cli.md."""
    steering_mode: QueueMode = "one-at-a-time"
    """How many waiting steering messages a turn gets."""
    follow_up_mode: QueueMode = "one-at-a-time"
    """The same for messages that wait for the end of a run."""
    interrupt_mode: Literal["immediate", "wait"] | None = None
    """Whether a steering message ends tools that are running, or waits; without it `immediate`, for xcsh `wait`."""
    session_dir: str | None = None
    """Where sessions are kept, after `--session-dir` and `PI_CODING_AGENT_SESSION_DIR`."""
    default_project_trust: Literal["ask", "always", "never"] = "ask"
    """Whether a project may bring its own settings and code; `ask` unanswered means no. Only in the user's file."""
    compaction: Compaction = Compaction()
    branch_summary: BranchSummary = BranchSummary()
    retry: RetrySettings = RetrySettings()
    images: Images = Images()
    todo: Todo = Todo()
    tasks: TaskSettings = TaskSettings()
    ttsr: Ttsr = Ttsr()
    runaway: Runaway = Runaway()
    host_tools: HostToolSettings = HostToolSettings()
    local: LocalSettings = LocalSettings()
    permissions: Permissions = Permissions()
    sandbox: SandboxSettings = SandboxSettings()
    checkpoints: bool = True
    """Whether the state of the files is kept before the agent changes them ([undo](undo.md))."""
    editing_mode: Literal["emacs", "vi"] = "emacs"
    """Keys of the chat on a terminal."""
    double_escape_action: Literal["rewind", "tree", "fork", "none"] = "rewind"
    """What Esc Esc does there while the input is empty and nothing runs: a command of that name."""
    limits: Bounds = Bounds()
    retention: Retention = Retention()
    shell_path: str | None = None
    """The shell of `bash`; without it `/bin/bash`, `bash` or `sh`."""
    shell_command_prefix: str | None = None
    """A line that runs before every command: `source ~/.profile`."""
    exec: str | None = None
    """A command that gives a pipe to a shell, such as `docker exec -i dev`: tools of new sessions work there."""
    exec_cwd: str | None = None
    """The working directory there."""
    checks_after_edit: dict[str, str] = {}
    """Programs that look at an edited file, by its name: `{"*.py": "ruff check {file}"}`. News go to the model."""
    read_before_write: bool = False
    """Whether `write` over a file that the conversation has not read is refused, with its size and first lines."""
    keep_background_processes: bool = False
    """Whether commands in the background, and programs that others leave running (`server &`), outlive the agent."""
    max_background_commands: Count = 32
    """Commands that an agent runs in the background at a time; more are refused. 0: no bound."""
    max_subagents: Count = 16
    """Subagents that work at a time for an agent; more wait for their turn. 0: no bound."""
    keep_variables: list[str] = []
    """Variables with model keys that tools and programs of extensions get nevertheless. Only in the user's file."""
    http_proxy: str | None = None
    """Proxy for requests to models; it comes before those of the environment."""
    http_idle_timeout_ms: Count = 300000
    """How long a model server may send nothing; 0 and `"disabled"` wait for ever."""
    fsync: Literal["never", "run", "always"] = "run"
    """When session files are forced to disk."""
    packages: list[str | dict[str, Any]] = []
    """Folders with `extensions/`, `skills/`, `prompts/`; npm and git sources where pi has installed them."""
    extensions: list[str] = []
    """More extensions: paths, `module:name`, entry points; `!glob`, `+path` and `-path` choose."""
    skills: list[str] = []
    """More skills, the same way."""
    enable_skill_commands: bool = True
    """Whether skills are slash commands, too: `/skill:name`."""
    prompts: list[str] = []
    """More prompt templates, the same way."""


def decode_settings(raw: dict[str, Any]) -> tuple[Settings, list[str]]:
    """Return the settings, and a line for every misspelt key and every value that was replaced by its default."""
    problems: list[str] = []
    return _decode(Settings, _unflatten(raw), "", problems), problems


def _decode(group: type[Any], raw: dict[str, Any], prefix: str, problems: list[str]) -> Any:
    values: dict[str, Any] = {}
    names = [item.encode_name for item in msgspec.structs.fields(group)]
    for key in raw:
        if key not in names and "." not in key and (near := nearest(key, names)):
            problems.append(f'{prefix}{key} is not known: did you mean "{prefix}{near}"?')
    for item in msgspec.structs.fields(group):
        value = raw.get(item.encode_name)
        if value is None:
            continue
        key = prefix + item.encode_name
        nested = isinstance(item.type, type) and issubclass(item.type, Struct)
        if nested and isinstance(value, dict):
            values[item.name] = _decode(item.type, value, f"{key}.", problems)
            continue
        try:
            values[item.name] = msgspec.convert(value, item.type)
        except msgspec.ValidationError as error:
            problems.append(f"{key}: {str(error).replace('`', '')}, using the default")
    return group(**values)


def _unflatten(raw: dict[str, Any]) -> dict[str, Any]:
    """Nest flat keys: `"todo.reminders.max": 5` and its half-nested forms mean the same."""
    result = {key: dict(value) if key in _DOTTED and isinstance(value, dict) else value for key, value in raw.items()}
    for key, value in raw.items():
        group, dot, rest = key.partition(".")
        if dot and group in _DOTTED and isinstance(result.setdefault(group, {}), dict):
            result[group].setdefault(rest, value)
    todo = result.get("todo")
    if isinstance(todo, dict):
        if isinstance(reminders := todo.get("reminders"), dict):
            todo |= {"reminders": reminders.get("enabled", True), "reminders.max": reminders.get("max")}
        if "reminders.max" in todo:
            todo["remindersMax"] = todo["reminders.max"]
    return result


# -- the files -----------------------------------------------------------------------------------


class SettingsStore:
    """Settings of one working directory: `load` reads the files, `settings` is the result."""

    def __init__(self, agent_dir: Path, cwd: Path) -> None:
        self.global_path = agent_dir / "settings.json"
        self.project_path = cwd / ".pi" / "settings.json"
        self.user: dict[str, Any] = {}
        """The global file after migration."""
        self.project: dict[str, Any] = {}
        """The project file after migration; empty while the project is not trusted."""
        self.settings = Settings()
        self.diagnostics: list[Diagnostic] = []
        self.unusable: str | None = None
        """What is wrong with a file that cannot be used, if there is one. No agent may run then: its rules are gone."""

    def load(self, *, project_trusted: bool) -> Settings:
        """Read the user's file, and the project's if that is trusted; otherwise the latter is not even opened."""
        self.diagnostics, self.unusable = [], None
        self.user = self._read(self.global_path)
        project = self._read(self.project_path) if project_trusted else {}
        self.project = {key: value for key, value in project.items() if key not in _GLOBAL_ONLY}
        self.settings, problems = decode_settings(merge(self.user, self.project))
        files = f"{self.global_path}{f' and {self.project_path}' if self.project else ''}"
        self.diagnostics += [Diagnostic("warning", f"Setting {problem} ({files})") for problem in problems]
        if idle := _without_effect(merge(self.user, self.project)):
            text = f"Settings of pi that have no effect here: {', '.join(idle)} ({files})"
            self.diagnostics.append(Diagnostic("warning", text))
        return self.settings

    def leave_out(self, keys: Sequence[str]) -> list[str]:
        """Obey the project in all but these settings; return those that it has."""
        found = [key for key in keys if key in self.project]
        self.project = {key: value for key, value in self.project.items() if key not in found}
        self.settings, _ = decode_settings(merge(self.user, self.project))
        return found

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return migrate(read_object(path) or {})
        except BadFile as error:
            self.unusable = f"Cannot use {path}: {error}"
            self.diagnostics.append(Diagnostic("error", self.unusable, str(path)))
            return {}

    def resource_list(self, key: str, *, project: bool) -> list[Any]:
        """Return a list from one of the files: resource lists add up instead of replacing each other."""
        value = (self.project if project else self.user).get(key)
        return value if isinstance(value, list) else []

    def save(self, key: str, value: Any) -> None:
        """Write one key (`a.b` for nested ones) to the global file; None removes it. Raises `BadFile`, `OSError`."""
        self._edit(key, lambda old: value)

    def add(self, key: str, values: Sequence[str], *, project: bool = False) -> None:
        """Add missing values to a list in the global file, or in that of the project. Raises `BadFile`, `OSError`."""
        path = self.project_path if project else self.global_path
        self._edit(key, lambda old: list(dict.fromkeys([*(old or ()), *values])), path)

    def remove(self, key: str, values: Sequence[str], *, project: bool = False) -> None:
        """Take values out of a list in one of the files. Raises `BadFile`, `OSError`."""
        path = self.project_path if project else self.global_path
        self._edit(key, lambda old: [one for one in old or () if one not in values] or None, path)

    def _edit(self, key: str, new_value: Callable[[Any], Any], path: Path | None = None) -> None:
        *groups, last = key.split(".")

        def change(content: dict[str, Any]) -> None:
            for group in groups:
                inner = content.get(group)
                content[group] = content = inner if isinstance(inner, dict) else {}
            if (value := new_value(content.get(last))) is None:
                content.pop(last, None)
            else:
                content[last] = value

        edit_json(path or self.global_path, change)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge objects deeply; other values of `over` replace those of `base`."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        if key == "defaultTools" and isinstance(old, list) and _are_texts(value):
            result[key] = tool_lists.over(old, value)  # a list of changes is for the list of the user
    return result


def _without_effect(raw: dict[str, Any]) -> list[str]:
    """Return the names of settings that change what pi does, and nothing here."""
    found = []
    for name, same in _WITHOUT_EFFECT.items():
        value: Any = raw
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value not in same:
            found.append(name)
    return found


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def migrate(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with keys of older versions of pi under their present names, and its word for no limit."""
    result = dict(raw)
    if result.get("httpIdleTimeoutMs") == "disabled":
        result["httpIdleTimeoutMs"] = 0
    if "queueMode" in result:
        result.setdefault("steeringMode", result.pop("queueMode"))
    if isinstance(skills := result.get("skills"), dict):
        result["skills"] = skills.get("customDirectories", [])
    if isinstance(retry := result.get("retry"), dict):
        # maxDelayMs has no effect here, but looks like a misspelt maxAgentDelayMs.
        result["retry"] = {key: value for key, value in retry.items() if key != "maxDelayMs"}
    return result
