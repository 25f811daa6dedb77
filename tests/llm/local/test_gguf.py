import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.local import LocalModelError, find_local_model, local_models, model_file, read_header

from .files import LLAMA, gguf


def test_tells_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(tail=b"x" * 100))
    header = read_header(path)
    assert (header.size_label, header.quantization) == ("135M", "Q4_1")
    assert header.context_length == 8192
    assert header.bytes_per_token == 30 * 3 * 64 * 2 * 2
    assert header.memory(1000) == path.stat().st_size + 1000 * header.bytes_per_token


def test_a_number_per_layer_counts_as_its_largest(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({**LLAMA, "llama.attention.head_count_kv": [1, 4, 2]}))
    assert read_header(path).bytes_per_token == 30 * 4 * 64 * 2 * 2


def test_stops_before_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf() + b"\xff" * 8)
    assert read_header(path).context_length == 8192


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin like one"),
        (b"PK\x03\x04 something else", "does not begin like one"),
        (b"GGUF\x63\x00\x00\x00" + b"\x00" * 16, "version 99 is unknown"),
        (gguf()[:60], "ends too early"),
        (b"GGUF\x03\x00\x00\x00" + b"\x00" * 8 + b"\x01" + b"\x00" * 7 + b"\xff" * 8, "impossible text"),
    ],
)
def test_says_what_is_wrong_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(LocalModelError, match=said) as caught:
        read_header(path)
    assert "\n" not in str(caught.value) and "Remove it and get it again" in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LocalModelError, match=r"No such model file.*spindle models list"):
        read_header(tmp_path / "none.gguf")


@given(cut=st.integers(0, len(gguf())), noise=st.binary(max_size=40))
def test_any_damage_is_a_plain_error(tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(gguf()[:cut] + noise)
    try:
        read_header(path)
    except LocalModelError as error:
        assert "GGUF" in str(error)


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
    for name in (str(elsewhere / "x.gguf"), f"elsewhere{os.sep}x.gguf"):
        assert model_file(tmp_path, name) == elsewhere / "x.gguf"
        assert find_local_model(tmp_path, name).id == name
    with pytest.raises(LocalModelError, match="No such model file"):
        find_local_model(tmp_path, "nothing")
