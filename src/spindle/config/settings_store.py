"""The two settings files and how they become one: global, then project on top.

Old keys are understood on read (`migrate`), unknown keys survive every write, and a file that cannot be
parsed is reported, counts as empty, and is never overwritten.
"""

from pathlib import Path
from typing import Any

from spindle.config.diagnostics import Diagnostic
from spindle.config.files import BadFile, edit_json, read_object
from spindle.config.settings import Settings, decode_settings

__all__ = ["SettingsStore", "merge", "migrate"]

# Only the user's own file may say these: a project must not decide about its own trust.
_GLOBAL_ONLY = ("defaultProjectTrust", "cacheWarming")


class SettingsStore:
    """Settings of one working directory. `load` reads them; `settings` is what holds."""

    def __init__(self, agent_dir: Path, cwd: Path) -> None:
        self.global_path = agent_dir / "settings.json"
        self.project_path = cwd / ".pi" / "settings.json"
        self.user: dict[str, Any] = {}
        """The global file after migration."""
        self.project: dict[str, Any] = {}
        """The project file after migration; empty while the project is not trusted."""
        self.settings = Settings()
        self.diagnostics: list[Diagnostic] = []

    def load(self, *, project_trusted: bool) -> Settings:
        """Read both files anew; of an untrusted project only `sessionDir` counts."""
        self.diagnostics = []
        self.user = self._read(self.global_path)
        project = self._read(self.project_path)
        kept = {key: value for key, value in project.items() if key not in _GLOBAL_ONLY}
        self.project = kept if project_trusted else {}
        merged = merge(self.user, kept if project_trusted else {k: v for k, v in kept.items() if k == "sessionDir"})
        self.settings, problems = decode_settings(merged)
        self.diagnostics += [Diagnostic("warning", f"Setting {problem}") for problem in problems]
        return self.settings

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return migrate(read_object(path) or {})
        except BadFile as error:
            self.diagnostics.append(Diagnostic("error", f"Cannot use {path}: {error}", str(path)))
            return {}

    def resource_list(self, key: str, *, project: bool) -> list[Any]:
        """Return a list of one file alone: resource lists add up instead of replacing each other."""
        value = (self.project if project else self.user).get(key)
        return value if isinstance(value, list) else []

    def save(self, key: str, value: Any) -> None:
        """Write one key (`a.b` for nested ones) to the global file; None removes it. Raises `BadFile`, `OSError`."""
        *groups, last = key.split(".")

        def change(content: dict[str, Any]) -> None:
            for group in groups:
                inner = content.get(group)
                content[group] = content = inner if isinstance(inner, dict) else {}
            if value is None:
                content.pop(last, None)
            else:
                content[last] = value

        edit_json(self.global_path, change)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge objects deeply; everything else of `over` replaces what `base` has."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def migrate(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with keys of older versions under their present names."""
    result = dict(raw)
    if "queueMode" in result:
        result.setdefault("steeringMode", result.pop("queueMode"))
    if isinstance(result.get("websockets"), bool):
        result.setdefault("transport", "websocket" if result.pop("websockets") else "sse")
    if isinstance(skills := result.get("skills"), dict):
        if "enableSkillCommands" in skills:
            result.setdefault("enableSkillCommands", skills["enableSkillCommands"])
        result["skills"] = skills.get("customDirectories", [])
    retry = result.get("retry")
    if isinstance(retry, dict) and "maxDelayMs" in retry:
        retry = dict(retry)
        delay = retry.pop("maxDelayMs")
        provider = retry.get("provider")
        retry["provider"] = {"maxRetryDelayMs": delay} | (provider if isinstance(provider, dict) else {})
        result["retry"] = retry
    return result
