"""Every module can be the first one that is imported: no circle of imports, and importing has no effect."""

import subprocess
import sys
from pathlib import Path

import spindle


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
