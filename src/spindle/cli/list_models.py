"""`--list-models [search]`: what is ready to use, as a table."""

from collections.abc import Sequence

from spindle.models.loopback import LOOPBACK, ServerUnreachable
from spindle.models.model_registry import ModelRegistry
from spindle.shapes.models import Model

__all__ = ["list_models", "models_table", "probe_local_servers", "short_count"]

_COLUMNS = ("provider", "model", "context", "max-out", "thinking", "images")


def list_models(registry: ModelRegistry, search: str) -> str:
    """Return the table of models that have credentials and match, servers on this machine included."""
    probe_local_servers(registry)
    models = registry.available()
    if not models:
        return (
            "No models available. Set the API key of a provider, start a local model server, "
            "or get a small model: spindle models pull smollm2"
        )
    found = [model for model in models if _matches(model, search)]
    return models_table(found) if found else f'No models matching "{search}"'


def probe_local_servers(registry: ModelRegistry) -> dict[str, str]:
    """Ask all usual local servers at once for their models. Returns those that answered and what they said."""
    from concurrent.futures import ThreadPoolExecutor

    def ask(provider: str) -> str | None:
        try:
            return f"{len(registry.probe(provider))} models"
        except ServerUnreachable:
            return None

    with ThreadPoolExecutor(len(LOOPBACK)) as pool:
        answers = dict(zip(LOOPBACK, pool.map(ask, LOOPBACK), strict=True))
    return {provider: answer for provider, answer in answers.items() if answer}


def models_table(models: Sequence[Model]) -> str:
    rows = [_COLUMNS, *(_row(model) for model in sorted(models, key=lambda m: (m.provider, m.id)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(model: Model) -> tuple[str, ...]:
    return (
        model.provider,
        model.id,
        short_count(model.context_window),
        short_count(model.max_tokens),
        "yes" if model.reasoning else "no",
        "yes" if "image" in model.input else "no",
    )


def short_count(count: int) -> str:
    """Write 128000 as 128K, 16384 as 16.4K, 1000000 as 1M."""
    for size, unit in ((1_000_000, "M"), (1000, "K")):
        if count >= size:
            return f"{count // size}{unit}" if count % size == 0 else f"{count / size:.1f}{unit}"
    return str(count)


def _matches(model: Model, search: str) -> bool:
    """Tell whether every word of the search is in the name, its letters in order but not necessarily together."""
    name = f"{model.provider}/{model.id} {model.name}".lower()
    return all(_in_order(word, name) for word in search.lower().split())


def _in_order(word: str, name: str) -> bool:
    letters = iter(name)
    return all(letter in letters for letter in word)
