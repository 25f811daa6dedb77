import os
from pathlib import Path

import pytest

from spindle.llm.local import LocalModelError, find_local_model, local_models, model_file

from .files import LLAMA, gguf


def test_every_sound_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "b.gguf").write_bytes(gguf())
    (tmp_path / "a.gguf").write_bytes(gguf({**LLAMA, "llama.context_length": 131072}))
    (tmp_path / "broken.gguf").write_bytes(b"nonsense")
    (tmp_path / ".partial.gguf").write_bytes(gguf())
    (tmp_path / "notes.txt").write_text("not a model")
    models = local_models(tmp_path)
    assert [(m.provider, m.api, m.base_url, m.id, m.context_window) for m in models] == [
        ("local", "local", "", "a", 16384),
        ("local", "local", "", "b", 8192),
    ]
    assert models[1].name == "b (135M Q4_1)" and models[1].max_tokens == 2048


def test_no_directory_no_models(tmp_path: Path) -> None:
    assert local_models(tmp_path / "none") == []


def test_settings_reach_the_model(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf())
    (model,) = local_models(tmp_path, context_size=1024, threads=3)
    assert model.context_window == 1024 and model.compat == {"threads": 3}
    (model,) = local_models(tmp_path, context_size=999999)
    assert model.context_window == 8192  # no more than it was trained for


def test_a_file_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.gguf").write_bytes(gguf())
    monkeypatch.chdir(tmp_path)
    assert model_file(tmp_path, "name") == tmp_path / "name.gguf"
    for given in (str(elsewhere / "x.gguf"), f"elsewhere{os.sep}x.gguf"):
        assert model_file(tmp_path, given) == elsewhere / "x.gguf"
        assert find_local_model(tmp_path, given).id == given
    with pytest.raises(LocalModelError, match="No such model file"):
        find_local_model(tmp_path, "nothing")
