"""What `make run` shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.models.model_registry import ModelRegistry

DEMO = Path(__file__).parents[3] / "scripts" / "demo"


def demo(cache: Path) -> str:
    """Run the demonstration without a network and return what it says."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "NO_COLOR": "1"}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "UV_OFFLINE": "1"}
    done = subprocess.run([sys.executable, str(DEMO)], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_model_and_network_it_says_so_and_shows_a_scripted_one(tmp_path: Path) -> None:
    said = demo(tmp_path)
    assert "The local model cannot be used:" in said and "SCRIPTED" in said
    assert "bash     ls\n         hello.py\n         notes.md\n         shopping.txt\n" in said
    assert "spindle  There are three files here" in said
    for wanted in ("1. Chat on", "2. Drive it over RPC", "3. Use your own key, or a model in Ollama"):
        assert wanted in said
    assert not (tmp_path / "spindle-demo" / "models").exists() or not os.listdir(tmp_path / "spindle-demo" / "models")


def test_with_the_model_it_works_offline(tmp_path: Path, gguf_path: Path) -> None:
    if "local" not in ModelRegistry(tmp_path).providers():
        pytest.skip("this build does not offer the provider `local`")
    models = tmp_path / "spindle-demo" / "models"
    models.mkdir(parents=True)
    (models / "smollm2-135m-instruct.gguf").symlink_to(gguf_path)
    said = demo(tmp_path)
    assert "SCRIPTED" not in said and "Honestly:" in said and "Qwen3" in said
    assert "\nbash     " in said and "model local" in said
