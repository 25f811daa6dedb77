"""What the tests of extensions share."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from spindle.extensions.registry import Registry

from spindle.extensions.discover import Candidate, Place, find_extensions
from spindle.extensions.handlers import ExtensionHooks
from spindle.extensions.loader import LoadFailure, load_extensions
from tests.support.agent_process import AgentProcess

__all__ = ["EXAMPLES", "answer", "load_places", "place", "run", "write"]

T = TypeVar("T")
EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def write(path: Path, source: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


def place(path: Path, **options: Any) -> Place:
    return Place(options.pop("named", str(path)), path, **options)


async def load_places(*places: Place, before: Registry | None = None) -> tuple[Registry, list[LoadFailure], list[Path]]:
    registry = Registry()
    hooks = ExtensionHooks(registry)
    candidates, foreign = find_extensions(places)
    failures = await load_extensions(candidates, registry, hooks.context_for, before=before and before.extensions)
    return registry, failures, foreign


def answer(agent: AgentProcess, request: dict[str, Any], **fields: Any) -> None:
    """Answer a dialog as a client does: no response follows."""
    agent.send("extension_ui_response", id=request["id"], **fields)


def inline(*factories: Any) -> list[Candidate]:
    return [Candidate(Place(f"inline{n}", Path(), factory=factory)) for n, factory in enumerate(factories)]
