"""`spindle models`: list the models that are ready to use; show one; get newer prices; list, get and remove the models
on this disk.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.apps.cli import warn
from spindle.apps.cli.args import UsageError
from spindle.base.agent_dir import agent_dir, agent_dir_problem
from spindle.base.spelling import counted, did_you_mean, in_order
from spindle.base.terminal import plain, unguarded
from spindle.llm.local import SUFFIX, LocalModelError, check_machine, files_in, read_header
from spindle.llm.local.pull import PULLABLE, Progress, pull, pull_address
from spindle.models.catalog import REFRESHED
from spindle.models.catalog.refresh import URL, RefreshError, refresh
from spindle.models.select import ModelNotFound, find_model
from spindle.shapes.model import Model

if TYPE_CHECKING:
    from spindle.apps.cli.usage import CommandParser
    from spindle.models.model_registry import ModelRegistry

_COLUMNS: tuple[str, ...] = ("provider", "model", "context", "max-out", "thinking", "images")
_MB = 1_000_000
_BAR = 30
SMALL = PULLABLE["smollm2"]
"""The model that is offered to users who have none."""


def run(argv: list[str]) -> int:
    """Carry out `spindle models <argv>`. Returns the exit code. Raises `UsageError`."""
    if not argv or argv[0] not in ("list", "pull", "remove", "show", "refresh", "-h", "--help"):
        argv = ["list", *argv]
    arguments = vars(parser().parse_args(argv))
    action: Callable[..., int] = arguments.pop("action")
    try:
        return action(agent_dir(), **arguments)
    except (LocalModelError, ModelNotFound, RefreshError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def parser() -> "CommandParser":
    from spindle.apps.cli.usage import CommandParser

    pullable = "; ".join(f"{name}: {m.about}, {m.download / _MB:.0f} MB, {m.licence}" for name, m in PULLABLE.items())
    parser = CommandParser("spindle models", description="Models that are ready to use, and those on this disk.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the models that are ready to use (without an action, too)")
    listing.add_argument("search", nargs="*", help="only those with these letters in their name")
    listing.set_defaults(action=_list)
    getting = actions.add_parser("pull", help="get a model that runs on this machine", description=pullable)
    getting.add_argument("name", metavar="MODEL", help=f"{', '.join(PULLABLE)}, or the address of a GGUF file")
    getting.add_argument("--sha256", help="checksum that the file at the address must have")
    getting.set_defaults(action=_pull)
    removing = actions.add_parser("remove", help="delete a model from this disk")
    removing.add_argument("name", help="as shown by list")
    removing.set_defaults(action=_remove)
    showing = actions.add_parser("show", help="say what is known of a model: prices, windows, where from")
    showing.add_argument("name", help="as for --model")
    showing.set_defaults(action=_show)
    note = "Gets newer prices and models and keeps them in the agent directory. Nothing is sent but the request."
    refreshing = actions.add_parser("refresh", help="get newer prices from models.dev", description=note)
    refreshing.add_argument("--from", dest="url", default=URL, help=f"a mirror of {URL}")
    refreshing.set_defaults(action=_refresh)
    return parser


# -- models that are ready to use ----------------------------------------------------------------


def list_models(search: str) -> int:
    """Print the table of models that have credentials and match, servers on this machine included."""
    from spindle.models.model_registry import ModelRegistry

    registry = ModelRegistry(agent_dir())
    for problem in (agent_dir_problem(), registry.error):
        if problem:
            warn(problem)
    probe_local_servers(registry)
    models = registry.available()
    found = [model for model in models if _matches(model, search)]
    if found:
        print(models_table(found))
    elif models:
        print(f'No models matching "{search}"')
    else:
        print(registry.no_model_text())
    return 0


def probe_local_servers(registry: "ModelRegistry") -> dict[str, str]:
    """Ask all usual local servers at once for their models. Returns the answers by provider."""
    from concurrent.futures import ThreadPoolExecutor

    from spindle.models.loopback import LOOPBACK, ServerUnreachable

    def ask(provider: str) -> str | None:
        try:
            return counted(len(registry.probe(provider)), "model")
        except ServerUnreachable:
            return None

    with ThreadPoolExecutor(len(LOOPBACK)) as pool:
        answers = dict(zip(LOOPBACK, pool.map(ask, LOOPBACK), strict=True))
    return {provider: answer for provider, answer in answers.items() if answer}


def models_table(models: Sequence[Model]) -> str:
    rows = [_COLUMNS]
    for model in sorted(models, key=lambda model: (model.provider, model.id)):
        sizes = short_count(model.context_window), short_count(model.max_tokens)
        abilities = ("yes" if able else "no" for able in (model.reasoning, "image" in model.input))
        rows.append((model.provider, model.id, *sizes, *abilities))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def short_count(count: int) -> str:
    """Write 128000 as 128K, 16384 as 16.4K, 1000000 as 1M."""
    for size, unit in ((1_000_000, "M"), (1000, "K")):
        if count >= size:
            return f"{count // size}{unit}" if count % size == 0 else f"{count / size:.1f}{unit}"
    return str(count)


def _matches(model: Model, search: str) -> bool:
    name = f"{model.provider}/{model.id} {model.name}".lower()
    return all(in_order(word, name) for word in search.lower().split())


# -- details and prices --------------------------------------------------------------------------


def _show(home: Path, name: str) -> int:
    from spindle.models.model_registry import ModelRegistry

    registry = ModelRegistry(home)
    if registry.error:
        warn(registry.error)
    choice = find_model(registry, name)
    model = choice.model.shown()
    if choice.warning:
        warn(choice.warning)
    key = registry.credential_source(model.provider)
    facts = [
        ("API", f"{model.api}{f' at {model.base_url}' if model.base_url else ''}"),
        ("Key", f"from {key}" if key not in (None, "not needed") else key or "missing"),
        ("Context", f"{model.context_window:,} tokens, answers of up to {model.max_tokens:,}"),
        ("Input", ", ".join(model.input)),
        ("Thinking", ", ".join(model.thinking_levels())),
        *_prices(model),
        ("Source", registry.source_of(model)),
    ]
    print(f"{model.provider}/{model.id}  {model.name}")
    for label, text in facts:
        print(f"  {label:<9} {text}")
    if not registry.speaks(model):
        print(f"  {registry.no_api_text(model)}")
    return 0


def _prices(model: Model) -> list[tuple[str, str]]:
    if model.cost_unknown:
        return [("Price", "unknown")]
    cost = model.cost
    if cost.is_free:
        return [("Price", "free")]
    plain = {"input": cost.input, "output": cost.output, "cacheRead": cost.cache_read, "cacheWrite": cost.cache_write}
    tiers = sorted(cost.tiers or [], key=lambda tier: float(tier["inputTokensAbove"]))
    above = [f"{_rates_text(plain | tier)} with more than {tier['inputTokensAbove']:,} tokens sent" for tier in tiers]
    return [("Price", f"{_rates_text(plain)} per million tokens"), *(("", text) for text in above)]


def _rates_text(rates: dict[str, Any]) -> str:
    names = {"input": "input", "output": "output", "cacheRead": "cache read", "cacheWrite": "cache write"}
    return ", ".join(f"${rates[key]:g} {name}" for key, name in names.items())


def _refresh(home: Path, url: str) -> int:
    done = refresh(home, url)
    if not done.is_new:
        print(f"Nothing new at {url}")
        return 0
    for text in done.skipped[:10]:
        warn(f"Left out {text}")
    repriced, added = counted(len(done.repriced), "price"), counted(len(done.added), "model")
    print(f"{repriced} changed, {added} added, {len(done.skipped)} left out")
    print(f"Kept in {home / REFRESHED}; remove that folder to go back to the built-in catalogue")
    return 0


# -- models on this disk -------------------------------------------------------------------------


def _list(home: Path, search: list[str]) -> int:
    list_models(" ".join(search))
    models_dir = home / "models"
    rows = [_disk_row(path) for path in files_in(models_dir)]
    if not rows or search:
        return 0
    width = max(len(name) for name, _ in rows)
    print(f"\nOn this disk, in {models_dir} (any GGUF file may lie there). Use one: --model local/NAME")
    for name, facts in rows:
        print(f"{name:<{width}}  {facts}")
    try:
        check_machine()
    except LocalModelError as error:
        print(f"Note: {error}", file=sys.stderr)
    return 0


def _disk_row(path: Path) -> tuple[str, str]:
    name = path.name.removesuffix(SUFFIX)
    try:
        header = read_header(path)
    except LocalModelError:
        return name, "not a sound GGUF file; remove it and get it again"
    facts = [f"{header.file_size / _MB:.0f} MB", header.size_label, header.quantization]
    return name, "  ".join([*filter(None, facts), f"context {header.context_length}"])


def _pull(home: Path, name: str, sha256: str | None) -> int:
    models_dir = home / "models"
    if "://" not in name and name not in PULLABLE:
        known = ", ".join(PULLABLE)
        raise UsageError(
            f'spindle models pull: there is no model "{name}" to get.{did_you_mean(name, PULLABLE)} There are {known}'
        )
    try:
        check_machine()
    except LocalModelError as error:
        print(f"Note: {error}. The model does not run without it; it is got now", file=sys.stderr, flush=True)
    if "://" in name:
        place, new, licence = pull_address(name, models_dir, sha256, _progress(name.rpartition("/")[2])), True, ""
    else:
        model = PULLABLE[name]
        place, licence = models_dir / f"{model.name}{SUFFIX}", f"\n{model.about} ({model.licence})"
        new = pull(model, models_dir, _progress(model.name))
    if new and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=unguarded(sys.stderr))
    stem = place.name.removesuffix(SUFFIX)
    print(f"{stem} is {'now' if new else 'already'} in {place}{licence}")
    print(f"Use it: spindle --model local/{stem}")
    return 0


def _progress(name: str) -> Progress:
    """Return a function that shows how much is downloaded: a bar on a terminal, else one line."""
    said: list[bool] = []

    def say_once(done: int, whole: int) -> None:
        if not said:
            print(f"Getting {name}" + (f" ({whole // _MB} MB)" if whole else ""), file=sys.stderr)
            said.append(True)

    def show_bar(done: int, whole: int) -> None:
        part = min(done / whole, 1) if whole else 0
        bar = "#" * int(part * _BAR)
        text = f"{name}  [{bar:<{_BAR}}] {done / _MB:.0f}" + (f" of {whole / _MB:.0f} MB" if whole else " MB")
        print(f"\r\x1b[K{plain(text)}", end="", file=unguarded(sys.stderr), flush=True)

    return show_bar if sys.stderr.isatty() else say_once


def _remove(home: Path, name: str) -> int:
    models_dir = home / "models"
    name = name.removeprefix("local/").removesuffix(SUFFIX)
    path = models_dir / f"{name}{SUFFIX}"
    if Path(name).name != name or not path.is_file():
        raise LocalModelError(
            f'There is no model "{name}" in {models_dir}. See what there is with: spindle models list'
        )
    size = path.stat().st_size
    path.unlink()
    (models_dir / f"{name}.LICENSE").unlink(missing_ok=True)
    print(f"Removed {name} ({size / _MB:.0f} MB)")
    return 0
