"""A server for a team: its figures, its end, and users who do not see each other."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.tokens_command import run as tokens
from spindle.base.user_files import BadFile
from spindle.server.day_book import DayBook
from spindle.server.users import UsersFile, add_user, read_users, revoke_user
from spindle.wires.network import metrics
from tests.support import nursery
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import call, failure, gate, reply

from .server import ServerProcess

PRICE = {"cost": {"input": 1000, "output": 1000, "cacheRead": 0, "cacheWrite": 0}}
"""13 tokens that are not cached cost 1.3 cents."""


class Team(ServerProcess):
    """A server with users; `add` and `revoke` change the file while it runs."""

    def __init__(self, base: Path, users: dict[str, dict[str, Any]], steps: Any = (), **options: Any) -> None:
        self.file = base / "agent" / "tokens.json"
        if users:
            self.file.unlink(missing_ok=True)  # of a server that was here before
        self.tokens = {name: add_user(self.file, name, values) for name, values in users.items()}
        args = ["--tokens", "--log-format", "json", *options.pop("args", [])]
        super().__init__(steps or [reply("ok")], base=base, args=args, **options)

    def header(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def http(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, self.header(name), method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def socket(self, name: str, query: str = "") -> Any:
        return self.rpc(query, additional_headers=self.header(name))

    def chat_of(self, name: str, query: str = "") -> Any:
        return self.chat(query, additional_headers=self.header(name))


def figures(text: str) -> dict[str, float]:
    """Read a page of metrics as strictly as its reader does."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"# TYPE (\w+) (counter|gauge|histogram)", line):
            assert match[1] not in kinds
            kinds[match[1]] = match[2]
        elif not line.startswith("# HELP "):
            match = re.fullmatch(r'(\w+)(\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)', line)
            assert match, line
            name = re.sub("_(bucket|sum|count)$", "", match[1])
            assert match[1] in kinds or kinds[name] == "histogram", line
            assert f"{match[1]}{match[2] or ''}" not in found
            found[f"{match[1]}{match[2] or ''}"] = float(match[3])
    return found


def read(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
        return figures(answer.read().decode())


# -- figures and the end ---------------------------------------------------------------------------


def test_metrics_count_what_happened() -> None:
    steps = [failure(503, "no"), reply(call("bash", {"command": "false"})), reply("ok"), reply("held", gate("g"))]
    with ServerProcess(steps, model=PRICE) as server:
        with server.rpc() as client:
            client.call("prompt", message="hi")
            client.wait("agent_settled")
            client.call("prompt", message="again")
            server.mock.wait_gate("g")
            client.call("follow_up", message="later")
            now = read(server.address)
        mock = 'model="mock/m1"'
        assert now['spindle_sessions{user=""}'] == now['spindle_connections{wire="websocket"}'] == 1
        assert now['spindle_runs_active{user=""}'] == now[f"spindle_model_calls_active{{{mock}}}"] == 1
        assert now['spindle_queued_messages{user=""}'] == 1
        assert now[f'spindle_runs_total{{{mock},user="",stop_reason="end"}}'] == 1
        assert now[f'spindle_tokens_total{{{mock},user="",type="input"}}'] == 16
        assert now[f'spindle_tokens_total{{{mock},user="",type="output"}}'] == 10
        assert now[f'spindle_cost_dollars_total{{{mock},user=""}}'] == pytest.approx(0.026)
        assert now['spindle_errors_total{kind="chat",error="StatusError",status="503"}'] == 1
        assert now['spindle_tool_calls_total{tool="bash",failed="true"}'] == 1
        assert now[f'spindle_model_call_seconds_bucket{{{mock},le="+Inf"}}'] == 3
        assert now[f"spindle_first_piece_seconds_count{{{mock}}}"] == 2, "the failure had none"
        assert now["spindle_run_seconds_count"] == 1 and now["spindle_draining"] == 0
        assert now["process_resident_memory_bytes"] > 1e6
        if promtool := shutil.which("promtool"):
            with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as page:
                checked = subprocess.run([promtool, "check", "metrics"], input=page.read(), capture_output=True)
            assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_labels_that_clients_choose_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
    counted = metrics.Metrics()
    try:
        for number in range(9):
            counted._add("tool_calls_total", [f'odd "\n\\{number}', "false"])
        page = figures(counted.page([]).decode())
    finally:
        counted.stop()
    assert len(page) == 4 + 2 and page['spindle_tool_calls_total{tool="other",failed="other"}'] == 6


def ready(server: ServerProcess) -> int:
    try:
        return int(urllib.request.urlopen(f"http://{server.address}/readyz", timeout=10).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_drain_lets_runs_end_and_takes_no_new_ones() -> None:
    with ServerProcess([reply("a", gate("g"), "b")], args=["--drain", "30"]) as server:
        with server.rpc() as client, server.chat() as other:
            client.call("prompt", message="hi")
            server.mock.wait_gate("g")
            assert ready(server) == 200
            server.process.send_signal(signal.SIGTERM)
            while ready(server) == 200:
                pass
            refused = client.call("prompt", message="more", streamingBehavior="followUp")
            assert not refused["success"] and "shutting down" in refused["error"]
            assert "shutting down" in other.ask("a", {"Text": "hi"})["error"]
            server.mock.release("g")
            assert client.wait("agent_settled")["stopReason"] == "end"
        assert server.process.wait(10) == 0


@pytest.mark.parametrize("again", [False, True])
def test_drain_has_an_end(again: bool) -> None:
    args = ["--drain", "60" if again else "0.2"]
    with ServerProcess([reply("a", gate("never"))], args=args) as server, server.rpc() as client:
        client.call("prompt", message="hi")
        server.mock.wait_gate("never")
        server.process.send_signal(signal.SIGTERM)
        if again:
            while ready(server) == 200:
                pass
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 1
        else:
            assert client.wait("agent_settled")["aborted"]
            assert server.process.wait(10) == 0


# -- users who do not see each other ---------------------------------------------------------------


def test_a_user_sees_nothing_of_another_on_any_wire(tmp_path: Path) -> None:
    with Team(tmp_path, {"anna": {}, "bob": {}, "root": {"admin": True}}, [reply("the answer")]) as server:
        with server.socket("anna") as anna:
            anna.call("prompt", message="a private question")
            anna.wait("agent_settled")
            state = anna.call("get_state")["data"]
            id, path = state["sessionId"], state["sessionFile"]
            live = anna.ready["sessionId"]
            assert "/anna/" in path

            for method, at, body in (
                ("GET", f"/v1/sessions/{live}", None),
                ("DELETE", f"/v1/sessions/{live}", None),
                ("GET", f"/v1/sessions/{live}/events", None),
                ("GET", f"/v1/sessions/{live}/questions", None),
                ("POST", f"/v1/sessions/{live}/get_messages", {}),
                ("POST", f"/v1/sessions/{live}/prompt", {"message": "hi"}),
                ("POST", f"/v1/sessions/{live}/answers/q", {"confirmed": True}),
                ("POST", "/v1/sessions", {"session": id}),
                ("POST", "/v1/sessions", {"session": path}),
                ("GET", f"/v1/sessions/{live}?user=anna", None),
            ):
                status, text = server.http("bob", method, at, body)
                assert status in (403, 404) and "private" not in text, (method, at, status, text)
            assert json.loads(server.http("bob", "GET", "/v1/sessions")[1]) == {"sessions": []}
            status, text = server.http("bob", "PUT", f"/v1/sessions/{live}", {})
            assert status == 200 and json.loads(text)["id"] == live, "his own session of the same name"
            assert "/bob/" in json.loads(text)["sessionFile"]
            assert json.loads(server.http("bob", "POST", f"/v1/sessions/{live}/get_messages", {})[1])["messages"] == []

            with server.socket("bob") as bob:
                for command, fields in (
                    ("switch_session", {"sessionPath": path}),
                    ("new_session", {"parentSession": path}),
                    ("open_session", {"session": id + "x"}),
                    ("open_session", {"session": path}),
                    ("complete_path", {"prefix": path[:-9]}),
                    ("export_html", {"outputPath": str(Path(path).parent / "x.html")}),
                ):
                    assert not bob.call(command, **fields)["success"], command
                for command in ("list_sessions", "search_sessions", "list_live_sessions"):
                    told = json.dumps(bob.call(command, everywhere=True, query="private"))
                    assert path not in told and "private" not in told
            for open_it in (server.socket, server.chat_of):
                with pytest.raises(ConnectionClosed), open_it("bob", f"?session={path}") as one:
                    one.read()
                with pytest.raises(InvalidStatus), open_it("bob", f"?session={live}&user=anna"):
                    pass

            assert server.http("root", "GET", f"/v1/sessions/{live}?user=anna")[0] == 200
            with server.socket("root", f"?session={live}&user=anna") as admin:
                assert "private" in json.dumps(admin.call("get_messages"))
            assert server.http("bob", "GET", "/metrics")[0] == 403
            now = figures(server.http("root", "GET", "/metrics")[1])
            assert now['spindle_runs_total{model="mock/m1",user="anna",stop_reason="end"}'] == 1
            assert now['spindle_refusals_total{reason="user",user="bob"}'] >= 4
            for path_ in ("/metrics", "/v1/sessions"):
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    urllib.request.urlopen(f"http://{server.address}{path_}", timeout=10)
        assert server.stop() == 0
        server.drained.wait(5)
        lines = [json.loads(line) for line in server.stderr.splitlines()]
        assert {line["user"] for line in lines if line.get("kind") == "run"} == {"anna"}
        connected = [line for line in lines if line.get("kind") == "connection" and line["user"] == "anna"]
        assert sorted(line.get("by", "") for line in connected) == ["", "root"]
        assert not any(token in server.stderr for token in server.tokens.values())

    with Team(tmp_path, {"anna": {}, "bob": {}}) as server:  # after a restart, from disk
        assert server.http("bob", "POST", f"/v1/sessions/{id}/get_messages", {})[1].count("private") == 0
        assert "private" in server.http("anna", "POST", f"/v1/sessions/{id}/get_messages", {})[1]


def test_quotas_hold_when_many_come_at_once(tmp_path: Path) -> None:
    users = {"runs": {"runsPerDay": 5}, "cost": {"costPerDay": 0.03}, "free": {}}
    with Team(tmp_path, users, [reply("ok")], model=PRICE) as server:
        with ThreadPoolExecutor(12) as pool:

            def prompt(name: str) -> int:
                id = json.loads(server.http(name, "POST", "/v1/sessions", {})[1])["id"]
                return server.http(name, "POST", f"/v1/sessions/{id}/prompt?wait=true", {"message": "hi"})[0]

            assert sorted(pool.map(prompt, ["runs"] * 12)) == [200] * 5 + [429] * 7
            assert set(pool.map(prompt, ["free"] * 12)) == {200}
        spent = [prompt("cost") for _ in range(5)]
        assert spent == [200, 200, 200, 429, 429], "1.3 cents each"
        with server.chat_of("cost") as chat:
            assert "Today's limit" in chat.ask("a", {"Text": "hi"})["error"]
        with server.socket("cost") as client:
            for command in ("prompt", "steer", "follow_up", "abort_and_prompt"):
                assert "Today's limit" in client.call(command, message="hi")["error"]
            assert client.call("get_state")["success"]
    with Team(tmp_path, users, model=PRICE) as server:
        assert prompt("runs") == prompt("cost") == 429, "a restart gives nothing back"
        with server.socket("runs") as client:  # what waits for a run counts as one, and so does what starts one
            assert client.call("steer", message="hi")["success"]
            [item] = client.call("get_state")["data"]["queueItems"]
            for command, fields in (("follow_up", {"message": "hi"}), ("send_queued", {"queuedId": item["id"]})):
                assert "Today's limit of 5 runs" in client.call(command, **fields)["error"]
        with server.socket("runs") as client:
            add_user(server.file, "other", {})
            server.http("runs", "GET", "/v1/sessions")
            assert client.call("get_state")["success"], "a change of another user does not concern this one"


def test_a_run_stops_when_the_money_of_the_day_is_spent(tmp_path: Path) -> None:
    """It was allowed to begin, and every call of a model is asked about."""
    steps = [reply(call("ls", {}))]
    user = {"costPerDay": 0.04, "maxTurns": 20}
    with Team(tmp_path, {"anna": user}, steps, model=PRICE) as server, server.socket("anna") as client:
        client.call("prompt", message="go", maxTurns=50)
        settled = client.wait("agent_settled")
        assert settled["stopReason"] == "error" and "Today's limit of $0.04" in settled["errorMessage"]
        assert len(server.mock.requests) == 4


def test_calls_of_every_kind_count(tmp_path: Path) -> None:
    """A subagent's model is asked about, too, and so is the one that makes a name."""
    definition = tmp_path / "agent" / "agents" / "dear.md"
    definition.parent.mkdir(parents=True)
    definition.write_text("---\nname: dear\ndescription: x\nmodel: mock/m2\n---\nWork.")
    steps = [reply(call("task", {"agent": "dear", "prompt": "go", "description": "x"})), reply("done")]
    user = {"models": ["mock/m1"], "costPerDay": 0.02}
    args = ["--tools", "task"]
    with Team(tmp_path, {"anna": user}, steps, model=PRICE, args=args) as server, server.socket("anna") as client:
        client.call("prompt", message="go")
        told = client.wait("tool_execution_end")
        assert told["isError"] and "You may not use mock/m2" in json.dumps(told), told
        client.wait("agent_settled")
        assert [request.body["model"] for request in server.mock.requests] == ["m1", "m1"]
        assert "Today's limit" in client.call("make_session_name")["error"]
        assert len(server.mock.requests) == 2


def test_what_the_file_allows_cannot_be_changed_by_the_user(tmp_path: Path) -> None:
    (tmp_path / "work" / "inside").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    anna = {
        "maxTurns": 2,
        "models": ["mock/m2"],
        "permissionMode": "dontAsk",
        "roots": [str(tmp_path / "work" / "inside")],
    }
    steps = [reply(call("bash", {"command": "touch made"}))]
    users = {"anna": anna, "root": {"admin": True}}
    with Team(tmp_path, users, steps) as server, server.socket("anna") as client:
        state = client.call("get_state")["data"]
        assert (client.ready["cwd"], state["model"]["id"]) == (anna["roots"][0], "m2")
        client.call("prompt", message="go", maxTurns=50)
        settled = client.wait("agent_settled")
        assert settled["stopReason"] in ("maxTurns", "denied") and len(server.mock.requests) == 2
        assert not list(tmp_path.rglob("made"))
        for command, fields in (
            ("set_model", {"provider": "mock", "modelId": "m1"}),
            ("set_permissions", {"mode": "bypass"}),
            ("set_permissions", {"allow": ["Bash"]}),
            ("bash", {"command": "id"}),
            ("set_mcp_servers", {"servers": {"x": {"command": "id"}}}),
            ("open_session", {"cwd": str(tmp_path / "elsewhere")}),
        ):
            assert not client.call(command, **fields)["success"], command
        assert client.call("set_permissions", deny=["Read"])["success"]
        opened = client.call("open_session", model="mock/m1")["data"]["id"]
        told = server.http("anna", "POST", f"/v1/sessions/{opened}/prompt?wait=true", {"message": "hi"})
        assert told[0] == 403 and "You may not use mock/m1" in told[1]
        now = figures(server.http("root", "GET", "/metrics")[1])
        assert now['spindle_refusals_total{reason="command",user="anna"}'] == 6


def test_a_revoked_token_ends_everything_without_a_restart(tmp_path: Path) -> None:
    server = Team(tmp_path, {"anna": {}, "bob": {}}, [reply("a", gate("never"))])
    with server, server.socket("anna") as anna, server.socket("bob") as bob:
        anna.call("prompt", message="hi")
        server.mock.wait_gate("never")
        stream = urllib.request.Request(
            f"http://{server.address}/v1/sessions/{anna.ready['sessionId']}/events", headers=server.header("anna")
        )
        with urllib.request.urlopen(stream, timeout=20) as events:
            revoke_user(server.file, "anna")
            server.mock.wait_hangups(1)
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    anna.read()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 4003
            assert b"session_closed" in events.read()
        assert server.http("anna", "GET", "/v1/sessions")[0] == 401
        assert bob.call("get_state")["success"]
        server.file.write_text("{ broken")
        time.sleep(1.5)  # the server looks every second
        assert bob.call("get_state")["success"] and server.http("bob", "GET", "/v1/sessions")[0] == 200
        server.tokens["carl"] = "not yet"
        server.file.unlink()
        server.tokens["carl"] = add_user(server.file, "carl", {})
        deadline = time.monotonic() + 15
        while server.http("carl", "GET", "/v1/sessions")[0] != 200:
            assert time.monotonic() < deadline
        assert server.http("bob", "GET", "/v1/sessions")[0] == 401


# -- the file --------------------------------------------------------------------------------------


def test_tokens_are_shown_once_and_kept_as_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path))
    options = "--runs-per-day 5 --cost-per-day 1.5 --max-turns 9 --root . --model mock/* --permission-mode plan --admin"
    assert tokens(["add", "anna", *options.split(), "--sandbox", "read-only"]) == 0
    token = capsys.readouterr().out.strip()
    file = tmp_path / "tokens.json"
    assert token not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    users = UsersFile(file)
    assert users.find(token) == "anna" and users.find(token[:-1]) is None and users.find("") is None
    anna = users.users["anna"]
    assert (anna.runs_per_day, anna.cost_per_day, anna.limits.max_turns, anna.admin) == (5, 1.5, 9, True)
    assert (
        anna.roots == (str(Path.cwd()),)
        and anna.sandbox == "read-only"
        and anna.may_use("mock/x")
        and not anna.may_use("other/x")
    )
    book = DayBook(tmp_path / "usage" / "anna")
    assert book.take_run(5)
    book.spend(0.25)
    assert tokens(["list"]) == 0
    listed = capsys.readouterr().out
    assert "today: 1 runs, $0.2500" in listed and "runsPerDay=5" in listed and "sha256" not in listed
    assert tokens(["revoke", "anna"]) == 0 and not read_users(file)
    for wrong in (
        ["revoke", "anna"],
        ["add", "../x"],
        ["add", "x", "--runs-per-day", "0"],
        ["add", "x", "--sandbox", "y"],
    ):
        with pytest.raises(UsageError):
            tokens(wrong)
    with pytest.raises(BadFile, match="has no users"):
        UsersFile(file)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"token": "plain"}, "token must be sha256"),
        ({"token": "sha256:" + "0" * 64, "runPerDay": 3}, "runPerDay"),
        ({"token": "sha256:" + "0" * 64, "sandbox": "strict"}, "sandbox"),
        ({"token": "sha256:" + "0" * 64, "roots": ["here"]}, "absolute"),
        ({"token": "sha256:" + "0" * 64, "permissionMode": "all"}, "permissionMode"),
        (7, "anna"),
    ],
)
def test_a_file_with_a_fault_is_refused(tmp_path: Path, user: Any, said: str) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"users": {"anna": user}}))
    with pytest.raises(BadFile, match=said) as refused:
        read_users(file)
    assert "tokens.json" in str(refused.value) and "anna" in str(refused.value)


def test_books_of_two_servers_are_one(tmp_path: Path) -> None:
    books = [DayBook(tmp_path), DayBook(tmp_path)]
    taken: list[bool] = []

    def take(book: DayBook) -> None:
        taken.extend(book.take_run(50) for _ in range(40))

    threads = [threading.Thread(target=take, args=(book,)) for book in books]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 50
    books[0].spend(0.5)
    next(tmp_path.iterdir()).open("a").write('{"cost": 1')  # a crash in the middle of a line
    books[1].spend(0.25)
    books[0].refresh()
    assert (books[0].cost, books[1].cost) == (0.75, 0.75)


# -- the configuration file ------------------------------------------------------------------------


def check(folder: Path, text: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Let `spindle serve --check` look at a configuration."""
    write_models(folder / "agent", "http://127.0.0.1:9")
    (folder / "spindle.toml").write_text(text)
    command = [sys.executable, "-m", "spindle", "serve", "--config", "spindle.toml", "--check", *args]
    options = {"cwd": folder, "env": agent_environment(folder / "agent"), "timeout": 30}
    return nursery.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def test_a_configuration_holds_all_of_it(tmp_path: Path) -> None:
    token = add_user(tmp_path / "users.json", "anna", {})
    text = """
        listen = "127.0.0.1:0"
        model = "mock/m1"
        tokens = "users.json"
        drain = 5
        log-format = "json"
        log-level = "debug"
        deny = ["Bash(rm *)", "Write"]
        max-turns = 7
        [limit]
        sessions = 10
        [remote-option]
        max_connections = 20
        reasoning = true
    """
    done = check(tmp_path, text)
    assert (done.returncode, done.stdout) == (0, "Sound: it would listen on 127.0.0.1:0, for 1 users\n"), done.stderr
    (tmp_path / "work").mkdir()
    args = ["--config", str(tmp_path / "spindle.toml"), "--tokens", str(tmp_path / "users.json"), "--drain", "0"]
    with ServerProcess([reply("ok")], base=tmp_path, args=args) as server:
        assert server.stderr.startswith("{"), "the log is JSON"
        with server.rpc(additional_headers={"Authorization": f"Bearer {token}"}) as client:
            assert {rule["rule"] for rule in client.call("get_permissions")["data"]["rules"]} == {"Bash(rm *)", "Write"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log-fromat = 'json'", "There is no key log-fromat. Did you mean log-format?"),
        ("log-format = 'xml'", "--log-format must be one of"),
        ("drain = true", "drain needs a value"),
        ("drain = -1", "--drain must be"),
        ("remote-insecure = 'yes'", "remote-insecure must be true or false"),
        ("api-key = 'sk-1'", "api-key is not for files"),
        ("model = ['a', 'b']", "model has one value"),
        ("[model]\nx = 1", "model is no table"),
        ("[remote-option]\nmax_connection = 1", "Unknown remote option 'max_connection'"),
        ("listen = '0.0.0.0:1'", "Refusing to listen on 0.0.0.0 without a token"),
        ("tokens = 'missing.json'", "has no users"),
        ("remote-cert = 'none.pem'\nremote-key = 'none.pem'", "certificate"),
        ("model = 'nowhere/m'", 'Model "nowhere/m" not found'),
        ("a = = 1", "spindle.toml: "),
    ],
)
def test_a_configuration_with_a_fault_is_refused(tmp_path: Path, text: str, said: str) -> None:
    done = check(tmp_path, text, *([] if "model" in text else ["--model", "mock/m1"]))
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("there", [False, True], ids=["here", "there"])
def test_undo_of_a_user_is_of_the_working_directory_in_a_repository(tmp_path: Path, there: bool) -> None:
    """What lies beside it may be of another user."""
    sub = tmp_path / "repository" / "sub"
    sub.mkdir(parents=True)
    (sub / "a.txt").write_text("one\n")
    subprocess.run(["git", "init", "-q", str(sub.parent)], check=True)
    steps = [reply(call("bash", {"command": "echo two | tee a.txt > ../beside.txt"})), reply("done")]
    args = ["--exec", f"env -C {sub}"] if there else []
    with Team(tmp_path, {"anna": {}}, steps, args=args) as server, server.socket("anna") as client:
        id = client.call("open_session", cwd=str(tmp_path if there else sub))["data"]["id"]
        client.call("prompt", message="go", sessionId=id)
        client.wait("agent_settled")
        found = client.call("get_changes", sessionId=id)["data"]["files"]
        assert [one["path"] for one in found] == ["a.txt"] and "\n--- a/a.txt\n" in found[0]["diff"]
