"""What announces work, and what only sounds like it: the ends of answers, beside what was asked."""

import json
import time
from pathlib import Path

import pytest

from spindle.agent.features.announcements import is_announcement

ANSWERS = [json.loads(line) for line in Path(__file__).with_name("announcements.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["text"][-40:])
def test_an_answer_announces_work_or_ends_it(row):
    assert is_announcement(row["text"], row["asked"]) is row["announced"]


@pytest.mark.parametrize(
    "piece", ["to ", "I will now ", "a```\n", "x\n", "To a, ", "now, ", "```\n", "I will write a "]
)
def test_a_text_of_any_length_takes_no_time(piece):
    begin = time.process_time()
    is_announcement(piece * 100_000, piece * 100_000)
    assert time.process_time() - begin < 1
