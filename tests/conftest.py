"""The order of files. A file is run by one worker as a whole (`--dist loadfile`), so that the last one to be begun
decides how long the others stand idle: those that take longest come first."""

import pytest

LONGEST = (
    "tests/soak/",
    "tests/browser/test_web_page",
    "tests/browser/test_export_page",
    "tests/browser/",
    "tests/llm/local/",
    "tests/interop/",
    "tests/mcp/",
    "tests/console/",
    "tests/cli/",
    "tests/batch/",
)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
