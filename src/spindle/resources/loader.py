"""Everything around a run, read for one working directory.

Cheap when nothing is there: a handful of looks at the disk. Models are left alone until somebody asks for one.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from spindle.agent_dir import agent_dir
from spindle.config.settings import Settings, SettingsStore
from spindle.config.user_files import Diagnostic, read_text
from spindle.models.model_registry import ModelRegistry
from spindle.resources.commands import CommandItem, command_items
from spindle.resources.expand import expand_input
from spindle.resources.prompt import ContextFile, PromptParts, build_system_prompt, load_context_files
from spindle.resources.rule_files import Rule, load_rules
from spindle.resources.skills import Skill, load_skills
from spindle.resources.sources import Source, Sources
from spindle.resources.templates import Template, load_templates
from spindle.resources.trust import TrustDecision, TrustStore, decide
from spindle.tools.base import Tool

__all__ = ["ResourceOptions", "Resources", "load_resources"]


class ResourceOptions(Struct, frozen=True):
    """What a command line or a program says about resources."""

    system_prompt: str | None = None
    """Text, or the path of a file with it."""
    append_system_prompt: Sequence[str] = ()
    skills: Sequence[str] = ()
    no_skills: bool = False
    prompt_templates: Sequence[str] = ()
    no_prompt_templates: bool = False
    extensions: Sequence[str] = ()
    no_extensions: bool = False
    no_context_files: bool = False
    no_rules: bool = False
    approve: bool | None = None
    """Trust the project, or not; None: as remembered."""
    ask_trust: Callable[[Path], bool | None] | None = None


class Resources(Struct):
    """What was found. `system_prompt`, `expand` and `commands` are what an agent asks of it."""

    cwd: Path
    options: ResourceOptions
    registry: ModelRegistry
    store: SettingsStore
    trust: TrustDecision
    skills: list[Skill] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)
    context_files: list[ContextFile] = field(default_factory=list)
    extension_sources: list[Source] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    prompt: PromptParts = field(default_factory=PromptParts)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.store.settings

    def system_prompt(self, tools: Sequence[Tool], cwd: str) -> str:
        return build_system_prompt(tools, cwd, self.prompt)

    def expand(self, text: str, on_error: Callable[[str], None] | None = None) -> str:
        """Put skills and templates in place; if a skill cannot be read the text stays and `on_error` hears of it."""
        try:
            return expand_input(text, self.skills, self.templates)
        except OSError as error:
            if on_error is not None:
                on_error(str(error))
            return text

    def commands(self, extension_commands: Sequence[CommandItem] = ()) -> list[CommandItem]:
        return command_items(extension_commands, self.templates, self.skills)

    def move_to(self, cwd: str) -> None:
        """Read everything anew for another working directory; models and keys stay."""
        if Path(cwd) != self.cwd:
            self._take(_load(Path(cwd), self.options, self.registry))

    def reload(self) -> None:
        """Read everything anew, models and keys too."""
        self.registry.reload()
        self._take(_load(self.cwd, self.options, self.registry))

    def add(self, *, skills: Sequence[str] = (), prompts: Sequence[str] = ()) -> None:
        """Add paths that an extension found; they rank last."""
        options = replace(
            self.options,
            skills=[*self.options.skills, *skills],
            prompt_templates=[*self.options.prompt_templates, *prompts],
        )
        self._take(_load(self.cwd, options, self.registry))

    def _take(self, other: "Resources") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))


def load_resources(cwd: str | Path, options: ResourceOptions | None = None) -> Resources:
    """Read what surrounds a run in `cwd`. Never fails: problems are in `diagnostics`."""
    return _load(Path(cwd).absolute(), options or ResourceOptions(), ModelRegistry(agent_dir()))


def _load(cwd: Path, options: ResourceOptions, registry: ModelRegistry) -> Resources:
    home = agent_dir()
    store, trust_store = SettingsStore(home, cwd), TrustStore(home)
    default = store.load(project_trusted=False).default_project_trust
    trust = decide(cwd, trust_store, approve=options.approve, default=default, ask=options.ask_trust)
    if trust.trusted:
        store.load(project_trusted=True)
    registry.local = store.settings.local
    result = Resources(cwd, options, registry, store, trust)
    problems = [trust_store.problem, trust.notice()]
    result.diagnostics = [*store.diagnostics, *(problem for problem in problems if problem)]

    sources = Sources(home, cwd, store, project_trusted=trust.trusted)
    result.skills, found = load_skills(sources.of("skills", options.skills, discover=not options.no_skills))
    result.diagnostics += found
    wanted = sources.of("prompts", options.prompt_templates, discover=not options.no_prompt_templates)
    result.templates, found = load_templates(wanted)
    result.diagnostics += found
    result.extension_sources = sources.of("extensions", options.extensions, discover=not options.no_extensions)
    result.diagnostics += sources.diagnostics
    if not options.no_rules:
        result.rules, found = load_rules(cwd, home, project_trusted=trust.trusted)
        result.diagnostics += found
    if not options.no_context_files:
        result.context_files, found = load_context_files(home, cwd)
        result.diagnostics += found
    result.prompt = _prompt_parts(result, home)
    return result


def _prompt_parts(resources: Resources, home: Path) -> PromptParts:
    options = resources.options
    custom = _text_or_file(options.system_prompt, resources)
    if custom is None:
        custom = _prompt_file("SYSTEM.md", resources, home)
    append = [text for given in options.append_system_prompt if (text := _text_or_file(given, resources))]
    if not append and (text := _prompt_file("APPEND_SYSTEM.md", resources, home)):
        append = [text]
    return PromptParts(custom, append, resources.context_files, resources.skills)


def _prompt_file(name: str, resources: Resources, home: Path) -> str | None:
    """Return the text of the project's file if it is trusted, else of the user's."""
    for directory in ([resources.cwd / ".pi"] if resources.trust.trusted else []) + [home]:
        path = directory / name
        if path.is_file():
            return _read(path, resources)
    return None


def _text_or_file(given: str | None, resources: Resources) -> str | None:
    if given is None:
        return None
    try:
        path = resources.cwd / given
        if not given or not (path.is_file() or path.is_fifo()):
            return given
    except (OSError, ValueError):  # a whole prompt is no file name
        return given
    # `<(command)` of a shell is a pipe, and here it is the user who named it.
    return path.read_text("utf-8", "replace") if path.is_fifo() else _read(path, resources)


def _read(path: Path, resources: Resources) -> str | None:
    try:
        return read_text(path)
    except OSError as error:
        resources.diagnostics.append(Diagnostic("warning", f"Cannot read {path}: {error.strerror or error}"))
        return None
