"""The programs that are compared: how each is started on a workspace, and which of its tool calls failed.

A harness gets the address of the meter as an API like OpenAI's, and a home of its own, so that nothing of the user's
settings counts.
"""

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.tasks import Task

MODEL = "evaluated"
"""The name by which every harness knows the model."""
CONTEXT = 32_768
NO_LABELS = ("earlier", "running")
"""Folders of their own beside those of the harnesses."""
TURNS = 60
"""The most model calls, for harnesses that have such a limit. None is told its time: the stopwatch is not theirs."""

_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")

CLASSES = (
    ("unknown tool", r"^Tool .* not found"),
    ("bad arguments", r"^Validation failed|^Invalid (arguments|timeout)|must have required property"),
    ("edit missed", r"(?i)could not find|not found in|occurrences|must be unique|no changes made"),
    ("no such file", r"ENOENT|No such file|does not exist|not found:"),
    ("timed out", r"(?i)timed out"),
    ("refused", r"(?i)permission|denied|blocked"),
    ("command failed", r"Command exited with code|returncode|exit code"),
)
"""Kinds of failed tool calls, by the first pattern that fits the text of the result."""


@dataclass(frozen=True)
class Launch:
    command: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Harness:
    name: str
    launch: Callable[["Harness", Path, Task, str], Launch]
    """`(harness, home, task, url)`; `home` is a folder that the trial keeps."""
    failures: Callable[[Path], Iterator[str]]
    """Texts of the tool calls that failed, from what the run left in `home`."""
    program: tuple[str, ...]
    lacks: str = ""
    """Limits that the others have and it cannot be given."""
    tools: bool = True
    """It offers tools to the model; false: it reads commands out of the text."""
    settings: dict[str, Any] = field(default_factory=dict)
    """More of Spindle's or pi's settings, besides what every trial has."""


def classes(texts: Iterator[str]) -> Counter[str]:
    """Count failed tool calls by their kind."""
    return Counter(next((name for name, pattern in CLASSES if re.search(pattern, text)), "other") for text in texts)


def _environment(home: Path, **extra: str) -> dict[str, str]:
    """Return the variables of a trial. What it installs stays in its home, not where the evaluation runs."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    ours = os.path.dirname(sys.executable)
    kept["PATH"] = os.pathsep.join(folder for folder in kept.get("PATH", "").split(os.pathsep) if folder != ours)
    pip = {"PIP_USER": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    return kept | pip | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"} | extra


# -- Spindle and pi ------------------------------------------------------------------------------


def _write_models(folder: Path, url: str) -> None:
    model = {"id": MODEL, "contextWindow": CONTEXT, "maxTokens": 4096, "input": ["text"]}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [model]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.json").write_text(json.dumps({"providers": {"eval": provider}}))


def _launch_spindle(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    _write_models(home / "agent", url)
    words = [*harness.program, "-p", "--model", f"eval/{MODEL}", "--session-dir", str(home / "sessions")]
    words += ["--max-turns", str(TURNS)]
    settings = {"keepBackgroundProcesses": task.services} | harness.settings
    (home / "agent" / "settings.json").write_text(json.dumps(settings))
    return Launch([*words, "--", task.prompt], _environment(home, SPINDLE_DIR=str(home / "agent")))


def _launch_pi(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    _write_models(home / "agent", url)
    (home / "agent" / "settings.json").write_text(json.dumps(harness.settings))
    words = [*harness.program, "-p", "--provider", "eval", "--model", MODEL, "--session-dir", str(home / "sessions")]
    return Launch([*words, task.prompt], _environment(home, PI_CODING_AGENT_DIR=str(home / "agent"), PI_OFFLINE="1"))


def _session_failures(home: Path) -> Iterator[str]:
    for path in (home / "sessions").rglob("*.jsonl"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            message: dict[str, Any] = json.loads(line).get("message") or {}
            if message.get("role") == "toolResult" and message.get("isError"):
                yield "".join(block.get("text", "") for block in message.get("content") or ())


# -- mini-swe-agent ------------------------------------------------------------------------------


def _launch_mini(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    return _mini(harness, home, task, url, "mini.yaml")


def _launch_mini_text(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    """Its commands stand in fences of the text: for models that make no native calls."""
    return _mini(harness, home, task, url, "mini_textbased.yaml", "model.model_class=litellm_textbased")


def _mini(harness: Harness, home: Path, task: Task, url: str, *config: str) -> Launch:
    settings = [
        *config,
        "agent.mode=yolo",
        f"agent.step_limit={TURNS}",
        "agent.cost_limit=0",
        f"model.model_kwargs.api_base={url}",
    ]
    words = [*harness.program, "-m", f"openai/{MODEL}", "-t", task.prompt, "-y", "--exit-immediately"]
    words += ["-o", str(home / "trajectory.json")]
    for setting in settings:
        words += ["-c", setting]
    env = {"OPENAI_API_KEY": "none", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_CONFIGURED": "true"}
    env |= {
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(home / "config"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Launch(words, _environment(home, **env))


def _trajectory_failures(home: Path) -> Iterator[str]:
    path = home / "trajectory.json"
    if not path.is_file():
        return
    try:
        trajectory = json.loads(path.read_text())
    except ValueError:  # the program was killed while it wrote
        return
    for message in trajectory.get("messages", ()):
        content = message.get("content")
        if message.get("role") == "tool" and isinstance(content, str):
            code = re.search(r'"returncode": (-?\d+)', content)
            if code and code[1] != "0":
                yield content
        elif message.get("role") == "user" and isinstance(content, str) and content.startswith("Tool call error"):
            yield "Validation failed: no call of a tool"


# -- codex and opencode --------------------------------------------------------------------------


def _launch_codex(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    """Needs a server with the responses API. Its own sandbox is off: the workspace is the trial's."""
    provider = {"name": '"eval"', "base_url": f'"{url}"', "wire_api": '"responses"', "env_key": '"EVAL_KEY"'}
    words = [*harness.program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    for name, value in provider.items():
        words += ["-c", f"model_providers.eval.{name}={value}"]
    words += ["-c", 'model_provider="eval"', "-c", f"model_context_window={CONTEXT}", "-m", MODEL, "--", task.prompt]
    return Launch(words, _environment(home, CODEX_HOME=_made(home / "codex"), EVAL_KEY="none"))


def _launch_opencode(harness: Harness, home: Path, task: Task, url: str) -> Launch:
    model = {"name": MODEL, "limit": {"context": CONTEXT, "output": 4096}, "tool_call": True}
    options = {"baseURL": url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "eval", "options": options, "models": {MODEL: model}}
    config = {"provider": {"eval": provider}, "permission": "allow", "autoupdate": False, "share": "disabled"}
    words = [*harness.program, "run", "--model", f"eval/{MODEL}", task.prompt]
    # It titles each session with a call of its own, which counts like the others.
    return Launch(words, _environment(home, OPENCODE_CONFIG_CONTENT=json.dumps(config)))


def _made(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def _no_failures(home: Path) -> Iterator[str]:
    return iter(())


_NO_CONTEXT = "not told the size of the context"
HARNESSES: dict[str, Harness] = {
    one.name: one
    for one in (
        Harness("spindle", _launch_spindle, _session_failures, ("spindle",)),
        Harness("pi", _launch_pi, _session_failures, ("pi",)),
        Harness("mini", _launch_mini, _trajectory_failures, ("mini",), _NO_CONTEXT),
        Harness("mini-text", _launch_mini_text, _trajectory_failures, ("mini",), _NO_CONTEXT, tools=False),
        Harness("codex", _launch_codex, _no_failures, ("codex",), "failed calls are not counted, no seed"),
        Harness("opencode", _launch_opencode, _no_failures, ("opencode",), "failed calls are not counted"),
    )
}


def parse(texts: Iterable[str], settings: Iterable[str] = ()) -> list[Harness]:
    """Return the harnesses of `NAME`, `NAME=PROGRAM` or `LABEL:NAME=PROGRAM`, with settings of `LABEL:JSON`. Raises
    `ValueError`."""
    found: dict[str, Harness] = {}
    for text in texts:
        one = _parse(text)
        if one.name in found:
            raise ValueError(f"two harnesses are called {one.name}; give them names, as in new:spindle=PROGRAM")
        found[one.name] = one
    for text in settings:
        name, _, value = text.partition(":")
        if name not in found or found[name].launch not in (_launch_spindle, _launch_pi):
            raise ValueError(f"--settings {text}: {name!r} is none of the harnesses that have settings")
        try:
            given = json.loads(value)
        except ValueError as error:
            raise ValueError(f"--settings {text}: {error}") from None
        if not isinstance(given, dict):
            raise ValueError(f"--settings {text}: settings are a JSON object")
        found[name] = replace(found[name], settings=given)
    return list(found.values())


def _parse(text: str) -> Harness:
    name, _, program = text.partition("=")
    label, _, kind = name.rpartition(":")
    if kind not in HARNESSES:
        raise ValueError(f"no harness {kind!r}; there are {', '.join(HARNESSES)}")
    if not re.fullmatch(r"\w[\w.-]*", label or kind) or label in NO_LABELS:
        raise ValueError(f"{label!r} cannot be the name of a folder of trials")
    known = HARNESSES[kind]
    words = program.split() if program else list(known.program)
    if not words or (path := shutil.which(words[0])) is None:
        raise ValueError(f"the program of {text} is not there: {' '.join(words[:1])}")
    words[0] = os.path.abspath(path)  # trials run elsewhere
    return replace(known, name=label or kind, program=tuple(words))
