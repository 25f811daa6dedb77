"""Tasks as they are written, and what is wrong with them."""

import json

import pytest

from spindle.agent import AgentError
from spindle.apps.batch.tasks import Task, chosen, read_jobs


def test_a_program_gives_tasks_in_any_form():
    jobs = read_jobs(["do it", {"id": "b", "prompt": "x"}, Task(id="c", prompt="y")])
    assert [job.prompt for job in jobs] == ["do it", "x", "y"]
    assert jobs[0].id == jobs[0].hash == jobs[0].folder
    assert [job.id for job in chosen(jobs, "^[bc]$")] == ["b", "c"]


def test_a_folder_of_markdown(tmp_path):
    for name in ("two.md", "one.md", "notes.txt"):
        (tmp_path / name).write_text(f"do {name}")
    assert [(job.id, job.prompt) for job in read_jobs(tmp_path)] == [("one", "do one.md"), ("two", "do two.md")]


def test_files_are_read_from_beside_the_task_file(tmp_path):
    (tmp_path / "p.txt").write_text("the prompt")
    (tmp_path / "s.json").write_text('{"type": "object"}')
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b'\xef\xbb\xbf\r\n{"id": "a", "prompt_file": "p.txt", "schema": "s.json"}\r\n\r\n')
    (job,) = read_jobs(file)
    assert (job.prompt, job.schema, job.base) == ("the prompt", {"type": "object"}, str(tmp_path))


def test_the_hash_is_of_what_is_to_be_done(tmp_path):
    def digest(**fields):
        file = tmp_path / "tasks.jsonl"
        file.write_text(json.dumps({"id": "a", "prompt_file": "p.txt", **fields}))
        return read_jobs(file)[0].hash

    (tmp_path / "p.txt").write_text("one")
    first = digest()
    assert digest() == digest(meta={"n": 1}) == digest(id="b") == first
    assert digest(verify="true") != first
    (tmp_path / "p.txt").write_text("two")
    assert digest() != first


def test_results_of_earlier_versions_are_found():
    limited = {"prompt": "go", "max_cost": 1.5, "max_turns": 3, "timeout": 9, "cwd": "/tmp", "tools": ["read"]}
    (job,) = read_jobs([limited])
    assert job.hash == "3f641e06a1af6e8d"
    (other,) = read_jobs([{**limited, "max_time": 60}])
    assert other.hash != job.hash


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('{"prompt": "a"}\nnonsense', "tasks.jsonl:2: not a JSON object"),
        ('{"promt": "a"}', "tasks.jsonl:1: Object contains unknown field `promt`"),
        ('{"prompt": 3}', "tasks.jsonl:1: Expected `str | null`, got `int`"),
        ('["a"]', "tasks.jsonl:1: Expected `object`"),
        ('{"id": "a"}', "needs either prompt or prompt_file"),
        ('{"prompt": "a", "prompt_file": "b"}', "needs either prompt or prompt_file"),
        ('{"prompt": "  "}', "the prompt is empty"),
        ('{"prompt_file": "gone.txt"}', "gone.txt: No such file or directory"),
        ('{"prompt": "a", "timeout": 0}', "timeout must be above 0"),
        ('{"prompt": "a", "repo": "gone"}', "gone is not a directory"),
        ('{"prompt": "a", "cwd": "gone"}', "gone is not a directory"),
        ('{"id": "a\\u0000b", "prompt": "a"}', "tasks.jsonl:1: id has a character in it that no program can be told"),
        ('{"prompt": "a", "verify": "echo \\ud800"}', "verify has a character in it"),
        ('{"id": "x", "prompt": "a"}\n{"id": "x", "prompt": "b"}', "tasks.jsonl:2: the task 'x' is at"),
        ('{"prompt": "a"}\n{"prompt": "a"}', "Give each its own id"),
        ("", "There are no tasks"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, lines, text):
    (tmp_path / "tasks.jsonl").write_text(lines)
    with pytest.raises(AgentError) as error:
        read_jobs(tmp_path / "tasks.jsonl")
    assert text in str(error.value)


def test_every_id_has_a_folder_of_its_own():
    ids = [
        "plain-1.2_x",
        "owner/repo#12",
        "owner-repo-12",
        "../../etc",
        "..",
        "results.jsonl",
        ".gitignore",
        "ü" * 300,
        "a b",
    ]
    folders = [job.folder for job in read_jobs([{"id": name, "prompt": "x"} for name in ids])]
    assert folders[0] == "plain-1.2_x"
    assert len(set(folders)) == len(ids)
    assert all("/" not in folder and not folder.startswith(".") and len(folder) <= 100 for folder in folders)
    assert "results.jsonl" not in folders
