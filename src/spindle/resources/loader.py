"""Everything around a run, read for one working directory.

Cheap if there are no resources: a handful of looks at the disk. Models are read when one is needed.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from spindle.base.agent_dir import agent_dir, agent_dir_problem
from spindle.base.settings import Retention, Settings, SettingsStore
from spindle.base.user_files import BadFile, Diagnostic, read_text
from spindle.models.model_registry import ModelRegistry
from spindle.resources.prompt import ContextFile, PromptParts, build_system_prompt, load_context_files
from spindle.resources.rule_files import StreamRule, load_rules
from spindle.resources.slash_commands import Skill, Template, load_skills, load_templates
from spindle.resources.sources import CommandItem, Source, Sources
from spindle.resources.trust import (
    NOT_AGREED,
    RUNNING,
    SETTINGS,
    TrustDecision,
    TrustStore,
    decide,
    programs_of,
)
from spindle.tools.base import Tool
from spindle.workspace.settings import ToolSettings
from spindle.workspace.unfenced import NO_SANDBOX, NoSandbox

if TYPE_CHECKING:
    from spindle.workspace import Workspace
    from spindle.workspace.pipe import Pipe
    from spindle.workspace.sandbox import Sandbox

PROJECT_FOLDERS = (".pi/skills", ".pi/prompts", ".pi/commands", ".agents/skills")
"""Folders of a project with texts for the model; they are read at the far side, too."""
_COMMAND = r"(?s)/(\S+)(?:\s+(.*))?"


class ClientPrompt(Struct, frozen=True):
    """Instructions of a client for its session."""

    text: str
    replaces: bool = False
    """Whether it takes the place of the built-in part of the system prompt; else it is added."""


class ResourceOptions(Struct, frozen=True):
    """Options for resources, from a command line or a program."""

    system_prompt: str | None = None
    """Text, or the path of a file with it."""
    append_system_prompt: Sequence[str] = ()
    client_prompt: ClientPrompt | None = None
    skills: Sequence[str] = ()
    no_skills: bool = False
    prompt_templates: Sequence[str] = ()
    no_prompt_templates: bool = False
    extensions: Sequence[str] = ()
    no_extensions: bool = False
    no_context_files: bool = False
    no_rules: bool = False
    no_user_files: bool = False
    """Read no settings, no prompt files and no files with MCP servers."""
    env: Mapping[str, str] = {}
    """Variables of commands, besides ours."""
    checkpoints: bool | None = None
    """Whether the state of the files is kept before the agent changes them; None: as the settings say."""
    session_dir: str | None = None
    """Where sessions are kept; None: as the settings say."""
    keep_sessions: str | None = None
    """How long sessions are kept; None: as the settings say."""
    keep_background: bool = False
    """Let programs that shell commands leave running outlive the agent, whatever the settings say."""
    approve: bool | None = None
    """Trust the project, or not; None: as remembered."""
    ask_trust: Callable[[Path], bool | None] | None = None
    unattended: bool = False
    """No user answers questions of the model."""
    source: Path | None = None
    """The directory that the working directory is a checkout or a copy of: it is trusted as that one is."""
    others: Callable[[], Sequence[str]] = tuple
    """Where other users of a server work: no sandbox of this user lets it be read."""
    user_folder: str | None = None
    """Where the client's sessions are, if it is a user of a server; folders of other users lie beside it.

    The settings and keys are not the user's: what the user agrees to holds for the session, and nothing leads out of
    the sandbox.
    """


HERMETIC = ResourceOptions(
    no_skills=True,
    no_prompt_templates=True,
    no_extensions=True,
    no_context_files=True,
    no_rules=True,
    no_user_files=True,
    approve=False,
)
"""Only what a program names itself; models and keys are still those of the user."""


class ExtensionPaths(Struct, frozen=True):
    """Paths that the extensions of a session have found."""

    skills: Sequence[str] = ()
    prompts: Sequence[str] = ()


_NOTHING_ADDED = ExtensionPaths()


class Resources(Struct):
    """All resources of a session. An agent uses `system_prompt`, `expand` and `commands`."""

    cwd: Path
    options: ResourceOptions
    registry: ModelRegistry
    store: SettingsStore
    trust: TrustDecision
    extension_paths: ExtensionPaths
    skills: list[Skill] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)
    context_files: list[ContextFile] = field(default_factory=list)
    extension_sources: list[Source] = field(default_factory=list)
    rules: list[StreamRule] = field(default_factory=list)
    prompt: PromptParts = field(default_factory=PromptParts)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    far: "Pipe | None" = None
    """Leads to where tools work; None: they work here."""

    @property
    def settings(self) -> Settings:
        return self.store.settings

    def require_settings(self) -> None:
        """Raise `BadFile` if a settings file cannot be used: the permission rules in it would not hold."""
        if self.store.unusable:
            raise BadFile(f"{self.store.unusable}\n\nNo agent runs without its permission rules: mend the file")

    def workdir(self, cwd: str) -> str:
        """Return the working directory of tools for a session in `cwd`."""
        return cwd if self.far is None else self.far.cwd

    def secret_variables(self) -> frozenset[str]:
        """Return the names of the variables with keys that are withheld from programs we start."""
        return self.registry.secret_variables(self.settings.keep_variables)

    @property
    def retention(self) -> Retention:
        """How long data is kept."""
        said, chosen = self.settings.retention, self.options.keep_sessions
        return said if chosen is None else replace(said, sessions=chosen)

    def tool_settings(
        self, owner: Any, sandbox: "Sandbox | NoSandbox" = NO_SANDBOX, *, for_user: bool = False
    ) -> ToolSettings:
        """Return the settings for built-in tools of `owner`. Shell commands of the user get the user's own keys."""
        settings = self.settings
        own_keys = for_user and self.options.user_folder is None
        return ToolSettings(
            shell_path=settings.shell_path,
            shell_command_prefix=settings.shell_command_prefix,
            auto_resize_images=settings.images.auto_resize,
            bin_dir=str(agent_dir() / "bin"),
            withheld_variables=frozenset() if own_keys else self.secret_variables(),
            keep_background_processes=settings.keep_background_processes or self.options.keep_background,
            owner=owner,
            sandbox=sandbox,
            far=self.far,
            variables=self.options.env,
        )

    @property
    def workspace(self) -> "Workspace":
        """Where the agent works on files for itself, besides its tools."""
        return self.tool_settings(None).workspace

    def system_prompt(self, tools: Sequence[Tool], cwd: str, custom: str | None = None, small: bool = False) -> str:
        """Return the system prompt for these tools, and for a small model; `custom` takes the place of its built-in
        part."""
        parts = self.prompt if custom is None else replace(self.prompt, custom=custom)
        parts = replace(parts, no_manual=True) if small else parts
        return build_system_prompt(tools, cwd, parts)

    def use_client_prompt(self, given: ClientPrompt) -> None:
        """Use the instructions of the client, in place of those it gave before."""
        self.options = replace(self.options, client_prompt=given)
        self.prompt = _prompt_parts(self, agent_dir())

    def expand(self, text: str, on_error: Callable[[str], None] | None = None) -> str:
        """Replace the slash command that the text begins with by its skill or template.

        The text stays as it is if there is no such command, or if a skill cannot be read: then `on_error` gets the
        reason.
        """
        match = re.fullmatch(_COMMAND, text)
        if match is None:
            return text
        items: list[Skill | Template] = [*self._skill_commands, *self.templates]
        found = next((item for item in items if item.command == match[1]), None)
        try:
            return found.expand(match[2] or "") if found else text
        except OSError as error:
            if on_error is not None:
                on_error(str(error))
            return text

    def commands(self) -> list[CommandItem]:
        return [
            *(CommandItem.of(item.command, "prompt", item.info, item.description) for item in self.templates),
            *(CommandItem.of(item.command, "skill", item.info, item.description) for item in self._skill_commands),
        ]

    @property
    def _skill_commands(self) -> list[Skill]:
        return self.skills if self.settings.enable_skill_commands else []

    def at(self, cwd: str | Path) -> "Resources":
        """Return the resources of another session in `cwd`, fully loaded; this object stays as it is.

        Options and credentials are shared. Paths and providers that extensions have added are not taken along. If none
        were added and the directory is the same, there is nothing to read and the result is this object.
        """
        path = Path(cwd)
        if path == self.cwd and self.extension_paths == _NOTHING_ADDED and not self.registry.is_extended:
            return self
        return _load(path, self.options, self.registry.sibling(), far=self.far)

    def through(self, far: "Pipe | None") -> "Resources":
        """Return the same resources for tools at a far side, or here: its texts take the place of the project's."""
        return self if far is self.far else _load(self.cwd, self.options, self.registry, self.extension_paths, far)

    def reload(self) -> None:
        """Read everything again, models and keys too. Paths that extensions have added are dropped.

        Raises `BadFile` if the settings cannot be used; then the old ones hold.
        """
        self.registry.reload()
        other = _load(self.cwd, self.options, self.registry, far=self.far)
        other.require_settings()
        self._take(other)

    def set_extension_paths(self, *, skills: Sequence[str] = (), prompts: Sequence[str] = ()) -> None:
        """Use paths that extensions have found, in place of those set before; they rank last."""
        other = _load(self.cwd, self.options, self.registry, ExtensionPaths(skills, prompts), self.far)
        if other.store.unusable:
            other.store = self.store
        self._take(other)

    def _take(self, other: "Resources") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))


def load_resources(cwd: str | Path, options: ResourceOptions | None = None) -> Resources:
    """Read all resources for `cwd`. Never fails: problems are in `diagnostics`."""
    path, options = Path(cwd).absolute(), options or ResourceOptions()
    # A pipe, such as `<(command)` of a shell, can be read only once, but `reload` and `at` read again.
    given = options.system_prompt
    options = replace(
        options,
        system_prompt=None if given is None else _drained(given, path),
        append_system_prompt=[_drained(text, path) for text in options.append_system_prompt],
    )
    return _load(path, options, ModelRegistry(agent_dir()))


def load_settings(cwd: Path, options: ResourceOptions) -> tuple[SettingsStore, TrustDecision, list[Diagnostic]]:
    """Decide about the project's trust, then read the settings that hold in `cwd`. All readers of them come here."""
    home = agent_dir()
    store, trust_store = SettingsStore(home, cwd), TrustStore(home)
    if options.no_user_files:
        return store, decide(cwd, trust_store, approve=False), []
    default = store.load(project_trusted=False).default_project_trust
    trust = decide(
        cwd, trust_store, approve=options.approve, default=default, ask=options.ask_trust, source=options.source
    )
    changed = None
    if trust.trusted:
        store.load(project_trusted=True)
        text = programs_of(store.project)
        if text and not trust_store.is_agreed(trust.project / SETTINGS, text, trust):
            names = ", ".join(store.leave_out(RUNNING))
            changed = Diagnostic("warning", f"Cannot use {names} of {store.project_path}: {NOT_AGREED}")
            trust = replace(trust, is_open=default == "ask" and options.approve is None)
    problem = agent_dir_problem()
    unreadable = Diagnostic("error", problem, str(home)) if problem else None
    problems = [unreadable, trust_store.problem, trust.notice(), changed]
    return store, trust, [*store.diagnostics, *(problem for problem in problems if problem)]


def _drained(given: str, cwd: Path) -> str:
    """Return the content if `given` names a pipe, else `given` itself."""
    try:
        path = cwd / given
        return path.read_text("utf-8", "replace") if path.is_fifo() else given
    except (OSError, ValueError):  # a whole prompt is no file name
        return given


def _load(
    cwd: Path,
    options: ResourceOptions,
    registry: ModelRegistry,
    added: ExtensionPaths = _NOTHING_ADDED,
    far: "Pipe | None" = None,
) -> Resources:
    home = agent_dir()
    store, trust, problems = load_settings(cwd, options)
    registry.local = store.settings.local
    registry.auth.proxy = store.settings.http_proxy
    result = Resources(cwd, options, registry, store, trust, added)
    result.diagnostics, result.far = problems, far
    there = None
    if far is not None and far.mirror is not None:
        from spindle.resources.far_texts import FarTexts

        there = FarTexts(far.mirror.name, far.cwd)

    sources = Sources(home, cwd, store, project_trusted=trust.trusted)
    texts = sources if there is None else there.sources(home, store)
    result.skills, found = load_skills(
        texts.of("skills", [*options.skills, *added.skills], discover=not options.no_skills)
    )
    result.diagnostics += found
    named = [*options.prompt_templates, *added.prompts]
    result.templates, found = load_templates(texts.of("prompts", named, discover=not options.no_prompt_templates))
    result.diagnostics += found
    result.extension_sources = sources.of("extensions", options.extensions, discover=not options.no_extensions)
    result.diagnostics += sources.diagnostics
    if not options.no_rules:
        result.rules, found = load_rules(cwd, home, project_trusted=trust.trusted)
        result.diagnostics += found
    if not options.no_context_files:
        result.context_files, found = load_context_files(home, cwd if there is None else there.folder)
        result.diagnostics += found
    if there is not None:
        there.take_in(result, home)
    result.prompt = _prompt_parts(result, home)
    return result


def _prompt_parts(resources: Resources, home: Path) -> PromptParts:
    options, client = resources.options, resources.options.client_prompt
    custom = client.text if client is not None and client.replaces else _text_or_file(options.system_prompt, resources)
    if custom is None and not options.no_user_files:
        custom = _prompt_file("SYSTEM.md", resources, home)
    append = [text for given in options.append_system_prompt if (text := _text_or_file(given, resources))]
    if not append and not options.no_user_files and (text := _prompt_file("APPEND_SYSTEM.md", resources, home)):
        append = [text]
    skills = [skill for skill in resources.skills if resources.far is None or skill.text is not None]
    added = "" if client is None or client.replaces else client.text
    # Tools that work elsewhere cannot read the manual here.
    unattended, no_manual = options.unattended, resources.far is not None
    return PromptParts(
        custom, append, added, resources.context_files, skills, unattended=unattended, no_manual=no_manual
    )


def _prompt_file(name: str, resources: Resources, home: Path) -> str | None:
    """Return the text of the project's file if it is trusted, else of the user's."""
    for directory in ([resources.cwd / ".pi"] if resources.trust.trusted else []) + [home]:
        path = directory / name
        if os.path.isfile(path):
            return _read(path, resources)
    return None


def _text_or_file(given: str | None, resources: Resources) -> str | None:
    if given is None:
        return None
    try:
        path = resources.cwd / given
        return _read(path, resources) if os.path.isfile(path) else given
    except (OSError, ValueError):
        return given


def _read(path: Path, resources: Resources) -> str | None:
    try:
        return read_text(path)
    except OSError as error:
        resources.diagnostics.append(Diagnostic("warning", f"Cannot read {path}: {error.strerror or error}"))
        return None
