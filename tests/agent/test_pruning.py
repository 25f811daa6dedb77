"""Old results of tools are left out before anything is summarised: the real process, and what the model is sent."""

from tests.support.agent_process import AgentProcess, write_models
from tests.support.mock_model import call, reply

LINE = "was left out to save room"


class Small(AgentProcess):
    """An agent whose model has room for 30,000 tokens."""

    def configure(self):
        write_models(self.agent_dir, self.mock.openai_url, contextWindow=30_000, maxTokens=1000)


def steps(count, used):
    """Answers with a command each, whose requests grow to `used` tokens."""
    commands = ["seq 1 1500"] * count
    commands[1] = "seq 1 1500; exit 3"
    return [
        reply(call("bash", {"command": command}, id=f"c{n}"), usage=(used * (n + 1) // count, 5, 0))
        for n, command in enumerate(commands)
    ]


SETTINGS = {"compaction": {"reserveTokens": 5000, "keepRecentTokens": 1000}}


def results(request):
    return [message["content"] for message in request.body["messages"] if message["role"] == "tool"]


def test_old_results_are_left_out_and_errors_and_new_ones_stay():
    with Small([*steps(10, 24_000), reply("done", usage=(9000, 5, 0))], settings=SETTINGS, session=True) as agent:
        agent.run("go")
        sent = results(agent.mock.requests[-1])
        assert [LINE in text for text in sent] == [n < 4 and n != 1 for n in range(10)]
        assert (
            sent[0]
            == "[The result of `bash seq 1 1500` (6.2KB) was left out to save room. Call it again if you need it.]"
        )
        notices = [frame["message"] for frame in agent.frames if frame["type"] == "notice"]
        assert notices == ["3 old results of tools left out to save room (about 4,821 tokens)"], notices
        assert not [frame for frame in agent.frames if frame["type"] == "compaction_start"]
        shown = [message for message in agent.data("get_messages")["messages"] if message["role"] == "toolResult"]
        assert all(LINE not in str(message) for message in shown), "the session keeps everything"
        file = agent.data("get_state")["sessionFile"]
        agent.close_stdin()
        with Small(
            [reply("again")], base=agent.base, args=["--session", file], settings=SETTINGS, session=True
        ) as later:
            later.run("and now?")
            assert [LINE in text for text in results(later.mock.requests[0])] == [n < 4 and n != 1 for n in range(10)]


def test_nothing_is_left_out_while_there_is_room_or_if_the_user_says_so():
    for used, prune in ((15_000, True), (24_000, False)):
        settings = {"compaction": SETTINGS["compaction"] | {"prune": prune}}
        with Small([*steps(10, used), reply("done")], settings=settings) as agent:
            agent.run("go")
            assert not any(LINE in text for text in results(agent.mock.requests[-1]))


def test_more_is_left_out_at_once_only_where_a_summary_would_come():
    """The room before a summary is 25,000 tokens."""
    for used, left_out in ((22_000, 3), (25_000, 13)):
        more = [
            reply(call("bash", {"command": "seq 1 1500"}, id=f"d{n}"), usage=(used * (n + 1) // 10, 5, 0))
            for n in range(10)
        ]
        with Small([*steps(10, 24_000), *more, reply("done")], settings=SETTINGS) as agent:
            agent.run("go")
            assert sum(LINE in text for text in results(agent.mock.requests[-1])) == left_out
            assert not [frame for frame in agent.frames if frame["type"] == "compaction_start"]
