"""Sessions whose tools work at the far side of a pipe: what is read there, what stays here, what is remembered."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.agent.features.place import FarPlace
from spindle.shapes.approvals import PermissionRequest
from spindle.shapes.events import Notice
from spindle.shapes.messages import ToolResultMessage, text_of
from spindle.testing import Script

from ..support.nursery import run as run_program

FAR = "env -i PATH=/usr/bin:/bin HOME=/proc/nowhere"
"""A shell of this machine, with nothing of our environment."""
FAR_WITH_HOME = "env -i PATH=/usr/bin:/bin HOME={}"


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project at the far side, and an empty directory here."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    project = tmp_path / "there"
    (project / ".pi/skills/greet").mkdir(parents=True)
    (project / ".pi/settings.json").write_text('{"shellCommandPrefix": "echo settings of the far side"}')
    (project / ".pi/skills/greet/SKILL.md").write_text("---\nname: greet\ndescription: How to greet\n---\nSay hello.\n")
    (project / "AGENTS.md").write_text("Instructions from afar.")
    return project


def calls(*wanted: tuple[str, dict[str, Any]]) -> list[Any]:
    return [{"calls": [{"name": name, "arguments": arguments} for name, arguments in wanted]}, {"text": "Done."}]


async def results(steps: list[Any], there: Path, **options: Any) -> list[str]:
    script = Script(steps)
    given = {"cwd": there.parent / "here", "exec": FAR, "exec_cwd": str(there), "model": script.model(), **options}
    async with Agent.create(**given) as agent:
        await agent.run("Go.")
        return [text_of(m.content) for m in agent.session.messages if isinstance(m, ToolResultMessage)]


@in_a_loop
async def test_tools_work_there_and_keys_stay_here(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    steps = calls(
        ("bash", {"command": "pwd; env; cat /proc/$PPID/environ"}),
        ("write", {"path": "made/new.txt", "content": "made"}),
        ("bash", {"command": "echo ~"}),
    )
    bash, _, home = await results(steps, there, persist=False)
    assert bash.startswith(f"{there}\n") and "sk-secret" not in bash
    assert home == "/proc/nowhere\n"
    assert (there / "made/new.txt").read_text() == "made"


@in_a_loop
async def test_texts_of_the_project_are_read_there_and_its_settings_are_not(there: Path) -> None:
    script = Script([{"text": "Hello."}])
    options = {"cwd": there.parent / "here", "exec": FAR, "exec_cwd": str(there), "persist": False}
    async with Agent.create(**options, model=script.model()) as agent:
        await agent.run("/skill:greet you")
        prompt = agent.session.state().system_prompt
    assert f'path="{there}/AGENTS.md">\nInstructions from afar.' in prompt
    assert f"<location>{there}/.pi/skills/greet/SKILL.md</location>" in prompt
    assert f"Working directory: {there}\n" in prompt
    asked = text_of(script.requests[0].messages[-1].content)
    assert "Say hello." in asked and f"References are relative to {there}/.pi/skills/greet" in asked


@in_a_loop
async def test_a_session_goes_on_where_it_worked(there: Path) -> None:
    options = {"cwd": there.parent / "here", "exec": FAR, "exec_cwd": str(there)}
    async with Agent.create(**options, model=Script([{"text": "One."}, {"text": "Two."}]).model()) as agent:
        await agent.run("Go.")
        path = agent.session.session.path
        await agent.session.new_session()
        assert agent.session.workdir == str(there)
        await agent.run("Go.")
        second = agent.session.session.path
    assert path is not None and second is not None and second != path
    for file in (path, second):
        async with Agent.open(file, model=Script(["Yes."]).model()) as agent:
            assert agent.session.state().exec is not None
            assert (await agent.session.shell.run("pwd")).output == f"{there}\n"
    async with Agent.open(path, model=Script(["Yes."]).model(), exec="") as agent:
        assert agent.session.workdir == str(there.parent / "here")


@in_a_loop
async def test_a_command_of_a_strangers_session_is_not_run(there: Path) -> None:
    options = {"cwd": there.parent / "here", "exec": FAR, "exec_cwd": str(there)}
    async with Agent.create(**options, model=Script([{"text": "One."}]).model()) as agent:
        await agent.run("Go.")
        path = agent.session.session.path
    assert path is not None
    ran = there.parent / "ran"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("customType") == FarPlace.entry_type:
            line["data"]["command"] = f"touch {ran}"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(AgentError, match="never used here"):
        await Agent.open(path, model=Script(["Yes."]).model())
    assert not ran.exists()


@in_a_loop
async def test_a_question_says_that_a_change_would_be_there(there: Path) -> None:
    (there / "a").write_text("one\n")
    edits = [{"oldText": "one", "newText": "two"}, {"oldText": "no", "newText": "yes"}]
    steps = calls(
        ("edit", {"path": "a", "edits": edits[:1]}),
        ("edit", {"path": "a", "edits": edits[1:]}),
        ("bash", {"command": "make"}),
    )
    said: list[str] = []

    def ask(request: PermissionRequest) -> bool:
        said.append(request.summary)
        return False

    await results(steps, there, can_use_tool=ask, permission_mode="default", persist=False)
    assert said == [
        f"Change a (+1 −1), at the far side of {FAR}",
        f"Edit a, which would fail, at the far side of {FAR}",
        f"Run a command at the far side of {FAR}",
    ]


@in_a_loop
async def test_there_is_no_sandbox_elsewhere(there: Path) -> None:
    with pytest.raises(AgentError, match="fences programs of this machine"):
        await results(calls(), there, sandbox="read-only", persist=False)


async def session_there(there: Path) -> str:
    """Return the file of a session that worked at the far side."""
    options = {"cwd": there.parent / "here", "exec": FAR, "exec_cwd": str(there)}
    async with Agent.create(**options, model=Script(["One."]).model()) as agent:
        await agent.run("Go.")
        return str(agent.session.session.path)


@in_a_loop
async def test_a_session_in_a_sandbox_is_not_left_for_one_elsewhere(there: Path) -> None:
    file = await session_there(there)
    script = Script(calls(("bash", {"command": "pwd"})))
    async with Agent.create(cwd=there.parent / "here", sandbox="read-only", model=script.model()) as agent:
        with pytest.raises(AgentError, match="fences programs of this machine"):
            await agent.session.switch_session(file)
        assert agent.session.state().sandbox.level == "read-only"
        await agent.run("Go.")
        assert text_of(agent.session.messages[-2].content) == f"{there.parent / 'here'}\n"


@in_a_loop
async def test_rules_hold_for_the_files_that_links_there_lead_to(there: Path) -> None:
    (there / "secret.txt").write_text("hidden")
    (there / "link").symlink_to("secret.txt")
    steps = calls(("read", {"path": "link"}), ("bash", {"command": "cat link"}), ("read", {"path": "AGENTS.md"}))
    denied = [f"Read(/{there}/secret.txt)"]
    link, cat, other = await results(steps, there, deny=denied, permission_mode="dontAsk", persist=False)
    assert "hidden" not in link + cat
    assert other == "Instructions from afar."


@in_a_loop
async def test_a_background_command_runs_there(there: Path) -> None:
    steps = calls(("bash", {"command": "echo begun; exec sleep 600", "background": True}))
    steps[1:1] = [{"calls": [{"name": "bash_kill", "arguments": {"id": "bg1"}}]}]
    tools = ["bash", "bash_output", "bash_kill"]
    begun, ended = await results(steps, there, tools=tools, persist=False)
    assert begun.startswith("begun\n\n[bg1 is running. Its output: /")
    assert "was ended" in ended


@in_a_loop
async def test_a_command_that_leads_nowhere_is_an_error_at_the_start(there: Path) -> None:
    with pytest.raises(AgentError, match="Cannot run `no-such-program`"):
        await results(calls(), there, exec="no-such-program -i", persist=False)
    with pytest.raises(AgentError, match="ended with exit code 255: no route"):
        await results(calls(), there, exec="sh -c 'echo no route >&2; exit 255'", persist=False)
    assert os.listdir(there.parent / "here") == []


@in_a_loop
async def test_checkpoints_are_taken_and_put_back_there(there: Path) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q"], cwd=there, check=True)
    (there / ".gitignore").write_text("ignored\n")
    (there / "kept.sh").write_text("old\n")
    (there / "kept.sh").chmod(0o750)
    (there / "empty").mkdir()
    (there / "ignored").write_text("before")
    command = "echo new > kept.sh; rm AGENTS.md; rmdir empty; mkdir -p a/b; echo x > a/b/c; chmod 644 kept.sh"
    script = Script(calls(("bash", {"command": command}), ("write", {"path": "ignored", "content": "after"})))
    options = {"cwd": there.parent / "here", "exec": FAR_WITH_HOME.format(there.parent), "exec_cwd": str(there)}
    async with Agent.create(**options, model=script.model()) as agent:
        await agent.run("Go.")
        changes = await agent.changes()
        assert {(one.path, one.status) for one in changes.files} >= {("kept.sh", "modified"), ("a/b/c", "added")}
        assert "+++ b/ignored\n" in next(one.diff or "" for one in changes.files if one.path == "ignored")
        [checkpoint] = (await agent.checkpoints()).checkpoints
        await agent.restore(checkpoint.id)
    assert (there / "kept.sh").read_text() == "old\n" and (there / "kept.sh").stat().st_mode & 0o777 == 0o750
    assert (there / "AGENTS.md").exists() and (there / "empty").is_dir() and not (there / "a").exists()
    assert (there / "ignored").read_text() == "before"
    assert not (there.parent / "here/.git").exists()


@in_a_loop
async def test_a_pipe_that_git_would_wait_for_there_holds_no_run(there: Path) -> None:
    os.mkfifo(there / ".gitattributes")
    told: list[str] = []
    script = Script(calls(("bash", {"command": "echo 1 > made"})))
    options = {"cwd": there.parent / "here", "exec": FAR_WITH_HOME.format(there.parent), "exec_cwd": str(there)}
    async with Agent.create(**options, model=script.model(), persist=False) as agent, asyncio.timeout(30):
        async for event in agent.prompt("Go."):
            told += [event.message] if isinstance(event, Notice) else []
    assert told == ["No checkpoint of the files: .gitattributes is a pipe, and git would wait for it"]
    assert (there / "made").exists()


@in_a_loop
async def test_rules_hold_for_paths_that_go_up_behind_a_link_there(there: Path) -> None:
    (there.parent / "kept/inner").mkdir(parents=True)
    (there.parent / "kept/secret.txt").write_text("hidden")
    (there / "link").symlink_to(there.parent / "kept/inner")
    steps = calls(("bash", {"command": "cat link/../secret.txt"}))
    [cat] = await results(steps, there, deny=[f"Read(/{there.parent}/kept/**)"], persist=False)
    assert "is refused by rule" in cat


@in_a_loop
async def test_home_in_rules_is_the_home_there(there: Path) -> None:
    home = there.parent / "far-home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("hidden")
    (home / "plain").write_text("hidden no more")
    steps = calls(
        ("bash", {"command": "cat ~/.ssh/id"}),
        ("bash", {"command": 'cat "$HOME"/.ssh/id'}),
        ("read", {"path": "~/.ssh/id"}),
        ("grep", {"pattern": "hidden", "path": "~"}),
    )
    options = {"exec": FAR_WITH_HOME.format(home), "tools": ["bash", "read", "grep"], "persist": False}
    *others, grep = await results(steps, there, deny=["Read(~/.ssh/**)"], **options)
    assert all("is refused by rule Read(~/.ssh/**)" in one for one in others), others
    assert grep == "plain:1: hidden no more"


@in_a_loop
async def test_git_in_a_folder_there_is_asked_about(there: Path) -> None:
    (there / "inner").mkdir()
    steps = calls(("bash", {"command": "cd inner && git status"}), ("bash", {"command": "git status"}))
    options = {"permission_mode": "dontAsk", "allow": ["Bash(git status)"], "persist": False}
    inner, own = await results(steps, there, **options)
    assert "git would obey the settings of another repository" in inner and "not a git repository" in own


@in_a_loop
async def test_an_agent_that_was_told_where_to_work_does_so_in_all_sessions(there: Path) -> None:
    here = there.parent / "here"
    async with Agent.create(cwd=here, model=Script(["One."]).model()) as agent:
        await agent.run("Here.")
        path = agent.session.session.path
    async with Agent.create(cwd=here, exec=FAR, exec_cwd=str(there), model=Script(["Two."]).model()) as agent:
        await agent.session.switch_session(str(path))
        assert (await agent.session.shell.run("pwd")).output == f"{there}\n"


@pytest.fixture
def other_paths(there: Path) -> str:
    """Return a command that leads to the project below a name that is nothing here: /mnt."""
    lead = f"unshare -rm sh -c 'mount --bind {there} /mnt && cd /mnt && exec env \"$@\"' lead"
    if subprocess.run([*shlex.split(lead), "true"], capture_output=True).returncode:
        pytest.skip("no mounts of our own here")
    return lead


@in_a_loop
async def test_a_check_after_an_edit_tells_only_what_is_new_there(there: Path, other_paths: str) -> None:
    (there.parent / "home").mkdir()
    check = "sh -c 'grep -n TODO $1; ! grep -q TODO $1' check {file}"
    (there.parent / "home/settings.json").write_text(json.dumps({"checksAfterEdit": {"*.py": check}}))
    (there / "a.py").write_text("TODO old\nx\n")
    edit = ("edit", {"path": "/mnt/a.py", "edits": [{"oldText": "x", "newText": "TODO new"}]})
    write = ("write", {"path": "b.py", "content": "TODO\n"})
    said, new = await results(calls(edit, write), there, exec=other_paths, exec_cwd="/mnt", persist=False)
    assert said.endswith("a.py`:]\n2:TODO new") and new.endswith("b.py`:]\n1:TODO")


@in_a_loop
async def test_patterns_of_a_definition_hold_for_links_there(there: Path, other_paths: str) -> None:
    (there / "secret.txt").write_text("hidden")
    (there / "link").symlink_to("secret.txt")
    (there.parent / "home/agents").mkdir(parents=True)
    reader = "---\nname: reader\ntools: Read\ndisallowedTools: Read(//mnt/secret.txt)\n---\nRead.\n"
    (there.parent / "home/agents/reader.md").write_text(reader)
    steps = [
        {"calls": [{"name": "task", "arguments": {"prompt": "Read it.", "agent": "reader"}}]},
        {"calls": [{"name": "read", "arguments": {"path": "/mnt/link"}}]},
        {"text": "Read."},
        {"text": "Done."},
    ]
    script = Script(steps)
    options = {"cwd": there.parent / "here", "exec": other_paths, "exec_cwd": "/mnt", "tools": ["read", "task"]}
    async with Agent.create(**options, model=script.model(), persist=False) as agent:
        await agent.run("Go.")
    asked = "".join(text_of(m.content) for one in script.requests for m in one.messages)
    assert "hidden" not in asked and "does not allow this call" in asked


@in_a_loop
async def test_a_question_shows_the_change_of_a_file_there(there: Path) -> None:
    (there / "f").write_text("one\ntwo\n")
    edit = {"path": "f", "edits": [{"oldText": "two", "newText": "zwei"}]}
    seen = []
    steps = calls(("edit", edit), ("write", {"path": "f", "content": "one\n"}), ("bash", {"command": "ls"}))
    await results(steps, there, can_use_tool=lambda request: bool(seen.append(request.preview)))
    assert "-two\n+zwei\n" in seen[0].patch and "-two\n" in seen[1].patch and seen[1].removed == 1
    assert seen[2].where == FAR and seen[2].directory == str(there)
    assert (there / "f").read_text() == "one\ntwo\n"


@in_a_loop
async def test_a_folder_whose_name_is_no_text(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name goes into the files that remember places: the command, and trust."""
    odd = Path(os.fsdecode(os.fsencode(there) + b"/caf\xe9"))
    odd.mkdir()
    (odd / "x").write_text("in there")
    far = f"env -C {shlex.quote(str(odd))} {FAR.removeprefix('env ')}"
    given = {"cwd": there.parent / "here", "exec": far, "tools": ["bash"]}
    script = Script(calls(("bash", {"command": "cat x"})))
    async with Agent.create(model=script.model(), **given) as agent:
        await agent.run("Go.")
        id = agent.id
    async with Agent.open(id, model=Script(["Again."]).model()) as agent:
        assert await agent.ask("Go on.") == "Again."
        assert any("in there" in text_of(m.content) for m in agent.messages if isinstance(m, ToolResultMessage))
    for _ in range(2):
        trust(odd)
    assert list(json.loads((there.parent / "home/trust.json").read_text())) == [str(odd)]


def trust(folder: Path) -> None:
    command = [sys.executable, "-m", "spindle", "trust", str(folder)]
    done = run_program(command, capture_output=True)
    assert done.returncode == 0, done.stderr
