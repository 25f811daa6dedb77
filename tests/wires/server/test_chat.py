"""The remote protocol with a real WebSocket client: the transcripts, the state machine, hostile frames."""

import json
import socket
import time

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.agent_process import write_models
from tests.support.images import PIXEL
from tests.support.mock_model import call, cut, dropped, failure, gate, reply, silent, stall

from .server import TOKEN, ServerProcess

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
ASK = {"ask_before_tool_execution": True}


def envelope(id, response, error=None, usage=None):
    return {"request_id": id, "response": response, "error": error, "token_usage": usage}


def kinds(frames):
    return [next(iter(frame["response"])) for frame in frames]


def test_a_plain_request_is_one_frame_with_usage():
    with ServerProcess([reply("Hello!")]) as server, server.chat() as client:
        assert client.ask("chat_001", {"Text": "hi"}) == envelope("chat_001", {"Text": "Hello!"}, usage=USAGE)
        assert client.ask("two", {"Text": "again"}, stream=False)["response"] == {"Text": "Hello!"}
        sent = [m["role"] for m in server.mock.requests[1].body["messages"]]
        assert sent.count("user") == 2, "the connection remembers"


@pytest.mark.parametrize("key", ["stream", ""])
def test_a_streamed_answer(key):
    with ServerProcess([reply("one ", gate("go"), "two")]) as server, server.chat() as client:
        client.send("s1", {"Text": "count"}, **{key: True}, use_tools=False)
        assert client.read() == envelope("s1", {"Stream": "one "})
        server.mock.release("go")
        assert client.read() == envelope("s1", {"Stream": "two"})
        assert client.read() == envelope("s1", {"Complete": {"token_usage": USAGE, "interrupted": False}})
        assert not server.mock.requests[0].body.get("tools")


def test_a_tool_is_approved():
    steps = [reply(call("bash", {"command": "echo a.txt"})), reply("There is a.txt")]
    with ServerProcess(steps) as server, server.chat() as client:
        asked = client.ask("t1", {"Text": "list"}, config=ASK, stream=True)
        assert asked["request_id"] == "t1"
        question = asked["response"]["ToolConfirmationRequest"]
        assert (
            question["name"] == "bash"
            and question["arguments"] == {"command": "echo a.txt"}
            and question["description"].startswith(f"Run a command in {server.cwd}\necho a.txt")
        )
        assert client.ask("x", {"Text": "now"})["error"] == "Waiting for tool confirmation"
        wrong = {"name": "read", "arguments": {}, "approved": True}
        assert "Tool name mismatch" in client.ask("c0", {"ToolConfirmationResponse": wrong})["error"]
        client.send("c1", {"ToolConfirmationResponse": {**wrong, "name": "bash"}})
        frames = client.until_terminal()
        assert kinds(frames) == ["ToolCall", "ToolResult", "Stream", "Complete"]
        assert {frame["request_id"] for frame in frames} == {"t1"}
        assert frames[1]["response"]["ToolResult"]["result"] == {"content": "a.txt\n", "is_error": False}


def test_a_tool_is_denied():
    steps = [
        reply(call("bash", {"command": "touch made"}), call("bash", {"command": "touch too"}, id="c2")),
        reply("ok"),
    ]
    with ServerProcess(steps) as server, server.chat() as client:
        client.ask("t2", {"Text": "go"}, config=ASK)
        answer = {"name": "bash", "arguments": {}, "approved": False, "reason": "no"}
        denied = client.ask("c2", {"ToolConfirmationResponse": answer})
        assert denied == envelope("t2", {"Text": "Tool 'bash' execution was not approved by user"})
        again = client.ask("c3", {"ToolConfirmationResponse": answer})
        assert again == envelope("c3", {"Text": ""}, error="No pending tool confirmation found")
        assert not (server.cwd / "made").exists() and not (server.cwd / "too").exists()
        assert client.ask("t3", {"Text": "and now?"}, config={"ask_before_tool_execution": False})["response"] == {
            "Text": "ok"
        }
        results = [m for m in server.mock.requests[1].body["messages"] if m["role"] == "tool"]
        assert len(results) == 2 and "not approved" in results[0]["content"]


def test_the_turn_limit_is_confirmed_and_refused():
    with ServerProcess([reply("r")]) as server, server.chat() as client:
        assert client.ask("a", {"Text": "1"}, config={"max_context_num": 1})["response"] == {"Text": "r"}
        asked = client.ask("chat_123", {"Text": "2"}, stream=True)["response"]["TurnConfirmationRequest"]
        assert (asked["current_turns"], asked["max_turns"]) == (1, 1) and "(1 轮)" in asked["reason"]
        client.send("confirm_456", {"TurnConfirmationResponse": {"confirmed": True}})
        frames = client.until_terminal()
        assert kinds(frames) == ["Stream", "Complete"] and {f["request_id"] for f in frames} == {"chat_123"}
        client.ask("chat_124", {"Text": "3"})
        refused = client.ask("confirm_457", {"TurnConfirmationResponse": {"confirmed": False}})
        assert refused == envelope("chat_124", {"Text": "对话已结束，未重置轮次。"})
        nothing = client.ask("x", {"TurnConfirmationResponse": {"confirmed": True}})
        assert nothing == envelope("x", {"Text": ""}, error="不在等待对话轮次确认状态")


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_was_confirmed_goes_on_as_a_stream(stream):
    """As the document shows it. A request that is no stream gets its answer in one piece."""
    steps = [reply("r"), reply("one ", gate("go"), "two"), reply("r"), failure(400, "bad thing")]
    with ServerProcess(steps) as server, server.chat() as client:
        server.mock.release("go")
        client.ask("a", {"Text": "1"}, config={"max_context_num": 1})
        client.ask("b", {"Text": "2"}, stream=stream)
        client.send("c", {"TurnConfirmationResponse": {"confirmed": True}}, stream=not stream)
        frames = client.until_complete()
        assert {frame["request_id"] for frame in frames} == {"b"}
        assert "".join(frame["response"].get("Stream", "") for frame in frames) == "one two"
        assert frames[-1]["response"]["Complete"] == {"token_usage": USAGE, "interrupted": False}
        assert stream or kinds(frames) == ["Stream", "Complete"]


def test_a_confirmed_request_that_fails_has_an_end_too():
    with ServerProcess([reply("r"), failure(400, "bad thing")]) as server, server.chat() as client:
        client.ask("a", {"Text": "1"}, config={"max_context_num": 1})
        client.ask("b", {"Text": "2"})
        client.send("c", {"TurnConfirmationResponse": {"confirmed": True}})
        assert kinds(client.until_complete()) == ["Text", "Complete"]


DENY = {"ToolConfirmationResponse": {"name": "bash", "arguments": {}, "approved": False}}
NO_MORE = {"TurnConfirmationResponse": {"confirmed": False}}
BASH = reply("I try. ", call("bash", {"command": "exit 3"}))


@pytest.mark.parametrize(
    ("steps", "config", "answer", "frames", "error"),
    [
        ([failure(400, "bad thing")], {}, None, ["Text", "Complete"], "processing_error"),
        ([failure(529, "Overloaded")], {}, None, ["Text", "Complete"], "processing_error"),
        ([dropped()], {}, None, ["Text", "Complete"], "connection_error"),
        ([reply("half ", cut())], {}, None, ["Stream", "Text", "Complete"], "processing_error"),
        ([reply("half ", stall())], {}, "Interrupt", ["Stream", "Complete"], None),
        ([BASH, reply("Sorry")], {}, None, ["Stream", "ToolCall", "ToolResult", "Stream", "Text", "Complete"],
         "tool_execution_error"),
        ([BASH], ASK, DENY, ["Stream", "ToolConfirmationRequest", "Text", "Complete"], None),
        ([reply()], {}, None, ["Text", "Complete"], "processing_error"),
        ([reply("cut off", finish="length")], {}, None, ["Stream", "Text", "Complete"], "processing_error"),
    ],
    ids=["error", "retried", "unreachable", "cut", "interrupt", "failed tool", "refused tool", "empty", "length"],
)  # fmt: skip
def test_every_stream_ends_with_complete(steps, config, answer, frames, error):
    with ServerProcess(steps) as server, server.chat() as client:
        client.send("s1", {"Text": "go"}, stream=True, config=config)
        seen = []
        while not seen or "Complete" not in seen[-1]["response"]:
            seen.append(client.read())
            if answer is not None and kinds(seen[-1:])[0] == (
                "Stream" if answer == "Interrupt" else "ToolConfirmationRequest"
            ):
                client.send("answer", answer)
        told = [
            kind
            for kind, before in zip(kinds(seen), [None, *kinds(seen)], strict=False)
            if kind != before or kind != "Stream"
        ]
        assert told == frames and {frame["request_id"] for frame in seen} == {"s1"}
        assert (json.loads(seen[-1]["error"])["type"] if seen[-1]["error"] else None) == error
        if "Text" in told:
            assert seen[-2]["error"] == seen[-1]["error"]
            assert seen[-2]["response"]["Text"] == ("" if error else "Tool 'bash' execution was not approved by user")
        if answer == "Interrupt":
            assert client.read()["request_id"] == "answer"
        assert client.ask("next", "GetCommands")["request_id"] == "next", "nothing comes behind the end"


def test_a_stream_that_cannot_begin_ends_too():
    with ServerProcess([reply("r"), reply("a", gate("go"))]) as server, server.chat() as client:
        client.send("r0", "Regenerate", stream=True)
        assert kinds(client.until_complete()) == ["Text", "Complete"]
        client.send("i0", {"Image": {"data": "no image"}}, stream=True)
        assert kinds(client.until_complete()) == ["Text", "Complete"]
        client.send("u0", {"Audio": "?"}, stream=True)
        assert kinds(client.until_complete()) == ["Text", "Complete"], "an input that is not known"
        client.ask("a", {"Text": "1"}, config={"max_context_num": 1})
        client.ask("b", {"Text": "2"}, stream=True)
        client.send("x", {"Text": "now"}, stream=True)
        assert kinds(client.until_complete()) == ["Text", "Complete"]
        assert client.ask("b", {"Text": "same id"}, stream=True)["error"] == "A request with this id is running"
        client.send("n", NO_MORE)
        frames = client.until_complete()
        assert kinds(frames) == ["Text", "Complete"] and {frame["request_id"] for frame in frames} == {"b"}


def test_a_request_that_a_limit_of_the_server_ended_says_so():
    work = reply("At work. ", call("bash", {"command": "true"}))
    with ServerProcess([work], args=["--max-turns", "1"]) as server, server.chat() as client:
        client.send("s1", {"Text": "go"}, stream=True)
        frames = client.until_complete()
        assert kinds(frames) == ["Stream", "ToolCall", "ToolResult", "Text", "Complete"]
        error = {"type": "processing_error", "message": "Stopped by a limit: maxTurns"}
        assert json.loads(frames[-1]["error"]) == json.loads(frames[-2]["error"]) == error
        plain = client.ask("p1", {"Text": "go"})
        assert plain["response"] == {"Text": "At work. "} and json.loads(plain["error"]) == error


def test_turns_are_requests_not_model_calls():
    work = [reply(call("bash", {"command": "true"}))] * 3
    with ServerProcess([*work, reply("done"), reply("more")]) as server, server.chat() as client:
        assert client.ask("a", {"Text": "1"}, config={"max_context_num": 2})["response"] == {"Text": "done"}
        assert len(server.mock.requests) == 4, "a request under way is not stopped"
        assert client.ask("b", {"Text": "2"})["response"] == {"Text": "more"}
        asked = client.ask("c", {"Text": "3"})["response"]["TurnConfirmationRequest"]
        assert (asked["current_turns"], asked["max_turns"]) == (2, 2)


def test_only_a_limit_of_the_server_asks_a_client_that_set_none():
    with ServerProcess([reply("r")]) as server, server.chat() as client:
        for number in range(40):
            assert client.ask(str(number), {"Text": "hi"})["response"] == {"Text": "r"}
    with ServerProcess([reply("r")], args=["--remote-option", "max_turns=1"]) as server, server.chat() as client:
        assert client.ask("a", {"Text": "hi"})["response"] == {"Text": "r"}
        assert kinds([client.ask("b", {"Text": "hi"})]) == ["TurnConfirmationRequest"]


def test_reset_clears_the_context_and_the_count_of_turns():
    with ServerProcess([reply("r")]) as server, server.chat() as client:
        client.ask("a", {"Text": "rosebud"}, config={"max_context_num": 1})
        reset = client.ask("x", {"Instruction": {"command": "reset"}})
        assert reset["response"] == {"Text": "上下文已清理，对话轮次已重置"}
        assert client.ask("b", {"Text": "second"})["response"] == {"Text": "r"}, "nothing is asked"
        assert "rosebud" not in json.dumps(server.mock.requests[1].body)


def test_a_limit_of_tokens_holds_for_its_request():
    with ServerProcess([reply("r")]) as server, server.chat() as client:
        client.ask("a", {"Text": "1"}, config={"max_tokens": 77})
        client.ask("b", {"Text": "2"})
        bodies = [request.body for request in server.mock.requests]
        assert [77 in (body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies] == [True, False]


def test_interrupt_stops_a_silent_model_within_a_second():
    with ServerProcess([reply("Once ", stall()), reply("fine")]) as server, server.chat() as client:
        assert client.ask("i0", {"Interrupt": None})["error"] == "No active model output to interrupt"
        assert client.ask("s2", {"Text": "story"}, stream=True)["response"] == {"Stream": "Once "}
        start = time.monotonic()
        client.send("i1", "Interrupt")
        assert client.read() == envelope("s2", {"Complete": {"token_usage": None, "interrupted": True}})
        assert client.read() == envelope("i1", {"Text": "Model output interrupted successfully"})
        assert time.monotonic() - start < 2
        assert client.ask("next", {"Text": "and?"})["response"] == {"Text": "fine"}


def test_interrupt_while_a_confirmation_is_open():
    with ServerProcess([reply(call("bash", {"command": "true"})), reply("fine")]) as server, server.chat() as client:
        client.ask("t", {"Text": "go"}, config=ASK, stream=True)
        client.send("i", "Interrupt")
        end, told = client.read(), client.read()
        assert end["response"] == {"Complete": {"token_usage": None, "interrupted": True}} and told["request_id"] == "i"


def test_regenerate_and_clear():
    with ServerProcess([reply("Hello!"), reply("Hello again!"), reply("new")]) as server, server.chat() as client:
        assert client.ask("r0", "Regenerate")["error"] == "Nothing to regenerate"
        client.ask("a", {"Text": "hi"})
        assert client.ask("r1", "Regenerate")["response"] == {"Text": "Hello again!"}
        roles = [m["role"] for m in server.mock.requests[1].body["messages"] if m["role"] != "system"]
        assert roles == ["user"], "the old answer is gone"
        assert client.ask("x1", {"ClearContext": None})["response"] == {"Text": "上下文已清理，对话轮次已重置"}
        assert client.ask("r2", "Regenerate")["error"] == "Nothing to regenerate"


def test_requests_during_a_run_wait_and_controls_do_not():
    with ServerProcess([reply("a", gate("go"), "b"), reply("second")]) as server, server.chat() as client:
        client.send("one", {"Text": "1"}, stream=True)
        assert client.read()["response"] == {"Stream": "a"}
        client.send("two", {"Text": "2"})
        assert client.ask("one", {"Text": "same id"})["error"] == "A request with this id is running"
        assert json.loads(client.ask("g", "GetCommands")["response"]["Text"])["count"] == 7
        assert client.ask("rg", "Regenerate")["error"] == "Cannot regenerate while model is running"
        assert client.ask("cl", "ClearContext")["error"] == "Cannot clear context while model is running"
        for n in range(7):
            client.send(f"q{n}", {"Text": "more"})
        assert "Too many requests" in client.ask("q8", {"Text": "too much"})["error"]
        server.mock.release("go")
        assert kinds(client.until_terminal()) == ["Stream", "Complete"]
        assert client.read() == envelope("two", {"Text": "second"}, usage=USAGE)


def test_failures_are_structured():
    steps = [failure(400, "bad thing"), reply(call("bash", {"command": "exit 3"})), reply("sorry")]
    with ServerProcess(steps) as server, server.chat() as client:
        error = json.loads(client.ask("a", {"Text": "x"})["error"])
        assert error["type"] == "processing_error" and "bad thing" in error["message"]
        frame = client.ask("b", {"Text": "x"})
        failed = json.loads(frame["error"])
        assert frame["response"] == {"Text": "sorry"} and failed["type"] == "tool_execution_error"
        assert failed["details"]["tool"] == "bash" and failed["details"]["arguments"] == {"command": "exit 3"}


def test_a_model_that_cannot_be_reached_is_a_connection_error():
    with ServerProcess([reply("unused")]) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        write_models(server.agent_dir, f"http://127.0.0.1:{gone.getsockname()[1]}/v1")
        gone.close()
        with server.chat() as client:
            error = json.loads(client.ask("a", {"Text": "x"})["error"])
    assert error["type"] == "connection_error" and "Cannot reach" in error["message"]


def test_instructions():
    with ServerProcess([reply("yes")]) as server, server.chat() as client:
        client.ask("a", {"Text": "question"})
        assert (
            client.ask("h", {"Instruction": {"command": "/history"}})["response"]["Text"]
            == "[user] question\n[assistant] yes"
        )
        assert (
            "bash - " in client.ask("t", {"Instruction": {"command": "tools", "parameters": None}})["response"]["Text"]
        )
        changed = client.ask("c", {"Instruction": {"command": "config", "parameters": {"max_context_num": 3}}})
        assert json.loads(changed["response"]["Text"])["max_context_num"] == 3
        assert client.ask("u", {"Instruction": {"command": "nope"}})["error"] == "Unknown command: nope"
        assert client.ask("e", {"Instruction": {"command": "exit"}})["response"]["Text"]
        with pytest.raises(ConnectionClosed) as closed:
            client.read()
        assert closed.value.rcvd.code == 1000
        with server.chat() as other:
            assert other.ask("g", "GetCommands")["error"] is None, "the server goes on"


def test_images_reach_the_model():
    with ServerProcess([reply("seen")]) as server, server.chat() as client:
        parts = [
            {"Text": "this"},
            {"Image": {"data": PIXEL}},
            {"Text": "or"},
            {"Text": "that"},
            {"Image": {"data": PIXEL}},
        ]
        client.ask("a", {"Multi": parts})
        content = server.mock.requests[0].body["messages"][-1]["content"]
        assert [part.get("text", part["type"]) for part in content] == ["this", "image_url", "or\nthat", "image_url"]


def test_rubbish_is_answered_and_survived():
    with ServerProcess([reply("x")]) as server, server.chat() as client:
        for data in ("{oops", b"\xff\xfe\x00", "[" * 5000, '{"request_id":"u","input":{"Foo":1}}', ""):
            client.write(data)
            assert client.read()["error"]
        client.write(json.dumps({"request_id": "b1", "input": "GetCommands"}).encode())
        assert client.read()["request_id"] == "b1"


def test_an_oversized_message_closes_only_its_own_connection():
    with ServerProcess([reply("x")]) as server:
        with server.chat() as client, pytest.raises(ConnectionClosed) as closed:
            client.write("x" * (17 << 20))
            client.read()
        assert closed.value.rcvd.code == 1009
        with server.chat() as other:
            assert other.ask("a", {"Text": "hi"})["response"] == {"Text": "x"}


def test_a_session_is_resumed_and_the_newer_connection_wins():
    with ServerProcess([reply("first"), reply("second"), reply("third")]) as server:
        with server.chat() as client:
            client.ask("a", {"Text": "remember me"})
        (file,) = (server.agent_dir / "sessions").rglob("*.jsonl")
        id = json.loads(file.read_text().splitlines()[0])["id"]
        with server.chat(f"?session={id}") as one:
            assert one.ask("b", {"Text": "again"})["response"] == {"Text": "second"}
            assert "remember me" in json.dumps(server.mock.requests[1].body)
            with server.chat(f"?session={id}") as two:
                with pytest.raises(ConnectionClosed) as closed:
                    one.read()
                assert closed.value.rcvd.code == 4001
                assert two.ask("c", {"Text": "me too"})["response"] == {"Text": "third"}
        with pytest.raises(ConnectionClosed) as closed, server.chat("?session=nope") as lost:
            lost.read()
        assert closed.value.rcvd.code == 4004


def test_leaving_stops_the_run_and_its_children():
    with ServerProcess([reply(call("bash", {"command": "echo $$ > pid; sleep 60"}))]) as server:
        with server.chat() as client:
            client.send("a", {"Text": "go"})
            _wait(lambda: (server.cwd / "pid").exists() and (server.cwd / "pid").read_text().strip())
        pid = int((server.cwd / "pid").read_text())
        _wait(lambda: not _alive(pid))


def test_a_clean_goodbye():
    with ServerProcess([silent()]) as server, server.chat() as client:
        client.send("a", {"Text": "go"})
        server.mock.wait_requests(1)
        code = server.stop()
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                client.read()
        assert code == 0 and closed.value.rcvd.code == 1001


# -- the door -----------------------------------------------------------------------------------------


def test_other_sites_are_turned_away():
    with ServerProcess() as server:
        with pytest.raises(InvalidStatus) as refused:
            server.chat(additional_headers={"Origin": "http://evil.example"})
        assert refused.value.response.status_code == 403
        # A name that merely points here: what a rebinding attack sends.
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 403")


def test_a_token_is_needed_when_there_is_one():
    with ServerProcess([reply("in")], env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        with pytest.raises(InvalidStatus) as refused:
            server.chat()
        assert refused.value.response.status_code == 401
        with server.chat(additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert client.ask("a", {"Text": "hi"})["response"] == {"Text": "in"}
        assert TOKEN not in server.stderr


def _wait(condition, timeout=10.0):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False
