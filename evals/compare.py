"""Compare two runs of the same tasks, trial by trial: `python -m evals.compare OUT/new OUT/old`.

All intervals are over the tasks, not over the trials: trials of one task are alike, and to take them for independent
would make the intervals too short. That of the shares is Bonett and Price's, the others are from a bootstrap.
"""

import argparse
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from evals import kept
from evals.trial import Trial

_SAMPLES = 10_000
_MEASURES: tuple[tuple[str, Callable[[Trial], float]], ...] = (
    ("model calls", lambda trial: trial.calls),
    ("tokens in", lambda trial: trial.input),
    ("tokens out", lambda trial: trial.output),
    ("seconds", lambda trial: trial.seconds),
)
Pair = tuple[Trial, Trial]


class NothingToCompare(Exception):
    """The two runs have no trial in common."""


def pairs_of(first: Sequence[Trial], second: Sequence[Trial]) -> list[Pair]:
    """Return the trials of the same task and number. Raises `NothingToCompare`."""
    for one in (first, second):
        if len(harnesses := {trial.harness for trial in one}) > 1:
            raise NothingToCompare(
                f"Name one harness of each run, as OUT/NAME; there are {', '.join(sorted(harnesses))}"
            )
    others = {(trial.task, trial.number): trial for trial in second}
    pairs = [(trial, others[key]) for trial in first if (key := (trial.task, trial.number)) in others]
    # What a crash shows is no matter of the harness, and the trial is run again.
    pairs = [(one, other) for one, other in pairs if "crashed" not in (one.reason, other.reason)]
    if not pairs:
        raise NothingToCompare("The two runs have no trial of the same task and number that did not crash")
    return pairs


def interval(pairs: Sequence[Pair], value: Callable[[Trial], float]) -> tuple[float, float, float]:
    """Return the mean difference, first minus second, with its 95 % interval."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for one, other in pairs:
        by_task[one.task].append(value(one) - value(other))
    groups = list(by_task.values())
    chance = random.Random(1)
    means = []
    for _ in range(_SAMPLES if len(groups) > 1 else 0):
        some = chance.choices(groups, k=len(groups))
        means.append(sum(map(sum, some)) / sum(map(len, some)))
    mean = statistics.fmean(difference for group in groups for difference in group)
    if not means:
        return mean, float("-inf"), float("inf")
    means.sort()
    return mean, means[int(0.025 * len(means))], means[int(0.975 * len(means)) - 1]


def share_interval(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Return the difference of the shares that passed, first minus second, with its 95 % interval.

    Bonett and Price's: as if there were two more tasks, of which each run passes one. A bootstrap would say -0 to +0
    if both runs pass the same tasks, however few there are.
    """
    differences = list(_passed_more(pairs).values())
    mean = sum(d for d, _ in differences) / sum(n for _, n in differences)
    shares = [*(d / n for d, n in differences), 1.0, -1.0]
    middle, spread = statistics.fmean(shares), 1.96 * (statistics.pvariance(shares) / len(shares)) ** 0.5
    return mean, max(-1.0, min(mean, middle - spread)), min(1.0, max(mean, middle + spread))


def chance_of(pairs: Sequence[Pair]) -> float:
    """Return the probability of so large a difference, if it were chance which of the two runs has which result of a
    task (exact, two-sided). With one trial for each task it is McNemar's exact test."""
    differences = [abs(difference) for difference, _ in _passed_more(pairs).values() if difference]
    ways = Counter({0: 1})
    for difference in differences:
        more: Counter[int] = Counter()
        for total, count in ways.items():
            more[total + difference] += count
            more[total - difference] += count
        ways = more
    seen = abs(sum(difference for difference, _ in _passed_more(pairs).values()))
    return sum(count for total, count in ways.items() if abs(total) >= seen) / float(2 ** len(differences))


def _passed_more(pairs: Sequence[Pair]) -> dict[str, tuple[int, int]]:
    """Return for each task how many more trials of the first run passed, and of how many."""
    found: dict[str, tuple[int, int]] = {}
    for one, other in pairs:
        difference, count = found.get(one.task, (0, 0))
        found[one.task] = difference + one.passed - other.passed, count + 1
    return found


def table(pairs: Sequence[Pair], first: str, second: str) -> str:
    """Return the comparison of two runs of these names as Markdown."""
    n = len(pairs)
    better = sum(one.passed and not other.passed for one, other in pairs)
    worse = sum(other.passed and not one.passed for one, other in pairs)
    passed = sum(one.passed for one, _ in pairs), sum(other.passed for _, other in pairs)
    mean, low, high = share_interval(pairs)
    shown = low <= 0 <= high
    lines = [
        f"{n} pairs of {len({one.task for one, _ in pairs})} tasks.",
        "",
        f"| | {first} | {second} | difference | 95 % interval |",
        "|---|---|---|---|---|",
        f"| passed | {passed[0]} ({passed[0] / n:.0%}) | {passed[1]} ({passed[1] / n:.0%}) | {100 * mean:+.1f} points "
        f"| {100 * low:+.1f} to {100 * high:+.1f} |",
    ]
    for name, value in _MEASURES:
        mean, low, high = interval(pairs, value)
        means = [statistics.fmean(value(pair[side]) for pair in pairs) for side in (0, 1)]
        lines.append(f"| {name} | {means[0]:,.1f} | {means[1]:,.1f} | {mean:+,.1f} | {low:+,.1f} to {high:+,.1f} |")
    lines += [
        "",
        f"Only {first} passed: {better}; only {second} passed: {worse} "
        f"(exact test over the tasks: p = {chance_of(pairs):.2f}).",
        "Which one solves more cannot be told from these trials." if shown else "The interval leaves out 0.",
    ]
    if unlike := _other_conditions(pairs):
        lines.append(f"The two runs differ in more than the harness: {', '.join(unlike)}.")
    return "\n".join(lines)


def _other_conditions(pairs: Sequence[Pair]) -> list[str]:
    names = {name for one, other in pairs for name in one.conditions.keys() | other.conditions.keys()} - {"program"}
    return sorted(
        name for name in names if any(one.conditions.get(name) != other.conditions.get(name) for one, other in pairs)
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evals.compare", description=__doc__)
    parser.add_argument("first", type=Path, help="folder of a harness, as evals/out/new")
    parser.add_argument("second", type=Path, help="folder of the one it is compared with, as evals/out/old")
    options = parser.parse_args()
    try:
        pairs = pairs_of(kept.load_all(options.first), kept.load_all(options.second))
    except NothingToCompare as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    names = pairs[0][0].harness, pairs[0][1].harness
    print(table(pairs, *(names if len(set(names)) == 2 else (str(options.first), str(options.second)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
