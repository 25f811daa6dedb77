"""A real model for the tests that need one: `SPINDLE_TEST_GGUF`, or what `make run` fetched. Skipped without."""

import asyncio
import importlib.util
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.llm.local import find_local_model
from spindle.llm.local.llama_server import stop_all
from spindle.shapes.model import Model

HERE = "tests/llm/local/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a model time to think: on a busy machine it may be twenty times slower than on an idle one."""
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed (the extra `local`)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    named = os.environ.get("SPINDLE_TEST_GGUF")
    path = Path(named) if named else cache / "spindle-demo" / "models" / "smollm2-135m-instruct.gguf"
    if not path.is_file():
        pytest.skip("no model: run `make run` once, or set SPINDLE_TEST_GGUF to a SmolLM2-135M-Instruct GGUF file")
    return path


@pytest.fixture(scope="module")
def model(gguf_path: Path) -> Iterator[Model]:
    """A model whose server is started once, and gone after the tests of a file."""
    yield find_local_model(gguf_path.parent, str(gguf_path), context_size=2048)
    stop_all()
