"""Our modules are found as Python finds them, only quicker."""

from importlib.machinery import PathFinder
from pathlib import Path

import spindle
from spindle.apps.cli.own_modules import OwnModules

ROOT = Path(spindle.__file__).parent


def test_what_is_found_is_what_python_finds():
    finder, count = OwnModules(), 0
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if len(parts) > 1:
            name, folder = ".".join(parts), [str(ROOT.parent.joinpath(*parts[:-1]))]
            ours, theirs = finder.find_spec(name, folder), PathFinder.find_spec(name, folder)
            assert ours is not None and theirs is not None
            assert (ours.name, ours.origin, ours.cached) == (theirs.name, theirs.origin, theirs.cached)
            assert ours.submodule_search_locations == theirs.submodule_search_locations
            assert type(ours.loader) is type(theirs.loader) and ours.has_location
            count += 1
    assert count > 300


def test_everything_else_is_left_to_python(tmp_path: Path):
    finder = OwnModules()
    assert finder.find_spec("spindle") is None
    assert finder.find_spec("json.decoder", ["/nowhere"]) is None
    assert finder.find_spec("spindle.nonsense", [str(ROOT)]) is None
    assert finder.find_spec("spindle.base", [str(tmp_path / "in.zip")]) is None
    (tmp_path / "folder").mkdir()  # without an __init__.py
    assert finder.find_spec("spindle.folder", [str(tmp_path)]) is None
