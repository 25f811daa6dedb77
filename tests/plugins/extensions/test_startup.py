"""Extensions at the start of the process: found, trusted, refused, with options of their own."""

import json

from spindle.plugins.extensions.generation import NOT_YET
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import reply

from .helpers import command, start, write


def test_a_named_extension_that_does_not_load_ends_the_start(tmp_path):
    with start(tmp_path, "def extension(agent):\n    raise ValueError('no')") as agent:
        assert agent.process.wait(60) == 1
    path = tmp_path / "ext.py"
    assert (
        agent.stderr.decode().splitlines()[-1] == f'Error: Failed to load extension "{path}": ValueError: no (line 2)'
    )
    assert agent.frames == []


def test_a_found_extension_that_does_not_load_is_told_and_the_rest_works(tmp_path):
    folder = tmp_path / "agent" / "extensions"
    write(folder / "broken.py", "def extension(agent): oops")
    write(folder / "good.py", "def extension(agent):\n    agent.command('good')(print)")
    write(folder / "gate.ts", "export default function () {}")
    with AgentProcess([], base=tmp_path) as agent:
        error = agent.wait("extension_error")
        assert (error["extensionPath"], error["event"]) == (str(folder / "broken.py"), "load")
        (command,) = agent.data("get_commands")["commands"]
        assert (command["name"], command["location"], command["sourceInfo"]["source"]) == ("good", "user", "auto")
        agent.close_stdin()
    told = agent.stderr.decode()
    assert told.count("gate.ts") == 1 and "TypeScript" in told
    assert 'Failed to load extension "' in told


def test_extensions_are_loaded_in_order_and_only_from_trusted_projects(tmp_path):
    command = "def extension(agent):\n    agent.command({!r})(print)\n"
    named = write(tmp_path / "named.py", command.format("named"))
    write(tmp_path / "work" / ".pi" / "extensions" / "project.py", command.format("project"))
    write(tmp_path / "agent" / "own.py", command.format("settings"))
    write(tmp_path / "agent" / "extensions" / "user.py", command.format("user"))
    options = {"base": tmp_path, "settings": {"extensions": ["own.py"]}}

    def commands(*args):
        with AgentProcess([], args=["-e", str(named), *args], **options) as agent:
            return [item["name"] for item in agent.data("get_commands")["commands"]]

    assert commands() == ["named", "settings", "user"]
    assert commands("--approve") == ["named", "project", "settings", "user"]
    assert commands("--approve", "-ne") == ["named"]


def test_an_extension_of_the_user_may_decide_about_trust(tmp_path):
    write(
        tmp_path / "work" / ".pi" / "extensions" / "project.py", "def extension(agent):\n    agent.command('p')(print)"
    )
    source = f"""
def extension(agent):
    @agent.on("project_trust")
    def decide(event, ctx):
        agent.provider("late", base_url="http://127.0.0.1", headers={{}})
        try:
            ctx.session
        except RuntimeError as error:
            with open({str(tmp_path / "said")!r}, "w") as file:
                print(ctx.mode, ctx.has_ui, ctx.cwd.name, error, file=file, end="")
        return {{"trusted": "yes", "remember": True}}
"""
    write(tmp_path / "agent" / "extensions" / "truster.py", source)
    with AgentProcess([], base=tmp_path) as agent:
        assert [item["name"] for item in agent.data("get_commands")["commands"]] == ["p"]
    # There is no agent yet, only where it will be.
    assert (tmp_path / "said").read_text() == f"rpc False work {NOT_YET}"
    assert json.loads((tmp_path / "agent" / "trust.json").read_text()) == {str((tmp_path / "work").resolve()): True}


def test_flags_of_extensions_are_options_of_the_command_line(tmp_path):
    source = """
def extension(agent):
    agent.flag("shape", type=str, default="round")
    agent.command("show")(lambda args, ctx: ctx.ui.notify(str(agent.get_flag("shape"))))
"""
    with start(tmp_path, source, args=["--shape", "square"]) as agent:
        assert command(agent, "/show") == "square"
    with start(tmp_path, source, args=["--shapee", "square"]) as agent:
        assert agent.process.wait(60) == 2
    assert "Unknown option: --shapee" in agent.stderr.decode()


def test_resources_of_an_extension_can_be_used(tmp_path):
    write(tmp_path / "more" / "greet.md", "Say hello to $1")
    source = f"""
def extension(agent):
    agent.on("resources_discover", lambda event, ctx: {{"promptPaths": [{str(tmp_path / "more")!r}]}})
"""
    with start(tmp_path, source, [reply("hello")]) as agent:
        agent.run("/greet Ada")
        assert "Say hello to Ada" in json.dumps(agent.mock.requests[0].body)


def test_fifty_extensions(tmp_path):
    for number in range(50):
        write(
            tmp_path / "agent" / "extensions" / f"x{number:02}.py",
            f"def extension(agent):\n    agent.on('turn_start', lambda e, ctx: None)\n"
            f"    agent.command('c{number}')(print)\n",
        )
    with AgentProcess([reply("x")], base=tmp_path) as agent:
        assert len(agent.data("get_commands")["commands"]) == 50
        agent.run("go")
