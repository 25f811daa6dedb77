"""`-p` on a terminal: the answer comes piece by piece, and looks as in the chat. A pipe gets what it always got."""

from collections.abc import Iterator

import pytest

from tests.apps.cli.conftest import Place
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, call, failure, gate, reply, think

from .terminal import Terminal


@pytest.fixture
def mock(place: Place) -> Iterator[MockModel]:
    with MockModel() as mock:
        write_models(place.agent, mock.openai_url)
        yield mock


def asked(place: Place, *arguments: str, **env: str) -> Terminal:
    arguments = ("--no-session", "--model", "mock/m1", *arguments, "-p", "go")
    return Terminal(arguments, env=place.environment(env), cwd=place.project)


def test_the_answer_comes_as_in_the_chat(place: Place, mock: MockModel) -> None:
    mock.script(
        reply(think("Look "), think("first."), "I *look*.", call("bash", {"command": "echo seen"})),
        reply("# Found\n\nA first", gate("second"), " part.\n\n- one", gate("end"), " thing\n\nThe \x1b[2Jend."),
    )
    with asked(place) as terminal:
        text = terminal.wait_for("# Found\nA first")  # before the paragraph has ended
        assert text.startswith("∴ Thought: Look first.\n\nI look.\n\n✓ bash echo seen · seen · ")
        mock.release("second")
        terminal.wait_for("A first part.\n", "one")
        mock.release("end")
        assert terminal.wait_exit() == 0
        assert terminal.text.endswith("\n# Found\n\nA first part.\n\n • one thing\n\nThe end.")
        assert terminal.text.count("A first") == 1 and "❯" not in terminal.text


def test_how_it_ended_is_told_once_and_on_stderr(place: Place, mock: MockModel) -> None:
    mock.script(failure(400, "no such thing"))
    with asked(place) as terminal:
        assert terminal.wait_exit() == 1
        assert terminal.text.count("no such thing") == 1
    script = f"{' '.join(place.command())} --no-session --model mock/m1 -p go 2>err"
    mock.script(reply("Half", gate("never")))
    with Terminal(["-c", script], env=place.environment(), cwd=place.project, program=["/bin/sh"]) as terminal:
        terminal.wait_for("Half")
        terminal.keys("\x03")
        terminal.wait_exit()
        assert terminal.text == "Half\n^C" or terminal.text.startswith("Half")
    assert "Stopped: nothing was kept" in (place.project / "err").read_text()
    mock.release("never")


def test_questions_stand_alone(place: Place, mock: MockModel) -> None:
    mock.script(reply(call("bash", {"command": "echo hi"})), reply("done"))
    with asked(place, "--permission-mode", "default") as terminal:
        terminal.wait_for("empty to cancel:")
        before = terminal.quiet(0.5)
        assert before.endswith("empty to cancel:")
        terminal.keys("1\r")
        assert terminal.wait_exit() == 0
        assert "✓ bash echo hi · hi · " in terminal.text and terminal.text.endswith("\n\ndone")


def test_a_warning_is_told_once(place: Place, mock: MockModel) -> None:
    mock.script(reply("done"))
    with asked(place, "--allow", "mcp__none") as terminal:
        assert terminal.wait_exit() == 0
        assert terminal.text.count("hold for no tool that there is: mcp__none") == 1
        assert "Traceback" not in terminal.text and terminal.text.endswith("done")


def test_a_dumb_terminal_gets_plain_text(place: Place, mock: MockModel) -> None:
    mock.script(reply("Some **bold** ", gate("go"), "text."))
    with asked(place, TERM="dumb") as terminal:
        terminal.wait_for("Some **bold**")
        mock.release("go")
        assert terminal.wait_exit() == 0
        assert b"\x1b" not in terminal.output and terminal.text.endswith("Some **bold** text.")


def test_programs_get_what_they_always_got(place: Place, mock: MockModel) -> None:
    mock.script(reply("I *look*.", call("bash", {"command": "echo seen"})), reply("# The **answer**"))
    done = place.run("--no-session", "--model", "mock/m1", "-p", "go")
    assert (done.stdout, done.stderr) == ("# The **answer**\n", "")
    mock.script(reply("x"))
    with asked(place, "--output", "json") as terminal:  # a form for programs, also on a terminal
        assert terminal.wait_exit() == 0
        assert '"status":"ok"' in terminal.text.replace("\n", "")
