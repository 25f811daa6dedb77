"""Write what a version of Spindle keeps, for `test_upgrade`: `python -m tests.upgrade.write NAME [SOURCE]`.

SOURCE is the `src` of another version; without it this one writes. For each release: NAME is its number.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import agent_process
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply, think

HERE = Path(__file__).parent
HOME = "/home/me"
"""What stands in the files instead of the folder that they were written in."""
STEPS = [
    reply(think("I look first."), "I look.", call("bash", {"command": "echo rhododendron; ls"})),
    reply("Now I write.", call("write", {"path": "notes.txt", "content": "one\ntwo\n"})),
    reply(call("edit", {"path": "notes.txt", "oldText": "two", "newText": "three"})),
    reply("There are notes now."),
    reply("Another answer, on another branch."),
    reply("A summary of what was said."),
    reply("After the summary."),
]


def write(name: str, source: str | None) -> None:
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    agent_process.Popen = subprocess.Popen  # type: ignore[misc,assignment]  # the usual one imports modules of today
    env = {} if source is None else {"PYTHONPATH": source}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        with AgentProcess(STEPS, base=base, env=env, session=True) as agent:
            ask(agent, "Make notes, ünïcode too")
            first = agent.call("get_fork_messages")["data"]["messages"][0]["entryId"]
            agent.call("set_session_name", name="Notes")
            agent.call("bash", command="echo by the user")
            agent.call("fork", entryId=first)
            ask(agent, "Differently, please")
            agent.call("compact")
            ask(agent, "And now?")
        agent_dir = base / "agent"
        if subprocess.run(
            [sys.executable, "-m", "spindle", "tokens", "add", "anna", "--cost-per-day", "5"],
            env={**os.environ, **env, "SPINDLE_DIR": str(agent_dir)},
            capture_output=True,
        ).returncode:
            (agent_dir / "tokens.json").unlink(missing_ok=True)  # an old version has no users
        for file in sorted(agent_dir.rglob("*")):
            if file.suffix in (".jsonl", ".queue") or file.name == "tokens.json":
                place = target / file.relative_to(agent_dir).name
                place.parent.mkdir(parents=True, exist_ok=True)
                text = file.read_text().replace(f"{base}/work", f"{HOME}/project").replace(str(base), HOME)
                place.write_text(re.sub('--tmp-[^/"]*?-work--', "--home-me-project--", text))
    size = sum(file.stat().st_size for file in target.iterdir())
    print(json.dumps({"name": name, "files": sorted(file.name for file in target.iterdir()), "bytes": size}))


def ask(agent: AgentProcess, text: str) -> None:
    assert agent.call("prompt", message=text)["success"]
    agent.wait("agent_end")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
