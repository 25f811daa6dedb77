"""What holds for the whole house."""

import ast
import inspect
from collections import Counter
from pathlib import Path
from types import MethodType

from radon.complexity import cc_rank, cc_visit

import spindle
from spindle.agent.session import AgentSession

from .agent.rig import Rig, run

SOURCE = Path(spindle.__file__).parent


def test_few_functions_have_many_branches():
    """Radon grades A to F. A D is worth a second look: is there a table in it, or are there two jobs?"""
    graded = [
        (cc_rank(block.complexity), f"{path.relative_to(SOURCE)}: {block.fullname} ({block.complexity})")
        for path in SOURCE.rglob("*.py")
        for block in cc_visit(path.read_text("utf-8"))
        if block.complexity > 20
    ]
    assert [name for grade, name in graded if grade in "EF"] == []
    found = [name for grade, name in graded if grade == "D"]
    assert len(found) <= 3, "\n".join(sorted(found))


def test_agent_session_can_be_read(tmp_path):
    """What wires call is a method with a `def` and a docstring: `help(AgentSession)` shows it."""
    members = {name: value for name, value in vars(AgentSession).items() if not name.startswith("_")}
    assert {name for name, value in members.items() if not inspect.getdoc(value)} == set()

    async def main():
        async with Rig(tmp_path, ["ok"]) as rig:
            assert {name for name, value in vars(rig.agent).items() if isinstance(value, MethodType)} == set()

    run(main())


def test_one_name_means_one_class():
    found = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert len(twice := sorted(name for name, count in found.items() if count > 1)) <= 20, twice


def test_modules_can_be_read_in_one_sitting():
    """About 600 lines at the most; what is made from declarations does not count."""
    made = {Path("client/commands.py")}
    lengths = {path.relative_to(SOURCE): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > 620 and path not in made} == {}


def test_the_foundation_stays_small():
    """What only one part of the house needs lives in that part."""
    assert len([*(SOURCE / "base").rglob("*.py")]) <= 16  # 15 modules and the package itself
