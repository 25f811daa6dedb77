"""Every module can be the first one that is imported: no circle of imports, and importing has no effect."""

import subprocess
import sys
from pathlib import Path

import pytest

import spindle
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, reply


def test_every_module_can_be_imported_first():
    root = Path(spindle.__file__).parent
    files = [path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py")]
    modules = sorted(".".join(path.parts).removesuffix(".__init__") for path in files if path.name != "__main__")
    code = (
        "import gc, importlib, sys\n"
        "gc.disable()\n"  # a third of the time
        "for name in sys.argv[1:]:\n"
        "    for old in [known for known in sys.modules if known.split('.')[0] == 'spindle']: del sys.modules[old]\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        foreign = [('spindle.harbor', 'harbor'), ('spindle.otel', 'opentelemetry')]\n"
        "        if (name, error.name) not in foreign: print(name, repr(error))\n"
        "    except Exception as error: print(name, repr(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *modules], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("mode", ["print", "rpc"])
def test_what_a_start_and_an_answer_load(mode: str, tmp_path: Path):
    """Whatever is dear, or of a feature that is off, is not loaded: not at the start, and not by an answer."""
    with MockModel([reply("hello")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        how = ["-p", "hi"] if mode == "print" else ["--mode", "rpc"]
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "spindle", "--no-session", "--model", "mock/m1", *how],
            input='{"type":"get_state"}\n' if mode == "rpc" else "",
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=agent_environment(tmp_path / "agent"),
            timeout=60,
        )
    assert ("hello" if mode == "print" else '"get_state"') in done.stdout, done.stderr[-500:]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    rooms = ("agent.fences.rules", "agent.fences.shell", "agent.features.lending", "agent.features.undo.undo")
    dear = {"aiohttp", "email", "http.client", "tempfile", "urllib.request", *(f"spindle.{room}" for room in rooms)}
    assert "spindle.recipe" in loaded and loaded & dear == set()
