"""Old results of tools are left out before anything is summarised: the real process, and what the model is sent."""

import json
import re

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
        assert notices == ["3 old results of tools left out to save room (about 4,797 tokens)"], notices
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


# -- a task, with a model that knows only what is in its request ---------------------------------

FILES = 40
WANTED = (0, 13, 27)


def code(number):
    return f"code of {number:02} is {number * 7919 % 10_000:04}"


def forgetful(request):
    """Read all files one by one; then write three codes, and read again what is not in the request any more."""
    text = "\n".join(str(message.get("content") or "") for message in request.body["messages"])
    used = (len(text) // 4, 20, 0)
    if "tools" not in request.body:  # a summary: only which files were read
        return reply(" ".join(sorted(set(re.findall(r"file\d\d", text)))), usage=used)
    calls = [call for message in request.body["messages"] for call in message.get("tool_calls") or ()]
    asked = [call["function"]["name"] for call in calls]
    known = set(re.findall(r"file\d\d", text + json.dumps(calls)))
    unread = [f"file{number:02}" for number in range(FILES) if f"file{number:02}" not in known]
    missing = [f"file{number:02}" for number in WANTED if code(number) not in text]
    if unread or missing:
        name = (unread or missing)[0]
        return reply(call("read", {"path": f"{name}.txt"}, id=f"{name}-{len(calls)}"), usage=used)
    if "write" not in asked:
        codes = "\n".join(code(number) for number in WANTED)
        return reply(call("write", {"path": "codes.txt", "content": codes}, id="w"), usage=used)
    return reply("done", usage=used)


def test_tokens_are_saved_and_the_task_is_not_lost():
    tokens, summaries = {}, {}
    for prune in (True, False):
        settings = {"compaction": {"reserveTokens": 5000, "keepRecentTokens": 8000, "prune": prune}}
        with Small([], settings=settings) as agent:
            agent.mock._next_step = forgetful
            for number in range(FILES):
                (agent.cwd / f"file{number:02}.txt").write_text("lorem ipsum\n" * 250 + code(number) + "\n" + "x\n" * 9)
            agent.run("Read all files, then write the codes into codes.txt")
            assert (agent.cwd / "codes.txt").read_text().splitlines() == [code(number) for number in WANTED]
            tokens[prune] = sum(forgetful(request).usage[0] for request in agent.mock.requests)
            summaries[prune] = sum(frame["type"] == "compaction_start" for frame in agent.frames)
    assert (summaries[True], tokens[True] < 0.8 * tokens[False]) == (0, True), (summaries, tokens)
