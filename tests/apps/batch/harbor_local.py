"""A Harbor environment without containers: commands run here, and the paths of a container are below a folder."""

import asyncio
import os
import re
import shutil
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_PATHS = re.compile(r"(?<![\w./-])/(logs|tests|solution|app|harbor|tmp/harbor-pi-agent)\b")


class LocalEnvironment(BaseEnvironment):
    @staticmethod
    def type() -> str:
        return "local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None: ...

    @property
    def root(self) -> Path:
        return Path(os.environ["SPINDLE_HARBOR_ROOT"], self.session_id)

    def there(self, path: object) -> str:
        return _PATHS.sub(lambda match: f"{self.root}/{match[1]}", str(path))

    async def start(self, force_build: bool) -> None:
        for name in ("logs/agent", "logs/verifier", "logs/artifacts", "tests", "solution", "app"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None: ...

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(self.there(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.there(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.there(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.there(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:  # type: ignore[no-untyped-def]
        env = {name: self.there(value) for name, value in (self._merge_env(env) or {}).items()}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self.there(command),
            cwd=self.there(cwd or "/app"),
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)
