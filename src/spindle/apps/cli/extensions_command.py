"""`spindle extensions`: what is found, loaded, installed or failed; begin a new one; choose which are loaded."""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.spelling import did_you_mean
from spindle.base.user_files import BadFile
from spindle.plugins.extensions.discover import find_candidates
from spindle.plugins.extensions.loader import ENTRY_POINTS
from spindle.resources.loader import ResourceOptions, Resources, load_resources

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "An extension of Spindle."
readme = "README.md"
requires-python = ">=3.11"

[project.entry-points."spindle.extensions"]
{name} = "{module}:extension"

[tool.setuptools]
py-modules = ["{module}"]
"""
_MODULE = '''\
"""An extension of Spindle: asks before files are deleted."""


def extension(agent):
    @agent.on("tool_call", tool="bash")
    async def gate(event, ctx):
        command = event.input["command"]
        if "rm " not in command or await ctx.ui.confirm("Delete files?", command, timeout=60):
            return None
        return agent.block("The user does not want this deleted.")
'''
_TEST = """\
import asyncio

from {module} import extension
from spindle.testing import load


def test_it_asks_before_it_deletes():
    async def check():
        agent = await load(extension)
        agent.answer(confirm=False)
        assert (await agent.tool_call("bash", command="rm a.txt")).blocked
        assert not (await agent.tool_call("bash", command="ls")).blocked

    asyncio.run(check())
"""
_README = """\
# {name}

An extension of [Spindle](https://github.com/spindle-agent/spindle).

    spindle -e ./{module}.py -p "Delete a.txt with rm"   # try it where it lies
    python -m pytest                                    # test it
    pip install -e .                                    # install it beside Spindle, under the name {name}
    spindle extensions add {name}                       # load it in every session
"""


class FoundExtension(Struct, frozen=True):
    state: str
    """`loaded`, `failed`, `installed` (and not chosen), or `foreign`."""
    name: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.state:<9}  {self.name}{f'  ({self.about})' if self.about else ''}"


def parser() -> CommandParser:
    parser = CommandParser("spindle extensions", description="Python code that changes what agents do.")
    actions = parser.add_actions(
        {
            "list": "Say which are found, loaded, installed, and which failed and why.",
            "new": "Begin one: a folder with code, a test, README and pyproject.toml.",
            "add": "Load one in every session from now on: write it into settings.json.",
            "remove": "Load it no more: take it out of settings.json.",
            "reload": "Say how running agents read their extensions again.",
        }
    )
    actions["list"].add_argument("--approve", "-a", action="store_true", default=None, help="trust this project")
    actions["new"].add_argument("name", metavar="NAME", help="such as my-gate")
    for name in ("add", "remove"):
        actions[name].add_argument("extension", metavar="EXTENSION", help="a path, module:function, an installed name")
    return parser


def run(argv: list[str]) -> int:
    """Carry out `spindle extensions <argv>`. Raises `UsageError`."""
    given = parser().parse_args(argv or ["list"])
    try:
        match given.action:
            case "list":
                return _list(given)
            case "new":
                return _new(given.name)
            case "add":
                return _add(given.extension)
            case "remove":
                return _remove(given.extension)
    except (BadFile, OSError) as error:
        raise UsageError(f"Cannot write: {error}", 1) from None
    print("Every start of Spindle reads them, and every new session of a server. A chat that runs does so with /reload")
    return 0


def found_extensions(resources: Resources) -> list[FoundExtension]:
    """Load the extensions of a directory, and say of each how it went. They may have started threads."""
    from spindle.recipe import AgentOptions, extension_flags

    candidates, foreign = find_candidates(resources, ())
    problems: list[str] = []
    if candidates:
        options = AgentOptions(mode="print", warn=problems.append)
        asyncio.Runner().run(extension_flags(options, resources))
    problems = [problem for problem in problems if not any(str(path) in problem for path in foreign)]
    found = []
    for candidate in candidates:
        why = next((problem for problem in problems if candidate.name in problem), None)
        about = f"{candidate.source.scope}, {candidate.source.source}" if why is None else " ".join(why.split())
        found.append(FoundExtension("loaded" if why is None else "failed", candidate.name, about))
    chosen = {candidate.named for candidate in candidates}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if point.name not in chosen:
            found.append(FoundExtension("installed", point.name, f"load it with -e {point.name}"))
    ours = {one.name for one in found}
    rest = [problem for problem in problems if not any(name in problem for name in ours)]
    found += [FoundExtension("failed", " ".join(problem.split())) for problem in rest]
    return found + [
        FoundExtension("foreign", str(path), "TypeScript and JavaScript cannot be used") for path in foreign
    ]


def end_with(code: int) -> NoReturn:
    """End the process although extensions may have started threads that never end."""
    from spindle.programs.children import kill_all

    kill_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _list(given: argparse.Namespace) -> int:
    resources = load_resources(Path.cwd(), ResourceOptions(approve=given.approve))
    found = found_extensions(resources)
    for one in found:
        print(one)
    if not found:
        print("No extensions. Begin one with: spindle extensions new NAME")
    for path in resources.trust.skipped:
        if path.name == "extensions":
            print(f"Not looked at, the project is not trusted (spindle trust): {path}", file=sys.stderr)
    end_with(int(any(one.state == "failed" for one in found)))


def _new(name: str) -> int:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or module in sys.stdlib_module_names:
        raise UsageError(
            f'"{name}" is no name for a package: small letters, digits and dashes, and none of Python\'s own'
        )
    folder = Path(name)
    if folder.exists():
        raise UsageError(f"{folder} is there already")
    files = {
        "pyproject.toml": _PYPROJECT,
        f"{module}.py": _MODULE,
        f"tests/test_{module}.py": _TEST,
        "README.md": _README,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        filled = text if path == f"{module}.py" else text.format(name=name, module=module)
        (folder / path).write_text(filled, encoding="utf-8")
    print(f"Made {folder}: {', '.join(files)}")
    print(f'Try it: spindle -e {folder}/{module}.py -p "Delete a.txt with rm"')
    return 0


def _add(name: str) -> int:
    resources = load_resources(Path.cwd(), ResourceOptions())
    path = Path(name).expanduser()
    if path.exists():
        name = str(path.absolute())
    elif "/" in name or name.endswith(".py"):
        raise UsageError(f"There is no file {name}")
    elif ":" not in name and name not in (names := [point.name for point in entry_points(group=ENTRY_POINTS)]):
        raise UsageError(f'No extension "{name}" is installed.{did_you_mean(name, names)}')
    resources.store.add("extensions", [name])
    print(f"{name}: written to {resources.store.global_path}")
    return 0


def _remove(name: str) -> int:
    store = load_resources(Path.cwd(), ResourceOptions()).store
    held = list(_texts(store.resource_list("extensions", project=False)))
    path = str(Path(name).expanduser().absolute())
    wanted = next((one for one in (name, path) if one in held), None)
    if wanted is None:
        if Path(path).is_relative_to(store.global_path.parent / "extensions"):
            raise UsageError(f"{path} is loaded because it lies there: move or delete it")
        raise UsageError(f'{store.global_path} does not name "{name}".{did_you_mean(name, held)}')
    store.save("extensions", [one for one in held if one != wanted] or None)
    print(f"{wanted}: removed from {store.global_path}")
    return 0


def _texts(values: list[object]) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))
