"""Stream rules in a session: stopped once, told once, and never in the way of the user."""

import pytest

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


@pytest.mark.usefixtures("rule")
def test_an_abort_in_the_same_moment_wins_and_leaves_nothing_behind(tmp_path):
    async def main():
        steps = [{"text": ["so ", "FORBIDDEN"]}, "fine", {"text": ["FORBIDDEN ", Pause(gate="never")]}, "better"]
        async with Rig(tmp_path, steps) as rig:
            stop = rig.agent.engine.on_piece

            def stop_and_abort(update):
                try:
                    stop(update)
                finally:
                    if rig.of("ttsr_triggered"):
                        rig.agent.engine.signal.abort()

            rig.agent.engine.on_piece = stop_and_abort
            frames = await rig.run("go")
            assert kinds(frames)[-1] == "agent_settled" and kinds(frames).count("agent_start") == 1
            rig.agent.engine.on_piece = stop
            assert kinds(await rig.run("again")).count("agent_start") == 1
            frames = await rig.run("once more")
            assert kinds(frames).count("ttsr_triggered") == 1 and kinds(frames).count("agent_start") == 2

    run(main())
