"""Trials that are there already: which of them count for this evaluation, and which are run again."""

import hashlib
import json
import shutil
import subprocess
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from evals.harnesses import CONTEXT, TURNS, Harness
from evals.tasks import Task
from evals.trial import Model, Trial

EARLIER = "earlier"
"""Folder for trials under other conditions: they are moved, not lost."""


def conditions(harness: Harness, task: Task, model: Model, server: str, seconds: float) -> dict[str, Any]:
    """Return all that a trial depends on, besides chance."""
    return {
        "model": model.name,
        "server": server,
        "temperature": model.sampling.temperature,
        "topP": model.sampling.top_p,
        "seed": model.sampling.seed,
        "maxTokens": model.sampling.max_tokens,
        "seconds": seconds,
        "modelCalls": TURNS,
        "context": CONTEXT,
        "program": version(harness.program),
        "task": _digest(task),
        **({"settings": harness.settings} if harness.settings else {}),
    }


@lru_cache(None)
def version(program: tuple[str, ...]) -> str:
    """Return what a program says of its version, for Spindle with a digest of its code; empty if it says nothing."""
    lines, package = _said(*program, "--version").splitlines(), ""
    if Path(program[0]).name == "spindle":
        package = _said(_python(Path(program[0])), "-c", "import spindle; print(spindle.__path__[0])")
    return " ".join([*(line[:100] for line in lines[-1:]), *([_code(Path(package))] if package else [])])


def _python(script: Path) -> str:
    """Return the interpreter that a script names in its first line, else the one beside it."""
    script = script.resolve()  # pipx links to it
    try:
        first = script.open("rb").readline().decode("utf-8", "replace").removeprefix("#!").split()
    except OSError:
        first = []
    return first[0] if first and "python" in first[0] else str(script.with_name("python"))


def _said(*command: str) -> str:
    """Return what a command says; empty if it fails."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if said.returncode else said.stdout.strip() or said.stderr.strip()


def _code(package: Path) -> str:
    """Return a digest of a package: checkouts of many states say the same version."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(bytes(path.relative_to(package)) + path.read_bytes())
    return digest.hexdigest()[:8]


def _digest(task: Task) -> str:
    """Return a digest of the text of a task: its prompt, files, check and solution."""
    return hashlib.sha256(repr(sorted(vars(task).items())).encode()).hexdigest()[:16]


def load(folder: Path) -> Trial | None:
    """Return the trial of a folder."""
    path = folder / "result.json"
    return Trial(**json.loads(path.read_text())) if path.is_file() else None


def load_all(out: Path) -> list[Trial]:
    """Return all trials below a folder, but not earlier ones."""
    paths = sorted(path for path in out.rglob("result.json") if EARLIER not in path.relative_to(out).parts)
    return [trial for path in paths if (trial := load(path.parent)) is not None]


def counted(folder: Path, out: Path, wanted: dict[str, Any]) -> Trial | None:
    """Return the trial of a folder if it counts. One that crashed is run again; one under other conditions is moved."""
    trial = load(folder)
    if trial is None or trial.reason == "crashed":
        return None
    if trial.conditions == wanted:
        return trial
    changed = [name for name, value in wanted.items() if trial.conditions.get(name) != value]
    mark = hashlib.sha256(json.dumps(trial.conditions, sort_keys=True).encode()).hexdigest()[:8]
    place = out / EARLIER / mark / folder.relative_to(out)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    print(
        f"{folder.relative_to(out)}: kept with another {', '.join(changed)}; moved to {place.relative_to(out)}",
        flush=True,
    )
    return None


def write(folder: Path, trial: Trial) -> None:
    (folder / "result.json").write_text(json.dumps(asdict(trial), ensure_ascii=False, indent=1))
