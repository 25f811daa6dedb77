"""`spindle models`: the local models on this disk; get one, remove one."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from spindle.agent_dir import agent_dir
from spindle.llm.local import SUFFIX, LocalModelError, check_machine, read_header
from spindle.llm.local.pull import PULLABLE, Pullable, pull

__all__ = ["run"]

_MB = 1_000_000
_BAR = 30


def run(argv: list[str]) -> int:
    """Carry out `spindle models <argv>`. Returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        return int(options.action(options, agent_dir() / "models"))
    except LocalModelError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spindle models", description="Models that run on this machine.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the models on this disk")
    listing.set_defaults(action=_list)
    getting = actions.add_parser("pull", help="get a model", description=_pullable_text())
    getting.add_argument("name", choices=sorted(PULLABLE), help="which one")
    getting.set_defaults(action=_pull)
    removing = actions.add_parser("remove", help="delete a model from this disk")
    removing.add_argument("name", help="as shown by list")
    removing.set_defaults(action=_remove)
    return parser


def _pullable_text() -> str:
    return "; ".join(f"{name}: {m.about}, {m.download // _MB} MB, {m.licence}" for name, m in PULLABLE.items())


# -- actions -------------------------------------------------------------------------------------


def _list(options: argparse.Namespace, models_dir: Path) -> int:
    rows = [_row(path) for path in sorted(models_dir.glob(f"*{SUFFIX}")) if not path.name.startswith(".")]
    if not rows:
        print(f"No models in {models_dir}. Get a small one: spindle models pull smollm2")
        return 0
    width = max(len(name) for name, _ in rows)
    for name, facts in rows:
        print(f"{name:<{width}}  {facts}")
    print(f"\nIn {models_dir}. Put any GGUF file there, or name one by its path. Use one: --model local/NAME")
    try:
        check_machine()
    except LocalModelError as error:
        print(f"Note: {error}", file=sys.stderr)
    return 0


def _row(path: Path) -> tuple[str, str]:
    name = path.name.removesuffix(SUFFIX)
    try:
        header = read_header(path)
    except LocalModelError:
        return name, "not a sound GGUF file; remove it and get it again"
    facts = [f"{header.file_size / _MB:.0f} MB", header.size_label, header.quantization]
    return name, "  ".join([*filter(None, facts), f"context {header.context_length}"])


def _pull(options: argparse.Namespace, models_dir: Path) -> int:
    model = PULLABLE[options.name]
    new = pull(model, models_dir, _progress(model))
    if new and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    place = models_dir / f"{model.name}{SUFFIX}"
    print(f"{model.name} is {'now' if new else 'already'} in {place} ({model.licence})")
    print(f"Use it: spindle --model local/{model.name}")
    return 0


def _progress(model: Pullable) -> Callable[[int], None]:
    """Return what shows how much has come: a bar on a terminal, else one line."""
    said: list[bool] = []

    def say_once(done: int) -> None:
        if not said:
            print(f"Getting {model.name} ({model.download // _MB} MB)", file=sys.stderr)
            said.append(True)

    def show_bar(done: int) -> None:
        part = min(done / model.download, 1)
        bar = "#" * int(part * _BAR)
        text = f"{model.name}  [{bar:<{_BAR}}] {part * model.download / _MB:.0f} of {model.download / _MB:.0f} MB"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    return show_bar if sys.stderr.isatty() else say_once


def _remove(options: argparse.Namespace, models_dir: Path) -> int:
    name = options.name.removeprefix("local/").removesuffix(SUFFIX)
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
