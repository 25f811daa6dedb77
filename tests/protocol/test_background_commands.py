"""Commands in the background, as clients read and end them."""

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply


def test_a_client_reads_and_ends_a_command() -> None:
    work = call("bash", {"command": "echo one; sleep 0.2; echo zwei ü; sleep 60", "background": True})
    steps, args = [reply(work), reply("started"), reply("it has ended")], ["--tools", "bash,bash_output,bash_kill"]
    with AgentProcess(steps, args=args) as agent:
        agent.call("prompt", message="go")
        agent.wait("agent_settled")
        text, byte = "", 0
        while "zwei ü" not in text:
            data = agent.data("get_background_output", backgroundId="bg1", fromByte=byte)
            text, byte = text + data["output"], data["nextByte"]
            assert data["running"] is True and data["status"] == "bg1 is running"
        assert text == "one\nzwei ü\n" and byte == len(text.encode())
        assert "no background command bg7" in agent.call("get_background_output", backgroundId="bg7")["error"]
        assert "no background command bg7" in agent.call("kill_background", backgroundId="bg7")["error"]
        assert "fromByte" in agent.call("get_background_output", backgroundId="bg1", fromByte=-1)["error"]
        assert agent.call("kill_background", backgroundId="bg1")["success"]
        agent.wait("background_end")
        data = agent.data("get_background_output", backgroundId="bg1", fromByte=byte)
        assert data["running"] is False and data["output"] == "" and "was ended" in data["status"]
        agent.wait("agent_settled")  # the model is told, and still gets all of the output
        assert "zwei" in str(agent.mock.requests[-1].body)
