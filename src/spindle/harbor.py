"""Spindle as an agent of Harbor, the harness of terminal-bench:

    harbor run -d terminal-bench@2.0 --agent spindle.harbor:Spindle -m anthropic/claude-opus-4-5 --ak package=WHEEL

Harbor knows how pi's sessions become tokens, costs and trajectories, and ours are the same files. This module has the
differences: how Spindle is installed, its options for limits, and its configuration of MCP servers. It needs Harbor
(Python 3.12).
"""

import shlex
from pathlib import Path
from typing import Annotated, Any

from harbor.agents.installed.base import with_prompt_template
from harbor.agents.installed.pi import Pi, PiOptions
from harbor.agents.options import Cli
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field, create_model

from spindle.shapes.run_limits import RUN_LIMITS, Limit

_CONFIG = "/tmp/harbor-pi-agent"
"""Where the methods of `Pi` put models.json and mcp.json."""
_PATH = 'export PATH="$HOME/.local/bin:$PATH"; '
_ENDED = "0|3|4"
"""Exit codes of a run that ended: well, with refused calls, or at a limit. Harbor judges its work in each case."""
_NO_PACKAGE = (
    "Spindle is not in the container and on no index yet: name a wheel with --ak package=dist/spindle_agent-….whl "
    "(make dist makes it)"
)
_INSTALL = """
if ! command -v spindle >/dev/null; then
  if ! command -v uv >/dev/null; then
    if python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python3 -m venv "$HOME/.spindle" && "$HOME/.spindle/bin/pip" install --quiet {package} &&
        mkdir -p "$HOME/.local/bin" && ln -sf "$HOME/.spindle/bin/spindle" "$HOME/.local/bin/spindle"
    else
      curl -LsSf https://astral.sh/uv/install.sh | sh
    fi
  fi
  command -v spindle >/dev/null || uv tool install --quiet --python '>=3.11' {package}
fi
spindle --version
"""


def _limit(limit: Limit) -> tuple[Any, Any]:
    """Return type and field of the option that sets a limit of a run."""
    kind: Any = Annotated[limit.type | None, Cli(limit.option)]
    return kind, Field(default=None, gt=0, description=f"{limit.words.unit}.")


class _HarborOptions(PiOptions):  # type: ignore[misc]
    package: str = Field(default="", description="What to install: a wheel on this machine, or an address.")


SpindleOptions = create_model(
    "SpindleOptions", __base__=_HarborOptions, **{limit.name: _limit(limit) for limit in RUN_LIMITS}
)


class Spindle(Pi):  # type: ignore[misc]
    options_model = SpindleOptions
    options: _HarborOptions
    _OUTPUT_FILENAME = "spindle.txt"

    @staticmethod
    def name() -> str:
        return "spindle"

    def get_version_command(self) -> str:
        return _PATH + "spindle --version"

    async def install(self, environment: BaseEnvironment) -> None:
        """Install Spindle unless it is there: with uv, or into a venv where a Python is new enough.

        Raises `ValueError` if it is not there and nothing says where it comes from.
        """
        package = self.options.package
        await self.ensure_system_dependencies(environment, ("curl", "git"))
        if not package:
            try:
                await self.exec_as_agent(environment, command=self.get_version_command())
            except Exception:
                raise ValueError(_NO_PACKAGE) from None
            return
        if Path(package).is_file():
            await environment.upload_file(package, f"{_CONFIG}/{Path(package).name}")
            package = f"{_CONFIG}/{Path(package).name}"
        elif self._version:
            package = f"{package}=={self._version}"
        command = "set -e; " + _PATH + _INSTALL.format(package=shlex.quote(package))
        await self.exec_as_agent(environment, command=command)

    def _build_mcp_config(self) -> dict[str, Any]:
        return {"mcpServers": super()._build_mcp_config()["mcpServers"]}

    @with_prompt_template  # type: ignore[untyped-decorator]
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        if not self.model_name or "/" not in self.model_name:
            raise ValueError("Model name must be in the format provider/model_name")
        provider, model_id = self.model_name.split("/", 1)
        access = self.model_connection
        provider = access.provider or provider
        env = dict(access.env)
        models = self._build_custom_models_json(access, model_id)
        if models is not None:
            await self._write_custom_models_json(environment, models)
            provider = next(iter(models["providers"]))
        if self.mcp_servers:
            await self._write_mcp_config(environment)
        if models is not None or self.mcp_servers:
            env["SPINDLE_DIR"] = _CONFIG
        self._session_usage_start = await self._session_positions(environment) if self._resume else {}

        sessions = self.environment_logs_dir / self._SESSIONS_DIRECTORY
        output = shlex.quote(str(self.environment_logs_dir / self._OUTPUT_FILENAME))
        words = ["spindle", "--mode", "json", "--updates", "delta", "--session-dir", str(sessions)]
        words += ["--keep-background"]  # the services of a task are up when its tests begin
        words += ["--continue"] if self._resume else []
        words += ["--provider", provider, "--model", model_id]
        words += ["--skill", self.skills_dir] if self.skills_dir else []
        command = f"{shlex.join(words)} {self.build_cli_flags()} -- {shlex.quote(instruction)}"
        await self.exec_as_agent(
            environment,
            command=(
                f"{_PATH}mkdir -p {shlex.quote(str(sessions))} && "
                f"{{ {command} 2>&1 </dev/null; echo $? > {output}.code; }} | "
                f'{{ grep -v \'"type":"message_update"\' || true; }} > {output}; '
                f"case $(cat {output}.code) in {_ENDED}) ;; *) tail -c 4000 {output}; exit 1;; esac"
            ),
            env=env,
        )
