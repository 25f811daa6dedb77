"""The table: one line for each harness, with n and spread, and how the failed trials failed."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from evals.trial import Trial

_HEADINGS = (
    "harness",
    "passed (n)",
    "95 % interval",
    "by round",
    "model calls",
    "tokens in",
    "tokens out",
    "seconds",
    "failed calls",
)
Rows = dict[str, list[Trial]]


def table(trials: Iterable[Trial]) -> str:
    """Return the comparison as Markdown."""
    rows: Rows = defaultdict(list)
    for trial in trials:
        rows[trial.harness].append(trial)
    lines = [
        f"| {' | '.join(_HEADINGS)} |",
        "|---" * len(_HEADINGS) + "|",
    ]
    for name, some in rows.items():
        passed, n = sum(trial.passed for trial in some), len(some)
        low, high = interval(passed, n)
        rounds = defaultdict(list)
        for trial in some:
            rounds[trial.number].append(trial.passed)
        by_round = " ".join(f"{sum(one)}/{len(one)}" for _, one in sorted(rounds.items()))
        cells = [name, f"{passed} ({n})", f"{low:.0%}–{high:.0%}", by_round]
        cells += [_spread(some, pick) for pick in (_calls, _input, _output, _seconds)]
        cells.append(_counts(sum((Counter(trial.errors) for trial in some), Counter())))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_reasons(rows), "", *_by_task(rows)])


def interval(passed: int, n: int) -> tuple[float, float]:
    """Return the Wilson interval of a share, at 95 %."""
    if n == 0:
        return 0.0, 1.0
    z, share = 1.96, passed / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * ((share * (1 - share) + z * z / (4 * n)) / n) ** 0.5 / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _reasons(rows: Rows) -> list[str]:
    lines = ["| harness | why trials did not pass |", "|---|---|"]
    for name, some in rows.items():
        lines.append(f"| {name} | {_counts(Counter(trial.reason for trial in some if not trial.passed))} |")
    return lines


def _by_task(rows: Rows) -> list[str]:
    names = list(dict.fromkeys(trial.task for some in rows.values() for trial in some))
    lines = [f"| task | {' | '.join(rows)} |", "|---" * (len(rows) + 1) + "|"]
    for task in names:
        cells = []
        for some in rows.values():
            mine = [trial for trial in some if trial.task == task]
            cells.append(f"{sum(trial.passed for trial in mine)}/{len(mine)}")
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return lines


def _spread(trials: Sequence[Trial], pick: Callable[[Trial], float]) -> str:
    """Return median, and least to greatest."""
    values = [pick(trial) for trial in trials]
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "–"


def _calls(trial: Trial) -> float:
    return trial.calls


def _input(trial: Trial) -> float:
    return trial.input


def _output(trial: Trial) -> float:
    return trial.output


def _seconds(trial: Trial) -> float:
    return trial.seconds
