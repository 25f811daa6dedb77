"""Which model the user means: patterns, fuzzy names, scopes, and the choice at the start of a session.

A pattern is `provider/id`, an id, or a part of an id or name, optionally followed by `:level`.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from spindle.base.settings import Settings
from spindle.base.spelling import did_you_mean
from spindle.models.catalog import builtin_providers, is_same_family
from spindle.models.loopback import LOOPBACK, ServerDown, ServerUnreachable
from spindle.models.model_registry import CUSTOM, LOCAL, SCRIPTED, ModelRegistry
from spindle.models.models_file import open_model
from spindle.shapes.model import THINKING_LEVELS, Model, ThinkingLevel, masked_url


class ModelNotFound(Exception):
    """A pattern fits no model, or more than one; the text is fit to show."""


class ModelChoice(Struct, frozen=True):
    model: Model
    level: ThinkingLevel | None = None
    """The level given with the pattern."""
    warning: str | None = None


def as_level(text: str | None) -> ThinkingLevel | None:
    """Return the thinking level of that name, None if there is none."""
    return next((level for level in THINKING_LEVELS if level == text), None)


def _split_level(pattern: str) -> tuple[str, ThinkingLevel | None]:
    """Return the pattern without its `:level`, and the level; a pattern without a level is not changed."""
    name, _, suffix = pattern.rpartition(":")
    level = as_level(suffix) if name else None
    return (name, level) if level else (pattern, None)


# -- patterns ------------------------------------------------------------------------------------


def match_model(pattern: str, models: Sequence[Model]) -> Model | None:
    """Return the model a pattern without level means: by exact name, else by part of id or name."""
    wanted = pattern.strip().lower()
    if not wanted:
        return None
    exact = [m for m in models if m.full_name.lower() == wanted]
    exact = exact or [m for m in models if m.id.lower() == wanted]
    if len(exact) == 1:
        return exact[0]
    partial = [m for m in models if wanted in m.id.lower() or wanted in m.name.lower()]
    # Aliases follow the newest version by themselves, so they go before dated ids.
    aliases = [m for m in partial if m.id.endswith("-latest") or not re.search(r"-\d{8}$", m.id)]
    return max(aliases or partial, key=lambda m: m.id.casefold(), default=None)


def parse_pattern(pattern: str, models: Sequence[Model], *, lenient: bool = False) -> ModelChoice | None:
    """Return the model and level a pattern means; `lenient` forgives a level that does not exist."""
    if model := match_model(pattern, models):
        return ModelChoice(model)
    prefix, colon, suffix = pattern.rpartition(":")
    if not colon:
        return None
    level = as_level(suffix)
    if level is None and not lenient:
        return None
    inner = parse_pattern(prefix, models, lenient=lenient)
    if inner is None or level is not None:
        return inner and ModelChoice(inner.model, inner.level or level, inner.warning)
    warning = f'Invalid thinking level "{suffix}" in pattern "{pattern}". Using default instead.'
    return ModelChoice(inner.model, None, warning)


def resolve_scope(patterns: Sequence[str], registry: ModelRegistry) -> tuple[list[ModelChoice], list[str]]:
    """Return the models of `--models` or `enabledModels` in pattern order, each once, and warnings."""
    found: dict[tuple[str, str], ModelChoice] = {}
    warnings: list[str] = []
    models = registry.available() if patterns else []
    for pattern in (item.strip() for item in patterns):
        if not pattern:
            continue
        choices = _glob(pattern, models)
        if not any(c in pattern for c in "*?["):
            provider, _, model_id = pattern.partition("/")
            named = parse_pattern(pattern, models, lenient=True)
            if named is None and registry.has_credentials(provider):
                named = _unlisted(registry, provider, model_id)
            choices = [named] if named else []
        warnings += [choice.warning for choice in choices if choice.warning]
        if not choices:
            warnings.append(f'No models match pattern "{pattern}"')
        for choice in choices:
            found.setdefault((choice.model.provider, choice.model.id), choice)
    return list(found.values()), warnings


def _unlisted(registry: ModelRegistry, provider: str, pattern: str) -> ModelChoice | None:
    model_id, level = _split_level(pattern)
    model = registry.unlisted(provider, model_id)
    warning = f'Model "{model_id}" not found for provider "{provider}". Using custom model id.'
    return ModelChoice(model, level, warning) if model else None


def _glob(pattern: str, models: Sequence[Model]) -> list[ModelChoice]:
    from spindle.base.globs import GlobError, PathGlob

    name, level = _split_level(pattern)
    try:
        # As in paths, `*` stays on its side of a slash: `openrouter/*` means no `openrouter/maker/model`, `**` does.
        glob = PathGlob(name, ignore_case=True)
    except GlobError:
        return []
    return [
        ModelChoice(model, level)
        for model in models
        if glob.match([model.provider, *model.id.split("/")]) or glob.match(model.id.split("/"))
    ]


# -- --provider and --model ----------------------------------------------------------------------


def resolve_model(registry: ModelRegistry, pattern: str | None, provider: str | None = None) -> ModelChoice:
    """Return the model of `--provider` and `--model`.

    Raises `ModelNotFound`, also for a model whose API we do not speak. A local server that is named is asked for its
    models, which may take a second.
    """
    choice = find_model(registry, pattern, provider)
    if not registry.speaks(choice.model):
        raise ModelNotFound(registry.no_api_text(choice.model))
    return choice


def model_at(registry: ModelRegistry, wanted: str | Model | None, base_url: str) -> ModelChoice:
    """Return a model that is asked at `base_url`: a listed `provider/id`, or any other name as the server there has it.

    Raises `ValueError` for an address that is none.
    """
    if not re.match(r"https?://[^/\s]", base_url):
        raise ValueError(f"base_url must be an address that begins with http:// or https://, not {base_url!r}")
    if isinstance(wanted, Model):
        return ModelChoice(replace(wanted, base_url=base_url))
    name, level = _split_level(wanted or "")
    provider, _, model_id = name.partition("/")
    listed = provider in registry.providers() and provider not in (LOCAL, SCRIPTED)
    model = registry.find(provider, model_id) if listed else None
    if model is None:
        model = open_model(CUSTOM, name.removeprefix(f"{CUSTOM}/"), "openai-completions", base_url)
    return ModelChoice(replace(model, base_url=base_url.rstrip("/")), level)


def find_model(registry: ModelRegistry, pattern: str | None, provider: str | None = None) -> ModelChoice:
    """Return the model that is meant, even if it cannot be asked. Raises `ModelNotFound`."""
    names = {name.lower(): name for name in registry.providers()}
    if provider is not None:
        known = names.get(provider.lower())
        if known is None:
            near = did_you_mean(provider, names.values())
            raise ModelNotFound(
                f'Unknown provider "{provider}".{near} Use --list-models to see available providers/models.'
            )
        pattern = pattern or registry.default_model_id(known) or next((m.id for m in registry.all(known)), "")
        prefix, slash, rest = pattern.partition("/")
        return _within(registry, known, rest if slash and prefix.lower() == known.lower() else pattern)
    if not pattern:
        raise ModelNotFound(registry.no_model_text())
    prefix, slash, rest = pattern.partition("/")
    inferred = names.get(prefix.lower()) if slash else None
    if inferred is None:
        return _anywhere(registry, pattern) or _raise_not_found(registry, pattern)
    if inferred in LOOPBACK or inferred == SCRIPTED:
        return _within(registry, inferred, rest)
    found = parse_pattern(rest, registry.all(inferred)) or _anywhere(registry, pattern, exact=True)
    return found or _within(registry, inferred, rest)


def _within(registry: ModelRegistry, provider: str, pattern: str) -> ModelChoice:
    """Look in one provider only; an id that is not listed is tried as it is."""
    if provider in LOOPBACK or provider == SCRIPTED:
        return _local(registry, provider, pattern)
    models = registry.all(provider)
    if found := parse_pattern(pattern, models):
        return found
    if provider == LOCAL:
        from spindle.llm.local import LocalModelError

        if not pattern:
            raise ModelNotFound("There is no local model yet. Get one with: spindle models pull smollm2")
        try:
            return ModelChoice(registry.local_model(pattern))
        except LocalModelError as error:
            raise ModelNotFound(str(error)) from None
    return _unlisted(registry, provider, pattern) or _raise_not_found(registry, f"{provider}/{pattern}")


def _local(registry: ModelRegistry, provider: str, pattern: str) -> ModelChoice:
    warning = None
    models: list[Model] = []
    if provider != SCRIPTED:
        try:
            models = registry.probe(provider)
        except ServerDown as error:
            raise ModelNotFound(f"{provider}: {error}. Start it, or name another model.") from None
        except ServerUnreachable as error:
            warning = f"{provider}: {error}"
    if models:
        found = parse_pattern(pattern, models) if pattern else ModelChoice(models[0])
        if found is None:
            has = ", ".join(model.id for model in models[:10])
            raise ModelNotFound(
                f'Model "{pattern}" not found on {provider} ({masked_url(models[0].base_url)}). It has: {has}'
            )
        return found
    model_id, level = _split_level(pattern)
    model = registry.find(provider, model_id)
    if model is None:
        _raise_not_found(registry, f"{provider}/{pattern}")
    return ModelChoice(model, level, warning)


def _anywhere(registry: ModelRegistry, pattern: str, *, exact: bool = False) -> ModelChoice | None:
    """Look in all providers, those with a key first: for the exact id, then for parts of names."""
    names = registry.providers()
    ready = [name for name in names if registry.has_credentials(name)]
    for providers in (ready, names):
        for wanted, level in dict.fromkeys([(pattern, None), _split_level(pattern)]):
            models = [model for name in providers for model in registry.all(name)]
            if hits := [model for model in models if model.id.lower() == wanted.lower()]:
                return ModelChoice(_only(wanted, hits), level)
    if exact:
        return None
    # One provider after the other: names of a model differ, and the name at the most preferred provider counts.
    tried = chain(
        (parse_pattern(pattern, registry.all(name)) for name in ready),
        (_of_family(registry, name, pattern) for name in ready),
        (parse_pattern(pattern, registry.all(name)) for name in names),
    )
    return next(filter(None, tried), None)


def _of_family(registry: ModelRegistry, provider: str, pattern: str) -> ModelChoice | None:
    """Return an unlisted model of a provider that lists others of its family; None if it lists none."""
    model_id, _ = _split_level(pattern)
    if not any(is_same_family(model_id, model.id) for model in registry.all(provider)):
        return None
    return _unlisted(registry, provider, pattern)


def _only(wanted: str, hits: list[Model]) -> Model:
    """Return the model of the most preferred provider of the catalogue; providers of the user's have to be named."""
    own = [model for model in hits if model.provider not in builtin_providers()]
    if own and len(hits) > 1:
        places = ", ".join(model.full_name for model in hits)
        raise ModelNotFound(f'Model "{wanted}" is ambiguous. Name the provider: {places}')
    return hits[0]


def _raise_not_found(registry: ModelRegistry, pattern: str) -> NoReturn:
    import difflib

    models = [model for model in registry.all() if registry.speaks(model)]
    names = {m.full_name.lower(): m.full_name for m in models}
    by_id = {m.id.lower(): m.full_name for m in reversed(models)}
    wanted = pattern.lower()
    near = [names[name] for name in difflib.get_close_matches(wanted, names, 3, 0.6)]
    near += [by_id[name] for name in difflib.get_close_matches(wanted, by_id, 3, 0.6)]
    hint = f" Did you mean {', '.join(list(dict.fromkeys(near))[:3])}?" if near else ""
    raise ModelNotFound(f'Model "{pattern}" not found. Use --list-models to see available models.{hint}')


# -- chains --------------------------------------------------------------------------------------


def chain_of(chains: Mapping[str, Sequence[str]], role: str, model: Model) -> Sequence[str] | None:
    """Return the chain of the settings for a job, else the first one whose pattern fits the model."""
    if role in chains:
        return chains[role]
    return next((chain for pattern, chain in chains.items() if pattern == "*" or _glob(pattern, [model])), None)


# -- the start of a session ----------------------------------------------------------------------


class InitialModel(Struct, frozen=True):
    model: Model | None
    level: ThinkingLevel | None = None
    message: str | None = None
    """Why this is not the model the session had."""


def initial_model(
    registry: ModelRegistry,
    settings: Settings,
    *,
    chosen: ModelChoice | None = None,
    scope: Sequence[ModelChoice] = (),
    session: tuple[str, str] | None = None,
) -> InitialModel:
    """Choose the model to begin with: the command line, the session, the scope, the settings, any with a key."""
    if chosen:
        return InitialModel(chosen.model, chosen.level)
    if session and (model := registry.find_available(*session)):
        return InitialModel(model)
    message = not_restored(registry, *session) if session else None
    choice = _scoped(settings, scope) or _default(registry, settings)
    if message and choice:
        message += f" Using {choice.model.provider}/{choice.model.id}."
    return InitialModel(choice.model if choice else None, choice.level if choice else None, message)


def not_restored(registry: ModelRegistry, provider: str, model_id: str) -> str:
    """Say why the model of a session cannot be used."""
    known = registry.find(provider, model_id) or registry.unlisted(provider, model_id)
    reason = "no auth configured" if known else "model no longer exists"
    if known and not registry.speaks(known):
        reason = f'this version does not speak the API "{known.api}"'
    return f"Could not restore model {provider}/{model_id} ({reason})."


def _scoped(settings: Settings, scope: Sequence[ModelChoice]) -> ModelChoice | None:
    saved = (settings.default_provider, settings.default_model)
    named = [choice for choice in scope if (choice.model.provider, choice.model.id) == saved]
    return next(iter([*named, *scope]), None)


def _default(registry: ModelRegistry, settings: Settings) -> ModelChoice | None:
    saved = registry.find_available(settings.default_provider or "", settings.default_model or "")
    if saved:
        return ModelChoice(saved)
    for provider in registry.providers():
        default = registry.default_model_id(provider)
        if default and (model := registry.find_available(provider, default)):
            return ModelChoice(model)
    first = next(iter(registry.available()), None)
    return ModelChoice(first) if first else None


def thinking_level(
    model: Model | None,
    settings: Settings,
    *,
    asked: str | None = None,
    given: str | None = None,
    session: str | None = None,
) -> ThinkingLevel:
    """Choose the level: `asked` by --thinking, `given` with the model, the session's, the settings'; then clamp it."""
    if model is None:
        return "off"
    saved = settings.model_thinking_levels.get(model.full_name)
    wanted = as_level(asked) or as_level(given) or as_level(session) or saved or settings.default_thinking_level
    return model.clamp_thinking(wanted)
