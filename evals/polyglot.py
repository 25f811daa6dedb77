"""Tasks from a checkout of Aider's polyglot benchmark: its exercises in Python.

The agent gets the instructions and the stub; the tests stay outside and are put beside it for the check.
"""

import json
from pathlib import Path

from evals.tasks import Task, TaskError

_PROMPT = """{instructions}

Write the solution into {files}, which is in this folder. Keep the names of functions and classes. Use only Python's
standard library. Hidden tests will check the result."""
_CHECK = "import sys, unittest\nsuite = unittest.defaultTestLoader.loadTestsFromNames({modules!r})\n" + (
    "sys.exit(not unittest.TextTestRunner(verbosity=0).run(suite).wasSuccessful())"
)


def load(checkout: Path) -> list[Task]:
    """Return the exercises as tasks. Raises `TaskError` if there are none."""
    folder = checkout / "python" / "exercises" / "practice"
    tasks = [_task(path) for path in sorted(folder.glob("*")) if (path / ".meta" / "config.json").is_file()]
    if not tasks:
        raise TaskError(f"{checkout} has no python/exercises/practice")
    return tasks


def _task(path: Path) -> Task:
    files = json.loads((path / ".meta" / "config.json").read_text())["files"]
    documents = [path / ".docs" / name for name in ("introduction.md", "instructions.md", "instructions.append.md")]
    instructions = "\n\n".join(page.read_text() for page in documents if page.is_file())
    solution, example, tests = files["solution"], files["example"], files["test"]
    return Task(
        name=path.name,
        kind="polyglot",
        prompt=_PROMPT.format(instructions=instructions, files=" and ".join(solution)),
        check=_CHECK.format(modules=[name.removesuffix(".py") for name in tests]),
        files={name: (path / name).read_text() for name in solution},
        solution={name: (path / other).read_text() for name, other in zip(solution, example, strict=False)},
        hidden={name: (path / name).read_text() for name in tests},
    )
