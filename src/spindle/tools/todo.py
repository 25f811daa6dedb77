"""The todo list as pure functions: its shape, the operations of `todo_write`, the text the model reads back."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from spindle.shapes.messages import Wire
from spindle.tools.base import arguments

Status = Literal["pending", "in_progress", "completed", "abandoned"]
_MARKS = {"completed": "✓", "in_progress": "→", "abandoned": "✗", "pending": "○"}


class TodoItem(Wire):
    id: str
    content: str
    status: Status
    notes: str | None = None
    details: str | None = None

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


class TodoPhase(Wire):
    id: str
    name: str
    tasks: list[TodoItem]


# -- a list given by the client --------------------------------------------------------------------


def normalise(value: Any) -> list[TodoPhase]:
    """Check a list from outside and fill in ids and statuses. Raises `ValueError` saying what is wrong."""
    if not isinstance(value, list):
        raise ValueError("phases must be a list")
    ids = _Ids(value)
    return [_phase(phase, f"phases[{index}]", ids) for index, phase in enumerate(value)]


def _phase(value: Any, where: str, ids: "_Ids") -> TodoPhase:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    tasks = value.get("tasks", [])
    if not isinstance(tasks, list):
        raise ValueError(f"{where}.tasks must be a list")
    name = _text(value.get("name"), f"{where}.name")
    made = [_task(task, f"{where}.tasks[{index}]", ids) for index, task in enumerate(tasks)]
    return TodoPhase(ids.take("phase", value.get("id")), name, made)


def _task(value: Any, where: str, ids: "_Ids") -> TodoItem:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    status = value.get("status", "pending")
    if status not in [*_MARKS]:  # it may be anything, even a value that cannot be a key
        raise ValueError(f"{where}.status must be one of {', '.join(_MARKS)}")
    content = _text(value.get("content"), f"{where}.content")
    notes, details = (text if isinstance(text := value.get(key), str) else None for key in ("notes", "details"))
    return TodoItem(ids.take("task", value.get("id")), content, status, notes, details)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where} must be a non-empty string")
    return value


class _Ids:
    """Hands out `phase-n` and `task-n` above the highest number in use; given ids stay."""

    def __init__(self, phases: Sequence[Any]) -> None:
        given = [phase for phase in phases if isinstance(phase, dict)]
        lists = [phase["tasks"] for phase in given if isinstance(phase.get("tasks"), list)]
        tasks = [task for tasks in lists for task in tasks if isinstance(task, dict)]
        self._highest = {"phase": 0, "task": 0}
        for item in [*given, *tasks]:
            if match := re.fullmatch(r"(phase|task)-(\d+)", str(item.get("id"))):
                self._highest[match[1]] = max(self._highest[match[1]], int(match[2]))

    def take(self, word: Literal["phase", "task"], given: Any = None) -> str:
        if isinstance(given, str) and given:
            return given
        self._highest[word] += 1
        return f"{word}-{self._highest[word]}"


# -- the tool --------------------------------------------------------------------------------------


def todo_parameters() -> dict[str, Any]:
    text = {"type": "string"}
    status = {"type": "string", "enum": list(_MARKS)}
    task = arguments("content", content=text, status=status, notes=text, details=text)
    tasks = {"type": "array", "items": task}

    def op(kind: str, /, *required: str, **properties: Any) -> dict[str, Any]:
        return arguments("op", *required, op={"type": "string", "enum": [kind]}, **properties)

    phases = {"type": "array", "items": arguments("name", name=text, tasks=tasks)}
    ops = [
        op("replace", "phases", phases=phases),
        op("add_phase", "name", name=text, tasks=tasks),
        op("add_task", "phase", "content", phase=text, content=text, notes=text, details=text),
        op("update", "id", id=text, status=status, content=text, notes=text, details=text),
        op("remove_task", "id", id=text),
    ]
    return arguments("ops", ops={"type": "array", "items": {"anyOf": ops}})


def apply_ops(phases: Sequence[TodoPhase], ops: Sequence[dict[str, Any]]) -> tuple[list[TodoPhase], list[str]]:
    """Run the operations on a copy. Return the new list and the errors."""
    from copy import deepcopy

    work = deepcopy(list(phases))
    errors: list[str] = []
    for op in ops:
        match op["op"]:
            case "replace":
                work = normalise([{"name": p["name"], "tasks": p.get("tasks") or []} for p in op["phases"]])
            case "add_phase":
                ids = _Ids(msgspec.to_builtins(work))
                work.append(_phase({"name": op["name"], "tasks": op.get("tasks") or []}, "phase", ids))
            case "add_task":
                _add_task(work, op, errors)
            case "update":
                _update(work, op, errors)
            case "remove_task":
                _remove(work, op, errors)
    _one_in_progress(work)
    return work, errors


def _add_task(work: list[TodoPhase], op: dict[str, Any], errors: list[str]) -> None:
    phase = next((phase for phase in work if phase.id == op["phase"]), None)
    if phase is None:
        errors.append(f'Phase "{op["phase"]}" not found')
        return
    id = _Ids(msgspec.to_builtins(work)).take("task")
    phase.tasks.append(TodoItem(id, op["content"], "pending", op.get("notes"), op.get("details")))


def _update(work: list[TodoPhase], op: dict[str, Any], errors: list[str]) -> None:
    task = next((task for task in _tasks(work) if task.id == op["id"]), None)
    if task is None:
        hint = "" if any(_tasks(work)) else " (todo list is empty — was it replaced or not yet created?)"
        errors.append(f'Task "{op["id"]}" not found{hint}')
        return
    for key in ("status", "content", "notes", "details"):
        if op.get(key) is not None:
            setattr(task, key, op[key])


def _remove(work: list[TodoPhase], op: dict[str, Any], errors: list[str]) -> None:
    for phase in work:
        kept = [task for task in phase.tasks if task.id != op["id"]]
        if len(kept) < len(phase.tasks):
            phase.tasks = kept
            return
    hint = "" if any(_tasks(work)) else " (todo list is empty)"
    errors.append(f'Task "{op["id"]}" not found{hint}')


def _one_in_progress(work: list[TodoPhase]) -> None:
    """Keep exactly one task in progress while any is open."""
    tasks = list(_tasks(work))
    running = [task for task in tasks if task.status == "in_progress"]
    for task in running[1:]:
        task.status = "pending"
    first = next((task for task in tasks if task.status == "pending"), None)
    if not running and first is not None:
        first.status = "in_progress"


# -- questions -------------------------------------------------------------------------------------


def _tasks(phases: Sequence[TodoPhase]) -> Iterator[TodoItem]:
    return (task for phase in phases for task in phase.tasks)


def open_items(phases: Sequence[TodoPhase]) -> list[TodoItem]:
    return [task for task in _tasks(phases) if task.open]


def remaining(phases: Sequence[TodoPhase]) -> list[TodoPhase]:
    """Return the list without finished tasks and without phases that have none left."""
    kept = [TodoPhase(phase.id, phase.name, [task for task in phase.tasks if task.open]) for phase in phases]
    return [phase for phase in kept if phase.tasks]


def render(phases: Sequence[TodoPhase], errors: Sequence[str] = ()) -> str:
    """Return the text that the model reads after a change."""
    lines = [f"Errors: {'; '.join(errors)}"] if errors else []
    if not phases:
        return "\n".join(lines) or "Todo list cleared."
    waiting = [(phase, task) for phase in phases for task in phase.tasks if task.open]
    lines.append(f"Remaining items ({len(waiting)}):" if waiting else "Remaining items: none.")
    for phase, task in waiting:
        lines.append(f"  - {task.id} {task.content} [{task.status}] ({phase.name})")
        if task.status == "in_progress" and task.details:
            lines += [f"      {line}" for line in task.details.split("\n")]
    current = next((i for i, phase in enumerate(phases) if any(t.open for t in phase.tasks)), len(phases) - 1)
    here = phases[current]
    done = sum(not task.open for task in here.tasks)
    lines.append(f'Phase {current + 1}/{len(phases)} "{here.name}" — {done}/{len(here.tasks)} tasks complete')
    for phase in phases:
        lines.append(f"  {phase.name}:")
        lines += [f"    {_MARKS[task.status]} {task.id} {task.content}" for task in phase.tasks]
    return "\n".join(lines)
