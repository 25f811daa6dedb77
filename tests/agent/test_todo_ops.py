"""The todo list as pure functions: operations, repair rules, ids, and the text the model reads."""

import pytest

from spindle.tools.todo import apply_ops, normalise, open_items, remaining, render

PLAN = [
    {"name": "Plan", "tasks": [{"content": "look"}, {"content": "think", "details": "twice\nat least"}]},
    {"name": "Do", "tasks": [{"content": "act"}]},
]


def plan():
    return apply_ops([], [{"op": "replace", "phases": PLAN}])[0]


def statuses(phases):
    return {task.id: task.status for phase in phases for task in phase.tasks}


def test_replace_numbers_tasks_across_phases_and_starts_the_first():
    assert statuses(plan()) == {"task-1": "in_progress", "task-2": "pending", "task-3": "pending"}
    assert [phase.id for phase in plan()] == ["phase-1", "phase-2"]


def test_completing_a_task_starts_the_next():
    phases, errors = apply_ops(plan(), [{"op": "update", "id": "task-1", "status": "completed"}])
    assert not errors
    assert statuses(phases) == {"task-1": "completed", "task-2": "in_progress", "task-3": "pending"}


def test_only_the_first_of_several_stays_in_progress():
    ops = [{"op": "update", "id": id, "status": "in_progress"} for id in ("task-2", "task-3")]
    phases, _ = apply_ops(plan(), [{"op": "update", "id": "task-1", "status": "pending"}, *ops])
    assert statuses(phases) == {"task-1": "pending", "task-2": "in_progress", "task-3": "pending"}


def test_new_ids_go_above_the_highest():
    phases, _ = apply_ops(
        plan(), [{"op": "remove_task", "id": "task-2"}, {"op": "add_task", "phase": "phase-1", "content": "new"}]
    )
    assert "task-4" in statuses(phases)
    phases, _ = apply_ops(phases, [{"op": "add_phase", "name": "More", "tasks": [{"content": "x"}]}])
    assert phases[-1].id == "phase-3" and phases[-1].tasks[0].id == "task-5"


@pytest.mark.parametrize(
    "start, op, error",
    [
        ("plan", {"op": "add_task", "phase": "Plan", "content": "x"}, 'Phase "Plan" not found'),
        ("plan", {"op": "update", "id": "task-9"}, 'Task "task-9" not found'),
        ("plan", {"op": "remove_task", "id": "task-9"}, 'Task "task-9" not found'),
        (
            "",
            {"op": "update", "id": "task-1"},
            'Task "task-1" not found (todo list is empty — was it replaced or not yet created?)',
        ),
        ("", {"op": "remove_task", "id": "task-1"}, 'Task "task-1" not found (todo list is empty)'),
    ],
)  # fmt: skip
def test_errors_name_what_is_missing(start, op, error):
    assert apply_ops(plan() if start else [], [op])[1] == [error]


def test_the_original_is_never_changed():
    original = plan()
    apply_ops(
        original, [{"op": "update", "id": "task-1", "status": "completed"}, {"op": "remove_task", "id": "task-2"}]
    )
    assert statuses(original)["task-1"] == "in_progress" and "task-2" in statuses(original)


def test_the_text():
    phases, errors = apply_ops(
        plan(), [{"op": "update", "id": "task-1", "status": "completed"}, {"op": "update", "id": "nope"}]
    )
    assert render(phases, errors) == (
        'Errors: Task "nope" not found\n'
        "Remaining items (2):\n"
        "  - task-2 think [in_progress] (Plan)\n"
        "      twice\n"
        "      at least\n"
        "  - task-3 act [pending] (Do)\n"
        'Phase 1/2 "Plan" — 1/2 tasks complete\n'
        "  Plan:\n"
        "    ✓ task-1 look\n"
        "    → task-2 think\n"
        "  Do:\n"
        "    ○ task-3 act"
    )
    assert render([]) == "Todo list cleared."


def test_finished_work_is_left_out_of_what_remains():
    done = [{"op": "update", "id": id, "status": "abandoned"} for id in ("task-1", "task-2")]
    phases, _ = apply_ops(plan(), done)
    assert [phase.name for phase in remaining(phases)] == ["Do"]
    assert [task.id for task in open_items(phases)] == ["task-3"]


@pytest.mark.parametrize(
    "value, problem",
    [
        ("x", "phases must be a list"),
        ([{"name": " ", "tasks": []}], "phases[0].name must be a non-empty string"),
        ([{"name": "a", "tasks": 5}], "phases[0].tasks must be a list"),
        ([{"name": "a", "tasks": [{"content": ""}]}], "phases[0].tasks[0].content must be a non-empty string"),
        ([{"name": "a", "tasks": [{"content": "c", "status": "bogus"}]}], "phases[0].tasks[0].status must be one of"),
        ([{"name": "a", "tasks": [{"content": "c", "status": ["x"]}]}], "phases[0].tasks[0].status must be one of"),
    ],
)
def test_lists_from_outside_are_checked(value, problem):
    with pytest.raises(ValueError, match=problem.replace("[", r"\[").replace("]", r"\]")):
        normalise(value)


def test_ids_from_outside_are_kept_and_missing_ones_filled_in():
    (phase,) = normalise([{"id": "p", "name": "n", "tasks": [{"id": "task-7", "content": "a"}, {"content": "b"}]}])
    assert (phase.id, [task.id for task in phase.tasks]) == ("p", ["task-7", "task-8"])
