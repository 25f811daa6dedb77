"""The tasks of a batch: from a JSONL file, a folder of Markdown files, a stream, or a program.

All tasks are checked before the first one starts: a thousand tasks must not fail one by one because of a typing error.
"""

import hashlib
import os
import re
import sys
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import asdict

from spindle.agent import AgentError
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import Image
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.sandbox import SandboxChoice, read_sandbox

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = ("results.jsonl",)
_HASHED = (
    *("id", "prompt", "prompt_file", "repo", "cwd", "ref", "model", "tools", "images", "setup", "verify", "schema"),
    *("max_cost", "max_turns", "timeout", "meta"),
)
"""Fields that are always in the hash, in this order: results of earlier versions are found by it. Others are in it only
if they are set."""


class Task(RunLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of work with the limits of its run, as a line of the task file has it.

    Paths are relative to that file.
    """

    id: str = ""
    """Names the task in the results; a hash of the rest if it is missing."""
    prompt: str | None = None
    prompt_file: str | None = None
    """A file with the prompt, in place of `prompt`."""
    repo: str | None = None
    """The git repository to work on: a directory, or an address to clone from."""
    cwd: str | None = None
    """The directory to work in; with `repo`, one inside it."""
    ref: str | None = None
    """The commit, tag or branch to begin at; by default the one that is checked out."""
    model: str | None = None
    tools: list[str] | None = None
    images: list[str] = field(default_factory=list)
    """Paths."""
    setup: str | None = None
    """A shell command that runs before the agent."""
    verify: str | None = None
    """A shell command that decides, by its exit code, whether the task was done."""
    container: str | None = None
    """An image: the task works in a new container of it, which docker or podman runs."""
    exec: str | None = None
    """A command that gives a pipe to a shell elsewhere, where the task works; `{id}` stands for its folder's name."""
    exec_cwd: str | None = None
    """The working directory there, also in a container."""
    start: str | None = None
    """A shell command that runs here, before all others, if the task works elsewhere."""
    stop: str | None = None
    """A shell command that runs here at the end, whatever has happened."""
    schema: dict[str, Any] | str | None = None
    """JSON Schema of the result, or the path of a file with it."""
    timeout: float | None = None
    sandbox: SandboxChoice | None = None
    """A level, or an object with `level`, `writable` and `network`, in place of that of the batch."""
    meta: Any = None
    """Anything. It is copied into the results; a task with another `meta` is still the same task."""


class Job(Struct, frozen=True):
    """A task that is ready to be done: all files that it names have been read."""

    task: Task
    id: str
    folder: str
    """The name of its folder among the results."""
    hash: str
    """A hash of everything that makes the task what it is."""
    prompt: str
    schema: dict[str, Any] | None
    base: str
    """The directory that its paths are relative to."""

    def images(self) -> list[Image]:
        """Read the images. Raises `AgentError`."""
        from spindle.tools.images import SNIFF_BYTES, sniff_image

        found = []
        for name in self.task.images:
            data = _read(Path(self.base, name))
            kind = sniff_image(data[:SNIFF_BYTES])
            if kind is None:
                raise AgentError(f"Task {self.id}: {name} is not an image")
            found.append(Image(data=b64encode(data).decode(), mime_type=kind))
        return found


TaskSource: TypeAlias = str | Path | Iterable[Task | dict[str, Any] | str]
"""A file, a folder, `-` for stdin; or tasks, as `Task`s, objects, or bare prompts."""


def read_jobs(source: TaskSource, default_schema: dict[str, Any] | None = None) -> list[Job]:
    """Read and check all tasks. Raises `AgentError` that says which one is wrong, and where."""
    jobs: dict[str, Job] = {}
    places: dict[str, str] = {}
    for place, base, value in _values(source):
        try:
            task = value if isinstance(value, Task) else convert(value, Task)
            job = _job(task, base, default_schema)
        except (ValidationError, AgentError) as error:
            raise AgentError(f"{place}: {error}") from None
        if job.id in jobs:
            raise AgentError(f"{place}: the task {job.id!r} is at {places[job.id]} already. Give each its own id")
        jobs[job.id], places[job.id] = job, place
    if not jobs:
        raise AgentError("There are no tasks")
    return list(jobs.values())


def _values(source: TaskSource) -> Iterable[tuple[str, str, Any]]:
    """Yield each task with its place and the directory of its paths."""
    here = os.getcwd()
    if not isinstance(source, str | Path):
        for number, value in enumerate(source, 1):
            yield f"task {number}", here, {"prompt": value} if isinstance(value, str) else value
        return
    path = Path(source)
    if str(source) == "-":
        yield from _lines("stdin", here, sys.stdin.buffer.read())
    elif path.is_dir():
        for file in sorted(path.glob("*.md")):
            yield str(file), str(path.absolute()), {"id": file.stem, "prompt_file": file.name}
    else:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise AgentError(f"Cannot read the tasks in {path}: {error.strerror}") from None
        yield from _lines(str(path), str(path.absolute().parent), data)


def _lines(name: str, base: str, data: bytes) -> Iterable[tuple[str, str, Any]]:
    for number, line in enumerate(data.removeprefix(BOM_UTF8).split(b"\n"), 1):
        if line.strip():
            try:
                yield f"{name}:{number}", base, decode(line)
            except DecodeError as error:
                raise AgentError(f"{name}:{number}: not a JSON object: {error}") from None


def _job(task: Task, base: str, default_schema: dict[str, Any] | None) -> Job:
    _check(task, base)
    prompt, schema = _prompt(task, base), _schema(task, base)
    content = {name: getattr(task, name) for name in _HASHED}
    content |= {name: value for name, value in asdict(task).items() if name not in _HASHED and value is not None}
    content |= {"id": "", "meta": None, "prompt": prompt, "prompt_file": None, "schema": schema}
    content["images"] = [hashlib.sha256(_read(Path(base, name))).hexdigest() for name in task.images]
    digest = hashlib.sha256(encode(content)).hexdigest()[:16]
    name = task.id or digest
    return Job(task, name, _folder(name), digest, prompt, schema or default_schema, base)


def _check(task: Task, base: str) -> None:
    """Raises `AgentError`."""
    if (task.prompt is None) == (task.prompt_file is None):
        raise AgentError("a task needs either prompt or prompt_file")
    for name in (*RunLimits.__struct_fields__, "timeout"):
        if (value := getattr(task, name)) is not None and not value > 0:
            raise AgentError(f"{name} must be above 0, not {value}")
    for name in ("id", "repo", "cwd", "ref", "setup", "verify", "container", "exec", "exec_cwd", "start", "stop"):
        if not _can_be_told(getattr(task, name) or ""):
            raise AgentError(f"{name} has a character in it that no program can be told")
    try:
        read_sandbox(task.sandbox)
    except ValueError as error:
        raise AgentError(str(error)) from None
    if (task.ref or "").startswith("-"):
        raise AgentError(f"ref {task.ref!r} is an option, not a commit, a tag or a branch")
    if is_address(task, base) and os.path.normpath(task.cwd or ".").split("/")[0] in ("", ".."):
        raise AgentError(f"cwd {task.cwd!r} must be a directory inside {task.repo}")
    place = task.cwd if task.repo is None else task.repo
    if place is not None and not is_address(task, base) and not Path(base, place).is_dir():
        raise AgentError(f"{Path(base, place)} is not a directory")


def _prompt(task: Task, base: str) -> str:
    """Raises `AgentError`."""
    prompt = task.prompt
    if task.prompt_file is not None:
        prompt = _read(Path(base, task.prompt_file)).decode("utf-8", "replace")
    if not prompt or not prompt.strip():
        raise AgentError("the prompt is empty")
    return prompt


def _schema(task: Task, base: str) -> dict[str, Any] | None:
    """Raises `AgentError`."""
    if not isinstance(task.schema, str):
        return task.schema
    try:
        schema = decode(_read(Path(base, task.schema)))
    except DecodeError as error:
        raise AgentError(f"{task.schema}: {error}") from None
    if not isinstance(schema, dict):
        raise AgentError(f"{task.schema} must hold a JSON object")
    return schema


def is_address(task: Task, base: str) -> bool:
    """Say whether the repository of a task has to be cloned from an address."""
    repo = task.repo or ""
    return "://" in repo or (":" in repo.split("/")[0] and not Path(base, repo).exists())


def _can_be_told(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _folder(name: str) -> str:
    """Return a name for the folder of a task: its id, if that can be a folder's name."""
    if _FOLDER.fullmatch(name) and name not in _RESERVED:
        return name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80]
    return f"{plain or 'task'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AgentError(f"cannot read {path}: {error.strerror}") from None


def chosen(jobs: Sequence[Job], pattern: str | None) -> list[Job]:
    """Return the jobs whose id a regular expression finds. Raises `AgentError`."""
    if pattern is None:
        return list(jobs)
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise AgentError(f"{pattern!r} is not a regular expression: {error}") from None
    found = [job for job in jobs if wanted.search(job.id)]
    if not found:
        raise AgentError(f"No task has an id with {pattern!r} in it")
    return found
