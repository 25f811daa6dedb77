"""Who may name the command that leads elsewhere: it runs a program on this machine."""

import asyncio
from pathlib import Path

import pytest

from spindle.agent import AgentError
from spindle.apps.cli.agent_source import CommandLineAgents
from spindle.apps.cli.args import Options
from spindle.protocol.registry import Wanted

FAR = "env -i PATH=/usr/bin:/bin"


def test_clients_of_a_server_name_only_commands_that_its_user_has_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    async def opened(mode: str, command: str) -> str:
        agent = await CommandLineAgents(Options(), mode).make(Wanted(exec=command, exec_cwd="/usr"))
        await agent.close()
        return agent.workdir

    async def main() -> None:
        for command in (FAR, f"sh -c 'touch {tmp_path}/ran' x"):
            with pytest.raises(AgentError, match="was never used by the user of the server"):
                await opened("remote", command)
        assert not (tmp_path / "ran").exists()
        assert await opened("rpc", FAR) == "/usr"  # a program of the user, on a pipe
        assert await opened("remote", FAR) == "/usr"

    asyncio.run(main())
