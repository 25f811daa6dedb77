"""Stream rules in a session: stopped once, told once, and never in the way of the user."""

import pytest

from spindle.agent.features.stream_rules import _Text
from spindle.testing import Pause

from .rig import Rig, kinds, run


@pytest.fixture
def rule(tmp_path):
    folder = tmp_path / "agent" / "rules"
    folder.mkdir(parents=True)
    (folder / "no-foo.md").write_text("---\ncondition: FORBIDDEN\n---\nNever say it.")


@pytest.mark.usefixtures("rule")
@pytest.mark.parametrize("before", [10, 5_000, 50_000])
def test_an_answer_is_stopped_once_however_long_it_is(tmp_path, before):
    async def main():
        steps = [{"text": ["x" * before, " FORBIDDEN", " and on"]}, "fine"]
        async with Rig(tmp_path, steps) as rig:
            frames = await rig.run("go")
            assert kinds(frames).count("ttsr_triggered") == 1
            assert kinds(frames).count("agent_end") == 2 and "extension_error" not in kinds(frames)
            assert rig.roles() == ["user", "custom", "assistant(stop)"]

    run(main())


@pytest.fixture
def rules(tmp_path):
    """Write rules: a name and a front matter each."""

    def write(**fronts):
        folder = tmp_path / "agent" / "rules"
        folder.mkdir(parents=True, exist_ok=True)
        for name, front in fronts.items():
            (folder / f"{name}.md").write_text(f"---\n{front}\n---\nNever.")

    return write


async def triggered(tmp_path, *steps):
    """Play steps; return the names of the rules that stopped something."""
    async with Rig(tmp_path, [*steps, "fine"]) as rig:
        return [rule["name"] for frame in await rig.run("go") for rule in frame.get("rules", [])]


def test_the_beginning_of_a_text_is_only_where_it_begins(tmp_path, rules):
    rules(start="condition: ^FORBIDDEN", behind="condition: (?<!n)ot x")

    async def main():
        for behind in (2048, 2304):  # where what is searched begins with the word
            pieces = ["a" * 3000, "FORBIDDEN".ljust(behind, "b"), "c", "not x"]
            assert await triggered(tmp_path, {"text": pieces}) == []
        assert await triggered(tmp_path, {"text": ["FORB", "IDDEN"]}) == ["start"]

    run(main())


@pytest.mark.parametrize("gap", [10, 300, 1500, 6000, 40_000])
def test_a_match_may_span_many_pieces(tmp_path, rules, gap):
    rules(span="condition: BEGIN[\\s\\S]*END")

    async def main():
        pieces = ["x" * 5000, "BEG", "IN", *["some words "] * (gap // 11), "E", "ND", *[" and so on"] * (gap // 11)]
        assert await triggered(tmp_path, {"text": pieces}) == ["span"]

    run(main())


def test_a_path_is_looked_at_wherever_it_stands_in_the_call(tmp_path, rules):
    rules(late='condition: "secret"\nscope: "tool:write(*.py)"', other='condition: "secret"\nscope: "tool:edit"')

    async def main():
        for arguments, expected in (
            ({"path": "a.py", "content": "x" * 3000 + "secret"}, ["late"]),
            ({"content": "secret" + "x" * 3000, "path": "a.py"}, ["late"]),
            ({"old_path": "b.txt", "content": "secret", "path": "a.py"}, ["late"]),
            ({"path": "b.txt", "content": "secret"}, []),
        ):
            assert await triggered(tmp_path, {"calls": [{"name": "write", "arguments": arguments}]}) == expected

    run(main())


@pytest.mark.parametrize("gap, told", [(0, 3), (1, 3), (2, 2), (10, 1)])
def test_a_rule_is_told_again_after_a_gap_but_never_at_every_turn(tmp_path, rules, gap, told):
    rules(no="condition: FORBIDDEN")
    settings = {"ttsr": {"repeatMode": "after-gap", "repeatGap": gap}}

    async def main():
        async with Rig(tmp_path, ["FORBIDDEN"], settings=settings) as rig:
            frames = [frame for _ in range(3) for frame in await rig.run("go")]
            assert kinds(frames).count("ttsr_triggered") == told

    run(main())


def test_the_cost_of_a_piece_does_not_grow_with_the_stream():
    source, searched = _Text(), 0
    for _ in range(20_000):
        text, start = source.add("some words ")
        searched += len(text) - start
    assert searched < 60 * source.length


@pytest.mark.usefixtures("rule")
def test_an_abort_in_the_same_moment_wins_and_leaves_nothing_behind(tmp_path):
    async def main():
        steps = [{"text": ["so ", "FORBIDDEN"]}, "fine", {"text": ["FORBIDDEN ", Pause(gate="never")]}, "better"]
        async with Rig(tmp_path, steps) as rig:
            rules = rig.agent._rules
            stop = rules.piece

            def stop_and_abort(update):
                try:
                    stop(update)
                finally:
                    if rig.of("ttsr_triggered"):
                        rig.agent.lifecycle.signal.abort()

            rules.piece = stop_and_abort
            frames = await rig.run("go")
            assert kinds(frames)[-1] == "agent_settled" and kinds(frames).count("agent_start") == 1
            del rules.piece
            assert kinds(await rig.run("again")).count("agent_start") == 1
            frames = await rig.run("once more")
            assert kinds(frames).count("ttsr_triggered") == 1 and kinds(frames).count("agent_start") == 2

    run(main())
