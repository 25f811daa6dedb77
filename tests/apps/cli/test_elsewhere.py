"""Who may name the command that leads elsewhere: it runs a program on this machine."""

import asyncio
import json
from pathlib import Path

import pytest

from spindle.agent import AgentError
from spindle.apps.cli.agent_source import CommandLineAgents
from spindle.apps.cli.args import Options
from spindle.protocol.registry import WantedSession
from spindle.server.users import User

FAR = "env -i PATH=/usr/bin:/bin"


def test_clients_of_a_server_name_only_commands_that_its_user_has_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    async def opened(mode: str, command: str) -> str:
        agent = await CommandLineAgents(Options(), mode).make(WantedSession(exec=command, exec_cwd="/usr"))
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


def test_users_work_where_the_settings_of_the_server_lead_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/settings.json").write_text(json.dumps({"exec": FAR, "execCwd": "/usr"}))

    async def main() -> None:
        source, _ = CommandLineAgents(Options(), "remote").for_user("ann", User(token="sha256:" + "0" * 64))
        for command in ("", "env"):
            with pytest.raises(AgentError, match="Only the operator"):
                await source.make(WantedSession(exec=command))
        for wanted in (
            WantedSession(),
            WantedSession(exec=FAR, exec_cwd="/usr"),
        ):  # the latter: an idle session begins again
            agent = await source.make(wanted)
            await agent.close()
            assert agent.workdir == "/usr"

    asyncio.run(main())
