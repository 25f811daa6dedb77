"""The table: one line for each harness, with n and spread, and how the failed trials failed."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from urllib.parse import quote

from evals import transcript
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


def table(trials: Iterable[Trial], lacks: Mapping[str, str] = {}) -> str:
    """Return the comparison as Markdown. `lacks` says of harnesses which limits of the others they do not have."""
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
        cells = [
            f"{name} ({lacks[name]})" if lacks.get(name) else name,
            f"{passed} ({n})",
            f"{low:.0%}–{high:.0%}",
            by_round,
        ]
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


def failures(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Return the trials that did not pass by their reason, the commonest first."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        if not trial.passed:
            groups[trial.reason].append(trial)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def link(trial: Trial) -> str:
    """Return where the transcript of a trial is, relative to the report."""
    return quote(f"{trial.harness}/{trial.task}/{trial.number}/transcript.html")


def markdown(table_text: str, trials: Sequence[Trial]) -> str:
    """Return the report: the table, then every trial with its transcript, the failed ones by reason."""
    lines = ["# Evaluation", "", *_conditions(trials), "", table_text, ""]
    for title, some in _groups(trials):
        lines += [f"## {title} ({len(some)})", ""]
        lines += [f"- [{_name(trial)}]({link(trial)}) {trial.said}".rstrip() for trial in some] + [""]
    return "\n".join(lines)


def html(table_text: str, trials: Sequence[Trial]) -> str:
    """Return the same report as a page."""
    parts = [f"<p>{escape(line)}</p>" for line in _conditions(trials)]
    parts += [_html_table(block) for block in table_text.split("\n\n") if block.strip()]
    for title, some in _groups(trials):
        state = "passed" if title == _PASSED else "failed"
        items = [
            f'<li><a href="{escape(link(trial))}">{escape(_name(trial))}</a> {escape(trial.said)}</li>'
            for trial in some
        ]
        head = f'<summary class="{state}">{escape(title)} ({len(some)})</summary>'
        parts.append(f"<details{' open' if state == 'failed' else ''}>{head}<ul>{''.join(items)}</ul></details>")
    return transcript.page("Evaluation", "\n".join(parts))


_PASSED = "passed"


def _groups(trials: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    passed = [trial for trial in trials if trial.passed]
    return [*failures(trials).items(), *([(_PASSED, passed)] if passed else [])]


def _name(trial: Trial) -> str:
    return f"{trial.harness}, {trial.task}, {trial.number}"


def _conditions(trials: Sequence[Trial]) -> list[str]:
    """Say what all trials have in common, and the versions of the programs."""
    if not trials:
        return []
    first = trials[0].conditions
    common = [
        f"{name} {value}"
        for name, value in first.items()
        if name not in ("program", "task") and all(trial.conditions.get(name) == value for trial in trials)
    ]
    programs = {trial.harness: trial.conditions.get("program") or "unknown version" for trial in trials}
    return [", ".join(common), ", ".join(f"{name}: {said}" for name, said in programs.items())]


def _html_table(block: str) -> str:
    head, _, *rows = block.strip().splitlines()
    cells = [[escape(cell.strip()) for cell in row.strip("|").split("|")] for row in (head, *rows)]
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells]
    return f"<table>{''.join(lines)}</table>"


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
