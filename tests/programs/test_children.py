"""No process outlives the agent or a stopped command, and none gets our secrets: looked up in the process table."""

import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spindle.programs.supervisor import __file__ as supervisor_file
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervisors are for Linux")

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
with open(sys.argv[1] + ".new", "w") as file: file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
TELL = 'tell() { echo "$2" > "$1.new"; mv "$1.new" "$1"; }\n'
KINDS = {
    "background": "sleep 600 & tell background $!",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & tell nohup $!",
    "setsid": "setsid sh -c 'echo $$ > setsid.new; mv setsid.new setsid; exec sleep 600' >/dev/null 2>&1 &",
    "stubborn": "sh -c 'trap \"\" TERM; echo $$ > stubborn.new; mv stubborn.new stubborn; while :; do sleep 9; done' &",
    "daemon": f"env -i {sys.executable} ../daemon.py daemon",
    "orphan": "(setsid sh -c 'sleep 600 & echo $! > orphan.new; mv orphan.new orphan' &)",
}  # fmt: skip
PLAIN = "tell plain $$; sleep 600; true"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Started:
    """An agent whose model has asked for a command that starts one process of each kind."""

    def __init__(self, base: Path, *, ends: bool, timeout: float | None = None, **options: object) -> None:
        (base / "daemon.py").write_text(DAEMON)
        self.names = [*KINDS] if ends else [*KINDS, "plain"]
        command = TELL + "\n".join([*KINDS.values(), *([] if ends else [PLAIN])])
        arguments = {"command": command} | ({"timeout": timeout} if timeout else {})
        self.agent = AgentProcess([reply(call("bash", arguments)), reply("ok")], base=base, **options)  # type: ignore[arg-type]
        self.agent.call("prompt", message="go")
        files = [self.agent.cwd / name for name in self.names]
        assert wait_until(lambda: all(file.exists() for file in files)), [f.name for f in files if not f.exists()]
        self.pids = {file.name: int(file.read_text()) for file in files}

    def living(self) -> list[str]:
        return [name for name, pid in self.pids.items() if alive(pid)]

    def none_lives(self) -> bool:
        return wait_until(lambda: not self.living())

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.agent.__exit__(None, None, None)
        for name in self.living():
            with suppress(ProcessLookupError):  # it was about to end
                os.kill(self.pids[name], signal.SIGKILL)


ENDINGS: dict[str, Callable[[AgentProcess], object]] = {
    "kill -9": lambda agent: agent.kill(signal.SIGKILL),
    "SIGTERM": lambda agent: agent.kill(signal.SIGTERM),
    "SIGINT": lambda agent: agent.kill(signal.SIGINT),
    "end of input": lambda agent: agent.close_stdin(),
    "shutdown": lambda agent: (agent.call("shutdown"), agent.process.wait(20)),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ends", [False, True], ids=["while the command runs", "after the command"])
def test_nothing_outlives_the_agent(tmp_path: Path, ending: str, ends: bool) -> None:
    with Started(tmp_path, ends=ends) as started:
        if ends:
            started.agent.wait("agent_settled")
        assert started.living() == started.names, "they may live while the agent does"
        ENDINGS[ending](started.agent)
        assert started.none_lives(), started.living()


@pytest.mark.parametrize("ending", ["abort", "time-out"])
def test_nothing_outlives_a_stopped_command(tmp_path: Path, ending: str) -> None:
    with Started(tmp_path, ends=False, timeout=4 if ending == "time-out" else None) as started:
        if ending == "abort":
            assert started.living() == started.names
            assert started.agent.call("abort")["success"]
        started.agent.wait("agent_settled")
        assert not started.living()
        assert started.agent.call("get_state")["success"]


def test_stopping_one_command_leaves_what_another_has_started(tmp_path: Path) -> None:
    with Started(tmp_path, ends=True) as started:
        started.agent.wait("agent_settled")
        id = started.agent.send("bash", command="setsid sleep 600 & echo $!; sleep 600")
        started.agent.wait("bash_execution_update")
        started.agent.call("abort_bash")
        other = started.agent.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == id)
        assert not alive(int(other["data"]["output"]))
        assert started.living() == started.names


@pytest.mark.parametrize("ending", ["kill -9", "end of input"])
def test_what_is_to_stay_has_to_be_asked_for(tmp_path: Path, ending: str) -> None:
    with Started(tmp_path, ends=True, settings={"keepBackgroundProcesses": True}) as started:
        started.agent.wait("agent_settled")
        ENDINGS[ending](started.agent)
        time.sleep(0.3)  # nothing tells us that it does not happen
        assert started.living() == started.names


def test_a_command_that_kills_its_supervisor_gains_nothing(tmp_path: Path) -> None:
    command = "sleep 600 & echo $! > pid.new; mv pid.new pid; kill -9 $PPID; sleep 600"
    with AgentProcess([reply(call("bash", {"command": command})), reply("ok")], base=tmp_path) as agent:
        agent.run("go")
        assert wait_until(lambda: not alive(int((agent.cwd / "pid").read_text())))
        assert agent.data("bash", command="echo on")["output"] == "on\n"


def test_commands_go_on_when_the_supervisor_was_killed(tmp_path: Path) -> None:
    # The parent of a command's own supervisor is the one that forks them.
    command = "kill -9 $(awk '/PPid/ {print $2}' /proc/$PPID/status); echo killed"
    with AgentProcess(base=tmp_path) as agent:
        assert agent.data("bash", command=command)["output"] == "killed\n"
        for _ in range(3):
            assert agent.data("bash", command="echo on")["output"] == "on\n"


EXTENSION = """
import asyncio
def extension(agent):
    @agent.on("session_start")
    async def begin(event, ctx):
        asyncio.ensure_future(agent.exec(["sh", "-c", "setsid sleep 600 & echo $! > exec.new; mv exec.new exec; wait"]))
"""


@pytest.mark.parametrize("ending", ["kill -9", "end of input"])
def test_programs_of_extensions_and_commands_of_the_user(tmp_path: Path, ending: str) -> None:
    (tmp_path / "ext.py").write_text(EXTENSION)
    with AgentProcess(base=tmp_path, args=["-e", str(tmp_path / "ext.py")]) as agent:
        agent.send("bash", command="setsid sh -c 'echo $$ > user.new; mv user.new user; exec sleep 600' & wait")
        files = [agent.cwd / "exec", agent.cwd / "user"]
        assert wait_until(lambda: all(file.exists() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(map(alive, pids))
        ENDINGS[ending](agent)
        assert wait_until(lambda: not any(map(alive, pids)))


def test_commands_for_keys(tmp_path: Path) -> None:
    command = (
        f"!cd {tmp_path} && setsid sleep 600 & echo $! > {tmp_path}/key.new; mv {tmp_path}/key.new {tmp_path}/key; wait"
    )
    with AgentProcess(base=tmp_path, model=None) as agent:
        models = agent.agent_dir / "models.json"
        models.write_text(models.read_text().replace('"test-key"', __import__("json").dumps(command)))
        agent.call("reload")
        agent.call("set_model", provider="mock", modelId="m1")
        agent.send("prompt", message="go")
        assert wait_until((tmp_path / "key").exists)
        pid = int((tmp_path / "key").read_text())
        assert alive(pid)
        agent.kill()
        assert wait_until(lambda: not alive(pid))


IN_PROCESS = """
import asyncio, os, sys
from spindle import Agent
async def main():
    agents = [await Agent.create(model="scripted/" + sys.argv[1], persist=False) for _ in range(2)]
    pids = []
    for agent in agents:
        result = await agent.session.shell.run("setsid sleep 600 >/dev/null 2>&1 & echo $!")
        pids.append(int(result.output))
    print(*pids, flush=True)
    await agents[0].close()
    sys.stdin.readline()
asyncio.run(main())
"""


def test_an_agent_in_a_program_ends_what_it_started_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('["hi"]')
    env = {**os.environ, "SPINDLE_DIR": str(tmp_path / "agent")}
    argv = [sys.executable, "-c", IN_PROCESS, str(tmp_path / "script.json")]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        first, second = map(int, program.stdout.readline().split())
        assert wait_until(lambda: not alive(first))
        assert alive(second)
        program.kill()
    assert wait_until(lambda: not alive(second))


# -- supervisors that serve again ----------------------------------------------------------------


def supervisor_of_next(agent: AgentProcess) -> int:
    """Return the supervisor that the next command gets, too."""
    return int(agent.data("bash", command="echo $PPID")["output"])


def supervisors(agent: AgentProcess) -> list[int]:
    """Return the supervisors of an agent; the first one only forks."""
    below = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    (first,) = [int(pid) for pid in below if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


def test_a_command_does_not_begin_after_the_agent_was_killed(tmp_path: Path) -> None:
    """The agent's part is played here: it asks for a command, and is gone before the supervisor has looked."""
    agent, supervisor = socket.socketpair()
    control, of_fork = socket.socketpair()
    output, written = os.pipe()
    words = [b"sh", b"-c", b"touch late"]
    request = marshal.dumps((b"/bin/sh", words, os.fsencode(tmp_path), {}, False, False))
    socket.send_fds(agent, [b"F"], [of_fork.fileno()])
    socket.send_fds(control, [b"R" + len(request).to_bytes(4, "little") + request], [0, written, written])
    for end in (agent, control, of_fork):
        end.close()
    subprocess.run([sys.executable, "-I", "-S", supervisor_file], stdin=supervisor.fileno(), check=True, timeout=20)
    os.close(written)
    assert os.read(output, 1) == b""  # its fork has ended, too
    os.close(output)
    assert list(tmp_path.iterdir()) == []


def test_one_supervisor_serves_one_command_after_another(tmp_path: Path) -> None:
    steps = [reply(call("bash", {"command": "echo $PPID > tool"})), reply("ok")]
    with AgentProcess(steps, base=tmp_path, settings={"checkpoints": False}) as agent:  # they run git, twice at a time
        one = supervisor_of_next(agent)
        agent.run("go")
        assert int((agent.cwd / "tool").read_text()) == one
        failed = agent.data("bash", command="cd /; exit 3; echo $PPID")
        assert failed["exitCode"] == 3
        assert agent.data("bash", command="echo $PPID; pwd")["output"] == f"{one}\n{agent.cwd}\n"
        assert len(supervisors(agent)) == 2


def test_a_supervisor_whose_command_left_something_or_was_stopped_serves_no_more(tmp_path: Path) -> None:
    with AgentProcess(base=tmp_path) as agent:
        left = agent.data("bash", command="sleep 600 >/dev/null 2>&1 & echo $PPID $!")["output"]
        first, sleeper = map(int, left.split())
        id = agent.send("bash", command="echo $PPID > pid.new; mv pid.new pid; sleep 600")
        assert wait_until((agent.cwd / "pid").exists)
        agent.call("abort_bash")
        agent.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == id)
        second = int((agent.cwd / "pid").read_text())
        assert len({first, second, supervisor_of_next(agent)}) == 3
        assert wait_until(lambda: not alive(second))
        os.kill(sleeper, signal.SIGKILL)
        assert wait_until(lambda: not alive(first))


def test_few_supervisors_stay_after_many_commands_at_once(tmp_path: Path) -> None:
    commands = [
        call("bash", {"command": f"touch {n}; while [ ! -e go ]; do sleep 0.05; done"}, id=f"c{n}") for n in range(20)
    ]
    with AgentProcess([reply(*commands), reply("ok")], base=tmp_path) as agent:
        agent.call("prompt", message="go")
        assert wait_until(lambda: (agent.cwd / "19").exists() and len(supervisors(agent)) == 21)
        (agent.cwd / "go").touch()
        agent.wait("agent_settled")
        assert wait_until(lambda: len(supervisors(agent)) == 5)
        last = supervisors(agent)
        agent.kill()
        assert wait_until(lambda: not any(map(alive, last)))


def test_supervisors_that_are_killed_while_they_wait_are_not_missed(tmp_path: Path) -> None:
    steps = [reply(*(call("bash", {"command": "sleep 0.3"}, id=f"c{n}") for n in range(3))), reply("ok")]
    with AgentProcess(steps, base=tmp_path) as agent:
        sleeper = int(agent.data("bash", command="sleep 600 >/dev/null 2>&1 & echo $!")["output"])
        agent.run("go")
        first, *idle = supervisors(agent)
        for pid in idle:
            if sleeper not in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
                os.kill(pid, signal.SIGKILL)
        assert supervisor_of_next(agent) not in idle
        assert supervisors(agent)[0] == first
        assert alive(sleeper), "what other commands have started goes on"


# -- secrets -------------------------------------------------------------------------------------

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-secret",
    "OPENAI_API_KEY": "sk-secret",
    "HF_TOKEN": "hf-secret",
    "SPINDLE_REMOTE_TOKEN": "remote-secret",
    "MY_COMPANY_KEY": "company-secret",
}
SHARED = {"AWS_SECRET_ACCESS_KEY": "aws", "GH_TOKEN": "gh", "GITHUB_TOKEN": "github", "GOOGLE_API_KEY": "google"}
ENV_EXTENSION = """
def extension(agent):
    @agent.command("env")
    async def env(args, ctx):
        done = await agent.exec(["env"])
        open("exec.env", "w").write(done.stdout)
"""


def variables(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.splitlines()}


def test_keys_are_not_handed_to_tools_and_extensions_programs(tmp_path: Path) -> None:
    (tmp_path / "ext.py").write_text(ENV_EXTENSION)
    steps = [reply(call("bash", {"command": "env > tool.env"})), reply("ok")]
    settings = {"keepVariables": ["HF_TOKEN"]}
    args = ["-e", str(tmp_path / "ext.py")]
    env = {**SECRETS, **SHARED, "ORDINARY": "1"}
    with AgentProcess(steps, base=tmp_path, settings=settings, args=args, env=env) as agent:
        models = agent.agent_dir / "models.json"
        models.write_text(models.read_text().replace('"test-key"', '"$MY_COMPANY_KEY"'))
        agent.run("go")
        agent.call("prompt", message="/env")
        assert wait_until((agent.cwd / "exec.env").exists)
        for name in ("tool.env", "exec.env"):
            found = variables((agent.cwd / name).read_text())
            assert found & SECRETS.keys() == {"HF_TOKEN"}, name
            assert found >= {"ORDINARY", "PATH", *SHARED}
        own = variables(agent.data("bash", command="env")["output"])
        assert own >= SECRETS.keys(), "the user's own commands keep everything"


def test_the_password_of_an_address_is_not_shown(tmp_path: Path) -> None:
    with AgentProcess(base=tmp_path, model=None, settings={"retry": {"enabled": False}}) as agent:
        models = agent.agent_dir / "models.json"
        url = "http://me:hunter2@127.0.0.1:9/v1"
        models.write_text(models.read_text().replace(agent.mock.openai_url, url))
        agent.call("get_available_models")
        agent.call("set_model", provider="mock", modelId="m1")
        agent.call("cycle_model")
        assert agent.data("get_state")["model"]["baseUrl"] == "http://me:***@127.0.0.1:9/v1"
        agent.run("hi")
        assert b"hunter2" not in b"".join(agent.lines)
