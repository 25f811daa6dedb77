"""Where extensions are found, how they are kept apart, and what happens to those that do not load."""

import sys
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.plugins.extensions.discover import find_extensions
from spindle.resources.sources import Selection
from spindle.testing import load

from .helpers import load_places, place, run, write

COMMAND = "def extension(agent):\n    agent.command({name!r})(lambda args, ctx: None)\n"


def names(*places) -> list[str]:
    candidates, _ = find_extensions(places, Path("/nowhere"))
    return [candidate.path.name if candidate.path else candidate.named for candidate in candidates]


# -- finding ------------------------------------------------------------------------------------------


def test_files_and_packages_one_level_deep(tmp_path):
    write(tmp_path / "b.py", "")
    write(tmp_path / "a" / "__init__.py", "")
    write(tmp_path / "deep" / "er" / "c.py", "")
    for ignored in (".hidden.py", "_private.py", "notes.txt", "node_modules/x/__init__.py", "__pycache__/b.py"):
        write(tmp_path / ignored, "")
    assert names(place(tmp_path)) == ["a", "b.py"]


def test_a_directory_that_does_not_exist_is_empty_unless_somebody_named_it(tmp_path):
    assert names(place(tmp_path / "no")) == []
    assert names(place(tmp_path / "no", base_dir=tmp_path, explicit=True)) == ["no"]


def test_the_order_is_that_of_the_places_and_each_file_counts_once(tmp_path):
    first, second = write(tmp_path / "one" / "x.py", ""), tmp_path / "two"
    write(second / "y.py", "")
    (second / "z.py").symlink_to(first)
    assert names(place(second / "y.py", explicit=True), place(tmp_path / "one"), place(second)) == ["y.py", "x.py"]


def test_settings_may_leave_files_out(tmp_path):
    write(tmp_path / "a.py", "")
    write(tmp_path / "b.py", "")
    assert names(place(tmp_path, selection=Selection(tmp_path, ("!a.py",)))) == ["b.py"]


def test_other_languages_are_set_aside(tmp_path):
    write(tmp_path / "gate.ts", "export default function() {}")
    write(tmp_path / "types.d.ts", "")
    write(tmp_path / "pack" / "package.json", "{}")
    write(tmp_path / "mine.py", "")
    candidates, foreign = find_extensions([place(tmp_path)], tmp_path)
    assert [candidate.path.name for candidate in candidates] == ["mine.py"]
    assert sorted(path.name for path in foreign) == ["gate.ts", "pack"]


def test_a_named_directory_may_be_a_package_or_hold_extensions(tmp_path):
    write(tmp_path / "pack" / "__init__.py", "")
    write(tmp_path / "kit" / "extensions" / "a.py", "")
    assert names(place(tmp_path / "pack", explicit=True)) == ["pack"]
    assert names(place(tmp_path / "kit", explicit=True)) == ["a.py"]


# -- loading ------------------------------------------------------------------------------------------


def test_what_fails_is_told_and_the_others_load(tmp_path):
    sources = {
        "a_syntax.py": "def extension(agent)\n",
        "b_import.py": "import no_such_module_anywhere\n",
        "c_nothing.py": "x = 1\n",
        "d_factory.py": "def extension(agent):\n    agent.command('half')(print)\n    raise ValueError('no')\n",
        "e_exit.py": "import sys\nsys.exit(3)\n",
        "f_unknown.py": "def extension(agent):\n    agent.on('nonsense', print)\n",
        "g_good.py": COMMAND.format(name="good"),
    }
    for name, source in sources.items():
        write(tmp_path / name, source)

    async def check():
        generation, failures, _ = await load_places(place(tmp_path))
        told = {Path(failure.path).name: failure.error for failure in failures}
        assert list(told) == [name for name in sources if name != "g_good.py"]
        assert "SyntaxError" in told["a_syntax.py"] and "line 1" in told["a_syntax.py"]
        assert told["b_import.py"].startswith("ModuleNotFoundError") and "(line 1)" in told["b_import.py"]
        assert "def extension(agent)" in told["c_nothing.py"]
        assert told["d_factory.py"] == "ValueError: no (line 3)"
        assert told["e_exit.py"] == "sys.exit(3) was called"
        assert 'Unknown event "nonsense"' in told["f_unknown.py"]
        # Nothing of a failed one stays.
        assert list(generation.commands) == ["good"]
        assert not any("e_exit" in name for name in sys.modules)

    run(check())


def test_the_text_of_a_failure_and_whether_it_is_strict(tmp_path):
    async def check():
        _, (failure,), _ = await load_places(place(tmp_path / "no.py", explicit=True, source="cli"))
        path = tmp_path / "no.py"
        assert str(failure) == f'Failed to load extension "{path}": Extension path does not exist: {path}'
        assert failure.strict

    run(check())


def test_files_of_the_same_name_do_not_meet(tmp_path):
    for folder in ("one", "two"):
        write(tmp_path / folder / "same.py", f"WHO = {folder!r}\n" + COMMAND.format(name=folder))

    async def check():
        generation, failures, _ = await load_places(place(tmp_path / "one"), place(tmp_path / "two"))
        assert failures == [] and list(generation.commands) == ["one", "two"]
        assert str(tmp_path / "one") not in sys.path

    run(check())


def test_packages_import_their_own_modules(tmp_path):
    write(tmp_path / "pack" / "__init__.py", "from .parts import name\n" + COMMAND.replace("{name!r}", "name"))
    write(tmp_path / "pack" / "parts.py", "name = 'first'\n")

    async def check():
        generation, failures, _ = await load_places(place(tmp_path))
        assert failures == [] and list(generation.commands) == ["first"]
        write(tmp_path / "pack" / "parts.py", "name = 'second'  # now longer\n")
        generation, failures, _ = await load_places(place(tmp_path), before=generation)
        assert failures == [] and list(generation.commands) == ["second"]

    run(check())


def test_reloading_sees_an_edit_of_the_same_second_and_size(tmp_path):
    file = write(tmp_path / "x.py", COMMAND.format(name="aaa"))

    async def check():
        generation, _, _ = await load_places(place(tmp_path))
        assert list(generation.commands) == ["aaa"]
        before = file.stat()
        write(file, COMMAND.format(name="bbb"))
        import os

        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        generation, _, _ = await load_places(place(tmp_path), before=generation)
        assert list(generation.commands) == ["bbb"]

    run(check())


@pytest.mark.parametrize(
    "broken", ["def extension(agent: oops", "def extension(agent):\n    agent.command('new')(oops)"]
)
def test_what_does_not_load_any_more_stays_in_force_as_it_was(tmp_path, broken):
    file = write(tmp_path / "x.py", COMMAND.format(name="old"))

    async def check():
        generation, _, _ = await load_places(place(tmp_path))
        write(file, broken)
        for _ in range(2):
            generation, (failure,), _ = await load_places(place(tmp_path), before=generation)
            assert list(generation.commands) == ["old"]
            assert failure.error.endswith(". What was loaded before stays in force")
        write(file, COMMAND.format(name="new"))
        generation, failures, _ = await load_places(place(tmp_path), before=generation)
        assert list(generation.commands) == ["new"] and failures == []
        file.unlink()
        generation, failures, _ = await load_places(place(tmp_path), before=generation)
        assert generation.extensions == [] and failures == []

    run(check())


def test_async_factories_are_awaited_but_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "EXTENSION_FACTORY", 20)  # set back at the end: each of them has a limit of its own
    body = "from asyncio import *\nfrom spindle.base import limits\nlimits.EXTENSION_FACTORY = {}\n"
    body += "async def extension(agent):\n"
    write(tmp_path / "a.py", body.format(0.05) + "    await Event().wait()\n")
    write(tmp_path / "b.py", body.format(20) + "    await sleep(0)\n    agent.command('late')(print)\n")

    async def check():
        generation, (failure,), _ = await load_places(place(tmp_path))
        assert failure.error == "It was not ready after 0.05 s"
        assert list(generation.commands) == ["late"]

    run(check())


def test_modules_and_entry_points_by_name(tmp_path, monkeypatch):
    write(tmp_path / "my_kit.py", COMMAND.format(name="kit") + "other = extension\n")
    info = tmp_path / "my_kit-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: my-kit\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[spindle.extensions]\nkit = my_kit\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def check():
        for named in ("my_kit:extension", "my_kit:other", "kit"):
            generation, failures, _ = await load_places(place(tmp_path / named, base_dir=tmp_path, explicit=True))
            assert failures == [] and list(generation.commands) == ["kit"], named
        _, (failure,), _ = await load_places(place(tmp_path / "kid", base_dir=tmp_path, explicit=True))
        assert failure.error == f"Extension path does not exist: {tmp_path / 'kid'}"

    run(check())


def test_conflicts_are_told_and_the_first_wins(tmp_path):
    for name in "ab":
        write(
            tmp_path / f"{name}.py",
            f"def extension(agent):\n    agent.flag('f', type=str, default={name!r})\n"
            f"    @agent.tool\n    def t():\n        {name!r}\n",
        )

    async def check():
        generation, _, _ = await load_places(place(tmp_path))
        assert generation.tools()["t"].description == "a"
        assert generation.conflicts() == [
            f'Tool "t" of {tmp_path / "b.py"} conflicts with {tmp_path / "a.py"}',
            f'Flag "--f" of {tmp_path / "b.py"} conflicts with {tmp_path / "a.py"}',
        ]

    run(check())


def test_the_test_helper_tells_why_an_extension_does_not_load():
    def extension(agent):
        raise ValueError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        run(load(extension))
