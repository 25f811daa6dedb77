"""Sessions go back and forth between us and the real pi.

Set `SPINDLE_TEST_PI` to the directory `node_modules/@earendil-works/pi-coding-agent` of an installed pi (0.74 or
newer), and `SPINDLE_TEST_NODE` if the `node` on the path is too old for it.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from spindle.agent.run.record import RunRecord, interruption
from spindle.sessions import SessionManager
from spindle.sessions import open as sessions
from spindle.sessions.facts import facts, keep
from spindle.sessions.repair import repair_copy
from spindle.shapes.codec import decode, encode
from tests.sessions.helpers import assistant, lines_of, user
from tests.sessions.test_fixtures import ALL, FIXTURES
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import cut, reply

PI = os.environ.get("SPINDLE_TEST_PI", "")
pytestmark = [
    pytest.mark.skipif(not PI, reason="SPINDLE_TEST_PI does not name an installed pi"),
    pytest.mark.timeout(240),  # pi starts slowly
]

ANSWER = decode(encode(assistant("pi's answer")))
QUESTION = {"role": "user", "content": [{"type": "text", "text": "asked through pi"}], "timestamp": 1735689600002}


_driver: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module", autouse=True)
def _pi_driver() -> Iterator[None]:
    """One pi for all tests: it starts slowly, and keeps nothing from one list of steps to the next."""
    node = os.environ.get("SPINDLE_TEST_NODE", "node")
    command = [node, str(Path(__file__).with_name("pi_sessions.mjs"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        _driver[:] = [driver]
        yield
        driver.kill()


def pi(*steps: list[Any]) -> list[Any]:
    """Let pi carry out steps and return what each one gave."""
    (driver,) = _driver
    assert driver.stdin is not None and driver.stdout is not None
    driver.stdin.write(json.dumps(steps) + "\n")
    driver.stdin.flush()
    line = driver.stdout.readline()
    assert line, "pi gave up (stderr says why)"
    return json.loads(line)


def is_old_pi() -> bool:
    version = json.loads((Path(PI) / "package.json").read_text())["version"]
    return [int(part) for part in version.split(".")[:2]] < [0, 87]


def everything(directory: Path) -> str:
    """Write a session with every kind of entry, two branches and a compaction. Returns its path."""
    with SessionManager.create("/srv/demo", directory) as manager:
        manager.append_model_change("p", "m")
        manager.append_thinking_level_change("high")
        first = manager.append_message(user("first \u2028 \ud83d 日本"))
        answer = manager.append_message(assistant())
        manager.append_label_change(first, "start")
        manager.append_custom_entry("state", {"n": 1.5, "nothing": None})
        manager.append_custom_message_entry("note", "look at this", True, {"d": 1})
        manager.append_session_info("Our session")
        manager.append_message({"role": "bashExecution", "command": "ls", "output": "x", "exitCode": 0,
                                "cancelled": False, "truncated": False, "timestamp": 5})  # fmt: skip
        manager.append_compaction("what came before", answer, 100, {"readFiles": [], "modifiedFiles": []}, False)
        manager.append_message(user("after it"))
        manager.branch_with_summary(first, "tried something")
        manager.append_message(assistant("on the other branch", model="m2"))
        assert manager.write_error is None
        return manager.get_session_file() or ""


def grown_at_random(directory: Path, chance: random.Random) -> str:
    """Write a session as no user would: any operation anywhere. Returns its path."""
    texts = ["a", "", " x ", "two\nlines", "日本 \u2028", "\ud83d", "\x00\x7f", '"q\\']
    with SessionManager.create("/srv/demo", directory, fsync="never") as manager:
        manager.append_message(user("start"))
        manager.append_message(assistant())
        for _ in range(30):
            some, text = chance.choice(manager.get_entries()).id, chance.choice(texts)
            match chance.randrange(12):
                case 0 | 1:
                    manager.append_message({"role": "user", "content": text, "timestamp": 3})
                case 2 | 3:
                    manager.append_message(assistant(text, model=chance.choice("mn")))
                case 4:
                    manager.append_thinking_level_change(chance.choice(["off", "high"]))
                case 5:
                    manager.append_custom_entry("k", chance.choice([None, {"a": text}, [1, 2.5, 1e-7, None]]))
                case 6:
                    manager.append_custom_message_entry("k", text, chance.random() < 0.5)
                case 7:
                    manager.append_session_info(text)
                case 8:
                    manager.append_label_change(some, chance.choice([None, text]))
                case 9:
                    manager.append_compaction(text, chance.choice([some, "nowhere"]), 5, from_hook=False)
                case 10:
                    manager.branch(some)
                case _:
                    manager.branch_with_summary(chance.choice([some, None]), text)
        return manager.get_session_file() or ""


def agree(*paths: str) -> None:
    """Check that pi and we read the same from files, and that neither changes them."""
    before = [Path(path).read_bytes() for path in paths]
    questions = [
        "getHeader",
        "getEntries",
        "getLeafId",
        "getSessionName",
        "getBranch",
        "getTree",
        "buildSessionContext",
    ]
    answers = iter(pi(*(step for path in paths for step in (["open", path], *([question] for question in questions)))))
    for path in paths:
        _, header, entries, leaf, name, branch, tree, context = islice(answers, len(questions) + 1)
        with SessionManager.open(path) as manager:
            assert decode(manager.get_header().raw) == header
            assert decode(manager.entries_json()) == entries
            assert (manager.get_leaf_id(), manager.get_session_name()) == (leaf, name)
            assert [e.id for e in manager.get_branch()] == [e["id"] for e in branch]
            assert decode(manager.tree_json()) == tree
            ours = manager.build_session_context()
            assert [decode(encode(message)) for message in ours.messages] == context["messages"]
            assert ours.thinking_level == context["thinkingLevel"]
            model = context["model"]
            assert ours.model == (model and (model["provider"], model["modelId"]))
    assert [Path(path).read_bytes() for path in paths] == before


def test_pi_reads_all_that_we_write(tmp_path: Path) -> None:
    agree(everything(tmp_path))


def test_pi_reads_whatever_we_may_have_written(tmp_path: Path) -> None:
    chance = random.Random(6)
    paths = [grown_at_random(tmp_path / str(number), chance) for number in range(20)]
    for path in paths[:]:
        with SessionManager.open(path, fsync="never") as manager:
            last_answer = next(e for e in reversed(manager.get_entries()) if '"assistant"' in e.raw.decode())
            paths.append(manager.create_branched_session(last_answer.id) or "")
    agree(*paths)


def test_pi_continues_and_branches_our_session(tmp_path: Path) -> None:
    path = everything(tmp_path)
    before = lines_of(path)
    _, question, _, _, label, branched = pi(
        ["open", path],
        ["appendMessage", QUESTION],
        ["appendMessage", ANSWER],
        ["branch", "@1"],
        ["appendLabelChange", "@1", "from pi"],
        ["createBranchedSession", before[4]["id"]],
    )
    assert lines_of(path)[: len(before)] == before
    with SessionManager.open(path) as manager:
        assert manager.get_leaf_id() == label
        assert manager.get_label(question) == "from pi"
        assert manager.damage == []
        ours = manager.append_message(user("ours again"))
        assert manager.get_entry(ours).parent_id == label
    agree(path, branched)
    assert lines_of(branched)[0]["parentSession"] == path


def test_we_continue_and_branch_pis_session(tmp_path: Path) -> None:
    path, first, *_ = pi(
        ["create", "/srv/demo", str(tmp_path)],
        ["appendMessage", QUESTION],
        ["appendMessage", ANSWER],
        ["appendLabelChange", "@1", "begin"],
        ["appendThinkingLevelChange", "low"],
    )
    with SessionManager.continue_recent("/srv/demo", tmp_path) as manager:
        assert manager.get_session_file() == path
        assert manager.get_label(first) == "begin"
        manager.append_message(user())
        manager.branch_with_summary(first, "another way")
        manager.append_message(assistant())
    agree(path)
    with SessionManager.open(path) as manager:
        copy = manager.create_branched_session(manager.get_leaf_id() or "")
        manager.append_message(user("in the copy"))
    assert copy is not None
    agree(copy)


def test_both_at_once_make_branches_not_damage(tmp_path: Path) -> None:
    path = everything(tmp_path)
    with SessionManager.open(path) as manager:
        leaf = manager.get_leaf_id()
        _, theirs = pi(["open", path], ["appendMessage", ANSWER])
        ours = manager.append_message(user("ours"))
        assert {e.id for e in manager.get_children(leaf)} == {theirs, ours}
    agree(path)


def test_a_session_cut_off_in_its_first_turn_can_go_on_in_pi(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path) as manager:
        manager.append_model_change("p", "m")
        question = manager.append_message(user("never answered"))
    path = manager.get_session_file() or ""
    agree(path)
    _, again, answer = pi(["open", path], ["appendMessage", QUESTION], ["appendMessage", ANSWER])
    with SessionManager.open(path) as reopened:
        # Pi 0.74 writes everything a second time, header included; the tree is the same.
        assert bool(reopened.damage) == is_old_pi()
        assert reopened.build_session_context().entry_ids == [question, again, answer]
        reopened.append_message(user("and on with us"))
    *_, context = pi(["open", path], ["buildSessionContext"])
    assert len(context["messages"]) == 4


def test_lists_agree(tmp_path: Path) -> None:
    everything(tmp_path)
    everything(tmp_path)
    (theirs,) = pi(["list", "/srv/demo", str(tmp_path)])
    ours = SessionManager.list("/srv/demo", tmp_path)
    assert {(s.path, s.id, s.name, s.message_count, s.first_message) for s in ours} == {
        (s["path"], s["id"], s["name"], s["messageCount"], s["firstMessage"]) for s in theirs
    }


def test_pi_continues_the_session_we_wrote_last(tmp_path: Path) -> None:
    everything(tmp_path)
    latest = everything(tmp_path)
    os.utime(latest)
    assert pi(["continueRecent", "/srv/demo", str(tmp_path)]) == [latest]


def test_forks_go_both_ways(tmp_path: Path) -> None:
    source = everything(tmp_path)
    (theirs,) = pi(["forkFrom", source, "/srv/other", str(tmp_path / "theirs")])
    agree(theirs)
    with SessionManager.fork_from(theirs, "/srv/third", tmp_path / "ours") as fork:
        ours = fork.get_session_file() or ""
    agree(ours)
    assert lines_of(ours)[1:] == lines_of(source)[1:]


def test_pi_finds_nothing_to_do_in_what_we_migrated(tmp_path: Path) -> None:
    paths = []
    for name in ALL:
        if name.startswith("legacy"):
            paths.append(tmp_path / f"{name}.jsonl")
            paths[-1].write_bytes((FIXTURES / f"{name}.jsonl").read_bytes())
            SessionManager.open(paths[-1]).close()
    assert paths
    agree(*map(str, paths))


def test_pi_reads_every_repaired_copy(tmp_path: Path) -> None:
    names = [name for name in ALL if name.startswith("damaged")]
    steps: list[list[Any]] = []
    for name in names:
        target = tmp_path / f"{name}.jsonl"
        repair_copy(FIXTURES / f"{name}.jsonl", target, "/srv/demo")
        steps += [["open", str(target)], ["buildSessionContext"]]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    contexts = pi(*steps)[1::2]
    for name, context in zip(names, contexts, strict=True):
        with SessionManager.open(tmp_path / f"{name}.jsonl", read_only=True) as manager:
            assert len(manager.build_session_context().messages) == len(context["messages"]), name
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"damaged-version-string.jsonl"}, 'pi reads the version "2" as a number and migrates'


def test_pi_carries_the_record_of_a_run_and_ends_an_open_one(tmp_path: Path) -> None:
    """A run was cut off; pi goes on with the conversation, and its answer is the end of the run for us, too."""
    with sessions.create("/srv/demo", tmp_path) as session:
        session.append_message(user("do it"))
        record = RunRecord(id="r1", state="begun", session=session.id, limits={"maxTurns": 5})
        keep(session, record)
        session.append_message(assistant())
        keep(session, RunRecord(id="r1", state="ended", stop_reason="end"))
        session.append_message(user("and again"))
        keep(session, RunRecord(id="r2", state="begun", session=session.id))
        assert interruption(session) is not None
        path = str(session.path)
    before = Path(path).read_bytes()
    _, context, *_ = pi(["open", path], ["buildSessionContext"], ["appendMessage", QUESTION], ["appendMessage", ANSWER])
    assert [message["role"] for message in context["messages"]] == ["user", "assistant", "user"]
    assert Path(path).read_bytes().startswith(before), "pi carries the entries as they are"
    with sessions.load(path) as session:
        assert interruption(session) is None
        assert [fact.state for fact in facts(session.entries, RunRecord)] == ["begun", "ended", "begun"]


def test_pi_opens_a_session_in_which_another_model_answered(tmp_path: Path) -> None:
    """The answer that broke off is on a side branch, and the conversation has the answer of the other model once."""
    steps = [reply("half of ", cut()), reply("half of ", cut()), reply("whole"), reply("and on")]
    settings = {"retry": {"baseDelayMs": 1, "maxRetries": 1}}
    with AgentProcess(steps, args=("--fallback", "mock/m2"), session=True, base=tmp_path, settings=settings) as agent:
        agent.run("go")
        agent.run("go on")
        path = agent.data("get_state")["sessionFile"]
    before = Path(path).read_bytes()
    _, context, entries, branch = pi(["open", path], ["buildSessionContext"], ["getEntries"], ["getBranch"])
    told = [text_of(message["content"]) for message in context["messages"]]
    assert told == ["go", "whole", "go on", "and on"] and Path(path).read_bytes() == before
    assert context["model"]["modelId"] == "m2", "pi goes on with the model that answered last"
    with sessions.load(path) as session:
        assert session.model() == ("mock", "m1"), "we go back to the one that was chosen"
    failed = [entry["id"] for entry in entries if entry.get("message", {}).get("stopReason") == "error"]
    assert len(failed) == 2 and not {entry["id"] for entry in branch} & set(failed)
    assert [entry["data"]["cause"] for entry in branch if entry.get("customType") == "spindle.fallback"] == [
        "broken",
        "resting",
    ]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
