"""What this machine can do for a local model: is the runtime here, is there memory, how many threads."""

import importlib.util
import os
import sys
from pathlib import Path

from spindle.llm.local.errors import LocalModelError
from spindle.llm.local.gguf import Header

__all__ = ["RUNTIME", "available_memory", "check_machine", "check_memory", "default_threads"]

RUNTIME = "xllamacpp"
_PROCESSORS = ("x86_64", "amd64", "aarch64", "arm64")
_MAX_THREADS = 8
_GIB = 1 << 30


def check_machine() -> None:
    """Raise `LocalModelError` if the runtime is not installed, saying whether it could be."""
    if importlib.util.find_spec(RUNTIME) is not None:
        return
    import platform

    system, processor = platform.system(), platform.machine()
    foreign_libc = system == "Linux" and platform.libc_ver()[0] != "glibc"
    if system not in ("Linux", "Darwin", "Windows") or processor.lower() not in _PROCESSORS or foreign_libc:
        here = f"{system} on {processor}{' without glibc' if foreign_libc else ''}"
        raise LocalModelError(
            f"There is no local model runtime for this platform ({here}). Use a model server such as Ollama instead"
        )
    raise LocalModelError("Local models need an extra that is not installed. Install it: pip install 'spindle[local]'")


def check_memory(path: Path, header: Header, context: int) -> None:
    """Raise `LocalModelError` if the model cannot fit."""
    free, needed = available_memory(), header.memory(context)
    if free is not None and needed > free:
        raise LocalModelError(
            f"Not enough memory for {path.name}: it takes {needed / _GIB:.1f} GiB and {free / _GIB:.1f} are free. "
            "Use a smaller model or a smaller local.contextSize in settings.json"
        )


def available_memory() -> int | None:
    """Return how many bytes can be used; None if this system does not tell."""
    limits = [limit for limit in (_free_memory(), _container_limit()) if limit is not None]
    return min(limits, default=None)


def default_threads() -> int:
    """Return how many threads to compute with: one core is left for everything else.

    The threads wait for each other after every step, so one that has to share its core slows all of them down: with
    as many threads as cores a busy machine is thirty times slower, not two times.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores - 1, 1), _MAX_THREADS)


def _free_memory() -> int | None:
    if sys.platform == "win32":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _container_limit() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text("ascii"))
    except (OSError, ValueError):  # no container, or "max"
        return None
