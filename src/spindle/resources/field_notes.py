"""What the code says of the fields of a class: the text below each of them. Read from the source when it is wanted."""

import ast
import inspect
import itertools
import sys
from functools import cache

import msgspec


def field_notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docs of the fields of a class and its bases, by their names on the wire."""
    notes: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if parent.__module__.startswith("spindle.") and (node := _classes(parent.__module__).get(parent.__qualname__)):
            notes |= _notes_in(node)
    names = {item.name: item.encode_name for item in msgspec.structs.fields(kind)}
    return {names[name]: text for name, text in notes.items() if name in names}


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes that a module defines; those made at run time are not among them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _notes_in(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, following in itertools.pairwise(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = following.value if isinstance(following, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[statement.target.id] = value.value
    return found
