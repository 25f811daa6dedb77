"""The order of test files, and their first import.

One worker runs a whole file (`--dist loadfile`). The other workers would be idle if a long file began last, so the
files that take longest come first.

pytest rewrites the asserts of a file when it is imported. In every worker this takes longer than everything else before
the first test. So the bytecode is kept, and each worker first imports a share of the files for all of them."""

import contextlib
import importlib
import sys
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent
sys.dont_write_bytecode = False
hypothesis.settings.register_profile("spindle", deadline=None)  # a busy machine is slow now and then
hypothesis.settings.load_profile("spindle")

LONGEST = (
    "tests/soak/",
    "tests/browser/test_web_page",
    "tests/browser/test_export_page",
    "tests/plugins/mcp/test_conformance",
    "tests/browser/",
    "tests/llm/local/",
    "tests/interop/",
    "tests/matrix/",
    "tests/plugins/mcp/",
    "tests/apps/console/",
    "tests/apps/cli/",
    "tests/apps/batch/",
)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, why, and how to get it."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if not reasons:
        return
    terminalreporter.write_line("")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:>5} skipped: {reason}")
    terminalreporter.write_line(
        "What other programs are needed for is run by .ci/run, which installs them and sets SPINDLE_TEST_…"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted(HERE.rglob("test_*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it will say what is wrong
            importlib.import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))
