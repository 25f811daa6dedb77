"""`spindle batch report`, on results as batches leave them."""

import csv
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from ..cli.conftest import Place


def line(id: str, status: str = "ok", **fields: Any) -> dict[str, Any]:
    tokens = {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "total": 12}
    given = {"attempt": 1, "stopReason": "end", "turns": 1, "tokens": tokens, "cost": 0.0012, "durationMs": 1500}
    return {"id": id, "status": status, **given, **fields}


@pytest.fixture
def runs(place: Place) -> Place:
    lines = [line(f"t{n}", sessionFile=f"t{n}/session.jsonl") for n in range(200)]
    lines[3] |= {"status": "error", "error": "Connection error after 12 s\nmore"}
    lines[4] |= {"status": "error", "error": "Connection error after 7.5 s"}
    lines[5] |= {"status": "failed", "exit": 2}
    lines[6] |= {"status": "budget", "stopReason": "maxTurns", "error": "=cmd|' /C calc'!A0 <b>"}
    lines.append(line("t3", attempt=2))
    place.write("project/runs/results.jsonl", "".join(json.dumps(one) + "\n" for one in lines) + '{"id": "half')
    place.write("project/runs/t6/session.jsonl", "{}\n")
    place.write("project/runs/t6/patch.diff", "x")
    return place


def test_the_terminal_gets_a_line_per_task_and_the_reasons(runs: Place) -> None:
    done = runs.run("batch", "report", "runs")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["status", "task", "attempts", "turns", "tokens", "cost", "time", "reason"]
    assert re.match(r"ok +t3 +2 +2 +24 +\$0\.0024 +3\.0 s$", lines[4])
    assert "200 tasks: 197 ok, 1 budget, 1 error, 1 failed; $0.2412, 2,412 tokens, 201 turns, 301.5 s" in lines
    assert "  1 failed: verify ended with exit code 2: t5" in lines
    assert "      spindle --session runs/t6/session.jsonl" in lines


def test_failures_that_differ_in_numbers_are_one_reason(runs: Place) -> None:
    path = runs.project / "runs/results.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:200]))  # without the second attempt
    ended = [line(f"v{code}", "failed", error=f"verify ended with {code}, see log", cost=None) for code in (1, 3)]
    path.write_text(path.read_text() + "".join(json.dumps(one) + "\n" for one in ended))
    told = runs.run("batch", "report", "runs").stdout
    assert "\n  2 error: Connection error after 12 s: t3, t4\n" in told
    assert "  1 failed: verify ended with 1, see log: v1\n" in told and "with 3, see log: v3" in told
    path.write_text("".join(json.dumps(one) + "\n" for one in ended))
    assert "2 tasks: 2 failed; unknown cost, " in runs.run("batch", "report", "runs").stdout


def test_other_forms_hold_the_same_and_harm_nobody(runs: Place) -> None:
    rows = list(csv.DictReader(runs.run("batch", "report", "runs", "--format", "csv").stdout.splitlines()))
    assert len(rows) == 200 and rows[6]["reason"].startswith("'=cmd") and rows[6]["patch"] == "t6/patch.diff"
    page = runs.run("batch", "report", "runs/results.jsonl", "--format", "html").stdout
    links: list[str] = []
    tags: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            links.extend(value or "" for name, value in attrs if name == "href")

    Reader().feed(page)
    assert links == ["runs/t6/session.jsonl", "runs/t6/patch.diff"] and "b" not in tags
    text = runs.run("batch", "report", "runs", "--format", "markdown").stdout
    assert "[patch](<runs/t6/patch.diff>)" in text and "=cmd\\|" in text and "\\<b>" in text


def test_what_cannot_be_read_is_told(place: Place) -> None:
    done = place.run("batch", "report", "none")
    assert (done.returncode, done.stdout) == (2, "") and "Cannot read none/results.jsonl" in done.stderr
    place.write("project/bad/results.jsonl", "{}\n")
    done = place.run("batch", "report", "bad")
    assert done.returncode == 1 and "results.jsonl:1 is not a result" in done.stderr
