"""The commands that hints name, for each way to install Spindle. `make dist` runs one for real."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle.base import installation

FACTS = "Metadata-Version: 2.4\nName: spindle-agent\nVersion: 9\nRequires-Dist: msgspec\n"
FACTS += "Requires-Dist: xllamacpp>=2026.10; extra == 'local'\n"
CHECKOUT: dict[str, Any] = {"url": "file:///home/me/spin%20dle", "dir_info": {}}
EDITABLE = {**CHECKOUT, "dir_info": {"editable": True}}
WHEEL = {"url": "file:///tmp/spindle_agent-9-py3-none-any.whl", "archive_info": {}}
REPOSITORY = {"url": "https://example.org/spindle", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
UV_TOOL, PIPX = "uv-receipt.toml", "pipx_metadata.json"


@pytest.mark.parametrize(
    ("direct", "mark", "has_pip", "extra", "update"),
    [
        (None, "", True, "/env/bin/python -m pip install {}", "/env/bin/python -m pip install --upgrade spindle-agent"),
        (CHECKOUT, "", True, "/env/bin/python -m pip install {}", "-m pip install --upgrade '/home/me/spin dle'"),
        (EDITABLE, "", True, "/env/bin/python -m pip install {}", "git -C '/home/me/spin dle' pull"),
        (EDITABLE, "", False, "uv pip install --python /env/bin/python {}", "git -C '/home/me/spin dle' pull"),
        (WHEEL, "", True, "/env/bin/python -m pip install {}", "-m pip install --upgrade NEW.whl"),
        (
            WHEEL,
            UV_TOOL,
            True,
            "uv pip install --python /env/bin/python {}",
            "uv tool install --force --reinstall NEW.whl",
        ),
        (
            REPOSITORY,
            UV_TOOL,
            False,
            "uv pip install",
            "uv tool install --force --reinstall git+https://example.org/spindle",
        ),
        (CHECKOUT, PIPX, False, "pipx inject spindle-agent {}", "pipx install --force '/home/me/spin dle'"),
    ],
)
def test_hints_fit_the_installation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    direct: dict[str, Any] | None,
    mark: str,
    has_pip: bool,
    extra: str,
    update: str,
) -> None:
    info = tmp_path / "spindle_agent-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(FACTS)
    if direct:
        (info / "direct_url.json").write_text(json.dumps(direct))
    if mark:
        (tmp_path / mark).touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setattr(installation, "find_spec", lambda name: has_pip or None)
    assert extra.format("'xllamacpp>=2026.10'") in installation.extra_command("local")
    assert update in installation.update_command()
