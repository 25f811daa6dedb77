"""The agents that are measured: this checkout, another state of it, and pi from npm, each in directories of its own.

`python -m benchmarks.peers` compares one-shots with programs of others (`one_shots.py`).
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Peer", "our_peer", "pi_peer", "state_peer"]

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".interop" / "bench"
MODEL = {"id": "bench", "name": "Bench", "input": ["text"], "contextWindow": 20_000_000, "maxTokens": 200_000}
COMPAT = {"supportsDeveloperRole": False, "supportsReasoningEffort": False}
SETTINGS = {"defaultThinkingLevel": "off", "compaction": {"enabled": False}, "quietStartup": True}


@dataclass(frozen=True)
class Peer:
    title: str
    program: list[str]
    idle: bytes
    """Type of the record after which the agent takes a new prompt."""
    place: Path
    """Its home, agent directory, sessions and working directory."""
    model: str
    """URL of the model server."""
    source: Path | None = None
    """Where its packages are, if they are not those of its environment."""

    @property
    def argv(self) -> list[str]:
        sessions = ["--session-dir", str(self.folder("sessions"))]
        return [*self.program, "--mode", "rpc", "--provider", "bench", "--model", "bench", *sessions]

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.place),
            "TMPDIR": str(self.folder("tmp")),
            "PI_CODING_AGENT_DIR": str(self.folder("agent")),
        }
        if self.source is not None:
            own["PYTHONPATH"] = str(self.source)
        quiet = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0", "TERM": "dumb"}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **own, **quiet}

    def folder(self, name: str) -> Path:
        path = self.place / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def configured(self, **settings: Any) -> "Peer":
        """Write its files, with these settings besides those of every peer."""
        provider = {"baseUrl": f"{self.model}/v1", "api": "openai-completions", "apiKey": "none", "compat": COMPAT}
        models = {"providers": {"bench": {**provider, "models": [MODEL]}}}
        (self.folder("agent") / "models.json").write_text(json.dumps(models))
        (self.folder("agent") / "settings.json").write_text(json.dumps(SETTINGS | settings))
        return self


def our_peer(place: Path, model: str, form: str, root: Path = ROOT, title: str = "Spindle") -> Peer:
    """Return this checkout, or the one in `root`, with updates in `delta` or `full` form."""
    program = [str(root / ".venv/bin/spindle"), "--updates", form]
    return Peer(title, program, b"agent_settled", place / f"{title}-{form}", model).configured()


def state_peer(place: Path, model: str, source: Path, title: str) -> Peer:
    """Return a state of this repository whose packages are in `source`, in the environment of this checkout."""
    program = [sys.executable, "-m", "spindle", "--updates", "delta"]
    return Peer(title, program, b"agent_settled", place / title, model, source).configured()


def pi_peer(place: Path, model: str, version: str) -> Peer:
    """Return pi of this version, installed from npm with a node that is new enough for it."""
    folder = PLACE / version
    package = folder / "node_modules/@earendil-works/pi-coding-agent"
    if not package.exists():
        print(f"Installing pi {version} from npm (once)", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        packages = [f"@earendil-works/pi-coding-agent@{version}", "node@24"]
        _run("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *packages)
    idle = b"agent_end" if version.startswith("0.74.") else b"agent_settled"
    program = [str(folder / "node_modules/.bin/node"), str(package / "dist/cli.js")]
    return Peer(f"pi {version}", program, idle, place / f"pi-{version}", model).configured()


def codex_program() -> list[str]:
    """Return the command of codex, the newest if npm has to install it."""
    folder = PLACE / "codex"
    program = folder / "node_modules/.bin/codex"
    if not program.exists():
        print("Installing codex from npm (once)", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        _run("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), "@openai/codex")
    return [str(program)]


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    from benchmarks.one_shots import main

    sys.exit(main())
