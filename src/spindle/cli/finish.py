"""The end of every mode that runs an agent."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from spindle.process import kill_all

__all__ = ["run_and_exit"]


def run_and_exit(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run to the end and leave at once with the code it returns; no child of ours outlives it.

    The runner is not closed: it would wait for worker threads that may be blocked in the system for ever.
    """
    try:
        code = asyncio.Runner().run(work)
    finally:
        kill_all()
    sys.stderr.flush()
    os._exit(code)
