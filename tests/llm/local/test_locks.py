"""`make run` and `make test` install into the same environment: their lock files must agree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE))


def test_no_package_is_wanted_in_two_versions() -> None:
    base, local, dev = (pins(ROOT / f"requirements{kind}.lock") for kind in ("", "-local", "-dev"))
    assert base.keys() <= local.keys() and base.keys() <= dev.keys() and "xllamacpp" in local
    assert {name: (local[name], dev[name]) for name in local.keys() & dev.keys() if local[name] != dev[name]} == {}
    assert {name: local[name] for name in base} == base
